"""The trainer process: takes batches, whole or in pieces, makes one step of each, saves, and publishes.

    python trainer.py SETTINGS

It goes on from its newest checkpoint, whatever became of the process before it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import berth
import numpy as np

from files import Files
from grpo import Gathering, State
from records import Step, digest, record
from sampling import Floats, Samples
from settings import Settings


class Batch:
    """What one step is made of, as far as it has come."""

    def __init__(self, state: State, settings: Settings, files: Files) -> None:
        self._gathering = Gathering(state, settings.piece * settings.group_size)
        self._files = files
        self._rewards: list[float] = []
        self._groups = 0
        self._replayed = False
        self._began_s = time.monotonic()
        self._trained_s = 0.0

    def add(self, piece: berth.Batch) -> None:
        """Adds the gradient of a piece; one that only ends its batch may be empty."""
        began_s = time.monotonic()
        if piece.trajectories:
            payloads = [self._files.load_payload(group.payload) for group in piece if group.payload is not None]
            members = [member for group in piece for member in group.members or []]
            self._gathering.add(_joined(payloads), np.array([member.advantage for member in members], np.float32))
            self._rewards += [member.reward for member in members if member.reward is not None]
        self._groups += len(piece)
        self._replayed = piece.replayed
        self._trained_s += time.monotonic() - began_s

    def step(self) -> tuple[State, Step]:
        """The state that it makes, and the record of it."""
        began_s = time.monotonic()
        state = self._gathering.step()
        made = digest(state.params)
        ended_s = time.monotonic()
        trained_s = self._trained_s + ended_s - began_s
        step = Step(
            version=state.version - 1,
            digest=made,
            groups=self._groups,
            reward=float(np.mean(self._rewards)),
            replayed=self._replayed,
            waited_s=ended_s - self._began_s - trained_s,
            trained_s=trained_s,
            staleness=self._gathering.staleness(),
        )
        return state, step


def main(settings: Settings) -> None:
    run, files = settings.connect(), Files(settings)
    state = files.load_checkpoint(files.checkpoint_versions()[-1])
    with run.trainer(resume_from=state.version) as trainer:
        batch = Batch(state, settings, files)
        for piece in _pieces(trainer, settings):
            batch.add(piece)
            if not piece.complete:
                continue
            state, step = batch.step()
            _publish(trainer, files, settings, state)
            record(settings.directory, step)
            if state.version >= settings.versions:
                # Problems that nobody was given stay in the queue.
                run.drain(queue="keep")
            batch = Batch(state, settings, files)
        # What was trained since the last checkpoint is of no use without one: from here on nothing is delivered again.
        files.save_checkpoint(state)
        trainer.checkpoint()


def _pieces(trainer: berth.Trainer, settings: Settings) -> Iterator[berth.Batch]:
    """The batches in pieces of one size, so that the same batch makes the same step, to the bit, however it is delivered."""
    if settings.stream:
        yield from trainer.stream(min_entries=settings.piece, max_entries=settings.piece)
        return
    for batch in trainer:
        for offset in range(0, len(batch), settings.piece):
            end = offset + settings.piece
            yield replace(batch, trajectories=batch.trajectories[offset:end], offset=offset, complete=end >= len(batch))


def _publish(trainer: berth.Trainer, files: Files, settings: Settings, state: State) -> None:
    """Saves first and publishes then: what was published is there, whenever this process is killed."""
    is_due = state.version % settings.checkpoint_every == 0
    if is_due:
        files.save_checkpoint(state)
    trainer.publish(weights=files.save_weights(state))
    if is_due:
        trainer.checkpoint(state.version)


def _joined(samples: list[Samples]) -> Samples:
    def rows(name: str) -> Floats:
        return np.concatenate([getattr(each, name) for each in samples])

    return Samples(rows("tokens"), rows("mask"), rows("log_probs"), rows("versions"))  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Settings.load(sys.argv[1]))
