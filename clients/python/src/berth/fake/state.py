"""A run of the fake: its numbers, its entries, and the steps that several calls share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from .entries import Entry, Json, Problem, conflict, members_in, trajectory_json
from .queue import PromptQueue
from .tables import Tables


@dataclass(eq=False)
class Session:
    """A session of a worker."""

    worker: str
    token: str
    last_call: int
    version: int | None = None
    said_in: int = 0
    lineage: int = 0
    ended: bool = False
    expired: bool = False
    waiting: int = 0
    finished: int = 0
    #: The ids of which it was not told yet, or has not acknowledged it.
    cancelled: set[str] = field(default_factory=set)
    requests: dict[str, tuple[Json, Json]] = field(default_factory=dict)


@dataclass
class TrainerState:
    """The trainer's session, and since when it waits."""

    name: str | None = None
    token: str | None = None
    answer: Json | None = None
    #: The batch that it was last given to its end.
    delivered: int | None = None
    waits_since: int | None = None
    last_call: int = 0


class RunState:
    """One run."""

    def __init__(self, name: str, config: Json, clock: int, lineage: int = 0, seq: int = 0, epoch: int = 0) -> None:
        self.name = name
        self.config = config
        self.clock = clock
        self.now_ms = clock
        self.seq = seq
        self.epoch = epoch
        self.lineage = self.first_lineage = lineage
        self.rewinds: list[tuple[int, int]] = [(lineage, -1)] if lineage else []
        version = config["initial_version"]
        self.policy_version = self.trainer_version = version
        self.eta = config["max_staleness"]
        self.tables = Tables(
            config["batch_size"],
            config["slots_per_buffer"],
            self.eta,
            version,
            version + self.eta,
            self._discard_as_surplus,
        )
        self.entries: dict[str, Entry] = {}
        self.batches: dict[int, list[Entry]] = {}
        self.final_batches: set[int] = set()
        self.oldest_kept = version
        #: Numbers, from the first to before the second, that a forced resume jumped over.
        self.gaps: list[tuple[int, int]] = []
        self.versions: dict[int, tuple[str | None, int]] = {version: (None, clock)}
        self.sessions: dict[tuple[str, str], Session] = {}
        self.current: dict[str, str] = {}
        self.trainer = TrainerState()
        self.old_trainers: set[str] = set()
        self.draining = False
        self.keep_queue = False
        self.last_admission = 0
        #: Since when buffer H is stuck, and when the stuck timeout fired last.
        self.stuck_since: int | None = None
        self.stuck_fired = 0
        #: How many calls of a trainer wait now.
        self.trainer_waiting = 0
        self.events: list[Json] = []
        #: What the step so far did to entries: the next event has them.
        self.effects: list[Json] = []
        self.totals: Json = {"reserved": 0, "occupied": 0, "trained": 0, "discarded": {}, "late": 0, "adopted": 0}
        self.queue: PromptQueue | None = None
        if config["prompt_queue"]:
            window, drop_on = config["order_window"], frozenset(config["drop_on"])
            self.queue = PromptQueue(config["order"], window, config["max_attempts"], drop_on)
        self._ids = 0
        self.record("run_created", config=config)

    # Numbers.

    @property
    def next_buffer(self) -> int:
        """H."""
        return self.tables.first

    @property
    def has_groups(self) -> bool:
        """Whether entries are groups."""
        return bool(self.config["group_candidates"] > 1)

    def is_filled(self, members: dict[int, Json]) -> bool:
        """Whether a group with these members is complete."""
        return self.has_groups and len(members_in(members, "complete")) >= self.config["group_size"]

    def cannot_be_filled(self, members: dict[int, Json]) -> bool:
        """Whether too many of these members failed."""
        spare: int = self.config["group_candidates"] - self.config["group_size"]
        return len(members_in(members, "failed")) > spare

    def candidates_left(self, entry: Entry) -> int:
        """How many trajectories of a reserved entry are still being generated."""
        return 0 if self.is_filled(entry.members) else len(self.unreported(entry))

    def unreported(self, entry: Entry) -> list[int]:
        """The candidates of a group that are neither complete nor failed."""
        reported = {*entry.complete_members(), *entry.failed_members()}
        return [index for index in range(self.config["group_candidates"]) if index not in reported]

    def generating(self) -> int:
        """How many trajectories are being generated."""
        return sum(self.candidates_left(entry) for entry in self.tables.reserved())

    def queued_to_come(self) -> int:
        """How many prompts will still be handed out."""
        if self.queue is None or (self.draining and self.keep_queue):
            return 0
        return len(self.queue.queued())

    def blocked_for_everybody(self) -> str | None:
        """What stands in the way of a new reservation whatever its weights: ``draining``, ``concurrency`` or ``prompts``."""
        has_no_prompt = self.queue is None or not self.queue.queued()
        if self.draining and (self.keep_queue or has_no_prompt):
            return "draining"
        most = self.config["max_concurrency"]
        if most is not None and self.generating() + self.config["group_candidates"] > most:
            return "concurrency"
        return "prompts" if self.queue is not None and has_no_prompt else None

    def nothing_comes(self) -> bool:
        """Whether the run is drained but for what is finished."""
        return self.draining and not self.tables.reserved() and self.queued_to_come() == 0

    def finished(self) -> bool:
        """Whether every process may exit."""
        at_rest = self.trainer_version == self.policy_version == self.next_buffer
        return self.nothing_comes() and at_rest and not self.tables.occupied_in(self.next_buffer)

    def is_abandoned(self, version: int, lineage: int) -> bool:
        """Whether a later rewind went to below these weights."""
        return any(began > lineage and to < version for began, to in self.rewinds)

    def new_id(self) -> str:
        """An id that sorts by time, as the server's do."""
        self._ids += 1
        return f"{self._ids:08x}-{uuid.uuid4().hex[:12]}"

    # Steps.

    def _discard_as_surplus(self, entry: Entry) -> None:
        self.mark_discarded(entry, "surplus")

    def record(self, type: str, **fields: Any) -> None:
        """Appends an event, with the next sequence number."""
        self.seq += 1
        event = {"seq": self.seq, "at_ms": self.now_ms, "type": type, "mark": uuid.uuid4().hex[:16], **fields}
        event["effects"], self.effects = self.effects, []
        self.events.append({key: value for key, value in event.items() if value is not None})

    def mark_discarded(
        self, entry: Entry, reason: str, *, requeue: bool = False, by: Session | None = None, note: str | None = None
    ) -> None:
        """It is out of the tables: its prompt goes where the reason sends it, and its holder is told, unless it did this."""
        entry.discarded_from = "occupied" if entry.state == "occupied" else "reserved"
        entry.state, entry.reason, entry.orphan = "discarded", reason, False
        entry.note = note if note is not None else entry.note
        self.effects.append({"effect": "discarded", "id": entry.id, "reason": reason, **_payloads(entry)})
        counts = self.totals["discarded"]
        counts[reason] = counts.get(reason, 0) + 1
        if self.queue is not None:
            self.queue.give_back(entry, reason, requeue)
        holder = self.sessions[entry.last_holder]
        if entry.discarded_from == "reserved" and not holder.ended and holder is not by:
            holder.cancelled.add(entry.id)

    def take_out(
        self, entry: Entry, reason: str, *, requeue: bool = False, by: Session | None = None, note: str | None = None
    ) -> list[Json]:
        """*Discard* of an entry in the tables, within a step; its own session need not be told. Returns who was promoted."""
        was = entry.state
        promoted = self.tables.remove(entry)
        entry.state = was
        self.mark_discarded(entry, reason, requeue=requeue, by=by, note=note)
        return [{"id": other.id, "from": from_, "to": to} for other, from_, to in promoted]

    def discard(self, entry: Entry, reason: str) -> None:
        """*Discard* as a step of its own."""
        self.take_out(entry, reason)
        self.record("discard", ids=[entry.id], worker=entry.worker, reason=reason)

    def cancel_rest(self, entry: Entry) -> None:
        """A group is filled: its holder, who may generate the other candidates, is told once to stop them."""
        if self.has_groups and not entry.rest_told and self.unreported(entry):
            entry.rest_told = True
            self.sessions[entry.last_holder].cancelled.add(entry.id)

    def let_go(self) -> None:
        """Batches beyond ``keep_batches`` are not kept, those from T on always."""
        limit = min(self.next_buffer - self.config["keep_batches"], self.trainer_version)
        self.oldest_kept = max(self.oldest_kept, limit)
        for version in [version for version in self.batches if version < self.oldest_kept]:
            self.forget(self.batches.pop(version))
            self.record("prune", version=version)
        self.gaps = [gap for gap in self.gaps if gap[1] > self.oldest_kept]
        self.versions = {version: known for version, known in self.versions.items() if version >= self.oldest_kept}

    def forget(self, trained: list[Entry]) -> None:
        """Entries that were trained are in no batch that is kept."""
        for entry in trained:
            self.effects.append({"effect": "pruned", "id": entry.id, **_payloads(entry)})
            del self.entries[entry.id]
            self.sessions[entry.last_holder].cancelled.discard(entry.id)
            if self.queue is not None:
                self.queue.forget(entry)

    def advance(self, weights: str | None) -> None:
        """V and T advance, one buffer opens."""
        self.policy_version += 1
        self.trainer_version = self.policy_version
        self.versions[self.policy_version] = (weights, self.now_ms)
        self.tables.open_up_to(self.policy_version + self.eta)

    def entry(self, id: str) -> Entry:
        """The entry of this id."""
        entry = self.entries.get(id)
        if entry is None:
            raise Problem(404, "unknown_trajectory", f"no trajectory {id}")
        return entry

    def show(self, entry: Entry, *, all_members: bool = False) -> Json:
        """The entry as JSON."""
        return trajectory_json(entry, self.eta, is_group=self.has_groups, all_members=all_members)

    def refuse_lineage_above(self, lineage: int | None) -> None:
        """A lineage that the run has not reached shows that the database lost writes."""
        if lineage is not None and lineage > self.lineage:
            raise conflict("ledger_behind", f"lineage {lineage} is not known")


def _payloads(entry: Entry) -> Json:
    """What an event that discards or prunes it names."""
    of_entry, of_members = entry.finish.get("payload"), [each.get("payload") for each in entry.members.values()]
    named = [payload for payload in of_members if payload is not None]
    return {**({} if of_entry is None else {"payload": of_entry}), **({"payloads": named} if named else {})}
