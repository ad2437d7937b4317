"""What the calls that only look answer."""

from __future__ import annotations

from typing import Any

from . import rollout, sessions
from .entries import Entry, Json, Problem, invalid
from .queue import no_queue
from .state import RunState


def status(run: RunState) -> Json:
    """The run in numbers."""
    return {
        "run": run.name,
        "config": run.config,
        "policy_version": run.policy_version,
        "lineage": run.lineage,
        "next_buffer": run.next_buffer,
        "trainer_version": run.trainer_version,
        "draining": run.draining,
        "finished": run.finished(),
        "reserved": len(run.tables.reserved()),
        "generating": run.generating(),
        "occupied": sum(entry.state == "occupied" and not entry.is_taken for entry in run.tables.entries()),
        "workers": sum(not session.ended and not session.expired for session in run.sessions.values()),
        "kept_batches": len(run.batches),
        "oldest_kept": min(run.batches, default=None),
        "seq": run.seq,
        "buffers": [_counts(run, buffer) for buffer in sorted(run.tables.buffers)],
        "trainer": trainer(run),
        "prompts": run.queue.counts() if run.queue is not None else None,
        "totals": run.totals,
    }


def trainer(run: RunState) -> Json:
    """The trainer as explain and status show it."""
    if run.epoch == 0:
        return {"state": "never_seen", "epoch": 0}
    state = "waiting" if run.trainer.waits_since is not None else "training"
    return {"state": state, "name": run.trainer.name, "epoch": run.epoch, "last_call_at_ms": run.trainer.last_call}


def _counts(run: RunState, buffer: int) -> Json:
    slots = run.tables.buffers[buffer]
    occupied = len(run.tables.occupied_in(buffer))
    empty = slots.count(None)
    counts = {"occupied": occupied, "empty": empty, "reserved": len(slots) - occupied - empty}
    return {"version": buffer, "state": run.tables.state(buffer), **counts}


def buffers(run: RunState, slots: bool) -> Json:
    """The slot tables."""
    shown = []
    for buffer in sorted(run.tables.buffers):
        each = _counts(run, buffer)
        if slots:
            each["slots"] = [_slot(run, entry) for entry in run.tables.buffers[buffer]]
        shown.append(each)
    numbers = {"policy_version": run.policy_version, "lineage": run.lineage}
    return {**numbers, "next_buffer": run.next_buffer, "trainer_version": run.trainer_version, "buffers": shown}


def _slot(run: RunState, entry: Entry | None) -> Json:
    return {"state": "empty"} if entry is None else run.show(entry)


def explain(run: RunState) -> Json:
    """Why the trainer waits, in the fake's plain words."""
    is_open = run.next_buffer in run.tables.buffers
    occupied, needed = len(run.tables.occupied_in(run.next_buffer)), run.config["batch_size"]
    waiting_on = [
        {
            "id": entry.id,
            "prompt": entry.prompt,
            "slot": entry.slot,
            "worker": None if entry.orphan else entry.worker,
            "version": entry.version,
            "attempt": entry.attempt,
            "members_complete": len(entry.complete_members()) if run.has_groups else None,
            "reserved_at_ms": entry.reserved_at_ms,
        }
        for entry in run.tables.reserved()
        if entry.buffer == run.next_buffer and run.trainer_version == run.policy_version
    ]
    buffers = run.tables.buffers
    free = sum(slots.count(None) for buffer, slots in buffers.items() if run.tables.state(buffer) != "ready")
    said = (sessions.said_version(run, run.sessions[each]) for each in run.current.items())
    newest = max((version for version in said if version is not None), default=run.policy_version)
    blocked = rollout.blocked_by(run, newest)
    return {
        "summary": f"Buffer {run.next_buffer} has {occupied} of {needed}; {len(waiting_on)} are being generated.",
        "trainer": trainer(run),
        "buffer": run.next_buffer if is_open else None,
        "buffer_state": run.tables.state(run.next_buffer) if is_open else None,
        "occupied": occupied,
        "needed": needed,
        "waiting_on": waiting_on,
        "admission": {"blocked_by": blocked, "free_slots": free, "reserved": len(run.tables.reserved())},
        "workers": [],
    }


def distribution(run: RunState) -> Json:
    """Counts of what was trained and discarded; the fake keeps no lengths."""
    by_reason = {reason: {"entries": count} for reason, count in run.totals["discarded"].items()}
    trained = {"entries": run.totals["trained"]}
    admitted = run.totals["reserved"] + run.totals["late"]
    return {"quarters": [], "admitted": {"entries": admitted}, "trained": trained, "by_reason": by_reason}


