"""Pictures of a matrix kept as its row and column means: the four steps, and product against matrix."""

from __future__ import annotations

from collections.abc import Callable
from math import log10

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

from course_lib import figures
from course_lib.diagrams.fit_quality import describe, log2_ratio, percent, share_within

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Second moments of a made-up matrix: striped, as real ones are, but not perfectly.
EXAMPLE = [[0.4, 0.4, 0.8, 0.3, 0.6], [1.2, 2.0, 5.6, 1.2, 2.2], [6.0, 3.2, 22.0, 1.3, 2.5], [1.8, 1.3, 2.3, 0.4, 1.5]]
BAR, GAP = 0.28, 0.03  # the longest margin bar and its distance, as shares of the matrix's width or height
FULL = 1 + GAP + BAR


class Margins:
    """Bars beside the rows (green) and above the columns (orange) of a heatmap, drawn on the heatmap's own axes."""

    def __init__(self, ax: Axes, norm: Normalize) -> None:
        self.norm = norm
        self.rows, self.cols = (
            ax.add_collection(PolyCollection([], facecolor=figures.COLORS[name]), autolim=False)
            for name in ("row", "col")
        )
        text = {"fontweight": "bold", "fontsize": 13, "transform": ax.transAxes, "x": (1 + GAP) / FULL}
        ax.text(y=(1 + 1.3 * GAP) / FULL, s="R", color=figures.COLORS["row"], va="bottom", **text)
        ax.text(y=1, s="C", color=figures.COLORS["col"], va="top", **text)

    def update(self, row, col) -> None:
        """Show row values, shape ``[n]``, and column values, shape ``[m]``."""
        n, m = len(row), len(col)
        left, bottom = m * (1 + GAP) - 0.5, -0.5 - n * GAP
        half = 0.4 if max(n, m) <= 40 else 0.5  # gaps between very narrow bars would only shimmer
        self.rows.set_verts([_box(left, i - half, left + m * x, i + half) for i, x in enumerate(self._length(row))])
        self.cols.set_verts([_box(j - half, bottom, j + half, bottom - n * y) for j, y in enumerate(self._length(col))])

    def _length(self, values) -> np.ndarray:
        return BAR * np.clip(self.norm(figures.as_array(values)), 0.02, 1.0)


def leave_room(ax: Axes, shape: tuple[int, int]) -> None:
    """Leave room for margin bars to the right of and above a heatmap of that shape."""
    n, m = shape
    ax.set(xlim=(-0.5, m * FULL - 0.5), ylim=(n - 0.5, n - 0.5 - n * FULL))


class Comparison:
    """A matrix, the product of its margins and the ratio of the two, side by side. Further calls redraw quickly.

    Args:
        vmin, vmax: ends of the logarithmic scale that the colours of V and V̂ and the margins' bars share. Without
            them each call takes a scale that fits all but the smallest hundredth of V's positive entries.
        reach: the colours of the ratio end at ``2 ** reach`` times too large and too small.
        numbers: write the numbers into the cells; every call then needs the same shape.
    """

    def __init__(
        self, vmin: float | None = None, vmax: float | None = None, *, reach: float = 3.0, numbers: bool = False
    ) -> None:
        self.limits = None if vmin is None else (vmin, vmax)
        self.reach, self.numbers = reach, numbers
        self.fig: Figure | None = None
        self.shape: tuple[int, ...] = ()

    def __call__(self, V: Tensor, V_hat: Tensor) -> tuple[Figure, str]:
        """Draw ``V`` and ``V_hat``, both ``[n, m]``; returns the figure, always the same one, and what it shows."""
        ratio = log2_ratio(V, V_hat)
        matrices = (V, V_hat, ratio.clamp(-2 * self.reach, 2 * self.reach))
        if self.fig is None:
            self._build(matrices)
        if self.limits is None:
            self.norm.vmin, self.norm.vmax = np.quantile(figures.as_array(V[V > 0]), (0.01, 1.0))
            plain_ticks(self.bar, plain_power)  # a new scale has brought matplotlib's own back
        if V.shape != self.shape:
            self._fit_shape(*V.shape)
        for heatmap, matrix in zip(self.heatmaps, matrices, strict=True):
            heatmap.update(matrix)
        for margins, matrix in zip(self.margins, matrices[:2], strict=True):
            margins.update(matrix.mean(-1), matrix.mean(-2))
        self.note.set_text(f"{percent(share_within(ratio))} of the entries\nwithin a factor of two")
        return self.fig, describe(V, V_hat, ratio)

    def _build(self, matrices: tuple[Tensor, ...]) -> None:
        self.fig, axes = figures.subplots(1, 3, width=8.0, height=3.7, width_ratios=(FULL, FULL, 1))
        titles = ("V, the matrix", "V̂, the product", "log₂(V̂ / V), the error")
        specs = (".2g", ".2g", "+.1f")
        scales = ({"scale": "log"}, {"scale": "log"}, {"scale": "diverging", "vmax": self.reach})
        self.heatmaps = [
            figures.heatmap(ax, matrix, title, numbers=self.numbers and spec, colorbar=None, **scale)
            for ax, matrix, title, spec, scale in zip(axes, matrices, titles, specs, scales, strict=True)
        ]
        self.norm = LogNorm(*(self.limits or (1.0, 2.0)), clip=True)
        for heatmap in self.heatmaps[:2]:
            heatmap.image.set_norm(self.norm)
        self.margins = [Margins(ax, self.norm) for ax in axes[:2]]
        for ax in axes:
            ax.set(xticks=[], yticks=[])
        self.note = axes[2].text(0, 1, "", va="top", linespacing=1.4, transform=axes[2].transAxes)
        self.bar = self._colorbar(0, axes[:2], "entries of V and V̂; length of the bars: means R and C")
        plain_ticks(self.bar, plain_power)
        plain_ticks(self._colorbar(2, axes[2:], "too small  ←  →  too large"), plain_signed)
        if self.limits is not None:  # else the colour bar's numbers change, too
            changing = [artist for heatmap in self.heatmaps for artist in (heatmap.image, *heatmap.texts)]
            for artist in (*changing, *(bars for one in self.margins for bars in (one.rows, one.cols)), self.note):
                artist.set_animated(True)

    def _fit_shape(self, n: int, m: int) -> None:
        self.shape = (n, m)
        for heatmap in self.heatmaps:
            heatmap.image.set_extent((-0.5, m - 0.5, n - 0.5, -0.5))
            leave_room(heatmap.ax, self.shape)
        self.heatmaps[2].ax.set_xlim(-0.5, m - 0.5)

    def _colorbar(self, index: int, axes, label: str) -> Colorbar:
        image = self.heatmaps[index].image
        bar = self.fig.colorbar(
            image, ax=list(axes), label=label, orientation="horizontal", aspect=18 * len(axes), pad=0.04
        )
        bar.outline.set_visible(False)
        return bar


