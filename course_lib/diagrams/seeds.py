"""Accuracy against the size of the state, one dot for each seed: what a mean of few runs is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from course_lib import comparison, figures
from course_lib.figures import COLORS
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, RELATIVE

LOOKS = {  # color, marker, how far to the side of its place, alignment of its name, name on two lines
    ADAMW: (COLORS["adamw"], "o", 1.0, "center", "\nAdamW"),
    ADAMW_8BIT: (COLORS["adam8bit"], "s", 1.0, "center", "\n8-bit AdamW"),
    GIVEN: (COLORS["adafactor"], "D", 1 / 1.45, "right", "Adafactor,\ngiven rate"),
    RELATIVE: (COLORS["row"], "^", 1.45, "left", "Adafactor,\nrelative step"),
}


class Seeds:
    """The runs of several optimizers, to be revealed seed by seed. Updating it redraws the same picture.

    Args:
        states: MiB, by optimizer.
        accuracy: of each run, by optimizer; each list in the order of the seeds.
        rows: on how many rows an accuracy was measured.
    """

    def __init__(self, states: Mapping[str, float], accuracy: Mapping[str, Sequence[float]], rows: int) -> None:
        self.states, self.accuracy, self.rows = dict(states), {name: list(of) for name, of in accuracy.items()}, rows
        self.count = len(next(iter(self.accuracy.values())))
        every = [value for of in self.accuracy.values() for value in of]
        error = comparison.sampling_error(comparison.mean(every), rows)
        self.limits = min(every) - 1.3 * error, max(every) + 2.8 * error
        self.fig, (self.ax, self.strip) = figures.subplots(2, 1, height=5.2, height_ratios=(6, 1))

    def update(
        self, seeds: int, order: Sequence[int] | None = None, live: Mapping[str, float] | None = None
    ) -> tuple[Figure, str]:
        """Reveal the first ``seeds`` runs.

        Args:
            seeds: how many, from 1.
            order: in which order the seeds are revealed, as positions; by default as they were run.
            live: accuracies of runs of your own, drawn hollow; they count for no mean.

        Returns:
            The figure, the same each time, and its description.
        """
        order = list(range(self.count)) if order is None else list(order)
        shown = {name: [of[i] for i in order[:seeds]] for name, of in self.accuracy.items()}
        means = {name: comparison.mean(values) for name, values in shown.items()}
        middle = comparison.mean(list(means.values()))
        error = comparison.sampling_error(middle, self.rows)
        leaders = [self._leaders(order[: k + 1]) for k in range(seeds)]

        heights = [*self.limits, *(value + side * 0.04 for value in (live or {}).values() for side in (-1, 1))]
        bottom, top = min(heights), max(heights)
        ax = self.ax
        ax.clear()
        ax.set(
            xscale="log",
            xlim=(0.09, 1600),
            ylim=(bottom, top),
            xlabel="state for DistilBERT in MiB (as printed above; dots stand aside so that all are seen)",
            ylabel="accuracy",
        )
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.axhspan(middle - error, middle + error, color=COLORS["activations"], alpha=0.35, linewidth=0, zorder=0)
        note = f"band: ± {error:.3f},\nsampling error on\n{self.rows} validation rows"
        ax.text(9.5, middle, note, ha="center", va="center", color=COLORS["muted"], fontsize=10, linespacing=1.3)
        told = []
        for name, values in shown.items():
            color, marker, aside, side, label = LOOKS[name]
            place = self.states[name] * aside
            spots = [place * 1.05 ** (i - (len(values) - 1) / 2) for i in range(len(values))]
            ax.plot(spots, values, marker, color=color, markersize=6, alpha=0.75, linestyle="")
            edge = self.states[name] * {"right": 1 / 1.12, "left": 1.12, "center": 1.0}[side]
            size = f"{self.states[name]:,.{1 if self.states[name] >= 10 else 2}f} MiB"
            ax.text(edge, top, f"{label}\n{size}", color=color, ha=side, va="top", linespacing=1.2)
            bar = place * 1.05 ** (self.count / 2 + 2) if aside >= 1 else place / 1.05 ** (self.count / 2 + 2)
            spread = comparison.sd(values) if len(values) > 1 else 0.0
            if len(values) > 1:
                ax.errorbar(bar, means[name], spread, fmt="_", color=color, markersize=13, capsize=4, linewidth=2)
            words = f"{name}, {size}: mean {means[name]:.3f}"
            words += f" ± {spread:.3f}" if len(values) > 1 else ""
            if live and name in live:
                ax.plot(
                    place, live[name], marker, color=COLORS["ink"], fillstyle="none", markersize=13, markeredgewidth=2
                )
                words += f" (your run {live[name]:.3f})"
            told.append(words)
        ahead = " and ".join(leaders[-1])
        counted = f"{seeds} seed{'s' * (seeds > 1)}"
        beside = ": mean and standard deviation beside the dots" if seeds > 1 else ""
        ax.set_title(f"{counted} of {self.count}{beside}", pad=10)
        self._draw_strip(leaders)
        return self.fig, (
            f"State for DistilBERT (log) against accuracy, {counted} of {self.count}. {'; '.join(told)}. "
            f"Sampling error ± {error:.3f}. Highest mean now: {ahead}; after each seed so far: "
            f"{', '.join(' and '.join(names) for names in leaders)}."
        )

    def _leaders(self, places: Sequence[int]) -> list[str]:
        """Whose mean over these runs is the highest: one, unless several are equal."""
        sums = {name: round(sum(of[i] for i in places), 9) for name, of in self.accuracy.items()}
        return [name for name, total in sums.items() if total == max(sums.values())]

    def _draw_strip(self, leaders: Sequence[Sequence[str]]) -> None:
        ax = self.strip
        ax.clear()
        ax.set(xlim=(0.5, self.count + 0.5), ylim=(-1, 1), yticks=[], xlabel="after so many seeds")
        ax.set_xticks(range(1, self.count + 1))
        ax.set_title("Whose mean was the highest?", fontsize=11)
        ax.spines["left"].set_visible(False)
        for k in range(1, self.count + 1):
            if k > len(leaders):
                ax.text(k, 0, "?", ha="center", va="center", color=COLORS["muted"])
                continue
            for i, name in enumerate(leaders[k - 1]):
                color, marker, *_ = LOOKS[name]
                ax.plot(k + 0.16 * (i - (len(leaders[k - 1]) - 1) / 2), 0, marker, color=color, markersize=10)
