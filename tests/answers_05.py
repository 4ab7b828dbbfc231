"""Answers to exercise 05."""

import math

import numpy as np
import torch
from answers import right, wrong
from torch import nn

from course_lib.adafactor import Adafactor


def front(grad, row, col, step, eps1):
    """The first five stages: the unclipped update and the new averages."""
    share = step**-0.8
    squared = grad.square().add(eps1)
    row = torch.lerp(row, squared.mean(-1), share)
    col = torch.lerp(col, squared.mean(-2), share)
    return grad * (row / row.mean()).rsqrt()[:, None] * col.rsqrt()[None, :], row, col


def size(x):
    return (x**2).mean() ** 0.5


def finished(param, U, lr, eps2):
    return param - lr * torch.clamp(size(param), min=eps2) * U


def clipping_with(clip):
    """A step that is right but for the clipping."""

    def answer(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
        U, row, col = front(grad, row, col, step, eps1)
        return finished(param, clip(U, d), lr, eps2), row, col

    return answer


wrong("adafactor_step", "always_divides_by_rms")(clipping_with(lambda U, d: U / (size(U) / d)))
wrong("adafactor_step", "always_divides_by_rms", "safely")(
    clipping_with(lambda U, d: d * U / torch.sqrt(U.square().mean() + 1e-24))
)
wrong("adafactor_step", "always_divides_by_rms", "and forgets d")(clipping_with(lambda U, d: U / size(U)))
wrong("adafactor_step", "l2_clip")(clipping_with(lambda U, d: U * min(1, d / torch.sqrt(torch.sum(U * U)))))
wrong("adafactor_step", "l2_clip", "always")(clipping_with(lambda U, d: d * nn.functional.normalize(U, dim=(0, 1))))
wrong("adafactor_step", "max_clip")(clipping_with(lambda U, d: U / torch.clamp(U.abs().amax() / d, min=1)))
wrong("adafactor_step", "clamps_entries")(
    clipping_with(lambda U, d: torch.minimum(torch.maximum(U, 0 * U - d), 0 * U + d))
)
wrong("adafactor_step", "clamps_entries", "above only")(clipping_with(lambda U, d: torch.where(U > d, d, U)))
wrong("adafactor_step", "no_clipping")(clipping_with(lambda U, d: U))
wrong("adafactor_step", "threshold_misplaced")(clipping_with(lambda U, d: U / max(d, size(U))))
wrong("adafactor_step", "threshold_misplaced", "d is not used")(clipping_with(lambda U, d: U / max(1, size(U))))
wrong("adafactor_step", "threshold_misplaced", "scaled to 1")(
    clipping_with(lambda U, d: U / size(U) if size(U) > d else U)
)
wrong("adafactor_step", "min_for_max")(clipping_with(lambda U, d: U / torch.clamp(size(U) / d, max=1)))


@wrong("adafactor_step", "clips_the_step")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(grad, row, col, step, eps1)
    U = lr * max(eps2, size(param)) * U
    if size(U) > d:
        U *= d / size(U)
    return param - U, row, col


def clipped(U, d):
    return U * d / size(U) if size(U) > d else U


def scaling_with(scale):
    """A step that is right but for the step size."""

    def answer(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
        U, row, col = front(grad, row, col, step, eps1)
        return param - scale(param, lr, eps2, step) * clipped(U, d), row, col

    return answer


@wrong("adafactor_step", "clips_the_gradient")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(grad, row, col, step, eps1)
    return finished(param, U / torch.clamp(size(grad) / d, min=1), lr, eps2), row, col


@wrong("adafactor_step", "clips_the_gradient", "before anything else, by its length")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    grad = grad * min(1.0, d / max(1e-12, grad.norm().item()))
    U, row, col = front(grad, row, col, step, eps1)
    return finished(param, U, lr, eps2), row, col


wrong("adafactor_step", "no_parameter_scale")(scaling_with(lambda X, lr, eps2, t: lr))
wrong("adafactor_step", "no_floor")(scaling_with(lambda X, lr, eps2, t: lr * size(X)))
wrong("adafactor_step", "floor_added")(scaling_with(lambda X, lr, eps2, t: lr * (size(X) + eps2)))
wrong("adafactor_step", "ceiling_for_floor")(
    scaling_with(lambda X, lr, eps2, t: lr * (eps2 if eps2 < size(X) else size(X)))
)
wrong("adafactor_step", "epsilons_fixed")(scaling_with(lambda X, lr, eps2, t: lr * max(0.001, size(X))))
wrong("adafactor_step", "own_rate")(
    scaling_with(lambda X, lr, eps2, t: min(0.01, 1 / math.sqrt(t)) * max(eps2, size(X)))
)
wrong("adafactor_step", "own_rate", "lr for the cap")(
    scaling_with(lambda X, lr, eps2, t: min(lr, 1 / math.sqrt(t)) * max(eps2, size(X)))
)
wrong("adafactor_step", "own_rate", "times lr")(
    scaling_with(lambda X, lr, eps2, t: lr * min(0.01, 1 / math.sqrt(t)) * max(eps2, size(X)))
)
wrong("adafactor_step", "scale_of_something_else")(
    scaling_with(lambda X, lr, eps2, t: lr * max(eps2, torch.linalg.matrix_norm(X)))
)
wrong("adafactor_step", "scale_of_something_else", "entry by entry")(
    scaling_with(lambda X, lr, eps2, t: lr * torch.maximum(X.abs(), torch.full_like(X, eps2)))
)


def averaging_with(decay, mean=lambda squared: (squared.mean(1), squared.mean(0))):
    """A step with another decay or other means."""

    def answer(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
        b = decay(step)
        r, c = mean(grad * grad + eps1)
        row, col = row * b + r * (1 - b), col * b + c * (1 - b)
        V = row.reshape(-1, 1) * col.reshape(1, -1) / row.mean()
        return finished(param, clipped(grad / torch.sqrt(V), d), lr, eps2), row, col

    return answer


def growing(t):
    return 1 - t ** (-0.8)


wrong("adafactor_step", "step_starts_at_zero")(averaging_with(lambda t: 1 - math.pow(t + 1, -0.8)))
wrong("adafactor_step", "step_starts_at_zero", "divides by zero")(averaging_with(lambda t: 1 - (t - 1) ** (-0.8)))
wrong("adafactor_step", "step_starts_at_zero", "as a tensor")(
    averaging_with(lambda t: 1 - torch.pow(torch.as_tensor(float(t - 1)), -0.8))
)
wrong("adafactor_step", "constant_beta2")(averaging_with(lambda t: 0.999))
wrong("adafactor_step", "constant_beta2", "0.9")(averaging_with(lambda t: 0.9))
wrong("adafactor_step", "decay_turned_round")(averaging_with(lambda t: 1 - growing(t)))
wrong("adafactor_step", "decay_turned_round", "sign of the exponent")(averaging_with(lambda t: 1 - t**0.8))
wrong("adafactor_step", "no_memory")(averaging_with(lambda t: 0))
wrong("adafactor_step", "axes_swapped")(averaging_with(growing, lambda s: (s.mean(0), s.mean(1))))
wrong("adafactor_step", "sums")(averaging_with(growing, lambda s: (s.sum(1), s.sum(0))))


@wrong("adafactor_step", "axes_swapped", "and V̂ turned round, so that it fits again")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    b = growing(step)
    squared = grad.square() + eps1
    row, col = b * row + (1 - b) * squared.mean(dim=0), b * col + (1 - b) * squared.mean(dim=1)
    U = grad / torch.sqrt(col[:, None] * row[None, :] / row.mean())
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "epsilons_fixed", "both")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(grad, row, col, step, 1e-30)
    return finished(param, clipped(U, d), lr, 1e-3), row, col


@wrong("adafactor_step", "square_of_mean")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    b = growing(step)
    row = b * row + (1 - b) * (grad.mean(1) ** 2 + eps1)
    col = b * col + (1 - b) * (grad.mean(0) ** 2 + eps1)
    U = grad / torch.sqrt(torch.outer(row, col) / row.mean())
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "eps_swapped")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(grad, row, col, step, eps2)
    return finished(param, clipped(U, d), lr, eps1), row, col


def estimating_with(divide):
    def answer(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
        _, R, C = front(grad, row, col, step, eps1)
        return finished(param, clipped(divide(grad, R, C, row, col), d), lr, eps2), R, C

    return answer


wrong("adafactor_step", "stale_averages")(
    estimating_with(lambda G, R, C, row, col: G / (torch.outer(row, col) / row.mean()).sqrt())
)
wrong("adafactor_step", "stale_averages", "but not at the first step")(
    estimating_with(
        lambda G, R, C, row, col: (
            G / torch.sqrt(torch.outer(row, col) / row.mean() if row.sum() > 0 else torch.outer(R, C) / R.mean())
        )
    )
)
wrong("adafactor_step", "no_division")(estimating_with(lambda G, R, C, row, col: G / (R[:, None] * C).sqrt()))
wrong("adafactor_step", "no_division", "by the sum")(
    estimating_with(lambda G, R, C, row, col: G / (R[:, None] * C / R.sum()).sqrt())
)
wrong("adafactor_step", "no_root")(estimating_with(lambda G, R, C, row, col: G / (R[:, None] * C / R.mean())))


@wrong("adafactor_step", "eps1_too_late")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    _, row, col = front(grad, row, col, step, 0.0)
    U = grad / (torch.sqrt(torch.outer(row, col) / row.mean()) + eps1)
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "eps1_too_late", "not at all")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    b = growing(step)
    row, col = b * row + (1 - b) * (grad**2).mean(1), b * col + (1 - b) * (grad**2).mean(0)
    U = grad / torch.sqrt(torch.outer(row, col) / row.mean())
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "climbs")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(-grad, row, col, step, eps1)
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "old_averages_returned")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, new_row, new_col = front(grad, row, col, step, eps1)
    return finished(param, clipped(U, d), lr, eps2), row, col


