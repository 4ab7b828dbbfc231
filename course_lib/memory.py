"""How large an optimizer's state is: measured after a step, or predicted from shapes.

Megabytes here name their unit: MiB is 2**20 bytes, MB is 10**6.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib._layouts import LAYOUTS
from course_lib._state_walk import Storages, leaves, states_of, type_name

_EMPTY = "no state: an optimizer makes it in its first step (SGD without momentum never makes any)"


class KeySize(NamedTuple):
    """What all entries of one name, such as ``exp_avg``, take together."""

    elements: int
    bytes: int


@dataclass(frozen=True)
class StateSize:
    """The size of an optimizer's state.

    Attributes:
        moments: count of the numbers in moving averages, momentum buffers and the like.
        scalars: count of the single numbers kept beside them, such as the step.
        metadata: count of the numbers in quantization maps and scales.
        bytes: bytes of the storages behind the state. A Python number takes none of these.
        by_key: elements and bytes for each name, such as ``exp_avg``.
    """

    moments: int = 0
    scalars: int = 0
    metadata: int = 0
    bytes: int = 0
    by_key: dict[str, KeySize] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """Count of all numbers: moments, scalars and metadata."""
        return self.moments + self.scalars + self.metadata

    @property
    def mib(self) -> float:
        """Size in MiB, of 2**20 bytes."""
        return self.bytes / 2**20

    @property
    def mb(self) -> float:
        """Size in MB, of 10**6 bytes."""
        return self.bytes / 10**6

    def __str__(self) -> str:
        if not self.by_key:
            return _EMPTY
        return f"{self.elements:,} elements ({self._parts()}), {self.bytes:,} bytes = {_in_mib(self.bytes)} MiB"

    def __repr__(self) -> str:
        return f"<StateSize: {self}>"

    def _repr_html_(self) -> str:
        if not self.by_key:
            return f"<p>StateSize: {_EMPTY}.</p>"
        rows = [*self.by_key.items(), ("all", KeySize(self.elements, self.bytes))]
        body = "".join(
            f'<tr><th scope="row" style="text-align: left">{html.escape(key)}</th>'
            f"<td>{size.elements:,}</td><td>{size.bytes:,}</td><td>{_in_mib(size.bytes)}</td></tr>"
            for key, size in rows
        )
        return (
            f"<table><caption>Optimizer state: {self._parts()}</caption><thead><tr>"
            '<th scope="col" style="text-align: left">key</th><th scope="col">elements</th>'
            f'<th scope="col">bytes</th><th scope="col">MiB</th></tr></thead><tbody>{body}</tbody></table>'
        )

    def _parts(self) -> str:
        parts = f"{self.moments:,} moments + {self.scalars:,} scalars"
        return parts + (f" + {self.metadata:,} metadata" if self.metadata else "")


def state_size(thing: Any) -> StateSize:
    """Count an optimizer's state, as it is now.

    - Moments are all tensors but those that follow. Scalars are the entries named ``step`` and ``RMS``, other 0-dim
      tensors, and Python numbers. In the state of a 0-dim parameter, where moments are 0-dim too, only the names
      decide. Metadata are the entries whose names begin with ``qmap`` or ``absmax`` (bitsandbytes).
    - A Python number is one element and no bytes. ``True``, ``False``, ``None`` and text are not counted.
    - Storage that several entries share counts once, elements and bytes, under the name that comes first. An entry
      that shows only part of a storage counts the elements it shows, and all the bytes that it keeps alive.
    - Dicts, lists and tuples inside a state are looked into; a dict's entries are named like ``outer.inner``.

    Args:
        thing: an optimizer, plain or wrapped (by Accelerate, in a Trainer); its ``state_dict()``, its ``state``, its
            ``state.values()``; one parameter's state, or a list of those.

    Returns:
        The size; all zeros where there is no state yet, as before an optimizer's first step.

    Raises:
        ValueError: ``thing`` is None, as ``trainer.optimizer`` is before ``trainer.train()``.
        TypeError: ``thing`` is none of the above.
    """
    counts = {"moments": 0, "scalars": 0, "metadata": 0}
    by_key: dict[str, KeySize] = {}
    storages = Storages()
    for state in states_of(thing):
        entries = list(leaves(state))
        zero_dim = all(leaf.ndim == 0 for _, leaf in entries if isinstance(leaf, Tensor))
        for key, leaf in entries:
            size = KeySize(*storages.count(leaf)) if isinstance(leaf, Tensor) else KeySize(1, 0)
            counts[_role(key, leaf, zero_dim)] += size.elements
            before = by_key.get(key, KeySize(0, 0))
            by_key[key] = KeySize(before.elements + size.elements, before.bytes + size.bytes)
    return StateSize(**counts, bytes=sum(size.bytes for size in by_key.values()), by_key=by_key)


def compute_optimizer_size(states: Iterable[Mapping[str, Any]]) -> tuple[float, int]:
    """Size of an optimizer's state, given as ``optimizer.state.values()`` or anything that ``state_size`` takes.

    Returns:
        ``(total_size_megabytes, total_num_elements)``. As in the material this function is known from, a megabyte is
        1024**2 bytes (MiB), and a Python number, such as the step in ``transformers``' Adafactor, is an element.
    """
    size = state_size(states)
    return size.mib, size.elements


def predict_state_size(model: torch.nn.Module, kind: str) -> StateSize:
    """The size that ``state_size`` will measure after a step in which every trainable parameter has a gradient.

    The optimizer is the one that is given the parameters with ``requires_grad=True`` and its default arguments (and
    a momentum, for ``sgd_momentum``). Tied parameters count once. (torch's Adagrad makes its state on construction, so
    it keeps state for frozen parameters too if it is handed any; the others do not.)

    Args:
        model: a module, on any device; on ``meta`` it takes no memory.
        kind: ``sgd``, ``sgd_momentum``, ``adagrad``, ``rmsprop``, ``adamw``, ``adafactor`` (the course's own),
            ``adafactor_transformers`` or ``adafactor_torch``.

    Raises:
        ValueError: an unknown kind.
        TypeError: ``model`` has no parameters to ask for.
    """
    if kind not in LAYOUTS:
        raise ValueError(f"Unknown kind of optimizer: {kind!r}. Known kinds: {', '.join(LAYOUTS)}.")
    if not callable(getattr(model, "parameters", None)):
        raise TypeError(
            f"predict_state_size needs a model, such as a torch.nn.Module; it was given {type_name(model)}."
        )
    # parameters() yields a tied parameter once.
    return state_size([LAYOUTS[kind](p) for p in model.parameters() if p.requires_grad])


def _role(key: str, leaf: Any, zero_dim: bool) -> str:
    name = key.rpartition(".")[2]
    if name.startswith(("qmap", "absmax")):
        return "metadata"
    if name in ("step", "RMS") or not isinstance(leaf, Tensor) or (leaf.ndim == 0 and not zero_dim):
        return "scalars"
    return "moments"


def _in_mib(size: int) -> str:
    mib = size / 2**20
    return f"{mib:,.3f}" if mib >= 0.01 or not size else f"{mib:.2g}"
