"""Training runs as their log tells them: loss and learning rate of every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure

from course_lib import figures
from course_lib.averages import ema
from course_lib.figures import COLORS

SMOOTHING = 0.95  # decay of the average drawn over the noisy losses: a window of 20 steps


def loss_and_rate(logs: Mapping[str, Sequence[Mapping[str, float]]], chance: float) -> tuple[Figure, str]:
    """The losses of up to three runs, smoothed, above their learning rates, whose area is the way they could go.

    Args:
        logs: for each run's name ``trainer.state.log_history``, with ``loss`` and ``learning_rate`` of every step;
            the run that matters last.
        chance: loss of answering every class with equal probability, the log of their number.
    """
    fig, (left, right) = figures.subplots(ncols=2, height=3.9)
    styles = (("--", COLORS["muted"]), ("-.", COLORS["ink"]), ("-", COLORS["adafactor"]))[-len(logs) :]
    longest = max(sum("loss" in line for line in log) for log in logs.values())
    main = list(logs)[-1]
    said = []
    for (name, log), (style, color) in zip(logs.items(), styles, strict=True):
        losses = torch.tensor([line["loss"] for line in log if "loss" in line], dtype=torch.float64)
        rates = np.array([line["learning_rate"] for line in log if "loss" in line])
        steps = np.arange(1, len(rates) + 1)
        smooth = ema(losses, SMOOTHING, bias_correction=True)
        reach = rates.sum()
        left.plot(steps, losses, color=color, alpha=0.25, linewidth=0.8)
        left.plot(steps, smooth, style, color=color, linewidth=2.2)
        left.annotate(name, (steps[-1], smooth[-1]), (0, 8), textcoords="offset points", color=color, ha="right")
        right.fill_between(steps, rates, color=color, alpha=0.25, linewidth=0)
        right.plot(steps, rates, style, color=color, linewidth=2.2)
        place = len(steps) // 4 if name == main else len(steps) * 2 // 3
        right.annotate(
            f"{name}\nall together {reach:.2g}",
            (steps[place], rates[place]),
            (12, 6),
            textcoords="offset points",
            color=color,
        )
        said.append(
            f"{name}: {len(rates)} steps, smoothed loss from {losses[0]:.2f} to {smooth[-1]:.2f}; rate from "
            f"{rates[0]:.2g} to {rates[-1]:.1g}, all rates together {reach:.2g}"
        )
    left.axhline(chance, color=COLORS["ink"], linestyle=":", linewidth=1.2)
    left.text(longest, chance + 0.03, f"knows nothing: {chance:.2f}", ha="right", va="bottom")
    left.set(title="Loss on each batch", xlabel="step", ylim=(0, 1.35 * chance))
    right.set(title="Learning rate, and all steps added up", xlabel="step", ylim=(0, None))
    return fig, f"Loss and learning rate by step. {'; '.join(said)}. Knowing nothing costs a loss of {chance:.2f}."
