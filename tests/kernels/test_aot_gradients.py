"""Trees of gradients: sums, maps and prices of leaves, and leaves from outside."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import LowLevelCallable as _LowLevelCallable

from fairwolfe import Problem
from fairwolfe.core.arrays import Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.registry import load, names
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.objectives.combine import Scaled
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.objectives.threshold import Bounds
from fairwolfe.smoothing import Augmented, Identity, Moreau
from fairwolfe.smoothing.prices import Prices
from fairwolfe.smoothing.smoothings import in_ball

LowLevelCallable: Any = _LowLevelCallable  # its stubs do not know functions of ctypes

STEPS = (0.0, 1e-9, 0.1, 10.0)
EXAMPLES = [f for name in names("objectives") for f in load("objectives", name).examples()]  # type: ignore[attr-defined]


def points(n: int, rng: np.random.Generator) -> Iterator[Vector]:
    """Random, with ties, zeros, negative numbers, of many magnitudes."""
    yield rng.random(n)
    yield np.round(rng.standard_normal(n), 1)
    yield np.zeros(n)
    yield np.full(n, -0.3)
    yield np.where(rng.random(n) < 0.5, 0.0, rng.random(n))
    yield rng.standard_normal(n) * 10.0 ** rng.uniform(-12, 6, n)
    yield -np.arange(n, dtype=np.float64)
    yield 1.0 + 1e-10 * rng.random(n)  # equal in the leading bytes, by which they are sorted first


def by_leaves(f: Concave, z: Vector, step: float) -> tuple[Vector, Vector]:
    """sum c M' grad leaf_(c step)(M z), each leaf by a tree of its own; the sum of absolute terms,
    for the rounding.
    """
    total, size = np.zeros((2, z.size))
    for c, leaf, matrix in f.split(z.size):
        if c > 0.0:
            g = leaf.tree(matrix.shape[0]).gradient(matrix @ z, c * step)
            total = total + c * (matrix.T @ g)
            size = size + c * (abs(matrix).T @ np.abs(g))
    return total, size


def require_sum_of_leaves(f: Concave, n: int, rng: np.random.Generator) -> None:
    tree = f.tree(n)
    for z in (rng.random(n), rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 3, n)):
        for step in STEPS:
            (expected, size), got = by_leaves(f, z, step), tree.gradient(z, step)
            finite = np.isfinite(expected)
            assert np.array_equal(finite, np.isfinite(got)), (f, n, step, z)
            away = np.abs(got[finite] - expected[finite])
            assert (away <= 1e-9 * size[finite]).all(), (f, n, step, z)


def require_equal_bits(f: Concave, n: int, rng: np.random.Generator) -> None:
    """Whatever the scratch of a tree holds, and by the methods of the objective."""
    tree = f.tree(n)
    for z in points(n, rng):
        for step in STEPS:
            got = tree.gradient(z, step).tobytes()
            assert got == f.tree(n).gradient(z, step).tobytes(), (f, n, step, z)
            assert got == f._smoothed(z, step).tobytes(), (f, n, step, z)


def refused(f: Concave, n: int) -> bool:
    """Such as the coordinates of .on(...), or a share of one."""
    try:
        f.tree(n)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            f._smoothed(np.zeros(n), 1.0)
        return True
    return False


def nested() -> list[Concave]:
    """Expressions of 6 coordinates."""
    groups = ByGroup(GiniWelfare() + Linear((0.5, -0.5, 1.0)), "abcabc")
    tower: Concave = Minimum()
    for k in range(30):
        tower = (0.9 * tower + Linear([0.1 * (k - i) for i in range(6)])).on(*np.roll(range(6), k))
    return [
        2.0 * (0.5 * GiniEquality() + Welfare(0.7, offset=0.1)) + Nash(offset=2.0),
        groups + 0.3 * PerMerit(EqualExposure(), (1.0, 2.0, 0.5, 3.0, 0.1, 1.0)),
        Mapped(2.5 * groups, np.random.default_rng(5).standard_normal((6, 6)).tolist()),
        Minimum().on(4, 0, 2) + Nash(offset=1.0).on(1, 2, 3) + 3.0 * AtMost(0.4, penalty=2.0).on(5),
        TwoSided(0.5 * GiniWelfare() + EqualExposure(), beta=0.7, users=Nash(), n_users=2),
        TwoSided(TwoSided(Minimum(), beta=0.5, n_users=2), beta=2.0),
        Within(0.2, 0.6).on(3, 1) + Linear((1.0,) * 6),
        AtLeast(0.1, share=True) + AtLeast((0.2,) * 6, penalty=2.0) + 0.0 * Nash(),
        Bounds((0.2,) * 6, (0.2, 0.3, 0.4, 0.5, 0.6, np.inf)) + GiniWelfare(),
        tower,
    ]


@pytest.mark.parametrize("f", EXAMPLES, ids=repr)
def test_every_example(f: Concave) -> None:
    rng = np.random.default_rng(1)
    sizes = [*range(1, 61, 7), 2, 60]
    if not isinstance(f, Custom) and not getattr(f, "share", False):  # n^2 numbers of a share
        sizes.append(2500)
    for n in [f.size] if f.size else sizes:
        if not refused(f, n):
            require_equal_bits(f, n, rng)
            require_sum_of_leaves(f, n, rng)


@pytest.mark.parametrize("f", nested(), ids=lambda f: repr(f)[:60])
def test_nested_expressions(f: Concave) -> None:
    for seed in range(3):
        require_equal_bits(f, 6, np.random.default_rng(seed))
        require_sum_of_leaves(f, 6, np.random.default_rng(seed))


def test_bound_expressions() -> None:
    arms = Problem.arms(4, {"a": (0, 1), "b": (-1, 2), "c": (0, 5)})
    f = Linear({"c": 0.2}) + Minimum().on("c", "a") + AtLeast({"b": 0.3}, penalty=2.0)
    require_equal_bits(f.bind(arms), 3, np.random.default_rng(2))
    require_sum_of_leaves(f.bind(arms), 3, np.random.default_rng(2))


def test_gini_of_any_weights() -> None:
    rng = np.random.default_rng(3)
    for n in (*range(1, 61), 64, 300):
        weights = np.sort(rng.standard_normal(n).round(1))[::-1]
        require_equal_bits(GeneralizedGini(weights.tolist()), n, rng)


def test_nan_and_infinity_are_seen() -> None:
    for f in (GiniWelfare(), Minimum(), EqualExposure()):
        tree = f.tree(4)
        for wild in (np.nan, np.inf, -np.inf):
            for step in STEPS:
                g = tree.gradient(np.array([0.5, wild, 0.25, 0.5]), step)
                assert np.isnan(g).any(), (f, wild, step)


# --- against formulas ---


def test_gradient_of_the_envelope_by_differences() -> None:
    rng = np.random.default_rng(4)
    for f in nested()[:6]:
        tree, z, h = f.tree(6), rng.random(6) + 0.2, 1e-6
        slope = [
            (f.envelope(z + h * e, 0.3) - f.envelope(z - h * e, 0.3)) / (2.0 * h) for e in np.eye(6)
        ]
        np.testing.assert_allclose(tree.gradient(z, 0.3), slope, atol=1e-7)


def test_sum_of_listed_coordinates() -> None:
    rng = np.random.default_rng(13)
    first, second = [3, 0, 5, 1], [5, 3, 2, 0]
    for _ in range(30):
        (a, b), (v, w) = rng.random(2), rng.standard_normal((2, 4))
        linear = [gradients.leaf("linear", 4, weights) for weights in (v, w)]
        tree = gradients.combined(6, [(a, linear[0], first), (b, linear[1], second)])
        expected = np.zeros(6)
        expected[first] += a * v
        expected[second] += b * w
        assert tree.gradient(np.zeros(6), 1.0).tobytes() == expected.tobytes()


def test_read_only_vectors_are_taken() -> None:
    z = np.array([1.0, 2.0])
    z.flags.writeable = False
    assert Minimum().tree(2).gradient(z, 0.0).tolist() == [1.0, 0.0]


# --- leaves block by block, and prices ---


def test_blocks_of_leaves() -> None:
    f = nested()[0] + Within(0.2, 0.6).on(1, 4)
    leaves = Leaves(f, 6)
    leaves.widen(np.linspace(0.5, 2.0, len(leaves.leaves)).tolist())
    rng, tree = np.random.default_rng(6), leaves.tree()
    parts = zip(leaves.leaves, leaves.blocks, leaves.scales, leaves.widths, strict=True)
    alone = [(leaf.tree(b.stop - b.start), b, c, c * width) for leaf, b, c, width in parts]
    for _ in range(20):
        y = rng.standard_normal(leaves.matrix.shape[0])
        for step in STEPS:
            expected = np.concatenate(
                [c * leaf.gradient(y[b], step * width) for leaf, b, c, width in alone]
            )
            np.testing.assert_allclose(tree.gradient(y, step), expected, rtol=1e-9)


def priced() -> list[tuple[Problem, Concave, Any]]:
    arms = Problem.arms(4, {"a": (0, 1), "b": (0, 1), "c": (0, 2)})
    items = Problem.ranking(6, 3, (2, 2))
    hard = AtLeast({"a": 0.4}, margin=0.3) + Within({"b": 0.1}, {"b": 0.3})
    two = TwoSided(GiniWelfare() + AtLeast(0.3, multiplier=0.25), beta=0.5)
    custom = Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True)
    return [
        (arms, GiniWelfare() + hard, Moreau(0.5)),
        (arms, Linear((1.0, 0.0, 0.5)) + AtLeast(0.15, share=True), Identity()),
        (arms, Minimum() + Nash(offset=0.1) + hard, Augmented(0.5, weight=0.7)),
        (items, two, Augmented(1.0)),
        (items, two, Moreau()),
        (arms, custom + AtMost({"c": 0.1}), Moreau(1.0)),
    ]


def gradients_of_leaves(prices: Prices, z: Vector, y: Vector, step: float) -> Vector:
    """g = grad F_b(A z - b y), leaf by leaf, with margins."""
    f = prices.leaves
    x, g = f.matrix @ z, np.empty(f.matrix.shape[0])
    x[: prices.size] -= step * prices.widths * y
    for k, (leaf, block) in enumerate(zip(f.leaves, f.blocks, strict=True)):
        if isinstance(leaf, Bounds):
            low = np.array(leaf.low) + step * leaf.margin
            high = np.array(leaf.high) - step * leaf.margin
            crossed = low > high  # margins meet in the middle
            low[crossed] = high[crossed] = 0.5 * (low[crossed] + high[crossed])
            g[block] = (np.clip(x[block], low, high) - x[block]) / (step * prices.widths[block])
        else:
            tree = leaf.tree(block.stop - block.start)
            g[block] = f.scales[k] * tree.gradient(x[block], step * f.scales[k] * f.widths[k])
    return g


@pytest.mark.parametrize("case", range(6))
def test_prices_over_200_steps(case: int) -> None:
    problem, f, smoothing = priced()[case]
    bound = f.bind(problem)
    prices = Prices(bound, smoothing.bind(problem, bound), kind_of(problem))
    if case in (0, 3):
        prices.caps[:] = 0.2
    n, rng = problem.n_objectives, np.random.default_rng(case)
    ours, factors = prices.fresh()
    theirs, totals = np.zeros(ours.size), np.zeros(n)
    tree = prices.tree(ours, factors)
    for t in range(200):
        z, step = totals / max(t, 1), prices.step(t)
        g = gradients_of_leaves(prices, z, theirs, step)
        expected = prices.leaves.turned @ g
        np.testing.assert_allclose(tree.gradient(z, step), expected, rtol=1e-7, atol=1e-9)
        g = g[: prices.size]
        np.testing.assert_allclose(prices.paid(z, ours, factors, t), g, rtol=1e-7, atol=1e-9)
        tree.reprice(z, float(t))
        theirs = theirs + prices.rates / (t + 1.0) * (g - theirs)
        theirs = np.clip(theirs, -prices.caps, prices.caps)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
        totals += rng.random(n) * (rng.random(n) < 0.3)
    assert (ours != 0.0).any()
    assert (case in (0, 3)) == (np.abs(ours) == 0.2).any()


def test_prices_are_the_array_of_the_caller() -> None:
    problem, f, smoothing = priced()[0]
    prices = Prices(f.bind(problem), smoothing, kind_of(problem))
    own, factors = prices.fresh()
    tree = prices.tree(own, factors)
    for wrong in (np.zeros(prices.size + 1), np.zeros(0)):
        with pytest.raises(ValueError, match="prices"):
            prices.tree(wrong, factors)
    alive = weakref.ref(own)
    tree.reprice(np.zeros(3), 0.0)
    assert (own != 0.0).any()
    del own
    assert alive() is not None  # the tree still uses it


def test_used_prices_can_be_copied() -> None:
    problem, f, smoothing = priced()[2]
    prices = Prices(f.bind(problem), smoothing, kind_of(problem))
    z, (y, factors) = np.array([0.1, 0.6, 0.3]), prices.fresh()
    prices.tree(y, factors).reprice(z, 0.0)
    g, p = prices.touch(z, y, factors, 1)
    for other in (pickle.loads(pickle.dumps(prices)), copy.copy(prices), copy.deepcopy(prices)):
        assert [x.tobytes() for x in other.touch(z, y, factors, 1)] == [g.tobytes(), p.tobytes()]
        assert other.paid(z, y, factors, 1).tobytes() == prices.paid(z, y, factors, 1).tobytes()


# --- randomised smoothing ---


def test_samples_of_the_ball() -> None:
    rng = np.random.default_rng(7)
    for f in (GiniWelfare(), nested()[1], EXAMPLES[0]):
        n = f.size or 6
        tree = f.tree(n)
        for samples in (1, 3, 10):
            normals, z = rng.standard_normal((samples, n + 2)), rng.random(n)
            each = [f.tree(n).gradient(in_ball(row, z, 0.3), 0.0) for row in normals]
            got = gradients.sampled_gradient(tree, z, 0.3, normals)
            np.testing.assert_allclose(got, np.mean(each, axis=0), rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="normals"):
        gradients.sampled_gradient(tree, z, 0.3, normals[:, :-1].copy())


# --- leaves that are Python functions ---


def test_an_exception_of_a_leaf_is_raised_once() -> None:
    wrong = [True]

    def slope(z: Vector) -> Vector:
        if wrong[0]:
            raise KeyError("no slope here")
        return -2.0 * z

    good = Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True)
    bad = Custom(lambda z: -float(z @ z), slope, smooth=True)
    bad.__dict__["_checked_sizes"] = {3}
    f = Linear((1.0, 1.0, 1.0)) + 2.0 * Mapped(bad, np.eye(3).tolist()) + good
    tree, z = f.tree(3), np.array([0.1, 0.2, 0.3])
    assert tree.calls_python
    for _ in range(2):
        with pytest.raises(KeyError, match="no slope here"):
            tree.gradient(z, 1.0)
    with pytest.raises(KeyError, match="no slope here"):
        gradients.sampled_gradient(tree, z, 1.0, np.ones((10, 5)))
    # While an exception waits, the function is not called again; the other leaf is.
    assert tree.callbacks == 3 + 12
    wrong[0] = False
    np.testing.assert_allclose(tree.gradient(z, 1.0), 1.0 - 6.0 * z)
    tree.raise_failure()  # nothing is kept any more


def test_a_python_leaf_gets_its_own_copy_of_z() -> None:
    seen: list[Vector] = []

    def slope(z: Vector) -> Vector:
        seen.append(z)
        g = -2.0 * z
        z[:] = 7.0
        return g

    tree = gradients.python(2, slope)
    z = np.array([1.0, 2.0])
    assert tree.gradient(z, 0.0).tolist() == [-2.0, -4.0]
    assert tree.gradient(z, 0.0).tolist() == [-2.0, -4.0]
    assert z.tolist() == [1.0, 2.0]
    assert seen[0] is not seen[1]
    assert tree.callbacks == 2


@pytest.mark.parametrize("returned", [1.0, [1.0], [1.0, 2.0, 3.0], np.ones((2, 2)), "ab", None])
def test_what_a_python_leaf_returns_is_checked(returned: Any) -> None:
    with pytest.raises((InvalidInput, TypeError, ValueError)):
        gradients.python(2, lambda z: returned).gradient(np.zeros(2), 0.0)


def test_reentrance_is_refused() -> None:
    trees: list[Any] = []
    f = gradients.python(2, lambda z: trees[0].gradient(z, 0.0))
    trees.append(gradients.combined(2, [(1.0, f, 0), (1.0, Minimum().tree(2), 0)]))
    with pytest.raises(InvalidInput, match="being computed"):
        trees[0].gradient(np.zeros(2), 0.0)
    alone = gradients.python(2, lambda z: alone.gradient(z, 0.0))
    with pytest.raises(InvalidInput, match="being computed"):
        alone.gradient(np.zeros(2), 0.0)
    trees.clear()


def test_a_tree_serves_one_thread_at_a_time() -> None:
    inside, leave = threading.Event(), threading.Event()

    def slope(z: Vector) -> Vector:
        inside.set()
        assert leave.wait(20)
        return z

    tree = gradients.python(2, slope)
    thread = threading.Thread(target=tree.gradient, args=(np.zeros(2), 0.0))
    thread.start()
    assert inside.wait(20)
    with pytest.raises(InvalidInput, match="one thread"):
        tree.gradient(np.zeros(2), 0.0)
    leave.set()
    thread.join()
    assert tree.gradient(np.ones(2), 0.0).tolist() == [1.0, 1.0]


def test_a_leaf_of_another_package_is_called_as_python_calls_it() -> None:
    class Foreign(GiniWelfare):
        def _gradient(self, z: Vector, step: float) -> Vector:
            g: Vector = GiniWelfare().tree(z.size).gradient(z, step)
            return g

    f = Foreign() + Linear((1.0, 2.0, 3.0))
    assert f.tree(3).calls_python
    require_equal_bits(f, 3, np.random.default_rng(8))
    for z in points(3, np.random.default_rng(8)):
        expected = (GiniWelfare() + Linear((1.0, 2.0, 3.0))).gradient(z)
        assert f.gradient(z).tobytes() == expected.tobytes()


# --- leaves that are C functions ---

C_TYPE = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_ssize_t,
    ctypes.POINTER(ctypes.c_double),
    ctypes.c_void_p,
)


def minus_double(z: Any, n: int, out: Any, data: Any) -> None:
    for i in range(n):
        out[i] = -2.0 * z[i] - (
            ctypes.cast(data, ctypes.POINTER(ctypes.c_double))[0] if data else 0
        )


def squares(z: Vector) -> float:
    return -float(z @ z)


def test_a_c_function_in_its_three_forms() -> None:
    callback = C_TYPE(minus_double)
    z = np.array([1.0, 2.0, 3.0])
    address = ctypes.cast(callback, ctypes.c_void_p).value
    shift = ctypes.c_double(0.5)
    data = ctypes.cast(ctypes.pointer(shift), ctypes.c_void_p)
    for function in (callback, LowLevelCallable(callback), address):
        tree = gradients.outside(3, function)
        assert tree.gradient(z, 0.0).tolist() == [-2.0, -4.0, -6.0]
        assert not tree.calls_python
    shifted = gradients.outside(3, LowLevelCallable(callback, data))
    assert shifted.gradient(z, 0.0).tolist() == [-2.5, -4.5, -6.5]


@pytest.mark.parametrize(
    "signature",
    [
        "void (double *, Py_ssize_t, double *, void *)",
        "void (const double *z, Py_ssize_t n, double *out, void *user_data)",
        "void(double const *,long,double *,void*)",
        "void (double *, int64_t, double *, void *)",
    ],
)
def test_signatures_that_fit(signature: str) -> None:
    function = LowLevelCallable(C_TYPE(minus_double), signature=signature)
    assert gradients.outside(1, function).gradient(np.ones(1), 0.0).tolist() == [-2.0]


@pytest.mark.parametrize(
    "signature",
    [
        "double (double *, Py_ssize_t, double *, void *)",
        "void (double *, int, double *, void *)",
        "void (float *, Py_ssize_t, double *, void *)",
        "void (double *, Py_ssize_t, double *)",
        "void (double *, Py_ssize_t, double **, void *)",
        "int (intptr_t, double *)",
        "",
    ],
)
def test_other_signatures_are_refused(signature: str) -> None:
    function = LowLevelCallable(C_TYPE(minus_double), signature=signature)
    with pytest.raises(InvalidInput, match=r"void \(const double \*z, Py_ssize_t n"):
        gradients.outside(1, function)
    with pytest.raises(InvalidInput, match=r"void \(const double \*z, Py_ssize_t n"):
        Custom(squares, function, smooth=True)


def test_what_is_no_c_function_is_refused() -> None:
    with pytest.raises(InvalidInput, match="set its argtypes"):
        gradients.outside(1, ctypes.CDLL(None).abs)
    for wrong in ((1, 2), "address", 0, -1, True, None, squares):
        with pytest.raises(InvalidInput):
            gradients.outside(1, wrong)
    with pytest.raises(InvalidInput):
        Custom(squares, (1, 2), smooth=True)


def test_custom_with_a_c_function() -> None:
    function = LowLevelCallable(C_TYPE(minus_double))
    f = Custom(squares, function, smooth=True)
    assert f.gradient(np.array([3.0, 4.0])).tolist() == [-6.0, -8.0]
    assert not f.tree(2).calls_python
    g = 0.5 * f + Minimum()
    require_equal_bits(g, 2, np.random.default_rng(9))
    wrong = Custom(lambda z: float(z.sum()), function, smooth=True)
    with pytest.raises(InvalidInput, match="gradient function of Custom is wrong"):
        wrong.tree(2)


# --- trees ---


def towers(levels: int) -> Any:
    tree = gradients.leaf("linear", 3, np.ones(3))
    for _ in range(levels):
        other = gradients.leaf("linear", 3, np.ones(3))
        tree = gradients.combined(3, [(0.5, tree, 0), (0.5, other, 0)])
    return tree


def test_depth() -> None:
    tree = towers(1000)
    assert tree.depth == 1001
    assert tree.gradient(np.zeros(3), 1.0).tolist() == [1.0, 1.0, 1.0]
    del tree
    gc.collect()
    with pytest.raises(InvalidInput, match="nested more than 2048 deep"):
        towers(10_000)
    f: Concave = Minimum()
    for _ in range(1000):
        f = Scaled(1.0, f)
    assert f.tree(3).gradient(np.array([3.0, 1.0, 2.0]), 0.0).tolist() == [0.0, 1.0, 0.0]
    for _ in range(9000):
        f = Scaled(1.0, f)
    with pytest.raises(InvalidInput, match="nested more than 2048 deep"):
        f.tree(3)


def test_the_deepest_tree_fits_on_a_small_stack() -> None:
    # In a process of its own, which is all that an overflow would end.
    program = (
        "import threading, numpy as np\n"
        "from tests.kernels.test_aot_gradients import towers\n"
        "tree, got = towers(2047), []\n"
        "threading.stack_size(512 * 1024)\n"
        "thread = threading.Thread(target=lambda: got.append(tree.gradient(np.zeros(3), 1.0)))\n"
        "thread.start(); thread.join(); assert got[0].tolist() == [1.0, 1.0, 1.0]\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, timeout=120)


def test_two_threads_with_two_trees() -> None:
    f = nested()[1]
    rng = np.random.default_rng(12)
    z = rng.random((2, 200, 6))
    alone = [[f.tree(6).gradient(x, 0.1).tobytes() for x in half] for half in z]
    together: list[list[bytes]] = [[], []]

    def run(k: int) -> None:
        tree = f.tree(6)
        for x in z[k]:
            together[k].append(tree.repeat(x, 0.1, 200).tobytes())

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_wrong_sizes_are_refused() -> None:
    leaf = gradients.leaf
    for form, n, params in [
        ("linear", 2, [1.0]),
        ("linear", 0, []),
        ("bounded", 2, np.zeros(7)),
        ("generalized_gini", 2, np.zeros(2)),
        ("nash", 2, []),
        ("nash", 2, [[0.0]]),
        ("unknown", 2, []),
    ]:
        with pytest.raises(ValueError, match=r"shape|coordinates|no compiled leaf"):
            leaf(form, n, params)
    for where in (2, -1, [0, 3], [0, -1], [0], np.array([0, 1, 2])):
        with pytest.raises(ValueError, match=r"coordinates|from 0 to|places"):
            gradients.combined(3, [(1.0, Minimum().tree(2), where)])
    for matrix in (
        ([0, 1], [0], [1.0]),
        ([0, 1, 3], [0, 1], [1.0, 1.0]),
        ([0, 1, 2], [0, 3], [1.0, 1.0]),
        ([0, 1, 2], [0, 1], [1.0]),
        ([0, 3, 2], [0, 1], [1.0, 1.0]),
        ([1, 1, 2], [0, 1], [1.0, 1.0]),
    ):
        with pytest.raises(ValueError, match=r"rows|entries|from 0 to"):
            gradients.mapped(3, matrix, Minimum().tree(2))
    tree = Minimum().tree(2)
    for z in (np.zeros(3), np.zeros(1)):
        with pytest.raises(ValueError, match="takes 2"):
            tree.gradient(z, 0.0)
    wrong: list[Any] = [np.zeros(4)[::2], np.zeros(2, dtype=np.float32), np.zeros((1, 2))]
    for z in wrong:
        with pytest.raises(ValueError, match=r"contiguous|mismatch|dimensions"):
            tree.gradient(z, 0.0)


def test_a_part_belongs_to_one_tree() -> None:
    part = Minimum().tree(2)
    tree = gradients.combined(2, [(1.0, part, 0)])
    with pytest.raises(ValueError, match="twice"):
        gradients.combined(2, [(1.0, part, 0)])
    with pytest.raises(InvalidInput, match="part of another"):
        part.gradient(np.zeros(2), 0.0)
    for wrong in (None, "tree", Minimum()):
        with pytest.raises(TypeError):
            gradients.combined(2, [(1.0, wrong, 0)])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            gradients.stacked([(1.0, 1.0, wrong)])  # type: ignore[list-item]
    assert tree.gradient(np.array([1.0, 0.0]), 0.0).tolist() == [0.0, 1.0]


def test_trees_belong_to_their_process_and_are_freed() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Minimum().tree(2))
    assert np.isnan(gradients.Tree().gradient(np.zeros(0), 0.0)).all()
    gone: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(10):

            class Slope:
                def __call__(self, z: Vector) -> Vector:
                    return z

            slope = Slope()
            gone.append(weakref.ref(slope))
            gradients.combined(2, [(1.0, gradients.python(2, slope), 0)]).gradient(np.ones(2), 0.0)
            del slope
    gc.collect()
    assert not any(one() for one in gone)
