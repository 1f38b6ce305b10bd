"""docs/the-paper-in-python.md as an oracle: the library decides as the plain code of the page does.

Both meet the same contexts, rewards and random draws. In every step the actions are equal, and so
are, to 1e-9, directions, probabilities, average rewards and estimated parameters. The page's
proximal operators are compared with general-purpose solvers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import permutations
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.objectives import (
    Concave,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.oracles import Ridge
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.smoothing import Identity, Moreau
from tests.test_docs import DOCS, blocks

Array = NDArray[np.float64]

STEPS = 250
TOLERANCE = 1e-9


def page(*changes: tuple[str, str]) -> Any:
    """The code of the page as a module, without its example runs; each change replaces one text."""
    text = (DOCS / "the-paper-in-python.md").read_text()
    method, _, examples = text.partition("## Play")
    assert examples
    code = "\n".join(block.text for block in blocks(method) if block.language == "python")
    for old, new in changes:
        assert code.count(old) == 1, old
        code = code.replace(old, new)
    module = ModuleType("the_paper_in_python")
    exec(compile(code, module.__name__, "exec", dont_inherit=True), module.__dict__)
    return module


PAPER = page()


def test_the_page_needs_numpy_and_math_only_and_is_short() -> None:
    text = (DOCS / "the-paper-in-python.md").read_text()
    code = "\n".join(block.text for block in blocks(text) if block.language == "python")
    lines = [line for line in code.splitlines() if line.strip()]
    assert [line for line in lines if "import" in line] == ["import math", "import numpy as np"]
    assert len(lines) <= 220


# --- arms ------------------------------------------------------------------------------------

D_X, N_FEATURES = 2.0, 4
RANGES = {"clicks": (0.0, 1.0), "minutes": (0.0, 2.0), "saves": (0.0, 0.5)}
LOW, HIGH = np.array(list(RANGES.values())).T
NORMS = HIGH / D_X  # what the library assumes of the parameters of each reward
DIAMETER = math.sqrt(float(((HIGH - LOW) ** 2).sum()))
PROBLEM = fw.Problem.arms(N_FEATURES, RANGES, feature_norm=D_X)


class Case(NamedTuple):
    """An objective of the page and of the library, and the width of the smoothing."""

    ours: Callable[[Any], Any]
    theirs: Concave
    beta0: float | None = None

    @property
    def smoothing(self) -> Any:
        return Identity() if self.beta0 is None else Moreau(self.beta0)


WEIGHTS = (1.0, 0.5, 0.25)
SLOPE = math.sqrt(14.0) / 3.0  # |w| of GiniWelfare for three rewards
OBJECTIVES = {
    "linear": Case(lambda paper: paper.Linear([1.0, 0.4, -0.3]), Linear((1.0, 0.4, -0.3))),
    "smoothed linear": Case(
        lambda paper: paper.Linear([1.0, 0.4, 2.0]), Linear((1.0, 0.4, 2.0)), 0.5
    ),
    "gini": Case(lambda paper: paper.GeneralizedGini(WEIGHTS), GeneralizedGini(WEIGHTS), 0.01),
    "gini of any sign": Case(
        lambda paper: paper.GeneralizedGini([2.0, 0.1, -0.3]),
        GeneralizedGini((2.0, 0.1, -0.3)),
        1.0,
    ),
    "gini welfare": Case(lambda paper: paper.gini_welfare(3), GiniWelfare(), DIAMETER / SLOPE),
    "minimum": Case(lambda paper: paper.minimum(3), Minimum(), 1.0),
    "welfare": Case(lambda paper: paper.Welfare(0.5), Welfare(0.5), 0.1),
    "welfare, another power": Case(lambda paper: paper.Welfare(0.2), Welfare(0.2), 0.02),
    "smooth welfare": Case(lambda paper: paper.Welfare(0.3, 0.1), Welfare(0.3, offset=0.1)),
    "nash": Case(lambda paper: paper.Nash(), Nash(), 0.1),
    "smooth nash": Case(lambda paper: paper.Nash(0.1), Nash(offset=0.1)),
}


def follow_arms(
    paper: Any, case: Case, ours: Any, theirs: Any, problem: fw.Problem = PROBLEM
) -> list[int]:
    """The page and the library play the same rounds; the arms. Any difference is an error."""
    mine = paper.FrankWolfe(case.ours(paper), ours, len(RANGES), case.beta0)
    policy = fw.FrankWolfe(case.theirs, theirs, case.smoothing)
    state = policy.init(problem)
    world, draws, twin = np.random.default_rng(0), *map(np.random.default_rng, (1, 1))
    truth = world.normal(size=(len(RANGES), N_FEATURES)) / N_FEATURES
    truth -= truth.mean(axis=0)  # rewards compete, so that their averages meet at the kinks of f
    arms = []
    for _ in range(STEPS):
        x = world.normal(size=(world.integers(2, 21), N_FEATURES)) / 2.0
        x *= np.minimum(1.0, D_X / np.linalg.norm(x, axis=1))[:, None]
        g = state.direction(draws)
        decision, arm = policy.act(state, x, draws), mine.act(x, twin.random())
        np.testing.assert_allclose(g, mine.g, rtol=TOLERANCE, atol=TOLERANCE)
        assert arm == decision.action
        if isinstance(theirs, SquareCB):
            chance = mine.base.probabilities(x, mine.g)[arm]
            np.testing.assert_allclose(decision.probability or 0.0, chance, rtol=0, atol=TOLERANCE)
        noisy = 0.3 + truth @ x[arm] + 0.1 * world.normal(size=len(RANGES))
        reward = np.clip(noisy, LOW, HIGH)
        mine.update(reward)
        state = policy.update(state, decision, reward)
        same(policy, state, mine)
        arms.append(arm)
    return arms


def same(policy: Any, state: Any, mine: Any) -> None:
    """Equal counts, averages and parameters."""
    assert state.t == mine.t
    np.testing.assert_allclose(state.average, mine.z, rtol=TOLERANCE, atol=TOLERANCE)
    theta = state.learnt().oracle.theta.ravel()
    np.testing.assert_allclose(
        theta, mine.base.oracle.theta.ravel(), rtol=TOLERANCE, atol=TOLERANCE
    )


def linucb(paper: Any = PAPER, objective: str = "gini", exploration: float = 0.1) -> list[int]:
    ours = paper.LinUCB(N_FEATURES, (HIGH - LOW) / 2.0, NORMS, 0.5, 0.1, exploration)
    theirs = LinUCB(exploration=exploration, ridge=0.5, delta=0.1)
    return follow_arms(paper, OBJECTIVES[objective], ours, theirs)


def extended(paper: Any = PAPER, objective: str = "gini", exploration: float = 0.1) -> list[int]:
    case = OBJECTIVES[objective]
    slope = case.theirs.bind(PROBLEM).lipschitz(len(RANGES))
    size, norm = N_FEATURES * len(RANGES), float(np.linalg.norm(NORMS))
    ours = paper.ExtendedLinUCB(size, [slope * DIAMETER / 2.0], [norm], 0.5, 0.1, exploration)
    theirs = LinUCB(model="extended", exploration=exploration, ridge=0.5, delta=0.1)
    return follow_arms(paper, case, ours, theirs)


def squarecb(paper: Any = PAPER, objective: str = "gini", gamma0: float = 50.0) -> list[int]:
    gamma = paper.root_gamma(gamma0)
    ours = paper.SquareCB(N_FEATURES, len(RANGES), gamma, ridge=0.5)
    theirs = SquareCB(gamma0=gamma0, oracle=Ridge(0.5))
    return follow_arms(paper, OBJECTIVES[objective], ours, theirs)


def theorem(paper: Any = PAPER, objective: str = "gini") -> list[int]:
    case = OBJECTIVES[objective]
    slope = case.theirs.bind(PROBLEM).lipschitz(len(RANGES))
    regret = paper.ridge_regret(N_FEATURES, NORMS, DIAMETER, 0.5, D_X)
    gamma = paper.theorem_gamma(slope, DIAMETER, regret, delta=0.1)
    ours = paper.SquareCB(N_FEATURES, len(RANGES), gamma, 0.5, LOW, HIGH)
    theirs = SquareCB(gamma0="theorem", oracle=Ridge(0.5), delta=0.1)
    return follow_arms(paper, case, ours, theirs)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("exploration", [1.0, 0.1])
def test_linucb_is_that_of_the_page(objective: str, exploration: float) -> None:
    assert len(set(linucb(PAPER, objective, exploration))) >= 4


@pytest.mark.parametrize("objective", ["linear", "gini", "gini welfare", "minimum", "smooth nash"])
@pytest.mark.parametrize("exploration", [1.0, 0.1])
def test_the_extended_linucb_is_that_of_the_page(objective: str, exploration: float) -> None:
    assert len(set(extended(PAPER, objective, exploration))) >= 4


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("gamma0", [1.0, 50.0])
def test_squarecb_is_that_of_the_page(objective: str, gamma0: float) -> None:
    assert len(set(squarecb(PAPER, objective, gamma0))) >= 4


@pytest.mark.parametrize("objective", ["linear", "gini", "gini welfare", "minimum", "smooth nash"])
def test_squarecb_with_the_rate_of_the_theorem_is_that_of_the_page(objective: str) -> None:
    assert len(set(theorem(PAPER, objective))) >= 4


# --- rankings --------------------------------------------------------------------------------

N_ITEMS, POSITION_WEIGHTS = 8, np.array([1.0, 0.7, 0.4])
N_SLOTS = POSITION_WEIGHTS.size
RANKING = fw.Problem.ranking(N_ITEMS, N_SLOTS, N_FEATURES, parameter_norm=1.5)
FAIR = {
    "gini equality": Case(
        lambda paper: paper.TwoSided(paper.gini_equality(N_ITEMS), 0.5),
        TwoSided(GiniEquality(), 0.5),
        1.0,
    ),
    "gini welfare": Case(
        lambda paper: paper.TwoSided(paper.gini_welfare(N_ITEMS), 2.0),
        TwoSided(GiniWelfare(), 2.0),
        0.1,
    ),
    "minimum": Case(
        lambda paper: paper.TwoSided(paper.minimum(N_ITEMS), 3.0), TwoSided(Minimum(), 3.0), 0.3
    ),
    "welfare": Case(
        lambda paper: paper.TwoSided(paper.Welfare(0.5), 0.5), TwoSided(Welfare(0.5), 0.5), 1.0
    ),
    "smooth nash": Case(
        lambda paper: paper.TwoSided(paper.Nash(0.05), 0.1), TwoSided(Nash(offset=0.05), 0.1)
    ),
    "linear": Case(
        lambda paper: paper.TwoSided(paper.Linear(np.arange(N_ITEMS) / 20.0), 0.5),
        TwoSided(Linear(tuple(np.arange(N_ITEMS) / 20.0)), 0.5),
    ),
}


class Visit(NamedTuple):
    """The features of the items, who looks at which slot, and what is clicked if looked at."""

    x: Array
    looks: Array
    likes: Array


def visits() -> list[Visit]:
    rng = np.random.default_rng(2)
    truth = rng.normal(size=N_FEATURES)
    made = []
    for _ in range(STEPS):
        x = rng.uniform(-0.5, 0.5, size=(N_ITEMS, N_FEATURES))
        likes = rng.random(N_ITEMS) < 0.4 + 0.5 * x @ truth
        looks = rng.random(N_SLOTS) < POSITION_WEIGHTS
        made.append(Visit(x, looks.astype(float), likes.astype(float)))
    return made


def rank(
    paper: Any = PAPER, objective: str = "gini equality", exploration: float = 0.1
) -> list[list[int]]:
    """The page and the library rank for the same visits; the rankings."""
    case = FAIR[objective]
    base = paper.LinUCBRank(N_FEATURES, N_SLOTS, 1.5, 0.3, 0.1, exploration)
    mine = paper.FrankWolfe(case.ours(paper), base, N_ITEMS + 1, case.beta0)
    policy = FWLinUCBRank(
        case.theirs, smoothing=case.smoothing, exploration=exploration, ridge=0.3, delta=0.1
    )
    state, unused = policy.init(RANKING), np.random.default_rng(0)
    rankings = []
    for x, looks, likes in visits():
        g = state.direction(unused)
        decision, ranking = policy.act(state, x, unused), mine.act(x)
        np.testing.assert_allclose(g, mine.g, rtol=TOLERANCE, atol=TOLERANCE)
        assert ranking.tolist() == np.array(decision.action).tolist()
        exposed, clicked = np.zeros((2, N_ITEMS))
        exposed[ranking] = looks
        clicked[ranking] = looks * likes[ranking]
        mine.update(exposed, clicked)
        state = policy.update(state, decision, fw.Shown(looks, clicked[ranking][:, None]))
        same(policy, state, mine)
        rankings.append(ranking.tolist())
    return rankings


@pytest.mark.parametrize("objective", FAIR)
@pytest.mark.parametrize("exploration", [1.0, 0.1])
def test_fw_linucb_rank_is_that_of_the_page(objective: str, exploration: float) -> None:
    rankings = rank(PAPER, objective, exploration)
    assert len({item for ranking in rankings for item in ranking}) == N_ITEMS


# --- agents ----------------------------------------------------------------------------------


def test_an_agent_with_arms_decides_as_the_page_does() -> None:
    case = OBJECTIVES["gini welfare"]
    mine = PAPER.FrankWolfe(
        case.ours(PAPER), PAPER.LinUCB(N_FEATURES, (HIGH - LOW) / 2.0, NORMS), 3, case.beta0
    )
    agent = fw.Agent(
        fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), PROBLEM, seed=3
    )  # D_K/L by default
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        x = rng.uniform(-1.0, 1.0, size=(5, N_FEATURES))
        decision = agent.act(x)
        assert mine.act(x) == decision.action
        reward = LOW + (HIGH - LOW) * rng.random(3)
        mine.update(reward)
        agent.update(decision, reward)
        np.testing.assert_allclose(agent.average, mine.z, rtol=0, atol=TOLERANCE)


def test_an_agent_with_rankings_decides_as_the_page_does() -> None:
    case = FAIR["gini equality"]
    base = PAPER.LinUCBRank(N_FEATURES, N_SLOTS, 1.5)
    mine = PAPER.FrankWolfe(case.ours(PAPER), base, N_ITEMS + 1, case.beta0)
    agent = fw.Agent(
        FWLinUCBRank(case.theirs, smoothing=case.smoothing, exploration="theorem"), RANKING, seed=3
    )
    for x, looks, likes in visits():
        decision, ranking = agent.act(x), mine.act(x)
        assert ranking.tolist() == np.array(decision.action).tolist()
        seen = ranking[looks > 0.0]
        exposed, clicked = np.zeros((2, N_ITEMS))
        exposed[seen] = 1.0
        clicked[seen] = likes[seen]
        mine.update(exposed, clicked)
        liked = seen[likes[seen] > 0.0]
        agent.update(decision, exposed=seen.tolist(), clicked=liked.tolist())
        np.testing.assert_allclose(agent.average, mine.z, rtol=0, atol=TOLERANCE)


# --- the comparisons can fail ----------------------------------------------------------------


class Mistake(NamedTuple):
    """A run that sees it, the text of the page, what replaces it, and settings of the run."""

    play: Callable[..., Any]
    right: str
    wrong: str
    settings: dict[str, Any] = {}  # noqa: RUF012


SIGN = "(f.prox(z, b) - z) / b", "(z - f.prox(z, b)) / b"
INVERSE = "np.linalg.solve(self.V, x.T)", "x.T"
CLIPPED = "np.clip(self.oracle.predict(x), self.low, self.high)"
FULL = {"exploration": 1.0}
MISTAKES = {
    "wrong sign of the gradient": Mistake(linucb, *SIGN),
    "smoothing one step ahead": Mistake(linucb, "math.sqrt(t + 1)", "math.sqrt(t + 2)"),
    "pooling what is in order": Mistake(linucb, "[-1][0] >= mean", "[-1][0] <= mean"),
    "average one step behind": Mistake(linucb, "- self.z) / self.t", "- self.z) / (self.t + 1)"),
    "width without the inverse": Mistake(linucb, *INVERSE),
    "radius without the determinant": Mistake(linucb, "/ delta) + log_det", "/ delta)", FULL),
    "determinant with the ridge": Mistake(linucb, "self.V / self.ridge", "self.V", FULL),
    "confidence of one reward": Mistake(linucb, "delta / (2 * len(noise))", "delta / 2", FULL),
    "signed bonus": Mistake(linucb, "np.abs(g) @ alpha", "g @ alpha", {"objective": "linear"}),
    "moment of other features": Mistake(linucb, "np.outer(reward, x)", "np.outer(reward, abs(x))"),
    "sum of the rewards": Mistake(extended, "g @ reward)", "np.sum(reward))"),
    "features of the sum": Mistake(extended, "np.kron(g, x[arm])", "np.kron(g / g, x[arm])"),
    "extended width without the inverse": Mistake(extended, *INVERSE),
    "rate without the root": Mistake(squarecb, "gamma0 * math.sqrt(t)", "gamma0 * t"),
    "scores instead of gaps": Mistake(squarecb, "(score[best] - score)", "np.abs(score)"),
    "rate that never changes": Mistake(squarecb, "self.t += 1\n        return", "return"),
    "wrong sign in squarecb": Mistake(squarecb, *SIGN),
    "theorem without K": Mistake(theorem, "math.sqrt(t * n_arms / ", "math.sqrt(t / "),
    "theorem without ranges": Mistake(theorem, CLIPPED, "self.oracle.predict(x)"),
    "regret without D_X": Mistake(theorem, "feature_norm**2 / ", "1 / "),
    "what nobody saw": Mistake(rank, "np.flatnonzero(exposed)", "ranking"),
    "wrong sign in rankings": Mistake(rank, *SIGN),
    "rankings without fairness": Mistake(rank, "value + bonus + g[:-1]", "value + bonus"),
    "ranking width without the inverse": Mistake(rank, *INVERSE),
    "smoothing that ignores beta": Mistake(rank, "b * self.beta)", "b)", {"objective": "welfare"}),
    "confidence of arms": Mistake(rank, "delta / 3", "delta / 2", FULL),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_page_is_seen(mistake: str) -> None:
    play, right, wrong, settings = MISTAKES[mistake]
    broken = page((right, wrong))
    play(PAPER, **settings)
    with pytest.raises(AssertionError):
        play(broken, **settings)


@pytest.mark.parametrize("other", [{"exploration": 0.9}, {"ridge": 1.1}, {"delta": 0.001}])
def test_another_setting_of_the_library_is_seen(other: dict[str, float]) -> None:
    for settings, seen in (({}, False), (other, True)):
        ours = PAPER.LinUCB(N_FEATURES, (HIGH - LOW) / 2.0, NORMS)
        chosen: Any = {"exploration": "theorem", **settings}
        theirs = LinUCB(**chosen)
        with pytest.raises(AssertionError) if seen else nullcontext():
            follow_arms(PAPER, OBJECTIVES["gini"], ours, theirs)


# --- the page against solvers ----------------------------------------------------------------

EVERY: dict[str, Any] = {
    "linear": PAPER.Linear([1.0, -0.5, 0.2, 0.0]),
    "welfare": PAPER.Welfare(0.5),
    "welfare with an offset": PAPER.Welfare(0.3, 0.2),
    "nash": PAPER.Nash(),
    "nash with an offset": PAPER.Nash(0.2),
    "gini": PAPER.GeneralizedGini([1.0, 0.5, 0.5, -0.5]),
    "gini welfare": PAPER.gini_welfare(4),
    "gini equality": PAPER.gini_equality(4),
    "minimum": PAPER.minimum(4),
    "two-sided gini": PAPER.TwoSided(PAPER.gini_equality(3), 1.5),
    "two-sided welfare": PAPER.TwoSided(PAPER.Welfare(0.5), 0.7),
}
GINI = ["gini", "gini welfare", "gini equality", "minimum"]
ADDITIVE = ["welfare", "welfare with an offset", "nash", "nash with an offset"]


def places(seed: int, n: int = 20) -> list[tuple[Array, float]]:
    """Points, some with equal coordinates, and widths from 0.003 to 3."""
    rng = np.random.default_rng(seed)
    points = rng.random((n, 4))
    points[::4, 1] = points[::4, 2]
    points[0] = 0.0
    return [(z, float(10.0 ** rng.uniform(-2.5, 0.5))) for z in points]


def away(f: Any, y: Array, z: Array, b: float) -> float:
    return float(f.value(y) - ((y - z) ** 2).sum() / (2.0 * b))


@pytest.mark.parametrize("name", EVERY)
def test_no_point_is_better_than_the_proximal_point(name: str) -> None:
    """The problem is 1/b-strongly concave: every y is worse by at least |y - prox|^2/(2b)."""
    f, rng = EVERY[name], np.random.default_rng(5)
    for z, b in places(6):
        best = f.prox(z, b)
        for scale in (1e-5, 1e-3, 0.1, 1.0):
            for move in rng.normal(size=(20, 4)):
                y = best + scale * move
                if "welfare" in name.split() or "nash" in name.split():
                    y = np.maximum(y, 1e-9 - getattr(f, "offset", 0.0))
                gap = away(f, best, z, b) - away(f, y, z, b)
                assert gap >= ((y - best) ** 2).sum() / (2.0 * b) - 1e-12 / b


@pytest.mark.parametrize("name", ADDITIVE)
def test_proximal_points_of_sums_are_those_of_a_scalar_solver(name: str) -> None:
    f = EVERY[name]
    for z, b in places(7):
        for coordinate, y in zip(z, f.prox(z, b), strict=True):

            def loss(u: float, z: float = coordinate, b: float = b) -> float:
                return -away(f, np.array([u]), np.array([z]), b)

            low = 1e-12 - f.offset
            found = optimize.minimize_scalar(
                loss, bounds=(low, 10.0), method="bounded", options={"xatol": 1e-10}
            )
            np.testing.assert_allclose(y, found.x, atol=1e-6)


@pytest.mark.parametrize("name", GINI)
def test_proximal_points_of_gini_functions_are_those_of_a_quadratic_program(name: str) -> None:
    """f(y) is the least <w, y> over all orders of w: max s - |y - z|^2/(2b), s <= each of them."""
    f = EVERY[name]
    orders = np.array(list(permutations(f.w)))
    below = optimize.LinearConstraint(np.column_stack([orders, -np.ones(len(orders))]), lb=0.0)
    for z, b in places(8):

        def loss(v: Array, z: Array = z, b: float = b) -> float:
            return float(((v[:-1] - z) ** 2).sum() / (2.0 * b) - v[-1])

        def slope(v: Array, z: Array = z, b: float = b) -> Array:
            return np.append((v[:-1] - z) / b, -1.0)

        start = np.append(z, f.value(z))
        precise = {"ftol": 1e-14, "maxiter": 500}
        found: Any = optimize.minimize(  # type: ignore[call-overload]
            loss, start, jac=slope, constraints=[below], method="SLSQP", options=precise
        )
        np.testing.assert_allclose(f.prox(z, b), found.x[:-1], atol=1e-5)


def test_pooling_is_isotonic_regression() -> None:
    rng = np.random.default_rng(9)
    for n in range(1, 40):
        for values in (rng.normal(size=n), rng.integers(4, size=n).astype(float)):
            expected = optimize.isotonic_regression(values).x
            np.testing.assert_allclose(PAPER.isotonic(values), expected, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_directions_are_derivatives_of_the_envelope(name: str) -> None:
    f = EVERY[name]
    for z, b in places(10):
        beta0 = 2.0 * b  # so that the width at t = 3 is b

        def envelope(z: Array, b: float = b) -> float:
            return away(f, f.prox(z, b), z, b)

        slopes = optimize.approx_fprime(z, envelope, 1e-7)
        np.testing.assert_allclose(PAPER.direction(f, z, 3, beta0), slopes, atol=1e-4)


@pytest.mark.parametrize("name", ["linear", *ADDITIVE, "two-sided welfare"])
def test_gradients_are_derivatives(name: str) -> None:
    f = EVERY[name]
    for z, _ in places(11):
        slopes = optimize.approx_fprime(z + 0.2, f.value, 1e-7)
        np.testing.assert_allclose(PAPER.direction(f, z + 0.2, 3), slopes, atol=1e-4)


def test_gini_equality_is_the_mean_difference() -> None:
    for z, _ in places(12):
        inequality = abs(z[:, None] - z).sum() / 8.0
        assert PAPER.gini_equality(4).value(z) == pytest.approx(-inequality)
        assert PAPER.TwoSided(PAPER.gini_equality(3), 2.0).value(z) == pytest.approx(
            z[3] - 2.0 * abs(z[:3, None] - z[:3]).sum() / 6.0
        )
        assert PAPER.minimum(4).value(z) == z.min()


@pytest.mark.parametrize(("case", "size"), [*((c, 3) for c in OBJECTIVES), *((c, 9) for c in FAIR)])
def test_values_are_those_of_the_library(case: str, size: int) -> None:
    chosen = (OBJECTIVES if size == 3 else FAIR)[case]
    for z in np.random.default_rng(13).random((10, size)):
        assert chosen.ours(PAPER).value(z) == pytest.approx(chosen.theirs.value(z))
