"""Who gains and who loses: exposure and rewards of groups of items, such as producers, by beta."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff.reachable import Reachable

__all__ = ["by_group", "sentence"]


def by_group(
    reached: Reachable, labels: Iterable[Hashable], betas: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """See `Reachable.by_group`."""
    names = list(labels)
    if len(names) != reached.problem.n_items:
        raise InvalidInput(
            f"there are {len(names)} labels for {reached.problem.n_items} items; give one for each"
        )
    groups = list(dict.fromkeys(names))
    places = np.array([groups.index(name) for name in names])
    sizes = np.bincount(places)
    plain = _sums(reached, 0.0, places)
    rows = []
    for beta in reached.best if betas is None else betas:
        sums = _sums(reached, beta, places)
        shares = sums / np.maximum(sums.sum(axis=0), 1e-300)
        with np.errstate(divide="ignore", invalid="ignore"):
            changes = np.where(plain > 0.0, 100.0 * (sums / plain - 1.0), np.nan)
        for i, group in enumerate(groups):
            rows.append(
                {
                    "group": group,
                    "items": int(sizes[i]),
                    "beta": beta,
                    "exposure": float(sums[i, 0]),
                    "exposure_share": float(shares[i, 0]),
                    "exposure_change_percent": _or_none(changes[i, 0]),
                    "utility": float(sums[i, 1]),
                    "utility_share": float(shares[i, 1]),
                    "utility_change_percent": _or_none(changes[i, 1]),
                }
            )
    return rows


def _sums(reached: Reachable, beta: float, places: Any) -> Matrix:
    """(exposure, utility) of each group, means over seeds."""
    known = [best.by_item for best in reached.best[beta]]
    if any(part is None for part in known):
        raise InvalidInput(
            f"who has what is not known for {reached.items}: its optimum is computed without the "
            "rankings behind it; use an objective with a proximal map, such as GiniWelfare()"
        )
    parts = [part for part in known if part is not None]
    items = np.mean([np.column_stack([part[:, 0], part[:, 1:].sum(axis=1)]) for part in parts], 0)
    sums = np.zeros((places.max() + 1, 2))
    np.add.at(sums, places, items)
    return sums


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def sentence(rows: list[dict[str, Any]], beta: float, what: str = "groups") -> str:
    """How many gain and lose exposure at a beta, and who most, beside beta = 0."""
    plain = {row["group"]: row["exposure"] for row in rows if row["beta"] == 0.0}
    moves = {
        row["group"]: row["exposure"] - plain[row["group"]] for row in rows if row["beta"] == beta
    }
    slack = 0.01 * sum(plain.values()) / len(plain)
    gains = sorted((g for g in moves if moves[g] > slack), key=lambda g: -moves[g])
    losses = sorted((g for g in moves if moves[g] < -slack), key=lambda g: moves[g])
    parts = []
    for verb, who in (("gain", gains), ("lose", losses)):
        most = f", most of all {who[0]} ({moves[who[0]]:+.2g} a ranking)" if who else ""
        parts.append(f"{len(who)} {verb}{most}")
    return (
        f"Of {len(plain)} {what}, {parts[0]}; {parts[1]}: exposure with beta = {beta:.3g} beside "
        "that with beta = 0."
    )
