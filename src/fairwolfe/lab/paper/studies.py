"""The experiments and figures of the paper: `STUDIES` and `FIGURES`, with their quick sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

from fairwolfe.errors import InvalidInput, MissingData, did_you_mean
from fairwolfe.lab.paper import judges
from fairwolfe.lab.spec import Experiment

Reading = Literal["first", "second", "third"]

# What the paper leaves open in its data. The body keeps those "with the most listening counts", its
# appendix those "having the most interactions"; number of factors, weights and scale are not given.
# The second was chosen after the first verdicts, the third, the literal one, after both.
_WORLD = '[environment]\nname = "lastfm-{}"\n'
_OPTIONS: dict[Reading, str] = {
    "first": "",
    "second": 'by = "listeners"\nfactors = 5\n',
    "third": 'weights = "counts"\nscale = false\nfactors = 5\nseed = "run"\n',
}
_FRESH = "[100, 101, 102, 103, 104, 105, 106, 107, 108, 109]"  # seeds of the third registration
_DENSER = {  # grids of the third registration
    "lastfm-50-tradeoff": {
        "objective.beta": "[0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 1.0, 3.0]",
        "FairLearn.minimum": "[0.0, 0.02, 0.05, 0.1, 0.15, 0.19, 0.2]",
    },
    "lastfm-2k-tradeoff": {"objective.beta": "[0.0, 0.3, 0.5, 0.7, 1.0, 1.5, 3.0, 10.0]"},
}

# Where the data is missing, the world that ships with the library replaces it, at this size.
_SIZES = {"50": (50, 50), "2k": (1892, 2500)}
_INSTEAD = '[environment]\nname = "factor_model"\nusers = {}\nitems = {}\nn_factors = {}\n'


@dataclass(frozen=True)
class Study:
    """An experiment of the paper, in `specs/NAME.toml`, and its quick size.

    One of another reading is that of the first with another world, and the reading in its name; the
    third has fresh seeds and denser grids, too.
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
        return self.name.removesuffix(f"-{self.reading}")

    @property
    def text(self) -> str:
        """The spec, as `fairwolfe run` takes it."""
        text = (files("fairwolfe.lab.paper") / "specs" / f"{self.spec}.toml").read_text("utf-8")
        text = re.sub(r"(?m)^name = .*$", f'name = "{self.name}"', text, count=1)
        for size in _SIZES:
            world = _WORLD.format(size)
            text = text.replace(world, world + _OPTIONS[self.reading])
        if self.reading == "third":
            text = re.sub(r"(?m)^seeds = .*$", f"seeds = {_FRESH}", text)
            for path, values in _DENSER.get(self.spec, {}).items():
                text = re.sub(rf'(?m)^("\S*{path}") = .*$', rf"\1 = {values}", text)
        return text

    def read_as(self, reading: Reading) -> Study:
        """The same in another reading."""
        name, title = f"{self.name}-{reading}", f"{self.title}, {reading} reading"
        return replace(self, name=name, title=title, reading=reading)

    def experiment(self, quick: bool = False) -> tuple[Experiment, bool]:
        """The checked experiment, and whether the embedded world replaces missing data."""
        text = self.text
        if quick:
            text = re.sub(r"(?m)^horizon = .*$", f"horizon = {self.quick_horizon}", text)
            text = re.sub(r"(?m)^seeds = .*$", f"seeds = {self.quick_seeds}", text)
        try:
            return Experiment.of(text).check(), False
        except MissingData:
            for size, (users, items) in _SIZES.items():
                world = re.escape(_WORLD.format(size)) + r"(?:\w+ = .*\n)*"
                factors = re.search(r"(?m)^factors = (\d+)$", text)
                instead = _INSTEAD.format(users, items, factors[1] if factors else 10)
                text = re.sub(world, instead, text)
            text = text.replace('"environment.factors"', '"environment.n_factors"')
            return Experiment.of(text).check(), True


@dataclass(frozen=True)
class Figure:
    """A figure: how it is drawn, of which studies, and what it shows."""

    name: str
    kind: Literal[
        "dynamics",
        "objectives",
        "trade-off",
        "regret",
        "sweep",
        "factors",
        "distance",
        "gap",
        "redistribution",
    ]
    studies: tuple[str, ...]
    caption: str
    labels: tuple[str, ...] | None = None  # those drawn; None is all

    def read_as(self, reading: Reading) -> Figure:
        """The same of the studies in another reading."""
        caption = f"{self.caption} {_IN_WORDS[reading]}"
        studies = tuple(f"{name}-{reading}" for name in self.studies)
        return replace(self, name=f"{self.name}-{reading}", studies=studies, caption=caption)


