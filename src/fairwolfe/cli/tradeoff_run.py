"""What `fairwolfe tradeoff` does: optima, questions, runs, an agent, a page and tables."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from fairwolfe.agent import Agent
from fairwolfe.cli import printing
from fairwolfe.cli.tradeoff_page import Content, html
from fairwolfe.cli.tradeoff_world import TradeOffWorld, in_options, world_of
from fairwolfe.core.files import whole_file
from fairwolfe.core.streams import stream
from fairwolfe.core.workers import cores
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.fairness import Elicitation, Reachable, elicit
from fairwolfe.fairness.tradeoff import FAIR, knee, plan, sentence
from fairwolfe.objectives import GiniEquality, GiniWelfare
from fairwolfe.ranking import FWLinUCBRank

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


def place(path: Path) -> Path:
    """Where the agent goes; raises now if nothing can be written there."""
    if not path.parent.is_dir():
        raise InvalidInput(f"--save is {str(path)!r}, and there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput(f"--save is {str(path)!r}, which is a folder; give a file")
    return path


def agent_of(world: TradeOffWorld, reached: Reachable, beta: float, exploration: Any) -> Agent:
    """An agent that has learnt nothing yet, with the items by their keys."""
    arrays = world.environment.init(stream(reached.seeds[0], "world"))
    if arrays.users.ndim != 2:
        raise InvalidInput("--save needs a world with factors of users and items, such as a table")
    keys = [str(one) for one in world.item_ids]
    policy = FWLinUCBRank(reached.objective(beta), exploration=exploration)
    items = dict(zip(keys, arrays.items, strict=True))
    return Agent(policy, world.environment.problem(), items=items)


def hand_over(path: Path, agent: Agent, world: TradeOffWorld, seed: int) -> list[Path]:
    """Write the agent, and beside it the users' factors: its contexts."""
    agent.save(path)
    users = world.environment.init(stream(seed, "world")).users
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["user", *(f"factor {i + 1}" for i in range(users.shape[1]))])
    names = world.user_ids or range(len(users))
    writer.writerows([name, *row] for name, row in zip(names, users.tolist(), strict=True))
    beside = path.with_name(path.stem + "-users.csv")
    with whole_file(beside) as file:
        file.write(text.getvalue().encode())
    return [path, beside]


def run(name: str, out: Path, as_json: bool, options: dict[str, Any]) -> None:
    """Do what the command asks for; `options` are those of the command line, by name."""
    require_extra("lab", "fairwolfe tradeoff", "jinja2", "matplotlib")
    if options["ask"] and options["give_up"] is not None:
        raise InvalidInput("--ask and --give-up both choose a beta; give one of them")
    save = None if options["save"] is None else place(options["save"])
    sizes = ("users", "items", "user_column", "item_column", "count_column")
    given = {size: options[size] for size in sizes if options[size] is not None}
    world = world_of(name, options["slots"], options["group_column"], given)
    names = ("floors", "horizon", "seeds", "exploration", "tolerance")
    setup = plan(
        world.environment,
        options["objective"],
        options["betas"],
        jobs=options["jobs"] or cores(),
        **{name: options[name] for name in names},
    )
    today = options["implied"] or {}
    if "gini" in today and not isinstance(setup.optima.items, GiniEquality | GiniWelfare):
        raise InvalidInput(
            f"--implied has gini, and --objective {options['objective']} is not a function of the "
            "Gini index; give item_objective, as in tradeoff.json"
        )
    printing.make_folder(out)
    for note in (*world.notes, world.clicks):
        click.echo(in_options(note), err=True)
    with printing.progress_bar() as progress:
        progress.add_task("the best possible", total=None)  # how long is not known
        reached = setup.reach()
    if save is not None:  # an error is raised before the work
        agent_of(world, reached, 0.0, setup.exploration)
    chosen, why, sentences, choice = _choose(reached, options)
    setup = setup.aimed(reached, *([] if chosen is None else [chosen]))
    with printing.progress_bar() as progress:
        task = progress.add_task("playing", total=setup.rounds)
        outcome = setup.run(lambda n: progress.update(task, advance=n), reached)
    if chosen is None:
        learnt = [row for row in outcome.table() if row["policy"] == FAIR]
        chosen, why = learnt[knee(learnt)]["beta"], "where the curve turns"
    who: tuple[dict[str, Any], ...] = ()
    if world.groups is not None:
        who = tuple(outcome.by_group(world.groups, sorted({0.0, *outcome.betas})))
        sentences.append(sentence(list(who), chosen))
    files = outcome.draw(out)
    if save is not None:
        agent = agent_of(world, outcome, chosen, setup.exploration)
        files = [*hand_over(save, agent, world, outcome.seeds[0]), *files]
        sentences.append(
            f"{save.name} holds an agent with beta = {chosen:.3g} ({why}), which has learnt "
            f'nothing yet: agent = fw.Agent.load("{save.name}"), then agent.act(user) with the '
            f"factors of a user, as in {files[1].name}."
        )
    content = Content(
        world=world,
        name=Path(name).name,
        command=shlex.join(["fairwolfe", *sys.argv[1:]]),
        outcome=outcome,
        chosen=chosen,
        why=why,
        status_quo=(today["gini"], today["utility"]) if "gini" in today else None,
        sentences=(*sentences, *outcome.sentences()),
        groups=who,
    )
    document = _document(content) | choice
    files += _written_files(out, content, document)
    if as_json:
        printing.print_json(document | {"files": [str(file) for file in files]})
        return
    _print_table(outcome, document["table"])
    printing.print_files(files, content.sentences)


