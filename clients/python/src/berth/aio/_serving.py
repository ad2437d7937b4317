"""Keeps many generations in flight: one task a slot, refilled as they end."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .. import models as m
from .._reserving import Reserving, differ
from ..errors import BerthError, Fenced, LedgerBehind, UnknownRun, Unreachable
from .slot import Member, Slot

if TYPE_CHECKING:
    from .worker import Worker

logger = logging.getLogger("berth")

Generate = Callable[[Slot], Awaitable[Any]]
GenerateMember = Callable[[Member], Awaitable[Any]]
AsyncRefresh = Callable[[m.Weights], Any]

#: How long one call for newer weights waits.
NEWS_WAIT_MS = 30_000
#: The most entries that one Reserve may ask for.
MOST_AT_ONCE = 1024
#: These say that the worker has no business any more; everything else concerns one generation.
FATAL = (Fenced, UnknownRun, LedgerBehind, Unreachable)


async def load(refresh: AsyncRefresh, weights: m.Weights) -> None:
    """Calls ``refresh``, a function or a coroutine function."""
    loading = refresh(weights)
    if inspect.isawaitable(loading):
        await loading


def all_members(generate: GenerateMember) -> Generate:
    """Generates all open members of a group at once. One that fails leaves the group to the others."""

    async def one(member: Member) -> None:
        try:
            async with member:
                await generate(member)
        except FATAL:
            raise
        except Exception:
            logger.exception("%r failed", member)

    async def all_of(slot: Slot) -> None:
        tasks = [asyncio.ensure_future(one(member)) for member in slot.members]
        try:
            await asyncio.gather(*tasks)
        finally:
            # Of a group that was taken away, or of a worker that stops, nobody waits for the rest.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return all_of


class Serving:
    """One :meth:`berth.aio.Worker.serve`."""

    def __init__(self, worker: Worker, generate: Generate, in_flight: int, most_failures: int) -> None:
        self._worker = worker
        self._generate = generate
        self._candidates = worker._holdings.config.group_candidates
        self._most = max(1, in_flight // self._candidates)
        self._most_failures = most_failures
        self._failures = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    async def run(self, reserving: Reserving, refresh: AsyncRefresh | None) -> None:
        """Until the run is finished, or a generation says that the worker must end."""
        if refresh is not None:
            await self._worker._refresh(reserving, refresh)
        news = asyncio.ensure_future(self._keep_fresh(reserving, refresh)) if refresh is not None else None
        try:
            while True:
                await self._make_room()
                self._raise_if_failed(news)
                room = min(self._most - len(self._tasks), MOST_AT_ONCE)
                slots = await self._worker._reserve(reserving, room, None)
                if slots is None:
                    break
                while slots:
                    self._tasks.add(asyncio.ensure_future(self._one(slots.pop())))
            await self._finish()
        finally:
            self._over = True
            rest = [*self._tasks, *([news] if news is not None else [])]
            for task in rest:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*rest, return_exceptions=True)

    async def _one(self, slot: Slot) -> None:
        try:
            async with slot:
                await self._generate(slot)
            self._failures = 0
        except FATAL:
            raise
        except Exception as error:
            if slot.cancelled:
                # An engine may say in its own way that a request was aborted.
                return
            self._failures += 1
            logger.exception("generating %r failed", slot)
            if self._failures >= self._most_failures:
                raise BerthError(f"{self._failures} generations failed in a row, the last with {error!r}") from error

    async def _make_room(self) -> None:
        self._reap()
        while len(self._tasks) >= self._most:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._reap()

    def _reap(self) -> None:
        done = {task for task in self._tasks if task.done()}
        self._tasks -= done
        for task in done:
            task.result()

    async def _finish(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._reap()

    async def _keep_fresh(self, reserving: Reserving, refresh: AsyncRefresh) -> None:
        """Has newer weights loaded as soon as they are out, whatever is in flight."""
        held = reserving.weights()
        # Once the run is finished the server answers at once: there will be no newer ones.
        while not self._over and not self._worker.finished:
            newest = await self._worker.weights(after=held, wait_ms=NEWS_WAIT_MS)
            if differ(held, newest):
                await load(refresh, newest)
                self._worker._holdings.weights.hold(newest)
                held = newest

    @staticmethod
    def _raise_if_failed(task: asyncio.Future[None] | None) -> None:
        if task is not None and task.done():
            task.result()
