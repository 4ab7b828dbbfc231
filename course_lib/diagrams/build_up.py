"""From SGD to Adam: what each optimizer makes of the gradient G, with the two averages marked where they come in."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from course_lib.figures import COLORS

WIDTH = 8.0  # all in inches, as the figure's only axes are
UPPER, LOWER = 1.35, 0.42  # heights of the lanes of M and of V in a row, from its bottom
LABELS, G, SQUARE, FIRST, SECOND, ROOT, DIVIDE, U = 0.08, 2.05, 3.05, 3.9, 4.45, 5.8, 6.65, 7.55


@dataclass(frozen=True)
class Row:
    """One optimizer: which of the two averages it keeps, and what that comes to."""

    name: str
    first: bool
    second: bool
    kept: str

    @property
    def height(self) -> float:
        return 1.95 if self.second else 1.15


ROWS = (
    Row("SGD", first=False, second=False, kept="keeps nothing"),
    Row("momentum", first=True, second=False, kept="keeps M"),
    Row("RMSProp", first=False, second=True, kept="keeps V"),
    Row("Adam", first=True, second=True, kept="keeps M and V"),
)


def flow(name: str) -> tuple[Figure, str]:
    """The way from G to U in one optimizer: SGD, momentum, RMSProp or Adam."""
    return _draw([next(row for row in ROWS if row.name == name)])


def adam_build_up() -> tuple[Figure, str]:
    """All four, one below the other."""
    return _draw(ROWS)


def _draw(rows) -> tuple[Figure, str]:
    height = sum(row.height for row in rows)
    fig = Figure(figsize=(WIDTH, height))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(0, height))
    ax.axis("off")
    top = height
    for row in rows:
        top -= row.height
        _draw_row(ax, row, top - (0 if row.second else LOWER + 0.4))
    return fig, " ".join(_describe(row) for row in rows)


def _draw_row(ax: Axes, row: Row, bottom: float) -> None:
    upper, lower = bottom + UPPER, bottom + LOWER
    ax.text(LABELS, upper + 0.12, row.name, fontsize=13, fontweight="bold", va="center")
    ax.text(LABELS, upper - 0.2, row.kept, fontsize=10.5, va="center", color=COLORS["muted"])
    _box(ax, G, upper, "G", "gradients", kept=False)
    _box(ax, U, upper, "U", "adafactor", kept=False)
    if row.first:
        _arrow(ax, (G + 0.3, upper), (FIRST - 0.62, upper))
        _box(ax, FIRST, upper, "M: EMA of G", "state", width=1.24)
        _mark(ax, FIRST - 0.66, FIRST + 0.66, upper + 0.36, "first moment", COLORS["state"])
    onward = FIRST + 0.62 if row.first else G + 0.3
    if not row.second:
        _arrow(ax, (onward, upper), (U - 0.3, upper))
        return
    _arrow(ax, (onward, upper), (DIVIDE - 0.19, upper))
    ax.add_patch(Circle((DIVIDE, upper), 0.19, facecolor="white", edgecolor=COLORS["ink"], linewidth=1.5))
    ax.text(DIVIDE, upper, "÷", ha="center", va="center", fontsize=14)
    _arrow(ax, (DIVIDE + 0.19, upper), (U - 0.3, upper))
    ax.plot([G, G], [upper - 0.2, lower], color=COLORS["ink"], linewidth=1.5)
    _arrow(ax, (G, lower), (SQUARE - 0.3, lower))
    _box(ax, SQUARE, lower, "G²", "muted", kept=False)
    _arrow(ax, (SQUARE + 0.3, lower), (SECOND - 0.66, lower))
    _box(ax, SECOND, lower, "V: EMA of G²", "state", width=1.32)
    _mark(ax, SQUARE - 0.34, SECOND + 0.7, lower + 0.36, "second moment", COLORS["state"])
    _arrow(ax, (SECOND + 0.66, lower), (ROOT - 0.3, lower))
    _box(ax, ROOT, lower, "√V", "muted", kept=False)
    ax.plot([ROOT + 0.3, DIVIDE], [lower, lower], color=COLORS["ink"], linewidth=1.5)
    _arrow(ax, (DIVIDE, lower), (DIVIDE, upper - 0.19))


def _box(ax: Axes, x: float, y: float, text: str, color: str, width: float = 0.6, kept: bool = True) -> None:
    """A box around a middle. A solid line stands for what is kept until the next step, a dashed one for what is not."""
    corner = (x - width / 2 + 0.05, y - 0.15)
    look = {"facecolor": to_rgba(COLORS[color], 0.2), "edgecolor": COLORS[color], "linestyle": "-" if kept else "--"}
    ax.add_patch(FancyBboxPatch(corner, width - 0.1, 0.3, boxstyle="round,pad=0.05", linewidth=1.6, **look))
    ax.text(x, y, text, ha="center", va="center", fontsize=11.5)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "color": COLORS["ink"], "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)


def _mark(ax: Axes, left: float, right: float, y: float, label: str, color: str) -> None:
    ax.plot([left, left, right, right], [y - 0.09, y, y, y - 0.09], color=color, linewidth=1.5)
    ax.text(
        (left + right) / 2, y, label, ha="center", va="center", fontsize=10.5, fontweight="bold", color=color,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )  # fmt: skip


def _describe(row: Row) -> str:
    above = "M, the EMA of G (marked: first moment)," if row.first else "G"
    below = " divided by the root of V, the EMA of G² (marked: second moment)," if row.second else ""
    return f"{row.name} {row.kept}: {above}{below} becomes U."
