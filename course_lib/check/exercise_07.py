"""Exercise 07: torch's rate for Trainer's, a loop with Accelerate, the faults of another one, and its steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.check import _training_loop
from course_lib.check._loop_faults import faults as faults
from course_lib.check._loop_steps import optimizer_steps as optimizer_steps
from course_lib.check._task import Belief, Task, case, ways

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
            "floor_before_the_root",
            "You hold ε₂ against the mean of the squares. It is a floor for RMS(X), so the root comes first.",
            lambda rate, X: rate / math.sqrt(max(EPS2, _rms(X) ** 2)),
        ),
        ways(
            "smaller_for_larger",
            "You take the smaller one of ε₂ and RMS(X). A floor is what a size cannot fall below: torch takes the "
            "larger one.",
            lambda rate, X: rate / min(EPS2, _rms(X)),
            lambda rate, X: rate / min(EPS2, _rms(X)) if X.any() else math.inf,
        ),
        ways(
            "size_of_the_lesson",
            "You divide by 0.05, the RMS of the matrix in the lesson. Each tensor has its own: measure that of `X`.",
            lambda rate, X: rate / 0.05,
            lambda rate, X: 0.02,
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
            "largest_for_rms",
            "You divide by the largest entry. RMS is made of all of them.",
            *_any_floor(lambda X: X.abs().max()),
            *_any_floor(torch.max),
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
