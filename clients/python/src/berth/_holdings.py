"""What a worker process holds, shared by its generating code and its heartbeat. Thread-safe; knows no I/O."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from . import models as m
from ._bell import Bell
from ._call import Memory
from ._parts import Part, note
from ._weights import HeldWeights, VersionSource
from .errors import BerthError, Refused, VersionTooStale

logger = logging.getLogger("berth")

SHORTEST_RESERVE_WAIT_MS = 50
LONGEST_RESERVE_WAIT_MS = 2_000
#: The most reservations that a heartbeat may list.
MOST_LISTED = 16_384
#: For how many leases a process lists what its predecessor held and it has not claimed.
LEASES_TO_CLAIM = 3


class HeldSlot:
    """The part of a reservation that knows no I/O: what was granted, and whether it is still wanted."""

    def __init__(self, grant: m.Grant, holdings: Holdings, weights: m.Weights | None) -> None:
        self.id: str = grant.id
        """The entry's id, which fences it."""
        self.prompt: str | None = grant.prompt
        """The prompt's name."""
        self.data: Any = grant.data
        """The prompt's data: what was fed with it."""
        self.version: int = grant.version
        """The policy version that the entry was admitted under."""
        self.deadline: int = grant.deadline
        """The last batch, by version, that may train it."""
        self.attempt: int = grant.attempt
        """How often this prompt was tried, this time included; from 1."""
        self.adopted: bool = grant.adopted
        """Whether this is a group that another worker began."""
        self.weights = weights
        """The weights that the worker held when this was granted."""
        self._holdings = holdings
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._cancelled = threading.Event()
        self._closed = False
        #: Whether an occupy is on its way of which it is not known if it arrived.
        self._in_doubt = False
        self._done = set(grant.members_done)
        self._failed = set(grant.members_failed)
        self._gone_members: set[int] = set()
        self._callbacks: list[tuple[int | None, Callable[[str], object]]] = []
        self._parts: list[Part] = []

    @property
    def cancelled(self) -> bool:
        """Whether the ledger took it away. Stop generating: nobody needs the rest. It becomes True at once, from another thread."""
        return self._cancelled.is_set()

    @property
    def cancel_reason(self) -> str | None:
        """Why it was taken away: ``stuck_timeout``, ``surplus``, ``fenced``, …"""
        return self._reason

    @property
    def closed(self) -> bool:
        """Whether it was occupied or discarded by this process, or filled as a group."""
        return self._closed

    @property
    def members_done(self) -> frozenset[int]:
        """Of a group: the members that are complete, as far as this process knows."""
        return frozenset(self._done)

    @property
    def members_failed(self) -> frozenset[int]:
        """Of a group: the members that failed, as far as this process knows."""
        return frozenset(self._failed)

    @property
    def segments(self) -> tuple[m.Segment, ...]:
        """The segments noted so far, after the first."""
        return tuple(part.segment for part in self._parts)

    def on_cancel(self, callback: Callable[[str], object]) -> None:
        """Calls ``callback(reason)`` when it is cancelled, from the heartbeat's thread; at once if it already is."""
        self._on_cancel(None, callback)

    def _on_cancel(self, member: int | None, callback: Callable[[str], object]) -> None:
        with self._lock:
            reason = self._reason_for(member)
            if reason is None:
                self._callbacks.append((member, callback))
                return
        callback(reason)

    def _reason_for(self, member: int | None) -> str | None:
        if self._reason is not None:
            return self._reason
        return "group_filled" if member is not None and member in self._gone_members else None

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} stays in the process whose heartbeat keeps it: pass its `id`, and use `worker.slot(id)` or "
            "`worker.claim(id)` of a worker there"
        )

    def _cancel(self, reason: str, members: Iterable[int] | None = None) -> None:
        with self._lock:
            if members is None:
                if self._reason is None and not self._closed:
                    self._reason = reason
                    self._cancelled.set()
            else:
                self._gone_members.update(members)
            due = [entry for entry in self._callbacks if self._reason_for(entry[0]) is not None]
            self._callbacks = [entry for entry in self._callbacks if entry not in due]
        for _, callback in due:
            try:
                callback(reason)
            except Exception:
                logger.exception("a callback of a cancelled reservation failed")

    def _close(self) -> None:
        """It is finished: the worker does not hold it any more."""
        self._closed = True
        self._holdings.let_go(self.id)

    def _note_segment(self, weights: m.Weights, from_token: int) -> Part:
        # Of another's entry it is not known which version it begins under.
        begun = self.version if self._holdings.holds(self) else None
        return note(self._parts, Part(weights, from_token), begun)


