"""Answers to exercise 03."""

import copy
import math
from collections import namedtuple
from functools import reduce

import numpy as np
import torch
from answers import right, wrong
from torch import nn


@wrong("second_moment", "square_of_mean")
def _(gradients, beta):
    m = 0
    for g in gradients:
        m += (1 - beta) * (g - m)
    return m**2


@wrong("second_moment", "square_of_mean", "the plain mean")
def _(gradients, beta):
    return np.mean(gradients.numpy(), axis=0) ** 2


@wrong("second_moment", "variance")
def _(gradients, beta):
    m = v = torch.zeros(gradients.shape[1:])
    for g in gradients:
        m = torch.lerp(g.float(), m, beta)
        v = torch.lerp(g.float().square(), v, beta)
    return v - m.square()


@wrong("second_moment", "variance", "over the steps")
def _(gradients, beta):
    return torch.var(gradients, 0, unbiased=False)


@wrong("second_moment", "variance", "over the steps, torch's default")
def _(gradients, beta):
    return gradients.std(0) ** 2


@wrong("second_moment", "variance", "distance from the running mean")
def _(gradients, beta):
    m, v = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
    for g in gradients:
        m = beta * m + (1 - beta) * g
        v = beta * v + (1 - beta) * (g - m) * (g - m)
    return v


@wrong("second_moment", "variance", "distance from the running mean before")
def _(gradients, beta):
    m, v = torch.zeros_like(gradients[0]), torch.zeros_like(gradients[0])
    for g in gradients:
        v = beta * v + (1 - beta) * (g - m) * (g - m)
        m = beta * m + (1 - beta) * g
    return v


@wrong("second_moment", "variance", "distance from the plain mean")
def _(gradients, beta):
    centred, v = gradients - torch.mean(gradients, 0, keepdim=True), 0
    for g in centred:
        v = beta * v + (1 - beta) * g**2
    return v


@wrong("second_moment", "absolute_value")
def _(gradients, beta):
    size = 0
    for g in gradients.numpy():
        size = size * beta + np.abs(g) * (1 - beta)
    return size


@wrong("second_moment", "first_moment")
def _(gradients, beta):
    total = torch.zeros(gradients[0].shape)
    for g in gradients:
        total = total.mul(beta).add(g, alpha=1 - beta)
    return total


@wrong("second_moment", "swapped_beta")
def _(gradients, beta):
    v = torch.zeros(gradients.shape[1:], dtype=torch.float64)
    for g in gradients.double():
        v += beta * (g * g - v)
    return v


@wrong("second_moment", "sum_not_average")
def _(gradients, beta):
    v = 0
    for g in gradients:
        v = v * beta + g * g
    return v


@wrong("second_moment", "sum_not_average", "as Adagrad")
def _(gradients, beta):
    return sum(g.pow(2) for g in gradients)


@wrong("second_moment", "plain_mean")
def _(gradients, beta):
    return sum(g.pow(2) for g in gradients) / len(gradients)


@wrong("second_moment", "bias_corrected")
def _(gradients, beta):
    weights = torch.tensor([beta**age for age in range(len(gradients))][::-1], dtype=torch.float64)
    return torch.tensordot(weights / weights.sum(), gradients.double() ** 2, dims=1)


@wrong("second_moment", "root_taken")
def _(gradients, beta):
    v = 0
    for g in gradients:
        v = beta * v + (1 - beta) * g**2
    return v**0.5


@wrong("second_moment", "one_number")
def _(gradients, beta):
    v = 0.0
    for g in gradients:
        v = beta * v + (1 - beta) * g.square().mean().item()
    return v


@wrong("second_moment", "one_number", "the squared norm")
def _(gradients, beta):
    v = 0.0
    for g in gradients:
        v = beta * v + (1 - beta) * torch.linalg.vector_norm(g) ** 2
    return v


@wrong("second_moment", "every_step")
def _(gradients, beta):
    v, out = 0, []
    for g in gradients:
        v = beta * v + (1 - beta) * g**2
        out.append(v)
    return torch.stack(out)


@wrong("second_moment", "mutates_input")
def _(gradients, beta):
    v = torch.zeros_like(gradients[0])
    for g in gradients.pow_(2):
        v = beta * v + (1 - beta) * g
    return v


