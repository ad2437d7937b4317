"""All that the README shows: the learning curve with kills over three seeds, and what staleness costs and asynchrony gains.

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

from figures import table_of_bounds, table_of_kills
from job import run_job, start_from
from plot import draw_curves
from results import Result

SEEDS = (0, 1, 2)
BOUNDS = (0, 1, 4)


@dataclass(frozen=True)
class Planned:
    """A job of the study."""

    seed: int
    max_staleness: int
    stream: bool
    kills: bool

    @property
    def name(self) -> str:
        """Its directory's name."""
        parts = [f"seed-{self.seed}", f"bound-{self.max_staleness}"]
        return "-".join(parts + ["stream"] * self.stream + ["kills"] * self.kills)

    def result(self, directory: Path) -> Result:
        """What it finds; it is run if it was not."""
        place = directory / self.name
        if not (place / "result.json").exists():
            shutil.rmtree(place, ignore_errors=True)
            print(f"\n{self.name}, under a load of {os.getloadavg()[0]:.1f}", flush=True)
            start = start_from(self.seed, directory / f"start-{self.seed}.npz")
            run_job(
                place, start, kills=self.kills, seed=self.seed, max_staleness=self.max_staleness, stream=self.stream
            )
        return Result.load(place)


def main() -> None:
    parser = argparse.ArgumentParser(description="The figures of the README.")
    parser.add_argument("--directory", type=Path, required=True, help="where the jobs are run and their results kept")
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)

    killed = [Planned(seed, 1, stream=False, kills=True).result(directory) for seed in SEEDS]
    # Seed by seed: a load that changes meanwhile meets all kinds of jobs alike.
    compared = [
        Planned(seed, bound, stream, kills=False).result(directory)
        for seed in SEEDS
        for bound in BOUNDS
        for stream in (False, True)
    ]
    figures = "\n\n".join([table_of_kills(killed), table_of_bounds(compared)])
    (directory / "figures.md").write_text(figures + "\n")
    draw_curves(killed, compared, directory / "curve.svg")
    print("\n" + figures)


if __name__ == "__main__":
    main()
