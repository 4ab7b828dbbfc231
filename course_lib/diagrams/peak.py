"""The highest point of a training step: what stays from step to step, and what comes and goes."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from course_lib import figures
from course_lib.figures import COLORS

PARTS = {"weights": "weights", "state": "state", "the rest": "activations"}


def two_bars(peaks: Mapping[str, tuple[float, float]], weights: float, title: str) -> tuple[Figure, str]:
    """Peak memory of a training step with two optimizers, as bars one above the other.

    Args:
        peaks: for each optimizer its state and the peak, in MiB; the larger peak first.
        weights: MiB.
        title: what is compared.
    """
    fig, ax = figures.subplots(height=2.9)
    (first, (_, larger)), (second, (_, smaller)) = peaks.items()
    told = []
    for y, (name, (state, peak)) in enumerate(peaks.items()):
        left = 0.0
        for part, size in {"weights": weights, "state": state, "the rest": peak - weights - state}.items():
            ax.barh(y, size, left=left, height=0.6, color=COLORS[PARTS[part]], edgecolor="white")
            if size > 0.09 * larger:
                ink = "white" if part == "state" else COLORS["ink"]
                ax.text(left + size / 2, y, f"{part}\n{size:,.0f}", ha="center", va="center", color=ink, fontsize=10)
            left += size
        ax.text(peak + 0.01 * larger, y - 0.1, f"{peak:,.0f} MiB", va="center", fontweight="bold")
        if state < 0.02 * larger:  # too little to be seen
            ax.text(
                peak + 0.01 * larger, y + 0.18, f"state {state:.1f}", va="center", color=COLORS["state"], fontsize=10
            )
        told.append(f"{name} {peak:,.0f} MiB, of which weights {weights:,.0f}, state {state:,.1f}")
    ax.set_yticks(range(len(peaks)), list(peaks), fontsize=11)
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="MiB at the peak; the rest: gradients, activations, room to work", xlim=(0, 1.17 * larger))
    ax.invert_yaxis()
    gap = f"{larger - smaller:,.0f} MiB less, a factor of {larger / smaller:.2f}"
    ax.set_title(f"{title}: {gap}")
    return fig, f"{title}, memory at its peak: {'; '.join(told)}. {second} against {first}: {gap}."
