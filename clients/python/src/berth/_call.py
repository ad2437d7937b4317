"""A call as data, and what a client remembers between calls. Knows no I/O: the senders of both forms share it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from ._forking import renew_after_fork
from .errors import MalformedAnswer, Refused

T = TypeVar("T")

SEQ_HEADER = "berth-seq"
#: How long a call that does not wait may take, in seconds.
MARGIN_S = 10.0


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call of the contract, complete but for the server's address."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: dict[str, Any] | None = None
    query: dict[str, Any] = field(default_factory=dict)
    #: How long the server may hold it, in milliseconds.
    wait_ms: int = 0
    #: How long the way there and back may take on top, in seconds.
    margin_s: float = MARGIN_S
    #: Rollout calls wait for the trainer whose resume ends ``ledger_behind``; for a trainer it is an answer.
    sits_out_recovery: bool = False
    #: False for the one call that is not safe to send twice.
    repeatable: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Memory:
    """The highest sequence number and lineage seen of one run, sent along so that a database that lost writes is noticed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seq: int = 0
        self.lineage: int = 0
        renew_after_fork(self)

    def _after_fork(self) -> None:
        """A thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def note(self, seq: int | None, lineage: int | None) -> None:
        """Takes down what an answer says; neither ever goes back."""
        with self._lock:
            self.seq = max(self.seq, seq or 0)
            self.lineage = max(self.lineage, lineage or 0)


def request_of(http: httpx.Client | httpx.AsyncClient, call: Call[Any], memory: Memory | None) -> httpx.Request:
    """The HTTP request of a call."""
    headers = {SEQ_HEADER: str(memory.seq)} if memory is not None and memory.seq > 0 else {}
    wait_s = call.wait_ms / 1000
    timeout = httpx.Timeout(call.margin_s, read=call.margin_s + wait_s)
    query = {name: _text(value) for name, value in call.query.items() if value is not None}
    return http.build_request(
        call.method, call.path, json=call.body, params=query or None, headers=headers, timeout=timeout
    )


def answer_of(call: Call[T], response: httpx.Response, memory: Memory | None) -> T:
    """What the response says, as the call reads it; raises :class:`Refused`."""
    document = _json(call, response)
    if not response.is_success:
        raise _refusal(call, response, document)
    if memory is not None:
        lineage = document.get("lineage") if isinstance(document, dict) else None
        memory.note(_integer(response.headers.get(SEQ_HEADER)), lineage)
    try:
        return call.read(document)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedAnswer(f"{call}: {response.text[:200]!r} is not what the contract says: {error!r}") from error


def _refusal(call: Call[Any], response: httpx.Response, document: Any) -> Refused:
    problem = dict(document) if isinstance(document, dict) else {"detail": response.text[:500]}
    retry_after = _integer(response.headers.get("retry-after"))
    if retry_after is not None:
        problem["retry_after_s"] = retry_after
    return Refused.of(str(call), response.status_code, problem)


def _json(call: Call[Any], response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return response.json()
    except ValueError as error:
        if response.is_success:
            raise MalformedAnswer(f"{call}: {response.text[:200]!r} is not JSON") from error
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
