"""What the calls answer. Instants end in ``_at_ms`` (Unix milliseconds of the database's clock), durations in ``_ms``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]

#: How a trainer goes on from an older checkpoint.
ResumeMode = Literal["replay", "rewind"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """A run's configuration with its defaults filled in."""

    batch_size: int
    max_staleness: int
    slots_per_buffer: int
    max_concurrency: int | None = None
    group_size: int = 1
    group_candidates: int = 1
    auto_occupy: bool = True
    drop_zero_variance: bool = False
    adopt_groups: bool = False
    lease_ms: int = 30_000
    reservation_timeout_ms: int | None = None
    stuck_timeout_ms: int | None = None
    stuck_max_reserved: int | None = None
    keep_batches: int = 256
    initial_version: int = 0
    prompt_queue: bool = False
    order: str = "fed"
    order_window: int = 1
    max_attempts: int = 3
    drop_on: list[str] = field(default_factory=list)
    final_batch: str = "short"


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One open buffer: ``state`` is ``ready``, ``pending`` or ``stuck``. ``slots`` is empty unless it was asked for."""

    version: int
    state: str
    occupied: int
    empty: int
    reserved: int
    slots: list[SlotView] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class SlotView:
    """One slot: ``empty``, ``reserved``, ``occupied`` or ``taken`` (a streamed entry)."""

    state: str
    id: str | None = None
    prompt: str | None = None
    version: int | None = None
    staleness: int | None = None
    worker: str | None = None
    reserved_at_ms: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, kw_only=True)
class TrainerStatus:
    """The trainer as the ledger sees it: ``waiting``, ``training`` or ``never_seen``."""

    state: str = "never_seen"
    name: str | None = None
    epoch: int | None = None
    since_at_ms: int | None = None
    last_call_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Entries since the run's creation."""

    reserved: int = 0
    occupied: int = 0
    trained: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    late: int = 0
    adopted: int = 0


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """A run in numbers."""

    run: str
    config: RunConfig
    policy_version: int
    lineage: int
    next_buffer: int
    trainer_version: int
    draining: bool = False
    finished: bool = False
    reserved: int = 0
    generating: int = 0
    occupied: int = 0
    workers: int = 0
    kept_batches: int = 0
    oldest_kept: int | None = None
    seq: int = 0
    buffers: list[Buffer] = field(default_factory=list)
    trainer: TrainerStatus = field(default_factory=TrainerStatus)
    prompts: dict[str, int] | None = None
    totals: Totals = field(default_factory=Totals)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """From token ``from_token`` on (counted from 0), the weights of ``version`` generated."""

    version: int
    from_token: int


