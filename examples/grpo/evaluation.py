"""How good a policy is: the share of problems that it answers rightly when it samples once."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from model import Params
from sampling import Weights, sample
from task import Problem, is_right


def accuracy(params: Params, problems: Sequence[Problem]) -> float:
    """The share of right answers, always with the same random numbers."""
    weights = Weights(0, params)
    samples = sample(problems, jax.random.key(0), lambda: weights)
    return sum(is_right(problem, samples.answer(row)) for row, problem in enumerate(problems)) / len(problems)
