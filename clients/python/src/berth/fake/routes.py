"""The contract's paths and bodies, each led to the step that does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._reasons import LEDGER_REASONS
from . import finishing, looking, rollout, sessions, training
from .entries import Json, Problem, invalid
from .queue import no_queue
from .segments import lineage_of
from .state import RunState


@dataclass(frozen=True)
class Request:
    """One call, taken apart."""

    method: str
    path: str
    query: dict[str, str]
    body: Json
    seq: int
    #: False when a waiting call looks again: what it said counts once.
    first: bool = True

    def number(self, name: str, default: Any = None) -> Any:
        """A number of the query."""
        return int(self.query[name]) if name in self.query else default


#: An answer, and whether it is what a waiting call waits for.
Step = Callable[[RunState, Request, list[str]], tuple[Any, bool]]

WORKER = {"worker", "session"}
FINISH = {"reward", "tokens", "payload", "meta", "segments"}
ROUTES: list[tuple[str, re.Pattern[str], set[str], Step]] = []


def _route(method: str, path: str, *fields: str) -> Callable[[Step], Step]:
    pattern = re.compile("^" + re.sub(r"\{\}", "([^/]+)", path) + "$")

    def register(step: Step) -> Step:
        ROUTES.append((method, pattern, set(fields), step))
        return step

    return register


def step_for(request: Request, rest: str) -> tuple[Step, list[str]]:
    """The step behind a path below a run, and what the path names."""
    known = False
    for method, pattern, fields, step in ROUTES:
        found = pattern.match(rest)
        if found is None:
            continue
        known = True
        if method != request.method:
            continue
        for name in request.body:
            if name not in fields:
                raise invalid(name, f"unknown field `{name}`")
        return step, list(found.groups())
    if known:
        raise Problem(405, "method_not_allowed")
    raise Problem(404, "unknown_path", request.path)


@_route("POST", "/reservations", *WORKER, "count", "version", "lineage", "prompts", "adopt", "wait_ms", "request_id")
def _reserve(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    if not 1 <= request.body.get("count", 1) <= 1024:
        raise invalid("count", "1 to 1024")
    return rollout.reserve(run, request.body)


@_route("POST", "/trajectories/{}/occupy", *WORKER, *FINISH, "lineage", "members")
def _occupy(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return finishing.occupy(run, names[0], request.body), True


@_route("POST", "/occupy", *WORKER, "lineage", "trajectories")
def _occupy_many(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    body = request.body
    session = sessions.enter(run, body.get("worker"), body.get("session"))
    run.refuse_lineage_above(body.get("lineage"))
    lineage, results = lineage_of(run, session, body.get("lineage")), []
    for each in body["trajectories"]:
        try:
            item = {**body, **each}
            results.append({"id": each["id"], **finishing.occupy_one(run, session, lineage, each["id"], item)})
        except Problem as problem:
            document = problem.document
            refused = {"id": each["id"], "code": document["code"], "reason": document.get("reason")}
            results.append({key: value for key, value in refused.items() if value is not None})
    return {"results": results}, True


@_route("POST", "/trajectories/{}/members/{}", *WORKER, *FINISH, "version", "lineage", "failed", "note")
def _member(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return finishing.member(run, names[0], int(names[1]), request.body), True


@_route("POST", "/trajectories/{}/segments", *WORKER, "lineage", "version", "from_token", "member")
def _segment(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return rollout.segment(run, names[0], request.body), True


@_route("POST", "/trajectories/{}/discard", *WORKER, "reason", "note", "requeue")
def _discard(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    reason = request.body.get("reason", "")
    if not re.fullmatch("[a-z _]{1,64}", reason) or reason in LEDGER_REASONS:
        raise invalid("reason", "1 to 64 of a-z _, and none of the ledger's own")
    return rollout.discard(run, names[0], request.body), True


@_route("POST", "/trajectories/{}/claim", *WORKER)
def _claim(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return sessions.claim(run, names[0], request.body), True


@_route("POST", "/workers/{}/heartbeat", "session", "version", "lineage", "holding", "acknowledged", "wait_ms")
def _heartbeat(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return sessions.heartbeat(run, names[0], request.body, request.first)


@_route("POST", "/trainer", "trainer", "session", "resume_from", "mode", "force")
def _trainer(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return training.resume(run, request.body, request.seq if request.seq > run.seq else None), True


@_route(
    "POST", "/batches/next", "epoch", "version", "wait_ms", "stream", "from_offset", "min_entries", "max_entries"
)  # fmt: skip
def _next_batch(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return training.next_batch(run, request.body)


@_route("POST", "/versions", "version", "epoch", "weights")
def _publish(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return training.publish(run, request.body), True


@_route("POST", "/checkpoints", "version", "epoch")
def _checkpoint(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return training.checkpoint(run, request.body), True


@_route("POST", "/prompts", "offset", "prompts")
def _feed(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    if run.queue is None:
        raise no_queue()
    before = run.queue.fed
    fed = run.queue.feed(request.body.get("offset"), request.body["prompts"], run.draining)
    if fed > before:
        run.record("feed", fed=fed)
    return {"fed": fed}, True


@_route("POST", "/drain", "drain", "queue")
def _drain(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return training.drain(run, request.body), True


@_route("GET", "/prompts")
def _prompts(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    after, limit = request.number("after", 0), request.number("limit", 100)
    return looking.prompts(run, request.query.get("state"), after, limit), True


@_route("GET", "/versions/latest")
def _latest(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.latest(run, request.number("after"), request.number("lineage"))


@_route("GET", "/explain")
def _explain(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.explain(run), True


@_route("GET", "/distribution")
def _distribution(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.distribution(run), True


@_route("GET", "/buffers")
def _buffers(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.buffers(run, request.query.get("slots") == "true"), True


@_route("GET", "/trajectories/{}")
def _trajectory(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return run.show(run.entry(names[0]), all_members=True), True


@_route("GET", "/trajectories")
def _trajectories(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    worker, state = request.query.get("worker"), request.query.get("state", "reserved")
    return looking.trajectories(run, worker, state), True


@_route("GET", "/batches")
def _batches(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.batches(run), True


@_route("GET", "/batches/{}")
def _batch(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    offset, most = request.number("from_offset", 0), request.number("max_entries")
    return looking.batch(run, int(names[0]), offset, most), True


@_route("GET", "/workers")
def _workers(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.workers(run), True


@_route("GET", "/events")
def _events(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    after, limit = request.number("after", 0), request.number("limit", 100)
    return looking.events(run, after, limit, request.query.get("trajectory"))


@_route("GET", "")
def _status(run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
    return looking.status(run), True
