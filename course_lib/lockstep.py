"""Training one task with several optimizers side by side, batch by batch, so that nothing but the optimizer differs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.nn import Parameter
from torch.optim import Optimizer

from course_lib import libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from course_lib.tasks import Task

ADAMW, ADAMW_8BIT, GIVEN, RELATIVE = "AdamW", "8-bit AdamW", "Adafactor, given rate", "Adafactor, relative step"
NAMES = (ADAMW, ADAMW_8BIT, GIVEN, RELATIVE)


@dataclass(frozen=True)
class Run:
    """One training: with which optimizer, rate and seed, and what came out.

    Attributes:
        accuracy, f1: on the task's validation rows; F1 averaged as the task says.
        correct: for each of these rows whether the answer was right.
        seconds: of all training steps together.
    """

    optimizer: str
    rate: float
    seed: int
    accuracy: float
    f1: float
    correct: tuple[bool, ...]
    seconds: float


def make(name: str, parameters: list[Parameter], rate: float) -> Optimizer:
    """One of the compared optimizers. None of them decays weights, as in Trainer by default.

    Args:
        name: "AdamW"; "8-bit AdamW" (bitsandbytes, embeddings in 8 bits too); "Adafactor, given rate", the class of
            transformers as Trainer sets it; or "Adafactor, relative step", torch's class.
        parameters: of a model.
        rate: learning rate; for the relative step its cap, which is 0.01 in the paper.

    Raises:
        ValueError: there is no such name.
        RuntimeError: bitsandbytes is wanted and takes no step here; why has been printed.
    """
    if name == ADAMW:
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    if name == ADAMW_8BIT:
        if (bitsandbytes := libraries.bitsandbytes()) is None:
            raise RuntimeError("8-bit AdamW needs bitsandbytes. Choose another optimizer, or install it.")
        return bitsandbytes.optim.AdamW8bit(parameters, lr=rate, weight_decay=0.0)
    if name == GIVEN:
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=rate, scale_parameter=False, relative_step=False)
    if name == RELATIVE:
        return torch.optim.Adafactor(parameters, lr=rate)
    raise ValueError(f"There is no optimizer {name!r} here. The names: {', '.join(NAMES)}.")


def train(task: Task, rates: Mapping[str, float], seed: int, steps: int | None = None) -> dict[str, Run]:
    """Train a model of ``task`` with each optimizer, on the CPU, and judge it on the validation rows.

    Equal for all: the first weights, the batches and their order, the dropout, the number of epochs, and a rate that
    falls along a line to 0. The optimizers take turns at every batch, in a rotating order, so that a machine that
    is slower for a while is so for all. An optimizer's result does not depend on which others train beside it.

    Args:
        task: as from ``tasks.load``.
        rates: for each optimizer's name its learning rate; see :func:`make`.
        seed: for weights, order and dropout.
        steps: stop after so many; all epochs if None.

    Returns:
        For each name its :class:`Run`.
    """
    models = {name: task.model(seed=seed) for name in rates}
    optimizers = {name: make(name, list(models[name].parameters()), rate) for name, rate in rates.items()}
    per_epoch = -(-len(task.train) // task.batch_size)
    steps = steps or task.epochs * per_epoch
    seconds = dict.fromkeys(rates, 0.0)
    names = list(rates)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for step in range(steps):
            if step % per_epoch == 0:
                order = torch.randperm(len(task.train)).split(task.batch_size)
            rows = task.train[order[step % per_epoch].tolist()]
            batch = task.collator(rows)
            dropout = torch.get_rng_state()
            turn = step % len(names)
            for name in names[turn:] + names[:turn]:
                torch.set_rng_state(dropout)
                start = time.perf_counter()
                for group in optimizers[name].param_groups:
                    group["lr"] = rates[name] * (1 - step / steps)
                models[name](**batch).loss.backward()
                optimizers[name].step()
                optimizers[name].zero_grad()
                seconds[name] += time.perf_counter() - start
    runs = {}
    for name, rate in rates.items():
        answers = _answers(task, models[name])
        truth = list(task.validation["labels"])
        runs[name] = Run(
            name,
            rate,
            seed,
            accuracy=float(accuracy_score(truth, answers)),
            f1=float(f1_score(truth, answers, average=task.average)),
            correct=tuple(answer == label for answer, label in zip(answers, truth, strict=True)),
            seconds=seconds[name],
        )
    return runs


@torch.no_grad()
def _answers(task: Task, model: PreTrainedModel) -> list[int]:
    """The class that a model finds for each validation row."""
    model.eval()
    answers: list[int] = []
    for start in range(0, len(task.validation), 256):
        batch = task.collator(task.validation[start : start + 256])
        answers += model(**batch).logits.argmax(dim=-1).tolist()
    return answers
