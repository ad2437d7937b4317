"""What the calls that only look answer. Units as in :mod:`berth.models`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .models import Buffer, Json, TrainerStatus


@dataclass(frozen=True, kw_only=True)
class WaitingOn:
    """An unfinished slot of the buffer that the trainer waits for. ``freed_by`` says what will free it, if anything will."""

    id: str
    prompt: str | None = None
    slot: int = 0
    worker: str | None = None
    version: int = 0
    attempt: int = 1
    members_complete: int | None = None
    reserved_at_ms: int | None = None
    heartbeat_at_ms: int | None = None
    frees_at_ms: int | None = None
    freed_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What blocks new reservations."""

    blocked_by: str | None = None
    free_slots: int = 0
    reserved: int = 0


@dataclass(frozen=True, kw_only=True)
class VersionGroup:
    """How many workers hold a version, and what they were last refused for."""

    version: int | None = None
    workers: int = 0
    last_refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why the trainer waits: a sentence in ``summary``, and what it is made of."""

    summary: str
    trainer: TrainerStatus = field(default_factory=TrainerStatus)
    buffer: int | None = None
    buffer_state: str | None = None
    occupied: int = 0
    needed: int = 0
    waiting_on: list[WaitingOn] = field(default_factory=list)
    admission: Admission = field(default_factory=Admission)
    workers: list[VersionGroup] = field(default_factory=list)
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class Buffers:
    """The open buffers."""

    policy_version: int
    lineage: int
    next_buffer: int
    trainer_version: int
    buffers: list[Buffer]


@dataclass(frozen=True, kw_only=True)
class BatchSummary:
    """A kept batch in short; ``staleness`` counts its entries by staleness."""

    version: int
    entries: int
    state: str
    staleness: dict[str, int] = field(default_factory=dict)
    final: bool = False
    taken_at_ms: int | None = None
    published_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """A worker and its current session. ``last_refusal`` is the code with which its last Reserve was refused, if it was."""

    worker: str
    session: str
    version: int | None = None
    heartbeat_at_ms: int = 0
    lease_expires_in_ms: int = 0
    reserved: int = 0
    finished: int = 0
    cancelled_pending: int = 0
    last_refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """Entries of one fate, with the means of their length, staleness and time in the queue."""

    entries: int = 0
    mean_tokens: float | None = None
    mean_staleness: float | None = None
    mean_queued_ms: float | None = None


@dataclass(frozen=True, kw_only=True)
class Quarter:
    """A quarter of all entries by length, up to ``up_to_tokens`` tokens, and what became of them."""

    up_to_tokens: int | None = None
    finished: Share = field(default_factory=Share)
    trained: Share = field(default_factory=Share)
    filtered: Share = field(default_factory=Share)
    discarded: Share = field(default_factory=Share)


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What was trained, filtered and discarded, by length and staleness. What is still in the tables is in ``admitted`` alone, and in
    ``finished`` if it is."""

    quarters: list[Quarter] = field(default_factory=list)
    admitted: Share = field(default_factory=Share)
    finished: Share = field(default_factory=Share)
    trained: Share = field(default_factory=Share)
    filtered: Share = field(default_factory=Share)
    discarded: Share = field(default_factory=Share)
    by_reason: dict[str, Share] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Event:
    """One step of the run, as the event log has it; ``raw`` is the whole object, which differs by type."""

    seq: int
    at_ms: int
    type: str
    mark: str | None = None
    ids: list[str] = field(default_factory=list)
    worker: str | None = None
    reason: str | None = None
    version: int | None = None
    raw: Json = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Released:
    """An entry that nobody will read any more: its batch is not kept, or it was discarded and cannot come back."""

    id: str
    payloads: tuple[str, ...] = ()
    """The references that the ledger had of it, the entry's own and its members'. Empty if none was handed in."""
    reason: str | None = None
    """Why it was discarded; None if it was trained."""
