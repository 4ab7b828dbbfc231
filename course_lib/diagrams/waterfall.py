"""Training memory as stacked bars: weights, gradients and optimizer state, always with their total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib import figures
from course_lib.figures import COLORS

Parts = Mapping[str, float]  # sizes by "weights", "gradients", "state" and, where they count, "activations"


def three_bars(bars: Mapping[str, Parts]) -> tuple[Figure, str]:
    """One stacked bar for each way to train DistilBERT, side by side, with totals on top.

    Args:
        bars: for each label its parts, in MiB. The first and the last state are compared.
    """
    fig, ax = figures.subplots(height=4.2)
    told = []
    totals = [sum(parts.values()) for parts in bars.values()]
    for x, ((label, parts), total) in enumerate(zip(bars.items(), totals, strict=True)):
        bottom = 0.0
        for part, size in parts.items():
            ax.bar(x, size, bottom=bottom, width=0.62, color=COLORS[part], edgecolor="white", linewidth=1.5)
            if size > 0.04 * totals[0]:
                ink = "white" if part == "state" else COLORS["ink"]
                ax.text(x, bottom + size / 2, f"{part} {_size(size)}", ha="center", va="center", color=ink)
            else:
                ax.text(x + 0.34, bottom, f"{part} {_size(size)}", va="center", color=COLORS[part])
            bottom += size
        ax.text(x, total + 0.02 * totals[0], f"total {_size(total)}", ha="center", va="bottom", fontweight="bold")
        inside = ", ".join(f"{part} {_size(size)}" for part, size in parts.items())
        told.append(f"{label}: {inside}, total {_size(total)} MiB".replace("\n", " "))
    ax.axhline(totals[0], color=COLORS["muted"], linestyle=":", linewidth=1, zorder=0)
    ax.set_xticks(range(len(bars)), list(bars), fontsize=11)
    ax.tick_params(axis="x", length=0)
    ax.set(ylabel="MiB", xlim=(-0.45, len(bars) - 0.3), ylim=(0, 1.13 * totals[0]))
    states = [parts["state"] for parts in bars.values()]
    state, total = (sizes[0] / sizes[-1] for sizes in (states, totals))
    ax.set_title(f"DistilBERT: the state shrinks {state:,.0f} times, the total {total:.1f} times")
    return fig, f"Memory to train DistilBERT: weights, gradients and optimizer state. {'; '.join(told)}."


def distilbert() -> tuple[Figure, str]:
    """The three bars of a full-size DistilBERT: AdamW, then without its first average, then Adafactor."""
    from course_lib import memory, tasks

    model = tasks.distilbert(device="meta")
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20
    kinds = {
        "AdamW: two averages\nfor every weight": "adamw",
        "one of them\nis dropped": "rmsprop",
        "Adafactor: the other\nis packed": "adafactor",
    }
    return three_bars(
        {
            label: {
                "weights": weights,
                "gradients": weights,
                "state": memory.predict_state_size(model, kind).mib,
            }
            for label, kind in kinds.items()
        }
    )


def stack(
    parts: Parts,
    title: str,
    *,
    span: float,
    unit: str = "MiB",
    before: tuple[str, float] | None = None,
    cards: Sequence[float] = (),
) -> tuple[Figure, str]:
    """One stacked bar lying on its side, its parts named above it and its total at its end.

    Args:
        parts: sizes, in ``unit``.
        title: what the bar stands for.
        span: length of the axis, in ``unit``.
        before: name and total of something to compare with, drawn as an outline.
        cards: sizes of cards, drawn as marks across the bar as far as the axis goes.
    """
    fig = Figure(figsize=(8.0, 2.6))
    ax = fig.add_axes((0.03, 0.2, 0.94, 0.66))
    left = 0.0
    middles = []
    for part, size in parts.items():
        ax.barh(0, size, left=left, height=1, color=COLORS[part], edgecolor="white", linewidth=1)
        middles.append(left + size / 2)
        left += size
    total = sum(parts.values())
    _name(ax, parts, middles, span)
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # keeps a card's mark out of the words
    ax.text(total + 0.01 * span, 0, f"total\n{_size(total)}", va="center", fontweight="bold", bbox=paper)
    told = [f"{part} {_size(size)}" for part, size in parts.items()] + [f"total {_size(total)} {unit}"]
    if before is not None:
        name, size = before
        outline = Rectangle((0, -0.5), size, 1, fill=False, linestyle="--", edgecolor=COLORS["muted"], linewidth=1.2)
        ax.add_patch(outline)
        ax.text(size, -0.62, f"{name}: {_size(size)}", ha="right", va="top", fontsize=10, color=COLORS["muted"])
        told.append(f"{name}: {_size(size)} {unit}")
    for group in _groups([card for card in cards if card < span], 0.065 * span):
        for card in group:
            ax.plot([card, card], [-0.75, 0.65], color=COLORS["ink"], linewidth=2)
        name = f"{', '.join(f'{card:g}' for card in group)} {unit}"
        ax.text(max(fmean(group), 0.062 * span), -0.8, name, ha="center", va="top", fontsize=10)
    ax.set(xlim=(0, span), ylim=(-1.25, 1.9), xlabel=unit)
    ax.set_title(title)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    return fig, f"{title}: {', '.join(told)}."


def _name(ax: Axes, parts: Parts, middles: Sequence[float], span: float) -> None:
    """Names above the bar, each over its part or as far to the right as the one before it needs, with a line to it."""
    wide = 0.125 * span  # of a name
    places: list[float] = []
    for middle in middles:
        places.append(max(middle, places[-1] + wide if places else wide / 2))
    for (part, size), middle, place in zip(parts.items(), middles, places, strict=True):
        ax.plot([middle, place], [0.5, 0.85], color=COLORS["muted"], linewidth=1)
        ax.text(place, 0.92, f"{part}\n{_size(size)}", ha="center", va="bottom", linespacing=1.3)


def _groups(places: Sequence[float], room: float) -> list[list[float]]:
    """Ascending ``places``, those together that leave no ``room`` for a name each."""
    groups: list[list[float]] = []
    for place in places:
        if groups and place - groups[-1][-1] < len(groups[-1]) * room:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def _size(size: float) -> str:
    return f"{size:,.1f}" if size >= 1 else f"{size:.2g}"
