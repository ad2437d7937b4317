"""Trainers: batches, versions, checkpoints, replay and rewind."""

from __future__ import annotations

import pytest
from conftest import Ledger
from servers import wait_until
from support import fill, thread, train

import berth


def test_a_trainer_takes_batches_and_publishes(ledger: Ledger) -> None:
    run = ledger.run()
    ids = fill(run, 4)
    seen = []
    with run.trainer("t0", resume_from=0) as trainer:
        for batch in trainer:
            seen.append((batch.version, [entry.id for entry in batch], [entry.staleness for entry in batch]))
            trainer.publish(weights=f"file:///{batch.version + 1}")
            if len(seen) == 2:
                break
        assert (trainer.trainer_version, trainer.policy_version, trainer.epoch) == (2, 2, 1)
    assert seen == [(0, ids[:2], [0, 0]), (1, ids[2:], [1, 1])]
    assert run.weights().reference == "file:///2"
    assert [(each.version, each.entries) for each in run.batches()] == [(0, 2), (1, 2)]


def test_the_next_batch_is_not_asked_for_before_the_last_is_published(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 4)
    with run.trainer() as trainer, pytest.raises(berth.NotPublished):
        for _ in trainer:
            pass


def test_a_trainer_waits_for_its_batch(ledger: Ledger) -> None:
    run = ledger.run()
    with run.trainer() as trainer:
        answer = trainer.next_batch()
        assert (answer.batch, answer.occupied, answer.needed) == (None, 0, 2)
        with thread(lambda: fill(run, 2)):
            assert len(next(iter(trainer))) == 2


def test_a_trainer_that_died_before_it_published_gets_the_batch_again(ledger: Ledger) -> None:
    run = ledger.run()
    ids = fill(run, 2)
    with run.trainer() as trainer:
        next(iter(trainer))
    with run.trainer(resume_from=0) as trainer:
        batch = next(iter(trainer))
    assert batch.redelivered and not batch.replayed and [entry.id for entry in batch] == ids


