"""pandas, polars and Arrow, in and out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB, Uniform
from fairwolfe.core.tables import frame_of, is_frame, rows_of, table_of
from fairwolfe.environments import FactorModel, Listening, Mehrotra, dcg
from fairwolfe.errors import InvalidInput, MissingExtra
from fairwolfe.objectives import AtMost, GiniWelfare, Linear, Minimum
from fairwolfe.ranking import FWLinUCBRank

BACKENDS = ("pandas", "polars", "pyarrow")
TWO = fw.Problem.arms(3, {"clicks": (0, 1), "saves": (0, 1)}, feature_norm=1.2)
ROWS = np.array([[0.5, 0.25, 1.0], [0.0, -0.5, 0.0]])

pytestmark = pytest.mark.needs("pyarrow")


def columns_of(frame: Any) -> dict[str, list[Any]]:
    """The columns of a table of any of the three, by their own methods."""
    if hasattr(frame, "to_pydict"):
        return dict(frame.to_pydict())
    if type(frame).__module__.startswith("polars"):
        return dict(frame.to_dict(as_series=False))
    return dict(frame.to_dict(orient="list"))


def table(backend: str) -> Any:
    """A feature is a whole number in one column and a truth in another."""
    return frame_of({"price": ROWS[:, 0], "score": ROWS[:, 1], "new": [True, False]}, backend)


# --- in ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_context_is_a_table_with_a_row_for_each_arm(backend: str) -> None:
    def agent() -> fw.Agent:
        return fw.Agent(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0)), TWO, seed=3)

    one, two = agent(), agent()
    for _ in range(20):
        made, plain = one.act(table(backend)), two.act(ROWS)
        assert (made.action, made.probability) == (plain.action, plain.probability)
        for each, decision in ((one, made), (two, plain)):
            each.update(decision, [0.5, 0.25 * int(np.asarray(decision.action))])
    np.testing.assert_array_equal(one.average, two.average)
    many, rows = one.act_many([table(backend)] * 3), two.act_many([ROWS] * 3)
    assert [d.action for d in many] == [d.action for d in rows]


@pytest.mark.parametrize("backend", BACKENDS)
def test_users_and_items_of_rankings_are_tables_too(backend: str) -> None:
    problem = fw.Problem.ranking(n_items=4, n_slots=2, n_features=(2, 3))
    items = np.random.default_rng(0).uniform(0, 0.5, (4, 3))
    frame = frame_of({f"f{i}": items[:, i] for i in range(3)}, backend)
    user = np.array([0.3, 0.4])
    policy = FWLinUCBRank(Linear({"clicks": 1.0}), exploration="theorem")
    one, two = fw.Agent(policy, problem), fw.Agent(policy, problem)
    assert_equal = np.testing.assert_array_equal
    assert_equal(one.act(fw.Bilinear(user, frame)).action, two.act(fw.Bilinear(user, items)).action)
    kept = fw.Agent(policy, problem, items=frame)
    assert_equal(kept.act(user).action, fw.Agent(policy, problem, items=items).act(user).action)


@pytest.mark.parametrize("backend", BACKENDS)
def test_columns_that_are_not_numbers_are_refused_with_a_way_out(backend: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), TWO)
    frame = frame_of({"price": [0.5, 0.0], "city": ["Rome", "Oslo"], "new": [1, 0]}, backend)
    with pytest.raises(InvalidInput, match=r"column 'city' has the type String; .*fw\.features"):
        agent.act(frame)
    short = frame_of({"price": [0.5, 0.0]}, backend)
    with pytest.raises(InvalidInput, match=r"shape \(2, 1\); the problem has 3 features"):
        agent.act(short)


@pytest.mark.parametrize("backend", BACKENDS)
def test_missing_numbers_are_refused_by_their_place(backend: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), TWO)
    frame = frame_of({"a": [0.5, 0.0], "b": [0.1, None], "c": [1.0, 0.0]}, backend)
    with pytest.raises(InvalidInput, match=r"feature 1 of arm 1 is nan; give finite numbers only"):
        agent.act(frame)


def test_forms_of_tables() -> None:
    import pandas as pd
    import pyarrow as pa

    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), TWO)
    made = agent.act(pd.DataFrame(ROWS, index=["x", "y"]))  # columns are called 0, 1, 2
    assert made.action in (0, 1)
    with pytest.raises(InvalidInput, match=r"a RecordBatch is not a table that can be read; give"):
        agent.act(pa.record_batch({"a": [1.0, 2.0]}))
    with pytest.raises(InvalidInput, match=r"a log cannot be read from a int; give a path"):
        fw.offpolicy.Log.of(3)


def test_two_columns_of_one_name_are_refused() -> None:
    import pandas as pd

    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), TWO)
    with pytest.raises(InvalidInput, match=r"two columns of one name"):
        agent.act(pd.DataFrame(ROWS, columns=["a", "b", "a"]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_log_is_read_from_any_of_them(backend: str) -> None:
    rng = np.random.default_rng(1)
    columns = {
        "action": rng.integers(0, 2, 300),
        "probability": np.full(300, 0.5),
        "reward.clicks": rng.integers(0, 2, 300).astype(float),
    }
    f = Linear({"clicks": 1.0})
    plain = fw.offpolicy.Log.of(columns).evaluate(1, f, "snips")
    found = fw.offpolicy.Log.of(frame_of(columns, backend)).evaluate(1, f, "snips")
    assert (found.value, found.low, found.high) == (plain.value, plain.low, plain.high)


@pytest.mark.needs("implicit")
@pytest.mark.parametrize("backend", BACKENDS)
def test_plays_are_read_from_any_of_them(backend: str) -> None:
    rows = [(f"u{i % 5}", i * i % 7, 1 + i % 4) for i in range(23)]
    users, items, counts = (list(column) for column in zip(*rows, strict=True))
    frame = frame_of({"user": users, "item": items, "count": counts}, backend)
    settings: dict[str, Any] = {"position_weights": dcg(2), "factors": 3}
    assert Listening(frame, **settings) == Listening(rows, **settings)
    if backend == "polars":
        import polars as pl

        few = frame.with_columns(pl.col("user").cast(pl.Categorical))
        assert Listening(few, **settings) == Listening(rows, **settings)


# --- out -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_and_a_comparison_as_a_table(backend: str) -> None:
    world = Mehrotra(5, 2, 3)
    f = world.objective()
    two = {
        "ucb": fw.FrankWolfe(f, LinUCB(exploration="theorem")),
        "any": fw.FrankWolfe(f, Uniform()),
    }
    result = fw.compare(two, world, 20, seeds=2, checkpoints=[10])
    trace = result.traces["ucb"][1]
    found = columns_of(trace.to_frame(backend))
    assert found["t"] == [10, 20]
    assert found["value"] == trace.value.tolist()
    assert found["average_1"] == trace.average[:, 1].tolist()
    assert found["seed"] == [1, 1]
    whole = columns_of(result.to_frame(backend))
    assert whole["policy"] == ["ucb"] * 4 + ["any"] * 4
    assert whole["seed"] == [0, 0, 1, 1] * 2
    assert whole["value"][2:4] == trace.value.tolist()


def test_pandas_is_what_it_was_before() -> None:
    import pandas as pd

    world = Mehrotra(5, 2, 3)
    result = fw.compare(
        {"a": fw.FrankWolfe(world.objective(), LinUCB(exploration="theorem"))}, world, 20, seeds=2
    )
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns[-2:]) == ["seed", "policy"]
    assert frame["seed"].dtype == np.int64
    traces = [trace.to_frame() for trace in result.traces["a"]]
    pd.testing.assert_frame_equal(
        frame.drop(columns="policy"), pd.concat(traces, ignore_index=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_only_some_policies_have_is_not_a_number_for_others(backend: str) -> None:
    world = Mehrotra(5, 2, 3)
    held = Linear([1.0, 0.0]) + AtMost(0.5).on(1)
    policies = {
        "held": fw.FrankWolfe(held, LinUCB(exploration="theorem")),
        "free": fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem")),
    }
    result = fw.compare(policies, world, 10, seeds=1, checkpoints=[5])
    violation = columns_of(result.to_frame(backend))["violation"]
    assert np.isfinite(violation[:2]).all()
    assert np.isnan(violation[2:]).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tradeoff_as_a_table(backend: str) -> None:
    world = FactorModel(users=6, items=5, position_weights=dcg(2), n_factors=3)
    found = fw.tradeoff(world, betas=(0.0, 0.5), floors=(0.0,), horizon=50, seeds=1)
    rows, columns = found.table(), columns_of(found.to_frame(backend))
    assert list(columns) == list(rows[0])
    assert columns["utility"] == [row["utility"] for row in rows]
    assert columns["policy"] == [row["policy"] for row in rows]


@pytest.mark.parametrize("backend", BACKENDS)
def test_off_policy_results_as_a_table(backend: str) -> None:
    rng = np.random.default_rng(2)
    log = fw.offpolicy.Log.of(
        {
            "action": rng.integers(0, 2, 400),
            "probability": np.full(400, 0.5),
            "reward.clicks": rng.random(400),
            "reward.saves": rng.random(400),
        }
    )
    estimate = log.evaluate(0, Linear({"clicks": 1.0}), "ips")
    columns = columns_of(estimate.to_frame(backend))
    assert columns == {
        "reward": ["clicks", "saves"],
        "average": estimate.average.tolist(),
        "error": estimate.errors.tolist(),
    }


def test_a_frontier_from_a_log_as_a_table() -> None:
    from fairwolfe.offpolicy.estimate import EstimatedFrontier, Point

    rng = np.random.default_rng(2)
    columns = {
        "action": rng.integers(0, 2, 400),
        "probability": np.full(400, 0.5),
        "reward.clicks": rng.random(400),
    }
    one = fw.offpolicy.Log.of(columns).evaluate(0, Linear({"clicks": 1.0}), "ips")
    frontier = EstimatedFrontier((Point(0.5, None, one, one, one),))
    assert rows_of(frontier.to_frame("polars")) == frontier.table()


# --- what goes wrong -----------------------------------------------------------------------------


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"backend is 'panda'; did you mean 'pandas'\?"):
        frame_of({"a": [1]}, "panda")


@pytest.mark.parametrize(
    ("backend", "extra"),
    [("pandas", "plot"), ("polars", "integrations"), ("pyarrow", "integrations")],
)
def test_a_missing_library_is_named_with_its_extra(
    backend: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, backend, None)
    with pytest.raises(
        MissingExtra, match=rf"needs .*{backend}.*pip install 'fairwolfe\[{extra}\]'"
    ):
        frame_of({"a": [1]}, backend)


def test_without_narwhals_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table("polars")
    monkeypatch.setitem(sys.modules, "narwhals", None)
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), TWO)
    with pytest.raises(
        MissingExtra, match=r"needs .*narwhals.*pip install 'fairwolfe\[integrations\]'"
    ):
        agent.act(frame)


def test_arrays_and_lists_are_no_tables() -> None:
    import polars as pl

    assert not any(map(is_frame, (ROWS, ROWS.tolist(), {"a": 1}, pl.Series([1.0]))))
    assert columns_of(table_of([{"a": 1}, {"b": 2.0}], "pyarrow")) == {
        "a": [1, None],
        "b": [None, 2.0],
    }
