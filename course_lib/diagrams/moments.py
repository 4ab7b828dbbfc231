"""The two averages of a gradient entry, and heatmaps of real second moments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from torch import Tensor

from course_lib import figures
from course_lib.figures import COLORS

NO_GRADIENT = "#D9D9D9"  # entries whose gradient was always zero; a log scale has no place for them
SIDE = 64  # rows and columns that a heatmap shows at most


def two_entries(G: Tensor, M: Tensor, V: Tensor) -> tuple[Figure, str]:
    """Two entries of a gradient over time, with their first moment and plus and minus the root of the second.

    Args:
        G, M, V: gradients, first and second moments at each step, shape ``[steps, 2]``.
    """
    fig, axes = figures.subplots(1, 2, height=3.3)
    steps = range(1, len(G) + 1)
    said = []
    for k, (ax, name) in enumerate(zip(axes, ("one entry", "another entry"), strict=True)):
        root = V[:, k].sqrt()
        ax.fill_between(steps, -root, root, color=COLORS["state"], alpha=0.16, linewidth=0)
        ax.plot(steps, G[:, k], "o", color=COLORS["gradients"], markersize=3.5)
        ax.plot(steps, M[:, k], color=COLORS["ink"], linewidth=2)
        ax.axhline(0, color=COLORS["muted"], linewidth=0.8)
        top, end = 1.15 * float(G[:, k].abs().max()), len(G) + 2
        apart = max(0.0, 0.07 * top - float(root[-1] - M[-1, k]) / 2)  # for labels that would cover one another
        for y, label, color in (
            (float(M[-1, k]) - apart, "M", "ink"),
            (float(root[-1]) + apart, "√V", "state"),
            (-float(root[-1]), "−√V", "state"),
        ):
            ax.text(end, y, label, va="center", fontweight="bold", color=COLORS[color])
        ax.set(title=f"Gradient of {name}", xlabel="step", xlim=(0, 1.14 * len(G)), ylim=(-top, top))
        said.append(f"{name} M ends at {float(M[-1, k]):.2f} and √V at {float(root[-1]):.2f}")
    return fig, (
        f"Dots: the gradients of two entries over {len(G)} steps. Line: M, the average of the gradient. Band: plus and "
        f"minus √V, the root of the average of its square. For {said[0]}; for {said[1]}."
    )


def real_moments(matrices: Mapping[str, Tensor], class_names: Sequence[str]) -> tuple[Figure, str]:
    """Four second moments as heatmaps, each on a log scale of its own.

    Args:
        matrices: title → V of shape ``[out, in]``, cut to what is to be seen.
        class_names: labels for the rows of the last one, the classifier.
    """
    fig, axes = figures.subplots(2, 2, height=7.0)
    for ax, (title, V) in zip(axes.flat, matrices.items(), strict=True):
        _heatmap(ax, V, title)
        first = title.startswith("token")
        ax.set(ylabel="token" if first else "output", xlabel="place in its vector" if first else "input")
    axes.flat[-1].set_yticks(range(len(class_names)), class_names)
    axes.flat[-1].set_ylabel("")
    sizes = "; ".join(f"{title}, {_range(V)}" for title, V in matrices.items())
    return fig, f"Heatmaps of four second moments on log scales, crossed by row and column stripes: {sizes}."


def memory_bars(weights: float, kept: Mapping[str, str]) -> tuple[Figure, str]:
    """A bar for each optimizer: weights, gradients, and the averages that it keeps, all of the same size.

    Args:
        weights: MiB of the weights.
        kept: optimizer → one letter for each average.
    """
    fig, ax = figures.subplots(height=2.9)
    said = []
    for y, (name, averages) in enumerate(kept.items()):
        left = 0.0
        for label, color in [("weights", "weights"), ("gradients", "gradients"), *((m, "state") for m in averages)]:
            ax.barh(y, weights, left=left, color=COLORS[color], edgecolor="white", linewidth=2, height=0.7)
            ink = "white" if color == "state" else COLORS["ink"]
            ax.text(left + weights / 2, y, label, ha="center", va="center", color=ink)
            left += weights
        ax.text(left + 12, y, f"{left:,.1f} MiB", va="center", fontweight="bold")
        said.append(f"{name} {left:,.1f} MiB, of which state {left - 2 * weights:,.1f}")
    ax.set_yticks(range(len(kept)), kept)
    ax.set(xlabel="MiB", xlim=(0, 4.5 * weights), title="Weights, gradients and optimizer state of DistilBERT")
    ax.invert_yaxis()
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0, labelsize=11)
    return fig, f"Stacked bars of weights, gradients and optimizer state of DistilBERT in fp32: {'; '.join(said)}."


class MatrixView:
    """One second moment beside the same numbers in a random order, to be replaced by that of another matrix."""

    def __init__(self) -> None:
        self.drawn: dict[str, tuple[Figure, str]] = {}

    def update(self, name: str, V: Tensor) -> tuple[Figure, str]:
        """Show the upper left corner of ``V``, shape ``[out, in]``, and the same corner shuffled.

        A figure is kept for each name, since matrices differ in shape.
        """
        if name not in self.drawn:
            V = V[:SIDE, :SIDE]
            order = torch.randperm(V.numel(), generator=torch.Generator().manual_seed(0))
            fig, axes = figures.subplots(1, 2, height=3.8)
            _heatmap(axes[0], V, f"V of {name}")
            _heatmap(axes[1], V.flatten()[order].view_as(V), "the same numbers, shuffled")
            axes[0].set(ylabel="row", xlabel="column")
            alt = (
                f"Left: second moment of {name}, its first {V.shape[0]} rows and {V.shape[1]} columns, {_range(V)}. "
                "Right: the same numbers in a random order, without any stripes."
            )
            self.drawn[name] = (fig, alt)
        return self.drawn[name]


def short_name(parameter: str) -> str:
    """A parameter's name for readers: ``layer 0 attention q``, not ``…transformer.layer.0.attention.q_lin.weight``."""
    name = parameter.removeprefix("distilbert.").removeprefix("transformer.").removesuffix(".weight")
    name = name.removeprefix("embeddings.").removesuffix("_lin")
    return re.sub(r"[._]", " ", name)


def _heatmap(ax, V: Tensor, title: str) -> None:
    ax.set_facecolor(NO_GRADIENT)
    positive = V[V > 0]
    heatmap = figures.heatmap(ax, V, title, scale="log", numbers=False, colorbar="")
    # The lowest hundredth of the entries would stretch the scale, and take the contrast from all the others.
    heatmap.image.set_norm(LogNorm(float(positive.quantile(0.01)), float(positive.max())))


def _range(V: Tensor) -> str:
    low, high = (float(x) for x in V[V > 0].quantile(torch.tensor([0.01, 0.99], dtype=V.dtype)))
    return f"98 % of its numbers between {low:.0e} and {high:.0e}"
