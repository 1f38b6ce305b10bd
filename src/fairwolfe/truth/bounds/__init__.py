"""The paper's regret bounds as numbers, as corrected, for a problem, an objective and a horizon.

`of(policy, problem, horizon)` chooses the theorem for a policy. The rest are the theorems and
lemmas themselves: keyword arguments in, a bound on R_T out (the ``..._scalar`` ones: on the scalar
regret, not divided by T). All of them take ``**given``:

- `problem`: a Problem, or an environment, which also declares whether its rewards are bounded;
- `objective`: f;
- `horizon`: T, or an array of them, which gives an array;
- `tight=True`: the sharpest constants that the same proofs allow (not for orders of magnitude);
- `lipschitz`: a Lipschitz constant of f that you know, in place of the objective's own.

Where an assumption fails, OutsideAssumptions names it.

The bounds are 50 to 500 times what is measured in a run, and are useless for large worlds before
very many rounds: `first_useful` gives the first T at which a bound beats drawing arms uniformly.

>>> import numpy as np
>>> from fairwolfe.bandits import LinUCB
>>> from fairwolfe.environments import Finite
>>> from fairwolfe.objectives import Minimum
>>> from fairwolfe.reduction import FrankWolfe
>>> policy, world = FrankWolfe(Minimum(), LinUCB()), Finite.a2()
>>> of(policy, world, np.array([1e4, 1e5, 1e6]), tight=True).round(3).tolist()
[0.649, 0.242, 0.088]
"""

from fairwolfe.truth.bounds.arms import (
    linucb,
    linucb_scalar,
    squarecb,
    squarecb_scalar,
    table_linucb,
    table_squarecb,
)
from fairwolfe.truth.bounds.choosing import first_useful, of, uniform_regret
from fairwolfe.truth.bounds.delay import delay_cost
from fairwolfe.truth.bounds.hindsight import best_sequence, deviation, stationary
from fairwolfe.truth.bounds.rankings import linucb_rank, linucb_rank_scalar
from fairwolfe.truth.bounds.reduction import (
    azuma,
    fixed_smoothing,
    moreau,
    nonsmooth,
    randomized,
    reduction,
    smooth,
)

__all__ = [
    "azuma",
    "best_sequence",
    "delay_cost",
    "deviation",
    "first_useful",
    "fixed_smoothing",
    "linucb",
    "linucb_rank",
    "linucb_rank_scalar",
    "linucb_scalar",
    "moreau",
    "nonsmooth",
    "of",
    "randomized",
    "reduction",
    "smooth",
    "squarecb",
    "squarecb_scalar",
    "stationary",
    "table_linucb",
    "table_squarecb",
    "uniform_regret",
]
