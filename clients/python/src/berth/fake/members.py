"""The members of groups: which of those that are reported count (protocol.md, Groups)."""

from __future__ import annotations

from . import sessions
from .entries import Entry, Json, conflict, invalid
from .segments import check_weights, join, newest
from .state import RunState, Session


def refuse_misfit(run: RunState, index: int | None) -> None:
    """Refuses what cannot be said of an entry at all, by the shape of the run."""
    if run.has_groups and index is None:
        raise invalid("member", "segments are of a member of the group")
    if not run.has_groups and index is not None:
        raise invalid("member", "the run has no groups")
    if index is not None and not 0 <= index < run.config["group_candidates"]:
        raise invalid("index", f"the run has {run.config['group_candidates']} candidates")


def count_all(
    run: RunState, session: Session | None, lineage: int | None, entry: Entry, body: Json, reports: list[Json]
) -> dict[int, Json]:
    """The members that count, of those that are reported; nothing is recorded yet. All are refused if one is."""
    counted: dict[int, Json] = {}
    for report in reports:
        known, index = {**entry.members, **counted}, report["index"]
        is_over = run.is_filled(known) or (entry.state == "reserved" and run.cannot_be_filled(known))
        begun = known.get(index, {"state": "generating", "segments": []})
        if is_over or begun["state"] != "generating":
            continue
        member = {**begun, "index": index, "state": "failed", "worker": body.get("worker")}
        member |= {key: report.get(key) for key in ("tokens", "payload", "meta", "note")}
        if not report.get("failed"):
            member |= _complete(run, session, lineage, entry, body, report, begun)
        counted[index] = member
    return counted


def _complete(
    run: RunState,
    session: Session | None,
    lineage: int | None,
    entry: Entry,
    body: Json,
    report: Json,
    begun: Json,
) -> Json:
    named = report.get("segments") or []
    version = _version_of(entry, report, begun)
    if version is None:
        if session is None or session.version is None:
            raise invalid("version", "the session has never said which weights it holds")
        version = sessions.said_version(run, session)
        if version is None:
            raise conflict("version_not_published", policy_version=run.policy_version)
        # It was said under the run's lineage.
        lineage = lineage if body.get("lineage") is not None else run.lineage
    check_weights(run, newest(version, named), lineage)
    if version < entry.version:
        raise conflict(
            "version_too_stale", f"the group is of version {entry.version}", policy_version=run.policy_version
        )
    segments = join(version, begun["segments"], named)
    return {"state": "complete", "version": version, "segments": segments, "reward": report.get("reward")}


def _version_of(entry: Entry, report: Json, begun: Json) -> int | None:
    """The version that a member was begun under, where anything but the session says it."""
    named = report.get("segments") or []
    if begun.get("version") is not None:
        return int(begun["version"])
    if named and named[0]["from_token"] == 0:
        return int(named[0]["version"])
    if report.get("version") is not None:
        return int(report["version"])
    return entry.version if named or begun["segments"] else None


def keep(run: RunState, entry: Entry, counted: dict[int, Json]) -> None:
    """Records members that counted."""
    entry.members |= counted
    for member in counted.values():
        if member["state"] == "complete":
            entry.touch(newest(member["version"], member["segments"]), run.lineage)
