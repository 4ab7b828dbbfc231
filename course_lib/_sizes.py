"""The size of an optimizer's state as a value: counts of numbers, bytes, and how they are printed."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import NamedTuple

_ON_META = "not in memory (on meta)"
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
        by_device: bytes on each device, such as ``cuda:0``. On ``meta`` they are those that a real device would take.
            Sizes that differ in nothing else are equal.
    """

    moments: int = 0
    scalars: int = 0
    metadata: int = 0
    bytes: int = 0
    by_key: dict[str, KeySize] = field(default_factory=dict)
    by_device: dict[str, int] = field(default_factory=dict, compare=False)

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
        size = f"{self.elements:,} elements ({self._parts()}), {self.bytes:,} bytes = {_in_mib(self.bytes)} MiB"
        return size + self._devices()

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
            f"<table><caption>Optimizer state: {self._parts()}{self._devices()}</caption><thead><tr>"
            '<th scope="col" style="text-align: left">key</th><th scope="col">elements</th>'
            f'<th scope="col">bytes</th><th scope="col">MiB</th></tr></thead><tbody>{body}</tbody></table>'
        )

    def _parts(self) -> str:
        parts = f"{self.moments:,} moments + {self.scalars:,} scalars"
        return parts + (f" + {self.metadata:,} metadata" if self.metadata else "")

    def _devices(self) -> str:
        if len(self.by_device) < 2:
            return ""
        told = (f"{size:,} bytes {_ON_META if on == 'meta' else f'on {on}'}" for on, size in self.by_device.items())
        return "; of these " + ", ".join(told)


def _in_mib(size: int) -> str:
    mib = size / 2**20
    return f"{mib:,.3f}" if mib >= 0.01 or not size else f"{mib:.2g}"
