"""Estimators for rankings: whole rankings, items by position, and exposures of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.core.arrays import Cube, IntMatrix, Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import LoggedRankings
from fairwolfe.offpolicy.estimators import EstimatorRows, Weights, different

RANKING_ESTIMATORS = ("exposure", "position", "ips", "snips")

_ROUNDING = 1e-6
_UNSEEN = 0.01  # of the exposure of a policy that may be on items that were never exposed
_STEP = 1e-4  # relative, of the differences that say how estimates depend on the slots' exposures

AtRank = Callable[[slice], Cube]
"""P(item i in slot j) of a policy, (rows, m, k), for the decisions of a span."""


def ranking_rows(data: LoggedRankings, policy: Any, estimator: str) -> EstimatorRows:
    """The rows of an estimator."""
    if estimator not in RANKING_ESTIMATORS:
        raise InvalidInput(
            f"the estimator is {estimator!r}; for rankings give one of "
            f"{', '.join(RANKING_ESTIMATORS)}"
        )
    if estimator in ("ips", "snips"):
        return _whole(data, _match(data, policy), estimator)
    if data.at_rank is None:
        raise InvalidInput(
            f"{estimator!r} needs the probability of every item in every slot, and the log has "
            "none: log them as `probabilities` (items, slots), or use 'ips' or 'snips', which "
            "weigh whole rankings"
        )
    target = _at_rank(data, policy)
    return _position(data, target) if estimator == "position" else _exposure(data, target)


# --- policies ------------------------------------------------------------------------------------


def _at_rank(data: LoggedRankings, policy: Any) -> AtRank:
    m, k = data.sizes
    if hasattr(policy, "at_rank"):
        return lambda span: policy.at_rank(_users(data)[span], _allowed(data, span))
    shown = _lists(data, policy)
    if shown is not None:
        return lambda span: _one_hot(shown[span], m)
    values = (
        np.asarray(policy, dtype=np.float64) if isinstance(policy, (list, np.ndarray)) else None
    )
    if values is None or values.shape != (data.n, m, k):
        raise InvalidInput(
            f"the policy is {policy!r:.60}; for rankings give rankings ({data.n}, {k}), "
            f"item-at-rank probabilities ({data.n}, {m}, {k}), a function of a user, or an agent"
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
    return lambda span: values[span]


def _users(data: LoggedRankings) -> Matrix:
    if data.users is None:
        raise InvalidInput("the log has no users, and the policy is a function of them")
    return data.users


def _allowed(data: LoggedRankings, span: slice) -> Any:
    return None if data.candidates is None else data.candidates[span]


def _lists(data: LoggedRankings, policy: Any) -> IntMatrix | None:
    """The rankings (n, k) of a policy that has one for each decision; None for others."""
    m, k = data.sizes
    if isinstance(policy, Agent):
        shown = _of_agent(data, policy)
    elif callable(policy):
        shown = np.array([_ranking_of(policy, user, i, k) for i, user in enumerate(_users(data))])
    elif isinstance(policy, (list, np.ndarray)) and np.ndim(policy) == 2:
        shown = np.asarray(policy)
        if shown.dtype.kind not in "iu":
            return None
    else:
        return None
    fits = shown.shape == (data.n, k) and shown.min() >= 0 and shown.max() < m
    if not fits or (np.diff(np.sort(shown, axis=1), axis=1) == 0).any():
        raise InvalidInput(
            f"the policy gives rankings of shape {shown.shape}; give different items from 0 to "
            f"{m - 1} for each of {k} slots, a ranking for each of {data.n} decisions"
        )
    if data.candidates is not None:
        there = np.take_along_axis(data.candidates, shown, axis=1)
        if not there.all():
            row = int(np.argwhere(~there)[0][0])
            raise InvalidInput(f"decision {row}: the policy shows an item that was not a candidate")
    return np.asarray(shown, dtype=np.int64)


def _ranking_of(policy: Callable[[Any], Any], user: Vector, i: int, k: int) -> Any:
    ranking = np.asarray(policy(user))
    if ranking.shape != (k,) or ranking.dtype.kind not in "iu":
        raise InvalidInput(
            f"decision {i}: the policy returns {ranking!s:.60}; give {k} items, best slot first"
        )
    return ranking


def _of_agent(data: LoggedRankings, agent: Agent) -> Any:
    """What an agent would show now, all from its current state; nothing changes."""
    base = getattr(agent.policy, "base", None)
    if getattr(base, "randomize", None) != 0.0:
        raise InvalidInput(
            f"{agent.policy!r:.80} draws its rankings; give an agent of a ranker with randomize=0, "
            "or item-at-rank probabilities"
        )
    users, shown = _users(data), np.empty(data.rankings.shape, dtype=np.int64)
    for span in data.chunks():
        allowed = _allowed(data, span)
        some = None if allowed is None else [np.flatnonzero(row).tolist() for row in allowed]
        rows = np.ascontiguousarray(users[span])
        proposed: Any = agent.propose(rows, False, candidates=some, explain=False)
        shown[span] = proposed.actions
    return shown


def _one_hot(shown: IntMatrix, m: int) -> Cube:
    n, k = shown.shape
    out = np.zeros((n, m, k))
    out[np.arange(n)[:, None], shown, np.arange(k)] = 1.0
    return out


def _match(data: LoggedRankings, policy: Any) -> Vector:
    """The probability of the logged ranking under a policy."""
    if isinstance(policy, np.ndarray) and policy.shape == (data.n,) and policy.dtype.kind == "f":
        if not (np.isfinite(policy).all() and policy.min() >= 0.0 and policy.max() <= 1.0 + 1e-9):
            raise InvalidInput(
                "the policy's probabilities of the logged rankings are not in [0, 1]"
            )
        return policy
    shown = _lists(data, policy)
    if shown is None:
        raise InvalidInput(
            "whole rankings are weighed by the probability of each under the policy: give that, "
            f"({data.n},) numbers from 0 to 1, or one ranking for each decision"
        )
    return np.asarray((shown == data.rankings).all(axis=1), dtype=np.float64)


# --- estimators ----------------------------------------------------------------------------------


def _estimator_rows(
    data: LoggedRankings, rows: Callable[[], Iterator[Matrix]], w: Vector
) -> EstimatorRows:
    seen = different(w, data.rewards.sum(axis=1), data.sizes[0])
    return EstimatorRows(rows, Weights.of(w), seen)


def _whole(data: LoggedRankings, chance: Vector, estimator: str) -> EstimatorRows:
    w = chance / data.probability
    if not w.any():
        raise InvalidInput(
            "no ranking that was logged has a positive probability under the policy: there is no "
            "overlap; weigh exposures instead (estimator='exposure'), for which item-at-rank "
            "probabilities are logged"
        )
    totals = data.totals()
    z = (w[:, None] * totals).sum(axis=0) / (w.sum() if estimator == "snips" else data.n)

    def rows() -> Iterator[Matrix]:
        for span in data.chunks():
            own = w[span, None]
            if estimator == "ips":
                yield own * totals[span]
            else:
                yield z + own * (totals[span] - z) / w.mean()

    return _estimator_rows(data, rows, w)


def _at_shown(values: Cube, rankings: IntMatrix) -> Matrix:
    """values (rows, m, k) at the item that each slot showed, (rows, k)."""
    n, k = rankings.shape
    return values[np.arange(n)[:, None], rankings, np.arange(k)]


def _position(data: LoggedRankings, target: AtRank) -> EstimatorRows:
    w = np.empty(data.rankings.shape)
    for span in data.chunks():
        shown = data.rankings[span]
        assert data.at_rank is not None
        logged = _at_shown(data.at_rank[span], shown)
        if not (logged > 0.0).all():
            raise InvalidInput(
                "an item was shown in a slot where its logged probability is 0; see log.check()"
            )
        w[span] = _at_shown(target(span), shown) / logged
    if not w.any():
        raise InvalidInput("the policy shows no item where the log did: there is no overlap")

    def rows() -> Iterator[Matrix]:
        return (data.totals(w[span], span) for span in data.chunks())

    return _estimator_rows(data, rows, w.mean(axis=1))


class _Ratios:
    """The exposure estimator for given exposures b (k,) of the slots."""

    def __init__(self, data: LoggedRankings, target: AtRank, b: Vector) -> None:
        self.data, self.target, self.b = data, target, b
        m, r = data.sizes[0], data.rewards.shape[2]
        self.u, self.v, self.w = np.zeros(m), np.zeros((m, r)), np.zeros(m)
        for span in data.chunks():
            u, v, w = self.parts(span)
            self.u += u.sum(axis=0)
            self.v += v.sum(axis=0)
            self.w += w.sum(axis=0)
        self.u, self.v, self.w = self.u / data.n, self.v / data.n, self.w / data.n
        self.safe = np.where(self.w > 0.0, self.w, 1.0)  # V is 0 where W is
        rewards = ((self.u / self.safe)[:, None] * self.v).sum(axis=0)
        self.z = np.concatenate([self.u, rewards])

    def parts(self, span: slice) -> tuple[Any, Any, Any]:
        """U (rows, m), V (rows, m, R) and W (rows, m) of decisions."""
        data = self.data
        assert data.at_rank is not None
        new, old = self.target(span) @ self.b, data.at_rank[span] @ self.b
        shown = data.rankings[span]
        ratio = np.take_along_axis(new, shown, axis=1) / np.maximum(
            np.take_along_axis(old, shown, axis=1), 1e-300
        )
        w, v = np.zeros(new.shape), np.zeros((*new.shape, data.rewards.shape[2]))
        np.put_along_axis(w, shown, ratio * data.exposed[span], axis=1)
        rows = np.arange(len(shown))[:, None]
        v[rows, shown] = ratio[:, :, None] * data.rewards[span]
        return new, v, w

    def influence(self, span: slice) -> Matrix:
        """Rows (rows, m + R) of mean about 0, b taken as known."""
        u, v, w = self.parts(span)
        share = self.u / self.safe
        level = self.v / self.safe[:, None]
        rewards = np.einsum("nm,mr->nr", u - self.u, level)
        rewards += np.einsum("m,nmr->nr", share, v - self.v)
        rewards -= np.einsum("nm,mr->nr", (w - self.w) * share, level)
        return np.hstack([u - self.u, rewards])


def _exposure(data: LoggedRankings, target: AtRank) -> EstimatorRows:
    b = data.exposed.mean(axis=0)
    if not (b > 0.0).any():
        raise InvalidInput("nothing was ever exposed, so no exposures can be compared")
    ratios = _Ratios(data, target, b)
    unseen = float(ratios.u[ratios.w <= 0.0].sum() / ratios.u.sum())
    if unseen > _UNSEEN:
        raise InvalidInput(
            f"{unseen:.0%} of the policy's exposure is on items that the log never exposed where "
            "the policy shows them: there is no overlap, and nothing is known of their rewards"
        )
    slopes = np.empty((ratios.z.size, b.size))  # of z in the exposures of the slots
    for j in range(b.size):
        step = np.zeros(b.size)
        step[j] = _STEP * max(b[j], b.max() * _STEP)
        ahead, behind = (_Ratios(data, target, b + s).z for s in (step, -step))
        slopes[:, j] = (ahead - behind) / (2.0 * step[j])

    def rows() -> Iterator[Matrix]:
        for span in data.chunks():
            yield ratios.z + ratios.influence(span) + (data.exposed[span] - b) @ slopes.T

    w = np.concatenate([ratios.parts(span)[2].sum(axis=1) for span in data.chunks()]) / b.sum()
    return _estimator_rows(data, rows, w)
