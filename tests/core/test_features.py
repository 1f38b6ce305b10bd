"""Dictionaries, tables and transformers as features."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.features import Encoder, Transformed
from fairwolfe.core.streams import stream
from fairwolfe.core.tables import frame_of
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Linear, Minimum

OFFERS: list[dict[str, Any]] = [
    {"price": 2.0, "city": "Rome", "new": True, "tags": ["sea", "old"]},
    {"price": 9.0, "city": "Oslo", "new": False, "tags": []},
    {"price": 5.5, "city": None, "tags": ["sea"]},
]
WIDE = Encoder(n_features=100_000, ranges={"price": (1, 9)}, n_names=4)  # without collisions


# --- what a row is ---------------------------------------------------------------------------


def test_a_row_holds_the_constant_and_a_place_for_each_value() -> None:
    row = WIDE({"price": 2.0, "city": "Rome", "new": False, "tags": ["sea", "old"]})
    assert row[0] == pytest.approx(1 / np.sqrt(5))
    rest = sorted(np.abs(row[1:][row[1:] != 0.0]) * np.sqrt(5))
    # The price is 1/8 of the way from 1 to 9; two tags have norm 1 together.
    assert rest == pytest.approx([np.sqrt(0.5), np.sqrt(0.5), 0.75, 1.0, 1.0])


@pytest.mark.needs("scikit-learn")
def test_without_collisions_products_are_those_of_one_hot_rows() -> None:
    """scikit-learn's DictVectorizer is the oracle: the same Gram matrix, whatever the places."""
    from sklearn.feature_extraction import DictVectorizer

    rng = stream(0, "offers")
    rows: list[dict[str, Any]] = [
        {
            "price": float(rng.uniform(1, 9)),
            "city": str(rng.integers(5)),
            "of": str(rng.integers(3)),
        }
        for _ in range(30)
    ]
    hot = DictVectorizer(sparse=False).fit_transform(
        [row | {"price": (row["price"] - 5.0) / 4.0, "constant": 1.0} for row in rows]
    )
    assert WIDE.collisions(rows) == ()
    found = WIDE(rows)
    np.testing.assert_allclose(found @ found.T, hot @ hot.T / 5.0, atol=1e-12)


def test_hashed_products_are_unbiased() -> None:
    """Signed hashing keeps inner products on average, whatever collides (Weinberger et al.)."""
    narrow = Encoder(n_features=9, n_names=99)  # so that nothing is shortened
    errors = []
    for i in range(2000):
        one = {f"{i}-{j}": "x" for j in range(6)}
        other = {f"{i}-{j}": "x" for j in range(3, 9)}
        a, b = (10.0 * narrow(row) for row in (one, other))
        errors.append(a @ b - (1.0 + 3.0))
    spread = np.std(errors)
    assert spread > 1.0  # places are shared
    assert abs(np.mean(errors)) < 5.0 * spread / np.sqrt(len(errors))


def test_places_are_the_same_in_every_process_and_on_every_machine() -> None:
    code = (
        "from fairwolfe.core.features import Encoder; "
        "row = Encoder(n_features=50, ranges={'a': (0, 1)})({'a': 1, 'city': 'Tromsø'}); "
        "print(row.nonzero()[0].tolist(), (row[row != 0] > 0).tolist())"
    )
    seen = set()
    for seed in ("1", "2"):
        seen.add(
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env=os.environ | {"PYTHONHASHSEED": seed},
                cwd=Path(__file__).parents[2],
            ).stdout.strip()
        )
    # By hand: `printf 'city\0Tromsø' | b2sum -l 64` gives the bytes of a number n, lowest first;
    # the place is 1 + (n // 2) % 49, and an odd n counts as it is, an even one with a minus.
    assert seen == {"[0, 10, 46] [True, False, False]"}


@pytest.mark.parametrize("n_features", [2, 7, 64])
def test_rows_stay_within_the_norm(n_features: int) -> None:
    encoder = Encoder(n_features, {"x": (0, 1)}, n_names=3, feature_norm=2.5)
    rng = stream(1, "rows")
    rows = [
        {"x": float(rng.normal(0, 5)), **{f"n{j}": str(rng.integers(9)) for j in range(k % 7)}}
        for k in range(200)
    ]
    norms = np.linalg.norm(encoder(rows), axis=1)
    assert norms.max() <= 2.5 * (1 + 1e-12)
    # Those with few enough names are not shortened, as long as nothing collides.
    few = Encoder(100_000, {"x": (0, 1)}, n_names=3, feature_norm=2.5)
    full = few({"x": 1.0, "a": "1", "b": "2"})
    assert np.linalg.norm(full) == pytest.approx(2.5)


