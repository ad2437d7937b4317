"""The calls of a worker's session, as data."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import models as m
from ._call import MARGIN_S, Call
from ._calls import Json, RunCalls, given, reads
from ._decode import decode
from ._holdings import Beat, HeldSlot, Holdings

#: Above every version: a heartbeat that names it is recorded as nothing and answered only for a cancellation (the contract takes
#: down no version above the published ones).
BEYOND_EVERY_VERSION = 2**53 - 1


@dataclass(frozen=True)
class MemberResult:
    """A member of a group, as :meth:`berth.Slot.occupy` takes them; ``version`` defaults to the worker's at the grant.

    ``tokens`` is the length in tokens; ``payload`` a reference of at most 2 KiB; ``meta`` an object of at most 16 KiB.
    """

    index: int
    reward: float | None = None
    tokens: int | None = None
    payload: str | None = None
    meta: Json | None = None
    version: int | None = None
    segments: Sequence[m.Segment] = ()
    failed: bool = False
    note: str | None = None


def finish_json(reward: float | None, tokens: int | None, payload: str | None, meta: Json | None) -> Json:
    """What a finished entry or member leaves; scalars of numerical libraries become numbers."""
    reward = float(reward) if reward is not None else None
    tokens = int(tokens) if tokens is not None else None
    return given(reward=reward, tokens=tokens, payload=payload, meta=meta)


def segments_json(segments: Iterable[m.Segment]) -> list[Json] | None:
    """Segments as the contract writes them."""
    return [{"version": each.version, "from_token": each.from_token} for each in segments] or None


def member_segments(version: int | None, segments: Sequence[m.Segment]) -> list[Json] | None:
    """A member's segments from its first token on, which its own version generated."""
    if not segments:
        return None
    begins = version is None or segments[0].from_token == 0
    return segments_json(segments if begins else [m.Segment(version=version or 0, from_token=0), *segments])


class WorkerCalls:
    """The calls of one session of a worker."""

    def __init__(self, run: RunCalls, holdings: Holdings) -> None:
        self._run = run
        self._holdings = holdings
        self.caller: Json = {"worker": holdings.worker, "session": holdings.session}

    def _post(self, path: str, read: Any, body: Json, *, wait_ms: int = 0) -> Call[Any]:
        return self._run.post(path, read, body, wait_ms=wait_ms, sits_out_recovery=True)

    def reserve(
        self, count: int, weights: m.Weights, prompts: Sequence[str] | None, adopt: bool | None, wait_ms: int
    ) -> Call[m.Reservation]:
        body = {
            **self.caller,
            "version": weights.version,
            "lineage": weights.lineage,
            "request_id": uuid.uuid4().hex,
            **given(prompts=prompts, adopt=adopt),
        }
        if prompts is None:
            body["count"] = count
        return self._post("/reservations", reads(m.Reservation), body, wait_ms=wait_ms)

    def heartbeat(self, beat: Beat, wait_ms: int) -> Call[m.Heartbeat]:
        """Renews the lease and waits for news; for cancellations only, while the worker lags behind."""
        body: Json = {"session": self._holdings.session}
        if beat.holding is not None:
            body["holding"] = beat.holding
        if beat.acknowledged:
            body["acknowledged"] = beat.acknowledged
        if wait_ms and beat.newer_are_out:
            body["version"] = BEYOND_EVERY_VERSION
        elif beat.weights is not None:
            body["version"], body["lineage"] = beat.weights.version, beat.weights.lineage
        # A connection that went dead is given up while there is time for another beat.
        margin_s = min(MARGIN_S, self._holdings.config.lease_ms / 3000)
        path = f"/workers/{self._holdings.worker}/heartbeat"
        return self._run.post(
            path, reads(m.Heartbeat), body, wait_ms=wait_ms, margin_s=margin_s, sits_out_recovery=True
        )

    def occupy(self, slot: HeldSlot, finish: Json, members: Iterable[MemberResult] | None) -> Call[m.Occupied]:
        body = {**self.caller, **finish, **given(lineage=slot._lineage(), segments=segments_json(slot.segments))}
        if members is not None:
            body["members"] = [self._member(slot, each) for each in members]
        return self._post(f"/trajectories/{slot.id}/occupy", reads(m.Occupied), body)

    def _member(self, slot: HeldSlot, member: MemberResult) -> Json:
        if member.failed:
            return {"index": member.index, "failed": True, **given(note=member.note)}
        version = member.version
        if version is None and slot.weights is not None:
            version = slot.weights.version
        finish = finish_json(member.reward, member.tokens, member.payload, member.meta)
        segments = member_segments(version, member.segments)
        return {"index": member.index, **finish, **given(version=version, segments=segments)}

    def occupy_many(self, finished: Sequence[Json], lineage: int | None) -> Call[list[m.OccupyResult]]:
        def read(answer: Any) -> list[m.OccupyResult]:
            return [decode(m.OccupyResult, each) for each in answer["results"]]

        body = {**self.caller, **given(lineage=lineage), "trajectories": list(finished)}
        return self._post("/occupy", read, body)

    def member(self, slot: HeldSlot, index: int, body: Json) -> Call[m.MemberOutcome]:
        return self._post(f"/trajectories/{slot.id}/members/{index}", reads(m.MemberOutcome), {**self.caller, **body})

    def segment(
        self, slot: HeldSlot, segment: m.Segment, lineage: int | None, member: int | None
    ) -> Call[list[m.Segment]]:
        def read(answer: Any) -> list[m.Segment]:
            return [decode(m.Segment, each) for each in answer["segments"]]

        body = {**self.caller, "version": segment.version, "from_token": segment.from_token}
        return self._post(f"/trajectories/{slot.id}/segments", read, {**body, **given(lineage=lineage, member=member)})

    def claim(self, id: str) -> Call[m.Trajectory]:
        return self._post(f"/trajectories/{id}/claim", reads(m.Trajectory), dict(self.caller))

    def discard(self, id: str, reason: str, note: str | None, requeue: bool) -> Call[m.Discarded]:
        # Without a prompt queue there is nothing to put a prompt back into.
        return self._run.discard(id, self.caller, reason, note, requeue and self._holdings.config.prompt_queue)
