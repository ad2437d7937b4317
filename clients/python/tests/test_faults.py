"""Answers lost, servers killed, Redis killed, leases lost: nothing is lost and nothing is done twice."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest
from proxy import Proxy
from servers import Redis, Server, binary, wait_until
from support import fill, thread

import berth

NAMES = itertools.count()
PATIENT = berth.Retry(patience_s=120.0, longest_pause_s=0.2)


class Stage:
    """A server on a Redis of its own, behind a proxy."""

    def __init__(self) -> None:
        self.redis = Redis()
        self.server = Server(self.redis)
        self.proxy = Proxy(self.server.port)

    def run(self, *, through_proxy: bool = True, name: str | None = None, **config: int) -> berth.Run:
        url = self.proxy.url if through_proxy else self.server.url
        config = {"batch_size": 2, "max_staleness": 1, **config}
        return berth.connect(url, retry=PATIENT).run(name or f"faults-{next(NAMES)}", **config)

    def close(self) -> None:
        self.proxy.close()
        self.server.kill()
        self.redis.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    if binary() is None:
        pytest.skip("NOT RUN: there is no server: build it, or name it in BERTH_BIN")
    stage = Stage()
    yield stage
    stage.close()


def test_a_call_whose_answer_is_lost_is_done_once(stage: Stage) -> None:
    run = stage.run()
    watch = stage.run(through_proxy=False, name=run.name)
    with run.worker("w") as worker, run.trainer() as trainer:

        def once(path: str, step: str, call: Callable[[], object]) -> None:
            """The call is one step of the run, although two answers to it are lost."""
            before, lost = watch.status().seq, stage.proxy.dropped
            stage.proxy.drop_answers_to(path, times=2)
            call()
            assert stage.proxy.dropped == lost + 2
            assert [event.type for event in watch.events(after=before)].count(step) == 1

        slots: list[berth.Slot] = []
        once("/reservations", "reserve", lambda: slots.extend(worker.reserve_up_to(3, 0)))
        assert len(slots) == 3 and watch.status().reserved == 3
        once("/occupy", "occupy", lambda: slots[0].occupy(reward=1.0))
        once("/occupy", "occupy", lambda: worker.occupy_many([{"id": slots[1].id, "reward": 1.0}]))
        once("/discard", "discard", lambda: slots[2].discard("failed"))
        once("/batches/next", "take", trainer.next_batch)
        once("/versions", "publish", lambda: trainer.publish("file:///1"))
        once("/checkpoints", "checkpoint", trainer.checkpoint)
        once("/trainer", "trainer_opened", lambda: run.trainer(resume_from=1).__enter__())
    status = watch.status()
    assert (status.totals.reserved, status.totals.occupied, status.totals.trained) == (3, 2, 2)


class Job:
    """Two rollout workers and a trainer, until so many batches are trained."""

    def __init__(self, run: berth.Run, batches: int) -> None:
        self.run = run
        self.batches = batches
        self.trained: list[list[str]] = []
        self.progress = threading.Condition()
        self._over = threading.Event()

    def rollout(self, name: str) -> None:
        with self.run.worker(name) as worker:
            for slot in worker.reserve(refresh=lambda weights: None):
                slot.occupy(reward=1.0, tokens=8, payload=f"file:///dev/shm/{slot.id}")
                if self._over.is_set():
                    return

    def train(self) -> None:
        try:
            with self.run.trainer(resume_from=0) as trainer:
                for batch in trainer:
                    with self.progress:
                        self.trained.append([entry.id for entry in batch])
                        self.progress.notify_all()
                    trainer.publish(f"file:///{batch.version + 1}")
                    if batch.version + 1 == self.batches:
                        return
        finally:
            self._over.set()

    def at(self, batches: int) -> None:
        """Waits until so many batches were given to the trainer."""
        with self.progress:
            assert self.progress.wait_for(lambda: len(self.trained) >= batches, timeout=60)

    def go_on(self) -> None:
        """Waits until a batch is trained that was not when this was called."""
        self.at(len(self.trained) + 1)


def play(run: berth.Run, batches: int, faults: Callable[[Job], None]) -> Job:
    """Runs the job, with faults beside it."""
    job = Job(run, batches)
    with thread(lambda: job.rollout("w0")), thread(lambda: job.rollout("w1")), thread(job.train):
        faults(job)
    return job


def check(job: Job, watch: berth.Run) -> None:
    """Nothing is lost or repeated: what the trainer was given is what the ledger says, every entry once."""
    assert len(job.trained) == job.batches
    ids = [id for batch in job.trained for id in batch]
    assert len(set(ids)) == len(ids) == job.batches * 2
    kept = [[entry.id for entry in watch.batch(version)] for version in range(job.batches)]
    assert kept == job.trained
    status = watch.status()
    assert status.totals.trained == len(ids)
    # Every acknowledged occupy is trained or waits for it.
    assert status.totals.occupied == status.totals.trained + status.occupied
    for version in range(job.batches):
        assert all(0 <= entry.staleness <= 1 for entry in watch.batch(version) if entry.staleness is not None)


def test_a_job_goes_on_while_every_fifth_answer_is_lost(stage: Stage) -> None:
    run = stage.run()
    stage.proxy.drop_every(5)
    job = play(run, 12, lambda job: job.at(12))
    stage.proxy.drop_every(0)
    assert stage.proxy.dropped > 5
    check(job, stage.run(through_proxy=False, name=run.name))


def test_a_job_goes_on_while_the_server_is_killed(stage: Stage) -> None:
    def faults(job: Job) -> None:
        for _ in range(3):
            job.go_on()
            stage.server.kill()
            stage.server.start()
        job.go_on()

    run = stage.run()
    job = play(run, 40, faults)
    check(job, stage.run(through_proxy=False, name=run.name))


def test_a_job_goes_on_while_redis_is_killed(stage: Stage) -> None:
    def faults(job: Job) -> None:
        for _ in range(2):
            job.go_on()
            stage.redis.kill()
            stage.redis.start()
        job.go_on()

    run = stage.run()
    job = play(run, 40, faults)
    check(job, stage.run(through_proxy=False, name=run.name))


def test_a_worker_that_lost_its_lease_may_still_hand_in_its_work(stage: Stage) -> None:
    run = stage.run(lease_ms=1000)
    watch = stage.run(through_proxy=False, name=run.name, lease_ms=1000)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        stage.proxy.cut()
        wait_until(lambda: watch.trajectory(slot.id).reason == "lease_expired")
        stage.proxy.heal()
        wait_until(lambda: slot.cancelled)
        assert slot.cancel_reason == "lease_expired"
        placed = slot.occupy(reward=1.0)
        assert placed.kept and placed.late
    assert watch.status().totals.late == 1


def test_a_worker_that_lost_its_lease_does_not_fill_a_place_twice(stage: Stage) -> None:
    run = stage.run(batch_size=1, max_staleness=0, lease_ms=1000)
    watch = stage.run(through_proxy=False, name=run.name, batch_size=1, max_staleness=0, lease_ms=1000)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        stage.proxy.cut()
        wait_until(lambda: watch.trajectory(slot.id).reason == "lease_expired")
        fill(watch, 1)
        stage.proxy.heal()
        placed = slot.occupy(reward=1.0)
        assert (placed.kept, placed.reason) == (False, "lease_expired")
    assert watch.status().occupied == 1


def test_a_trainer_that_is_killed_trains_the_same_batches_again(stage: Stage) -> None:
    run = stage.run()
    fill(run, 2)
    with run.trainer() as trainer:
        first = next(iter(trainer))
        trainer.publish("file:///1")
        fill(run, 2, version=1)
        second = next(iter(trainer))
        # Killed here: batch 1 is trained and not published; the checkpoint is of version 0.
    stage.server.kill()
    stage.server.start()
    with run.trainer(resume_from=0) as trainer:
        again = []
        for batch in trainer:
            again.append([entry.id for entry in batch])
            trainer.publish(f"file:///{batch.version + 1}")
            if len(again) == 2:
                break
    assert again == [[entry.id for entry in first], [entry.id for entry in second]]


def test_a_client_gives_up_when_its_patience_is_over(stage: Stage) -> None:
    run = stage.run()
    impatient = berth.connect(stage.proxy.url, retry=berth.Retry(patience_s=0.05, first_pause_s=0.01)).run(run.name)
    stage.proxy.cut()
    with pytest.raises(berth.Unreachable):
        impatient.status()


def test_a_database_that_lost_writes_is_noticed_and_workers_wait_for_the_trainer(stage: Stage) -> None:
    run = stage.run(batch_size=1)
    with run.worker("w") as worker, run.trainer() as trainer:
        slots = worker.reserve_up_to(2, 0)
        stage.redis.kill()
        stage.redis.keep()
        stage.redis.start()
        assert slots[0].occupy(reward=1.0).kept
        next(iter(trainer))
        trainer.publish("file:///1")
        # The database comes back as it was before the batch; the trainer has a checkpoint of version 1.
        stage.redis.kill()
        stage.redis.go_back()
        stage.redis.start()
        with pytest.raises(berth.LedgerBehind):
            trainer.publish("file:///2", version=2)
        placed: list[berth.Occupied] = []
        with thread(lambda: placed.append(slots[1].occupy(reward=1.0))):
            with run.trainer(resume_from=1, force=True) as resumed:
                assert (resumed.policy_version, resumed.lineage) == (1, 1)
        assert placed[0].kept
        batch = None
        with run.trainer(resume_from=1) as resumed:
            batch = next(iter(resumed))
        assert [entry.id for entry in batch] == [slots[1].id]


def test_what_may_have_been_handed_in_is_not_thrown_away(stage: Stage) -> None:
    run = stage.run()
    watch = stage.run(through_proxy=False, name=run.name)
    with run.worker("w") as worker:
        worker._sender = worker._sender.with_patience(0.0)
        with pytest.raises(berth.Unreachable):
            with next(worker.reserve(0)) as slot:
                stage.proxy.drop_answers_to("/occupy", times=99)
                slot.occupy(reward=1.0)
    assert watch.trajectory(slot.id).state == "occupied"
