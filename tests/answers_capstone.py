"""Answers to the capstone."""

import itertools

import numpy as np
import torch
from answers import right, wrong
from torch.utils.data import DataLoader

from course_lib import adafactor, memory


def size_of(model):
    return sum(p.numel() * p.element_size() for p in model.parameters())


def trained_size(model):
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def state_of(model, kind):
    return memory.predict_state_size(model, kind).bytes


@wrong("choose", "always_adafactor")
def _(model, budget_mib):
    return "adafactor"


@wrong("choose", "always_the_same")
def _(model, budget_mib):
    return "adamw"


@wrong("choose", "state_only_budget")
def _(model, budget_mib):
    for kind in ("adamw", "rmsprop", "adafactor"):
        if memory.predict_state_size(model, kind).mib <= budget_mib:
            return kind
    return None


@wrong("choose", "state_only_budget", note="the largest state that fits, never None")
def _(model, budget_mib):
    states = {kind: state_of(model, kind) / 2**20 for kind in ("adafactor", "rmsprop", "adamw")}
    return max((kind for kind in states if states[kind] <= budget_mib), key=states.get)


@wrong("choose", "forgot_gradients")
def _(model, budget_mib):
    left = budget_mib - size_of(model) / 1024**2
    fitting = [kind for kind in ("adamw", "rmsprop", "adafactor") if state_of(model, kind) / 1024**2 <= left]
    return fitting[0] if fitting else None


@wrong("choose", "gradients_for_frozen")
def _(model, budget_mib):
    left = budget_mib * 1024**2 - 2 * size_of(model)
    fitting = [kind for kind in ("adamw", "rmsprop", "adafactor") if state_of(model, kind) <= left]
    return fitting[-1] if fitting else None


@wrong("choose", "mb_for_mib")
def _(model, budget_mib):
    left = budget_mib * 1e6 - size_of(model) - trained_size(model)
    return next((kind for kind in ("adamw", "rmsprop", "adafactor") if state_of(model, kind) <= left), None)


@wrong("choose", "never_says_none")
def _(model, budget_mib):
    left = budget_mib * 2**20 - size_of(model) - trained_size(model)
    for kind in ("adamw", "rmsprop"):
        if state_of(model, kind) <= left:
            return kind
    return "adafactor"


@right("choose", "the smallest, or None")
def _(model, budget_mib):
    if size_of(model) + trained_size(model) + state_of(model, "adafactor") > budget_mib * 2**20:
        return None
    return "adafactor"


@right("choose", "RMSProp where it can")
def _(model, budget_mib):
    totals = {k: size_of(model) + trained_size(model) + state_of(model, k) for k in ("rmsprop", "adamw", "adafactor")}
    return next((kind for kind, total in totals.items() if total / 1024 / 1024 <= budget_mib), None)


def first_within(bytes_of):
    """The first kind whose bytes are within the budget; ``bytes_of(model, state)`` adds them up."""

    def choose(model, budget_mib):
        for kind in ("adamw", "rmsprop", "adafactor"):
            if bytes_of(model, state_of(model, kind)) <= budget_mib * 2**20:
                return kind
        return None

    return choose


wrong("choose", "forgot_weights")(first_within(lambda model, state: trained_size(model) + state))
wrong("choose", "forgot_state")(first_within(lambda model, state: size_of(model) + trained_size(model)))
wrong("choose", "frozen_not_counted")(first_within(lambda model, state: 2 * trained_size(model) + state))
wrong("choose", "never_fits")(first_within(lambda model, state: (size_of(model) + trained_size(model) + state) * 2**20))
wrong("choose", "mb_for_mib", note="bytes by a thousand and 1,024")(
    first_within(lambda model, state: (size_of(model) + trained_size(model) + state) * 1.024)
)
wrong("choose", "always_the_same", note="MiB held against bytes")(first_within(lambda model, state: 1004))


