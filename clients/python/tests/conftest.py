"""The ledgers that the tests run against: the fake, and a real server where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from servers import Redis, Server, binary, wait_until

import berth
import berth.aio
from berth.fake import FakeServer

NAMES = itertools.count()
#: Long enough that no test's answers take so long, short enough that a fault test need not wait for it to be over.
IMPATIENT = berth.Retry(patience_s=60.0)
#: Of runs whose leases are to run out: so long that a live worker does not miss it on a machine with much else to do.
LEASE_MS = 2_000


class Ledger:
    """A ledger that tests may use, real or not."""

    kind = "fake"

    def connect(self) -> berth.Client:
        raise NotImplementedError

    def connect_async(self) -> berth.aio.Client:
        raise NotImplementedError

    def expire(self, run: berth.Run, ids: list[str]) -> None:
        """Lets leases run out until these are discarded. The run's lease is ``LEASE_MS``."""
        raise NotImplementedError

    def run(self, **config: Any) -> berth.Run:
        """A run of its own for the test."""
        config = {"batch_size": 2, "max_staleness": 1, **config}
        return self.connect().run(f"test-{next(NAMES)}", **config)

    async def run_async(self, **config: Any) -> berth.aio.Run:
        """As :meth:`run`."""
        config = {"batch_size": 2, "max_staleness": 1, **config}
        return await self.connect_async().run(f"test-{next(NAMES)}", **config)


class Fake(Ledger):
    def __init__(self) -> None:
        self.server = FakeServer()

    def connect(self) -> berth.Client:
        return self.server.connect(retry=IMPATIENT)

    def connect_async(self) -> berth.aio.Client:
        return self.server.connect_async(retry=IMPATIENT)

    def expire(self, run: berth.Run, ids: list[str]) -> None:
        def pass_time() -> bool:
            # In small steps, so that live workers call in between.
            self.server.advance(LEASE_MS // 20)
            return all(run.trajectory(id).state == "discarded" for id in ids)

        wait_until(pass_time)


class Real(Ledger):
    kind = "real"

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> berth.Client:
        return berth.connect(self.url, retry=IMPATIENT)

    def connect_async(self) -> berth.aio.Client:
        return berth.aio.connect(self.url, retry=IMPATIENT)

    def expire(self, run: berth.Run, ids: list[str]) -> None:
        wait_until(lambda: all(run.trajectory(id).state == "discarded" for id in ids))


@pytest.fixture(scope="session")
def real_server() -> Iterator[str]:
    if binary() is None:
        pytest.skip("NOT RUN: there is no server: build it, or name it in BERTH_BIN")
    redis = Redis()
    server = Server(redis)
    yield server.url
    server.kill()
    redis.close()


@pytest.fixture(params=["fake", "real"])
def ledger(request: pytest.FixtureRequest) -> Ledger:
    """The fake and the real server, to which each test that asks for it is put in turn."""
    if request.param == "fake":
        return Fake()
    return Real(request.getfixturevalue("real_server"))


@pytest.fixture
def fake() -> FakeServer:
    return FakeServer()
