"""How an entry finishes, whole or by its members, and how a discarded one returns (protocol.md, Groups, Late occupy)."""

from __future__ import annotations

from .._reasons import LATE_REASONS
from . import members, sessions
from .entries import Entry, Json, conflict, invalid
from .segments import Abandoned, check_weights, join, lineage_of, newest
from .state import RunState, Session

FINISH_FIELDS = ("reward", "tokens", "payload", "meta")
#: Groups that were discarded for these are told so, and refuse nothing.
GONE = frozenset({"zero_variance", "group_failed"})


def occupy(run: RunState, id: str, body: Json) -> Json:
    """Finishes an entry: its place, also when the call is repeated."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    run.refuse_lineage_above(body.get("lineage"))
    lineage = lineage_of(run, session, body.get("lineage"))
    return occupy_one(run, session, lineage, id, body)


def occupy_one(run: RunState, session: Session | None, lineage: int | None, id: str, body: Json) -> Json:
    """As :func:`occupy`, of a session that was entered."""
    entry = run.entry(id)
    reports, named = body.get("members") or [], body.get("segments") or []
    for report in reports:
        members.refuse_misfit(run, report["index"])
    if named and run.has_groups:
        raise invalid("member", "segments are of a member of the group")
    if is_over(entry):
        return outcome(run, entry)
    refuse_late(run, entry)
    segments, counted = entry.segments, {}
    try:
        if run.has_groups:
            counted = members.count_all(run, session, lineage, entry, body, reports)
        elif named:
            check_weights(run, newest(0, named), lineage)
            segments = join(entry.version, entry.segments, named)
    except Abandoned:
        reason = entry.reason
        if entry.state == "reserved":
            reason = "rewound"
            run.take_out(entry, reason, by=session)
            run.record("discard", ids=[id], worker=entry.worker, reason=reason)
        raise conflict("trajectory_discarded", reason=reason) from None
    known = {**entry.members, **counted}
    can_end = run.is_filled(known) or (entry.state == "reserved" and run.cannot_be_filled(known))
    if run.has_groups and not can_end:
        if counted:
            members.keep(run, entry, counted)
            run.record("member", ids=[id], worker=entry.worker)
        complete = len(entry.complete_members())
        raise conflict("group_incomplete", f"{complete} of {run.config['group_size']} members are complete")
    refuse_without_place(run, entry)
    entry.finish |= {key: body[key] for key in FINISH_FIELDS if body.get(key) is not None}
    members.keep(run, entry, counted)
    if named:
        entry.segments = segments
        entry.touch(newest(entry.version, segments), run.lineage)
    conclude(run, session, entry)
    run.record("occupy", ids=[entry.id], worker=body.get("worker") or entry.worker, late=entry.late or None)
    return outcome(run, entry)


def member(run: RunState, id: str, index: int, body: Json) -> Json:
    """Finishes, or fails, one member of a group."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    run.refuse_lineage_above(body.get("lineage"))
    entry = run.entry(id)
    members.refuse_misfit(run, index)
    if is_over(entry):
        return _recorded(run, entry, False)
    refuse_late(run, entry)
    lineage = lineage_of(run, session, body.get("lineage"))
    counted = members.count_all(run, session, lineage, entry, body, [{**body, "index": index}])
    if not counted:
        return _recorded(run, entry, False)
    known = {**entry.members, **counted}
    is_late, is_filled = entry.state == "discarded", run.is_filled(known)
    fills = is_filled and run.config["auto_occupy"]
    if fills:
        refuse_without_place(run, entry)
    members.keep(run, entry, counted)
    if fills or (not is_late and run.cannot_be_filled(known)):
        conclude(run, session, entry)
    elif is_filled and not is_late:
        run.cancel_rest(entry)
    run.record("member", ids=[entry.id], worker=session.worker if session else entry.worker, member=index)
    return _recorded(run, entry, True)


