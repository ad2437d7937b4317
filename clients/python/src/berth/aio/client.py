"""The way in for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import httpx

from .. import models as m
from .._call import Memory
from .._calls import RunCalls, list_runs
from .._sender import Endpoint
from ..retry import Retry
from .run import Run


def connect(
    url: str,
    *,
    token: str | None = None,
    retry: Retry | None = None,
    transport: httpx.BaseTransport | None = None,
    async_transport: httpx.AsyncBaseTransport | None = None,
) -> Client:
    """As :func:`berth.connect`. ``transport`` is the heartbeats', which run on threads; ``async_transport`` all other calls'."""
    return Client(Endpoint(url, token, retry or Retry(), transport, async_transport))


class Client:
    """A server, for the tasks of one event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._sender = endpoint.asynchronous()
        self._memories: dict[str, Memory] = {}

    async def run(
        self, name: str, *, batch_size: int | None = None, max_staleness: int | None = None, **config: Any
    ) -> Run:
        """As :meth:`berth.Client.run`."""
        memory = self._memories.setdefault(name, Memory())
        fields = {"batch_size": batch_size, "max_staleness": max_staleness, **config}
        given = {key: value for key, value in fields.items() if value is not None}
        if given:
            await self._sender.send(RunCalls(name).put(given), memory)
        return Run(self._endpoint, self._sender, name, memory)

    async def runs(self) -> AsyncIterator[m.RunStatus]:
        """All runs, in the order of their names."""
        after: Any = None
        while True:
            runs, after = await self._sender.send(list_runs(after))
            for run in runs:
                yield run
            if after is None:
                return

    async def close(self) -> None:
        """Closes the connections."""
        await self._sender.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
