"""What travels as files, and when it is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import berth
import pytest

from cleaner import Cleaner
from files import Files, delete, path_of
from grpo import fresh
from model import init
from sampling import Weights, sample
from settings import Settings
from task import Problem


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(Settings(run="r", url="", directory=str(tmp_path), shared=str(tmp_path / "shared")))


def test_payloads_weights_and_checkpoints_come_back_as_they_were(files: Files) -> None:
    state = fresh(init(0))
    weights = Weights(3, state.params)
    samples = sample([Problem(1, 2)], 1, lambda: weights)
    again = files.load_payload(files.save_payload("id", samples))
    assert (again.tokens == samples.tokens).all() and (again.versions == samples.versions).all()
    loaded = files.load_weights(files.save_weights(state))
    assert all((loaded[name] == value).all() for name, value in state.params.items())
    files.save_checkpoint(state)
    assert files.checkpoint_versions() == [0]
    assert all((files.load_checkpoint(0).square[name] == value).all() for name, value in state.square.items())


class Log:
    """Events, and the payloads that are left after each."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._cleaner = Cleaner(files, max_staleness=1)
        self._seq = 0

    def finished(self, id: str) -> None:
        path_of(self._files.payload(id)).write_bytes(b"")

    def see(self, type: str, *effects: dict[str, Any], **fields: Any) -> list[str]:
        self._seq += 1
        raw = {"effects": effects, **fields}
        self._cleaner.see(berth.Event(seq=self._seq, at_ms=0, type=type, version=fields.get("version"), raw=raw))
        return sorted(path.stem for path in self._files.payloads.iterdir())

    def reserved(self, *ids: str) -> None:
        self.see("reserve", *({"effect": "reserved", "id": id, "version": 0} for id in ids))

    def discarded(self, id: str, reason: str) -> list[str]:
        return self.see("discard", {"effect": "discarded", "id": id, "reason": reason})

    def finish(self) -> list[str]:
        self._cleaner.finish()
        return sorted(path.stem for path in self._files.payloads.iterdir())

    @property
    def is_done(self) -> bool:
        return self._cleaner.is_done


def test_a_payload_goes_when_its_entry_is_filtered_or_its_batch_is_forgotten(files: Files) -> None:
    log = Log(files)
    log.reserved("a", "b")
    log.finished("a")
    log.finished("b")
    assert log.discarded("a", "zero_variance") == ["b"]
    assert log.see("publish", version=5) == ["b"]
    assert log.see("prune", {"effect": "pruned", "id": "b", "payload": files.payload("b")}, version=0) == []


def test_what_a_slow_worker_may_still_hand_in_stays_until_it_can_not(files: Files) -> None:
    log = Log(files)
    log.reserved("slow", "saved")
    log.finished("slow")
    log.finished("saved")
    log.discarded("saved", "lease_expired")
    assert log.discarded("slow", "lease_expired") == ["saved", "slow"]
    log.reserved("saved")
    assert log.see("publish", version=1) == ["saved", "slow"]
    assert log.see("publish", version=2) == ["saved"]


def test_what_a_killed_worker_left_goes_with_its_reservation(files: Files) -> None:
    log = Log(files)
    log.reserved("a")
    path_of(files.payload("a")).with_suffix(".part").write_bytes(b"")
    assert log.discarded("a", "worker_restarted") == []


def test_the_cleaner_is_done_when_nothing_is_left_of_a_drained_run(files: Files) -> None:
    log = Log(files)
    log.reserved("a", "b")
    log.see("drain", drain=True)
    log.finished("b")
    log.discarded("b", "timed_out")
    assert not log.is_done
    log.discarded("a", "zero_variance")
    assert log.is_done
    assert log.finish() == []


def test_weights_go_when_eight_newer_versions_are_out(files: Files) -> None:
    for version in range(3):
        files.weights_path(version).write_bytes(b"")
    Log(files).see("publish", version=10)
    assert [path.stem for path in files.weights.iterdir()] == ["00002"]


def test_deleting_twice_is_deleting_once(files: Files) -> None:
    delete(files.payload("a"))
    delete(files.payload("a"))
