"""What the reserving loops of both forms share: requests, grants, and what a refusal calls for. Knows no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Union

from . import models as m
from ._call import Call
from ._holdings import Holdings
from ._weights import VersionSource
from ._worker_calls import WorkerCalls
from .errors import BerthError

#: How long one call for other weights than those that were refused waits.
WEIGHTS_WAIT_MS = 10_000
#: How long to wait between two looks at an engine whose weights are too old, if it can only be asked.
LONGEST_LOOK_S = 0.5
SHORTEST_LOOK_S = 0.005

PromptSource = Iterable[Union[str, m.Prompt]]


@dataclass(frozen=True)
class Request:
    """A Reserve, and the weights that it names."""

    call: Call[m.Reservation]
    weights: m.Weights


class Reserving:
    """One loop of reservations."""

    def __init__(
        self,
        holdings: Holdings,
        calls: WorkerCalls,
        version: VersionSource | None,
        prompts: PromptSource | None,
        adopt: bool | None,
    ) -> None:
        self._holdings = holdings
        self._calls = calls
        self._version = version
        self._times_told = holdings.weights.times_told
        self._prompts = iter(prompts) if prompts is not None else None
        self._waiting: list[m.Prompt] = []
        self._adopt = adopt

    @property
    def asks(self) -> bool:
        """Whether the version is a function. A number counts until the worker is told what it holds instead."""
        return callable(self._version)

    def weights(self) -> m.Weights | None:
        """The weights that the worker holds, or None if it never said."""
        held = self._holdings.weights
        if self._version is None or (not self.asks and held.times_told != self._times_told):
            return held.held
        return held.observe(self._version)

    def request(self, count: int, wait_ms: int | None = None) -> Request | None:
        """The next Reserve of at most so many entries, or None when the prompts are used up. It waits as long as is sensible, or ``wait_ms``."""
        wait_ms = self._holdings.reserve_wait_ms() if wait_ms is None else wait_ms
        weights = self.weights()
        if weights is None:
            raise BerthError(
                "a worker that reserves must say which version its weights are: pass `version` or `refresh`"
            )
        names = None
        if self._prompts is not None:
            self._fill(count)
            if not self._waiting:
                return None
            names = [prompt.id for prompt in self._waiting[:count]]
        return Request(self._calls.reserve(count, weights, names, self._adopt, wait_ms), weights)

    def grants(self, answer: m.Reservation) -> list[m.Grant]:
        """What was granted, each with the data of its prompt."""
        self._holdings.granted(answer)
        granted = []
        for grant in answer.granted:
            if self._prompts is not None and not grant.adopted:
                prompt = self._waiting.pop(0)
                grant = replace(grant, data=prompt.data)
            granted.append(grant)
        return granted

    def _fill(self, count: int) -> None:
        assert self._prompts is not None
        while len(self._waiting) < count:
            prompt = next(self._prompts, None)
            if prompt is None:
                return
            self._waiting.append(prompt if isinstance(prompt, m.Prompt) else m.Prompt(id=prompt))


def weights_of(latest: m.LatestVersion) -> m.Weights:
    """The latest weights, by name and reference."""
    return m.Weights(
        version=latest.policy_version,
        lineage=latest.lineage,
        reference=latest.weights,
        published_at_ms=latest.published_at_ms,
    )


def differ(a: m.Weights | None, b: m.Weights) -> bool:
    """Whether these are not the same weights; their references may differ."""
    return a is None or (a.version, a.lineage) != (b.version, b.lineage)


def outcome_of(error: BerthError) -> m.Occupied:
    """A refusal to occupy that says what became of the entry."""
    reason = getattr(error, "reason", "") or getattr(error, "code", "")
    return m.Occupied(state="discarded", reason=str(reason))


def is_over(result: m.OccupyResult) -> bool:
    """Whether the worker has nothing more to do for this one of many."""
    return result.code in (None, "trajectory_discarded", "superseded", "unknown_trajectory")


#: Loads newer weights into the engine.
Refresh = Callable[[m.Weights], Any]
