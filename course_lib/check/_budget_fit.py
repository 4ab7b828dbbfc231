"""The capstone's task `fit`: train within a budget."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from course_lib.check import _values
from course_lib.check._budget_sizes import MIB, Sizes, measured, predicted, says_of
from course_lib.check._task import Attempt, Belief, NotFit, Task, Verdict, wrong

if TYPE_CHECKING:
    from course_lib.tasks import Task as CourseTask

# The tight one is above Adafactor's total in MiB (4.73) and below it in MB (4.96), the impossible one below weights and
# gradients alone (4.69 MiB).
BUDGETS = {"roomy": 12.0, "tight": 4.8, "impossible": 4.6}
STEPS = 100
MARGIN = 0.05
FITS = [
    Belief(
        "budget_ignored",
        "The optimizer is the same whatever the budget, even where nothing fits. Let your `choose` decide, and return "
        "None if it does.",
    ),
    Belief(
        "state_only_budget",
        "The state by itself is within the budget, but weights and gradients are in memory at the same time, and with "
        "them it is not.",
    ),
    Belief(
        "mb_for_mib",
        "You give up where Adafactor fits. In MB, of a million bytes, its total is a larger number than the budget; "
        "but the budget is in MiB, of `2**20` bytes.",
    ),
    Belief(
        "gives_up_too_early",
        "You give up where something fits. Try all of `KINDS`, and count for each what it takes.",
    ),
    Belief(
        "never_fits",
        "Your answer is None for every budget. Is a `return` missing, or do you compare bytes with MiB?",
    ),
    Belief(
        "never_says_none",
        "The impossible budget is below weights and gradients alone, so no optimizer can help. Return None there, and "
        "do not train.",
    ),
    Belief(
        "another_model",
        "The optimizer you return does not hold the parameters of the model you return. Perhaps you made the model "
        "twice: then one of them was trained, and you hand over the other.",
    ),
    Belief(
        "only_the_head",
        "Parts of the model are frozen, or not in the optimizer. That saves memory, but here all weights are to be "
        "trained.",
    ),
    Belief(
        "fewer_bits",
        "The weights are not in 32 bits any more. That saves memory, but here all numbers are kept in 32 bits.",
    ),
    Belief(
        "another_optimizer",
        "The optimizer you return has counted no steps in its state. Either it is none of `KINDS`, or it has never "
        "taken one: then another one did the training, and you hand over this one.",
    ),
    Belief(
        "steps_ignored",
        "The optimizer has not taken the number of steps that was asked. Stop in the middle of an epoch if need be, "
        "and begin another one if the rows run out.",
    ),
    Belief(
        "never_beat_baseline",
        "It fits, but it has learned too little: it does not beat always answering the most frequent class. Look at "
        "the learning rate first.",
    ),
    Belief(
        "trained_on_validation",
        "The model knows the validation rows much better than those of `task.train`, so they have been trained on. "
        "Then their accuracy says nothing about names it has never seen.",
    ),
]


@cache
def _small() -> CourseTask:
    from course_lib import tasks

    return tasks.load("small")


def _accuracy(model: nn.Module, rows: Any) -> float:
    """The share of right answers; the model is left in the mode it was in."""
    training, device = model.training, next(model.parameters()).device
    batch = {key: value.to(device) for key, value in _small().collator([rows[i] for i in range(len(rows))]).items()}
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    model.train(training)
    return (logits.argmax(-1) == batch["labels"]).double().mean().item()


def _trained(attempt: Attempt, budget: float, steps: int) -> tuple[nn.Module, Any] | None:
    """What `fit` makes of a budget: None, or a model and its optimizer; anything else is not judged further."""
    attempt.given = f"fit(the small task, {budget}, {steps})"
    came = attempt(_small(), budget, steps)
    if came is None:
        return None
    if isinstance(came, (tuple, list)) and len(came) == 2:
        model, optimizer = came
        if isinstance(model, type(_small().model())) and isinstance(optimizer, torch.optim.Optimizer):
            return model, optimizer
        came = f"{_values.kind(model)} and {_values.kind(optimizer)}"
    elif isinstance(came, str):
        came = repr(came)
    says = "Two values are asked, the model that `task.model` made and its optimizer; or None."
    raise NotFit(wrong(says, given=attempt.given, came=came, expected="(model, optimizer) or None"))


def _structure(model: nn.Module, optimizer: Any, steps: int) -> str:
    """The name of what is wrong with a trained model and its optimizer; empty if nothing is."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    own = {id(p) for p in model.parameters()}
    if not held & own:
        return "another_model"
    if own - held or not all(p.requires_grad for p in model.parameters()):
        return "only_the_head"
    if any(p.dtype != torch.float32 for p in model.parameters()):
        return "fewer_bits"
    counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    if not counts:
        return "another_optimizer"
    return "steps_ignored" if any(count != steps for count in counts) else ""