@wrong("adafactor_step", "returns_the_step")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    U, row, col = front(grad, row, col, step, eps1)
    return lr * max(eps2, size(param)) * clipped(U, d), row, col


@wrong("adafactor_step", "mutates_input")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    squared = grad**2 + eps1
    row.mul_(1 - step**-0.8).add_(squared.mean(1) * step**-0.8)
    col.mul_(1 - step**-0.8).add_(squared.mean(0) * step**-0.8)
    U = grad / (torch.outer(row, col) / row.mean()).sqrt()
    return finished(param, clipped(U, d), lr, eps2), row, col


@right("adafactor_step", "in NumPy, with loops, as a list")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    X, G = param.double().numpy(), grad.double().numpy()
    n, m = X.shape
    b = 1 - math.exp(-0.8 * math.log(step))
    R = [b * float(row[i]) + (1 - b) * sum(g * g + eps1 for g in G[i]) / m for i in range(n)]
    C = [b * float(col[j]) + (1 - b) * sum(g * g + eps1 for g in G[:, j]) / n for j in range(m)]
    U = np.array([[G[i, j] / math.sqrt(R[i] * C[j] / (sum(R) / n)) for j in range(m)] for i in range(n)])
    if math.sqrt(np.mean(U**2)) > d:
        U = U * d / math.sqrt(np.mean(U**2))
    return [X - lr * max(eps2, math.sqrt(np.mean(X**2))) * U, R, C]


