"""Environments of this library for Gymnasium: `BanditEnv`, with ids for ``gymnasium.make``."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import whole_number
from fairwolfe.core.protocols import Environment
from fairwolfe.core.registry import names
from fairwolfe.core.streams import stream
from fairwolfe.environments import make
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.simulation.run import Streams

require_extra("integrations", "the bridge to Gymnasium", "gymnasium")

import gymnasium  # noqa: E402
from gymnasium import spaces  # noqa: E402

__all__ = ["BanditEnv", "RankingSpace", "register"]

_ROUNDING = 1e-9  # a norm that was computed may be a little below its largest coordinate


class RankingSpace(spaces.MultiDiscrete):
    """The rankings of `n_slots` of `n_items` items: ``MultiDiscrete``, and no item twice.

    >>> space = RankingSpace(n_items=5, n_slots=2)
    >>> np.array([4, 0]) in space, np.array([4, 4]) in space
    (True, False)
    """

    def __init__(self, n_items: int, n_slots: int) -> None:
        super().__init__([n_items] * n_slots)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """A ranking, all equally likely; masks are not known here."""
        if mask is not None or probability is not None:
            raise InvalidInput("rankings are drawn without a mask; leave it out")
        return self.np_random.permutation(self.nvec[0])[: self.nvec.size]

    def contains(self, x: Any) -> bool:
        """Whether it is a ranking: places of different items."""
        return bool(super().contains(x)) and len(set(np.asarray(x).tolist())) == self.nvec.size


class BanditEnv(gymnasium.Env[Any, Any]):
    """An environment of ours as one of Gymnasium; rewards are vectors, as in MO-Gymnasium.

    An observation is the context: an array (arms, features), or a dict with ``user`` and ``items``
    where it is `Bilinear`, so that ``Bilinear(**observation)`` is the context again. An action is
    the number of an arm, or a ranking of items as in `RankingSpace`; one with an item twice raises.
    The reward is a float64 vector: for rankings the exposures of the items, then the user-side
    rewards, and ``info`` has ``exposed`` and ``rewards`` slot by slot, as `Shown` has them.

    `reset(seed=s)` draws the world, the contexts and the noise from the streams that
    ``fw.simulate(..., seed=s)`` draws them from. `reset()` keeps the world and shows the context
    that waits: rounds are independent, so an episode is only a part of one long run.

    Parameters
    ----------
    environment: one of ours, or the name of one in the registry, with its options
    horizon: rounds of an episode, after which it is truncated; None: it never is. Nothing
        terminates

    >>> env = BanditEnv("mehrotra", n_arms=3, n_objectives=2, n_features=4)
    >>> observation, _ = env.reset(seed=0)
    >>> observation.shape, env.action_space.n.item(), env.step(1)[1].shape
    ((3, 4), 3, (2,))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium reads it so

    def __init__(self, environment: Any, *, horizon: int | None = None, **options: Any) -> None:
        given = make(environment, **options) if isinstance(environment, str) else environment
        if not isinstance(given, Environment):
            raise InvalidInput(f"the environment is {given!r:.80}; see fw.environments")
        if given is environment and options:
            raise InvalidInput(
                f"{', '.join(options)}: options go with the name of an environment; change the "
                f"{type(given).__name__} itself"
            )
        self.environment = given
        self.horizon = None if horizon is None else whole_number("horizon", horizon)
        self.problem = given.problem()
        if self.problem.kind not in ("arms", "ranking"):
            raise InvalidInput(
                f"decisions of kind {self.problem.kind!r} have no action space here; only arms and "
                "rankings have one"
            )
        self.kind = kind_of(self.problem)
        self.reward_dim = self.problem.n_objectives
        bounded = getattr(given, "bounded", False)
        edge = np.full(self.reward_dim, np.inf)
        low, high = (self.problem.low, self.problem.high) if bounded else (-edge, edge)
        self.reward_space = spaces.Box(low, high, dtype=np.float64)
        self.streams: Streams | None = None  # until a world is drawn
        self.world: Any = None
        self.t = self.begun = 0
        first = given.context(given.init(stream(0, "world")), 1, stream(0, "contexts"))
        self.observation_space = self._space(first)
        if self.problem.n_items is not None and self.problem.n_slots is not None:
            self.action_space = RankingSpace(self.problem.n_items, self.problem.n_slots)
        else:
            self.action_space = spaces.Discrete(self.kind.read(first).n_arms)

    def _space(self, context: Any) -> spaces.Space[Any]:
        """The space of contexts like this one."""
        if isinstance(context, Bilinear):
            # The problem bounds the norm of the products only.
            parts = {"user": context.user, "items": context.items}
            return spaces.Dict({name: _box(np.shape(part), np.inf) for name, part in parts.items()})
        features = context.features if isinstance(context, PerArm) else context
        return _box(np.shape(features), self.problem.feature_norm * (1.0 + _ROUNDING))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new world with a seed; without one, the next episode in the same world."""
        super().reset(seed=seed)
        if seed is None and self.streams is None:
            seed = int(self.np_random.integers(2**31))
        if seed is not None:
            self.world = self.environment.init(stream(seed, "world"))
            self.streams = Streams.of(seed)
            self.t = 0
            self._next()
        self.begun = self.t
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Observation, reward vector, False, whether the episode is over, info."""
        if self.streams is None:
            raise InvalidInput("the world is not drawn yet; call reset(seed=...) first")
        feedback = self.environment.feedback(self.world, self.context, action, self.streams.noise)
        reward = self.kind.observe(action, feedback).reward
        info = {}
        if isinstance(feedback, Shown):
            info = {"exposed": feedback.exposed, "rewards": feedback.rewards}
        self._next()
        truncated = self.horizon is not None and self.t - self.begun >= self.horizon
        return self._shown(), reward, False, truncated, info

    def _next(self) -> None:
        """The context of the next round."""
        assert self.streams is not None
        self.t += 1
        self.context = self.environment.context(self.world, self.t, self.streams.contexts)

    def _shown(self) -> Any:
        """A copy of the context, which Gymnasium wants new with every call."""
        context = self.context
        if isinstance(context, Bilinear):
            return {"items": np.array(context.items), "user": np.array(context.user)}
        return np.array(context.features if isinstance(context, PerArm) else context)


def _box(shape: tuple[int, ...], edge: float) -> spaces.Box:
    return spaces.Box(-edge, edge, shape, np.float64)


def register() -> tuple[str, ...]:
    """Make every environment of the registry known to Gymnasium; their ids.

    >>> register()[:2]
    ('fairwolfe/factor-model-v0', 'fairwolfe/finite-v0')
    """
    ids = []
    for name in names("environments"):
        if name == "gymnasium":  # which is somebody else's world already
            continue
        ids.append(f"fairwolfe/{name.replace('_', '-')}-v0")
        if ids[-1] not in gymnasium.registry:
            gymnasium.register(
                ids[-1],
                entry_point="fairwolfe.integrations.gymnasium:BanditEnv",
                kwargs={"environment": name},
                # It takes a vector of rewards for a mistake; MO-Gymnasium turns it off too.
                disable_env_checker=True,
            )
    return tuple(ids)


register()
