"""A run of the fake and one of a real server, driven by names and not by ids, so that they can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import berth
from berth._parts import Part

F = TypeVar("F", bound=Callable[..., object])

#: Weights by version and lineage.
Weights = tuple[int, int]


@dataclass(frozen=True)
class MemberAct:
    """A member that is reported."""

    index: int
    reward: float | None = None
    failed: bool = False
    weights: Weights | None = None
    segments: tuple[tuple[Weights, int], ...] = ()


def named(weights: Weights | None) -> berth.Weights | None:
    return berth.Weights(version=weights[0], lineage=weights[1]) if weights is not None else None


def told(act: F) -> F:
    """An act whose refusal is an answer."""

    def asked(*arguments: Any) -> object:
        try:
            return act(*arguments)
        except berth.Refused as refusal:
            said = refusal.problem
            return refusal.code, [said.get(key) for key in ("reason", "expected", "policy_version", "field")]

    return asked  # type: ignore[return-value]


class Twin:
    """One of the two. ``let_time_out`` waits until no reservation is left whose timeout is a millisecond."""

    def __init__(
        self, client: berth.Client, name: str, config: dict[str, Any], let_time_out: Callable[[berth.Run], None]
    ) -> None:
        self.client = client
        self.run = client.run(name, **config)
        self.config = config
        self.let_time_out = let_time_out
        self.workers: dict[str, berth.Worker] = {}
        for worker in ("v", "w"):
            self.start(worker)
        self.trainer = self.run.trainer()
        self.trainer.__enter__()
        self.slots: dict[str, berth.Slot] = {}
        self.streamed, self.streamed_of = 0, -1

    def start(self, worker: str) -> None:
        """The worker's process starts; if there was one, it died without a word."""
        self.workers[worker] = self.run.worker(worker)
        self.workers[worker].__enter__()

    def names(self) -> dict[str, str]:
        return {slot.id: name for name, slot in self.slots.items()}

    def knows(self, name: str) -> bool:
        """Whether the entry is remembered: one that was trained is forgotten with its batch."""
        try:
            self.run.trajectory(self.slots[name].id)
        except berth.UnknownTrajectory:
            return False
        return True

    def close(self) -> None:
        self.client.close()

    # Rollout.

    @told
    def reserve(self, worker: str, weights: Weights, names: list[str] | None, count: int, adopt: bool | None) -> object:
        slots = self.workers[worker].reserve_up_to(count, named(weights), prompts=names, adopt=adopt)
        self.slots.update({str(slot.prompt): slot for slot in slots})
        return [
            (s.prompt, s.version, s.deadline, s.attempt, s.adopted, s.members_done, s.members_failed) for s in slots
        ]

    @told
    def restart(self, worker: str) -> object:
        self.start(worker)
        self.slots = {name: self.workers[worker].slot(slot.id) for name, slot in self.slots.items()}
        return None

    @told
    def heartbeat(self, worker: str) -> object:
        caller = self.workers[worker]
        beat = caller._holdings.next_beat()
        answer = caller._send(caller._calls.heartbeat(beat, 0))
        caller._holdings.told(beat, answer)
        names = self.names()
        cancelled = sorted((names.get(each.id, ""), each.reason, each.members) for each in answer.cancelled)
        return cancelled, answer.policy_version, answer.lineage, answer.next_buffer, answer.finished

    @told
    def claim(self, worker: str, name: str) -> object:
        slot = self.slots[name] = self.workers[worker].claim(self.slots[name].id)
        return slot.version, slot.attempt, slot.members_done, slot.members_failed

    @told
    def occupy(self, worker: str, name: str, segments: list[tuple[Weights, int]]) -> object:
        slot = self.workers[worker].slot(self.slots[name].id)
        for weights, from_token in segments:
            slot.segment(berth.Weights(version=weights[0], lineage=weights[1]), from_token)
        return slot.occupy(reward=1.0, tokens=100)

    @told
    def whole(self, worker: str, name: str, members: list[MemberAct]) -> object:
        slot = self.workers[worker].slot(self.slots[name].id)
        results = [
            berth.MemberResult(
                index=each.index,
                reward=each.reward,
                tokens=10,
                failed=each.failed,
                version=named(each.weights),
                segments=[(berth.Weights(version=of[0], lineage=of[1]), token) for of, token in each.segments],
            )
            for each in members
        ]
        return slot.occupy(members=results)

    @told
    def member(self, worker: str, name: str, act: MemberAct) -> object:
        member = self.workers[worker].slot(self.slots[name].id).member(act.index, version=named(act.weights))
        for weights, from_token in act.segments:
            member.segment(berth.Weights(version=weights[0], lineage=weights[1]), from_token)
        return member.fail("failed") if act.failed else member.complete(reward=act.reward, tokens=10)

    @told
    def segment(self, worker: str, name: str, weights: Weights, from_token: int, member: int | None) -> object:
        part = Part(berth.Weights(version=weights[0], lineage=weights[1]), from_token, member)
        caller = self.workers[worker]
        return caller._send(caller._calls.segment(self.slots[name].id, part))

    @told
    def discard(self, name: str, by: str | None, requeue: bool) -> object:
        names, id = self.names(), self.slots[name].id
        caller = self.workers[by]._calls.caller if by is not None else {}
        answer = self.run._send(self.run._calls.discard(id, caller, "filtered", "a note", requeue))
        return answer.discarded_from, [(names.get(each.id), each.from_, each.to) for each in answer.promoted]

    @told
    def time_out(self) -> object:
        self.run.configure(reservation_timeout_ms=1)
        self.let_time_out(self.run)
        self.run.configure(reservation_timeout_ms=None)
        return None

    # The trainer.

    @told
    def stream(self, least: int, most: int | None) -> object:
        if self.streamed_of != self.trainer.trainer_version:
            self.streamed, self.streamed_of = 0, self.trainer.trainer_version
        answer = self.trainer.next_piece(self.streamed, min_entries=least, max_entries=most)
        if answer.batch is not None:
            self.streamed += len(answer.batch)
        return self.taken(answer)

    @told
    def take(self) -> object:
        return self.taken(self.trainer.next_batch())

    def taken(self, answer: berth.NextBatch) -> object:
        batch = self.batch_shown(answer.batch) if answer.batch is not None else None
        waits = (answer.occupied, answer.needed) if batch is None else None
        return batch, answer.buffer_state, waits, answer.finished

    def batch_shown(self, batch: berth.Batch) -> object:
        said = (batch.version, batch.offset, batch.complete, batch.final, batch.replayed, batch.redelivered)
        return said, [entry_shown(entry) for entry in batch]

    @told
    def publish(self, weights: str | None, version: int | None) -> object:
        published, latest = self.trainer.publish(weights, version=version), self.run.weights()
        return published, latest.version, latest.lineage, latest.reference

    @told
    def checkpoint(self, version: int) -> object:
        return self.trainer.checkpoint(version)

    @told
    def resume(self, version: int, mode: berth.ResumeMode, force: bool) -> object:
        trainer = self.run.trainer(resume_from=version, mode=mode, force=force)
        trainer.__enter__()
        self.trainer, self.streamed_of = trainer, -1
        return trainer.session

    @told
    def batch(self, version: int, offset: int | None, most: int | None) -> object:
        return self.batch_shown(self.run.batch(version, from_offset=offset, max_entries=most))

    # The run.

    @told
    def feed(self, prompts: list[berth.Prompt]) -> object:
        return self.run.feed(prompts, offset=self.run.prompts().fed)

    @told
    def drain(self, queue: str | None) -> object:
        return self.run.drain(queue=queue)

    @told
    def undrain(self) -> object:
        return self.run.undrain()

    @told
    def configure(self, changes: dict[str, int | None]) -> object:
        return self.run.configure(**changes).config

    # Looking.

    @told
    def look(self, name: str) -> object:
        return entry_shown(self.run.trajectory(self.slots[name].id))

    def shown(self) -> dict[str, object]:
        """How the run stands."""
        status, explained = self.run.status(), self.run.explain()
        buffers = self.run.buffers(slots=True).buffers
        return {
            "numbers": (status.policy_version, status.next_buffer, status.trainer_version, status.lineage),
            "ends": (status.draining, status.finished),
            "counts": (status.reserved, status.generating, status.occupied, status.workers),
            "kept": (status.kept_batches, status.oldest_kept),
            "totals": status.totals,
            "slots": [
                [
                    (each.state, each.prompt, each.version, each.staleness, each.worker, each.attempt)
                    for each in buffer.slots
                ]
                for buffer in buffers
            ],
            "buffers": status.buffers,
            "explained": (explained.buffer, explained.buffer_state, explained.occupied, explained.needed),
            "admission": (explained.admission.free_slots, explained.admission.reserved),
            "waiting_on": [
                (each.prompt, each.slot, each.worker, each.version, each.attempt, each.members_complete)
                for each in explained.waiting_on
            ],
            "workers": [
                (each.worker, each.version, each.finished, each.reserved, each.cancelled_pending)
                for each in self.run.workers()
            ],
            "batches": [
                (each.version, each.entries, each.state, each.staleness, each.final) for each in self.run.batches()
            ],
            "prompts": (status.prompts, self.prompts() if self.config.get("prompt_queue") else None),
        }

    def prompts(self) -> object:
        names = self.names()
        return [
            (each.id, each.position, each.state, each.attempt, each.reason, names.get(each.trajectory or ""))
            for each in self.run.prompts().prompts
        ]

    def lists(self) -> object:
        """What takes too long to be looked at after each call: all entries, the queued prompts in order, and the distribution."""
        entries = {
            (state, worker): sorted(
                str(entry_shown(each)) for each in self.run.trajectories(worker=worker, state=state)
            )
            for state in ("reserved", "occupied", "taken")
            for worker in (None, "v")
        }
        distribution = self.run.distribution()
        shares = {reason: share.entries for reason, share in distribution.by_reason.items() if share.entries}
        has_queue = self.config.get("prompt_queue")
        queued = [each.id for each in self.run.prompts(state="queued").prompts] if has_queue else None
        return entries, queued, distribution.admitted.entries, distribution.trained.entries, shares


def entry_shown(entry: berth.Trajectory) -> object:
    """All that an entry shows, but for ids, sessions and times."""
    members = [
        (
            *(each.index, each.state, each.version, each.segments, each.reward, each.tokens, each.note, each.worker),
            round(each.advantage, 3) if each.advantage is not None else None,
        )
        for each in entry.members or ()
    ]
    return (
        (entry.prompt, entry.state, entry.reason, entry.note, entry.orphaned, entry.worker),
        (entry.version, entry.deadline, entry.staleness, entry.buffer, entry.slot, entry.attempt, entry.late),
        (entry.reward, entry.tokens, entry.segments),
        members,
    )
