# cython: language_level=3
"""The probabilities of all arms under a rule, from what it says of the arm that it chooses."""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.fairwolfe.kernels.ridge import Linear, Regression
from cython.cimports.fairwolfe.kernels.rules import Choose, choose_by_name
from cython.cimports.fairwolfe.kernels.types import Doubles, Real, Size
from cython.cimports.libc.math import fabs

from fairwolfe.kernels.rules import choose

if not cython.compiled:
    raise ImportError("the kernels are not built; run `make build`")

__all__ = ["distributions"]


def distributions(
    name: str,
    model: Regression,
    direction: cython.const[cython.double][::1],  # type: ignore[valid-type]
    features: cython.const[cython.double][:, :, ::1],  # type: ignore[valid-type]
    per_arm: cython.bint,
    uniforms: Size,
    params: cython.const[cython.double][::1],  # type: ignore[valid-type]
    out: cython.double[:, ::1],
) -> int:
    """The probabilities of all arms, row by row: each call of the rule reveals the arm that a
    uniform number falls on, and its probability, which is where the next arm begins.

    0, or -1 - row where the rule does not say its probabilities. name: of a rule, see
    `rules.choose`; direction (n,), features (rows, arms or 1, d), uniforms: how many numbers the
    rule draws; out (rows, arms). Cost: the rule, at most once for each arm of each row.
    """
    rule: Choose = choose_by_name(name)
    own: cython.pointer[Linear] = cython.address(model.own)
    rows: Size = out.shape[0]
    arms: Size = out.shape[1]
    s: Size
    a: Size
    _: Size
    arm: Size
    wrong: Size = 0
    total: Real
    report: Real = 0.0
    if features.shape[0] != rows or arms != (own.blocks if per_arm else features.shape[1]):
        raise ValueError(
            f"features ({features.shape[0]}, {features.shape[1]}, {features.shape[2]}) of "
            f"{own.blocks} blocks, out ({rows}, {arms})"
        )
    if rows == 0:
        return 0
    drawn = np.zeros(max(uniforms, 1))
    choose(name, model, direction, features[0], per_arm, drawn, params)  # which checks all sizes
    draws: cython.double[::1] = drawn
    scores: cython.double[::1] = np.empty(arms)
    given: Doubles = cython.address(params[0]) if params.shape[0] > 0 else cython.NULL
    with cython.nogil:
        for s in range(rows):
            for a in range(arms):
                out[s, a] = 0.0
            total = 0.0
            for _ in range(arms):
                # A step into the next arm, whatever rounding made of the sum; less likely arms
                # count as 0.
                draws[0] = min(total + 1e-12, 1.0 - 1e-15)
                arm = rule(
                    own,
                    cython.address(direction[0]),
                    direction.shape[0],
                    cython.address(features[s, 0, 0]),
                    arms,
                    features.shape[2],
                    per_arm,
                    cython.address(draws[0]),
                    given,
                    params.shape[0],
                    cython.address(scores[0]),
                    cython.address(report),
                )
                if arm < 0 or arm >= arms or not report > 0.0:
                    wrong = -1 - s
                    break
                if out[s, arm] > 0.0:  # rounding has found it again
                    break
                out[s, arm] = report
                total += report
                if uniforms == 0 or total >= 1.0 - 2e-12:
                    break
            if wrong < 0:
                break
            if not fabs(total - 1.0) < 1e-6:
                wrong = -1 - s
                break
    return wrong
