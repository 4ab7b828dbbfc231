"""A non-negative matrix kept as its row means and column means.

Source: Shazeer & Stern 2018 (arXiv 1804.04235), section 3. The paper keeps sums; means, as in the public
implementations, give the same product.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_col_means(v: Tensor) -> tuple[Tensor, Tensor]:
    """Means of each row and of each column of ``v``.

    Args:
        v: non-negative, shape ``[..., n, m]``. Leading axes are a batch of separate matrices.

    Returns:
        ``(row, col)`` of shapes ``[..., n]`` and ``[..., m]``: the mean over the last axis (one number for
        each row) and over the second-last axis (one for each column).

    Raises:
        ValueError: fewer than two axes, or a negative entry.
    """
    v = _floats(v)
    if v.ndim < 2:
        raise ValueError(f"Rows and columns need at least two axes; the shape given is {tuple(v.shape)}.")
    _check_not_negative(v)
    return v.mean(dim=-1), v.mean(dim=-2)


def reconstruct(row: Tensor, col: Tensor) -> Tensor:
    """The matrix that row means and column means stand for: their outer product over the overall mean.

    Args:
        row: row means, shape ``[..., n]``.
        col: column means, shape ``[..., m]``.

    Returns:
        Shape ``[..., n, m]``, entry ``row_i * col_j / mean(row)``; zeros where all of ``row`` is zero.
    """
    row, col = _floats(row), _floats(col)
    overall = row.mean(dim=-1, keepdim=True)
    # Dividing first keeps tiny means (1e-30 is usual) from underflowing in the product.
    share = torch.where(overall == 0, torch.zeros_like(row), row / overall)
    return share.unsqueeze(-1) * col.unsqueeze(-2)


def i_divergence(v: Tensor, approx: Tensor) -> Tensor:
    """Generalized Kullback-Leibler divergence ``sum(V log(V / V̂) - V + V̂)``, in nats times the unit of ``v``.

    Among all rank-1 matrices, :func:`reconstruct` of :func:`row_col_means` has the smallest one (Lee & Seung
    1999 give the measure, Shazeer & Stern 2018 the result). Zero only where both are equal; infinite where
    ``approx`` is zero and ``v`` is not.

    Args:
        v, approx: non-negative, of the same shape.

    Returns:
        0-dim tensor, summed over all entries; never below 0, which rounding alone could bring about.

    Raises:
        ValueError: a negative entry in either.
    """
    v, approx = _floats(v), _floats(approx)
    _check_not_negative(v)
    _check_not_negative(approx)
    return (torch.xlogy(v, v) - torch.xlogy(v, approx) - v + approx).sum().clamp(min=0)


def relative_error(v: Tensor, approx: Tensor) -> Tensor:
    """Frobenius norm of the error over that of the matrix, ``||V - V̂|| / ||V||``; 0 for an all-zero ``v``.

    Args:
        v, approx: of the same shape.

    Returns:
        0-dim tensor, over all entries.
    """
    v, approx = _floats(v), _floats(approx)
    # Entries near 1e-30 are usual, and their squares would underflow.
    largest = v.abs().max()
    error = torch.linalg.vector_norm((v - approx) / largest) / torch.linalg.vector_norm(v / largest)
    return torch.where(largest == 0, torch.zeros_like(error), error)


def _floats(x: Tensor) -> Tensor:
    x = torch.as_tensor(x)
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def _check_not_negative(v: Tensor) -> None:
    if bool((v < 0).any()):
        raise ValueError("A second moment is a mean of squares, so no entry may be negative; one is.")
