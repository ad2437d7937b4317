"""A rollout process, or a reward process: its session, its heartbeat, and what it reserves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import models as m
from ._call import Call
from ._finishing import OUTCOMES, STOPPED, Ending
from ._handing_in import HandIn
from ._many import Many
from ._reserving import (
    LONGEST_LOOK_S,
    SHORTEST_LOOK_S,
    WEIGHTS_WAIT_MS,
    PromptSource,
    Refresh,
    Request,
    Reserving,
    differ,
    weights_of,
)
from ._session import STOP_PATIENCE_S, WorkerSession, grant_of
from ._weights import VersionSource
from .errors import Fenced, UnknownRun, VersionNotPublished, VersionTooStale
from .slot import Slot

if TYPE_CHECKING:
    from .run import Run

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("berth")


class Worker(WorkerSession):
    """A worker's session, open inside its ``with`` block. Made by :meth:`berth.Run.worker`."""

    def __init__(self, run: Run, name: str, session: str | None) -> None:
        super().__init__(name, session)
        self.run = run
        """The run."""
        self._sender = run._sender

    def __enter__(self) -> Worker:
        self._sender = self.run._sender
        status, inherited = self.run.status(), self._held_before()
        heartbeat = self._begin(status, self.run._calls, self.run._memory, self.run._endpoint)
        # Before the first heartbeat: it would give away what it does not list.
        self._holdings.inherit(inherited)
        try:
            heartbeat.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_forked:
            return  # What it holds is the parent's.
        self._sender = self._sender.with_patience(STOP_PATIENCE_S)
        ending = Ending.by(error, STOPPED)
        try:
            if self._holdings.ended_by is None:
                for slot in self.slots:
                    if not slot._give_up(ending):
                        break
        finally:
            # Interrupted, it leaves no heartbeat behind that would keep for ever what is not given up.
            self._end()

    def _held_before(self) -> list[str]:
        """What the last process of this session holds. A session of a token of its own had none."""
        if not self._is_kept:
            return []
        return [each.id for each in self.run.trajectories(worker=self.name) if each.session == self.session]

    @property
    def slots(self) -> list[Slot]:
        """What this process holds."""
        return [slot for slot in self._holdings.open_slots() if isinstance(slot, Slot)]

    # Reserving.

    def reserve(
        self,
        version: VersionSource | None = None,
        *,
        prompts: PromptSource | None = None,
        adopt: bool | None = None,
        refresh: Refresh | None = None,
    ) -> Iterator[Slot]:
        """Slots to generate for, one after another, until the run is finished (or ``prompts`` are used up).

        ``version`` says which policy version the engine's weights are: a number, :class:`Weights`, or a function that is asked
        before every call. ``refresh`` is called with newer :class:`Weights` in this thread, between two slots, and returns when
        they are loaded; without it, the engine is taken to be updated elsewhere, and the loop waits while its weights are too
        old: until :meth:`hold` says newer ones, or the function does. ``prompts`` are for a run without a prompt queue: names, or :class:`Prompt` with their data. ``adopt`` takes over
        groups of workers that died (by default as the run's ``adopt_groups`` says).
        """
        reserving = Reserving(self._holdings, self._calls, version, prompts, adopt)
        while (slots := self._reserve(reserving, 1, refresh)) is not None:
            # The generator keeps none: what the caller drops is given back.
            while slots:
                yield slots.pop()

    def reserve_up_to(
        self,
        count: int,
        version: VersionSource | None = None,
        *,
        prompts: Sequence[str | m.Prompt] | None = None,
        adopt: bool | None = None,
        wait_ms: int = 0,
    ) -> list[Slot]:
        """At most ``count`` slots (1 to 1,024) in one call, possibly none; as soon as there is one, within ``wait_ms``.

        Raises :class:`VersionTooStale` or :class:`VersionNotPublished` for weights that may not be used.
        """
        reserving = Reserving(self._holdings, self._calls, version, prompts, adopt)
        request = reserving.request(count, wait_ms)
        return [] if request is None else self._grants(reserving, request)[0]

    def _reserve(self, reserving: Reserving, count: int, refresh: Refresh | None) -> list[Slot] | None:
        """Waits for slots; None when there will be none any more."""
        while not self._holdings.finished:
            if refresh is not None:
                self._refresh(reserving, refresh)
            request = reserving.request(count)
            if request is None:
                return None
            try:
                slots, finished = self._grants(reserving, request)
            except (VersionTooStale, VersionNotPublished) as refusal:
                logger.info("worker %s waits for other weights: %s", self.name, refusal.detail)
                self._await_other_weights(reserving, request, refresh)
                continue
            if slots:
                return slots
            if finished:
                return None
        return None

    def _grants(self, reserving: Reserving, request: Request) -> tuple[list[Slot], bool]:
        holdings, unsure = self._holdings, 0

        def note_doubt() -> None:
            nonlocal unsure
            if not unsure:
                unsure = 1
                holdings.reserve_is_unsure(1)

        try:
            holdings.refuse_if_ended()
            with holdings.expecting():
                answer = self._send(request.call, note_doubt)
                slots = [Slot(grant, holdings, request.weights, self) for grant in reserving.grants(answer)]
                for slot in slots:
                    holdings.add(slot)
            return slots, answer.finished
        except (VersionTooStale, VersionNotPublished) as refusal:
            holdings.refused(request.weights, refusal)
            raise
        finally:
            holdings.reserve_is_unsure(-unsure)

    def _refresh(self, reserving: Reserving, refresh: Refresh) -> None:
        """Has the newest weights loaded, if the worker's are not."""
        if reserving.weights() is not None and not self._holdings.newer_are_out():
            return
        newest = self.weights()
        if differ(reserving.weights(), newest):
            refresh(newest)
            self._holdings.weights.hold(newest)

    def _await_other_weights(self, reserving: Reserving, request: Request, refresh: Refresh | None) -> None:
        """Returns when the worker may hold other weights than those that were refused."""
        refused = request.weights
        if refused.lineage == self.run._memory.lineage and refused.version > self._holdings.policy_version:
            # The engine has them before they are published, which they will be.
            self.weights(after=refused.version - 1, wait_ms=WEIGHTS_WAIT_MS)
            return
        if refresh is not None:
            self.weights(after=refused, wait_ms=WEIGHTS_WAIT_MS)
            return
        woken, pause_s = threading.Event(), SHORTEST_LOOK_S
        with self._holdings.bell.heard_by(woken.set):
            while not self._holdings.finished and not differ(reserving.weights(), refused):
                self._holdings.refuse_if_ended()
                woken.wait(pause_s if reserving.asks else None)
                woken.clear()
                pause_s = min(LONGEST_LOOK_S, 2 * pause_s)

    # Weights.

    def weights(self, *, after: m.Weights | int | None = None, wait_ms: int = 0) -> m.Weights:
        """The latest weights, once they are others than ``after`` or ``wait_ms`` is over.

        Weights that an engine loads from here need no lineage said: it is kept with the number.
        """
        latest = self.run._latest(after, wait_ms)
        self._holdings.heard(latest.policy_version, latest.finished)
        weights = weights_of(latest)
        self._holdings.weights.fetched(weights)
        return weights

    # Entries of others, and many at once.

    def claim(self, id: str) -> Slot:
        """Makes this worker the holder of a reservation: for a reward process that finishes what others generated."""
        with self._holdings.expecting():
            entry = self._send(self._calls.claim(id))
            slot = Slot(grant_of(entry), self._holdings, self._holdings.weights.held, self)
            if entry.state == "reserved":
                self._holdings.add(slot)
        return slot

    def slot(self, id: str) -> Slot:
        """Another worker's reservation, to occupy, discard or report members of, which any live session may; it stays the other's."""
        return Slot(m.Grant(id=id, version=0, deadline=0), self._holdings, self._holdings.weights.held, self)

    def occupy_many(self, finished: Sequence[Mapping[str, Any]]) -> list[m.OccupyResult]:
        """Hands in many trajectories, 1,024 in a call: objects of ``id`` and the fields of :meth:`Slot.occupy`.

        What was noted with :meth:`Slot.segment` of a slot that this worker holds goes along, unless the object has ``segments`` of its
        own. One that is refused spoils no other: there is a result for each, in their order, with a state or a code.
        """
        many = Many(self._holdings, finished)
        for handed in many.handed:
            many.lineages.append(self._say_elder(handed))
        for page in many.pages():
            with many.handing_in(page):
                many.answered(page, self._send(self._calls.occupy_many(page.items, page.lineage)))
        return many.results()

    def _say_elder(self, handed: HandIn) -> int | None:
        """Says what older lineages' weights generated. Returns the lineage to hand it in under."""
        for part in handed.elder:
            try:
                self._send(self._calls.segment(handed.id, part))
            except VersionNotPublished:
                return part.weights.lineage
            except OUTCOMES:
                break  # What became of it the call itself is told.
        return handed.lineage

    def _send(
        self, call: Call[T], on_failure: Callable[[], None] = lambda: None, *, patience_s: float | None = None
    ) -> T:
        sender = self._sender if patience_s is None else self._sender.with_patience(patience_s)
        try:
            return sender.send(call, self.run._memory, on_failure=on_failure)
        except (Fenced, UnknownRun) as error:
            self._holdings.end(error, error.code)
            raise
