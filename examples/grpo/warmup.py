"""The start: supervised steps on a small, fixed set of solved problems, until the policy is right about one time in seven.

A policy that never earns a reward has nothing to learn from; one that has seen much has nothing left to learn. The step at which
a network grasps addition differs much by seed, so the warm-up ends by what the policy can do, not by a number of steps.
"""

from __future__ import annotations

import random

import jax

from evaluation import accuracy, solved
from grpo import State, adam, fresh
from model import Params, answer_log_probs, init
from task import draw

SOLVED_PROBLEMS = 2_000
ROWS = 128
ENOUGH = 0.15
MOST_STEPS = 1_000
LOOK_EVERY = 10


def warm_up(seed: int) -> Params:
    """The weights of version 0."""
    rng = random.Random(f"warm-up {seed}")
    known = [draw(rng) for _ in range(SOLVED_PROBLEMS)]
    watched = [draw(rng) for _ in range(256)]
    state = fresh(init(seed))
    for _ in range(MOST_STEPS // LOOK_EVERY):
        for _ in range(LOOK_EVERY):
            state = _step(state, *solved(rng.sample(known, ROWS)))
        if accuracy(state.params, watched) >= ENOUGH:
            return state.params
    raise RuntimeError(f"after {MOST_STEPS} supervised steps seed {seed} is not right in {ENOUGH:.0%} of its answers")


@jax.jit
def _step(state: State, tokens: jax.Array, mask: jax.Array) -> State:
    def loss(params: Params) -> jax.Array:
        return -(answer_log_probs(params, tokens) * mask).sum() / mask.sum()

    stepped: State = adam(state, jax.grad(loss)(state.params))
    return stepped
