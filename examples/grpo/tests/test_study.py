"""The study: which jobs it has, and what it says of them."""

from __future__ import annotations

import os
from pathlib import Path

from figures import table_of_kills, table_of_learning, table_of_times
from grpo import Staleness
from results import Result
from study import plan, report


def found(seed: int, bound: int, *, stream: bool = False, after: float = 0.5, ms: int = 100, load: float = 3) -> Result:
    return Result(
        seed=seed,
        max_staleness=bound,
        stream=stream,
        killed=["trainer at take 7", "server at publish 9"],
        curve=[(0, 0.15), (10, after)],
        # One version took long, as after a kill.
        seconds=[(1, 0.0), (2, ms / 1000), (3, 2 * ms / 1000), (4, 9.0)],
        waited_s=3,
        trained_s=1,
        staleness={0: Staleness(300, 0.0, 0.0), 1: Staleness(100, 0.1, 0.04)},
        discarded={},
        replayed=6,
        replayed_alike=6,
        machine_load=load,
    )


def test_each_kind_of_job_has_its_turn_with_each_seed() -> None:
    killed, unharmed = plan(versions=200, seeds=3)
    assert [job.name for job in killed] == [f"200-versions-seed-{seed}-bound-1-kills" for seed in (0, 1, 2)]
    kinds = ["bound-0", "bound-0-stream", "bound-1", "bound-1-stream", "bound-4", "bound-4-stream"]
    assert [job.name for job in unharmed] == [f"200-versions-seed-{seed}-{kind}" for seed in (0, 1, 2) for kind in kinds]


def test_the_tables_say_what_the_jobs_found() -> None:
    assert table_of_kills([found(2, 1)]).splitlines()[2] == "| 2 | 15.0% | 50.0% | 2 | 6, 6 of them to the same bits |"
    jobs = [found(0, 4, stream=True), found(0, 1, after=0.4), found(1, 1, after=0.5, ms=200, load=5)]
    assert table_of_learning(jobs).splitlines()[2:] == [
        "| 1 | no | 40.0%, 50.0% | 45.0% ± 7.1 | 0.25 | 1.0% |",
        "| 4 | yes | 50.0% | 50.0% | 0.25 | 1.0% |",
    ]
    assert table_of_times(jobs).splitlines()[2:] == [
        "| 1 | no | 100 ms, 200 ms | 150 ms | 75% | 3 to 5 |",
        "| 4 | yes | 100 ms | 100 ms | 75% | 3 to 3 |",
    ]


def test_the_report_is_left_as_text_and_as_a_picture(tmp_path: Path) -> None:
    unharmed = [found(0, bound, stream=stream) for bound in (0, 1, 4) for stream in (False, True)]
    figures = report([found(0, 1, load=4)], unharmed, tmp_path)
    assert (tmp_path / "figures.md").read_text() == figures + "\n"
    assert figures.startswith(f"Measured on {os.cpu_count()} cores, in 7 jobs; while they ran, 3 to 4 processes wanted to run.")
    assert "<svg" in (tmp_path / "curve.svg").read_text()
