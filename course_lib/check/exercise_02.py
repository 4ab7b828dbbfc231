"""Exercise 02: write the moving average, correct its start, and find a step of Adafactor's β₂(t)."""

from __future__ import annotations

import math

import torch

from course_lib import averages
from course_lib.check._task import Belief, Task, case


def _started(values: torch.Tensor, beta: float) -> torch.Tensor:
    """An average that takes the first value as its start."""
    out = [values[0].double()]
    for value in values[1:]:
        out.append(beta * out[-1] + (1 - beta) * value)
    return torch.stack(out)


def _summed(values: torch.Tensor, beta: float) -> torch.Tensor:
    total, out = torch.zeros(values.shape[1:], dtype=torch.float64), []
    for value in values:
        total = beta * total + value
        out.append(total)
    return torch.stack(out)


def _in_integers(values: torch.Tensor, beta: float) -> torch.Tensor:
    out, before = torch.zeros_like(values), 0
    for t, value in enumerate(values):
        out[t] = before = beta * before + (1 - beta) * value
    return out


ema = Task(
    name="ema",
    rule=lambda values, beta: averages.ema(values.double(), beta),
    cases=lambda: [
        case(torch.tensor([1.0, 0.0]), 0.9),
        case(torch.tensor([0.0, 1.0]), 0.9),
        case(torch.tensor([2.0, -1.0, 4.0, 4.0], dtype=torch.float64), 0.5),
        case(torch.tensor([3, 0, 4]), 0.5),
        case(torch.tensor([[1.0, 10.0], [2.0, 0.0], [3.0, -10.0]]), 0.75),
    ],
    beliefs=[
        Belief(
            "swapped_beta",
            "β and 1 − β have changed places: the old average keeps the share β, the new value gets what is left. "
            "With β = 0.9 the average moves a tenth of the way to each value.",
            lambda values, beta: averages.ema(values.double(), 1 - beta),
        ),
        Belief(
            "starts_at_first_value",
            "Your average starts at the first value. Here it starts at zero, as in every optimizer, whose state is made"
            " of zeros; the first value counts with 1 − β only, and that low start is what task 2 cures.",
            _started,
        ),
        Belief(
            "pandas_adjusted",
            "Your weights are divided by their sum, as `pandas` does by default. That is the corrected average, and the"
            " next task; the plain one is asked here.",
            lambda values, beta: averages.ema(values.double(), beta, bias_correction=True),
        ),
        Belief(
            "sum_not_average",
            "The new value goes in whole, so this is a fading sum: for a constant input it grows towards 1/(1 − β) "
            "times the constant. The new value needs its share 1 − β.",
            _summed,
        ),
        Belief(
            "integer_buffer",
            "For an input of whole numbers your results are whole numbers, cut off: the array you fill has the input's "
            "dtype. Make it a floating-point one.",
            _in_integers,
        ),
        Belief(
            "last_only",
            "You return the last average only. All of them are asked, one for each step, in the shape of the input.",
            lambda values, beta: averages.ema(values.double(), beta)[-1],
        ),
    ],
    hints=[
        "Keep one number, the average so far. What is it before the first value has come?",
        "At each step the new average is `beta` times the old one, plus `1 - beta` times the new value.",
        "Collect the averages in a list while you loop over `values`, and end with `torch.stack`.",
    ],
    praise="One number was kept from step to step: that is all the memory an average takes, however long the series.",
)


def _corrected(m: torch.Tensor, t: int, beta: float) -> torch.Tensor:
    return m.double() / (1 - beta**t)


bias_corrected = Task(
    name="bias_corrected",
    rule=_corrected,
    cases=lambda: [
        case(torch.tensor(0.1), 1, 0.9),
        case(torch.tensor(0.271), 3, 0.9),
        case(torch.tensor([0.01, -0.02]), 1, 0.99),
        case(torch.tensor([1.5, 0.0, 2.5], dtype=torch.float64), 2, 0.5),
        case(torch.tensor([0.3, 0.7]), 100_000, 0.999),
    ],
    beliefs=[
        Belief(
            "divides_by_one_minus_beta",
            "You divide by 1 − β. That is right at step 1 and at no other: the weights in the average add up "
            "to 1 − βᵗ, which grows to 1, so the correction fades away.",
            lambda m, t, beta: m.double() / (1 - beta),
        ),
        Belief(
            "counts_from_zero",
            "You count the first step as 0. After the first value the weights add up to 1 − β, so the exponent is 1 "
            "there.",
            lambda m, t, beta: m.double() / (1 - beta ** (t - 1)),
        ),
        Belief(
            "divides_by_beta_power",
            "You divide by βᵗ. That is the weight of the zero at the start; what the values weigh is the rest, 1 − βᵗ.",
            lambda m, t, beta: m.double() / beta**t,
        ),
        Belief(
            "multiplies",
            "You multiply by 1 − βᵗ. The average is too small and has to grow: divide.",
            lambda m, t, beta: m.double() * (1 - beta**t),
        ),
    ],
    hints=[
        "Take the constant series 1, 1, 1, …: the plain average after t steps is the sum of the weights. What should "
        "the corrected one be?",
        "Those weights are (1 − β), (1 − β)β, (1 − β)β², … Their sum after t steps is 1 − βᵗ.",
    ],
    praise="At step 100,000 the division changes nothing any more: the correction is for the start.",
)


first_step_beyond = Task(
    name="first_step_beyond",
    rule=lambda level: math.floor((1 - level) ** -1.25) + 1,
    cases=lambda: [case(0.9), case(0.99), case(0.999)],
    rtol=0.0,
    beliefs=[
        Belief(
            "window_for_step",
            "1/(1 − β) is the window of an average with that β. The step at which β₂(t) gets there is another matter:"
            " solve `1 - t**-0.8 > β`.",
            lambda level: round(1 / (1 - level)),
        ),
        Belief(
            "rounded_down",
            "One step too early: there β₂(t) is still at the level or below it, and it has to pass it.",
            lambda level: math.floor((1 - level) ** -1.25),
        ),
        Belief(
            "sign_of_exponent",
            "The step comes out below 1. From `t**-0.8 < 1 - level` follows `t > (1 - level)**(-1 / 0.8)`: the exponent "
            "keeps its minus.",
            lambda level: (1 - level) ** 1.25,
        ),
        Belief(
            "rounded_to_nearest",
            "You round to the nearest step. The first step beyond the level is the next whole number above.",
            lambda level: round((1 - level) ** -1.25),
        ),
    ],
    hints=[
        "β₂(t) = `1 - t**-0.8`. Write down what it means that it is above the level, and get t alone on one side.",
        "`t > (1 - level)**-1.25`. Or let a loop try t = 1, 2, 3, … until it is true.",
    ],
    praise="Adafactor averages over few steps at first and reaches Adam's usual 0.999 only after thousands.",
)