@dataclass(frozen=True, kw_only=True)
class MemberEntry:
    """A member of a group: ``state`` is ``generating`` (it was said in which segments), ``complete`` or ``failed``.

    ``advantage`` is the reward normalised in the group; None while the group is not finished, and if a reward is missing.
    """

    index: int
    state: str | None = None
    version: int | None = None
    segments: list[Segment] | None = None
    reward: float | None = None
    tokens: int | None = None
    payload: str | None = None
    meta: Json | None = None
    advantage: float | None = None
    note: str | None = None
    worker: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """An entry, wherever it is shown: one trajectory or one group. A place leaves out what it does not need.

    ``orphaned`` is a group that lost its owner and waits for another; ``worker`` held it last.
    """

    id: str
    prompt: str | None = None
    state: str | None = None
    reason: str | None = None
    note: str | None = None
    orphaned: bool = False
    worker: str | None = None
    session: str | None = None
    version: int = 0
    deadline: int | None = None
    staleness: int | None = None
    buffer: int | None = None
    slot: int | None = None
    attempt: int | None = None
    late: bool = False
    reward: float | None = None
    tokens: int | None = None
    payload: str | None = None
    meta: Json | None = None
    segments: list[Segment] | None = None
    members: list[MemberEntry] | None = None
    reserved_at_ms: int | None = None
    occupied_at_ms: int | None = None
    taken_at_ms: int | None = None
    data: Any = None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """An admitted entry. ``data`` is its prompt's, where the ledger hands out the prompts."""

    id: str
    version: int
    deadline: int
    buffer: int = 0
    slot: int = 0
    attempt: int = 1
    prompt: str | None = None
    data: Any = None
    adopted: bool = False
    members_done: list[int] = field(default_factory=list)
    members_failed: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """The answer to a Reserve. ``blocked_by`` says why it is fewer than asked for."""

    granted: list[Grant]
    policy_version: int
    lineage: int
    next_buffer: int = 0
    lease_expires_in_ms: int = 0
    blocked_by: str | None = None
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """A reservation that was taken from its session; of a group only ``members``, unless that is None."""

    id: str
    reason: str
    members: list[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The answer to a heartbeat."""

    lease_expires_in_ms: int
    policy_version: int
    lineage: int
    next_buffer: int = 0
    cancelled: list[Cancelled] = field(default_factory=list)
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class Occupied:
    """What became of a finished entry.

    ``state`` is ``occupied``, ``taken`` (in a batch already: the call was repeated), or ``discarded``, with the ``reason``: that
    the ledger has given an entry up (a timeout, a surplus, a rewind) is part of a run's life and no error of its worker.
    """

    state: str
    buffer: int | None = None
    slot: int | None = None
    buffer_state: str | None = None
    late: bool = False
    reason: str | None = None

    @property
    def kept(self) -> bool:
        """Whether it is, or will be, trained."""
        return self.state != "discarded"


@dataclass(frozen=True, kw_only=True)
class OccupyResult:
    """What became of one of many; refused ones have a ``code``, and a ``reason`` if they were discarded."""

    id: str
    state: str | None = None
    buffer: int | None = None
    slot: int | None = None
    buffer_state: str | None = None
    late: bool = False
    code: str | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class MemberOutcome:
    """What became of a reported member. ``counted`` is False if it was reported before or is not needed any more.

    ``state`` is that of its group: ``reserved``, ``occupied``, ``taken``, or ``discarded`` with the ``reason``.
    """

    state: str
    counted: bool = False
    complete: int = 0
    failed: int = 0
    needed: int = 0
    buffer: int | None = None
    slot: int | None = None
    buffer_state: str | None = None
    late: bool = False
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Promoted:
    """A finished entry that moved forward into another buffer."""

    id: str
    from_: int
    to: int


@dataclass(frozen=True, kw_only=True)
class Discarded:
    """What the entry was (``reserved`` or ``occupied``), and which finished ones moved forward."""

    discarded_from: str
    promoted: list[Promoted] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TrainerSession:
    """An open trainer session. ``weights`` is the reference of ``policy_version``'s."""

    epoch: int
    trainer_version: int
    policy_version: int
    lineage: int
    weights: str | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch, or a piece of one: it trains ``version`` into ``version + 1``. Iterating gives its trajectories, in slot order.

    ``offset`` is how many entries of the batch lie before this piece; ``complete`` says that nothing is left after it.
    ``redelivered``: it was handed out before and not published; ``replayed``: it is trained again after a resume from an older
    checkpoint; ``final``: the last one of a drained run, possibly shorter.
    """

    version: int
    trajectories: list[Trajectory]
    redelivered: bool = False
    replayed: bool = False
    final: bool = False
    offset: int = 0
    complete: bool = True

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __len__(self) -> int:
        return len(self.trajectories)

    def __getitem__(self, index: int) -> Trajectory:
        return self.trajectories[index]


@dataclass(frozen=True, kw_only=True)
class NextBatch:
    """The next batch, or why there is none yet."""

    batch: Batch | None = None
    buffer_state: str | None = None
    occupied: int = 0
    needed: int = 0
    waiting_for_ms: int = 0
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where the run stands after a publish."""

    policy_version: int
    trainer_version: int
    lineage: int


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The weights of a version: number and lineage name them, ``reference`` says where they are."""

    version: int
    lineage: int
    reference: str | None = None
    published_at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class LatestVersion:
    """The latest published version."""

    policy_version: int
    lineage: int
    weights: str | None = None
    published_at_ms: int = 0
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt to be fed, or one of the queue. ``data`` is any JSON of at most 16 KiB; ``expected_tokens`` a guess of the length.

    The others the ledger says: ``position`` is where it was fed, from 0, and ``trajectory`` the one that it was handed out with last.
    """

    id: str
    data: Any = None
    expected_tokens: int | None = None
    state: str | None = None
    attempt: int | None = None
    reason: str | None = None
    position: int | None = None
    trajectory: str | None = None


@dataclass(frozen=True, kw_only=True)
class PromptPage:
    """A page of the prompt queue: how many were fed, how many are in each state, and some of them."""

    fed: int
    counts: dict[str, int] = field(default_factory=dict)
    prompts: list[Prompt] = field(default_factory=list)
    next: str | int | None = None


@dataclass(frozen=True, kw_only=True)
class Drain:
    """How far a drain is: when ``finished``, processes may exit."""

    draining: bool
    finished: bool = False
    reserved: int = 0
