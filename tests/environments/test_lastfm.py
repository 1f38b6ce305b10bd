"""The worlds of Last.fm: where the file is looked for, and what they are made of."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.streams import stream
from fairwolfe.environments import LastFM2k, LastFM50, dcg
from fairwolfe.environments import listening as lastfm
from fairwolfe.environments.listening import FILE, find, places, present, target
from fairwolfe.errors import InvalidInput, MissingData
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank

SMALL = "userID\tartistID\tweight\r\n" + "".join(
    f"{u}\t{a}\t{1 + u * a % 7}\r\n" for u in range(1, 61) for a in range(1, 56) if (u + a) % 3
)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the data: data and cache folders that are empty."""
    monkeypatch.setenv("FAIRWOLFE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(lastfm, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def put(root: Path, text: str) -> Path:
    file = root / "lastfm" / FILE
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode())
    return file


# --- where the file is --------------------------------------------------------------------------


def test_what_to_do_is_said_where_the_data_is_missing(nowhere: Path) -> None:
    with pytest.raises(MissingData) as missing:
        LastFM50().problem()
    said = str(missing.value)
    assert f"not at {nowhere / 'data'}" in said
    assert "download it with `fairwolfe data lastfm`, or set FAIRWOLFE_DATA to the folder" in said
    assert LastFM50() == LastFM50()  # without the data it is a value all the same


def test_the_data_folder_comes_first_then_the_cache(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lastfm, "SHA256", hashlib.sha256(SMALL.encode()).hexdigest())
    assert (present(), present(nowhere)) == (None, None)
    cached = put(nowhere / "cache", SMALL)
    assert find() == cached == target(None)
    given = put(nowhere / "data", SMALL)
    assert find() == given == places()[0]
    assert present(nowhere / "cache") == cached
    given.write_text("spoilt")
    assert find() == cached
    monkeypatch.delenv("FAIRWOLFE_DATA")
    assert places() == [cached]


def test_another_file_is_refused(nowhere: Path) -> None:
    file = put(nowhere / "data", SMALL)
    with pytest.raises(InvalidInput, match="is not the published file: its sha256 is not 650cd69d"):
        find()
    assert str(file).startswith(str(nowhere))


@pytest.mark.needs("implicit", "pyarrow")
def test_the_50_are_those_with_the_most_plays(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lastfm, "SHA256", hashlib.sha256(SMALL.encode()).hexdigest())
    put(nowhere / "cache", SMALL)
    world = fw.environments.make("lastfm-50", calibration="affine", position_weights=dcg(4))
    assert world == LastFM50(dcg(4), "affine")
    problem = world.problem()
    assert (problem.n_items, problem.n_slots, problem.n_features) == (50, 4, (11, 11))
    assert (len(world.user_ids), world.plays.shape) == (50, (50, 50))
    assert world.user_ids == world.listening.user_ids
    large = LastFM2k()
    assert (len(large.user_ids), len(large.item_ids)) == (60, 55)
    assert "2500 items were requested, and the table has 55" in large.notes[0]


def test_bad_options_are_refused_without_the_data(nowhere: Path) -> None:
    with pytest.raises(InvalidInput, match="calibration is 'cut'"):
        LastFM50(calibration="cut")
    with pytest.raises(InvalidInput, match="position_weights is 7"):
        LastFM2k(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'lastfm-50' has no option 'users'"):
        fw.environments.make("lastfm-50", users=3)


# --- the published data -------------------------------------------------------------------------


@pytest.mark.needs("implicit", "lastfm data", "pyarrow")
@pytest.mark.parametrize(("kind", "users", "items"), [(LastFM50, 50, 50), (LastFM2k, 1892, 2500)])
def test_sizes_and_selection_are_those_of_pandas(
    kind: type[LastFM50 | LastFM2k], users: int, items: int
) -> None:
    import pandas as pd

    world = kind()
    problem = world.problem()
    assert (problem.n_items, problem.n_slots, problem.n_features) == (items, 10, (10, 10))
    arrays = world.init(stream(0, "world"))
    assert (arrays.users.shape, arrays.items.shape) == ((users, 10), (items, 10))
    assert (arrays.users @ arrays.items.T).max() == pytest.approx(1.0, abs=1e-12)
    table = pd.read_csv(find(), sep="\t")
    for side, ids, n in (("userID", world.user_ids, users), ("artistID", world.item_ids, items)):
        totals = table.groupby(side)["weight"].sum().sort_values(ascending=False, kind="stable")
        assert list(ids) == totals.index.tolist()[:n]
    kept = table[table.userID.isin(world.user_ids) & table.artistID.isin(world.item_ids)]
    assert world.plays.sum() == kept.weight.sum()
    assert world.plays.nnz == len(kept)
    idle = users - kept.userID.nunique()
    assert (len(world.notes) == 0) == (idle == 0)
    assert len(world.factors_hash) == 64
    assert len(pickle.dumps(world)) < 500


@pytest.mark.slow
@pytest.mark.needs("implicit", "lastfm data", "pyarrow")
def test_fairness_is_learnt_on_real_data() -> None:
    """After 100,000 rounds within 1 % of the optimum, where clicks alone are 6 % below it."""
    world, f = LastFM50(), TwoSided(GiniWelfare(), beta=0.5)
    best = fw.optimum(world, f)
    assert best.upper_bound - best.value <= 1e-3 * best.value
    learnt, clicks = (
        fw.simulate(policy, world, 100_000, seed=0, objective=f)
        for policy in (FWLinUCBRank(f, exploration="theorem"), LinUCBRank(exploration="theorem"))
    )
    assert learnt.compiled
    assert learnt.value[-1] >= 0.99 * best.value  # 0.994 was seen
    assert clicks.value[-1] <= 0.96 * best.value  # 0.938 was seen
    assert learnt.value[-1] <= best.upper_bound
    items = np.sort(learnt.average[-1][:50])
    assert items[:25].sum() > np.sort(clicks.average[-1][:50])[:25].sum()
