# %% [markdown]
# ## Where we are
#
# In lesson 00 you saw AdamW's [optimizer state](glossary.ipynb#optimizer-state) for DistilBERT, 501.9 MiB, shrink to
# 250.9 and then to 0.68. What *are* all these numbers? Nearly every one is a running average of what the gradients did.
# Count them:

# %%
import torch

from course_lib import averages, figures, memory, tasks
from course_lib.diagrams import averages as pictures
from course_lib.explore import Slider, Switch, explore, predict, reveal

model = tasks.distilbert(device="meta")  # shapes only
others = 2 * 4 * model.num_parameters() / 2**20  # MiB of weights and gradients, 4 bytes each
for kind in ("adamw", "rmsprop", "adafactor"):
    size = memory.predict_state_size(model, kind)
    print(f"{kind:9}  {size.moments:>11,} running averages, {size.scalars} step counts: {size.mib:6.2f} MiB", end=", ")
    print(f"in all {others + size.mib:7,.1f}")

# %% [markdown]
# Adam and AdamW keep two for every parameter: one of its gradient $G$, the [first moment](glossary.ipynb#first-moment),
# and one of $G^2$, the [second moment](glossary.ipynb#second-moment). RMSProp, an older optimizer, keeps the second
# only. So does Adafactor, in far fewer numbers. What does such an average remember, and how does it start?

# %% [markdown]
# ## A noisy series and its average
#
# A gradient comes from one small batch, and the next batch gives another. An optimizer wants to know what it
# *usually* is. As a stand-in, here are 300 noisy measurements. They scatter around a true level, which drops halfway.

# %%
level = torch.where(torch.arange(1, 301) <= 150, 1.0, 0.4)
noisy = level + 0.25 * torch.randn(300, generator=torch.Generator().manual_seed(24))

# %% [markdown]
# The mean of the newest 100 values would calm the noise. But it has to keep all 100, to know which one leaves:
# for a model, 100 numbers per parameter. A cheaper idea keeps **one** number, and pulls it a little towards
# each new value.


# %%
def ema(values, beta):
    average, so_far = torch.zeros_like(values[0]), []
    for value in values:
        average = beta * average + (1 - beta) * value
        so_far.append(average)
    return torch.stack(so_far)


# %% [markdown]
# The line in the middle is the whole idea. It is written
#
# $$m_t = \beta\, m_{t-1} + (1 - \beta)\, x_t, \qquad m_0 = 0,$$
#
# where $x_t$ is the value at step $t$ and $m_t$ the average after it.
#
# > **EMA** — exponential moving average: a running average kept in one number, which moves a little towards each new
# > value.

# %% [markdown]
# > **decay** — the β of an EMA, at least 0 and below 1: the share of the old average that survives a step.
#
# A large decay means a long memory.

# %% [markdown]
# Check it by hand with β = 0.9, on two series that differ in order only. A 1 that comes first has faded a
# little by the second step: 0.1, then 0.9 · 0.1 = 0.09. A 1 that comes second has not: 0, then 0.1.

# %%
print("1 then 0:", ema(torch.tensor([1.0, 0.0]), 0.9))
print("0 then 1:", ema(torch.tensor([0.0, 1.0]), 0.9))
torch.testing.assert_close(ema(noisy, 0.9), averages.ema(noisy, 0.9))
print("The course library's ema agrees on all 300 values.")

# %% [markdown]
# PyTorch has the same line as one call: `torch.lerp(old, new, w)` goes the fraction `w` of the way from `old` to
# `new`. With `w` = 1 − β that is an EMA's step, and you will see that `torch.optim` writes it so.

# %%
average = torch.zeros(())
for value in noisy:
    average = torch.lerp(average, value, 1 - 0.9)
print(f"by lerp {average:.6f}, by our ema {ema(noisy, 0.9)[-1]:.6f}")

# %% [markdown]
# Now look. Above: the values, and their average at every step. Below: how much each value weighs in the *last* average.
# Move β up and down. What do you gain by a large β, and what do you lose?

# %% tags=["picture"]
picture = pictures.SeriesAndWeights(noisy, level)
every_value = torch.eye(300)  # explained in the next section