def test_numbers_outside_their_range_are_cut() -> None:
    encoder = Encoder(16, {"x": (0, 10)}, n_names=1)
    np.testing.assert_array_equal(encoder({"x": 12.0}), encoder({"x": 10}))
    np.testing.assert_array_equal(encoder({"x": -3}), encoder({"x": np.float32(0)}))


def test_any_text_has_a_place() -> None:
    assert np.count_nonzero(WIDE({"name": "\ud800 broken", "": "empty"})) == 3


def test_nothing_known_counts_nothing() -> None:
    assert np.count_nonzero(WIDE({})) == 1
    np.testing.assert_array_equal(WIDE({"city": None, "tags": []}), WIDE({}))
    np.testing.assert_array_equal(WIDE({"tags": ["b", "a", "b"]}), WIDE({"tags": {"a", "b"}}))


# --- forms -----------------------------------------------------------------------------------


def test_lists_mappings_and_tables() -> None:
    rows = WIDE(OFFERS)
    assert rows.shape == (3, 100_000)
    for row, offer in zip(rows, OFFERS, strict=True):
        np.testing.assert_array_equal(row, WIDE(offer))
    named = WIDE({"first": OFFERS[0], "second": OFFERS[1]})
    assert list(named) == ["first", "second"]
    np.testing.assert_array_equal(named["second"], rows[1])


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_rows_of_a_table_are_dictionaries(backend: str) -> None:
    plain: list[dict[str, Any]] = [
        {"price": 2.0, "city": "Rome", "new": True},
        {"price": None, "city": None, "new": False},
    ]
    columns = {name: [row[name] for row in plain] for name in plain[0]}
    table = frame_of(columns, backend)
    np.testing.assert_array_equal(WIDE(table), WIDE(plain))
    assert Encoder.of(table) == Encoder.of(plain)


def test_what_is_shared_is_crossed_with_every_arm() -> None:
    """Without collisions: products are Kronecker products, as in a Bilinear context."""
    user = {"age": "young", "city": "Lima"}
    rows, other = WIDE(OFFERS, shared=user), WIDE(OFFERS, shared={"age": "old"})
    u, v, items = WIDE(user), WIDE({"age": "old"}), WIDE(OFFERS)
    gram, between = rows @ rows.T, rows @ other.T
    # (1 + n_names) is the square of the root by which both factors are divided.
    np.testing.assert_allclose(gram, (u @ u) * (items @ items.T), atol=1e-12)
    np.testing.assert_allclose(between, (u @ v) * (items @ items.T), atol=1e-12)


def test_bilinear_and_per_arm_contexts_are_made_of_the_same_vectors() -> None:
    users, items = Encoder(8), Encoder.of(OFFERS, 12)
    problem = fw.Problem.ranking(3, 2, (8, 12))
    agent = fw.Agent(
        fw.ranking.FWLinUCBRank(Linear({"clicks": 1.0}), exploration="theorem"), problem
    )
    decision = agent.act(fw.Bilinear(users({"age": "young"}), items(OFFERS)))
    assert np.shape(decision.action) == (2,)
    arms = fw.Problem.arms(8, {"clicks": (0, 1)}, n_arms=3)
    one = fw.Agent(fw.FrankWolfe(Linear({"clicks": 1.0}), LinUCB(exploration="theorem")), arms)
    assert one.act(fw.PerArm(users({"age": "young"}))).action in (0, 1, 2)


def test_an_agent_learns_what_a_text_is_worth() -> None:
    """Clicks in Rome, saves in Oslo, nothing in Lima: a fair f shows the first two in turn."""
    encoder = Encoder.of(OFFERS, 32)
    problem = fw.Problem.arms(32, {"clicks": (0, 1), "saves": (0, 1)})
    policy = fw.FrankWolfe(Minimum(), SquareCB(gamma0=200.0))
    agent, rng, taken = fw.Agent(policy, problem, seed=0), stream(0, "prices"), []
    worth = {"Rome": [1.0, 0.0], "Oslo": [0.0, 1.0], "Lima": [0.0, 0.0]}
    for _ in range(400):
        offers: list[dict[str, Any]] = [
            {"price": rng.uniform(2, 9), "city": city} for city in worth
        ]
        decision = agent.act(encoder(offers))
        city = offers[int(np.asarray(decision.action))]["city"]
        agent.update(decision, worth[city])
        taken.append(city)
    assert taken[200:].count("Lima") < 20
    assert agent.average.min() > 0.4  # 0.5 is the best there is


