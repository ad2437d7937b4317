"""The calls of a worker's session, as data."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from . import models as m
from ._call import MARGIN_S, Call
from ._calls import Json, RunCalls, given, name_in_path, reads
from ._decode import decode
from ._handing_in import HandIn
from ._holdings import Beat, Holdings
from ._parts import Part

#: Above every version: a heartbeat that names it is recorded as nothing and answered only for a cancellation (the contract takes
#: down no version above the published ones).
BEYOND_EVERY_VERSION = 2**53 - 1


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
        path = f"/workers/{name_in_path(self._holdings.worker)}/heartbeat"
        return self._run.post(
            path, reads(m.Heartbeat), body, wait_ms=wait_ms, margin_s=margin_s, sits_out_recovery=True
        )

    def occupy(self, handed: HandIn, lineage: int | None) -> Call[m.Occupied]:
        body = {**self.caller, **handed.body, **given(lineage=lineage)}
        return self._post(f"/trajectories/{name_in_path(handed.id)}/occupy", reads(m.Occupied), body)

    def occupy_many(self, items: Sequence[Json], lineage: int | None) -> Call[list[m.OccupyResult]]:
        def read(answer: Any) -> list[m.OccupyResult]:
            return [decode(m.OccupyResult, each) for each in answer["results"]]

        body = {**self.caller, **given(lineage=lineage), "trajectories": list(items)}
        return self._post("/occupy", read, body)

    def member(self, handed: HandIn, index: int, lineage: int | None) -> Call[m.MemberOutcome]:
        body = {**self.caller, **handed.body, **given(lineage=lineage)}
        return self._post(f"/trajectories/{name_in_path(handed.id)}/members/{index}", reads(m.MemberOutcome), body)

    def segment(self, id: str, part: Part) -> Call[list[m.Segment]]:
        def read(answer: Any) -> list[m.Segment]:
            return [decode(m.Segment, each) for each in answer["segments"]]

        # It may arrive even if no answer does.
        part.is_told = True
        weights = part.weights
        body = {**self.caller, "version": weights.version, "lineage": weights.lineage, "from_token": part.from_token}
        return self._post(f"/trajectories/{name_in_path(id)}/segments", read, {**body, **given(member=part.member)})

    def claim(self, id: str) -> Call[m.Trajectory]:
        return self._post(f"/trajectories/{name_in_path(id)}/claim", reads(m.Trajectory), dict(self.caller))

    def discard(self, id: str, reason: str, note: str | None, requeue: bool) -> Call[m.Discarded]:
        # Without a prompt queue there is nothing to put a prompt back into.
        return self._run.discard(id, self.caller, reason, note, requeue and self._holdings.config.prompt_queue)
