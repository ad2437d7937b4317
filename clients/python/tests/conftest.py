"""The ledgers that the tests run against: the fake, and a real server where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from servers import Redis, Server, binary, wait_until

import berth
import berth.aio
from berth.fake import FakeServer

#: What a server must know for a feature: a path of its contract, and a field of that path's request.
FEATURES = {
    "groups": ("/v1/runs/{run}/trajectories/{id}/members/{index}", None),
    "segments": ("/v1/runs/{run}/trajectories/{id}/segments", None),
    "prompts": ("/v1/runs/{run}/prompts", None),
    "drain": ("/v1/runs/{run}/drain", None),
    "streaming": ("/v1/runs/{run}/batches/next", "stream"),
    "requeue": ("/v1/runs/{run}/trajectories/{id}/discard", "requeue"),
    "adoption": ("/v1/runs/{run}/reservations", "adopt"),
    "explain": ("/v1/runs/{run}/explain", None),
    "distribution": ("/v1/runs/{run}/distribution", None),
}

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

    def needs(self, *features: str) -> None:
        """Skips the test if the ledger does not know a feature."""

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
        self._contract: dict[str, Any] | None = None

    def connect(self) -> berth.Client:
        return berth.connect(self.url, retry=IMPATIENT)

    def connect_async(self) -> berth.aio.Client:
        return berth.aio.connect(self.url, retry=IMPATIENT)

    def needs(self, *features: str) -> None:
        if self._contract is None:
            self._contract = httpx.get(f"{self.url}/openapi.json").json()
        for feature in features:
            path, field = FEATURES[feature]
            operation = self._contract["paths"].get(path, {})
            if not operation or (field is not None and not self._has_field(operation["post"], field)):
                pytest.skip(f"this server does not know {feature} yet")

    def _has_field(self, operation: Any, field: str) -> bool:
        assert self._contract is not None
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rsplit("/", 1)[1]
        return field in self._contract["components"]["schemas"][name]["properties"]

    def expire(self, run: berth.Run, ids: list[str]) -> None:
        wait_until(lambda: all(run.trajectory(id).state == "discarded" for id in ids))


@pytest.fixture(scope="session")
def real_server() -> Iterator[str]:
    if binary() is None:
        pytest.skip("no server: build it, or name it in BERTH_BIN")
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
