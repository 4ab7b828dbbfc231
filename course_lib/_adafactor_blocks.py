"""Adafactor's step for a large matrix on a CPU, walked in blocks of rows that fit a core's cache.

The arithmetic is that of ``Adafactor._update``. On a whole matrix each of its lines sends all numbers from memory to
the processor and back, and makes a temporary as large as the matrix. Here a block stays in the cache from one line to
the next, and one work space of a block's size serves all. The gradient is read three times, since each pass needs what
is complete only after the one before: the averages, then the root mean square of the update, then the step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course_lib.averages import adafactor_beta2


def fits_blocks(p: Tensor, smallest: int) -> bool:
    """Whether ``p`` can be walked in blocks: matrices on a CPU, row after row in memory, of more than ``smallest``."""
    if p.device.type != "cpu" or p.ndim < 2 or p.shape[-2:].numel() <= smallest:
        return False
    return p.is_contiguous() and p.grad.is_contiguous()


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
    sizes = _sizes(n, block_size // m) * (R.numel() // n)
    X, G = p.view(-1, m).split(sizes), p.grad.view(-1, m).split(sizes)
    # Work space for one block. Numbers of fewer bits than the averages have are copied before they are computed with.
    work, *copies = (torch.empty(max(sizes), m, dtype=R.dtype) for _ in range(1 if p.dtype == R.dtype else 3))
    spaces = {size: work[:size] for size in set(sizes)}
    room = [spaces[size] for size in sizes]

    # First pass: the averages of the squared gradient's rows and columns.
    row, col = R.new_empty(R.numel(), 1), C.new_zeros(C.numel() // m, m)
    each_row, each_col = row.split(sizes), _for_all_blocks(col, len(G))
    for g, squared, row_sums, col_sums in zip(G, room, each_row, each_col, strict=True):
        g = _copied(g, copies)
        torch.mul(g, g, out=squared)
        torch.sum(squared, dim=-1, keepdim=True, out=row_sums)
        col_sums += squared.sum(dim=-2)
    weight = 1 - adafactor_beta2(t, group["decay_rate"])
    R.lerp_(row.view_as(R).div_(m).add_(group["eps"][0]), weight)
    C.lerp_(col.view_as(C).div_(n).add_(group["eps"][0]), weight)

    # Second pass: the root mean square of the update U = G r c, to clip it as a whole.
    r = (R.mean(dim=-1, keepdim=True).sqrt() * R.rsqrt()).view_as(row)
    c = C.rsqrt().view_as(col)
    each_c = _for_all_blocks(c, len(G))
    for g, u, norms, c_ in zip(G, room, each_row, each_c, strict=True):
        torch.mul(_copied(g, copies), c_, out=u)
        torch.linalg.vector_norm(u, dim=-1, keepdim=True, out=norms)
    rms = _rms(row * r, p.numel())
    step_size = float(rate)
    if group["scale_parameter"]:
        for x, norms in zip(X, each_row, strict=True):
            torch.linalg.vector_norm(_copied(x, copies), dim=-1, keepdim=True, out=norms)
        step_size *= max(_rms(row, p.numel()), group["eps"][1])
    r *= -step_size / max(rms / group["clip_threshold"], 1.0)
    # For a row and a column of zeros r c is huge. It has to stay finite, as it is multiplied by zero.
    r.clamp_(min=torch.finfo(r.dtype).min / 2 / max(c.amax().item(), 1.0))

    # Third pass: the step.
    for g, x, rc, r_, c_ in zip(G, X, room, r.split(sizes), each_c, strict=True):
        torch.mul(r_, c_, out=rc)
        new = _copied(x, copies[1:])
        if group["weight_decay"]:
            new *= 1 - group["weight_decay"] * step_size
        new.addcmul_(_copied(g, copies), rc)
        if copies:
            x.copy_(new)


def _sizes(n: int, rows: int) -> list[int]:
    """How many rows each block of a matrix of n rows has: of almost equal blocks the largest of at most ``rows``."""
    blocks = -(-n // max(1, rows))
    rows = -(-n // blocks)
    return [min(rows, n - start) for start in range(0, n, rows)]


def _for_all_blocks(vectors: Tensor, blocks: int) -> list[Tensor]:
    """One vector for each matrix, as one for each of all the blocks."""
    return [vector for vector in vectors for _ in range(blocks // len(vectors))]


def _copied(block: Tensor, spaces: list[Tensor]) -> Tensor:
    """A copy of the block in the first of the spaces; the block itself if there is none."""
    return spaces[0][: len(block)].copy_(block) if spaces else block


def _rms(x: Tensor, numbers: int) -> float:
    """The root mean square of so many numbers, whose squares sum up to those of ``x``."""
    return torch.linalg.vector_norm(x).item() / numbers**0.5
