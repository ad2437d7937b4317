"""`serve` and `serve_members`: what they count as a failure, what ends them, and what they leave behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from conftest import Ledger
from servers import wait_until

import berth
import berth.aio

Case = Callable[[Ledger], Awaitable[None]]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The failures are the tests' own."""
    with caplog.at_level(logging.CRITICAL, "berth"):
        yield


def run_case(case: Case, ledger: Ledger) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(case(ledger), 60)

    asyncio.run(bounded())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Looks until it holds; the case is bounded."""
    while not await holds():
        await asyncio.sleep(0.01)


async def until_occupied(run: berth.aio.Run, count: int) -> None:
    async def are_occupied() -> bool:
        return (await run.status()).occupied == count

    await until(are_occupied)


async def occupy(slot: berth.aio.Slot) -> None:
    await slot.occupy(reward=1.0)


async def fails_in_the_engine(member: berth.aio.Member) -> None:
    raise RuntimeError("the engine is gone")


async def aborts(request: Any) -> None:
    """As an engine that aborts a request: it cancels the future that its caller waits for."""
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def test_groups_whose_members_all_fail_end_the_worker(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2, group_candidates=3, prompt_queue=True)
        await run.feed([f"q-{n}" for n in range(40)])
        await run.drain()
        async with run.worker("w") as worker:
            with pytest.raises(berth.BerthError, match="4 generations failed in a row.*the engine is gone"):
                await worker.serve_members(fails_in_the_engine, 0, in_flight=3, most_failures=4)
        assert (await run.status()).totals.discarded.get("group_failed") == 4

    run_case(case, ledger)


def test_members_that_an_engine_aborts_fail_their_group(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2)
        async with run.worker("w") as worker:
            with pytest.raises(berth.BerthError, match="2 generations failed in a row.*CancelledError"):
                await worker.serve_members(aborts, 0, in_flight=2, prompts=["q"] * 9, most_failures=2)
        assert (await run.status()).totals.discarded.get("group_failed") == 2

    run_case(case, ledger)


def test_a_group_that_is_filled_has_not_failed_by_one_member(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2, group_candidates=3)

        async def generate(member: berth.aio.Member) -> None:
            if member.index == 0:
                raise ValueError("only this one")
            await member.complete(reward=float(member.index))

        async with run.worker("w") as worker:
            await worker.serve_members(generate, 0, in_flight=3, prompts=["a", "b"], most_failures=1)
        assert (await run.status()).occupied == 2

    run_case(case, ledger)


@pytest.mark.parametrize("occupies_itself", [False, True])
def test_a_filled_group_without_auto_occupy_is_occupied_as_its_members_end(
    ledger: Ledger, occupies_itself: bool
) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2, auto_occupy=False)

        async def generate(member: berth.aio.Member) -> None:
            outcome = await member.complete(reward=float(member.index))
            if occupies_itself and outcome.complete == 2:
                await member.slot.occupy(reward=7.0)

        async with run.worker("w") as worker:
            await worker.serve_members(generate, 0, in_flight=2, prompts=["a", "b"])
        status = await run.status()
        assert status.occupied == 2 and not status.totals.discarded
        rewards = [entry.reward async for entry in run.trajectories(state="occupied")]
        assert rewards == [7.0 if occupies_itself else 0.5] * 2

    run_case(case, ledger)


def test_a_generation_that_an_engine_aborts_is_a_failure_like_any_other(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()

        async def generate(slot: berth.aio.Slot) -> None:
            await (aborts(slot) if slot.prompt == "bad" else occupy(slot))

        async with run.worker("w") as worker:
            await worker.serve(generate, 0, in_flight=1, prompts=["bad", "good"], most_failures=2)
            with pytest.raises(berth.BerthError, match="2 generations failed in a row.*CancelledError"):
                await worker.serve(generate, 0, in_flight=1, prompts=["bad"] * 9, most_failures=2)
        status = await run.status()
        assert status.occupied == 1 and status.totals.discarded["cancelled_error"] == 3

    run_case(case, ledger)


def test_what_the_ledger_takes_away_is_no_failure(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()

        async def generate(slot: berth.aio.Slot) -> None:
            if slot.prompt == "kept":
                return await occupy(slot)
            await run.discard(slot.id, "operator")
            if slot.prompt == "aborted":
                # The engine sees it first, and aborts in its own way.
                wait_until(lambda: slot.cancelled)
                await aborts(slot)
            await asyncio.Event().wait()

        async with run.worker("w") as worker:
            prompts = ["cancelled", "aborted", "kept"]
            await worker.serve(generate, 0, in_flight=1, prompts=prompts, most_failures=1)
        status = await run.status()
        assert status.occupied == 1 and status.totals.discarded == {"operator": 2}

    run_case(case, ledger)


def test_a_serve_that_is_cancelled_says_so_and_gives_up_what_it_holds(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        generating = asyncio.Event()

        async def generate(slot: berth.aio.Slot) -> None:
            generating.set()
            await asyncio.Event().wait()

        async with run.worker("w") as worker:
            serving = asyncio.ensure_future(worker.serve(generate, 0, in_flight=1, most_failures=1))
            await generating.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert (await run.status()).totals.discarded == {"cancelled_error": 1}

    run_case(case, ledger)


@pytest.mark.parametrize("max_staleness", [0, 1], ids=["for other weights", "for a place"])
def test_a_refresh_that_fails_ends_a_worker_that_waits(ledger: Ledger, max_staleness: int) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=1, max_staleness=max_staleness)
        goes_on = asyncio.Event()

        async def load(weights: berth.Weights) -> None:
            if weights.version == 1:
                await goes_on.wait()
                raise RuntimeError("the checkpoint is corrupt")

        async with run.worker("w") as worker:
            serving = asyncio.ensure_future(worker.serve(occupy, refresh=load, in_flight=2))
            await until_occupied(run, 1 + max_staleness)
            async with run.trainer() as trainer:
                assert (await trainer.next_batch()).batch is not None
                await trainer.publish("file:///1")
            goes_on.set()
            with pytest.raises(RuntimeError, match="corrupt"):
                await asyncio.wait_for(serving, 20)

    run_case(case, ledger)


@pytest.mark.parametrize("error", [berth.Unreachable("no server"), ValueError("no engine")], ids=["fatal", "too many"])
def test_a_generation_that_ends_a_worker_ends_it_while_it_waits_for_a_place(ledger: Ledger, error: Exception) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(batch_size=1, max_staleness=0)
        generating, fails = asyncio.Event(), asyncio.Event()

        async def generate(slot: berth.aio.Slot) -> None:
            generating.set()
            await fails.wait()
            # Its place stays taken, so that no grant wakes the worker.
            await occupy(slot)
            raise error

        async with run.worker("w") as worker:
            serving = asyncio.ensure_future(worker.serve(generate, 0, in_flight=2, most_failures=1))
            await generating.wait()
            fails.set()
            with pytest.raises(berth.BerthError, match=str(error)):
                await asyncio.wait_for(serving, 20)

    run_case(case, ledger)


def test_what_a_cancelled_reservation_was_granted_is_given_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(prompt_queue=True)
        await run.feed(["a", "b"])
        granted = asyncio.Event()

        async with run.worker("w") as worker:
            http = worker._sender.connections.http
            send = http.send

            async def with_a_slow_answer(request: httpx.Request, **options: Any) -> httpx.Response:
                response = await send(request, **options)
                if request.url.path.endswith("/reservations") and not granted.is_set():
                    granted.set()
                    await asyncio.Event().wait()
                return response

            monkeypatch.setattr(http, "send", with_a_slow_answer)
            serving = asyncio.ensure_future(worker.serve(occupy, 0, in_flight=2))
            await granted.wait()
            assert (await run.status()).reserved == 2
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            status = await run.status()
            assert status.reserved == 0 and status.prompts is not None and status.prompts["queued"] == 2
            assert status.totals.discarded == {"cancelled_error": 2}

    run_case(case, ledger)


def test_what_is_granted_in_the_moment_in_which_the_worker_ends_is_given_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        occupied, fails = asyncio.Event(), asyncio.Event()

        async def generate(slot: berth.aio.Slot) -> None:
            await occupy(slot)
            occupied.set()
            await fails.wait()
            raise berth.Unreachable("no server")

        async with run.worker("w") as worker:
            reserve = worker._reserve

            async def one_and_another_as_it_fails(reserving: Any, count: int, refresh: Any) -> Any:
                if count == 1:
                    await occupied.wait()
                slots = await reserve(reserving, 1, refresh)
                if count == 1:
                    fails.set()
                return slots

            monkeypatch.setattr(worker, "_reserve", one_and_another_as_it_fails)
            with pytest.raises(berth.Unreachable):
                await worker.serve(generate, 0, in_flight=2)
            status = await run.status()
            assert status.occupied == 1 and status.reserved == 0
            assert status.totals.discarded == {"cancelled_error": 1}

    run_case(case, ledger)
