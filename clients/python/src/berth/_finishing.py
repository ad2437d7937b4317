"""What slots and members of both forms share around their calls. Knows no I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NoReturn, TypeVar

import httpx

from . import models as m
from ._call import Call
from ._calls import Json
from ._handing_in import HandIn, one_member
from ._holdings import HeldSlot, Holdings
from ._parts import Part, note
from ._reasons import note_of, reason_of
from ._session import STOP_PATIENCE_S
from ._weights import Version
from .errors import (
    MalformedAnswer,
    Refused,
    SlotCancelled,
    Superseded,
    TrajectoryDiscarded,
    TrajectoryTaken,
    UnknownTrajectory,
    Unreachable,
)

#: Refusals that say what became of the entry: it is gone, and its worker can do nothing about it.
OUTCOMES = (TrajectoryDiscarded, Superseded, UnknownTrajectory, TrajectoryTaken)


def may_have_arrived(error: BaseException) -> bool:
    """Whether a call that ended like this may have had its effect. What could not even be written down, as a NaN, was never sent."""
    if isinstance(error, Refused):
        return not error.is_definite
    # Other transport errors than those that are tried again, as an answer that can't be unpacked, come from below.
    return isinstance(error, (Unreachable, MalformedAnswer, httpx.RequestError)) or not isinstance(error, Exception)


@dataclass(frozen=True)
class Ending:
    """How a block ends that gives up what is unfinished in it."""

    reason: str
    note: str | None = None
    #: Whether the code in the block failed.
    is_failure: bool = False
    #: Whether somebody stops it, which says nothing against what it was doing.
    is_stop: bool = False

    @staticmethod
    def by(error: BaseException | None, otherwise: Ending) -> Ending:
        """Of a block that this error ends, or that ends without one."""
        if error is None:
            return otherwise
        stops = is_stop(error)
        return Ending(reason_of(error), note_of(error), is_failure=not stops, is_stop=stops)


def is_stop(error: BaseException | None) -> bool:
    """Whether it is a cancellation, an interrupt or the process's exit: then nothing has failed."""
    return error is not None and not isinstance(error, Exception)


#: Of a slot's block without an error, and of a worker's.
UNFINISHED = Ending("unfinished")
STOPPED = Ending("worker_stopped", is_stop=True)


class Finishing(HeldSlot):
    """A slot of a worker."""

    def __init__(self, grant: m.Grant, holdings: Holdings, weights: m.Weights | None, worker: Any) -> None:
        super().__init__(grant, holdings, weights)
        self._worker = worker

    def raise_if_cancelled(self) -> None:
        """Raises :class:`SlotCancelled` if it was taken away: the way out of a loop over tokens. The slot's ``with`` block ends quietly by it."""
        if self.cancelled:
            raise SlotCancelled(self.id, self.cancel_reason or "cancelled")

    def _look(self) -> Call[m.Trajectory]:
        """What became of it, asked before it is given up: a Discard would take away what others have finished, too."""
        call: Call[m.Trajectory] = self._worker.run._calls.trajectory(self.id)
        return replace(call, sits_out_recovery=True)

    def _patience_for(self, ending: Ending) -> float | None:
        """How long it is tried to give it up: what somebody stops does not wait for a server that is away. None is as long as any call."""
        patience_s: float = self._worker._sender.retry.patience_s
        return min(STOP_PATIENCE_S, patience_s) if ending.is_stop else None

    def _is_to_be_given_up(self, entry: m.Trajectory, ending: Ending) -> bool:
        """Whether the end of a block throws away what the ledger shows like this."""
        if entry.state != "reserved" or entry.orphaned:
            return False
        if (entry.worker, entry.session) == (self._holdings.worker, self._holdings.session):
            return not (ending.is_stop and self._has_heirs(entry))
        # Claimed by another, it is the other's affair. Of one that was another's from the start, a failure is the reservation's.
        return ending.is_failure and not self._was_granted()

    def _has_heirs(self, entry: m.Trajectory) -> bool:
        """Whether another worker goes on with it when it is only let go of, as when this one had died."""
        members = entry.members or []
        return self._holdings.config.adopt_groups and any(each.state == "complete" for each in members)

    def _was_granted(self) -> bool:
        """Whether it is one that this worker was granted or claimed, and not :meth:`berth.Worker.slot`'s."""
        return any(slot is self for slot in self._holdings.open_slots())

    def _open_members(self) -> list[int]:
        candidates = self._holdings.config.group_candidates
        return [index for index in range(candidates) if index not in self._done and index not in self._failed]

    def _member_weights(self, version: Version | None) -> m.Weights | None:
        if version is not None:
            return self._holdings.weights.name(version)
        return self._holdings.weights.held or self.weights

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} prompt={self.prompt!r} version={self.version}>"


S = TypeVar("S", bound=Finishing)


class HeldMember(Generic[S]):
    """The part of a member that knows no I/O."""

    def __init__(self, slot: S, index: int, weights: m.Weights | None) -> None:
        self.slot = slot
        """The group's slot."""
        self.index = index
        """Which candidate it is, from 0."""
        self.weights = weights
        """The weights that generate it, at its start."""
        self.reported: bool = False
        """Whether this process has reported it."""
        self._parts: list[Part] = []

    @property
    def cancelled(self) -> bool:
        """Whether it is not needed any more: the group is filled, or was taken away."""
        return self.slot._reason_for(self.index) is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why it is not needed any more."""
        return self.slot._reason_for(self.index)

    def on_cancel(self, callback: Callable[[str], object]) -> None:
        """As :meth:`HeldSlot.on_cancel`, of this member."""
        self.slot._on_cancel(self.index, callback)

    def raise_if_cancelled(self) -> None:
        """Raises :class:`SlotCancelled` if it is not needed any more; the member's ``with`` block ends quietly by it."""
        reason = self.cancel_reason
        if reason is not None:
            raise SlotCancelled(self.slot.id, reason)

    def _note_segment(self, weights: m.Weights, from_token: int) -> Part:
        return note(self._parts, Part(weights, from_token, self.index))

    def _completed(self, finish: Json) -> HandIn:
        return one_member(self.slot, self.index, self.weights, self._parts, finish)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Member stays in its process: pass the slot's `id` and the `index`, and use `worker.slot(id).member(index)` there"
        )

    def _reported(self, outcome: m.MemberOutcome, *, failed: bool) -> None:
        self.reported = True
        known = self.slot._failed if failed else self.slot._done
        known.add(self.index)
        if outcome.state == "discarded":
            self.slot._cancel(outcome.reason or "discarded")
            self.slot._close()
        elif outcome.state != "reserved":
            self.slot._close()
            # The others are told by the heartbeat too, but not all of them run in this process's sight.
            self.slot._cancel("group_filled", self.slot._open_members())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.index} of {self.slot.id}>"
