"""An environment as MO-Gymnasium's tests make it for Gymnasium's checker, which wants scalars."""

from __future__ import annotations

from typing import Any

import mo_gymnasium
from mo_gymnasium.wrappers import LinearReward

import fairwolfe.integrations.gymnasium  # noqa: F401 - for its ids


class Fresh(LinearReward):  # type: ignore[misc]
    """`LinearReward` hands out one array of weights again and again, which the checker of Gymnasium
    1.4 refuses, also of MO-Gymnasium's own environments.
    """

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, info | {"reward_weights": self.w.copy()}


def scalarised(identity: str, **options: Any) -> Any:
    return Fresh(mo_gymnasium.make(identity, **options))
