"""Judging a training loop by what it did with the stand-ins of `_fake_accelerator`, and by the losses it returned."""

from __future__ import annotations

import re
from typing import Any

import torch

from course_lib.check import _fake_accelerator as fake
from course_lib.check import _values
from course_lib.check._task import Attempt, NotFit, Verdict, wrong

# What to say about each fault; of pieces that are not prepared, see `_not_prepared`.
SAYS = {
    "not_prepared": "The loop uses something that was not prepared.",
    "batch_not_unpacked": (
        "The model gets the dictionary as a whole. It wants the tensors in it, each under its own name."
    ),
    "prepare_order": (
        "Something stands under another piece's name. `prepare` returns the pieces in the order in which it got them."
    ),
    "no_labels": "The model gets no labels. Without them it makes no loss, and `.loss` is None.",
    "no_training": "The model was never called, so there is nothing to learn from. Did the loop over the batches run?",
    "mask_dropped": (
        "The batch's attention mask does not reach the model. It reads the padding like words then, and the answer to "
        "a row depends on how long the others are. No error says so."
    ),
    "never_train_mode": (
        "The model is in evaluation mode, as `from_pretrained` leaves it, and you train it so: without dropout."
    ),
    "plain_backward": (
        "The loss goes backward by itself. The accelerator has to do it: it divides the loss under accumulation and "
        "enlarges it for `fp16`."
    ),
    "no_backward": (
        "The optimizer steps, but no backward pass came before, so there is no gradient. It passes over such "
        "parameters in silence."
    ),
    "no_step": (
        "Gradients are computed, but the optimizer that you were given never steps. No parameter that it holds moves."
    ),
    "step_before_backward": (
        "The optimizer steps before the backward pass, so it finds no gradient, and nothing moves, without an error."
    ),
    "zero_before_step": (
        "The gradients are cleared between backward and step. The step finds none, and nothing moves, without an error."
    ),
    "no_zero_grad": (
        "Gradients of earlier batches are still there at a step. Backward *adds* to what it finds, so somebody has to "
        "clear it once for each batch."
    ),
    "step_per_epoch": "The optimizer steps once for each epoch. Every batch is to be followed by a step.",
    "no_scheduler": "The scheduler is never called, so the rate stays where it began.",
    "scheduler_before_optimizer": (
        "The scheduler comes before the optimizer. So the first rate is never used, and the last step has rate 0."
    ),
    "scheduler_gets_a_number": (
        "You hand a number to the scheduler. It counts its calls by itself, and takes the number for their count, so "
        "the rate is another one than planned."
    ),
    "scheduler_per_epoch": (
        "The scheduler is called once for each epoch. It is planned for as many steps as there are batches in all "
        "epochs, so the rate would hardly fall."
    ),
    "epochs_ignored": "The batches are not gone through as often as `epochs` says.",
    "uneven": (
        "Forward passes, steps and calls of the scheduler do not come in turn. Each batch of each epoch brings one of "
        "each."
    ),
    "keeps_graph": (
        "Your list holds tensors that still know how they were computed, and keep that in memory, batch after batch. "
        "A Python number lets go of it."
    ),
    "last_epoch_only": "Only the last epoch's losses come back: the list is made anew in each epoch.",
    "one_per_epoch": "One number for each epoch comes back. The loss of *every batch* is asked.",
    "list_per_epoch": "The losses are there, in a list for each epoch. One list is asked, with all of them in a row.",
    "one_number": "A single number comes back. The loss of *every batch* is asked, in a list.",
}


# Errors of pieces that are taken for one another.
MIXED_UP = re.compile(
    r"'(Prepared)?(Model|Optimizer|Scheduler|Loader)' object (is not|has no attribute '(train|step|zero_grad)')"
)


def judge(attempt: Attempt) -> Verdict:
    """The verdict on ``train(accelerator, model, optimizer, scheduler, batches, epochs)``."""
    for batches, epochs in ((3, 2), (2, 4)):
        given = fake.pieces(batches, epochs)
        record = given[0].record
        attempt.given = f"{batches} batches, epochs={epochs}"
        try:
            came = attempt(*given, epochs)
        except NotFit as unfit:
            return _after_error(record, unfit.verdict, attempt.given)
        if fault := _fault(record, batches, epochs) or _fault_of_losses(came, record.losses, batches, epochs):
            name, came_as, expected = fault
            says = _not_prepared(record) if name == "not_prepared" else SAYS[name]
            return wrong(says, name, given=attempt.given, came=came_as, expected=expected)
        if came is None:
            return attempt.nothing()
        if not _values.same(came, record.losses):
            says = _values.difference(came, record.losses) or "These are not the losses that the model returned."
            return wrong(says, given=attempt.given, came=came, expected=record.losses)
    return Verdict("correct", attempt.task.praise)


