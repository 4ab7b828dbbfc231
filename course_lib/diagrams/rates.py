"""How far two forms of Adafactor move every tensor of a model in their first step."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from course_lib import figures
from course_lib.figures import COLORS

FLOOR = 1e-3  # ε₂, the size that tensors of zeros are taken to have


class FirstMoves:
    """First moves against the size of what is moved, a dot for each tensor. Updating it redraws the same figure."""

    def __init__(self) -> None:
        self.fig, self.ax = figures.subplots(height=3.9)

    def update(
        self, sizes: Mapping[str, float], given: Mapping[str, float], scaled: Mapping[str, float], lr: float
    ) -> tuple[Figure, str]:
        """Draw the moves of both.

        Args:
            sizes: RMS of each tensor, by name.
            given: RMS of its first move where the rate is taken as given, as Trainer has it.
            scaled: the same where the rate is multiplied by the size, as in torch.
            lr: the rate of ``scaled``.

        Returns:
            The figure, the same each time, and its description.
        """
        ax = self.ax
        ax.clear()
        ax.set(xscale="log", yscale="log", xlim=(6e-4, 4), ylim=(5e-7, 1))
        ax.set(xlabel="size of the tensor, max(0.001, RMS(X))", ylabel="RMS of the first move")
        for moves, marker, color in ((given, "x", COLORS["ink"]), (scaled, "o", COLORS["adafactor"])):
            x = [max(sizes[name], FLOOR) for name in moves]
            ax.plot(x, list(moves.values()), marker, color=color, markersize=7, markerfacecolor="none")
        rate = max(given.values())
        ax.plot([FLOOR, 3], [rate, rate], color=COLORS["ink"], linewidth=1)
        ax.text(3, 1.3 * rate, "as Trainer has it", ha="right", va="bottom")
        ax.plot([FLOOR, 3], [FLOOR * lr, 3 * lr], color=COLORS["adafactor"], linewidth=1)
        ax.text(1.6, 3 * lr, f"torch, lr = {lr:.3g}", color=COLORS["adafactor"], ha="right", va="bottom")
        crossing = rate / lr
        if FLOOR < crossing < 3:
            ax.plot([crossing] * 2, [5e-7, rate], ":", color=COLORS["muted"], linewidth=1.5)
            ax.text(1.08 * crossing, 7e-7, f"alike at {crossing:.2g}", color=COLORS["muted"], va="bottom")
        further = sum(scaled[name] > 1.05 * given[name] for name in given)
        alike = sum(abs(scaled[name] / given[name] - 1) <= 0.05 for name in given)
        shorter = len(given) - further - alike
        ax.set_title(f"Compared to Trainer, torch moves {further} tensors further, {shorter} less far")
        return self.fig, (
            f"RMS of the first move against the RMS of what is moved, for {len(given)} tensors, both axes logarithmic. "
            f"With the rate taken as given all move by about {rate:.2g}. In torch with lr = {lr:.3g} the move grows "
            f"with the size; both would be alike at size {crossing:.2g}. torch moves {further} tensors further, "
            f"{shorter} less far, {alike} as far within 5 per cent."
        )
