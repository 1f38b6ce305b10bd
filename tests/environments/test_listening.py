"""A world from a table: its factors, their cache, and that it is a `FactorModel` like any other."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Listening, body, dcg
from fairwolfe.environments import plays as factorising
from fairwolfe.environments.plays import AlsSettings, Factors, factorise, scaled
from fairwolfe.errors import InvalidInput, MissingData, MissingExtra, NumericalFailure
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank

SETTINGS = AlsSettings(factors=4, iterations=15, regularization=0.01, alpha=1.0, random_state=0)


def rows_of(users: int = 25, items: int = 18, n: int = 220, seed: int = 0) -> list[Any]:
    rng = stream(seed, "table")
    picks = (
        rng.integers(0, users, n),
        np.minimum(rng.geometric(0.12, n), items),
        rng.geometric(0.2, n),
    )
    return [(int(u), f"song{i:02}", int(c)) for u, i, c in zip(*picks, strict=True)]


ROWS = rows_of()


def listening(table: Any = ROWS, **options: Any) -> Listening:
    settings: dict[str, Any] = {"factors": 4, "position_weights": dcg(5)}
    return Listening(table, **settings | options)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of factors of its own; that of the kernels stays where it is."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(factorising, "cache_folder", lambda: folder)
    return folder


@pytest.fixture
def als(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[AlsSettings]:
    """The settings of every factorisation that is computed."""
    computed: list[AlsSettings] = []
    real = factorising._als

    def counted(weights: Any, settings: AlsSettings) -> Factors:
        computed.append(settings)
        return real(weights, settings)

    monkeypatch.setattr(factorising, "_als", counted)
    return computed


# --- factors ------------------------------------------------------------------------------------


@pytest.mark.needs("implicit")
def test_the_factors_are_those_of_implicit(cache: Path) -> None:
    from implicit.cpu.als import AlternatingLeastSquares
    from threadpoolctl import threadpool_limits

    counts = listening().plays
    weights = counts.copy()
    weights.data = np.log(1.0 + weights.data)
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(
            factors=4, iterations=15, regularization=0.01, alpha=1.0, random_state=0, num_threads=1
        )
        model.fit(weights, show_progress=False)
    found = factorise(counts, SETTINGS)
    assert found.users.dtype == np.float64
    np.testing.assert_array_equal(found.users, model.user_factors)
    np.testing.assert_array_equal(found.items, model.item_factors)
    assert factorise(counts, SETTINGS).hash == found.hash


def loss(users: Any, items: Any, weights: Any, settings: AlsSettings) -> float:
    played = (weights > 0.0).astype(float)
    confidence = np.where(played, settings.alpha * weights, 1.0)
    ridge = settings.regularization * ((users**2).sum() + (items**2).sum())
    return float((confidence * (played - users @ items.T) ** 2).sum() + ridge)


@pytest.mark.needs("implicit")
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_neither_side_can_be_improved_alone(cache: Path, alpha: float) -> None:
    """At the end of alternating least squares each row solves its own ridge regression."""
    settings = SETTINGS._replace(iterations=200, alpha=alpha)
    counts = listening().plays
    weights = np.log1p(counts.toarray())
    users, items = factorise(counts, settings)
    reached = loss(users, items, weights, settings)
    for u, row in enumerate(weights):
        confidence = np.where(row > 0.0, alpha * row, 1.0)
        left = items.T @ (confidence[:, None] * items) + settings.regularization * np.eye(4)
        best = users.copy()
        best[u] = np.linalg.solve(left, items.T @ (confidence * (row > 0.0)))
        assert loss(best, items, weights, settings) == pytest.approx(reached, rel=1e-5)
    few = factorise(counts, settings._replace(iterations=1))
    assert reached < loss(few.users, few.items, weights, settings)


@pytest.mark.needs("implicit")
def test_the_largest_click_probability_is_one(cache: Path) -> None:
    counts = listening().plays
    raw = factorise(counts, SETTINGS)
    users, items = scaled(raw)
    products = users @ items.T
    assert products.max() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(products, raw.users @ raw.items.T / (raw.users @ raw.items.T).max())
    for calibration in ("clip", "affine"):
        world = listening(calibration=calibration, position_weights=[1.0])
        arrays = world.init(stream(0, "world"))
        least = min(products.min(), 0.0)
        wanted = (products - least) / (1.0 - least)
        if calibration == "clip":
            wanted = np.clip(products, 0.0, 1.0)
        for user in (0, 3, 11):
            context = world.show(arrays, user)
            for item in range(products.shape[1]):
                mean = world.mean_reward(arrays, context, np.array([item]))
                assert mean[-1] == pytest.approx(wanted[user, item], abs=1e-12)


def test_without_plays_there_is_nothing_to_scale() -> None:
    with pytest.raises(InvalidInput, match="nothing was played"):
        scaled(Factors(np.zeros((2, 1)), np.ones((3, 1))))
    with pytest.raises(InvalidInput, match="the users and items that are kept have no plays"):
        Listening([(1, 2, 0), (2, 3, 0)], position_weights=dcg(1)).problem()


def test_the_hash_is_of_six_digits() -> None:
    one = Factors(np.array([[0.5, -0.25]]), np.array([[1.0, 2.0]]))
    assert one.hash == Factors(one.users + 3e-7, one.items - 3e-7).hash
    assert one.hash != Factors(one.users + 1e-6, one.items).hash
    assert one.hash != Factors(one.items, one.users).hash


@pytest.mark.needs("implicit")
def test_factors_that_are_not_finite_are_said(cache: Path) -> None:
    huge = AlsSettings(4, 15, 0.01, 1e38, 0)
    with pytest.raises(NumericalFailure, match="the factors are not finite"):
        factorise(listening().plays, huge)


# --- the cache ----------------------------------------------------------------------------------


@pytest.mark.needs("implicit")
def test_factors_are_found_again(cache: Path, als: list[AlsSettings]) -> None:
    first = listening()
    again = listening(list(reversed(ROWS)))
    np.testing.assert_array_equal(first.model.users, again.model.users)
    assert len(als) == 1
    assert [file.suffix for file in (cache / "factors").iterdir()] == [".npz"]
    for other in (
        listening(seed=1),
        listening(iterations=3),
        listening(users=20),
        listening([*ROWS, (0, "song01", 1)]),
    ):
        assert other.factors_hash != first.factors_hash
    assert len(als) == 5


@pytest.mark.needs("implicit")
@pytest.mark.parametrize("spoil", ["rubbish", "half", "shape", "nan", "empty"])
def test_a_spoilt_cache_is_made_again(cache: Path, als: list[AlsSettings], spoil: str) -> None:
    wanted = listening().factors_hash
    (file,) = (cache / "factors").iterdir()
    whole = file.read_bytes()
    with np.load(file) as kept:
        users, items = kept["users"], kept["items"]
    match spoil:
        case "rubbish":
            file.write_bytes(b"PK rubbish")
        case "half":
            file.write_bytes(whole[: len(whole) // 2])
        case "shape":
            np.savez(file, users=users[1:], items=items)
        case "nan":
            np.savez(file, users=users * np.nan, items=items)
        case "empty":
            file.write_bytes(b"")
    assert listening().factors_hash == wanted
    assert len(als) == 2
    assert listening().factors_hash == wanted
    assert len(als) == 2


@pytest.mark.needs("implicit")
def test_a_cache_that_cannot_be_written_to_is_done_without(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert listening().problem().n_items == len(listening().item_ids)


@pytest.mark.needs("implicit")
def test_the_second_process_imports_nothing_heavy_and_no_warning_leaks(tmp_path: Path) -> None:
    code = f"""
