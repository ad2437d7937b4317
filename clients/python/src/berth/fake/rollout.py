"""Reserve, segments and discard (protocol.md, The slot tables, Groups and Partial rollout)."""

from __future__ import annotations

from . import finishing, members, sessions
from .entries import Entry, Json, conflict, segments_json
from .queue import no_queue
from .segments import check_weights, join, lineage_of
from .state import RunState, Session


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
        orphan = next((e for e in run.tables.reserved() if e.orphan and e.version <= version), None)
        if adopt and orphan is not None:
            sessions.adopt(run, session, orphan)
            done, failed = orphan.complete_members(), orphan.failed_members()
            granted.append({**_grant(run, orphan), "adopted": True, "members_done": done, "members_failed": failed})
            continue
        block = blocked_by(run, version)
        if block is not None:
            return granted, block
        place = run.tables.reservable(version)
        assert place is not None
        entry = Entry(
            run.new_id(), version, run.lineage, session.worker, session.token, run.now_ms, run.clock, run.clock,
            newest_version=version,
        )  # fmt: skip
        if run.queue is not None:
            run.queue.hand_out(run.queue.queued()[0], entry)
        elif prompts:
            entry.prompt = prompts.pop(0)
        run.entries[entry.id] = entry
        run.tables.put(entry, place)
        run.totals["reserved"] += 1
        run.last_admission = run.clock
        run.effects.append({"effect": "reserved", "id": entry.id, "version": version})
        granted.append(_grant(run, entry))
    return granted, None


def blocked_by(run: RunState, version: int) -> str | None:
    """What stands in the way of a new reservation."""
    block = run.blocked_for_everybody()
    if block in ("draining", "concurrency"):
        return block
    return "staleness" if run.tables.reservable(version) is None else block


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


def segment(run: RunState, id: str, body: Json) -> Json:
    """Records that generation goes on under a newer version."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    run.refuse_lineage_above(body.get("lineage"))
    entry, index = run.entry(id), body.get("member")
    members.refuse_misfit(run, index)
    begun: Json = {"index": index, "state": "generating", "segments": []}
    generated: Json = {"state": entry.state, "version": entry.version, "segments": entry.segments}
    if index is not None:
        generated = entry.members.get(index, begun)
    first = generated.get("version", entry.version)
    is_told = finishing.is_over(entry)
    if not is_told:
        finishing.refuse_late(run, entry)
    if is_told or (index is not None and (run.is_filled(entry.members) or generated["state"] != "generating")):
        return {"segments": segments_json(first, generated["segments"])}
    version, from_token = body["version"], body["from_token"]
    check_weights(run, version, lineage_of(run, session, body.get("lineage")))
    if version < entry.version:
        raise conflict("version_too_stale", policy_version=run.policy_version)
    begins = index is not None and from_token == 0 and "version" not in generated and not generated["segments"]
    first = version if begins else first
    following = join(first, generated["segments"], [{"version": version, "from_token": from_token}])
    if begins or following != generated["segments"]:
        if index is None:
            entry.segments = following
        else:
            entry.members[index] = {**generated, "segments": following, **({"version": first} if begins else {})}
        entry.touch(version, run.lineage)
        run.record("segment", ids=[id], version=version)
    return {"segments": segments_json(first, following)}


def discard(run: RunState, id: str, body: Json) -> Json:
    """Gives up a reserved entry, or filters a finished one."""
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    requeue = bool(body.get("requeue"))
    if requeue and run.queue is None:
        raise no_queue()
    entry = run.entry(id)
    if entry.state == "discarded":
        return {"discarded_from": entry.discarded_from, "promoted": []}
    if entry.is_taken:
        raise conflict("trajectory_taken", "it is in a batch")
    promoted = run.take_out(entry, body["reason"], requeue=requeue, by=session, note=body.get("note"))
    worker = body.get("worker") or entry.worker
    run.record("discard", ids=[id], worker=worker, reason=body["reason"], note=body.get("note"))
    return {"discarded_from": entry.discarded_from, "promoted": promoted}