@right("adafactor_step", "in plain Python, as lists of lists")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    def root_mean_square(rows):
        return math.sqrt(sum(x * x for line in rows for x in line) / sum(map(len, rows)))

    X, G, R, C = (x.tolist() for x in (param, grad, row, col))
    share = step**-0.8
    squared = [[g * g + eps1 for g in line] for line in G]
    R = [old + share * (sum(line) / len(line) - old) for old, line in zip(R, squared, strict=True)]
    C = [old + share * (sum(line) / len(line) - old) for old, line in zip(C, zip(*squared, strict=True), strict=True)]
    mean = sum(R) / len(R)
    U = [[g / math.sqrt(r / mean * c) for g, c in zip(line, C, strict=True)] for line, r in zip(G, R, strict=True)]
    rate = lr * max(eps2, root_mean_square(X)) / max(1.0, root_mean_square(U) / d)
    return [[x - rate * u for x, u in zip(*lines, strict=True)] for lines in zip(X, U, strict=True)], R, C


@right("adafactor_step", "divided by the mean of the columns, clipped the other way round")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    _, R, C = front(grad, row, col, step, eps1)
    U = grad / (R.unsqueeze(1) @ C.unsqueeze(0) / C.mean()).sqrt()
    U = U * torch.clamp(d / size(U), max=1.0)
    return param - U * lr * (size(param) if size(param) > eps2 else eps2), R, C


