"""The learning: a clipped policy gradient, gathered piece by piece, and Adam. Knows no ledger and no files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from model import Params, answer_log_probs
from sampling import Floats, Ints, Samples

LEARNING_RATE = 1e-3
RAMP = 20
"""The first steps are smaller: Adam's means know nothing yet."""

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""How far below and above 1 the ratio to the behaviour policy still moves the weights."""

LARGEST_GRADIENT = 1.0
"""A gradient of a greater norm is scaled down to it."""

DECAY, SQUARE_DECAY = 0.9, 0.99


@dataclass(frozen=True)
class State:
    """What training goes on from: the weights and Adam's means, after `version` steps."""

    version: int
    params: Params
    mean: Params
    square: Params


def fresh(params: Params) -> State:
    """The state before the first step."""
    return State(0, params, _zeros(params), _zeros(params))


def _zeros(like: Params) -> Params:
    return {name: jnp.asarray(np.zeros(each.shape, np.float32)) for name, each in like.items()}


@jax.jit
def adam(state: State, gradient: Params) -> State:
    """The state after one step against this gradient."""
    step = state.version + 1
    norm = jnp.sqrt(sum(jnp.vdot(each, each) for each in gradient.values()))
    scale = jnp.minimum(1.0, LARGEST_GRADIENT / (norm + 1e-8))
    scaled = jax.tree.map(lambda each: scale * each, gradient)
    mean = jax.tree.map(lambda old, new: DECAY * old + (1 - DECAY) * new, state.mean, scaled)
    square = jax.tree.map(lambda old, new: SQUARE_DECAY * old + (1 - SQUARE_DECAY) * new**2, state.square, scaled)

    rate = LEARNING_RATE * jnp.minimum(1.0, step / RAMP)

    def moved(value: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        unbiased, unbiased_square = mean / (1 - DECAY**step), square / (1 - SQUARE_DECAY**step)
        return value - rate * unbiased / (jnp.sqrt(unbiased_square) + 1e-8)

    return State(step, jax.tree.map(moved, state.params, mean, square), mean, square)


jax.tree_util.register_dataclass(State)


@partial(jax.value_and_grad, has_aux=True)
def _loss(
    params: Params, tokens: jax.Array, mask: jax.Array, behaviour: jax.Array, advantages: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sum over the answers' tokens, and the log of each token's ratio to the policy that sampled it."""
    log_ratio = answer_log_probs(params, tokens) - behaviour
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH)
    gain = jnp.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    return -(gain * mask).sum(), log_ratio * mask


# One program for a piece and one for a step: many small ones cost more to compile, and to start, than they compute.


@jax.jit
def _gathered(
    params: Params, so_far: Params, tokens: jax.Array, mask: jax.Array, behaviour: jax.Array, advantages: jax.Array
) -> tuple[Params, jax.Array]:
    """The gradient with that of this piece added, and the piece's log-ratios."""
    (_, log_ratio), gradient = _loss(params, tokens, mask, behaviour, advantages)
    return jax.tree.map(jnp.add, so_far, gradient), log_ratio


@jax.jit
def _stepped(state: State, gradient: Params, rows: int) -> State:
    made: State = adam(state, jax.tree.map(lambda each: each / rows, gradient))
    return made


@dataclass(frozen=True)
class Staleness:
    """The tokens of one staleness in a batch: how many, and how far the policy has moved away from the one that sampled them."""

    tokens: int
    mean_log_ratio: float
    """The mean of the absolute log-ratio."""

    clipped: float
    """The share outside the clip range."""


class Gathering:
    """The gradient of one batch, piece by piece. Pieces of the same rows in the same order give the same bits."""

    def __init__(self, state: State, rows: int) -> None:
        """`rows` is the most that a piece has: shorter ones are filled up, so that there is one shape to compile for."""
        self._state = state
        self._rows = rows
        self._gradient = _zeros(state.params)
        self._seen = 0
        self._log_ratios: list[Floats] = []
        self._staleness: list[Ints] = []

    def add(self, samples: Samples, advantages: Floats) -> None:
        """A piece; `advantages` has one number a row, already normalised within its group."""
        rows = len(advantages)
        fill = ((0, self._rows - rows), (0, 0))
        self._gradient, log_ratio = _gathered(
            self._state.params,
            self._gradient,
            np.pad(samples.tokens, fill),
            np.pad(samples.mask, fill),
            np.pad(samples.log_probs, fill),
            np.pad(advantages, fill[0]),
        )
        self._seen += rows
        within = samples.mask > 0
        self._log_ratios.append(np.asarray(log_ratio)[:rows][within])
        self._staleness.append((self._state.version - samples.versions)[within])

    def step(self) -> State:
        """The state after the step that this batch makes; each row weighs as much as any other."""
        if self._seen == 0:
            raise ValueError("a batch without rows makes no step")
        made: State = _stepped(self._state, self._gradient, self._seen)
        return replace(made, version=self._state.version + 1)

    def staleness(self) -> dict[int, Staleness]:
        """The batch's tokens by staleness: the version trained less the version that sampled the token."""
        log_ratios, staleness = np.concatenate(self._log_ratios), np.concatenate(self._staleness)
        ratios = np.exp(log_ratios)
        outside = (ratios < 1 - CLIP_LOW) | (ratios > 1 + CLIP_HIGH)
        return {
            int(each): Staleness(
                int((staleness == each).sum()),
                float(np.abs(log_ratios[staleness == each]).mean()),
                float(outside[staleness == each].mean()),
            )
            for each in np.unique(staleness)
        }
