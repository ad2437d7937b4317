"""The client for asyncio: cancellation, many generations in flight, and a loop that is kept busy."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import LEASE_MS, Ledger
from servers import wait_until

import berth
import berth.aio

Case = Callable[[Ledger], Awaitable[None]]


def run_case(case: Case, ledger: Ledger) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(case(ledger), 60)

    asyncio.run(bounded())


async def fill(run: berth.aio.Run, count: int, version: int = 0) -> None:
    async with run.worker("filler") as filler:
        for slot in await filler.reserve_up_to(count, version):
            assert (await slot.occupy(reward=1.0)).kept


def test_the_ten_lines(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        versions: list[int] = []

        async def train() -> None:
            async with run.trainer() as trainer:
                async for batch in trainer:
                    versions.append(batch.version)
                    await trainer.publish(weights=f"file:///{batch.version + 1}")
                    if batch.version == 2:
                        return

        training = asyncio.ensure_future(train())
        async with run.worker("w") as worker:
            async for slot in worker.reserve(refresh=lambda weights: None):
                assert (await slot.occupy(reward=1.0, tokens=3)).kept
                if training.done():
                    break
        await training
        assert versions == [0, 1, 2]

    run_case(case, ledger)


def test_a_cancelled_reservation_is_an_asyncio_cancellation(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)
            generating = asyncio.Event()

            async def generate() -> str:
                async with slot:
                    generating.set()
                    await asyncio.Event().wait()
                return "went on behind its block"

            task = asyncio.ensure_future(generate())
            await generating.wait()
            await run.discard(slot.id, "operator")
            assert await task == "went on behind its block"
            assert slot.cancelled and slot.cancel_reason == "operator"

    run_case(case, ledger)


def test_somebody_elses_cancellation_passes_and_gives_the_slot_up(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)
            generating = asyncio.Event()

            async def generate() -> None:
                async with slot:
                    generating.set()
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(generate())
            await generating.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await run.trajectory(slot.id)).reason == "cancelled_error"

    run_case(case, ledger)


def test_a_loop_that_an_engine_keeps_busy_keeps_its_lease(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(lease_ms=LEASE_MS)
        watch = ledger.connect().run(run.name)
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)
            beats: set[int] = set()

            def beating() -> bool:
                beats.add(next(watch.workers()).heartbeat_at_ms)
                return len(beats) >= 3

            wait_until(beating)  # blocks the loop, as an engine's step does
            assert (await run.trajectory(slot.id)).state == "reserved"

    run_case(case, ledger)


def test_many_generations_are_in_flight_and_each_is_done_once(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=64)
        in_flight = most = 0
        all_in_flight = asyncio.Event()
        done: list[str] = []

        async def generate(slot: berth.aio.Slot) -> None:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            if in_flight == 64:
                all_in_flight.set()
            await all_in_flight.wait()
            in_flight -= 1
            assert (await slot.occupy(reward=1.0)).kept
            done.append(str(slot.prompt))

        names = [f"q-{n}" for n in range(128)]
        async with run.worker("w") as worker:
            await worker.serve(generate, 0, in_flight=64, prompts=names)
        assert most == 64 and sorted(done) == sorted(names)
        assert (await run.status()).occupied == 128

    run_case(case, ledger)


def test_weights_change_while_requests_are_in_flight(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=2)
        loaded: list[int] = []
        changed = asyncio.Event()
        slots: list[berth.aio.Slot] = []

        def load(weights: berth.Weights) -> None:
            loaded.append(weights.version)
            if weights.version == 1:
                changed.set()

        async def generate(slot: berth.aio.Slot) -> None:
            slots.append(slot)
            if len(slots) > 2:
                await changed.wait()
            await slot.occupy(reward=1.0)

        async def train() -> None:
            async with run.trainer() as trainer:
                async for _ in trainer:
                    await trainer.publish("file:///1")
                    return

        async with run.worker("w") as worker:
            training = asyncio.ensure_future(train())
            await worker.serve(generate, in_flight=4, refresh=load, prompts=list("abcd"))
            await training
        assert loaded == [0, 1]
        assert sorted(str(slot.prompt) for slot in slots) == list("abcd")

    run_case(case, ledger)


def test_one_failure_is_given_up_and_many_in_a_row_end_the_worker(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()

        async def generate(slot: berth.aio.Slot) -> None:
            if slot.prompt != "good":
                raise ValueError(slot.prompt)
            await slot.occupy(reward=1.0)

        async with run.worker("w") as worker:
            await worker.serve(generate, 0, prompts=["bad", "good"])
            with pytest.raises(berth.BerthError, match="2 generations failed in a row"):
                await worker.serve(generate, 0, in_flight=1, prompts=["bad"] * 9, most_failures=2)
        status = await run.status()
        assert status.occupied == 1 and status.totals.discarded["value_error"] == 3

    with caplog.at_level(logging.CRITICAL, "berth"):
        run_case(case, ledger)


def test_a_fenced_worker_ends(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(lease_ms=LEASE_MS)
        generating, ended = asyncio.Event(), threading.Event()

        async def generate(slot: berth.aio.Slot) -> None:
            generating.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with run.worker("w") as old:
            serving = asyncio.ensure_future(old.serve(generate, 0, in_flight=1))
            await generating.wait()
            async with run.worker("w"):
                with pytest.raises(berth.Fenced):
                    await serving
            assert ended.is_set()

    run_case(case, ledger)


def test_members_of_groups_are_in_flight_at_once(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=2, group_size=2, group_candidates=3)
        waiting: dict[str, list[int]] = {}
        cancelled: list[Any] = []

        async def generate(member: berth.aio.Member) -> None:
            await asyncio.sleep(0)
            if member.index == 2:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(member)
                    raise
            outcome = await member.complete(reward=float(member.index))
            assert outcome.counted
            waiting.setdefault(str(member.slot.prompt), []).append(member.index)

        async with run.worker("w") as worker:
            await worker.serve_members(generate, 0, in_flight=6, prompts=["a", "b"])
        assert {name: sorted(done) for name, done in waiting.items()} == {"a": [0, 1], "b": [0, 1]}
        assert len(cancelled) == 2
        assert (await run.status()).occupied == 2

    run_case(case, ledger)


def test_a_batch_is_streamed(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=2)
        await fill(run, 2)
        sizes = []
        async with run.trainer() as trainer:
            async for piece in trainer.stream(min_entries=1, max_entries=1):
                sizes.append((len(piece), piece.complete))
                if piece.complete:
                    await trainer.publish()
                    break
        assert sizes == [(1, False), (1, True)]

    run_case(case, ledger)


def test_everything_there_is_to_look_at(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        await fill(run, 2)
        async with run.trainer() as trainer:
            assert (await trainer.next_batch()).batch is not None
        assert (await run.batch(0)).version == 0
        assert [batch.version async for batch in run.batches()] == [0]
        assert [worker.worker async for worker in run.workers()] == ["filler"]
        assert len([entry async for entry in run.trajectories(state="taken")]) == 2
        assert [event.seq async for event in run.events()][0] == 1
        async for event in run.follow(after=1):
            assert event.seq == 2
            break
        await run.drain()
        async with run.trainer(resume_from=0) as trainer:
            async for batch in trainer:
                await trainer.publish(f"file:///{batch.version + 1}")
        assert [event.type async for event in run.follow(until_finished=True)][-1] == "publish"
        assert (await run.buffers(slots=True)).buffers[0].slots[0].state == "empty"
        assert (await run.weights()).version == 1
        assert (await run.configure(lease_ms=2000)).config.lease_ms == 2000
        assert (await run.publish_initial("file:///0", epoch=2)).policy_version == 1
        assert run.name in [each.run async for each in ledger.connect_async().runs()]
        await run.delete()

    run_case(case, ledger)


def test_an_outer_timeout_still_times_out(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)

            async def generate() -> None:
                async with slot:
                    await asyncio.Event().wait()

            started = time.monotonic()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(generate(), 0.01)
            assert time.monotonic() - started < 20
        assert (await run.trajectory(slot.id)).state == "discarded"

    run_case(case, ledger)
