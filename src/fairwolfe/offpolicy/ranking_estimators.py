"""Estimators for rankings: whole rankings, items by position, and exposures of items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.arrays import Cube, IntMatrix, Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import LoggedRankings
from fairwolfe.offpolicy.sums import About, Source, facts_of

if TYPE_CHECKING:
    from fairwolfe.offpolicy.estimators import Side

RANKING_ESTIMATORS = ("exposure", "position", "ips", "snips")

_ROUNDING = 1e-6
_UNSEEN = 0.01  # of the exposure of a policy that may be on items that were never exposed
_STEP = 1e-4  # relative, of the differences that say how estimates depend on the slots' exposures

AtRank = Callable[[slice, LoggedRankings], Cube]
"""P(item i in slot j) of a policy, (rows, m, k), for the decisions of a span, which are a chunk."""

Match = Callable[[slice, LoggedRankings], Vector]
"""The probability of the logged ranking under a policy, (rows,), for the same."""


# --- policies ------------------------------------------------------------------------------------


def at_rank_of(policy: Any, about: About) -> AtRank:
    """The item-at-rank probabilities of what is given as a policy."""
    m, k, n = _sizes(about)
    if hasattr(policy, "at_rank"):
        return lambda span, chunk: policy.at_rank(_users(chunk), chunk.candidates)
    shown = _lists(policy, about)
    if shown is not None:
        return lambda span, chunk: _one_hot(shown(span, chunk), m)
    values = (
        np.asarray(policy, dtype=np.float64) if isinstance(policy, (list, np.ndarray)) else None
    )
    if values is None or values.shape != (n, m, k):
        raise InvalidInput(
            f"the policy is {policy!r:.60}; for rankings give rankings ({n}, {k}), item-at-rank "
            f"probabilities ({n}, {m}, {k}), a function of a user, or an agent"
        )
    sums, low = values.sum(axis=1), values.min()
    if not (np.isfinite(values).all() and low >= 0.0 and np.abs(sums - 1.0).max() < _ROUNDING):
        raise InvalidInput(
            "the policy's item-at-rank probabilities are not: they have to be at least 0 and sum "
            "to 1 over the items of every slot"
        )
    if values.sum(axis=2).max() > 1.0 + _ROUNDING:
        raise InvalidInput(
            "the policy shows an item in two slots at once: sums over slots exceed 1"
        )
    return lambda span, chunk: values[span]


def _sizes(about: About) -> tuple[int, int, int]:
    """m items, k slots, n decisions."""
    return about.problem.n_items or 0, about.problem.n_slots or 0, about.n


def _users(chunk: LoggedRankings) -> Matrix:
    if chunk.users is None:
        raise InvalidInput("the log has no users, and the policy is a function of them")
    return chunk.users


def _lists(policy: Any, about: About) -> Callable[[slice, LoggedRankings], IntMatrix] | None:
    """The rankings (rows, k) of a policy that has one for each decision; None for others."""
    m, k, n = _sizes(about)
    values: Any = None
    if isinstance(policy, Agent):
        if getattr(getattr(policy.policy, "base", None), "randomize", None) != 0.0:
            raise InvalidInput(
                f"{policy.policy!r:.80} draws its rankings; give an agent of a ranker with "
                "randomize=0, or item-at-rank probabilities"
            )
    elif isinstance(policy, (list, np.ndarray)) and np.ndim(policy) == 2:
        values = np.asarray(policy)
        if values.dtype.kind not in "iu":
            return None
        _check_lists(values, n, m, k)
    elif not callable(policy):
        return None

    def made(span: slice, chunk: LoggedRankings) -> Any:
        if values is not None:
            return values[span]
        if isinstance(policy, Agent):
            return _of_agent(chunk, policy)
        users = enumerate(_users(chunk))
        return np.array([_ranking_of(policy, user, span.start + i, k) for i, user in users])

    def lists(span: slice, chunk: LoggedRankings) -> IntMatrix:
        shown = made(span, chunk)
        _check_lists(shown, chunk.n, m, k)
        if chunk.candidates is not None:
            there = np.take_along_axis(chunk.candidates, shown, axis=1)
            if not there.all():
                row = span.start + int(np.argwhere(~there)[0][0])
                raise InvalidInput(
                    f"decision {row}: the policy shows an item that was not a candidate"
                )
        return np.asarray(shown, dtype=np.int64)

    return lists


def _check_lists(shown: Any, n: int, m: int, k: int) -> None:
    fits = shown.shape == (n, k) and shown.min() >= 0 and shown.max() < m
    if not fits or (np.diff(np.sort(shown, axis=1), axis=1) == 0).any():
        raise InvalidInput(
            f"the policy gives rankings of shape {shown.shape}; give different items from 0 to "
            f"{m - 1} for each of {k} slots, a ranking for each of {n} decisions"
        )


def _ranking_of(policy: Callable[[Any], Any], user: Vector, i: int, k: int) -> Any:
    ranking = np.asarray(policy(user))
    if ranking.shape != (k,) or ranking.dtype.kind not in "iu":
        raise InvalidInput(
            f"decision {i}: the policy returns {ranking!s:.60}; give {k} items, best slot first"
        )
    return ranking


def _of_agent(chunk: LoggedRankings, agent: Agent) -> Any:
    """What an agent would show now, all from its current state; nothing changes."""
    allowed = chunk.candidates
    some = None if allowed is None else [np.flatnonzero(row).tolist() for row in allowed]
    rows = np.ascontiguousarray(_users(chunk))
    proposed: Any = agent.propose(rows, False, candidates=some, explain=False)
    return proposed.actions


def _one_hot(shown: IntMatrix, m: int) -> Cube:
    n, k = shown.shape
    out = np.zeros((n, m, k))
    out[np.arange(n)[:, None], shown, np.arange(k)] = 1.0
    return out


def match_of(policy: Any, about: About) -> Match:
    """The probabilities of the logged rankings under what is given as a policy."""
    if isinstance(policy, np.ndarray) and policy.shape == (about.n,) and policy.dtype.kind == "f":
        if not (np.isfinite(policy).all() and policy.min() >= 0.0 and policy.max() <= 1.0 + 1e-9):
            raise InvalidInput(
                "the policy's probabilities of the logged rankings are not in [0, 1]"
            )
        return lambda span, chunk: policy[span]
    shown = _lists(policy, about)
    if shown is None:
        raise InvalidInput(
            "whole rankings are weighed by the probability of each under the policy: give that, "
            f"({about.n},) numbers from 0 to 1, or one ranking for each decision"
        )
    return lambda span, chunk: (shown(span, chunk) == chunk.rankings).all(axis=1).astype(np.float64)


# --- estimators ----------------------------------------------------------------------------------


def whole_weights(side: Side, about: About, span: slice, chunk: LoggedRankings) -> Vector:
    """The weights (n,) of whole rankings."""
    return np.asarray(side.target(about, match_of)(span, chunk) / chunk.probability)


def ranking_rows(
    side: Side, about: About, span: slice, chunk: LoggedRankings
) -> tuple[Matrix, Vector]:
    """The rows (n, m + R) of an estimator, and the weights (n,)."""
    if side.estimator in ("ips", "snips"):
        w = whole_weights(side, about, span, chunk)
        return side.weighted(w, chunk.totals()), w
    if chunk.at_rank is None:
        raise InvalidInput(
            f"{side.estimator!r} needs the probability of every item in every slot, and the log "
            "has none: log them as `probabilities` (items, slots), or use 'ips' or 'snips', which "
            "weigh whole rankings"
        )
    target: AtRank = side.target(about, at_rank_of)
    if side.estimator == "exposure":
        ratio: ExposureRatio = side.ratio
        return ratio.rows(target(span, chunk), chunk)
    logged = _at_shown(chunk.at_rank, chunk.rankings)
    if not (logged > 0.0).all():
        raise InvalidInput(
            "an item was shown in a slot where its logged probability is 0; see log.check()"
        )
    by_slot = _at_shown(target(span, chunk), chunk.rankings) / logged
    return chunk.totals(by_slot), by_slot.mean(axis=1)


def _at_shown(values: Cube, rankings: IntMatrix) -> Matrix:
    """values (rows, m, k) at the item that each slot showed, (rows, k)."""
    n, k = rankings.shape
    return values[np.arange(n)[:, None], rankings, np.arange(k)]


def _ratio_parts(target: Cube, chunk: LoggedRankings, b: Vector) -> tuple[Any, Any, Any]:
    """U (rows, m), V (rows, m, R) and W (rows, m) of decisions, for exposures b (k,) of slots."""
    assert chunk.at_rank is not None
    new, old, shown = target @ b, chunk.at_rank @ b, chunk.rankings
    ratio = np.take_along_axis(new, shown, axis=1) / np.maximum(
        np.take_along_axis(old, shown, axis=1), 1e-300
    )
    w, v = np.zeros(new.shape), np.zeros((*new.shape, chunk.rewards.shape[2]))
    np.put_along_axis(w, shown, ratio * chunk.exposed, axis=1)
    v[np.arange(len(shown))[:, None], shown] = ratio[:, :, None] * chunk.rewards
    return new, v, w


class RatioSums(NamedTuple):
    """Of U (B, m), V (B, m, R) and W (B, m), for B exposures of the slots."""

    u: Matrix
    v: Cube
    w: Matrix


@dataclass(frozen=True, eq=False)
class RatioParts:
    """Those sums; exposures (B, k)."""

    side: Side
    exposures: Matrix

    def sums(self, about: About, span: slice, chunk: LoggedRankings) -> RatioSums:
        """Of one chunk."""
        if chunk.at_rank is None:
            ranking_rows(self.side, about, span, chunk)  # which raises
        target = self.side.target(about, at_rank_of)(span, chunk)
        each = [_ratio_parts(target, chunk, b) for b in self.exposures]
        u, v, w = (
            np.array([part.sum(axis=0) for part in parts]) for parts in zip(*each, strict=True)
        )
        return RatioSums(u, v, w)


class ExposureRatio(NamedTuple):
    """The estimator of exposures: the means U (m,), V (m, R) and W (m,) for the exposures b (k,) of
    the slots, the estimate z (m + R,), and its slopes (m + R, k) in b.
    """

    b: Vector
    u: Vector
    v: Matrix
    w: Vector
    z: Vector
    slopes: Matrix

    def rows(self, target: Cube, chunk: LoggedRankings) -> tuple[Matrix, Vector]:
        """z and the influence of each decision on it, and the weights."""
        u, v, w = _ratio_parts(target, chunk, self.b)
        safe = np.where(self.w > 0.0, self.w, 1.0)  # V is 0 where W is
        share, level = self.u / safe, self.v / safe[:, None]
        rewards = np.einsum("nm,mr->nr", u - self.u, level)
        rewards += np.einsum("m,nmr->nr", share, v - self.v)
        rewards -= np.einsum("nm,mr->nr", (w - self.w) * share, level)
        influence = np.hstack([u - self.u, rewards])
        rows = self.z + influence + (chunk.exposed - self.b) @ self.slopes.T
        return rows, w.sum(axis=1) / self.b.sum()


def _estimates(sums: RatioSums) -> Matrix:
    """z (B, m + R)."""
    safe = np.where(sums.w > 0.0, sums.w, 1.0)
    rewards = ((sums.u / safe)[:, :, None] * sums.v).sum(axis=1)
    return np.hstack([sums.u, rewards])


def exposure_ratio(source: Source, side: Side) -> ExposureRatio:
    """The sums of the exposure estimator over the whole log."""
    n = source.about.n
    b = facts_of(source).exposed / n
    if not (b > 0.0).any():
        raise InvalidInput("nothing was ever exposed, so no exposures can be compared")
    steps = np.diag(_STEP * np.maximum(b, b.max() * _STEP))
    sums = source.total(RatioParts(side, np.vstack([b, b + steps, b - steps])))
    means = RatioSums(*(part / n for part in sums))
    unseen = float(means.u[0][means.w[0] <= 0.0].sum() / means.u[0].sum())
    if unseen > _UNSEEN:
        raise InvalidInput(
            f"{unseen:.0%} of the policy's exposure is on items that the log never exposed where "
            "the policy shows them: there is no overlap, and nothing is known of their rewards"
        )
    z = _estimates(means)
    ahead, behind = z[1 : 1 + b.size], z[1 + b.size :]
    slopes = ((ahead - behind) / (2.0 * np.diag(steps))[:, None]).T
    return ExposureRatio(b, means.u[0], means.v[0], means.w[0], z[0], slopes)
