"""The task `quantize_blocks` of exercise 09: codes and scales by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any

import torch
from torch import Tensor

from course_lib import blockwise
from course_lib.check import _values
from course_lib.check._task import Belief, Task, case

Rule = Callable[..., Any]
NAN = float("nan")


def _rounded(shares: Tensor) -> Tensor:
    return (127 * shares).round()


def _cut(shares: Tensor) -> Tensor:
    return (127 * shares).trunc()


def _quantized(
    x: Tensor,
    block_size: int,
    scale: Callable[[Tensor], Tensor] = lambda block: block.abs().max(),
    divisor: Callable[[Tensor], Tensor] = lambda absmax: absmax,
    coded: Callable[[Tensor], Tensor] = _rounded,
    of_zeros: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Codes and scales, with what a misconception changes; `of_zeros` are the codes of a block of zeros."""
    codes, scales = [], []
    for block in x.double().split(block_size):
        scales.append(scale(block))
        codes.append(coded(block / divisor(scales[-1])).nan_to_num(nan=of_zeros))
    return torch.cat(codes), torch.stack(scales)


def _wrapped(codes: Tensor) -> Tensor:
    """As `int8` keeps them."""
    return (codes.trunc() + 128) % 256 - 128


def _coded(*ways: Callable[[Tensor], Tensor], **changes: Any) -> list[Rule]:
    """Rules that make codes in one of these ways, each with blocks of zeros cared for, and not."""
    return _cared(*[partial(_quantized, coded=coded, **changes) for coded in ways])


def _cared(*rules: Rule) -> list[Rule]:
    return [partial(rule, of_zeros=of_zeros) for rule in rules for of_zeros in (0.0, NAN)]


