"""The configuration: what is refused, and with which sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fairwolfe as fw
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.service.config import parse, read, seconds, setup
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import config

TEXT = config()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('state = "state"', "", "state"),
        ('state = "state"', "stat = 1", "stat is unknown; did you mean 'state'"),
        ('missing = "zero"', "", 'models.router.missing is not given; give "zero"'),
        ('missing = "zero"', 'missing = "none"', "missing"),
        ('window = "20 s"', 'windw = "20 s"', "models.router.windw is unknown; did you mean 'win"),
        ('window = "20 s"', 'window = "20"', "models.router.window is '20'; give a number and one"),
        ('window = "20 s"', 'window = "0 s"', "give more than 0 s"),
        ('window = "20 s"', "window = 20", "window"),
        ('kind = "arms"', 'kind = "arm"', "models.router.problem.kind is 'arm'"),
        ("n_features = 5", "n_feature = 5", "problem.n_feature is unknown; did you mean 'n_featu"),
        ("n_features = 5", "n_features = 0", "n_features is 0"),
        ("n_slots = 3", "n_items = 3, n_slots = 3", "items come by POST"),
        ("n_slots = 3, ", "", "n_slots is missing"),
        ('name = "squarecb"', 'name = "squarec"', "did you mean 'squarecb'"),
        ("gamma0 = 100.0", "gamma = 1.0", "did you mean 'gamma0'"),
        ("[1.0, 0.5]", "[1.0, 0.5, 0.2]", "GeneralizedGini has 3 weights"),
        ("[models.router]", "[models.'a b']", "names are letters, digits"),
        ("[models.router]", "[[models]]", "models"),
        ('"127.0.0.1:0"', '"127.0.0.1"', "give HOST:PORT"),
        ('"127.0.0.1:0"', '"127.0.0.1:99999"', "give HOST:PORT"),
        ('listen = "127.0.0.1:0"', "[limits]\nbody = 'x'", "limits.body is 'x'"),
        ('listen = "127.0.0.1:0"', "[limits]\nopen = 0", "limits.open is 0"),
        ('listen = "127.0.0.1:0"', "[limits]\nopened = 3", "limits.opened is unknown; did you"),
        ('listen = "127.0.0.1:0"', "[[keys]]\nname = 'a'", "keys"),
        (
            'listen = "127.0.0.1:0"',
            "[[keys]]\nname = 'a'\nsha256 = 'secret'\nscopes = ['read']",
            "never the key itself",
        ),
        (
            'listen = "127.0.0.1:0"',
            f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = []",
            "scopes is empty",
        ),
        (
            'listen = "127.0.0.1:0"',
            f"[[keys]]\nname = 'a'\nsha256 = '{'0' * 64}'\nscopes = ['write']",
            "write",
        ),
        ("state", "state = = ", "is not TOML"),
    ],
)
def test_a_wrong_key_or_value_is_named(old: str, new: str, sentence: str) -> None:
    assert old in TEXT
    with pytest.raises(InvalidInput) as caught:
        parse(TEXT.replace(old, new, 1))
    assert sentence in str(caught.value)


def test_the_exact_form_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    config_ = read(path, "localhost:81")
    assert config_.address == ("localhost", 81)
    assert config_.path(config_.state) == tmp_path / "state"
    assert setup(config_, "router").missing == "zero"
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path / "nothing.toml")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500 ms", 0.5),
        ("20 s", 20.0),
        ("10 min", 600.0),
        ("2h", 7200.0),
        ("1.5 d", 129600.0),
        ("30 days", 30 * 86400.0),
        ("1 day", 86400.0),
        ("12 hours", 12 * 3600.0),
        ("90 minutes", 5400.0),
        ("2 weeks", 14 * 86400.0),
    ],
)
def test_spans_of_time(text: str, value: float) -> None:
    assert seconds("window", text) == value


def test_anticipate_reaches_the_policy() -> None:
    assert "anticipate=True" in setup(parse(TEXT), "router").policy
    off = TEXT.replace('missing = "zero"', 'anticipate = false\nmissing = "zero"')
    assert "anticipate=False" in setup(parse(off), "router").policy
    assert "anticipate=False" in setup(parse(off), "front").policy


def test_without_a_policy_the_recommended_one_plays() -> None:
    policies = [line for line in TEXT.splitlines() if line.startswith("policy")]
    assert len(policies) == 2
    alone = TEXT.replace(policies[0], "").replace(policies[1], "")
    for name in ("router", "front"):
        read_ = setup(parse(alone), name)
        problem = read_.make_problem(3)
        objective = setup(parse(TEXT), name).make_policy().objective
        assert read_.make_policy() == fw.Agent(objective, problem).policy
        off = alone.replace('missing = "zero"', 'anticipate = false\nmissing = "zero"')
        assert not setup(parse(off), name).make_policy().anticipate
    empty = re.sub("(?m)^(policy|objective).*$", "", TEXT)
    with pytest.raises(InvalidInput, match="router has neither an objective nor a policy"):
        parse(empty)


def test_rewards_keep_the_order_of_the_configuration() -> None:
    text = TEXT.replace(
        '{ name = "generalized-gini", weights = [1.0, 0.5] }', "'Linear((1.0, 0.0))'"
    )
    text = text.replace(
        "rewards = { clicks = [0, 1], minutes = [0, 10] }",
        "rewards = { minutes = [0, 10], clicks = [0, 1] }",
    )
    service = Inside(text)
    model = service.model("router")
    service.decide("router", arms=[[0.1] * 5])
    service.told("router", {"id": model.id(0), "rewards": {"minutes": 4.0, "clicks": 1.0}})
    service.advance(30.0)
    agent = model.agent
    assert agent is not None
    assert agent.averages == {"minutes": 4.0, "clicks": 1.0}
    assert agent.value == 4.0  # the first weight is of the first reward


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("gamma0 = 100.0", "gamma0 = 10.0", "policy was"),
        ("minutes = [0, 10]", "minutes = [0, 20]", "problem was"),
        ('missing = "zero"', 'missing = "skip"', "missing was 'zero' and is now 'skip'"),
        ('missing = "zero"', 'apply = "arrival"\nmissing = "zero"', "apply was"),
        ('missing = "zero"', 'seed = 7\nmissing = "zero"', "seed was 0 and is now 7"),
    ],
)
def test_settings_that_the_log_rests_on_cannot_change(old: str, new: str, word: str) -> None:
    store = MemoryStore()
    Inside(TEXT, store)
    rows = len(store.log)
    with pytest.raises(IncompatibleState) as caught:
        Inside(TEXT.replace(old, new), store)
    assert word in str(caught.value)
    assert "give the model another name" in str(caught.value)
    assert len(store.log) == rows


def test_a_window_may_change_and_models_may_come() -> None:
    store = MemoryStore()
    first = Inside(config("20 s", both=False), store)
    first.decide("router", arms=[[0.1] * 5])
    again = Inside(config("1 s"), store)
    assert again.model("router").decisions == 1
    assert again.model("front").number == 1
    again.advance(1.5)
    assert again.model("router").t == 1
    without = Inside(config(both=False), store)  # its log stays, for when it comes back
    assert list(without.core.models) == ["router"]
    assert Inside(config(), store).model("front").number == 1


def test_items_of_a_file_are_for_the_first_start(tmp_path: Path) -> None:
    items = {f"i{n}": [0.1 * n, 0.2, 0.3, 0.1] for n in range(4)}
    path = tmp_path / "items.json"
    path.write_text(json.dumps(items))
    line = f'items = "{path}"\nproblem = {{ kind = "ranking"'
    text = TEXT.replace('problem = { kind = "ranking"', line)
    store = SQLiteStore(tmp_path / "state")
    service = Inside(text, store)
    assert service.model("front").items() == items
    assert len(service.decide("front", user=[0.1] * 4).action) == 3
    assert Inside(text, store).model("front").items() == items
    path.write_text(json.dumps({**items, "i0": [1.0, 0.0, 0.0, 0.0]}))
    with pytest.raises(InvalidInput, match=r"item 'i0' of .* is not as the log has it"):
        Inside(text, store)
    for wrong in ("[]", '{"a": [1]}', "nothing", '{"a\\nb": [0, 0, 0, 0.1]}', "{}"):
        path.write_text(wrong)
        with pytest.raises(FairwolfeError, match=r"models\.front\.items"):
            Inside(text, MemoryStore())
    store.close()


def test_items_of_a_parquet_file(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    path = tmp_path / "items.parquet"
    rows = {"key": ["a", "b", "c"], "features": [[0.1, 0.2, 0.3, 0.4]] * 3}
    parquet.write_table(pa.table(rows), path)
    line = f'items = "{path}"\nproblem = {{ kind = "ranking"'
    service = Inside(TEXT.replace('problem = { kind = "ranking"', line))
    assert set(service.model("front").items()) == {"a", "b", "c"}