def draw(beta=0.9):
    weights = ema(every_value, beta)[-1]
    return picture.update(ema(noisy, beta), weights, name=f"EMA with β = {beta:.3g}")


explore(draw, beta=Slider(0.0, 0.995, step=0.005, label="β, the decay"))

# %% [markdown]
# With a small β the average is quick and nervous; with a large one it is calm and late. At β = 0 it *is* the newest
# value. Did you also see what happens at the very start when β is large? Keep that in mind; we come back to it.

# %% [markdown]
# ## What it remembers: weights by age
#
# How does a value fade? Feed in a single 1 and then zeros: what comes out at each step is the weight of that 1, as
# it grows older.

# %%
pulse = torch.tensor([1.0, 0, 0, 0, 0, 0])
print("weight by age:", ema(pulse, 0.9))
print("(1 - β) · βᵃ :", (1 - 0.9) * 0.9 ** torch.arange(6))

# %% [markdown]
# A value of age $a$ (0 for the newest) weighs $(1-\beta)\,\beta^a$: an exponential, hence the name. The
# picture above did this for every value at once: in `torch.eye(300)` column $s$ is a series that is 1 at step $s$ only.

# %%
predict("02-window")

# %% tags=["answer"]
weights = ema(torch.eye(1000, dtype=torch.float64), 0.99)[-1]  # oldest first
ages = torch.arange(1000, 0, -1)  # the newest counts as 1
print("The weights of β = 0.99:")
print(f"mean age: {weights @ ages.double():.1f} steps")
print(f"weight older than 100 steps: {weights[:-100].sum():.3f}")
fig, alt = pictures.window_against_cut(weights, window=100)
figures.show(fig, alt=alt)
reveal("02-window")

# %% [markdown]
# The box is the mean of the newest 100 values. The EMA gives a new value the same 1 %, and its weight has a mean age
# of 100, yet it has no edge.
#
# > **effective window** — 1 / (1 − β) steps: the mean age of an EMA's weight, the newest value counted as 1; so about
# > how far back the average looks.

# %% [markdown]
# It is tempting to think that **the window is a hard cut**. See what share of the weight lies beyond it, for three
# windows:

# %% tags=["answer"]
print("Older than the effective window:")
for beta in (0.9, 0.99, 0.999):
    window = round(averages.effective_window(beta))
    older = beta**window  # near 1/e for any long window
    print(f"β = {beta:<5}  window {window:4}, older: {100 * older:.0f} % of the weight")

# %% [markdown]
# You may also have heard that **β = 0.9 means nine values**. Its effective window is 10, and the newest nine values
# hold 61 % of the weight. To gather 90 % takes 22 values.

# %%
for n in (1, 9, 10, 22):
    print(f"the newest {n:2} values hold {100 * ema(torch.ones(n), 0.9)[-1]:.0f} % of the weight")

# %% [markdown]
# ## How late it is: the step response
#
# The same weights say how quickly an average follows a change. Let the value jump from 0 to 1 and stay there.
# What the average does then is called its *step response*.

# %%
jump = torch.ones(10_000)
fig, alt = pictures.step_response({beta: ema(jump, beta) for beta in (0.9, 0.99, 0.999)})
figures.show(fig, alt=alt)

# %% [markdown]
# After $k$ steps it has followed $1 - \beta^k$ of the jump, which is the weight of the newest $k$ values. After one
# effective window that is about 63 %. Calm costs delay: a window ten times as long is ten times as late.

# %% [markdown]
# **A stopping point for a class.** To talk about: which β suits a quantity that changes every 50 steps or so? Take
# your reasons from the figure.

# %% [markdown]
# ## The start at zero
#
# An EMA has to start somewhere, and optimizers start theirs at zero. To see what that does, take away the noise:
# let every value be 1.

# %%
predict("02-zero-start")

# %% tags=["answer"]
kept = ema(torch.ones(500), 0.99)
print("An average of ones that starts at zero:")
print(f"after the first value: {kept[0]:.3f}")
print(f"after ten values:      {kept[9]:.3f}")
fig, alt = pictures.zero_start(kept, beta=0.99, step=10)
figures.show(fig, alt=alt)
reveal("02-zero-start")

