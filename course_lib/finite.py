"""A loss that is no number any more ends a run, with advice, instead of ruining it step by step."""

from __future__ import annotations

from math import isfinite
from typing import Any


def require_finite(
    value: Any,
    step: int,
    last: float | None = None,
    *,
    what: str = "loss",
    lr: float | None = None,
    warmup: bool = False,
    clipping: bool = False,
    fp16: bool = False,
) -> float:
    """The loss as a Python number, if it is finite. Call it before ``optimizer.step()``: nothing is ruined then.

    In a loop: ``last = require_finite(loss, step, last)``.

    Args:
        value: the loss, a number or a tensor of one element.
        step: the step that it belongs to.
        last: the last loss that was finite, if there was one.
        what: what ``value`` is, where it is not the loss.
        lr: the learning rate of this step, for the advice.
        warmup, clipping, fp16: whether the run has a warm-up, clips gradients, computes in fp16: what it has already
            is not advised.

    Raises:
        FloatingPointError: it is NaN or infinite. The message has the step, the last finite loss, and what to try.
    """
    number = float(value.item() if hasattr(value, "item") else value)
    if isfinite(number):
        return number
    if last is None:
        told = "and no loss was finite before it. Look at this batch's inputs and labels, and at the weights, first."
        raise FloatingPointError(f"Step {step}: the {what} is {number}, {told}{_sixteen_bits(fp16)}")
    slower = "a lower learning rate" if lr is None else f"a learning rate below {lr:g}"
    tries = [slower, *["a warm-up"] * (not warmup), *["clipping of gradients"] * (not clipping)]
    advice = f"{', '.join(tries[:-1])} or {tries[-1]}" if len(tries) > 1 else slower
    raise FloatingPointError(
        f"Step {step}: the {what} is {number}; the last finite loss was {last:.4g}. Go back to an earlier checkpoint, "
        f"and try {advice}.{_sixteen_bits(fp16)}"
    )


def _sixteen_bits(fp16: bool) -> str:
    return " And compute in bf16 instead of fp16, whose largest number is 65,504." if fp16 else ""
