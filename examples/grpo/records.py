"""The trainer's record: one JSON line for each step that it makes, those that it makes again after a crash included."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from grpo import Staleness
from model import Params


@dataclass(frozen=True)
class Step:
    """The step from `version` to the next one."""

    version: int
    digest: str
    """Of the weights that it made: equal for equal bits."""

    groups: int
    reward: float
    """The mean reward of the batch. Groups that are all right or all wrong are not in it."""

    replayed: bool
    waited_s: float
    """How long the trainer waited for the batch, or for its pieces."""

    trained_s: float
    staleness: dict[int, Staleness]


def digest(params: Params) -> str:
    """Equal for equal bits."""
    sha = hashlib.sha256()
    for name in sorted(params):
        sha.update(np.asarray(params[name]).tobytes())
    return sha.hexdigest()[:16]


def record(directory: str, step: Step) -> None:
    """Appends a step, in one write: a killed trainer leaves a whole line or none."""
    with open(Path(directory, "steps.jsonl"), "a") as file:
        file.write(json.dumps(dataclasses.asdict(step)) + "\n")


def recorded(directory: str) -> list[Step]:
    """All steps, in the order in which they were made."""
    steps = []
    for line in Path(directory, "steps.jsonl").read_text().splitlines():
        fields = json.loads(line)
        fields["staleness"] = {int(each): Staleness(**of) for each, of in fields["staleness"].items()}
        steps.append(Step(**fields))
    return steps
