"""Objectives as text on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from fairwolfe.cli import commands

WRONG = {
    "Minimum().value": "'Minimum().value' at character 1 is not allowed",
    "__import__('os').system('true')": "is not allowed",
    "Minimun()": "did you mean 'Minimum'?",
    "[x for x in y]": "is not allowed",
    "Minimum() + 1": "'1' at character 13 is no objective",
    "+".join(["Minimum()"] * 9000): "nested too deeply",
    "Welfare(9)": "alpha is 9",
    "welfare": "objective.alpha is missing",
}


@pytest.mark.parametrize(("text", "sentence"), WRONG.items(), ids=[text[:20] for text in WRONG])
def test_wrong_text_ends_with_a_sentence(text: str, sentence: str, tmp_path: Any) -> None:
    options = ["tradeoff", "factor_model", "--objective", text, "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(commands, options)
    assert result.exit_code == 2, result.output
    assert "--objective" in result.output
    assert sentence in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()
