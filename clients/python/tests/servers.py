"""Real servers for the tests: `berth serve` on a `redis-server` of its own, both of which can be killed and started again."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

REPOSITORY = Path(__file__).resolve().parents[3]


def binary() -> Path | None:
    """The server's executable, if there is one: the one that is named, or else the one that cargo built last."""
    named = os.environ.get("BERTH_BIN")
    if named:
        return Path(named)
    built = [path for path in (REPOSITORY / "target").glob("*/berth") if path.parent.name in ("release", "debug")]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


def wait_until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Waits for a condition of something that cannot tell by itself."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {condition}"
        time.sleep(0.01)


def _ports() -> Iterator[int]:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 20_000 + number % 10 * 1_000
    return itertools.cycle(random.sample(range(first, first + 1_000), 1_000))


_PORTS = _ports()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """One that stays free while what listens there is down: the system gives connections higher ones, and each of the processes
    that share the tests has a range of its own."""
    return next(port for port in _PORTS if _is_free(port))


class Redis:
    """A `redis-server` with its append-only file on, so that a kill loses nothing that was acknowledged."""

    def __init__(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="berth-test-redis-")
        self._copy = f"{self.directory}-copy"
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--dir", self.directory, "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        self._process = subprocess.Popen([*command, *durable], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def keep(self) -> None:
        """Keeps a copy of what is on disk, while it does not run."""
        shutil.copytree(self.directory, self._copy)

    def go_back(self) -> None:
        """Puts the copy back, while it does not run: the newest writes are lost."""
        shutil.rmtree(self.directory)
        shutil.move(self._copy, self.directory)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)


class Server:
    """`berth serve`, always on the same port."""

    def __init__(self, redis: Redis) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._redis = redis
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        executable = binary()
        assert executable is not None
        command = [str(executable), "serve", "--listen", f"127.0.0.1:{self.port}", "--redis", self._redis.url]
        self._process = subprocess.Popen([*command, "--log", "error"], stdout=subprocess.DEVNULL)
        wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
