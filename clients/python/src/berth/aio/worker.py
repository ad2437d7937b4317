"""A rollout process, or a reward process, for asyncio: as :mod:`berth.worker`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import models as m
from .._call import Call
from .._finishing import OUTCOMES, STOPPED, Ending
from .._handing_in import HandIn
from .._holdings import Holdings
from .._many import Many
from .._reserving import (
    LONGEST_LOOK_S,
    SHORTEST_LOOK_S,
    WEIGHTS_WAIT_MS,
    PromptSource,
    Request,
    Reserving,
    differ,
    weights_of,
)
from .._session import STOP_PATIENCE_S, WorkerSession, grant_of
from .._weights import VersionSource
from ..errors import BerthError, Fenced, UnknownRun, VersionNotPublished, VersionTooStale
from ._serving import AsyncRefresh, Generate, GenerateMember, Serving, all_members, load, one_by_one
from .slot import Slot

if TYPE_CHECKING:
    from .run import Run

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("berth")


class Worker(WorkerSession):
    """A worker's session, open inside its ``async with`` block. Made by :meth:`berth.aio.Run.worker`."""

    def __init__(self, run: Run, name: str, session: str | None) -> None:
        super().__init__(name, session)
        self.run = run
        """The run."""
        self._sender = run._sender

    async def __aenter__(self) -> Worker:
        self._sender = self.run._sender
        status, inherited = await self.run.status(), await self._held_before()
        heartbeat = self._begin(status, self.run._calls, self.run._memory, self.run._endpoint)
        # Before the first heartbeat: it would give away what it does not list.
        self._holdings.inherit(inherited)
        try:
            await asyncio.to_thread(heartbeat.start)
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_forked:
            return  # What it holds is the parent's.
        self._sender = self._sender.with_patience(STOP_PATIENCE_S)
        ending = Ending.by(error, STOPPED)
        try:
            if self._holdings.ended_by is None:
                for slot in self.slots:
                    if not await slot._give_up(ending):
                        break
        finally:
            # Interrupted, it leaves no heartbeat behind that would keep for ever what is not given up.
            self._end()

    async def _held_before(self) -> list[str]:
        """What the last process of this session holds. A session of a token of its own had none."""
        if not self._is_kept:
            return []
        return [each.id async for each in self.run.trajectories(worker=self.name) if each.session == self.session]

    @property
    def slots(self) -> list[Slot]:
        """What this process holds."""
        return [slot for slot in self._holdings.open_slots() if isinstance(slot, Slot)]

    # Reserving.

    async def reserve(
        self,
        version: VersionSource | None = None,
        *,
        prompts: PromptSource | None = None,
        adopt: bool | None = None,
        refresh: AsyncRefresh | None = None,
    ) -> AsyncIterator[Slot]:
        """As :meth:`berth.Worker.reserve`; ``refresh`` may be a coroutine function. For many at once see :meth:`serve`."""
        reserving = Reserving(self._holdings, self._calls, version, prompts, adopt)
        while (slots := await self._reserve(reserving, 1, refresh)) is not None:
            # The generator keeps none: what the caller drops is given back.
            while slots:
                yield slots.pop()

    async def reserve_up_to(
        self,
        count: int,
        version: VersionSource | None = None,
        *,
        prompts: Sequence[str | m.Prompt] | None = None,
        adopt: bool | None = None,
        wait_ms: int = 0,
    ) -> list[Slot]:
        """As :meth:`berth.Worker.reserve_up_to`."""
        reserving = Reserving(self._holdings, self._calls, version, prompts, adopt)
        request = reserving.request(count, wait_ms)
        return [] if request is None else (await self._grants(reserving, request))[0]

    async def _reserve(self, reserving: Reserving, count: int, refresh: AsyncRefresh | None) -> list[Slot] | None:
        """Waits for slots; None when there will be none any more."""
        while not self._holdings.finished:
            if refresh is not None:
                await self._refresh(reserving, refresh)
            request = reserving.request(count)
            if request is None:
                return None
            try:
                slots, finished = await self._grants(reserving, request)
            except (VersionTooStale, VersionNotPublished) as refusal:
                logger.info("worker %s waits for other weights: %s", self.name, refusal.detail)
                await self._await_other_weights(reserving, request, refresh)
                continue
            if slots:
                return slots
            if finished:
                return None
        return None

    async def _grants(self, reserving: Reserving, request: Request) -> tuple[list[Slot], bool]:
        holdings, unsure = self._holdings, 0

        def note_doubt() -> None:
            nonlocal unsure
            if not unsure:
                unsure = 1
                holdings.reserve_is_unsure(1)

        try:
            holdings.refuse_if_ended()
            with holdings.expecting():
                answer = await self._send(request.call, note_doubt)
                slots = [Slot(grant, holdings, request.weights, self) for grant in reserving.grants(answer)]
                for slot in slots:
                    holdings.add(slot)
            return slots, answer.finished
        except (VersionTooStale, VersionNotPublished) as refusal:
            holdings.refused(request.weights, refusal)
            raise
        except asyncio.CancelledError:
            note_doubt()
            await self._take_back(request, holdings)
            raise
        finally:
            holdings.reserve_is_unsure(-unsure)

    async def _take_back(self, request: Request, holdings: Holdings) -> None:
        """Gives back what a Reserve was granted whose caller does not wait any more: else it would lie there for a lease.

        The request is repeated, without waiting: it is answered with what it was granted, and ends there at the server, too.
        """
        if holdings.ended_by is not None or self._open_holdings is not holdings:
            return  # The session is over, and the ledger has it all.
        body = {name: value for name, value in (request.call.body or {}).items() if name != "wait_ms"}
        sender = self._sender.with_patience(STOP_PATIENCE_S)
        try:
            answer = await sender.send(replace(request.call, wait_ms=0, body=body), self.run._memory)
        except BerthError as error:
            logger.info("worker %s: it is not known what a cancelled reservation was granted: %s", self.name, error)
            return
        await self._give_back([Slot(grant, holdings, request.weights, self) for grant in answer.granted])

    @staticmethod
    async def _give_back(slots: Sequence[Slot]) -> None:
        """Gives up what nobody has begun. A group that others began is left to the ledger, which keeps what is complete of it."""
        ending = Ending.by(asyncio.CancelledError(), STOPPED)
        await asyncio.gather(*(slot._give_up(ending) for slot in slots if not slot.adopted))

    async def _refresh(self, reserving: Reserving, refresh: AsyncRefresh) -> None:
        """Has the newest weights loaded, if the worker's are not."""
        if reserving.weights() is not None and not self._holdings.newer_are_out():
            return
        newest = await self.weights()
        if differ(reserving.weights(), newest):
            await load(refresh, newest)
            self._holdings.weights.hold(newest)

    async def _await_other_weights(self, reserving: Reserving, request: Request, refresh: AsyncRefresh | None) -> None:
        """Returns when the worker may hold other weights than those that were refused."""
        refused = request.weights
        if refused.lineage == self.run._memory.lineage and refused.version > self._holdings.policy_version:
            # The engine has them before they are published, which they will be.
            await self.weights(after=refused.version - 1, wait_ms=WEIGHTS_WAIT_MS)
            return
        if refresh is not None:
            await self.weights(after=refused, wait_ms=WEIGHTS_WAIT_MS)
            return
        woken, pause_s, loop = asyncio.Event(), SHORTEST_LOOK_S, asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nothing of it waits any more.
                loop.call_soon_threadsafe(woken.set)

        with self._holdings.bell.heard_by(wake):
            while not self._holdings.finished and not differ(reserving.weights(), refused):
                self._holdings.refuse_if_ended()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause_s if reserving.asks else None)
                woken.clear()
                pause_s = min(LONGEST_LOOK_S, 2 * pause_s)

    # Many at once.

    async def serve(
        self,
        generate: Generate,
        version: VersionSource | None = None,
        *,
        in_flight: int = 64,
        refresh: AsyncRefresh | None = None,
        prompts: PromptSource | None = None,
        adopt: bool | None = None,
        most_failures: int = 16,
    ) -> None:
        """Keeps up to ``in_flight`` trajectories generating until the run is finished: for an engine with many requests at once.

        ``generate(slot)`` is a coroutine function that generates and occupies; each runs in a task of its own, cancelled at once
        when the ledger takes its slot away. A group counts its candidates. ``refresh`` is called with newer :class:`Weights` as
        soon as they are out, while requests are in flight: note the change in each (:meth:`Slot.segment`). An exception of
        ``generate`` gives its slot up and is logged, as does a cancellation of which only its engine knows; ``most_failures`` in
        a row end it. One of ``refresh`` ends it at once.
        """
        serving = Serving(self, one_by_one(generate), in_flight, most_failures)
        await serving.run(Reserving(self._holdings, self._calls, version, prompts, adopt), refresh)

    async def serve_members(
        self,
        generate: GenerateMember,
        version: VersionSource | None = None,
        *,
        in_flight: int = 64,
        refresh: AsyncRefresh | None = None,
        prompts: PromptSource | None = None,
        adopt: bool | None = None,
        most_failures: int = 16,
    ) -> None:
        """As :meth:`serve` for a run of groups: ``generate(member)`` generates and completes one member, all of a group at once.

        An exception of ``generate`` reports its member as failed. The group counts as a failure when too many did, or none is
        complete. Without ``auto_occupy`` a filled group that ``generate`` has not occupied is occupied as its last member ends.
        """
        serving = Serving(self, all_members(generate), in_flight, most_failures)
        await serving.run(Reserving(self._holdings, self._calls, version, prompts, adopt), refresh)

    # Weights.

    async def weights(self, *, after: m.Weights | int | None = None, wait_ms: int = 0) -> m.Weights:
        """As :meth:`berth.Worker.weights`."""
        latest = await self.run._latest(after, wait_ms)
        self._holdings.heard(latest.policy_version, latest.finished)
        weights = weights_of(latest)
        self._holdings.weights.fetched(weights)
        return weights

    # Entries of others, and many at once.

    async def claim(self, id: str) -> Slot:
        """As :meth:`berth.Worker.claim`."""
        with self._holdings.expecting():
            entry = await self._send(self._calls.claim(id))
            slot = Slot(grant_of(entry), self._holdings, self._holdings.weights.held, self)
            if entry.state == "reserved":
                self._holdings.add(slot)
        return slot

    def slot(self, id: str) -> Slot:
        """As :meth:`berth.Worker.slot`."""
        return Slot(m.Grant(id=id, version=0, deadline=0), self._holdings, self._holdings.weights.held, self)

    async def occupy_many(self, finished: Sequence[Mapping[str, Any]]) -> list[m.OccupyResult]:
        """As :meth:`berth.Worker.occupy_many`."""
        many = Many(self._holdings, finished)
        for handed in many.handed:
            many.lineages.append(await self._say_elder(handed))
        for page in many.pages():
            with many.handing_in(page):
                many.answered(page, await self._send(self._calls.occupy_many(page.items, page.lineage)))
        return many.results()

    async def _say_elder(self, handed: HandIn) -> int | None:
        """Says what older lineages' weights generated. Returns the lineage to hand it in under."""
        for part in handed.elder:
            try:
                await self._send(self._calls.segment(handed.id, part))
            except VersionNotPublished:
                return part.weights.lineage
            except OUTCOMES:
                break  # What became of it the call itself is told.
        return handed.lineage

    async def _send(
        self, call: Call[T], on_failure: Callable[[], None] = lambda: None, *, patience_s: float | None = None
    ) -> T:
        sender = self._sender if patience_s is None else self._sender.with_patience(patience_s)
        try:
            return await sender.send(call, self.run._memory, on_failure=on_failure)
        except (Fenced, UnknownRun) as error:
            self._holdings.end(error, error.code)
            raise
