"""The results of a reproduction: a self-contained page, and the same as Markdown for the docs."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairwolfe.core.folders import whole_file
from fairwolfe.lab.page import render
from fairwolfe.paper.catalogue import FIGURES
from fairwolfe.paper.reproduce import Reproduction
from fairwolfe.paper.sections import number, sections
from fairwolfe.plots.picture import Picture

__all__ = ["number", "summary", "write_page", "write_report"]

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
    rows = outcome.claims()
    second = [row for row in rows if row["registration"] == "second"]
    sentences = []
    if len(second) < len(rows) or not rows:
        sentences.append(_counted("", [row for row in rows if row["registration"] == "first"]))
    if second:
        sentences.append(_counted("By the second registration: of ", second))
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


def _counted(start: str, rows: Sequence[Any]) -> str:
    verdicts = Counter(row["verdict"] for row in rows)
    counts = ", ".join(
        f"{verdicts[verdict]} {verdict.replace('holds', 'hold').replace('does', 'do')}"
        for verdict in ("holds", "does not hold", "undecided")
        if verdicts[verdict]
    )
    return f"{start or 'Of '}{len(rows)} claims judged, {counts or 'none could be'}."


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
        f"Played {when}: {hours:.2f} hours one run after the other, "
        f"{shared:.2f} hours with one on each core.",
    ]


# --- pages --------------------------------------------------------------------------------------


def _html(outcome: Reproduction, pictures: Sequence[Picture]) -> str:
    return render(
        "fairwolfe.paper",
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
