"""Every objective, smoothing, bandit, policy, environment and kind of decision by name.

Loaded on first use.

A class of another package joins by an entry point, such as ``fairwolfe.objectives``::

    [project.entry-points."fairwolfe.objectives"]
    my-objective = "my_package.objectives:MyObjective"

One of a notebook or a test joins by `register`, for the process that calls it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from fairwolfe.errors import InvalidInput, MissingExtra, did_you_mean

__all__ = ["KINDS", "classes", "import_class", "load", "names", "register"]

KINDS: dict[str, dict[str, str]] = {
    "bandits": {
        "epsilon-greedy": "fairwolfe.bandits:EpsilonGreedy",
        "extended": "fairwolfe.bandits:Extended",
        "fixed": "fairwolfe.bandits:Fixed",
        "linucb": "fairwolfe.bandits:LinUCB",
        "linucb-rank": "fairwolfe.ranking:LinUCBRank",
        "squarecb": "fairwolfe.bandits:SquareCB",
        "thompson": "fairwolfe.bandits:Thompson",
        "uniform": "fairwolfe.bandits:Uniform",
    },
    "environments": {
        "factor_model": "fairwolfe.environments:FactorModel",
        "finite": "fairwolfe.environments:Finite",
        "finite-ranking": "fairwolfe.environments:FiniteRanking",
        "gymnasium": "fairwolfe.integrations:Gymnasium",
        "lastfm-2k": "fairwolfe.environments:LastFM2k",
        "lastfm-50": "fairwolfe.environments:LastFM50",
        "listening": "fairwolfe.environments:Listening",
        "mehrotra": "fairwolfe.environments:Mehrotra",
        "nonlinear": "fairwolfe.environments:Nonlinear",
    },
    "kinds": {
        "arms": "fairwolfe.core.arms:ArmsKind",
        "ranking": "fairwolfe.core.rankings:RankingKind",
    },
    "objectives": {
        "at-least": "fairwolfe.objectives:AtLeast",
        "at-most": "fairwolfe.objectives:AtMost",
        "by-group": "fairwolfe.objectives:ByGroup",
        "custom": "fairwolfe.objectives:Custom",
        "equal-exposure": "fairwolfe.objectives:EqualExposure",
        "generalized-gini": "fairwolfe.objectives:GeneralizedGini",
        "gini-equality": "fairwolfe.objectives:GiniEquality",
        "gini-welfare": "fairwolfe.objectives:GiniWelfare",
        "linear": "fairwolfe.objectives:Linear",
        "mapped": "fairwolfe.objectives:Mapped",
        "minimum": "fairwolfe.objectives:Minimum",
        "nash": "fairwolfe.objectives:Nash",
        "on": "fairwolfe.objectives:On",
        "per-merit": "fairwolfe.objectives:PerMerit",
        "scaled": "fairwolfe.objectives:Scaled",
        "sum": "fairwolfe.objectives:Sum",
        "two-sided": "fairwolfe.objectives:TwoSided",
        "welfare": "fairwolfe.objectives:Welfare",
        "within": "fairwolfe.objectives:Within",
    },
    "oracles": {
        "online-gradient": "fairwolfe.oracles:OnlineGradient",
        "ridge": "fairwolfe.oracles:Ridge",
        "sklearn": "fairwolfe.oracles:SklearnRegressor",
    },
    "policies": {
        "fairco-rank": "fairwolfe.ranking:FairCoRank",
        "fairlearn-rank": "fairwolfe.ranking:FairLearnRank",
        "frank-wolfe": "fairwolfe.reduction:FrankWolfe",
        "fw-linucb-rank": "fairwolfe.ranking:FWLinUCBRank",
        "guarded": "fairwolfe.reduction:Guarded",
        "lagrange-cb": "fairwolfe.reduction:LagrangeCB",
        "molincb": "fairwolfe.reduction:MOLinCB",
        "unbiased-linucb-rank": "fairwolfe.ranking:UnbiasedLinUCBRank",
    },
    "scalar_policies": {
        "vowpal-wabbit": "fairwolfe.bandits:VowpalWabbit",
    },
    "smoothings": {
        "augmented": "fairwolfe.smoothing:Augmented",
        "dual-descent": "fairwolfe.smoothing:DualDescent",
        "identity": "fairwolfe.smoothing:Identity",
        "moreau": "fairwolfe.smoothing:Moreau",
        "randomized": "fairwolfe.smoothing:Randomized",
    },
}

_REGISTERED: dict[str, dict[str, str]] = {}  # by this process


@cache
def _known(kind: str) -> dict[str, str]:
    if kind not in KINDS:
        raise InvalidInput(f"there is no kind {kind!r}; {did_you_mean(kind, KINDS)}")
    plugged = {point.name: point.value for point in entry_points(group=f"fairwolfe.{kind}")}
    # A plug-in cannot replace what is built in.
    return plugged | _REGISTERED.get(kind, {}) | KINDS[kind]


def names(kind: str) -> list[str]:
    """The names of a kind.

    >>> names("smoothings")
    ['augmented', 'dual-descent', 'identity', 'moreau', 'randomized']
    """
    return sorted(_known(kind))


def load(kind: str, name: str) -> type:
    """The class of a name, imported now.

    >>> load("objectives", "minimum").__name__
    'Minimum'
    """
    known = _known(kind)
    if name not in known:
        raise InvalidInput(f"there is no {name!r} among the {kind}; {did_you_mean(name, known)}")
    return import_class(known[name])


def register(kind: str, name: str, cls: type) -> None:
    """Make a class known by a name, in this process only; InvalidInput where the name is in use.

    The class is loaded again by its module and its name, so it must be at the top of a module.

    >>> register("objectives", "minimum", load("objectives", "linear"))
    Traceback (most recent call last):
    ...
    fairwolfe.errors.InvalidInput: 'minimum' is fairwolfe.objectives:Minimum already; give another \
name
    """
    address = f"{cls.__module__}:{cls.__qualname__}"
    if import_class(address) is not cls:
        raise InvalidInput(f"{address} is another class than the one given; give that one")
    if name in _known(kind) and _known(kind)[name] != address:
        raise InvalidInput(f"{name!r} is {_known(kind)[name]} already; give another name")
    _REGISTERED.setdefault(kind, {})[name] = address
    _known.cache_clear()
    classes.cache_clear()


@cache
def classes(*kinds: str) -> dict[str, str]:
    """Class name -> ``module:Class`` of everything registered, or of some kinds; nothing is
    imported.

    >>> classes()["Minimum"]
    'fairwolfe.objectives:Minimum'
    """
    addresses: dict[str, str] = {}
    for kind in kinds or KINDS:
        for address in (*KINDS[kind].values(), *_known(kind).values()):
            addresses.setdefault(address.partition(":")[2], address)  # what is built in comes first
    return addresses


def import_class(address: str) -> type:
    """The class at ``module:Class``."""
    module_name, _, class_name = address.partition(":")
    if not module_name or not class_name:
        raise InvalidInput(f"{address!r} is not of the form module:Class")
    try:
        module = import_module(module_name)
    except MissingExtra:
        raise
    except ImportError as error:
        raise InvalidInput(f"{module_name!r} cannot be imported: {error}") from error
    cls = getattr(module, class_name, None)
    if not isinstance(cls, type):
        classes = [n for n in dir(module) if isinstance(getattr(module, n), type)]
        raise InvalidInput(
            f"{module_name!r} has no class {class_name!r}; {did_you_mean(class_name, classes)}"
        )
    return cls
