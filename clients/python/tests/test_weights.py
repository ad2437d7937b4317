"""Which weights a worker holds: that they are too old, and that the process is told of newer ones from elsewhere."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from conftest import LEASE_MS, Ledger
from servers import wait_until
from support import fill, thread, train

import berth
import berth.aio


def take(run: berth.Run, **opening: Any) -> None:
    """The trainer takes a batch, and is busy with it."""
    fill(run, 2, version=run.status().policy_version)
    with run.trainer(**opening) as trainer:
        assert trainer.next_batch(wait_ms=5_000).batch is not None


def test_weights_lag_once_nothing_is_granted_under_them(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=1, lease_ms=LEASE_MS)
    with run.worker("w") as worker:
        assert not worker.lags, "it has not said which it holds"
        worker.hold(0)
        train(run, 1)
        wait_until(lambda: worker.policy_version == 1)
        assert not worker.lags, "version 0 may still be trained in batch 1"
        take(run, resume_from=1)
        with pytest.raises(berth.VersionTooStale):
            worker.reserve_up_to(1)
        assert worker.lags
        worker.hold(1)
        assert not worker.lags
        assert worker.reserve_up_to(1)[0].version == 1


def test_a_worker_hears_that_its_weights_lag_without_asking(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0, lease_ms=LEASE_MS)
    with run.worker("w") as worker:
        worker.hold(0)
        train(run, 1)
        wait_until(lambda: worker.lags)
        worker.hold(1)
        assert not worker.lags


def test_abandoned_weights_lag(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    train(run, 2)
    with run.worker("w") as worker:
        worker.hold(2)
        with run.trainer(resume_from=1, mode="rewind"):
            wait_until(lambda: worker.lags)
        worker.hold(worker.weights())
        assert not worker.lags


@pytest.mark.parametrize("version", [None, 0])
def test_a_loop_that_waits_is_woken_by_what_another_thread_says(ledger: Ledger, version: int | None) -> None:
    run = ledger.run(max_staleness=0)
    train(run, 1)
    granted: list[int] = []
    with run.worker("w") as worker:
        worker.hold(0)
        with thread(lambda: granted.append(next(worker.reserve(version)).version)):
            wait_until(lambda: worker.lags)
            worker.hold(1)
    assert granted == [1]


def test_a_loop_that_asks_is_woken_as_well(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0)
    train(run, 1)
    engine = [0]
    granted: list[int] = []
    with run.worker("w") as worker:
        with thread(lambda: granted.append(next(worker.reserve(lambda: engine[0])).version)):
            wait_until(lambda: worker.lags)
            engine[0] = 1
            worker.hold(1)
    assert granted == [1]


def test_a_task_that_waits_is_woken_by_a_thread(ledger: Ledger) -> None:
    async def case() -> None:
        run = await ledger.run_async(max_staleness=0)
        await asyncio.to_thread(train, ledger.connect().run(run.name), 1)
        async with run.worker("w") as worker:
            worker.hold(0)

            async def first() -> int:
                async for slot in worker.reserve():
                    return slot.version
                raise AssertionError("the run is not finished")

            waiting = asyncio.ensure_future(first())
            while not worker.lags:
                await asyncio.sleep(0)
            threading.Thread(target=worker.hold, args=(1,)).start()
            assert await waiting == 1

    asyncio.run(asyncio.wait_for(case(), 60))


def test_a_loop_that_waits_for_weights_ends_with_its_session(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0, lease_ms=LEASE_MS)
    train(run, 1)
    with run.worker("w") as old:
        old.hold(0)
        with pytest.raises(berth.Fenced):
            with thread(lambda: next(old.reserve())):
                wait_until(lambda: old.lags)
                run.worker("w").__enter__().__exit__(None, None, None)


def test_a_number_counts_until_newer_weights_are_loaded(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 1)
    loaded: list[int] = []
    with run.worker("w") as worker:
        reserving = worker.reserve(0, refresh=lambda weights: loaded.append(weights.version))
        assert [next(reserving).version for _ in range(2)] == [1, 1]
    assert loaded == [1]