import sys
from fairwolfe.environments import Listening, dcg
world = Listening({ROWS[:60]!r}, factors=3, position_weights=dcg(2))
print(world.factors_hash, *sorted({{"implicit", "pyarrow", "pandas"}} & set(sys.modules)))
"""
    several = os.environ | {"FAIRWOLFE_CACHE": str(tmp_path), "OPENBLAS_NUM_THREADS": "2"}
    said = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=several,
        )
        for _ in range(2)
    ]
    first, second = (run.stdout.split() for run in said)
    assert "implicit" in first
    assert second == first[:1]
    assert [run.stderr for run in said] == ["", ""]


# --- the world ----------------------------------------------------------------------------------


@pytest.mark.needs("implicit")
def test_it_is_the_factor_model_of_its_factors() -> None:
    world = listening(calibration="affine")
    users, items = scaled(world._factors)
    model = FactorModel(users, items, dcg(5), "affine")
    assert world.model == model
    assert world.problem() == model.problem()
    f = TwoSided(GiniWelfare(), beta=0.5)
    policy = FWLinUCBRank(f, exploration=0.1)
    one, other = (fw.simulate(policy, w, 500, seed=1) for w in (world, model))
    assert one.compiled
    np.testing.assert_array_equal(one.average, other.average)
    best = fw.optimum(world, f)
    assert best.value <= best.upper_bound <= best.value + 1e-3 * max(1.0, best.value)
    assert one.value[-1] <= best.upper_bound


@pytest.mark.needs("implicit")
def test_labels_and_plays_are_those_of_the_table() -> None:
    world = listening(users=9, items=7)
    totals: dict[str, int] = {}
    pairs: dict[tuple[int, str], int] = {}
    for user, item, count in ROWS:
        totals[item] = totals.get(item, 0) + count
        pairs[user, item] = pairs.get((user, item), 0) + count
    most = sorted(totals, key=lambda item: (-totals[item], item))
    assert list(world.item_ids) == most[:7]
    assert len(world.user_ids) == 9
    for u, user in enumerate(world.user_ids):
        for i, item in enumerate(world.item_ids):
            assert world.plays[u, i] == pairs.get((user, item), 0)  # type: ignore[arg-type]
    assert (world.problem().n_items, world.model.users.shape) == (7, (9, 4))  # type: ignore[union-attr]


@pytest.mark.needs("implicit", "pyarrow")
def test_a_file_and_its_rows_are_the_same_world(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(ROWS, columns=["who", "song", "n"])
    frame.to_csv(tmp_path / "plays.tsv", sep="\t", index=False)
    frame.to_parquet(tmp_path / "plays.parquet")
    worlds = [
        listening(tmp_path / "plays.tsv"),
        listening(str(tmp_path / "plays.parquet"), user="who"),
        listening(frame, user="who", item="song", count="n"),
    ]
    for world in worlds:
        assert world.factors_hash == listening().factors_hash
        assert world.user_ids == listening().user_ids
    assert worlds[2] == listening()
    assert worlds[0].notes == (
        f"{tmp_path / 'plays.tsv'}: users are in column 'who'; items are in column 'song'; counts "
        "are in column 'n' (guessed); name others with user=, item=, count=",
    )


@pytest.mark.needs("implicit", "pyarrow")
def test_it_is_a_small_value_that_reads_late(tmp_path: Path) -> None:
    file = tmp_path / "plays.csv"
    world = listening(file, users=5)
    assert world == listening(str(file), users=5) != listening(str(file), users=6)
    assert hash(world) == hash(listening(str(file), users=5))
    assert eval(repr(world)) == world
    with pytest.raises(MissingData, match=r"there is no file .*plays\.csv"):
        world.problem()
    file.write_text("\n".join(["user,item,count", *(",".join(map(str, row)) for row in ROWS)]))
    small = len(pickle.dumps(world))
    assert world.problem().n_slots == 5
    assert len(pickle.dumps(world)) == small < 1000
    assert pickle.loads(pickle.dumps(world)).factors_hash == world.factors_hash


@pytest.mark.needs("implicit")
def test_more_slots_than_items_are_refused_before_the_work(als: list[AlsSettings]) -> None:
    with pytest.raises(InvalidInput, match="there are 10 position weights and 3 items; a ranking"):
        listening(items=3, position_weights=dcg(10)).problem()
    assert als == []


@pytest.mark.needs("implicit")
def test_negative_products_are_refused_without_a_calibration() -> None:
    with pytest.raises(InvalidInput, match=r"outside their range .* 'clip' or 'affine'"):
        listening(calibration=None).problem()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"users": 0}, "users is 0; give a whole number of at least 1"),
        ({"items": 2.5}, "items is 2.5; give a whole number"),
        ({"by": "likes"}, "by is 'likes'; give 'plays' or 'listeners'"),
        ({"user": 3}, "user is 3; give the name of a column"),
        ({"calibration": "none"}, "calibration is 'none'; give 'clip', 'affine' or None"),
        ({"position_weights": [0.5, 1.0]}, "never increase from slot to slot"),
        ({"position_weights": [[1.0], [0.5]]}, "give a number for each slot, such as dcg(10)"),
        ({"position_weights": []}, "give a number for each slot"),
        ({"position_weights": 3}, "position_weights is 3; give a number for each slot"),
        ({"factors": 0}, "factors is 0; give a whole number of at least 1"),
        ({"iterations": True}, "iterations is True"),
        ({"regularization": 0.0}, "regularization is 0.0; give a positive finite number"),
        ({"alpha": float("nan")}, "alpha is nan; give a positive finite number"),
        ({"seed": -1}, "seed is -1; give a whole number of at least 0"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Listening("plays.csv", **options)
    assert sentence in str(refused.value)


def test_options_are_made_plain() -> None:
    world = Listening("plays.csv", position_weights=list(body(3)), seed=np.int64(4), alpha=2)  # type: ignore[arg-type]
    assert world == Listening("plays.csv", position_weights=body(3), seed=4, alpha=2.0)


def test_what_is_not_installed_is_named(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "implicit", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"implicit.*pip install 'fairwolfe\[lab\]'"):
        listening().problem()
    (tmp_path / "plays.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtra, match=r"pyarrow.*pip install 'fairwolfe\[lab\]'"):
        Listening(tmp_path / "plays.parquet").problem()


# --- a large table ------------------------------------------------------------------------------

LARGE = """
import json, pathlib, re, sys, time
from fairwolfe.environments import Listening
def peak():  # of this program; what getrusage says may be that of the process that started it
    status = pathlib.Path("/proc/self/status")
    return int(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1]) / 1024
