"""After a rewind a number stands for two versions: what is handed in says which of them generated it."""

from __future__ import annotations

import asyncio

import pytest
from conftest import Ledger
from support import fill, train

import berth

#: Version 2 as it was before the rewind, and as it is after it; and what follows.
OLD_2 = berth.Weights(version=2, lineage=0)
NEW_2 = berth.Weights(version=2, lineage=1)
NEW_3 = berth.Weights(version=3, lineage=1)


def rewind(run: berth.Run) -> None:
    """From version 2 back to 1, and on to 3."""
    with run.trainer(resume_from=1, mode="rewind") as trainer:
        while trainer.policy_version < 3:
            answer = trainer.next_batch()
            if answer.batch is None:
                fill(run, 1, version=trainer.policy_version, worker="again")
            else:
                trainer.publish()


def rewound(ledger: Ledger) -> tuple[berth.Run, berth.Worker, berth.Slot]:
    """A worker that was granted a place under version 1, and generates while version 2 is abandoned."""
    run = ledger.run(batch_size=1, max_staleness=4)
    train(run, 1)
    worker = run.worker("w").__enter__()
    slot = worker.reserve_up_to(1, 1)[0]
    train(run, 1, resume_from=1)
    rewind(run)
    worker.hold(NEW_3)
    return run, worker, slot


def test_a_segment_of_abandoned_weights_is_found_though_newer_ones_follow(ledger: Ledger) -> None:
    _, _, slot = rewound(ledger)
    slot.segment(OLD_2, 10)
    slot.segment(NEW_3, 20)
    placed = slot.occupy(reward=1.0)
    assert (placed.kept, placed.reason) == (False, "rewound")


def test_segments_of_weights_that_count_are_kept(ledger: Ledger) -> None:
    run, _, slot = rewound(ledger)
    slot.segment(NEW_2, 10)
    slot.segment(NEW_3, 20)
    assert slot.occupy(reward=1.0).kept
    assert [(each.version, each.from_token) for each in run.trajectory(slot.id).segments or []][-2:] == [
        (2, 10),
        (3, 20),
    ]


def rewound_group(ledger: Ledger) -> tuple[berth.Run, berth.Worker, berth.Slot]:
    """As :func:`rewound`, of groups of two; the batches on the way are handed in whole."""
    run = ledger.run(batch_size=1, max_staleness=4, group_size=2)
    both = [berth.MemberResult(index=index, reward=float(index)) for index in (0, 1)]

    def step(trainer: berth.Trainer) -> None:
        with run.worker("filler") as filler:
            filler.reserve_up_to(1, trainer.policy_version)[0].occupy(members=both)
        assert trainer.next_batch(wait_ms=5_000).batch is not None
        trainer.publish()

    with run.trainer() as trainer:
        step(trainer)
        worker = run.worker("w").__enter__()
        slot = worker.reserve_up_to(1, 1)[0]
        step(trainer)
    with run.trainer(resume_from=1, mode="rewind") as trainer:
        while trainer.policy_version < 3:
            step(trainer)
    worker.hold(NEW_3)
    return run, worker, slot


@pytest.mark.parametrize("segments", [[(NEW_3, 7)], [berth.Segment(version=3, from_token=7)]])
def test_a_whole_group_names_the_lineage_of_its_weights(ledger: Ledger, segments: list[berth.SegmentLike]) -> None:
    run, _, slot = rewound_group(ledger)
    one = berth.MemberResult(index=0, reward=1.0, version=NEW_2)
    other = berth.MemberResult(index=1, reward=0.0, segments=segments)
    assert slot.occupy(members=[one, other]).kept
    shown = run.trajectory(slot.id).members or []
    assert [member.version for member in shown] == [2, 1]


@pytest.mark.parametrize("newest", [NEW_2, NEW_3])
def test_a_whole_group_with_a_member_of_abandoned_weights_is_not_trained(ledger: Ledger, newest: berth.Weights) -> None:
    _, _, slot = rewound_group(ledger)
    one = berth.MemberResult(index=0, reward=1.0, version=OLD_2)
    other = berth.MemberResult(index=1, reward=0.0, version=newest)
    placed = slot.occupy(members=[one, other])
    assert (placed.kept, placed.reason) == (False, "rewound")


def test_a_member_that_abandoned_weights_began_is_refused_though_newer_ones_end_it(ledger: Ledger) -> None:
    _, _, slot = rewound_group(ledger)
    member = slot.member(0, version=OLD_2)
    member.segment(NEW_3, 5)
    with pytest.raises(berth.VersionNotPublished):
        member.complete(reward=1.0)


def test_of_many_each_is_handed_in_under_its_own_lineage(ledger: Ledger) -> None:
    _, worker, slot = rewound(ledger)
    newer = worker.reserve_up_to(2, NEW_3)
    slot.segment(OLD_2, 10)
    slot.segment(NEW_3, 20)
    results = worker.occupy_many([{"id": newer[0].id}, {"id": slot.id, "reward": 1.0}, {"id": newer[1].id}])
    assert [(each.id, each.state, each.reason) for each in results] == [
        (newer[0].id, "occupied", None),
        (slot.id, None, "rewound"),
        (newer[1].id, "occupied", None),
    ]


def test_asyncio_says_the_same(ledger: Ledger) -> None:
    async def case() -> None:
        _, _, blocking = await asyncio.to_thread(rewound, ledger)
        run = await ledger.connect_async().run(blocking._worker.run.name)
        async with run.worker("other") as worker:
            worker.hold(NEW_3)
            slot = await worker.claim(blocking.id)
            await slot.segment(OLD_2, 10)
            await slot.segment(NEW_3, 20)
            placed = await slot.occupy(reward=1.0)
            assert (placed.kept, placed.reason) == (False, "rewound")

    asyncio.run(asyncio.wait_for(case(), 60))
