"""Task of exercise 03: a step of RMSProp."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course_lib.check._task import Belief, Task, case, ways

# The two places where eps is in use: beside the root, and under it.
ROOTS = (lambda v, eps: v.sqrt() + eps, lambda v, eps: (v + eps).sqrt())


def _root(v: Tensor, eps: float) -> Tensor:
    return v.sqrt()


def _stepping(
    average: Callable[..., Tensor] = lambda v, grad, beta: beta * v + (1 - beta) * grad**2,
    divisor: Callable[..., Tensor] = lambda root, old, new, eps: root(new, eps),
) -> Callable[..., tuple[Tensor, Tensor]]:
    """A rule for the step; it takes one of ROOTS and then the task's arguments.

    ``average`` renews the second moment, and ``divisor`` makes of the old and new one what is divided by.
    """

    def rule(root, param, grad, v, lr, beta, eps):
        param, grad, v = param.double(), grad.double(), v.double()
        new = average(v, grad, beta)
        return param - lr * grad / divisor(root, v, new, eps), new

    return rule


_step = _stepping()


def _two_places(name: str, says: str, *rules: Callable[..., Any]) -> Belief:
    """A misconception about the step, with `eps` in either place."""
    return ways(name, says, *[partial(rule, root) for rule in rules for root in ROOTS])


def _plus_eps(share: float, *args: Any) -> tuple[Tensor, Tensor]:
    moved, v = _step(_root, *args)
    return moved + share * args[-1], v


def _keeping(root: Callable[..., Tensor], kept: Callable[..., Tensor], *args: Any) -> tuple[Tensor, Tensor]:
    moved, v = _step(root, *args)
    return moved, kept(v, args[-1])


def _step_cases() -> list:
    matrices = torch.tensor(
        [
            [[1.0, -1.0, 0.0], [2.0, 0.5, -3.0]],
            [[0.1, 2.0, -1.0], [-0.3, 0.0, 5.0]],
            [[0.2, 1.0, 0.01], [0.5, 3.0, 40.0]],
        ],
        dtype=torch.float64,
    )
    return [
        case(torch.tensor([1.0, 2.0]), torch.tensor([0.5, -4.0]), torch.tensor([0.25, 1.0]), 0.1, 0.9, 1e-8),
        case(torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, -40.0, 0.0]), torch.zeros(3), 0.01, 0.99, 1e-8),
        case(*matrices, 0.2, 0.75, 0.05),
    ]


rmsprop_step = Task(
    name="rmsprop_step",
    rule=[partial(_step, root) for root in ROOTS],
    cases=_step_cases,
    beliefs=[
        _two_places(
            "stale_v",
            "You divide by the second moment of the step *before*; it has not seen this gradient yet. Where it is "
            "still zero, at the first step, the step becomes enormous. Renew `v` first.",
            _stepping(divisor=lambda root, old, new, eps: root(old, eps)),
        ),
        _two_places(
            "one_scale_per_matrix",
            "Several entries share one number in what they are divided by. Then a large gradient in one entry slows "
            "the others; each entry needs the root of its *own* second moment.",
            _stepping(divisor=lambda root, old, new, eps: root(new.mean(), eps)),
            _stepping(divisor=lambda root, old, new, eps: root(new.sum(), eps)),
            _stepping(divisor=lambda root, old, new, eps: root(new.max(), eps)),
            _stepping(divisor=lambda root, old, new, eps: root(new, eps).mean()),
            _stepping(divisor=lambda root, old, new, eps: root(new.mean(-1, keepdim=True), eps)),
            _stepping(divisor=lambda root, old, new, eps: root(new.mean(0, keepdim=True), eps)),
            _stepping(lambda v, grad, beta: beta * v + (1 - beta) * (grad**2).mean()),
            _stepping(lambda v, grad, beta: beta * v + (1 - beta) * (grad**2).sum()),
            _stepping(lambda v, grad, beta: (beta * v + (1 - beta) * grad**2).mean()),
        ),
        ways(
            "divides_by_v",
            "You divide by the second moment itself. It is a square, so large gradients get *small* steps. Its root "
            "has the gradient's own unit.",
            partial(_step, lambda v, eps: v + eps),
        ),
        _two_places(
            "no_square",
            "Your `v` averages the gradient, not its square. It can be negative, and then it has no root.",
            _stepping(lambda v, grad, beta: beta * v + (1 - beta) * grad),
        ),
        _two_places(
            "swapped_beta",
            "β and 1 − β have changed places in the average: the old `v` keeps the share `beta`.",
            _stepping(lambda v, grad, beta: (1 - beta) * v + beta * grad**2),
        ),
        _two_places(
            "sum_not_average",
            "The squared gradient goes into `v` whole, so `v` grows beyond any of its squares, and the steps become "
            "too short. It needs the share 1 − β.",
            _stepping(lambda v, grad, beta: v + grad**2),
            _stepping(lambda v, grad, beta: beta * v + grad**2),
        ),
        Belief(
            "no_eps",
            "`eps` is missing. An entry that has never had a gradient becomes 0 / 0, which is nan, and stays nan.",
            partial(_step, _root),
        ),
        _two_places(
            "own_eps",
            "You add a small number of your own instead of the `eps` that is given.",
            *[lambda root, *args, own=own: _step(root, *args[:-1], own) for own in (1e-8, 1e-6, 1e-10, 1e-12)],
        ),
        ways(
            "eps_after_the_division",
            "`eps` is added after the division: Python divides first in `a / b + eps`. It belongs to what you divide "
            "by, so put that in parentheses.",
            *[partial(_plus_eps, share) for share in (1, -1)],
            lambda param, grad, v, lr, *rest: _plus_eps(-lr, param, grad, v, lr, *rest),
        ),
        _two_places(
            "climbs",
            "The step goes uphill: the gradient points to where the loss grows, so the step is *subtracted*.",
            lambda root, param, grad, *rest: _step(root, param, -grad, *rest),
        ),
        _two_places(
            "returns_the_step",
            "Your first value is the step, not the parameters after it. Take the step off `param`.",
            lambda root, param, grad, *rest: _step(root, 0 * param, -grad, *rest),
            lambda root, param, *rest: _step(root, 0 * param, *rest),
        ),
        _two_places(
            "no_learning_rate",
            "The learning rate is missing: the gradient over the root is multiplied by `lr` before it is subtracted.",
            lambda root, param, grad, v, lr, *rest: _step(root, param, grad, v, 1.0, *rest),
        ),
        ways(
            "keeps_what_divides",
            "The parameters are right, but the second value is what you divide by, with the root or with `eps` in it. "
            "The next step needs the average of the squares as it is.",
            *[partial(_keeping, root, kept) for root in ROOTS for kept in (*ROOTS, _root, lambda v, eps: v + eps)],
        ),
        _two_places(
            "only_the_parameters",
            "You return the parameters only. The next step needs the second moment as well: return both.",
            lambda root, *args: _step(root, *args)[0],
        ),
        _two_places(
            "old_v_returned",
            "The parameters are right, but the second value is the `v` that came in. The next step would know nothing "
            "of this gradient.",
            lambda root, param, grad, v, *rest: (_step(root, param, grad, v, *rest)[0], v),
        ),
        _two_places(
            "wrong_order",
            "Both values are there, but in the other order: the parameters come first, then the second moment.",
            lambda root, *args: _step(root, *args)[::-1],
        ),
    ],
    hints=[
        "Two lines: one renews the second moment, one makes the step. Which has to come first?",
        "The new second moment is task 1 for one gradient. The gradient is divided by its root, entry by entry.",
        "Take `lr * grad / (root + eps)` off `param`, and return both new tensors. Write `a - b`, not `a -= b`.",
    ],
    praise="After a while, a gradient that keeps its size moves its entry by about `lr`, whatever that size is.",
)