@wrong("choose", "exactly_does_not_fit")
def _(model, budget_mib):
    for kind in ("rmsprop", "adamw", "adafactor"):
        if size_of(model) + trained_size(model) + state_of(model, kind) < budget_mib * 1024**2:
            return kind
    return None


class Choice:
    """A function in a class of its own; the largest state that fits."""

    def __call__(self, model, budget_mib):
        sizes = {kind: memory.predict_state_size(model, kind).mib for kind in ("adamw", "rmsprop", "adafactor")}
        left = budget_mib - size_of(model) / 2**20 - trained_size(model) / 2**20
        return max((kind for kind, mib in sizes.items() if mib <= left), key=sizes.get, default=None)


right("choose", "an object of a class, in MiB")(Choice())


def one_step(model, optimizer, batch):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()


@wrong("prove", "measured_before_first_step")
def _(model, optimizer, batch, budget_mib):
    parts = [size_of(model), memory.state_size(optimizer).bytes]
    parts += [p.grad.nbytes for p in model.parameters() if p.grad is not None]
    one_step(model, optimizer, batch)
    return sum(parts) / 2**20, sum(parts) <= budget_mib * 2**20


@wrong("prove", "measured_before_first_step", note="gradients from the weights, no step")
def _(model, optimizer, batch, budget_mib):
    mib = (2 * size_of(model) + memory.state_size(optimizer).bytes) / 2**20
    return mib, mib <= budget_mib


@wrong("prove", "measured_before_first_step", note="with frozen ones in mind")
def _(model, optimizer, batch, budget_mib):
    total = size_of(model) + trained_size(model) + memory.state_size(optimizer).bytes
    optimizer.step()
    return total / 2**20, total / 2**20 <= budget_mib


@wrong("prove", "gradients_gone")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    optimizer.zero_grad()
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    mib = (size_of(model) + gradients + memory.state_size(optimizer).bytes) / 2**20
    return mib, mib <= budget_mib


@wrong("prove", "state_only_budget")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    mib, _ = memory.compute_optimizer_size(optimizer.state.values())
    return mib, mib <= budget_mib


@wrong("prove", "state_only_budget", note="the total told")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    state = memory.state_size(optimizer).mib
    return (size_of(model) + trained_size(model)) / 2**20 + state, state <= budget_mib


@wrong("prove", "mb_for_mib")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    mb = (size_of(model) + trained_size(model)) / 1e6 + memory.state_size(optimizer).mb
    return mb, mb <= budget_mib


@wrong("prove", "mb_for_mib", note="of the budget")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    total = size_of(model) + trained_size(model) + memory.state_size(optimizer).bytes
    return total / 1024**2, total <= budget_mib * 1000**2


@wrong("prove", "gradients_for_frozen")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    mib = 2 * size_of(model) / 2**20 + memory.state_size(optimizer).mib
    return mib, mib <= budget_mib


@wrong("prove", "assumes_fp32")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    numbers = sum(p.numel() for p in model.parameters())
    numbers += sum(p.grad.numel() for p in model.parameters() if p.grad is not None)
    mib = numbers * 4 / 2**20 + memory.state_size(optimizer).mib
    return mib, mib <= budget_mib


@wrong("prove", "bytes_not_mib")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    total = size_of(model) + trained_size(model) + memory.state_size(optimizer).bytes
    return total, total <= budget_mib * 2**20


def measured(total, fits=lambda mib, budget_mib: mib <= budget_mib, told=lambda mib: mib):
    """A step, then ``total(model, state)`` in MiB, where `state` is what `memory.state_size` gives."""

    def prove(model, optimizer, batch, budget_mib):
        optimizer.zero_grad()
        one_step(model, optimizer, batch)
        mib = total(model, memory.state_size(optimizer))
        return told(mib), fits(mib, budget_mib)

    return prove


def all_three(model, state):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return (size_of(model) + sum(g.nbytes for g in gradients)) / 2**20 + state.mib


