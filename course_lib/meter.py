"""Peak memory of a block of code, which a look before and a look after do not show."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(repr=False)
class Usage:
    """Memory of a block of code. All sizes are in bytes; printed, they are in MiB (2**20 bytes).

    Attributes:
        what: what is counted: "tensors on cpu", "tensors on meta", or "allocated on cuda".
        before, peak, after: at the start of the block, at its highest, and at its end.
        reserved: on CUDA, the most that PyTorch's allocator has taken from the card, in use or not. None elsewhere.
        resident: what the whole process keeps in main memory after the block, its *resident set*. For information: it
            differs from run to run, and freed memory may still be in it. A notebook shows it when a cell ends in a
            Usage; ``print`` leaves it out.
    """

    what: str
    before: int = 0
    peak: int = 0
    after: int = 0
    reserved: int | None = None
    resident: int = 0

    @property
    def added(self) -> int:
        """How far the peak is above the start."""
        return self.peak - self.before

    def __str__(self) -> str:
        return f"{self.what}: " + ", ".join(f"{_in_mib(size)} MiB {name}" for name, size in self._sizes().items())

    def __repr__(self) -> str:
        return f"<Usage: {self}>"

    def _repr_html_(self) -> str:
        sizes = {
            **{f"{self.what}, {name}": size for name, size in self._sizes().items()},
            "for information: resident set of the process, after": self.resident,
        }
        body = "".join(
            f'<tr><th scope="row" style="text-align: left">{name}</th><td>{_in_mib(size)}</td></tr>'
            for name, size in sizes.items()
        )
        return (
            "<table><caption>Memory of a block of code</caption><thead><tr>"
            '<th scope="col" style="text-align: left">what</th><th scope="col">MiB</th></tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {"before": self.before, "at the peak": self.peak, "after": self.after}
        return sizes if self.reserved is None else {**sizes, "reserved at most": self.reserved}


@contextmanager
def measure(*holders: nn.Module | Optimizer | Tensor) -> Iterator[Usage]:
    """Measure a block: ``with meter.measure(model, optimizer) as usage: optimizer.step()``.

    It counts tensors: those of ``holders`` (parameters, their gradients, buffers, state) and all that the
    block makes, each from when it is made to when it is freed. The same block gives the same numbers every time,
    whatever else the process holds. What an operation needs only inside itself is not seen. A block may call each
    model once: one training step, not a loop of them. With holders on the ``meta`` device the block predicts what it
    would need on the CPU, without needing it.

    With holders on a CUDA device it asks that device's allocator instead, which counts all tensors there are, in
    blocks of 512 bytes. The peak counter is the process's own: it is reset at the start of the block, and what the
    allocator keeps unused is given back. Compare ``added`` there: what a notebook's old outputs and tracebacks keep
    alive is in ``before`` and ``peak`` alike.

    Args:
        *holders: whatever exists already and plays a part in the block. They are on one device; with none it is the
            CPU.

    Yields:
        A :class:`Usage`, filled in when the block ends, also by an exception.
    """
    gc.collect()  # what only a reference cycle keeps alive would be freed at some moment of its own
    device = next((tensor.device for holder in holders for tensor in _tensors(holder)), torch.device("cpu"))
    with _allocated(device) if device.type == "cuda" else _tracked(device, holders) as usage:
        try:
            yield usage
        finally:
            usage.resident = psutil.Process().memory_info().rss


@contextmanager
def _tracked(device: torch.device, holders: tuple[nn.Module | Optimizer | Tensor, ...]) -> Iterator[Usage]:
    # torch's own tracker, imported here since that takes a second or two.
    from torch.distributed._tools.mem_tracker import MemTracker

    tracker = MemTracker()
    tracker.track_external(*holders)

    def total(moment: str) -> int:
        return tracker.get_tracker_snapshot(moment).get(device, {}).get("Total", 0)

    usage = Usage(f"tensors on {device.type}", before=total("current"))
    with warnings.catch_warnings():
        # The tracker's note on modules that live for the forward pass only, as a loss that is made there.
        warnings.filterwarnings("ignore", "Module is None")
        try:
            with tracker:
                yield usage
        finally:
            usage.peak, usage.after = total("peak"), total("current")


@contextmanager
def _allocated(device: torch.device) -> Iterator[Usage]:
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()  # else ``reserved`` would tell of earlier blocks
    torch.cuda.reset_peak_memory_stats(device)
    usage = Usage("allocated on cuda", before=torch.cuda.memory_allocated(device))
    try:
        yield usage
    finally:
        torch.cuda.synchronize(device)
        usage.peak, usage.after = torch.cuda.max_memory_allocated(device), torch.cuda.memory_allocated(device)
        usage.reserved = torch.cuda.max_memory_reserved(device)


def _tensors(holder: nn.Module | Optimizer | Tensor) -> Iterator[Tensor]:
    if isinstance(holder, Tensor):
        yield holder
    elif isinstance(holder, nn.Module):
        yield from holder.parameters()
    else:
        yield from (p for group in holder.param_groups for p in group["params"])


def _in_mib(size: int) -> str:
    return f"{size / 2**20:,.2f}"
