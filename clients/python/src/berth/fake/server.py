"""The fake ledger as a server in this process: runs, time, and calls that wait."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx

from .. import aio, client
from ..retry import Retry
from . import config as configs
from . import looking, sessions
from .entries import Json, Problem, conflict
from .routes import Request, Step, step_for
from .state import RunState

URL = "http://berth.fake"


class FakeServer:
    """A ledger in memory that speaks the contract to the clients made by :meth:`connect` and :meth:`connect_async`.

    Its time passes as the wall clock does, and can be moved on by :meth:`advance`, so that leases run out without sleeping. It
    is safe to use from many threads and event loops.
    """

    def __init__(self) -> None:
        self._runs: dict[str, RunState] = {}
        #: What a deleted run leaves: seq, epoch, lineage.
        self._left: dict[str, tuple[int, int, int]] = {}
        self._changed = threading.Condition()
        self._listeners: set[Callable[[], object]] = set()
        self._advanced_ms = 0
        self._started = time.monotonic()
        self._began_at_ms = int(time.time() * 1000)

    # For tests.

    def connect(self, *, retry: Retry | None = None) -> client.Client:
        """A synchronous client of this server."""
        return client.connect(URL, retry=retry, transport=FakeTransport(self))

    def connect_async(self, *, retry: Retry | None = None) -> aio.Client:
        """A client for asyncio of this server."""
        return aio.connect(URL, retry=retry, transport=FakeTransport(self), async_transport=AsyncFakeTransport(self))

    def advance(self, ms: int) -> None:
        """Moves the clock on by ``ms`` milliseconds: what is due by then happens, as if nobody had called meanwhile.

        Where live workers are to keep their leases, move it on in steps shorter than a lease.
        """
        with self._changed:
            self._advanced_ms += ms
            for run in self._runs.values():
                # A call that waits holds its session's lease up to now.
                self._sweep(run)
            self._tell()

    def snapshot(self) -> Any:
        """All there is, for :meth:`restore`."""
        with self._changed:
            return copy.deepcopy(self._runs)

    def restore(self, snapshot: Any) -> None:
        """Goes back to a snapshot, as a database does that lost its newest writes."""
        with self._changed:
            self._runs = copy.deepcopy(snapshot)
            self._tell()

    # Calls.

    def _now_ms(self) -> int:
        return self._began_at_ms + int((time.monotonic() - self._started) * 1000) + self._advanced_ms

    def _sweep(self, run: RunState) -> None:
        run.clock = run.now_ms = self._now_ms()
        sessions.sweep(run)

    def _tell(self) -> None:
        self._changed.notify_all()
        for listener in list(self._listeners):
            listener()

    def attempt(self, request: Request) -> tuple[httpx.Response, bool, float | None]:
        """Does the call once. Returns the response, whether it may be given, and in how many seconds time alone may change it."""
        with self._changed:
            name, rest = _run_of(request.path)
            try:
                if name is None:
                    return (
                        _response(200, {"runs": [looking.status(run) for run in self._runs.values()], "next": None}),
                        True,
                        None,
                    )
                if rest == "" and request.method in ("PUT", "DELETE", "PATCH"):
                    return self._configure(request, name), True, None
                run = self._run(name)
                before = run.seq
                self._sweep(run)
                if request.method == "POST" and rest != "/trainer" and request.seq > run.seq:
                    raise conflict("ledger_behind", "the database lost writes")
                step, names = step_for(request, rest)
                answer, is_final = self._step(step, run, request, names)
                if run.seq != before:
                    self._tell()
                due = sessions.next_due(run)
                return _response(200, answer, run.seq), is_final, None if due is None else (due - run.clock) / 1000
            except Problem as problem:
                self._tell()
                seq = self._runs[name].seq if name in self._runs else None
                return _response(problem.status, problem.document, seq), True, None

    def _step(self, step: Step, run: RunState, request: Request, names: list[str]) -> tuple[Any, bool]:
        try:
            return step(run, request, names)
        except KeyError as error:
            raise Problem(400, "invalid_request", f"missing field {error}") from error

    def hold(self, request: Request, change: int) -> None:
        """A call begins (1) or ends (-1) to wait: meanwhile its session's lease is held, or its trainer is known to wait."""
        name, rest = _run_of(request.path)
        with self._changed:
            run = self._runs.get(name or "")
            if run is not None and rest == "/batches/next":
                run.trainer_waiting += change
                run.trainer.last_call = self._now_ms()
            worker = request.body.get("worker") or (rest.split("/")[2] if rest.startswith("/workers/") else None)
            if run is None or worker is None:
                return
            token = request.body.get("session", run.current.get(worker, ""))
            session = run.sessions.get((worker, token))
            if session is not None:
                session.waiting += change
                session.last_call = max(session.last_call, self._now_ms())

    def _run(self, name: str) -> RunState:
        if name not in self._runs:
            raise Problem(404, "unknown_run", f"there is no run {name}")
        return self._runs[name]

    def _configure(self, request: Request, name: str) -> httpx.Response:
        """Creates or confirms a run, changes or deletes it."""
        if request.method == "PUT":
            return self._put(request, name)
        run = self._run(name)
        if request.method == "DELETE":
            del self._runs[name]
            self._left[name] = run.seq, run.epoch, run.lineage
            self._tell()
            return httpx.Response(204, headers={"berth-seq": str(run.seq)})
        changed = configs.changed(run.config, request.body)
        if changed != run.config:
            run.config = changed
            run.let_go()
            run.record("run_changed", config=changed)
            self._tell()
        return _response(200, looking.status(run), run.seq)

    def _put(self, request: Request, name: str) -> httpx.Response:
        config = configs.completed(request.body)
        run = self._runs.get(name)
        if run is None:
            seq, epoch, lineage = self._left.get(name, (0, 0, -1))
            run = self._runs[name] = RunState(name, config, self._now_ms(), lineage + 1, seq, epoch)
            self._tell()
            return _response(201, looking.status(run), run.seq)
        fields = configs.differing(config, run.config)
        if fields:
            raise conflict("run_exists", f"it was created with other {', '.join(fields)}", fields=fields)
        return _response(200, looking.status(run), run.seq)

    # Waiting.

    def answer(self, http: httpx.Request) -> httpx.Response:
        """Answers a call, on the caller's thread; it waits as long as the call asks."""
        request, wait_s = _parse(http)
        response, is_final, due_s = self.attempt(request)
        deadline = time.monotonic() + wait_s
        if is_final or wait_s == 0:
            return response
        request = _again(request)
        self.hold(request, 1)
        try:
            with self._changed:
                while not is_final and (left := deadline - time.monotonic()) > 0:
                    self._changed.wait(left if due_s is None else min(left, max(due_s, 0.001)))
                    response, is_final, due_s = self.attempt(request)
        finally:
            self.hold(request, -1)
        return response

    async def answer_async(self, http: httpx.Request) -> httpx.Response:
        """Answers a call on an event loop, which it does not block."""
        request, wait_s = _parse(http)
        changed, loop = asyncio.Event(), asyncio.get_running_loop()

        def listener() -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits on it any more.
                loop.call_soon_threadsafe(changed.set)

        with self._changed:
            response, is_final, due_s = self.attempt(request)
            if is_final or wait_s == 0:
                return response
            self._listeners.add(listener)
        request, deadline = _again(request), time.monotonic() + wait_s
        self.hold(request, 1)
        try:
            while not is_final and (left := deadline - time.monotonic()) > 0:
                timer = loop.call_later(left if due_s is None else min(left, max(due_s, 0.001)), changed.set)
                await changed.wait()
                timer.cancel()
                changed.clear()
                response, is_final, due_s = self.attempt(request)
        finally:
            self._listeners.discard(listener)
            self.hold(request, -1)
        return response