wrong("prove", "forgot_state")(measured(lambda m, state: (size_of(m) + trained_size(m)) / 2**20))
wrong("prove", "forgot_weights")(measured(lambda m, state: trained_size(m) / 2**20 + state.mib))
wrong("prove", "frozen_not_counted")(measured(lambda m, state: 2 * trained_size(m) / 2**20 + state.mib))
wrong("prove", "always_the_same")(measured(all_three, fits=lambda mib, budget: mib > 0))
wrong("prove", "always_the_same", note="bytes against MiB")(measured(all_three, fits=lambda m, b: m * 2**20 <= b))
wrong("prove", "comparison_turned_round")(measured(all_three, fits=lambda mib, budget: budget <= mib))
wrong("prove", "rounded")(measured(all_three, told=lambda mib: round(mib, 2)))
wrong("prove", "rounded", note="to whole MiB")(measured(all_three, told=round))
wrong("prove", "mb_for_mib", note="of the state alone")(
    measured(lambda m, state: (size_of(m) + trained_size(m)) / 2**20 + state.mb)
)
wrong("prove", "gradients_for_frozen", note="an error")(
    measured(lambda m, state: sum(p.nbytes + p.grad.nbytes for p in m.parameters()) / 2**20 + state.mib)
)
right("prove", "32 bits, a tensor, True or False as 1 or 0")(
    measured(all_three, fits=lambda mib, budget: int(mib <= budget), told=lambda mib: torch.tensor([mib]).float())
)


@wrong("prove", "predicted_not_measured")
def _(model, optimizer, batch, budget_mib):
    one_step(model, optimizer, batch)
    kind = type(optimizer).__name__.lower()
    mib = (size_of(model) + trained_size(model)) / 2**20 + memory.predict_state_size(model, kind).mib
    return mib, mib <= budget_mib


@wrong("prove", "measured_before_first_step", note="the gradients cleared before they are used")
def _(model, optimizer, batch, budget_mib):
    model(**batch).loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    mib = all_three(model, memory.state_size(optimizer))
    return mib, mib <= budget_mib


@right("prove", "tensor by tensor, in NumPy")
def _(model, optimizer, batch, budget_mib):
    optimizer.zero_grad(set_to_none=False)
    one_step(model, optimizer, batch)
    tensors = [t for p in model.parameters() for t in (p, p.grad) if t is not None]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if torch.is_tensor(value)]
    mib = np.array([t.nbytes for t in tensors]).sum() / 2.0**20
    return [mib, np.bool_(mib <= budget_mib)]


@right("prove", "predicted gradients, after two steps")
def _(model, optimizer, batch, budget_mib):
    for _ in range(2):
        optimizer.zero_grad()
        one_step(model, optimizer, batch)
    optimizer.zero_grad()
    total = (size_of(model) + trained_size(model)) / 2**20 + memory.state_size(optimizer).mib
    return torch.tensor(total), not total > budget_mib


def fitting(model, budget_mib, kinds=("adamw", "rmsprop", "adafactor")):
    """The first kind that fits."""
    left = budget_mib * 2**20 - size_of(model) - trained_size(model)
    return next((kind for kind in kinds if state_of(model, kind) <= left), None)


def optimizer_of(kind, parameters, lr=1e-3):
    if kind == "adafactor":
        return adafactor.Adafactor(parameters, lr=lr, scale_parameter=False, relative_step=False)
    return {"adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[kind](parameters, lr=lr)


def run(task, model, optimizer, steps, rows=None, batch_size=4):
    """Batches are small, for quick tests: 16 rows are enough to learn, 4 are not."""
    torch.manual_seed(0)
    loader = DataLoader(rows or task.train, batch_size=batch_size, shuffle=True, collate_fn=task.collator)
    done = 0
    while done < steps:
        for batch in loader:
            optimizer.zero_grad()
            one_step(model, optimizer, batch)
            done += 1
            if done == steps:
                break
    return model, optimizer


@wrong("fit", "budget_ignored")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    return run(task, model, optimizer_of("adafactor", model.parameters()), steps)


@wrong("fit", "state_only_budget")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kinds = [k for k in ("adamw", "rmsprop", "adafactor") if memory.predict_state_size(model, k).mib <= budget_mib]
    return run(task, model, optimizer_of(kinds[0], model.parameters()), steps)


@wrong("fit", "mb_for_mib")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib * 1e6 / 2**20)
    return kind and run(task, model, optimizer_of(kind, model.parameters()), steps)