def _document(content: Content) -> dict[str, Any]:
    """All numbers and sentences, for JSON."""
    outcome = content.outcome
    return {
        "table": [printing.finite(row) for row in outcome.table()],
        "sentences": list(content.sentences),
        "seeds": list(outcome.seeds),
        "frontier": [printing.finite(row) for row in outcome.rows()],
        "beta": content.chosen,
        "why": content.why,
        "clicks": content.world.clicks,
    }


def _choose(
    reached: Any, options: dict[str, Any]
) -> tuple[float | None, str, list[str], dict[str, Any]]:
    """The requested beta, where it comes from, sentences about it, and the same as JSON."""
    chosen, why, sentences = None, "", []
    choice: dict[str, Any] = {}
    if options["implied"] is not None:
        implied = reached.implied(options["implied"])
        sentences.append(implied.sentence)
        better = implied.dominated_by
        choice["implied"] = {
            "beta": printing.finite(implied.beta),
            "regret": printing.finite(implied.regret),
            "nearest": implied.nearest,
            "attainable": implied.attainable,
            "dominated_by": None if better is None else better._asdict(),
        }
    if options["give_up"] is not None:
        given_up = reached.give_up(options["give_up"])
        chosen, why = given_up.beta, f"for at most {100 * options['give_up']:g} %"
        sentences.append(given_up.sentence)
        choice["give_up"] = printing.finite(given_up._asdict())
    if options["ask"]:
        questions = elicit(reached)
        ask(questions)
        sentences += questions.sentences()
        if questions.answers:
            chosen, why = questions.beta, "by your answers"
            choice["ask"] = {
                "answers": list(questions.answers),
                "beta": questions.beta,
                "interval": list(questions.interval(0.9)),
                "noise": questions.noise,
                "contradictions": questions.contradictions,
            }
    return chosen, why, sentences, choice


def _written_files(out: Path, content: Content, document: dict[str, Any]) -> list[Path]:
    """The page, the numbers, and who gains."""
    page, data = out / "tradeoff.html", out / "tradeoff.json"
    page.write_text(html(content), encoding="utf-8")
    data.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    files = [page, data]
    if content.groups:
        files.append(out / "groups.csv")
        with open(files[-1], "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*content.groups[0], "plays_share"], lineterminator="\n")
            writer.writeheader()
            for row in content.groups:
                writer.writerow(row | {"plays_share": content.world.plays[row["group"]]})
    return files


def _print_table(outcome: Any, rows: list[dict[str, Any]]) -> None:
    several = {"95 % interval": "{utility_low} - {utility_high}"} if len(outcome.seeds) > 1 else {}
    printing.print_rows(
        {
            "policy": "{policy}",
            "beta": "{beta}",
            "floor": "{floor}",
            "utility": "{utility}",
            **several,
            "Gini": "{gini}",
            "bottom half": "{bottom_half}",
            "top decile": "{top_decile}",
            "f": "{value}",
            "below the best": "{below_best_percent}",
            **({"violation": "{violation}"} if outcome.constraints is not None else {}),
        },
        [_written(row) for row in rows],
        less=("top decile", "f", "95 % interval", "floor", "violation", "below the best"),
    )


def _written(row: dict[str, Any]) -> dict[str, str]:
    forms = {"bottom_half": "{:.0%}", "top_decile": "{:.0%}", "below_best_percent": "{:.2f} %"}
    forms |= {"policy": "{}", "beta": "{:.3g}", "floor": "{:.3g}"}
    return {k: "" if v is None else forms.get(k, "{:.3f}").format(v) for k, v in row.items()}
