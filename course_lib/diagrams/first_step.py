"""The first step: how large each entry of the gradient is, and how large its update becomes."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from torch import Tensor

from course_lib import figures
from course_lib.figures import COLORS, as_array

SHOWN = 2500  # dots; a matrix with more entries is thinned out evenly
BOTTOM, TOP = 1e-5, 1e4  # of the axis of updates


class FirstStep:
    """One dot for each entry shown, gradient against update, both on log axes. Updating it redraws quickly."""

    def __init__(self) -> None:
        self.fig, self.ax = figures.subplots(height=4.4)
        self.ax.set(xscale="log", yscale="log", ylim=(BOTTOM, TOP))
        self.ax.set(xlabel="|G|, size of the entry's gradient", ylabel="size of its update")
        for axis in (self.ax.xaxis, self.ax.yaxis):
            axis.set_major_locator(LogLocator(numticks=12))
            axis.set_minor_locator(NullLocator())
        self.ax.axhline(1, color=COLORS["ink"], linewidth=1)
        self.ax.text(1.02, 1, "exact V:\n|U| = 1", transform=self.ax.get_yaxis_transform(), va="center")
        (self.plain,) = self.ax.plot([], [], "--", color=COLORS["sgd"], linewidth=1.8)
        self.plain_label = self.ax.text(
            0, 0, "gradient as it is,\nscaled to that RMS", color=COLORS["muted"], ha="right"
        )
        (self.dots,) = self.ax.plot([], [], "o", color=COLORS["adafactor"], markeredgewidth=0)

    def update(self, G: Tensor, U: Tensor, name: str, **switches: bool) -> tuple[Figure, str]:
        """Show another step.

        Args:
            G: gradient, ``[n, m]``. Entries that are zero have no place on a log axis and are left out.
            U: update, ``[n, m]``.
            name: of the gradient.
            **switches: what is on and what is off.

        Returns:
            The figure, the same each time, and its description.
        """
        G, U = (np.abs(as_array(x).astype(np.float64)) for x in (G, U))
        rms, rms_g = (float(np.sqrt(np.mean(x**2))) for x in (U, G))
        g, u = G[G > 0], U[G > 0]
        near = float(np.mean((u >= 0.5) & (u <= 2)))
        setting = ", ".join(f"{switch.replace('_', ' ')} {'on' if on else 'off'}" for switch, on in switches.items())
        few = len(g) < 50
        every = 1 if few else max(1, len(g) // SHOWN)
        self.dots.set_data(g[::every], u[::every])
        self.dots.set(markersize=11 if few else 3.5, alpha=0.9 if few else 0.35)
        ends = np.array([g.min(), g.max()])
        # Of many entries, the very smallest would take up half of the axis.
        left = (g.min() if few else np.quantile(g, 0.01)) / 3
        self.ax.set_xlim(left, g.max() * 3)
        self.plain.set_data(ends, ends * rms / rms_g)
        self.plain_label.set_position((ends[1], 1.5 * ends[1] * rms / rms_g))
        size = f"RMS of the update {_number(rms)}, largest entry {_number(u.max())}"
        self.ax.set_title(f"{name}: {setting}\n{size}; {near:.0%} within a factor of 2 of 1")
        notes = ["without the zeros"] if len(g) < G.size else []
        notes += ["evenly thinned"] if every > 1 else []
        notes += ["the very smallest lie outside"] if np.any((g < left) | (u < BOTTOM)) else []
        dots = f"one dot for each entry shown ({'; '.join(notes)})" if notes else "one dot for each entry"
        return self.fig, (
            f"{name}: {setting}. Size of the gradient against size of the update, {dots}, log axes. "
            f"{size}; {near:.0%} of the entries lie within a factor of 2 of 1. The largest entry of the gradient is "
            f"{g.max():.1g}."
        )


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
