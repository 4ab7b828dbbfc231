"""How well a product fits its matrix: in numbers, in words, and for many matrices in one picture."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, isinf

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib import factored, figures


def error_ranges(fits: Mapping[str, tuple[Tensor, Tensor]]) -> tuple[Figure, str]:
    """For each name, where the middle 90 % of ``log2(V̂/V)`` lie; ``fits`` holds ``(V, V̂)``, both ``[n, m]``."""
    fig, ax = figures.subplots(width=8.0, height=0.8 + 0.29 * len(fits))
    shares = {}
    for y, (name, (V, V_hat)) in enumerate(fits.items()):
        ratio = log2_ratio(V, V_hat)
        low, middle, high = np.quantile(figures.as_array(ratio), (0.05, 0.5, 0.95))
        shares[name] = share_within(ratio)
        ax.plot([low, high], [y, y], color=figures.COLORS["adafactor"], lw=5, solid_capstyle="butt", alpha=0.55)
        ax.plot(middle, y, "o", color=figures.COLORS["ink"], ms=5)
        ax.text(6.1, y, percent(shares[name]), va="center", ha="right")
    ax.axvspan(-1, 1, color=figures.COLORS["muted"], alpha=0.15, lw=0)
    ax.axvline(0, color=figures.COLORS["muted"], lw=1)
    ax.set(ylim=(len(fits) - 0.4, -0.6), xlim=(-4, 6.2), yticks=range(len(fits)), yticklabels=fits)
    ax.set_xlabel("log₂(V̂ / V): middle 90 % of the entries, and the median")
    ax.set_title("Within the grey band V̂ is right to a factor of two; its share is on the right")
    ax.tick_params(left=False)
    worst, best = min(shares, key=shares.get), max(shares, key=shares.get)
    return fig, (
        f"One bar for each of {len(fits)} matrices, covering the middle 90 % of log₂(V̂/V). Most bars lie within ±1, a "
        f"factor of two. The share of entries within it runs from {percent(shares[worst])} ({worst}) to "
        f"{percent(shares[best])} ({best})."
    )


def log2_ratio(v: Tensor, approx: Tensor) -> Tensor:
    """``log2(approx / v)`` entry by entry: 1 means twice too large; 0 where both are equal, be they zero."""
    return torch.where(v == approx, 0.0, (approx / v).log2())


def within_factor_two(v: Tensor, approx: Tensor) -> float:
    """The share of entries where ``approx`` is neither more than twice too large nor more than twice too small."""
    return share_within(log2_ratio(v, approx))


def share_within(ratio: Tensor) -> float:
    """:func:`within_factor_two` from a :func:`log2_ratio`."""
    return (ratio.abs() <= 1 + 1e-6).double().mean().item()


def describe(V: Tensor, V_hat: Tensor, ratio: Tensor) -> str:
    """How far ``V_hat`` is from ``V``, both ``[n, m]``: the three measures of lesson 04, and the extremes.

    Args:
        V, V_hat: the matrix and its product.
        ratio: their :func:`log2_ratio`.
    """
    divergence = factored.i_divergence(V.double(), V_hat.double()) / V.double().sum()
    over, under = (2 ** max(extreme.item(), 0.0) for extreme in (ratio.max(), -ratio.min()))
    return (
        f"V ({V.shape[0]} × {V.shape[1]}), its product V̂, and their ratio. I-divergence {divergence:.3f} of the total; "
        f"relative error {factored.relative_error(V, V_hat):.3f}; {percent(share_within(ratio))} of the entries within "
        f"a factor of two. V̂ is at most {times(over)} too large and {times(under)} too small."
    )


def times(factor: float) -> str:
    """A factor in words."""
    return "infinitely" if isinf(factor) else f"{factor:,.1f} times" if factor < 1000 else f"{factor:.0e} times"


def percent(share: float) -> str:
    """A share in percent, rounded down, so that only all of them are 100 %."""
    return f"{floor(100 * share + 1e-9)} %"
