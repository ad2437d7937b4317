"""The slot tables (protocol.md, The slot tables): the same moves as the server's, without its bounds on cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .entries import Entry

Place = tuple[int, int]


@dataclass
class Tables:
    """The open buffers: ``first`` (H) to ``last`` (V + η), each of ``slots`` slots, ready with ``batch_size`` occupied ones."""

    batch_size: int
    slots: int
    eta: int
    first: int
    last: int
    on_surplus: Callable[[Entry], None]
    buffers: dict[int, list[Entry | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.open_up_to(self.last)

    def open_up_to(self, last: int) -> None:
        """Opens the buffers up to ``last``."""
        self.last = last
        for buffer in range(self.first, last + 1):
            self.buffers.setdefault(buffer, [None] * self.slots)

    def deadline(self, entry_version: int) -> int:
        """The last buffer that an entry of this version may be trained in."""
        return entry_version + self.eta

    # Looking.

    def entries(self) -> Iterator[Entry]:
        """All entries, front to rear."""
        for buffer in sorted(self.buffers):
            yield from (entry for entry in self.buffers[buffer] if entry is not None)

    def reserved(self) -> list[Entry]:
        """The reserved entries, front to rear."""
        return [entry for entry in self.entries() if entry.state == "reserved"]

    def occupied_in(self, buffer: int) -> list[Entry]:
        """The finished entries of a buffer, front to rear."""
        return [entry for entry in self.buffers.get(buffer, []) if entry is not None and entry.state == "occupied"]

    def is_ready(self, buffer: int) -> bool:
        """Whether it can be trained."""
        return len(self.occupied_in(buffer)) >= self.batch_size

    def state(self, buffer: int) -> str:
        """``ready``, ``pending`` or ``stuck``."""
        if self.is_ready(buffer):
            return "ready"
        return "pending" if None in self.buffers[buffer] else "stuck"

    def legal(self, version: int) -> list[int]:
        """The open buffers that an entry of this version may be in."""
        return [buffer for buffer in sorted(self.buffers) if buffer <= self.deadline(version)]

    def reservable(self, version: int) -> Place | None:
        """The slot that Reserve gives: the rear-most empty one of the latest legal buffer that is not ready and has one."""
        for buffer in reversed(self.legal(version)):
            if self.state(buffer) == "pending":
                return buffer, self._empty(buffer, front=False)
        return None

    def _empty(self, buffer: int, *, front: bool) -> int:
        empty = [slot for slot, entry in enumerate(self.buffers[buffer]) if entry is None]
        return empty[0] if front else empty[-1]

    # Moving.

    def put(self, entry: Entry, place: Place) -> None:
        """Puts an entry into an empty slot."""
        entry.buffer, entry.slot = place
        self.buffers[place[0]][place[1]] = entry

    def lift(self, entry: Entry) -> Place:
        """Takes an entry out of its slot."""
        self.buffers[entry.buffer][entry.slot] = None
        return entry.place

    def _shift(self, entry: Entry, to: Place) -> Place:
        gap = self.lift(entry)
        self.put(entry, to)
        return gap

    def cascade(self, gap: Place) -> Place:
        """The earliest reservation before the gap that it is legal for moves into it, and so on. Returns the last gap."""
        while True:
            movable = (
                entry for entry in self.reserved() if entry.place < gap and gap[0] <= self.deadline(entry.version)
            )
            entry = next(movable, None)
            if entry is None:
                return gap
            gap = self._shift(entry, gap)

    def occupy(self, entry: Entry) -> None:
        """*Occupy*, but for the surplus rule: the earliest place that leaves every other reservation a legal one."""
        gap = self.cascade(self.lift(entry))
        buffers = [buffer for buffer in self.legal(entry.version) if not self.is_ready(buffer)]
        pending = next((buffer for buffer in buffers if self.state(buffer) == "pending"), None)
        if pending is not None:
            place = pending, self._empty(pending, front=True)
        else:
            displaced = next(other for other in self.reserved() if other.buffer == buffers[0])
            place = self.lift(displaced)
            if gap[0] <= self.deadline(displaced.version):
                self.put(displaced, gap)
            else:
                self.on_surplus(displaced)
        entry.state = "occupied"
        self.put(entry, place)

    def remove(self, entry: Entry) -> list[tuple[Entry, int, int]]:
        """*Discard*: takes it out and settles the gap. Returns who moved forward, from which buffer to which."""
        gap = self.lift(entry)
        if entry.state == "occupied":
            rear = self.occupied_in(gap[0])
            if rear and rear[-1].place > gap:
                gap = self._shift(rear[-1], gap)
        promoted = []
        gap = self.cascade(gap)
        while (last := self._promotion(gap[0])) is not None:
            to = gap[0], self._empty(gap[0], front=True)
            promoted.append((last, last.buffer, to[0]))
            gap = self.cascade(self._shift(last, to))
        entry.state = "discarded"
        self.discard_surplus()
        return promoted

    def _promotion(self, buffer: int) -> Entry | None:
        if buffer not in self.buffers or self.state(buffer) != "pending":
            return None
        later = (self.occupied_in(other) for other in sorted(self.buffers) if other > buffer)
        return next((occupied[-1] for occupied in later if occupied), None)

    def discard_surplus(self) -> None:
        """*The surplus rule*."""
        while True:
            not_ready = next((buffer for buffer in sorted(self.buffers) if not self.is_ready(buffer)), None)
            surplus = next(
                (e for e in self.reserved() if not_ready is None or self.deadline(e.version) < not_ready), None
            )
            if surplus is None or self.slots == self.batch_size:
                return
            gap = self.lift(surplus)
            self.on_surplus(surplus)
            self.cascade(gap)

    def close_first(self) -> list[Entry]:
        """*Take*: buffer H becomes a batch. Returns its entries."""
        batch = self.occupied_in(self.first)
        for entry in [e for e in self.reserved() if e.buffer == self.first]:
            self.lift(entry)
            self.on_surplus(entry)
        del self.buffers[self.first]
        self.first += 1
        for entry in batch:
            entry.state, entry.streamed = "taken", False
        self.discard_surplus()
        return batch

    # Laying out anew.

    def lay_out(self, first: int, finished: list[Entry], reserved: list[Entry]) -> list[Entry]:
        """*Re-place*: empty tables from ``first`` on, and everybody placed. Returns those without a place."""
        self.first, self.buffers = first, {}
        self.open_up_to(first + self.eta)
        homeless, placed = [], []
        for entry in [*finished, *reserved]:
            place = self._latest(entry, entry in finished)
            if place is None:
                homeless.append(entry)
                continue
            entry.state = "reserved"
            self.put(entry, place)
            placed.append(entry)
        for entry in sorted((e for e in placed if e in finished), key=lambda e: e.version):
            self.occupy(entry)
        self.discard_surplus()
        return homeless

    def _latest(self, entry: Entry, is_finished: bool) -> Place | None:
        for buffer in reversed(self.legal(entry.version)):
            slots = self.buffers[buffer]
            full = is_finished and sum(other is not None for other in slots) >= self.batch_size
            if not full and None in slots:
                return buffer, self._empty(buffer, front=False)
        return None
