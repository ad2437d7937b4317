"""Reserve, occupy, members, segments and discard (protocol.md, The slot tables and Groups)."""

from __future__ import annotations

from .._reasons import LATE_REASONS
from . import sessions
from .entries import Entry, Json, conflict, invalid
from .state import RunState, Session

FINISH_FIELDS = ("reward", "tokens", "payload", "meta")


def reserve(run: RunState, body: Json) -> tuple[Json, bool]:
    """Reserves; the answer, and whether anything was granted."""
    session = sessions.enter(run, body["worker"], body.get("session"))
    assert session is not None
    request_id = body.get("request_id")
    said = {key: value for key, value in body.items() if key != "wait_ms"}
    if request_id in session.requests:
        request, answer = session.requests[request_id]
        if request != said:
            raise conflict("request_id_reused", "the request id was used for another request")
        return answer, True
    version, lineage = sessions.weights_of(run, session, body.get("version"), body.get("lineage"))
    if version < run.policy_version and version + run.eta < run.next_buffer:
        raise conflict("version_too_stale", f"version {version} is too stale", policy_version=run.policy_version)
    prompts = body.get("prompts") or []
    granted, block = _admit(run, session, body.get("count") or len(prompts) or 1, version, lineage, list(prompts), body)
    answer = {
        "granted": granted,
        "blocked_by": block,
        "policy_version": run.policy_version,
        "lineage": run.lineage,
        "next_buffer": run.next_buffer,
        "lease_expires_in_ms": run.config["lease_ms"],
        "finished": run.finished(),
    }
    if granted:
        session.version, session.said_in = version, run.lineage
        run.record("reserve", ids=[each["id"] for each in granted], worker=session.worker, version=version)
        if request_id is not None:
            session.requests[request_id] = said, answer
    return answer, bool(granted) or bool(answer["finished"])


def _admit(
    run: RunState, session: Session, count: int, version: int, lineage: int, prompts: list[str], body: Json
) -> tuple[list[Json], str | None]:
    granted: list[Json] = []
    adopt = body.get("adopt", run.config["adopt_groups"])
    while len(granted) < count:
        orphan = next((e for e in run.tables.reserved() if e.holder is None and e.version <= version), None)
        if adopt and orphan is not None:
            granted.append(_adopt(run, session, orphan))
            continue
        block = blocked_by(run, version)
        if block is not None:
            return granted, block
        place = run.tables.reservable(version)
        assert place is not None
        entry = Entry(
            run.new_id(), version, run.lineage, session.worker, session.token, run.now_ms, run.clock,
            newest_version=version,
        )  # fmt: skip
        if run.queue is not None:
            run.queue.hand_out(run.queue.queued()[0], entry)
        elif prompts:
            entry.prompt = prompts.pop(0)
        run.entries[entry.id] = entry
        run.tables.put(entry, place)
        run.totals["reserved"] += 1
        run.effects.append({"effect": "reserved", "id": entry.id, "version": version})
        granted.append(_grant(run, entry))
    return granted, None


def blocked_by(run: RunState, version: int) -> str | None:
    """What stands in the way of a new reservation."""
    queued = run.queue.queued() if run.queue is not None else []
    if run.draining and (run.keep_queue or not queued):
        return "draining"
    most = run.config["max_concurrency"]
    if most is not None and run.generating() + run.config["group_candidates"] > most:
        return "concurrency"
    if run.tables.reservable(version) is None:
        return "staleness"
    return "prompts" if run.queue is not None and not queued else None


def _grant(run: RunState, entry: Entry) -> Json:
    return {
        "id": entry.id,
        "prompt": entry.prompt,
        "data": entry.queued.data if entry.queued is not None else None,
        "version": entry.version,
        "deadline": entry.version + run.eta,
        "buffer": entry.buffer,
        "slot": entry.slot,
        "attempt": entry.attempt,
    }


def _adopt(run: RunState, session: Session, entry: Entry) -> Json:
    entry.worker, entry.session, entry.granted_at = session.worker, session.token, run.clock
    run.totals["adopted"] += 1
    done, failed = entry.complete_members(), entry.failed_members()
    return {**_grant(run, entry), "adopted": True, "members_done": done, "members_failed": failed}


# Finishing.


def occupy(run: RunState, id: str, body: Json) -> Json:
    """Finishes an entry: its place, also when the call is repeated."""
    run.refuse_lineage_above(body.get("lineage"))
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    if session is not None:
        sessions.lineage_of(run, session, body.get("lineage"))
    return occupy_one(run, session, id, body)


