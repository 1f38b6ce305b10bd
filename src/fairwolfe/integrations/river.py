"""`Bandit`: an agent at the end of a pipeline of river."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairwolfe.agent import Agent
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.decision import Decision
from fairwolfe.core.features import Encoder
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, require_extra

require_extra("integrations", "the bridge to river", "river")

from river import base  # noqa: E402

__all__ = ["Bandit"]


class Bandit(base.Estimator):
    """Chooses an arm with `predict_one(x)` and learns its rewards with `learn_one(x, y)`.

    x is a dictionary of features, the same for all arms, as the steps before make it; y the rewards
    of the arm that was predicted last, {name: number}. It learns with the features of the
    prediction, whatever a scaler before has learnt since. One decision is open at a time: a new
    prediction drops the one before. Where answers come late or many at once, use the `Agent`.

    Parameters
    ----------
    policy: for arms, such as FrankWolfe(objective, SquareCB())
    arms: their names
    rewards: name -> (low, high)
    encoder: of x; numbers need a range, standardised ones about (-3, 3)
    seed: of the agent

    >>> from river.preprocessing import StandardScaler
    >>> import fairwolfe as fw
    >>> policy = fw.FrankWolfe(fw.objectives.Minimum(), fw.bandits.SquareCB(gamma0=100.0))
    >>> encoder = Encoder(n_features=4, ranges={"age": (-3, 3)}, n_names=1)
    >>> rewards = {"clicks": (0, 1), "saves": (0, 1)}
    >>> model = StandardScaler() | Bandit(policy, ("left", "right"), rewards, encoder)
    >>> for age in range(200):
    ...     arm = model.predict_one({"age": age % 50})
    ...     model.learn_one({"age": age % 50}, {"clicks": arm == "left", "saves": arm == "right"})
    >>> model["Bandit"].agent.average.round(1).tolist()
    [0.5, 0.5]
    """

    def __init__(
        self,
        policy: Any,
        arms: Sequence[str],
        rewards: Mapping[str, tuple[float, float]],
        encoder: Encoder,
        seed: int = 0,
    ) -> None:
        self.policy, self.arms, self.rewards = policy, arms, rewards
        self.encoder, self.seed = encoder, seed
        norm = encoder.feature_norm
        problem = Problem.arms(encoder.n_features, rewards, n_arms=len(arms), feature_norm=norm)
        self.agent = Agent(policy, problem, seed=seed)
        self.decision: Decision | None = None

    def predict_one(self, x: dict[str, Any]) -> str:
        """The name of an arm."""
        if self.decision is not None:
            self.agent.expire(self.decision)
        self.decision = self.agent.act(PerArm(self.encoder(x)))
        return self.arms[int(self.decision.action)]

    def learn_one(self, x: dict[str, Any], y: Mapping[str, float]) -> None:
        """Take the rewards of the last prediction."""
        if self.decision is None:
            raise InvalidInput("there is no prediction to learn from; call predict_one(x) first")
        self.agent.update(self.decision, y)
        self.decision = None