# --- settings --------------------------------------------------------------------------------


def test_an_encoder_is_a_value() -> None:
    for encoder in (Encoder(), WIDE, Encoder.of(OFFERS, 32, feature_norm=2.0)):
        assert eval(repr(encoder)) == encoder
        assert Encoder.from_json(encoder.to_json()) == encoder
        assert hash(Encoder.from_json(encoder.to_json())) == hash(encoder)
    with pytest.raises(AttributeError):
        WIDE.n_features = 3  # type: ignore[misc]


def test_ranges_and_names_of_a_sample() -> None:
    encoder = Encoder.of([*OFFERS, {"price": 4, "rooms": 3}], 32)
    assert encoder.ranges == {"price": (2.0, 9.0), "rooms": (2.0, 4.0)}
    assert (encoder.n_features, encoder.n_names) == (32, 4)


def test_an_agent_and_its_encoder_are_saved_side_by_side(tmp_path: Path) -> None:
    encoder = Encoder.of(OFFERS, 16)
    problem = fw.Problem.arms(16, {"clicks": (0, 1)})
    agent = fw.Agent(
        fw.FrankWolfe(Linear({"clicks": 1.0}), LinUCB(exploration="theorem")), problem, seed=1
    )
    agent.update(agent.act(encoder(OFFERS)), [1.0])
    agent.save(tmp_path / "router.fw")
    (tmp_path / "router.features.json").write_text(encoder.to_json())
    again = Encoder.from_json((tmp_path / "router.features.json").read_text())
    loaded = fw.Agent.load(tmp_path / "router.fw")
    assert loaded.act(again(OFFERS)).action == agent.act(encoder(OFFERS)).action


# --- transformers of scikit-learn --------------------------------------------------------------


@pytest.mark.needs("scikit-learn")
def test_a_column_transformer_over_a_data_frame() -> None:
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    table = pd.DataFrame({"price": [1.0, 2.0, 6.0], "city": ["Rome", "Oslo", "Rome"]})
    columns = ColumnTransformer(
        [("n", StandardScaler(), ["price"]), ("c", OneHotEncoder(), ["city"])]
    )
    pipeline = make_pipeline(columns).fit(table)
    features = Transformed.of(pipeline, table, feature_norm=2.0)
    plain = pipeline.transform(table)
    found = features(table)
    assert features.n_features == 3
    np.testing.assert_allclose(found, 2.0 * plain / np.linalg.norm(plain, axis=1).max())
    wild = features(pd.DataFrame({"price": [1e6], "city": ["Oslo"]}))
    assert np.linalg.norm(wild) == pytest.approx(2.0)
    problem = fw.Problem.arms(3, {"clicks": (0, 1)}, feature_norm=2.0)
    agent = fw.Agent(fw.FrankWolfe(Linear({"clicks": 1.0}), LinUCB(exploration="theorem")), problem)
    assert agent.act(found).action in (0, 1, 2)


@pytest.mark.needs("scikit-learn")
def test_feature_hasher_and_data_frames_out() -> None:
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.preprocessing import StandardScaler

    rows = [{"price": 3.0, "city": "Rome"}, {"price": 1.0, "city": "Oslo"}]
    hashed = Transformed.of(FeatureHasher(n_features=16), rows)
    assert hashed(rows).shape == (2, 16)
    np.testing.assert_array_equal(hashed(rows[0]), hashed(rows)[0])
    import pandas as pd

    numbers = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 4.0]})
    scaler = StandardScaler().set_output(transform="pandas").fit(numbers)
    assert isinstance(Transformed.of(scaler, numbers)(numbers), np.ndarray)


