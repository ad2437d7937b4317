"""Prompt groups: member by member, whole, filled, failed, adopted."""

from __future__ import annotations

import threading

import pytest
from conftest import Ledger
from servers import wait_until

import berth


def group_run(ledger: Ledger, **config: object) -> berth.Run:
    return ledger.run(batch_size=1, group_size=2, **config)


def test_a_group_is_filled_member_by_member(ledger: Ledger) -> None:
    run = group_run(ledger)
    with run.worker("w") as worker, run.trainer() as trainer:
        slot = next(worker.reserve(0))
        seen = []
        for member in slot.members:
            with member:
                seen.append(member.complete(reward=float(member.index), tokens=5, meta={"n": member.index}))
        assert [(each.state, each.counted, each.complete, each.needed) for each in seen] == [
            ("reserved", True, 1, 2),
            ("occupied", True, 2, 2),
        ]
        assert slot.closed and list(slot.members) == []
        batch = next(iter(trainer))
    members = batch.trajectories[0].members
    assert members is not None
    assert [(m.index, m.version, m.reward, m.tokens, m.meta) for m in members] == [
        (0, 0, 0.0, 5, {"n": 0}),
        (1, 0, 1.0, 5, {"n": 1}),
    ]
    assert [round(m.advantage or 0.0, 3) for m in members] == [-1.0, 1.0]


def test_a_group_is_handed_in_whole(ledger: Ledger) -> None:
    run = group_run(ledger, group_candidates=3)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        failed = berth.MemberResult(index=0, failed=True, note="cut off")
        placed = slot.occupy(members=[failed, *(berth.MemberResult(index=i, reward=1.0, tokens=3) for i in (1, 2))])
        assert placed.state == "occupied"
        assert slot.closed


def test_a_filled_group_cancels_its_other_candidates(ledger: Ledger) -> None:
    run = group_run(ledger, group_candidates=3)
    told = threading.Event()
    with run.worker("w") as worker, run.worker("reward") as reward:
        slot = next(worker.reserve(0))
        members = list(slot.members)
        members[2].on_cancel(lambda reason: told.set())
        elsewhere = reward.slot(slot.id)
        for index in (0, 1):
            elsewhere.member(index, version=0).complete(reward=1.0)
        assert told.wait(60)
        assert members[2].cancelled and members[2].cancel_reason == "group_filled"
        with members[2]:
            members[2].raise_if_cancelled()
        assert not members[2].complete(reward=1.0).counted


def test_a_member_that_leaves_its_block_by_an_exception_has_failed(ledger: Ledger) -> None:
    run = group_run(ledger, group_candidates=3)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        with pytest.raises(ValueError):
            with slot.member(0):
                raise ValueError("bad sample")
        assert slot.members_failed == {0}
        for index in (1, 2):
            outcome = slot.member(index).complete(reward=1.0)
        assert (outcome.state, outcome.failed) == ("occupied", 1)


def test_a_group_that_cannot_be_filled_is_discarded(ledger: Ledger) -> None:
    run = group_run(ledger)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        outcome = slot.member(0).fail("out of memory")
        assert (outcome.state, outcome.reason) == ("discarded", "group_failed")
        assert slot.cancelled and slot.closed
        later = slot.member(1).complete(reward=1.0)
        assert (later.state, later.counted) == ("discarded", False)


def test_a_group_without_a_gradient_is_dropped(ledger: Ledger) -> None:
    run = group_run(ledger, drop_zero_variance=True)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        outcomes = [member.complete(reward=1.0) for member in slot.members]
        assert (outcomes[-1].state, outcomes[-1].reason) == ("discarded", "zero_variance")


def test_a_group_awaits_its_post_processing(ledger: Ledger) -> None:
    run = group_run(ledger, auto_occupy=False)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        with pytest.raises(berth.GroupIncomplete):
            slot.occupy()
        for member in slot.members:
            assert member.complete(reward=1.0).state == "reserved"
        assert slot.occupy(meta={"scored": True}).state == "occupied"


def test_a_dead_workers_group_is_adopted_with_what_it_had(ledger: Ledger) -> None:
    run = group_run(ledger, group_candidates=3, adopt_groups=True)
    with run.worker("a") as dead:
        slot = next(dead.reserve(0, prompts=["q"]))
        slot.member(1).complete(reward=0.5)
        with run.worker("a"), run.worker("b") as heir:
            adopted = next(heir.reserve(0))
            assert adopted.id == slot.id and adopted.adopted
            assert adopted.members_done == {1}
            assert [member.index for member in adopted.members] == [0, 2]
            assert adopted.member(0).complete(reward=1.0).state == "occupied"


