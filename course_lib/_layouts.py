"""What each optimizer keeps for one parameter: the state it will make in its first step, on the `meta` device.

A tensor on the `meta` device has a shape, a dtype and a size, and no memory behind it. Sources: the state that
``torch.optim`` (2.13), ``transformers.optimization.Adafactor`` (5.24), ``bitsandbytes.optim`` (0.50) and
``torchao.optim`` (0.18) make; the tests compare each with a real step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor

from course_lib._tensor_parts import Packed

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


# --- moments in 8 or 4 bits

_SMALL = 4096  # elements; bitsandbytes and torchao leave smaller tensors in full
# bitsandbytes keeps two maps, of signed and of unsigned numbers, and all parameters share them.
_QMAPS = {1: _empty(256, dtype=torch.float32), 2: _empty(256, dtype=torch.float32)}


def _in_full(p: Tensor, moments: int) -> State:
    # In 32 bits, whatever the parameter has.
    return {"step": 1} | {f"state{i}": _empty(*p.shape, dtype=torch.float32) for i in range(1, moments + 1)}


def _in_8bit(p: Tensor, moments: int) -> State:
    if p.numel() < _SMALL:
        return _in_full(p, moments)
    state: State = {"step": 1}
    for i in range(1, moments + 1):
        state[f"state{i}"] = _empty(*p.shape, dtype=torch.uint8)
        state[f"qmap{i}"] = _QMAPS[i]
        state[f"absmax{i}"] = _empty(ceil(p.numel() / 256), dtype=torch.float32)
    return state


def _torchao(p: Tensor, bits: int, block: int) -> State:
    default = torch.get_default_dtype()
    state: State = {"step": _empty(dtype=default)}
    for key in ("exp_avg", "exp_avg_sq"):
        if p.numel() < _SMALL or p.numel() % block:
            state[key] = _like(p)
        else:
            state[key] = Packed(p.numel(), (_empty(p.numel() * bits // 8, dtype=torch.uint8),))
            state[f"{key}.scale"] = _empty(p.numel() // block, dtype=default)
            state[f"{key}.qmap"] = _empty(2**bits, dtype=torch.float32)  # a map of its own for each
    return state


LAYOUTS: dict[str, Callable[[Tensor], State]] = {
    "sgd": _sgd,
    "sgd_momentum": _sgd_momentum,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adamw": _adamw,
    "adafactor": _adafactor,
    "adafactor_transformers": _adafactor_transformers,
    "adafactor_torch": _adafactor_torch,
    "adamw8bit_bitsandbytes": lambda p: _in_8bit(p, moments=2),
    "lion8bit_bitsandbytes": lambda p: _in_8bit(p, moments=1),
    "lion_bitsandbytes": lambda p: _in_full(p, moments=1),
    "adamw8bit_torchao": lambda p: _torchao(p, bits=8, block=256),
    "adamw4bit_torchao": lambda p: _torchao(p, bits=4, block=128),
}
# What the kinds to which transformers' Trainer applies its rule keep for an embedding.
EMBEDDINGS_IN_32BIT: dict[str, Callable[[Tensor], State]] = {
    "adamw8bit_bitsandbytes": lambda p: _in_full(p, moments=2),
    "lion8bit_bitsandbytes": lambda p: _in_full(p, moments=1),
}
