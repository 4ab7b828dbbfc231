"""Numbers kept in 8 bits, block by block, as 8-bit Adam keeps its moments.

Each number is divided by the largest absolute value of its block and becomes a code from 0 to 255: the place of the
nearest value in a map of 256 values from -1 to 1. What is kept are the codes, and for each block that largest value.
Source: Dettmers et al. 2021 (arXiv 2110.02861), sections 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

KINDS = ("dynamic", "linear")
DECADES = 7  # of the dynamic map: from 0.1–1 down to 1e-7–1e-6


@dataclass(frozen=True)
class Quantized:
    """A tensor in 8 bits.

    Attributes:
        codes: uint8, of the tensor's shape: for each number its place in ``map``.
        absmax: float32 ``[blocks]``: the largest absolute value in each block, 0 in a block of zeros.
        map: float32 ``[256]``, ascending: the values that the codes stand for.
        block_size: how many neighbours share one ``absmax``, counted along the flattened tensor. The last block holds
            what is left.
        dtype: of the tensor, for :func:`dequantize`.
    """

    codes: Tensor
    absmax: Tensor
    map: Tensor = field(repr=False)
    block_size: int
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the codes and scales. The map is not among them: one serves all tensors."""
        return self.codes.nbytes + self.absmax.nbytes


def quantize(x: Tensor, block_size: int = 256, signed: bool = True, kind: str = "dynamic") -> Quantized:
    """Keep ``x`` in 8 bits for each number and 32 for each block.

    Of two values that are equally near, the smaller one is taken. All is computed in float32.

    Args:
        x: of any shape, also empty or 0-dim; whole numbers and lists are read as floats.
        block_size: how many neighbours share one scale. 256 is what bitsandbytes' optimizers take.
        signed: a map for both signs; without, one for numbers from 0 upwards, such as second moments.
        kind: of the map, ``"dynamic"`` or ``"linear"``; see :func:`quantization_map`.

    Raises:
        ValueError: a number in ``x`` is not finite (in float32), or negative though ``signed`` is False; a block size
            below 1; an unknown kind.
    """
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise ValueError(f"A block holds a whole number of values, 1 or more; block_size was {block_size!r}.")
    x = torch.as_tensor(x)
    if x.is_complex():
        raise ValueError(f"Only real numbers have a place in the map; x holds {x.dtype}. Quantize x.real and x.imag.")
    values = quantization_map(signed, kind).to(x.device)
    flat = x.detach().reshape(-1).float()
    _check(flat, signed)
    # Zeros that fill the last block change neither its largest value nor the codes that are kept.
    blocks = pad(flat, (0, -len(flat) % block_size)).reshape(-1, block_size)
    absmax = blocks.abs().amax(dim=1)
    shares = blocks / torch.where(absmax == 0, 1.0, absmax)[:, None]  # from -1 to 1; a block of zeros stays one
    codes = torch.bucketize(shares, (values[:-1] + values[1:]) / 2)  # the midpoints decide which value is nearest
    codes = codes.reshape(-1)[: len(flat)].reshape(x.shape).to(torch.uint8)
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return Quantized(codes, absmax, values, block_size, dtype)


def dequantize(q: Quantized) -> Tensor:
    """The numbers that ``q`` stands for, in the shape and dtype of the tensor it was made of.

    Each is its code's value in the map times its block's ``absmax``, computed in float32.
    """
    absmax = q.absmax.repeat_interleave(q.block_size)[: q.codes.numel()].reshape(q.codes.shape)
    return (q.map[q.codes.int()] * absmax).to(q.dtype)


def quantization_map(signed: bool = True, kind: str = "dynamic") -> Tensor:
    """The 256 values that the codes 0 to 255 stand for: float32 ``[256]``, ascending, with 0 and 1 among them.

    - ``"dynamic"``: for each sign 64 values between 0.1 and 1, 32 between 0.01 and 0.1, and half as many in each
      decade further down, to a single one between 1e-7 and 1e-6; besides these 0 and 1. (-1 is missing: the least
      value is -0.993.) Unsigned, each decade has twice as many.
    - ``"linear"``: evenly spaced. Signed, 0 has two codes, so that there are as many values above it as below.

    These are the maps of bitsandbytes (``create_dynamic_map``, ``create_linear_map``).

    Raises:
        ValueError: an unknown kind.
    """
    if kind == "linear":
        if not signed:
            return torch.linspace(0, 1, 256)
        above = torch.arange(1, 128) / 127
        return torch.cat([-above.flip(0), torch.zeros(2), above])
    if kind != "dynamic":
        raise ValueError(f"There is no map {kind!r}. Known: {', '.join(KINDS)}.")
    values = [torch.tensor([0.0, 1.0])]
    for decade in range(DECADES):
        count = 2 ** (DECADES - 1 - decade) * (1 if signed else 2)
        edges = torch.linspace(0.1, 1, count + 1)
        between = (edges[:-1] + edges[1:]) / 2 * 10.0**-decade  # the middles of equal steps through the decade
        values += [between, -between] if signed else [between]
    return torch.cat(values).sort().values


def _check(flat: Tensor, signed: bool) -> None:
    finite = flat.isfinite()
    if not finite.all():
        place = int((~finite).nonzero()[0])
        raise ValueError(
            f"Number {place} of x, counted along the flattened tensor, is {flat[place].item()} in float32. It would "
            "spoil its whole block, since all numbers of a block are divided by the largest. Give finite numbers."
        )
    if not signed and bool((flat < 0).any()):
        raise ValueError(
            f"The unsigned map has no values below 0, and x goes down to {flat.min().item():g}. Give signed=True."
        )
