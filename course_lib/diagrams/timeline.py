"""The calls of a training loop in time: one lane for each process, which meet before every step."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.figures import COLORS

# Widths of the calls. They stand for order only: the times of real calls depend on model and machine.
BACKWARD, SYNC, STEP, TICK, ZERO, GAP = 1.0, 0.3, 0.6, 0.2, 0.35, 0.25
SHOWN = 19.0  # as much as fits at a readable size; what lies between the first groups and the last is left out
FACES = {
    "backward": (COLORS["gradients"], COLORS["gradients"]),
    "sync": (COLORS["ink"], COLORS["ink"]),
    "step": (COLORS["adafactor"], COLORS["adafactor"]),
    "scheduler": (COLORS["adam8bit"], COLORS["adam8bit"]),
    "zero_grad": ("white", COLORS["ink"]),
}


@dataclass(frozen=True)
class Epoch:
    """How the calls of one epoch come out.

    Attributes:
        batches: of the whole data set.
        each: batches that every process gets; if they do not divide evenly, the first ones serve again.
        steps: of the optimizer. The last one comes with the end of the data, even if its group is incomplete.
        ticks: of a prepared scheduler, in every process.
    """

    batches: int
    each: int
    steps: int
    ticks: int

    @classmethod
    def plan(cls, samples: int, batch_size: int, processes: int, accumulation: int) -> Epoch:
        """Count them.

        Args:
            samples: rows of the data set.
            batch_size: rows in one batch of one process.
            processes: how many share the batches out among them.
            accumulation: backward calls to a step.
        """
        batches = ceil(samples / batch_size)
        each = ceil(batches / processes)
        steps = ceil(each / accumulation)
        return cls(batches, each, steps, steps * processes)


class Timeline:
    """One epoch's calls, each process a lane. Updating it redraws the same figure."""

    def __init__(self) -> None:
        self.fig = Figure(figsize=(8.0, 4.3))
        self.ax = self.fig.add_axes((0.12, 0.03, 0.87, 0.94))

    def update(self, samples: int, batch_size: int, processes: int, accumulation: int) -> tuple[Figure, str]:
        """Draw one epoch; the arguments are those of :meth:`Epoch.plan`.

        Returns:
            The figure, the same each time, and its description.
        """
        epoch = Epoch.plan(samples, batch_size, processes, accumulation)
        ax = self.ax
        ax.clear()
        ax.axis("off")
        right = self._draw_groups(epoch, processes, accumulation)
        ax.set(xlim=(0, max(right, SHOWN)), ylim=(-0.75, 5.55))
        _draw_key(ax, ax.get_xlim()[1])
        for p in range(processes):
            # A place in points, so that names keep their distance however the lanes are scaled.
            ax.annotate(
                f"process {p}", (0, _lane(p, processes)), (-8, 0), textcoords="offset points", ha="right", va="center"
            )
        counts = (
            f"{samples:,} rows in batches of {batch_size}: {_count(epoch.batches, 'batch', 'es')}, {epoch.each} for "
            + (f"each of {processes} processes" if processes > 1 else "the one process"),
            f"{_count(accumulation, 'backward')} to a step: {_count(epoch.steps, 'optimizer step')} in an epoch, "
            f"{_count(epoch.ticks, 'scheduler tick')}",
        )
        ax.text(0, 5.5, counts[0], va="top", fontsize=11)
        ax.text(0, 5.12, counts[1], va="top", fontsize=11, fontweight="bold")
        if processes * epoch.each > epoch.batches:
            ax.text(0, -0.72, "↺ the first rows once more, so that all have as many batches", va="bottom", fontsize=10)
        meet = "all lanes meet to average gradients, then " if processes > 1 else ""
        return self.fig, (
            f"{'; '.join(counts)}. Each process has a lane. After its backward calls {meet}each lane has one optimizer "
            f"step, {_count(processes, 'scheduler tick')} and zero_grad."
        )

    def _draw_groups(self, epoch: Epoch, processes: int, accumulation: int) -> float:
        """Draw as many groups of backward calls and a step as there is room for, the last one always.

        Returns:
            Where the last one ends.
        """
        after = (SYNC if processes > 1 else 0) + STEP + TICK * processes + ZERO + GAP
        whole = accumulation * BACKWARD + after
        last = epoch.steps - 1
        room = max(int((SHOWN - 1) // whole) - 1, 1)
        left = 0.0
        for step in range(epoch.steps):
            if room <= step < last and epoch.steps > room + 1:
                if step == room:
                    self.ax.text(left + 0.35, 1.9, "…", ha="center", va="center", fontsize=20)
                    left += 1.0
                continue
            first = step * accumulation
            left = self._draw_group(left, range(first, min(first + accumulation, epoch.each)), epoch, processes, step)
        return left

    def _draw_group(self, left: float, turns: range, epoch: Epoch, processes: int, step: int) -> float:
        start = left
        height = _height(processes)
        for turn in turns:
            for p in range(processes):
                batch = turn * processes + p  # dealt out in turn, as Accelerate does
                label = str(batch + 1) if batch < epoch.batches else "↺"
                _box(self.ax, "backward", left, _lane(p, processes), BACKWARD - 0.06, height, label)
            left += BACKWARD
        if processes > 1:
            bottom, top = _lane(processes - 1, processes) - height / 2, _lane(0, processes) + height / 2
            _box(self.ax, "sync", left, (bottom + top) / 2, SYNC - 0.08, top - bottom)
            left += SYNC
        for p in range(processes):
            x, y = left, _lane(p, processes)
            _box(self.ax, "step", x, y, STEP - 0.06, height)
            x += STEP
            for _ in range(processes):
                _box(self.ax, "scheduler", x, y, TICK - 0.07, height)
                x += TICK
            _box(self.ax, "zero_grad", x, y, ZERO - 0.08, height)
        end = left + STEP + TICK * processes + ZERO
        bottom = _lane(processes - 1, processes) - height / 2 - 0.12
        corners = [bottom, bottom - 0.08, bottom - 0.08, bottom]
        self.ax.plot([start, start, end - 0.08, end - 0.08], corners, color=COLORS["muted"], linewidth=1)
        self.ax.text((start + end) / 2, bottom - 0.14, f"step {step + 1}", ha="center", va="top", fontsize=10)
        return end + GAP


def _count(number: int, thing: str, plural: str = "s") -> str:
    return f"{number} {thing}{plural if number != 1 else ''}"


def _height(processes: int) -> float:
    return min(0.9, 2.6 / processes)


def _lane(process: int, processes: int) -> float:
    """The middle of a lane; process 0 is on top."""
    pitch = min(1.1, 3.6 / processes)
    return 1.9 + ((processes - 1) / 2 - process) * pitch


def _box(ax: Axes, kind: str, left: float, middle: float, width: float, height: float, label: str = "") -> None:
    face, edge = FACES[kind]
    ax.add_patch(Rectangle((left, middle - height / 2), width, height, facecolor=face, edgecolor=edge, linewidth=1))
    if label:
        ax.text(left + width / 2, middle, label, ha="center", va="center", fontsize=10)


def _draw_key(ax: Axes, right: float) -> None:
    """What the colors stand for, above the lanes."""
    inch = right / (8.0 * 0.87)
    for left, kind, label in (
        (0.0, "backward", "backward, batch n"),
        (1.68, "sync", "sync of gradients"),
        (3.22, "step", "optimizer step"),
        (4.58, "scheduler", "scheduler tick"),
        (5.92, "zero_grad", "zero_grad"),
    ):
        _box(ax, kind, left * inch, 4.45, 0.17 * inch, 0.24)
        ax.text((left + 0.25) * inch, 4.45, label, va="center", fontsize=10)
