"""The tables of claims on the page of a reproduction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fairwolfe.paper.beyond import Beyond, beyond, counted
from fairwolfe.paper.factors import by_factors
from fairwolfe.paper.reproduce import Reproduction
from fairwolfe.paper.verdicts import Finding

__all__ = ["Section", "number", "sections"]


class Section(NamedTuple):
    """A heading, sentences, and a table, of which `text` columns are words."""

    title: str
    sentences: tuple[str, ...]
    caption: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    text: int


_HEAD = ("claim", "verdict", "sentence", "where", "measured", "estimate", "95 % interval")
_PAIRED = "Verdicts over seeds, paired."
_JUDGED = "Verdicts over seeds, paired; thresholds were fixed before any run."
_TWO_READINGS = (
    'The body of the paper says "most listening counts", the appendix "most interactions", and the '
    "number of factors is not given; the second reading was chosen after the first verdicts were "
    "known, from short runs.",
    "The first reading keeps those with the most plays and has 10 factors, the second those with "
    "the most listeners, for users the most artists, and has 5.",
)
_AGAIN = (
    "Other statistics for five sentences. They were fixed when the verdicts above were known, and "
    "where they are about the first reading its runs had been played."
)
_FACTORS = (
    "The second reading with 3 to 10 factors: shorter runs with fewer seeds than those above, so "
    "intervals are wide."
)
_BEYOND = (
    "Options that the paper does not have, with its own curves beside them. They are not claims of "
    "the paper. A curve A + ... is A with the changes that follow.",
)
_BEYOND_HEAD = (
    "where",
    "curve",
    "f",
    "95 % interval",
    "below the best possible",
    "more than the paper's",
    "95 % interval",
)


def sections(outcome: Reproduction) -> Iterator[Section]:
    """Every table of claims that has rows, in the order of the page."""
    rows = outcome.claims()
    first = [row for row in rows if row["registration"] == "first"]
    if first:
        yield Section("Every claim", (), _JUDGED, _HEAD, _rows(first), 5)
    if any(row["reading"] == "second" for row in rows):
        head = ("claim", "sentence", "where", "measured", "first reading", "second reading")
        yield Section(
            "Two readings of the data",
            _TWO_READINGS,
            "The same claims and thresholds in both readings.",
            head,
            _side_by_side(rows),
            6,
        )
    if again := [row for row in rows if row["id"].endswith("'")]:
        yield Section("The second registration", (_AGAIN,), _PAIRED, _HEAD, _rows(again), 5)
    if factors := by_factors(outcome.curves):
        head = ("claim", "factors", "verdict", "measured", "estimate", "95 % interval")
        shown = [
            (
                row.id,
                str(row.factors),
                row.finding.verdict,
                row.finding.statistic,
                number(row.finding.estimate),
                f"{number(row.finding.low)} to {number(row.finding.high)}",
            )
            for row in factors
        ]
        title = "R5, R7 and R9 by the number of factors"
        yield Section(title, (_FACTORS,), "Verdicts by the number of factors.", head, shown, 4)
    if changes := _changes(outcome):
        yield _beyond(changes)


def _beyond(changes: dict[str, list[Beyond]]) -> Section:
    sentences = (*_BEYOND, *(counted(name, rows) for name, rows in changes.items()))
    shown = [
        (name, row.label, *_estimate(row.value), number(row.below), *_estimate(row.apart))
        for name, rows in changes.items()
        for row in rows
    ]
    caption = "f at the horizon, over seeds; differences are paired."
    return Section("Beyond the paper's settings", sentences, caption, _BEYOND_HEAD, shown, 2)


def _changes(outcome: Reproduction) -> dict[str, list[Beyond]]:
    """By study, of the figures that compare curves with the paper's own."""
    names = [n for figure in outcome.figures if figure.kind == "distance" for n in figure.studies]
    return {
        name: beyond(curves, outcome.studies[name].truth.tops)
        for name in names
        if (curves := outcome.studies[name].curves) is not None
    }


def _estimate(finding: Finding | None) -> tuple[str, str]:
    """With its interval."""
    if finding is None:
        return "", ""
    return number(finding.estimate), f"{number(finding.low)} to {number(finding.high)}"


def _side_by_side(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    """The claims of the first registration that have a second reading, a row for both."""
    both: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if not row["id"].endswith("'"):
            key = row["id"], row["where"].removesuffix("-second")
            both.setdefault(key, {})[row["reading"]] = row
    return [
        (
            id,
            readings["second"]["sentence"],
            where,
            readings["second"]["statistic"],
            *(_told(readings.get(reading)) for reading in ("first", "second")),
        )
        for (id, where), readings in both.items()
        if "second" in readings
    ]


def _told(row: Any) -> str:
    if row is None:
        return "not played"
    return (
        f"{row['verdict']}: {number(row['estimate'])} ({number(row['low'])} to "
        f"{number(row['high'])}){' in the embedded world' * row['embedded']}"
    )


def _rows(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    return [
        (
            row["id"],
            row["verdict"],
            row["sentence"],
            row["where"] + " (embedded world)" * row["embedded"],
            row["statistic"],
            number(row["estimate"]),
            f"{number(row['low'])} to {number(row['high'])}",
        )
        for row in rows
    ]


def number(value: float) -> str:
    """Four digits, times in full.

    >>> number(0.123456), number(51234.0)
    ('0.1235', '51,234')
    """
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}"
