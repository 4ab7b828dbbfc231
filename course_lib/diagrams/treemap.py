"""An optimizer's state as a map: every tensor a rectangle, its area standing for its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_lib.diagrams.squarify import Box, inset, squarify
from course_lib.figures import COLORS

State = Mapping[str, Mapping[str, Sequence[int]]]  # by parameter and by key: the shape of a float32 tensor

WIDTH, HEIGHT = 8.0, 4.9  # inches
LEFT, TOP, MAP_WIDTH, MAP_HEIGHT = 0.05, 0.72, 7.9, 3.1
# Strips of the map from left to right, with their colors.
STRIPS = {
    "first moment": "adamw",
    "second moment": "adamw",
    "rows": "row",
    "columns": "col",
    "vectors": "adafactor",
    "scalars": "muted",
}


def draw(state: State, title: str, *, weights: int, span: int | None = None) -> tuple[Figure, str]:
    """The state of a model, tensor by tensor, and below it the total of weights, gradients and state.

    Args:
        state: for each parameter's name the shapes of what is kept for it, by key.
        title: what is seen.
        weights: bytes of the weights. The gradients take the same again.
        span: bytes that the whole map stands for; as many as there are by default. A smaller state leaves a part of
            the map empty, marked by a dashed line.
    """
    factored = any(key.endswith("_row") for kept in state.values() for key in kept)
    strips = _strips(state, factored)
    sizes = {strip: sum(sum(tensors.values()) for tensors in groups.values()) for strip, groups in strips.items()}
    total = sum(sizes.values())
    share = total / (span or total)
    fig = Figure(figsize=(WIDTH, HEIGHT))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    ax.axis("off")
    ax.text(LEFT, 0.2, f"{title}: {_size(total)}", fontsize=12, va="center")
    ax.add_patch(Rectangle((LEFT, TOP), MAP_WIDTH, MAP_HEIGHT, fill=False, linestyle=":", edgecolor=COLORS["muted"]))
    small = share < 0.05
    # A small state is drawn as a square: a strip of full height would be a hair.
    side = (share * MAP_WIDTH * MAP_HEIGHT) ** 0.5
    area = Box(LEFT, TOP, side, side) if small else Box(LEFT, TOP, share * MAP_WIDTH, MAP_HEIGHT)
    vectors = {name for name, kept in state.items() if not _of_a_matrix(kept)}
    told, left = [], area.x
    for strip, size in sizes.items():
        box = Box(left, area.y, area.width * size / total, area.height)
        left += box.width
        named = size > 0.01 * total
        told.append(f"{strip} {_size(size)}" + (f" ({size / total:.0%})" if named else ""))
        if named and not small:
            label = f"{strip} {_size(size)}" + (f", {size / total:.0%}" if factored else "")
            ax.text(box.x + 0.03, TOP - 0.14, label, fontsize=11, va="center")
        _groups(ax, box, strips[strip], strip, vectors, labels=named and not small)
    if not factored:
        few = 4 * sum(prod(shape) for name in vectors for shape in state[name].values())
        vectors_share = f"{few / total:.1%}"
        note = f"blue, if you can find it: vectors, {vectors_share}"
        place = {"ha": "right", "va": "center"}
        ax.text(LEFT + MAP_WIDTH, TOP + MAP_HEIGHT + 0.15, note, fontsize=10, color=COLORS["adafactor"], **place)
        told.append(f"{vectors_share} of it for vectors, in blue")
    if small:
        ax.annotate(
            f"all of it: {_size(total)}",
            (area.x + side, area.y + side / 2),
            (area.x + side + 0.5, area.y + side / 2),
            va="center",
            arrowprops={"arrowstyle": "->", "color": COLORS["ink"]},
        )
    bar = _bar(ax, weights, total)
    return fig, f"{title}, tensor by tensor, area for bytes: {', '.join(told)}, together {_size(total)}. {bar}."


def _strips(state: State, factored: bool) -> dict[str, dict[str, dict[str, int]]]:
    """Bytes by strip, by part of the model, and by parameter."""
    strips: dict[str, dict[str, dict[str, int]]] = {strip: {} for strip in STRIPS}
    for name, kept in state.items():
        for key, shape in kept.items():
            group = strips[_strip(key, factored)].setdefault(_part(name), {})
            group[name] = group.get(name, 0) + 4 * prod(shape)
    return {strip: groups for strip, groups in strips.items() if groups}


def _strip(key: str, factored: bool) -> str:
    if key.endswith("_row"):
        return "rows"
    if key.endswith("_col"):
        return "columns"
    if key == "exp_avg":
        return "first moment"
    if key == "exp_avg_sq":
        return "vectors" if factored else "second moment"
    return "scalars"


def _part(name: str) -> str:
    """The part of a model that a parameter belongs to, as DistilBERT names its parameters."""
    words = name.split(".")
    if "embeddings" in words:
        return "embeddings"
    return f"layer {words[words.index('layer') + 1]}" if "layer" in words else "head"


def _of_a_matrix(kept: Mapping[str, Sequence[int]]) -> bool:
    return any(key.endswith(("_row", "_col")) or len(shape) > 1 for key, shape in kept.items())


def _groups(
    ax: Axes, box: Box, groups: Mapping[str, Mapping[str, int]], strip: str, vectors: Iterable[str], labels: bool
) -> None:
    """Draw one strip: its parts, and in each its tensors."""
    sizes = {part: sum(tensors.values()) for part, tensors in groups.items()}
    parts = sorted(sizes, key=sizes.get, reverse=True)
    corners, colors = [], []
    for part, whole in zip(parts, squarify([sizes[part] for part in parts], box), strict=True):
        inner = inset(whole, 0.025)
        names = sorted(groups[part], key=groups[part].get, reverse=True)
        for name, place in zip(names, squarify([groups[part][name] for name in names], inner), strict=True):
            color = to_rgb(COLORS["adafactor" if name in vectors and strip != "scalars" else STRIPS[strip]])
            if strip == "first moment" and name not in vectors:
                color = tuple(0.45 + 0.55 * channel for channel in color)
            x, y, width, height = inset(place, 0.008)
            corners.append([(x, y), (x + width, y), (x + width, y + height), (x, y + height)])
            colors.append(color)
        if labels and whole.width > 0.85 and whole.height > 0.42:
            x, y = whole.x + whole.width / 2, whole.y + whole.height / 2
            back = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "boxstyle": "round,pad=0.15"}
            ax.text(x, y, f"{part}\n{_size(sizes[part])}", fontsize=10, ha="center", va="center", bbox=back)
    ax.add_collection(PolyCollection(corners, facecolor=colors, edgecolor="none"), autolim=False)


def _bar(ax: Axes, weights: int, state: int) -> str:
    """Weights, gradients and state as one bar, on the scale of a state of two numbers for each weight."""
    y, left, told = 4.42, LEFT, []
    for part, size in {"weights": weights, "gradients": weights, "state": state}.items():
        width = MAP_WIDTH * size / (4 * weights)
        ax.add_patch(Rectangle((left, y), width, 0.3, facecolor=COLORS[part], edgecolor="white"))
        if width > 1:
            ink = "white" if part == "state" else COLORS["ink"]
            ax.text(
                left + width / 2, y + 0.15, f"{part} {_size(size)}", ha="center", va="center", color=ink, fontsize=10
            )
        left += width
        told.append(f"{part} {_size(size)}")
    if width < 1:
        ax.text(left + 0.08, y + 0.15, told[-1], va="center", color=COLORS["state"], fontsize=10)
    total = _size(2 * weights + state)
    ax.text(LEFT, y - 0.2, f"and the total, with weights and gradients: {total}", fontsize=11, va="center")
    return f"The total is {total}: {', '.join(told)}"


def _size(size: float) -> str:
    if size >= 2**20:
        return f"{size / 2**20:,.1f} MiB"
    if size >= 2**19:
        return f"{size / 2**20:.2f} MiB"
    return f"{size / 2**10:,.1f} KiB" if size >= 2**10 else f"{size} bytes"