def occupy_one(run: RunState, session: Session | None, id: str, body: Json) -> Json:
    """As :func:`occupy`, of a session that was entered."""
    entry = run.entry(id)
    lineage = body.get("lineage", run.lineage)
    if entry.state in ("occupied", "taken"):
        return _place(run, entry)
    if entry.state == "discarded" and entry.reason not in LATE_REASONS:
        raise conflict("trajectory_discarded", reason=entry.reason)
    segments = body.get("segments") or []
    if entry.state == "reserved" and any(run.is_abandoned(version, lineage) for version in _named(body)):
        run.discard(entry, "rewound", by=session)
        raise conflict("trajectory_discarded", reason="rewound")
    _check_segments(run, entry.version, [*entry.segments, *segments])
    if body.get("members"):
        for member in body["members"]:
            report_member(run, session, entry, member["index"], {"lineage": lineage, **member}, whole=True)
    if run.has_groups and len(entry.complete_members()) < run.config["group_size"]:
        raise conflict("group_incomplete", f"{len(entry.complete_members())} of {run.config['group_size']} members")
    entry.finish = {key: body[key] for key in FINISH_FIELDS if body.get(key) is not None}
    entry.segments = entry.segments + [each for each in segments if each not in entry.segments]
    return _finish(run, session, entry)


def _named(body: Json) -> list[int]:
    """The versions that an occupy names, in its segments and its members."""
    members = [each for each in body.get("members") or [] if not each.get("failed")]
    segments = [each for part in [body, *members] for each in part.get("segments") or []]
    return [each["version"] for each in [*segments, *members] if each.get("version") is not None]


def _finish(run: RunState, session: Session | None, entry: Entry) -> Json:
    """Occupies it, or discards a group of equal rewards; a discarded one comes back if there is a place."""
    if run.config["drop_zero_variance"] and run.has_groups:
        rewards = {entry.members[index].get("reward") for index in entry.complete_members()}
        if len(rewards) == 1 and None not in rewards and entry.state == "reserved":
            run.discard(entry, "zero_variance", by=session)
            return {"state": "discarded", "reason": "zero_variance"}
    if entry.state == "discarded":
        _come_back(run, entry)
    run.cancel_rest(entry)
    for segment in entry.segments:
        entry.touch(segment["version"])
    run.tables.occupy(entry)
    entry.occupied_at_ms = run.now_ms
    run.totals["occupied"] += 1
    if run.queue is not None:
        run.queue.follow(entry, "occupied")
    if session is not None:
        session.finished += 1
    run.record("occupy", ids=[entry.id], worker=entry.worker, late=entry.late or None)
    return _place(run, entry)


def _come_back(run: RunState, entry: Entry) -> None:
    if run.queue is not None and run.queue.is_superseded(entry):
        raise conflict("superseded", "the prompt went on without it")
    place = run.tables.reservable(entry.version)
    gone = run.finished() or run.is_abandoned(entry.newest_version, entry.lineage)
    if place is None or gone or entry.reason not in LATE_REASONS:
        raise conflict("trajectory_discarded", reason=entry.reason)
    holder = run.sessions.get(entry.holder) if entry.holder is not None else None
    if holder is not None:
        holder.cancelled.pop(entry.id, None)
    entry.state, entry.late, entry.reason = "reserved", True, None
    run.tables.put(entry, place)
    run.totals["late"] += 1
    run.effects.append({"effect": "reserved", "id": entry.id, "version": entry.version})


def _place(run: RunState, entry: Entry) -> Json:
    state = run.tables.state(entry.buffer) if entry.buffer in run.tables.buffers else "ready"
    shown = "taken" if entry.streamed else entry.state
    return {"state": shown, "buffer": entry.buffer, "slot": entry.slot, "buffer_state": state, "late": entry.late}


def _check_segments(run: RunState, version: int, segments: list[Json]) -> None:
    before = {"version": version, "from_token": 0}
    for segment in segments:
        if segment["version"] > run.policy_version:
            raise conflict("version_not_published", policy_version=run.policy_version)
        if segment == before:
            continue
        if segment["version"] <= before["version"] or segment["from_token"] <= before["from_token"]:
            raise conflict("segment_out_of_order", "versions and tokens must rise")
        before = segment


# Members and segments.


