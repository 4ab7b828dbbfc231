"""The plane of all optimizers: state elements per parameter against bits per element."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from course_lib import figures, planner
from course_lib.figures import COLORS

Point = tuple[float, float]  # state elements per parameter, bits per element

LOOKS = {  # color, marker, where the label stands from the point, in points, and its alignment
    "AdamW": ("adamw", "o", (10, 12), "left"),
    "8-bit Adam": ("adam8bit", "s", (0, -22), "center"),
    "SGD with momentum": ("muted", "^", (-10, 14), "right"),
    "Adafactor": ("adafactor", "D", (0, -25), "center"),
}
BYTES_PER_PARAMETER = (0.01, 0.1, 1, 4, 8)


class Plane:
    """The plane with the optimizers on it, one of which can move.

    Args:
        points: for each name of ``LOOKS`` its place.
    """

    def __init__(self, points: Mapping[str, Point]) -> None:
        self.points = dict(points)
        self.fig, self.ax = figures.subplots(height=4.4)
        ax = self.ax
        ax.set(xscale="log", yscale="log", xlim=(8e-4, 12), ylim=(3.2, 75))
        ax.set(xlabel="state elements per parameter", ylabel="bits per element")
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.yaxis.set_major_locator(FixedLocator([4, 8, 16, 32, 64]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        for size in BYTES_PER_PARAMETER:
            ax.plot([8 * size / 75, 8 * size / 3.2], [75, 3.2], ":", color=COLORS["muted"], linewidth=1, zorder=0)
            # Along the lower edge for the small ones, along the right one for the others.
            x = min(8 * size / 3.6, 9.5)
            ax.text(
                x, 8 * size / x, f"{size:g} B", fontsize=10, color=COLORS["muted"], ha="center", va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        ax.text(0.0009, 3.55, "dotted: equal bytes\nper parameter", fontsize=10, color=COLORS["muted"], va="bottom")
        self.markers, self.labels = {}, {}
        for name, point in self.points.items():
            color, marker, offset, side = LOOKS[name]
            (self.markers[name],) = ax.plot(*point, marker, color=COLORS[color], markersize=11, zorder=3)
            self.labels[name] = ax.annotate(
                self._label(name), point, offset, textcoords="offset points", ha=side, va="center",
                color=COLORS[color], linespacing=1.2, zorder=4,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )  # fmt: skip
        ax.set_title("Two ways to save: fewer numbers (to the left), fewer bits for each (down)")

    def _label(self, name: str) -> str:
        elements, bits = self.points[name]
        return f"{name}\n{elements * bits / 8:.3g} B"

    def move(self, elements: Mapping[str, float], title: str) -> tuple[Figure, str]:
        """Put optimizers elsewhere on the horizontal axis, and name what the plane is drawn for.

        Args:
            elements: state elements per parameter, for the names that are to move.
            title: what the points are for, such as the shape of a matrix.
        """
        for name, x in elements.items():
            self.points[name] = (x, self.points[name][1])
            self.markers[name].set_xdata([x])
            self.labels[name].xy = self.points[name]
            self.labels[name].set_text(self._label(name))
        self.ax.set_title(title)
        return self.fig, f"{title}. {self.describe()}"

    def describe(self) -> str:
        """The points in words."""
        told = (f"{name} {x:.3g} × {bits:.4g} = {x * bits / 8:.3g}" for name, (x, bits) in self.points.items())
        return f"State elements × bits, and bytes, per parameter: {'; '.join(told)} bytes."


def trade_off(points: Mapping[str, Point] | None = None) -> tuple[Figure, str]:
    """The plane, standing still; without ``points`` for one 1024 × 512 matrix."""
    if points is None:
        adamw, momentum, adafactor = (
            planner.elements_per_parameter((1024, 512), kind) for kind in ("adamw", "sgd_momentum", "adafactor")
        )
        points = {
            "AdamW": (adamw, 32),
            "8-bit Adam": (adamw, 8 + 32 / 256),
            "SGD with momentum": (momentum, 32),
            "Adafactor": (adafactor, 32),
        }
    plane = Plane(points)
    return plane.fig, plane.describe()
