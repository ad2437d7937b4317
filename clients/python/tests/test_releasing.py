"""Which payloads nobody will read any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import LEASE_MS, Ledger
from servers import wait_until
from support import fill

import berth
from berth import MemberResult, Released
from berth._releasing import Releases


def train(trainer: berth.Trainer) -> None:
    assert trainer.next_batch(wait_ms=5_000).batch is not None
    trainer.publish(f"file:///weights/{trainer.trainer_version + 1}")


class Log:
    """What a run released, by its whole log so far."""

    def __init__(self, run: berth.Run) -> None:
        self._run = run
        self._begun = run.status()

    def released(self) -> list[Released]:
        releases = Releases(self._begun)
        return [each for event in self._run.events() for each in releases.see(event)]

    def wait_for(self, *ids: str) -> list[Released]:
        wait_until(lambda: [each.id for each in self.released()] == list(ids))
        return self.released()


def lose(ledger: Ledger, run: berth.Run, worker: berth.Worker, *slots: berth.Slot) -> None:
    """The worker is silent until its lease has run out."""
    assert worker._heartbeat is not None
    worker._heartbeat.stop()
    ledger.expire(run, [slot.id for slot in slots])


def test_a_filtered_entry_is_released_at_once_and_a_trained_one_when_its_batch_is_not_kept(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, keep_batches=1)
    released = run.released()
    with run.worker("w") as worker, run.trainer() as trainer:
        filtered, trained = worker.reserve_up_to(2, 0)
        filtered.occupy(payload="file:///filtered")
        run.discard(filtered.id, "boring")
        assert next(released) == Released(id=filtered.id, payloads=("file:///filtered",), reason="boring")

        trained.occupy(payload="file:///trained")
        train(trainer)
        fill(run, 1, version=1)
        train(trainer)
        assert next(released) == Released(id=trained.id, payloads=("file:///trained",))


def test_a_reservation_that_was_given_up_is_released_without_a_payload(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        (slot,) = worker.reserve_up_to(1, 0)
        slot.discard("broken")
    assert next(run.released()) == Released(id=slot.id, reason="broken")


def test_a_group_is_released_with_what_its_members_left(ledger: Ledger) -> None:
    run = ledger.run(group_size=2)
    with run.worker("w") as worker:
        (group,) = worker.reserve_up_to(1, 0)
        members = [MemberResult(0, 1.0, payload="file:///0"), MemberResult(1, 0.0)]
        group.occupy(payload="file:///group", members=members)
    run.discard(group.id, "boring")
    assert next(run.released()).payloads == ("file:///group", "file:///0")


def test_what_a_slow_worker_may_still_hand_in_is_not_released_with_its_discard(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, keep_batches=1, group_size=2, adopt_groups=False, lease_ms=LEASE_MS)
    log = Log(run)
    with run.worker("slow") as slow, run.worker("other") as other, run.trainer() as trainer:
        (group,) = slow.reserve_up_to(1, 0)
        group.member(0).complete(payload="file:///0")
        lose(ledger, run, slow, group)
        assert log.released() == []

        assert group.member(1).complete(payload="file:///1").late
        train(trainer)
        assert log.released() == []

        (next_group,) = other.reserve_up_to(1, 1)
        next_group.occupy(members=[MemberResult(0, 1.0), MemberResult(1, 0.0)])
        train(trainer)
        assert log.wait_for(group.id) == [Released(id=group.id, payloads=("file:///0", "file:///1"))]


def test_what_did_not_come_back_is_released_with_the_last_batch_that_it_might_be_in(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, max_staleness=1, keep_batches=1, lease_ms=LEASE_MS)
    log = Log(run)
    trained = []
    with run.worker("dead") as dead, run.trainer() as trainer:
        (lost,) = dead.reserve_up_to(1, 0)
        lose(ledger, run, dead, lost)
        for version in range(2):
            trained += fill(run, 1, version=version)
            train(trainer)
        log.wait_for(trained[0])
        fill(run, 1, version=2)
        train(trainer)
        last = log.wait_for(trained[0], trained[1], lost.id)[-1]
        assert last == Released(id=lost.id, reason="lease_expired")


def test_what_a_rewind_may_bring_back_is_not_released(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, max_staleness=1, keep_batches=8, lease_ms=LEASE_MS)
    log = Log(run)
    with run.worker("slow") as slow:
        with run.trainer() as trainer:
            fill(run, 1, version=0)
            train(trainer)
            (lost,) = slow.reserve_up_to(1, 1)
            lose(ledger, run, slow, lost)
            for version in (1, 2):
                fill(run, 1, version=version)
                train(trainer)
        assert log.released() == []
        # What version 2 generated is gone, and the place in batch 2 is legal for version 1.
        with run.trainer(resume_from=1, mode="rewind"):
            assert lost.occupy(payload="file:///late").late
    assert lost.id not in [each.id for each in log.released()]


def test_the_end_of_a_run_releases_what_could_have_come_back(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    with run.worker("dead") as dead:
        (lost,) = dead.reserve_up_to(1, 0)
        lose(ledger, run, dead, lost)
    run.drain()
    assert list(run.released(until_finished=True)) == [Released(id=lost.id, reason="lease_expired")]


def test_it_is_the_same_for_asyncio(ledger: Ledger) -> None:
    async def job() -> None:
        run = await ledger.run_async()
        async with run.worker("w") as worker:
            (slot,) = await worker.reserve_up_to(1, 0)
            await slot.discard("broken")
        await run.drain()
        released = [each async for each in run.released(until_finished=True)]
        assert released == [Released(id=slot.id, reason="broken")]

    asyncio.run(job())


def test_it_begins_at_the_oldest_event_that_is_kept(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        for reason in ("trimmed", "kept"):
            (slot,) = worker.reserve_up_to(1, 0)
            slot.discard(reason)
    follow, kept = run.follow, next(event.seq for event in run.events() if event.reason == "kept")

    def trimmed(*, after: int, **options: Any) -> Iterator[berth.Event]:
        if after < kept - 1:
            raise berth.EventsPruned("GET events", 410, {"code": "events_pruned", "first_seq": kept})
        yield from follow(after=after, **options)

    monkeypatch.setattr(run, "follow", trimmed)
    assert next(run.released()).reason == "kept"
    with pytest.raises(berth.EventsPruned):
        next(run.released(after=0))


@pytest.mark.parametrize(("died_at", "opening"), [(0, {"resume_from": 1}), (None, {"resume_from": 4, "force": True})])
def test_what_a_slow_worker_may_still_hand_in_is_kept_also_when_resuming_raised_the_version(
    ledger: Ledger, died_at: int | None, opening: dict[str, Any]
) -> None:
    run = ledger.run(batch_size=1, max_staleness=1, keep_batches=1, group_size=2, adopt_groups=False, lease_ms=LEASE_MS)
    log = Log(run)

    def fill_group(version: int) -> str:
        with run.worker("other") as other:
            (group,) = other.reserve_up_to(1, version, wait_ms=5_000)
            group.occupy(members=[MemberResult(0, 1.0), MemberResult(1, 0.0)])
        return group.id

    trained = []
    with run.trainer() as trainer:
        if died_at is not None:
            # It saved what it trained, and did not publish it.
            trained.append(fill_group(died_at))
            assert trainer.next_batch(wait_ms=5_000).batch is not None
    with run.trainer(**opening) as trainer, run.worker("slow") as slow:
        version = trainer.policy_version
        (group,) = slow.reserve_up_to(1, version)
        group.member(0).complete(payload="file:///0")
        lose(ledger, run, slow, group)
        # One batch before the last that it may be in: that one is let go of.
        trained.append(fill_group(version))
        train(trainer)
        trainer.checkpoint(version + 1)
        released = log.wait_for(*trained)
        assert group.id not in [each.id for each in released]
        assert group.member(1).complete(payload="file:///1").late
