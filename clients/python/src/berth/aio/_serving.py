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
#: Generates a slot, and notes the errors of members that failed and left the group to the others.
Generation = Callable[[Slot, "list[BaseException]"], Awaitable[Any]]
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


def one_by_one(generate: Generate) -> Generation:
    """Generates slots, each as one."""
    return lambda slot, _: generate(slot)


def all_members(generate: GenerateMember) -> Generation:
    """Generates all open members of a group at once. One that fails leaves the group to the others."""

    async def all_of(slot: Slot, errors: list[BaseException]) -> None:
        if not is_filled(slot):
            await Members(generate, errors).run(slot)
        if is_filled(slot) and not (slot.closed or slot.cancelled):
            # Without `auto_occupy` it waits for its client, which has no other place to do it than each member's own code.
            await slot.occupy()

    return all_of


def is_filled(slot: Slot) -> bool:
    """Whether enough members of the group are complete, as far as this process knows."""
    return len(slot.members_done) >= slot._holdings.config.group_size


class Members:
    """The open members of one group, while they are generated."""

    def __init__(self, generate: GenerateMember, errors: list[BaseException]) -> None:
        self._generate = generate
        self._errors = errors
        self._over = False

    async def run(self, slot: Slot) -> None:
        """Until all have ended, or one says that the worker must end."""
        tasks = [asyncio.ensure_future(self._one(member)) for member in slot.members]
        try:
            if tasks:
                # Unlike `gather` it cancels none: what cancels a member before `_over` is set is its engine, or the ledger.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
        finally:
            # Of a group that was taken away, or of a worker that stops, nobody waits for the rest.
            self._over = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, member: Member) -> None:
        try:
            async with member:
                await self._noting_errors(member)
        except FATAL:
            raise
        except (Exception, asyncio.CancelledError):
            if self._over:
                raise

    async def _noting_errors(self, member: Member) -> None:
        """An error is noted before it is reported: the report may be what has the group taken away, and this cancelled."""
        try:
            await self._generate(member)
        except (Exception, asyncio.CancelledError) as error:
            if self._over or member.cancelled:
                raise
            self._errors.append(error)
            logger.exception("%r failed", member)
            if isinstance(error, asyncio.CancelledError):
                # A member whose code is cancelled is not reported as failed. This one has failed: nobody stops it.
                raise RuntimeError("it was cancelled while it was generated") from error
            raise


class Serving:
    """One :meth:`berth.aio.Worker.serve`."""

    def __init__(self, worker: Worker, generate: Generation, in_flight: int, most_failures: int) -> None:
        self._worker = worker
        self._generate = generate
        self._candidates = worker._holdings.config.group_candidates
        self._most = max(1, in_flight // self._candidates)
        self._most_failures = most_failures
        self._failures = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: asyncio.Task[None] | None = None
        self._grants: asyncio.Task[list[Slot] | None] | None = None
        self._over = False

    async def run(self, reserving: Reserving, refresh: AsyncRefresh | None) -> None:
        """Until the run is finished, or something says that the worker must end."""
        try:
            if refresh is not None:
                await self._worker._refresh(reserving, refresh)
                self._news = asyncio.ensure_future(self._keep_fresh(reserving, refresh))
            while (slots := await self._reserve(reserving)) is not None:
                while slots:
                    slot = slots.pop()
                    self._tasks.add(asyncio.create_task(self._one(slot), name=repr(slot)))
                    del slot  # Its task alone holds it.
                while len(self._tasks) >= self._most:
                    await self._wait()
            while self._tasks:
                await self._wait()
        finally:
            await self._stop()

    async def _reserve(self, reserving: Reserving) -> list[Slot] | None:
        """Waits for slots, beside the generations and the news: each of them may say that the worker must end."""
        room = min(self._most - len(self._tasks), MOST_AT_ONCE)
        self._grants = asyncio.ensure_future(self._worker._reserve(reserving, room, None))
        while not self._grants.done():
            await self._wait(self._grants)
        return self._grants.result()

    async def _wait(self, *others: asyncio.Task[Any]) -> None:
        """Until any of all ends. Raises what says that the worker must end."""
        news = [self._news] if self._news is not None and not self._news.done() else []
        await asyncio.wait([*self._tasks, *news, *others], return_when=asyncio.FIRST_COMPLETED)
        self._reap()

    def _reap(self) -> None:
        done = {task for task in self._tasks if task.done()}
        self._tasks -= done
        for task in done:
            if task.cancelled():
                # Not by this worker, and not by the ledger: an engine that aborts a request cancels who waits for it.
                logger.error("generating %s was cancelled", task.get_name())
                self._failed(asyncio.CancelledError())
            else:
                task.result()
        if self._news is not None and self._news.done():
            self._news.result()

    async def _stop(self) -> None:
        self._over = True
        rest = [*self._tasks, *(task for task in (self._news, self._grants) if task is not None)]
        for task in rest:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*rest, return_exceptions=True)
        grants = self._grants
        if grants is not None and grants.done() and not grants.cancelled() and grants.exception() is None:
            # Granted in the very moment in which something else ended it.
            await self._worker._give_back(grants.result() or [])

    async def _one(self, slot: Slot) -> None:
        errors: list[BaseException] = []
        try:
            async with slot:
                await self._generate(slot, errors)
        except FATAL:
            raise
        except asyncio.CancelledError:
            if not slot.cancelled:
                raise
        except Exception as error:
            # An engine may say in its own way that a request was aborted.
            if not slot.cancelled:
                logger.exception("generating %r failed", slot)
                self._failed(error)
                return
        self._judge(slot, errors)

    def _judge(self, slot: Slot, errors: list[BaseException]) -> None:
        """Whether a generation that ended without an error of its own has failed by its members'."""
        has_failed = slot.cancel_reason == "group_failed" if slot.cancelled else not slot.members_done
        if errors and has_failed:
            self._failed(errors[-1])
        elif not slot.cancelled:
            # What was taken away says nothing of the engine.
            self._failures = 0

    def _failed(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures >= self._most_failures:
            raise BerthError(f"{self._failures} generations failed in a row, the last with {error!r}") from error

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
