"""The study's picture: the learning curves with kills and by bound, and how long a version takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen before
from matplotlib.axes import Axes  # noqa: E402

from figures import by_kind, kind, seconds_per_version  # noqa: E402
from results import Result  # noqa: E402

COLOURS = {0: "#4c72b0", 1: "#dd8452", 4: "#55a868"}


def draw(killed: Sequence[Result], unharmed: Sequence[Result], path: Path) -> None:
    """Draws the three panels into an SVG."""
    # Nothing in the file differs from one drawing of the same results to the next.
    plt.rcParams["svg.hashsalt"] = "berth"
    figure, panels = plt.subplots(1, 3, figsize=(14, 4), width_ratios=(3, 3, 2))
    _draw_kills(panels[0], killed)
    _draw_learning(panels[1], unharmed)
    _draw_times(panels[2], unharmed)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_kills(axes: Axes, results: Sequence[Result]) -> None:
    for result in results:
        axes.plot(*zip(*result.curve, strict=True), marker=".", label=f"seed {result.seed}")
    for killed in results[0].killed:
        victim, at = killed.split(" at ")
        version = int(at.split()[-1])
        axes.axvline(version, color="grey", linewidth=0.7, linestyle=":")
        top = axes.get_xaxis_transform()
        axes.text(version, 0.98, victim, transform=top, rotation=90, fontsize=7, color="grey", ha="right", va="top")
    axes.set(title="η = 1, each dotted line a SIGKILL", ylabel="right answers to held-out problems")
    axes.set(xlabel="policy version", ylim=(0, 0.8))
    axes.legend(loc="lower right")


def _draw_learning(axes: Axes, results: Sequence[Result]) -> None:
    labelled = set()
    for result in results:
        label = None if kind(result) in labelled else named(result)
        labelled.add(kind(result))
        colour, style = COLOURS[result.max_staleness], ":" if result.stream else "-"
        axes.plot(*zip(*result.curve, strict=True), color=colour, linestyle=style, linewidth=1, label=label)
    axes.set(title="By kind of job, without kills", xlabel="policy version", ylim=(0, 0.8))
    axes.legend(loc="upper left")


def named(result: Result) -> str:
    """The kind of job, as the legends say it."""
    return f"η = {result.max_staleness}{', streamed' if result.stream else ''}"


def _draw_times(axes: Axes, results: Sequence[Result]) -> None:
    kinds = by_kind(results)
    for row, (_, alike) in enumerate(kinds):
        for result in alike:
            axes.plot(1000 * seconds_per_version(result), row, "o", color=COLOURS[result.max_staleness], alpha=0.7)
    axes.set_yticks(range(len(kinds)), [named(alike[0]) for _, alike in kinds])
    axes.invert_yaxis()
    axes.set(title="Time of a version", xlabel="ms")
    axes.set_xlim(left=0)