class FakeTransport(httpx.BaseTransport):
    """Leads a synchronous client to a :class:`FakeServer`."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return self._server.answer(request)


class AsyncFakeTransport(httpx.AsyncBaseTransport):
    """Leads an asyncio client to a :class:`FakeServer`."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        # A call to a server always lets others run.
        await asyncio.sleep(0)
        return await self._server.answer_async(request)


def _parse(http: httpx.Request) -> tuple[Request, float]:
    body: Json = json.loads(http.content) if http.content else {}
    query: dict[str, Any] = dict(http.url.params)
    wait_ms = int(body.get("wait_ms") or query.pop("wait_ms", None) or 0)
    path = unquote(http.url.raw_path.decode().partition("?")[0])
    return Request(http.method, path, query, body, int(http.headers.get("berth-seq", 0))), wait_ms / 1000


def _again(request: Request) -> Request:
    return Request(request.method, request.path, request.query, request.body, 0, first=False)


def _run_of(path: str) -> tuple[str | None, str]:
    """The run that a path names, and the rest of it."""
    if path == "/v1/runs":
        return None, ""
    if not path.startswith("/v1/runs/"):
        raise Problem(404, "unknown_path", path)
    name, slash, rest = path[len("/v1/runs/") :].partition("/")
    return name, slash + rest


def _response(status: int, document: Any, seq: int | None = None) -> httpx.Response:
    headers = {"content-type": "application/json" if status < 400 else "application/problem+json"}
    if seq is not None:
        headers["berth-seq"] = str(seq)
    return httpx.Response(status, content=json.dumps(document).encode(), headers=headers)
