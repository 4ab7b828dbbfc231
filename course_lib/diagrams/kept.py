"""What optimizers keep for one matrix: every number as a square, or as a box with an area for its bytes."""

from __future__ import annotations

from math import ceil, prod

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib import memory
from course_lib.figures import COLORS

Shapes = dict[str, tuple[int, ...]]

WIDTH = 8.0
PER_INCH = 8.2  # squares to the inch


def squares(weights: tuple[int, int], kept: dict[str, Shapes], rows: int) -> tuple[Figure, str]:
    """A matrix of weights and what two optimizers keep for it, one square for each number.

    Args:
        weights: shape of the matrix, ``(n, m)``.
        kept: for each optimizer's name the shapes in its state, by key: first of one that keeps whole matrices, then of
            one that keeps a number for each row (in a key that ends in "row") and for each column ("col").
        rows: leave room for so many rows.
    """
    n, m = weights
    height = rows / PER_INCH + 1.2
    fig = Figure(figsize=(WIDTH, height))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH * PER_INCH), ylim=(height * PER_INCH - 7, -7))  # in squares, downwards from the top row
    ax.axis("off")
    _head(ax, 0.5, "the layer", f"{n * m:,} weights")
    _grid(ax, 0.5, 0, n, m, COLORS["weights"])
    left, told = m + 2.5, [f"{n} × {m} = {n * m:,} weights"]
    for (name, shapes), color in zip(kept.items(), ("adamw", "adafactor"), strict=True):
        total = sum(prod(shape) for shape in shapes.values())
        _head(ax, left, name, f"keeps {total:,} numbers", COLORS[color])
        parts = ", ".join(f"{key} {' × '.join(map(str, shape)) or '1'}" for key, shape in shapes.items())
        told.append(f"{name} keeps {total:,} numbers ({parts})")
        left = _state(ax, left, shapes, (n, m), COLORS[color]) + 2
    return fig, f"One square for each number. {'; '.join(told)}."


def _state(ax: Axes, left: float, shapes: Shapes, weights: tuple[int, int], color: str) -> float:
    """Draw one optimizer's state from ``left`` on, and return where it ends."""
    n, m = weights
    for key, shape in shapes.items():
        if len(shape) == 2:
            ax.text(left, -1.5, key, fontsize=10)
            _grid(ax, left, 0, n, m, color)
            left += m + 1
        elif key.endswith("col"):
            # Above the matrix that is not there, as the row numbers stand beside it.
            ax.text(left + 1.4, -1.5, key, fontsize=10)
            _grid(ax, left + 1.4, 0, 1, m, COLORS["col"])
        elif key.endswith("row"):
            _grid(ax, left, 1.4, n, 1, COLORS["row"])
            ax.add_patch(Rectangle((left + 1.4, 1.4), m, n, fill=False, linestyle=":", edgecolor=COLORS["muted"]))
            label, y = (f"← {key}", n / 2 + 1.4) if n > 2 else (f"↑ {key}", n + 2.9)
            ax.text(left + (1.8 if n > 2 else 0.2), y, label, fontsize=10, va="center")
    if "step" in shapes:
        place = left if any(len(shape) == 2 for shape in shapes.values()) else left + 1.4 + m + 1
        ax.text(place, -1.5, "step", fontsize=10)
        _grid(ax, place, 0, 1, 1, color)
        left = place + 3
    return left


def _head(ax: Axes, x: float, name: str, words: str, color: str = COLORS["ink"]) -> None:
    ax.text(x, -5.4, name, fontsize=12, fontweight="bold", color=color, va="center")
    ax.text(x, -3.7, words, fontsize=11, va="center")


def _grid(ax: Axes, left: float, top: float, n: int, m: int, color: str) -> None:
    corner = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    places = np.array([(left + j, top + i) for i in range(n) for j in range(m)])
    ax.add_collection(
        PolyCollection(places[:, None, :] + corner, facecolor=color, edgecolor="white", linewidth=0.8),
        autolim=False,
    )


