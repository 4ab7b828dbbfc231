"""Stand-ins for what a training loop is given, which write down what it does with them; one process on a CPU is enough.

Model, optimizer, scheduler and loader are real ones of torch, so a loop may treat them as it likes. The model has one
parameter for each batch, which no other batch moves: a gradient tells which batches are in it, however it was cleared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


class Record:
    """What a loop did.

    Attributes:
        calls: their names, in order: prepare, train, eval, forward, backward, step, scheduler, zero_grad.
        handed: the pieces that were given to `prepare`.
        raw: the pieces that were used as they came, past what `prepare` returned.
        losses: the loss of each forward pass.
        training: for each forward pass, whether the model was in training mode.
        masked: for each forward pass, whether it got the attention mask of its batch.
        labelled: for each forward pass, whether it got labels.
        batches: for each step of the optimizer, which batches its gradient comes from.
        ticks: for each step of the optimizer, how often the scheduler had been called before.
        plain_backward: whether a backward pass was not the accelerator's.
        told: whether the scheduler was handed something.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.handed: set[str] = set()
        self.raw: set[str] = set()
        self.losses: list[float] = []
        self.training: list[bool] = []
        self.masked: list[bool] = []
        self.labelled: list[bool] = []
        self.batches: list[list[int]] = []
        self.ticks: list[int] = []
        self.plain_backward = self.told = False
        self._inside = 0

    def __deepcopy__(self, memo: dict) -> Record:
        return self

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is called in here comes from something prepared, or from the accelerator."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def used(self, piece: str) -> None:
        """A piece is at work; is it called by what was prepared?"""
        if not self._inside:
            self.raw.add(piece)

    def backward(self, _: Any = None) -> None:
        """Gradients flow."""
        self.calls.append("backward")
        self.plain_backward |= not self._inside


class Batch(dict):
    """A dictionary of tensors, with the methods that a tokenizer's batches have."""

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        return Batch({key: value.to(*args, **kwargs) for key, value in self.items()})

    def __getattr__(self, name: str) -> Tensor:
        if name in self:
            return self[name]
        raise AttributeError(f"a batch has no attribute {name!r}")


def batch(number: int) -> Batch:
    """Two rows, the second one padded at its end. Every token is the batch's number."""
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    return Batch(input_ids=torch.full((2, 4), number), attention_mask=mask, labels=torch.tensor([0, 1]))


class Loader(torch.utils.data.DataLoader):
    """The same batches in each epoch, made anew each time."""

    def __init__(self, record: Record, batches: int) -> None:
        super().__init__([batch(number) for number in range(batches)], batch_size=None)
        self.record = record

    def __iter__(self) -> Iterator[Batch]:
        self.record.used("batches")
        return map(batch, range(len(self)))


class Output(dict):
    """What a model returns: `loss` and `logits`, by name, key or number."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"the model's output has no attribute {name!r}")

    def __getitem__(self, key: Any) -> Any:
        return self.to_tuple()[key] if isinstance(key, (int, slice)) else super().__getitem__(key)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(value for value in self.values() if value is not None)


class Model(torch.nn.Module):
    """A classifier of two classes, in evaluation mode at first."""

    def __init__(self, record: Record, batches: int) -> None:
        super().__init__()
        self.record = record
        self.weight = torch.nn.Parameter(torch.full((batches,), 0.5))
        self.config = SimpleNamespace(num_labels=2)
        self.device = torch.device("cpu")
        super().train(False)

    def train(self, mode: bool = True) -> Model:
        self.record.calls.append("train" if mode else "eval")
        return super().train(mode)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.record.calls.append("zero_grad")
        super().zero_grad(set_to_none)

    def __repr__(self) -> str:  # torch's has several lines, and an error shows its first
        return "Model()"

    def forward(self, input_ids=None, attention_mask=None, labels=None, **_: Any) -> Output:
        for name, value in (("input_ids", input_ids), ("attention_mask", attention_mask), ("labels", labels)):
            if not (isinstance(value, Tensor) or value is None and name != "input_ids"):
                raise TypeError(f"the model wants a tensor for {name}, and got {type(value).__name__}")
        record, number = self.record, int(input_ids.flatten()[0])
        own = batch(number)
        record.used("model")
        record.calls.append("forward")
        record.training.append(self.training)
        record.masked.append(attention_mask is not None and torch.equal(attention_mask.long(), own["attention_mask"]))
        record.labelled.append(labels is not None)
        # The pass counts too, so that no two losses are the same.
        score = self.weight[number] * (1 + number) + 0.1 * len(record.losses)
        logits = torch.stack([score, -0.5 * score]).expand(2, 2) * torch.tensor([[1.0], [0.5]])
        if logits.requires_grad:
            logits.register_hook(record.backward)
        loss = torch.nn.functional.cross_entropy(logits, own["labels"])
        record.losses.append(loss.item())
        return Output(loss=None if labels is None else loss, logits=logits)


class Optimizer(torch.optim.Adafactor):
    """torch's own, which looks at the gradient before each step."""

    def __init__(self, record: Record, model: Model) -> None:
        super().__init__(model.parameters(), lr=0.02)
        self.record, self.weight = record, model.weight

    def step(self, closure: Any = None) -> Any:
        self.record.used("optimizer")
        self.record.calls.append("step")
        grad = self.weight.grad
        self.record.batches.append([] if grad is None else grad.nonzero().flatten().tolist())
        self.record.ticks.append(self.record.calls.count("scheduler"))
        return super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.record.calls.append("zero_grad")
        super().zero_grad(set_to_none)


