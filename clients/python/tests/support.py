"""Short ways to say what many tests need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import berth


def fill(run: berth.Run, count: int, version: int = 0, worker: str = "filler") -> list[str]:
    """Occupies so many entries; the ids, in the order of the calls."""
    ids: list[str] = []
    with run.worker(worker) as filler:
        while len(ids) < count:
            slots = filler.reserve_up_to(count - len(ids), version=version, wait_ms=5_000)
            assert slots, "no place"
            for slot in slots:
                assert slot.occupy(reward=1.0, tokens=10).kept
                ids.append(slot.id)
    return ids


def train(run: berth.Run, batches: int, **opening: Any) -> list[berth.Batch]:
    """Trains so many batches, each filled before."""
    trained: list[berth.Batch] = []
    with run.trainer(**opening) as trainer:
        for _ in range(batches):
            fill(run, run.status().config.batch_size, version=trainer.policy_version)
            answer = trainer.next_batch(wait_ms=5_000)
            assert answer.batch is not None
            trained.append(answer.batch)
            trainer.publish(f"file:///weights/{trainer.trainer_version + 1}")
    return trained


def table(run: berth.Run) -> list[list[str]]:
    """The slots, buffer by buffer: upper case is finished, lower case generating; prompts name the entries."""
    letters = {"empty": ".", "reserved": "", "occupied": "", "taken": ""}
    shown = []
    for buffer in run.buffers(slots=True).buffers:
        row = []
        for slot in buffer.slots:
            name = slot.prompt or "?"
            row.append(letters[slot.state] or (name.lower() if slot.state == "reserved" else name.upper()))
        shown.append(row)
    return shown


@contextmanager
def thread(work: Callable[[], object]) -> Iterator[None]:
    """Work beside the block; its failure is the test's."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    beside = threading.Thread(target=guarded, daemon=True)
    beside.start()
    yield
    beside.join(60)
    assert not beside.is_alive(), "the work beside is not done within a minute"
    if failures:
        raise failures[0]