# %% [markdown]
# You have met this curve: a start at zero is a jump from 0 to 1. After $t$ values, their weights add up to
# $1 - \beta^t$ only. The rest, $\beta^t$, still lies on the zero at the start. We know how much the values have, so we
# can divide by it.

# %%
t = torch.arange(1, 501)
weight_so_far = 1 - 0.99**t
torch.testing.assert_close(ema(torch.eye(500), 0.99).sum(dim=1), weight_so_far)
for step in (1, 100, 500):
    i = step - 1
    print(f"step {step:3}: kept {kept[i]:.3f} / weight {weight_so_far[i]:.3f} = {kept[i] / weight_so_far[i]:.3f}")

# %% [markdown]
# > **bias correction** — dividing an EMA by 1 − βᵗ, which is what the weights of its t values add up to, so that the
# > start at zero no longer pulls it down.
#
# $$\hat m_t = \frac{m_t}{1 - \beta^t}$$

# %% [markdown]
# It matters in Adam, which divides its average of $G$ by the root of its average of $G^2$. With decays 0.9 and
# 0.999, a first gradient of 1 leaves 0.1 and 0.001. Uncorrected, the first step would be 3.16 times too long.

# %%
first, second = ema(torch.ones(1), 0.9), ema(torch.ones(1) ** 2, 0.999)
print(f"averages {first.item():.3f} and {second.item():.3f}")
print(f"uncorrected: {(first / second.sqrt()).item():.2f}")
print(f"corrected:   {((first / 0.1) / (second / 0.001).sqrt()).item():.2f}")

# %% [markdown]
# It is tempting to think that **the correction changes what is stored**. It must not: it is worked out afresh at each
# step, from a stored average that stays as it is. See what becomes of the ones when the corrected value is kept:

# %%
average = 0.0
for step in range(1, 5):
    average = (0.99 * average + 0.01 * 1.0) / (1 - 0.99**step)  # the mistake
    print(f"step {step}: {average:>8,.1f}")

# %% [markdown]
# ## Where Adam keeps its averages
#
# Time to look inside a real optimizer. This trains a small layer for 20 steps. It returns every gradient of the
# layer's bias (three numbers, short enough to print) and what the optimizer stored for it.


# %%
def train(optimizer_class, steps=20):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3)
    optimizer = optimizer_class(layer.parameters())
    gradients = []
    for batch in torch.randn(steps, 8, 4):
        optimizer.zero_grad()
        layer(batch).square().mean().backward()
        optimizer.step()
        gradients.append(layer.bias.grad.clone())
    return torch.stack(gradients), optimizer.state[layer.bias]


# %%
G, state = train(torch.optim.AdamW)
for name, values, beta in (("exp_avg", G, 0.9), ("exp_avg_sq", G**2, 0.999)):
    print(f"{name:10}  stored {state[name].numpy().round(5)}  ours {ema(values, beta)[-1].numpy().round(5)}")
    torch.testing.assert_close(state[name], ema(values, beta)[-1])

# %% [markdown]
# `exp_avg` is short for exponential average: your `ema` of all gradients, to the last digit shown. `exp_avg_sq` is your
# `ema` of their squares. Both are stored **uncorrected**, and PyTorch's own source has the line you know:

# %%
import inspect

lines = inspect.getsource(inspect.getmodule(torch.optim.Adam)).splitlines()
print(next((line.strip() for line in lines if "exp_avg.lerp_(" in line), "This version of torch writes it otherwise."))

# %% [markdown]
# One word, two meanings. You may have heard that **weight decay is an average of past parameters**. It is not: it
# shrinks a parameter by a fixed share at each step, and keeps nothing. With a gradient of zero you see it alone.

# %%
x = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.AdamW([x], lr=0.1, weight_decay=0.1)
for step in range(1, 4):
    x.grad = torch.zeros(1)
    optimizer.step()
    print(f"step {step}: parameter {x.item():.6f}, exp_avg {optimizer.state[x]['exp_avg'].item():.0f}")