class Scheduler(torch.optim.lr_scheduler.LambdaLR):
    """From the full rate down to nothing in so many steps."""

    record: Record | None = None  # a scheduler steps once while it is made, and nobody has called it then

    def __init__(self, record: Record, optimizer: Optimizer, steps: int) -> None:
        super().__init__(optimizer, lambda step: max(0.0, 1 - step / steps))
        self.record = record

    def step(self, *args: Any, **kwargs: Any) -> None:
        if self.record is not None:
            self.record.used("scheduler")
            self.record.calls.append("scheduler")
            self.record.told |= bool(args or kwargs)
        super().step(*args, **kwargs)


class PreparedModel(torch.nn.Module):
    """Around a model, as for several processes."""

    def __init__(self, module: Model) -> None:
        super().__init__()
        self.module = module
        self.training = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Output:
        with self.module.record.inside():
            return self.module(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.module.zero_grad(set_to_none)

    def __repr__(self) -> str:
        return f"PreparedModel({self.module})"

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class PreparedOptimizer(torch.optim.Optimizer):
    """Around an optimizer; state and groups are those of the one inside."""

    step_was_skipped = False

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:
        with self.optimizer.record.inside():
            return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["optimizer"], name)


class PreparedScheduler:
    """Around a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def step(self, *args: Any, **kwargs: Any) -> None:
        with self.scheduler.record.inside():
            self.scheduler.step(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["scheduler"], name)


class PreparedLoader:
    """Around a loader."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Batch]:
        with self.loader.record.inside():
            return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["loader"], name)


WRAPPERS = {
    Model: ("model", PreparedModel),
    Optimizer: ("optimizer", PreparedOptimizer),
    Scheduler: ("scheduler", PreparedScheduler),
    Loader: ("batches", PreparedLoader),
}


class Accelerator:
    """What a loop may ask of an accelerator, for one process on the CPU, without accumulation."""

    num_processes, process_index, local_process_index = 1, 0, 0
    is_main_process = is_local_main_process = is_last_process = sync_gradients = True
    optimizer_step_was_skipped = use_distributed = False
    mixed_precision, distributed_type, device = "no", "NO", torch.device("cpu")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.gradient_accumulation_steps = 1

    def prepare(self, *args: Any, device_placement: Any = None) -> Any:
        self.record.calls.append("prepare")
        prepared = tuple(map(self._prepare, args))
        return prepared[0] if len(prepared) == 1 else prepared

    def _prepare(self, piece: Any, *_: Any, **__: Any) -> Any:
        if type(piece) not in WRAPPERS:
            return piece
        name, wrapper = WRAPPERS[type(piece)]
        self.record.handed.add(name)
        return wrapper(piece)

    prepare_model = prepare_optimizer = prepare_scheduler = prepare_data_loader = _prepare

    def backward(self, loss: Tensor, **kwargs: Any) -> None:
        with self.record.inside():
            (loss / self.gradient_accumulation_steps).backward(**kwargs)

    def unwrap_model(self, model: Any, *_: Any, **__: Any) -> Any:
        return model.module if isinstance(model, PreparedModel) else model

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def print(self, *args: Any, **kwargs: Any) -> None:
        print(*args, **kwargs)

    def _context(self, *_: Any, **__: Any) -> AbstractContextManager:
        return nullcontext()

    accumulate = no_sync = autocast = profile = join_uneven_inputs = _context
    main_process_first = local_main_process_first = _context

    def _as_it_is(self, value: Any, *_: Any, **__: Any) -> Any:
        return value

    gather = gather_for_metrics = reduce = pad_across_processes = _as_it_is

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    wait_for_everyone = unscale_gradients = init_trackers = log = end_training = _nothing
    save = save_state = save_model = register_for_checkpointing = _nothing

    def free_memory(self, *pieces: Any) -> list[Any]:
        return list(pieces)

    clear = free_memory


def pieces(batches: int, epochs: int) -> tuple[Accelerator, Model, Optimizer, Scheduler, Loader]:
    """An accelerator and all that a loop of so many batches and epochs needs, not prepared, with one record for all."""
    record = Record()
    model = Model(record, batches)
    optimizer = Optimizer(record, model)
    scheduler = Scheduler(record, optimizer, batches * epochs)
    return Accelerator(record), model, optimizer, scheduler, Loader(record, batches)
