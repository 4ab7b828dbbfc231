"""The task `faults` of exercise 07: the lines of a training loop that have to be changed."""

from __future__ import annotations

from typing import Any

from course_lib.check import _values
from course_lib.check._task import Belief, Task, Verdict, wrong

# The faulty lines, and all lines.
RIGHT = frozenset({7, 8, 12, 13})
LINES = range(1, 19)
# Innocent lines that are suspected, then faults that are overlooked.
_SUSPECTED = {
    "launch_sets_precision": (
        {1},
        "You suspect line 1. Without arguments an `Accelerator` does what `accelerate launch` has been told, about "
        "`fp16` too.",
    ),
    "rate_looks_too_large": (
        {3},
        "You suspect line 3. 0.02 would be much for Trainer's Adafactor. torch's multiplies it by RMS(X) = 0.05, and "
        "that is 0.001.",
    ),
    "plan_must_be_divided": (
        {5, 6},
        "You suspect the schedule's length. It is counted from the whole loader, before `prepare`. A prepared "
        "scheduler ticks once for each process, so plan and ticks agree.",
    ),
    "zero_grad_must_be_last": (
        {11},
        "You suspect line 11. `zero_grad` before the backward pass is as good as at the end: what counts is that it "
        "does not come between backward and step.",
    ),
    "schedule_per_epoch": (
        {15},
        "You suspect line 15. This schedule is planned in steps, so it is called after each of them, and after the "
        "optimizer.",
    ),
    "item_breaks_the_graph": (
        {16},
        "You suspect line 16. It reads a number when the backward pass is long over, and changes nothing.",
    ),
    "eval_is_the_fault": (
        {17},
        "You suspect line 17. To measure accuracy the model has to be in evaluation mode. The question is who ends it.",
    ),
    "suspects_an_innocent": (set(LINES) - RIGHT, "You suspect a line that is right as it is, and in its place."),
}
_OVERLOOKED = {
    "loader_needs_no_prepare": (
        7,
        "A fault has escaped you: a second process would work through the same batches as the first. What does the "
        "loop use that was never prepared?",
    ),
    "train_once_is_enough": (
        8,
        "A fault has escaped you: follow the model's mode from line to line, up to the *second* epoch.",
    ),
    "mask_is_optional": (
        12,
        "A fault has escaped you: rows of a batch are padded. How is the model to know what is padding?",
    ),
    "backward_is_backward": (
        13,
        "A fault has escaped you: it does no harm on one CPU, but with accumulation or `fp16` the accelerator has to "
        "see the loss on its way.",
    ),
}
_OTHER = {
    "silent_means_right": "You find no fault. The loop runs, but none of the faults of the lesson stops a program.",
    "counts_from_zero": "These are the right lines if the first one had the number 0. They are numbered from 1.",
    "suspects_everything": "You name nearly every line. Most are right: name those that have to be changed or moved.",
}


def _numbers(came: Any) -> set[int] | None:
    """Line numbers in a set, a list, an array or a text; None if there is anything else in it."""
    if isinstance(came, str):
        came = came.replace(",", " ").split()
    elif isinstance(came, (set, frozenset, range)) or type(came).__name__ in ("dict_keys", "dict_values"):
        came = list(came)
    elif not isinstance(came, (list, tuple)):
        array = _values.as_array(came)
        came = None if array is None else array.reshape(-1).tolist()
    try:
        found = {float(part) for part in came}
    except (TypeError, ValueError):
        return None
    return {int(part) for part in found} if all(part.is_integer() for part in found) else None


def _accept_lines(came: Any) -> Verdict | None:
    lines = _numbers(came)
    if lines is None or not lines <= set(LINES):
        return wrong(
            "Line numbers from 1 to 18 are asked, in a set such as `{1, 2}`.",
            came=came,
            expected="a set of line numbers",
        )
    if lines == RIGHT:
        return None
    name = ""
    if not lines:
        name = "silent_means_right"
    elif lines == {line - 1 for line in RIGHT}:
        name = "counts_from_zero"
    elif len(lines) > 12:
        name = "suspects_everything"
    says = _OTHER.get(name, "")
    if not name:
        suspected = [(name, says) for name, (suspects, says) in _SUSPECTED.items() if lines & suspects]
        overlooked = [(name, says) for name, (line, says) in _OVERLOOKED.items() if line not in lines]
        name, says = [*suspected, *overlooked][0]
    hits = len(lines & RIGHT)
    if hits == len(lines) > 0:
        says = f"Your choice is right as far as it goes. {says}"
    elif len(lines) > 1:
        says = f"Of your {len(lines)} lines {hits or 'none'} {'are' if hits > 1 else 'is'} faulty. {says}"
    came = "{" + ", ".join(map(str, sorted(lines))) + "}"
    return wrong(says, name, came=came if lines else "an empty set")


faults = Task(
    name="faults",
    rule=lambda: set(RIGHT),
    accept=_accept_lines,
    beliefs=[
        *[Belief(name, says) for name, (_, says) in [*_SUSPECTED.items(), *_OVERLOOKED.items()]],
        *[Belief(name, says) for name, says in _OTHER.items()],
    ],
    hints=[
        "Hold it against your own loop, piece by piece: what does each line use, and in which state is that at the "
        "second epoch?",
        "There are four. Two are in the lines before the first `for`, two between the `for batch` and the step.",
        "Ask: what is prepared, when is the model in training mode, what does the model get, and who goes backward?",
    ],
    praise="All four are silent on one CPU. A loop that runs has not shown yet that it is right.",
)