@wrong("second_moment", "starts_at_first_value")
def _(gradients, beta):
    v = gradients[0] ** 2
    for g in gradients[1:]:
        v = torch.lerp(g**2, v, beta)
    return v


@wrong("second_moment", "share_squared")
def _(gradients, beta):
    v = 0
    for g in gradients:
        v = beta * v + ((1 - beta) * g) ** 2
    return v


@wrong("second_moment", "last_square_only")
def _(gradients, beta):
    for g in gradients:
        v = torch.zeros_like(g)
        v = beta * v + (1 - beta) * g**2
    return v


@wrong("second_moment", "only_numbers")
def _(gradients, beta):
    v = 0.0
    for g in gradients:
        v = beta * v + (1 - beta) * float(g) ** 2
    return v


@wrong("second_moment", "matrix_product")
def _(gradients, beta):
    v = 0.0
    for g in gradients:
        v = beta * v + (1 - beta) * (g @ g.T)
    return v


@right("second_moment", "a fold over the steps")
def _(gradients, beta):
    return reduce(lambda v, g: beta * v + (1 - beta) * g * g, gradients, 0).tolist()


@right("second_moment", "weights by age, in NumPy")
def _(gradients, beta):
    ages = np.arange(len(gradients))[::-1]
    return np.einsum("t,t...->...", (1 - beta) * beta**ages, np.square(gradients.numpy()))


@right("second_moment", "what torch.optim.Adam holds")
def _(gradients, beta):
    X = nn.Parameter(torch.zeros_like(gradients[0]))
    optimizer = torch.optim.Adam([X], betas=(0.5, beta))
    for X.grad in gradients.clone():
        optimizer.step()
    return optimizer.state[X]["exp_avg_sq"]


@right("second_moment", "from the last step backwards")
def _(gradients, beta):
    if len(gradients) == 0:
        return 0
    return beta * older(gradients[:-1], beta) + (1 - beta) * gradients[-1].double() ** 2


older = _


@wrong("rmsprop_step", "one_scale_per_matrix")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    scale = v.mean().sqrt() + eps
    return param - lr * grad / scale, v


@wrong("rmsprop_step", "one_scale_per_matrix", "by the norm, eps under the root")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad.pow(2)
    return param - lr / torch.sqrt(torch.sum(v) + eps) * grad, v


@wrong("rmsprop_step", "one_scale_per_matrix", "mean of the roots")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad.pow(2)
    return param - lr * grad / (v.sqrt().mean() + eps), v


@wrong("rmsprop_step", "one_scale_per_matrix", "mean square of the gradient")
def _(param, grad, v, lr, beta, eps):
    mean_square = (grad**2).sum() / grad.numel()
    v = beta * v + (1 - beta) * mean_square
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "one_scale_per_matrix", "v as one number")
def _(param, grad, v, lr, beta, eps):
    v = beta * v.mean() + (1 - beta) * (grad**2).mean()
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "stale_v")
def _(param, grad, v, lr, beta, eps):
    moved = param - lr * grad / (torch.sqrt(v) + eps)
    v = v * beta + grad * grad * (1 - beta)
    return moved, v


@wrong("rmsprop_step", "stale_v", "eps under the root")
def _(param, grad, v, lr, beta, eps):
    return param - lr * grad * torch.rsqrt(v + eps), torch.lerp(grad**2, v, beta)


@wrong("rmsprop_step", "divides_by_v")
def _(param, grad, v, lr, beta, eps):
    v = torch.lerp(grad**2, v, beta)
    return param.sub(lr * grad / (eps + v)), v


@wrong("rmsprop_step", "no_square")
def _(param, grad, v, lr, beta, eps):
    v = torch.lerp(grad, v, beta)
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "swapped_beta")
def _(param, grad, v, lr, beta, eps):
    v = v + beta * (grad**2 - v)
    return param - lr * grad / (v + eps).sqrt(), v


