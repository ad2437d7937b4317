"""What the end of a block gives up, and what it leaves to those who have finished it or go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from conftest import LEASE_MS, Ledger

import berth
import berth.aio


def run_case(case: Callable[[Ledger], Awaitable[None]], ledger: Ledger) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(case(ledger), 60)

    asyncio.run(bounded())


def interrupt_calls_to(path: str, worker: berth.Worker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on these arrive, but their answers are met by an interrupt. Returns those that were."""
    http, called = worker._sender.connections.http, []
    send = http.send

    def interrupted(request: httpx.Request) -> httpx.Response:
        answer = send(request)
        if path in request.url.path:
            called.append(request.url.path)
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(http, "send", interrupted)
    return called


def refuse_connections(worker: berth.Worker | berth.aio.Worker, monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """From now on the server is away. Returns what was tried; more than a few times nothing is."""
    tried: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tried.append(request)
        assert len(tried) < 5, "it goes on for as long as any call"
        raise httpx.ConnectError("the server is away")

    async def refuse_async(request: httpx.Request) -> httpx.Response:
        return refuse(request)

    is_async = isinstance(worker, berth.aio.Worker)
    monkeypatch.setattr(worker._sender.connections.http, "send", refuse_async if is_async else refuse)
    return tried


# What is another's.


def test_a_worker_that_stops_leaves_what_another_has_finished(ledger: Ledger) -> None:
    run = ledger.run(prompt_queue=True)
    run.feed(["a"])
    with run.worker("reward") as reward:
        with run.worker("rollout") as worker:
            slot = next(worker.reserve(0))
            assert reward.slot(slot.id).occupy(reward=1.0).kept
    assert run.trajectory(slot.id).state == "occupied" and slot.closed


def test_a_worker_that_stops_leaves_what_another_has_claimed(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("reward") as reward:
        with run.worker("rollout") as worker:
            slot = next(worker.reserve(0))
            claimed = reward.claim(slot.id)
        assert claimed.occupy(reward=1.0).kept


def test_a_worker_that_stops_leaves_a_group_that_another_has_filled(ledger: Ledger) -> None:
    run = ledger.run(group_size=2, group_candidates=3)
    with run.worker("reward") as reward:
        with run.worker("rollout") as worker:
            slot = next(worker.reserve(0))
            for index in (0, 1):
                reward.slot(slot.id).member(index, version=0).complete(reward=float(index))
    assert run.trajectory(slot.id).state == "occupied"


def test_a_slots_block_leaves_what_another_has_finished_or_claimed(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("reward") as reward, run.worker("rollout") as worker:
        with next(worker.reserve(0)) as finished:
            assert reward.slot(finished.id).occupy(reward=1.0).kept
        with pytest.raises(ZeroDivisionError):
            with next(worker.reserve(0)) as failed:
                assert reward.slot(failed.id).occupy(reward=1.0).kept
                _ = 1 / 0
        with pytest.raises(ZeroDivisionError):
            with next(worker.reserve(0)) as handed_over:
                claimed = reward.claim(handed_over.id)
                _ = 1 / 0
        assert claimed.occupy(reward=1.0).kept
    assert {run.trajectory(slot.id).state for slot in (finished, failed, handed_over)} == {"occupied"}


def test_a_block_about_anothers_reservation_gives_it_up_by_a_failure_only(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("reward") as reward, run.worker("rollout") as worker:
        slot = next(worker.reserve(0))
        with reward.slot(slot.id):
            pass
        with pytest.raises(KeyboardInterrupt):
            with reward.slot(slot.id):
                raise KeyboardInterrupt
        assert run.trajectory(slot.id).state == "reserved"
        with pytest.raises(ZeroDivisionError):
            with reward.slot(slot.id):
                _ = 1 / 0
        assert run.trajectory(slot.id).reason == "zero_division_error"


def test_with_asyncio_too_what_another_has_finished_or_claimed_is_left(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2)
        async with run.worker("reward") as reward:
            async with run.worker("rollout") as worker:
                finished, handed_over, filled = await worker.reserve_up_to(3, 0)
                both = [berth.MemberResult(index=index, reward=float(index), version=0) for index in (0, 1)]
                async with finished:
                    assert (await reward.slot(finished.id).occupy(members=both)).kept
                claimed = await reward.claim(handed_over.id)
                for index in (0, 1):
                    await reward.slot(filled.id).member(index, version=0).complete(reward=float(index))
            assert (await claimed.occupy(members=both)).kept
        for slot in (finished, handed_over, filled):
            assert (await run.trajectory(slot.id)).state == "occupied"

    run_case(case, ledger)


# Groups of which something is finished.


def groups_of_three(**config: object) -> dict[str, object]:
    """One group at a time, whose prompt has failed once it is given up."""
    return {"batch_size": 1, "group_size": 3, "prompt_queue": True, "max_attempts": 1, **config}


def assert_inherited(run: berth.Run, id: str) -> None:
    """The next process of this name goes on with what the last one had."""
    with run.worker("w") as heir:
        slot = next(heir.reserve(0))
        assert slot.id == id and slot.adopted and slot.members_done == {0, 1}
        assert slot.member(2).complete(reward=0.5).state == "occupied"


def test_a_worker_that_stops_leaves_the_finished_members_of_a_group_to_an_heir(ledger: Ledger) -> None:
    run = ledger.run(**groups_of_three())
    run.feed(["a"])
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        for index in (0, 1):
            slot.member(index).complete(reward=float(index))
    assert slot.closed
    assert_inherited(run, slot.id)


def test_an_interrupt_is_no_failure_of_a_member_nor_of_its_group(ledger: Ledger) -> None:
    run = ledger.run(**groups_of_three())
    run.feed(["a"])
    with pytest.raises(KeyboardInterrupt):
        with run.worker("w") as worker, next(worker.reserve(0)) as slot:
            for member in slot.members:
                with member:
                    if member.index == 2:
                        raise KeyboardInterrupt
                    member.complete(reward=float(member.index))
    assert slot.members_failed == frozenset()
    assert_inherited(run, slot.id)


def test_a_cancelled_task_leaves_the_finished_members_of_a_group_to_an_heir(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(**groups_of_three())
        await run.feed(["a"])
        ids: list[str] = []
        complete = 0
        both = asyncio.Event()

        async def generate(member: berth.aio.Member) -> None:
            nonlocal complete
            if member.index == 2:
                ids.append(member.slot.id)
                await asyncio.Event().wait()
            await member.complete(reward=float(member.index))
            complete += 1
            if complete == 2:
                both.set()

        async def work() -> None:
            async with run.worker("w") as worker:
                await worker.serve_members(generate, 0, in_flight=3)

        working = asyncio.ensure_future(work())
        await both.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await asyncio.to_thread(assert_inherited, ledger.connect().run(run.name), ids[0])

    run_case(case, ledger)


def test_a_group_is_given_up_by_a_failure_and_where_nobody_adopts_it(ledger: Ledger) -> None:
    run = ledger.run(**groups_of_three())
    run.feed(["a"])
    with pytest.raises(ZeroDivisionError):
        with run.worker("w") as worker:
            failed = next(worker.reserve(0))
            failed.member(0).complete(reward=1.0)
            _ = 1 / 0
    assert run.trajectory(failed.id).reason == "zero_division_error"
    run = ledger.run(**groups_of_three(adopt_groups=False))
    run.feed(["a"])
    with run.worker("w") as worker:
        stopped = next(worker.reserve(0))
        stopped.member(0).complete(reward=1.0)
    assert run.trajectory(stopped.id).reason == "worker_stopped"


# What may have been handed in, and what can't have been.


def test_what_could_not_be_written_down_was_not_handed_in_and_is_given_up(ledger: Ledger) -> None:
    run = ledger.run(prompt_queue=True)
    run.feed(["a", "b", "c"])
    with run.worker("w") as worker:
        with pytest.raises(ValueError):
            with next(worker.reserve(0)) as not_a_number:
                not_a_number.occupy(reward=float("nan"))
        with pytest.raises(TypeError):
            with next(worker.reserve(0)) as not_json:
                not_json.occupy(reward=1.0, meta={"ids": {1, 2}})
        with pytest.raises(ValueError):
            with next(worker.reserve(0)) as one_of_many:
                worker.occupy_many([{"id": one_of_many.id, "reward": float("inf")}])
    ended = [run.trajectory(slot.id).reason for slot in (not_a_number, not_json, one_of_many)]
    assert ended == ["value_error", "type_error", "value_error"]


def test_with_asyncio_too_what_could_not_be_written_down_is_given_up(ledger: Ledger) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async()
        async with run.worker("w") as worker:
            slots = await worker.reserve_up_to(2, 0)
            with pytest.raises(ValueError):
                async with slots[0]:
                    await slots[0].occupy(reward=float("nan"))
            with pytest.raises(ValueError):
                async with slots[1]:
                    await worker.occupy_many([{"id": slots[1].id, "reward": float("nan")}])
        assert [(await run.trajectory(slot.id)).reason for slot in slots] == ["value_error"] * 2

    run_case(case, ledger)


def test_what_is_interrupted_while_it_is_handed_in_is_not_given_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        called = interrupt_calls_to("/trajectories/", worker, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            with next(worker.reserve(0)) as slot:
                slot.occupy(reward=1.0)
        assert len(called) == 1
        monkeypatch.undo()
    assert run.trajectory(slot.id).state == "occupied"


# Ends that are interrupted themselves.


def test_a_worker_whose_end_is_interrupted_leaves_no_heartbeat(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    with pytest.raises(KeyboardInterrupt):
        with run.worker("w") as worker:
            held = worker.reserve_up_to(2, 0)
            interrupt_calls_to("/trajectories/", worker, monkeypatch)
    monkeypatch.undo()
    ledger.expire(run, [slot.id for slot in held])
    with worker:
        assert worker.slots == []


def test_a_cancelled_end_of_an_asyncio_worker_leaves_no_heartbeat(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(lease_ms=LEASE_MS)
        held: list[berth.aio.Slot] = []
        ending = asyncio.Event()

        async def unanswered(request: httpx.Request) -> httpx.Response:
            ending.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody answers")  # pragma: no cover

        async def work() -> None:
            async with run.worker("w") as worker:
                held.extend(await worker.reserve_up_to(2, 0))
                monkeypatch.setattr(worker._sender.connections.http, "send", unanswered)

        working = asyncio.ensure_future(work())
        await ending.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        monkeypatch.undo()
        ids = [slot.id for slot in held]
        await asyncio.to_thread(ledger.expire, ledger.connect().run(run.name), ids)

    run_case(case, ledger)


@pytest.fixture
def no_patience_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops tries everything just once more."""
    for module in ("berth._finishing", "berth.worker", "berth.aio.worker"):
        monkeypatch.setattr(f"{module}.STOP_PATIENCE_S", 0.0)


@pytest.mark.usefixtures("no_patience_to_stop")
def test_an_interrupted_block_waits_for_no_server_that_is_away(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        with pytest.raises(KeyboardInterrupt):
            with next(worker.reserve(0)) as slot:
                tried = refuse_connections(worker, monkeypatch)
                raise KeyboardInterrupt
        assert len(tried) == 2 and slot.closed
        monkeypatch.undo()


@pytest.mark.usefixtures("no_patience_to_stop")
def test_a_cancelled_block_waits_for_no_server_that_is_away(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(ledger: Ledger) -> None:
        run = await ledger.run_async(group_size=2)
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)
            generating = asyncio.Event()

            async def generate() -> None:
                async with slot, slot.member(0):
                    generating.set()
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(generate())
            await generating.wait()
            tried = refuse_connections(worker, monkeypatch)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(tried) == 2 and slot.closed
            monkeypatch.undo()

    run_case(case, ledger)
