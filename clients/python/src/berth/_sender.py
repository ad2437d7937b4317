"""Sends calls until they are answered, in both forms. What is a failure, and for how long, is in :mod:`berth.retry`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import httpx

from ._call import Call, Memory, answer_of, request_of
from .errors import BerthError, Refused, Unreachable
from .retry import Retry

T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and how it is spoken to; a client of either form can be made of it."""

    url: str
    token: str | None
    retry: Retry
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | None = None

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def blocking(self) -> Sender:
        """A sender for synchronous code."""
        # Any number of slots may wait at once: a pool's limit would only make them wait for each other.
        http = httpx.Client(base_url=self.url, headers=self._headers(), transport=self.transport, limits=UNLIMITED)
        return Sender(http, self.retry)

    def asynchronous(self) -> AsyncSender:
        """A sender for asyncio."""
        http = httpx.AsyncClient(
            base_url=self.url, headers=self._headers(), transport=self.async_transport, limits=UNLIMITED
        )
        return AsyncSender(http, self.retry)


UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=64)


class _Attempts:
    """The failures of one call so far."""

    def __init__(self, retry: Retry, call: Call[Any]) -> None:
        self._retry = retry
        self._call = call
        self._started = time.monotonic()
        self.failures = 0

    def pause_s(self, error: Exception) -> float:
        """How long to wait before the next attempt; raises when there is none."""
        self.failures += 1
        pause = None
        if self._call.repeatable:
            spent = time.monotonic() - self._started
            pause = self._retry.pause_s(self.failures, spent, error, sits_out_recovery=self._call.sits_out_recovery)
        if pause is not None:
            return pause
        if isinstance(error, BerthError):
            raise error
        raise Unreachable(f"{self._call}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Sender:
    """Sends calls and blocks until they are answered. Safe to use from many threads."""

    http: httpx.Client
    retry: Retry

    def send(
        self,
        call: Call[T],
        memory: Memory | None = None,
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """The answer. ``on_failure`` hears of each attempt whose effect is unknown."""
        attempts = _Attempts(self.retry, call)
        while True:
            try:
                return answer_of(call, self.http.send(request_of(self.http, call, memory)), memory)
            except (httpx.TransportError, Refused) as error:
                pause = attempts.pause_s(error)
            on_failure()
            time.sleep(pause)

    def with_patience(self, patience_s: float) -> Sender:
        """The same connections, with other patience."""
        return replace(self, retry=replace(self.retry, patience_s=patience_s))

    def close(self) -> None:
        """Closes the connections."""
        self.http.close()


@dataclass(frozen=True)
class AsyncSender:
    """Sends calls from asyncio."""

    http: httpx.AsyncClient
    retry: Retry

    async def send(
        self, call: Call[T], memory: Memory | None = None, *, on_failure: Callable[[], None] = lambda: None
    ) -> T:
        """The answer, as :meth:`Sender.send`."""
        attempts = _Attempts(self.retry, call)
        while True:
            try:
                return answer_of(call, await self.http.send(request_of(self.http, call, memory)), memory)
            except (httpx.TransportError, Refused) as error:
                pause = attempts.pause_s(error)
            on_failure()
            await asyncio.sleep(pause)

    def with_patience(self, patience_s: float) -> AsyncSender:
        """The same connections, with other patience."""
        return replace(self, retry=replace(self.retry, patience_s=patience_s))

    async def close(self) -> None:
        """Closes the connections."""
        await self.http.aclose()
