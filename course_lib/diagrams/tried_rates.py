"""What a search for the learning rate has found, and how far two optimizers' accuracies are apart."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from course_lib import figures
from course_lib.comparison import Difference
from course_lib.diagrams.seeds import LOOKS
from course_lib.figures import COLORS
from course_lib.lockstep import RELATIVE


def tried_rates(tried: Mapping[str, Mapping[float, float]], lazy: float) -> tuple[Figure, str]:
    """Accuracy against the learning rate; the relative step, whose rate is a cap, in a panel of its own.

    Args:
        tried: for each optimizer the accuracy at each rate.
        lazy: accuracy of always answering the most frequent class.
    """
    fig, (left, right) = figures.subplots(ncols=2, height=3.8, sharey=True, width_ratios=(3, 2))
    told = []
    for name, found in tried.items():
        ax = right if name == RELATIVE else left
        color, marker, *_ = LOOKS[name]
        ax.plot(list(found), list(found.values()), f"{marker}-", color=color, label=name, markersize=7, alpha=0.85)
        best = max(found, key=found.__getitem__)
        ax.plot(best, found[best], "o", color=color, fillstyle="none", markersize=15, markeredgewidth=1.5)
        told.append(f"{name}: {', '.join(f'{value:.3f} at {rate:g}' for rate, value in found.items())}")
    for ax, words in ((left, "learning rate"), (right, "cap of the relative step")):
        ax.set(xscale="log", xlabel=words)
        ax.axhline(lazy, color=COLORS["ink"], linestyle=":", linewidth=1.2)
    highest = max(max(found.values()) for found in tried.values())
    left.set(ylabel="accuracy", ylim=(lazy - 0.06, highest + 0.45 * (highest - lazy)))
    left.legend(loc="upper left", fontsize=10)
    right.set_title("relative step", fontsize=11)
    left.set_title("rings: the best of the five", fontsize=11)
    first = min(min(found) for name, found in tried.items() if name != RELATIVE)
    left.text(first, lazy - 0.012, "always the most frequent class", va="top", fontsize=10)
    return fig, f"Accuracy by learning rate. {'; '.join(told)}. Always the most frequent class: {lazy:.3f}."


def differences(against: str, found: Mapping[str, Difference]) -> tuple[Figure, str]:
    """How far mean accuracies are from that of one optimizer, with intervals of two standard errors.

    Args:
        against: whose accuracy is the zero.
        found: for each of the others its difference.
    """
    fig, ax = figures.subplots(height=0.75 * len(found) + 1.3)
    told = []
    for y, (name, difference) in enumerate(found.items()):
        color, marker, *_ = LOOKS[name]
        low, high = (100 * end for end in difference.interval)
        middle, inner = 100 * difference.mean, 200 * difference.from_seeds
        ax.plot([low, high], [y, y], color=color, linewidth=1.6, solid_capstyle="butt")
        ax.plot([middle - inner, middle + inner], [y, y], color=color, linewidth=6, alpha=0.5, solid_capstyle="butt")
        ax.plot(middle, y, marker, color=color, markersize=9)
        label = f"{middle:+.1f} ({low:+.1f} to {high:+.1f})".replace("-", "−")
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # where the line at 0 would cross it
        ax.text(middle, y - 0.2, label, ha="center", va="bottom", bbox=box)
        told.append(f"{name} {middle:+.1f}, from {low:+.1f} to {high:+.1f}, from seeds alone ± {inner:.1f}")
    ax.axvline(0, color=COLORS["ink"], linewidth=1.2)
    ax.set_yticks(range(len(found)), [name.replace(", ", ",\n") for name in found])
    ax.set(ylim=(len(found) - 0.5, -0.75), xlabel=f"points of accuracy above {against}")
    reach = 1.25 * max(abs(100 * end) for difference in found.values() for end in difference.interval)
    ax.set_xlim(-reach, reach)
    ax.tick_params(axis="y", length=0)
    ax.set_title("Thick: other seeds might have given this. Thin: other seeds and other names.", fontsize=11)
    return fig, f"Points of accuracy above {against}, with two standard errors: {'; '.join(told)}."
