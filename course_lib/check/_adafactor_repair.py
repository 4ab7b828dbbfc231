"""Exercise 05, second task: an optimizer's step with five faults, each of which is looked for by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.averages import adafactor_beta2
from course_lib.check import _values
from course_lib.check._adafactor_step import averaged, clip_by_rms, rms
from course_lib.check._task import Attempt, Belief, Case, Task, Verdict, case, ways, wrong


def _stepped(
    optimizer: torch.optim.Optimizer,
    *,
    compounds: bool = False,
    squares: bool = False,
    unfactored: bool = False,
    eps1: float = 1e-30,
    moves: bool = True,
    stops: bool = False,
) -> None:
    """The repaired step; each switch turns one half-way repair on."""
    lr = optimizer.param_groups[0]["lr"]
    for p in optimizer.param_groups[0]["params"]:
        if p.grad is None and stops:
            break
        if p.grad is None:
            continue
        state, G = optimizer.state[p], p.grad.double()
        t = state["step"] = state.get("step", 0) + 1
        squared = G**2 + eps1

        def average(key: str, value: Tensor, state: dict = state, t: int = t) -> Tensor:
            state[key] = averaged(state.get(key, torch.zeros_like(value)), value, adafactor_beta2(t))
            return state[key]

        if p.ndim < 2 or unfactored:
            root = average("exp_avg_sq", squared).sqrt()
        else:
            R, C = average("exp_avg_sq_row", squared.mean(1)), average("exp_avg_sq_col", squared.mean(0))
            root = torch.outer((R / R.mean()).sqrt(), C.sqrt())
        U = clip_by_rms((G**2 if squares else G) / root, 1.0)
        alpha = lr * max(1e-3, rms(p.detach().double()))
        lr = alpha if compounds else lr
        p.data.sub_(moves * alpha * U)


def _run(
    call: Callable[..., Any], parameters: Mapping[str, Tensor], gradients: list[Mapping[str, Any]], lr: float = 0.1
) -> dict:
    """Steps with these gradients: the parameters after them, and what the optimizer keeps and has changed."""
    named = {name: nn.Parameter(X.clone()) for name, X in parameters.items()}
    optimizer = torch.optim.Optimizer(named.values(), {"lr": lr})
    rates, gone, changed, squared = [], False, False, False
    for given in gradients:
        optimizer.param_groups[0]["lr"] = lr  # so that a changed rate does not look like other faults later on
        for name, p in named.items():
            p.grad = None if given.get(name) is None else given[name].clone()
        call(optimizer)
        rates.append(optimizer.param_groups[0].get("lr") if optimizer.param_groups else None)
        left = [(p.grad, given[name]) for name, p in named.items() if given.get(name) is not None]
        gone |= any(grad is None for grad, _ in left)
        changed |= any(grad is not None and not torch.equal(grad, before) for grad, before in left)
        squared |= any(grad is not None and _negative_no_more(grad, before) for grad, before in left)
        if any(p.shape != parameters[name].shape for name, p in named.items()) or not optimizer.param_groups:
            break
    state = optimizer.state if isinstance(optimizer.state, Mapping) else {}
    return {
        **{name: p.detach() for name, p in named.items()},
        "numbers kept": {name: _kept(state.get(p, {})) for name, p in named.items()},
        "lr": next((rate for rate in rates if not _values.same(rate, lr)), lr),
        "gradients changed": changed or gone,
        "gradients squared": squared,
        "keeps anything": any(bool(kept) for kept in state.values() if isinstance(kept, Mapping)),
    }


def _negative_no_more(grad: Tensor, before: Tensor) -> bool:
    return bool((before < 0).any() and (grad >= 0).all() and grad.any())


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
    matrix = torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]])
    slope = torch.tensor([[0.5, 1.0, -2.0], [0.3, -0.7, 1.0]])

    def run(given: str, parameters: Mapping[str, Tensor], *gradients: Mapping[str, Any]) -> tuple[dict, Case]:
        attempt.given = given
        return _run(attempt, parameters, list(gradients)), case(given=given)

    done, given = run("two steps for a matrix of RMS 0.5", {"matrix": 0.5 * matrix}, *[{"matrix": slope}] * 2)
    if not _values.same(done["lr"], 0.1):
        yield "rate_written_back", given, f"lr = {_values.text(done['lr'])}", "lr = 0.1"
    if done["gradients squared"]:
        yield "squares_grad_in_place", given, "p.grad is changed", "p.grad as backward left it"

    dead = torch.tensor([[1.0, -2.0], [0.0, 0.0], [0.5, 3.0]], dtype=torch.float64)
    for gradient, where in ((dead, "a row"), (0 * dead, "all")):
        done, given = run(
            f"one step; {where} of the gradient is zero", {"matrix": matrix.T.double()}, {"matrix": gradient}
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
        return attempt.task._judge(attempt)
    name, (given, came, expected) = next(iter(faults.items()))
    left = "This one is left" if len(faults) == 1 else f"{len(faults)} of the five faults are left; one of them"
    return wrong(f"{left}: {FAULTS[name]}", name, given=given.given, came=came, expected=expected)


TOUCHED = (
    "None of the five faults is left, but the gradients are not what they were before the step. Clearing or clipping "
    "them is not this function's business: whoever calls it may still want to look at them."
)


def _accept(came: Mapping[str, Any], parameters: Mapping[str, Tensor], *given: Any) -> Verdict | None:
    """None if steps are right; otherwise what about them is not."""
    expected = _run(_stepped, parameters, *given)
    if came["gradients changed"]:
        return wrong(TOUCHED, "touches_gradients", came="p.grad is changed", expected="p.grad as backward left it")
    for name in parameters:
        if not _values.same(came[name], expected[name]):
            says = f"None of the five faults is left, but {name!r} does not end where the lesson's class takes it."
            return wrong(says, came=came[name], expected=expected[name])
    if came["numbers kept"] != expected["numbers kept"]:
        says = "The parameters are right, but what is kept for them is more or less than the lesson's class keeps."
        return wrong(says, came=came["numbers kept"], expected=expected["numbers kept"])
    return None


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
            [
                {name: None if (name, size) == ("first", 0.2) else size * some(*X.shape) for name, X in params.items()}
                for size in (1.0, 0.2, 5.0, 0.01)
            ],
            0.03,
            given="four steps, two matrices and a vector of zeros; in the second step 'first' has no gradient",
        ),
    ]


repaired = Task(
    name="repaired",
    rule=_stepped,
    cases=_repair_cases,
    use=_run,
    accept=_accept,
    judge_with=_judge_repair,
    beliefs=[
        *[Belief(name, says) for name, says in FAULTS.items()],
        Belief(
            "rate_compounds",
            "The setting is safe now, but within one step the second parameter still starts from the first one's "
            "step size. Begin from the given `lr` for each parameter.",
            partial(_stepped, compounds=True),
        ),
        Belief("touches_gradients", TOUCHED),
        Belief(
            "stops_without_gradient",
            "Your step ends at the first parameter that has no gradient, and those behind it stand still. Pass over "
            "that one, and go on with the next.",
            partial(_stepped, stops=True),
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
        ways(
            "eps_too_large",
            "What you add to the squares is larger than the squares of small gradients, which then hardly move "
            "anything. In the lesson ε₁ is 1e-30.",
            *[partial(_stepped, eps1=eps1) for eps1 in (1e-8, 1e-3, 1e-6, 1e-10, 1e-12)],
        ),
        ways(
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
