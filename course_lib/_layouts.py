"""What each optimizer keeps for one parameter: the state it will make in its first step, on the `meta` device.

A tensor on the `meta` device has a shape, a dtype and a size, and no memory behind it. Sources: the state that
``torch.optim`` (2.13) and ``transformers.optimization.Adafactor`` (5.24) make; the tests compare each with a real step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

State = dict[str, Any]


def _empty(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _torch_step() -> Tensor:
    # torch.optim counts steps in float32, unless the default dtype is float64.
    double = torch.get_default_dtype() is torch.float64
    return _empty(dtype=torch.float64 if double else torch.float32)


def _like(p: Tensor) -> Tensor:
    return _empty(*p.shape, dtype=p.dtype)


def _at_least_float32(p: Tensor) -> torch.dtype:
    return torch.promote_types(p.dtype, torch.float32)


def _sgd(p: Tensor) -> State:
    return {}


def _sgd_momentum(p: Tensor) -> State:
    return {"momentum_buffer": _like(p)}


def _adagrad(p: Tensor) -> State:
    return {"step": _torch_step(), "sum": _like(p)}


def _rmsprop(p: Tensor) -> State:
    return {"step": _torch_step(), "square_avg": _like(p)}


def _adamw(p: Tensor) -> State:
    return {"step": _torch_step(), "exp_avg": _like(p), "exp_avg_sq": _like(p)}


def _factored(p: Tensor) -> State:
    dtype = _at_least_float32(p)
    if p.ndim < 2:
        return {"exp_avg_sq": _empty(*p.shape, dtype=dtype)}
    return {
        "exp_avg_sq_row": _empty(*p.shape[:-1], dtype=dtype),
        "exp_avg_sq_col": _empty(*p.shape[:-2], p.shape[-1], dtype=dtype),
    }


def _adafactor(p: Tensor) -> State:
    return {"step": _empty(dtype=torch.float32), **_factored(p)}


def _adafactor_transformers(p: Tensor) -> State:
    return {"step": 1, **_factored(p), "RMS": _empty(dtype=_at_least_float32(p))}


def _adafactor_torch(p: Tensor) -> State:
    if p.ndim < 2:
        return {"step": _torch_step(), "variance": _like(p)}
    return {
        "step": _torch_step(),
        "row_var": _empty(*p.shape[:-1], 1, dtype=p.dtype),
        "col_var": _empty(*p.shape[:-2], 1, p.shape[-1], dtype=p.dtype),
    }


LAYOUTS: dict[str, Callable[[Tensor], State]] = {
    "sgd": _sgd,
    "sgd_momentum": _sgd_momentum,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adamw": _adamw,
    "adafactor": _adafactor,
    "adafactor_transformers": _adafactor_transformers,
    "adafactor_torch": _adafactor_torch,
}
