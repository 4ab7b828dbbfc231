"""Exercise 03: write a second moment and a step of RMSProp, tell what it does not notice, and count four states."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from course_lib import averages, memory
from course_lib.check._rmsprop import rmsprop_step as rmsprop_step
from course_lib.check._task import Belief, Task, Verdict, case, ways, wrong


def _mean(values: Tensor, beta: float, **kwargs: bool) -> Tensor:
    return averages.ema(values.double(), beta, **kwargs)[-1]


def _moment(gradients: Tensor, beta: float, **kwargs: bool) -> Tensor:
    return _mean(gradients.double() ** 2, beta, **kwargs)


def _around_running_mean(gradients: Tensor, beta: float, before: bool) -> Tensor:
    """The average of squared distances from the average so far, which has seen today's gradient or has not."""
    means = averages.ema(gradients.double(), beta)
    if before:
        means = torch.cat([torch.zeros_like(means[:1]), means[:-1]])
    return _moment(gradients - means, beta)


second_moment = Task(
    name="second_moment",
    rule=_moment,
    cases=lambda: [
        case(torch.tensor([1.0, -1.0, 2.0]), 0.9),
        case(torch.tensor([2.0, -2.0, 4.0, 0.0], dtype=torch.float64), 0.75),
        case(torch.tensor([[3.0, -4.0, 0.0]]), 0.99),
        case(torch.tensor([[[1.0, 0.0, -3.0], [0.5, 2.0, 0.0]], [[-2.0, 0.0, 1.0], [0.5, -1.0, 4.0]]]), 0.9),
        case(torch.tensor([[[1.0, 2.0], [-3.0, 0.0]]] * 3), 0.8),
    ],
    beliefs=[
        ways(
            "variance",
            "You subtract a mean before you square, so what comes out is a variance. A second moment subtracts "
            "nothing: for a gradient that never changes it tends to that gradient's square, not to 0.",
            lambda g, beta: _moment(g, beta) - _mean(g, beta) ** 2,
            lambda g, beta: g.double().var(dim=0, correction=0),
            lambda g, beta: ((g - g.mean(dim=0)) ** 2).sum(dim=0) / (len(g) - 1),
            lambda g, beta: _moment(g - g.mean(dim=0), beta),
            partial(_around_running_mean, before=False),
            partial(_around_running_mean, before=True),
        ),
        ways(
            "square_of_mean",
            "You average first and square afterwards. By then plus and minus have cancelled. Square each gradient, "
            "then average the squares.",
            lambda g, beta: _mean(g, beta) ** 2,
            lambda g, beta: g.double().mean(dim=0) ** 2,
        ),
        Belief(
            "absolute_value",
            "This is the average *size*: the sign is gone, but nothing is squared. In a second moment large gradients "
            "count for more.",
            lambda g, beta: _mean(g.abs(), beta),
        ),
        Belief(
            "first_moment",
            "This is the average of the gradient itself, the first moment. The second one averages its square.",
            _mean,
        ),
        Belief(
            "swapped_beta",
            "β and 1 − β have changed places. The average so far keeps the share β; the new square gets the rest.",
            lambda g, beta: _moment(g, 1 - beta),
        ),
        ways(
            "sum_not_average",
            "The squares go in whole, so they add up instead of being averaged. Each new square gets the share 1 − β.",
            lambda g, beta: _moment(g, beta) / (1 - beta),
            lambda g, beta: (g.double() ** 2).sum(dim=0),
        ),
        Belief(
            "plain_mean",
            "This is the plain mean of the squares, in which all steps weigh the same. A *moving* average with the "
            "decay `beta` is asked: the older a square, the less it weighs.",
            lambda g, beta: (g.double() ** 2).mean(dim=0),
        ),
        Belief(
            "bias_corrected",
            "You divide by 1 − βᵗ at the end. That is the bias correction; V is stored, and asked here, without it.",
            partial(_moment, bias_correction=True),
        ),
        Belief(
            "root_taken",
            "You return the root of the second moment. The root comes later, when a step divides by it; here the "
            "average of the squares is asked.",
            lambda g, beta: _moment(g, beta).sqrt(),
        ),
        Belief(
            "starts_at_first_value",
            "Your V starts at the first squared gradient. Here it starts at zero, as in an optimizer, so the first "
            "square counts with its share 1 − β only.",
            lambda g, beta: _moment(g, beta) + beta ** len(g) * g[0] ** 2,
        ),
        Belief(
            "share_squared",
            "The share 1 − β is squared along with the gradient. Square the gradient first, and give the square its "
            "share.",
            lambda g, beta: (1 - beta) * _moment(g, beta),
        ),
        Belief(
            "last_square_only",
            "Only the last gradient is left in it: what the average held before is overwritten instead of kept with the"
            " share β.",
            lambda g, beta: (1 - beta) * g[-1].double() ** 2,
        ),
        ways(
            "one_number",
            "The entries of a gradient have been put together into one number. Each entry has its own second moment, "
            "so V has the shape of one gradient.",
            lambda g, beta: _moment(g, beta).mean(),
            lambda g, beta: _moment(g, beta).sum(),
        ),
        Belief(
            "every_step",
            "You return the averages of all steps. An optimizer keeps only the one after the last step; return that.",
            lambda g, beta: averages.ema(g.double() ** 2, beta),
        ),
        Belief(
            "only_numbers",
            "With numbers it works, but a gradient may be a vector or a matrix: keep V as a tensor, without `float` or "
            "`.item()`.",
            raises=r"converted to (Python scalars|Scalar)",
        ),
        Belief(
            "matrix_product",
            "`@` is the product of matrices. Here each entry is squared by itself, whatever the shape: `g**2`.",
            raises="arguments to matmul",
        ),
    ],
    hints=[
        "It is the moving average of exercise 02. What is averaged?",
        "Square each gradient entry by entry, before anything is averaged. Begin with a V of zeros.",
        "At each step the new V is `beta` times the old one, plus `1 - beta` times the squared gradient.",
    ],
    praise="However many gradients came in, you kept one tensor of their shape: what PyTorch calls `exp_avg_sq`.",
)


