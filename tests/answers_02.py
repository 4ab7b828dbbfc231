"""Answers to exercise 02."""

import math
from itertools import count

import numpy as np
import pandas as pd
import torch
from answers import right, wrong


@wrong("ema", "swapped_beta")
def _(values, beta):
    m, out = 0.0, []
    for x in values:
        m = m * (1 - beta) + x * beta
        out.append(m)
    return torch.stack(out)


@wrong("ema", "starts_at_first_value")
def _(values, beta):
    out = [values[0].float()]
    for x in values[1:]:
        out.append(torch.lerp(x.float(), out[-1], beta))
    return torch.stack(out)


@wrong("ema", "pandas_adjusted")
def _(values, beta):
    return (
        pd.DataFrame(values.reshape(len(values), -1).numpy())
        .ewm(alpha=1 - beta)
        .mean()
        .to_numpy()
        .reshape(values.shape)
    )


@wrong("ema", "sum_not_average")
def _(values, beta):
    out = values.double().clone()
    for t in range(1, len(out)):
        out[t] += beta * out[t - 1]
    return out


@wrong("ema", "integer_buffer")
def _(values, beta):
    m = torch.zeros(values.shape, dtype=values.dtype)
    m[0] = (1 - beta) * values[0]
    for t in range(1, len(values)):
        m[t] = beta * m[t - 1].double() + (1 - beta) * values[t]
    return m


@wrong("ema", "last_only")
def _(values, beta):
    m = 0
    for x in values:
        m = beta * m + (1 - beta) * x
    return m


@wrong("ema", "mutates_input")
def _(values, beta):
    values[0] = (1 - beta) * values[0]
    for t in range(1, len(values)):
        values[t] = beta * values[t - 1] + (1 - beta) * values[t]
    return values


@right("ema", "a triangular matrix of weights, in NumPy")
def _(values, beta):
    age = np.subtract.outer(np.arange(len(values)), np.arange(len(values)))
    weights = np.where(age >= 0, (1 - beta) * beta ** np.maximum(age, 0.0), 0)
    return np.tensordot(weights, values.numpy(), 1)


@right("ema", "a recursion that returns a list of tensors")
def _(values, beta):
    if len(values) == 0:
        return []
    before = [] if len(values) == 1 else sys_ema(values[:-1], beta)
    last = before[-1] if before else torch.zeros(values.shape[1:])
    return [*before, beta * last + (1 - beta) * values[-1]]


sys_ema = _


@wrong("bias_corrected", "divides_by_one_minus_beta")
def _(m, t, beta):
    return m / (1 - beta)


@wrong("bias_corrected", "counts_from_zero")
def _(m, t, beta):
    return m / (1 - torch.tensor(beta, dtype=torch.float64) ** (t - 1))


@wrong("bias_corrected", "divides_by_beta_power")
def _(m, t, beta):
    return np.asarray(m) / np.power(beta, t, dtype=float)


@wrong("bias_corrected", "multiplies")
def _(m, t, beta):
    return m * (1 - beta**t)


@right("bias_corrected", "with the sum of the weights, one by one")
def _(m, t, beta):
    return m.double().numpy() / math.fsum((1 - beta) * beta**age for age in range(t))


@wrong("first_step_beyond", "window_for_step")
def _(level):
    return int(1 / (1 - level) + 0.5)


@wrong("first_step_beyond", "rounded_down")
def _(level):
    return int((1 - level) ** (-1 / 0.8))


@wrong("first_step_beyond", "sign_of_exponent")
def _(level):
    return (1 - level) ** (1 / 0.8)


@wrong("first_step_beyond", "rounded_to_nearest")
def _(level):
    return round((1 - level) ** (-1 / 0.8))


@right("first_step_beyond", "as a tensor of one number")
def _(level):
    return torch.tensor([next(t for t in count(1) if 1 - t**-0.8 > level)])
