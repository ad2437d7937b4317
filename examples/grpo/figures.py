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
            f"{result.replayed}, {result.replayed_alike} of them to the bit",
        ]
        for result in results
    ]
    return _table(["seed", "right before", "right after", "kills", "steps made again"], rows)


def table_of_bounds(results: Iterable[Result]) -> str:
    """What staleness costs and asynchrony gains: a row for each bound, streaming and not, over the seeds."""

    def kind(result: Result) -> tuple[int, bool]:
        return result.max_staleness, result.stream

    rows = []
    for (bound, stream), alike in groupby(sorted(results, key=kind), kind):
        of = list(alike)
        rows.append(
            [
                f"{bound}",
                "yes" if stream else "no",
                _spread([each.curve[-1][1] * 100 for each in of], "%"),
                _spread([1000 * seconds_per_version(each) for each in of], " ms"),
                f"{mean(each.waited_s / (each.waited_s + each.trained_s) for each in of):.0%}",
                f"{mean(_mean_staleness(each) for each in of):.2f}",
                f"{mean(_mean_clipped(each) for each in of):.1%}",
                f"{min(each.machine_load for each in of):.0f} to {max(each.machine_load for each in of):.0f}",
            ]
        )
    head = [
        "η",
        "streamed",
        "right after",
        "a version takes",
        "trainer waits",
        "token staleness",
        "tokens clipped",
        "load",
    ]
    return _table(head, rows)


def seconds_per_version(result: Result) -> float:
    """The median time from one publish to the next: what compiles at the start, or is started again, does not count."""
    times = [at for _, at in result.seconds]
    gaps = sorted(after - before for before, after in zip(times, times[1:], strict=False))
    return gaps[len(gaps) // 2]


def _mean_staleness(result: Result) -> float:
    return sum(age * each.tokens for age, each in result.staleness.items()) / _tokens(result)


def _mean_clipped(result: Result) -> float:
    return sum(each.clipped * each.tokens for each in result.staleness.values()) / _tokens(result)


def _tokens(result: Result) -> int:
    return sum(each.tokens for each in result.staleness.values())


def _spread(values: Sequence[float], unit: str) -> str:
    """The mean, and the standard deviation over the seeds."""
    deviation = f" ± {stdev(values):.0f}" if len(values) > 1 else ""
    return f"{mean(values):.0f}{deviation}{unit}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