@wrong("fit", "never_fits")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib / 2**20)
    return kind and run(task, model, optimizer_of(kind, model.parameters()), steps)


@wrong("fit", "gives_up_too_early")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = "adafactor" if fitting(model, budget_mib) == "adafactor" else None
    return kind and run(task, model, optimizer_of(kind, model.parameters()), steps)


@wrong("fit", "never_says_none")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib) or "adafactor"
    return run(task, model, optimizer_of(kind, model.parameters()), steps)


@wrong("fit", "another_model")
def _(task, budget_mib, steps):
    kind = fitting(task.model(), budget_mib)
    if kind:
        _, optimizer = run(task, model := task.model(), optimizer_of(kind, model.parameters()), steps)
        return task.model(seed=0), optimizer
    return None


@wrong("fit", "only_the_head")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    model.distilbert.requires_grad_(False)
    kind = fitting(model, budget_mib)
    if kind is None:
        return None
    return run(task, model, optimizer_of(kind, [p for p in model.parameters() if p.requires_grad]), steps)


@wrong("fit", "steps_ignored")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib)
    return kind and run(task, model, optimizer_of(kind, model.parameters()), 5)


@wrong("fit", "steps_ignored", note="ends with the rows")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib)
    if kind is None:
        return None
    optimizer = optimizer_of(kind, model.parameters())
    loader = DataLoader(task.train.select(range(10)), batch_size=4, collate_fn=task.collator)
    for batch in itertools.islice(loader, steps):
        optimizer.zero_grad()
        one_step(model, optimizer, batch)
    return model, optimizer


@wrong("fit", "another_optimizer", note="a new one")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib)
    if kind:
        model, _ = run(task, model, torch.optim.AdamW(model.parameters()), steps)
        return model, optimizer_of(kind, model.parameters())
    return None


@wrong("fit", "another_optimizer", note="none of the three")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    if 2 * size_of(model) > budget_mib * 2**20:
        return None
    return run(task, model, torch.optim.SGD(model.parameters(), lr=0.1), steps)


@wrong("fit", "fewer_bits")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    if fitting(model, budget_mib) is None:
        model = model.bfloat16()
    return run(task, model, optimizer_of(fitting(model, budget_mib), model.parameters()), steps)


@wrong("fit", "never_beat_baseline")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib)
    return kind and run(task, model, optimizer_of(kind, model.parameters(), lr=5e-5), steps)


@wrong("fit", "trained_on_validation")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    kind = fitting(model, budget_mib)
    return kind and run(task, model, optimizer_of(kind, model.parameters()), steps, task.validation, batch_size=16)


@right("fit", "always the smallest, where it fits")
def _(task, budget_mib, steps):
    model = task.model(seed=0)
    if fitting(model, budget_mib, ("adafactor",)) is None:
        return None
    return run(task, model, torch.optim.Adafactor(model.parameters(), lr=4e-2), steps, batch_size=16)


@right("fit", "with Trainer")
def _(task, budget_mib, steps):
    from transformers import Trainer, TrainingArguments

    kind = fitting(model := task.model(seed=0), budget_mib)
    if kind is None:
        return None
    names = {"adamw": "adamw_torch", "rmsprop": "rmsprop", "adafactor": "adafactor"}
    arguments = TrainingArguments(
        "results",
        optim=names[kind],
        learning_rate=1e-3,
        max_steps=steps,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, train_dataset=task.train, data_collator=task.collator)
    trainer.train()
    return trainer.model, trainer.optimizer