def test_a_group_without_an_owner_shows_who_held_it_last_and_a_claim_adopts_it(ledger: Ledger) -> None:
    run = group_run(ledger, group_candidates=3, adopt_groups=True, max_staleness=0)
    with run.worker("a") as dead:
        slot = next(dead.reserve(0))
        slot.member(0).fail()
        slot.member(1).complete(reward=0.5)
        with run.worker("a"), run.worker("b") as heir:
            orphan = run.trajectory(slot.id)
            assert (orphan.state, orphan.orphaned, orphan.worker) == ("reserved", True, "a")
            assert [each.worker for each in run.explain().waiting_on] == [None]
            claimed = heir.claim(slot.id)
            assert (set(claimed.members_done), set(claimed.members_failed)) == ({1}, {0})
            assert not run.trajectory(slot.id).orphaned
            assert run.status().totals.adopted == 1


def test_one_refused_member_of_a_whole_group_leaves_no_other_recorded(ledger: Ledger) -> None:
    run = group_run(ledger)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        one, other = berth.MemberResult(index=0, reward=1.0), berth.MemberResult(index=1, reward=0.0, version=1)
        with pytest.raises(berth.VersionNotPublished):
            slot.occupy(members=[one, other])
        assert run.trajectory(slot.id).members == []
        assert slot.occupy(members=[one, berth.MemberResult(index=1, reward=0.0)]).kept


def test_the_reward_of_a_group_is_the_mean_of_its_members_unless_it_is_said(ledger: Ledger) -> None:
    run = group_run(ledger)
    members = [berth.MemberResult(index=index, reward=float(index), tokens=10) for index in (0, 1)]
    with run.worker("w") as worker:
        summed, said = worker.reserve_up_to(2, 0)
        summed.occupy(members=members)
        said.occupy(members=members, reward=0.75)
    entries = [run.trajectory(slot.id) for slot in (summed, said)]
    assert [(entry.reward, entry.tokens) for entry in entries] == [(0.5, 20), (0.75, 20)]


def test_a_member_shows_its_segments_while_it_is_generated(ledger: Ledger) -> None:
    run = group_run(ledger, initial_version=1)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        slot.member(0, version=0).segment(1, 30, report=True)
        slot.member(1, version=1).segment(1, 0, report=True)
        assert [(each.index, each.state, each.version) for each in run.trajectory(slot.id).members or []] == [
            (0, "generating", None),
            (1, "generating", 1),
        ]
        # What was said of it is a part of it, also for who reports it without.
        worker.slot(slot.id).member(0, version=0).complete(reward=1.0)
        first = (run.trajectory(slot.id).members or [])[0]
        assert first.segments == [berth.Segment(version=0, from_token=0), berth.Segment(version=1, from_token=30)]


def test_a_member_is_never_older_than_its_group(ledger: Ledger) -> None:
    run = group_run(ledger, initial_version=3)
    with run.worker("w") as worker:
        slot = next(worker.reserve(3))
        with pytest.raises(berth.VersionTooStale):
            slot.member(0, version=2).complete(reward=1.0)
        with pytest.raises(berth.VersionNotPublished):
            slot.member(0, version=4).complete(reward=1.0)
        assert slot.member(0, version=3).complete(reward=1.0).counted


def test_a_generation_goes_on_under_newer_weights(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, initial_version=1, max_staleness=2)
    with run.worker("w") as worker, run.trainer() as trainer:
        slot = next(worker.reserve(0))
        slot.segment(1, 30, report=True)
        wait_until(lambda: len(run.trajectory(slot.id).segments or []) == 2)
        with pytest.raises(berth.VersionNotPublished):
            worker.slot(slot.id).segment(2, 40, report=True)
        assert slot.occupy(reward=1.0, tokens=99).kept
        entry = next(entry for entry in run.trajectories(state="occupied"))
        assert entry.segments == [
            berth.Segment(version=0, from_token=0),
            berth.Segment(version=1, from_token=30),
        ]
        assert trainer.next_batch().batch is not None


def test_segments_that_are_known_may_be_named_again_at_any_time(ledger: Ledger) -> None:
    run = ledger.run(batch_size=1, initial_version=2, max_staleness=3)
    with run.worker("w") as worker:
        slot = next(worker.reserve(0))
        slot.segment(1, 10, report=True)
        slot.segment(2, 20, report=True)
        again = worker.slot(slot.id)
        again.segment(1, 10, report=True)
        with pytest.raises(berth.SegmentOutOfOrder):
            again.segment(1, 15, report=True)
        assert slot.occupy(reward=1.0).kept
    assert [each.version for each in run.trajectory(slot.id).segments or []] == [0, 1, 2]
