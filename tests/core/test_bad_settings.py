"""Bad settings of problems, smoothings, seeds and names: typed errors that show the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.checks import check
from fairwolfe.core import registry
from fairwolfe.core.streams import stream
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import Minimum
from fairwolfe.smoothing import Moreau, Randomized

nan, inf = float("nan"), float("inf")
FIVE = Problem.arms(2, dict.fromkeys(["clicks", "minutes", "cost", "saves", "skips"], (0.0, 1.0)))


def bad(value: object) -> Any:
    """A value of the wrong type, on purpose."""
    return value


def vector(*values: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(values)


BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    # Smoothings.
    "beta0 0": (lambda: Moreau(beta0=0.0), InvalidInput, r"beta0 is 0\.0; give a positive number"),
    "radius -1": (
        lambda: Randomized(radius=-1.0),
        InvalidInput,
        r"radius is -1\.0; give a positive",
    ),
    "radius nan": (lambda: Randomized(radius=nan), InvalidInput, r"radius is nan;"),
    "horizon 0": (lambda: Moreau(horizon=0), InvalidInput, r"horizon is 0; .*at least 1"),
    "horizon 1.5": (
        lambda: Moreau(horizon=bad(1.5)),
        InvalidInput,
        r"horizon is 1\.5; .*at least 1",
    ),
    "no samples": (lambda: Randomized(n_samples=0), InvalidInput, r"n_samples is 0; .*at least 1"),
    "half a sample": (lambda: Randomized(n_samples=bad(0.5)), InvalidInput, r"n_samples is 0\.5;"),
    "t -1": (
        lambda: Moreau(1.0).gradient(Minimum(), vector(1.0), -1),
        InvalidInput,
        r"t is -1; .*0 or more",
    ),
    "t 1.5": (
        lambda: Moreau(1.0).value(Minimum(), vector(1.0), bad(1.5)),
        InvalidInput,
        r"t is 1\.5; .*0 or more",
    ),
    "no generator": (
        lambda: Randomized().gradient(Minimum(), vector(1.0), 0),
        InvalidInput,
        r"pass rng",
    ),
    # Problems.
    "range reversed": (
        lambda: Problem.arms(2, {"clicks": (1, 0)}),
        InvalidInput,
        r"range of reward 'clicks' is \(1, 0\); .*low < high",
    ),
    "range empty": (lambda: Problem.arms(2, {"c": (1, 1)}), InvalidInput, r"'c' is \(1, 1\);"),
    "range nan": (lambda: Problem.arms(2, {"c": (0, nan)}), InvalidInput, r"'c' is \(0, nan\);"),
    "range inf": (lambda: Problem.arms(2, {"c": (0, inf)}), InvalidInput, r"'c' is \(0, inf\);"),
    "range of one": (lambda: Problem.arms(2, bad({"c": (1,)})), InvalidInput, r"'c' is \(1,\);"),
    "range a number": (lambda: Problem.arms(2, bad({"c": 1})), InvalidInput, r"'c' is 1;"),
    "no rewards": (
        lambda: Problem.arms(2, {}),
        InvalidInput,
        r"rewards is empty; name at least one",
    ),
    "rewards a list": (lambda: Problem.arms(2, bad(["c"])), InvalidInput, r"rewards is \['c'\];"),
    "reward without a name": (lambda: Problem.arms(2, {"": (0, 1)}), InvalidInput, r"named ''; "),
    "reward 7": (lambda: Problem.arms(2, bad({7: (0, 1)})), InvalidInput, r"named 7; .*strings"),
    "no features": (lambda: Problem.arms(0, {"c": (0, 1)}), InvalidInput, r"n_features is 0; .*1"),
    "half a feature": (
        lambda: Problem.arms(bad(1.5), {"c": (0, 1)}),
        InvalidInput,
        r"n_features is 1\.5; give a whole number",
    ),
    "features in threes": (
        lambda: Problem.arms(bad((1, 2, 3)), {"c": (0, 1)}),
        InvalidInput,
        r"n_features is \(1, 2, 3\); .*pair",
    ),
    "more slots than items": (
        lambda: Problem.ranking(3, 4, 2),
        InvalidInput,
        r"n_slots is 4 but there are only 3 items; .*at most n_items",
    ),
    "no slots": (lambda: Problem.ranking(3, 0, 2), InvalidInput, r"n_slots is 0; .*at least 1"),
    "slots without items": (
        lambda: Problem(2, {"c": (0, 1)}, n_slots=2),
        InvalidInput,
        r"n_items is None and n_slots is 2; a ranking needs both",
    ),
    "feature norm 0": (
        lambda: Problem.arms(2, {"c": (0, 1)}, feature_norm=0.0),
        InvalidInput,
        r"feature_norm is 0\.0; .*positive",
    ),
    "parameter norm inf": (
        lambda: Problem.arms(2, {"c": (0, 1)}, parameter_norm=inf),
        InvalidInput,
        r"parameter_norm is inf; .*positive",
    ),
    "noise a word": (
        lambda: Problem.arms(2, {"c": (0, 1)}, noise="loud"),
        InvalidInput,
        r"noise is 'loud'; give a",
    ),
    "coordinate of a slip": (
        lambda: FIVE.coordinate("save"),
        InvalidInput,
        r"no reward 'save'; did you mean 'saves'\?",
    ),
    "problem from no JSON": (lambda: Problem.from_json("{oops"), InvalidInput, r"'\{oops'"),
    "problem from a list": (lambda: Problem.from_json("[1]"), InvalidInput, r"'\[1\]'.*object"),
    "problem with a slip": (
        lambda: Problem.from_json('{"n_feature": 3}'),
        InvalidInput,
        r"no field 'n_feature'; did you mean 'n_features'\?",
    ),
    "problem without features": (
        lambda: Problem.from_json('{"rewards": {"c": [0, 1]}}'),
        InvalidInput,
        r"n_features",
    ),
    # Seeds and the registry.
    "seed -1": (lambda: stream(-1, "x"), InvalidInput, r"seed is -1; .*at least 0"),
    "seed 0.5": (lambda: stream(bad(0.5), "x"), InvalidInput, r"seed is 0\.5; give a whole number"),
    "seed True": (lambda: stream(True, "x"), InvalidInput, r"seed is True; give a whole number"),
    "seed None": (
        lambda: stream(bad(None), "x"),
        InvalidInput,
        r"seed is None; give a whole number",
    ),
    "kind with a slip": (
        lambda: registry.names("objective"),
        InvalidInput,
        r"no kind 'objective'; did you mean 'objectives'\?",
    ),
    "name with a slip": (
        lambda: registry.load("objectives", "gini-walfare"),
        InvalidInput,
        r"no 'gini-walfare' among the objectives; did you mean 'gini-welfare'\?",
    ),
    "no address": (
        lambda: registry.import_class("Minimum"),
        InvalidInput,
        r"'Minimum' .*module:Class",
    ),
    "no module": (
        lambda: check("no_such_module:X"),
        InvalidInput,
        r"'no_such_module' cannot be imp",
    ),
    "class with a slip": (
        lambda: check("fairwolfe.objectives:Minimun"),
        InvalidInput,
        r"no class 'Minimun'; did you mean 'Minimum'\?",
    ),
    "beta0 a word": (lambda: Moreau(beta0=bad("x")), InvalidInput, r"beta0 is 'x';"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_refused_with_a_sentence(name: str) -> None:
    make, kind, message = BAD[name]
    with pytest.raises(kind, match=message) as caught:
        make()
    assert isinstance(caught.value, FairwolfeError)