def three_optimizers(shape: tuple[int, int] = (1024, 512), block: int = 256) -> tuple[Figure, str]:
    """AdamW, 8-bit Adam and Adafactor side by side: what each keeps for one matrix, with areas for bytes.

    Args:
        shape: of the matrix.
        block: for 8-bit Adam, how many numbers share one 32-bit scale.
    """
    n, m = shape
    layer = torch.nn.Linear(m, n, bias=False, device="meta")
    adamw = memory.predict_state_size(layer, "adamw").moments
    few = memory.predict_state_size(layer, "adafactor").moments
    scales = 2 * ceil(n * m / block)
    columns = (  # name, color, left edge in inches, what is kept, bytes
        ("AdamW", "adamw", 0.15, f"2 × {adamw // 2:,} numbers\nof 32 bits", 4 * adamw),
        (
            "8-bit Adam",
            "adam8bit",
            3.4,
            f"2 × {adamw // 2:,} numbers of 8 bits\nand 2 × {scales // 2:,} scales of 32 bits",
            adamw + 4 * scales,
        ),
        ("Adafactor", "adafactor", 6.2, f"{n:,} + {m:,} numbers\nof 32 bits", 4 * few),
    )
    top, height, width = 0.85, 2.1, 1.4  # inches; a whole matrix in 32 bits has this height and width
    fig = Figure(figsize=(WIDTH, 4.45))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(4.45, 0))
    ax.axis("off")
    told = []
    for name, color, left, kept, size in columns:
        ax.text(left, 0.25, name, fontsize=13, fontweight="bold", color=COLORS[color], va="center")
        ax.text(left, top + height + 0.17, kept, fontsize=10.5, va="top", linespacing=1.35)
        ax.text(left, top + height + 0.83, _amount(size), fontsize=12, fontweight="bold", va="center")
        told.append(f"{name}: {kept}, {_amount(size)}".replace("\n", " "))
    for i, key in enumerate(("exp_avg", "exp_avg_sq")):
        _box(ax, columns[0][2] + 1.55 * i, top, width, height, COLORS["adamw"], key)
        x = columns[1][2] + 1.25 * i
        _box(ax, x, top, width / 4, height, COLORS["adam8bit"], key)
        ax.plot([x + width / 4 + 0.06] * 2, [top, top + height], color=COLORS["adam8bit"], linewidth=1)
        ax.text(x + width / 4 + 0.12, top + 0.2, "scales", fontsize=10, color=COLORS["muted"])
    x = columns[2][2]
    look = {"fill": False, "linestyle": ":", "edgecolor": COLORS["muted"]}
    ax.add_patch(Rectangle((x + 0.08, top + 0.08), width, height - 0.08, **look))
    ax.plot([x, x], [top + 0.08, top + height], color=COLORS["row"], linewidth=2)
    ax.plot([x + 0.08, x + 0.08 + width], [top, top], color=COLORS["col"], linewidth=2)
    ax.text(x + 0.08, top - 0.16, "exp_avg_sq_col", fontsize=10, va="center")
    ax.text(x + 0.12, top + height / 2, "← exp_avg_sq_row", fontsize=10, va="center")
    note = "Area stands for bytes. The thin lines are drawn wider than their bytes, to be seen at all."
    ax.text(columns[0][2], 4.27, note, fontsize=10, color=COLORS["muted"], va="center")
    return fig, f"What three optimizers keep for one {n:,} × {m:,} matrix, area for bytes. {'; '.join(told)}."


def _box(ax: Axes, x: float, y: float, width: float, height: float, color: str, label: str) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="none"))
    ax.text(x, y - 0.16, label, fontsize=10, va="center")


def _amount(size: int) -> str:
    return f"{size / 2**20:.3g} MiB" if size >= 2**17 else f"{size / 2**10:.3g} KiB"
