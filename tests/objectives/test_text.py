"""An objective as text: what `repr` prints is what is read, and nothing else is."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwolfe.core import build, registry
from fairwolfe.core.build import build_objective, from_text
from fairwolfe.errors import FairwolfeError, InvalidInput, NotConcave
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
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
    Within,
)

finite = st.floats(-1e6, 1e6)
positive = st.floats(1e-3, 1e3)
names = st.text(min_size=1, max_size=8)
sizes = st.integers(1, 4)


def several(numbers: Any, n: int) -> Any:
    return st.lists(numbers, min_size=n, max_size=n).map(tuple)


def by_name(numbers: Any) -> Any:
    return st.dictionaries(names, numbers, min_size=1, max_size=3)


@st.composite
def limits(draw: Any) -> Concave:
    one_sided = draw(st.sampled_from([AtLeast, AtMost]))
    if draw(st.booleans()):
        return one_sided(draw(by_name(st.floats(0.01, 0.99))), share=True)  # type: ignore[no-any-return]
    level = draw(finite | by_name(finite) | sizes.flatmap(lambda n: several(finite, n)))
    how = draw(
        st.fixed_dictionaries({}, optional={"penalty": positive})
        | st.fixed_dictionaries({}, optional={"margin": positive, "multiplier": st.floats(0, 1)})
    )
    return one_sided(level, **how)  # type: ignore[no-any-return]


@st.composite
def within(draw: Any) -> Concave:
    low, high = sorted(draw(several(finite, 2)))
    open_side = draw(st.sampled_from(["low", "high", None]))
    sides = {"low": low, "high": high}
    sides.pop(open_side, None)
    return Within(**sides)


LEAVES = st.one_of(
    st.sampled_from([Minimum(), GiniWelfare(), GiniEquality(), EqualExposure(), Nash()]),
    st.builds(Nash, offset=positive),
    st.builds(Welfare, st.floats(0.01, 1.0), positive),
    st.builds(Linear, by_name(finite)),
    st.lists(finite, min_size=1, max_size=4).map(Linear),
    st.lists(finite, min_size=1, max_size=4).map(lambda w: GeneralizedGini(sorted(w)[::-1])),
    limits(),
    within(),
)


def fits(make: Any) -> Any:
    """What a constructor makes where the sizes of its arguments fit; else its first argument."""

    def tried(inner: Concave, *rest: Any) -> Concave:
        try:
            return make(inner, *rest)  # type: ignore[no-any-return]
        except FairwolfeError:
            return inner

    return tried


LABELS = st.lists(names | st.integers() | st.none(), min_size=1, max_size=5)
ROWS = st.tuples(sizes, sizes).flatmap(lambda shape: several(several(finite, shape[0]), shape[1]))


def larger(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(lambda terms: Sum(tuple(terms))),
        st.builds(Scaled, st.floats(0, 1e300), inner),
        st.builds(
            fits(lambda f, at: On(f, tuple(at))), inner, st.lists(names | st.integers(-3, 3))
        ),
        st.builds(fits(ByGroup), inner, LABELS),
        st.builds(fits(PerMerit), inner, st.lists(positive, min_size=1, max_size=4)),
        st.builds(fits(Mapped), inner, ROWS),
        st.builds(TwoSided, inner, positive, st.none() | inner, sizes),
    )


@settings(max_examples=500, deadline=None)
@given(f=st.recursive(LEAVES, larger, max_leaves=8))
def test_what_is_printed_is_what_is_read(f: Concave) -> None:
    again = from_text(repr(f), kinds=("objectives",))
    assert again == f
    assert type(again) is type(f)
    assert repr(again) == repr(f)


@pytest.mark.parametrize("name", sorted(set(registry.names("objectives")) - {"custom"}))
def test_every_registered_objective_is_read(name: str) -> None:
    kind: Any = registry.load("objectives", name)
    for f in kind.examples():
        for larger_one in (f, 2 * f, f + Minimum(), (0.5 * f + Minimum()) + 3 * (f + f)):
            assert build_objective(repr(larger_one), "objective") == larger_one


@pytest.mark.parametrize(
    ("text", "f"),
    [
        (
            "Linear({'clicks': 1.0}) + AtMost({'cost': 0.02})",
            Linear({"clicks": 1.0}) + AtMost({"cost": 0.02}),
        ),
        ("Minimum() * 2", 2 * Minimum()),
        ("Minimum()+2*Minimum()+3*Minimum()", Minimum() + 2 * Minimum() + 3 * Minimum()),
        ("Minimum() + (Nash() + Minimum())", Minimum() + Nash() + Minimum()),
        ("2 * (Minimum() + Nash()).on('a', -1)", 2 * (Minimum() + Nash()).on("a", -1)),
        ("\n  Minimum()\n  + Linear([\n-1.5, 2])\n", Minimum() + Linear([-1.5, 2.0])),
        ("Minimum()  # the worst", Minimum()),
        ("gini-welfare", GiniWelfare()),
    ],
)
def test_people_may_write_it_in_their_way(text: str, f: Concave) -> None:
    assert build_objective(text, "objective") == f


def test_a_long_sum_comes_back() -> None:
    f = Sum(tuple(Minimum().on(i) for i in range(3000)))
    assert from_text(repr(f)) == f
    assert build_objective("+".join(["Minimum()"] * 400), "objective").terms == (Minimum(),) * 400


ALLOWED = "allowed are objectives such as Linear"
WRONG = [
    ("clicks + cost", "'clicks' at character 1 is no objective"),
    ("Minimum() + AtMust({'a': 1})", "'AtMust' at character 13 is none of the objectives; did you"),
    ("Minimum() + 1", "'1' at character 13 is no objective, and only objectives are added"),
    ("1 + 1", "'1' at character 1 is no objective"),
    ("2 * 3 * Minimum()", "'2 * 3 * Minimum()' at character 1 has no number"),
    ("Minimum() * Minimum()", "has no number; an objective is multiplied by one"),
    ("True * Minimum()", "has no number"),
    ("2 * 'a'", "\"'a'\" at character 5 is no objective"),
    ("Minimum() - Nash()", f"at character 1 is not allowed; {ALLOWED}"),
    ("-Minimum()", "'-Minimum()' at character 1 is not a number"),
    ("Minimum().value", f"'Minimum().value' at character 1 is not allowed; {ALLOWED}"),
    ("Minimum().bind(1)", "'Minimum().bind(1)' at character 1 is not allowed"),
    ("Minimum().on(x)", "'x' at character 14 is not allowed"),
    ("Minimum().on(*'ab')", "\"*'ab'\" at character 14 is not allowed"),
    ("Minimum().on(a=1)", "is not allowed"),
    ("(1).on('a')", "'1' at character 2 is no objective"),
    ("Minimum()()", "'Minimum()()' at character 1 is not allowed"),
    ("Minimum().on.__globals__", "is not allowed"),
    ("__import__('os').system('true')", "is not allowed"),
    ("().__class__.__bases__[0]", "is not allowed"),
    ("np.load('x')", "is not allowed"),
    ("Linear([np.float64(open('x'))])", "\"open('x')\" at character 20 is not a number"),
    ("f'{Minimum()}'", "is not allowed"),
    ("Linear([x for x in (1, 2)])", "'[x for x in (1, 2)]' at character 8 is not allowed"),
    ("(lambda: Minimum())()", "is not allowed"),
    ("Minimum() if 1 else Nash()", "is not allowed"),
    ("(f := Minimum())", "is not allowed"),
    ("(yield)", "is not allowed"),
    ("Minimum(), Nash()", "is (Minimum(), Nash()), which is not an objective"),
    ("LinUCB()", "'LinUCB' at character 1 is none of the objectives"),
    ("ByGroup(LinUCB(), ['a'])", "'LinUCB' at character 9 is none of the objectives"),
    ("Mehrotra()", "'Mehrotra' at character 1 is none of the objectives"),
    ("Linear(**{'weights': [1.0]})", "must name every keyword once"),
    ("Linear(weights=[1], weights=[2])", "must name every keyword once"),
    ("Linear({'a': 1, 'a': 2})", "\"{'a': 1, 'a': 2}\" at character 8 has a key twice"),
    ("Linear({**{}})", "is not allowed"),
    ("Linear([1j])", "'1j' at character 9 is not allowed"),
    ("Linear(b'1')", "is not allowed"),
    ("Linear([" + "9" * 400 + "])", "at character 9 is a whole number that no float can hold"),
    ("Linear([" + "9" * 5000 + "])", "is not an expression: Exceeds the limit"),
    ("Linear([1e999])", "weights[0] is inf"),
    ("Minimum(", "'(' was never closed at character 8"),
    ("Minimum() Nash()", "is not an expression: invalid syntax at character 11"),
    ("", "is not an expression"),
    ("Minimum()\0", "null bytes"),
    ("(" * 10_000, "too many nested parentheses"),
    ("-" * 100_000 + "1", "nested too deeply"),
    ("[" * 150 + "]" * 150, "is nested more than 100 levels deep"),
    ("Minimum()" + ".on(0)" * 300, "is nested more than 100 levels deep"),
    ("Minimum()" + "()" * 100_000, "is not an expression: it is nested too deeply"),
    ("+".join(["Minimum()"] * 40_000), "is not an expression: it is nested too deeply"),
    ("Sum([" + "Minimum()," * 1100 + "])", "the text has 1,101 parts; give at most 1000"),
    ("Linear([" + "1," * 500_000 + "])", "objective has 1,000,010 characters; give at most"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG, ids=[text[:40] for text, _ in WRONG])
def test_anything_else_is_refused_at_once_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    built: list[str] = []
    inner = registry.import_class

    def noted(path: str) -> type:
        built.append(path)
        return inner(path)

    monkeypatch.setattr(build, "import_class", noted)
    began = time.process_time()
    with pytest.raises(InvalidInput) as caught:
        build_objective(text, "objective")
    assert time.process_time() - began < 2.0
    assert str(caught.value).startswith("objective")
    assert sentence in str(caught.value)
    assert len(str(caught.value)) < 1000
    if not sentence.startswith(("weights", "is (")):
        assert built == []


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("Nash() + -2 * Minimum()", NotConcave, "'-2 * Minimum()' at character 10: the multiple"),
        ("Nash() + Welfare(2.0)", NotConcave, "'Welfare(2.0)' at character 10: alpha is 2.0"),
        ("Welfare(2.0)", NotConcave, "objective: alpha is 2.0"),
        ("  Nash()\n+ Minimum().on('ä').on(0, 0)", InvalidInput, "at character 12: .on(0, 0) must"),
        ("Linear({'ä': 1}) + Minimum(3)", InvalidInput, "'Minimum(3)' at character 20: "),
    ],
)
def test_what_a_constructor_refuses_has_its_place(text: str, kind: Any, sentence: str) -> None:
    with pytest.raises(kind) as caught:
        build_objective(text, "objective")
    assert sentence in str(caught.value)


def test_a_table_may_hold_text() -> None:
    table = {"name": "by-group", "objective": "2 * Minimum()", "labels": ["a", "b"]}
    assert build_objective(table, "f") == ByGroup(2 * Minimum(), ["a", "b"])
    with pytest.raises(
        InvalidInput, match=r"f\.objective is 'minimun'; give .* did you mean 'minimum'"
    ):
        build_objective(table | {"objective": "minimun"}, "f")
    with pytest.raises(InvalidInput, match=r"f is 3; give an objective as text, such as"):
        build_objective(3, "f")  # type: ignore[arg-type]
