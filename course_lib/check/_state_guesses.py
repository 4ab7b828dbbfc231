"""Ways, right and wrong, to predict how many moments Adafactor will keep for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import nn

from course_lib.check._state_ways import State


def _rows(shape: Sequence[int]) -> int:
    return prod(shape[:-1])


def _factors(shape: Sequence[int]) -> int:
    return _rows(shape) + prod(shape[:-2]) * shape[-1]


def _smaller(shape: Sequence[int]) -> int:
    return min(prod(shape), _factors(shape))


@dataclass(frozen=True)
class Guess:
    """A way to predict Adafactor's moments; as it stands, the right one.

    Attributes:
        tied, frozen: a tied parameter counts under each of its names, a frozen one counts like any other.
        number, vector, matrix, beyond: what is kept for a shape of 0, of 1, of 2 and of more axes.
        extra: further numbers for each parameter.
        share: further numbers for each number of a parameter.
        unit: what a number counts.
    """

    tied: bool = False
    frozen: bool = False
    number: Callable[[torch.Size], int] = prod
    vector: Callable[[torch.Size], int] = prod
    matrix: Callable[[torch.Size], int] = _factors
    beyond: Callable[[torch.Size], int] = _factors
    extra: int = 0
    share: int = 0
    unit: float = 1

    def __call__(self, model: nn.Module) -> float:
        found = [p for _, p in model.named_parameters(remove_duplicate=not self.tied) if p.requires_grad or self.frozen]
        return sum(self.of(p.shape) for p in found)

    def of(self, shape: torch.Size) -> float:
        kinds = (self.number, self.vector, self.matrix)
        kept = (kinds[len(shape)] if len(shape) < 3 else self.beyond)(shape)
        return self.unit * (self.extra + self.share * prod(shape) + kept)


GUESS = Guess()
# For each misconception what is said, and the ways to have it. Of two at once the first is named: it is the one that
# the first wrong input shows, where they are in the order of the inputs that show them.
GUESSES: dict[str, tuple[str, list[State]]] = {
    "not_factored": (
        "This is the whole second moment: one number for each parameter, as RMSProp keeps it. Adafactor factors it.",
        [{"matrix": prod, "beyond": prod}],
    ),
    "both_moments": (
        "These are two numbers for each parameter, as AdamW keeps them. Adafactor drops the first moment and factors "
        "the second.",
        [dict.fromkeys(("number", "vector", "matrix", "beyond"), lambda shape: 2 * prod(shape))],
    ),
    "one_margin": (
        "You count rows or columns. For a matrix Adafactor keeps the means of both.",
        [
            {"matrix": _rows, "beyond": _rows},
            dict.fromkeys(("matrix", "beyond"), lambda shape: prod(shape[:-2]) * shape[-1]),
        ],
    ),
    "with_first_moment": (
        "There is a number for each parameter beside the means: a first moment. The course's Adafactor has none.",
        [{"share": 1}],
    ),
    "in_bytes": (
        "That is the size in bytes, or made from it. Asked is how many numbers there are.",
        [{"unit": 4}, {"unit": 4 / 2**20}],
    ),
    "vector_factored": (
        "You treat a vector as if it had rows and columns. It has one axis, and Adafactor keeps its second moment "
        "whole.",
        [{"vector": lambda shape, n=n: n} for n in (1, 2)]
        + [{"vector": lambda shape: shape[0] + 1, "number": number} for number in (prod, lambda shape: 2)],
    ),
    "vectors_forgotten": (
        "Vectors are missing. They are not factored, but they do have a second moment, which is kept whole.",
        [{"vector": lambda shape: 0, "number": number} for number in (prod, lambda shape: 0)],
    ),
    "steps_counted": (
        "The steps are in your count, or what else is kept once for each parameter. They are part of the state, but "
        "moments alone are asked.",
        [{"extra": 1}, {"extra": 2}],
    ),
    "tied_twice": (
        "A tied parameter is in your count under each of its names. It is one tensor, with one gradient and one state. "
        "(Moving a model to `meta` unties it.)",
        [{"tied": True}],
    ),
    "frozen_counted": (
        "You count frozen parameters. They never get a gradient, so an optimizer keeps nothing for them.",
        [{"frozen": True}],
    ),
    "first_axes_for_conv": (
        "You factor the first two axes of a convolution, or its two longest. The course's Adafactor always takes the "
        "last two.",
        [
            {"beyond": lambda shape: prod(shape[2:]) * (shape[0] + shape[1])},
            {"beyond": lambda shape: _factors(sorted(shape))},
        ],
    ),
    "smaller_of_both": (
        "You keep the whole second moment where it is smaller. Adafactor does not look at that: whatever has two axes "
        "or more is factored.",
        [{"beyond": _smaller}, {"beyond": _smaller, "matrix": _smaller}],
    ),
    "n_plus_m_for_conv": (
        "You keep too little for a convolution. Its last two axes are rows and columns, and *each* place on the "
        "leading axes has a matrix of its own, with its own means.",
        [
            {"beyond": lambda shape: shape[0] + shape[1]},
            {"beyond": lambda shape: shape[-2] + shape[-1]},
            {"beyond": sum},
            {"beyond": lambda shape: shape[0] + prod(shape[1:])},
            {"beyond": lambda shape: _rows(shape) + shape[-1]},
            {"beyond": lambda shape: shape[0] * shape[1] + prod(shape[2:])},
            {"beyond": lambda shape: shape[0] * (shape[-2] + shape[-1])},
            {"beyond": lambda shape: shape[1] * (shape[-2] + shape[-1])},
        ],
    ),
    "conv_not_factored": (
        "You keep a convolution's second moment whole. Adafactor factors the last two axes of every tensor that has "
        "two or more.",
        [{"beyond": prod}],
    ),
    "single_number_forgotten": (
        "A parameter may be a single number, of shape `()`. It has a second moment too.",
        [{"number": lambda shape: 0}],
    ),
}
