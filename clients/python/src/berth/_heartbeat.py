"""The heartbeat: a thread of its own, so that a busy process keeps its lease and a dead one loses it."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace

from ._holdings import Beat, Holdings
from ._sender import Sender
from ._worker_calls import WorkerCalls
from .errors import Fenced, TooManyWaiting, UnknownRun
from .models import Weights

logger = logging.getLogger("berth")

#: The least time between two heartbeats, in seconds: a server that answers early is not overrun.
LEAST_PAUSE_S = 0.02
FAILURE_PAUSE_S = 1.0
LONGEST_WAIT_MS = 20_000


class HeartbeatThread:
    """Beats for one session until it is stopped, or the session is over. Both forms of the client use it."""

    def __init__(self, sender: Sender, calls: WorkerCalls, holdings: Holdings) -> None:
        self._sender = sender
        self._calls = calls
        self._holdings = holdings
        self._said: Weights | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"berth-heartbeat-{holdings.worker}", daemon=True)

    def start(self) -> None:
        """Starts the thread, after one heartbeat: from then on the session is known."""
        try:
            self._send(self._holdings.next_beat(), 0, is_first=True)
        except BaseException:
            self._sender.close()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Ends it. A heartbeat that waits at the server is left to run out."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            self._beat_until_stopped()
        finally:
            self._sender.close()

    def _beat_until_stopped(self) -> None:
        # Three beats a lease: one may be lost.
        wait_ms = max(1, min(LONGEST_WAIT_MS, self._holdings.config.lease_ms // 3))
        is_failing = False
        while not self._stopped.is_set():
            try:
                waited = self._wait_and_beat(wait_ms)
                self._stopped.wait(LEAST_PAUSE_S if waited else wait_ms / 1000)
                is_failing = False
            except (Fenced, UnknownRun) as error:
                self._holdings.end(error, error.code)
                return
            except Exception as error:
                # Whatever it was, a worker without a heartbeat loses what it holds: it goes on for as long as the process lives.
                if not is_failing and not self._stopped.is_set():
                    logger.warning("heartbeat of %s: %s; it is tried until it arrives", self._holdings.worker, error)
                is_failing = True
                self._stopped.wait(min(FAILURE_PAUSE_S, wait_ms / 1000))

    def _wait_and_beat(self, wait_ms: int) -> bool:
        """Beats, and returns whether the server made it wait for news; if not, the pause after it must."""
        # Of a finished run there is no news any more: a call that waits would be answered at once.
        if not self._holdings.finished:
            try:
                self._beat(wait_ms)
                return True
            except TooManyWaiting:
                # That call renewed nothing, and others may keep all places for long: what does not wait needs none.
                pass
        self._beat(0)
        return False

    def _beat(self, wait_ms: int) -> None:
        beat = self._holdings.next_beat()
        if wait_ms and beat.newer_are_out and beat.weights != self._said:
            # A heartbeat that waits while newer weights are out names none: what the worker holds is said before.
            self._send(beat, 0)
            beat = self._holdings.next_beat()
        self._send(beat, wait_ms)

    def _send(self, beat: Beat, wait_ms: int, *, is_first: bool = False) -> None:
        # Only the first may be repeated as it is: what a later one says to be held may not be all that is held when it arrives.
        call = replace(self._calls.heartbeat(beat, wait_ms), repeatable=is_first)
        answer = self._sender.send(call, self._holdings.memory)
        if not (wait_ms and beat.newer_are_out):
            self._said = beat.weights
        self._holdings.told(beat, answer)
