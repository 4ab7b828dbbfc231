"""Exercise 05: write one step of Adafactor, repair a step with five faults, and fill in the switch card."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.averages import adafactor_beta2
from course_lib.check import _values
from course_lib.check._task import Attempt, Belief, Case, Task, Verdict, case, wrong

Step = tuple[Tensor, Tensor, Tensor]


def _belief(name: str, says: str, *rules: Callable[..., Any]) -> Belief:
    return Belief(name, says, rules)


def _rms(x: Tensor) -> Tensor:
    return x.square().mean().sqrt()


def _clip(size: Callable[[Tensor], Tensor]) -> Callable[[Tensor, float], Tensor]:
    return lambda U, d: U / max(1.0, size(U) / d)


_clip_by_rms = _clip(_rms)


def _average(old: Tensor, new: Tensor, b: float) -> Tensor:
    return b * old + (1 - b) * new


def _stepping(
    *,
    beta2: Callable[[int], float] = adafactor_beta2,
    square: Callable[[Tensor, float], Tensor] = lambda G, eps1: G**2 + eps1,
    means: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda squared: (squared.mean(1), squared.mean(0)),
    average: Callable[[Tensor, Tensor, float], Tensor] = _average,
    estimate: Callable[..., Tensor] = lambda new, old: torch.outer(*new) / new[0].mean(),
    divide: Callable[[Tensor, Tensor, float], Tensor] = lambda G, V, eps1: G / V.sqrt(),
    clip: Callable[[Tensor, float], Tensor] = _clip_by_rms,
    scale: Callable[[float, Tensor, float], Any] = lambda lr, X, eps2: lr * max(eps2, _rms(X)),
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


def _swap_eps(*args: Any) -> Step:
    return _step(*args[:7], args[8], args[7])


def _clips_the_step(param: Tensor, *args: Any) -> Step:
    """The threshold is applied to the whole step, after the rate and the scale."""
    moved, *kept = _stepping(clip=lambda U, d: U)(param, *args)
    return (param - _clip_by_rms(param - moved, args[5]), *kept)


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
    cases=_step_cases,
    beliefs=[
        _belief(
            "always_divides_by_rms",
            "You divide every update by its RMS, so a quiet update is scaled *up*. Clipping is a ceiling: it touches "
            "an update only if its RMS is above `d`.",
            _stepping(clip=lambda U, d: U * d / _rms(U)),
            _stepping(clip=lambda U, d: U / _rms(U)),
            _stepping(clip=lambda U, d: U * d / _rms(U).clamp(min=1e-12)),
            _stepping(clip=lambda U, d: U / _rms(U).clamp(min=1e-12)),
        ),
        _belief(
            "l2_clip",
            "You measure the update by its length, the root of the *sum* of squares. That grows with the matrix; the "
            "threshold `d` is for the RMS, the root of the mean.",
            _stepping(clip=_clip(torch.linalg.norm)),
            _stepping(clip=lambda U, d: U * d / U.norm()),
            _stepping(clip=lambda U, d: U * d / U.norm().clamp(min=1e-12)),
        ),
        _belief(
            "max_clip",
            "You measure the update by its largest entry, so one entry alone decides. The threshold `d` is for the RMS "
            "of the whole update.",
            _stepping(clip=_clip(lambda U: U.abs().max())),
            _stepping(clip=lambda U, d: U * d / U.abs().max()),
        ),
        _belief(
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
        Belief(
            "no_clipping",
            "Nothing clips the update. A sudden gradient makes a step several times as long as it should be.",
            _stepping(clip=lambda U, d: U),
        ),
        _belief(
            "threshold_misplaced",
            "The clipping is right for `d` = 1 only. It acts where RMS(U) is above `d`, and then brings it down to "
            "exactly `d`.",
            _stepping(clip=lambda U, d: U / max(1.0, _rms(U))),
            _stepping(clip=lambda U, d: U / max(d, _rms(U))),
            _stepping(clip=lambda U, d: U / max(1.0, _rms(U) * d)),
            _stepping(clip=lambda U, d: d * U / max(1.0, _rms(U))),
            _stepping(clip=lambda U, d: U / _rms(U) if _rms(U) > d else U),
        ),
        Belief(
            "min_for_max",
            "The smaller of 1 and RMS(U)/d divides the update: large updates pass, and quiet ones are blown up. Take "
            "the larger of the two.",
            _stepping(clip=lambda U, d: U / min(1.0, _rms(U) / d)),
        ),
        _belief(
            "no_parameter_scale",
            "The step does not depend on the size of the parameters: `lr` alone scales it. With RMS scaling small "
            "parameters take small steps.",
            _stepping(scale=lambda lr, X, eps2: lr),
        ),
        Belief(
            "no_floor",
            "RMS(X) has no floor, so parameters of zero would stay zero forever. One of the two ε is there for that.",
            _stepping(scale=lambda lr, X, eps2: lr * _rms(X)),
        ),
        Belief(
            "floor_added",
            "You add ε₂ to RMS(X). It is a floor, not an addition: the larger of the two counts.",
            _stepping(scale=lambda lr, X, eps2: lr * (eps2 + _rms(X))),
        ),
        Belief(
            "eps_swapped",
            "The two ε have changed places. The tiny one, `eps1`, is added to G² so that nothing is divided by zero; "
            "`eps2` is the floor under RMS(X).",
            _swap_eps,
        ),
        _belief(
            "own_rate",
            "Your step size uses min(0.01, 1/√t). Here the rate is given: `lr` stands where ρₜ stood, whatever `step` "
            "is.",
            lambda *args: _step(*args[:5], min(1e-2, args[4] ** -0.5), *args[6:]),
            lambda *args: _step(*args[:5], min(args[5], args[4] ** -0.5), *args[6:]),
            lambda *args: _step(*args[:5], args[5] * min(1e-2, args[4] ** -0.5), *args[6:]),
        ),
        _belief(
            "scale_of_something_else",
            "The step size needs one number for the size of all parameters, their RMS. Yours is another one.",
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.norm())),
            _stepping(scale=lambda lr, X, eps2: lr * X.abs().clamp(min=eps2)),
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.abs().mean())),
            _stepping(scale=lambda lr, X, eps2: lr * max(eps2, X.std())),
        ),
        _belief(
            "step_starts_at_zero",
            "Your steps are off by one. The first one is `step` = 1: there β₂ is exactly 0, and the average is today's "
            "value, whole.",
            _stepping(beta2=lambda t: 1 - (t - 1) ** -0.8),
            _stepping(beta2=lambda t: 1 - torch.tensor(t - 1.0) ** -0.8),
            _stepping(beta2=lambda t: 1 - max(t - 1, 1) ** -0.8),
            _stepping(beta2=lambda t: 1 - (t + 1) ** -0.8),
        ),
        _belief(
            "constant_beta2",
            "Your decay is the same at every step. Adafactor's grows, from 0 at the first step; a constant one starts "
            "from the zeros in `row` and `col`, and the first steps come out too long.",
            *[_stepping(beta2=lambda t, b=b: b) for b in (0.999, 0.99, 0.9, 0.98, 0.95, 0.8, 0.2)],
        ),
        _belief(
            "decay_turned_round",
            "Your decay shrinks where it should grow. It is 0 at step 1, when there is nothing to remember yet, and "
            "comes close to 1 later: the exponent of t is negative, and the *old* average gets β₂.",
            _stepping(beta2=lambda t: t**-0.8),
            _stepping(beta2=lambda t: 1 - t**0.8),
        ),
        _belief(
            "no_memory",
            "What comes in as `row` and `col` is not used, or not as an average: the old one keeps the share β₂, the "
            "new value gets 1 − β₂.",
            _stepping(average=lambda old, new, b: new),
            _stepping(average=lambda old, new, b: old + new),
            _stepping(average=lambda old, new, b: b * old + new),
        ),
        Belief(
            "stale_averages",
            "You divide by averages that have not seen this gradient yet. Renew them first; at step 1 they are zero.",
            _stepping(estimate=lambda new, old: torch.outer(*old) / old[0].mean()),
        ),
        _belief(
            "axes_swapped",
            "Rows and columns have changed places. A row mean goes along its row, over the *last* axis, and there is "
            "one for each row.",
            _stepping(means=lambda squared: (squared.mean(0), squared.mean(1))),
        ),
        _belief(
            "sums",
            "You keep sums of rows and columns. `row` and `col` come in as averages of *means*, so means go on.",
            _stepping(means=lambda squared: (squared.sum(1), squared.sum(0))),
            _stepping(
                means=lambda squared: (squared.sum(1), squared.sum(0)),
                estimate=lambda new, old: torch.outer(*new) / new[0].sum(),
            ),
        ),
        _belief(
            "square_of_mean",
            "You average the gradient first and square afterwards; by then plus and minus have cancelled.",
            _stepping(square=lambda G, eps1: (G, eps1), means=lambda g: [g[0].mean(dim) ** 2 + g[1] for dim in (1, 0)]),
        ),
        _belief(
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
        _belief(
            "eps1_too_late",
            "ε₁ comes in too late. It is added to G², before anything is averaged; then R and C are never zero, and "
            "there is nothing to divide by zero.",
            _stepping(square=lambda G, eps1: G**2, divide=lambda G, V, eps1: G / (V.sqrt() + eps1)),
            _stepping(square=lambda G, eps1: G**2, divide=lambda G, V, eps1: G / (V + eps1).sqrt()),
            _stepping(square=lambda G, eps1: (G**2, eps1), means=lambda s: [s[0].mean(dim) for dim in (1, 0)]),
        ),
        _belief(
            "climbs",
            "The step goes uphill: the gradient points to where the loss grows, so the step is *subtracted*.",
            _stepping(finish=lambda X, step, new, old: (X + step, *new)),
        ),
        _belief(
            "old_averages_returned",
            "The parameters are right, but `row` and `col` go back as they came. The next step would not know that "
            "this one has been.",
            _stepping(finish=lambda X, step, new, old: (X - step, *old)),
        ),
        _belief(
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


def _stepped(
    optimizer: torch.optim.Optimizer,
    *,
    compounds: bool = False,
    squares: bool = False,
    unfactored: bool = False,
    eps1: float = 1e-30,
    moves: bool = True,
) -> None:
    """The repaired step; each switch turns one half-way repair on."""
    lr = optimizer.param_groups[0]["lr"]
    for p in optimizer.param_groups[0]["params"]:
        if p.grad is None:
            continue
        state, G = optimizer.state[p], p.grad.double()
        t = state["step"] = state.get("step", 0) + 1
        squared = G**2 + eps1

        def average(key: str, value: Tensor, state: dict = state, t: int = t) -> Tensor:
            state[key] = _average(state.get(key, torch.zeros_like(value)), value, adafactor_beta2(t))
            return state[key]

        if p.ndim < 2 or unfactored:
            root = average("exp_avg_sq", squared).sqrt()
        else:
            R, C = average("exp_avg_sq_row", squared.mean(1)), average("exp_avg_sq_col", squared.mean(0))
            root = torch.outer((R / R.mean()).sqrt(), C.sqrt())
        U = _clip_by_rms((G**2 if squares else G) / root, 1.0)
        alpha = lr * max(1e-3, _rms(p.detach().double()))
        lr = alpha if compounds else lr
        p.data.sub_(moves * alpha * U)


def _run(
    call: Callable[..., Any], parameters: Mapping[str, Tensor], gradients: list[Mapping[str, Any]], lr: float = 0.1
) -> dict:
    """Steps with these gradients: the parameters after them, and what the optimizer keeps and has changed."""
    named = {name: nn.Parameter(X.clone()) for name, X in parameters.items()}
    optimizer = torch.optim.Optimizer(named.values(), {"lr": lr})
    spoiled = cleared = False
    for given in gradients:
        for name, p in named.items():
            p.grad = None if given.get(name) is None else given[name].clone()
        call(optimizer)
        left = {name: p.grad for name, p in named.items() if given.get(name) is not None}
        spoiled |= any(grad is not None and not torch.equal(grad, given[name]) for name, grad in left.items())
        cleared |= any(grad is None for grad in left.values())
        if any(p.shape != parameters[name].shape for name, p in named.items()):
            break
    state = optimizer.state if isinstance(optimizer.state, Mapping) else {}
    return {
        **{name: p.detach() for name, p in named.items()},
        "numbers kept": {name: _kept(state.get(p, {})) for name, p in named.items()},
        "lr": optimizer.param_groups[0].get("lr"),
        "gradients changed": spoiled or cleared,
        "gradients spoiled": spoiled,
        "keeps anything": any(bool(kept) for kept in state.values() if isinstance(kept, Mapping)),
    }


def _kept(state: Any) -> int:
    """Numbers kept for a parameter, single ones and the count of its steps aside."""
    if isinstance(state, Mapping):
        return sum(_kept(value) for key, value in state.items() if "step" not in str(key))
    if isinstance(state, (list, tuple)):
        return sum(map(_kept, state))
    return state.numel() if isinstance(state, Tensor) and state.ndim else 0


FAULTS = {
    "rate_written_back": "`lr` is not what it was before the step. Each parameter multiplies the rate that the next "
    "one finds, until nothing moves any more. The step size belongs to one parameter and one step, the setting in the "
    "group to whoever made the optimizer.",
    "squares_grad_in_place": "The gradients are not what they were before the step. A method whose name ends in `_` "
    "changes its tensor: from then on `p.grad` holds squares, and no sign.",
    "zero_row_nan": "A row without any gradient, such as that of a token that is not in the batch, becomes NaN: 0 is "
    "divided by 0. Something tiny has to be added in time.",
    "vector_factored": "A vector is treated like a matrix. It has no rows and columns, and nothing is gained by "
    "factoring it: keep one number for each of its entries.",
    "shared_step": "A parameter that gets its first gradient late is treated as if it had taken steps before. Its "
    "average starts at zero at *its* first step, so β₂ has to be 0 there: each parameter needs a count of its own.",
}


def _faults(attempt: Attempt) -> Iterator[tuple[str, Case, str, str]]:
    """The faults that are still in the step, each seen by itself: name, input, what came out, what was expected."""
    matrix = torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])  # of RMS 1: a rate times that is the same rate
    slope = torch.tensor([[0.5, 1.0, -2.0], [0.3, -0.7, 1.0]])

    def run(given: str, parameters: Mapping[str, Tensor], *gradients: Mapping[str, Any]) -> tuple[dict, Case]:
        attempt.given = given
        return _run(attempt, parameters, list(gradients)), case(given=given)

    done, given = run("two steps for a matrix of RMS 0.5", {"matrix": 0.5 * matrix}, *[{"matrix": slope}] * 2)
    if not _values.same(done["lr"], 0.1):
        yield "rate_written_back", given, f"lr = {_values.text(done['lr'])}", "lr = 0.1"
    if done["gradients spoiled"]:
        yield "squares_grad_in_place", given, "p.grad is changed", "p.grad as backward left it"

    dead = torch.tensor([[1.0, -2.0], [0.0, 0.0], [0.5, 3.0]], dtype=torch.float64)
    for gradient, named in ((dead, "one row of"), (0 * dead, "all entries of")):
        done, given = run(
            f"one step; {named} the gradient are zero", {"matrix": matrix.T.double()}, {"matrix": gradient}
        )
        if done["matrix"].isnan().any():
            yield "zero_row_nan", given, _values.text(done["matrix"]), "numbers"
            break

    vector = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    done, given = run("one step for a vector of 5 entries", {"vector": vector}, {"vector": vector.flip(0)})
    kept = done["numbers kept"]["vector"]
    moved = not torch.equal(done["vector"], vector)
    if (kept < 5 or kept == 6) and moved and done["keeps anything"]:
        yield "vector_factored", given, f"{kept} numbers kept for it", "5 numbers kept for it"

    both = {"early": matrix, "late": matrix.T}
    own = [{"late": slope.T}, {"late": 0.1 * slope.T}]
    alone, _ = run("two steps for a matrix", both, *own)
    after, given = run(
        "the same two steps for a matrix, after three in which only another one had a gradient",
        both, *[{"early": slope}] * 3, *own,
    )  # fmt: skip
    if not _values.same(after["late"], alone["late"]):
        yield "shared_step", given, _values.text(after["late"]), f"{_values.text(alone['late'])}, as without those"


def _judge_repair(attempt: Attempt) -> Verdict:
    """Look for each fault by itself; without any, compare the numbers."""
    faults = {name: found for name, *found in _faults(attempt)}
    if not faults:
        verdict = attempt.task._judge(attempt)
        says = verdict.says or "None of the five faults is left, but the numbers are not those of the lesson's class."
        return replace(verdict, says=says)
    name, (given, came, expected) = next(iter(faults.items()))
    left = "This one is left" if len(faults) == 1 else f"{len(faults)} of the five faults are left; one of them"
    return wrong(f"{left}: {FAULTS[name]}", name, given=given.given, came=came, expected=expected)


def _repair_cases() -> list[Case]:
    make = torch.Generator().manual_seed(5)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, generator=make, dtype=torch.float64)

    params = {"first": some(3, 4), "bias": torch.zeros(4, dtype=torch.float64), "second": 0.05 * some(5, 2)}
    single = {"matrix": some(4, 3).float(), "vector": some(6).float()}
    return [
        case(
            single,
            [{k: 1e-5 * some(*X.shape).float() for k, X in single.items()}],
            0.2,
            given="one step with small gradients, a matrix and a vector",
        ),
        case(
            params,
            [{name: size * some(*X.shape) for name, X in params.items()} for size in (1.0, 0.2, 5.0, 0.01)],
            0.03,
            given="four steps, two matrices of unequal size and a vector of zeros",
        ),
    ]


repaired = Task(
    name="repaired",
    rule=_stepped,
    cases=_repair_cases,
    use=_run,
    judge_with=_judge_repair,
    beliefs=[
        *[Belief(name, says) for name, says in FAULTS.items()],
        Belief(
            "rate_compounds",
            "The setting is safe now, but within one step the second parameter still starts from the first one's "
            "step size. Begin from the given `lr` for each parameter.",
            partial(_stepped, compounds=True),
        ),
        Belief(
            "squared_update",
            "`p.grad` stays as it was now, but the update is still made of squares: nothing in it is ever negative. "
            "Divide the gradient itself.",
            partial(_stepped, squares=True),
        ),
        Belief(
            "nothing_factored",
            "Now the matrices keep all of V as well. Only vectors should: for a matrix the step keeps one number for "
            "each row and each column.",
            partial(_stepped, unfactored=True),
        ),
        _belief(
            "eps_too_large",
            "What you add to the squares is larger than the squares of small gradients, which then hardly move "
            "anything. In the lesson ε₁ is 1e-30.",
            *[partial(_stepped, eps1=eps1) for eps1 in (1e-8, 1e-3, 1e-6, 1e-10, 1e-12)],
        ),
        _belief(
            "nothing_happens",
            "After your step all parameters are what they were. It works in place: it changes the parameters of "
            "`optimizer`, and returns nothing. (`p = p - …` only makes a new tensor.)",
            lambda optimizer: None,
            partial(_stepped, moves=False),
        ),
    ],
    hints=[
        "For each line ask: what does it change besides the parameters and their own state? Two lines change too much.",
        "Then try three inputs in your head: a gradient with a row of zeros, a parameter that is a vector, and one "
        "that has no gradient in the first steps.",
        "Count in `state`; add 1e-30 to a new tensor of squares; ask for `p.ndim`, and average the squares of a vector "
        "as they are; give the product of rate and RMS a name of its own.",
    ],
    praise="All five let a training run without an error. What finds them is a comparison with known numbers.",
)


PARTS = {
    "factoring": ("factor",),
    "growing decay": ("growing", "decay", "beta2", "β"),
    "clipping": ("clip", "update clip"),
    "relative step": ("relative", "rho", "ρ"),
    "RMS scaling": ("rms", "scal"),
}
COLUMNS = ("paper", "transformers", "trainer", "torch")
CARD = {
    "lists_what_is_off": "You list the parts that are *off*. Asked are those that are on.",
    "nothing_switched_off": "You leave every part on everywhere. One of the four switches two of them off: lesson 06 "
    "will begin with that.",
    "trainer_uses_relative_step": "You let Trainer take relative steps. It has a learning rate and a scheduler of its "
    "own, and those would have no say then.",
    "trainer_scales_by_rms": "You let Trainer multiply its rate by RMS(X). In the lesson, its first step was as long "
    "for small parameters as for large ones.",
    "torch_equals_trainer": "You switch off in torch's class what Trainer switches off. The name is the same, the "
    "algorithm is not: at RMS(X) = 0.05 and one `lr`, one of them went 20 times as far in the lesson.",
    "default_equals_trainer": "You switch off in the default of `transformers` what Trainer switches off. Made by "
    "hand without any setting, the class follows the paper; it is Trainer that passes other settings.",
    "torch_rate_is_constant": "You take torch's `lr` for a plain rate. Its default is 0.01, and the step size is the "
    "smaller of that and 1/√t: no setting turns this off.",
    "torch_without_scaling": "You leave RMS scaling out of torch's class. It has no switch for it because it is always "
    "on.",
    "torch_without_clipping": "You leave clipping out of torch's class. Its argument for the threshold is called `d`, "
    "as in the paper, and is 1.",
    "paper_without_scaling": "You leave RMS scaling out of the paper. There it belongs to the relative step: a share "
    "of the parameters' own size.",
    "trainer_switches_off_more": "You switch more off in Trainer than it does. It changes how far a step goes, and "
    "leaves the update itself as it is.",
}


@cache
def _card() -> dict[str, frozenset[str]]:
    """The parts that are on, as the libraries' own optimizers show by their steps."""
    from course_lib.diagrams import switch_card as libraries

    columns = libraries.card().values()
    return {
        name: frozenset(part for part, (on, _) in zip(PARTS, column, strict=True) if on)
        for name, column in zip(COLUMNS, columns, strict=True)
    }


