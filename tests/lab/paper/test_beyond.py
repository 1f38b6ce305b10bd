"""Curves beyond the paper's settings: numbers that are known, and the specs behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fairwolfe.lab.paper.claims import CLAIMS, beyond, counted, paper_curve
from fairwolfe.lab.paper.curves import Curves, Truth
from fairwolfe.lab.paper.figures import draw
from fairwolfe.lab.paper.reproduce import PlayedStudy, Reproduction
from fairwolfe.lab.paper.reproduction_page import sections
from fairwolfe.lab.paper.studies import FIGURES, STUDIES
from fairwolfe.lab.play import build
from fairwolfe.lab.spec import Experiment

FAR = tuple(figure for figure in FIGURES.values() if figure.kind == "distance")
NAMES = [name for figure in FAR for name in figure.studies]
T = np.array([10, 100, 1000])


def made(**ends: list[float]) -> Curves:
    """f at the last of three checkpoints, by seed; before it less by 2 and by 1."""
    runs = {}
    for label, values in ends.items():
        last = np.array(values)[:, None]
        runs[label.replace("_", " + ")] = {"value": last + np.array([-2.0, -1.0, 0.0])}
    return Curves(T, runs, tuple(range(3)))


# Seeds differ by much more than curves do.
KNOWN = made(
    A=[1.0, 5.0, 9.0],
    A_better=[1.1, 5.2, 9.3],
    A_worse=[0.9, 4.8, 8.7],
    A_same=[1.0, 5.0, 9.0],
    B=[2.0, 5.0, 8.0],
    B_noise=[2.1, 4.9, 8.0],
)
TOPS = np.array([2.0, 6.0, 10.0])


def test_differences_are_to_the_own_curve_of_the_paper_and_paired() -> None:
    rows = {row.label: row for row in beyond(KNOWN, TOPS)}
    assert list(rows) == list(KNOWN.runs)
    assert [rows[name].apart for name in ("A", "B")] == [None, None]
    assert rows["A"].value.estimate == pytest.approx(5.0)
    assert rows["A"].below == pytest.approx(1.0)
    # Student's t with 2 degrees of freedom: 4.3027 standard errors of (.1, .2, .3) on either side.
    better = rows["A + better"].apart
    assert better is not None
    half = 4.30265 * 0.1 / np.sqrt(3.0)
    assert (better.estimate, better.low, better.high) == pytest.approx(
        (0.2, 0.2 - half, 0.2 + half), rel=1e-4
    )
    assert rows["A + better"].below == pytest.approx(0.8)
    noise = rows["B + noise"].apart
    assert noise is not None
    assert noise.estimate == pytest.approx(0.0)
    # Without pairing nothing could be told: seeds are 4 apart.
    assert rows["A"].value.high - rows["A"].value.low > 15.0


def test_changes_are_counted_by_their_intervals() -> None:
    """(.1, .2, .3) has an interval that holds 0, and so has a difference of 0 throughout."""
    said = counted("x", beyond(KNOWN, TOPS))
    assert said.startswith("x, 4 changes: 0 above the paper's curve, 0 below it, 4 with 0 inside")
    clear = made(A=[1.0, 2.0, 3.0], A_up=[1.2, 2.21, 3.19], A_down=[0.8, 1.79, 2.81])
    said = counted("x", beyond(clear, np.ones(1)))
    assert said.startswith("x, 2 changes: 1 above the paper's curve, 1 below it, 0 with 0 inside")


class Best:
    """A truth that is given."""

    def __init__(self, tops: Any) -> None:
        self.tops = np.asarray(tops)


def of_results(curves: Curves) -> Reproduction:
    """A reproduction of one figure, whose results are given."""
    figure = FIGURES["defaults-50"]
    study = STUDIES["defaults-50"]
    played = PlayedStudy(study, Experiment.of(study.text), False, curves, 0, ())
    vars(played)["truth"] = Best(TOPS)
    return Reproduction(Path("out"), False, (figure,), {study.name: played}, None, ())


def test_the_table_states_every_curve() -> None:
    (section,) = (one for one in sections(of_results(KNOWN)) if "Beyond" in one.title)
    assert section.title == "Beyond the paper's settings"
    assert section.sentences[-1] == counted("defaults-50", beyond(KNOWN, TOPS))
    assert [row[:3] for row in section.rows] == [
        ("defaults-50", "A", "5"),
        ("defaults-50", "A + better", "5.2"),
        ("defaults-50", "A + worse", "4.8"),
        ("defaults-50", "A + same", "5"),
        ("defaults-50", "B", "5"),
        ("defaults-50", "B + noise", "5"),
    ]
    assert all(len(row) == len(section.head) for row in section.rows)
    below, more, interval = section.rows[1][4:]
    assert (below, more, interval) == ("0.8", "0.2", "-0.04841 to 0.4484")
    assert section.rows[0][5:] == ("", "")


def test_results_without_such_figures_have_no_section() -> None:
    found = of_results(KNOWN)
    other = Reproduction(found.out, False, (FIGURES["beta0"],), {}, None, ())
    assert not any("Beyond" in one.title for one in sections(other))


@pytest.mark.needs("matplotlib")
def test_the_figure_shows_distances_and_the_papers_curves_in_black() -> None:
    picture = draw(FIGURES["defaults-50"], {"defaults-50": KNOWN}, {"defaults-50": TOPS})
    (axes,) = picture.figure.axes
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(lines) == list(KNOWN.runs)
    assert np.asarray(lines["A + better"].get_ydata()) == pytest.approx([1.8, 0.8])  # from 100 on
    black = {label for label, line in lines.items() if line.get_color() == "black"}
    assert black == {"A", "B"}
    others = [line.get_color() for label, line in lines.items() if label not in black]
    assert len(set(others)) == len(others)
    assert axes.get_yscale() == "log"


# --- the specs ----------------------------------------------------------------------------------


def test_no_claim_is_about_them() -> None:
    assert not set(NAMES) & {name for claim in CLAIMS for name in claim.needs}


@pytest.mark.parametrize("name", NAMES)
def test_every_change_stands_beside_the_curve_that_it_changes(name: str) -> None:
    policies = Experiment.of(STUDIES[name].text).spec.policies
    assert {paper_curve(label) for label in policies} < set(policies)
    assert len({msgspec.json.encode(table) for table in policies.values()}) == len(policies)


PLAYED = {
    "defaults-arms-5": ("arms-50-5", {"FW-LinUCB 1", "FW-LinUCB 0.01", "FW-SquareCB 1e4"}),
    "defaults-arms-20": ("arms-50-20", {"FW-LinUCB 1", "FW-LinUCB 0.01", "FW-SquareCB 1e4"}),
    "defaults-50": ("lastfm-50", {"FW-LinUCBRank"}),
    "defaults-2k": ("lastfm-2k-gini", {"FW-LinUCBRank"}),
    "defaults-late-0": ("lastfm-50", {"FW-LinUCBRank"}),
    "defaults-late-100": ("lastfm-50", {"FW-LinUCBRank"}),
    "defaults-late-1000": ("lastfm-50", {"FW-LinUCBRank"}),
}


def test_every_study_has_a_study_of_the_paper() -> None:
    assert set(PLAYED) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_curves_of_the_paper_are_those_of_its_studies(name: str) -> None:
    """Same world, f and policy, but that where feedback is late open decisions are ignored."""
    of_paper, labels = PLAYED[name]
    ours, theirs = (Experiment.of(STUDIES[one].text).spec for one in (name, of_paper))
    assert (ours.environment, ours.objective) == (theirs.environment, theirs.objective)
    assert {paper_curve(label) for label in ours.policies} == labels
    for label in labels:
        ignoring = {"anticipate": False} if "late" in name else {}
        assert ours.policies[label] == theirs.policies[label] | ignoring


def test_with_feedback_at_once_anticipation_changes_nothing() -> None:
    """What the first panel of defaults-late shows: the same runs, bit for bit."""
    import fairwolfe as fw

    text = STUDIES["defaults-late-0"].text.replace(
        'name = "lastfm-50"', 'name = "factor_model"\nusers = 9\nitems = 12\nn_factors = 3'
    )
    cells = {cell.label: build(cell.settings, cell.label) for cell in Experiment.of(text).cells}
    for one, other in (("", " + anticipation"), (" + the other three", " + all four")):
        ignored, counting = (
            fw.simulate(parts.policy, parts.environment, 200, seed=3, **parts.options).value
            for parts in (cells[f"FW-LinUCBRank{one}"], cells[f"FW-LinUCBRank{other}"])
        )
        assert np.array_equal(ignored, counting)


def test_the_best_possible_is_that_of_the_seeds_played() -> None:
    """A random world has a top of its own for each seed; one that is fixed has one."""
    arms = Experiment.of(STUDIES["defaults-arms-5"].text)
    few, more = Truth(arms, (4,)), Truth(arms, (2, 4))
    assert more.tops.shape == (2,)
    assert more.tops[1] == few.tops[0]
    assert more.tops[0] != more.tops[1]
    assert more.highest == pytest.approx(more.tops.mean())
