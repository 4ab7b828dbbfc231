"""Small computations on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside the block.

    Small tensors gain little from a second thread, and while other programs keep the cores busy, the threads wait for
    one another at every operation: ten times as long and more was measured. Besides, sums then come out the same on
    any number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
