"""The cancellation of a block of asyncio code, from another thread, as `asyncio.timeout` cancels one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable


class Interruption:
    """Cancels the task of a block when the ledger says so, and tells that cancellation from anybody else's."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._requested = False
        self._is_finishing: Callable[[], bool] = lambda: False

    def enter(self, on_cancel: Callable[[Callable[[str], object]], None], is_finishing: Callable[[], bool]) -> None:
        """The current task's block begins. While it hands its work in it is left alone: a late one may still be kept."""
        task = asyncio.current_task()
        assert task is not None, "outside a task nothing can be cancelled"
        loop = asyncio.get_running_loop()
        self._task, self._requested, self._is_finishing = task, False, is_finishing
        # Before Python 3.11 a task does not count its cancellations.
        self._cancelling = task.cancelling() if hasattr(task, "cancelling") else 0

        def interrupt(_: str) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nothing of it runs any more.
                loop.call_soon_threadsafe(self._interrupt)

        on_cancel(interrupt)

    def _interrupt(self) -> None:
        if self._task is not None and not self._requested and not self._is_finishing():
            self._requested = True
            self._task.cancel()

    async def leave(self, error: BaseException | None) -> bool:
        """The block ends. Returns whether ``error`` is this interruption and nothing else."""
        task, self._task = self._task, None
        if not self._requested or task is None:
            return False
        if isinstance(error, asyncio.CancelledError):
            return self._uncancel(task)
        # The block ended before the cancellation reached it: it is met here, and not by the code that follows.
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if not self._uncancel(task):
                raise
        return False

    def _uncancel(self, task: asyncio.Task[object]) -> bool:
        """Takes the cancellation back. Returns whether it was the only one."""
        return not hasattr(task, "uncancel") or task.uncancel() <= self._cancelling
