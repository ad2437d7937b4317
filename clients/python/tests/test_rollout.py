"""Rollout processes: reserving, finishing, giving up, and being told."""

from __future__ import annotations

import gc
import threading

import pytest
from conftest import LEASE_MS, Ledger
from servers import wait_until
from support import fill, table, thread, train

import berth


def test_a_slot_is_reserved_and_occupied(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        slot = next(worker.reserve(0, prompts=["q-1"]))
        assert (slot.prompt, slot.version, slot.deadline, slot.attempt) == ("q-1", 0, 1, 1)
        placed = slot.occupy(reward=1.0, tokens=7, payload="file:///dev/shm/1", meta={"finish": "stop"})
        assert (placed.state, placed.buffer, placed.slot, placed.late) == ("occupied", 0, 0, False)
    entry = run.trajectory(slot.id)
    assert (entry.reward, entry.tokens, entry.payload, entry.meta) == (1.0, 7, "file:///dev/shm/1", {"finish": "stop"})


def test_the_worked_example_of_the_protocol(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4, max_concurrency=6)
    with run.worker("w") as worker, run.trainer() as trainer:
        slots: dict[str, berth.Slot] = {}

        def reserve(version: int, names: str) -> None:
            for slot in worker.reserve_up_to(len(names), version, prompts=list(names)):
                slots[str(slot.prompt)] = slot

        def finish(name: str) -> None:
            assert slots[name].occupy().kept

        reserve(0, "abcdef")
        assert table(run) == [[".", ".", "f", "e"], ["d", "c", "b", "a"]]
        finish("a")
        reserve(0, "g")
        assert table(run) == [["A", ".", "g", "e"], ["d", "c", "b", "f"]]
        finish("d")
        reserve(0, "h")
        assert table(run) == [["A", "D", "h", "e"], ["g", "c", "b", "f"]]
        finish("c")
        assert worker.reserve_up_to(1, 0, prompts=["i"]) == []
        finish("e")
        batch = trainer.next_batch().batch
        assert batch is not None and [entry.prompt for entry in batch] == ["a", "d", "c", "e"]
        finish("f")
        finish("g")
        trainer.publish()
        reserve(1, "ijkl")
        assert table(run) == [["F", "G", "b", "h"], ["l", "k", "j", "i"]]
        for name in "jhkb":
            finish(name)
        assert table(run) == [["F", "G", "H", "B"], ["J", "K", "l", "i"]]


def test_a_slot_that_leaves_its_block_by_an_exception_is_discarded_with_the_reason(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        with pytest.raises(ZeroDivisionError):
            with next(worker.reserve(0)) as slot:
                _ = 1 / 0
        entry = run.trajectory(slot.id)
        assert (entry.state, entry.reason) == ("discarded", "zero_division_error")


def test_a_block_that_ends_without_occupy_gives_the_slot_up(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        with next(worker.reserve(0)) as slot:
            pass
        assert run.trajectory(slot.id).reason == "unfinished"


def test_an_exception_that_ends_the_worker_gives_up_all_that_it_holds(ledger: Ledger) -> None:
    run = ledger.run()
    with pytest.raises(KeyError):
        with run.worker("w") as worker:
            held = worker.reserve_up_to(3, 0)
            raise KeyError("engine")
    assert {run.trajectory(slot.id).reason for slot in held} == {"key_error"}
    assert run.status().reserved == 0


def test_a_cancelled_reservation_reaches_the_generating_code_at_once(ledger: Ledger) -> None:
    run = ledger.run()
    told = threading.Event()
    with run.worker("w") as worker:
        with next(worker.reserve(0)) as slot:
            slot.on_cancel(lambda reason: told.set())
            run.discard(slot.id, "operator")
            assert told.wait(60)
            assert slot.cancelled and slot.cancel_reason == "operator"
            slot.raise_if_cancelled()
            raise AssertionError("the block ended")  # pragma: no cover
        wait_until(lambda: next(run.workers()).cancelled_pending == 0)


def test_to_occupy_what_was_discarded_is_answered_and_not_raised(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        run.discard(slot.id, "operator")
        placed = slot.occupy(reward=1.0)
        assert (placed.kept, placed.state, placed.reason) == (False, "discarded", "operator")


def test_a_slot_that_the_code_dropped_is_given_back(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    with run.worker("w") as worker:
        ids = [slot.id for slot in worker.reserve_up_to(2, 0)]
        gc.collect()
        assert worker.slots == []
        ledger.expire(run, ids)
        assert {run.trajectory(id).reason for id in ids} == {"abandoned"}


def test_a_worker_that_is_restarted_fences_its_predecessor(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as old:
        slot = next(old.reserve(0))
        with run.worker("w"):
            assert run.trajectory(slot.id).reason == "worker_restarted"
            with pytest.raises(berth.Fenced):
                next(old.reserve(0))
            assert slot.cancelled and slot.cancel_reason == "fenced"


def test_a_fenced_worker_hears_of_it_without_a_call(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    with run.worker("w") as old:
        slot = next(old.reserve(0))
        fenced = threading.Event()
        slot.on_cancel(lambda reason: fenced.set())
        with run.worker("w"):
            assert fenced.wait(60)


def test_a_busy_worker_keeps_its_lease_and_a_dead_one_loses_it(ledger: Ledger) -> None:
    run = ledger.run(lease_ms=LEASE_MS)
    with run.worker("busy") as busy, run.worker("dead") as dead:
        kept, lost = next(busy.reserve(0)), next(dead.reserve(0))
        assert dead._heartbeat is not None
        dead._heartbeat.stop()
        ledger.expire(run, [lost.id])
        assert run.trajectory(lost.id).reason == "lease_expired"
        assert run.trajectory(kept.id).state == "reserved"
        placed = lost.occupy(reward=0.5)
        assert placed.kept and placed.late


def test_a_loop_waits_while_its_weights_are_too_old(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0)
    train(run, 1)
    version = [0]
    asked = threading.Event()

    def held() -> int:
        if version[0] == 0 and asked.is_set():
            version[0] = 1
        asked.set()
        return version[0]

    with run.worker("w") as worker:
        slot = next(worker.reserve(held))
        assert slot.version == 1


def test_a_loop_has_newer_weights_loaded(ledger: Ledger) -> None:
    run = ledger.run(max_staleness=0)
    loaded: list[berth.Weights] = []
    with run.worker("w") as worker:
        reserving = worker.reserve(refresh=loaded.append)
        for _ in range(2):
            next(reserving).occupy()
        with thread(lambda: train_one(run)):
            slot = next(reserving)
        assert slot.version == 1
    assert [(each.version, each.reference) for each in loaded] == [(0, None), (1, "file:///1")]


def train_one(run: berth.Run) -> None:
    with run.trainer() as trainer:
        for _ in trainer:
            trainer.publish("file:///1")
            return


def test_versions_that_do_not_exist_are_refused(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker, pytest.raises(berth.VersionNotPublished):
        worker.reserve_up_to(1, 1)


def test_prompts_are_used_in_order_and_end_the_loop(ledger: Ledger) -> None:
    run = ledger.run(batch_size=4)
    prompts = [berth.Prompt(id=f"q-{n}", data={"n": n}) for n in range(5)]
    with run.worker("w") as worker:
        seen = [(slot.prompt, slot.data, slot.occupy().state) for slot in worker.reserve(0, prompts=prompts)]
    assert seen == [(f"q-{n}", {"n": n}, "occupied") for n in range(5)]


def test_many_are_occupied_in_one_call_and_one_bad_id_spoils_no_other(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("w") as worker:
        slots = worker.reserve_up_to(2, 0)
        finished = [{"id": slot.id, "reward": 1.0} for slot in slots]
        results = worker.occupy_many([finished[0], {"id": "nobody"}, finished[1]])
        assert [(each.state, each.code) for each in results] == [
            ("occupied", None),
            (None, "unknown_trajectory"),
            ("occupied", None),
        ]
        assert worker.slots == []


def test_a_reward_process_claims_and_finishes_what_another_generated(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("rollout") as rollout, run.worker("reward") as reward:
        slot = next(rollout.reserve(0, prompts=["q"]))
        claimed = reward.claim(slot.id)
        assert claimed.prompt == "q" and run.trajectory(slot.id).worker == "reward"
        assert claimed.occupy(reward=0.25).kept
        assert slot.occupy(reward=0.5).kept  # the second report shows where it is, and changes nothing
        assert run.trajectory(slot.id).reward == 0.25


def test_any_live_session_may_finish_without_a_claim(ledger: Ledger) -> None:
    run = ledger.run()
    with run.worker("rollout") as rollout, run.worker("reward") as reward:
        slot = next(rollout.reserve(0))
        assert reward.slot(slot.id).occupy(reward=0.25).kept


def test_concurrency_blocks_until_something_is_finished(ledger: Ledger) -> None:
    run = ledger.run(max_concurrency=1)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        assert worker.reserve_up_to(1, 0) == []
        with thread(lambda: slot.occupy()):
            assert len(worker.reserve_up_to(1, 0, wait_ms=20_000)) == 1


def test_a_finished_entry_is_filtered_and_the_next_one_moves_up(ledger: Ledger) -> None:
    run = ledger.run()
    first, _, third = fill(run, 3)
    answer = run.discard(first, "filtered")
    assert answer.discarded_from == "occupied"
    assert [(each.id, each.from_, each.to) for each in answer.promoted] == [(third, 1, 0)]


def test_a_worker_is_not_used_outside_its_block(ledger: Ledger) -> None:
    worker = ledger.run().worker("w")
    with pytest.raises(berth.NotOpen):
        worker.reserve_up_to(1, 0)
