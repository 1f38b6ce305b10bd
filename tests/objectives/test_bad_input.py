"""Bad input: a typed error whose sentence shows the value and says what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.errors import FairwolfeError, InvalidInput, NoProx, NotConcave
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    On,
    PerMerit,
    Scaled,
    Sum,
    TwoSided,
    Welfare,
)
from fairwolfe.smoothing import Moreau

nan, inf = float("nan"), float("inf")

FIVE = Problem.arms(2, dict.fromkeys(["clicks", "minutes", "cost", "saves", "skips"], (0.0, 1.0)))
RANKING = Problem.ranking(n_items=4, n_slots=2, n_features=3)


def bad(value: object) -> Any:
    """A value of the wrong type, on purpose."""
    return value


def vector(*values: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(values)


BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    # Objectives that are not concave.
    "increasing weights": (
        lambda: GeneralizedGini((1.0, 0.5, 0.75)),
        NotConcave,
        r"weights increase at position 2: 0\.5 is followed by 0\.75; they must never increase",
    ),
    "negative multiple": (
        lambda: -2 * GiniWelfare(),
        NotConcave,
        r"multiple of GiniWelfare is -2\.0; a finite number of at least 0",
    ),
    "multiple nan": (lambda: nan * Minimum(), InvalidInput, r"multiple of Minimum is nan;"),
    "multiple inf": (lambda: Minimum() * inf, InvalidInput, r"multiple of Minimum is inf;"),
    "alpha 0": (lambda: Welfare(0.0), InvalidInput, r"alpha is 0\.0; .*0 < alpha <= 1.*Nash"),
    "alpha negative": (lambda: Welfare(-0.5), InvalidInput, r"alpha is -0\.5; .*0 < alpha <= 1"),
    "alpha 1.5": (lambda: Welfare(1.5), NotConcave, r"alpha is 1\.5; .*0 < alpha <= 1"),
    "alpha nan": (lambda: Welfare(nan), InvalidInput, r"alpha is nan; .*0 < alpha <= 1"),
    "negative beta": (
        lambda: TwoSided(Minimum(), -0.5),
        NotConcave,
        r"beta is -0\.5; .*at least 0",
    ),
    "beta inf": (lambda: TwoSided(Minimum(), inf), InvalidInput, r"beta is inf; .*at least 0"),
    "negative penalty": (
        lambda: AtMost(0.5, penalty=-1.0),
        NotConcave,
        r"penalty of AtMost is -1\.0; give a positive number",
    ),
    "penalty nan": (lambda: AtLeast(0.5, nan), InvalidInput, r"penalty of AtLeast is nan;"),
    "penalty 0": (
        lambda: AtMost(0.5, 0.0),
        InvalidInput,
        r"penalty of AtMost is 0.*leave the term out",
    ),
    # Parameters out of range.
    "negative offset": (lambda: Nash(offset=-0.1), InvalidInput, r"offset of Nash is -0\.1; .* 0"),
    "offset nan": (lambda: Welfare(0.5, nan), InvalidInput, r"offset of Welfare is nan;"),
    "weights nan": (lambda: Linear((1.0, nan)), InvalidInput, r"weights\[1\] is nan; give finite"),
    "weights empty": (
        lambda: GeneralizedGini(()),
        InvalidInput,
        r"weights is empty; .*at least one",
    ),
    "weights matrix": (lambda: Linear(bad([[1.0]])), InvalidInput, r"weights has shape \(1, 1\);"),
    "weights words": (lambda: Linear(bad(["a"])), InvalidInput, r"weights is not .*numbers: .*'a'"),
    "named weight inf": (lambda: Linear({"a": inf}), InvalidInput, r"weights\[0\] is inf;"),
    "level nan": (lambda: AtLeast((0.1, nan), 1.0), InvalidInput, r"level\[1\] is nan;"),
    "merit zero": (
        lambda: PerMerit(Minimum(), (1.0, 0.0)),
        InvalidInput,
        r"merit\[1\] is 0\.0; merits must be positive",
    ),
    "merit negative": (
        lambda: PerMerit(Minimum(), (-3.0, 1.0)),
        InvalidInput,
        r"merit\[0\] is -3\.0; merits must be positive",
    ),
    "merit inf": (lambda: PerMerit(Minimum(), (inf,)), InvalidInput, r"merit\[0\] is inf;"),
    "no rows": (lambda: Mapped(Minimum(), ()), InvalidInput, r"matrix .*(\(\)|\[\]); give"),
    "no columns": (lambda: Mapped(Minimum(), ((),)), InvalidInput, r"row 0 of the matrix is empty"),
    "ragged rows": (
        lambda: Mapped(Minimum(), ((1.0, 2.0), (1.0,))),
        InvalidInput,
        r"rows of the matrix have lengths \[2, 1\]",
    ),
    "matrix nan": (
        lambda: Mapped(Minimum(), ((1.0, 2.0), (1.0, nan))),
        InvalidInput,
        r"row 1 of the matrix\[1\] is nan",
    ),
    "no labels": (lambda: ByGroup(Minimum(), ()), InvalidInput, r"labels is empty; give the group"),
    "no users": (
        lambda: TwoSided(Minimum(), n_users=0),
        InvalidInput,
        r"n_users is 0; .*at least 1",
    ),
    "no terms": (lambda: Sum(()), InvalidInput, r"Sum has terms \(\); .*at least one"),
    "term 3": (lambda: Sum(bad((Minimum(), 3))), InvalidInput, r"terms .*, 3\); give objectives"),
    # Lengths that do not fit.
    "short z": (
        lambda: Linear((1.0, 2.0, 3.0)).value(vector(1.0, 2.0)),
        InvalidInput,
        r"Linear has 3 weights, z has 2; give z of length 3",
    ),
    "long z": (
        lambda: AtMost((0.1, 0.2), 1.0).gradient(vector(1.0, 2.0, 3.0)),
        InvalidInput,
        r"AtMost has 2 levels, z has 3; .*\.on\(",
    ),
    "inner length of a map": (
        lambda: Mapped(Linear((1.0, 2.0)), ((1.0, 0.0, 0.0),)),
        InvalidInput,
        r"Linear has 2 weights, z has 1",
    ),
    "inner length of groups": (
        lambda: ByGroup(Linear((1.0, 2.0)), "aaaa"),
        InvalidInput,
        r"Linear has 2 weights, z has 1",
    ),
    "inner length of merits": (
        lambda: PerMerit(Linear((1.0, 2.0)), (1.0, 1.0, 1.0)),
        InvalidInput,
        r"Linear has 2 weights, z has 3",
    ),
    "inner length of an aim": (
        lambda: Linear((1.0, 2.0)).on(0, 1, 2),
        InvalidInput,
        r"Linear has 2 weights, z has 3",
    ),
    "terms of two lengths": (
        lambda: (Linear((1.0, 2.0)) + Linear((1.0, 2.0, 3.0))).value(vector(1.0, 2.0)),
        InvalidInput,
        r"functions of 2 and of 3 coordinates; aim each .*\.on\(",
    ),
    "only users": (
        lambda: TwoSided(Minimum(), n_users=2).value(vector(1.0, 2.0)),
        InvalidInput,
        r"given 2 coordinates, 2 of them of the user side; .*at least one item",
    ),
    "two-sided without items": (
        lambda: TwoSided(Minimum()).bind(FIVE),
        InvalidInput,
        r"5 rewards .* no items; .*Problem\.ranking",
    ),
    "labels and items": (
        lambda: TwoSided(ByGroup(Minimum(), "abc")).bind(RANKING),
        InvalidInput,
        r"ByGroup has 3 labels, the problem has 4 items",
    ),
    "merits and items": (
        lambda: TwoSided(PerMerit(Minimum(), (1.0, 2.0))).bind(RANKING),
        InvalidInput,
        r"PerMerit has 2 merits, the problem has 4 items",
    ),
    "users of another number": (
        lambda: TwoSided(Minimum(), users=Linear((1.0, 1.0))).bind(RANKING),
        InvalidInput,
        r"Linear has 2 weights, the problem has 1 user-side rewards",
    ),
    "columns and rewards": (
        lambda: Mapped(Minimum(), ((1.0, 2.0),)).bind(FIVE),
        InvalidInput,
        r"matrix of Mapped has 2 columns, the problem has 5 rewards .*\.on\('clicks', 'minutes'\)",
    ),
    # Names and aims.
    "reward with a slip": (
        lambda: Linear({"click": 1.0}).bind(FIVE),
        InvalidInput,
        r"no reward 'click'; did you mean 'clicks'\? Known are: clicks, cost, minutes, saves, sk",
    ),
    "threshold with a slip": (
        lambda: AtMost({"costs": 1.0}, 1.0).bind(FIVE),
        InvalidInput,
        r"no reward 'costs'; did you mean 'cost'\?",
    ),
    "aim with a slip": (
        lambda: (2.0 * Minimum().on("minuts", "clicks")).bind(FIVE),
        InvalidInput,
        r"no reward 'minuts'; did you mean 'minutes'\?",
    ),
    "unheard-of reward": (
        lambda: Minimum().on("zzz").bind(FIVE),
        InvalidInput,
        r"no reward 'zzz'; known are: clicks, cost, minutes, saves, skips",
    ),
    "group with a slip": (
        lambda: ByGroup(Linear({"indy": 1.0}), ("indie", "major")).on(0, 1).bind(FIVE),
        InvalidInput,
        r"no reward 'indy'; did you mean 'indie'\?",
    ),
    "coordinate out of range": (
        lambda: Minimum().on(0, 5).bind(FIVE),
        InvalidInput,
        r"no coordinate 5: .*from 0 to 4",
    ),
    "negative coordinate out of range": (
        lambda: Minimum().on(-4).value(vector(1.0, 2.0, 3.0)),
        InvalidInput,
        r"no coordinate -4: .*from 0 to 2",
    ),
    "one coordinate twice": (lambda: Minimum().on(1, 1), InvalidInput, r"\(1, 1\) .*none twice"),
    "one coordinate by two numbers": (
        lambda: Minimum().on(1, -1).value(vector(1.0, 2.0)),
        InvalidInput,
        r"\(1, -1\) names a coordinate twice in length 2",
    ),
    "one coordinate by name and number": (
        lambda: Minimum().on("minutes", 1).bind(FIVE),
        InvalidInput,
        r"\(1, 1\).*none twice",
    ),
    "no coordinate": (lambda: Minimum().on(), InvalidInput, r"at least one"),
    "aim at a float": (
        lambda: Minimum().on(bad(1.5)),
        InvalidInput,
        r"given 1\.5; give names or pos",
    ),
    "aim at a bool": (lambda: Minimum().on(True), InvalidInput, r"given True; give names or pos"),
    # Points.
    "z nan": (
        lambda: Minimum().value(vector(1.0, nan)),
        InvalidInput,
        r"z\[1\] is nan; give finite",
    ),
    "z inf": (
        lambda: Nash().gradient(vector(inf, 1.0)),
        InvalidInput,
        r"z\[0\] is inf; give finite",
    ),
    "z -inf": (
        lambda: Nash().prox(vector(-inf), 1.0),
        InvalidInput,
        r"z\[0\] is -inf; give finite",
    ),
    "z nan in an envelope": (
        lambda: GiniWelfare().envelope(vector(nan), 1.0),
        InvalidInput,
        r"z\[0\] is nan",
    ),
    "z empty": (lambda: Minimum().value(vector()), InvalidInput, r"z is empty; .*at least one"),
    "z matrix": (
        lambda: Minimum().value(np.ones((2, 3))),
        InvalidInput,
        r"shape \(2, 3\); .*\(n,\)",
    ),
    "z number": (lambda: Minimum().value(bad(3.0)), InvalidInput, r"shape \(\); give a vector"),
    "z words": (lambda: Minimum().value(bad(["a"])), InvalidInput, r"z is not .*numbers: .*'a'"),
    "z ragged": (
        lambda: Minimum().value(bad([[1.0], [1.0, 2.0]])),
        InvalidInput,
        r"z is not a vector",
    ),
    "edge of the domain": (
        lambda: Welfare(0.5).gradient(vector(0.5, 0.0)),
        InvalidInput,
        r"no supergradient at z\[1\] = 0\.0: .*domain.*Moreau.*offset",
    ),
    "outside the domain": (
        lambda: (Minimum() + Nash()).gradient(vector(-0.25, 1.0)),
        InvalidInput,
        r"no supergradient at z\[0\] = -0\.25: ",
    ),
    # Proximal maps.
    "prox of a sum": (
        lambda: (Minimum() + EqualExposure()).prox(vector(1.0, 2.0), 1.0),
        NoProx,
        r"Minimum\(\) \+ .* has no proximal map in closed form; smooth it with Moreau\(\)",
    ),
    "prox of a map": (
        lambda: PerMerit(Minimum(), (1.0, 2.0)).prox(vector(1.0, 2.0), 1.0),
        NoProx,
        r"PerMerit\(.*\) has no proximal map",
    ),
    "prox of custom": (
        lambda: custom().prox(vector(1.0, 2.0), 1.0),
        NoProx,
        r"Custom\(.*\) has no proximal map in closed form; smooth it with Randomized\(\)",
    ),
    "envelope of custom": (
        lambda: (Minimum() + custom()).envelope(vector(1.0, 2.0), 1.0),
        NoProx,
        r"Custom\(.*\) has no proximal map",
    ),
    "smoothed gradient of custom": (
        lambda: Moreau().gradient(Minimum() + custom(), vector(1.0, 2.0), 0),
        NoProx,
        r"Custom\(.*\) has no proximal map",
    ),
    "step 0": (lambda: Minimum().prox(vector(1.0), 0.0), InvalidInput, r"step is 0\.0; .*positive"),
    "step -1": (lambda: Minimum().envelope(vector(1.0), -1.0), InvalidInput, r"step is -1\.0;"),
    "step nan": (
        lambda: Minimum().envelope_gradient(vector(1.0), nan),
        InvalidInput,
        r"step is nan;",
    ),
    "step inf": (lambda: Minimum().prox(vector(1.0), inf), InvalidInput, r"step is inf;"),
    # Values of the wrong type.
    "weights 1.0": (
        lambda: GeneralizedGini(bad(1.0)),
        InvalidInput,
        r"weights .*1\.0|weights .*\(\)",
    ),
    "weights None": (lambda: Linear(bad(None)), InvalidInput, r"weights"),
    "alpha a word": (lambda: Welfare(bad("half")), InvalidInput, r"alpha is 'half';"),
    "alpha None": (lambda: Welfare(bad(None)), InvalidInput, r"alpha is None;"),
    "beta a word": (lambda: TwoSided(Minimum(), bad("much")), InvalidInput, r"beta is 'much';"),
    "penalty text": (lambda: AtMost(0.5, bad("1")), InvalidInput, r"penalty of AtMost is '1';"),
    "offset a word": (lambda: Nash(bad("some")), InvalidInput, r"offset of Nash is 'some';"),
    "step a word": (lambda: Minimum().prox(vector(1.0), bad("x")), InvalidInput, r"step is 'x';"),
    "matrix a number": (lambda: Mapped(Minimum(), bad(3.0)), InvalidInput, r"matrix .*3\.0"),
    "matrix a vector": (lambda: Mapped(Minimum(), bad((1.0, 2.0))), InvalidInput, r"matrix .*1\.0"),
    "items a number": (lambda: TwoSided(bad(3)), InvalidInput, r"\b3\b"),
    "users a number": (lambda: TwoSided(Minimum(), users=bad(3)), InvalidInput, r"\b3\b"),
    "map of a number": (lambda: Mapped(bad(3), ((1.0,),)), InvalidInput, r"\b3\b"),
    "groups of a number": (lambda: ByGroup(bad(3), "ab"), InvalidInput, r"\b3\b"),
    "merits of a number": (lambda: PerMerit(bad(3), (1.0,)), InvalidInput, r"\b3\b"),
    "multiple of a number": (lambda: Scaled(2.0, bad(3)), InvalidInput, r"\b3\b"),
    "aim of a number": (lambda: On(bad(3), (0,)), InvalidInput, r"\b3\b"),
    "custom slope -1": (lambda: custom(lipschitz=-1.0), InvalidInput, r"(?i)lipschitz.* -1\.0"),
    "custom slope nan": (lambda: custom(lipschitz=nan), InvalidInput, r"(?i)lipschitz.* nan"),
}


def custom(lipschitz: float = inf) -> Concave:
    return Custom(
        lambda z: float(z.min()), lambda z: np.eye(z.size)[z.argmin()], lipschitz=lipschitz
    )


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_a_sentence(name: str) -> None:
    make, kind, message = BAD[name]
    with pytest.raises(kind, match=message) as caught:
        make()
    assert isinstance(caught.value, FairwolfeError)


def test_kinds_of_errors() -> None:
    # Whoever catches ValueError catches bad values; a missing prox is no bad value.
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(NotConcave, InvalidInput)
    assert not issubclass(NoProx, ValueError)


def test_the_wrong_length_is_said_as_promised_and_the_advice_works() -> None:
    f = GeneralizedGini((1.0, 0.5, 0.25))
    with pytest.raises(InvalidInput) as caught:
        f.bind(FIVE)
    sentence, advice = str(caught.value).split("; ")
    assert sentence == (
        "GeneralizedGini has 3 weights, "
        "the problem has 5 rewards (clicks, minutes, cost, saves, skips)"
    )
    aim = re.fullmatch(r"aim it with \.on\('(\w+)', '(\w+)', '(\w+)'\)\.?", advice)
    assert aim is not None
    assert f.on(*aim.groups()).bind(FIVE).lipschitz(5) == f.lipschitz(3)


def test_a_scaled_or_added_function_says_the_same_of_its_length() -> None:
    f = GeneralizedGini((1.0, 0.5, 0.25))
    for g in (2.0 * f, Minimum() + f, 3.0 * (Nash() + 2.0 * f)):
        with pytest.raises(InvalidInput, match="GeneralizedGini has 3 weights, the problem has 5"):
            g.bind(FIVE)


@pytest.mark.parametrize(
    "operate",
    [
        lambda f: f * "2",
        lambda f: f * True,
        lambda f: f + 1,
        lambda f: f - f,
        lambda f: -f,
        lambda f: f * f,
    ],
    ids=["times a word", "times a bool", "plus a number", "difference", "negation", "product"],
)
def test_what_is_no_concave_operation_is_no_operation(operate: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        operate(Minimum())
