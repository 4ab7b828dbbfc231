"""How long Adafactor's steps are: the relative step size over a training run, and what a sudden large gradient does."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from torch import Tensor

from course_lib import figures
from course_lib.figures import COLORS, as_array


def relative_step(t: Tensor, rho: Tensor, warmup: Tensor) -> tuple[Figure, str]:
    """The relative step size against the step, both on log axes.

    Args:
        t: steps, counted from 1, shape ``[time]``.
        rho: relative step size at each, as in the paper.
        warmup: the same with ``warmup_init=True``.
    """
    t, rho, warmup = as_array(t), as_array(rho), as_array(warmup)
    flat = int(t[rho >= rho[0]][-1])
    fig, ax = figures.subplots(height=3.6)
    ax.plot(t, t**-0.5, ":", color=COLORS["muted"], linewidth=2)
    ax.plot(t, warmup, "--", color=COLORS["muted"], linewidth=2)
    ax.plot(t, rho, color=COLORS["adafactor"], linewidth=3)
    ax.plot(flat, rho[0], "o", color=COLORS["ink"], markersize=8)
    ax.text(flat, rho[0] * 3, f"flat up to step {flat:,}", ha="center")
    ax.text(8, 8**-0.5 * 1.3, "1/√t", color=COLORS["muted"])
    ax.text(2, rho[0] * 0.55, "ρ = min(0.01, 1/√t)", color=COLORS["adafactor"], va="top")
    ax.text(60, warmup[59] * 0.6, "with warmup_init: min(0.000001 · t, 1/√t)", color=COLORS["muted"], va="top")
    ax.set(xscale="log", yscale="log", xlabel="step t", ylabel="relative step size", xlim=(1, t[-1]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    ax.set_title("The relative step size stands still for a long time")
    return fig, (
        f"Relative step size against the step, log axes. It is {rho[0]:g} from step 1 to step {flat:,}, then falls as "
        f"one over the root of t, to {rho[-1]:.2g} at step {t[-1]:,.0f}. With warmup_init it rises from {warmup[0]:g} "
        f"and joins the other curve at step {flat:,}."
    )


def spike(updates: dict[str, Tensor], at: int, around: tuple[int, int]) -> tuple[Figure, str]:
    """Length of the step before, at and after a step whose gradient is far larger than all before it.

    Args:
        updates: for each optimizer's label its update at steps 1, 2, …, shape ``[time]``; a label that begins with
            "Adafactor" or "Adam" gets that optimizer's color.
        at: the step of the large gradient.
        around: first and last step to show.
    """
    fig, ax = figures.subplots(height=3.6)
    looks = (("Adam", "adamw", "-"), ("Adafactor", "adafactor", "-"), ("", "muted", "--"))
    told = []
    for label, update in updates.items():
        _, color, line = next(look for look in looks if label.startswith(look[0]))
        steps = np.arange(around[0], around[1] + 1)
        shown = as_array(update)[around[0] - 1 : around[1]]
        height = float(as_array(update)[at - 1])
        ax.plot(steps, shown, line, marker="o", markersize=3.5, color=COLORS[color], linewidth=1.8)
        words = f"{label}: {height:.1f}"
        if color == "adafactor":
            ax.text(at - 1, height * 1.15, words, ha="right", va="bottom", color=COLORS[color])
        else:
            ax.text(at + 1, height * 1.06, words, color=COLORS[color])
        told.append(f"{label} {height:.1f}")
    ax.set(yscale="log", xlabel="step", ylabel="size of the update", xlim=around, ylim=(0.05, 30))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.set_title(f"One gradient, at step {at}, is far larger than all before it")
    return fig, (
        f"Size of the update around step {at}, log axis. Before it every update is 1. At that step: {', '.join(told)}. "
        "Afterwards all are below 1, since the large gradient stays in the second moment for a while."
    )
