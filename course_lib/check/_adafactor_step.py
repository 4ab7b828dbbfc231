"""Exercise 05, first task: one step of Adafactor for a matrix, and the ways in which it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.averages import adafactor_beta2
from course_lib.check import _values
from course_lib.check._task import Belief, Case, Task, Verdict, case, ways, wrong

Step = tuple[Tensor, Tensor, Tensor]


def rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def _clip(size: Callable[[Tensor], Tensor]) -> Callable[[Tensor, float], Tensor]:
    return lambda U, d: U / max(1.0, size(U) / d)


clip_by_rms = _clip(rms)


def averaged(old: Tensor, new: Tensor, b: float) -> Tensor:
    return b * old + (1 - b) * new


def _swapped(squared: Tensor) -> tuple[Tensor, Tensor]:
    return squared.mean(0), squared.mean(1)


def _sums(squared: Tensor) -> tuple[Tensor, Tensor]:
    return squared.sum(1), squared.sum(0)


def _v_hat(row: Tensor, col: Tensor) -> Tensor:
    return torch.outer(row, col) / row.mean()


def _stepping(
    *,
    beta2: Callable[[int], float] = adafactor_beta2,
    square: Callable[[Tensor, float], Tensor] = lambda G, eps1: G**2 + eps1,
    means: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda squared: (squared.mean(1), squared.mean(0)),
    average: Callable[[Tensor, Tensor, float], Tensor] = averaged,
    estimate: Callable[..., Tensor] = lambda new, old: _v_hat(*new),
    divide: Callable[[Tensor, Tensor, float], Tensor] = lambda G, V, eps1: G / V.sqrt(),
    clip: Callable[[Tensor, float], Tensor] = clip_by_rms,
    scale: Callable[[float, Tensor, float], Any] = lambda lr, X, eps2: lr * max(eps2, rms(X)),
    finish: Callable[..., Any] = lambda X, step, new, old: (X - step, *new),
) -> Callable[..., Any]:
    """A rule for the step, in which any stage may be replaced."""

    def rule(param, grad, row, col, step, lr, d, eps1, eps2):
        X, G, *old = (x.double() for x in (param, grad, row, col))
        b = beta2(step)
        new = [average(*pair, b) for pair in zip(old, means(square(G, eps1)), strict=True)]
        U = clip(divide(G, estimate(new, old), eps1), d)
        return finish(X, scale(lr, X, eps2) * U, new, old)

    return rule


_step = _stepping()
_unclipped = _stepping(clip=lambda U, d: U)


def _swap_eps(*args: Any) -> Step:
    return _step(*args[:7], args[8], args[7])


def _clips_the_step(param: Tensor, *args: Any) -> Step:
    """The threshold is applied to the whole step, after the rate and the scale."""
    moved, *kept = _unclipped(param, *args)
    return (param - clip_by_rms(param - moved, args[5]), *kept)


def _clips_the_gradient(size: Callable[[Tensor], Tensor], averages_too: bool) -> Callable[..., Step]:
    """The gradient is clipped in place of the update, before its squares are averaged or after."""

    def rule(param: Tensor, grad: Tensor, *args: Any) -> Step:
        factor = max(1.0, size(grad.double()) / args[4])
        moved, *kept = _unclipped(param, grad / factor if averages_too else grad, *args)
        return (moved if averages_too else param - (param - moved) / factor, *kept)

    return rule


def _accept(came: Any, *args: Any) -> Verdict | None:
    """None if a step is right; otherwise which of its three values to look at first."""
    expected = _step(*args)
    says = _values.difference(came, expected)
    if not says:
        moved, *averages = (_values.same(*pair) for pair in zip(came, expected, strict=True))
        if moved and all(averages):
            return None
        if np.isnan(_values.as_array(came[0])).any():
            says = "There is NaN among the new parameters: 0 has been divided by 0. One of the two ε is against that."
        elif all(averages):
            says = "The new averages are right. Look at what follows: V̂, the update, its clipping, the step size."
        else:
            which = [kind for kind, right in zip(("row", "column"), averages, strict=True) if not right]
            says = f"Look at the new {' and '.join(which)} averages first, which are not right: squares, means, decay."
    return wrong(says, came=came, expected=expected)


def _step_case(param: Any, grad: Any, row: Any, col: Any, step: int, lr: float, d=1.0, eps1=1e-30, eps2=1e-3, **kw):
    tensors = [torch.tensor(x, dtype=kw.get("dtype", torch.float64)) for x in (param, grad, row, col)]
    names = ("param", "grad", "row", "col", "step", "lr", "d", "eps1", "eps2")
    args = (*tensors, step, lr, d, eps1, eps2)
    given = ", ".join(f"{name}={_values.text(value)}" for name, value in zip(names, args, strict=True))
    return case(*args, given=f"adafactor_step({given})")


def _step_cases() -> list[Case]:
    zeros = [0.0] * 5
    return [
        # The first step: nothing to clip, then entries that their row and column do not tell.
        _step_case([[1, 2, 3], [4, 5, 6]], [[0.1, 0.2, 0.4], [0.3, 0.4, 0.7]], zeros[:2], zeros[:3], 1, 0.1),
        _step_case([[2, -1], [0.5, 3], [1, 1]], [[1, 0], [0, 0.01], [0, 0]], zeros[:3], zeros[:2], 1, 0.1),
        # Later ones: a sudden gradient, and a quiet one.
        _step_case([[3, -2], [1, 2]], [[4, -1], [2, 5]], [0.5, 1.5], [1.4, 0.6], 4, 0.1, dtype=torch.float32),
        _step_case([[1, 2, 3, 4], [4, 3, 2, 1]], [[0.1, 0, -0.2, 0.1]] * 2, [1, 2], [1, 2, 1, 2], 60, 0.5),
        # Tiny parameters; no gradient; another threshold, on both sides of it; epsilons of another size.
        _step_case([[1e-4, -2e-4, 0]] * 3, [[1, 2, -3], [2, 0.5, 1], [1, 1, 1]], zeros[:3], zeros[:3], 1, 0.1),
        _step_case([[1, 2], [3, 4]], [[0, 0], [0, 0]], zeros[:2], zeros[:2], 1, 0.1),
        _step_case([[1, 2, 1], [0, 4, 3]], [[9, -1, 3], [0.5, 8, -6]], [0.5, 0.1], [0.2, 0.4, 0.3], 9, 0.2, d=2.0),
        _step_case([[1, 2, 1], [0, 4, 3]], [[1, -1, 2], [1, 2, -1]], [0.9, 1.1], [0.8, 1.4, 0.8], 9, 0.2, d=3.0),
        _step_case([[0.2, 0.1], [-0.3, 0.1]], [[0.1, 0.3], [-0.2, 0.5]], [0.1, 0.3], [0.2, 0.2], 2, 0.3, 1, 0.05, 0.6),
        _step_case([[8, 9], [7, 9]], [[5, 1], [-2, 7]], [0.3, 0.2], [0.1, 0.4], 3, 1.0),
    ]


adafactor_step = Task(
    name="adafactor_step",
    rule=_step,
    accept=_accept,
    cases=_step_cases,
    beliefs=[
        ways(
            "always_divides_by_rms",
            "You divide every update by its RMS, so a quiet update is scaled *up*. Clipping is a ceiling: it touches "
            "an update only if its RMS is above `d`.",
            _stepping(clip=lambda U, d: U * d / rms(U)),
            _stepping(clip=lambda U, d: U / rms(U)),
            _stepping(clip=lambda U, d: U * d / rms(U).clamp(min=1e-12)),
            _stepping(clip=lambda U, d: U / rms(U).clamp(min=1e-12)),
        ),
        ways(
            "l2_clip",
            "You measure the update by its length, the root of the *sum* of squares. That grows with the matrix; the "
            "threshold `d` is for the RMS, the root of the mean.",
            _stepping(clip=_clip(torch.linalg.norm)),
            _stepping(clip=lambda U, d: U * d / U.norm()),
            _stepping(clip=lambda U, d: U * d / U.norm().clamp(min=1e-12)),
        ),
        ways(
            "max_clip",
            "You measure the update by its largest entry, so one entry alone decides. The threshold `d` is for the RMS "
            "of the whole update.",
            _stepping(clip=_clip(lambda U: U.abs().max())),
            _stepping(clip=lambda U, d: U * d / U.abs().max()),
        ),
        ways(
            "clamps_entries",
            "You cut off single entries, which bends the update into another direction. Update clipping divides all "
            "entries by one number and keeps their ratios.",
            _stepping(clip=lambda U, d: U.clamp(-d, d)),
            _stepping(clip=lambda U, d: U.clamp(max=d)),
        ),
        Belief(
            "clips_the_step",
            "The clipping comes too late: you apply `d` to the step, after `lr` and the size of the parameters. It "
            "belongs to the update, before either.",
            _clips_the_step,
        ),
        ways(
            "clips_the_gradient",
            "You clip the gradient. Update clipping looks at U, after the division by the root of V̂: a large gradient "
            "is no reason to clip where V̂ is large as well.",
            *(_clips_the_gradient(size, too) for size in (rms, torch.linalg.norm) for too in (True, False)),
        ),
        Belief(
            "no_clipping",
            "Nothing clips the update. A sudden gradient makes a step several times as long as it should be.",
            _unclipped,
        ),
        ways(
            "threshold_misplaced",
            "The clipping is right for `d` = 1 only. It acts where RMS(U) is above `d`, and then brings it down to "
            "exactly `d`.",
            _stepping(clip=lambda U, d: U / max(1.0, rms(U))),
            _stepping(clip=lambda U, d: U / max(d, rms(U))),
            _stepping(clip=lambda U, d: U / max(1.0, rms(U) * d)),
            _stepping(clip=lambda U, d: d * U / max(1.0, rms(U))),
            _stepping(clip=lambda U, d: U / rms(U) if rms(U) > d else U),
        ),
        Belief(
            "min_for_max",
            "The smaller of 1 and RMS(U)/d divides the update: large updates pass, and quiet ones are blown up. Take "
            "the larger of the two.",
            _stepping(clip=lambda U, d: U / min(1.0, rms(U) / d)),
        ),
        ways(
            "no_parameter_scale",
            "The step does not depend on the size of the parameters: `lr` alone scales it. With RMS scaling small "
            "parameters take small steps.",
            _stepping(scale=lambda lr, X, eps2: lr),
        ),
        Belief(
            "no_floor",
            "RMS(X) has no floor, so parameters of zero would stay zero forever. One of the two ε is there for that.",
            _stepping(scale=lambda lr, X, eps2: lr * rms(X)),
        ),
        Belief(
            "floor_added",
            "You add ε₂ to RMS(X). It is a floor, not an addition: the larger of the two counts.",
            _stepping(scale=lambda lr, X, eps2: lr * (eps2 + rms(X))),
        ),
        Belief(
            "ceiling_for_floor",
            "You take the smaller of ε₂ and RMS(X), and that is nearly always ε₂. A floor means the larger one.",
            _stepping(scale=lambda lr, X, eps2: lr * min(eps2, rms(X))),
        ),
        ways(
            "epsilons_fixed",
            "Your answer has 1e-30 or 1e-3 written into it. These are only the usual values: whoever calls the "
            "function may pass others, as `eps1` and `eps2`.",
            lambda *args: _step(*args[:7], 1e-30, 1e-3),
            lambda *args: _step(*args[:7], 1e-30, args[8]),
            lambda *args: _step(*args[:8], 1e-3),
        ),
        Belief(
            "eps_swapped",
            "The two ε have changed places. The tiny one, `eps1`, is added to G² so that nothing is divided by zero; "
            "`eps2` is the floor under RMS(X).",
            _swap_eps,
        ),
        ways(
            "own_rate",
            "Your step size uses min(0.01, 1/√t). Here the rate is given: `lr` stands where ρₜ stood, whatever `step` "
            "is.",
            lambda *args: _step(*args[:5], min(1e-2, args[4] ** -0.5), *args[6:]),
            lambda *args: _step(*args[:5], min(args[5], args[4] ** -0.5), *args[6:]),
            lambda *args: _step(*args[:5], args[5] * min(1e-2, args[4] ** -0.5), *args[6:]),
        ),
        ways(
            "scale_of_something_else",
            "The step size needs one number for the size of all parameters, their RMS. Yours is another one.",
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.norm())),
            _stepping(scale=lambda lr, X, eps2: lr * X.abs().clamp(min=eps2)),
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.abs().mean())),
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.std())),
        ),
        ways(
            "step_starts_at_zero",
            "Your steps are off by one. The first one is `step` = 1: there β₂ is exactly 0, and the average is today's "
            "value, whole.",
            _stepping(beta2=lambda t: 1 - (t - 1) ** -0.8),
            _stepping(beta2=lambda t: 1 - torch.tensor(t - 1.0) ** -0.8),
            _stepping(beta2=lambda t: 1 - max(t - 1, 1) ** -0.8),
            _stepping(beta2=lambda t: 1 - (t + 1) ** -0.8),
        ),
        ways(
            "constant_beta2",
            "Your decay is the same at every step. Adafactor's grows, from 0 at the first step; a constant one starts "
            "from the zeros in `row` and `col`, and the first steps come out too long.",
            *[_stepping(beta2=lambda t, b=b: b) for b in (0.999, 0.99, 0.9, 0.98, 0.95, 0.8, 0.2)],
        ),
        ways(
            "decay_turned_round",
            "Your decay shrinks where it should grow. It is 0 at step 1, when there is nothing to remember yet, and "
            "comes close to 1 later: the exponent of t is negative, and the *old* average gets β₂.",
            _stepping(beta2=lambda t: t**-0.8),
            _stepping(beta2=lambda t: 1 - t**0.8),
        ),
        ways(
            "no_memory",
            "What comes in as `row` and `col` is not used, or not as an average: the old one keeps the share β₂, the "
            "new value gets 1 − β₂.",
            _stepping(average=lambda old, new, b: new),
            _stepping(average=lambda old, new, b: old + new),
            _stepping(average=lambda old, new, b: b * old + new),
        ),
        ways(
            "stale_averages",
            "You divide by averages that have not seen this gradient yet. Renew them first; at step 1 they are zero.",
            _stepping(estimate=lambda new, old: _v_hat(*old)),
            _stepping(estimate=lambda new, old: _v_hat(*(old if old[0].any() else new))),
        ),
        ways(
            "axes_swapped",
            "Rows and columns have changed places. A row mean goes along its row, over the *last* axis, and there is "
            "one for each row.",
            _stepping(means=_swapped),
            _stepping(means=_swapped, estimate=lambda new, old: _v_hat(*new[::-1])),
        ),
        ways(
            "sums",
            "You keep sums of rows and columns. `row` and `col` come in as averages of *means*, so means go on.",
            _stepping(means=_sums),
            _stepping(means=_sums, estimate=lambda new, old: torch.outer(*new) / new[0].sum()),
        ),
        ways(
            "square_of_mean",
            "You average the gradient first and square afterwards; by then plus and minus have cancelled.",
            _stepping(square=lambda G, eps1: (G, eps1), means=lambda g: [g[0].mean(dim) ** 2 + g[1] for dim in (1, 0)]),
        ),
        ways(
            "no_division",
            "V̂ has the wrong size: row mean times column mean is a square of what is wanted, and has to be divided by "
            "the mean of all entries, which is also the mean of the row means.",
            _stepping(estimate=lambda new, old: torch.outer(*new)),
            _stepping(estimate=lambda new, old: torch.outer(*new) / new[0].sum()),
            _stepping(estimate=lambda new, old: torch.outer(*new) / new[1].sum()),
        ),
        Belief(
            "no_root",
            "You divide by V̂ itself, which is a square: large gradients get small updates. Take its root first.",
            _stepping(divide=lambda G, V, eps1: G / V),
        ),
        ways(
            "eps1_too_late",
            "ε₁ is missing, or comes in too late. It is added to G², before anything is averaged; then R and C are "
            "never zero, and nothing is divided by zero.",
            _stepping(square=lambda G, eps1: G**2, divide=lambda G, V, eps1: G / (V.sqrt() + eps1)),
            _stepping(square=lambda G, eps1: G**2, divide=lambda G, V, eps1: G / (V + eps1).sqrt()),
            _stepping(square=lambda G, eps1: (G**2, eps1), means=lambda s: [s[0].mean(dim) for dim in (1, 0)]),
        ),
        ways(
            "climbs",
            "The step goes uphill: the gradient points to where the loss grows, so the step is *subtracted*.",
            _stepping(finish=lambda X, step, new, old: (X + step, *new)),
        ),
        ways(
            "old_averages_returned",
            "The parameters are right, but `row` and `col` go back as they came. The next step would not know that "
            "this one has been.",
            _stepping(finish=lambda X, step, new, old: (X - step, *old)),
        ),
        ways(
            "returns_the_step",
            "The first value is the step, not the parameters after it. Take the step off `param`.",
            _stepping(finish=lambda X, step, new, old: (step, *new)),
            _stepping(finish=lambda X, step, new, old: (-step, *new)),
        ),
    ],
    hints=[
        "Go through the eight stages: square, average, multiply, divide, clip, scale, subtract. Each is one line.",
        "β₂ is `1 - step**-0.8`. The new averages come before V̂, and V̂ is their outer product over the mean of the "
        "row means.",
        "The update is `grad` over the root of V̂. Divide it by the larger of 1 and RMS(U)/d, then multiply it by `lr` "
        "and by the larger of ε₂ and RMS(X).",
    ],
    praise="What went from step to step was n + m numbers. V̂ and U had n · m, and only for the length of this step.",
)
