"""The processes of a job: they are started, killed with SIGKILL, and started again; one that dies by itself is an error.

None of them outlives the job, however it ends.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

HERE = Path(__file__).parent

QUIET_JAX = {
    "JAX_PLATFORMS": "cpu",
    # Many processes share few cores: each computes in one thread.
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    # What one process has compiled, no other compiles again: not one that is started again after a kill, nor the next job.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

ENDED_WITH_THIS_PROCESS = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
"""Before a command: what it starts gets a SIGTERM when this process is gone, even if that was killed with SIGKILL."""


@dataclass(frozen=True)
class Ended:
    """A process has ended, otherwise than by :meth:`Process.kill`."""

    process: Process
    status: int


class Process:
    """A process that is there once at a time. What it says goes to its log."""

    def __init__(self, name: str, command: Sequence[str], directory: Path, ends: queue.Queue[object]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._command = command
        self._environment = os.environ | QUIET_JAX | {
            # Beside the job's directory: jobs side by side share it.
            "JAX_COMPILATION_CACHE_DIR": str(directory.with_name("compiled"))
        }
        self._ends = ends
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Starts it. Returns its process id."""
        with open(self.log, "ab") as log:
            running = subprocess.Popen(
                [*ENDED_WITH_THIS_PROCESS, *self._command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                cwd=HERE,
                # A Ctrl-C is for the job, which then ends its processes.
                start_new_session=True,
            )
        self._running = running
        threading.Thread(target=self._watch, args=(running,), daemon=True).start()
        return running.pid

    def kill(self) -> int:
        """Kills it, with SIGKILL, and waits until it is gone. Returns the process id that it had."""
        running = self._running
        assert running is not None, f"{self.name} does not run"
        # Forgotten first: its end is no news to anybody.
        self._running = None
        running.kill()
        running.wait()
        return running.pid

    def stop(self) -> None:
        """Asks it to end, with SIGTERM, and waits until it has; nothing if it does not run."""
        running, self._running = self._running, None
        if running is not None:
            running.send_signal(signal.SIGTERM)
            running.wait()

    def _watch(self, running: subprocess.Popen[bytes]) -> None:
        status = running.wait()
        if self._running is running:
            self._ends.put(Ended(self, status))

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3_000:]


def end_orderly_on_signals() -> None:
    """From here on SIGTERM and Ctrl-C raise SystemExit in the main thread: `finally` and `with` clear up what was begun."""

    def end(number: int, _: FrameType | None) -> None:
        # The first is enough: a second one must not interrupt the clearing up.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs a script of this directory."""
    return [sys.executable, str(HERE / script), *arguments]


def berth_binary() -> str:
    """The server's program: `$BERTH_BIN`, or what is built in this repository."""
    built = [HERE.parent.parent / "target" / profile / "berth" for profile in ("release", "debug")]
    named = os.environ.get("BERTH_BIN")
    for candidate in [Path(named)] if named else built:
        if candidate.is_file():
            return str(candidate)
    raise FileNotFoundError("there is no berth: build it with `cargo build --release`, or name it in $BERTH_BIN")
