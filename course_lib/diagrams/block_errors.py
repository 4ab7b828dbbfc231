"""What is left of numbers after 8 bits: the relative error of each, block by block."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

from course_lib import blockwise, figures
from course_lib.figures import COLORS

SIDE = 16  # a square of 16 × 16 numbers, which is a block of 256
SQUARES = 4
LOW, HIGH = 1e-3, 1.0  # ends of the scale of errors


class Blocks:
    """Four squares of 256 numbers each, kept with the linear map (above) and the dynamic one (below).

    Each call quantizes the numbers and shows the relative error of every one. Further calls redraw the same picture.

    Args:
        marked: place of a number that gets a frame.
    """

    def __init__(self, marked: int) -> None:
        self.marked = marked
        self.fig, axes = figures.subplots(2, SQUARES, width=8.0, height=5.0)
        self.images, self.notes, self.edges = [], [], []
        look = {"cmap": colormaps[figures.SEQUENTIAL].reversed(), "norm": LogNorm(LOW, HIGH, clip=True)}
        for row, kind in enumerate(blockwise.KINDS[::-1]):
            for column, ax in enumerate(axes[row]):
                image = ax.imshow(np.full((SIDE, SIDE), LOW), interpolation="nearest", **look)
                ax.set(xticks=[], yticks=[])
                ax.spines[:].set_visible(False)
                if row == 0:
                    ax.set_title(f"numbers {256 * column}–{256 * column + 255}", fontsize=11, loc="center")
                if column == 0:
                    ax.set_ylabel(f"{kind} map", fontsize=12)
                self.images.append(image)
                self.notes.append(ax.text(7.5, 16.2, "", ha="center", va="top", fontsize=10, linespacing=1.3))
                self.edges.append(ax.add_collection(LineCollection([], color="white", linewidth=2), autolim=False))
                if column == marked // SIDE**2:
                    corner = (marked % SIDE - 0.5, marked % SIDE**2 // SIDE - 0.5)
                    ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=COLORS["state"], linewidth=2.5))
        bar = self.fig.colorbar(self.images[0], ax=axes, label="relative error", fraction=0.04, pad=0.02)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_minor_locator(NullLocator())
        # Errors below the scale, down to none at all, have the color of its end.
        bar.ax.yaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{'≤ ' if value <= LOW else ''}{100 * value:g} %")
        )

    def __call__(self, x: Tensor, block_size: int, title: str) -> tuple[Figure, str]:
        """Show 4 × 256 numbers, none of which is 0.

        Args:
            x: shape ``[1024]``.
            block_size: how many of them share one scale.
            title: what is seen.
        """
        self.fig.suptitle(title, x=0.01, ha="left", fontsize=12)
        told = []
        for row, kind in enumerate(blockwise.KINDS[::-1]):
            back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
            errors = ((back - x) / x).abs().reshape(SQUARES, SIDE, SIDE)
            zeros = (back == 0).reshape(SQUARES, -1).sum(1).tolist()
            medians = errors.reshape(SQUARES, -1).median(1).values.tolist()
            for column in range(SQUARES):
                place = row * SQUARES + column
                self.images[place].set_data(figures.as_array(errors[column]))
                self.notes[place].set_text(f"{zeros[column]} became zero\ntypical error {percent(medians[column])}")
                self.edges[place].set_segments(_borders(block_size))
            errors_told = ", ".join(percent(median) for median in medians)
            told.append(f"{kind} map: {_listed(zeros)} became zero, typical relative errors {errors_told}")
        return self.fig, (
            f"{title}. Relative error of 4 × 256 numbers as four heatmaps for each map. {'; '.join(told)}. "
            f"A frame marks number {self.marked}."
        )


def _borders(block_size: int) -> list[list[tuple[float, float]]]:
    """Lines between the blocks inside a square, where several fit into one."""
    rows = range(block_size // SIDE, SIDE, max(block_size // SIDE, 1))
    return [[(-0.5, row - 0.5), (SIDE - 0.5, row - 0.5)] for row in rows]


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def percent(share: float) -> str:
    """A share in percent, with two digits."""
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"
