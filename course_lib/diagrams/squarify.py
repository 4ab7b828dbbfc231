"""Dividing a rectangle into rectangles of given areas, for a treemap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Box(NamedTuple):
    """A rectangle, in inches from the upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def area(self) -> float:
        return self.width * self.height


def squarify(sizes: Sequence[float], box: Box) -> list[Box]:
    """Divide ``box`` into one rectangle for each of the sizes, in proportion and as near to squares as it goes.

    Args:
        sizes: positive, the largest first.
        box: what to divide.

    Source: Bruls, Huizing & van Wijk 2000, "Squarified treemaps".
    """
    boxes: list[Box] = []
    rest, todo = box, [size * box.area / sum(sizes) for size in sizes]
    while todo:
        side = min(rest.width, rest.height)
        count = 1
        while count < len(todo) and _worst(todo[: count + 1], side) <= _worst(todo[:count], side):
            count += 1
        thickness = sum(todo[:count]) / side
        along = 0.0
        for size in todo[:count]:
            length = size / thickness
            if rest.width >= rest.height:
                boxes.append(Box(rest.x, rest.y + along, thickness, length))
            else:
                boxes.append(Box(rest.x + along, rest.y, length, thickness))
            along += length
        if rest.width >= rest.height:
            rest = Box(rest.x + thickness, rest.y, rest.width - thickness, rest.height)
        else:
            rest = Box(rest.x, rest.y + thickness, rest.width, rest.height - thickness)
        todo = todo[count:]
    return boxes


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of long to short side, if these areas are laid side by side along ``side``."""
    thickness = sum(row) / side
    return max(max(size / thickness**2, thickness**2 / size) for size in (row[0], row[-1]))


def inset(box: Box, gap: float) -> Box:
    """The box without a margin, which is ``gap`` or, where it is thin, a tenth of its side."""
    x, y = min(gap, box.width / 10), min(gap, box.height / 10)
    return Box(box.x + x, box.y + y, box.width - 2 * x, box.height - 2 * y)