@pytest.mark.needs("scikit-learn")
def test_transformers_that_cannot_be_used() -> None:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.preprocessing import StandardScaler

    rows = [{"price": 3.0}]
    with pytest.raises(InvalidInput, match=r"StandardScaler is not fitted; call its fit\(sample\)"):
        Transformed.of(StandardScaler(), [[1.0]])
    with pytest.raises(InvalidInput, match=r"DictVectorizer is not fitted"):
        Transformed(DictVectorizer(), 1)(rows)
    with pytest.raises(InvalidInput, match=r"give an object with transform\(rows\), fitted"):
        Transformed(3, 1)(rows)
    with pytest.raises(InvalidInput, match=r"give an object with transform"):
        Transformed(StandardScaler, 1)(rows)
    fitted = StandardScaler().fit([[1.0], [2.0]])
    with pytest.raises(InvalidInput, match=r"StandardScaler cannot use these rows"):
        Transformed(fitted, 1)([["x"]])
    with pytest.raises(InvalidInput, match=r"not finite"):
        Transformed(fitted, 1)([[np.nan]])
    with pytest.raises(InvalidInput, match=r"divisor is 0.0; give a positive finite number"):
        Transformed(fitted, 1, 0.0)
    with pytest.raises(InvalidInput, match=r"makes 1 columns, and n_features is 2"):
        Transformed(fitted, 2)([[1.0]])


# --- what goes wrong -----------------------------------------------------------------------------

BAD_ROWS: dict[str, tuple[Any, str]] = {
    "no range": ([{"size": 3}], r"feature 'size' is 3, a number without a range; add the"),
    "NaN": (
        [{"price": float("nan")}],
        r"feature 'price' is nan; .* leave it out where it is not known",
    ),
    "too large": (
        [{"price": 10**400}],
        r"feature 'price' is 10+\.\.\.; give a number that a float",
    ),
    "infinite": ([{"price": np.inf}], r"feature 'price' is inf"),
    "complex": ([{"size": 1j}], r"feature 'size' is 1j, a complex; give a number, a text"),
    "text for a number": (
        [{"price": "10"}],
        r"feature 'price' is '10', a text, and has the range 1 to 9; give a number, or leave",
    ),
    "truth for a number": (
        [{"price": True}],
        r"feature 'price' is True, true or false, and has the range",
    ),
    "list of numbers": ([{"tags": [1, 2]}], r"feature 'tags' is \[1, 2\], a list"),
    "dictionary inside": ([{"a": {"b": 1}}], r"feature 'a' is \{'b': 1\}, a dict"),
    "bytes": ([{"a": b"x"}], r"feature 'a' is b'x', a bytes"),
    "name": ([{3: "x"}], r"a feature is named 3; names are texts"),
    "no dictionary": ([3], r"a row is 3; give a dictionary"),
    "text": ("Rome", r"the features are 'Rome'; give a dictionary for each arm in a list"),
    "number": (3, r"the features are 3"),
    "nothing": ([], r"there are no rows"),
}


