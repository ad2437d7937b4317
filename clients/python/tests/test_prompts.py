"""The prompt queue, drained runs, and streamed batches."""

from __future__ import annotations

import pytest
from conftest import LEASE_MS, Ledger
from support import fill, thread

import berth


def queue_run(ledger: Ledger, **config: object) -> berth.Run:
    return ledger.run(prompt_queue=True, **config)


def prompts(count: int) -> list[berth.Prompt]:
    return [berth.Prompt(id=f"q-{n}", data={"n": n}, expected_tokens=100 + n) for n in range(count)]


def test_prompts_are_fed_once_however_often_they_are_sent(ledger: Ledger) -> None:
    run = queue_run(ledger)
    assert run.feed(prompts(3)) == 3
    assert run.feed(prompts(5)) == 5
    assert run.feed(prompts(2)) == 5
    with pytest.raises(berth.FeedGap):
        run.feed(prompts(1), offset=9)
    assert run.append(["another"]) == 6
    page = run.prompts(state="queued")
    assert [prompt.id for prompt in page.prompts] == ["q-0", "q-1", "q-2", "q-3", "q-4", "another"]
    assert page.counts["queued"] == 6


def test_the_ledger_hands_out_the_prompts_with_their_data(ledger: Ledger) -> None:
    run = queue_run(ledger)
    run.feed(prompts(3))
    with run.worker("w") as worker:
        slots = worker.reserve_up_to(4, 0)
        assert [(slot.prompt, slot.data) for slot in slots] == [(f"q-{n}", {"n": n}) for n in range(3)]
        slots[0].occupy(reward=1.0)
        assert run.prompts().counts["in_flight"] == 2
    counts = run.prompts().counts
    assert (counts["occupied"], counts["queued"]) == (1, 2)


def test_the_prompt_of_a_failed_generation_is_tried_again(ledger: Ledger) -> None:
    run = queue_run(ledger, max_attempts=2)
    run.feed(prompts(1))
    with run.worker("w") as worker:
        for attempt in (1, 2):
            with pytest.raises(RuntimeError):
                with next(worker.reserve(0)) as slot:
                    assert slot.attempt == attempt
                    raise RuntimeError("engine died")
    page = run.prompts(state="failed")
    assert [(prompt.id, prompt.reason) for prompt in page.prompts] == [("q-0", "runtime_error")]


def test_a_prompt_that_was_handed_out_again_stays_out_of_reach_though_it_is_queued_once_more(ledger: Ledger) -> None:
    run = queue_run(ledger, lease_ms=LEASE_MS)
    run.feed(prompts(1))
    with run.worker("slow") as slow, run.worker("w") as worker:
        first = next(slow.reserve(0))
        assert slow._heartbeat is not None
        slow._heartbeat.stop()
        ledger.expire(run, [first.id])
        second = next(worker.reserve(0))
        assert second.prompt == "q-0"
        second.discard("failed", requeue=True)
        assert run.prompts().counts["queued"] == 1
        assert first.occupy(reward=1.0).reason == "superseded"
        assert run.prompts().counts["queued"] == 1


def test_a_prompt_that_came_back_to_the_front_has_its_old_place(ledger: Ledger) -> None:
    run = queue_run(ledger, group_size=2, batch_size=1)
    run.feed(prompts(3))
    with run.worker("w") as worker:
        postponed = next(worker.reserve(0))
        postponed.member(0).fail()
        assert [prompt.id for prompt in run.prompts(state="queued").prompts] == ["q-1", "q-2", "q-0"]
        for slot in worker.reserve_up_to(2, 0):
            slot.discard("failed")
        next(worker.reserve(0)).discard("failed", requeue=True)
        run.feed(prompts(4))
        assert [prompt.id for prompt in run.prompts(state="queued").prompts] == ["q-0", "q-3"]


def test_without_a_queue_there_is_nothing_to_feed(ledger: Ledger) -> None:
    with pytest.raises(berth.NoPromptQueue):
        ledger.run().feed(prompts(1))


def test_without_a_queue_there_is_nothing_to_put_a_prompt_back_into(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        with pytest.raises(berth.NoPromptQueue):
            run.discard(slot.id, "failed", requeue=True)
        assert run.trajectory(slot.id).state == "reserved"


def test_the_ten_lines_end_by_themselves_when_the_run_is_drained(ledger: Ledger) -> None:
    run = queue_run(ledger)
    run.feed(prompts(5))
    assert run.drain().draining
    with pytest.raises(berth.Draining):
        run.feed(prompts(6))
    sizes: list[tuple[int, bool]] = []

    def train() -> None:
        with run.trainer(resume_from=0) as trainer:
            for batch in trainer:
                sizes.append((len(batch), batch.final))
                trainer.publish()

    with thread(train), run.worker("w") as worker:
        seen = []
        for slot in worker.reserve(refresh=lambda weights: None):
            seen.append(slot.prompt)
            slot.occupy(reward=1.0)
        assert worker.finished
    assert seen == [f"q-{n}" for n in range(5)]
    assert sizes == [(2, False), (2, False), (1, True)]
    assert run.prompts().counts["trained"] == 5
    assert run.status().finished


def test_a_drain_is_taken_back(ledger: Ledger) -> None:
    run = ledger.run()
    run.drain()
    with run.worker("w") as worker:
        assert worker.reserve_up_to(1, 0) == []
        assert not run.undrain().draining
        assert len(worker.reserve_up_to(1, 0)) == 1


def test_a_batch_is_streamed_in_pieces(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4)
    ids = fill(run, 2)
    with run.trainer() as trainer:
        pieces = trainer.stream(min_entries=2, max_entries=2)
        first = next(pieces)
        assert ([entry.id for entry in first], first.offset, first.complete) == (ids, 0, False)
        with pytest.raises(berth.TrajectoryTaken):
            run.discard(ids[0])
        with thread(lambda: fill(run, 2, worker="another")):
            second = next(pieces)
        assert (len(second), second.offset, second.complete) == (2, 2, True)
        with pytest.raises(berth.NotPublished):
            next(pieces)
        assert trainer.publish().policy_version == 1


def test_a_trainer_that_comes_back_is_given_the_pieces_from_the_first(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4)
    ids = fill(run, 3)
    with run.trainer() as trainer:
        assert len(next(trainer.stream())) == 3
    with run.trainer(resume_from=0) as trainer:
        assert [entry.id for entry in next(trainer.stream(max_entries=2))] == ids[:2]
        answer = trainer.next_piece(2, max_entries=2)
        assert answer.batch is not None and [entry.id for entry in answer.batch] == ids[2:]
        # A repeated call skips nothing.
        again = trainer.next_piece(2, max_entries=2)
        assert again.batch is not None and [entry.id for entry in again.batch] == ids[2:]


def test_why_the_trainer_waits_is_explained(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        slots = worker.reserve_up_to(4, 0)
        slots.pop().occupy()
        explained = run.explain()
        assert (explained.buffer, explained.occupied, explained.needed) == (0, 1, 2)
        assert explained.summary and len(explained.waiting_on) == 1


def test_what_was_trained_and_discarded_is_counted(ledger: Ledger) -> None:
    run = ledger.run()
    fill(run, 2)
    with run.trainer() as trainer:
        next(iter(trainer))
    distribution = run.distribution()
    assert distribution.trained.entries == 2
