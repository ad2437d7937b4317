"""Generation: answers sampled token by token, under weights that may change between two tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model import Params, next_token
from task import ANSWER_TOKENS, BLANK, END, PROMPT_TOKENS, SEQUENCE_TOKENS, Problem

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """Parameters, and the policy version that they are."""

    version: int
    params: Params


@dataclass(frozen=True)
class Samples:
    """Sampled answers, one a row. Of the last three, `[rows, ANSWER_TOKENS]`, only what lies within an answer counts."""

    tokens: Ints
    """Prompt and answer, `[rows, SEQUENCE_TOKENS]`; `BLANK` behind the answer's end."""

    mask: Floats
    """1 for each token of the answer, 0 behind its end."""

    log_probs: Floats
    """The log-probability of each token under the weights that sampled it."""

    versions: Ints
    """The policy version of those weights."""

    def answer(self, row: int) -> list[int]:
        """The answer's tokens, `END` included if it was reached."""
        return [int(token) for token in self.tokens[row, PROMPT_TOKENS : PROMPT_TOKENS + self.length(row)]]

    def length(self, row: int) -> int:
        """The answer's length in tokens."""
        return int(self.mask[row].sum())

    def version_changes(self, row: int) -> list[tuple[int, int]]:
        """Which version sampled from which token on, as pairs of both; the first from token 0."""
        versions = [int(version) for version in self.versions[row, : self.length(row)]]
        return [(new, token) for token, new in enumerate(versions) if token == 0 or versions[token - 1] != new]


def sample(problems: Sequence[Problem], seed: int, weights: Callable[[], Weights]) -> Samples:
    """An answer to each problem, by random numbers of this seed (below 2**31). `weights` is asked before every token: an engine that holds newer ones goes on with those."""
    rows = len(problems)
    tokens = np.full((rows, SEQUENCE_TOKENS), BLANK, np.int32)
    tokens[:, :PROMPT_TOKENS] = [problem.prompt() for problem in problems]
    mask = np.zeros((rows, ANSWER_TOKENS), np.float32)
    log_probs = np.zeros((rows, ANSWER_TOKENS), np.float32)
    versions = np.zeros((rows, ANSWER_TOKENS), np.int32)
    unfinished = np.ones(rows, bool)
    for offset in range(ANSWER_TOKENS):
        held = weights()
        chosen, said = next_token(held.params, tokens, PROMPT_TOKENS + offset, seed)
        tokens[unfinished, PROMPT_TOKENS + offset] = np.asarray(chosen)[unfinished]
        log_probs[unfinished, offset] = np.asarray(said)[unfinished]
        versions[unfinished, offset] = held.version
        mask[unfinished, offset] = 1
        unfinished &= tokens[:, PROMPT_TOKENS + offset] != END
        if not unfinished.any():
            break
    return Samples(tokens, mask, log_probs, versions)