@pytest.mark.parametrize(("rows", "sentence"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows_are_refused_in_a_sentence(rows: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        WIDE(rows)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_features": 1}, r"n_features is 1; give a whole number of at least 2"),
        ({"n_names": 0}, r"n_names is 0"),
        ({"feature_norm": 0.0}, r"feature_norm is 0.0; give a positive"),
        ({"feature_norm": "1"}, r"feature_norm is '1'; give a positive"),
        ({"ranges": [1]}, r"ranges is \[1\]; give \{name: \(low, high\)\}"),
        ({"ranges": {"a": (1, 1)}}, r"the range of feature 'a' is \(1, 1\); give \(low, high\)"),
        ({"ranges": {"a": (-1e308, 1e308)}}, r"the range of feature 'a'"),
        ({"ranges": {"a": 3}}, r"the range of feature 'a' is 3"),
        ({"ranges": {3: (0, 1)}}, r"ranges is \{3: \(0, 1\)\}; give \{name: \(low, high\)\}"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(settings: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Encoder(**settings)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"n_feature": 3}', '{"n_features": 1}', "3"])
def test_a_text_that_is_no_encoder_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"an encoder cannot be read from|n_features is 1"):
        Encoder.from_json(text)


def test_importing_features_loads_no_compiler_and_no_frames() -> None:
    code = "import sys, fairwolfe as fw; fw.features.Encoder()({'a': 'b'}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    heavy = {"sklearn", "pandas", "polars", "pyarrow", "narwhals", "gymnasium", "river"}
    assert heavy & set(done.stdout.split()) == set()


# --- stated names, and chosen products ------------------------------------------------------------


def test_stated_names_refuse_others() -> None:
    encoder = Encoder(16, {"price": (0, 10)}, texts=["city"])
    np.testing.assert_array_equal(
        encoder({"price": 2, "city": "Rome"}),
        Encoder(16, {"price": (0, 10)})({"price": 2, "city": "Rome"}),
    )
    with pytest.raises(InvalidInput, match=r"there is no feature 'town'; did you mean|known are"):
        encoder({"town": "Rome"})
    with pytest.raises(InvalidInput, match=r"there is no feature 'x'"):
        encoder([{"price": 2}], shared={"x": None})
    with pytest.raises(InvalidInput, match=r"feature 'city' is 3, a number without a range"):
        encoder({"city": 3})


def test_chosen_products_are_those_of_all_products() -> None:
    """Gram matrices without collisions: 1 + shared + own + products of the chosen pairs."""
    pairs = [("age", "city"), ("age", "price"), ("none", "city")]
    chosen = Encoder(100_000, {"price": (1, 9)}, n_names=4, crosses=pairs)
    user, other = {"age": "young", "club": "yes"}, {"age": "old", "club": "yes"}
    rows, items = chosen(OFFERS, shared=user), WIDE(OFFERS) * np.sqrt(5.0)
    kept = [{name: row.get(name) for name in ("city", "price")} for row in OFFERS]
    crossed = WIDE(kept) * np.sqrt(5.0)
    size = 1.0 + 2 * 4 + 3
    expected = (items @ items.T) + 2.0 + (crossed @ crossed.T - 1.0)
    np.testing.assert_allclose(rows @ rows.T * size, expected, atol=1e-9)
    between = rows @ chosen(OFFERS, shared=other).T * size
    np.testing.assert_allclose(between, (items @ items.T) + 1.0, atol=1e-9)
    # None of them: what is shared, by itself.
    alone = Encoder(100_000, {"price": (1, 9)}, n_names=4, crosses=[])(OFFERS, shared=user)
    np.testing.assert_allclose(alone @ alone.T * 9.0, items @ items.T + 2.0, atol=1e-9)


def test_chosen_products_stay_within_the_norm() -> None:
    encoder = Encoder(100_000, n_names=2, crosses=[("a", "c"), ("b", "d")], feature_norm=2.0)
    row = encoder([{"c": "1", "d": "2"}], shared={"a": "3", "b": "4"})[0]
    assert np.linalg.norm(row) == pytest.approx(2.0)


def test_rows_do_not_depend_on_the_rows_beside_them() -> None:
    encoder = Encoder(7, {"price": (1, 9)}, n_names=2)
    shared = {"age": "young", "likes": ["sea", "hills"]}
    for user in (None, shared):
        together = encoder([*OFFERS, {}], shared=user)
        for row, offer in zip(together, [*OFFERS, {}], strict=True):
            np.testing.assert_array_equal(row, encoder([offer], shared=user)[0])


def test_hashes_of_long_and_of_too_many_texts_are_not_kept() -> None:
    from fairwolfe.core.features import _KEPT, _KNOWN

    WIDE({"city": "Rome"})
    before = len(_KNOWN)
    WIDE([{"text": f"{i}" + "x" * 1000} for i in range(100)])
    assert len(_KNOWN) == before
    narrow = Encoder(2, n_names=1)
    first = narrow({"city": [f"{i}" for i in range(_KEPT + 100)]})
    assert len(_KNOWN) <= _KEPT
    np.testing.assert_array_equal(narrow({"city": [f"{i}" for i in range(_KEPT + 100)]}), first)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"texts": "city"}, r"texts is 'city'; give names in a list"),
        ({"texts": [3]}, r"texts holds 3; names are texts"),
        ({"crosses": "ab"}, r"crosses is 'ab'; give pairs"),
        ({"crosses": [("a",)]}, r"crosses holds \('a',\); give pairs"),
        ({"crosses": [("a", "b"), ("a", "b")]}, r"each once"),
        ({"crosses": [("a", 1)]}, r"crosses holds 1; names are texts"),
        ({"texts": ["a"], "crosses": [("a", "b")]}, r"there is no feature 'b'; known are: a"),
    ],
)
def test_bad_names_in_settings_are_refused(settings: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        Encoder(**settings)


def test_an_encoder_with_names_is_a_value() -> None:
    encoder = Encoder(8, {"x": (0, 1)}, texts=["a"], crosses=[["a", "x"]])  # type: ignore[list-item]
    assert eval(repr(encoder)) == encoder == Encoder.from_json(encoder.to_json())
    assert hash(Encoder.from_json(encoder.to_json())) == hash(encoder)
