"""Answers to exercise 09."""

import math

import numpy as np
import torch
from answers import right, wrong

from course_lib import blockwise


def in_int8(values):
    """Whole numbers as `int8` wraps them, on every processor alike."""
    return values.to(torch.int32).to(torch.int8)


@wrong("quantize_blocks", "global_scale")
def _(x, block_size):
    absmax = x.abs().max()
    return (x / absmax * 127).round().to(torch.int8), absmax


@wrong("quantize_blocks", "global_scale", note="one for each block")
def _(x, block_size):
    absmax = x.abs().max()
    return (x * 127 / absmax).round(), absmax.expand(math.ceil(len(x) / block_size))


@wrong("quantize_blocks", "max_not_absmax")
def _(x, block_size):
    codes, scales = [], []
    for start in range(0, len(x), block_size):
        part = x[start : start + block_size]
        top = part.max()
        scales.append(top)
        codes += [round(float(value / top * 127)) if top else 0 for value in part]
    return torch.tensor(codes), torch.tensor(scales)


@wrong("quantize_blocks", "max_not_absmax", note="as int8, with nan")
def _(x, block_size):
    tops = torch.stack([part.max() for part in x.split(block_size)])
    each = tops.repeat_interleave(block_size)[: len(x)]
    shares = torch.where(each == 0, torch.zeros_like(x), x / each)
    return in_int8(torch.round(shares * 127)), tops


@wrong("quantize_blocks", "max_not_absmax", note="clamped")
def _(x, block_size):
    tops = torch.stack([part.max() for part in x.split(block_size)])
    codes = [(127 * part / top).round().clamp(-127, 127) for part, top in zip(x.split(block_size), tops, strict=True)]
    return torch.cat(codes), tops


@wrong("quantize_blocks", "wraps_at_128")
def _(x, block_size):
    codes, scales = [], []
    for part in x.split(block_size):
        scale = part.abs().max()
        scales.append(scale)
        codes.append(in_int8((part / (scale if scale > 0 else 1) * 128).round()))
    return torch.cat(codes), torch.stack(scales)


