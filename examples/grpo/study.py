"""All that the README shows: the learning curve with kills, what staleness costs, and what asynchrony and streaming gain.

    python study.py --directory DIR [--versions N] [--seeds N]

A job that is found in DIR is not run again, so that an interrupted study goes on. The figures go to `figures.md` and `curve.svg`
in DIR. `--versions 40 --seeds 1` goes the whole way in some minutes; its figures say nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from figures import conditions, table_of_kills, table_of_learning, table_of_times
from job import run_job, start_from
from plot import draw
from processes import end_orderly_on_signals
from results import Result

BOUNDS = (0, 1, 4)


@dataclass(frozen=True)
class Planned:
    """A job of the study."""

    versions: int
    seed: int
    max_staleness: int
    stream: bool = False
    kills: bool = False

    @property
    def name(self) -> str:
        """Its directory's name."""
        parts = [f"{self.versions}-versions", f"seed-{self.seed}", f"bound-{self.max_staleness}"]
        return "-".join(parts + ["stream"] * self.stream + ["kills"] * self.kills)

    def result(self, directory: Path) -> Result:
        """What it finds; it is run if it was not."""
        place = directory / self.name
        if not (place / "result.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            print(f"\n{self.name}, under a load of {os.getloadavg()[0]:.1f}", flush=True)
            start = start_from(self.seed, directory / f"start-{self.seed}.npz")
            run_job(place, start, **dataclasses.asdict(self))
        return Result.load(place)


def plan(versions: int, seeds: int) -> tuple[list[Planned], list[Planned]]:
    """The jobs with kills, and those without. The latter take turns within each seed: a load that changes meets all kinds alike."""
    killed = [Planned(versions, seed, 1, kills=True) for seed in range(seeds)]
    unharmed = [
        Planned(versions, seed, bound, stream) for seed in range(seeds) for bound in BOUNDS for stream in (False, True)
    ]
    return killed, unharmed


def report(killed: list[Result], unharmed: list[Result], directory: Path) -> str:
    """Writes the figures and the picture. Returns the figures."""
    parts = [conditions([*killed, *unharmed]), table_of_kills(killed), table_of_learning(unharmed), table_of_times(unharmed)]
    figures = "\n\n".join(parts)
    (directory / "figures.md").write_text(figures + "\n")
    draw(killed, unharmed, directory / "curve.svg")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="The figures of the README.")
    parser.add_argument("--directory", type=Path, required=True, help="where the jobs are run and their results kept")
    parser.add_argument("--versions", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    told = parser.parse_args()
    directory: Path = told.directory
    directory.mkdir(parents=True, exist_ok=True)
    end_orderly_on_signals()
    killed, unharmed = ([job.result(directory) for job in jobs] for jobs in plan(told.versions, told.seeds))
    print("\n" + report(killed, unharmed, directory))


if __name__ == "__main__":
    main()
