"""A rollout process: samples a group of answers to each problem that it is given, scores them, and hands them in.

python rollout.py SETTINGS NAME
"""

from __future__ import annotations

import sys
import threading
import uuid

import berth

from files import Files, delete
from sampling import Samples, Weights, sample
from settings import Settings
from task import Problem, reward

LONGEST_WAIT_MS = 60_000


class Engine:
    """The weights that are sampled with. Newer ones are taken up between two tokens, as soon as they are out."""

    def __init__(self, run: berth.Run, files: Files) -> None:
        self._run = run
        self._files = files
        self._newest = run.weights()
        self.load(self._newest)
        threading.Thread(target=self._watch, name="newest weights", daemon=True).start()

    def load(self, weights: berth.Weights) -> None:
        """Takes up these weights, or newer ones if their file is gone: a process that does not get to run may be that slow."""
        while True:
            assert weights.reference is not None, f"version {weights.version} was published without its weights"
            try:
                self._params = self._files.load_weights(weights.reference)
            except FileNotFoundError:
                weights = self._run.weights()
            else:
                self.held = weights
                return

    def newest(self) -> Weights:
        """The weights for the next token."""
        newest = self._newest
        if (newest.lineage, newest.version) > (self.held.lineage, self.held.version):
            self.load(newest)
        return Weights(self.held.version, self._params)

    def _watch(self) -> None:
        while True:
            self._newest = self._run.weights(after=self._newest, wait_ms=LONGEST_WAIT_MS)


def main(settings: Settings, name: str) -> None:
    run, files = settings.connect(), Files(settings)
    engine = Engine(run, files)
    with run.worker(name) as worker:
        for slot in worker.reserve(lambda: engine.held, refresh=engine.load):
            with slot:
                problem = Problem(**slot.data)
                samples = sample([problem] * settings.group_size, _seed(slot), engine.newest)
                payload = files.save_payload(slot.id, samples)
                placed = slot.occupy(payload=payload, members=_members(problem, samples))
                if not placed.kept:
                    delete(payload)


def _members(problem: Problem, samples: Samples) -> list[berth.MemberResult]:
    members = []
    for row in range(len(samples.tokens)):
        changes = samples.version_changes(row)
        members.append(
            berth.MemberResult(
                index=row,
                reward=reward(problem, samples.answer(row)),
                tokens=samples.length(row),
                version=changes[0][0],
                segments=[berth.Segment(version=version, from_token=token) for version, token in changes[1:]],
            )
        )
    return members


def _seed(slot: berth.Slot) -> int:
    """Random numbers of its own for each reservation: the last half of its id is random."""
    return uuid.UUID(slot.id).int % 2**31


if __name__ == "__main__":
    main(Settings.load(sys.argv[1]), sys.argv[2])
