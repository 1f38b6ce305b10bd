"""`Record`: what a golden run decided and counted, in a form that is small and keeps every bit."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np

import fairwolfe as fw

__all__ = ["Record", "Trajectory", "reasons"]

Trajectory = dict[str, Any]


class Record:
    """Decisions in full, a few rows of numbers as hexadecimal floats, and a digest of all rows.

    The plain rows show how far a run is off when the digest differs.
    """

    def __init__(self) -> None:
        self.actions: list[str] = []
        self.rows: list[list[float]] = []

    def decided(self, action: Any) -> None:
        """An arm as its number; a ranking as one letter or digit for each item (base 36)."""
        ranking = np.ndim(action) > 0
        self.actions.append(
            "".join(np.base_repr(i, 36) for i in action) if ranking else f"{action}"
        )

    def count(self, *values: Any) -> None:
        """A row of numbers; None becomes NaN."""
        flat = [np.ravel(np.array(value, dtype=float)) for value in values]
        self.rows.append(np.concatenate(flat).tolist())

    def step(self, agent: fw.Agent, decision: fw.Decision) -> None:
        """A decision with its probability and reasons, and the agent's averages after it.

        The reasons are estimates and confidence widths: they depend on every bit of the regression.
        """
        self.decided(decision.action)
        self.count(decision.probability, agent.average, reasons(decision))

    def told(self) -> Trajectory:
        digest, n = blake2b(digest_size=16), len(self.rows)
        for row in self.rows:
            digest.update(np.array(row).tobytes())
        kept = [self.rows[i] for i in sorted({n // 2, n - 2, n - 1})]
        return {
            "actions": " ".join(self.actions),
            "numbers": [" ".join(value.hex() for value in row) for row in kept],
            "digest": digest.hexdigest(),
        }


def reasons(decision: fw.Decision) -> list[float]:
    """The numbers of `explain`; none where the policy explains nothing."""
    try:
        rows = decision.explain()
    except fw.errors.InvalidInput:
        return []
    return [x for row in rows for x in row.values() if not isinstance(x, str)]
