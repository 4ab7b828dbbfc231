"""Counting elements and bytes of tensors, each memory once, however many tensors show it."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor


class Storages:
    """The storages met so far, so that nothing is counted twice.

    Attributes:
        by_device: the bytes of these storages on each device, by its name. What has no memory is on ``meta``.
    """

    def __init__(self) -> None:
        self.by_device: dict[str, int] = {}
        self._met: dict[int, _Shown] = {}  # by identity

    def count(self, tensor: Tensor) -> tuple[int, int]:
        """Elements and bytes of a plain ``tensor`` that no earlier tensor had."""
        storage, new_bytes = tensor.untyped_storage(), 0
        if id(storage) not in self._met:
            self._met[id(storage)] = _Shown(storage)
            new_bytes = storage.nbytes()
            # The storage's own device: a FakeTensor says "cpu" where there is no memory.
            device = str(storage.device)
            self.by_device[device] = self.by_device.get(device, 0) + new_bytes
        return self._met[id(storage)].show(tensor) // tensor.element_size(), new_bytes

    def count_packed(self, numel: int, stored: list[Tensor]) -> tuple[int, int]:
        """The same for ``numel`` numbers of which the plain tensors ``stored`` are made up together."""
        counts = [self.count(tensor) for tensor in stored]
        new, new_bytes = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        # What is stored may be half as many bytes as numbers, or two tensors for each number.
        return numel * new // max(1, sum(tensor.numel() for tensor in stored)), new_bytes


class _Shown:
    """One storage, and which of its bytes some tensor has shown."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self._storage = storage  # held, so that its identity stays taken
        self._spans: list[tuple[int, int]] = []  # from the first byte to behind the last, disjoint
        self._mask: Tensor | None = None  # one entry for each byte, once spans do not do

    def show(self, tensor: Tensor) -> int:
        """Note what ``tensor`` shows, and return how many bytes of it are new."""
        width = tensor.element_size()
        start = tensor.storage_offset() * width
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        if tensor.numel() == 0 or start + reach * width > self._storage.nbytes():
            return 0  # nothing, or nothing any more: some libraries free a storage and leave its tensors
        if self._mask is None and _is_dense(tensor):
            return self._show_span(start, start + tensor.numel() * width)
        return self._show_mask(start, [*tensor.shape, width], [*(stride * width for stride in tensor.stride()), 1])

    def _show_span(self, start: int, end: int) -> int:
        touched = [span for span in self._spans if span[0] <= end and start <= span[1]]
        known = sum(min(span[1], end) - max(span[0], start) for span in touched)
        union = min([start, *(span[0] for span in touched)]), max([end, *(span[1] for span in touched)])
        self._spans = [*(span for span in self._spans if span not in touched), union]
        return end - start - known

    def _show_mask(self, start: int, shape: list[int], strides: list[int]) -> int:
        if self._mask is None:
            # On the CPU also where another device is the default.
            self._mask = torch.zeros(self._storage.nbytes(), dtype=torch.bool, device="cpu")
            for span in self._spans:
                self._mask[slice(*span)] = True
        before = int(self._mask.count_nonzero())
        # Several entries may show the same bytes, as in an expanded tensor.
        self._mask.as_strided(shape, strides, start).fill_(True)
        return int(self._mask.count_nonzero()) - before


def _is_dense(tensor: Tensor) -> bool:
    """Whether the entries lie side by side in some order, as also in a transposed tensor."""
    axes = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    return all(stride == prod(size for _, size in axes[:i]) for i, (stride, _) in enumerate(axes))