@wrong("rmsprop_step", "sum_not_average")
def _(param, grad, v, lr, beta, eps):
    v = v + grad * grad
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "sum_not_average", "fading")
def _(param, grad, v, lr, beta, eps):
    v = torch.addcmul(beta * v, grad, grad)
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "no_eps")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return param - lr * grad / v.sqrt(), v


@wrong("rmsprop_step", "own_eps")
def _(param, grad, v, lr, beta, eps=1e-8):
    v = beta * v + (1 - beta) * grad**2
    return param - lr * grad / (v.sqrt() + 1e-8), v


@wrong("rmsprop_step", "eps_after_the_division")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return param - lr * grad / torch.sqrt(v) + eps, v


@wrong("rmsprop_step", "eps_after_the_division", "in the update")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    U = lr * grad / torch.sqrt(v) + eps
    return param - U, v


@wrong("rmsprop_step", "climbs")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return torch.addcdiv(param, grad, v.sqrt() + eps, value=lr), v


@wrong("rmsprop_step", "returns_the_step")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "returns_the_step", "with its sign")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return -lr * grad / (v + eps).sqrt(), v


@wrong("rmsprop_step", "old_v_returned")
def _(param, grad, v, lr, beta, eps):
    second = beta * v + (1 - beta) * grad**2
    return param - lr * grad / (second.sqrt() + eps), v


@wrong("rmsprop_step", "wrong_order")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return v, param - lr * grad / (v.sqrt() + eps)


@wrong("rmsprop_step", "mutates_input")
def _(param, grad, v, lr, beta, eps):
    v.mul_(beta).addcmul_(grad, grad, value=1 - beta)
    return param - lr * grad / (v.sqrt() + eps), v


@wrong("rmsprop_step", "mutates_input", "the parameters")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    param -= lr * grad / (v.sqrt() + eps)
    return param, v


@wrong("rmsprop_step", "one_scale_per_matrix", "by rows")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad.square()
    return param - lr * grad / (v.mean(dim=-1, keepdim=True).sqrt() + eps), v


@wrong("rmsprop_step", "one_scale_per_matrix", "by columns")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad.square()
    return param - lr * grad / (v.mean(dim=0).sqrt() + eps), v


@wrong("rmsprop_step", "eps_after_the_division", "times the learning rate")
def _(param, grad, v, lr, beta, eps):
    v = torch.lerp(grad * grad, v, beta)
    return param - lr * (grad / v.sqrt() + eps), v


@wrong("rmsprop_step", "no_learning_rate")
def _(param, grad, v, lr, beta, eps):
    v = torch.lerp(grad * grad, v, beta)
    return param - grad / (eps + v**0.5), v


@wrong("rmsprop_step", "keeps_what_divides", "the root")
def _(param, grad, v, lr, beta, eps):
    v = (beta * v + (1 - beta) * grad**2).sqrt()
    return param - lr * grad / (v + eps), v


@wrong("rmsprop_step", "keeps_what_divides", "eps in v")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2 + eps
    return param - lr * grad / v.sqrt(), v


@wrong("rmsprop_step", "keeps_what_divides", "the whole divisor")
def _(param, grad, v, lr, beta, eps):
    divisor = torch.sqrt(beta * v + (1 - beta) * grad**2) + eps
    return param - lr * grad / divisor, divisor


@wrong("rmsprop_step", "only_the_parameters")
def _(param, grad, v, lr, beta, eps):
    v = beta * v + (1 - beta) * grad**2
    return param - lr * grad / (v.sqrt() + eps)


@right("rmsprop_step", "both in one tensor, by addcdiv")
def _(param, grad, v, lr, beta, eps):
    new = v.mul(beta).addcmul(grad, grad, value=1 - beta)
    return torch.stack([torch.addcdiv(param, grad, new.sqrt().add(eps), value=-lr), new])


Step = namedtuple("Step", "param v")


@right("rmsprop_step", "as a named pair, in float64")
def _(param, grad, v, lr, beta, eps):
    param, grad, v = (x.double() for x in (param, grad, v))
    v = v + (1 - beta) * (grad.square() - v)
    return Step(param - lr * grad / (v.sqrt() + eps), v)


@right("rmsprop_step", "eps under the root")
def _(param, grad, v, lr, beta, eps):
    v = torch.lerp(grad**2, v, beta)
    return [param - lr * grad * torch.rsqrt(v + eps), v]


