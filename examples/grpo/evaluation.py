"""How good a policy is: how likely a problem is answered rightly by one sampled answer."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from model import Params, answer_log_probs
from task import BLANK, PROMPT_TOKENS, SEQUENCE_TOKENS, Problem


def accuracy(params: Params, problems: Sequence[Problem]) -> float:
    """The share of right answers to be expected. It is computed, not sampled: no chance is in it but that of the problems."""
    return float(_accuracy(params, *solved(problems)))


def solved(problems: Sequence[Problem]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Problems with their right answers as tokens, `[rows, SEQUENCE_TOKENS]`, and 1 for each token of these, `[rows, ANSWER_TOKENS]`."""
    tokens = np.full((len(problems), SEQUENCE_TOKENS), BLANK, np.int32)
    for row, problem in enumerate(problems):
        whole = problem.prompt() + problem.answer()
        tokens[row, : len(whole)] = whole
    return tokens, (tokens[:, PROMPT_TOKENS:] != BLANK).astype(np.float32)


@jax.jit
def _accuracy(params: Params, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.exp((answer_log_probs(params, tokens) * mask).sum(axis=1)).mean()
