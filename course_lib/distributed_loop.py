"""The loop of lesson 07 as a script, for as many processes as it is started with.

On this machine's CPU, with one process and with two:

    python -m course_lib.distributed_loop --steps 40
    torchrun --nproc_per_node 2 -m course_lib.distributed_loop --steps 40

On four GPUs of one machine; and on two machines with four each, where every machine is told its own rank:

    accelerate launch --multi_gpu --num_machines 1 --num_processes 4 -m course_lib.distributed_loop
    accelerate launch --multi_gpu --num_machines 2 --machine_rank 0 --num_processes 8 \
        --main_process_ip ADDRESS --main_process_port 29500 -m course_lib.distributed_loop

The losses are those of the same training, however many processes share it: same weights at the start, same rows in
each step, no dropout. Only the main process prints: progress, then one line of JSON, whose keys :func:`train` names.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from course_lib import adafactor, memory, planner, tasks, tier


def _by_trainer(make: Callable[..., Optimizer], model: nn.Module, rate: float) -> Optimizer:
    return make(model.parameters(), lr=rate, scale_parameter=False, relative_step=False)


def _by_torch(model: nn.Module, rate: float) -> Optimizer:
    # It multiplies by the size of each tensor, so a rate made for others is divided by the size of most matrices.
    size = median(p.detach().square().mean().sqrt().item() for p in model.parameters() if p.ndim == 2)
    return torch.optim.Adafactor(model.parameters(), lr=rate / size)


def _by_transformers(model: nn.Module, rate: float) -> Optimizer:
    from transformers.optimization import Adafactor

    return _by_trainer(Adafactor, model, rate)


# Named as in course_lib.memory; each is made from a model and from the rate that Trainer would be given.
OPTIMIZERS: dict[str, Callable[[nn.Module, float], Optimizer]] = {
    "adafactor_torch": _by_torch,
    "adafactor_transformers": _by_transformers,
    "adafactor": partial(_by_trainer, adafactor.Adafactor),
    "adamw": lambda model, rate: torch.optim.AdamW(model.parameters(), lr=rate),
}


def train(accelerator: Accelerator, task: tasks.Task, kind: str, steps: int, rows: int) -> dict[str, Any]:
    """Train, every process on its share of the rows.

    Args:
        kind: of the optimizer, one of ``OPTIMIZERS``.
        steps: that the optimizer takes.
        rows: in a step, of all processes together.

    Returns:
        The same in every process: ``processes``; ``rows`` of one process in a step; ``losses``, the mean over all rows
        of each step; ``apart``, the largest difference of any process's weights or optimizer state from the first's at
        the end; ``bytes``, what each process holds, by name, see :func:`holdings`.

    Raises:
        ValueError: no steps; ``rows`` that cannot be dealt out evenly, or are more than there are.
    """
    if steps < 1:
        raise ValueError(f"{steps} steps are no training: give 1 or more.")
    share = _share(rows, accelerator.num_processes, len(task.train))
    model = _without_dropout(task.model(seed=0))
    optimizer = OPTIMIZERS[kind](model, task.learning_rate)
    order = torch.Generator().manual_seed(0)
    # An incomplete batch at the end is left out: its rows would weigh more than others.
    loader = DataLoader(task.train, share, shuffle=True, generator=order, drop_last=True, collate_fn=task.collator)
    schedule = _linear(optimizer, steps * accelerator.num_processes)  # it ticks once for each process
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    model.train()
    for batch in islice(_again_and_again(loader), steps):
        loss = model(**batch).loss
        accelerator.backward(loss)  # with several processes, this averages the gradients too
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), reduction="mean").item())
        if len(losses) % 20 == 1:
            accelerator.print(f"step {len(losses):3}: Loss = {losses[-1]:.4f}")
    held = holdings(model, optimizer, _longest(task, share, accelerator.device))
    each = accelerator.gather(torch.tensor([list(held.values())], device=accelerator.device)).T.tolist()
    return {
        "processes": accelerator.num_processes,
        "rows": share,
        "losses": losses,
        "apart": accelerator.gather(_apart(model, optimizer)).max().item(),
        "bytes": dict(zip(held, each, strict=True)),
    }


def holdings(model: nn.Module, optimizer: Optimizer, batch: Mapping[str, Tensor]) -> dict[str, int]:
    """Bytes that this process holds at the end of a forward and backward pass over ``batch``, which it makes.

    ``weights``, ``gradients`` and ``state``; ``messages``, the buffers in which DistributedDataParallel exchanges
    gradients; ``activations``, which are kept from forward to backward.
    """
    messages = 0
    if isinstance(model, nn.parallel.DistributedDataParallel):
        sizes = str(model._get_ddp_logging_data()["bucket_sizes"])
        messages, model = sum(int(size) for size in sizes.split(",")), model.module
    losses: list[Tensor] = []
    activations = planner.saved_bytes(model, lambda: losses.append(model(**batch).loss))
    losses[0].backward()
    parameters = list(model.parameters())
    return {
        "weights": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters if p.grad is not None),
        "state": memory.state_size(optimizer).bytes,
        "messages": messages,
        "activations": activations,
    }


def _share(rows: int, processes: int, there: int) -> int:
    if rows < 1 or rows % processes:
        raise ValueError(
            f"{rows} rows in a step cannot be dealt out evenly to {processes} processes: give a multiple of "
            f"{processes}."
        )
    if rows > there:
        raise ValueError(f"{rows} rows in a step are more than the {there} that there are: give fewer.")
    return rows // processes


def _without_dropout(model: nn.Module) -> nn.Module:
    """Dropout draws its masks by position in the batch, so they would differ with the number of processes."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def _linear(optimizer: Optimizer, ticks: int) -> torch.optim.lr_scheduler.LRScheduler:
    from transformers import get_scheduler

    return get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=ticks)


def _again_and_again(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def _longest(task: tasks.Task, rows: int, device: torch.device) -> dict[str, Tensor]:
    """A batch of one row, the longest, again and again: as much as a batch can be, and the same in all processes."""
    lengths = [len(ids) for ids in task.train["input_ids"]]
    longest = task.train[lengths.index(max(lengths))]
    return {key: value.to(device) for key, value in task.collator([longest] * rows).items()}


def _apart(model: nn.Module, optimizer: Optimizer) -> Tensor:
    """How far weights and state of this process are from those of the first; shape [1]."""
    tensors = list(model.parameters())
    device = tensors[0].device
    tensors += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    here = torch.cat([tensor.detach().flatten().float().to(device) for tensor in tensors])
    return (here - broadcast(here.clone())).abs().max().reshape(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="steps of the optimizer (40)")
    parser.add_argument("--rows", type=int, default=64, help="rows in a step, of all processes together (64)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="adafactor_torch", help="(adafactor_torch)")
    options = parser.parse_args()
    here = tier.current(quiet=True)
    accelerator = Accelerator(mixed_precision=here.mixed_precision)
    accelerator.print(here)
    accelerator.print(f"processes: {accelerator.num_processes}, optimizer: {options.optimizer}")
    result = train(accelerator, tasks.load(), options.optimizer, options.steps, options.rows)
    accelerator.print(json.dumps(result))
    accelerator.end_training()


if __name__ == "__main__":
    main()
