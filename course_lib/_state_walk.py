"""Finding the tensors and numbers in whatever holds an optimizer's state, and counting each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

import torch
from torch import Tensor

_ACCEPTED = "state_size needs an optimizer, its state_dict(), its state or its state.values();"


def states_of(thing: Any) -> Iterator[Mapping[Any, Any]]:
    """The state of each parameter, whatever holds them."""
    if thing is None:
        raise ValueError(
            "There is no optimizer to look at: this is None. A Trainer makes its optimizer in trainer.train(), so look "
            "at trainer.optimizer after that."
        )
    if isinstance(thing, Mapping):
        if "param_groups" in thing:
            yield from thing["state"].values()
        elif all(isinstance(value, Mapping) for value in thing.values()):
            yield from thing.values()
        else:
            yield thing
    elif hasattr(thing, "optimizer"):
        yield from states_of(thing.optimizer)
    elif isinstance(getattr(thing, "state", None), Mapping):
        yield from thing.state.values()
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, Tensor, torch.nn.Module)):
        for state in thing:
            if not isinstance(state, Mapping):
                raise TypeError(f"{_ACCEPTED} it was given something that holds {type_name(state)}.")
            yield state
    else:
        raise TypeError(f"{_ACCEPTED} it was given {type_name(thing)}.")


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors and Python numbers in ``value``, each with its name."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from leaves(inner, key)
    elif isinstance(value, (Tensor, Number)) and not isinstance(value, bool):
        yield key, value


def type_name(thing: Any) -> str:
    return f"an object of type {type(thing).__name__}"


class Storages:
    """The storages met so far, so that nothing is counted twice."""

    def __init__(self) -> None:
        # By identity: the storage (held, so that its identity stays taken) and which of its bytes are counted,
        # None standing for all of them.
        self._met: dict[int, tuple[torch.UntypedStorage, Tensor | None]] = {}

    def count(self, tensor: Tensor) -> tuple[int, int]:
        """Elements and bytes of ``tensor`` that no earlier tensor had."""
        if parts := _parts(tensor):
            elements, new_bytes = (sum(column) for column in zip(*(self.count(part) for part in parts), strict=True))
            if tensor.layout is torch.strided:
                # A wrapper (quantized, distributed) stands for as many numbers as it claims, in fewer bytes.
                return tensor.numel() if new_bytes else 0, new_bytes
            return elements, new_bytes

        storage, width = tensor.untyped_storage(), tensor.element_size()
        new_bytes = 0
        if id(storage) not in self._met:
            new_bytes = storage.nbytes()
            whole = tensor.is_contiguous() and tensor.numel() * width == new_bytes
            self._met[id(storage)] = storage, None if whole else torch.zeros(new_bytes, dtype=torch.bool)
            if whole:
                return tensor.numel(), new_bytes

        counted = self._met[id(storage)][1]
        if counted is None:
            return 0, new_bytes
        before = int(counted.count_nonzero())
        # Mark the bytes this tensor shows. Several of its entries may show the same ones, as in an expanded tensor.
        strides = [stride * width for stride in tensor.stride()]
        counted.as_strided((*tensor.shape, width), (*strides, 1), tensor.storage_offset() * width).fill_(True)
        return (int(counted.count_nonzero()) - before) // width, new_bytes


def _parts(tensor: Tensor) -> list[Tensor]:
    """The plain tensors inside a wrapper or a sparse tensor; none for a plain one."""
    if hasattr(tensor, "__tensor_flatten__"):
        return [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    return []