@right("rmsprop_step", "torch.optim.RMSprop with its state put in")
def _(param, grad, v, lr, beta, eps):
    X = nn.Parameter(param.clone())
    X.grad = grad.clone()
    optimizer = torch.optim.RMSprop([X], lr=lr, alpha=beta, eps=eps)
    optimizer.state[X] = {"step": torch.tensor(3.0), "square_avg": v.clone()}
    optimizer.step()
    return X, optimizer.state[X]["square_avg"]


@right("rmsprop_step", "entry by entry, in NumPy")
def _(param, grad, v, lr, beta, eps):
    new_param, new_v = np.zeros(param.shape), np.zeros(param.shape)
    for place in np.ndindex(*param.shape):
        g = float(grad[place])
        new_v[place] = beta * float(v[place]) + (1 - beta) * g * g
        new_param[place] = float(param[place]) - lr * g / (math.sqrt(new_v[place]) + eps)
    return new_param, new_v


@right("rmsprop_step", "on copies, changed in place")
def _(param, grad, v, lr, beta, eps):
    param, v = copy.deepcopy(param), copy.deepcopy(v)
    v *= beta
    v += (1 - beta) * grad**2
    param -= lr * grad / (v.sqrt() + eps)
    return param, v


@wrong("same_path", "as_sgd")
def _():
    return "d"


@wrong("same_path", "one_for_all")
def _():
    return "a, d"


@wrong("same_path", "common_factor_counts")
def _():
    return ("b", "d")


@wrong("same_path", "turning_is_harmless")
def _():
    return "abcd"


@wrong("same_path", "no_memory")
def _():
    return ["a", "b", "d", "e"]


@wrong("same_path", "loss_value_counts")
def _():
    return "A and B".replace("and", "+")


@right("same_path", "letters in another form")
def _():
    return {"D", "b", "a"}


@right("same_path", "one letter a line")
def _():
    return "d\nb\na"


@right("same_path", "found by trying, with torch.optim.RMSprop")
def _():
    def loss(X):
        return X[0] ** 2 / 2 + 15 * X[1] ** 2

    def walk(changed, turn):
        X = nn.Parameter(turn @ torch.tensor([-2.0, 0.5], dtype=torch.float64))
        optimizer = torch.optim.RMSprop([X], lr=0.015, eps=1e-14)
        path = []
        for t in range(1, 31):
            optimizer.zero_grad()
            changed(turn.T @ X, t).backward()
            optimizer.step()
            path.append(turn.T @ X.detach())
        return torch.stack(path)

    straight, turned = torch.eye(2, dtype=torch.float64), torch.tensor([[1.0, -1.0], [1.0, 1.0]]).double() / 2**0.5
    plain = walk(lambda X, t: loss(X), straight)
    changes = {
        "a": (lambda X, t: 1000 * loss(X), straight),
        "b": (lambda X, t: X[0] ** 2 / 2 + 15_000 * X[1] ** 2, straight),
        "c": (lambda X, t: loss(X), turned),
        "d": (lambda X, t: loss(X) + 1000, straight),
        "e": (lambda X, t: t * loss(X), straight),
    }
    return "".join(name for name, change in changes.items() if torch.allclose(walk(*change), plain, atol=1e-6))


def _numbers(*counts):
    return dict(zip(["sgd", "sgd_momentum", "rmsprop", "adamw"], counts, strict=True))


@wrong("state_numbers", "forgot_bias")
def _(in_features, out_features):
    weight = torch.empty(out_features, in_features).numel()
    return {"sgd": 0, "sgd_momentum": weight, "rmsprop": weight, "adamw": 2 * weight}


@wrong("state_numbers", "bias_of_inputs")
def _(in_features, out_features):
    n = in_features * (out_features + 1)
    return _numbers(0, n, n, 2 * n)


@wrong("state_numbers", "gradient_is_state")
def _(in_features, out_features):
    n = (in_features + 1) * out_features
    return _numbers(n, 2 * n, 2 * n, 3 * n)


