"""Exercise 09: quantize blocks by hand, price 8-bit AdamW to the byte, and measure what 8 bits lose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor

from course_lib import blockwise, memory
from course_lib.check import _values
from course_lib.check._task import Belief, Task, case

Rule = Callable[..., Any]
NAN = float("nan")


def _quantized(
    x: Tensor,
    block_size: int,
    scale: Callable[[Tensor], Tensor] = lambda block: block.abs().max(),
    divisor: Callable[[Tensor], Tensor] = lambda absmax: absmax,
    coded: Callable[[Tensor], Tensor] = lambda shares: (127 * shares).round(),
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


def _one_scale(x: Tensor, block_size: int, repeated: bool) -> tuple[Tensor, Tensor]:
    codes, scales = _quantized(x, len(x))
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
            [partial(_one_scale, repeated=repeated) for repeated in (False, True)],
        ),
        Belief(
            "max_not_absmax",
            "Your scale is the largest number of a block, not the largest *absolute value*. If the number farthest "
            "from zero is negative, its share is below −1, and there is no code for it.",
            _coded(
                lambda shares: (127 * shares).round(),
                lambda shares: _wrapped((127 * shares).round()),
                lambda shares: (127 * shares).round().clamp(-127, 127),
                lambda shares: (127 * shares).round().clamp(-128, 127),
                scale=lambda block: block.max(),
            ),
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
            "after the point. That doubles the largest error, and pulls all numbers the same way.",
            _coded(lambda shares: (127 * shares).trunc(), lambda shares: (127 * shares).floor()),
        ),
        Belief(
            "not_rounded",
            "Your codes have digits after the point, so they do not fit into one byte. Round them to whole numbers.",
            _coded(lambda shares: 127 * shares),
        ),
        Belief(
            "swallowed_by_eps",
            "A small constant keeps your absmax away from zero. In a block of tiny numbers it *is* the scale, and they "
            "all become 0. Such numbers are what second moments are made of: treat a block of zeros apart from them.",
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


def _counted(shapes: Sequence[tuple[int, ...]]) -> int:
    tensors = [torch.nn.Parameter(torch.empty(*shape, device="meta")) for shape in shapes]
    return memory.predict_state_size(torch.nn.ParameterList(tensors), "adamw8bit_bitsandbytes").bytes


def _bytes(
    moments: int = 2,
    scale: int = 4,
    blocks: Callable[[int], int] = lambda n: ceil(n / 256),
    small: Callable[[int], bool] = lambda n: n < 4096,
    of_small: Callable[[int], int] = lambda n: 8 * n,
    maps: Callable[[int], int] = lambda large: 2048 * (large > 0),
) -> Callable[[Sequence[tuple[int, ...]]], int]:
    """A rule with what a misconception changes; `maps` gets the number of quantized tensors."""

    def rule(shapes: Sequence[tuple[int, ...]]) -> int:
        sizes = [prod(shape) for shape in shapes]
        large = [n for n in sizes if not small(n)]
        in_8_bits = moments * sum(n + scale * blocks(n) for n in large)
        return in_8_bits + sum(of_small(n) for n in sizes if small(n)) + maps(len(large))

    return rule


adam8bit_bytes = Task(
    name="adam8bit_bytes",
    rule=_counted,
    cases=lambda: [
        case([(1024, 512)]),
        case([(1024, 512), (1024,), (512, 1024), (512,)]),
        case([(64, 64), (63, 65)]),
        case([(97, 53), (3, 3, 64, 33)]),
        case([(60, 60), (60,)]),
    ],
    rtol=0.0,
    atol=0.0,
    beliefs=[
        Belief(
            "forgot_scales",
            "The scales are missing: 32 bits for each block of 256 numbers, for both moments. Without them nobody "
            "knows what the codes are shares of.",
            _bytes(scale=0),
        ),
        Belief(
            "one_moment",
            "You count one moment. 8-bit Adam keeps as many numbers as Adam does, a first *and* a second moment; it "
            "only keeps them in fewer bits.",
            [
                _bytes(moments=1, of_small=lambda n: 4 * n),
                _bytes(moments=1, of_small=lambda n: 4 * n, maps=lambda large: 1024 * (large > 0)),
                _bytes(moments=1),
                _bytes(moments=1, maps=lambda large: 1024 * (large > 0)),
            ],
        ),
        Belief(
            "small_tensor_in_8bit",
            "You quantize all tensors. Those of fewer than 4,096 elements stay in 32 bits, so for a model of small "
            "layers 8 bits save nothing.",
            [
                _bytes(small=lambda n: False),
                _bytes(small=lambda n: False, maps=lambda large: 2048),
            ],
        ),
        Belief(
            "small_left_out",
            "Small tensors are not quantized, but they are not forgotten either: both their moments are there, in 32 "
            "bits for each number.",
            [
                _bytes(of_small=lambda n: 0),
            ],
        ),
        Belief(
            "small_one_moment",
            "In 32 bits a number takes 4 bytes, and a small tensor has two moments: 8 bytes for each of its elements.",
            _bytes(of_small=lambda n: 4 * n),
        ),
        Belief(
            "bits_for_bytes",
            "For small tensors you count bits: 32 of them are 4 bytes.",
            _bytes(of_small=lambda n: 64 * n),
        ),
        Belief(
            "limit_in_32bit",
            "A tensor of exactly 4,096 elements, such as 64 × 64, is quantized: only those of *fewer* stay in 32 bits.",
            _bytes(small=lambda n: n <= 4096),
        ),
        Belief(
            "maps_for_each_tensor",
            "You count the maps anew for each tensor. All tensors share the same two, so they count once.",
            [
                _bytes(maps=lambda large: 2048 * large),
                lambda shapes: _bytes(maps=lambda large: 0)(shapes) + 2048 * len(shapes),
            ],
        ),
        Belief(
            "forgot_maps",
            "The two maps are missing: 256 values each, in 32 bits.",
            _bytes(maps=lambda large: 0),
        ),
        Belief(
            "one_map",
            "You count one map. There are two: one with both signs for the first moment, one without for the second.",
            _bytes(maps=lambda large: 1024 * (large > 0)),
        ),
        Belief(
            "maps_without_codes",
            "You count the maps for any model. They come with the first quantized tensor; without one there is none.",
            _bytes(maps=lambda large: 2048),
        ),
        Belief(
            "last_scale_missing",
            "You round the number of blocks down. The last block needs its scale even if it is not full.",
            [
                _bytes(blocks=lambda n: n // 256),
                _bytes(blocks=lambda n: round(n / 256)),
            ],
        ),
        Belief(
            "scales_not_whole",
            "The last block counts in part, by how full it is. It needs a whole scale: round the number of blocks up.",
            [
                _bytes(blocks=lambda n: n / 256),
                lambda shapes: int(_bytes(blocks=lambda n: n / 256)(shapes)),
                lambda shapes: ceil(_bytes(blocks=lambda n: n / 256)(shapes)),
            ],
        ),
        Belief(
            "scales_in_8bit",
            "You count one byte for a scale. Scales are kept in 32 bits, so that the 8 bits can span any range.",
            _bytes(scale=1),
        ),
    ],
    hints=[
        "Take one large tensor of n numbers. How many bytes are the codes of one moment? How many scales has it?",
        "Round the number of blocks up. Everything but the maps comes twice, once for each moment.",
        "Large: `2 * (n + 4 * blocks)`. Small: `2 * 4 * n`. And once, if there is a large one: `2 * 4 * 256`.",
    ],
    praise="The scales add 1.6 % to the codes. Whether a factor of four comes out is decided by the small tensors.",
)


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


share_lost = Task(
    name="share_lost",
    rule=_lost(_share),
    cases=lambda: [
        case(torch.tensor([1.0, -0.001, 0.5, -1.0, 0.002, 0.25]), 3, "linear"),
        case(_with_outlier(512, outlier=300.0, every=5), 64, "linear"),
        case(_with_outlier(16, 40, outlier=-3e6, every=3), 128, "dynamic"),
        case(_with_outlier(512, outlier=300.0), 256, "dynamic"),
        case(_with_outlier(8, 8, 10, outlier=1e4).double(), 160, "linear"),
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
            [
                _lost(lambda x, back, codes: ((back == 0) & (x != 0)).double().mean()),
            ],
        ),
        Belief(
            "zeros_above_the_line",
            "Below the line you leave the zeros of `x` out, above it you count them in. They are not lost.",
            _lost(lambda x, back, codes: (back == 0).sum() / (x != 0).sum()),
        ),
        Belief(
            "number_not_share",
            "That is how *many* numbers are lost. Their share is asked: divide by the number of those that could be.",
            [
                _lost(lambda x, back, codes: (back[x != 0] == 0).sum()),
                _lost(lambda x, back, codes: 100 * _share(x, back, codes)),
            ],
        ),
        Belief(
            "share_kept",
            "That is the share of the numbers that survive. The other part is asked.",
            _lost(lambda x, back, codes: 1 - _share(x, back, codes)),
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
