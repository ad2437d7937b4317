"""What the workers of both forms share: a session, open in a `with` block, and its heartbeat."""

from __future__ import annotations

import uuid

from . import models as m
from ._call import Memory
from ._calls import RunCalls
from ._forking import renew_after_fork
from ._heartbeat import HeartbeatThread
from ._holdings import Holdings
from ._sender import Endpoint
from ._weights import Version
from ._worker_calls import WorkerCalls
from .errors import BerthError, NotOpen

#: How long a worker that stops tries to give its reservations back; what it can't, its lease will, in seconds.
STOP_PATIENCE_S = 5.0


class WorkerSession:
    """A session of a worker."""

    def __init__(self, name: str, session: str | None) -> None:
        self.name = name
        """The worker's name. A new process of the same name replaces the old one, whose reservations are freed at once."""
        self.session: str = session or uuid.uuid4().hex
        """The session's token. A process that can resume its predecessor's generations keeps the token."""
        #: Whether the token may have been another process's before.
        self._is_kept = bool(session)
        self._open_holdings: Holdings | None = None
        self._open_calls: WorkerCalls | None = None
        self._heartbeat: HeartbeatThread | None = None
        self._is_forked = False
        renew_after_fork(self)

    def _after_fork(self) -> None:
        """The heartbeat's thread lives in the parent, with all that is held: here the session is not open."""
        self._is_forked = self._is_forked or self._heartbeat is not None
        self._open_holdings = self._open_calls = self._heartbeat = None

    def _begin(self, status: m.RunStatus, calls: RunCalls, memory: Memory, endpoint: Endpoint) -> HeartbeatThread:
        """The session of a run that stands like this; its heartbeat is to be started."""
        if self._heartbeat is not None:
            raise BerthError(f"worker {self.name} is open already")
        self._is_forked = False
        self._open_holdings = Holdings(
            self.name, self.session, status.config, memory, status.policy_version, status.finished
        )
        self._open_calls = WorkerCalls(calls, self._open_holdings)
        # Connections of its own: a process that uses up the others must not keep the heartbeat waiting.
        self._heartbeat = HeartbeatThread(endpoint.blocking(), self._open_calls, self._open_holdings)
        return self._heartbeat

    def _end(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._open_holdings = self._open_calls = self._heartbeat = None

    @property
    def _holdings(self) -> Holdings:
        if self._open_holdings is None:
            raise self._not_open()
        return self._open_holdings

    @property
    def _calls(self) -> WorkerCalls:
        if self._open_calls is None:
            raise self._not_open()
        return self._open_calls

    def _not_open(self) -> NotOpen:
        if self._is_forked:
            return NotOpen(
                f"worker {self.name} was opened before this process was forked, and its heartbeat is its parent's: "
                "open one of another name here, and pass it the ids of slots"
            )
        return NotOpen(f"worker {self.name} is used outside its `with` block")

    @property
    def policy_version(self) -> int:
        """The latest published version, as far as this process has heard."""
        return self._holdings.policy_version

    @property
    def lags(self) -> bool:
        """Whether the weights that the worker holds are too old for a grant now: a reservation has to wait for newer ones.

        So it is when their version plus ``max_staleness`` (both in policy versions) is below the next batch to be taken, or
        when a rewind abandoned them. It is what this process has heard: from its last reservation, or the last heartbeat, which
        is a third of a lease old, and never more than 20 s. False before the worker has said which weights it holds.
        """
        return self._holdings.lags()

    def hold(self, version: Version) -> m.Weights:
        """Says which weights the worker holds: for a reserving loop that is given no version, and for calls that name none.

        It may be called from any thread, as soon as an engine has changed its weights. A ``reserve`` that waits for other
        weights is woken, and a number that it was given counts no more; a function that it was given is asked.
        """
        return self._holdings.weights.hold(version)

    @property
    def finished(self) -> bool:
        """Whether the run is finished and the process may exit."""
        return self._holdings.finished


def grant_of(entry: m.Trajectory) -> m.Grant:
    """A claimed entry as a grant."""
    members = entry.members or []
    return m.Grant(
        id=entry.id,
        version=entry.version,
        deadline=entry.deadline or 0,
        attempt=entry.attempt or 1,
        prompt=entry.prompt,
        data=entry.data,
        members_done=[each.index for each in members if each.state == "complete"],
        members_failed=[each.index for each in members if each.state == "failed"],
    )
