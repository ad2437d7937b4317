"""All that the README shows: the learning curve with kills, what staleness costs, and what asynchrony and streaming gain.

    python study.py --directory DIR

A job that is found in DIR is not run again, so that an interrupted study goes on. The figures go to `figures.md` and `curve.svg`
in DIR.
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from figures import table_of_kills, table_of_learning, table_of_times
from job import run_job, start_from
from plot import draw
from processes import end_orderly_on_signals
from results import Result

SEEDS = (0, 1, 2)
BOUNDS = (0, 1, 4)
VERSIONS = 200

ROUNDS = 3
ROUND_VERSIONS = 60
"""How long the jobs are whose time is taken. All kinds take turns: a load that changes meanwhile meets them alike."""


@dataclass(frozen=True)
class Planned:
    """A job of the study."""

    seed: int
    max_staleness: int
    stream: bool = False
    kills: bool = False
    round: int | None = None

    @property
    def name(self) -> str:
        """Its directory's name."""
        parts = [f"seed-{self.seed}", f"bound-{self.max_staleness}"]
        parts += ["stream"] * self.stream + ["kills"] * self.kills
        return "-".join(parts if self.round is None else [f"round-{self.round}", *parts])

    def result(self, directory: Path) -> Result:
        """What it finds; it is run if it was not."""
        place = directory / self.name
        if not (place / "result.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            print(f"\n{self.name}, under a load of {os.getloadavg()[0]:.1f}", flush=True)
            run_job(
                place,
                start_from(self.seed, directory / f"start-{self.seed}.npz"),
                kills=self.kills,
                seed=self.seed,
                max_staleness=self.max_staleness,
                stream=self.stream,
                versions=VERSIONS if self.round is None else ROUND_VERSIONS,
            )
        return Result.load(place)


KILLED = [Planned(seed, 1, kills=True) for seed in SEEDS]
LEARNING = [Planned(seed, bound) for seed in SEEDS for bound in BOUNDS]
TIMED = [
    Planned(0, bound, stream, round=round)
    for round in range(1, ROUNDS + 1)
    for bound in BOUNDS
    for stream in (False, True)
]


def report(killed: list[Result], learning: list[Result], timed: list[Result], directory: Path) -> str:
    """Writes the figures and the picture. Returns the figures."""
    figures = "\n\n".join([table_of_kills(killed), table_of_learning(learning), table_of_times(timed)])
    (directory / "figures.md").write_text(figures + "\n")
    draw(killed, learning, timed, directory / "curve.svg")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="The figures of the README.")
    parser.add_argument("--directory", type=Path, required=True, help="where the jobs are run and their results kept")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    end_orderly_on_signals()
    killed, learning, timed = ([planned.result(directory) for planned in jobs] for jobs in (KILLED, LEARNING, TIMED))
    print("\n" + report(killed, learning, timed, directory))


if __name__ == "__main__":
    main()
