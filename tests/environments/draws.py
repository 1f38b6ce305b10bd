"""What the compiled loop asks of an environment: drawing n rounds at once changes nothing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.common import require, same
from fairwolfe.core.kinds import kind_of

ROUNDS = 20


def draws_many_like_one(environment: Any, rng: np.random.Generator) -> None:
    """Raise unless drawing n rounds for the compiled loop is drawing them one by one."""
    arms = hasattr(environment, "reward_program")
    world = environment.init(rng)
    once, many = deepcopy(rng), deepcopy(rng)
    contexts = [environment.context(world, t, once) for t in range(1, ROUNDS + 1)]
    if arms:
        drawn, tags = environment.draw_contexts(world, many, ROUNDS)
    else:
        tags = environment.draw_users(many, ROUNDS)
        drawn = [environment.show(world, user) for user in tags.tolist()]
    require(tags.dtype == np.int64 and tags.shape == (ROUNDS,), "tags are not (n,) int64")
    require(all(map(same, contexts, drawn)), "contexts drawn at once differ from those one by one")
    require(once.random() == many.random(), "contexts leave the generator in another state")
    once, many = deepcopy(rng), deepcopy(rng)
    noise = environment.draw_noise(many, ROUNDS)
    program = environment.reward_program(world) if arms else None
    for t, (context, tag) in enumerate(zip(contexts, tags.tolist(), strict=True)):
        actions = kind_of(environment.problem()).actions(context, rng)
        action = actions[t % len(actions)]
        feedback = environment.feedback(world, context, action, once)
        if program is None:
            tagged = environment.show(world, environment.tag(world, context))
            require(same(context, tagged), f"the context of user {tag} is taken for another's")
            continue
        answer = program.answer(action, tag, context, noise[t])
        plain = environment.mean_reward(world, context, action), feedback
        require(same(answer, plain), f"the kernel's mean and reward {answer} are not {plain}")
        g = rng.standard_normal(feedback.size)
        best = environment.best_action(world, context, g)
        require(program.best_arm(g, tag, context) == best, "the kernel's best arm is another")
    require(once.random() == many.random(), "feedback leaves the generator in another state")
