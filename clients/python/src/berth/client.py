"""The way in: a server, and the runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import httpx

from . import models as m
from ._call import Memory
from ._calls import RunCalls, list_runs
from ._sender import Endpoint
from .retry import Retry
from .run import Run


def connect(
    url: str,
    *,
    token: str | None = None,
    retry: Retry | None = None,
    transport: httpx.BaseTransport | None = None,
) -> Client:
    """A client of the server at ``url``, as ``http://127.0.0.1:8080``. Nothing is sent yet; :class:`ValueError` if nothing could be.

    ``token`` is sent as a bearer token; ``retry`` bounds the repetition of calls; ``transport`` replaces the network, as
    :mod:`berth.fake` does.
    """
    return Client(Endpoint(url, token, retry or Retry(), transport))


class Client:
    """A server. Safe to use from many threads; a forked process makes connections of its own."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._sender = endpoint.blocking()
        self._memories: dict[str, Memory] = {}

    def run(self, name: str, *, batch_size: int | None = None, max_staleness: int | None = None, **config: Any) -> Run:
        """The run of this name. With a configuration it is created, or confirmed: every process of a job may say it at its start.

        ``batch_size`` is in entries, ``max_staleness`` in policy versions; the other fields are those of :class:`RunConfig`. Raises
        :class:`RunExists` when it was created otherwise. Without a configuration the run must exist when it is first used.
        """
        memory = self._memories.setdefault(name, Memory())
        fields = {"batch_size": batch_size, "max_staleness": max_staleness, **config}
        given = {key: value for key, value in fields.items() if value is not None}
        if given:
            self._sender.send(RunCalls(name).put(given), memory)
        return Run(self._endpoint, self._sender, name, memory)

    def runs(self) -> Iterator[m.RunStatus]:
        """All runs, in the order of their names."""
        after: Any = None
        while True:
            runs, after = self._sender.send(list_runs(after))
            yield from runs
            if after is None:
                return

    def close(self) -> None:
        """Closes the connections."""
        self._sender.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
