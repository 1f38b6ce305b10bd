"""The page of a reproduction, as HTML and Markdown: claims, figures, what was played."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairwolfe.core.files import whole_file
from fairwolfe.core.tables import count
from fairwolfe.lab.paper.claims import (
    Beyond,
    ByClaim,
    beyond,
    by_claim,
    by_factors,
    counted,
    failures,
)
from fairwolfe.lab.paper.reproduce import Reproduction
from fairwolfe.lab.paper.studies import FIGURES
from fairwolfe.lab.report import render
from fairwolfe.plots import Picture


class Section(NamedTuple):
    """A heading, sentences, and a table, of which `text` columns are words."""

    title: str
    sentences: tuple[str, ...]
    caption: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    text: int


_HEAD = (
    "claim",
    "verdict",
    "sentence",
    "where",
    "measured",
    "must be",
    "by observed averages",
    "estimate",
    "95 % interval",
)
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
_LITERAL = (
    "Written after the verdicts of both, and after short runs over 19 further readings; played "
    "with fresh seeds. Raw counts, 5 factors, no rescaling, a factorisation for each seed; f of "
    "the observed averages (Eq. 3), for arms of the expected ones.",
    "Ids that end in '' have other statistics than the first registration; A, B and E are claims "
    "that it did not have. Utility and Gini index of trade-offs are of expected averages.",
)
_OBSERVED = "Verdicts over seeds, paired or by bootstrap, by f of the observed averages."
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
        yield Section("Every claim", (), _JUDGED, _HEAD, _rows(first), 7)
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
    if third := [row for row in rows if row["registration"] == "third"]:
        title = "The third registration"
        yield Section(title, _LITERAL, _OBSERVED, _HEAD, _rows(third), 7)
    if again := [row for row in rows if row["id"].endswith("'") and row["reading"] != "third"]:
        yield Section("The second registration", (_AGAIN,), _PAIRED, _HEAD, _rows(again), 7)
    if factors := by_factors(outcome.curves):
        head = ("claim", "factors", "verdict", "measured", "estimate", "95 % interval")
        shown = [
            (
                row.id,
                str(row.factors),
                row.finding.verdict,
                row.finding.statistic,
                *estimate(vars(row.finding)),
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
        (
            name,
            row.label,
            *estimate(vars(row.value)),
            number(row.below),
            *estimate(vars(row.apart) if row.apart else None),
        )
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


def estimate(row: Mapping[str, Any] | None) -> tuple[str, str]:
    """The estimate of a finding and its interval, in words."""
    if row is None:
        return "", ""
    return number(row["estimate"]), f"{number(row['low'])} to {number(row['high'])}"


def _side_by_side(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    """The claims of the first registration that have a second reading, a row for both."""
    both: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if not row["id"].endswith("'") and row["registration"] != "third":
            key = row["id"], row["where"].removesuffix("-second")
            both.setdefault(key, {})[row["reading"]] = row
    return [
        (
            id,
            readings["second"]["sentence"],
            where,
            readings["second"]["statistic"],
            *(_verdict(readings.get(reading)) for reading in ("first", "second")),
        )
        for (id, where), readings in both.items()
        if "second" in readings
    ]


def _verdict(row: Any) -> str:
    if row is None:
        return "not played"
    value, span = estimate(row)
    return f"{row['verdict']}: {value} ({span}){' in the embedded world' * row['embedded']}"


def _rows(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    return [
        (
            row["id"],
            row["verdict"],
            row["sentence"],
            row["where"] + " (embedded world)" * row["embedded"],
            row["statistic"],
            row["wanted"],
            _by_observed(row),
            *estimate(row),
        )
        for row in rows
    ]


def _by_observed(row: Any) -> str:
    """The verdict by f of the observed averages, printed beside and not in its place."""
    if row["registration"] == "third":
        return "the same" if not row["where"].startswith("arms") else "expected, as the paper"
    again = row["observed"]
    return "" if again is None else f"{again['verdict']} ({number(again['estimate'])})"


def number(value: float) -> str:
    """Four digits, times in full.

    >>> number(0.123456), number(51234.0)
    ('0.1235', '51,234')
    """
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1e3 else f"{value:.4g}"


_LARGEST = 150_000  # bytes of a figure in the docs


def write_report(outcome: Reproduction) -> list[Path]:
    """`report.html`, `claims.json` and `figures/`, in the folder of the results."""
    pictures = list(outcome.pictures())
    beside = outcome.out / "figures"
    beside.mkdir(parents=True, exist_ok=True)
    files = [path for picture in pictures for path in picture.save(beside)]
    page_file, claims_file = outcome.out / "report.html", outcome.out / "claims.json"
    with whole_file(page_file) as target:
        target.write(_html(outcome, pictures).encode())
    with whole_file(claims_file) as target:
        target.write(json.dumps(outcome.claims(), indent=2).encode())
    return [page_file, claims_file, *files]


def write_page(outcome: Reproduction, file: Path) -> list[Path]:
    """A Markdown page with PNG figures in a folder beside it, each at most 150 kB."""
    beside = file.parent / file.stem
    beside.mkdir(parents=True, exist_ok=True)
    figures = []
    for picture in outcome.pictures():
        target = beside / f"{picture.name}.png"
        target.write_bytes(_small(picture))
        figures.append((picture, target))
    with whole_file(file) as target_file:
        target_file.write("\n".join(_markdown(outcome, figures)).encode())
    return [file, *(target for _, target in figures)]


def _small(picture: Picture) -> bytes:
    """A PNG as fine as fits; 128 colours are enough for lines and their bands."""
    from PIL import Image

    for dpi in (130, 100, 75, 50):
        drawn, small = io.BytesIO(), io.BytesIO()
        picture.figure.savefig(drawn, dpi=dpi)
        Image.open(drawn).convert("RGB").quantize(128).save(small, "PNG", optimize=True)
        if small.tell() <= _LARGEST:
            break
    return small.getvalue()


# --- words --------------------------------------------------------------------------------------


def summary(outcome: Reproduction) -> list[str]:
    """How many claims hold, what was played, and what is missing."""
    groups = by_claim(outcome.judged)
    sentences = [
        _counted(f"By the {registration} registration: of ", these)
        for registration in ("first", "second", "third")
        if (these := [group for group in groups if group.registration == registration])
    ] or [_counted("Of ", [])]
    sentences += failures(outcome.judged)
    if outcome.quick:
        sentences.append(
            "These are quick runs: few seeds and short horizons, so verdicts are hints."
        )
    if stand_ins := [name for name, played in outcome.studies.items() if played.embedded]:
        sentences.append(
            "Without the Last.fm data (fairwolfe data lastfm) the embedded world replaces it "
            f"in {', '.join(stand_ins)}: these claims are about that world."
        )
    if missing := {name: one.missing for name, one in outcome.studies.items() if one.missing}:
        runs = ", ".join(f"{count} of {name}" for name, count in missing.items())
        sentences.append(f"Runs still to be played: {runs}. `{_command(outcome)}` completes them.")
    return sentences


def _counted(start: str, groups: Sequence[ByClaim]) -> str:
    verdicts = Counter(group.verdict for group in groups)
    counts = ", ".join(
        f"{verdicts[verdict]} {_several(verdict) if verdicts[verdict] > 1 else verdict}"
        for verdict in ("holds", "does not hold", "undecided")
        if verdicts[verdict]
    )
    rows = count(sum(len(group.rows) for group in groups), "row")
    return f"{start}{count(len(groups), 'claim')} judged ({rows}), {counts or 'none could be'}."


def _several(verdict: str) -> str:
    return verdict.replace("holds", "hold").replace("does", "do")


def _title(outcome: Reproduction) -> str:
    return f"The paper, reproduced{', in part' * bool(_names(outcome))}"


def _names(outcome: Reproduction) -> list[str]:
    """Of the figures that were asked for; none where these are all."""
    whole = len(outcome.figures) == len(FIGURES)
    return [] if whole else [figure.name for figure in outcome.figures]


def _command(outcome: Reproduction) -> str:
    out = outcome.out.name if outcome.out.is_absolute() else outcome.out.as_posix()
    words = ["fairwolfe reproduce", *_names(outcome), *["--quick"] * outcome.quick]
    return " ".join([*words, f"--out {out} --resume"])


def _study_rows(outcome: Reproduction) -> Iterator[tuple[str, ...]]:
    for name, played in outcome.studies.items():
        hashes = {one["factors_hash"] for one in played.facts} - {None}
        horizon, wanted = played.experiment.spec.horizon, len(played.experiment.spec.numbers())
        rounds = horizon * len(played.facts)
        yield (
            name,
            f"{horizon:,}",
            f"{played.seeds} of {wanted}",
            f"{played.seconds / 60.0:.1f}",
            f"{1e6 * played.seconds / rounds:.1f}" if rounds else "",
            ", ".join(sorted(one[:12] for one in hashes)) or "",
        )


def _origin(outcome: Reproduction) -> list[str]:
    """Machines, versions and dates."""
    facts = [one for played in outcome.studies.values() for one in played.facts]
    if not facts:
        return []
    machines = Counter(
        f"{one['machine']['processor']}, {one['machine']['cores']} cores, {one['os']}; "
        + ", ".join(f"{name} {version}" for name, version in one["versions"].items())
        for one in facts
    )
    dates = sorted({one["date"][:10] for one in facts})
    when = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    hours = sum(one["wall_seconds"] for one in facts) / 3600.0
    shared = sum(one["wall_seconds"] / one["machine"]["cores"] for one in facts) / 3600.0
    return [
        *(f"{count} runs on {where}." for where, count in machines.items()),
        f"PlayedStudy {when}: {hours:.2f} hours one run after the other, "
        f"{shared:.2f} hours with one on each core.",
    ]


# --- pages --------------------------------------------------------------------------------------


def _html(outcome: Reproduction, pictures: Sequence[Picture]) -> str:
    return render(
        "fairwolfe.lab.paper",
        "reproduction.html",
        title=_title(outcome),
        summary=summary(outcome),
        sections=sections(outcome),
        pictures=pictures,
        studies=(_STUDY_HEAD, _study_rows(outcome)),
        origin=_origin(outcome),
        command=_command(outcome),
    )


_STUDY_HEAD = ("study", "rounds", "seeds", "core minutes", "us a round", "factors")


def _markdown(outcome: Reproduction, figures: Sequence[tuple[Picture, Path]]) -> Iterator[str]:
    yield f"# {_title(outcome)}\n"
    yield "<!-- Made by `fairwolfe reproduce --page`; edit reproduction-notes.md instead. -->\n"
    for sentence in summary(outcome):
        yield f"- {sentence}"
    yield "- What differs from the paper, and why: {doc}`reproduction-notes`.\n"
    for section in sections(outcome):
        yield f"## {section.title}\n"
        for sentence in (*section.sentences, section.caption):
            yield f"{sentence}\n"
        yield from _markdown_table(section.head, section.rows)
        yield ""
    yield "## Figures\n"
    for picture, file in figures:
        yield f"### {picture.name}\n\n{picture.caption}\n"
        yield f"![{picture.alt}]({file.parent.name}/{file.name})\n"
    yield "## What was played\n"
    yield from _markdown_table(_STUDY_HEAD, _study_rows(outcome))
    yield ""
    for sentence in _origin(outcome):
        yield f"- {sentence}"
    yield f"\n```console\n$ {_command(outcome)}\n```\n"


def _markdown_table(head: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
