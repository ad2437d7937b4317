"""Features that meet in one run: groups, prompts, adoption, streaming, drain and timeouts."""

from __future__ import annotations

import pytest
from conftest import Ledger
from support import thread

import berth


def prompts(*names: str, **lengths: int) -> list[berth.Prompt]:
    """By name; or with the expected lengths."""
    fed = [berth.Prompt(id=name, data={"of": name}) for name in names]
    return fed + [berth.Prompt(id=name, expected_tokens=tokens) for name, tokens in lengths.items()]


def states(run: berth.Run) -> dict[str, str | None]:
    """The state of every prompt."""
    return {prompt.id: prompt.state for prompt in run.prompts().prompts}


def test_a_group_of_a_queued_prompt_is_filled_trained_and_counted_once(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, group_size=2, group_candidates=3, prompt_queue=True)
    run.feed(prompts("a", "b"))
    with run.worker("w") as worker, run.trainer() as trainer:
        slot = next(worker.reserve(0))
        assert (slot.prompt, slot.data) == ("a", {"of": "a"})
        assert [slot.member(index).complete(reward=float(index)).state for index in (0, 2)] == ["reserved", "occupied"]
        assert states(run) == {"a": "occupied", "b": "queued"}
        batch = next(iter(trainer))
        members = batch.trajectories[0].members or []
        assert [(member.index, round(member.advantage or 0.0, 3)) for member in members] == [(0, -1.0), (2, 1.0)]
        trainer.publish()
    assert run.prompts().counts["trained"] == 1


def test_the_prompt_of_a_group_that_failed_is_tried_again_behind_the_others(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, group_size=2, prompt_queue=True, max_attempts=2)
    run.feed(prompts("a", "b"))
    with run.worker("w") as worker:
        reserving = worker.reserve(0)
        assert next(reserving).member(0).fail("out of memory").reason == "group_failed"
        assert states(run) == {"a": "queued", "b": "queued"}
        assert [(slot.prompt, slot.attempt) for slot in worker.reserve_up_to(2, 0)] == [("b", 1), ("a", 2)]


def test_the_prompt_of_a_group_without_a_gradient_is_filtered(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, group_size=2, prompt_queue=True, drop_zero_variance=True)
    run.feed(prompts("a"))
    with run.worker("w") as worker:
        for member in next(worker.reserve(0)).members:
            member.complete(reward=0.0)
    assert states(run) == {"a": "filtered"}


def test_an_adopted_group_keeps_its_prompt_and_its_attempt(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, group_size=2, group_candidates=3, prompt_queue=True)
    run.feed(prompts("a", "b"))
    with run.worker("w") as dead:
        begun, untouched = dead.reserve_up_to(2, 0)
        begun.member(1).complete(reward=1.0)
        # It starts again: what had begun waits for an heir, the other prompt goes back to the front.
        with run.worker("w") as heir:
            assert states(run) == {"a": "in_flight", "b": "queued"}
            adopted, again = heir.reserve_up_to(2, 0)
            assert (adopted.id, adopted.prompt, adopted.data, adopted.attempt) == (begun.id, "a", {"of": "a"}, 1)
            assert adopted.adopted and adopted.members_done == {1}
            assert (again.prompt, again.attempt, again.adopted) == ("b", 2, False)
            assert again.id != untouched.id
            assert adopted.member(0).complete(reward=0.0).state == "occupied"
    assert (states(run)["a"], run.status().totals.adopted) == ("occupied", 1)


def test_a_late_group_of_a_prompt_that_went_on_is_superseded(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, group_size=2, prompt_queue=True, adopt_groups=False)
    run.feed(prompts("a"))
    with run.worker("w") as dead:
        slot = next(dead.reserve(0))
        with run.worker("w") as heir:
            again = next(heir.reserve(0))
            assert (again.prompt, again.attempt) == ("a", 2)
            members = [berth.MemberResult(index=index, reward=1.0, version=0) for index in (0, 1)]
            assert not heir.slot(slot.id).occupy(members=members).kept
            assert again.occupy(members=members).kept
    assert run.prompts().counts["occupied"] == 1


@pytest.mark.parametrize("final_batch", ["short", "discard"])
def test_a_drained_run_is_streamed_to_its_end(ledger: Ledger, final_batch: str) -> None:
    run = ledger.run(batch_size=2, prompt_queue=True, final_batch=final_batch)
    run.feed(prompts("a", "b", "c", "d", "e"))
    run.drain()
    pieces: list[tuple[int, int, list[str | None], bool, bool]] = []

    def train() -> None:
        with run.trainer() as trainer:
            for piece in trainer.stream(max_entries=1):
                names = [entry.prompt for entry in piece]
                pieces.append((piece.version, piece.offset, names, piece.complete, piece.final))
                if piece.complete:
                    trainer.publish()

    with thread(train), run.worker("w") as worker:
        for slot in worker.reserve(refresh=lambda weights: None):
            slot.occupy(reward=1.0)
    kept = ["a", "b", "c", "d", "e"] if final_batch == "short" else ["a", "b", "c", "d"]
    assert [name for piece in pieces for name in piece[2]] == kept
    assert run.status().finished
    counts = run.prompts().counts
    assert (counts["trained"], counts["dropped"]) == (len(kept), 5 - len(kept))
    # The last batch is short, and says that it is the last.
    assert pieces[-1][3:] == (True, final_batch == "short")