@wrong("quantize_blocks", "scaled_by_128")
def _(x, block_size):
    scales = [float(part.abs().max()) for part in x.split(block_size)]
    codes = [round(float(value) / (scales[n // block_size] or 1.0) * 128) for n, value in enumerate(x)]
    return codes, scales


@wrong("quantize_blocks", "scaled_by_128", note="clamped")
def _(x, block_size):
    parts = x.split(block_size)
    scales = torch.stack([part.abs().amax() for part in parts])
    codes = [torch.clamp(torch.round(part / scale * 128), -128, 127) for part, scale in zip(parts, scales, strict=True)]
    return torch.cat(codes), scales


@wrong("quantize_blocks", "drops_last_block")
def _(x, block_size):
    codes, scales = [], []
    for n in range(len(x) // block_size):
        part = x[n * block_size : (n + 1) * block_size]
        scales.append(part.abs().max())
        codes.append(torch.round(part / scales[-1].clamp(min=1e-38) * 127))
    return (torch.cat(codes), torch.stack(scales)) if codes else (torch.empty(0), torch.empty(0))


@wrong("quantize_blocks", "drops_last_block", note="zeros in its place")
def _(x, block_size):
    codes, scales = torch.zeros(len(x)), torch.zeros(-(-len(x) // block_size))
    for n in range(len(x) // block_size):
        here = slice(n * block_size, (n + 1) * block_size)
        scales[n] = x[here].abs().max()
        if scales[n] > 0:
            codes[here] = (x[here] / scales[n] * 127).round().float()
    return codes, scales


@wrong("quantize_blocks", "drops_last_block", note="reshaped, with nan")
def _(x, block_size):
    table = x[: len(x) - len(x) % block_size].reshape(-1, block_size)
    absmax = table.abs().max(dim=1, keepdim=True).values
    return (table / absmax * 127).round().reshape(-1), absmax


@wrong("quantize_blocks", "needs_full_blocks")
def _(x, block_size):
    table = x.reshape(-1, block_size)
    absmax = table.abs().amax(1, keepdim=True)
    return (table / absmax * 127).round().flatten(), absmax.flatten()


@wrong("quantize_blocks", "needs_full_blocks", note="NumPy")
def _(x, block_size):
    table = x.numpy().reshape(-1, block_size)
    absmax = np.abs(table).max(1)
    return np.rint(table / np.where(absmax == 0, 1, absmax)[:, None] * 127).ravel(), absmax


@wrong("quantize_blocks", "padding_kept")
def _(x, block_size):
    table = torch.nn.functional.pad(x, (0, (block_size - len(x)) % block_size)).view(-1, block_size)
    absmax = table.abs().amax(1)
    return (table / torch.where(absmax > 0, absmax, torch.ones_like(absmax))[:, None] * 127).round().view(-1), absmax


@wrong("quantize_blocks", "zero_block_nan")
def _(x, block_size):
    parts = x.split(block_size)
    scales = [part.abs().max() for part in parts]
    return torch.cat([(part / s * 127).round() for part, s in zip(parts, scales, strict=True)]), torch.stack(scales)


@wrong("quantize_blocks", "zero_block_nan", note="plain Python")
def _(x, block_size):
    blocks = [x[n : n + block_size].tolist() for n in range(0, len(x), block_size)]
    scales = [max(abs(value) for value in block) for block in blocks]
    return [round(127 * value / s) for block, s in zip(blocks, scales, strict=True) for value in block], scales


@wrong("quantize_blocks", "truncates")
def _(x, block_size):
    codes, scales = [], []
    for part in x.split(block_size):
        scales.append(part.abs().max())
        codes.append((part / scales[-1] * 127).to(torch.int8) if scales[-1] else torch.zeros(len(part)).to(torch.int8))
    return torch.cat(codes), torch.stack(scales)


@wrong("quantize_blocks", "truncates", note="floor")
def _(x, block_size):
    parts = [part.numpy() for part in x.split(block_size)]
    scales = [np.abs(part).max() for part in parts]
    return np.concatenate([part / s * 127 // 1 if s else part for part, s in zip(parts, scales, strict=True)]), scales


def by_block(code, scale=lambda part: part.abs().max()):
    """Block by block: ``code(part, absmax)`` makes the codes of each, unless it is all zeros."""

    def quantize(x, block_size):
        parts = x.split(block_size)
        scales = [scale(part) for part in parts]
        codes = [
            code(part, top) if part.any() else torch.zeros_like(part) for part, top in zip(parts, scales, strict=True)
        ]
        return torch.cat(codes), torch.stack(scales)

    return quantize


wrong("quantize_blocks", "half_added_and_cut")(by_block(lambda part, top: (part / top * 127 + 0.5).int()))
wrong("quantize_blocks", "rounded_before_127")(by_block(lambda part, top: (part / top).round() * 127))
wrong("quantize_blocks", "sign_lost")(by_block(lambda part, top: (part.abs() / top * 127).round()))
wrong("quantize_blocks", "sign_lost", note="uint8")(
    by_block(lambda part, top: torch.from_numpy(np.rint(part.numpy() / top.item() * 127).astype(int).astype(np.uint8)))
)
wrong("quantize_blocks", "sign_lost", note="clamped at 0")(
    by_block(lambda part, top: (part / top * 127).round().clamp(0, 127))
)
wrong("quantize_blocks", "max_not_absmax", note="absolute value taken too late")(
    by_block(lambda part, top: (part / top * 127).round(), scale=lambda part: abs(max(part)))
)
wrong("quantize_blocks", "max_not_absmax", note="and cut off")(
    by_block(lambda part, top: in_int8(part / top * 127), scale=torch.max)
)
wrong("quantize_blocks", "swallowed_by_eps", note="what is small counts as zero")(
    by_block(lambda part, top: (part / top * 127).round() if top > 1e-8 else 0 * part)
)
right("quantize_blocks", "a tiny number added to each absmax")(
    by_block(lambda part, top: (127 / (top + 1e-33) * part).round())
)


@wrong("quantize_blocks", "sign_lost", note="moved up by 128")
def _(x, block_size):
    codes, scales = by_block(lambda part, top: (part / top * 127).round())(x, block_size)
    return codes + 128, scales


@wrong("quantize_blocks", "places_in_a_map")
def _(x, block_size):
    q = blockwise.quantize(x, block_size)
    return q.codes, q.absmax


@wrong("quantize_blocks", "places_in_a_map", note="of the linear map, counted from its middle")
def _(x, block_size):
    q = blockwise.quantize(x, block_size, kind="linear")
    return q.codes.short() - 127, q.absmax


@wrong("quantize_blocks", "read_back")
def _(x, block_size):
    codes, scales = by_block(lambda part, top: (part / top * 127).round())(x, block_size)
    return torch.cat([c * s / 127 for c, s in zip(codes.split(block_size), scales, strict=True)]), scales


@wrong("quantize_blocks", "blocks_by_number")
def _(x, block_size):
    size = math.ceil(len(x) / block_size)
    return by_block(lambda part, top: torch.round(127 * part / top))(x, size)


@wrong("quantize_blocks", "global_scale", note="and cut off")
def _(x, block_size):
    absmax = x.abs().max()
    return (x / absmax * 127).to(torch.int8), absmax


@wrong("quantize_blocks", "not_rounded")
def _(x, block_size):
    each = torch.cat([part.abs().max().expand(len(part)) for part in x.split(block_size)])
    return torch.where(each > 0, x / each * 127, 0 * x), torch.stack([p.abs().max() for p in x.split(block_size)])


@wrong("quantize_blocks", "swallowed_by_eps")
def _(x, block_size):
    parts = x.split(block_size)
    scales = torch.stack([part.abs().max().clamp(min=1e-8) for part in parts])
    return torch.cat([(p / s * 127).round() for p, s in zip(parts, scales, strict=True)]).to(torch.int8), scales


@wrong("quantize_blocks", "swallowed_by_eps", note="added")
def _(x, block_size):
    parts = x.split(block_size)
    scales = torch.stack([part.abs().max() for part in parts])
    return torch.cat([(p / (s + 1e-12) * 127).round() for p, s in zip(parts, scales, strict=True)]), scales


@wrong("quantize_blocks", "step_for_scale")
def _(x, block_size):
    codes, steps = [], []
    for part in x.split(block_size):
        step = part.abs().max() / 127
        codes += [round(float(value / step)) if step else 0 for value in part]
        steps.append(float(step))
    return codes, steps


@right("quantize_blocks", "plain Python, lists")
def _(x, block_size):
    numbers = x.tolist()
    blocks = [numbers[n : n + block_size] for n in range(0, len(numbers), block_size)]
    scales = [max(map(abs, block)) for block in blocks]
    codes = [round(v * 127 / s) if s else 0 for block, s in zip(blocks, scales, strict=True) for v in block]
    return codes, scales


@right("quantize_blocks", "NumPy, padded and cut, scale 1 for zeros, one more axis")
def _(x, block_size):
    table = np.pad(x.numpy(), (0, -len(x) % block_size)).reshape(-1, block_size)
    absmax = np.abs(table).max(1, keepdims=True)
    absmax[absmax == 0] = 1
    return [np.rint(table / absmax * 127).astype(np.int8).ravel()[: len(x)], absmax]


@right("quantize_blocks", "NaN to zero at the end")
def _(x, block_size):
    scales = torch.stack([part.abs().max() for part in x.split(block_size)])
    shares = x / scales.repeat_interleave(block_size)[: len(x)]
    return shares.nan_to_num(0).mul(127).round().short(), scales


@wrong("adam8bit_bytes", "forgot_scales")
def _(shapes):
    large = [math.prod(s) for s in shapes if math.prod(s) >= 4096]
    small = [math.prod(s) for s in shapes if math.prod(s) < 4096]
    return sum(large) * 2 + sum(small) * 8 + (2048 if large else 0)


@wrong("adam8bit_bytes", "one_moment")
def _(shapes):
    total, any_large = 0, False
    for shape in shapes:
        n = math.prod(shape)
        total += n + 4 * math.ceil(n / 256) if n >= 4096 else 4 * n
        any_large |= n >= 4096
    return total + 2 * 256 * 4 * any_large


@wrong("adam8bit_bytes", "one_moment", note="with one map")
def _(shapes):
    sizes = np.array([math.prod(shape) for shape in shapes])
    big = sizes >= 4096
    return (sizes + 4 * -(-sizes // 256))[big].sum() + 4 * sizes[~big].sum() + 1024 * big.any()


@wrong("adam8bit_bytes", "small_tensor_in_8bit")
def _(shapes):
    sizes = [math.prod(shape) for shape in shapes]
    return sum(2 * (n + 4 * math.ceil(n / 256)) for n in sizes) + 2 * 256 * 4


@wrong("adam8bit_bytes", "small_left_out")
def _(shapes):
    large = [n for n in map(math.prod, shapes) if n >= 4096]
    return sum(2 * n + 8 * math.ceil(n / 256) for n in large) + (2048 if large else 0)


@wrong("adam8bit_bytes", "small_one_moment")
def _(shapes):
    total = 0
    for n in map(math.prod, shapes):
        total += 4 * n if n < 4096 else 2 * n + 2 * 4 * math.ceil(n / 256)
    return total + (2 * 4 * 256 if max(map(math.prod, shapes)) >= 4096 else 0)


@wrong("adam8bit_bytes", "bits_for_bytes")
def _(shapes):
    total = 0
    for n in map(math.prod, shapes):
        total += 2 * 32 * n if n < 4096 else 2 * n + 2 * 4 * math.ceil(n / 256)
    return total + (2 * 4 * 256 if max(map(math.prod, shapes)) >= 4096 else 0)


@wrong("adam8bit_bytes", "limit_in_32bit")
def _(shapes):
    total, maps = 0, 0
    for n in map(math.prod, shapes):
        if n > 4096:
            total, maps = total + 2 * n + 8 * math.ceil(n / 256), 2048
        else:
            total += 8 * n
    return total + maps


@wrong("adam8bit_bytes", "maps_for_each_tensor")
def _(shapes):
    return sum(8 * n if n < 4096 else 2 * (n + 4 * -(-n // 256) + 1024) for n in map(math.prod, shapes))


@wrong("adam8bit_bytes", "forgot_maps")
def _(shapes):
    return sum(8 * n if n < 4096 else 2 * (n + 4 * -(-n // 256)) for n in map(math.prod, shapes))


@wrong("adam8bit_bytes", "one_map")
def _(shapes):
    large = any(math.prod(shape) >= 4096 for shape in shapes)
    return 1024 * large + sum(8 * n if n < 4096 else 2 * (n + 4 * -(-n // 256)) for n in map(math.prod, shapes))


@wrong("adam8bit_bytes", "maps_without_codes")
def _(shapes):
    return 2048 + sum(8 * n if n < 4096 else 2 * (n + 4 * -(-n // 256)) for n in map(math.prod, shapes))


@wrong("adam8bit_bytes", "last_scale_missing")
def _(shapes):
    total, maps = 0, 0
    for n in map(math.prod, shapes):
        total += 8 * n if n < 4096 else 2 * (n + 4 * (n // 256))
        maps = maps or (n >= 4096) * 2048
    return total + maps


@wrong("adam8bit_bytes", "scales_not_whole")
def _(shapes):
    sizes = [math.prod(shape) for shape in shapes]
    total = sum(n * (2 + 8 / 256) if n >= 4096 else 8 * n for n in sizes)
    return int(total) + 2048 * (max(sizes) >= 4096)


def priced(large, small=lambda n: 8 * n, maps=2048, is_small=lambda shape: math.prod(shape) < 4096):
    """The sum of what tensors cost, each by its number of elements, and of the maps if there is a large one."""

    def price(shapes):
        total = sum((small if is_small(shape) else large)(math.prod(shape)) for shape in shapes)
        return total + maps * any(not is_small(shape) for shape in shapes)

    return price


def in_8_bits(n):
    return 2 * (n + 4 * math.ceil(n / 256))


wrong("adam8bit_bytes", "scales_of_one_moment")(priced(lambda n: 2 * n + 4 * math.ceil(n / 256)))
wrong("adam8bit_bytes", "forgot_scales", note="and the maps")(priced(lambda n: 2 * n, maps=0))
wrong("adam8bit_bytes", "bits_for_bytes", note="scales of 32")(priced(lambda n: 2 * (n + 32 * math.ceil(n / 256))))
wrong("adam8bit_bytes", "bits_for_bytes", note="maps of 32")(priced(in_8_bits, maps=2 * 256 * 32))
wrong("adam8bit_bytes", "maps_in_8bit")(priced(in_8_bits, maps=2 * 256))
wrong("adam8bit_bytes", "one_scale_too_many")(priced(lambda n: 2 * (n + 4 * (n // 256 + 1))))
wrong("adam8bit_bytes", "small_tensor_in_8bit", note="without scales")(priced(in_8_bits, small=lambda n: 2 * n))
wrong("adam8bit_bytes", "axes_for_elements")(priced(in_8_bits, is_small=lambda shape: len(shape) == 1))
wrong("adam8bit_bytes", "axes_for_elements", note="the first one")(priced(in_8_bits, is_small=lambda s: s[0] < 4096))
right("adam8bit_bytes", "as a sum over the shapes")(priced(in_8_bits))


@wrong("adam8bit_bytes", "bits_for_bytes", note="all of it")
def _(shapes):
    return 8 * priced(in_8_bits)(shapes)


@wrong("adam8bit_bytes", "mib_for_bytes")
def _(shapes):
    return priced(in_8_bits)(shapes) / 1024**2


@wrong("adam8bit_bytes", "one_long_tensor")
def _(shapes):
    sizes = np.array([math.prod(shape) for shape in shapes])
    return in_8_bits(int(sizes[sizes > 4095].sum())) + 8 * sizes[sizes <= 4095].sum() + 2048 * (max(sizes) > 4095)


@wrong("adam8bit_bytes", "one_long_tensor", note="small ones too")
def _(shapes):
    return in_8_bits(sum(math.prod(shape) for shape in shapes)) + 2048


@wrong("adam8bit_bytes", "scales_in_8bit")
def _(shapes):
    sizes = [math.prod(shape) for shape in shapes]
    return sum(2 * (n + math.ceil(n / 256)) if n >= 4096 else 8 * n for n in sizes) + 2048 * (max(sizes) >= 4096)


@right("adam8bit_bytes", "real tensors, by nbytes")
def _(shapes):
    kept = []
    for shape in shapes:
        x = torch.zeros(shape)
        if x.numel() < 4096:
            kept += [x, x]
        else:
            q = blockwise.quantize(x)
            kept += [q.codes, q.absmax] * 2
    quantized = any(part.dtype is torch.uint8 for part in kept)
    return torch.tensor(sum(part.nbytes for part in kept) + 2 * q.map.nbytes if quantized else sum(map(nbytes, kept)))


def nbytes(x):
    return x.nbytes


@right("adam8bit_bytes", "floating point, NumPy")
def _(shapes):
    sizes = np.array([np.prod(shape) for shape in shapes], dtype=float)
    large = sizes[sizes >= 4096]
    return 8 * sizes[sizes < 4096].sum() + 2 * (large + 4 * np.ceil(large / 256)).sum() + 2048.0 * bool(large.size)


@wrong("share_lost", "code_zero_is_zero")
def _(x, block_size, kind):
    q = blockwise.quantize(x, block_size, kind=kind)
    return int((q.codes == 0).sum()) / x.numel()


@wrong("share_lost", "code_zero_is_zero", note="of numbers that are not zero")
def _(x, block_size, kind):
    codes = blockwise.quantize(x, block_size, kind=kind).codes
    return ((codes == 0) & (x != 0)).sum() / (x != 0).sum()


@wrong("share_lost", "true_zeros_counted")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, True, kind)).numpy()
    return 1 - np.count_nonzero(back) / back.size


@wrong("share_lost", "share_of_all")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return (x.count_nonzero() - back.count_nonzero()) / x.numel()


@wrong("share_lost", "zeros_above_the_line")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return (back.numel() - back.count_nonzero()) / x.count_nonzero()


@wrong("share_lost", "number_not_share")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return x.count_nonzero() - back.count_nonzero()


@wrong("share_lost", "per_cent")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return 100 * float(1 - back.count_nonzero() / x.count_nonzero())


@wrong("share_lost", "share_kept")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return back.count_nonzero() / x.count_nonzero()


@wrong("share_lost", "kind_ignored")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size))
    return 1 - back.count_nonzero() / x.count_nonzero()


@wrong("share_lost", "block_size_ignored")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, kind=kind))
    return 1 - back.count_nonzero() / x.count_nonzero()


@wrong("share_lost", "changed_is_lost")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return 1 - (back == x).sum() / x.numel()


@wrong("share_lost", "negatives_lost")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return 1 - (back > 0).sum() / x.count_nonzero()


@wrong("share_lost", "always_zero")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return int((back[x != 0] == 0).sum()) // int((x != 0).sum())


@wrong("share_lost", "zeros_taken_out_first")
def _(x, block_size, kind):
    others = x[x.bool()]
    back = blockwise.dequantize(blockwise.quantize(others, block_size, kind=kind))
    return (len(others) - back.count_nonzero()) / len(others)


@right("share_lost", "NumPy, from the sizes alone")
def _(x, block_size, kind):
    back = np.asarray(blockwise.dequantize(blockwise.quantize(x.abs(), block_size, kind=kind)))
    return np.mean(back[np.nonzero(x.numpy())] == 0)


@right("share_lost", "by counting")
def _(x, block_size, kind):
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return 1 - back.count_nonzero() / x.count_nonzero()


@right("share_lost", "number by number")
def _(x, block_size, kind):
    q = blockwise.quantize(x, block_size, kind=kind)
    values = q.map[q.codes.long()].flatten().tolist()
    pairs = [(a, b) for a, b in zip(x.flatten().tolist(), values, strict=True) if a]
    return sum(b == 0 for _, b in pairs) / len(pairs)
