"""An elongated valley, turned or not, and the ways down it that optimizers find."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from course_lib import figures
from course_lib.figures import COLORS
from course_lib.threads import one_thread

START = (-2.0, 0.5)  # along the valley and across it
GOAL = 0.1  # share of the distance at the start
STAY = 5  # steps to be that near, so that a chance visit on a swing from side to side does not count
RATES = torch.logspace(-4, 0.5, 109, dtype=torch.float64)  # 24 for each factor of ten
LONGEST = 2000
LINES = {"SGD": "sgd", "momentum": "gradients", "RMSProp": "state", "Adam": "ink"}

Rule = Callable[[Tensor, dict], Tensor]


@dataclass(frozen=True)
class Run:
    """A way down: ``path`` of shape ``[steps + 1, 2]``, its learning ``rate``, and whether it ``arrived``."""

    path: Tensor
    rate: float
    arrived: bool

    @property
    def steps(self) -> int:
        return len(self.path) - 1

    def __str__(self) -> str:
        count = "1 step" if self.steps == 1 else f"{self.steps:,} steps"
        return count if self.arrived else f"more than {count}"


def turned(elongation: float, rotation: float) -> tuple[Tensor, Tensor]:
    """A valley whose loss is ``x H x / 2`` for a point x, so that its gradient there is ``x H``.

    Args:
        elongation: how many times as strongly it curves across as along; 1 is a round bowl.
        rotation: degrees by which it is turned against the coordinates.

    Returns:
        ``(H, start)``: the curvatures ``[2, 2]``, and a starting point ``[2]`` that is turned along with the valley.
    """
    angle = math.radians(rotation)
    along = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    across = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
    H = torch.outer(along, along) + elongation * torch.outer(across, across)
    return H, START[0] * along + START[1] * across


@one_thread()
def fastest(rule: Rule, H: Tensor, start: Tensor, longest: int = LONGEST) -> Run:
    """The way down with the best of 109 learning rates from 0.0001 to 3.2.

    Best is the one that first comes within a tenth of the starting distance, and stays there for five steps.

    Args:
        rule: takes gradients ``[rates, 2]`` and its state (a dictionary with the ``step``, counted from 1), and returns
            updates ``[rates, 2]``. All rates are tried at once, so it has to work entry by entry.
        H, start: as from :func:`turned`.
        longest: steps after which it gives up; the run then has the rate that is nearest to the goal.
    """
    X = start.expand(len(RATES), 2)
    goal = GOAL * start.norm()
    state: dict = {"step": 0}
    paths = [X]
    near = torch.zeros(len(RATES), dtype=torch.int64)  # for how many steps
    while state["step"] < longest and near.max() < STAY:
        state["step"] += 1
        X = X - RATES[:, None] * rule(X @ H, state)
        paths.append(X)
        near = torch.where(X.norm(dim=1) <= goal, near + 1, 0)
    arrived = bool(near.max() == STAY)
    if arrived:
        best = int(near.argmax())
        del paths[1 - STAY :]
    else:
        best = int(X.norm(dim=1).nan_to_num(nan=math.inf).argmin())
    return Run(torch.stack([X[best] for X in paths]), float(RATES[best]), arrived)


class Race:
    """The valley with several ways down it, and beside it the distance from the lowest point at each step."""

    def __init__(self) -> None:
        self.fig, (self.valley, self.distance) = figures.subplots(1, 2, height=3.7, width_ratios=(1.15, 1))
        self.levels = _contours(self.valley)
        self.valley.set(xlim=(-2.4, 0.9), ylim=(-2.0, 1.0), aspect="equal", xlabel="first parameter")
        self.valley.set_ylabel("second parameter")
        self.valley.plot(0, 0, "*", color=COLORS["ink"], markersize=11, zorder=4)
        (self.start,) = self.valley.plot([], [], "o", color=COLORS["ink"], markersize=6, zorder=4)
        self.start_label = self.valley.annotate("start", (0, 0), (6, 6), textcoords="offset points")
        self.distance.set_xscale("symlog", linthresh=1, linscale=0.3)  # logarithmic from step 1, and step 0 beside it
        self.distance.set(yscale="log", xlim=(0, LONGEST), ylim=(0.08, 10))
        self.distance.set(title="Distance from the lowest point", xlabel="step")
        self.distance.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1,000"])
        self.distance.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
        self.distance.minorticks_off()
        goal = GOAL * math.hypot(*START)
        self.distance.axhline(goal, color=COLORS["muted"], linestyle=":")
        self.distance.text(LONGEST, goal * 0.96, "a tenth of the start", ha="right", va="top", color=COLORS["muted"])
        self.drawn: dict[str, tuple] = {}

    def update(self, elongation: float, rotation: float, runs: Mapping[str, Run]) -> tuple[Figure, str]:
        """Show this valley and these runs, by name (SGD, momentum, RMSProp, Adam); always the same names."""
        H, start = turned(elongation, rotation)
        _set_contours(self.levels, elongation, rotation)
        self.start.set_data([start[0]], [start[1]])
        self.start_label.xy = tuple(start.tolist())
        self.valley.set_title(f"Elongation {elongation:.4g}, turned by {rotation:.3g}°")
        for name, run in runs.items():
            path, distance, label = self.drawn.get(name) or self._add(name)
            path.set_data(*run.path.T.numpy())
            distance.set_data(np.arange(len(run.path)), run.path.norm(dim=1).numpy())
            label.set_text(f"{name}: {run}")
        return self.fig, self._describe(elongation, rotation, runs)

    def _add(self, name: str) -> tuple:
        look = {"color": COLORS[LINES[name]], "linewidth": 1.8}
        (path,) = self.valley.plot([], [], ".-", markersize=5, **look)
        (distance,) = self.distance.plot([], [], **look)
        place = 0.98 - 0.08 * len(self.drawn)
        label = self.distance.text(
            0.97, place, "", transform=self.distance.transAxes, ha="right", va="top", fontweight="bold",
            color=COLORS["muted"] if name == "SGD" else look["color"],
        )  # fmt: skip
        self.drawn[name] = (path, distance, label)
        return self.drawn[name]

    def _describe(self, elongation: float, rotation: float, runs: Mapping[str, Run]) -> str:
        said = "; ".join(f"{name} {run}, at the learning rate {run.rate:.2g}" for name, run in runs.items())
        return (
            f"A valley that curves {elongation:.4g} times as strongly across as along, turned by {rotation:.3g}°, with "
            f"a way down for each method. To come within a tenth of the starting distance they need: {said}."
        )


def paths(elongation: float, ways: Mapping[str, Tensor]) -> tuple[Figure, str]:
    """Up to four ways down one valley that is not turned, a panel for each.

    Args:
        elongation: as for :func:`turned`.
        ways: name (SGD, momentum, RMSProp, Adam) → path of shape ``[steps + 1, 2]``.
    """
    fig, axes = figures.subplots(2, 2, height=4.0, sharex=True, sharey=True)
    said = []
    for ax, (name, path) in zip(axes.flat, ways.items(), strict=True):
        _set_contours(_contours(ax), elongation, rotation=0)
        ax.plot(*path.T, ".-", color=COLORS[LINES[name]], markersize=6, linewidth=1.8)
        ax.plot(0, 0, "*", color=COLORS["ink"], markersize=11, zorder=4)
        away = float(path[-1].norm())
        said.append(f"{name} {away:.2f}")
        ax.set(xlim=(-2.3, 0.7), ylim=(-0.62, 0.72), aspect="equal")
        ax.set_title(f"{name}: {away:.2f} away after {len(path) - 1} steps")
    return fig, (
        f"Four ways down a valley that curves {elongation:.4g} times as strongly across as along. Distance from the "
        f"lowest point after {len(path) - 1} steps: {', '.join(said)}."
    )


def _contours(ax: Axes) -> list:
    """Empty lines for the curves of equal loss, each with twice the length of the one before it."""
    return [ax.plot([], [], color="#BBBBBB", linewidth=0.8, zorder=1)[0] for _ in range(9)]


def _set_contours(lines: list, elongation: float, rotation: float) -> None:
    # Ellipses, since the loss is quadratic.
    around = np.linspace(0, 2 * np.pi, 181)
    angle = math.radians(rotation)
    for k, line in enumerate(lines):
        half_length = 0.25 * 2**k
        along, across = half_length * np.cos(around), half_length / math.sqrt(elongation) * np.sin(around)
        line.set_data(
            along * math.cos(angle) - across * math.sin(angle), along * math.sin(angle) + across * math.cos(angle)
        )