def test_a_trainer_that_died_between_checkpoint_and_publish_goes_on(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    with run.trainer() as trainer:
        next(iter(trainer))
    with run.trainer(resume_from=1) as trainer:
        assert (trainer.trainer_version, trainer.policy_version) == (1, 1)


def test_replay_gives_the_batches_again_as_they_were(ledger: Ledger) -> None:
    run = ledger.run()
    trained = train(run, 3)
    with run.trainer(resume_from=1) as trainer:
        again = []
        for batch in trainer:
            assert batch.replayed
            again.append([entry.id for entry in batch])
            trainer.publish()
            if trainer.trainer_version == trainer.policy_version:
                break
        assert (trainer.trainer_version, trainer.policy_version) == (3, 3)
    assert again == [[entry.id for entry in batch] for batch in trained[1:]]


def test_rewind_abandons_the_weights_after_the_checkpoint(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 2)
    with run.worker("w") as worker:
        assert len(worker.reserve_up_to(1, 2)) == 1
        with run.trainer(resume_from=1, mode="rewind") as trainer:
            assert (trainer.policy_version, trainer.lineage) == (1, 1)
            # Weights 2 exist again, and are others than those that the worker holds.
            fill(run, 2, version=1)
            next(iter(trainer))
            trainer.publish("file:///other-2")
            with pytest.raises(berth.VersionNotPublished):
                worker.reserve_up_to(1, 2)
            newest = worker.weights()
            assert (newest.version, newest.lineage, newest.reference) == (2, 1, "file:///other-2")
            assert len(worker.reserve_up_to(1, newest)) == 1


def test_what_abandoned_weights_generated_is_discarded_as_rewound(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 2)
    with run.worker("w") as worker:
        slot = next(worker.reserve(2))
        with run.trainer(resume_from=1, mode="rewind"):
            placed = slot.occupy(reward=1.0)
    assert (placed.kept, placed.reason) == (False, "rewound")


def test_a_rollout_process_follows_a_rewind_by_itself(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 2)
    loaded: list[tuple[int, int]] = []
    with run.worker("w") as worker:
        reserving = worker.reserve(refresh=lambda weights: loaded.append((weights.version, weights.lineage)))
        abandoned = next(reserving)
        assert abandoned.version == 2
        with run.trainer(resume_from=1, mode="rewind") as trainer:
            wait_until(lambda: abandoned.cancelled)
            assert abandoned.cancel_reason == "rewound"
            for _ in range(2):
                slot = next(reserving)
                assert slot.version == 1 and slot.occupy(reward=1.0).kept
            assert len(next(iter(trainer))) == 2
            trainer.publish("file:///other-2")
            # The number is that of the abandoned weights, the lineage is not.
            wait_until(lambda: next(reserving).occupy(reward=1.0).kept and loaded[-1] == (2, 1))
    assert loaded == [(2, 0), (1, 1), (2, 1)]


def test_a_zombie_trainer_is_fenced(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    with run.trainer() as old, run.trainer(resume_from=0):
        with pytest.raises(berth.Fenced):
            next(iter(old))
        with pytest.raises(berth.Fenced):
            old.publish()


def test_the_same_session_token_opens_no_second_session(ledger: Ledger) -> None:
    run = ledger.run()
    with run.trainer(session="start-1") as one, run.trainer(session="start-1") as same:
        assert one.epoch == same.epoch


def test_a_trainer_that_is_entered_again_opens_another_session(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    trainer = run.trainer(resume_from=0)
    with trainer:
        next(iter(trainer))
        trainer.publish()
        epoch = trainer.epoch
    with trainer:
        assert (trainer.epoch, trainer.trainer_version, trainer.policy_version) == (epoch + 1, 0, 1)
        assert next(iter(trainer)).replayed


def test_ranks_share_the_epoch_and_mean_the_same_batch(ledger: Ledger) -> None:
    run = ledger.run()
    ids = fill(run, 4)
    with run.trainer() as rank0, run.join_trainer(epoch=rank0.epoch, trainer_version=0) as rank1:
        assert [entry.id for entry in next(iter(rank0))] == [entry.id for entry in next(iter(rank1))] == ids[:2]
        rank0.publish()
        with pytest.raises(berth.OtherBatch):
            rank1.next_batch()


def test_a_slow_rank_skips_no_batch(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 4)
    with run.trainer() as rank0, run.join_trainer(epoch=rank0.epoch, trainer_version=0) as rank1:
        for _ in range(2):
            next(iter(rank0))
            rank0.publish()
        next_versions = []
        for _ in range(2):
            rank1.publish()
            next_versions.append(rank1.trainer_version)
        assert next_versions == [1, 2]
        rank1.publish(version=1)
        assert rank1.trainer_version == 2


def test_a_checkpoint_lets_go_of_older_batches(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 3)
    with run.trainer(resume_from=3) as trainer:
        assert trainer.checkpoint(2) == 2
        with pytest.raises(berth.VersionNotPublished):
            trainer.checkpoint(4)
    with pytest.raises(berth.BatchPruned):
        run.batch(1)
    with pytest.raises(berth.BatchPruned):
        run.trainer(resume_from=1).__enter__()
    assert len(run.batch(2)) == 2
    with pytest.raises(berth.UnknownBatch):
        run.batch(7)


def test_versions_are_published_in_order(ledger: Ledger) -> None:
    run = ledger.run()
    with run.trainer() as trainer:
        with pytest.raises(berth.PublishOutOfOrder) as refusal:
            trainer.publish(version=5)
        assert refusal.value.expected == 1
        assert trainer.publish("file:///0", version=0).policy_version == 0
    assert run.weights().reference == "file:///0"


def test_a_checkpoint_that_the_ledger_has_not_reached_is_refused_unless_forced(ledger: Ledger) -> None:
    run = ledger.run()
    with pytest.raises(berth.LedgerBehind):
        run.trainer(resume_from=5).__enter__()
    with run.trainer(resume_from=5, force=True) as trainer:
        assert (trainer.trainer_version, trainer.lineage) == (5, 1)


def test_a_rewind_takes_back_that_pieces_were_trained(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 1)
    ids = fill(run, 1, version=1)
    with run.trainer(resume_from=1) as trainer:
        piece = trainer.next_piece(0).batch
        assert piece is not None and [entry.id for entry in piece] == ids
        assert run.status().totals.trained == 3
    with run.trainer(resume_from=0, mode="rewind"):
        status = run.status()
    assert (status.totals.trained, status.totals.discarded, status.occupied) == (0, {"rewound": 1}, 2)


def test_pieces_that_a_forced_resume_finds_stay_trained_and_are_in_no_batch(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=3)
    ids = fill(run, 1)
    with run.trainer() as trainer:
        assert trainer.next_piece(0).batch is not None
    waiting = fill(run, 2)
    with run.trainer(resume_from=2, force=True) as trainer:
        status = run.status()
        assert (status.totals.trained, status.occupied, status.kept_batches) == (1, 2, 0)
        batch = trainer.next_batch().batch
        assert batch is not None and [entry.id for entry in batch] == waiting
    with pytest.raises(berth.UnknownTrajectory):
        run.trajectory(ids[0])


def test_numbers_that_a_forced_resume_jumped_over_are_no_batches(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 1)
    with run.trainer(resume_from=3, force=True):
        assert [each.version for each in run.batches()] == [0]
        assert len(run.batch(0)) == 2
        with pytest.raises(berth.UnknownBatch):
            run.batch(2)
        with pytest.raises(berth.BatchPruned):
            run.trainer(resume_from=2).__enter__()


def test_fewer_batches_are_kept_as_soon_as_the_run_is_changed_so(ledger: Ledger) -> None:
    run = ledger.run()
    train(run, 3)
    assert run.configure(keep_batches=1).oldest_kept == 2
    with pytest.raises(berth.BatchPruned):
        run.batch(1)


def test_a_replay_gives_a_version_the_reference_that_it_lacks(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    with run.trainer() as trainer:
        next(iter(trainer))
        trainer.publish()
    with run.trainer(resume_from=0) as trainer:
        batch = next(iter(trainer))
        assert batch.replayed and not batch.redelivered
        trainer.publish("file:///1")
    assert run.weights().reference == "file:///1"


def test_weights_are_waited_for(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    assert run.weights(after=0, wait_ms=1).version == 0

    def publish() -> None:
        with run.trainer() as trainer:
            next(iter(trainer))
            trainer.publish("file:///1")

    with thread(publish):
        weights = run.weights(after=0, wait_ms=30_000)
    assert (weights.version, weights.reference) == (1, "file:///1")


def test_the_run_is_created_confirmed_changed_and_removed(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4)
    client = ledger.connect()
    assert client.run(run.name, batch_size=4, max_staleness=1).status().config.batch_size == 4
    with pytest.raises(berth.RunExists) as refusal:
        client.run(run.name, batch_size=8, max_staleness=1)
    assert "batch_size" in refusal.value.fields
    with pytest.raises(berth.InvalidRequest):
        client.run("other", batch_size=4, max_staleness=1, max_stalness=2)
    assert run.configure(lease_ms=5_000, max_concurrency=9).config.max_concurrency == 9
    assert run.configure(max_concurrency=None).config.max_concurrency is None
    assert run.name in [each.run for each in client.runs()]
    run.delete()
    with pytest.raises(berth.UnknownRun):
        run.status()


def test_the_event_log_is_read_and_followed(ledger: Ledger) -> None:
    run = ledger.run()
    ids = fill(run, 2)
    events = list(run.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.type for event in events if event.type in ("reserve", "occupy")] == ["reserve", "occupy", "occupy"]
    assert all(ids[0] in event.ids for event in run.events(trajectory=ids[0]))
    followed = run.follow(after=events[-1].seq)
    with thread(lambda: fill(run, 1, worker="another")):
        assert next(followed).seq == events[-1].seq + 1


def test_the_event_log_is_followed_until_the_run_is_finished(ledger: Ledger) -> None:
    run = ledger.run(batch_size=2)
    seen: list[str] = []
    with thread(lambda: seen.extend(event.type for event in run.follow(until_finished=True))):
        wait_until(lambda: "run_created" in seen)
        fill(run, 1)
        run.drain()
        with run.trainer() as trainer:
            assert next(iter(trainer)).final
            trainer.publish("file:///1")
    assert seen.count("occupy") == 1 and seen[-1] == "publish"
    assert [event.type for event in run.follow(until_finished=True)] == seen, "it is finished already"