def _recorded(run: RunState, entry: Entry, counted: bool) -> Json:
    complete, failed = len(entry.complete_members()), len(entry.failed_members())
    shown = {"state": entry.state, "reason": entry.reason}
    if entry.state in ("occupied", "taken"):
        shown = outcome(run, entry)
    return {**shown, "counted": counted, "complete": complete, "failed": failed, "needed": run.config["group_size"]}


def is_over(entry: Entry) -> bool:
    """Whether a report comes too late to change anything, and is told what became of the entry."""
    return entry.state in ("occupied", "taken") or (entry.state == "discarded" and entry.reason in GONE)


def refuse_late(run: RunState, entry: Entry) -> None:
    """Refuses a discarded entry that may not be finished any more, whether or not there is a slot for it."""
    if entry.state != "discarded":
        return
    may_return = entry.reason in LATE_REASONS
    if may_return and run.queue is not None and run.queue.is_superseded(entry):
        raise conflict("superseded", "the prompt went on without it")
    if not may_return or run.is_abandoned(entry.newest_version, entry.lineage) or run.finished():
        raise conflict("trajectory_discarded", reason=entry.reason)


def refuse_without_place(run: RunState, entry: Entry) -> None:
    """Refuses a discarded entry that is finished, and finds no slot."""
    if entry.state == "discarded" and run.tables.reservable(entry.version) is None:
        raise conflict("trajectory_discarded", reason=entry.reason)


def conclude(run: RunState, session: Session | None, entry: Entry) -> None:
    """The entry is finished: it is occupied, or, if it is a group that is of no use, discarded."""
    if entry.state == "discarded":
        _readmit(run, entry)
    if run.has_groups:
        _sum_up(run, entry)
        reason = _reason_to_discard(run, entry)
        if reason is not None:
            # Its own report tells a caller of the one member that it reported; the others it must be told of.
            run.take_out(entry, reason, by=None if run.unreported(entry) else session)
            return
    run.cancel_rest(entry)
    entry.orphan = False
    run.tables.occupy(entry)
    run.tables.discard_surplus()
    entry.occupied_at_ms = run.now_ms
    run.totals["occupied"] += 1
    if run.queue is not None:
        run.queue.follow(entry, "occupied")
    if session is not None:
        session.finished += 1


def _readmit(run: RunState, entry: Entry) -> None:
    place = run.tables.reservable(entry.version)
    assert place is not None
    run.sessions[entry.last_holder].cancelled.discard(entry.id)
    entry.state, entry.late, entry.reason = "reserved", True, None
    run.tables.put(entry, place)
    run.totals["late"] += 1
    if run.queue is not None:
        run.queue.follow(entry, "occupied")
    run.effects.append({"effect": "reserved", "id": entry.id, "version": entry.version})


def _sum_up(run: RunState, entry: Entry) -> None:
    """What the group has of its members, where its client did not say it of the group: the mean reward, and all tokens."""
    complete = [entry.members[index] for index in entry.complete_members()]
    rewards = [each["reward"] for each in complete if each.get("reward") is not None]
    tokens = [each["tokens"] for each in complete if each.get("tokens") is not None]
    size = run.config["group_size"]
    if len(rewards) == size:
        entry.finish.setdefault("reward", sum(rewards) / size)
    if len(tokens) == size:
        entry.finish.setdefault("tokens", sum(tokens))


def _reason_to_discard(run: RunState, entry: Entry) -> str | None:
    if not run.is_filled(entry.members):
        return "group_failed"
    rewards = {entry.members[index].get("reward") for index in entry.complete_members()}
    has_no_gradient = len(rewards) == 1 and None not in rewards
    return "zero_variance" if run.config["drop_zero_variance"] and has_no_gradient else None


def outcome(run: RunState, entry: Entry) -> Json:
    """Where a finished entry is, and which group was discarded in place of it."""
    if entry.state == "discarded":
        return {"state": "discarded", "reason": entry.reason}
    state = run.tables.state(entry.buffer) if entry.buffer in run.tables.buffers else "ready"
    shown = "taken" if entry.is_taken else entry.state
    return {"state": shown, "buffer": entry.buffer, "slot": entry.slot, "buffer_state": state, "late": entry.late}