_IN_WORDS: dict[Reading, str] = {
    "second": "Second reading: most listeners, 5 factors.",
    "third": "Third reading: raw counts, 5 factors, not rescaled, a factorisation for each seed.",
}


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
        Study("lastfm-50-rivals", "Last.fm-50, Equation (2)", 20_000, 2, 10),
        Study("lastfm-50-alpha", "Last.fm-50, Welf by alpha", 100_000, 2, 15),
        Study("lastfm-50-welfare-beta", "Last.fm-50, Welf by beta", 100_000, 2, 15),
        Study("lastfm-50-equal-beta", "Last.fm-50, equal exposure by beta", 100_000, 2, 15),
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
            "gap",
            ("arms-50-5", "arms-50-20"),
            "Multi-armed CBCR: how far f is below the best possible, in the worlds of Mehrotra et "
            "al. (2020), K = 50 arms, D = 5 and 20 rewards (Figure 1, left).",
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
            "Last.fm-50: user objective, item objective, f and its distance from the best over "
            "time for Gini, equal exposure and Welf (appendix).",
        ),
        Figure(
            "lastfm-2k-objectives",
            "objectives",
            ("lastfm-2k-gini", "lastfm-2k-welfare"),
            "Last.fm-2k: user objective, item objective, f and its distance from the best over "
            "time for Gini and Welf (appendix).",
        ),
        Figure(
            "lastfm-2k-tradeoff",
            "trade-off",
            ("lastfm-2k-tradeoff",),
            "User utility against item inequality on Last.fm-2k (appendix).",
        ),
        Figure(
            "arms-appendix",
            "gap",
            ("arms-50-5", "arms-50-20", "arms-200-5", "arms-200-20"),
            "Multi-objective bandits: the same with more arms and policies (appendix).",
        ),
        Figure(
            "regret",
            "regret",
            ("regret-arms", "regret-ranking"),
            "Claim T1: the regret R_T = f* - f(observed averages), the rate ln(t)/sqrt(t) of the "
            "theory, and the proved bounds, in two worlds where these say something.",
        ),
        Figure(
            "anytime",
            "gap",
            ("anytime-1000", "anytime-10000", "anytime-100000"),
            "Claim T2: smoothing that shrinks at all times against one fixed for the horizon.",
        ),
        Figure(
            "smoothing",
            "gap",
            ("smoothing",),
            "Moreau's smoothing against the randomised one.",
        ),
        Figure(
            "redistribution",
            "redistribution",
            ("lastfm-50-alpha", "lastfm-50-welfare-beta", "lastfm-50-equal-beta"),
            "Claims A1 and B1: what alpha and beta do to utility and to the inequality of "
            "exposure.",
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
            "rivals",
            "gap",
            ("lastfm-50-rivals",),
            "Beyond the paper, Last.fm-50: FW-LinUCBRank and FairCo, the controller of Morik et "
            "al. (2020), with four gains.",
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

_TWICE = ("lastfm-50", "lastfm-50-tradeoff", "lastfm-50-objectives")
_THRICE = (
    *_TWICE,
    "lastfm-2k-objectives",
    "lastfm-2k-tradeoff",
    "regret",
    "arms",
    "redistribution",
)
_AGAIN = [
    *(_FIGURES[name].read_as("second") for name in _TWICE),
    *(_FIGURES[name].read_as("third") for name in _THRICE),
]
_THIRD_ONLY = ("redistribution",)

FIGURES = {
    figure.name: figure
    for figure in (*_FIGURES.values(), *_AGAIN)
    if figure.name not in _THIRD_ONLY
}

STUDIES = {
    **{
        name: _STUDIES[name]
        for figure in FIGURES.values()
        for name in figure.studies
        if name in _STUDIES
    },
    **{
        study.name: study
        for figure in _AGAIN
        for reading in ("second", "third")
        if figure.name.endswith(reading)
        for name in figure.studies
        for study in [_STUDIES[name.removesuffix(f"-{reading}")].read_as(reading)]
    },
}


def figures(names: tuple[str, ...] = ()) -> tuple[Figure, ...]:
    """The figures of the names, all without any; an unknown name raises. "second" and "third" are
    all of these readings.
    """
    found: dict[str, Figure] = {}
    for name in names or FIGURES:
        of_reading = (
            [one for one in FIGURES if one.endswith(f"-{name}")] if name in _OPTIONS else []
        )
        if name not in FIGURES and not of_reading:
            raise InvalidInput(f"there is no figure {name!r}; {did_you_mean(name, FIGURES)}")
        found |= {one: FIGURES[one] for one in of_reading or [name]}
    return tuple(found.values())


def studies_of(chosen: tuple[Figure, ...]) -> tuple[Study, ...]:
    """The studies behind the figures, each once, in their order."""
    names = dict.fromkeys(name for figure in chosen for name in figure.studies)
    return tuple(STUDIES[name] for name in names)
