"""Exercise 07: torch's rate for Trainer's, a loop with Accelerate, the faults of another one, and its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.check import _training_loop, _values
from course_lib.check._task import Belief, Task, Verdict, case, ways, wrong
from course_lib.diagrams.timeline import Epoch

# What people put under a fraction by habit.
TINY = (1e-30, 1e-16, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6)
EPS2 = torch.optim.Adafactor([torch.zeros(1)]).defaults["eps"][1]


def _rms(X: Tensor) -> float:
    return math.sqrt(X.double().square().mean().item())


def _divided(size: Callable[[Tensor], Any], floor: float = EPS2) -> Callable[..., float]:
    """A rule that divides by a size; with floor 0 a size of zero gives inf, as it does for tensors."""

    def rule(rate: float, X: Tensor) -> float:
        divisor = max(floor, float(size(X.double())))
        return rate / divisor if divisor else math.inf

    return rule


def _any_floor(size: Callable[[Tensor], Any]) -> list[Callable[..., float]]:
    return [_divided(size), _divided(size, 0.0), lambda rate, X: rate / float(size(X.double()))]


torch_rate = Task(
    name="torch_rate",
    rule=_divided(_rms),
    cases=lambda: [
        case(1e-3, torch.full((3, 2), 0.05)),
        case(1e-3, torch.tensor([[0.03, -0.04, 0.0], [0.12, -0.05, 0.02]])),
        case(2e-4, torch.tensor([0.5, 1.5, 1.0, 1.0, -2.0], dtype=torch.float64)),
        case(5e-4, torch.zeros(3)),
        case(3e-4, torch.tensor([[0.0004, -0.0002], [0.0001, 0.0005]])),
    ],
    rtol=1e-3,
    beliefs=[
        Belief(
            "same_rate",
            "You hand the rate on as it is. The two classes mean different things by it: torch multiplies its `lr` by "
            "RMS(X), so on a matrix of RMS 0.05 it would go only a twentieth as far.",
            lambda rate, X: rate,
        ),
        ways(
            "multiplied",
            "You multiply by RMS(X). torch does that too, so the size would count twice. Undo what torch does.",
            lambda rate, X: rate * _rms(X),
            lambda rate, X: rate * max(EPS2, _rms(X)),
        ),
        ways(
            "forgot_floor",
            "Right where parameters are large enough. For very small ones, or all zeros, torch does not multiply by "
            "RMS(X) but by its ε₂, whichever is *larger*. Otherwise zeros would never move.",
            *_any_floor(_rms)[1:],
            *[_divided(_rms, tiny) for tiny in TINY],
            *[lambda rate, X, tiny=tiny: rate / (_rms(X) + tiny) for tiny in TINY],
        ),
        ways(
            "floor_for_zeros_only",
            "You treat zeros as a case of their own. torch's ε₂ is a floor for *every* size below it, also for one "
            "that is not zero.",
            *[
                lambda rate, X, instead=instead: rate / _rms(X) if X.any() else instead(rate)
                for instead in (lambda r: r / EPS2, lambda r: r, lambda r: 1.0, lambda r: 0.01, lambda r: 0.0)
            ],
        ),
        ways(
            "eps_added",
            "You add ε₂ to the size. It is a floor: the larger of the two counts, and the other one not at all.",
            lambda rate, X: rate / (_rms(X) + EPS2),
            lambda rate, X: rate / math.sqrt(_rms(X) ** 2 + EPS2),
            lambda rate, X: rate / math.sqrt(_rms(X) ** 2 + EPS2**2),
        ),
        ways(
            "length_for_rms",
            "You divide by the length of X, the root of the *sum* of squares. It grows with the number of entries. "
            "RMS is the root of their *mean*.",
            *_any_floor(torch.linalg.vector_norm),
        ),
        ways(
            "forgot_root",
            "You divide by the mean of the squares. RMS is its root.",
            *_any_floor(lambda X: X.square().mean()),
            lambda rate, X: rate / max(EPS2**2, _rms(X) ** 2),
        ),
        ways(
            "mean_for_rms",
            "You divide by a plain mean. RMS squares first, so that plus and minus do not cancel and large entries "
            "count for more.",
            *_any_floor(lambda X: X.abs().mean()),
            *_any_floor(torch.mean),
            *_any_floor(lambda X: X.mean().abs()),
        ),
        ways(
            "spread_for_rms",
            "You divide by the standard deviation, which subtracts the mean. RMS subtracts nothing: for parameters "
            "that are all 0.05 it is 0.05, and their spread is 0.",
            *_any_floor(torch.std),
            *_any_floor(lambda X: X.std(correction=0)),
        ),
        ways(
            "capped_at_default",
            "You do not go beyond 0.01. That is the default of torch's `lr`; a larger one is allowed, and needed here.",
            lambda rate, X: min(0.01, rate / max(EPS2, _rms(X))),
            lambda rate, X: 0.01,
        ),
        ways(
            "upside_down",
            "The division is upside down: a larger rate has to give a larger `lr`.",
            lambda rate, X: _rms(X) / rate,
            lambda rate, X: max(EPS2, _rms(X)) / rate,
        ),
    ],
    hints=[
        "Trainer's step has the size `rate`, whatever X is. Write down what torch's first step has.",
        "torch's is `lr` · max(ε₂, RMS(X)). Make both equal and solve for `lr`. What is ε₂?",
        "`rate / max(0.001, rms)`, where `rms` is the root of the mean of all squared entries.",
    ],
    praise="The rate fits one size. A model has tensors of many, so no single `lr` makes the two classes do the same.",
)


train = Task(
    name="train",
    rule=lambda accelerator, model, optimizer, scheduler, batches, epochs: None,
    judge_with=_training_loop.judge,
    beliefs=[Belief(name, says) for name, says in _training_loop.SAYS.items()],
    hints=[
        "Take the loop of the lesson and ask of each line whether it is in yours: prepare, train, forward, backward, "
        "step, schedule, clear.",
        "`prepare` takes all four pieces and returns four others in the same order. Give them the names of the old "
        "ones.",
        "For each batch: the loss of `model(**batch)`, the accelerator's backward, then `step` of the optimizer, "
        "`step` of the scheduler, `zero_grad`. `loss.item()` is a Python number.",
    ],
    praise="Nothing in your loop says where it runs. One CPU or eight GPUs: what differs is inside the accelerator.",
)


RIGHT = frozenset({7, 8, 12, 13})
LINES = range(1, 19)
# Innocent lines that are suspected, then faults that are overlooked.
_SUSPECTED = {
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
    "suspects_an_innocent": (set(LINES) - RIGHT, "One of your lines is right as it is, and in its place."),
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
    elif lines:
        says = f"Of your {len(lines)} lines {hits or 'none'} {'are' if hits > 1 else 'is'} faulty. {says}"
    return wrong(says, name, came="{" + ", ".join(map(str, sorted(lines))) + "}")


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


def _rounding(*roundings: Callable[[float], int]) -> Callable[..., int]:
    """A rule of three divisions, rows to batches to processes to steps, each with its own rounding."""
    to_batches, to_processes, to_steps = roundings

    def rule(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> int:
        return epochs * to_steps(to_processes(to_batches(samples / batch) / processes) / accumulation)

    return rule


def _right_steps(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> int:
    return epochs * Epoch.plan(samples, batch, processes, accumulation).steps


def _exact(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> float:
    return epochs * samples / (batch * processes * accumulation)


up, down = math.ceil, math.floor
optimizer_steps = Task(
    name="optimizer_steps",
    rule=_right_steps,
    cases=lambda: [
        case(1000, 16, 2, 4, 3),
        case(640, 8, 4, 2, 2),
        case(530, 16, 1, 4, 4),
        case(130, 32, 3, 5, 3),
        case(70, 10, 3, 1, 3),
        case(70, 32, 1, 2, 5),
    ],
    rtol=1e-9,
    atol=0.0,
    beliefs=[
        Belief(
            "forgot_processes",
            "You count as for one process. Several share the batches out among them, and step together.",
            lambda s, b, p, a, e: _right_steps(s, b, 1, a, e),
        ),
        ways(
            "batches_not_steps",
            "You count batches, as if each were followed by a step. With accumulation several backward passes make "
            "one step.",
            lambda s, b, p, a, e: _right_steps(s, b, p, 1, e),
            lambda s, b, p, a, e: _right_steps(s, b, 1, 1, e),
        ),
        Belief(
            "rows_not_batches",
            "You deal out rows, as if each came alone. A process works on a whole batch at once.",
            lambda s, b, p, a, e: _right_steps(s, 1, p, a, e),
        ),
        Belief(
            "one_epoch",
            "This is one epoch. The data is gone through `epochs` times.",
            lambda s, b, p, a, e: _right_steps(s, b, p, a, 1),
        ),
        ways(
            "rounded_once",
            "You round once, at the very end. But each epoch ends with a step of its own, so the rounding comes "
            "before you multiply by the epochs.",
            lambda *args: up(_exact(*args)),
            lambda *args: down(_exact(*args)),
            lambda *args: round(_exact(*args)),
            lambda s, b, p, a, e: up(e * up(s / b) / (p * a)),
            lambda s, b, p, a, e: down(e * up(s / b) / (p * a)),
        ),
        ways(
            "groups_cross_epochs",
            "An incomplete group at the end of an epoch waits for the next epoch in your count. Accelerate does not "
            "wait: it steps at the end of the data.",
            lambda s, b, p, a, e: up(e * up(s / b / p) / a),
            lambda s, b, p, a, e: down(e * up(s / b / p) / a),
        ),
        ways(
            "not_rounded",
            "A part of a step remains. Nobody takes 0.4 of a step: think what happens to the batches, or the group, "
            "that are left over.",
            _exact,
            lambda s, b, p, a, e: e * up(s / b) / p / a,
            lambda s, b, p, a, e: e * up(s / b / p) / a,
        ),
        Belief(
            "drops_last_group",
            "You leave the last group of an epoch out if it is not full. Accelerate steps at the end of the data all "
            "the same.",
            _rounding(up, up, down),
        ),
        Belief(
            "drops_last_round",
            "You leave out the batches that do not go round evenly. The round is filled up with the first rows, so "
            "that all have as many.",
            _rounding(up, down, up),
        ),
        Belief(
            "drops_last_batch",
            "You leave out the last batch if it is not full. A loader keeps it, unless it was made with "
            "`drop_last=True`.",
            _rounding(down, up, up),
        ),
        ways(
            "rounded_down",
            "You round down. What is left over is not lost: a small batch, a round that is not full and an incomplete "
            "group all count.",
            _rounding(down, down, down),
            _rounding(down, down, up),
            _rounding(down, up, down),
            _rounding(up, down, down),
        ),
        ways(
            "rounded_to_nearest",
            "You round to the nearest number. What is left over counts, however little it is.",
            lambda s, b, p, a, e: e * round(s / (b * p * a)),
            _rounding(round, round, round),
            _rounding(up, round, round),
            _rounding(up, up, round),
        ),
        Belief(
            "ticks_not_steps",
            "You multiply by the processes. So often the prepared scheduler ticks; the optimizers of all processes "
            "step together, and that is one step.",
            lambda s, b, p, a, e: p * _right_steps(s, b, p, a, e),
        ),
        ways(
            "processes_repeat_the_data",
            "More processes make more steps in your count, as if each went through all the data. They share it, so "
            "steps become fewer.",
            lambda s, b, p, a, e: e * up(up(s / b) * p / a),
            lambda s, b, p, a, e: p * _right_steps(s, b, 1, a, e),
            lambda s, b, p, a, e: p * _right_steps(s, b, 1, 1, e),
        ),
        ways(
            "accumulation_multiplies",
            "You multiply by the accumulation. The more backward passes go into one step, the fewer steps there are.",
            lambda s, b, p, a, e: a * _right_steps(s, b, p, 1, e),
            lambda s, b, p, a, e: a * _right_steps(s, b, 1, 1, e),
        ),
    ],
    hints=[
        "One epoch first: rows to batches, batches to processes, batches of one process to steps.",
        "At each of the three divisions ask what happens to what is left over. Is it dropped, or does it count?",
        "Round up at each division, and multiply by the epochs last. `math.ceil` rounds up.",
    ],
    praise="Rounding up once, of rows by batch · processes · accumulation, gives the same: but for each epoch, not for "
    "all of them.",
)
