"""What a worker holds: what its heartbeats say of it, what it is told, and under which weights it was generated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from conftest import IMPATIENT, LEASE_MS, Fake, Ledger
from servers import wait_until
from support import train

import berth
import berth.aio
from berth._call import Memory
from berth._holdings import HeldSlot, Holdings
from berth._weights import HeldWeights
from berth.fake import FakeServer
from berth.fake.server import FakeTransport

CONFIG = berth.RunConfig(batch_size=1, max_staleness=1, slots_per_buffer=1)


def pass_time(ledger: Ledger, until: Callable[[], bool]) -> None:
    """In small steps where the clock is the test's, so that live workers call in between."""

    def is_over() -> bool:
        if isinstance(ledger, Fake):
            ledger.server.advance(LEASE_MS // 20)
        return until()

    wait_until(is_over)


def outlive_a_lease(ledger: Ledger, run: berth.Run) -> None:
    """Lets a lease run out that nobody renews, and with it what was granted before is older than one."""
    with run.worker("mayfly") as mayfly:
        (slot,) = mayfly.reserve_up_to(1, 0)
        assert mayfly._heartbeat is not None
        mayfly._heartbeat.stop()
        pass_time(ledger, lambda: run.trajectory(slot.id).state == "discarded")


def die(worker: berth.Worker | berth.aio.Worker) -> None:
    """Its process ends without a word."""
    assert worker._heartbeat is not None
    worker._heartbeat.stop()
    # A heartbeat that waits at the server is cut off with its process: its connection is closed.
    worker._heartbeat._sender.close()
    worker._heartbeat._thread.join(60)
    assert not worker._heartbeat._thread.is_alive()


# The session's token, kept.


def test_a_process_of_the_same_session_claims_what_its_predecessor_held(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    first = run.worker("w", session="kept").__enter__()
    (slot,) = first.reserve_up_to(1, 0)
    outlive_a_lease(ledger, run)
    die(first)
    with run.worker("w", session="kept") as again:
        assert [each.id for each in run.trajectories(worker="w")] == [slot.id]
        claimed = again.claim(slot.id)
        outlive_a_lease(ledger, run)
        assert claimed.occupy(reward=1.0).kept


def test_what_a_process_of_the_same_session_does_not_claim_goes_to_others_after_some_leases(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    first = run.worker("w", session="kept").__enter__()
    (slot,) = first.reserve_up_to(1, 0)
    die(first)
    with run.worker("w", session="kept") as again:
        pass_time(ledger, lambda: run.trajectory(slot.id).state == "discarded")
        assert run.trajectory(slot.id).reason == "abandoned"
        assert again.slots == []


def test_a_process_of_the_same_session_claims_also_in_asyncio(ledger: Ledger) -> None:
    async def job() -> None:
        run = await ledger.run_async(lease_ms=LEASE_MS)
        first = await run.worker("w", session="kept").__aenter__()
        (slot,) = await first.reserve_up_to(1, 0)
        await asyncio.to_thread(die, first)
        async with run.worker("w", session="kept") as again:
            assert again._holdings.next_beat().holding == [slot.id]
            claimed = await again.claim(slot.id)
            assert (await claimed.occupy(reward=1.0)).kept
            assert again._holdings.next_beat().holding == []

    asyncio.run(job())


def test_what_was_inherited_is_listed_until_it_is_claimed_given_up_or_some_leases_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("berth._holdings.time.monotonic", lambda: now)
    holdings = Holdings("w", "s", CONFIG, Memory(), 0)
    holdings.inherit(["claimed", "given up", "forgotten"])
    slot = HeldSlot(berth.Grant(id="claimed", version=0, deadline=1), holdings, None)
    holdings.add(slot)
    holdings.let_go("given up")
    assert holdings.next_beat().holding == ["claimed", "forgotten"]
    slot._close()
    assert holdings.next_beat().holding == ["forgotten"]
    now += 3.5 * CONFIG.lease_ms / 1000
    assert holdings.next_beat().holding == []


# Cancellations.


def cancelled(*ids: str) -> berth.Heartbeat:
    told = [berth.Cancelled(id=id, reason="surplus") for id in ids]
    return berth.Heartbeat(lease_expires_in_ms=1, policy_version=0, lineage=0, cancelled=told)


def test_what_is_taken_away_before_its_grant_arrives_is_cancelled_when_it_does() -> None:
    holdings = Holdings("w", "s", CONFIG, Memory(), 0)
    with holdings.expecting():
        holdings.told(holdings.next_beat(), cancelled("taken"))
        assert holdings.next_beat().acknowledged == ["taken"]
        slot = HeldSlot(berth.Grant(id="taken", version=0, deadline=1), holdings, None)
        holdings.add(slot)
    assert slot.cancelled and slot.cancel_reason == "surplus"


def test_what_was_taken_away_before_is_not_when_it_is_granted_again() -> None:
    holdings = Holdings("w", "s", CONFIG, Memory(), 0)
    holdings.told(holdings.next_beat(), cancelled("a group"))
    with holdings.expecting():
        slot = HeldSlot(berth.Grant(id="a group", version=0, deadline=1), holdings, None)
        holdings.add(slot)
    assert not slot.cancelled


def test_a_reserve_whose_answer_comes_after_the_cancellation_gives_a_cancelled_slot(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        send = worker._send

        def slowly(call: Any, *more: Any) -> Any:
            answer = send(call, *more)
            run.discard(answer.granted[0].id, "operator")
            # The heartbeat is told, and acknowledges it, before this answer arrives.
            wait_until(lambda: answer.granted[0].id in next(iter(worker._holdings._early.values())))
            return answer

        monkeypatch.setattr(worker, "_send", slowly)
        (slot,) = worker.reserve_up_to(1, 0)
        assert slot.cancelled and slot.cancel_reason == "operator"


# A server that lets nobody wait.


class Crowded(FakeTransport):
    """A server at which all places to wait are taken."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/heartbeat") and b'"wait_ms"' in request.read():
            return httpx.Response(429, json={"code": "too_many_waiting", "retry_after_s": 1})
        return super().handle_request(request)


def test_a_live_worker_keeps_its_lease_where_no_call_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer()
    run = berth.connect("http://crowded", retry=IMPATIENT, transport=Crowded(server)).run(
        "crowded", batch_size=4, max_staleness=1, lease_ms=LEASE_MS
    )
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        beats = 0
        told = worker._holdings.told

        def count(*answered: Any) -> None:
            nonlocal beats
            beats += 1
            told(*answered)

        monkeypatch.setattr(worker._holdings, "told", count)
        wait_until(lambda: beats >= 3)
        assert run.trajectory(slot.id).state == "reserved"
        run.discard(slot.id, "operator")
        wait_until(lambda: slot.cancelled)


# Segments.


def noted(slot: berth.Slot) -> list[tuple[int, int]]:
    return [(each.version, each.from_token) for each in slot.segments]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ([(1, 50), (2, 50)], [(2, 50)]),
        ([(1, 50), (2, 60), (3, 50)], [(3, 50)]),
        ([(1, 50), (1, 50)], [(1, 50)]),
        ([(1, 50), (2, 0)], [(2, 1)]),
        ([(1, 0)], [(1, 1)]),
        ([(1, 0), (2, 1)], [(2, 1)]),
        ([(0, 0), (1, 9)], [(1, 9)]),
    ],
)
@pytest.mark.parametrize("report", [False, True])
def test_weights_that_generated_no_token_do_not_spoil_the_entry(
    ledger: Ledger, said: list[tuple[int, int]], kept: list[tuple[int, int]], report: bool
) -> None:
    run = ledger.run(batch_size=1, max_staleness=4, keep_batches=8)
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        train(run, 3)
        for version, from_token in said:
            slot.segment(version, from_token, report=report)
        if not report:
            assert noted(slot) == kept
        assert slot.occupy(reward=1.0, tokens=99).kept
    shown = run.trajectory(slot.id).segments
    assert shown is not None and shown[-1].version == said[-1][0]


def test_a_member_may_change_its_weights_before_its_first_token(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, max_staleness=4, group_size=2, keep_batches=8)
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        begun = slot.member(0)
        for version in range(2):
            with run.worker("other") as other, run.trainer(resume_from=version) as trainer:
                (group,) = other.reserve_up_to(1, version)
                group.occupy(members=[berth.MemberResult(0, 1.0), berth.MemberResult(1, 0.0)])
                assert trainer.next_batch(wait_ms=5_000).batch is not None
                trainer.publish()
        begun.segment(1, 0)
        begun.segment(2, 0)
        begun.complete(reward=1.0)
        members = run.trajectory(slot.id).members
        assert members is not None and members[0].version == 2
        assert slot.member(1).complete(reward=0.0).state == "occupied"


# Weights.


def test_the_weights_of_an_earlier_token_are_those_that_were_held_under_its_number() -> None:
    memory = Memory()
    held = HeldWeights(memory)
    held.hold(berth.Weights(version=5, lineage=0))
    memory.note(None, 1)
    held.observe(lambda: berth.Weights(version=3, lineage=1))
    assert held.name(5) == berth.Weights(version=5, lineage=0)
    held.fetched(berth.Weights(version=5, lineage=1))
    assert held.name(5).lineage == 1, "what was fetched since is what the engine loads now"


def test_a_number_that_was_only_guessed_is_not_taken_for_weights_of_before_a_rewind() -> None:
    memory = Memory()
    held = HeldWeights(memory)
    held.hold(5)
    memory.note(None, 1)
    held.hold(3)
    assert held.name(5).lineage == 1
