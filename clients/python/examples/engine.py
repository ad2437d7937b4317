"""A stand-in for an asynchronous inference engine such as vLLM's: many requests in flight, one token for each at every step.

It has what the rollout process next door needs of a real one: requests that can be aborted, weights that are exchanged while
requests are in flight, and the version that generated each token.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

STEP_S = 0.002
"""How long one step of the whole batch takes, in seconds."""


@dataclass
class Generation:
    """A finished response: its tokens, and from which token on which version generated."""

    tokens: list[int]
    segments: list[tuple[int, int]]
    """(version, first token), the first of them from token 0."""


@dataclass(eq=False)
class _Request:
    wanted: int
    finished: asyncio.Future[Generation]
    tokens: list[int] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)


class Engine:
    """Generates for all requests at once, as continuous batching does."""

    def __init__(self, seed: int = 0) -> None:
        self.version = 0
        """The policy version of the weights."""
        self.most_in_flight = 0
        """The most requests there ever were at once."""
        self._chance = random.Random(seed)
        self._requests: set[_Request] = set()
        self._stepping: asyncio.Task[None] | None = None

    async def generate(self, prompt: str) -> Generation:
        """The response to a prompt. A cancellation aborts the request."""
        wanted = min(400, 4 + int(self._chance.expovariate(1 / 30)))
        request = _Request(wanted, asyncio.get_running_loop().create_future())
        self._requests.add(request)
        self.most_in_flight = max(self.most_in_flight, len(self._requests))
        if self._stepping is None or self._stepping.done():
            self._stepping = asyncio.ensure_future(self._step_while_busy())
        try:
            return await request.finished
        finally:
            self._requests.discard(request)

    async def load(self, version: int, reference: str | None) -> None:
        """Exchanges the weights between two steps; what is in flight goes on under the new ones."""
        del reference  # A real engine reads the weights from there.
        self.version = version

    async def _step_while_busy(self) -> None:
        while self._requests:
            await asyncio.sleep(STEP_S)
            for request in list(self._requests):
                if not request.segments or request.segments[-1][0] != self.version:
                    request.segments.append((self.version, len(request.tokens)))
                request.tokens.append(self._chance.randrange(1000))
                if len(request.tokens) == request.wanted and not request.finished.done():
                    request.finished.set_result(Generation(request.tokens, request.segments))
