"""Workers, leases and time (protocol.md, Workers, leases, time)."""

from __future__ import annotations

from .entries import Entry, Json, conflict, invalid
from .state import RunState, Session
from .stragglers import fires_at, free_the_stuck


def enter(run: RunState, worker: str | None, token: str | None) -> Session | None:
    """The session that calls, its lease renewed; a token that is new opens one and ends the worker's last."""
    if worker is None:
        return None
    token = token if token is not None else run.current.get(worker, "")
    session = run.sessions.get((worker, token))
    if session is None:
        session = run.sessions[worker, token] = Session(worker, token, run.clock, lineage=run.lineage)
        old = run.current.get(worker)
        run.current[worker] = token
        run.record("session_opened", worker=worker)
        if old is not None and old != token:
            run.sessions[worker, old].ended = True
            give_back_all(run, (worker, old), "worker_restarted")
    if session.ended:
        raise conflict("fenced", f"a newer session of {worker} is open")
    session.last_call, session.expired = run.clock, False
    return session


def held(run: RunState, key: tuple[str, str]) -> list[Entry]:
    """What a session holds, front-most first."""
    return [entry for entry in run.tables.reserved() if entry.holder == key]


def give_back_all(run: RunState, key: tuple[str, str], reason: str) -> None:
    """A session ends: it loses its reservations, the front-most first."""
    while entries := held(run, key):
        _lose(run, entries[0], reason)


def _lose(run: RunState, entry: Entry, reason: str) -> None:
    """The reservation is discarded, but a group with complete members may wait for another owner."""
    if run.config["adopt_groups"] and entry.complete_members():
        entry.orphan = True
        run.record("expire", ids=[entry.id], worker=entry.worker, reason=reason)
    else:
        run.discard(entry, reason)


def adopt(run: RunState, session: Session, entry: Entry) -> None:
    """The session holds the group from now on, and its age begins anew."""
    entry.orphan = False
    entry.worker, entry.session = session.worker, session.token
    entry.granted_at = entry.aged_from = run.clock
    run.totals["adopted"] += 1


def heartbeat(run: RunState, worker: str, body: Json, first: bool) -> tuple[Json, bool]:
    """Renews the lease; the answer, and whether it holds news."""
    session = enter(run, worker, body.get("session"))
    assert session is not None
    lineage = body.get("lineage")
    if first:
        run.refuse_lineage_above(lineage)
        _say(run, session, body.get("version"), lineage)
        for id in body.get("acknowledged") or []:
            session.cancelled.discard(id)
        if body.get("holding") is not None:
            _abandon(run, session, set(body["holding"]))
    cancelled = [_cancellation(run, id) for id in sorted(session.cancelled)]
    answer = {
        "lease_expires_in_ms": run.config["lease_ms"],
        "policy_version": run.policy_version,
        "lineage": run.lineage,
        "next_buffer": run.next_buffer,
        "cancelled": cancelled,
        "finished": run.finished(),
    }
    known = body.get("version", said_version(run, session))
    is_news = bool(cancelled) or answer["finished"] or (known is not None and run.policy_version > known)
    return answer, is_news or (lineage is not None and lineage != run.lineage)


def _cancellation(run: RunState, id: str) -> Json:
    """What a session is told of an entry that it is to stop generating, in whole or in part."""
    entry = run.entries.get(id)
    if entry is None:
        return {"id": id, "reason": "abandoned", "members": None}
    was_filled = entry.state != "discarded" or entry.discarded_from == "occupied"
    if entry.rest_told and was_filled:
        return {"id": id, "reason": "group_filled", "members": run.unreported(entry)}
    return {"id": id, "reason": entry.reason, "members": None}


def _abandon(run: RunState, session: Session, listed: set[str]) -> None:
    """What it does not list and was granted more than a lease ago never arrived."""
    for entry in held(run, (session.worker, session.token)):
        is_old = entry.granted_at + run.config["lease_ms"] < run.clock
        if entry.id not in listed and is_old and entry.state == "reserved":
            _lose(run, entry, "abandoned")


def _say(run: RunState, session: Session, version: int | None, lineage: int | None) -> None:
    named = lineage_of(run, session, lineage)
    if version is None or named is None or version > run.policy_version or run.is_abandoned(version, named):
        return
    if said_version(run, session) != version:
        session.version, session.said_in = version, run.lineage
        run.record("heartbeat", worker=session.worker, version=version)


def said_version(run: RunState, session: Session) -> int | None:
    """What a session said counts until the lineage rises."""
    return session.version if session.said_in == run.lineage else None


def lineage_of(run: RunState, session: Session, named: int | None) -> int | None:
    """The lineage of the weights that a call speaks of; None if the session must name it."""
    if named == run.lineage:
        session.lineage = run.lineage
    if named is not None:
        return named
    return run.lineage if session.lineage == run.lineage else None


def weights_of(run: RunState, session: Session, version: int | None, lineage: int | None) -> tuple[int, int]:
    """The version and lineage that a Reserve speaks of."""
    run.refuse_lineage_above(lineage)
    if version is None and session.version is None:
        raise invalid("version", "the session has never said which weights it holds")
    named = lineage_of(run, session, lineage)
    if version is None:
        version, named = said_version(run, session), (named if lineage is not None else run.lineage)
    if version is None or named is None or version > run.policy_version or run.is_abandoned(version, named):
        raise conflict(
            "version_not_published",
            f"version {version} is not published, or was abandoned",
            policy_version=run.policy_version,
        )
    return version, named


def claim(run: RunState, id: str, body: Json) -> Json:
    """Makes the caller's session the holder; of a group without an owner that is an adoption."""
    session = enter(run, body["worker"], body.get("session"))
    assert session is not None
    entry = run.entry(id)
    if entry.state == "discarded":
        raise conflict("trajectory_discarded", reason=entry.reason)
    if entry.state == "reserved" and entry.holder != (session.worker, session.token):
        said = said_version(run, session)
        if said is not None and said < entry.version:
            raise conflict("version_too_stale", policy_version=run.policy_version)
        if entry.orphan:
            adopt(run, session, entry)
        entry.worker, entry.session, entry.granted_at = session.worker, session.token, run.clock
        run.record("claim", ids=[id], worker=session.worker)
    return run.show(entry, all_members=True)


def sweep(run: RunState) -> None:
    """What time alone does: leases, reservation timeouts, the stuck timeout."""
    lease_ms = run.config["lease_ms"]
    for key, session in list(run.sessions.items()):
        if session.waiting:
            session.last_call = run.clock
        if not session.ended and not session.expired and session.last_call + lease_ms <= run.clock:
            session.expired = True
            give_back_all(run, key, "lease_expired")
    timeout = run.config["reservation_timeout_ms"]
    if timeout is not None:
        while overdue := [e for e in run.tables.reserved() if e.aged_from + timeout <= run.clock]:
            run.discard(overdue[0], "timed_out")
    free_the_stuck(run)


def next_due(run: RunState) -> int | None:
    """When time alone will next do something, on the run's clock."""
    due = []
    if run.tables.reserved():
        due += [
            s.last_call + run.config["lease_ms"]
            for s in run.sessions.values()
            if not (s.ended or s.expired or s.waiting)
        ]
    if run.config["reservation_timeout_ms"] is not None:
        due += [entry.aged_from + run.config["reservation_timeout_ms"] for entry in run.tables.reserved()]
    fires = fires_at(run)
    if fires is not None:
        due.append(fires)
    return min((each for each in due if each > run.clock), default=None)