@wrong("state_numbers", "gradient_is_state", "for SGD only")
def _(in_features, out_features):
    n = (in_features + 1) * out_features
    return _numbers(n, n, n, 2 * n)


@wrong("state_numbers", "gradient_is_state", "and the weights")
def _(in_features, out_features):
    n = (in_features + 1) * out_features
    return _numbers(*[kept * n + 2 * n for kept in (0, 1, 1, 2)])


@wrong("state_numbers", "one_moment_for_adam")
def _(in_features, out_features):
    n = sum(p.numel() for p in nn.Linear(in_features, out_features).parameters())
    return {"sgd": 0} | dict.fromkeys(["sgd_momentum", "rmsprop", "adamw"], n)


@wrong("state_numbers", "momentum_keeps_nothing")
def _(in_features, out_features):
    n = sum(p.numel() for p in nn.Linear(in_features, out_features).parameters())
    return {"sgd": 0, "sgd_momentum": 0, "rmsprop": n, "adamw": 2 * n}


@wrong("state_numbers", "rmsprop_keeps_both")
def _(in_features, out_features):
    n = sum(p.numel() for p in nn.Linear(in_features, out_features).parameters())
    return {"sgd": 0, "sgd_momentum": n, "rmsprop": 2 * n, "adamw": 2 * n}


@wrong("state_numbers", "already_factored")
def _(in_features, out_features):
    n = (in_features + 1) * out_features
    factors = in_features + out_features + out_features
    return _numbers(0, n, factors, 2 * factors)


@wrong("state_numbers", "already_factored", "AdamW's second average, without the bias")
def _(in_features, out_features):
    n = (in_features + 1) * out_features
    return _numbers(0, n, n, n + in_features + out_features)


@wrong("state_numbers", "already_factored", "momentum as well, without the bias")
def _(in_features, out_features):
    n = in_features + out_features
    return _numbers(0, n, n, 2 * n)


@wrong("state_numbers", "per_parameter")
def _(in_features, out_features):
    return {"sgd": 0, "sgd_momentum": 1, "rmsprop": 1, "adamw": 2}


@wrong("state_numbers", "bytes_counted")
def _(in_features, out_features):
    layer = nn.Linear(in_features, out_features)
    n = sum(p.numel() * p.element_size() for p in layer.parameters())
    return _numbers(0, n, n, 2 * n)


@wrong("state_numbers", "bytes_counted", "in MiB")
def _(in_features, out_features):
    n = 4 * (in_features + 1) * out_features / 1024**2
    return _numbers(0, n, n, 2 * n)


@wrong("state_numbers", "steps_counted", "for momentum too")
def _(in_features, out_features):
    n = (in_features + 1) * out_features + 2
    return _numbers(0, n, n, 2 * (n - 2) + 2)


@wrong("state_numbers", "steps_counted")
def _(in_features, out_features):
    layer = nn.Linear(in_features, out_features)
    n = sum(p.numel() for p in layer.parameters())
    steps = len(list(layer.parameters()))
    return {"sgd": 0, "sgd_momentum": n, "rmsprop": n + steps, "adamw": 2 * n + steps}


@wrong("state_numbers", "steps_counted", "one for AdamW")
def _(in_features, out_features):
    n = out_features * in_features + out_features
    return {"sgd": 0, "sgd_momentum": n, "rmsprop": n, "adamw": n + n + 1}


@right("state_numbers", "counted in PyTorch's own optimizers")
def _(in_features, out_features):
    counts = {}
    for name, make in {
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
        "sgd": torch.optim.SGD,
        "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, momentum=0.5),
    }.items():
        layer = nn.Linear(in_features, out_features)
        optimizer = make(layer.parameters())
        layer(torch.randn(2, in_features)).square().sum().backward()
        optimizer.step()
        kept = [value for state in optimizer.state.values() for value in state.values()]
        counts[name] = sum(value.numel() for value in kept if torch.is_tensor(value) and value.ndim)
    return counts


@right("state_numbers", "as floats and tensors, in another order")
def _(in_features, out_features):
    n = torch.tensor(in_features * out_features + out_features)
    return {"adamw": 2.0 * n, "rmsprop": np.int64(n), "sgd_momentum": n, "sgd": 0.0}
