"""The problems of a job: a row without end, drawn by its seed, of which some are always in Berth's prompt queue."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from itertools import count, islice

import berth

from task import draw


def prompts(seed: int) -> Iterator[berth.Prompt]:
    """The same problems in the same order for the same seed. A problem that comes again is another prompt."""
    rng = random.Random(f"problems {seed}")
    for number in count():
        problem = draw(rng)
        yield berth.Prompt(id=f"{number}: {problem.left}+{problem.right}", data=dataclasses.asdict(problem))


class Feeder:
    """Keeps at least `stock` problems in the run's queue, if it is asked to often enough."""

    def __init__(self, run: berth.Run, seed: int, stock: int) -> None:
        self._run = run
        self._prompts = prompts(seed)
        self._stock = stock
        self._fed = 0

    def fill(self) -> None:
        """Feeds up to twice the stock, if there is less than the stock; nothing once the run is being finished."""
        queued = (self._run.status().prompts or {})["queued"]
        if queued >= self._stock:
            return
        more = islice(self._prompts, 2 * self._stock - queued)
        try:
            self._fed = self._run.feed(more, offset=self._fed)
        except berth.Draining:
            pass  # The trainer has had enough.
