"""Answers to exercise 02."""

import math
from itertools import accumulate, count

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


@wrong("ema", "same_tensor_each_time")
def _(values, beta):
    m, out = torch.zeros(values.shape[1:]), []
    for x in values:
        m *= beta
        m += (1 - beta) * x
        out.append(m)
    return torch.stack(out)


@wrong("ema", "starts_with_m0")
def _(values, beta):
    out = [torch.zeros(values.shape[1:])]
    for x in values:
        out.append(torch.lerp(x.float(), out[-1], beta))
    return out


@wrong("ema", "starts_with_m0", "and leaves the last one out")
def _(values, beta):
    m, out = np.zeros(values.shape[1:]), []
    for x in values.numpy():
        out.append(m)
        m = beta * m + (1 - beta) * x
    return np.stack(out)


@wrong("ema", "feeds_corrected_value_back")
def _(values, beta):
    m, out = 0, []
    for t in range(len(values)):
        m = beta * m + (1 - beta) * values[t]
        m = m / (1 - beta ** (t + 1))
        out.append(m)
    return torch.stack(out)


@wrong("ema", "averages_the_wrong_axis")
def _(values, beta):
    m, out = 0, []
    for x in values.unbind(dim=-1):
        m = beta * m + (1 - beta) * x
        out.append(m)
    return torch.stack(out, dim=-1)


@wrong("ema", "averages_the_wrong_axis", "number by number")
def _(values, beta):
    m, out = 0.0, np.zeros(values.shape)
    for place in np.ndindex(*values.shape):
        out[place] = m = beta * m + (1 - beta) * float(values[place])
    return out


@wrong("ema", "only_numbers")
def _(values, beta):
    m, out = 0, []
    for x in values:
        m = beta * m + (1 - beta) * x
        out.append(m)
    return torch.tensor(out)


@wrong("ema", "only_numbers", "by item")
def _(values, beta):
    m, out = 0, []
    for x in values:
        m = beta * m + (1 - beta) * x.item()
        out.append(m)
    return out


@wrong("ema", "only_numbers", "a row of zeros")
def _(values, beta):
    out = torch.zeros(len(values))
    for t, x in enumerate(values):
        out[t] = (1 - beta) * x + (beta * out[t - 1] if t else 0)
    return out


@right("ema", "a generator of running totals, as a tuple")
def _(values, beta):
    return tuple(accumulate(((1 - beta) * x.double() for x in values), lambda m, x: beta * m + x))


@right("ema", "as plain lists")
def _(values, beta):
    def mix(old, new):
        if isinstance(new, list):
            return [mix(a, b) for a, b in zip(old or [0] * len(new), new, strict=True)]
        return beta * old + (1 - beta) * new

    m, out = 0, []
    for x in values.tolist():
        m = mix(m, x)
        out.append(m)
    return out


@right("ema", "in place, on a copy each time")
def _(values, beta):
    m, out = torch.zeros(values.shape[1:], dtype=torch.float64), []
    for x in values:
        m.mul_(beta).add_((1 - beta) * x)
        out.append(m.clone())
    return torch.stack(out)


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


@wrong("bias_corrected", "divides_by_beta_power", "in the dtype of the input")
def _(m, t, beta):
    return m / beta**t


@wrong("bias_corrected", "counts_one_too_many")
def _(m, t, beta):
    return m / (1 - beta ** (t + 1))


@wrong("bias_corrected", "adds_the_share_of_zero")
def _(m, t, beta):
    return m + pow(beta, t)


@wrong("bias_corrected", "adds_the_share_of_zero", "parentheses forgotten")
def _(m, t, beta):
    return m / 1 - beta**t


@wrong("bias_corrected", "adds_the_share_of_zero", "taken off, then divided")
def _(m, t, beta):
    zero = beta**t
    return (m - zero) / (1 - zero)


@wrong("bias_corrected", "power_of_the_rest")
def _(m, t, beta):
    return m / (1 - beta) ** t


@wrong("bias_corrected", "only_numbers")
def _(m, t, beta):
    return float(m) / (1 - beta**t)


@wrong("bias_corrected", "mutates_input")
def _(m, t, beta):
    m /= 1 - beta**t
    return m


@right("bias_corrected", "as a growing share, in lists")
def _(m, t, beta):
    left = 1.0
    for _ in range(t):
        left *= beta
    return torch.div(m, 1 - left).tolist()


@right("bias_corrected", "by the exponential function")
def _(m, t, beta):
    return -m / math.expm1(t * math.log(beta))


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


@wrong("first_step_beyond", "sign_of_exponent", "the next whole number")
def _(level):
    return int(pow(1 - level, 1.25)) + 1


@wrong("first_step_beyond", "window_for_step", "the next whole number")
def _(level):
    return math.floor(1 / (1 - level)) + 1


@wrong("first_step_beyond", "rounded_down", "an index")
def _(level):
    steps = np.arange(1, 50_000)
    return int(np.flatnonzero(1 - steps**-0.8 > level)[0])


@wrong("first_step_beyond", "reaches_is_not_beyond")
def _(level):
    t = 1
    while 1 - t**-0.8 < level:
        t += 1
    return t


@wrong("first_step_beyond", "reaches_is_not_beyond", "rounded up")
def _(level):
    return math.ceil((1 - level) ** (-1 / 0.8))


@wrong("first_step_beyond", "exponent_not_turned_over")
def _(level):
    return math.ceil((1 - level) ** -0.8)


@wrong("first_step_beyond", "not_a_whole_number")
def _(level):
    return (1 - level) ** (-1 / 0.8)


@wrong("first_step_beyond", "decay_for_step")
def _(level):
    return next(1 - t**-0.8 for t in count(1) if 1 - t**-0.8 > level)


@wrong("first_step_beyond", "one_step_late")
def _(level):
    t, decay = 1, 0
    while decay <= level:
        decay = 1 - t**-0.8
        t += 1
    return t


@wrong("first_step_beyond", "starts_at_step_zero")
def _(level):
    t = 0
    while 1 - t**-0.8 <= level:
        t += 1
    return t


@wrong("first_step_beyond", "returns_nothing")
def _(level):
    for t in range(1, 10_000):
        if 1 - t**-0.8 > level:
            return t


@right("first_step_beyond", "halving an interval")
def _(level):
    low, high = 1, 2**40
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if 1 - middle**-0.8 > level else (middle + 1, high)
    return low


@right("first_step_beyond", "a search in 32 bits")
def _(level):
    steps = torch.arange(1.0, 30_000.0)
    return steps[1 - steps.pow(-0.8) > level][0]


@right("first_step_beyond", "as a tensor of one number")
def _(level):
    return torch.tensor([next(t for t in count(1) if 1 - t**-0.8 > level)])
