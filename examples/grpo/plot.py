"""The study's picture: the learning curves with kills and by bound, and how long a version takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 - the backend is chosen before
from matplotlib.axes import Axes  # noqa: E402

from figures import kind, seconds_per_version  # noqa: E402
from results import Result  # noqa: E402

COLOURS = {0: "#4c72b0", 1: "#dd8452", 4: "#55a868"}


def draw(killed: Sequence[Result], learning: Sequence[Result], timed: Sequence[Result], path: Path) -> None:
    """Draws the three panels into an SVG."""
    # Nothing in the file differs from one drawing of the same results to the next.
    plt.rcParams["svg.hashsalt"] = "berth"
    figure, panels = plt.subplots(1, 3, figsize=(14, 4), width_ratios=(3, 3, 2))
    _draw_kills(panels[0], killed)
    _draw_learning(panels[1], learning)
    _draw_times(panels[2], timed)
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
        bound = result.max_staleness
        label = None if bound in labelled else f"η = {bound}"
        labelled.add(bound)
        axes.plot(*zip(*result.curve, strict=True), color=COLOURS[bound], linewidth=1, label=label)
    axes.set(title="By bound, without kills", xlabel="policy version", ylim=(0, 0.8))
    axes.legend(loc="lower right")


def _draw_times(axes: Axes, results: Sequence[Result]) -> None:
    kinds = sorted({kind(result) for result in results})
    for result in results:
        row = kinds.index(kind(result))
        axes.plot(1000 * seconds_per_version(result), row, "o", color=COLOURS[result.max_staleness], alpha=0.7)
    axes.set_yticks(range(len(kinds)), [f"η = {bound}{', streamed' if stream else ''}" for bound, stream in kinds])
    axes.invert_yaxis()
    axes.set(title="Time of a version, by round", xlabel="ms")
    axes.set_xlim(left=0)