CHANGES = {
    "as_sgd": "You leave out `a` and `b`, as if larger gradients made longer steps. They do for SGD. RMSProp divides "
    "by a root that has grown just as much.",
    "one_for_all": "You leave out `b`, as if all coordinates shared one divisor. Each has its own, so a factor that "
    "only one coordinate has cancels in that coordinate.",
    "common_factor_counts": "You count `b` in but leave out `a`. If a coordinate shakes off a factor of its own, then "
    "all of them together do.",
    "turning_is_harmless": "You count `c` in. In the lesson RMSProp lost its lead in the turned valley: it scales "
    "coordinates, not directions.",
    "no_memory": "You count `e` in, as if V knew only the gradient of this step. It is an average: this gradient has "
    "the largest factor so far, and most of what is in V has a smaller one.",
    "loss_value_counts": "You leave out `d`. The optimizer sees the gradient only, and a constant adds nothing to it.",
}


def _letters(came: Any) -> set[str] | None:
    """The letters in a text or a collection of texts; None if anything else is in it."""
    parts = [came] if isinstance(came, str) else came
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(isinstance(part, str) for part in parts):
        return None
    letters = set("".join(parts).lower()) - set(" ,;.+&/()\n")
    return letters if letters <= set("abcde") else None


def _accept_letters(came: Any) -> Verdict | None:
    letters = _letters(came)
    if letters is None:
        return wrong("A text is asked that holds letters from a to e only.", came=came, expected='letters, as in "ce"')
    said = {letter: letter in letters for letter in "abcde"}
    held = {
        "as_sgd": not said["a"] and not said["b"],
        "one_for_all": said["a"] and not said["b"],
        "common_factor_counts": said["b"] and not said["a"],
        "turning_is_harmless": said["c"],
        "no_memory": said["e"],
        "loss_value_counts": not said["d"],
    }
    name = next((name for name in CHANGES if held[name]), None)
    return None if name is None else wrong(CHANGES[name], name, came="".join(sorted(letters)) or "no letter")


same_path = Task(
    name="same_path",
    rule=lambda: "abd",
    accept=_accept_letters,
    beliefs=[Belief(name, says) for name, says in CHANGES.items()],
    hints=[
        "For each change, ask what happens to the gradient of x₁ and to that of x₂, at every step.",
        "Does the root of each coordinate's V change by the same factor as its gradient? Then the factor cancels.",
    ],
    praise="RMSProp shakes off any constant factor, also one that a single coordinate has; a turn it does not.",
)


@cache
def _in_pytorch(in_features: int, out_features: int) -> dict[str, int]:
    """What PyTorch's own optimizers hold after a step."""
    layer = torch.nn.Linear(in_features, out_features)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    made = {
        "sgd": torch.optim.SGD(layer.parameters(), lr=0.1),
        "sgd_momentum": torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9),
        "rmsprop": torch.optim.RMSprop(layer.parameters()),
        "adamw": torch.optim.AdamW(layer.parameters()),
    }
    for optimizer in made.values():
        optimizer.step()
    return {name: memory.state_size(optimizer).moments for name, optimizer in made.items()}


