"""The plain tensors in tensors that are not what they seem: wrappers, quantized, sparse, nested, shared ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

# How the names of quantization maps, scales and offsets begin, in bitsandbytes, torchao and course_lib.blockwise.
_METADATA = ("qmap", "map", "absmax", "scale", "zero_point")
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_BY_CHANNEL = {torch.per_channel_affine, torch.per_channel_affine_float_qparams, torch.per_channel_symmetric}
# A scale and an offset for each channel, in torch's own quantized tensors.
_PER_CHANNEL = {"scale": "q_per_channel_scales", "zero_point": "q_per_channel_zero_points"}


@dataclass(frozen=True)
class Packed:
    """Numbers that are stored as something else, such as the codes of a quantized tensor.

    Attributes:
        numel: count of the numbers.
        stored: the plain tensors that hold them.
    """

    numel: int
    stored: tuple[Tensor, ...]


def is_metadata(key: str) -> bool:
    """Whether an entry with this name is a quantization map, a scale or an offset."""
    return key.rpartition(".")[2].startswith(_METADATA)


def join(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


def type_name(thing: Any) -> str:
    return f"an object of type {type(thing).__name__}"


def tensor_leaves(tensor: Tensor, key: str) -> Iterator[tuple[str, Tensor | Packed]]:
    """The plain tensors and packed numbers that this process holds of ``tensor``, each with its name.

    Raises:
        TypeError: its memory cannot be seen.
    """
    if is_lazy(tensor):
        return  # the size is not known, and no memory taken, before the first forward pass
    for local in _local(tensor):
        parts = _parts(local)
        if not parts:
            yield key, local
            if local.is_quantized and local.qscheme() in _BY_CHANNEL:
                yield from ((join(key, name), getattr(local, get)()) for name, get in _PER_CHANNEL.items())
        elif local.layout is not torch.strided:
            for part in parts.values():
                yield from tensor_leaves(part, key)
        elif len(parts) == 1 and (part := next(iter(parts.values()))).numel() == local.numel():
            yield from tensor_leaves(part, key)  # a wrapper of one tensor
        else:
            stored = [part for name, part in parts.items() if not is_metadata(name)]
            yield key, Packed(local.numel(), tuple(plain for part in stored for plain in _plain(part)))
            for name, part in parts.items():
                if is_metadata(name):
                    yield from tensor_leaves(part, join(key, name))


def _local(tensor: Tensor) -> list[Tensor]:
    """What this process holds of a tensor that several may share."""
    if hasattr(tensor, "to_local"):  # DTensor
        return [tensor.to_local()]
    if hasattr(tensor, "local_shards"):  # the older ShardedTensor
        return [shard.tensor for shard in tensor.local_shards()]
    return [tensor]


def _parts(tensor: Tensor) -> dict[str, Tensor]:
    """The tensors inside a wrapper or a sparse tensor, by name; none for a plain one.

    A wrapper says how many numbers it stands for, and in which dtype. Neither tells what is in memory.
    """
    if hasattr(tensor, "__tensor_flatten__"):
        found = {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}
    elif tensor.is_nested:
        found = {"values": tensor.values()}
    elif tensor.layout in _SPARSE:
        found = {name: getattr(tensor, name)() for name in _SPARSE[tensor.layout]}
    elif _has_storage(tensor):
        return {}
    else:
        found = vars(tensor)
    parts = {name: part for name, part in found.items() if isinstance(part, Tensor)}
    if not parts:
        raise TypeError(f"state_size cannot see the memory behind {type_name(tensor)} and layout {tensor.layout}.")
    return parts


def _plain(tensor: Tensor) -> Iterator[Tensor]:
    parts = _parts(tensor)
    if not parts:
        yield tensor
    for part in parts.values():
        yield from _plain(part)


def _has_storage(tensor: Tensor) -> bool:
    try:
        storage = tensor.untyped_storage()
        # On meta there is no address to ask for.
        return storage.device.type == "meta" or storage.data_ptr() is not None
    except RuntimeError:  # "invalid python storage" of a wrapper; or a layout that has no storage
        return False