# %% [markdown]
# Each value is 1 − 0.1 · 0.1 = 0.99 of the one before, and so below *all* earlier ones. An average of past values never
# is. And nothing in the state remembers a parameter.

# %% [markdown]
# ## A decay that grows
#
# Adafactor has another cure for the start at zero. Its decay depends on the step $t$:
#
# $$\beta_2(t) = 1 - t^{-0.8}$$
#
# At the first step it is $1 - 1 = 0$: nothing of the zero survives, and there is nothing to correct.


# %%
def beta2(t):
    return 1 - t**-0.8


def ema_varying(values, decay):
    average, so_far = torch.zeros_like(values[0]), []
    for t, value in enumerate(values, start=1):
        average = decay(t) * average + (1 - decay(t)) * value
        so_far.append(average)
    return torch.stack(so_far)


# %%
print("decay:          ", beta2(torch.arange(1, 5)))
print("average of ones:", ema_varying(torch.ones(4), beta2))

# %% [markdown]
# The average of ones is 1 from the first step on. The library has this decay as `averages.adafactor_beta2`, and
# `torch.optim.Adafactor` stores for a bias the average you have written:

# %%
assert beta2(10) == averages.adafactor_beta2(10)
G, state = train(torch.optim.Adafactor)
ours = ema_varying(G**2, beta2)[-1]
print(f"stored {state['variance'].numpy().round(5)}  ours {ours.numpy().round(5)}")
torch.testing.assert_close(state["variance"], ours)

# %% [markdown]
# (The name `variance` is torch's. No mean is subtracted: it is the average of squares.) Now, how fast does this decay
# grow? Adam's usual $\beta_2$ is 0.999 from the first step to the last.

# %%
predict("02-growing-decay")

# %% tags=["answer"]
steps = torch.arange(1, 100_001, dtype=torch.float64)
passes = int(steps[beta2(steps) > 0.999][0])
print("Adafactor's decay at four steps:")
for step in (1, 1_000, passes - 1, passes):
    print(f"β₂({step:,}) = {beta2(step):.7f}")
windows = {"Adafactor, β₂(t)": 1 / (1 - beta2(steps)), "Adam, β₂ = 0.999": torch.full_like(steps, 1000)}
fig, alt = pictures.growing_windows(windows, meet=(passes, 1000))
figures.show(fig, alt=alt)
reveal("02-growing-decay")

# %% [markdown]
# The same formula, $1/(1-\beta)$, taken at step $t$, gives a window of $t^{0.8}$. (The decay was smaller before, so the
# mean age is below it: this is a scale.) After the first step it is always shorter than the training so far, and always
# growing. Early on the average forgets fast; later it is calm.

# %% [markdown]
# Put everything together. Tick *growing β₂(t)* (β and the correction then play no part), and compare with a fixed β,
# corrected or not. Then move *step* to the first dozen: where does the average stand, and what do its weights add to?

# %%
together = pictures.SeriesAndWeights(noisy, level)


def draw(growing=False, corrected=False, beta=0.99, step=300):
    def average(values):
        return ema_varying(values, beta2) if growing else averages.ema(values, beta, corrected)

    weights = average(every_value)[step - 1, :step]
    window = step**0.8 if growing else averages.effective_window(beta)
    name = "Growing β₂(t)" if growing else f"β = {beta:.3g}{', corrected' if corrected else ', as kept'}"
    return together.update(average(noisy), weights, name, window, growing)


controls = {"growing": Switch("growing β₂(t)"), "corrected": Switch("bias correction")}
explore(draw, **controls, beta=Slider(0.0, 0.995, step=0.005, label="fixed β"), step=(1, 300))

# %% [markdown]
# At step 10 the fixed β = 0.99 stands near zero. The correction lifts it to the level; the growing decay is there
# without one. Its weights add to 1 at *every* step:

# %%
torch.testing.assert_close(ema_varying(every_value, beta2).sum(dim=1), torch.ones(300))
print(f"step 10, true level {level[9]:.2f}")
print(f"β = 0.99   {ema(noisy, 0.99)[9]:.2f}")
print(f"corrected  {averages.ema(noisy, 0.99, bias_correction=True)[9]:.2f}")
print(f"growing    {ema_varying(noisy, beta2)[9]:.2f}")

