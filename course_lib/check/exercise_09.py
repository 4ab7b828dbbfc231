"""Exercise 09: quantize blocks by hand, price 8-bit AdamW to the byte, and measure what 8 bits lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib import blockwise
from course_lib.check._eight_bit_bytes import adam8bit_bytes as adam8bit_bytes
from course_lib.check._eight_bit_codes import quantize_blocks as quantize_blocks
from course_lib.check._task import Belief, Task, case


def _lost(
    share: Callable[[Tensor, Tensor, Tensor], Any],
    block: Callable[[int], int] = lambda block_size: block_size,
    named: Callable[[str], str] = lambda kind: kind,
) -> Callable[[Tensor, int, str], Any]:
    """A rule: ``share(x, back, codes)`` of flat tensors."""

    def rule(x: Tensor, block_size: int, kind: str) -> Any:
        q = blockwise.quantize(x, block(block_size), kind=named(kind))
        return float(share(x.flatten(), blockwise.dequantize(q).flatten(), q.codes.flatten()))

    return rule


def _share(x: Tensor, back: Tensor, _: Tensor) -> Tensor:
    return (back[x != 0] == 0).double().mean()


def _with_outlier(*shape: int, outlier: float, every: int = 0) -> Tensor:
    """Numbers between 0.5 and 2, of both signs; one in the middle is larger, and each of so many is zero."""
    generator = torch.Generator().manual_seed(len(shape))
    x = (torch.rand(shape, generator=generator) * 1.5 + 0.5) * torch.randn(shape, generator=generator).sign()
    x.view(-1)[x.numel() // 2 + 1] = outlier
    if every:
        x.view(-1)[::every] = 0.0
    return x


def _without_zeros(x: Tensor, block_size: int, kind: str) -> float:
    back = blockwise.dequantize(blockwise.quantize(x[x != 0], block_size, kind=kind))
    return (back == 0).double().mean().item()


share_lost = Task(
    name="share_lost",
    rule=_lost(_share),
    cases=lambda: [
        case(torch.tensor([1.0, -0.001, 0.5, -1.0, 0.002, 0.25]), 3, "linear"),
        case(_with_outlier(512, outlier=300.0, every=5), 64, "linear"),
        case(_with_outlier(16, 40, outlier=-4e6, every=4), 128, "dynamic"),
        case(_with_outlier(512, outlier=300.0), 256, "dynamic"),
        case(1e-6 * _with_outlier(8, 8, 10, outlier=1e4).double(), 160, "linear"),
    ],
    beliefs=[
        Belief(
            "code_zero_is_zero",
            "You count codes that are 0. A code is a place in the map: code 0 stands for the *least* value, near −1. "
            "Read the numbers back, and see which of them are zero.",
            [
                _lost(lambda x, back, codes: (codes == 0).double().mean()),
                _lost(lambda x, back, codes: (codes[x != 0] == 0).double().mean()),
                _lost(lambda x, back, codes: ((codes == 0) & (x != 0)).double().mean()),
            ],
        ),
        Belief(
            "true_zeros_counted",
            "Numbers that are zero in `x` come back as zero, as they should. They are not lost: leave them out.",
            _lost(lambda x, back, codes: (back == 0).double().mean()),
        ),
        Belief(
            "share_of_all",
            "Above the line you leave the zeros of `x` out, below it you count them in: you divide by the number of "
            "all elements. The share among those that are not zero is asked.",
            _lost(lambda x, back, codes: ((back == 0) & (x != 0)).double().mean()),
        ),
        Belief(
            "zeros_above_the_line",
            "Below the line you leave the zeros of `x` out, above it you count them in. They are not lost.",
            _lost(lambda x, back, codes: (back == 0).sum() / (x != 0).sum()),
        ),
        Belief(
            "number_not_share",
            "That is how *many* numbers are lost. Their share is asked: divide by the number of those that could be.",
            _lost(lambda x, back, codes: (back[x != 0] == 0).sum()),
        ),
        Belief(
            "per_cent",
            "Your share is in per cent, so 100 times as large as one from 0 to 1.",
            _lost(lambda x, back, codes: 100 * _share(x, back, codes)),
        ),
        Belief(
            "share_kept",
            "That is the share of the numbers that survive. The other part is asked.",
            _lost(lambda x, back, codes: 1 - _share(x, back, codes)),
        ),
        Belief(
            "always_zero",
            "Your share is 0 for every input. Was it rounded on the way, by `int()` or by dividing with `//`?",
            lambda x, block_size, kind: 0.0,
        ),
        Belief(
            "zeros_taken_out_first",
            "You take the zeros out of `x` before you quantize, so the numbers behind them move up into other blocks. "
            "Quantize all of `x`, and leave the zeros out when you count.",
            _without_zeros,
        ),
        Belief(
            "kind_ignored",
            "Your result does not depend on `kind`: one map serves for both. Hand `kind` on to `blockwise.quantize`, "
            "whose default is the dynamic map.",
            [_lost(_share, named=lambda kind, one=one: one) for one in blockwise.KINDS],
        ),
        Belief(
            "block_size_ignored",
            "Your result does not depend on `block_size`, as if the blocks always had the same size. Hand it on to "
            "`blockwise.quantize`, whose default is 256.",
            [_lost(_share, block=lambda block_size, one=one: one) for one in (256, 10**6)],
        ),
        Belief(
            "changed_is_lost",
            "You count all numbers that come back changed. Nearly all do, by a little; *lost* are those that come back "
            "as zero.",
            [
                _lost(lambda x, back, codes: (back != x).double().mean()),
                _lost(lambda x, back, codes: (back != x)[x != 0].double().mean()),
            ],
        ),
        Belief(
            "negatives_lost",
            "You count negative numbers in as well: `<= 0` holds for each of them, lost or not. Ask for `== 0`.",
            _lost(lambda x, back, codes: (back[x != 0] <= 0).double().mean()),
        ),
    ],
    hints=[
        "`blockwise.dequantize(q)` gives a tensor of the shape of `x`. Which of its entries are zero, but not in `x`?",
        "Of the tensor that came back, keep only the entries where `x != 0`. What is the share of zeros among them?",
        "`blockwise.quantize(x, block_size, kind=kind)`; then the mean of `back[x != 0] == 0`, in floating point.",
    ],
    praise="The linear map loses what is below 1/254 of its block's absmax, the dynamic map only what is millions of "
    "times smaller.",
)
