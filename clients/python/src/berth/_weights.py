"""Which weights a worker holds: their version, and the lineage that tells one version 7 from another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Union

from ._call import Memory
from .models import Weights

#: What an engine may say of its weights: a number, or exactly which, or a function that says so when asked.
Version = Union[int, Weights]
VersionSource = Union[Version, Callable[[], Version]]
#: Of how many numbers the weights are kept.
MOST_KEPT = 16


class HeldWeights:
    """What the worker last said of its weights.

    A bare number is given its lineage when it is first seen: that of the weights of this number that were fetched through this
    client, or else the latest lineage. It keeps it until the number changes. After a rewind a number exists twice, and an
    engine that returns :class:`Weights` leaves nothing to be guessed.
    """

    def __init__(self, memory: Memory, changed: Callable[[], object] = lambda: None) -> None:
        self._memory = memory
        self._changed = changed
        #: How often the worker was told what it holds: what a reserving loop was given before is older.
        self.times_told: int = 0
        self._lock = threading.Lock()
        self._held: Weights | None = None
        self._fetched: dict[int, Weights] = {}
        #: The last of each number that were fetched, or held with their lineage said. One that was guessed may be another when the
        #: number comes again.
        self._known: dict[int, Weights] = {}

    @property
    def held(self) -> Weights | None:
        """The weights last spoken of; None before the first."""
        with self._lock:
            return self._held

    def observe(self, source: VersionSource) -> Weights:
        """Asks the source which weights the worker holds now, and takes down what it says."""
        said = source() if callable(source) else source
        with self._lock:
            return self._holds(said)

    def name(self, version: Version) -> Weights:
        """The weights of this number, which the worker held at some time: of a token that was generated before."""
        with self._lock:
            named = self._named(version)
            is_sure = named is version or named is self._held
            return named if is_sure else self._known.get(named.version, named)

    def _holds(self, version: Version) -> Weights:
        self._held = self._named(version)
        if isinstance(version, Weights):
            _keep(self._known, version)
        return self._held

    def _named(self, version: Version) -> Weights:
        if isinstance(version, Weights):
            return version
        number = int(version)
        if self._held is not None and self._held.version == number:
            return self._held
        return self._fetched.get(number) or Weights(version=number, lineage=self._memory.lineage)

    def fetched(self, weights: Weights) -> None:
        """These were handed out to the worker, which may load them."""
        with self._lock:
            _keep(self._fetched, weights)
            _keep(self._known, weights)

    def hold(self, version: Version) -> Weights:
        """The worker has loaded exactly these; whoever waits for that is woken."""
        with self._lock:
            weights = self._holds(version)
            self.times_told += 1
        self._changed()
        return weights


def _keep(known: dict[int, Weights], weights: Weights) -> None:
    """Keeps them as the last of their number. Only those that may still be loaded, or generated what is not finished, matter."""
    known.pop(weights.version, None)
    known[weights.version] = weights
    while len(known) > MOST_KEPT:
        del known[next(iter(known))]