import implicit.cpu.als, pyarrow.csv, pyarrow.parquet, scipy.sparse
before, start = peak(), time.perf_counter()
world = Listening(sys.argv[1], user="user", item="item", count="count")
pairs = world.plays.nnz
read = time.perf_counter() - start
problem = world.problem()
print(json.dumps({"pairs": pairs, "items": problem.n_items, "users": len(world.user_ids),
    "hash": world.factors_hash, "mb": peak() - before, "read": read,
    "all": time.perf_counter() - start}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is asked of /proc")
@pytest.mark.needs("implicit", "pyarrow")
def test_a_million_rows_need_little_memory(tmp_path: Path) -> None:
    import pandas as pd

    rng = stream(0, "large")
    n = 1_000_000
    frame = pd.DataFrame(
        {
            "user": [f"listener-{i:06}" for i in rng.integers(0, 20_000, n)],
            "item": np.minimum(rng.geometric(0.002, n), 5000),
            "count": rng.geometric(0.1, n),
        }
    )
    pairs = len(frame.drop_duplicates(["user", "item"]))
    frame.to_csv(tmp_path / "plays.csv", index=False)
    frame.to_parquet(tmp_path / "plays.parquet")
    hashes = set()
    for name in ("plays.csv", "plays.parquet"):
        alone = os.environ | {"FAIRWOLFE_CACHE": str(tmp_path / f"cache-{name}")}
        command = [sys.executable, "-W", "error", "-c", LARGE, str(tmp_path / name)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=alone | {"OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        print(name, found)  # seen with -s or when it fails
        hashes.add(found["hash"])
        assert found["pairs"] == pairs
        assert found["users"] == 20_000
        # 24 bytes a row, a few times over while they are sorted; Python objects would need 1 GB.
        assert found["mb"] < 400.0
    assert len(hashes) == 1


# --- what a count is trusted with, and the scale ------------------------------------------------


@pytest.mark.parametrize("weights", ["log1p", "counts", "ones"])
def test_weights_of_the_least_squares(weights: str, cache: Path) -> None:
    """One half step of the least squares by hand, from the users' factors to the items'."""
    world = listening(weights=weights, factors=3, iterations=40, scale=False)
    counts = np.asarray(world.plays.todense())
    trust = {"log1p": np.log1p(counts), "counts": counts, "ones": (counts > 0).astype(float)}
    users, items = world._factors
    c = np.where(counts > 0, trust[weights], 1.0)
    for i, v in enumerate(items):
        gram = users.T @ (c[:, i, None] * users) + 0.01 * np.eye(3)
        best = np.linalg.solve(gram, users.T @ (c[:, i] * (counts[:, i] > 0)))
        np.testing.assert_allclose(v, best, atol=2e-3)
    arrays = world.init(stream(0, "w"))
    np.testing.assert_array_equal(arrays.users, users)  # not scaled
    assert listening(weights=weights, factors=3, iterations=40)._factors.hash == world.factors_hash


def test_weights_have_factors_of_their_own(cache: Path) -> None:
    hashes = {listening(weights=weights).factors_hash for weights in ("log1p", "counts", "ones")}
    assert len(hashes) == 3
    for bad in ({"weights": "raw"}, {"scale": "yes"}):
        with pytest.raises(InvalidInput, match=r"weights is 'raw'|scale is 'yes'"):
            listening(**bad)