@dataclass
class Beat:
    """What the next heartbeat says."""

    weights: m.Weights | None
    holding: list[str] | None
    acknowledged: list[str]
    #: Whether newer weights than the worker's are out, so that waiting for newer ones would not wait.
    newer_are_out: bool
    finished: bool


@dataclass
class Holdings:
    """A worker's session: its slots, its weights, and what the ledger said last."""

    worker: str
    session: str
    config: m.RunConfig
    memory: Memory
    policy_version: int
    finished: bool = False
    #: What ended the session: it was fenced, or its run is gone.
    ended_by: BerthError | None = None
    weights: HeldWeights = field(init=False)

    def __post_init__(self) -> None:
        self.bell: Bell = Bell()
        self.weights = HeldWeights(self.memory, self.bell.ring)
        self._next_buffer = 0
        #: Weights that a Reserve was refused for, and the lineage that the run had then.
        self._refused: tuple[m.Weights, int] | None = None
        self._lock = threading.Lock()
        # Weak: what the generating code has dropped is not held, and the ledger gives its place to others.
        self._slots: weakref.WeakValueDictionary[str, HeldSlot] = weakref.WeakValueDictionary()
        self._acknowledged: list[str] = []
        self._unsure_reserves = 0
        #: What the last process of this session held and this one has not claimed yet, listed until then.
        self._inherited: set[str] = set()
        self._inherited_until = 0.0
        #: For each call that may make this worker the holder of something: what was cancelled meanwhile and is not known here.
        self._early: dict[object, dict[str, m.Cancelled]] = {}
        self._news_at = time.monotonic()

    def add(self, slot: HeldSlot) -> None:
        """The worker holds it from now on. It may have been taken away before the answer that grants it arrived."""
        with self._lock:
            self._slots[slot.id] = slot
            self._inherited.discard(slot.id)
            told = next((early[slot.id] for early in self._early.values() if slot.id in early), None)
        if told is not None:
            slot._cancel(told.reason, told.members)

    def holds(self, slot: HeldSlot) -> bool:
        """Whether it is this worker's own, and not a handle on another's."""
        with self._lock:
            return self._slots.get(slot.id) is slot

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """While the block runs, the worker may come to hold what is not known here; it is to be added before the block ends."""
        key = object()
        with self._lock:
            self._early[key] = {}
        try:
            yield
        finally:
            with self._lock:
                del self._early[key]

    def inherit(self, ids: Iterable[str]) -> None:
        """The last process of this session held these: they are listed as held until this one has had time to claim them."""
        with self._lock:
            self._inherited = set(ids)
            self._inherited_until = time.monotonic() + LEASES_TO_CLAIM * self.config.lease_ms / 1000

    def let_go(self, id: str) -> None:
        """The worker does not hold it any more."""
        with self._lock:
            self._slots.pop(id, None)
            self._inherited.discard(id)

    def open_slots(self) -> list[HeldSlot]:
        """What the worker holds."""
        with self._lock:
            return list(self._slots.values())

    def reserve_is_unsure(self, change: int) -> None:
        """A Reserve whose answer was lost began (1) to be repeated, or ended (-1): meanwhile there may be grants unknown here."""
        with self._lock:
            self._unsure_reserves += change

    def observe(self, source: VersionSource) -> m.Weights:
        """The weights that the worker holds now."""
        return self.weights.observe(source)

    def newer_are_out(self) -> bool:
        """Whether newer weights than the worker's are out; it may still be granted something under its own."""
        held = self.weights.held
        return held is not None and (held.version < self.policy_version or held.lineage < self.memory.lineage)

    def lags(self) -> bool:
        """Whether the worker's weights are too old for a grant, as far as is known here."""
        held = self.weights.held
        if held is None:
            return False
        if self._refused == (held, self.memory.lineage):
            return True
        if held.version >= self.policy_version:
            return held.version > self.policy_version and held.lineage < self.memory.lineage
        return held.version + self.config.max_staleness < max(self.policy_version, self._next_buffer)

    def refused(self, weights: m.Weights, refusal: Refused) -> None:
        """A Reserve under these weights was refused: they are too old, abandoned, or not yet published."""
        policy_version = int(refusal.problem.get("policy_version", self.policy_version))
        self.heard(policy_version, self.finished)
        if isinstance(refusal, VersionTooStale) or weights.version <= policy_version:
            self._refused = weights, self.memory.lineage

    def granted(self, answer: m.Reservation) -> None:
        """A Reserve was answered."""
        self._refused = None
        self.heard(answer.policy_version, answer.finished, answer.next_buffer)

    def next_beat(self) -> Beat:
        """What is to be said now. Acknowledgements stay until :meth:`told` hears that they arrived."""
        newer_are_out = self.newer_are_out()
        with self._lock:
            if time.monotonic() > self._inherited_until:
                self._inherited.clear()
            held = [*self._slots, *self._inherited]
            # What can't be listed whole is not listed: the rest would be given to others.
            holding = held if self._unsure_reserves == 0 and len(held) <= MOST_LISTED else None
            return Beat(self.weights.held, holding, list(self._acknowledged[:1000]), newer_are_out, self.finished)

    def told(self, beat: Beat, answer: m.Heartbeat) -> None:
        """Takes in the answer to a heartbeat, and tells the generating code what was cancelled."""
        self.heard(answer.policy_version, answer.finished, answer.next_buffer)
        with self._lock:
            arrived = set(beat.acknowledged)
            self._acknowledged = [id for id in self._acknowledged if id not in arrived]
            pending = [(self._slots.get(each.id), each) for each in answer.cancelled if each.id not in arrived]
            for early in self._early.values():
                early.update((each.id, each) for slot, each in pending if slot is None)
        for slot, cancelled in pending:
            if slot is not None:
                slot._cancel(cancelled.reason, cancelled.members)
        with self._lock:
            known = set(self._acknowledged)
            self._acknowledged.extend(each.id for _, each in pending if each.id not in known)

    def heard(self, policy_version: int, finished: bool, next_buffer: int | None = None) -> None:
        """What an answer says of the run."""
        if policy_version != self.policy_version:
            self.policy_version, self._news_at = policy_version, time.monotonic()
        if next_buffer is not None:
            self._next_buffer = next_buffer
        was_finished, self.finished = self.finished, finished
        if finished and not was_finished:
            self.bell.ring()

    def reserve_wait_ms(self) -> int:
        """How long a Reserve may wait. It goes on under the weights that it names when newer ones come out meanwhile, so that it
        is to end soon after: within a twentieth of the time that the last ones are old."""
        age_ms = (time.monotonic() - self._news_at) * 1000
        return int(min(LONGEST_RESERVE_WAIT_MS, max(SHORTEST_RESERVE_WAIT_MS, age_ms / 20)))

    def end(self, error: BerthError, reason: str) -> None:
        """The session is over: everything that the worker still does is for nothing."""
        if self.ended_by is None:
            self.ended_by = error
        self.bell.ring()
        for slot in self.open_slots():
            slot._cancel(reason)

    def refuse_if_ended(self) -> None:
        """Raises what ended the session."""
        if self.ended_by is not None:
            raise self.ended_by
