"""`Gymnasium`: an environment of Gymnasium with vector rewards, played as a contextual bandit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.problem import Frozen, Problem, real_array
from fairwolfe.errors import InvalidInput, require_extra

_SEEDS = 2**31  # what every environment takes


class Facts(NamedTuple):
    """What is known of an environment before it is played."""

    problem: Problem
    own: bool  # whether it states its problem, so that an observation is the context
    middle: Vector  # of each coordinate of an observation
    half: Vector  # of its range; 1 where it has no ends


@dataclass(eq=False)
class Episode:
    """An environment at work: it changes with every answer."""

    env: Any
    context: Any
    over: bool = False


@dataclass(frozen=True)
class Gymnasium:
    """An environment of Gymnasium or MO-Gymnasium with discrete actions, step by step.

    The observation of a step is the context, an action is an arm, and where an episode ends the
    next one begins. State carries over from step to step, which no theorem here allows for: what a
    policy maximises is f of the average reward of a step, as if its actions did not change the
    observations to come.

    All arms see the same features (`PerArm`): 1, then the observation as Gymnasium's ``flatten``
    has it, with coordinates that have two ends mapped to [-1, 1], all divided by the root of their
    number. Where the environment states a `Problem` (``unwrapped.problem``), as those of this
    library do, the observation is the context itself, a row for each arm.

    The seed of a run is that of ``reset(seed=...)``. Nobody knows the expected rewards, so that
    `simulate` and `compare` count those observed, scalar regrets are NaN, and `optimum` raises.

    Parameters
    ----------
    id: as ``gymnasium.make`` takes it, such as "mo_gymnasium:deep-sea-treasure-v0", where the part
        before the colon is imported
    options: what ``gymnasium.make`` is given besides
    rewards: name -> (low, high), in the order of the reward vector; None: r1, r2, ... with the
        ends of ``unwrapped.reward_space``, and a scalar reward needs it always

    >>> world = Gymnasium("mo_gymnasium:four-room-v0")
    >>> world.problem().n_arms, world.problem().n_features
    (4, 15)
    >>> world.problem().rewards
    {'r1': (0.0, 1.0), 'r2': (0.0, 1.0), 'r3': (0.0, 1.0)}
    """

    id: str
    options: Mapping[str, Any] = Frozen()
    rewards: Mapping[str, tuple[float, float]] | None = None

    opaque = True

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise InvalidInput(f"id is {self.id!r:.80}; give a name that gymnasium.make knows")
        if not isinstance(self.options, Mapping):
            raise InvalidInput(f"options is {self.options!r:.80}; give a mapping")
        object.__setattr__(self, "options", Frozen(self.options))
        if self.rewards is not None:
            # The problem knows what a range and a name are.
            object.__setattr__(self, "rewards", Problem.arms(1, self.rewards).rewards)

    def _made(self) -> Any:
        require_extra("integrations", "a world of Gymnasium", "gymnasium")
        import gymnasium

        from fairwolfe.integrations.gymnasium import register

        register()
        try:
            return gymnasium.make(self.id, disable_env_checker=True, **self.options)
        except (gymnasium.error.Error, ModuleNotFoundError) as error:
            raise InvalidInput(
                f"there is no environment {self.id!r}: {error}; with the module that registers it "
                "before a colon it is found, such as 'mo_gymnasium:deep-sea-treasure-v0'"
            ) from error

    @cached_property
    def _facts(self) -> Facts:
        env = self._made()
        try:
            return self._read(env)
        finally:
            env.close()

    def _read(self, env: Any) -> Facts:
        from gymnasium import spaces

        actions = env.action_space
        if not isinstance(actions, spaces.Discrete) or actions.start != 0:
            raise InvalidInput(
                f"{self.id} has the action space {actions}; only Discrete(n) can be played as arms"
            )
        stated = getattr(env.unwrapped, "problem", None)
        if isinstance(stated, Problem):
            return Facts(stated, True, np.empty(0), np.empty(0))
        try:
            space: Any = spaces.flatten_space(env.observation_space)
        except NotImplementedError:
            space = None
        if not isinstance(space, spaces.Box):
            raise InvalidInput(
                f"{self.id} has observations {env.observation_space}, which cannot be made a "
                "vector of fixed length; wrap it so that they can"
            )
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        ends = np.isfinite(low) & np.isfinite(high) & (low < high)
        low, high = np.where(ends, low, -1.0), np.where(ends, high, 1.0)
        middle, half = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
        problem = Problem.arms(1 + low.size, self._ranges(env), n_arms=int(actions.n))
        return Facts(problem, False, middle, half)

    def _ranges(self, env: Any) -> Mapping[str, tuple[float, float]]:
        """The rewards with their ranges."""
        space = getattr(env.unwrapped, "reward_space", None)
        n = 1 if space is None else math.prod(space.shape)
        if self.rewards is not None:
            if len(self.rewards) != n:
                raise InvalidInput(
                    f"rewards names {', '.join(self.rewards)}, and {self.id} has {n}; name as many"
                )
            return self.rewards
        ends = [] if space is None else list(zip(space.low.flat, space.high.flat, strict=True))
        if not ends or not np.isfinite(ends).all():
            raise InvalidInput(
                f"{self.id} does not say between which numbers its {n} rewards lie; give rewards, "
                'such as {"r1": (0, 1)}'
            )
        return {f"r{i}": _wide(float(a), float(b)) for i, (a, b) in enumerate(ends, start=1)}

    def problem(self) -> Problem:
        """Arms for the actions; rewards and ranges as the environment states them."""
        return self._facts.problem

    def init(self, rng: np.random.Generator) -> Episode:
        """A new environment; its seed is the one that the generator was made from."""
        env = self._made()
        observation, _ = env.reset(seed=_seed(rng))
        return Episode(env, self._context(env, observation))

    def _context(self, env: Any, observation: Any) -> Any:
        from gymnasium import spaces

        if self._facts.own:
            return np.asarray(observation)
        flat = np.asarray(spaces.flatten(env.observation_space, observation), dtype=np.float64)
        x = np.append(1.0, (flat - self._facts.middle) / self._facts.half)
        return PerArm(x / math.sqrt(x.size))

    def context(self, world: Episode, t: int, rng: np.random.Generator) -> Any:
        """The observation that waits for an action."""
        if world.over:
            world.context, world.over = self._context(world.env, world.env.reset()[0]), False
        return world.context

    def feedback(self, world: Episode, context: Any, action: Any, rng: np.random.Generator) -> Any:
        """The reward vector of a step; the world has then moved on."""
        if not np.array_equal(_features(context), _features(world.context)):
            raise InvalidInput(
                "the context is not the one that waits for an action; this world continues with "
                "every answer, so give what context(...) returned last"
            )
        n = int(world.env.action_space.n)
        whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
        if not whole or not 0 <= action < n:
            raise InvalidInput(f"the action is {action!r}; give the number of an arm, 0 to {n - 1}")
        observation, reward, terminated, truncated, _ = world.env.step(int(action))
        world.context = self._context(world.env, observation)
        world.over = bool(terminated or truncated)
        return np.atleast_1d(np.asarray(reward, dtype=np.float64))

    def mean_reward(self, world: Episode, context: Any, action: Any) -> NoReturn:
        """Raises: it is unknown."""
        raise InvalidInput(
            f"the expected rewards of {self.id} are not known, so that neither regret nor optimum "
            "is; see `observed` and `average_observed` of a run"
        )

    def best_action(self, world: Episode, context: Any, direction: Any) -> NoReturn:
        """Raises: it is unknown."""
        self.mean_reward(world, context, None)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks: worlds without a state that carries over."""
        contexts = (((1.0, 0.0), (0.0, 1.0)), ((0.9, 0.1), (0.1, 0.7)))
        finite = {"contexts": contexts, "probabilities": (0.5, 0.5), "theta": contexts[0]}
        return (
            cls("fairwolfe/finite-v0", finite),
            cls("fairwolfe/mehrotra-v0", {"n_arms": 4, "horizon": 7}),
        )


def _wide(low: float, high: float) -> tuple[float, float]:
    """A range; that of a reward which never changes is made to hold 0, or 0 and 1."""
    if low < high:
        return low, high
    return min(low, 0.0), max(high, 0.0) if low else 1.0


def _features(context: Any) -> Any:
    """The numbers of a context."""
    return real_array("the context", context.features if isinstance(context, PerArm) else context)


def _seed(rng: np.random.Generator) -> int:
    """The seed that a generator was made from; drawn, if it is not a seed for an environment."""
    entropy = getattr(rng.bit_generator.seed_seq, "entropy", None)
    if isinstance(entropy, int) and 0 <= entropy < _SEEDS:
        return entropy
    return int(rng.integers(_SEEDS))