def _part(written: Any) -> str | None:
    """The part that is meant; None if none is."""
    text = str(written).casefold().replace("_", " ").replace("-", " ").strip()
    starts = [(part, start) for part, known in PARTS.items() for start in (part.casefold(), *known)]
    return next((part for part, start in starts if text.startswith(start)), None)


def _accept_card(came: Any) -> Verdict | None:
    said: dict[str, frozenset[str]] = {}
    if not isinstance(came, Mapping):
        return wrong(_values.difference(came, {}), came=came, expected=f"a dictionary with {', '.join(COLUMNS)}")
    lower = {str(key).casefold(): value for key, value in came.items()}
    for name in COLUMNS:
        if name not in lower:
            return wrong(f"The key {name!r} is missing.", came=list(came), expected=list(COLUMNS))
        column = lower[name]
        if isinstance(column, Mapping):
            column = [part for part, on in column.items() if on]
        if not isinstance(column, (list, tuple, set, frozenset)):
            return wrong(f"Under {name!r} a set of parts is asked.", came=column, expected=f"some of {list(PARTS)}")
        if strange := [part for part in column if _part(part) is None]:
            return wrong(
                f"Under {name!r}: this is none of the parts.", came=strange[0], expected=f"one of {list(PARTS)}"
            )
        said[name] = frozenset(map(_part, column))
    if said == _card():
        return None
    name = next((name for name, holds in _card_beliefs(said) if holds), "")
    if name:
        return wrong(CARD[name], name)
    column = next(name for name in COLUMNS if said[name] != _card()[name])
    differ = len(said[column] ^ _card()[column])
    text = f"Under {column!r}, {differ} of the five parts {'are' if differ > 1 else 'is'} not as in the library."
    return wrong(text, came=[part for part in PARTS if part in said[column]] or "no part")


