"""Finding the tensors and numbers in whatever holds an optimizer's state."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from numbers import Number
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib._tensor_parts import Packed, join, tensor_leaves, type_name

_ACCEPTED = "state_size needs an optimizer, its state_dict(), its state or its state.values();"
# Without entries that could be looked at one by one, or with none that are part of a state.
_CLOSED = (str, bytes, range, type, Enum, ModuleType, np.generic)
_MEMORY = (bytearray, memoryview, array, torch.UntypedStorage)


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
        yield from _in_mapping(thing)
    elif hasattr(thing, "optimizer"):
        yield from states_of(thing.optimizer)
    elif _holds_states(thing):
        # ZeroRedundancyOptimizer leaves the state to another one, which has this process's share.
        if _holds_states(getattr(thing, "optim", None)):
            yield from states_of(thing.optim)
        yield from states_of(thing.state)
    elif isinstance(thing, Iterable) and not isinstance(thing, (str, Tensor, torch.nn.Module)):
        yield from _each(thing)
    else:
        raise TypeError(f"{_ACCEPTED} it was given {type_name(thing)}.")


def leaves(
    value: Any, key: str = "", met: dict[int, Any] | None = None, numbers: bool = True
) -> Iterator[tuple[str, Tensor | Packed | Number]]:
    """The plain tensors, packed numbers and Python numbers in ``value``, each with its name.

    Args:
        value, key: an entry of a state, and its name.
        met: what has been looked into already, by identity. It is left out, and what is looked into is added.
        numbers: whether Python numbers count.

    Raises:
        TypeError: something whose memory cannot be counted.
    """
    met = {} if met is None else met
    if isinstance(value, Packed):
        yield key, value
    elif isinstance(value, Tensor):
        yield from tensor_leaves(value, key)
    elif isinstance(value, Number):
        if numbers and not isinstance(value, bool):
            yield key, value
    elif id(value) not in met:
        if not isinstance(value, (tuple, frozenset)):  # constants, which Python shares among those who write the same
            met[id(value)] = value  # held, so that its identity stays taken
        numbers = numbers and not _is_plain_object(value)
        for name, inner in _inside(value, key):
            yield from leaves(inner, name, met, numbers)


def _inside(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """What a container or an object holds, each with its name."""
    if value is None or isinstance(value, _CLOSED):
        return
    if isinstance(value, _MEMORY) or hasattr(value, "__array__"):
        raise TypeError(
            f"state_size counts tensors and Python numbers; {key!r} is {type_name(value)}. Make it a tensor with "
            "torch.as_tensor."
        )
    if _is_state(value) or _is_optimizer(value) and not isinstance(value, (list, tuple)):
        yield from ((key, state) for state in states_of(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            # bitsandbytes' state_dict() hides its tensors from FSDP one level down, under a name with underscores.
            yield key if str(name).startswith("__") else join(key, name), inner
    elif is_dataclass(value):
        yield from ((join(key, field.name), getattr(value, field.name)) for field in fields(value))
    elif hasattr(value, "_asdict"):  # a named tuple
        yield from ((join(key, name), inner) for name, inner in value._asdict().items())
    elif isinstance(value, Collection):
        yield from ((key, inner) for inner in value)
    else:
        yield from ((join(key, name), inner) for name, inner in _attributes(value).items())


def _is_plain_object(value: Any) -> bool:
    return not (isinstance(value, Collection) or is_dataclass(value) or _is_optimizer(value))


def _attributes(value: Any) -> dict[str, Any]:
    slots = [getattr(kind, "__slots__", ()) for kind in type(value).__mro__]
    names = [name for some in slots for name in ([some] if isinstance(some, str) else some)]
    found = {name: getattr(value, name, None) for name in names if not name.startswith("__")}
    return {**found, **getattr(value, "__dict__", {})}


def _in_mapping(thing: Mapping[Any, Any]) -> Iterator[Mapping[Any, Any]]:
    named = all(isinstance(key, str) for key in thing)
    if "param_groups" in thing:
        yield from states_of(thing.get("state", {}))
    elif named and any(key.startswith("param_groups.") for key in thing):
        yield from _unflattened(thing)
    elif named and any(map(_is_optimizer, thing.values())):
        # Several of them, or a checkpoint, in which there are weights and more beside.
        yield from _each([value for value in thing.values() if _is_optimizer(value) or _is_state(value)])
    elif any(isinstance(key, Tensor) for key in thing) or all(_holds_states(value) for value in thing.values()):
        yield from _each([value for value in thing.values() if _holds_states(value)])
        # What an optimizer keeps beside the parameters' states, such as a count of its own.
        yield {str(key): value for key, value in thing.items() if not _holds_states(value)}
    else:
        yield thing


def _unflattened(thing: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The states in a ``state_dict()`` that a distributed checkpoint has flattened, as ``state.PARAMETER.exp_avg``."""
    states: dict[str, dict[str, Any]] = {}
    for key, value in thing.items():
        parameter, _, name = key.rpartition(".")
        if parameter.startswith("state."):
            states.setdefault(parameter, {})[name] = value
    yield from states.values()


def _is_optimizer(value: Any) -> bool:
    """Whether this is an optimizer, something around one, or its ``state_dict()``; or a list with such a thing."""
    if isinstance(value, Mapping):
        return "param_groups" in value
    if isinstance(value, (list, tuple)):
        return any(_is_optimizer(inner) for inner in value if not isinstance(inner, (list, tuple)))
    return _holds_states(value)


def _is_state(value: Any) -> bool:
    """Whether this is an optimizer's ``state``: for each parameter, or its number, a dictionary."""
    return (
        isinstance(value, Mapping)
        and any(isinstance(key, (int, Tensor)) for key in value)
        and all(isinstance(inner, Mapping) for inner in value.values())
    )


def _holds_states(value: Any) -> bool:
    return isinstance(value if isinstance(value, Mapping) else getattr(value, "state", None), Mapping) or hasattr(
        value, "optimizer"
    )


def _each(values: Iterable[Any]) -> Iterator[Mapping[Any, Any]]:
    for value in values:
        if isinstance(value, Mapping) and not _is_optimizer(value) and not _is_state(value):
            yield value
        elif _holds_states(value):
            yield from states_of(value)
        elif isinstance(value, (list, tuple)):
            yield from _each(value)
        else:
            raise TypeError(f"{_ACCEPTED} it was given something that holds {type_name(value)}.")
