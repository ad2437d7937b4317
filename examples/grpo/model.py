"""The policy: a decoder-only transformer, small enough for a CPU, as pure functions of its parameters."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from task import PROMPT_TOKENS, SEQUENCE_TOKENS, VOCABULARY

WIDTH = 64
HEADS = 4
LAYERS = 2

Params = dict[str, jax.Array]
"""The weights by name; flat, so that a file of them is a plain `npz`."""


def init(seed: int) -> Params:
    """Random parameters. NumPy draws them: nothing is compiled for each shape."""
    shapes = {"embed": (VOCABULARY, WIDTH), "position": (SEQUENCE_TOKENS, WIDTH), "unembed": (WIDTH, VOCABULARY)}
    for layer in range(LAYERS):
        shapes |= {
            f"{layer}.qkv": (WIDTH, 3 * WIDTH),
            f"{layer}.out": (WIDTH, WIDTH),
            f"{layer}.up": (WIDTH, 4 * WIDTH),
            f"{layer}.down": (4 * WIDTH, WIDTH),
        }
    fan_in = {name: WIDTH if name in ("embed", "position") else shape[0] for name, shape in shapes.items()}
    rng = np.random.default_rng(seed)
    return {
        name: jnp.asarray(rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(fan_in[name])))
        for name, shape in shapes.items()
    }


def logits(params: Params, tokens: jax.Array) -> jax.Array:
    """At each position the logits of the token behind it: tokens `[batch, length]` give `[batch, length, VOCABULARY]`."""
    batch, length = tokens.shape
    causal = jnp.tril(jnp.ones((length, length), bool))
    x = params["embed"][tokens] + params["position"][:length]
    for layer in range(LAYERS):
        query, key, value = (
            part.reshape(batch, length, HEADS, WIDTH // HEADS).swapaxes(1, 2)
            for part in jnp.split(_normed(x) @ params[f"{layer}.qkv"], 3, axis=-1)
        )
        scores = jnp.where(causal, query @ key.swapaxes(-1, -2) / math.sqrt(WIDTH // HEADS), -jnp.inf)
        mixed = (jax.nn.softmax(scores) @ value).swapaxes(1, 2).reshape(batch, length, WIDTH)
        x = x + mixed @ params[f"{layer}.out"]
        x = x + jax.nn.gelu(_normed(x) @ params[f"{layer}.up"]) @ params[f"{layer}.down"]
    return _normed(x) @ params["unembed"]


def answer_log_probs(params: Params, tokens: jax.Array) -> jax.Array:
    """Log-probabilities of the answers' tokens: tokens `[batch, SEQUENCE_TOKENS]` give `[batch, ANSWER_TOKENS]`."""
    predicted = jax.nn.log_softmax(logits(params, tokens[:, :-1])[:, PROMPT_TOKENS - 1 :])
    return jnp.take_along_axis(predicted, tokens[:, PROMPT_TOKENS:, None], axis=-1)[..., 0]


@jax.jit
def next_token(params: Params, tokens: jax.Array, position: int, seed: int) -> tuple[jax.Array, jax.Array]:
    """Samples the token at `position` of each sequence, and says its log-probability. What `tokens` hold from there on is not looked at."""
    key = jax.random.fold_in(jax.random.key(seed), position)
    before = jax.lax.dynamic_index_in_dim(logits(params, tokens), position - 1, axis=1, keepdims=False)
    chosen = jax.random.categorical(key, before)
    return chosen, jnp.take_along_axis(jax.nn.log_softmax(before), chosen[:, None], axis=-1)[:, 0]


def _normed(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)