def _four(counts: Callable[[int, int, int], tuple[int, int, int, int]]) -> Callable[[int, int], dict[str, int]]:
    """A rule made of ``counts(parameters, in_features, out_features)``, for the four optimizers in their order."""
    names = ("sgd", "sgd_momentum", "rmsprop", "adamw")
    return lambda m, n: dict(zip(names, counts(m * n + n, m, n), strict=True))


def _packed(counts: Callable[[int, int], tuple[int, int]]) -> list[Callable[[int, int], dict[str, int]]]:
    """Rules with ``counts(parameters, packed)`` for RMSProp and AdamW.

    The bias counts whole, as one, or not at all, and momentum is packed too or not.
    """
    return [
        _four(lambda p, m, n, bias=bias, too=too: (0, m + n + bias(n) if too else p, *counts(p, m + n + bias(n))))
        for bias, too in product((lambda n: n, lambda n: 1, lambda n: 0), (False, True))
    ]


state_numbers = Task(
    name="state_numbers",
    rule=_in_pytorch,
    cases=lambda: [case(1024, 512), case(512, 1024), case(3, 2), case(1, 7)],
    rtol=0.0,
    atol=0.0,
    beliefs=[
        Belief(
            "forgot_bias",
            "The bias is missing: one more parameter for each output, with averages like any other.",
            _four(lambda p, m, n: (0, m * n, m * n, 2 * m * n)),
        ),
        Belief(
            "bias_of_inputs",
            "You count one bias for each input. A bias is added to each *output*.",
            _four(lambda p, m, n: (0, m * n + m, m * n + m, 2 * (m * n + m))),
        ),
        ways(
            "gradient_is_state",
            "You count the gradients, or the weights, as if they were state. They are there in any training, but the "
            "optimizer keeps neither; SGD keeps nothing at all.",
            _four(lambda p, m, n: (p, 2 * p, 2 * p, 3 * p)),
            _four(lambda p, m, n: (p, p, p, 2 * p)),
            _four(lambda p, m, n: (p, 2 * p, p, 2 * p)),
            _four(lambda p, m, n: (2 * p, 3 * p, 3 * p, 4 * p)),
        ),
        Belief(
            "one_moment_for_adam",
            "AdamW has one average too few. It keeps two for each parameter: of the gradient and of its square.",
            _four(lambda p, m, n: (0, p, p, p)),
        ),
        Belief(
            "momentum_keeps_nothing",
            "Momentum comes out empty. It averages the gradients, and has to keep that average from step to step.",
            _four(lambda p, m, n: (0, 0, p, 2 * p)),
        ),
        Belief(
            "rmsprop_keeps_both",
            "RMSProp has one average too many. It has no momentum: it keeps the average of the squares only.",
            _four(lambda p, m, n: (0, p, 2 * p, 2 * p)),
        ),
        ways(
            "already_factored",
            "You count a number for each row and each column, as Adafactor will from lesson 04 on. RMSProp and AdamW "
            "keep whole matrices.",
            *_packed(lambda p, packed: (packed, packed)),
            *_packed(lambda p, packed: (packed, 2 * packed)),
            *_packed(lambda p, packed: (packed, p + packed)),
            *_packed(lambda p, packed: (p, 2 * packed)),
            *_packed(lambda p, packed: (p, p + packed)),
        ),
        Belief(
            "per_parameter",
            "These are the numbers for *one* parameter. How many parameters has the whole layer?",
            _four(lambda p, m, n: (0, 1, 1, 2)),
        ),
        ways(
            "bytes_counted",
            "You count bytes, or MiB, with four bytes for each number. Here the numbers themselves are asked.",
            _four(lambda p, m, n: (0, 4 * p, 4 * p, 8 * p)),
            _four(lambda p, m, n: (0, p / 2**18, p / 2**18, p / 2**17)),
        ),
        ways(
            "steps_counted",
            "The counts of steps are in it. They are part of the state, but here only the averages are asked.",
            *[
                _four(lambda p, m, n, a=a, b=b, c=c: (0, p + a, p + b, 2 * p + c))
                for a, b, c in product((0, 1, 2), repeat=3)
                if a or b or c
            ],
        ),
    ],
    hints=[
        "How many parameters has the layer, weight and bias together? Each average has one number for each of them.",
        "The weight has `in_features * out_features` entries, and the bias has `out_features`.",
        "Which averages does each of the four keep: of the gradient, of its square, both, or none?",
    ],
    praise="Your counts are those of PyTorch's own optimizers, which this check has run for one step.",
)
