"""What only the fake has: a clock to be moved on, and snapshots."""

from __future__ import annotations

import doctest
from dataclasses import replace

import pytest
from support import fill, thread

import berth
import berth.fake
from berth.fake import FakeServer

PATIENT = berth.Retry(longest_pause_s=0.05)


def test_its_examples_run() -> None:
    assert doctest.testmod(berth.fake).failed == 0


def test_time_passes_when_it_is_told_to(fake: FakeServer) -> None:
    run = fake.connect().run("r", batch_size=1, max_staleness=1, reservation_timeout_ms=60_000)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        fake.advance(59_000)
        assert run.trajectory(slot.id).state == "reserved"
        fake.advance(2_000)
        assert run.trajectory(slot.id).reason == "timed_out"
        assert slot.occupy(reward=1.0).late


def test_a_stuck_buffer_is_freed_while_the_trainer_waits(fake: FakeServer) -> None:
    run = fake.connect().run("r", batch_size=2, max_staleness=0, stuck_timeout_ms=30_000, lease_ms=3_600_000)
    with run.worker("w") as worker, run.trainer() as trainer:
        done, hung = worker.reserve_up_to(2, 0)
        done.occupy()
        assert trainer.next_batch().buffer_state == "stuck"
        fake.advance(29_000)
        assert run.trajectory(hung.id).state == "reserved"
        fake.advance(2_000)
        assert run.trajectory(hung.id).reason == "stuck_timeout"


def test_a_trainer_that_has_not_called_for_a_minute_does_not_wait(fake: FakeServer) -> None:
    run = fake.connect().run("r", batch_size=2, max_staleness=0, stuck_timeout_ms=90_000, lease_ms=3_600_000)
    with run.worker("w") as worker, run.trainer() as trainer:
        done, hung = worker.reserve_up_to(2, 0)
        done.occupy()
        trainer.next_batch()
        fake.advance(91_000)
        assert run.trajectory(hung.id).state == "reserved"
        trainer.next_batch()
        fake.advance(50_000)
        trainer.next_batch()
        fake.advance(50_000)
        assert run.trajectory(hung.id).reason == "stuck_timeout"


def test_a_snapshot_is_a_database_that_lost_its_newest_writes(fake: FakeServer) -> None:
    run = fake.connect(retry=PATIENT).run("r", batch_size=1, max_staleness=1)
    with run.worker("w") as worker, run.trainer() as trainer:
        slots = worker.reserve_up_to(2, 0)
        snapshot = fake.snapshot()
        assert slots[0].occupy(reward=1.0).kept
        next(iter(trainer))
        trainer.publish("file:///1")
        fake.restore(snapshot)
        with pytest.raises(berth.LedgerBehind):
            trainer.publish("file:///2", version=2)
        placed: list[berth.Occupied] = []
        with thread(lambda: placed.append(slots[1].occupy(reward=1.0))):
            with run.trainer(resume_from=1, force=True) as resumed:
                assert (resumed.policy_version, resumed.lineage) == (1, 1)
        assert placed[0].kept


def test_a_run_of_the_same_name_goes_on_from_the_numbers_of_the_old_one(fake: FakeServer) -> None:
    client = fake.connect()
    run = client.run("r", batch_size=1, max_staleness=1)
    fill(run, 1)
    seq = run.status().seq
    run.delete()
    status = client.run("r", batch_size=1, max_staleness=1).status()
    assert status.seq > seq and status.lineage == 1


def test_an_undelivered_prompt_is_not_lost_when_the_run_is_drained_with_its_queue_kept(fake: FakeServer) -> None:
    run = fake.connect().run("r", batch_size=2, max_staleness=1, prompt_queue=True, final_batch="discard")
    run.feed(["a", "b"])
    with run.worker("w") as worker, run.trainer() as trainer:
        next(worker.reserve(0)).occupy(reward=1.0)
        assert not run.drain(queue="keep").finished
        assert trainer.next_batch().finished
    assert run.prompts().counts == dict.fromkeys(run.prompts().counts, 0) | {"queued": 1, "dropped": 1}


def test_it_knows_what_a_configuration_may_hold(fake: FakeServer) -> None:
    client = fake.connect()
    for wrong in ({"batch_size": 0}, {"max_staleness": 65}, {"lease_ms": 1}, {"slots_per_buffer": 1}, {"colour": 1}):
        with pytest.raises(berth.InvalidRequest):
            client.run("r", **{"batch_size": 2, "max_staleness": 1, **wrong})
    config = client.run("r", batch_size=2, max_staleness=1, group_size=4).status().config
    expected = berth.RunConfig(batch_size=2, max_staleness=1, slots_per_buffer=2, group_size=4, group_candidates=4)
    assert config == replace(expected, order_window=2)
