"""Wakes those who wait for news of a worker, threads and tasks alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Bell:
    """Rung from any thread when the worker's weights change, or its run or session ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], object]] = []

    def ring(self) -> None:
        """Calls all that listen, on this thread."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    @contextmanager
    def heard_by(self, listener: Callable[[], object]) -> Iterator[None]:
        """Has ``listener`` called at each ring while the block runs. It must not block."""
        with self._lock:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)
