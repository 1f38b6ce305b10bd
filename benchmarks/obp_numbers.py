"""Numbers of the Open Bandit Pipeline (OBP) itself, for a test that needs none of it.

OBP 0.5.7 pins versions that this package cannot live with, so that it has an environment of its
own; its own pins cannot be met on Python 3.11 either, and newer versions do:

    python -m venv obp && obp/bin/pip install --no-deps --ignore-requires-python obp==0.5.7
    obp/bin/pip install "numpy<2" "scipy<1.13" "scikit-learn<1.5" "pandas<2.3" matplotlib seaborn \
        pyyaml tqdm mypy-extensions pingouin "setuptools<81" torch
    obp/bin/python benchmarks/obp_numbers.py tests/offpolicy/obp_numbers.json

The file holds the logged data (200 decisions), the policy, the predictions of OBP's own
cross-fitted regression, and what OBP estimates from them.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import obp
from obp.dataset import SyntheticBanditDataset, linear_behavior_policy, logistic_reward_function
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    InverseProbabilityWeighting,
    RegressionModel,
    SelfNormalizedInverseProbabilityWeighting,
)
from sklearn.linear_model import LogisticRegression


def main(path: str) -> None:
    dataset = SyntheticBanditDataset(
        n_actions=4,
        dim_context=3,
        reward_type="binary",
        reward_function=logistic_reward_function,
        behavior_policy_function=linear_behavior_policy,
        random_state=12345,
    )
    feedback = dataset.obtain_batch_bandit_feedback(n_rounds=200)
    rng = np.random.default_rng(1)
    policy = rng.dirichlet(np.ones(4), 200)[:, :, None]
    model = RegressionModel(n_actions=4, base_model=LogisticRegression(C=100, random_state=12345))
    predicted = model.fit_predict(
        context=feedback["context"],
        action=feedback["action"],
        reward=feedback["reward"],
        n_folds=2,
        random_state=12345,
    )
    common = {
        "reward": feedback["reward"],
        "action": feedback["action"],
        "pscore": feedback["pscore"],
        "action_dist": policy,
    }
    found = {
        "ips": InverseProbabilityWeighting().estimate_policy_value(**common),
        "snips": SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**common),
        "dr": DoublyRobust().estimate_policy_value(
            **common, estimated_rewards_by_reg_model=predicted
        ),
        "dm": DirectMethod().estimate_policy_value(
            action_dist=policy, estimated_rewards_by_reg_model=predicted
        ),
    }
    kept = {
        "obp": obp.__version__,
        "n_actions": 4,
        "context": feedback["context"].tolist(),
        "action": feedback["action"].tolist(),
        "reward": feedback["reward"].tolist(),
        "pscore": feedback["pscore"].tolist(),
        "policy": policy[:, :, 0].tolist(),
        "predicted": predicted[:, :, 0].tolist(),
        "found": {name: float(value) for name, value in found.items()},
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kept, file)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
