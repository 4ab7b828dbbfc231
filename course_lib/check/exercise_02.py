"""Exercise 02: write the moving average, correct its start, and find a step of Adafactor's β₂(t)."""

from __future__ import annotations

import math
from functools import partial

import torch

from course_lib import averages
from course_lib.check._task import Belief, Task, case, ways

# How torch puts it when a tensor with several entries stands where a single number has to.
ONE_NUMBER = r"converted to (Python scalars|Scalar)|expand\(torch"


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


def _corrected_and_kept(values: torch.Tensor, beta: float) -> torch.Tensor:
    average, out = torch.zeros(values.shape[1:], dtype=torch.float64), []
    for t, value in enumerate(values, start=1):
        average = (beta * average + (1 - beta) * value) / (1 - beta**t)
        out.append(average)
    return torch.stack(out)


def _shifted(values: torch.Tensor, beta: float, keep_last: bool) -> torch.Tensor:
    """The averages from m₀ on, with the last one or without it."""
    right = averages.ema(values.double(), beta)
    return torch.cat([torch.zeros_like(right[:1]), right if keep_last else right[:-1]])


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
        Belief(
            "same_tensor_each_time",
            "At every step stands the *last* average. You change one tensor in place and collect it again and again, so"
            " the list holds the same tensor many times. Make a new one at each step, or collect a `.clone()`.",
            lambda values, beta: averages.ema(values.double(), beta)[-1:].expand(values.shape),
        ),
        ways(
            "starts_with_m0",
            "Your first entry is the zero that the average starts from. The first one to return is m₁, which has seen "
            "the first value already.",
            partial(_shifted, keep_last=True),
            partial(_shifted, keep_last=False),
        ),
        Belief(
            "feeds_corrected_value_back",
            "You divide by 1 − βᵗ and go on with the quotient, so each correction is corrected again. The plain average"
            " is asked here; and where one is corrected, the stored one stays as it is.",
            _corrected_and_kept,
        ),
        ways(
            "averages_the_wrong_axis",
            "A series of numbers comes out right, one of vectors does not. The steps are along the first axis, and each"
            " column is a series of its own.",
            lambda values, beta: averages.ema(values.double().transpose(0, -1), beta).transpose(0, -1),
            lambda values, beta: averages.ema(values.double().flatten(), beta).reshape(values.shape),
        ),
        Belief(
            "only_numbers",
            "A series of numbers works, a series of vectors does not: something takes a value for a single number, such"
            " as `.item()`, `torch.tensor` of a list, or zeros that have one place for each step.",
            raises=ONE_NUMBER,
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
        case(torch.tensor([[0.3, 0.7]]), 1_000, 0.999),
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
        ways(
            "divides_by_beta_power",
            "You divide by βᵗ. That is the weight of the zero at the start; what the values weigh is the rest, 1 − βᵗ.",
            lambda m, t, beta: m.double() / beta**t,
            lambda m, t, beta: m / beta**t,
        ),
        Belief(
            "multiplies",
            "You multiply by 1 − βᵗ. The average is too small and has to grow: divide.",
            lambda m, t, beta: m.double() * (1 - beta**t),
        ),
        Belief(
            "counts_one_too_many",
            "Your exponent is one too large. After `t` values the weights add up to 1 − βᵗ, and `t` counts from 1 "
            "already.",
            lambda m, t, beta: m.double() / (1 - beta ** (t + 1)),
        ),
        ways(
            "adds_the_share_of_zero",
            "You add to the average, or take off it, and so treat every average alike. What is missing grows with the "
            "average itself: find what its weights add up to, and divide by that.",
            lambda m, t, beta: m.double() + beta**t,
            lambda m, t, beta: m.double() - beta**t,
            lambda m, t, beta: (m.double() - beta**t) / (1 - beta**t),
        ),
        Belief(
            "power_of_the_rest",
            "You raise 1 − β to the power t. What fades with every step is the zero at the start, and it fades by β.",
            lambda m, t, beta: m.double() / (1 - beta) ** t,
        ),
        Belief(
            "only_numbers",
            "With one number it works, but `m` may have many entries: divide the whole tensor, without `float`, `round`"
            " or `.item()`.",
            raises=ONE_NUMBER,
        ),
    ],
    hints=[
        "Take the constant series 1, 1, 1, …: the plain average after t steps is the sum of the weights. What should "
        "the corrected one be?",
        "Those weights are (1 − β), (1 − β)β, (1 − β)β², … Their sum after t steps is 1 − βᵗ.",
    ],
    praise="At step 100,000 the division changes nothing any more: the correction is for the start.",
)