def _one_scale(x: Tensor, block_size: int, repeated: bool, coded: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    codes, scales = _quantized(x, len(x), coded=coded)
    return codes, scales.repeat(ceil(len(x) / block_size)) if repeated else scales


def _full_blocks(x: Tensor, block_size: int, left: str, of_zeros: float) -> tuple[Tensor, Tensor]:
    """Only full blocks; for the rest there is nothing, or zeros among the codes, or among the scales too."""
    full = len(x) // block_size * block_size
    codes, scales = _quantized(x[:full], block_size, of_zeros=of_zeros)
    if left:
        codes = torch.cat([codes, torch.zeros(len(x) - full)])
    if left == "in both" and full < len(x):
        scales = torch.cat([scales, torch.zeros(1)])
    return codes, scales


def _padded(x: Tensor, block_size: int, of_zeros: float) -> tuple[Tensor, Tensor]:
    return _quantized(torch.nn.functional.pad(x, (0, -len(x) % block_size)), block_size, of_zeros=of_zeros)


def _steps(x: Tensor, block_size: int, of_zeros: float) -> tuple[Tensor, Tensor]:
    codes, scales = _quantized(x, block_size, of_zeros=of_zeros)
    return codes, scales / 127


def _blocks_by_number(x: Tensor, block_size: int, of_zeros: float) -> tuple[Tensor, Tensor]:
    """As many blocks as there should be numbers in each."""
    parts = [_quantized(block, len(block), of_zeros=of_zeros) for block in x.chunk(block_size)]
    return torch.cat([codes for codes, _ in parts]), torch.cat([scales for _, scales in parts])


def _read_back(x: Tensor, block_size: int, of_zeros: float) -> tuple[Tensor, Tensor]:
    codes, scales = _quantized(x, block_size, of_zeros=of_zeros)
    return codes / 127 * scales.repeat_interleave(block_size)[: len(x)], scales


def _places(x: Tensor, block_size: int, kind: str, middle: int = 0) -> tuple[Tensor, Tensor]:
    """Codes as the course's library has them, counted from the middle of the map if that is given."""
    q = blockwise.quantize(x, block_size, kind=kind)
    return q.codes.int() - middle, q.absmax


def _with_eps(x: Tensor, block_size: int, eps: float, add: bool, told: bool) -> tuple[Tensor, Tensor]:
    """An absmax that is kept away from zero, in the quotient alone or in what is returned as well."""

    def away(absmax: Tensor) -> Tensor:
        return absmax + eps if add else absmax.clamp(min=eps)

    codes, scales = _quantized(x, block_size, divisor=away)
    return codes, away(scales) if told else scales


def _use(call: Callable[..., Any], x: Tensor, block_size: int) -> Any:
    """What was returned; scales may have an axis more, and that of a block of zeros may be any finite number."""
    zeros = torch.tensor([not block.any() for block in x.split(block_size)])
    came = call(x, block_size)
    if not isinstance(came, (tuple, list)) or len(came) != 2:
        return came
    scales = _values.as_array(came[1])
    if scales is None:
        return came
    scales = torch.tensor(scales).reshape(-1)
    if len(scales) == len(zeros):
        scales = torch.where(zeros & scales.isfinite(), 0.0, scales)
    return came[0], scales


quantize_blocks = Task(
    name="quantize_blocks",
    rule=_quantized,
    use=_use,
    cases=lambda: [
        case(torch.tensor([0.5, -0.26, 0.03, 0.006, 2.0, -4.0, 1.1, 0.1]), 4),
        case(torch.tensor([1.0, -0.3, 0.2, 50.0, 21.0, 7.0, -0.9], dtype=torch.float64), 3),
        case(torch.tensor([0.0, 0.0, 0.0, 0.7, -0.21, 0.1]), 3),
        case(torch.tensor([3e-25, -1e-25, 2e-26]), 3),
        case(torch.randn(300, generator=torch.Generator().manual_seed(1)), 256),
    ],
    beliefs=[
        Belief(
            "zero_block_nan",
            "A block of zeros has the absmax 0, and 0 / 0 is no number. Such blocks are common, for instance among "
            "embeddings of tokens that have not occurred yet. Let their codes be 0.",
            [partial(_quantized, of_zeros=code) for code in (NAN, -(2.0**31), -(2.0**63))],
            raises="ZeroDivisionError|cannot convert float NaN",
        ),
        Belief(
            "global_scale",
            "One absmax serves the whole tensor, so one large number makes all others coarse. Each block of "
            "`block_size` numbers has a scale of its own.",
            [partial(_one_scale, repeated=told, coded=coded) for told in (False, True) for coded in (_rounded, _cut)],
        ),
        Belief(
            "max_not_absmax",
            "Your scale is the largest number of a block, not the largest *absolute value*. Where the number farthest "
            "from zero is negative, it has no share between −1 and 1 any more, and so no code.",
            [
                rule
                for scale in (lambda block: block.max(), lambda block: block.max().abs())
                for rule in _coded(
                    _rounded,
                    _cut,
                    lambda shares: _wrapped(_rounded(shares)),
                    lambda shares: _wrapped(127 * shares),
                    lambda shares: _rounded(shares).clamp(-127, 127),
                    lambda shares: _rounded(shares).clamp(-128, 127),
                    scale=scale,
                )
            ],
        ),
        Belief(
            "wraps_at_128",
            "You multiply by 128. `int8` ends at 127, so the code 128 of a block's largest number wraps round to "
            "−128: it comes back with the other sign.",
            _coded(lambda shares: _wrapped((128 * shares).round()), lambda shares: _wrapped(128 * shares)),
        ),
        Belief(
            "scaled_by_128",
            "You multiply by 128, and codes go from −127 to 127. The largest number of a block should get 127, and all "
            "others their share of that.",
            _coded(
                lambda shares: (128 * shares).round(),
                lambda shares: (128 * shares).round().clamp(-128, 127),
                lambda shares: (128 * shares).round().clamp(-127, 127),
            ),
        ),
        Belief(
            "drops_last_block",
            "The numbers after the last full block have got lost. They are a block too, a shorter one, with a scale of "
            "its own.",
            _cared(*[partial(_full_blocks, left=left) for left in ("", "in codes", "in both")]),
        ),
        Belief(
            "needs_full_blocks",
            "The length of `x` need not be a multiple of `block_size`, so its numbers do not always fill a table of "
            "whole blocks. Think of a way to let the last block be shorter, or fill it up with zeros for a while.",
            raises=r"shape '\[|cannot reshape",
        ),
        Belief(
            "padding_kept",
            "You fill up the last block with zeros, which changes nothing else, and return their codes as well. One "
            "code for each number of `x` is asked.",
            _cared(_padded),
        ),
        Belief(
            "truncates",
            "Your codes are cut off where they should be rounded: turning a number into an integer drops what stands "
            "after the point. That doubles the largest error, and pulls numbers to one side.",
            _coded(_cut, lambda shares: (127 * shares).floor()),
        ),
        Belief(
            "half_added_and_cut",
            "You add a half and cut off. For negative numbers that is not rounding: cutting off goes towards zero.",
            _coded(lambda shares: (127 * shares + 0.5).trunc()),
        ),
        Belief(
            "rounded_before_127",
            "You round the share before you multiply by 127. Then there is only −1, 0 or 1 left to multiply.",
            _coded(lambda shares: 127 * shares.round()),
        ),
        Belief(
            "sign_lost",
            "Codes of negative numbers are negative too, down to −127. Yours have lost the sign: was there an absolute "
            "value too many, or a dtype without negative numbers, such as `uint8`?",
            _coded(
                lambda shares: _rounded(shares).abs(),
                lambda shares: _rounded(shares) % 256,
                lambda shares: _rounded(shares).clamp(min=0),
                lambda shares: _rounded(shares).nan_to_num() + 127,
                lambda shares: _rounded(shares).nan_to_num() + 128,
            ),
        ),
        Belief(
            "places_in_a_map",
            "Your codes are places in a quantization map, as `blockwise.quantize` has them. Here a code is the share "
            "itself, times 127 and rounded, so that 0 has the code 0.",
            [partial(_places, kind=kind, middle=middle) for kind in blockwise.KINDS for middle in (0, 127, 128)],
        ),
        Belief(
            "read_back",
            "These are the numbers that the codes stand for, read back already. The codes themselves are asked: whole "
            "numbers from −127 to 127.",
            _cared(_read_back),
        ),
        Belief(
            "blocks_by_number",
            "You make `block_size` blocks. It is not their number but their size: how many numbers are in each.",
            _cared(_blocks_by_number),
        ),
        Belief(
            "not_rounded",
            "Your codes have digits after the point, so they do not fit into one byte. Round them to whole numbers.",
            _coded(lambda shares: 127 * shares),
        ),
        Belief(
            "swallowed_by_eps",
            "A small constant guards your absmax against zero. A block of tiny numbers is below it, and they all "
            "become 0. Second moments are made of such numbers: treat nothing but a block of zeros apart.",
            [
                partial(_with_eps, eps=10.0**power, add=add, told=told)
                for power in (-4, -5, -6, -7, -8, -9, -10, -12, -15, -16, -20)
                for add in (False, True)
                for told in (False, True)
            ],
        ),
        Belief(
            "step_for_scale",
            "Your codes are right. Your scales are absmax / 127, the distance between two neighbouring values. That is "
            "in use too, but here the scale is the absmax itself.",
            _cared(_steps),
        ),
    ],
    hints=[
        "Begin with one block. Which of its numbers decides the scale, and which code does that number get?",
        "`x.split(block_size)` gives all blocks, also a shorter last one. Treat a block whose absmax is 0 separately.",
        "For each block: divide by its absmax, multiply by 127, `round()`. Then `torch.cat` the codes and "
        "`torch.stack` the scales.",
    ],
    praise="A byte for each number and 32 bits for each block: that is all that is kept.",
)
