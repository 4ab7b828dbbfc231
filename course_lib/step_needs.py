"""What a step of each of the course's optimizers needs on a device: its state, and how high memory rises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from course_lib import memory, meter

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAMW, FUSED, ADAMW_8BIT = "AdamW", "AdamW, fused", "8-bit AdamW"
TRANSFORMERS, TORCH, FOREACH, OURS = (
    "Adafactor, transformers",
    "Adafactor, torch",
    "Adafactor, torch foreach",
    "Adafactor, ours",
)
# For each optimizer the kind that ``memory.predict_state_size`` knows.
KINDS = {
    ADAMW: "adamw",
    FUSED: "adamw",
    ADAMW_8BIT: "adamw8bit_bitsandbytes",
    TRANSFORMERS: "adafactor_transformers",
    TORCH: "adafactor_torch",
    FOREACH: "adafactor_torch",
    OURS: "adafactor",
}
NAMES = tuple(KINDS)
RATE = 1e-3


@dataclass(frozen=True)
class Peak:
    """Memory of a block of code, in bytes; see :class:`course_lib.meter.Usage`.

    Attributes:
        before, peak: allocated at the start, and at most.
        reserved: on CUDA the most that PyTorch has taken from the card; None elsewhere.
    """

    before: int
    peak: int
    reserved: int | None

    @property
    def added(self) -> int:
        """How far the peak is above the start."""
        return self.peak - self.before


@dataclass(frozen=True)
class Need:
    """What one optimizer needs. Sizes are in bytes.

    Attributes:
        state, elements: what it keeps between two steps, measured.
        predicted, predicted_elements: the same from shapes alone.
        step: its step, with the gradients at hand.
        training: a whole training step: forward, backward, optimizer.
    """

    state: int
    elements: int
    predicted: int
    predicted_elements: int
    step: Peak
    training: Peak

    @property
    def as_predicted(self) -> bool:
        """Whether prediction and measurement are equal, bytes and elements."""
        return (self.state, self.elements) == (self.predicted, self.predicted_elements)


def make(name: str, parameters: list[Parameter]) -> Optimizer:
    """One of the optimizers in ``NAMES``, without weight decay. Both "AdamW" choose by device how they work, as torch
    does; "Adafactor, transformers" and "Adafactor, ours" have Trainer's settings.

    Raises:
        ValueError: there is no such name.
        RuntimeError: bitsandbytes is wanted and takes no step here; why has been printed.
    """
    from course_lib import adafactor, lockstep  # here, since lockstep brings scikit-learn along

    if name == FUSED:
        return torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0, fused=True)
    if name == FOREACH:
        return torch.optim.Adafactor(parameters, lr=RATE, foreach=True)
    if name == OURS:
        return adafactor.Adafactor(parameters, lr=RATE, scale_parameter=False, relative_step=False)
    elsewhere = {
        ADAMW: lockstep.ADAMW,
        ADAMW_8BIT: lockstep.ADAMW_8BIT,
        TRANSFORMERS: lockstep.GIVEN,
        TORCH: lockstep.RELATIVE,
    }
    if name not in elsewhere:
        raise ValueError(f"There is no optimizer {name!r} here. The names: {'; '.join(NAMES)}.")
    return lockstep.make(elsewhere[name], parameters, RATE)


def batch(vocabulary: int, texts: int, length: int, device: torch.device | str) -> dict[str, Tensor]:
    """Random tokens ``[texts, length]`` and labels ``[texts]`` of two classes, the same ones every time."""
    generator = torch.Generator().manual_seed(0)  # on the CPU: the same for every device
    tokens = torch.randint(vocabulary, (texts, length), generator=generator)
    labels = torch.randint(2, (texts,), generator=generator)
    return {"input_ids": tokens.to(device), "labels": labels.to(device)}


def needs(model: PreTrainedModel, name: str, inputs: Mapping[str, Tensor]) -> Need:
    """Train ``model`` for four steps with a new optimizer, and measure the third and the fourth.

    The first makes the state. On CUDA the libraries behind PyTorch take work space the first time they are needed and
    keep it (cuBLAS some MiB), so it is in ``before``; ``added`` is free of it.

    Args:
        model: on the device that is to be measured. Its weights are changed, and its gradients are gone afterwards.
        name: of the optimizer, one of ``NAMES``.
        inputs: a batch, on the same device.
    """
    optimizer = make(name, list(model.parameters()))
    holders = (model, optimizer, *inputs.values())
    for _ in range(2):
        optimizer.zero_grad()
        model(**inputs).loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    model(**inputs).loss.backward()
    with meter.measure(*holders) as step:
        optimizer.step()
    optimizer.zero_grad()
    with meter.measure(*holders) as training:
        model(**inputs).loss.backward()
        optimizer.step()
    optimizer.zero_grad()
    size, predicted = memory.state_size(optimizer), memory.predict_state_size(model, KINDS[name])
    return Need(
        state=size.bytes,
        elements=size.elements,
        predicted=predicted.bytes,
        predicted_elements=predicted.elements,
        step=Peak(step.before, step.peak, step.reserved),
        training=Peak(training.before, training.peak, training.reserved),
    )