def _after_error(record: fake.Record, verdict: Verdict, given: str) -> Verdict:
    """An error that has a reason we know."""
    name = ""
    if verdict.belief == "raises" and "wants a tensor for input_ids" in verdict.came:
        name = "batch_not_unpacked"
    elif verdict.belief == "raises" and "prepare" in record.calls and MIXED_UP.search(verdict.came):
        name = "prepare_order"
    elif verdict.belief == "raises" and record.labelled and not record.labelled[-1]:
        name = "no_labels"
    return wrong(SAYS[name], name, given=given, came=verdict.came, expected="no error") if name else verdict


def _not_prepared(record: fake.Record) -> str:
    names = ", ".join(f"`{name}`" for name in ("model", "optimizer", "scheduler", "batches") if name in record.raw)
    if record.raw <= record.handed:
        return (
            f"You go on with {names} as you were given. `prepare` does not change what it gets: it *returns* what is "
            "prepared, and the loop has to use that."
        )
    return (
        f"Your loop uses {names} without having it prepared by the `accelerator` that it is given. On one CPU "
        "that makes no difference. Elsewhere devices do not match, and every process is on its own."
    )


def _fault(record: fake.Record, batches: int, epochs: int) -> tuple[str, str, str] | None:
    """The first thing that the calls show to be wrong: its name, what was seen, and what should have been."""
    passes, steps, ticks = len(record.losses), len(record.batches), record.calls.count("scheduler")
    seen, total = _calls(record), batches * epochs
    if not passes:
        return "no_training", seen, "a forward pass for each batch"
    if record.raw:
        return "not_prepared", seen, "only what `prepare` returned is used"
    if not all(record.masked):
        return "mask_dropped", "a forward pass without the mask of its batch", "all that is in the batch"
    if record.plain_backward:
        return "plain_backward", seen, "a backward pass of the accelerator"
    if not steps:
        return "no_step", seen, f"{total} steps"
    if "backward" not in record.calls:
        return "no_backward", seen, "a backward pass before each step"
    if not all(record.training):
        mode = "never in training mode" if not any(record.training) else "not always in training mode"
        return "never_train_mode", mode, "training mode in every forward pass"
    if steps == epochs and passes == total:
        return "step_per_epoch", f"{steps} steps for {passes} batches", f"{total} steps"
    if not all(record.batches):
        return _without_gradient(record), seen, "a gradient at each step"
    if piled := [found for found in record.batches if len(found) > 1]:
        numbers = " and ".join(str(number + 1) for number in piled[0])
        return "no_zero_grad", f"a step with the gradients of batches {numbers}", "one batch's gradient at each step"
    if not ticks:
        return "no_scheduler", f"{steps} steps with the same rate", "a rate that falls from step to step"
    if ticks == epochs and steps == total:
        return "scheduler_per_epoch", f"called {ticks} times for {steps} steps", "called once for each step"
    if record.ticks[0]:
        return "scheduler_before_optimizer", seen, "the full rate at the first step"
    if record.told:
        return "scheduler_gets_a_number", "scheduler.step(a number)", "scheduler.step()"
    if passes == steps != total and steps % batches == 0:
        return "epochs_ignored", f"{steps} steps", f"{total} steps"
    if (passes, steps, ticks) != (total,) * 3 or record.ticks != list(range(total)):
        counts = f"{passes} forward passes, {steps} steps, {ticks} calls of the scheduler"
        return "uneven", counts, f"{total} of each, in turn"
    return None


def _without_gradient(record: fake.Record) -> str:
    """Why the first step that found no gradient found none."""
    steps = [place for place, call in enumerate(record.calls) if call == "step"]
    number = record.batches.index([])
    before = record.calls[steps[number - 1] if number else 0 : steps[number]]
    return "zero_before_step" if "backward" in before else "step_before_backward"


def _calls(record: fake.Record) -> str:
    """The calls up to the end of the first batch."""
    forward = [place for place, call in enumerate(record.calls) if call == "forward"]
    shown = record.calls[: forward[1]] if len(forward) > 1 else record.calls
    dots = ["…"] if len(record.calls) > len(shown[:10]) else []
    return ", ".join([*shown[:10], *dots]) or "no calls"


def _fault_of_losses(came: Any, losses: list[float], batches: int, epochs: int) -> tuple[str, str, str] | None:
    parts = came if isinstance(came, (list, tuple)) else [came]
    expected = f"a list of {len(losses)} numbers"
    if isinstance(came, torch.Tensor) and came.ndim == 0:
        came = came.item()
    elif any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts):
        return "keeps_graph", "tensors that require a gradient", expected
    by_epoch = torch.tensor(losses).view(epochs, batches)
    wrongs = {
        "last_epoch_only": [by_epoch[-1]],
        "list_per_epoch": [by_epoch],
        "one_per_epoch": [by_epoch.mean(dim=1), by_epoch.sum(dim=1), by_epoch[:, -1]],
        "one_number": [by_epoch.mean(), by_epoch.sum(), by_epoch[-1, -1], by_epoch[-1].mean(), by_epoch[-1].sum()],
    }
    for name, values in wrongs.items():
        if any(_values.same(came, value) for value in values):
            return name, _values.text(came), expected
    return None
