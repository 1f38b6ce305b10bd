"""Sweeps on this machine: what is written, what is read, what is left when things go wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fairwolfe import lab, simulate
from fairwolfe.cli import commands
from fairwolfe.cli.lab import _Seeds
from fairwolfe.cli.printing import _Time
from fairwolfe.errors import InvalidInput
from fairwolfe.lab import results
from fairwolfe.lab.play import build, play
from tests.lab.lab_specs import MINE, SMALL, command, fragile, started_in, tiring

pytestmark = pytest.mark.needs("pyarrow")

LIMIT = 300.0  # seconds until something is taken as hanging, on a machine however slow


def fairwolfe(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments, prog_name="fairwolfe")


def eventually(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "this took too long"
        time.sleep(0.02)


def assert_same(one: str | Path, other: str | Path) -> None:
    import pandas as pd

    found, wanted = (lab.numbers(lab.read(folder)) for folder in (one, other))
    pd.testing.assert_frame_equal(found, wanted, check_exact=True)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with a module of the user's."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    return tmp_path


# --- results ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> lab.Sweep:
    return lab.run(lab.Experiment.of(SMALL), tmp_path_factory.mktemp("sweep") / "out", jobs=2)


def test_a_sweep_is_simulate_with_every_seed(swept: lab.Sweep) -> None:
    frame = lab.read(swept.out)
    for run in swept.experiment.runs():
        parts = build(run.settings)
        trace = simulate(parts.policy, parts.environment, 200, run.seed, parts.objective)
        rows = frame[frame["run"] == run.id]
        assert set(rows["label"]) == {run.label}
        assert set(rows["seed"]) == {run.seed}
        np.testing.assert_array_equal(rows["t"], trace.t)
        for name in ("value", "observed", "scalar_regret"):
            np.testing.assert_array_equal(rows[name], getattr(trace, name))
        np.testing.assert_array_equal(np.stack(rows["average"].tolist()), trace.average)
        assert (rows["seconds"].diff().dropna() >= 0.0).all()


def test_parameters_are_columns(swept: lab.Sweep) -> None:
    frame = lab.read(swept.out)
    assert set(frame["environment.n_arms"]) == {5}
    assert set(frame[frame["label"] == "ucb"]["policy.base.ridge"]) == {0.1}
    assert frame[frame["label"] == "any"]["policy.base.ridge"].isna().all()
    assert list(dict.fromkeys(frame["label"])) == ["ucb", "any"]
    assert "seconds" not in lab.numbers(frame).columns


def test_a_file_tells_where_its_numbers_come_from(swept: lab.Sweep) -> None:
    facts = lab.facts(swept.out)
    assert [one["run"] for one in facts] == sorted(run.id for run in swept.experiment.runs())
    for one in facts:
        assert set(one["versions"]) >= {"python", "numpy", "scipy", "fairwolfe"}
        assert one["settings"]["environment"]["name"] == "mehrotra"
        assert one["run"].endswith(f"-{one['seed']}")
        assert one["wall_seconds"] > 0.0
        assert one["compiled"] is True
        assert one["warnings"] == []
        assert {"os", "machine", "date"} <= set(one)


def test_the_table_has_a_row_for_each_policy_and_point(swept: lab.Sweep) -> None:
    rows = swept.table()
    assert [row["label"] for row in rows] == ["ucb", "any"]
    frame = lab.read(swept.out)
    final = frame[(frame["t"] == 200) & (frame["label"] == "ucb")]["value"]
    assert rows[0]["value"] == pytest.approx(final.mean())
    assert rows[0]["low"] < rows[0]["value"] < rows[0]["high"]
    assert rows[0]["seeds"] == 2
    assert rows[0]["us_per_round"] > 0.0
    assert (swept.missing, swept.failed, swept.stopped) == ((), (), None)


def test_a_long_average_is_kept_at_the_end_only(tmp_path: Path) -> None:
    text = """
    name = "long"
    horizon = 20
    environment = { name = "factor_model", users = 5, items = 150 }
    objective = { name = "two-sided", items = { name = "gini-welfare" } }
    policies.any = { name = "linucb-rank" }
    """
    experiment = lab.Experiment.of(text)
    lab.run(experiment, tmp_path / "out", jobs=1)
    frame = lab.read(tmp_path / "out")
    assert frame["average"][:-1].isna().all()
    assert len(frame["average"].iloc[-1]) == 151


def test_labels_are_those_of_the_spec_as_it_stands(tmp_path: Path) -> None:
    out = tmp_path / "out"
    lab.run(lab.Experiment.of(SMALL), out, jobs=1, seeds=1)
    # Renamed, and a second label for the same settings: nothing is played again.
    renamed = SMALL.replace("policies.ucb", "policies.UCB")
    renamed += '[policies.same]\nname = "frank-wolfe"\nbase = { name = "uniform" }\n'
    experiment = lab.Experiment.of(renamed)
    assert lab.pending(experiment, out, (0,)) == ()
    swept = lab.run(experiment, out, seeds=1, resume=True)
    frame = lab.read(out)
    assert list(dict.fromkeys(frame["label"])) == ["UCB", "any", "same"]
    assert [row["seeds"] for row in swept.table()] == [1, 1, 1]
    # What is no longer asked for stays on the disk, and is not read.
    shorter = lab.Experiment.of(SMALL.replace("200", "100"))
    lab.run(shorter, out, jobs=1, seeds=1, resume=True)
    assert set(lab.read(out).groupby("run")["t"].max()) == {100}
    assert len(list((out / "runs").iterdir())) == 4


def test_files_being_written_are_ignored_and_broken_ones_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    experiment = lab.Experiment.of(SMALL)
    lab.run(experiment, out, jobs=1, seeds=1)
    (out / "runs" / ".half.parquet.0a0a0a0a.part").write_bytes(b"PAR1")
    (out / "runs" / ".half.parquet").write_bytes(b"PAR1")
    whole = lab.read(out)
    victim = out / "runs" / f"{experiment.runs()[0].id}.parquet"
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(InvalidInput, match=rf"{victim.name} is broken: .*; remove it"):
        lab.read(out)
    # It counts as missing, so that resuming repairs it.
    assert [run.id for run in lab.pending(experiment, out, (0,))] == [victim.stem]
    lab.run(experiment, out, jobs=1, seeds=1, resume=True)
    assert (
        lab.numbers(lab.read(out))
        .drop(columns="average")
        .equals(lab.numbers(whole).drop(columns="average"))
    )


def test_folders_that_hold_no_results(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"is not a folder of results: spec\.toml cannot be read"
    ):
        lab.read(tmp_path)
    (tmp_path / "spec.toml").write_text(SMALL)
    with pytest.raises(InvalidInput, match="holds no finished run"):
        lab.read(tmp_path)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        results.write(tmp_path, "a-0", b"content")
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_a_run_warns_of_is_kept_and_told(here: Path) -> None:
    Path("spec.toml").write_text(SMALL.replace('"uniform"', '"mine:First"'))
    result = fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out")
    assert result.exit_code == 0, result.output
    warned = "the plain loop is used, because the base First has no compiled form"
    assert f"2 runs warned: {warned}" in result.stderr
    assert [one["compiled"] for one in lab.facts("out")].count(False) == 2


# --- what is refused -------------------------------------------------------------------------


def test_a_folder_is_not_mixed_up(tmp_path: Path) -> None:
    out = tmp_path / "out"
    experiment = lab.Experiment.of(SMALL)
    lab.run(experiment, out, jobs=1, seeds=1)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    with pytest.raises(InvalidInput, match=r"holds results of 'small' already; resume them"):
        lab.run(experiment, out, jobs=1)
    other = lab.Experiment.of(SMALL.replace('"small"', '"other"'))
    with pytest.raises(InvalidInput, match="holds the experiment 'small', not 'other'"):
        lab.run(other, out, resume=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "spec.toml").write_text(SMALL)
    lab.run(other, tmp_path / "empty", jobs=1, seeds=1)  # nothing was kept there
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with pytest.raises(InvalidInput, match="holds other files"):
        lab.run(experiment, tmp_path / "thesis")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written to"):
        lab.run(experiment, tmp_path / "file" / "out")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


@pytest.mark.parametrize(
    ("options", "piece"),
    [
        ({"jobs": 0}, "jobs is 0"),
        ({"seconds": 0.0}, r"seconds is 0\.0"),
        ({"on": "rai"}, "on is 'rai'; did you mean 'ray'"),
        ({"address": "auto"}, "give on='ray' too"),
        ({"seeds": ()}, r"seeds is \(\)"),
        ({"seeds": (1, 1)}, "seeds is"),
        ({"seeds": (-1,)}, "seeds is"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], piece: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=piece):
        lab.run(lab.Experiment.of(SMALL), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_seeds_and_times_of_the_command() -> None:
    seeds, times = _Seeds(), _Time()
    assert seeds("3") == (0, 1, 2)
    assert seeds("3-5") == (3, 4, 5)
    assert seeds("1,4,7-8") == (1, 4, 7, 8)
    assert seeds("4,") == (4,)
    assert [times(t) for t in ("90s", "10m", "2h", "1h30m", "0.5d")] == [90, 600, 7200, 5400, 43200]
    for bad in ("", "x", "0", "5-3", "1,1", "-2"):
        assert fairwolfe("run", "x.toml", "--seeds", bad).exit_code == 2
    for bad in ("", "10", "2 h", "h", "0s", "-1m"):
        assert fairwolfe("run", "x.toml", "--for", bad).exit_code == 2


# --- the command -----------------------------------------------------------------------------


def test_the_command_writes_a_folder_and_tells_a_table(here: Path) -> None:
    result = fairwolfe("run", "small.toml", "--jobs", "1", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [row["seeds"] for row in told["policies"]] == [2, 2]
    assert (told["failed"], told["missing"], told["stopped"]) == ({}, 0, None)
    assert Path("out/small/spec.toml").read_text() == SMALL
    refused = fairwolfe("run", "small.toml")
    assert refused.exit_code == 2
    assert "--resume" in refused.stderr
    more = fairwolfe("run", "small.toml", "--jobs", "1", "--seeds", "1-3", "--resume")
    assert more.exit_code == 0
    assert "3/3" in more.stdout
    assert set(lab.read("out/small")["seed"]) == {0, 1, 2, 3}


def test_failures_are_told_and_tried_again(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well", "fails"))
    result = fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out")
    assert result.exit_code == 1
    assert "failed: any, seed 1: RuntimeError: not cured yet, see out/failed/" in result.stderr
    assert "--resume" in result.stderr
    reasons = sorted(Path("out/failed").iterdir())
    assert len(reasons) == 2
    assert "RuntimeError: not cured yet" in reasons[0].read_text()
    assert '"how": "fails"' in reasons[0].read_text()
    assert len(lab.read("out")["run"].unique()) == 2
    Path("cured").touch()
    again = fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out", "--resume")
    assert again.exit_code == 0, again.output
    assert list(Path("out/failed").iterdir()) == []
    assert len(lab.read("out")["run"].unique()) == 4


# --- two rounds before anything is written ---------------------------------------------------


@pytest.mark.parametrize("after", [1, 2])
def test_a_policy_that_cannot_play_is_refused_before_anything_is_written(
    here: Path, after: int
) -> None:
    Path("spec.toml").write_text(tiring(500, after))
    result = fairwolfe("run", "spec.toml", "--jobs", "1", "--seeds", "3-4", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"Error: policies.tiring fails in its first 2 rounds with seed 3 (in the grid, at "
        f"policy.base.after = {after}): ArithmeticError: tired after {after} rounds; nothing was "
        "written\n"
    )
    assert not Path("out").exists()


def test_a_policy_that_kills_its_process_is_refused_too(here: Path) -> None:
    Path("begun").write_text("0 kills\n")  # so that the trial is no exception
    with pytest.raises(InvalidInput, match=r"policies\.any fails .* was ended by SIGKILL"):
        lab.run(lab.Experiment.of(fragile("well", "kills")), "out", jobs=2)
    assert not Path("out").exists()


def test_a_failure_in_the_middle_is_told_with_its_reason(here: Path) -> None:
    Path("spec.toml").write_text(tiring(50))
    result = fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out")
    assert result.exit_code == 1
    said = "failed: tiring, seed 0: ArithmeticError: tired after 50 rounds, see out/failed/"
    assert said in result.stderr
    assert [run.label for run in lab.pending(lab.load("spec.toml"), "out")] == ["tiring"] * 2
    told = fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out", "--resume", "--json")
    assert told.exit_code == 1
    document = json.loads(told.stdout)
    assert document["reasons"] == dict.fromkeys(
        document["failed"], "ArithmeticError: tired after 50 rounds"
    )
    assert len(document["failed"]) == 2
    file = Path(next(iter(document["failed"].values())))
    assert "in update" in file.read_text()  # the traceback


def test_a_sweep_that_resumes_tries_only_what_is_missing(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well", "fails"))
    begun = Path("begun")

    def sweep() -> Result:
        return fairwolfe("run", "spec.toml", "--jobs", "1", "--out", "out", "--resume")

    assert sweep().exit_code == 1
    assert len(begun.read_text().splitlines()) == 2 * (1 + 2)
    Path("cured").touch()
    begun.unlink()
    assert sweep().exit_code == 0
    assert [line.split()[1] for line in begun.read_text().splitlines()] == ["fails"] * (1 + 2)
    begun.unlink()
    assert sweep().exit_code == 0
    assert not begun.exists()


def test_a_trial_and_its_runs_share_a_process_and_its_world(here: Path) -> None:
    Path("mine.py").write_text(
        MINE + "\n\n@dataclass(frozen=True)\nclass Costly(Mehrotra):\n"
        "    def __post_init__(self):\n"
        "        with Path('built').open('a') as log:\n"
        "            log.write(f'{os.getpid()}\\n')\n"
    )
    experiment = lab.Experiment.of(tiring(500).replace('"mehrotra"', '"mine:Costly"'))
    lab.run(experiment, "out", jobs=1)
    built = Path("built").read_text().split()
    assert len(built) == len(set(built)) == 2  # here, to check the spec, and where it is played


def test_a_trial_that_does_not_end_in_time_leaves_nothing(here: Path) -> None:
    Path("begun").write_text("0 waits\n")  # so that the trial is no exception
    swept = lab.run(lab.Experiment.of(fragile("waits")), "out", jobs=1, seconds=0.5)
    assert (swept.stopped, len(swept.missing), swept.failed) == ("time", 2, ())
    assert [row["value"] for row in swept.table()] == [None]
    assert not Path("out").exists()


def test_two_rounds_of_a_shorter_run_are_all_its_rounds(here: Path) -> None:
    text = tiring(2).replace("horizon = 200", "horizon = 1")
    swept = lab.run(lab.Experiment.of(text), "out", jobs=1)
    assert swept.missing == ()


# --- processes that die ----------------------------------------------------------------------


def test_a_killed_worker_costs_its_run_only(here: Path) -> None:
    experiment = lab.Experiment.of(fragile("kills", "well"))
    swept = lab.run(experiment, "out", jobs=2)
    assert [f.run.settings.environment["how"] for f in swept.failed] == ["kills", "kills"]
    for failed in swept.failed:
        assert "was ended by SIGKILL" in failed.file.read_text()
    assert len(lab.read("out")["run"].unique()) == 2
    assert swept.stopped is None
    Path("cured").touch()
    assert lab.run(experiment, "out", jobs=1, resume=True).missing == ()
    lab.run(experiment, "whole", jobs=1)
    assert_same("out", "whole")


def test_the_time_is_up(here: Path) -> None:
    experiment = lab.Experiment.of(fragile("waits"))
    swept = lab.run(experiment, "out", jobs=1, seconds=0.1)
    assert swept.stopped == "time"
    assert len(swept.missing) == 2
    assert swept.failed == ()
    assert [row["value"] for row in swept.table()] == [None]
    Path("spec.toml").write_text(experiment.text)
    told = fairwolfe("run", "spec.toml", "--out", "out", "--for", "0.1s", "--resume")
    assert told.exit_code == 0
    assert "the time is up: 2 runs have no result yet" in told.stderr
    Path("cured").touch()
    assert lab.run(experiment, "out", jobs=1, resume=True).stopped is None


def start(*arguments: str) -> subprocess.Popen[str]:
    # A group of its own, as a terminal gives to a command.
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def files() -> list[Path]:
    return list(Path("out/runs").glob("*.parquet"))


def test_ctrl_c_leaves_a_folder_that_can_be_completed(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well", "waits"))
    runner = start("spec.toml", "--out", "out", "--jobs", "2")
    eventually(files)
    os.killpg(runner.pid, signal.SIGINT)
    _, said = runner.communicate(timeout=LIMIT)
    assert runner.returncode == 130, said
    assert "interrupted: " in said
    assert "--out out --resume" in said
    assert "Traceback" not in said
    if Path("/proc").exists():
        assert set(started_in(here)) <= {os.getpid()}
    Path("cured").touch()
    done = subprocess.run(command("spec.toml", "--out", "out", "--resume"), check=False)
    assert done.returncode == 0
    lab.run(lab.load("spec.toml"), "whole", jobs=1)
    assert_same("out", "whole")


@pytest.mark.parametrize(
    "finished",
    [pytest.param(0, marks=pytest.mark.slow), 1, pytest.param(4, marks=pytest.mark.slow)],
)
def test_kill_9_of_the_runner_costs_nothing_that_was_finished(here: Path, finished: int) -> None:
    text = SMALL.replace("horizon = 200", "horizon = 20_000").replace("seeds = 2", "seeds = 4")
    Path("spec.toml").write_text(text)
    runner = start("spec.toml", "--out", "out", "--jobs", "2")
    eventually(lambda: Path("out/spec.toml").exists() and len(files()) >= finished)
    time.sleep(np.random.default_rng(finished).uniform(0.0, 0.3))
    runner.kill()
    runner.communicate(timeout=LIMIT)
    if Path("/proc").exists():  # its workers end too, in the middle of a run
        eventually(lambda: set(started_in(here)) <= {os.getpid()})
    kept = {path: path.stat().st_mtime_ns for path in files()}
    done = subprocess.run(
        command("spec.toml", "--out", "out", "--resume"), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    lab.run(lab.load("spec.toml"), "whole", jobs=1)
    assert_same("out", "whole")


def test_workers_use_one_thread_and_find_the_modules_of_the_caller(here: Path) -> None:
    Path("mine.py").write_text(
        MINE + "\n\nclass Counted(Fragile):\n    def init(self, rng):\n"
        "        names = ('OMP', 'OPENBLAS', 'MKL')\n"
        "        counts = [os.environ[n + '_NUM_THREADS'] for n in names]\n"
        "        Path('threads').write_text(' '.join(counts))\n"
        "        return super().init(rng)\n"
    )
    text = fragile("well").replace("mine:Fragile", "mine:Counted")
    assert lab.run(lab.Experiment.of(text), "out", jobs=1, seeds=1).missing == ()
    assert Path("threads").read_text() == "1 1 1"


def test_progress_adds_up_to_all_rounds(tmp_path: Path) -> None:
    told: dict[str, int] = {}

    def tick(run: lab.Run, n: int) -> None:
        told[run.id] = told.get(run.id, 0) + n

    experiment = lab.Experiment.of(SMALL)
    lab.run(experiment, tmp_path / "out", jobs=1, progress=tick)
    assert told == {run.id: 200 for run in experiment.runs()}


def test_a_run_that_is_interrupted_has_no_file() -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(lab.Experiment.of(SMALL).runs()[0], interrupt)
