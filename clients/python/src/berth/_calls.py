"""The calls about one run, as data: paths, bodies, and how their answers are read. Both forms of the client send these."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from . import looking
from . import models as m
from ._call import Call
from ._decode import decode

T = TypeVar("T")
Json = dict[str, Any]


def reads(kind: type[T]) -> Any:
    """How an answer of this kind is read."""
    return functools.partial(decode, kind)


def name_in_path(name: str) -> str:
    """A name or an id, as one part of a path whatever is in it."""
    return quote(name, safe="")


def given(**fields: Any) -> Json:
    """The fields that were given: left out, the contract's defaults hold."""
    return {name: value for name, value in fields.items() if value is not None}


def page_of(name: str, kind: type[T]) -> Any:
    """How a page of a list is read: its items, and where the next one starts."""

    def read(document: Any) -> tuple[list[T], Any]:
        return [decode(kind, each) for each in document.get(name, [])], document.get("next")

    return read


def read_event(document: Json) -> looking.Event:
    """An event, with all that it says in ``raw``."""
    fields = dict(document)
    fields["raw"] = document
    return decode(looking.Event, fields)


def _read_events(document: Any) -> tuple[list[looking.Event], int | None]:
    return [read_event(each) for each in document["events"]], document.get("next")


class RunCalls:
    """The calls about one run, but for those of a worker's session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = f"/v1/runs/{name_in_path(name)}"

    def get(self, path: str, read: Any, *, wait_ms: int = 0, **query: Any) -> Call[Any]:
        if wait_ms:
            query["wait_ms"] = wait_ms
        return Call("GET", self.root + path, read, query=query, wait_ms=wait_ms)

    def post(self, path: str, read: Any, body: Json, *, wait_ms: int = 0, **flags: Any) -> Call[Any]:
        if wait_ms:
            body = {**body, "wait_ms": wait_ms}
        return Call("POST", self.root + path, read, body=body, wait_ms=wait_ms, **flags)

    # The run.

    def put(self, config: Mapping[str, Any]) -> Call[m.RunStatus]:
        return Call("PUT", self.root, reads(m.RunStatus), body=dict(config))

    def status(self) -> Call[m.RunStatus]:
        return self.get("", reads(m.RunStatus))

    def configure(self, changes: Mapping[str, Any]) -> Call[m.RunStatus]:
        return Call("PATCH", self.root, reads(m.RunStatus), body=dict(changes))

    def delete(self) -> Call[None]:
        return Call("DELETE", self.root, lambda _: None)

    def drain(self, drain: bool, queue: str | None) -> Call[m.Drain]:
        return self.post("/drain", reads(m.Drain), given(drain=drain, queue=queue))

    # Prompts.

    def feed(self, offset: int | None, prompts: Sequence[Json]) -> Call[int]:
        body = given(offset=offset, prompts=list(prompts))
        return self.post("/prompts", lambda answer: int(answer["fed"]), body, repeatable=offset is not None)

    def prompts(self, state: str | None, after: Any, limit: int | None) -> Call[m.PromptPage]:
        return self.get("/prompts", reads(m.PromptPage), state=state, after=after, limit=limit)

    # Weights.

    def latest(self, after: int | None, lineage: int | None, wait_ms: int) -> Call[m.LatestVersion]:
        return self.get("/versions/latest", reads(m.LatestVersion), wait_ms=wait_ms, after=after, lineage=lineage)

    # The trainer.

    def open_trainer(
        self, trainer: str, session: str, resume_from: int | None, mode: str, force: bool
    ) -> Call[m.TrainerSession]:
        body = given(trainer=trainer, session=session, resume_from=resume_from, mode=mode)
        if force:
            body["force"] = True
        return self.post("/trainer", reads(m.TrainerSession), body)

    def take(self, epoch: int, version: int, wait_ms: int) -> Call[m.NextBatch]:
        return self.post("/batches/next", reads(m.NextBatch), {"epoch": epoch, "version": version}, wait_ms=wait_ms)

    def stream(
        self, epoch: int, version: int, from_offset: int, least: int, most: int | None, wait_ms: int
    ) -> Call[m.NextBatch]:
        body = {"epoch": epoch, "version": version, "stream": True, "from_offset": from_offset, "min_entries": least}
        if most is not None:
            body["max_entries"] = most
        return self.post("/batches/next", reads(m.NextBatch), body, wait_ms=wait_ms)

    def publish(self, epoch: int | None, version: int, weights: str | None) -> Call[m.Published]:
        return self.post("/versions", reads(m.Published), given(epoch=epoch, version=version, weights=weights))

    def checkpoint(self, epoch: int | None, version: int) -> Call[int | None]:
        return self.post("/checkpoints", lambda answer: answer.get("oldest_kept"), given(epoch=epoch, version=version))

    # Entries, by anybody.

    def discard(self, id: str, caller: Json, reason: str, note: str | None, requeue: bool) -> Call[m.Discarded]:
        body = {**caller, **given(reason=reason, note=note)}
        if requeue:
            body["requeue"] = True
        return self.post(
            f"/trajectories/{name_in_path(id)}/discard", reads(m.Discarded), body, sits_out_recovery=bool(caller)
        )

    # Looking.

    def explain(self) -> Call[looking.Explanation]:
        return self.get("/explain", reads(looking.Explanation))

    def buffers(self, slots: bool) -> Call[looking.Buffers]:
        return self.get("/buffers", reads(looking.Buffers), slots=slots or None)

    def distribution(self) -> Call[looking.Distribution]:
        return self.get("/distribution", reads(looking.Distribution))

    def trajectory(self, id: str) -> Call[m.Trajectory]:
        return self.get(f"/trajectories/{name_in_path(id)}", reads(m.Trajectory))

    def trajectories(self, after: Any, worker: str | None, state: str | None) -> Call[tuple[list[m.Trajectory], Any]]:
        return self.get("/trajectories", page_of("trajectories", m.Trajectory), after=after, worker=worker, state=state)

    def batch(self, version: int, from_offset: int | None, most: int | None) -> Call[m.Batch]:
        return self.get(f"/batches/{version}", reads(m.Batch), from_offset=from_offset, max_entries=most)

    def batches(self, after: Any) -> Call[tuple[list[looking.BatchSummary], Any]]:
        return self.get("/batches", page_of("batches", looking.BatchSummary), after=after)

    def workers(self, after: Any) -> Call[tuple[list[looking.WorkerStatus], Any]]:
        return self.get("/workers", page_of("workers", looking.WorkerStatus), after=after)

    def events(
        self, after: int, limit: int | None, trajectory: str | None, wait_ms: int
    ) -> Call[tuple[list[looking.Event], int | None]]:
        return self.get("/events", _read_events, wait_ms=wait_ms, after=after, limit=limit, trajectory=trajectory)


def list_runs(after: Any) -> Call[tuple[list[m.RunStatus], Any]]:
    """A page of all runs."""
    return Call("GET", "/v1/runs", page_of("runs", m.RunStatus), query=given(after=after))
