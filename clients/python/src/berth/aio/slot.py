"""A reservation and its members, for asyncio: as :mod:`berth.slot`, but that the ledger's cancellations are asyncio's."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from .. import models as m
from .._calls import Json, given
from .._finishing import OUTCOMES, UNFINISHED, Ending, Finishing, HeldMember, is_stop, may_have_arrived
from .._handing_in import HandIn, MemberResult, finish_json, whole
from .._holdings import Holdings
from .._reasons import note_of
from .._reserving import outcome_of
from .._weights import Version
from ..errors import BerthError, SlotCancelled
from ._interruption import Interruption

if TYPE_CHECKING:
    from .worker import Worker

logger: logging.Logger = logging.getLogger("berth")


class Slot(Finishing):
    """A place that is reserved in a future batch, for one trajectory or one group.

    ``async with slot`` cancels the code in the block when the ledger takes the reservation away, and ends quietly by it. Left by
    an exception, the block gives the slot up, with the exception as the reason; without :meth:`occupy`, as ``unfinished``.
    """

    _worker: Worker

    def __init__(self, grant: m.Grant, holdings: Holdings, weights: m.Weights | None, worker: Worker) -> None:
        super().__init__(grant, holdings, weights, worker)
        self._interruption = Interruption()

    async def occupy(
        self,
        *,
        reward: float | None = None,
        tokens: int | None = None,
        payload: str | None = None,
        meta: Json | None = None,
        members: Iterable[MemberResult] | None = None,
    ) -> m.Occupied:
        """As :meth:`berth.Slot.occupy`."""
        finish = finish_json(reward, tokens, payload, meta)
        handed = whole(self, finish, members)
        self._in_doubt = True
        try:
            lineage = await self._worker._say_elder(handed)
            occupied = await self._worker._send(self._worker._calls.occupy(handed, lineage))
        except OUTCOMES as error:
            occupied = outcome_of(error)
        except BaseException as error:
            self._in_doubt = may_have_arrived(error)
            raise
        self._in_doubt = False
        self._close()
        return occupied

    async def discard(
        self, reason: str = "failed", *, note: str | None = None, requeue: bool = False
    ) -> m.Discarded | None:
        """As :meth:`berth.Slot.discard`."""
        try:
            return await self._worker._send(self._worker._calls.discard(self.id, reason, note, requeue))
        except OUTCOMES:
            return None
        finally:
            self._close()

    async def segment(self, version: Version, from_token: int, *, report: bool = False) -> None:
        """As :meth:`berth.Slot.segment`."""
        part = self._note_segment(self._worker._holdings.weights.name(version), from_token)
        if report:
            await self._worker._send(self._worker._calls.segment(self.id, part))

    def member(self, index: int, *, version: Version | None = None) -> Member:
        """As :meth:`berth.Slot.member`."""
        return Member(self, index, self._member_weights(version))

    @property
    def members(self) -> Iterator[Member]:
        """As :attr:`berth.Slot.members`."""
        for index in self._open_members():
            if self.closed or self.cancelled:
                return
            member = self.member(index)
            if not member.cancelled:
                yield member

    async def __aenter__(self) -> Slot:
        self._interruption.enter(self.on_cancel, lambda: self._in_doubt)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if await self._interruption.leave(error) or (isinstance(error, SlotCancelled) and error.id == self.id):
            self._close()
            return True
        await self._give_up(Ending.by(error, UNFINISHED))
        return False

    async def _give_up(self, ending: Ending) -> bool:
        """Discards it if it is open and nobody else's, without standing in the way of the exception that is on its way. Whether the ledger knows."""
        # What may have been handed in is not thrown away: if it was not, its lease gives it to others.
        if self.closed or self.cancelled or self._in_doubt:
            self._close()
            return True
        worker, patience_s = self._worker, self._patience_for(ending)
        try:
            if self._is_to_be_given_up(await worker._send(self._look(), patience_s=patience_s), ending):
                discard = worker._calls.discard(self.id, ending.reason, ending.note, True)
                await worker._send(discard, patience_s=patience_s)
        except OUTCOMES:
            return True
        except BerthError as error:
            logger.warning("%s could not be given up, its lease will run out: %s", self.id, error)
            return False
        finally:
            self._close()
        return True


class Member(HeldMember[Slot]):
    """One candidate of a group. ``async with`` it, its code is cancelled when it is not needed any more."""

    def __init__(self, slot: Slot, index: int, weights: m.Weights | None) -> None:
        super().__init__(slot, index, weights)
        self._interruption = Interruption()
        self._in_doubt = False

    async def complete(
        self,
        *,
        reward: float | None = None,
        tokens: int | None = None,
        payload: str | None = None,
        meta: Json | None = None,
    ) -> m.MemberOutcome:
        """As :meth:`berth.Member.complete`."""
        return await self._report(self._completed(finish_json(reward, tokens, payload, meta)))

    async def fail(self, note: str | None = None) -> m.MemberOutcome:
        """As :meth:`berth.Member.fail`."""
        return await self._report(HandIn(self.slot.id, {"failed": True, **given(note=note)}, None))

    async def segment(self, version: Version, from_token: int, *, report: bool = False) -> None:
        """As :meth:`berth.Slot.segment`, of this member."""
        worker = self.slot._worker
        part = self._note_segment(worker._holdings.weights.name(version), from_token)
        if report:
            await worker._send(worker._calls.segment(self.slot.id, part))

    async def _report(self, handed: HandIn) -> m.MemberOutcome:
        worker = self.slot._worker
        self._in_doubt = True
        try:
            lineage = await worker._say_elder(handed)
            outcome = await worker._send(worker._calls.member(handed, self.index, lineage))
        except OUTCOMES as error:
            outcome = m.MemberOutcome(state="discarded", reason=outcome_of(error).reason)
        finally:
            self._in_doubt = False
        self._reported(outcome, failed="failed" in handed.body)
        return outcome

    async def __aenter__(self) -> Member:
        self._interruption.enter(self.on_cancel, lambda: self._in_doubt)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if await self._interruption.leave(error) or (isinstance(error, SlotCancelled) and error.id == self.slot.id):
            return True
        if not (self.reported or self.cancelled or is_stop(error)):
            try:
                await self.fail("unfinished" if error is None else note_of(error))
            except BerthError as failure:
                logger.warning("member %d of %s could not be reported: %s", self.index, self.slot.id, failure)
        return False
