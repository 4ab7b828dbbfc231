"""Adafactor's step for a large matrix on a CPU, walked in blocks of rows that fit a core's cache.

The arithmetic is that of ``Adafactor._update``. On a whole matrix each of its lines sends all numbers from memory to
the processor and back, and makes a temporary as large as the matrix. Here a block stays in the cache from one line to
the next, and one work space of a block's size serves all. The gradient is read three times, since each pass needs what
is complete only after the one before: the averages, then the root mean square of the update, then the step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course_lib.averages import adafactor_beta2


def fits_blocks(p: Tensor) -> bool:
    """Whether ``p`` and its gradient can be walked in blocks: matrices on a CPU, row after row in memory."""
    return p.device.type == "cpu" and p.ndim >= 2 and p.is_contiguous() and p.grad.is_contiguous()


def update_in_blocks(
    p: Tensor, state: dict[str, Tensor], t: float, rate: float | Tensor, group: dict[str, Any], block_size: int
) -> None:
    """Update one parameter of shape ``[..., n, m]``, as ``Adafactor._update`` does.

    Args:
        p: the parameter, with its gradient.
        state: of this parameter; its averages are changed in place.
        t: number of this step, from 1.
        rate: in effect, before it is scaled by the parameter.
        group: settings.
        block_size: the most numbers in a block, if a row has no more.
    """
    R, C = state["exp_avg_sq_row"], state["exp_avg_sq_col"]
    n, m = p.shape[-2:]
    X, G = p.view(-1, n, m), p.grad.view(-1, n, m)
    blocks = list(_blocks(*X.shape, block_size))
    work, spare = (torch.empty(X[blocks[0]].numel(), dtype=R.dtype) for _ in range(2))

    # First pass: the averages of the squared gradient's rows and columns.
    row, col = R.new_empty(len(X), n), C.new_zeros(len(X), m)
    for block in blocks:
        g = _in_float32(G[block], spare)
        squared = torch.mul(g, g, out=_like(g, work))
        torch.sum(squared, dim=-1, out=row[block])
        col[block[0]] += squared.sum(dim=-2)
    weight = 1 - adafactor_beta2(t, group["decay_rate"])
    R.lerp_((row / m + group["eps"][0]).view_as(R), weight)
    C.lerp_((col / n + group["eps"][0]).view_as(C), weight)

    # Second pass: the root mean square of the update U = G r c, to clip it as a whole.
    r = (R.mean(dim=-1, keepdim=True).sqrt() * R.rsqrt()).view(-1, n, 1)
    c = C.rsqrt().view(-1, 1, m)
    for block in blocks:
        u = torch.mul(_in_float32(G[block], spare), c[block[0]], out=_like(X[block], work))
        torch.linalg.vector_norm(u, dim=-1, out=row[block])
    rms = torch.linalg.vector_norm(row.unsqueeze(-1) * r) / p.numel() ** 0.5
    step_size = torch.as_tensor(rate, dtype=R.dtype)
    if group["scale_parameter"]:
        norms = [torch.linalg.vector_norm(_in_float32(X[block], spare)) for block in blocks]
        rms_x = torch.linalg.vector_norm(torch.stack(norms)) / p.numel() ** 0.5
        step_size = step_size * rms_x.clamp(min=group["eps"][1])
    r *= -step_size / (rms / group["clip_threshold"]).clamp(min=1.0)

    # Third pass, backwards: the step. The last block's u is still in the work space.
    for k, block in enumerate(reversed(blocks)):
        u = _like(X[block], work)
        if k:
            torch.mul(_in_float32(G[block], spare), c[block[0]], out=u)
        x = _in_float32(X[block], spare)
        if group["weight_decay"]:
            x *= 1 - group["weight_decay"] * step_size
        x.addcmul_(u, r[block])
        if x.dtype != p.dtype:
            X[block] = x


def _blocks(matrices: int, n: int, m: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Which matrices and which of their rows: several whole matrices at a time, or several rows of one."""
    if n * m <= size:
        together = size // (n * m)
        yield from ((slice(i, i + together), slice(None)) for i in range(0, matrices, together))
    else:
        rows = max(1, size // m)
        yield from ((slice(i, i + 1), slice(j, j + rows)) for i in range(matrices) for j in range(0, n, rows))


def _like(block: Tensor, space: Tensor) -> Tensor:
    """As much of ``space`` as ``block`` has numbers, in its shape."""
    return space[: block.numel()].view(block.shape)


def _in_float32(block: Tensor, space: Tensor) -> Tensor:
    """The block itself, or a copy in ``space`` if it has fewer bits."""
    return block if block.dtype == space.dtype else _like(block, space).copy_(block)
