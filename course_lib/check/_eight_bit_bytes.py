"""The task `adam8bit_bytes` of exercise 09: the state of 8-bit AdamW, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod

import torch

from course_lib import memory
from course_lib.check._task import Belief, Task, case

Rule = Callable[[Sequence[tuple[int, ...]]], float]


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
) -> Rule:
    """A rule with what a misconception changes; `maps` gets the number of quantized tensors."""

    def rule(shapes: Sequence[tuple[int, ...]]) -> int:
        sizes = [prod(shape) for shape in shapes]
        large = [n for n in sizes if not small(n)]
        in_8_bits = moments * sum(n + scale * blocks(n) for n in large)
        return in_8_bits + sum(of_small(n) for n in sizes if small(n)) + maps(len(large))

    return rule


def _by_shape(small: Callable[[tuple[int, ...]], bool]) -> Rule:
    """A rule that sorts tensors by their shape."""

    def rule(shapes: Sequence[tuple[int, ...]]) -> int:
        in_8_bits = [shape for shape in shapes if not small(shape)]
        in_32_bits = sum(8 * prod(shape) for shape in shapes if small(shape))
        return in_32_bits + _bytes(small=lambda n: False)(in_8_bits)

    return rule


adam8bit_bytes = Task(
    name="adam8bit_bytes",
    rule=_counted,
    cases=lambda: [
        case([(1024, 512)]),
        case([(1024, 512), (1024,), (512, 1024), (512,)]),
        case([(64, 64), (63, 65)]),
        case([(97, 53), (3, 3, 64, 33), (4100,)]),
        case([(60, 60), (60,)]),
    ],
    rtol=0.0,
    atol=0.0,
    beliefs=[
        Belief(
            "forgot_scales",
            "The scales are missing: 32 bits for each block of 256 numbers, for both moments. Without them nobody "
            "knows what the codes are shares of.",
            [
                _bytes(scale=0),
                _bytes(scale=0, maps=lambda large: 0),
                _bytes(scale=0, maps=lambda large: 2048),
            ],
        ),
        Belief(
            "scales_of_one_moment",
            "You count scales for one moment. Each of the two has codes of its own, and scales of its own.",
            _bytes(scale=2),
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
                _bytes(of_small=lambda n: 2 * n),
            ],
        ),
        Belief(
            "small_left_out",
            "Small tensors are not quantized, but they are not forgotten either: both their moments are there, in 32 "
            "bits for each number.",
            _bytes(of_small=lambda n: 0),
        ),
        Belief(
            "small_one_moment",
            "In 32 bits a number takes 4 bytes, and a small tensor has two moments: 8 bytes for each of its elements.",
            _bytes(of_small=lambda n: 4 * n),
        ),
        Belief(
            "bits_for_bytes",
            "Somewhere you count bits where bytes are asked: 32 bits are 4 bytes, and 8 bits are 1.",
            [
                _bytes(of_small=lambda n: 64 * n),
                _bytes(scale=32),
                _bytes(scale=32, of_small=lambda n: 64 * n),
                _bytes(maps=lambda large: 8 * 2048 * (large > 0)),
                lambda shapes: 8 * _bytes()(shapes),
            ],
        ),
        Belief(
            "mib_for_bytes",
            "Your result is in MiB or MB. Bytes are asked, to the last one.",
            [lambda shapes, unit=unit: _bytes()(shapes) / unit for unit in (2**20, 10**6)],
        ),
        Belief(
            "one_long_tensor",
            "You add up the elements of several tensors before you count. Each tensor is small or large by itself, and "
            "its last block ends with it.",
            [
                lambda shapes: _bytes()([(sum(map(prod, shapes)),)]),
                lambda shapes: _bytes(small=lambda n: False)([(sum(map(prod, shapes)),)]),
                lambda shapes: (
                    _bytes()([(sum(n for n in map(prod, shapes) if n >= 4096),)])
                    + sum(8 * n for n in map(prod, shapes) if n < 4096)
                ),
            ],
        ),
        Belief(
            "axes_for_elements",
            "You tell by its axes, or by the length of one, whether a tensor is small. What counts is how many "
            "elements it has: all its lengths, multiplied.",
            [
                _by_shape(lambda shape: len(shape) < 2),
                _by_shape(lambda shape: max(shape) < 4096),
                _by_shape(lambda shape: shape[0] < 4096),
                _by_shape(lambda shape: sum(shape) < 4096),
            ],
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
            "maps_in_8bit",
            "You count a byte for each value of a map. Maps are kept in 32 bits, 4 bytes for each value.",
            _bytes(maps=lambda large: 512 * (large > 0)),
        ),
        Belief(
            "maps_without_codes",
            "You count the maps for any model. They come with the first quantized tensor; without one there is none.",
            _bytes(maps=lambda large: 2048),
        ),
        Belief(
            "one_scale_too_many",
            "You round down and add one. Where the last block is full nothing is left over, and that is one scale too "
            "many.",
            _bytes(blocks=lambda n: n // 256 + 1),
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
