"""The study's picture: the learning curves, by version and by time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from results import Result

COLOURS = {0: "#4c72b0", 1: "#dd8452", 4: "#55a868"}


def draw_curves(killed: Sequence[Result], compared: Sequence[Result], path: Path) -> None:
    """Draws both panels into an SVG."""
    # Nothing in the file differs from one drawing of the same results to the next.
    plt.rcParams["svg.hashsalt"] = "berth"
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
    _draw_kills(left, killed)
    _draw_bounds(right, compared)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_kills(axes: Axes, results: Sequence[Result]) -> None:
    for result in results:
        versions, right = zip(*result.curve, strict=True)
        axes.plot(versions, right, marker=".", label=f"seed {result.seed}")
    for killed in results[0].killed:
        victim, at = killed.split(" at ")
        version = int(at.split()[-1])
        axes.axvline(version, color="grey", linewidth=0.7, linestyle=":")
        top = axes.get_xaxis_transform()
        axes.text(version, 0.98, victim, transform=top, rotation=90, fontsize=7, color="grey", ha="right", va="top")
    axes.set(
        title="η = 1, each dotted line a SIGKILL",
        xlabel="policy version",
        ylabel="right answers, held-out",
        ylim=(0, 0.8),
    )
    axes.legend(loc="lower right")


def _draw_bounds(axes: Axes, results: Sequence[Result]) -> None:
    for result in results:
        seconds = {0: 0.0, **dict(result.seconds)}
        axes.plot(
            [seconds[version] for version, _ in result.curve],
            [right for _, right in result.curve],
            color=COLOURS[result.max_staleness],
            linestyle="--" if result.stream else "-",
            linewidth=1,
            label=f"η = {result.max_staleness}{', streamed' if result.stream else ''}" if result.seed == 0 else None,
        )
    axes.set(title="as many versions by time, without kills", xlabel="seconds")
    axes.legend(loc="lower right")
