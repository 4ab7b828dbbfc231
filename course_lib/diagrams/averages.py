"""Pictures of exponential moving averages (lesson 02)."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from course_lib import figures
from course_lib.figures import COLORS, as_array


class SeriesAndWeights:
    """A noisy series with its average, and below each value the weight that the average gives it.

    The figure is made once; :meth:`update` moves its artists, so that it follows a slider without delay.

    Args:
        series: the values, shape ``[time]``.
        level: what they scatter around, shape ``[time]``.
    """

    def __init__(self, series: Tensor, level: Tensor) -> None:
        series, self.level = as_array(series), as_array(level)
        steps = np.arange(1, len(series) + 1)
        self.fig, (top, bottom) = figures.subplots(2, 1, height=5.2, sharex=True, height_ratios=(3, 2))
        # Fixed margins: the numbers on the lower axis change their width as it is redrawn.
        self.fig.set_layout_engine(None)
        self.fig.subplots_adjust(left=0.105, right=0.99, top=0.94, bottom=0.1, hspace=0.22)
        top.plot(steps, series, ".", color="#BBBBBB", markersize=5)
        top.plot(steps, self.level, "--", color=COLORS["ink"], linewidth=1.2, drawstyle="steps-mid")
        half = len(series) // 2
        top.text(half + 4, self.level[half - 1], "true level", va="bottom")
        (self.line,) = top.plot(steps, series, linewidth=2.4)
        (self.dot,) = top.plot([], [], "o", markersize=8)
        top.set(xlim=(-2, len(series) + 3), ylabel="value")
        edges = np.arange(len(series) + 1) + 0.5
        self.inside = bottom.stairs(0 * series, edges, fill=True)
        self.older = bottom.stairs(0 * series, edges, fill=True, alpha=0.4)
        self.edge = bottom.axvline(0, color=COLORS["ink"], linestyle=":", linewidth=1.5)
        self.note = bottom.text(0, 0.93, "", transform=bottom.transAxes, va="top", linespacing=1.5)
        bottom.set(xlabel="step", ylabel="weight")
        bottom.yaxis.set_major_locator(MaxNLocator(4))
        bottom.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.3g} %"))
        for ax in (top, bottom):
            ax.yaxis.set_label_coords(-0.085, 0.5)
        self.top, self.bottom = top, bottom

    def update(
        self, averages: Tensor, weights: Tensor, name: str, window: float | None = None, growing: bool = False
    ) -> tuple[Figure, str]:
        """Show another average.

        Args:
            averages: the average at every step, shape ``[time]``.
            weights: the weight of each value in the average at step ``t``, shape ``[t]``; ``t`` is the step looked at.
            name: of the average.
            window: effective window at step ``t``, in steps; without it no window is drawn.
            growing: drawn in Adafactor's colour rather than Adam's.

        Returns:
            The figure and its description.
        """
        averages, weights = as_array(averages), as_array(weights)
        step, total = len(weights), float(weights.sum())
        value, level = float(averages[step - 1]), float(self.level[step - 1])
        color = COLORS["adafactor" if growing else "adamw"]
        self.line.set(ydata=averages, color=color)
        self.dot.set(data=([step], [value]), color=color)
        self.top.set_title(f"{name}: {value:.2f} at step {step}, where the true level is {level:.2f}")
        heights = np.pad(weights, (0, len(self.level) - step))
        is_older = np.arange(len(heights)) < step - round(step if window is None else window)
        for stairs, shown in ((self.inside, ~is_older), (self.older, is_older)):
            stairs.set(data=np.where(shown, heights, 0), color=color)
        note = said = f"weights add to {total:.2f}"
        if window is not None:
            length = "1 step" if window == 1 else f"{window:.3g} steps"
            inside = f"{100 * weight_within(weights, window):.0f} %"
            self.edge.set_xdata([step + 0.5 - window] * 2)
            note = f"effective window {length}\nweight inside it {inside}\n{note}"
            said = f"effective window is {length}, the weight inside it {inside}; all {said}"
        self.edge.set_visible(window is not None and window < step)
        self.bottom.set_title(f"Weight of each value in the average at step {step}")
        self.bottom.set_ylim(0, 1.2 * float(weights.max()))
        # The note stands on the side where the bars are low.
        side = "left" if step > len(self.level) / 2 else "right"
        self.note.set(text=note, x=0.012 if side == "left" else 0.988, ha=side)
        return self.fig, (
            f"{name}, over {len(averages)} noisy values: at step {step} the average is {value:.2f}, where the true "
            f"level is {level:.2f}. Its {said}."
        )


def weight_within(weights: Tensor | np.ndarray, window: float) -> float:
    """The sum of the weights of the newest ``window`` values.

    Args:
        weights: weight of each value, oldest first, shape ``[time]``.
        window: steps, rounded to a whole number of values; it may be longer than ``weights``.
    """
    weights = as_array(weights)
    return float(weights[max(len(weights) - round(window), 0) :].sum())


def window_against_cut(weights: Tensor, window: int) -> tuple[Figure, str]:
    """Weights by age, beside the plain mean of the newest ``window`` values, which is a hard cut.

    Args:
        weights: weight of each value, oldest first, shape ``[time]``.
        window: effective window, in steps.
    """
    newest_first = as_array(weights)[::-1]
    ages = np.arange(len(newest_first))
    newer = 100 * weight_within(weights, window)
    fig, ax = figures.subplots(height=3.4)
    for part, alpha in ((ages <= window, 1.0), (ages >= window, 0.35)):
        ax.fill_between(ages[part], newest_first[part], color=COLORS["adamw"], alpha=alpha, linewidth=0)
    height = 1 / window
    ax.plot([0, window, window, ages[-1]], [height, height, 0, 0], color=COLORS["ink"], linewidth=1.8)
    ax.text(window + 6, height, f"a hard cut: mean of the newest {window}", va="center")
    ax.text(0.42 * window, 0.25 * height, f"{newer:.0f} %", color="white", ha="center", fontsize=15)
    ax.text(1.3 * window, 0.08 * height, f"{100 - newer:.0f} %", ha="center", fontsize=15)
    ax.annotate(
        f"older than the window of {window}",
        (1.75 * window, newest_first[round(1.75 * window)] * 0.8),
        (1.95 * window, 0.42 * height),
        arrowprops={"arrowstyle": "-", "color": COLORS["muted"]},
    )
    ax.set(xlabel="age of the value, in steps (0 = newest)", ylabel="weight", xlim=(0, 5 * window), ylim=(0, None))
    ax.set_title("The weight fades; nothing is cut off")
    return fig, (
        f"Weight by age. It falls from {newest_first[0]:.3g} at age 0 without a break: {newer:.0f} % lies on the "
        f"newest {window} values and {100 - newer:.0f} % on older ones. A plain mean of the newest {window} would be a "
        f"box of the same height that ends at age {window}."
    )


def step_response(responses: dict[float, Tensor]) -> tuple[Figure, str]:
    """How averages follow a jump from 0 to 1, each marked where one effective window has passed.

    Args:
        responses: for each decay β the average at steps 1, 2, … after the jump, shape ``[time]``.
    """
    fig, ax = figures.subplots(height=3.4)
    marks = []
    for (beta, response), style in zip(responses.items(), ("-", "--", "-."), strict=False):
        response = as_array(response)
        window = round(1 / (1 - beta))
        ax.plot(np.arange(1, len(response) + 1), response, style, color=COLORS["adamw"], linewidth=2)
        ax.plot(window, response[window - 1], "o", color=COLORS["ink"], markersize=7)
        ax.text(window * 1.15, response[window - 1] - 0.03, f"β = {beta}\nstep {window:,}", va="top")
        marks.append(f"β = {beta} reaches {100 * response[window - 1]:.0f} % at step {window:,}")
    ax.axhline(1, color=COLORS["muted"], linewidth=1, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    ax.set(xlabel="steps since the value jumped from 0 to 1", ylabel="average", ylim=(0, 1.08))
    ax.set_title("After one effective window, an average has followed about 63 % of a jump")
    return fig, f"The average after a jump from 0 to 1, on a log axis of steps: {'; '.join(marks)}."


def zero_start(averages: Tensor, beta: float, step: int) -> tuple[Figure, str]:
    """The average of values that are all 1, started at zero.

    Args:
        averages: at steps 1, 2, …, shape ``[time]``.
        beta: the decay.
        step: the one to point at.
    """
    averages = as_array(averages)
    value, end = averages[step - 1], len(averages)
    near = int((averages < 0.95).sum()) + 1
    fig, ax = figures.subplots(height=3.4)
    ax.axhline(1, linestyle="--", color=COLORS["ink"], linewidth=1.2)
    ax.text(0.02 * end, 1.03, "every value is 1")
    ax.plot(np.arange(1, end + 1), averages, color=COLORS["adamw"], linewidth=2.4)
    for x, y, label in ((step, value, f"{value:.3f}"), (near, averages[near - 1], f"{averages[near - 1]:.2f}")):
        ax.plot(x, y, "o", color=COLORS["adamw"], markersize=8)
        ax.text(x + 0.015 * end, y - 0.02, f"{label} at step {x}", va="top")
    ax.set(xlabel="step", ylabel="average", ylim=(0, 1.15), xlim=(0, end))
    ax.set_title(f"With β = {beta}, a start at zero is felt for hundreds of steps")
    return fig, (
        f"The average of a constant 1 with β = {beta}, started at zero. It is {value:.3f} at step {step} and comes "
        f"within 5 % of 1 only at step {near}."
    )


def growing_windows(windows: dict[str, Tensor], meet: tuple[int, float] | None = None) -> tuple[Figure, str]:
    """Effective windows against the step, both on log axes.

    Args:
        windows: for each curve's label the window at steps 1, 2, … (300 or more): first Adafactor's, then Adam's.
        meet: the (step, window) where they meet, if that is to be marked.
    """
    fig, ax = figures.subplots(height=3.8)
    said = []
    for (label, window), key in zip(windows.items(), ("adafactor", "adamw"), strict=True):
        window = as_array(window)
        below = key == "adafactor"
        ax.plot(np.arange(1, len(window) + 1), window, "-" if below else "--", color=COLORS[key], linewidth=2.4)
        place = 300 if below else 30
        ax.text(
            place,
            window[place - 1] * (0.7 if below else 1.4),
            label,
            color=COLORS[key],
            ha="left" if below else "right",
            va="top" if below else "bottom",
        )
        said.append(f"{label}: {window[0]:,.0f} at step 1, {window[-1]:,.0f} at step {len(window):,}")
    if meet is not None:
        ax.plot(*meet, "o", color=COLORS["ink"], markersize=8)
        ax.text(meet[0] * 1.15, meet[1] * 0.75, f"step {meet[0]:,}", va="top")
        said.append(f"they meet at step {meet[0]:,}, at a window of {meet[1]:,.0f}")
    ax.set(xscale="log", yscale="log", xlabel="step t", ylabel="effective window, in steps")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    ax.set_title("How far back the average looks")
    return fig, f"Effective window against the step, on log axes. {'; '.join(said)}."
