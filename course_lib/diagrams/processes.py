"""The same training in one process and in several: its losses, and what each process holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib import figures
from course_lib.figures import COLORS

MIB = 2**20
# Messages are gradients once more, on their way.
FACES = {
    "weights": {"facecolor": COLORS["weights"]},
    "gradients": {"facecolor": COLORS["gradients"]},
    "messages": {"facecolor": "white", "edgecolor": COLORS["gradients"], "hatch": "////"},
    "state": {"facecolor": COLORS["state"]},
    "activations": {"facecolor": COLORS["activations"]},
}


def compare(one: Mapping[str, Any], several: Mapping[str, Any]) -> tuple[Figure, str]:
    """Both runs' losses in one plot, and a bar for each process, of what it holds.

    Args:
        one, several: what :func:`course_lib.distributed_loop.train` returns, with one process and with more.
    """
    fig, (left, right) = figures.subplots(ncols=2, height=3.7, width_ratios=(5, 6))
    count, apart = several["processes"], furthest(one["losses"], several["losses"])
    steps = range(1, len(one["losses"]) + 1)
    left.plot(steps, one["losses"], color=COLORS["sgd"], linewidth=5, alpha=0.6, label="1 process")
    left.plot(steps, several["losses"], "o", color=COLORS["adafactor"], markersize=3.5, label=f"{count} processes")
    left.set(title=f"Loss, at most {apart:.0e} apart", xlabel="step")
    left.legend(loc="lower left")
    bars = {"alone": _held(one, 0), **{f"process {p}\nof {count}": _held(several, p) for p in range(count)}}
    _draw_bars(right, bars)
    said = (
        f"{name.replace(chr(10), ' ')}: {', '.join(f'{part} {size:.2f}' for part, size in held.items())}"
        for name, held in bars.items()
    )
    return fig, (
        f"Losses of {len(steps)} steps, from {one['losses'][0]:.2f} to {one['losses'][-1]:.2f}, with 1 process and "
        f"with {count}: at most {apart:.0e} apart. What each process holds at most, in MiB. "
        f"{'; '.join(said)}."
    )


def furthest(losses: Sequence[float], others: Sequence[float]) -> float:
    """The largest distance between two runs' losses in the same step."""
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))


def _held(run: Mapping[str, Any], process: int) -> dict[str, float]:
    return {part: run["bytes"][part][process] / MIB for part in FACES}


def _draw_bars(ax: Axes, bars: Mapping[str, Mapping[str, float]]) -> None:
    longest = max(sum(held.values()) for held in bars.values())
    for row, held in enumerate(bars.values()):
        start = 0.0
        for part, size in held.items():
            ax.barh(row, size, left=start, height=0.6, linewidth=0, **FACES[part])
            if size > 0.06 * longest:
                box = {"facecolor": "white", "linewidth": 0, "pad": 1} if part == "messages" else None
                look = {"color": "white" if part == "state" else COLORS["ink"], "fontsize": 10, "bbox": box}
                ax.text(start + size / 2, row, f"{size:.1f}", ha="center", va="center", **look)
            start += size
        ax.text(start + 0.01 * longest, row, f"{start:.1f}", va="center", fontweight="bold")
    ax.set_yticks(range(len(bars)), bars)
    ax.set(
        title="What each process holds at most, MiB",
        xlim=(0, 1.12 * longest),
        ylim=(len(bars) - 0.5, -0.5),
    )
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    keys = [Patch(label=part, linewidth=0, **face) for part, face in FACES.items()]
    ax.legend(handles=keys, loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=3)
