"""The catalogue of the paper's figures, and the command that plays it, at a tiny size."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from fairwolfe.cli import commands
from fairwolfe.environments import LastFM50
from fairwolfe.environments import listening as lastfm
from fairwolfe.errors import InvalidInput
from fairwolfe.lab.paper import studies
from fairwolfe.lab.paper.claims import CLAIMS
from fairwolfe.lab.paper.reproduce import reproduce
from fairwolfe.lab.paper.reproduction_page import number, sections, write_report
from fairwolfe.lab.paper.studies import FIGURES, STUDIES, figures, studies_of
from fairwolfe.lab.spec import Experiment

pytestmark = pytest.mark.needs("pyarrow", "matplotlib", "jinja2")


def fairwolfe(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments, prog_name="fairwolfe")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, study in STUDIES.items():
        small = replace(study, quick_horizon=120, quick_seeds=2)
        monkeypatch.setitem(studies.STUDIES, name, small)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FAIRWOLFE_DATA", raising=False)
    monkeypatch.setattr(lastfm, "places", lambda: [tmp_path / "nowhere"])


# --- the catalogue ------------------------------------------------------------------------------

# Rounds and seeds, as fixed before any run.
SIZES = {
    "arms": (10_000, 100),
    "lastfm-50": (5_000_000, 10),
    "lastfm-50-tradeoff": (5_000_000, 3),
    "lastfm-50-gini": (2_000_000, 10),
    "lastfm-50-equal": (2_000_000, 10),
    "lastfm-50-welfare": (2_000_000, 10),
    "lastfm-2k-gini": (1_000_000, 10),
    "lastfm-2k-welfare": (1_000_000, 10),
    "lastfm-2k-tradeoff": (1_000_000, 3),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_a_spec_of_its_name(name: str) -> None:
    experiment = Experiment.of(STUDIES[name].text)
    assert experiment.name == name
    kind = "arms" if name.startswith("arms") else STUDIES[name].spec
    if STUDIES[name].reading == "third":  # as it was registered: see below
        return
    if (wanted := SIZES.get(kind)) is not None:
        assert (experiment.spec.horizon, experiment.spec.seeds) == wanted


def test_all_specs_are_used_and_all_figures_have_theirs() -> None:
    folder = Path(studies.__file__).parent / "specs"
    assert {file.stem for file in folder.glob("*.toml")} == {one.spec for one in STUDIES.values()}
    assert {study.name for study in studies_of(figures())} == set(STUDIES)


def test_every_claim_is_about_a_study_with_the_policies_that_it_names() -> None:
    assert {name for claim in CLAIMS for name in claim.needs} <= set(STUDIES)


def test_grids_of_the_trade_offs() -> None:
    small, large = (Experiment.of(STUDIES[f"lastfm-{n}-tradeoff"].text).spec for n in ("50", "2k"))
    betas = "policies.FW-LinUCBRank.objective.beta"
    assert small.grid[betas] == large.grid[betas] == [0, 0.1, 0.3, 1, 3, 10]
    floors = small.grid["policies.FairLearn.minimum"]
    assert floors == [0, 0.02, 0.05, 0.1, 0.15, 0.19]
    # With 2,500 items the largest floor is 10/2,500: the same parts of it as with 50.
    scaled = [floor * 50 / 2500 for floor in floors]
    assert large.grid["policies.FairLearn.minimum"] == pytest.approx(scaled)


def test_the_second_reading_differs_in_the_world_alone() -> None:
    twice = [study for study in STUDIES.values() if study.reading == "second"]
    kinds = ("", "-tradeoff", "-gini", "-equal", "-welfare")
    assert {study.name for study in twice} == {f"lastfm-50{kind}-second" for kind in kinds}
    for study in twice:
        first, second = (Experiment.of(STUDIES[n].text).spec for n in (study.spec, study.name))
        world = {"name": "lastfm-50", "by": "listeners", "factors": 5}
        assert first.environment == {"name": "lastfm-50"}
        assert second.environment == world
        changed = msgspec.structs.replace(first, name=study.name, environment=world)
        assert changed == second


@pytest.mark.needs("lastfm data", "implicit")
def test_the_second_reading_counts_listeners() -> None:
    """The kept artists are those that most users played, counted in the file by hand."""
    rows = [line.split() for line in lastfm.find().read_text().splitlines()[1:]]
    world = LastFM50(by="listeners", factors=5)
    for i, kept in ((0, world.user_ids), (1, world.item_ids)):
        different = Counter(int(row[i]) for row in rows if float(row[2]) > 0)
        least = min(different[int(one)] for one in kept)
        assert len(kept) == 50
        assert all(count <= least for one, count in different.items() if one not in kept)
    assert world.problem().n_features == (5, 5)
    assert set(world.item_ids) != set(LastFM50().item_ids)


def test_a_number_of_factors_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="factors is 0"):
        LastFM50(factors=0)


def test_the_third_registration_is_as_it_was_written() -> None:
    """Fresh seeds, ten of them; the literal reading; the horizons and grids of the registration."""
    thrice = {s.name.removesuffix("-third"): s for s in STUDIES.values() if s.reading == "third"}
    specs = {name: Experiment.of(study.text).spec for name, study in thrice.items()}
    assert all(spec.seeds == list(range(100, 110)) for spec in specs.values())
    literal = {"weights": "counts", "scale": False, "factors": 5, "seed": "run"}
    for name, spec in specs.items():
        if name.startswith("lastfm"):
            world = "lastfm-2k" if "2k" in name else "lastfm-50"
            assert spec.environment == {"name": world, **literal}
    horizons = {name: spec.horizon for name, spec in specs.items()}
    assert horizons["lastfm-50"] == horizons["lastfm-50-tradeoff"] == 5_000_000
    assert horizons["lastfm-50-gini"] == horizons["lastfm-50-alpha"] == 2_000_000
    assert horizons["lastfm-2k-gini"] == horizons["lastfm-2k-tradeoff"] == 1_000_000
    betas = "policies.FW-LinUCBRank.objective.beta"
    grid = specs["lastfm-50-tradeoff"].grid
    assert grid[betas] == [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 1, 3]
    assert grid["policies.FairLearn.minimum"] == [0, 0.02, 0.05, 0.1, 0.15, 0.19, 0.2]
    assert specs["lastfm-2k-tradeoff"].grid[betas] == [0, 0.3, 0.5, 0.7, 1, 1.5, 3, 10]
    assert specs["lastfm-50-welfare-beta"].grid[betas] == [0.1, 0.5, 1, 5, 20]
    ids = [claim.id for claim in CLAIMS if claim.registration == "third"]
    plain = ["R1", "R2", "R3", "R4", "R5", "R11", "R13", "R14", "R16", "R17a", "R17b", "R18"]
    other = ["R4", "R7", "R8", "R9", "R10", "R15", "R15", "R16", "T1", "T1", "T1"]
    added = ["A1", "A1b", "B1", "B1", "E1", "E1"]
    assert ids == [*plain, *(f"{id}''" for id in other), *added]


def test_one_name_plays_a_registration() -> None:
    names = {study.name for study in studies_of(figures(("third",)))}
    assert names == {study.name for study in STUDIES.values() if study.reading == "third"}


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.usefixtures("no_data")
def test_without_data_the_embedded_world_stands_in(quick: bool) -> None:
    experiment, embedded = STUDIES["lastfm-50"].experiment(quick)
    assert embedded
    assert experiment.spec.environment["name"] == "factor_model"
    assert not STUDIES["smoothing"].experiment(quick)[1]
    second, embedded = STUDIES["lastfm-50-second"].experiment(quick)
    assert embedded
    assert second.spec.environment == experiment.spec.environment | {"n_factors": 5}


# --- the command --------------------------------------------------------------------------------


@pytest.mark.usefixtures("tiny")
def test_the_command_ends_in_the_claims_and_a_report(tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    arguments = ("reproduce", "anytime", "--quick", "--out", str(out), "--jobs", "1")
    result = fairwolfe(*arguments, "--json", "--page", str(page))
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert set(said) == {"claims", "report"}
    assert [row["id"] for row in said["claims"]] == ["T2"] * 3
    assert {row["figure"] for row in said["claims"]} == {"anytime"}
    assert all(
        set(row)
        >= {"id", "figure", "sentence", "where", "statistic", "estimate", "low", "high", "verdict"}
        for row in said["claims"]
    )
    html = Path(said["report"]).read_text(encoding="utf-8")
    assert "Smoothing of all time" in html
    assert "quick runs" in html
    assert "<script" not in html
    assert (out / "figures" / "anytime.svg").exists()
    text = page.read_text(encoding="utf-8")
    assert "![" in text
    assert "| T2 |" in text
    assert text.startswith("# The paper, reproduced, in part\n")
    assert "\n$ fairwolfe reproduce anytime --quick --out out --resume\n" in text
    assert all(file.stat().st_size <= 150_000 for file in page.with_suffix("").glob("*.png"))

    refused = fairwolfe(*arguments)
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    again = fairwolfe(*arguments, "--resume")
    assert again.exit_code == 0, again.output
    assert "By the first registration: of 1 claim judged (3 rows)" in again.stdout


@pytest.mark.usefixtures("tiny", "no_data")
def test_the_embedded_world_is_marked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = fairwolfe("reproduce", "lastfm-50", "--quick", "--out", str(out), "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "the embedded world replaces it in lastfm-50" in result.stdout
    assert "(embedded world)" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny", "no_data")
def test_both_readings_stand_side_by_side(tmp_path: Path) -> None:
    out, page = tmp_path / "out", tmp_path / "page.md"
    names = ("lastfm-50-tradeoff", "lastfm-50-tradeoff-second")
    arguments = ("reproduce", *names, "--quick", "--out", str(out), "--jobs", "1")
    result = fairwolfe(*arguments, "--page", str(page))
    assert result.exit_code == 0, result.output
    assert "By the first registration: of 3 claims judged (3 rows)" in result.stdout
    assert "By the second registration: of 3 claims judged (5 rows)" in result.stdout
    rows = json.loads((out / "claims.json").read_text(encoding="utf-8"))
    assert [(row["id"], row["reading"], row["registration"]) for row in rows] == [
        *((id, "first", "first") for id in ("R4", "R5", "R12")),
        *((id, "second", "second") for id in ("R4", "R5", "R12")),
        ("R12'", "first", "second"),
        ("R12'", "second", "second"),
    ]
    assert {row["figure"] for row in rows if row["reading"] == "second"} == {names[1]}
    assert {row["embedded"] for row in rows} == {True}
    # Two readings, two worlds: the numbers are not the same.
    assert rows[0]["estimate"] != rows[3]["estimate"]
    html, text = ((out / "report.html").read_text("utf-8"), page.read_text("utf-8"))
    for said in (html, text):
        assert "Two readings of the data" in said
        assert "chosen after the first verdicts were known" in said
        assert "The second registration" in said
    table = text.partition("## Two readings of the data")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| R")]
    assert [line.split(" | ")[0] for line in lines] == ["| R4", "| R5", "| R12"]
    assert all("not played" not in line for line in lines)
    assert "second reading" in text.partition("### lastfm-50-tradeoff-second")[2]


@pytest.mark.usefixtures("tiny", "no_data")
def test_the_second_reading_alone_says_that_the_first_was_not_played(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = fairwolfe("reproduce", "lastfm-50-second", "--quick", "--out", str(out), "--jobs", "1")
    assert result.exit_code == 0, result.output
    assert "By the second registration: of 3 claims judged (3 rows)" in result.stdout
    assert "Of 0 claims" not in result.stdout
    assert "not played" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("tiny", "no_data")
def test_claims_by_the_number_of_factors_are_a_table_and_a_figure(tmp_path: Path) -> None:
    found = reproduce(("lastfm-50-factors",), tmp_path / "out", quick=True, jobs=1)
    assert found.claims() == []
    (section,) = (one for one in sections(found) if "factors" in one.title)
    assert [row[:2] for row in section.rows] == [
        (id, str(factors)) for id in ("R5", "R7", "R9") for factors in range(3, 11)
    ]
    (picture,) = found.pictures()
    assert {ax.get_title(loc="left")[:2] for ax in picture.figure.axes} == {"R5", "R7", "R9"}


@pytest.mark.usefixtures("tiny", "no_data")
@pytest.mark.parametrize("name", ["defaults-arms", "defaults-50", "defaults-late"])
def test_curves_beyond_the_paper_are_a_table_and_a_figure(name: str, tmp_path: Path) -> None:
    found = reproduce((name,), tmp_path / "out", quick=True, jobs=1)
    assert found.claims() == []
    (section,) = (one for one in sections(found) if "Beyond" in one.title)
    assert [row[:2] for row in section.rows] == [
        (study, label) for study in FIGURES[name].studies for label in found.curves[study].runs
    ]
    write_report(found)
    html = (found.out / "report.html").read_text(encoding="utf-8")
    assert "settings" in html
    assert section.rows[1][1] in html
    (picture,) = found.pictures()
    assert len(picture.figure.axes) == len(FIGURES[name].studies)


@pytest.mark.usefixtures("tiny", "no_data")
def test_what_no_policy_is_above_is_concave_over_the_inequality(tmp_path: Path) -> None:
    found = reproduce(("lastfm-50-tradeoff",), tmp_path / "out", quick=True, jobs=1)
    (picture,) = found.pictures()
    (axes,) = picture.figure.axes
    (line,) = (line for line in axes.get_lines() if line.get_label() == "best possible")
    gini, utility = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert gini[0] == 0.0
    assert np.diff(utility).min() > -1e-9  # whoever may be less fair is no worse off
    assert np.diff(utility, n=2).max() < 1e-9


def test_an_unknown_figure_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    result = fairwolfe("reproduce", "lastfm50", "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "did you mean 'lastfm-50'" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("tiny")
def test_the_end_of_the_time_leaves_what_can_be_resumed(tmp_path: Path) -> None:
    arguments: tuple[Any, ...] = ("reproduce", "anytime", "--quick", "--out", str(tmp_path / "out"))
    result = fairwolfe(*arguments, "--for", "0.001s")
    assert result.exit_code == 0, result.output
    assert "Runs still to be played" in result.stdout


def test_help_names_every_figure() -> None:
    shown = " ".join(fairwolfe("reproduce", "--help").stdout.split())
    assert all(name in shown for name in FIGURES if not name.endswith(("-second", "-third")))
    assert "second and third are all figures of these readings" in shown


def test_numbers_are_short() -> None:
    assert [number(x) for x in (0.5, 12345.6, float("inf"), -0.00012344)] == [
        "0.5",
        "12,346",
        "-",
        "-0.0001234",
    ]