def side_by_side(V: Tensor, V_hat: Tensor, *, numbers: bool = False) -> tuple[Figure, str]:
    """A :class:`Comparison` of two matrices ``[n, m]`` that stands alone."""
    return Comparison(numbers=numbers)(V, V_hat)


def four_steps() -> tuple[Figure, str]:
    """How a matrix of second moments gives way to its sums: matrix, sums, what is stored, product."""
    v = np.array(EXAMPLE)
    row, col = v.sum(1), v.sum(0)
    fig, axes = figures.subplots(1, 4, width=8.0, height=2.9)
    norm, bars = LogNorm(v.min(), v.max()), LogNorm(col.min() / 3, row.max())
    steps = (
        ("1  The matrix V", v, "4 × 5 = 20\nsecond moments"),
        ("2  Its sums", v, "R: one for each row\nC: one for each column"),
        ("3  V is not stored", None, "the sums are:\n4 + 5 = 9 numbers"),
        ("4  Their product", np.outer(row, col) / v.sum(), "over the total,\nstands in for V"),
    )
    for ax, (title, matrix, below) in zip(axes, steps, strict=True):
        ax.axis("off")
        ax.set_title(title, fontweight="bold")
        if matrix is not None:
            ax.imshow(matrix, norm=norm, cmap=figures.SEQUENTIAL, aspect="auto", interpolation="nearest")
        leave_room(ax, v.shape)
        if ax is not axes[0]:
            Margins(ax, bars).update(row, col)
        ax.text(2, 3.7, below, ha="center", va="top", linespacing=1.3)
    left, right, top, bottom = -0.45, 4.45, -0.45, 3.45
    axes[2].plot([left, right, right, left, left], [top, top, bottom, bottom, top], "--", color=figures.COLORS["muted"])
    for corners in ((top, bottom), (bottom, top)):
        axes[2].plot([left, right], corners, color=figures.COLORS["state"], lw=3)
    return fig, (
        "Four steps. 1: a matrix V of 4 rows and 5 columns, 20 second moments. 2: beside each row its sum R as a green "
        "bar, above each column its sum C as an orange bar. 3: V is crossed out; only the 4 + 5 = 9 sums are stored. "
        "4: row sum times column sum, over the total, fills each of the 20 places again and stands in for V."
    )


def plain_ticks(bar: Colorbar, plain: Callable[[float], str]) -> None:
    """Plain text at the ticks: matplotlib sets powers of ten as formulas, which makes a redraw take twice as long."""
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))


def plain_power(value: float) -> str:
    """A power of ten: 0.1, 100, 10⁻⁶."""
    if 0.005 < value < 500:
        return f"{value:g}"
    return f"10{str(round(log10(value))).translate(SUPERSCRIPTS)}"


def plain_signed(value: float) -> str:
    """A number with its sign: −2, 0, +2."""
    return f"{value:+g}".replace("-", "−") if value else "0"


def _box(x0: float, y0: float, x1: float, y1: float) -> list[tuple[float, float]]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
