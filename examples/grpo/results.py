"""What a job found: the curve of its policies on held-out problems, its time, and what staleness did."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import berth

from evaluation import accuracy
from files import Files
from grpo import Staleness
from records import Step, recorded
from settings import Settings
from task import held_out

HELD_OUT = 1_000
"""Problems that each checkpoint is measured on."""


@dataclass(frozen=True)
class Result:
    """One job's findings."""

    seed: int
    max_staleness: int
    stream: bool
    killed: list[str]
    curve: list[tuple[int, float]]
    """The share of right answers to held-out problems, by policy version."""

    seconds: list[tuple[int, float]]
    """When each version was published, in seconds since version 1 was."""

    waited_s: float
    trained_s: float
    """How long the trainer waited for its batches, and how long it computed."""

    staleness: dict[int, Staleness]
    """The tokens trained, by their staleness."""

    discarded: dict[str, int]
    """Groups that were not trained, by reason."""

    replayed: int
    replayed_alike: int
    """Steps that were made again after a crash, and how many of them made the same weights, to the bit."""

    machine_load: float
    """How many processes wanted to run on this machine, on average over the job's last minute. Its own are among them."""

    def save(self, directory: str) -> None:
        """Writes it beside what it was measured from."""
        Path(directory, "result.json").write_text(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def load(directory: Path) -> Result:
        """Reads it."""
        fields = json.loads((directory / "result.json").read_text())
        fields["staleness"] = {int(each): Staleness(**of) for each, of in fields["staleness"].items()}
        return Result(**fields)


def measure(settings: Settings, killed: list[str], events: Iterable[berth.Event], totals: berth.Totals) -> Result:
    """Looks at what a job left: checkpoints, the trainer's record, and the run's events."""
    files, steps = Files(settings), recorded(settings.directory)
    problems = held_out(HELD_OUT)
    versions = [version for version in files.checkpoint_versions() if version <= settings.versions]
    first: dict[int, Step] = {}
    for step in steps:
        first.setdefault(step.version, step)
    replayed = [step for step in steps if step.replayed]
    return Result(
        seed=settings.seed,
        max_staleness=settings.max_staleness,
        stream=settings.stream,
        killed=killed,
        curve=[(version, accuracy(files.load_checkpoint(version).params, problems)) for version in versions],
        seconds=_seconds(events, settings.versions),
        waited_s=sum(step.waited_s for step in first.values()),
        trained_s=sum(step.trained_s for step in first.values()),
        staleness=_by_staleness(first.values()),
        discarded=dict(totals.discarded),
        replayed=len(replayed),
        replayed_alike=sum(step.digest == first[step.version].digest for step in replayed),
        machine_load=os.getloadavg()[0],
    )


def _seconds(events: Iterable[berth.Event], last: int) -> list[tuple[int, float]]:
    at_ms: dict[int, int] = {}
    for event in events:
        if event.type == "publish" and event.version is not None and 1 <= event.version <= last:
            at_ms.setdefault(event.version, event.at_ms)
    return [(version, (each - at_ms[1]) / 1000) for version, each in sorted(at_ms.items())]


def _by_staleness(steps: Iterable[Step]) -> dict[int, Staleness]:
    shares = defaultdict(list)
    for step in steps:
        for staleness, share in step.staleness.items():
            shares[staleness].append(share)
    return {staleness: _mean(of) for staleness, of in sorted(shares.items())}


def _mean(of: list[Staleness]) -> Staleness:
    tokens = sum(each.tokens for each in of)
    return Staleness(
        tokens,
        sum(each.tokens * each.mean_log_ratio for each in of) / tokens,
        sum(each.tokens * each.clipped for each in of) / tokens,
    )
