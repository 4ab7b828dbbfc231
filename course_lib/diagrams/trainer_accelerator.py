"""Trainer against Accelerator: who writes which part of a training run."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrow, Rectangle

from course_lib.figures import COLORS

# Parts of a run, and from which column on you write them yourself: 0 already with Trainer, 3 not even in plain PyTorch.
PARTS = (
    ("data, model, metric", 0),
    ("loop over epochs and batches", 1),
    ("forward and loss", 1),
    ("backward, step, schedule, zero_grad", 1),
    ("when to evaluate, log and save", 1),
    ("device of model and batches", 2),
    ("gradients of several processes", 2),
    ("mixed precision", 2),
)
COLUMNS = ("Trainer", "Accelerator", "PyTorch alone")


def trainer_accelerator() -> tuple[Figure, str]:
    """A table of the parts, those that you write in one color, with ease of use and customizability along it."""
    left, width, top, height = 3.0, 1.62, 1.15, 0.42
    total = top + len(PARTS) * height + 0.1
    fig = Figure(figsize=(8.0, total))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 8), ylim=(total, 0))
    ax.axis("off")
    for y, words, direction in ((0.2, "ease of use", -1), (0.52, "customizability", 1)):
        start = left + (len(COLUMNS) * width - 0.03 if direction < 0 else 0.03)
        arrow = FancyArrow(
            start, y, direction * (len(COLUMNS) * width - 0.06), 0, width=0.03, head_width=0.15, head_length=0.18,
            length_includes_head=True, facecolor=COLORS["muted"], edgecolor="none",
        )  # fmt: skip
        ax.add_patch(arrow)
        ax.text(left - 0.1, y, words, ha="right", va="center", fontsize=11)
    for j, name in enumerate(COLUMNS):
        ax.text(left + (j + 0.5) * width, 0.9, name, ha="center", va="center", fontsize=12, fontweight="bold")
    for i, (part, since) in enumerate(PARTS):
        y = top + i * height
        ax.text(left - 0.1, y + height / 2, part, ha="right", va="center", fontsize=11)
        for j in range(len(COLUMNS)):
            yours = j >= since
            box = Rectangle(
                (left + j * width + 0.03, y + 0.03), width - 0.06, height - 0.06,
                facecolor="white" if yours else COLORS["adafactor"], edgecolor=COLORS["muted"],
            )  # fmt: skip
            ax.add_patch(box)
            ax.text(
                left + (j + 0.5) * width, y + height / 2, "you" if yours else "library", ha="center", va="center",
                fontsize=11, color=COLORS["ink"] if yours else "white",
            )  # fmt: skip
    told = [
        f"{name}: you write {', '.join(part for part, since in PARTS if j >= since)}" for j, name in enumerate(COLUMNS)
    ]
    return fig, (
        f"Who writes which part of a training run. {'; '.join(told)}. The library writes the rest. Ease of use grows "
        f"towards {COLUMNS[0]}, customizability towards {COLUMNS[-1]}."
    )