def _with_gradients(model: nn.Module, optimizer: Any) -> Sizes:
    """As measured, with a gradient for each parameter whether it is there at the moment or not."""
    weights, _, state = measured(model, optimizer)
    return Sizes(weights, weights, state)


def _fault(name: str, attempt: Attempt, says: str = "", came: Any = "", expected: Any = "") -> Verdict:
    says = f"{says} {says_of(FITS, name) if name else ''}".strip()
    return wrong(says, name, given=attempt.given, came=came, expected=expected)


def _judge_fit(attempt: Attempt) -> Verdict:
    sizes: dict[str, Sizes | None] = {}
    for steps, (name, budget) in enumerate(BUDGETS.items(), start=2):  # short runs: what is chosen and returned
        trained = _trained(attempt, budget, steps)
        if trained is not None and (fault := _structure(*trained, steps)):
            return _fault(fault, attempt)
        sizes[name] = None if trained is None else _with_gradients(*trained)
    if not any(sizes.values()):
        attempt.given = f"fit(the small task, {BUDGETS['roomy']}, steps)"
        return attempt.nothing() if attempt.printed.strip() else _fault("never_fits", attempt, came="None")
    if fault := _budget_fault(attempt, sizes):
        return fault
    trained = _trained(attempt, BUDGETS["tight"], STEPS)
    if trained is None:
        return attempt.nothing()
    model, optimizer = trained
    if fault := _structure(model, optimizer, STEPS):
        return _fault(fault, attempt)
    return _judge_learning(attempt, model, _with_gradients(model, optimizer))


def _budget_fault(attempt: Attempt, sizes: dict[str, Sizes | None]) -> Verdict | None:
    """What is wrong with the choices for the three budgets."""
    over = [name for name, size in sizes.items() if size is not None and size.total > BUDGETS[name] * MIB]
    early = [name for name in ("roomy", "tight") if sizes[name] is None]
    if None not in sizes.values() and len({size.state for size in sizes.values() if size}) == 1:
        belief, of_budget = "budget_ignored", "impossible"
    elif over and over != ["impossible"]:
        belief, of_budget = "state_only_budget", over[0]
    elif early:
        belief, of_budget = "mb_for_mib" if early == ["tight"] else "gives_up_too_early", early[0]
    elif over:
        belief, of_budget = "never_says_none", "impossible"
    else:
        return None
    attempt.given = f"fit(the small task, {BUDGETS[of_budget]}, steps)"
    size = sizes[of_budget]
    came = "None" if size is None else f"{size.total / MIB:.2f} MiB of weights, gradients and state"
    smallest = f"Adafactor, {predicted(_small().model(), 'adafactor').total / MIB:.2f} MiB"
    expected = "None" if of_budget == "impossible" else f"what fits, such as {smallest}"
    return _fault(belief, attempt, came=came, expected=expected)


def _judge_learning(attempt: Attempt, model: nn.Module, sizes: Sizes) -> Verdict:
    task = _small()
    lazy = sum(label == task.majority for label in task.validation["labels"]) / len(task.validation)
    reached, known = _accuracy(model, task.validation), _accuracy(model, task.train.select(range(500)))
    if reached < lazy + MARGIN:
        return _fault("never_beat_baseline", attempt, came=f"accuracy {reached:.3f}",
                      expected=f"{lazy + MARGIN:.3f} or more")  # fmt: skip
    if reached > known + 0.15:
        told = f"Accuracy {reached:.3f} on the validation rows, {known:.3f} on those of `task.train`."
        return _fault("trained_on_validation", attempt, told)
    told = f"{sizes.total / MIB:.2f} of {BUDGETS['tight']} MiB, accuracy {reached:.3f}, where laziness has {lazy:.3f}."
    return Verdict("correct", f"{told} {fit.praise}")


fit = Task(
    name="fit",
    judge_with=_judge_fit,
    seconds=100.0,
    beliefs=FITS,
    hints=[
        "Begin with your `choose`, on the fresh model. What has to happen if it returns None?",
        "A loop over a `DataLoader` with `collate_fn=task.collator`, and an optimizer that holds `model.parameters()`. "
        "Count the steps, and stop after `steps` of them.",
        "`adafactor.Adafactor(model.parameters(), lr=task.learning_rate, scale_parameter=False, relative_step=False)` "
        "is what Trainer means by `adafactor`. With Trainer: `max_steps=steps`, and hand over `optimizers=(optimizer, "
        "None)`.",
    ],
    praise="Chosen by prediction, proved by measurement, and worth it, since it has learned.",
)