def _card_beliefs(said: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, bool]]:
    everything, card = frozenset(PARTS), _card()
    lost = {name: everything - parts for name, parts in said.items()}
    both = everything - card["trainer"]
    yield "lists_what_is_off", said == {name: everything - parts for name, parts in card.items()}
    yield "nothing_switched_off", not any(lost.values())
    yield "trainer_uses_relative_step", "relative step" in said["trainer"]
    yield "trainer_scales_by_rms", "RMS scaling" in said["trainer"]
    yield "torch_equals_trainer", both <= lost["torch"]
    yield "default_equals_trainer", both <= lost["transformers"]
    yield "torch_rate_is_constant", "relative step" in lost["torch"]
    yield "torch_without_scaling", "RMS scaling" in lost["torch"]
    yield "torch_without_clipping", "clipping" in lost["torch"]
    yield "paper_without_scaling", "RMS scaling" in lost["paper"]
    yield "trainer_switches_off_more", both < lost["trainer"]


switch_card = Task(
    name="switch_card",
    rule=lambda: {name: set(parts) for name, parts in _card().items()},
    accept=_accept_card,
    beliefs=[Belief(name, says) for name, says in CARD.items()],
    hints=[
        "Only one of the four differs from the others. Which of them comes with a learning rate and a scheduler?",
        "Two parts decide how far a step goes. Who sets the rate from outside needs both out of the way.",
        "In the lesson, Trainer's settings were `lr=1e-3, scale_parameter=False, relative_step=False`. torch's class "
        "has no such switches; its first step at RMS(X) = 0.05 was 20 times as short.",
    ],
    praise="You agree with the libraries' own optimizers, which this check has watched taking a few steps.",
)
