"""`VowpalWabbit`: the contextual bandits of Vowpal Wabbit, as a policy for one reward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fairwolfe.bandits.base import Rule
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import number_where, one_of, whole_number
from fairwolfe.errors import IncompatibleState, InvalidInput, NumericalFailure, require_extra

_LARGEST = float(np.finfo(np.float32).max)  # its numbers have 32 bits


class _Model:
    """A workspace, which learns in place; copied, compared and saved by what it has learnt."""

    __slots__ = ("_arguments", "_template", "_workspace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, arguments: str, n_features: int) -> None:
        self._arguments = arguments
        # Whole numbers for names are places in the table of weights, side by side: no collisions.
        # Nine digits are all of a 32-bit number.
        self._template = "|f " + " ".join(f"{j}:%.9g" for j in range(n_features))
        try:
            self._workspace = _workspace(arguments)
        except RuntimeError as error:
            raise InvalidInput(f"Vowpal Wabbit rejects {arguments!r}: {error}") from error

    def probabilities(self, features: Matrix) -> Vector:
        """Of every arm, summing to 1."""
        _check_size(features)
        text = "\n".join(self._template % tuple(row) for row in features.tolist())
        chances = np.array(self._workspace.predict(text), dtype=np.float64)
        total = float(chances.sum())
        if not (math.isfinite(total) and total > 0.0):
            raise NumericalFailure(
                "the probabilities of Vowpal Wabbit are not numbers: its weights have become "
                "too large; try a smaller learning rate"
            )
        return chances / total

    def learn(self, features: Vector, cost: float, probability: float) -> None:
        """Take the cost of one arm in."""
        _check_size(features, cost)
        label = f"0:{cost:.9g}:{probability:.9g} "
        self._workspace.learn(label + self._template % tuple(features.tolist()))

    def dump(self) -> NDArray[np.uint8]:
        """Vowpal Wabbit's own file, as bytes."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "model")
            self._workspace.save(file)
            return np.fromfile(file, dtype=np.uint8)

    def load(self, saved: NDArray[np.uint8]) -> None:
        """Become what was dumped, to the last counter."""
        self._workspace = self._loaded(saved, "--preserve_performance_counters")

    def _loaded(self, saved: NDArray[np.uint8], *more: str) -> Any:
        with TemporaryDirectory() as folder:
            file = Path(folder, "model")
            file.write_bytes(saved.tobytes())
            try:
                return _workspace(self._arguments, "--initial_regressor", str(file), *more)
            except RuntimeError as error:
                raise IncompatibleState(
                    f"this Vowpal Wabbit cannot read the saved model: {error}; load it with the "
                    "version that wrote it, and with the same arguments"
                ) from error

    def __deepcopy__(self, memo: Any) -> _Model:
        copy = object.__new__(_Model)
        copy._arguments, copy._template = self._arguments, self._template
        copy.load(self.dump())
        return copy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Model) and self._learnt() == other._learnt()

    def _learnt(self) -> list[str]:
        """The readable form without the line of t: it counts predictions too, without an effect."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "text")
            # Loaded in the usual way, it starts its other counters again.
            copy = self._loaded(self.dump(), "--hexfloat_weights", "--readable_model", str(file))
            copy.finish()
            return [line for line in file.read_text().splitlines() if not line.startswith("t ")]


def _workspace(arguments: str, *more: str) -> Any:
    require_extra("integrations", "VowpalWabbit", "vowpalwabbit")
    from vowpalwabbit import Workspace

    return Workspace(arg_list=[*arguments.split(), *more])


def _check_size(numbers: Any, cost: float = 0.0) -> None:
    largest = float(np.abs(np.append(numbers, cost)).max())
    if not largest <= _LARGEST:
        raise InvalidInput(
            f"a feature or reward of size {largest:g} was given to Vowpal Wabbit, whose numbers "
            f"end at {_LARGEST:.3g}; scale the features and rewards"
        )


@dataclass(frozen=True, kw_only=True)
class VowpalWabbit:
    """Online regression and exploration of Vowpal Wabbit (``--cb_explore_adf``) for one reward.

    A `ScalarPolicy`: ``FrankWolfe(f, Extended(VowpalWabbit()))``. Vowpal Wabbit predicts the
    probabilities of the arms, the arm is drawn from them here: runs can be repeated, and the
    probability is the true one. The cost is minus the reward. Learns from the chosen arm alone.

    Its state is a workspace that learns in place, not arrays; `Agent.save` writes Vowpal Wabbit's
    own file into the agent's. Reading one runs Vowpal Wabbit on its content, so load files from
    people you trust.

    Parameters
    ----------
    exploration: "squarecb", P(a) = 1/(K + gamma (best - score_a)) with
        gamma = gamma_scale sqrt(number of rewards), or "epsilon", the best arm (equals share)
        with probability 1 - epsilon, else any
    gamma_scale: larger explores less
    epsilon: from 0 to 1
    weighted: whether an observation counts 1/probability, as is usual there. Without it the
        regression is a plain one, as SquareCB's theorem wants it.
    arguments: more of its command line, such as "--learning_rate 0.1", "--coin" or
        "--quadratic ff" (all features are in the namespace f, without a constant). What draws
        random numbers, such as --bag or --bootstrap, breaks the promise that acting only reads.

    Needs the extra `integrations`. Most of the time of a round goes into the text that VW reads.

    Reference: Foster and Rakhlin (2020) for SquareCB; Bietti, Agarwal and Langford (2021) for the
    bandits of Vowpal Wabbit.

    >>> VowpalWabbit(exploration="epsilon", epsilon=0.1).command_line
    '--quiet --noconstant --cb_explore_adf --cb_type mtr --epsilon 0.1 --clip_p 1'
    """

    exploration: Literal["squarecb", "epsilon"] = "squarecb"
    gamma_scale: float = 1000.0
    epsilon: float = 0.05
    weighted: bool = False
    arguments: str = ""

    def __post_init__(self) -> None:
        one_of("exploration", self.exploration, ("squarecb", "epsilon"))
        number_where("gamma_scale", self.gamma_scale, lambda x: x > 0.0, "a positive number")
        number_where("epsilon", self.epsilon, lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")

    @property
    def command_line(self) -> str:
        """What a workspace is made with."""
        explore = (
            f"--squarecb --gamma_scale {float(self.gamma_scale)!r}"
            if self.exploration == "squarecb"
            else f"--epsilon {float(self.epsilon)!r}"
        )
        # Probabilities below 1 are replaced by 1: every weight is 1.
        plain = "" if self.weighted else "--clip_p 1"
        parts = ("--quiet --noconstant --cb_explore_adf --cb_type mtr", explore, plain)
        return " ".join(" ".join((*parts, self.arguments)).split())

    def init(self, n_features: int) -> _Model:
        """Make a workspace; MissingExtra without the package, InvalidInput for bad arguments."""
        return _Model(self.command_line, whole_number("n_features", n_features))

    def act(
        self, state: _Model, features: Matrix, rng: np.random.Generator
    ) -> tuple[int, float | None]:
        """Draw from the predicted probabilities; nothing is learnt."""
        return Rule.drawn(state.probabilities(features), rng.random())

    def update(
        self, state: _Model, features: Vector, arm: int, probability: float | None, reward: float
    ) -> _Model:
        """Learn from the row of the chosen arm, in place."""
        if probability is None or not 0.0 < probability <= 1.0:
            raise InvalidInput(
                f"the probability of the arm is {probability!r}; give the one that act returned, "
                "above 0 and at most 1"
            )
        state.learn(features, -reward, probability)
        return state

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        small = "--bit_precision 6"  # quick to copy
        return (
            cls(gamma_scale=10.0, arguments=small),
            cls(exploration="epsilon", epsilon=0.3, weighted=True, arguments=f"--coin {small}"),
        )
