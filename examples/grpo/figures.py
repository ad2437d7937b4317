"""The study's figures as tables of Markdown."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import mean, stdev

from results import Result


def conditions(results: Sequence[Result]) -> str:
    """On what it was measured."""
    load = f"while they ran, {_load(results)} processes wanted to run"
    return f"Measured on {os.cpu_count()} cores, in {len(results)} jobs; {load}."


def table_of_kills(results: Sequence[Result]) -> str:
    """Before and after, of the jobs in which processes were killed."""
    rows = [
        [
            f"{result.seed}",
            f"{result.curve[0][1]:.1%}",
            f"{result.curve[-1][1]:.1%}",
            f"{len(result.killed)}",
            f"{result.replayed}, {result.replayed_alike} of them to the same bits",
        ]
        for result in results
    ]
    return _table(["seed", "right before", "right after", "kills", "steps made again"], rows)


def table_of_learning(results: Iterable[Result]) -> str:
    """What staleness costs: a row for each kind of job, over the seeds."""
    rows = []
    for kind_of_job, of in by_kind(results):
        after = [each.curve[-1][1] * 100 for each in of]
        rows.append(
            [
                *_named(kind_of_job),
                ", ".join(f"{each:.1f}%" for each in after),
                f"{mean(after):.1f}%" + (f" ± {stdev(after):.1f}" if len(after) > 1 else ""),
                f"{mean(mean_staleness(each) for each in of):.2f}",
                f"{mean(_mean_clipped(each) for each in of):.1%}",
            ]
        )
    head = ["η", "streamed", "right after, by seed", "mean", "staleness of a token", "tokens out of the clip range"]
    return _table(head, rows)


def table_of_times(results: Iterable[Result]) -> str:
    """What asynchrony and streaming gain: a row for each kind of job, over the seeds."""
    rows = []
    for kind_of_job, of in by_kind(results):
        times = [1000 * seconds_per_version(each) for each in of]
        rows.append(
            [
                *_named(kind_of_job),
                ", ".join(f"{each:.0f} ms" for each in times),
                f"{mean(times):.0f} ms",
                f"{mean(each.waited_s / (each.waited_s + each.trained_s) for each in of):.0%}",
                _load(of),
            ]
        )
    return _table(["η", "streamed", "a version takes, by seed", "mean", "of it the trainer waits", "load"], rows)


def by_kind(results: Iterable[Result]) -> list[tuple[tuple[int, bool], list[Result]]]:
    """The results of each kind of job."""
    return [(kind_of_job, list(of)) for kind_of_job, of in groupby(sorted(results, key=kind), kind)]


def _named(kind_of_job: tuple[int, bool]) -> list[str]:
    bound, stream = kind_of_job
    return [f"{bound}", "yes" if stream else "no"]


def _load(results: Sequence[Result]) -> str:
    loads = [each.machine_load for each in results]
    return f"{min(loads):.0f} to {max(loads):.0f}"


def kind(result: Result) -> tuple[int, bool]:
    """What makes two jobs alike in their time."""
    return result.max_staleness, result.stream


def seconds_per_version(result: Result) -> float:
    """The median time from one publish to the next: what compiles at the start, or is started again, does not count."""
    times = [at for _, at in result.seconds]
    gaps = sorted(after - before for before, after in zip(times, times[1:], strict=False))
    return gaps[len(gaps) // 2]


def mean_staleness(result: Result) -> float:
    """Of a token, in versions."""
    return sum(age * each.tokens for age, each in result.staleness.items()) / _tokens(result)


def _mean_clipped(result: Result) -> float:
    return sum(each.clipped * each.tokens for each in result.staleness.values()) / _tokens(result)


def _tokens(result: Result) -> int:
    return sum(each.tokens for each in result.staleness.values())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
