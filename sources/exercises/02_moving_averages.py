# %% [markdown]
# You write the average that every optimizer of this course keeps, cure its low start, and find out when Adafactor's own decay rate
# becomes as slow as Adam's.

# %%
import torch

from course_lib import figures

# %% [markdown] task="ema" minutes=8 difficulty="easy" good_for="every optimizer's code: this line is in all of them"
# ## Write the moving average
#
# Write `ema(values, beta)`. `values` is a tensor with one entry for each step along its first axis. Return a tensor of the same shape:
# at each step the average so far,
#
# $$m_t = \beta\, m_{t-1} + (1-\beta)\, x_t, \qquad m_0 = 0.$$
#
# A loop is fine.

# %%
def ema(values, beta):
    """The exponential moving average of `values` along the first axis, at every step; same shape."""
    ### BEGIN SOLUTION
    average, averages = 0.0, []
    for value in values:
        average = beta * average + (1 - beta) * value
        averages.append(average)
    return torch.stack(averages)
    ### END SOLUTION

# %% [markdown] tags=["why"]
# The old average keeps the share β, and the new value gets what is left. Nothing but `average` goes from step to step, so an optimizer
# has to keep one number per parameter, and no history.

# %%
check.ema()

# %%
def against_noise():
    noisy = 1 + torch.randn(200, generator=torch.Generator().manual_seed(0))
    fig, ax = figures.subplots(height=2.6)
    ax.plot(noisy, ".", color=figures.COLORS["muted"], markersize=3)
    for beta, color in ((0.9, "state"), (0.99, "adafactor")):
        ax.plot(ema(noisy, beta), color=figures.COLORS[color], label=f"β = {beta}")
    ax.set(title="Your average of noise around 1", xlabel="step")
    ax.legend()
    figures.show(fig, alt="Noise around 1 and two averages of it: β = 0.9 follows, β = 0.99 is smoother and starts far too low.")

check.preview(against_noise)

# %% [markdown] task="bias_corrected" minutes=5 difficulty="easy" good_for="reading Adam's update"
# ## Correct the start
#
# The average starts at zero, so it is too small at first. Write `bias_corrected(m, t, beta)`: it takes the plain average `m` after `t` steps
# (the first step is `t = 1`) and returns what it would be if the zero at the start did not count. For the series 1, 1, 1, … the result is 1 at every step.

# %%
def bias_corrected(m, t, beta):
    """The average `m` after `t` steps, counted from 1, without the share of the zero at its start."""
    ### BEGIN SOLUTION
    return m / (1 - beta**t)
    ### END SOLUTION

# %% [markdown] tags=["why"]
# The weights of the t values add up to 1 − β**t; the zero at the start has the rest, β**t. Dividing by the sum of the weights turns
# what is left into a true average.

# %%
check.bias_corrected()

# %% [markdown] task="first_step_beyond" minutes=7 difficulty="medium" good_for="judging how long Adafactor remembers"
# ## When is Adafactor as slow as Adam?
#
# Adafactor uses no fixed β but $\beta_2(t) = 1 - t^{-0.8}$, which grows with the step $t$. Write `first_step_beyond(level)`: the first step,
# a whole number, at which $\beta_2(t)$ is *greater* than `level`. Before you run the check, guess: Adam's usual level is 0.999. After 1,000 steps? Sooner? Later?

# %%
def first_step_beyond(level):
    """The first t = 1, 2, 3, … with 1 - t**-0.8 > level; a whole number."""
    ### BEGIN SOLUTION
    t = 1
    while 1 - t**-0.8 <= level:
        t += 1
    return t
    ### END SOLUTION

# %% [markdown] tags=["why"]
# The loop asks the question as it stands. Solved for t it is the next whole number above (1 − level)**(−1.25). A window of 1/(1 − β) steps
# says how far an average with this β looks back, not when β gets there.

# %%
check.first_step_beyond()
