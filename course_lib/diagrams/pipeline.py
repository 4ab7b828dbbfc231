"""Adafactor's way from gradient to new parameters, as one picture whose blanks fill up as the numbers are computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib import factored
from course_lib.figures import COLORS

# All in inches, as the figure's only axes are.
WIDTH, HEIGHT = 8.0, 4.7
CELL_WIDTH, CELL_HEIGHT = 0.66, 0.34  # one entry of a matrix
COLUMNS = (1.0, 3.0, 5.0, 7.0)
UPPER, LOWER = 3.04, 1.0
LANE = 2.02  # the way from V̂ back to the left
FAINT = "#B0B0B0"


@dataclass(frozen=True)
class Stage:
    """One matrix on the way: where it stands, the numbers it shows, its color, and the words above and below it."""

    column: int
    row: float
    needs: tuple[str, ...]
    color: str
    title: str
    formula: str


STAGES = (
    Stage(0, UPPER, ("G",), "gradients", "1  gradient", "G"),
    Stage(1, UPPER, ("squared",), "muted", "2  square", "G² + ε₁"),
    Stage(2, UPPER, ("R", "C"), "row", "3  average", "means of rows, columns"),
    Stage(3, UPPER, ("V_hat",), "muted", "4  multiply", r"$\hat{V}$ = R · C / mean(R)"),
    Stage(0, LOWER, ("U",), "adafactor", "5  divide", r"U = G / $\sqrt{\hat{V}}$"),
    Stage(1, LOWER, ("clipped",), "adafactor", "6  clip", "U / max(1, RMS(U) / d)"),
    Stage(2, LOWER, ("step",), "adafactor", "7  scale", "α U,  where\n" r"α = $\rho_t$ · max(ε₂, RMS(X))"),
    Stage(3, LOWER, ("X",), "weights", "8  subtract", "new X = X − α U"),
)


def draw(**computed: Tensor) -> tuple[Figure, str]:
    """The eight stages. A stage shows its numbers once they are given; the newest one is framed.

    Args:
        **computed: of one 2 × 2 parameter, what is known so far: ``G``, ``squared``, ``V_hat``, ``U``,
            ``clipped``, ``step`` and the new ``X``, each ``[2, 2]``; row means ``R`` and column means ``C``,
            each ``[2]``.

    Returns:
        The figure and its description.
    """
    fig = Figure(figsize=(WIDTH, HEIGHT))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    ax.axis("off")
    known = [stage for stage in STAGES if all(name in computed for name in stage.needs)]
    for stage in STAGES:
        _draw_stage(ax, stage, computed if stage in known else {})
    for stage in STAGES[1:]:
        _lead_to(ax, stage, COLORS["ink"] if stage in known else FAINT)
    if known:
        corner = (COLUMNS[known[-1].column] - 0.97, known[-1].row - 0.9)
        ax.add_patch(Rectangle(corner, 1.94, 1.83, fill=False, edgecolor=COLORS["adafactor"], linewidth=2))
    if STAGES[2] in known:
        _bracket(ax, 4.1, 5.9, UPPER + 1.1, "EMA, decay β₂(t)", COLORS["row"])
    if STAGES[3] in known:
        _bracket(ax, 2.1, 7.9, UPPER + 1.45, "second moment: kept as R and C, written out for a moment", COLORS["ink"])
    return fig, _describe(known, computed)


def adafactor_pipeline() -> tuple[Figure, str]:
    """The whole way of X = [[1, 2], [3, 4]] with G = X / 10, at the first step and with the paper's settings."""
    X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    G = X / 10
    squared = G.square() + 1e-30
    R, C = factored.row_col_means(squared)  # β₂(1) = 0: the averages are these means
    V_hat = factored.reconstruct(R, C)
    U = G / V_hat.sqrt()
    clipped = U / U.square().mean().sqrt().clamp(min=1.0)
    step = 1e-2 * X.square().mean().sqrt() * clipped
    return draw(G=G, squared=squared, R=R, C=C, V_hat=V_hat, U=U, clipped=clipped, step=step, X=X - step)


