"""A rollout process: samples a group for each prompt that the ledger hands out, scores it, and hands it in.

python rollout.py SETTINGS NAME
"""

from __future__ import annotations

import sys
import threading

import berth
import jax

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
        """Takes up these weights."""
        assert weights.reference is not None, f"version {weights.version} was published without its weights"
        self._params = self._files.load_weights(weights.reference)
        self.held = weights

    def newest(self) -> Weights:
        """The weights for the next token."""
        newest = self._newest
        if newest.version > self.held.version:
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
                problem = Problem(slot.data["left"], slot.data["right"])
                samples = sample([problem] * settings.group_size, _key(settings, slot), engine.newest)
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


def _key(settings: Settings, slot: berth.Slot) -> jax.Array:
    """The random numbers for a prompt: others for each attempt, the same in whichever process."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.seed), slot.data["number"]), slot.attempt)


if __name__ == "__main__":
    main(Settings.load(sys.argv[1]), sys.argv[2])
