"""The values that 8-bit codes can stand for, evenly spaced and not, on an axis of powers of ten."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from torch import Tensor

from course_lib import blockwise, figures
from course_lib.diagrams.factorization import plain_power
from course_lib.figures import COLORS

LOWEST = -7  # the power of ten at which the axis begins
LOOKS = {"linear": "muted", "dynamic": "adam8bit"}


def code_points(shares: Tensor | None = None, signed: bool = False) -> tuple[Figure, str]:
    """The positive values of the linear and of the dynamic map, one stroke each, counted by powers of ten.

    Args:
        shares: numbers that are to be kept, each as a share of the largest in its block; their histogram stands below.
        signed: the maps for both signs, of which the values above 0 are shown.
    """
    rows = 2 if shares is None else 3
    fig, axes = figures.subplots(rows, 1, width=8.0, height=1.15 * rows + 0.6, sharex=True)
    told = []
    for ax, (kind, color) in zip(axes, LOOKS.items(), strict=False):
        values = blockwise.quantization_map(signed, kind)
        values = values[values > 0]
        ax.vlines(figures.as_array(values), 0, 1, color=COLORS[color], linewidth=1)
        ax.set(ylim=(0, 1.42), yticks=[])
        ax.set_title(f"{kind}: {len(values)} values above 0")
        counts = by_decade(values)
        for decade, count in counts.items():
            ax.text(10 ** (decade + 0.5), 1.08, str(count), ha="center", va="bottom", fontsize=10)
        told.append(f"{kind} {_listed(counts)}")
    if shares is not None:
        shares = shares.detach().flatten()
        shares = shares[shares > 0]
        counts = {decade: count / len(shares) for decade, count in by_decade(shares).items()}
        edges = torch.logspace(LOWEST, 0, 71)
        axes[2].hist(shares.clamp(min=10.0**LOWEST).numpy(), bins=edges.numpy(), color=COLORS["adamw"])
        axes[2].set(yticks=[])
        axes[2].set_title(
            "numbers to be kept, as shares of the largest in their block (far left: all that are smaller)"
        )
        top = axes[2].get_ylim()[1]
        axes[2].set_ylim(0, 1.3 * top)
        for decade, share in counts.items():
            axes[2].text(10 ** (decade + 0.5), 1.08 * top, percent(share), ha="center", va="bottom", fontsize=10)
        told.append(
            f"numbers to be kept {', '.join(percent(share) for share in counts.values())}, smaller ones included"
        )
    for ax in axes:
        for decade in range(LOWEST, 1):
            ax.axvline(10.0**decade, color=COLORS["muted"], linewidth=0.8, linestyle=":", zorder=0)
        ax.spines["left"].set_visible(False)
    axis = axes[-1]
    axis.set(xscale="log", xlim=(10.0**LOWEST, 1.15), xlabel="share of the largest number in the block")
    axis.xaxis.set_major_locator(LogLocator(10))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain_power(value)))
    return fig, (
        f"Values above 0 that a code can stand for, by powers of ten from 10⁻⁷ up to 1: {'; '.join(told)}. "
        "(The value 1 counts with the last.)"
    )


def by_decade(values: Tensor) -> dict[int, int]:
    """How many positive values lie in each power of ten, from ``LOWEST`` up; the last takes 1 too."""
    values = values.double()  # 0.1 is a little more than 0.1 in 32 bits
    counts = {}
    for decade in range(LOWEST, 0):
        low, high = 10.0**decade, 10.0 ** (decade + 1)
        inside = (values >= low if decade > LOWEST else values > 0) & ((values < high) | (decade == -1))
        counts[decade] = int(inside.sum())
    return counts


def _listed(counts: dict[int, int]) -> str:
    return ", ".join(str(count) for count in counts.values())


def percent(share: float) -> str:
    if share == 0:
        return "0"
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}" if share >= 0.001 else "< 0.1%"
