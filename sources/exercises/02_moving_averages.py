# %% [markdown]
# You write the average that every optimizer of this course keeps, cure its low start, and find out when Adafactor's
# growing decay passes Adam's.

# %%
import torch

from course_lib import figures

# %% [markdown] task="ema" minutes=8 difficulty="easy" good_for="every optimizer's code: this line is in all of them"
# ## Write the moving average
#
# Write `ema(values, beta)`. Along its first axis the tensor `values` has one value for each step: $x_1, x_2$, and so
# on. A value is a number, a vector or a matrix. Return the [EMA](../notebooks/glossary.ipynb#EMA) after every step,
# from $m_1$ on, in one tensor of the same shape:
#
# $$m_t = \beta\, m_{t-1} + (1-\beta)\, x_t, \qquad m_0 = 0.$$
#
# The [decay](../notebooks/glossary.ipynb#decay) β is `beta`. A loop is fine.


# %%
def ema(values, beta):
    """The EMA of `values` (shape [steps, ...]) after every step, in the same shape."""
    ### BEGIN SOLUTION
    average, averages = 0.0, []
    for value in values:
        average = beta * average + (1 - beta) * value
        averages.append(average)
    return torch.stack(averages)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The old average keeps the share β, and the new value gets what is left. Nothing but `average` goes from step to
# step, so an optimizer has to keep one number per parameter, and no history.

# %%
check.ema()

# %% [markdown]
# Your average of 200 noisy values around 1, with a short memory and a long one. Where does each of them begin?


# %%
def against_noise():
    noisy = 1 + torch.randn(200, generator=torch.Generator().manual_seed(0))
    fig, ax = figures.subplots(height=2.6)
    ax.plot(noisy, ".", color=figures.COLORS["muted"], markersize=3)
    starts = []
    for beta, color in ((0.9, "state"), (0.99, "adafactor")):
        average = torch.as_tensor(ema(noisy, beta))
        ax.plot(average, color=figures.COLORS[color], label=f"β = {beta}")
        starts.append(f"β = {beta}: {average[9]:.2f} after 10 steps, {average[-1]:.2f} at the end")
    ax.set(title="Your average of noise around 1", xlabel="step")
    ax.legend()
    figures.show(fig, alt=f"200 values around 1, and two averages of them. {'; '.join(starts)}.")


check.preview(against_noise)

# %% [markdown] task="bias_corrected" minutes=5 difficulty="easy" good_for="reading Adam's update"
# ## Correct the start
#
# The average starts at zero, so it is too small at first. Write `bias_corrected(m, t, beta)`: it takes the plain
# average `m` after `t` steps (a tensor of any shape; after the first value `t` is 1) and returns it with
# [bias correction](../notebooks/glossary.ipynb#bias-correction), so that the zero at the start no longer counts. For
# the series 1, 1, 1, … the result is 1 at every step. Leave `m` as it is.


# %%
def bias_corrected(m, t, beta):
    """The average `m` (any shape) after `t` = 1, 2, 3, … steps, with bias correction; same shape."""
    ### BEGIN SOLUTION
    return m / (1 - beta**t)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The weights of the $t$ values add up to $1 - \beta^t$; the zero at the start has the rest, $\beta^t$. Dividing by the
# sum of the weights makes them add up to 1, and the average is a true one.

# %%
check.bias_corrected()

# %% [markdown] task="first_step_beyond" minutes=7 difficulty="medium" good_for="judging how long Adafactor remembers"
# ## When is Adafactor as slow as Adam?
#
# Adafactor uses no fixed β but $\beta_2(t) = 1 - t^{-0.8}$, which grows with the step $t$ = 1, 2, 3, … Write
# `first_step_beyond(level)`: the first step, a whole number, at which $\beta_2(t)$ is *greater* than `level`. The level
# is at least 0 and below 1.
#
# Guess before you write it: when does $\beta_2(t)$ pass Adam's usual 0.999? After 1,000 steps? Sooner? Later?


# %%
def first_step_beyond(level):
    """The first t = 1, 2, 3, … at which 1 - t**-0.8 is greater than `level` (0 <= level < 1)."""
    ### BEGIN SOLUTION
    t = 1
    while 1 - t**-0.8 <= level:
        t += 1
    return t
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The loop asks the question as it stands. Solved for $t$, it is the next whole number above `(1 - level) ** -1.25`. A
# window of 1/(1 − β) steps says how far an average with this β looks back, not when β gets there.

# %%
check.first_step_beyond()

# %% [markdown]
# Your guess, and your function: the step at which $\beta_2(t)$ passes each level, beside the
# [effective window](../notebooks/glossary.ipynb#effective-window) of an average with that decay.


# %%
def passes():
    for level in (0.9, 0.99, 0.999):
        step, window = int(first_step_beyond(level)), round(1 / (1 - level))
        print(f"β = {level:<5}  passed at step {step:>5,}, window {window:>5,} steps")


check.preview(passes)
