"""The experiments and figures of the paper: `STUDIES` and `FIGURES`, with their quick sizes.

`LastFM50ByListeners` is the world of the second reading of the paper's data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from typing import Literal, Self

from fairwolfe.environments.listening import LastFM50, Listening
from fairwolfe.errors import InvalidInput, MissingData, did_you_mean
from fairwolfe.lab.paper import judges
from fairwolfe.lab.spec import Experiment


@dataclass(frozen=True)
class LastFM50ByListeners(LastFM50):
    """Last.fm-50 by the number of listeners of an artist, and of artists of a user.

    The body of the paper keeps those "with the most listening counts", which is `LastFM50`; its
    appendix those "having the most interactions", which is this. The number of factors is not
    given.

    >>> LastFM50ByListeners().factors
    5
    """

    factors: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        Listening("", factors=self.factors)  # raises for a bad number of factors; reads nothing

    @cached_property
    def listening(self) -> Listening:
        """The world as one of a table."""
        return replace(super().listening, by="listeners", factors=self.factors)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(factors=3)


# The two readings of "the most" in the paper; the second was chosen after the first verdicts.
_FIRST = '[environment]\nname = "lastfm-50"\n'
_SECOND = '[environment]\nname = "fairwolfe.lab.paper.studies:LastFM50ByListeners"\nfactors = 5\n'

# Where the data is missing, the world that ships with the library replaces it, at this size.
_SMALL = '[environment]\nname = "factor_model"\nusers = 50\nitems = 50\n'
_INSTEAD = {
    _FIRST: f"{_SMALL}n_factors = 10\n",
    _SECOND: f"{_SMALL}n_factors = 5\n",
    '"environment.factors"': '"environment.n_factors"',
    '[environment]\nname = "lastfm-2k"\n': (
        '[environment]\nname = "factor_model"\nusers = 1892\nitems = 2500\nn_factors = 10\n'
    ),
}

Reading = Literal["first", "second"]


@dataclass(frozen=True)
class Study:
    """An experiment of the paper, in `specs/NAME.toml`, and its quick size.

    One of the second reading is that of the first with another world and "-second" in its name.
    """

    name: str
    title: str
    quick_horizon: int
    quick_seeds: int
    us_per_round: float  # about, to show how much time is left
    reading: Reading = "first"

    def seconds(self, rounds: int) -> float:
        """About how long that many rounds take on one core."""
        return 1e-6 * self.us_per_round * rounds

    @property
    def spec(self) -> str:
        """The name of its file."""
        return self.name.removesuffix("-second") if self.reading == "second" else self.name

    @property
    def text(self) -> str:
        """The spec, as `fairwolfe run` takes it."""
        text = (files("fairwolfe.lab.paper") / "specs" / f"{self.spec}.toml").read_text("utf-8")
        if self.reading == "second":
            text = re.sub(r"(?m)^name = .*$", f'name = "{self.name}"', text, count=1)
            text = text.replace(_FIRST, _SECOND)
        return text

    def second(self) -> Study:
        """The same in the second reading."""
        return replace(
            self,
            name=f"{self.name}-second",
            title=f"{self.title}, second reading",
            reading="second",
        )

    def experiment(self, quick: bool = False) -> tuple[Experiment, bool]:
        """The checked experiment, and whether the embedded world replaces missing data."""
        text = self.text
        if quick:
            text = re.sub(r"(?m)^horizon = .*$", f"horizon = {self.quick_horizon}", text)
            text = re.sub(r"(?m)^seeds = .*$", f"seeds = {self.quick_seeds}", text)
        try:
            return Experiment.of(text).check(), False
        except MissingData:
            for given, instead in _INSTEAD.items():
                text = text.replace(given, instead)
            return Experiment.of(text).check(), True


@dataclass(frozen=True)
class Figure:
    """A figure: how it is drawn, of which studies, and what it shows."""

    name: str
    kind: Literal["dynamics", "objectives", "trade-off", "regret", "sweep", "factors", "distance"]
    studies: tuple[str, ...]
    caption: str
    labels: tuple[str, ...] | None = None  # those drawn; None is all

    def second(self) -> Figure:
        """The same of the studies in the second reading."""
        return replace(
            self,
            name=f"{self.name}-second",
            studies=tuple(f"{name}-second" for name in self.studies),
            caption=f"{self.caption} Second reading: most listeners, 5 factors.",
        )


_STUDIES = {
    study.name: study
    for study in (
        Study("arms-50-5", "K = 50 arms, D = 5 rewards", 1_000, 10, 10),
        Study("arms-50-20", "K = 50 arms, D = 20 rewards", 1_000, 10, 15),
        Study("arms-200-5", "K = 200 arms, D = 5 rewards", 1_000, 10, 30),
        Study("arms-200-20", "K = 200 arms, D = 20 rewards", 1_000, 10, 40),
        Study("lastfm-50", "Last.fm-50, Equation (2)", 200_000, 3, 15),
        Study("lastfm-50-tradeoff", "Last.fm-50", 100_000, 2, 15),
        Study("lastfm-50-gini", "Last.fm-50, Gini", 200_000, 3, 15),
        Study("lastfm-50-equal", "Last.fm-50, equal exposure", 200_000, 3, 15),
        Study("lastfm-50-welfare", "Last.fm-50, Welf", 200_000, 3, 15),
        Study("lastfm-2k-gini", "Last.fm-2k, Gini", 50_000, 2, 50),
        Study("lastfm-2k-welfare", "Last.fm-2k, Welf", 50_000, 2, 50),
        Study("lastfm-2k-tradeoff", "Last.fm-2k", 30_000, 2, 50),
        Study("regret-arms", "two arms, f = min", 30_000, 5, 3),
        Study("regret-ranking", "three items, Equation (2)", 30_000, 5, 5),
        *(Study(f"anytime-{T}", f"T = {T:,}", T, 10, 3) for T in (1_000, 10_000, 100_000)),
        Study("smoothing", "two arms, f = min", 10_000, 3, 5),
        Study("beta0", "Last.fm-50, Gini", 50_000, 2, 15),
        Study("exploration", "Last.fm-50, Gini", 50_000, 2, 15),
        Study("delay", "Last.fm-50, Gini", 3_000, 2, 300),
        Study("lastfm-50-factors-gini", "Last.fm-50 by listeners, Gini", 20_000, 2, 10),
        Study("lastfm-50-factors-tradeoff", "Last.fm-50 by listeners", 20_000, 2, 10),
        Study("defaults-arms-5", "K = 50 arms, D = 5 rewards", 3_000, 5, 10),
        Study("defaults-arms-20", "K = 50 arms, D = 20 rewards", 3_000, 5, 15),
        Study("defaults-50", "Last.fm-50, Equation (2)", 20_000, 2, 17),
        Study("defaults-2k", "Last.fm-2k, Gini", 5_000, 2, 85),
        Study("defaults-late-0", "feedback at once", 10_000, 2, 20),
        Study("defaults-late-100", "100 rounds late", 10_000, 2, 20),
        Study("defaults-late-1000", "1,000 rounds late", 10_000, 2, 20),
    )
}

_FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "arms",
            "dynamics",
            ("arms-50-5", "arms-50-20"),
            "Multi-armed CBCR: objective values in the worlds of Mehrotra et al. (2020), K = 50 "
            "arms, D = 5 and 20 rewards (Figure 1, left).",
            (judges.SQUARE, judges.LINUCB, judges.LINUCB_MORE, judges.MOLINCB),
        ),
        Figure(
            "lastfm-50",
            "dynamics",
            ("lastfm-50",),
            "Ranking CBCR: the fairness objective of Equation (2), beta = 1, over time on Last.fm "
            "(Figure 1, middle).",
        ),
        Figure(
            "lastfm-50-tradeoff",
            "trade-off",
            ("lastfm-50-tradeoff",),
            "Ranking CBCR: user utility against item inequality on Last.fm after all rounds "
            "(Figure 1, right).",
        ),
        Figure(
            "lastfm-50-objectives",
            "objectives",
            ("lastfm-50-gini", "lastfm-50-equal", "lastfm-50-welfare"),
            "Last.fm-50: user objective, item objective and f over time for Gini, equal exposure "
            "and Welf (appendix).",
        ),
        Figure(
            "lastfm-2k-objectives",
            "objectives",
            ("lastfm-2k-gini", "lastfm-2k-welfare"),
            "Last.fm-2k: user objective, item objective and f over time for Gini and Welf "
            "(appendix).",
        ),
        Figure(
            "lastfm-2k-tradeoff",
            "trade-off",
            ("lastfm-2k-tradeoff",),
            "User utility against item inequality on Last.fm-2k (appendix).",
        ),
        Figure(
            "arms-appendix",
            "dynamics",
            ("arms-50-5", "arms-50-20", "arms-200-5", "arms-200-20"),
            "Multi-objective bandits: values of the generalized Gini function with more arms and "
            "policies (appendix).",
        ),
        Figure(
            "regret",
            "regret",
            ("regret-arms", "regret-ranking"),
            "Claim T1: mean scalar pseudo-regret, in two worlds where the bounds say something.",
        ),
        Figure(
            "anytime",
            "dynamics",
            ("anytime-1000", "anytime-10000", "anytime-100000"),
            "Claim T2: smoothing that shrinks at all times against one fixed for the horizon.",
        ),
        Figure(
            "smoothing",
            "dynamics",
            ("smoothing",),
            "Moreau's smoothing against the randomised one.",
        ),
        Figure("beta0", "sweep", ("beta0",), "f at the horizon by the width of the smoothing."),
        Figure("exploration", "sweep", ("exploration",), "f at the horizon by the exploration."),
        Figure("delay", "sweep", ("delay",), "f at the horizon by the delay of the feedback."),
        Figure(
            "lastfm-50-factors",
            "factors",
            ("lastfm-50-factors-gini", "lastfm-50-factors-tradeoff"),
            "Claims R5, R7 and R9 by the number of factors, in the second reading of the data.",
        ),
        Figure(
            "defaults-arms",
            "distance",
            ("defaults-arms-5", "defaults-arms-20"),
            "Beyond the paper, arms: its settings (black), and with pointwise exploration, the "
            "default width of the smoothing, and Augmented smoothing.",
        ),
        Figure(
            "defaults-50",
            "distance",
            ("defaults-50",),
            "Beyond the paper, Last.fm-50: FW-LinUCBRank as printed (black), and with expected "
            "exposures, pointwise exploration, and Augmented smoothing.",
        ),
        Figure(
            "defaults-2k",
            "distance",
            ("defaults-2k",),
            "Beyond the paper, Last.fm-2k: FW-LinUCBRank as printed (black), and with expected "
            "exposures, pointwise exploration, and Augmented smoothing.",
        ),
        Figure(
            "defaults-late",
            "distance",
            ("defaults-late-0", "defaults-late-100", "defaults-late-1000"),
            "Beyond the paper, Last.fm-50 with late feedback: FW-LinUCBRank that ignores decisions "
            "without an answer (black), and that anticipates it, without and with the other three.",
        ),
    )
}

_TWICE = [_FIGURES[name] for name in ("lastfm-50", "lastfm-50-tradeoff", "lastfm-50-objectives")]
FIGURES = _FIGURES | {figure.second().name: figure.second() for figure in _TWICE}

STUDIES = _STUDIES | {
    _STUDIES[name].second().name: _STUDIES[name].second()
    for figure in _TWICE
    for name in figure.studies
}


def figures(names: tuple[str, ...] = ()) -> tuple[Figure, ...]:
    """The figures of the names, all without any; an unknown name raises."""
    for name in names:
        if name not in FIGURES:
            raise InvalidInput(f"there is no figure {name!r}; {did_you_mean(name, FIGURES)}")
    return tuple(FIGURES[name] for name in names or FIGURES)


def studies_of(chosen: tuple[Figure, ...]) -> tuple[Study, ...]:
    """The studies behind the figures, each once, in their order."""
    names = dict.fromkeys(name for figure in chosen for name in figure.studies)
    return tuple(STUDIES[name] for name in names)