@right("adafactor_step", "with the library's optimizer")
def _(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    p = nn.Parameter(param.double().clone())
    p.grad = grad.double()
    optimizer = Adafactor([p], lr=lr, eps=(eps1, eps2), clip_threshold=d, relative_step=False)
    state = optimizer.state[p]
    state["step"] = torch.tensor(step - 1.0)
    state["exp_avg_sq_row"], state["exp_avg_sq_col"] = row.double().clone(), col.double().clone()
    optimizer.step()
    return p, state["exp_avg_sq_row"], state["exp_avg_sq_col"]


def average(state, key, value, beta2):
    state[key] = beta2 * state.get(key, torch.zeros_like(value)) + (1 - beta2) * value
    return state[key]


def rms(x):
    return x.square().mean().sqrt()


@wrong("repaired", "rate_written_back", "the faulty step as it stands in the notebook")
@torch.no_grad()
def _(optimizer):
    group = optimizer.param_groups[0]
    group["step"] = group.get("step", 0) + 1
    beta2 = 1 - group["step"] ** -0.8
    for p in group["params"]:
        if p.grad is None:
            continue
        state = optimizer.state[p]
        squared = p.grad.square_()
        R = average(state, "row", squared.mean(dim=-1, keepdim=True), beta2)
        C = average(state, "col", squared.mean(dim=0, keepdim=True), beta2)
        U = p.grad / (R * C / R.mean()).sqrt()
        U = U / max(1.0, rms(U))
        group["lr"] = group["lr"] * max(1e-3, rms(p))
        p -= group["lr"] * U


def repairing(fault, *others):
    """All faults repaired but these."""
    left = {fault, *others}

    @torch.no_grad()
    def answer(optimizer):
        for group in optimizer.param_groups:
            rate = group["lr"]
            group.setdefault("t", 0)
            if "counts steps" in left:
                group["t"] += 1
            for p in group["params"]:
                if p.grad is None:
                    if "returns early" in left:
                        return
                    if "counts without gradient" in left:
                        optimizer.state[p]["t"] = optimizer.state[p].get("t", 0) + 1
                    continue
                state = optimizer.state[p]
                if "counts parameters" in left:
                    group["t"] += 1
                if {"counts steps", "counts parameters"} & left:
                    t = group["t"]
                else:
                    t = state["t"] = state.get("t", 0) + 1
                b = 1 - t**-0.8
                eps = 0.0 if {"no eps", "eps at the root"} & left else 1e-8 if "usual eps" in left else 1e-30
                G = p.grad.clone() if "squares grad after a copy" in left else p.grad
                if {"squares grad", "squares grad after a copy"} & left:
                    squared = p.grad.pow_(2).add_(eps)
                elif "squares a copy" in left:
                    G = p.grad.clone()
                    squared = G.mul_(G) + eps
                else:
                    squared = torch.pow(p.grad, 2) + eps
                if p.dim() == 2 and "keeps V" not in left:
                    V = average(state, "R", squared.mean(1, keepdim=True), b)
                    V = V * average(state, "C", squared.mean(0, keepdim=True), b) / V.mean()
                elif "vector as one number" in left:
                    V = average(state, "V", squared.mean(), b) * torch.ones_like(p)
                elif "vector as a column" in left:
                    V = average(state, "R", squared[:, None].mean(1), b)
                    average(state, "C", squared[:, None].mean(0), b)
                else:
                    V = average(state, "V", squared, b)
                U = G / (V.sqrt() + (1e-8 if "eps at the root" in left else 0.0))
                if "torch clip" in left:
                    U = U / torch.clamp(rms(U), min=1.0)
                else:
                    U = U / max(1.0, rms(U))
                alpha = rate * max(1e-3, rms(p).item())
                if "writes lr" in left:
                    group["lr"] *= max(1e-3, rms(p).item())
                    alpha = group["lr"]
                if "compounds" in left:
                    rate = alpha
                if "makes a new tensor" in left:
                    p = p - alpha * U
                else:
                    p.sub_(alpha * U)
                if "clears gradients" in left:
                    p.grad = None

    return answer


wrong("repaired", "rate_written_back")(repairing("writes lr"))
wrong("repaired", "rate_written_back", "and another")(repairing("writes lr", "no eps"))
wrong("repaired", "rate_compounds")(repairing("compounds"))
wrong("repaired", "stops_without_gradient")(repairing("returns early"))
wrong("repaired", "touches_gradients")(repairing("clears gradients"))
wrong("repaired", "squares_grad_in_place")(repairing("squares grad"))
wrong("repaired", "squares_grad_in_place", "but divides a copy")(repairing("squares grad after a copy"))
wrong("repaired", "squared_update")(repairing("squares a copy"))
wrong("repaired", "zero_row_nan")(repairing("no eps"))
wrong("repaired", "zero_row_nan", "everywhere")(repairing("no eps", "torch clip"))
wrong("repaired", "zero_row_nan", "a later eps")(repairing("eps at the root"))
wrong("repaired", "eps_too_large")(repairing("usual eps"))
wrong("repaired", "vector_factored")(repairing("vector as one number"))
wrong("repaired", "vector_factored", "one column")(repairing("vector as a column"))
wrong("repaired", "shared_step")(repairing("counts steps"))
wrong("repaired", "shared_step", "one count for each parameter that steps")(repairing("counts parameters"))
wrong("repaired", "shared_step", "counts without a gradient")(repairing("counts without gradient"))
wrong("repaired", "squares_grad_in_place", "and two more")(repairing("squares grad", "no eps", "counts steps"))
wrong("repaired", "vector_factored", "and another")(repairing("vector as one number", "counts steps"))
wrong("repaired", "nothing_factored")(repairing("keeps V"))


wrong("repaired", "nothing_happens", "a new tensor")(repairing("makes a new tensor"))


@wrong("repaired", "nothing_happens")
def _(optimizer):
    class Repaired(torch.optim.Optimizer):
        def step(self):
            raise RuntimeError("never called")

    return Repaired


@wrong("repaired", "touches_gradients", "clipped by their length")
def _(optimizer):
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
    repairing("nothing")(optimizer)


right("repaired", "over all groups, with columns and rows")(repairing("nothing"))


@right("repaired", "the rate written, and put back")
def _(optimizer):
    group = optimizer.param_groups[0]
    for p in group["params"]:
        given = group["lr"]
        one = torch.optim.Optimizer([p], {"lr": given})
        one.state = optimizer.state
        group["lr"] = 0.0
        repairing("nothing")(one)
        group["lr"] = given


@right("repaired", "with the library's optimizer")
def _(optimizer):
    params = optimizer.param_groups[0]["params"]
    real = Adafactor(params, lr=optimizer.param_groups[0]["lr"], relative_step=False)
    real.state = optimizer.state
    real.step()


@right("repaired", "one list of averages for each parameter, through .data")
def _(optimizer):
    (group,) = optimizer.param_groups
    for p in filter(lambda p: p.grad is not None, group["params"]):
        s, G = optimizer.state[p], p.grad.detach()
        if not s:
            s["step"], s["means"] = torch.zeros(1), [torch.zeros(k).to(p.dtype) for k in p.shape]
        s["step"] += 1
        keep = 1 - s["step"].item() ** -0.8
        squares = G * G + 1e-30
        for axis, old in enumerate(s["means"]):
            others = [k for k in range(G.ndim) if k != axis]
            old.mul_(keep).add_((1 - keep) * (squares.mean(others) if others else squares))
        V = s["means"][0] if G.ndim == 1 else torch.einsum("i,j->ij", *s["means"]) / s["means"][1].mean()
        U = G * V**-0.5
        p.data -= group["lr"] * max(0.001, rms(p.data)) * U / max(1, rms(U))


EVERYTHING = ["factoring", "growing decay", "clipping", "relative step", "RMS scaling"]
UPDATE = EVERYTHING[:3]


def card(**columns):
    """The right card but for these columns."""
    parts = {"paper": EVERYTHING, "transformers": EVERYTHING, "trainer": UPDATE, "torch": EVERYTHING, **columns}
    return lambda: {name: set(column) for name, column in parts.items()}


def without(*parts):
    return [part for part in EVERYTHING if part not in parts]


wrong("switch_card", "lists_what_is_off")(
    card(paper=[], transformers=[], trainer=["relative step", "RMS scaling"], torch=[])
)
wrong("switch_card", "nothing_switched_off")(card(trainer=EVERYTHING))
wrong("switch_card", "trainer_uses_relative_step")(card(trainer=without("RMS scaling")))
wrong("switch_card", "trainer_uses_relative_step", "and torch none")(
    card(trainer=EVERYTHING, torch=without("relative step", "clipping"))
)
wrong("switch_card", "trainer_scales_by_rms")(card(trainer=without("relative step")))
wrong("switch_card", "torch_equals_trainer")(card(torch=UPDATE))
wrong("switch_card", "default_equals_trainer")(card(transformers=UPDATE))
wrong("switch_card", "torch_rate_is_constant")(card(torch=without("relative step")))
wrong("switch_card", "torch_without_scaling")(card(torch=without("RMS scaling")))
wrong("switch_card", "torch_without_clipping")(card(torch=without("clipping")))
wrong("switch_card", "paper_without_scaling")(card(paper=without("RMS scaling")))
wrong("switch_card", "trainer_switches_off_more")(card(trainer=["factoring", "growing decay"]))


@right("switch_card", "lists, other spellings")
def _():
    full = ["Factoring", "decay", "update clipping", "relative_step", "rms-scaling"]
    return {"Torch": full, "Trainer": full[:3], "Paper": full, "Transformers": tuple(full)}


@right("switch_card", "True and False")
def _():
    on = dict.fromkeys(EVERYTHING, True)
    trainer = {**on, "relative step": False, "RMS scaling": False}
    return {"paper": on, "transformers": on, "trainer": trainer, "torch": on}
