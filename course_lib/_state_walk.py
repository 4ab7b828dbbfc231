"""Finding the tensors and numbers in whatever holds an optimizer's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ACCEPTED = "state_size needs an optimizer, its state_dict(), its state or its state.values();"
# How the names of quantization maps, scales and offsets begin, in bitsandbytes, torchao and course_lib.blockwise.
_METADATA = ("qmap", "map", "absmax", "scale", "zero_point")
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


@dataclass(frozen=True)
class Packed:
    """Numbers that are stored as something else, such as the codes of a quantized tensor.

    Attributes:
        numel: count of the numbers.
        stored: the plain tensors that hold them.
    """

    numel: int
    stored: tuple[Tensor, ...]


def states_of(thing: Any) -> Iterator[Mapping[Any, Any]]:
    """The state of each parameter, whatever holds them.

    Raises:
        ValueError: there is no optimizer yet, as in a Trainer before ``train()``.
        TypeError: ``thing`` holds no state.
    """
    if thing is None:
        raise ValueError(
            "There is no optimizer to look at: this is None. A Trainer makes its optimizer in trainer.train(), so look "
            "at trainer.optimizer after that."
        )
    if isinstance(thing, Mapping):
        if "param_groups" in thing:
            yield from states_of(thing.get("state", {}))
        elif any(isinstance(key, Tensor) for key in thing) or all(_holds_states(value) for value in thing.values()):
            yield from _each([value for value in thing.values() if _holds_states(value)])
            # What an optimizer keeps beside the parameters' states, such as a count of its own.
            yield {str(key): value for key, value in thing.items() if not _holds_states(value)}
        else:
            yield thing
    elif hasattr(thing, "optimizer"):
        yield from states_of(thing.optimizer)
    elif _holds_states(thing):
        yield from states_of(thing.state)
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, Tensor, torch.nn.Module)):
        yield from _each(thing)
    else:
        raise TypeError(f"{_ACCEPTED} it was given {type_name(thing)}.")


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Tensor | Packed | Number]]:
    """The plain tensors, packed numbers and Python numbers in ``value``, each with its name.

    Raises:
        TypeError: something whose memory cannot be counted.
    """
    if isinstance(value, Packed):
        yield key, value
    elif isinstance(value, Tensor):
        yield from _tensor_leaves(value, key)
    elif isinstance(value, Number) and not isinstance(value, bool):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            # bitsandbytes' state_dict() hides its tensors from FSDP one level down, under a name with underscores.
            yield from leaves(inner, key if str(name).startswith("__") else _join(key, name))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from leaves({field.name: getattr(value, field.name) for field in fields(value)}, key)
    elif hasattr(value, "_asdict"):  # a named tuple
        yield from leaves(value._asdict(), key)
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        for inner in value:
            yield from leaves(inner, key)
    elif hasattr(value, "__array__") and not isinstance(value, np.generic):
        raise TypeError(
            f"state_size counts tensors and Python numbers; {key!r} is {type_name(value)}. Make it a tensor with "
            "torch.as_tensor."
        )


def is_metadata(key: str) -> bool:
    """Whether an entry with this name is a quantization map, a scale or an offset."""
    return key.rpartition(".")[2].startswith(_METADATA)


def type_name(thing: Any) -> str:
    return f"an object of type {type(thing).__name__}"


def _holds_states(value: Any) -> bool:
    return isinstance(value if isinstance(value, Mapping) else getattr(value, "state", None), Mapping) or hasattr(
        value, "optimizer"
    )


def _each(values: Iterable[Any]) -> Iterator[Mapping[Any, Any]]:
    for value in values:
        if isinstance(value, Mapping) and "param_groups" not in value:
            yield value
        elif _holds_states(value):
            yield from states_of(value)
        else:
            raise TypeError(f"{_ACCEPTED} it was given something that holds {type_name(value)}.")


def _tensor_leaves(tensor: Tensor, key: str) -> Iterator[tuple[str, Tensor | Packed]]:
    for local in _local(tensor):
        parts = _parts(local)
        if not parts:
            yield key, local
        elif local.layout is not torch.strided:
            for part in parts.values():
                yield from _tensor_leaves(part, key)
        elif len(parts) == 1 and (part := next(iter(parts.values()))).numel() == local.numel():
            yield from _tensor_leaves(part, key)  # a wrapper of one tensor
        else:
            stored = [part for name, part in parts.items() if not is_metadata(name)]
            yield key, Packed(local.numel(), tuple(plain for part in stored for plain in _plain(part)))
            for name, part in parts.items():
                if is_metadata(name):
                    yield from _tensor_leaves(part, _join(key, name))


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


def _join(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)
