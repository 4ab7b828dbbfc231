"""What the capstone's checks count: bytes of weights, gradients and state, predicted or measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import nn

from course_lib import memory
from course_lib.check._task import Belief

MIB = 2**20
KINDS = ("adamw", "rmsprop", "adafactor")


class Sizes(NamedTuple):
    """Bytes that stay from step to step."""

    weights: int
    gradients: int
    state: int

    @property
    def total(self) -> int:
        return sum(self)


def predicted(model: nn.Module, kind: str) -> Sizes:
    """What training with one of `KINDS` will need."""
    parameters = list(model.parameters())
    gradients = sum(p.nbytes for p in parameters if p.requires_grad)
    return Sizes(sum(p.nbytes for p in parameters), gradients, memory.predict_state_size(model, kind).bytes)


def measured(model: nn.Module, optimizer: Any) -> Sizes:
    """What is there now."""
    parameters = list(model.parameters())
    gradients = sum(p.grad.nbytes for p in parameters if p.grad is not None)
    return Sizes(sum(p.nbytes for p in parameters), gradients, memory.state_size(optimizer).bytes)


def says_of(beliefs: Sequence[Belief], name: str) -> str:
    """What a belief says to the learner."""
    return next(belief.says for belief in beliefs if belief.name == name)
