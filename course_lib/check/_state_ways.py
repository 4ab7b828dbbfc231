"""States of optimizers after a real step, and the ways, right and wrong, in which their size can be counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import blockwise

State = dict[str, Any]
MIB, GIB = 2**20, 2**30  # bytes
SMALL = 4096  # elements; bitsandbytes keeps the state of smaller parameters in 32 bits


def transformers_adafactor(params: Sequence[nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    return Adafactor(params, **settings)


def stepped(make: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[State]:
    """What an optimizer, made by ``make(params)``, keeps for parameters of these shapes after a step."""
    params = [nn.Parameter(torch.linspace(0.5, 1.5, prod(shape), dtype=dtype).reshape(shape)) for shape in shapes]
    optimizer = make(params)

    @torch.enable_grad()  # not every optimizer turns gradients on for it
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = sum((p**4).sum() for p in params)
        loss.backward()
        return loss

    optimizer.step(closure)
    return [optimizer.state[p] for p in params]


def eight_bit(*shapes: tuple[int, ...]) -> list[State]:
    """The state that bitsandbytes' AdamW8bit would leave: two maps serve all parameters; small ones stay in 32 bits."""
    maps = {1: blockwise.quantization_map(), 2: blockwise.quantization_map(signed=False)}
    states = []
    for shape in shapes:
        state: State = {"step": 1}
        for i in (1, 2):
            moment = torch.linspace(0, 1, prod(shape)).reshape(shape)
            if moment.numel() < SMALL:
                state[f"state{i}"] = moment
            else:
                q = blockwise.quantize(moment)
                state |= {f"state{i}": q.codes, f"qmap{i}": maps[i], f"absmax{i}": q.absmax}
        states.append(state)
    return states


@dataclass(frozen=True)
class Way:
    """A way to count a state; as it stands, the right one.

    What becomes of a thing that is no tensor is None (it is passed over), a number (it is one element of so many
    bytes), a function that tells these bytes, or the exception that it raises.

    Attributes:
        unit: bytes in what is called a MiB.
        width: bytes of each number in a tensor; None for those of its dtype.
        numel: how many elements a tensor is said to have.
        python, none, other: what becomes of Python numbers, of None, and of containers that are not looked into.
        opens: containers that are looked into.
        depth: how many of them are, one inside the other.
        inside_unit: what the bytes inside a container are divided by on the way out of it.
        once: what is counted once, however often it stands there.
        known_by: what makes two of them the same.
        skips: tells the entries that are left out, by name, value, and whether they are inside an entry.
        after: makes of the size and the number of elements what is returned.
    """

    unit: float = MIB
    width: int | None = None
    numel: Callable[[Tensor], int] = Tensor.numel
    python: Any = 0
    none: Any = None
    other: Any = None
    opens: tuple[type, ...] = (Mapping, list, tuple)
    depth: int = 99
    inside_unit: float = 1
    once: tuple[type, ...] = (Tensor,)
    known_by: Callable[[Any], Any] = id
    skips: Callable[[str, Any, bool], bool] = lambda key, value, inside: False
    after: Callable[[float, int], Any] = lambda size, elements: (size, elements)

    def __call__(self, states: Any) -> Any:
        met: set[Any] = set()
        sizes = [size for state in states for size in self._sizes(state.items(), met)]
        return self.after(sum(taken for taken, _ in sizes) / self.unit, sum(count for _, count in sizes))

    def _sizes(self, entries: Iterable[tuple[str, Any]], met: set[Any], depth: int = 0) -> Iterator[tuple[float, int]]:
        for key, value in entries:
            if self.skips(key, value, depth > 0):
                continue
            if isinstance(value, self.once):
                known = self.known_by(value)
                if known in met:
                    continue
                met.add(known)
            if isinstance(value, Tensor):
                yield value.numel() * (self.width or value.element_size()), self.numel(value)
            elif isinstance(value, self.opens) and depth < self.depth:
                for taken, count in self._sizes(_entries(key, value), met, depth + 1):
                    yield taken / self.inside_unit, count
            else:
                yield from self._no_tensor(value)

    def _no_tensor(self, value: Any) -> Iterator[tuple[float, int]]:
        fate = self.none if value is None else self.python if isinstance(value, (int, float)) else self.other
        if isinstance(fate, type):
            raise fate
        if fate is not None:
            yield (fate(value) if callable(fate) else fate), 1


def _entries(key: str, value: Any) -> Iterable[tuple[str, Any]]:
    return value.items() if isinstance(value, Mapping) else [(key, part) for part in value]