def member(run: RunState, id: str, index: int, body: Json) -> Json:
    """Finishes, or fails, one member of a group."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    entry = run.entry(id)
    return report_member(run, session, entry, index, body)


def report_member(
    run: RunState, session: Session | None, entry: Entry, index: int, body: Json, *, whole: bool = False
) -> Json:
    """As :func:`member`; ``whole`` when the entry is occupied by the same call."""
    if not 0 <= index < run.config["group_candidates"]:
        raise invalid("index", f"the run has {run.config['group_candidates']} candidates")
    if entry.state == "discarded" and entry.reason in ("zero_variance", "group_failed"):
        return {**_counts(run, entry, False), "state": "discarded", "reason": entry.reason}
    if entry.state == "discarded" and entry.reason not in LATE_REASONS:
        raise conflict("trajectory_discarded", reason=entry.reason)
    full = len(entry.complete_members()) >= run.config["group_size"]
    if index in entry.members or full or entry.state in ("occupied", "taken"):
        place = _place(run, entry) if entry.state in ("occupied", "taken") else {}
        return {**_counts(run, entry, False), **place}
    if body.get("failed"):
        entry.members[index] = {"index": index, "failed": True, "note": body.get("note")}
    else:
        entry.members[index] = _complete(run, session, entry, index, body)
    run.record("member", ids=[entry.id], worker=session.worker if session else None, member=index)
    answer = _counts(run, entry, True)
    if len(entry.complete_members()) >= run.config["group_size"]:
        if run.config["auto_occupy"] and not whole:
            return {**answer, **_finish(run, session, entry)}
        run.cancel_rest(entry)
    elif run.config["group_candidates"] - len(entry.failed_members()) < run.config["group_size"]:
        if entry.state == "reserved":
            run.discard(entry, "group_failed", by=session)
        return {**answer, "state": "discarded", "reason": "group_failed"}
    return answer


def _complete(run: RunState, session: Session | None, entry: Entry, index: int, body: Json) -> Json:
    segments = body.get("segments") or []
    version = segments[0]["version"] if segments else body.get("version")
    version, lineage = sessions.weights_of(run, session, version, body.get("lineage"))
    if version < entry.version:
        raise conflict(
            "version_too_stale", f"the group is of version {entry.version}", policy_version=run.policy_version
        )
    _check_segments(run, version, segments)
    if any(run.is_abandoned(each["version"], lineage) for each in segments):
        raise conflict("version_not_published", policy_version=run.policy_version)
    for each in [version, *(segment["version"] for segment in segments)]:
        entry.touch(each)
    finish = {key: body[key] for key in FINISH_FIELDS if body.get(key) is not None}
    return {"index": index, "version": version, "segments": segments or None, **finish}


def _counts(run: RunState, entry: Entry, counted: bool) -> Json:
    complete, failed = len(entry.complete_members()), len(entry.failed_members())
    needed = run.config["group_size"]
    shown = {"complete": complete, "failed": failed, "needed": needed}
    return {"state": entry.state, "counted": counted, **shown}


def segment(run: RunState, id: str, body: Json) -> Json:
    """Records that generation goes on under a newer version."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    entry = run.entry(id)
    if entry.state == "discarded" and entry.reason not in LATE_REASONS:
        raise conflict("trajectory_discarded", reason=entry.reason)
    sessions.weights_of(run, session, body["version"], body.get("lineage"))
    new = {"version": body["version"], "from_token": body["from_token"]}
    member_index = body.get("member")
    if member_index is not None:
        entry.touch(new["version"])
        return {"segments": [new]}
    if not entry.segments or entry.segments[-1] != new:
        _check_segments(run, entry.version, [*entry.segments, new])
        entry.segments.append(new)
        entry.touch(new["version"])
        run.record("segment", ids=[id], version=new["version"])
    return {"segments": [{"version": entry.version, "from_token": 0}, *entry.segments]}


def discard(run: RunState, id: str, body: Json) -> Json:
    """Gives up a reserved entry, or filters a finished one."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    entry = run.entry(id)
    if entry.state == "discarded":
        return {"discarded_from": entry.discarded_from, "promoted": []}
    if entry.state == "taken" or entry.streamed:
        raise conflict("trajectory_taken", "it is in a batch")
    promoted = run.discard(entry, body["reason"], requeue=bool(body.get("requeue")), by=session)
    return {"discarded_from": entry.discarded_from, "promoted": promoted}
