"""What a classifier scores that always answers the most frequent class, and a run beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import figures
from course_lib.figures import COLORS

GAP = 5e-3  # scores closer than this read the same


class Scores(NamedTuple):
    """Accuracy, F1 of the most frequent class, and F1 averaged over all classes, each from 0 to 1."""

    accuracy: float
    binary: float
    macro: float


def always_majority(share: float, classes: int) -> Scores:
    """Scores of always answering the most frequent class.

    That class is found whenever it is there (recall 1), and an answer is right as often as the class comes up
    (precision = share), so its F1 is 2·share / (1 + share). The other classes are never found: their F1 is 0.

    Args:
        share: of that class among all rows, from ``1 / classes`` to 1.
        classes: how many there are.

    Raises:
        ValueError: the most frequent class cannot have that share.
    """
    if not 1 / classes - 1e-9 <= share <= 1:
        raise ValueError(f"The most frequent of {classes} classes has a share from 1/{classes} to 1; it was {share}.")
    f1 = 2 * share / (1 + share)
    return Scores(share, f1, f1 / classes)


class Baseline:
    """Accuracy and F1 of always answering the most frequent class, against its share. Updating it redraws quickly."""

    def __init__(self) -> None:
        self.fig, self.axes = figures.subplots(ncols=2, height=3.7)
        self.title = self.fig.suptitle(" ", x=0.01, ha="left")

    def update(
        self, share: float, classes: int, average: str | None = None, run: tuple[float, float] | None = None
    ) -> tuple[Figure, str]:
        """Mark the scores at ``share``, and beside them those of a run on such rows.

        Args:
            share: of the most frequent class; less than ``1 / classes`` is taken as that.
            classes: how many there are.
            average: which F1 the run reports; by default "binary" for two classes, else "macro".
            run: its accuracy and F1.

        Returns:
            The figure, the same each time, and its description.
        """
        share = max(share, 1 / classes)
        average = average or ("binary" if classes == 2 else "macro")
        here = always_majority(share, classes)
        for ax, title in zip(self.axes, ("Accuracy", "F1"), strict=True):
            ax.clear()
            ax.set(title=title, xlabel="share of the most frequent class", xlim=(-0.12, 1.3), ylim=(-0.07, 1.1))
            ax.set_xticks(np.linspace(0, 1, 6))
        self.title.set_text(f"Always the most frequent of {classes} classes, {share:.0%} of the rows")
        told = []
        for kind in Scores._fields if classes == 2 else ("accuracy", "macro"):
            ax, name = (self.axes[0], kind) if kind == "accuracy" else (self.axes[1], f"{kind} F1")
            value = getattr(here, kind)
            own = None
            if run is not None and kind in ("accuracy", average):
                own = run[kind != "accuracy"]
                _mark_run(ax, share, value, own)
            _mark_curve(ax, share, classes, kind, above=kind == "binary" if own is None else own < value - GAP)
            told.append(
                f"{name} {value:.2f}" + ("" if own is None else f" (a run has {own:.2f}, {_against(own, value)})")
            )
        return self.fig, (
            f"Always answering the most frequent of {classes} classes, {share:.0%} of the rows, scores "
            f"{', '.join(told)}."
        )


def _mark_curve(ax: Axes, share: float, classes: int, kind: str, above: bool) -> None:
    """One score against the share, with its value at ``share`` written above or below the curve."""
    shares = np.linspace(1 / classes, 1, 60)
    style = {"accuracy": "-", "binary": "--", "macro": ":"}[kind]
    ax.plot(shares, [getattr(always_majority(s, classes), kind) for s in shares], style, color=COLORS["ink"])
    value = getattr(always_majority(share, classes), kind)
    ax.plot(share, value, "o", color=COLORS["ink"], markersize=7)
    _label(ax, share, value, f"{value:.2f}" if kind == "accuracy" else f"{kind} {value:.2f}", COLORS["ink"], above)


def _mark_run(ax: Axes, share: float, rival: float, value: float) -> None:
    """A run's score, joined to the one that it has to beat."""
    color = COLORS["adafactor"]
    ax.plot([share, share], [rival, value], color=color, linewidth=2)
    ax.plot(share, value, "D", color=color, markersize=8, zorder=4)
    if value >= rival - GAP:
        _label(ax, share, value, f"run {value:.2f}", color, above=True)
    else:  # not below it, where the label of another curve may stand
        ax.text(share + 0.05, value - 0.01, f"run {value:.2f}", color=color, va="bottom")


def _label(ax: Axes, x: float, y: float, words: str, color: str, above: bool) -> None:
    """Words beside a point, to the left above it or to the right below it: the curves rise, so both places are free."""
    if above:
        ax.text(x - 0.03, y + 0.01, words, color=color, ha="right", va="bottom")
    else:
        ax.text(x + 0.03, y - 0.01, words, color=color, ha="left", va="top")


def _against(value: float, rival: float) -> str:
    if abs(value - rival) < GAP:
        return "the same"
    return f"{abs(value - rival):.2f} {'above' if value > rival else 'below'}"