def _draw_stage(ax: Axes, stage: Stage, computed: dict[str, Tensor]) -> None:
    x, y = COLUMNS[stage.column], stage.row
    ink = COLORS["ink"] if computed else FAINT
    ax.text(x, y + 0.72, stage.title, ha="center", va="center", fontweight="bold", fontsize=12, color=ink)
    ax.text(x, y - 0.72, stage.formula, ha="center", va="center", fontsize=10, color=ink)
    if stage.needs == ("R", "C"):
        _draw_margins(ax, x - 0.93, y - 0.52, computed)
        return
    matrix = computed.get(stage.needs[0])
    # Solid lines for what lasts, dashed ones for what each step makes anew, the gradient among it.
    line = "-" if stage.color == "weights" else "--"
    for i, j in np.ndindex(2, 2):
        corner = (x + (j - 1) * CELL_WIDTH, y - i * CELL_HEIGHT)
        _draw_cell(ax, corner, None if matrix is None else matrix[i, j], stage.color, line)


def _draw_margins(ax: Axes, left: float, bottom: float, computed: dict[str, Tensor]) -> None:
    """Column means above and row means to the right of where the matrix would be, which is not there."""
    size = (2 * CELL_WIDTH, 2 * CELL_HEIGHT)
    ax.add_patch(Rectangle((left, bottom), *size, fill=False, edgecolor=FAINT, linestyle=":"))
    middle = (left + CELL_WIDTH, bottom + CELL_HEIGHT)
    ax.text(*middle, "no matrix kept", ha="center", va="center", fontsize=10, color=FAINT)
    for k in range(2):
        row, col = (computed[name][k] if computed else None for name in ("R", "C"))
        _draw_cell(ax, (left + size[0], bottom + (1 - k) * CELL_HEIGHT), row, "row", "-", width=0.54)
        _draw_cell(ax, (left + k * CELL_WIDTH, bottom + size[1]), col, "col", "-")
    for x, y, name, color in (
        (left + size[0] + 0.41, bottom + 2.45 * CELL_HEIGHT, "R", "row"),
        (left + size[0] + 0.11, bottom + 2.45 * CELL_HEIGHT, "C", "col"),
    ):
        ax.text(x, y, name, ha="center", va="center", fontweight="bold", color=COLORS[color] if computed else FAINT)


def _draw_cell(
    ax: Axes, corner: tuple[float, float], value: Tensor | None, color: str, line: str, width: float = CELL_WIDTH
) -> None:
    edge = FAINT if value is None else COLORS[color]
    face = to_rgba(edge, 0.0 if value is None else 0.18)
    ax.add_patch(Rectangle(corner, width, CELL_HEIGHT, facecolor=face, edgecolor=edge, linestyle=line, linewidth=1.5))
    if value is not None:
        middle = (corner[0] + width / 2, corner[1] + CELL_HEIGHT / 2)
        ax.text(*middle, _text(value), ha="center", va="center", fontsize=10.5)


def _lead_to(ax: Axes, stage: Stage, color: str) -> None:
    """The arrows that end at a stage."""
    x, y = COLUMNS[stage.column], stage.row
    if stage.column > 0:
        start, end = -1.3, -0.7
        if stage.needs == ("R", "C"):
            end = -0.95
        elif stage.needs == ("V_hat",):
            start = -0.9
        _arrow(ax, (x + start, y), (x + end, y), color)
        return
    # U needs two things: G from above, and V̂ from the far right.
    _arrow(ax, (0.75, UPPER - 0.86), (0.75, LOWER + 0.84), color)
    ax.plot([7.0, 7.0, 1.25], [UPPER - 0.92, LANE, LANE], color=color, linewidth=1.5, solid_joinstyle="round")
    _arrow(ax, (1.25, LANE), (1.25, LOWER + 0.84), color)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], color: str) -> None:
    look = {"arrowstyle": "-|>", "color": color, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)


def _bracket(ax: Axes, left: float, right: float, y: float, label: str, color: str) -> None:
    ax.plot([left, left, right, right], [y - 0.1, y, y, y - 0.1], color=color, linewidth=1.5)
    ax.text(
        (left + right) / 2, y, label, ha="center", va="center", fontsize=11, color=color, fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip


def _describe(known: list[Stage], computed: dict[str, Tensor]) -> str:
    shown = "; ".join(
        f"{stage.title.replace('  ', ' ')}: {' and '.join(_text(computed[name]) for name in stage.needs)}"
        for stage in known
    )
    marks = [
        mark for stage, mark in ((STAGES[2], "3 as EMA"), (STAGES[3], "2 to 4 as second moment")) if stage in known
    ]
    return f"Eight stages lead from the gradient G to the new parameters X. Filled in so far: {shown}." + (
        f" Marked: {', '.join(marks)}." if marks else ""
    )


def _text(values: Tensor) -> str:
    if values.ndim == 0:
        return f"{round(float(values), 4):g}"
    return f"[{', '.join(_text(value) for value in values)}]"
