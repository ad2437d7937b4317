"""The study's figures as tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import mean, stdev

from results import Result


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
    """What staleness costs: a row for each bound."""

    def bound(result: Result) -> int:
        return result.max_staleness

    rows = []
    for max_staleness, alike in groupby(sorted(results, key=bound), bound):
        of = list(alike)
        after = [each.curve[-1][1] * 100 for each in of]
        rows.append(
            [
                f"{max_staleness}",
                ", ".join(f"{each:.1f}%" for each in after),
                f"{mean(after):.1f}%" + (f" ± {stdev(after):.1f}" if len(after) > 1 else ""),
                f"{mean(mean_staleness(each) for each in of):.2f}",
                f"{mean(_mean_clipped(each) for each in of):.1%}",
            ]
        )
    return _table(["η", "right after, by seed", "mean", "staleness of a token", "tokens out of the clip range"], rows)


def table_of_times(results: Iterable[Result]) -> str:
    """What asynchrony and streaming gain: a row for each kind of job, over the rounds."""
    rows = []
    for (bound, stream), alike in groupby(sorted(results, key=kind), kind):
        of = list(alike)
        rows.append(
            [
                f"{bound}",
                "yes" if stream else "no",
                ", ".join(f"{1000 * seconds_per_version(each):.0f} ms" for each in of),
                f"{mean(each.waited_s / (each.waited_s + each.trained_s) for each in of):.0%}",
                f"{mean(mean_staleness(each) for each in of):.2f}",
                f"{min(each.machine_load for each in of):.0f} to {max(each.machine_load for each in of):.0f}",
            ]
        )
    return _table(
        ["η", "streamed", "a version takes, by round", "of it the trainer waits", "staleness of a token", "load"], rows
    )


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
