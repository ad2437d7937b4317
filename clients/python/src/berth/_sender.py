"""Sends calls until they are answered, in both forms. What is a failure, and for how long, is in :mod:`berth.retry`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import httpx

from ._call import Call, Memory, answer_of, request_of
from ._forking import renew_after_fork
from .errors import BerthError, NotOpen, Refused, Unreachable
from .retry import Retry

T = TypeVar("T")
H = TypeVar("H", httpx.Client, httpx.AsyncClient)


@dataclass(frozen=True)
class Endpoint:
    """Where a server is and how it is spoken to; a client of either form can be made of it."""

    url: str
    token: str | None = field(repr=False)
    retry: Retry
    transport: httpx.BaseTransport | None = None
    async_transport: httpx.AsyncBaseTransport | None = None

    def __post_init__(self) -> None:
        # What no call could be sent with is said at once, and not after the patience of the first; the token is not shown.
        if httpx.URL(self.url).scheme not in ("http", "https"):
            raise ValueError(f"the address of a server begins with http:// or https://, and {self.url!r} does not")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise ValueError("the token holds a space, a line break or another character that no token has")

    def _options(self) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        # A proxy that the environment names leads to other machines, not to this one.
        host = httpx.URL(self.url).host
        mounts = {f"all://{f'[{host}]' if ':' in host else host}": None} if host in LOOPBACK else None
        return {"base_url": self.url, "headers": headers, "limits": UNLIMITED, "mounts": mounts}

    def blocking(self) -> Sender:
        """A sender for synchronous code."""

        # Any number of slots may wait at once: a pool's limit would only make them wait for each other.
        def connections() -> httpx.Client:
            return httpx.Client(transport=self.transport, **self._options())

        return Sender(OfThisProcess(connections), self.retry)

    def asynchronous(self) -> AsyncSender:
        """A sender for asyncio."""

        def connections() -> httpx.AsyncClient:
            return httpx.AsyncClient(transport=self.async_transport, **self._options())

        return AsyncSender(OfThisProcess(connections), self.retry)


#: This machine, as its own addresses call it.
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
UNLIMITED = httpx.Limits(max_connections=None, max_keepalive_connections=64)


class OfThisProcess(Generic[H]):
    """An HTTP client; a forked process makes its own."""

    def __init__(self, make: Callable[[], H]) -> None:
        self._make: Callable[[], H] = make
        self._http: H | None = make()
        #: Those of parents: to close them is not this process's business.
        self._inherited: list[H] = []
        renew_after_fork(self)

    def _after_fork(self) -> None:
        """Lets go of the parent's connections."""
        if self._http is not None:
            self._inherited.append(self._http)
            self._http = None

    @property
    def http(self) -> H:
        """The client of this process."""
        if self._http is None:
            self._http = self._make()
        if self._http.is_closed:
            raise NotOpen("the client was closed")
        return self._http

    @property
    def is_closed(self) -> bool:
        """Whether they were closed in this process."""
        return self._http is not None and self._http.is_closed


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

    connections: OfThisProcess[httpx.Client]
    retry: Retry

    def send(
        self,
        call: Call[T],
        memory: Memory | None = None,
        *,
        on_failure: Callable[[], None] = lambda: None,
    ) -> T:
        """The answer. ``on_failure`` hears of each attempt whose effect is unknown."""
        attempts, http = _Attempts(self.retry, call), self.connections.http
        while True:
            try:
                return answer_of(call, http.send(request_of(http, call, memory)), memory)
            except (httpx.TransportError, Refused) as error:
                pause = attempts.pause_s(error)
            on_failure()
            time.sleep(pause)

    def with_patience(self, patience_s: float) -> Sender:
        """The same connections, with other patience."""
        return replace(self, retry=replace(self.retry, patience_s=patience_s))

    def close(self) -> None:
        """Closes the connections."""
        if not self.connections.is_closed:
            self.connections.http.close()


@dataclass(frozen=True)
class AsyncSender:
    """Sends calls from asyncio."""

    connections: OfThisProcess[httpx.AsyncClient]
    retry: Retry

    async def send(
        self, call: Call[T], memory: Memory | None = None, *, on_failure: Callable[[], None] = lambda: None
    ) -> T:
        """The answer, as :meth:`Sender.send`."""
        attempts, http = _Attempts(self.retry, call), self.connections.http
        while True:
            try:
                return answer_of(call, await http.send(request_of(http, call, memory)), memory)
            except (httpx.TransportError, Refused) as error:
                pause = attempts.pause_s(error)
            on_failure()
            await asyncio.sleep(pause)

    def with_patience(self, patience_s: float) -> AsyncSender:
        """The same connections, with other patience."""
        return replace(self, retry=replace(self.retry, patience_s=patience_s))

    async def close(self) -> None:
        """Closes the connections."""
        if not self.connections.is_closed:
            await self.connections.http.aclose()