def _in_32_bits(level: float) -> int:
    """A search in torch's default precision, in which β₂(t) moves in steps near 1: as good, and a little off."""
    return int((1 - torch.arange(1, 20_001) ** -0.8 > level).int().argmax()) + 1


def _solved(level: float, exponent: float = -1.25) -> float:
    return (1 - level) ** exponent


first_step_beyond = Task(
    name="first_step_beyond",
    rule=[lambda level: math.floor(_solved(level)) + 1, _in_32_bits],
    cases=lambda: [case(0.9), case(0.99), case(0.999), case(0.9995), case(0.0)],
    rtol=0.0,
    beliefs=[
        ways(
            "window_for_step",
            "1/(1 − β) is the window of an average with that β. The step at which β₂(t) gets there is another matter:"
            " solve `1 - t**-0.8 > β`.",
            lambda level: round(1 / (1 - level)),
            lambda level: int(1 / (1 - level)),
            lambda level: math.ceil(1 / (1 - level)),
            lambda level: int(1 / (1 - level)) + 1,
        ),
        ways(
            "reaches_is_not_beyond",
            "At the level 0 your step is one too early: β₂(1) is exactly 0, and that is not *greater* than 0.",
            lambda level: math.ceil(_solved(level)),
        ),
        Belief(
            "rounded_down",
            "One step too early: there β₂(t) is still at the level or below it, and it has to pass it.",
            lambda level: math.floor(_solved(level)),
        ),
        ways(
            "sign_of_exponent",
            "From `t**-0.8 < 1 - level` follows `t > (1 - level)**(-1 / 0.8)`: the exponent keeps its minus. Without it"
            " the step comes out at 1 or below, wherever the level is.",
            lambda level: _solved(level, 1.25),
            lambda level: math.floor(_solved(level, 1.25)) + 1,
        ),
        ways(
            "exponent_not_turned_over",
            "To get `t` out of `t**-0.8` you have to raise to the power −1/0.8, not −0.8 once more.",
            lambda level: _solved(level, -0.8),
            lambda level: math.floor(_solved(level, -0.8)) + 1,
            lambda level: math.ceil(_solved(level, -0.8)),
            lambda level: math.floor(_solved(level, -0.8)),
        ),
        Belief(
            "rounded_to_nearest",
            "You round to the nearest step. The first step beyond the level is the next whole number above.",
            lambda level: round(_solved(level)),
        ),
        Belief(
            "not_a_whole_number",
            "That is where β₂ would reach the level if steps had fractions. The first whole step *beyond* it is asked.",
            _solved,
        ),
        Belief(
            "decay_for_step",
            "You return the decay at that step. The step itself is asked.",
            lambda level: 1 - (math.floor(_solved(level)) + 1) ** -0.8,
        ),
        Belief(
            "one_step_late",
            "One step too late: β₂(t) is greater than the level at the step before already.",
            lambda level: math.floor(_solved(level)) + 2,
        ),
        Belief(
            "starts_at_step_zero",
            "A zero has been raised to a negative power. Begin with the step t = 1, and take the power of `t` alone, "
            "before you subtract.",
            lambda level: 1 - 0**-0.8,
        ),
    ],
    hints=[
        "β₂(t) = `1 - t**-0.8`. Write down what it means that it is above the level, and get t alone on one side.",
        "`t > (1 - level)**-1.25`. Or let a loop try t = 1, 2, 3, … until it is true.",
    ],
    praise="Adafactor averages over few steps at first and reaches Adam's usual 0.999 only after thousands.",
)