def latest(run: RunState, after: int | None, lineage: int | None) -> tuple[Json, bool]:
    """The latest version; and whether it is news to the caller."""
    weights, at_ms = run.versions[run.policy_version]
    answer = {
        "policy_version": run.policy_version,
        "lineage": run.lineage,
        "weights": weights,
        "published_at_ms": at_ms,
        "finished": run.finished(),
    }
    is_old = lineage is not None and lineage != run.lineage
    return answer, after is None or run.policy_version > after or is_old or run.finished()


def batch(run: RunState, version: int, from_offset: int, most: int | None) -> Json:
    """A batch, or a part of what was taken of it."""
    if version in run.batches:
        taken = run.batches[version]
    elif version == run.next_buffer:
        taken = [entry for entry in run.tables.occupied_in(version) if entry.streamed]
    else:
        taken = []
    if version not in run.batches and not taken:
        if version < run.next_buffer and not any(first <= version < past for first, past in run.gaps):
            raise Problem(410, "batch_pruned", f"batch {version} is not kept")
        raise Problem(404, "unknown_batch", f"there is no batch {version} yet")
    piece = taken[from_offset:] if most is None else taken[from_offset : from_offset + most]
    complete = version in run.batches and from_offset + len(piece) == len(taken)
    return {
        "version": version,
        "redelivered": True,
        "replayed": False,
        "final": version in run.final_batches,
        "offset": from_offset,
        "complete": complete,
        "trajectories": [run.show(entry) for entry in piece],
    }


def batches(run: RunState) -> Json:
    """The kept batches, and the one of which pieces are taken."""
    taken = dict(run.batches)
    pieces = [entry for entry in run.tables.occupied_in(run.next_buffer) if entry.streamed]
    if pieces:
        taken[run.next_buffer] = pieces
    return {"batches": [_batch_in_short(run, version, taken[version]) for version in sorted(taken)], "next": None}


def _batch_in_short(run: RunState, version: int, entries: list[Entry]) -> Json:
    staleness: dict[str, int] = {}
    for entry in entries:
        key = str(version - entry.version)
        staleness[key] = staleness.get(key, 0) + 1
    state = "partial" if version not in run.batches else "trained" if version < run.policy_version else "taken"
    return {
        "version": version,
        "entries": len(entries),
        "staleness": staleness,
        "final": version in run.final_batches,
        "state": state,
        "taken_at_ms": entries[0].taken_at_ms if entries else None,
        "published_at_ms": run.versions.get(version + 1, (None, None))[1],
    }


def workers(run: RunState) -> Json:
    """The workers, each with its current session."""
    shown = []
    for worker, token in sorted(run.current.items()):
        session = run.sessions[worker, token]
        left = session.last_call + run.config["lease_ms"] - run.clock
        shown.append(
            {
                "worker": worker,
                "session": token,
                "version": sessions.said_version(run, session),
                "heartbeat_at_ms": session.last_call,
                "lease_expires_in_ms": max(0, left),
                "reserved": sum(entry.holder == (worker, token) for entry in run.tables.reserved()),
                "finished": session.finished,
                "cancelled_pending": len(session.cancelled),
            }
        )
    return {"workers": shown, "next": None}


def trajectories(run: RunState, worker: str | None, state: str) -> Json:
    """The trajectories in a state."""
    if state == "taken":
        pieces = [entry for entry in run.tables.occupied_in(run.next_buffer) if entry.streamed]
        found = [*(entry for _, batch in sorted(run.batches.items()) for entry in batch), *pieces]
    elif state in ("reserved", "occupied"):
        found = [entry for entry in run.tables.entries() if entry.state == state and not entry.streamed]
    else:
        raise invalid("state", "reserved, occupied or taken")
    if worker is not None:
        # An orphaned group is nobody's, though it shows who held it last.
        found = [entry for entry in found if entry.worker == worker and not entry.orphan]
    all_members = state == "reserved"
    return {"trajectories": [run.show(entry, all_members=all_members) for entry in found], "next": None}


def events(run: RunState, after: int, limit: int, trajectory: str | None) -> tuple[Json, bool]:
    """A page of the event log; and whether it has any."""
    found = [each for each in run.events if each["seq"] > after]
    if trajectory is not None:
        found = [each for each in found if trajectory in each.get("ids", [])]
    page = found[:limit]
    following: Any = page[-1]["seq"] if len(found) > limit else None
    return {"events": page, "next": following}, bool(page)


def prompts(run: RunState, state: str | None, after: int, limit: int) -> Json:
    """A page of the prompt queue."""
    if run.queue is None:
        raise no_queue()
    return run.queue.page(state, after, limit)
