"""Exponential moving averages, and the decay that Adafactor uses for its own.

Sources: Kingma & Ba 2015 (arXiv 1412.6980), section 3, for the bias correction; Shazeer & Stern 2018
(arXiv 1804.04235), section 7.2, for the growing decay.
"""

from __future__ import annotations

import torch
from torch import Tensor


def ema(values: Tensor, beta: float, bias_correction: bool = False) -> Tensor:
    """Exponential moving average along axis 0, starting from zero.

    ``m_t = beta * m_{t-1} + (1 - beta) * x_t`` with ``m_0 = 0``.

    Args:
        values: numbers of shape ``[time, ...]``; whole numbers are averaged as floats, and half-precision ones in
            float32, so that a small step is not rounded away.
        beta: decay, ``0 <= beta < 1``.
        bias_correction: divide ``m_t`` by ``1 - beta**t`` (t counted from 1), which is what the weights
            of the values seen so far add up to.

    Returns:
        A new tensor of the shape (and floating dtype) of ``values``: entry ``t`` is the average after seeing
        ``values[: t + 1]``.

    Raises:
        ValueError: ``beta`` is outside ``[0, 1)``, or ``values`` has no axis to average along.
    """
    _check_decay(beta)
    values = torch.as_tensor(values)
    if values.ndim == 0:
        raise ValueError("ema averages along axis 0, so it needs at least one axis; it was given a single number.")
    if not values.is_floating_point():
        values = values.to(torch.get_default_dtype())
    averages = torch.empty_like(values)
    average = torch.zeros(
        values.shape[1:], dtype=torch.promote_types(values.dtype, torch.float32), device=values.device
    )
    for t, value in enumerate(values, start=1):
        average = beta * average + (1 - beta) * value
        averages[t - 1] = average / (1 - beta**t) if bias_correction else average
    return averages


def adafactor_beta2(t: float | Tensor, decay_rate: float = -0.8) -> float | Tensor:
    """Adafactor's decay at step ``t``: ``1 - t**decay_rate``, 0 at the first step and growing towards 1.

    Args:
        t: step, counted from 1; a number or a tensor of steps (then the result is a tensor of that shape).
        decay_rate: exponent, at most 0.

    Raises:
        ValueError: a step below 1 (the first step is step 1, where the decay is exactly 0), or a positive exponent,
            which would make the decay negative.
    """
    if not bool((torch.as_tensor(t) >= 1).all()):
        raise ValueError(f"Steps are counted from 1, but t = {t} was given.")
    if not decay_rate <= 0:
        raise ValueError(f"decay_rate is the exponent of 1 - t**decay_rate, at most 0; it was {decay_rate}.")
    return 1 - t ** float(decay_rate)


def effective_window(beta: float) -> float:
    """About how many recent values an average with decay ``beta`` looks at: ``1 / (1 - beta)``.

    It is the mean of the weights' ages counted from 1, not a hard cut: older values still weigh in.

    Raises:
        ValueError: ``beta`` is outside ``[0, 1)``.
    """
    _check_decay(beta)
    return 1 / (1 - beta)


def _check_decay(beta: float) -> None:
    if not 0 <= beta < 1:
        raise ValueError(f"The decay beta must be at least 0 and below 1; it was {beta}.")