# %% [markdown]
# ## Going deeper: Adam's decay grows, too
#
# You can skip this. A corrected EMA is itself an EMA that needs no correction, with the decay
#
# $$\hat\beta(t) = \beta\,\frac{1 - \beta^{t-1}}{1 - \beta^t},$$
#
# which is 0 at step 1 and grows to β. So the two cures are of one kind.


# %%
def adam(t):
    return 0.999 * (1 - 0.999 ** (t - 1)) / (1 - 0.999**t)


torch.testing.assert_close(ema_varying(noisy, adam), averages.ema(noisy, 0.999, bias_correction=True))
windows["Adam, corrected"] = 1 / (1 - adam(steps))
del windows["Adam, β₂ = 0.999"]
fig, alt = pictures.growing_windows(windows)
figures.show(fig, alt=alt)

# %% [markdown]
# On this scale Adam's window begins as $t$: its average is nearly the plain mean of all values so far. It stops growing
# at 1,000. Adafactor's is shorter at first, and never stops growing.

# %% [markdown]
# ## Outlook: the same average under many names
#
# Open the state of any of these optimizers, and beside `step` you find EMAs. Here is what each stores for a bias. Of
# every number you can now say what it is: a running average, and of what.

# %%
for optimizer_class in (torch.optim.AdamW, torch.optim.Adafactor, torch.optim.RMSprop):
    G, state = train(optimizer_class)
    print(f"{optimizer_class.__name__:10}", *(name for name in state if name != "step"))

# The last one, RMSProp, has a decay of 0.99 unless you set another.
torch.testing.assert_close(state["square_avg"], ema(G**2, 0.99)[-1])

# %% [markdown]
# `exp_avg_sq`, `variance`, `square_avg`: three names for an average of $G^2$. For a matrix Adafactor keeps EMAs too,
# only far fewer; lesson 04 shows of what. Next, in lesson 03: what these averages are *for*.

# %% [markdown]
# ## For those who are done early
#
# The exponent −0.8 is a choice. With −1 the decay is $1 - 1/t$. Write out the first three averages of
# $x_1, x_2, x_3$: which well-known average is it? The next cell has the answer.

# %% tags=["answer"]
with_minus_one = ema_varying(noisy, lambda t: averages.adafactor_beta2(t, decay_rate=-1.0))
plain_mean = noisy.cumsum(dim=0) / torch.arange(1, 301)
torch.testing.assert_close(with_minus_one, plain_mean)
print("What you should find:")
print("first three averages:", with_minus_one[:3])
print("With exponent -1 it is the plain mean of all values so far: it never forgets.")

# %% [markdown]
# ## Recap
#
# - An EMA keeps one number and moves it the share 1 − β towards each new value; weights fade as $(1-\beta)\beta^a$.
# - Its effective window is 1 / (1 − β). It is not a cut: about 37 % of the weight is older.
# - A start at zero pulls it down. Dividing by $1-\beta^t$ corrects what is *used*, never what is stored.
# - Adafactor's $\beta_2(t) = 1 - t^{-0.8}$ starts at 0, so its average needs no correction.
# - `exp_avg` and `exp_avg_sq`, nearly all of AdamW's state, are EMAs: of the gradient and of its square.

# %% [markdown]
# ## Sources
#
# - EMA in Adam and its bias correction: Kingma & Ba 2015, [arXiv 1412.6980](https://arxiv.org/abs/1412.6980),
#   Algorithm 1 and section 3.
# - Growing decay, and Adam's correction as a growing decay: Shazeer & Stern 2018,
#   [arXiv 1804.04235](https://arxiv.org/abs/1804.04235), section 7; the exponent 0.8: Algorithm 6.
# - Weight decay apart from the averages: Loshchilov & Hutter 2019, [arXiv 1711.05101](https://arxiv.org/abs/1711.05101),
#   Algorithm 2.
# - PyTorch: [`torch.lerp`](https://docs.pytorch.org/docs/stable/generated/torch.lerp.html),
#   [`AdamW`](https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html),
#   [`Adafactor`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html).