def test_what_cannot_fill_the_final_batch_is_discarded(ledger: Ledger) -> None:
    run = ledger.run(batch_size=2, prompt_queue=True, final_batch="discard")
    run.feed(prompts("a", "b", "c"))
    run.drain()
    with run.worker("w") as worker, run.trainer() as trainer:
        for _ in range(3):
            next(worker.reserve(0)).occupy(reward=1.0)
        batches = []
        for batch in trainer:
            batches.append([entry.prompt for entry in batch])
            trainer.publish()
        assert batches == [["a", "b"]]
    status = run.status()
    assert (status.finished, status.totals.discarded) == (True, {"drained": 1})
    assert states(run)["c"] == "dropped"


def test_a_reservation_that_takes_too_long_frees_its_place_and_its_prompt(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, max_staleness=0, prompt_queue=True, reservation_timeout_ms=1_000)
    run.feed(prompts("a"))
    with run.worker("w") as worker:
        slow = next(worker.reserve(0))
        ledger.expire(run, [slow.id])
        assert run.trajectory(slow.id).reason == "timed_out"
        again = worker.reserve_up_to(1, 0, wait_ms=5_000)[0]
        assert (again.prompt, again.attempt) == ("a", 2)
        assert not worker.slot(slow.id).occupy(reward=1.0).kept
        assert again.occupy(reward=1.0).kept


def test_a_stuck_buffer_is_freed_while_the_trainer_waits_for_it(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0, stuck_timeout_ms=1_000, prompt_queue=True, drop_on=["stuck_timeout"])
    run.feed(prompts("a", "b", "c"))
    with run.worker("w") as worker, run.trainer() as trainer:
        done, hung = worker.reserve_up_to(2, 0)
        done.occupy(reward=1.0)
        assert trainer.next_batch().buffer_state == "stuck"
        ledger.expire(run, [hung.id])
        assert run.trajectory(hung.id).reason == "stuck_timeout"
        # The run says that this one is not tried again.
        assert states(run)[str(hung.prompt)] == "dropped"
        instead = worker.reserve_up_to(1, 0, wait_ms=5_000)[0]
        assert instead.prompt == "c" and instead.occupy(reward=1.0).kept
        assert [entry.prompt for entry in next(iter(trainer))] == [done.prompt, "c"]


def test_the_oldest_reservation_is_given_up_where_nobody_can_be_admitted_to_what_the_trainer_waits_for(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, max_staleness=1, max_concurrency=1, stuck_timeout_ms=1_000)
    with run.worker("w") as worker, run.trainer() as trainer:
        hung = next(worker.reserve(0))
        assert (hung.deadline, trainer.next_batch().buffer_state) == (1, "pending")
        ledger.expire(run, [hung.id])
        assert run.trajectory(hung.id).reason == "stuck_timeout"
        instead = worker.reserve_up_to(1, 0, wait_ms=5_000)[0]
        assert instead.occupy(reward=1.0).kept
        assert len(next(iter(trainer))) == 1


def test_the_longest_prompts_of_each_window_are_handed_out_first(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4, prompt_queue=True, order="longest_first", order_window=3)
    run.feed(prompts(a=10, b=30, c=20, d=10, e=90))
    with run.worker("w") as worker:
        slots = worker.reserve_up_to(5, 0)
    assert [slot.prompt for slot in slots] == ["b", "c", "a", "e", "d"]


def test_prompts_are_dropped_for_the_reasons_that_the_run_names(ledger: Ledger) -> None:
    run = ledger.run(prompt_queue=True, drop_on=["worker_restarted"])
    run.feed(prompts("a", "b"))
    with run.worker("w") as dead:
        next(dead.reserve(0))
        with run.worker("w"):
            page = run.prompts(state="dropped")
    assert [(prompt.id, prompt.reason) for prompt in page.prompts] == [("a", "worker_restarted")]
    assert run.prompts().counts["queued"] == 1


def test_pieces_of_groups_are_discarded_by_nobody_and_trained_with_their_members(ledger: Ledger) -> None:
    run = ledger.run(batch_size=2, group_size=2, prompt_queue=True)
    run.feed(prompts("a", "b"))
    with run.worker("w") as worker, run.trainer() as trainer:
        for slot in worker.reserve_up_to(2, 0):
            slot.occupy(members=[berth.MemberResult(index=i, reward=float(i), tokens=3) for i in (0, 1)])
        pieces = trainer.stream(min_entries=1, max_entries=1)
        first, second = next(pieces), next(pieces)
        assert [len(entry.members or []) for piece in (first, second) for entry in piece] == [2, 2]
        assert (first.complete, second.complete) == (False, True)
        trainer.publish()
    assert run.prompts().counts["trained"] == 2


def test_oversampled_groups_return_their_prompts(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, slots_per_buffer=2, max_staleness=0, group_size=2, prompt_queue=True)
    run.feed(prompts("a", "b"))
    with run.worker("w") as worker, run.trainer() as trainer:
        one, other = worker.reserve_up_to(2, 0)
        for member in one.members:
            member.complete(reward=float(member.index))
        other.member(0).complete(reward=1.0)
        next(iter(trainer))
        assert run.trajectory(other.id).reason == "surplus"
        assert (states(run)[str(other.prompt)], run.prompts(state="queued").prompts[0].attempt) == ("queued", 1)
        trainer.publish()
        assert [(slot.prompt, slot.attempt) for slot in worker.reserve_up_to(2, 1)] == [(other.prompt, 1)]
