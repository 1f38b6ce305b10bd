"""The questions of `fairwolfe tradeoff --ask`: on a terminal, or from a pipe."""

from __future__ import annotations

import sys

import click

from fairwolfe.fairness import Elicitation

__all__ = ["ask"]

_ANSWERS = {"a": "a", "b": "b", "=": "equal", "equal": "equal", "e": "equal"}


def ask(questions: Elicitation) -> None:
    """Ask until eight are answered, or q, or the end of the input; everything goes to stderr."""
    _write("Which is better for you? Answer a, b, or = if they are about equal; q ends.")
    while not questions.done:
        question = questions.ask()
        first, _, second = question.sentence.partition(", or ")
        _write(f"\n{question.number}.  a  {first}\n    b  {second.removesuffix('?')}")
        answer = _read()
        if answer is None:
            break
        questions.answer(answer)
    _write("")


def _read() -> str | None:
    """An answer; None at the end."""
    while True:
        click.echo("    a, b, = or q: ", nl=False, err=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in ("q", "quit"):
            _write("")
            return None
        if word in _ANSWERS:
            return _ANSWERS[word]
        _write(f"    {line.strip()!r} is not one of them.")


def _write(text: str) -> None:
    click.echo(text, err=True)
