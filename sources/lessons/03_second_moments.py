# %% [markdown]
# ## Where we are
#
# For DistilBERT, AdamW keeps 501.9 MiB: two averages for every entry of every gradient, one of $G$ and one of $G^2$.
# Adafactor saves twice. It drops the first average, which leaves 250.9 MiB; then it packs the second into 0.68. Here
# you learn what the two are for, what the first saving is worth, and what there is left to pack.

# %%
import torch

from course_lib import averages, figures, memory, moments, tasks
from course_lib.diagrams import build_up, valley
from course_lib.diagrams import moments as pictures
from course_lib.explore import Choice, Slider, explore, predict, reveal

distilbert = tasks.distilbert(device="meta")  # shapes only
weights = 4 * distilbert.num_parameters() / 2**20  # MiB in fp32; the gradients take as much
for kind, keeps in (("adamw", "of G and of G²"), ("rmsprop", "of G² only"), ("adafactor", "of G², packed")):
    size = memory.predict_state_size(distilbert, kind)
    print(f"averages {keeps:15} {size.mib:7.2f} MiB, with weights and gradients {size.mib + 2 * weights:7,.1f}")

# %% [markdown]
# ## Two averages for every entry
#
# Start with one layer: 512 inputs, 1,024 outputs, no bias. PyTorch keeps its weight in the shape `[out, in]`: one row
# for each output, one column for each input. Its gradient $G$ has the same shape.

# %%
predict("03-linear-state")

# %% tags=["answer"]
layer = torch.nn.Linear(512, 1024, bias=False)
optimizer = torch.optim.AdamW(layer.parameters())
layer(torch.randn(8, 512)).square().mean().backward()
optimizer.step()
print("AdamW keeps for the weight:")
for name, value in optimizer.state[layer.weight].items():
    print(f"{name:10}  shape {tuple(value.shape)!s:12}  {value.numel():>7,} numbers")
reveal("03-linear-state")

# %% [markdown]
# Beside a count of the steps there are two matrices, each as large as the weight. You know them from lesson 02:
# `exp_avg` is the EMA of the gradients, `exp_avg_sq` the EMA of their squares. They have names.

# %% [markdown]
# > **first moment** — the moving average of the gradient, entry by entry. We write it M.
#
# > **second moment** — the moving average of the squared gradient, entry by entry. We write it V.

# %% [markdown]
# In formulas, with $G_t$ the gradient at step $t$, its square taken entry by entry, and Adam's usual decays
# $\beta_1 = 0.9$ and $\beta_2 = 0.999$:
#
# $$M_t = \beta_1 M_{t-1} + (1-\beta_1)\, G_t \qquad\qquad V_t = \beta_2 V_{t-1} + (1-\beta_2)\, G_t^2$$

# %% [markdown]
# Why two? They answer two questions. Which way does an entry point *on average*? And how large *is* it, whichever way
# it points? Here are two made-up entries. One is small and mostly agrees with itself; the other is large and
# cannot make up its mind.

# %%
noise = torch.randn(200, 2, generator=torch.Generator().manual_seed(3))
G = torch.tensor([0.3, 0.0]) + torch.tensor([0.1, 2.0]) * noise  # shape [steps, entries]
M = averages.ema(G, 0.9, bias_correction=True)
V = averages.ema(G**2, 0.99, bias_correction=True)
fig, alt = pictures.two_entries(G, M, V)
figures.show(fig, alt=alt)

# %% [markdown]
# On the left, $M$ is nearly as large as $\sqrt V$. On the right, plus and minus cancel in $M$, but not in $V$: a
# square has no sign. The root brings the square back to the gradient's own unit. Adam steps by their ratio:

# %%
ratio = (M / V.sqrt()).abs()
for k, name in enumerate(("steady", "undecided")):
    print(f"{name:9} entry: |M| / √V is {ratio[50:, k].mean():.2f} on average, |G| is {G[50:, k].abs().mean():.2f}")

# %% [markdown]
# Times the learning rate, that is how far each parameter moves. The steady entry goes at almost full speed, although
# its gradient is far smaller. The undecided one mostly waits.

# %% [markdown]
# ## Not a variance
#
# Now to the second moment alone, in numbers that you can work out in your head. In four steps one gradient entry was
# 2, −2, 4 and 0. For once take the plain mean over the four steps.

# %%
predict("03-mean-of-squares")

# %% tags=["answer"]
g = torch.tensor([2.0, -2.0, 4.0, 0.0])
variance, squared_mean = g.var(correction=0), g.mean().square()
print("Four ways to sum up 2, -2, 4 and 0:")
print(f"mean of squares {g.square().mean():.0f}, variance {variance:.0f}", end=", ")
print(f"square of the mean {squared_mean:.0f}, mean size {g.abs().mean():.0f}")
print("variance + square of the mean = second moment:", end=" ")
print(f"{variance:.0f} + {squared_mean:.0f} = {variance + squared_mean:.0f}")
reveal("03-mean-of-squares")

# %% [markdown]
# It is tempting to think that **V is a variance**. (`torch.optim.Adafactor` even calls it so.) A variance subtracts the
# mean first; a second moment does not. The difference shows best on a gradient that never changes:

# %%
g = torch.tensor([3.0, 3.0, 3.0, 3.0])
by_moment, by_variance = g / g.square().mean().sqrt(), g / g.var(correction=0).sqrt()
print(f"over the root of the second moment: {by_moment[-1]:.0f}   over the root of the variance: {by_variance[-1]}")

# %% [markdown]
# ## From SGD to Adam, one line at a time
#
# An optimizer turns the gradient $G$ into an [update](glossary.ipynb#update) $U$, and takes $\alpha\, U$ off the
# parameters $X$, where $\alpha$ is the learning rate. Everything it wants to remember for the next step goes into its
# state:


# %%
def descend(rule, gradient, start, rate, steps):
    X, state, path = start, {"step": 0}, [start]
    for _ in range(steps):
        state["step"] += 1
        X = X - rate * rule(gradient(X), state)
        path.append(X)
    return torch.stack(path), state


# %% [markdown]
# Only the `rule` differs from optimizer to optimizer. **SGD** (stochastic gradient descent) uses the gradient as it
# comes, and keeps nothing:

# %%
fig, alt = build_up.flow("SGD")
figures.show(fig, alt=alt)


# %%
def sgd(G, state):
    return G


# %% [markdown]
# **Momentum** steps along the first moment. In the pictures, what has a solid frame is kept until the next step. The
# EMA is that of lesson 02, with bias correction; what is stored stays uncorrected.

# %%
fig, alt = build_up.flow("momentum")
figures.show(fig, alt=alt)


# %%
def average(state, name, value, beta):
    state[name] = beta * state.get(name, 0) + (1 - beta) * value
    return state[name] / (1 - beta ** state["step"])


def momentum(G, state):
    return average(state, "M", G, 0.9)


# %% [markdown]
# (`torch.optim.SGD` with `momentum=0.9` adds the gradients up instead of averaging them. When they all point the same
# way, its steps become ten times as long.)

# %%
X = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([X], lr=0.1, momentum=0.9)
for _ in range(200):
    X.grad = torch.ones(1)
    optimizer.step()
print(f"torch's momentum after 200 gradients of 1: {optimizer.state[X]['momentum_buffer'].item():.2f}")

# %% [markdown]
# **RMSProp** keeps the other one. It divides each entry of the gradient by the root of its own second moment. (The
# 1e-8 in the code keeps an entry without any gradient from dividing by zero.)

# %%
fig, alt = build_up.flow("RMSProp")
figures.show(fig, alt=alt)


# %%
def rmsprop(G, state):
    V = average(state, "V", G**2, 0.99)
    return G / (V.sqrt() + 1e-8)


# %% [markdown]
# **Adam** is both at once: momentum on top, RMSProp below. And it keeps both averages. AdamW is Adam with weight decay,
# which keeps nothing.

# %%
fig, alt = build_up.flow("Adam")
figures.show(fig, alt=alt)


# %%
def adam(G, state):
    M = average(state, "M", G, 0.9)
    V = average(state, "V", G**2, 0.99)
    return M / (V.sqrt() + 1e-8)


# %% [markdown]
# Let all four go down the same valley. Its loss is $\tfrac12 x_1^2 + 15\,x_2^2$ for two parameters $x_1$ and $x_2$, so
# its gradient is $(x_1, 30\,x_2)$: it curves 30 times as strongly across as along. Each rule gets a learning rate that
# suits it.

# %%
start = torch.tensor([-2.0, 0.5], dtype=torch.float64)
curvature = torch.tensor([1.0, 30.0], dtype=torch.float64)
rates = {"SGD": (sgd, 0.06), "momentum": (momentum, 0.06), "RMSProp": (rmsprop, 0.15), "Adam": (adam, 0.1)}
ways = {}
for name, (rule, rate) in rates.items():
    ways[name], state = descend(rule, lambda X: curvature * X, start, rate, steps=30)
    print(f"{name:8} keeps", ", ".join(state))
fig, alt = valley.paths(elongation=30, ways=ways)
figures.show(fig, alt=alt)

# %% [markdown]
# SGD bounces from wall to wall while it creeps along. Momentum rolls like a ball: it swings, and gains speed. RMSProp
# sets out at 45°, as if both directions were equally steep. Adam does the same, with a swing.
#
# Is this the real Adam? PyTorch's takes the same path:

# %%
X = start.clone().requires_grad_()
optimizer = torch.optim.Adam([X], lr=0.1, betas=(0.9, 0.99))
for _ in range(30):
    X.grad = curvature * X.detach()
    optimizer.step()
torch.testing.assert_close(X.detach(), ways["Adam"][-1], rtol=0, atol=1e-12)
print("torch.optim.Adam ends at the same point, to 12 decimals.")

# %% [markdown]
# PyTorch's RMSprop leaves out the bias correction. With the decay 0.99 its first step is therefore
# $1/\sqrt{0.01} = 10$ times as long:

# %%
X = start.clone().requires_grad_()
X.grad = curvature * start
torch.optim.RMSprop([X], lr=0.15).step()  # its decay is 0.99 unless you set it
print("gradient at the start:", X.grad.numpy())
print("first step, ours:     ", (ways["RMSProp"][1] - start).numpy().round(3))
print("first step, PyTorch:  ", (X.detach() - start).numpy().round(3))

# %% [markdown]
# ## Why dividing by the root helps
#
# Look at the first step of RMSProp: 0.15 in both directions, though one slope is 7.5 times as steep. An entry over
# the root of its own second moment is around ±1, *whatever its size*. Make every gradient 1,000 times larger, and the
# path stays the same:

# %%
larger, _ = descend(rmsprop, lambda X: 1000 * curvature * X, start, rate=0.15, steps=30)
print(f"largest difference along the path: {(larger - ways['RMSProp']).abs().max():.0e}")
assert (larger - ways["RMSProp"]).abs().max() < 1e-6

# %% [markdown]
# That is what a valley needs. SGD has *one* rate for all directions, and the steepest sets the limit: with a rate
# above 2 / (steepest curvature), every bounce is larger than the one before. At that rate the gentle direction crawls.

# %%
for rate in (0.06, 2 / 30, 0.07):
    path, _ = descend(sgd, lambda X: curvature * X, start, rate, steps=30)
    print(f"rate {rate:.4f}: across {abs(path[-1, 1]):.3f}, along {abs(path[-1, 0]):.3f} from the lowest point")

# %% [markdown]
# To compare fairly, each method may try 109 learning rates and keep its best: the one that is first within a tenth of
# the starting distance, and stays there for five steps. Here is a valley of elongation 100.


# %%
def race(elongation, rotation, **rules):
    H, start = valley.turned(elongation, rotation)  # H: curvatures [2, 2]; the gradient at X is X H
    return {name: valley.fastest(rule, H, start) for name, rule in rules.items()}


straight = race(100, 0, SGD=sgd, RMSProp=rmsprop)
fig, alt = valley.Race().update(100, 0, straight)
figures.show(fig, alt=alt)
print(f"SGD {straight['SGD']}, RMSProp {straight['RMSProp']}")

# %% [markdown]
# ## The same valley, turned
#
# In that valley "along" was one parameter and "across" the other. Nothing says that real valleys lie so neatly. Turn it
# by 45°, starting point and all, and leave everything else as it is. SGD needs 115 steps again: it does not notice.

# %%
predict("03-rotation")

# %% tags=["answer", "varies"]
print("The valley turned by 45°:")
diagonal = race(100, 45, SGD=sgd, RMSProp=rmsprop)
fig, alt = valley.Race().update(100, 45, diagonal)
figures.show(fig, alt=alt)
print(f"SGD {diagonal['SGD']}, RMSProp {diagonal['RMSProp']}")
assert diagonal["SGD"].steps == 115 and 95 <= diagonal["RMSProp"].steps <= 110
reveal("03-rotation")

# %% [markdown]
# The scaling is **per coordinate**: one number for each parameter, whichever way the valley runs. Compare the two
# divisors:

# %% tags=["answer"]
print("The two divisors at the first step, straight and turned:")
for rotation in (0, 45):
    H, start = valley.turned(100, rotation)
    first, second = (start @ H).abs()  # at the first step √V is |G|
    print(f"turned by {rotation:2}°: √V = {first:5.1f} and {second:5.1f}, a ratio of {second / first:4.1f}")

# %% [markdown]
# In the turned valley both parameters have a share in the steep direction, so both get nearly the same divisor. And one
# divisor for all is no more than another learning rate.

# %% [markdown]
# (The kink at the end of RMSProp's curve in the turned valley is real. Near the bottom the gradients fade, and
# $\sqrt V$ with them, until a step is too long for the steep direction. Then $V$ grows again.)

# %% [markdown]
# Now try it. At which angle has RMSProp lost half of its lead? And set the elongation to 1, a round bowl: you may have
# heard that **adaptive methods are always faster**. Who wins there?

# %%
picture = valley.Race()


def draw(elongation=100.0, rotation=0.0):
    return picture.update(elongation, rotation, race(elongation, rotation, SGD=sgd, RMSProp=rmsprop))


explore(draw, elongation=Slider(1, 1000, log=True), rotation=Slider(0, 45, step=1, label="rotation in degrees"))

# %% [markdown]
# In the bowl SGD arrives in one step: nothing is there to be evened out. And half of the lead is gone at little more
# than 20°:

# %% tags=["varies"]
leads = {}
for elongation, rotation in ((1, 0), (100, 0), (100, 10), (100, 20), (100, 45)):
    runs = race(elongation, rotation, SGD=sgd, RMSProp=rmsprop)
    print(f"elongation {elongation:3}, turned by {rotation:2}°: SGD {runs['SGD']}, RMSProp {runs['RMSProp']}")
    leads[elongation, rotation] = runs["SGD"].steps - runs["RMSProp"].steps
assert leads[1, 0] < 0 and leads[100, 20] > leads[100, 0] / 2 > leads[100, 45] > 0

# %% [markdown]
# Real networks seem to lie well for it: transformers train worse with Adam if their parameter space is turned at random
# (Zhang et al., see Sources). Rows and columns of a weight *mean* something, as you will see below.

# %% [markdown]
# **A stopping point for a class.** To talk about: what would an optimizer have to store so as not to care about
# rotation? And how many numbers would that be?

# %% [markdown]
# ## What dropping the first moment saves
#
# Back to memory. SGD keeps nothing, momentum and RMSProp one number for each parameter, Adam two. On DistilBERT:

# %%
for name, kind in (("SGD", "sgd"), ("momentum", "sgd_momentum"), ("RMSProp", "rmsprop"), ("AdamW", "adamw")):
    size = memory.predict_state_size(distilbert, kind)
    print(f"{name:8}  {size.moments:>11,} numbers  {size.mib:5.1f} MiB, in all {2 * weights + size.mib:7,.1f} MiB")
fig, alt = pictures.memory_bars(weights, {"SGD": "", "momentum": "M", "RMSProp": "V", "AdamW": "MV"})
figures.show(fig, alt=alt)

# %% [markdown]
# Dropping $M$ halves the state, from 501.9 to 250.9 MiB. Weights and gradients stay, so the total falls by a quarter,
# from 1,003.8 to 752.8. What is lost: nothing averages the *direction* any more, and the noise of each batch goes
# straight into the step. Lesson 05 shows what makes up for it.

# %% [markdown]
# ## What is left: one more matrix per matrix
#
# So $V$ remains: for every weight matrix another matrix of the same shape. Of what kind are they?

# %%
matrices = [p for p in distilbert.parameters() if p.ndim == 2]
vectors = [p for p in distilbert.parameters() if p.ndim == 1]
for name, group in (("matrices", matrices), ("vectors", vectors)):
    numbers = sum(p.numel() for p in group)
    print(f"{len(group)} {name}: {numbers:>10,} numbers, {100 * numbers / distilbert.num_parameters():.1f} %")
largest = max(matrices, key=torch.numel)
print(f"largest: {tuple(largest.shape)}, for which V takes {4 * largest.numel() / 2**20:.1f} MiB")

# %% [markdown]
# 99.9 % of the numbers are in matrices. If $V$ can be packed at all, then there. Whether it can depends on what these
# matrices look like.

# %% [markdown]
# ## Real second moments
#
# Train a small model and look. It is a DistilBERT with two layers, and it learns to tell in which of six languages a
# name is written. After 200 steps of AdamW, this returns the `exp_avg_sq` of each of its matrices. ($\beta_2$ is 0.99,
# so the average looks at about the last 100 gradients.)

# %% tags=["varies"]
real = moments.train_and_collect(steps=200, beta2=0.99, seed=0)
for name in list(real)[:3]:
    print(f"{name:55} {tuple(real[name].shape)}")
print(f"… {len(real)} matrices in all")
assert all((V >= 0).all() for V in real.values())

# %% [markdown]
# How to read them: shape `[out, in]`. **Row** $i$ holds the weights that lead *into* output $i$; **column** $j$ the
# weights that come *from* input $j$. In an embedding, each row is the vector of one token. The scale is logarithmic:
# one step on it is a factor of ten.

# %% tags=["picture", "varies"]
prefix = "distilbert.transformer.layer."
shown = {
    "token embeddings, every 24th row": real["distilbert.embeddings.word_embeddings.weight"][::24, :64],
    "attention, layer 0: values": real[prefix + "0.attention.v_lin.weight"][:64, :64],
    "feed-forward, layer 1": real[prefix + "1.ffn.lin1.weight"][:64, :64],
    "classifier": real["classifier.weight"][:, :64],
}
fig, alt = pictures.real_moments(shown, class_names=tasks.load("small").labels)
figures.show(fig, alt=alt)

# %% [markdown]
# Stripes, along rows and along columns. Some outputs always have large gradients, whatever the input; some inputs cause
# large ones, whatever the output. In the embeddings the rows differ most: one is a frequent token, the next a rare one.
# Gray rows are tokens that never came up, so their $V$ is exactly zero.

# %% [markdown]
# The eye finds patterns everywhere. So compare: on the right are the same numbers in random order. Go through the
# matrices. Which have the clearest stripes, which the faintest?

# %% tags=["varies"]
names = {pictures.short_name(name): name for name in real}
view = pictures.MatrixView()


def draw(matrix="layer 0 attention q"):
    return view.update(matrix, real[names[matrix]])


explore(draw, matrix=Choice(tuple(names)))

# %% [markdown]
# In numbers: how many times brighter is the brightest row than the darkest, and the same for columns? Shuffled, all
# rows are nearly alike.

# %% tags=["varies"]
V = real[prefix + "0.attention.q_lin.weight"]
shuffled = V.flatten()[torch.randperm(V.numel(), generator=torch.Generator().manual_seed(0))].view_as(V)
for name, matrix in (("as it is", V), ("shuffled", shuffled)):
    rows, columns = matrix.sum(dim=1), matrix.sum(dim=0)
    print(f"{name}: rows by a factor of {rows.max() / rows.min():4.1f}, columns {columns.max() / columns.min():4.1f}")
assert V.sum(dim=1).max() / V.sum(dim=1).min() > 3 * shuffled.sum(dim=1).max() / shuffled.sum(dim=1).min()

# %% [markdown]
# ## Why stripes?
#
# Take a linear layer and a *single* input $a$. The gradient of weight $(i, j)$ is then $\delta_i\, a_j$: what flows
# back into output $i$ times what came from input $j$. The whole gradient is a multiplication table, and so is its
# square.

# %%
layer = torch.nn.Linear(4, 3, bias=False)
a = torch.tensor([1.0, 2.0, 0.5, 3.0])
delta = torch.tensor([1.0, 0.5, 2.0])  # what flows back into the three outputs
layer(a).backward(delta)
print(layer.weight.grad.square().numpy())
torch.testing.assert_close(layer.weight.grad.square(), torch.outer(delta**2, a**2))

# %% [markdown]
# One input gives perfect stripes: each row is a multiple of every other. A batch adds up many such tables with
# different signs, so the stripes blur. But a large input stays large for all outputs. Lesson 04 asks how little one
# has to keep of a matrix that looks like this.

# %% [markdown]
# ## For those who are done early
#
# The rotation took RMSProp's lead. Does the *first* moment care about rotation? Let momentum and Adam race at
# elongation 100, straight and at 45°. What do you expect? The next cell has the answer.

# %% tags=["answer", "varies"]
print("Steps at elongation 100:")
steps = {}
for rotation in (0, 45):
    runs = race(100, rotation, SGD=sgd, momentum=momentum, RMSProp=rmsprop, Adam=adam)
    print(f"turned by {rotation:2}°:", ", ".join(f"{name} {run.steps}" for name, run in runs.items()))
    steps[rotation] = {name: run.steps for name, run in runs.items()}
assert steps[0]["momentum"] == steps[45]["momentum"] and steps[45]["Adam"] < steps[45]["RMSProp"] / 2
print("Momentum does not care, and thanks to it Adam is well ahead of RMSProp in the turned valley.")

# %% [markdown]
# ## Recap
#
# - Adam keeps two averages for every parameter: the first moment M, of G, and the second moment V, of G².
# - M says which way, √V says how large. V is a mean of squares, not a variance: it subtracts nothing.
# - Dividing by √V gives every coordinate a rate of its own. It evens out a valley that lies along the coordinates;
#   turned by 45°, the lead is gone.
# - Without M, DistilBERT's state falls from 501.9 to 250.9 MiB. What remains is one more matrix per matrix.
# - Real V show row and column stripes, over several powers of ten.

# %% [markdown]
# ## Sources
#
# - Adam: Kingma & Ba 2015, [arXiv 1412.6980](https://arxiv.org/abs/1412.6980), Algorithm 1; there the decays 0.9 and
#   0.999.
# - RMSProp: Tieleman & Hinton 2012,
#   [lecture 6](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf). Momentum: Polyak 1964, "Some
#   methods of speeding up the convergence of iteration methods".
# - Rate limit of SGD, 2 / (largest curvature), and what momentum does for it: Goh 2017,
#   [Why Momentum Really Works](https://distill.pub/2017/momentum/).
# - Adam and rotation in transformers: Zhang et al. 2025, [arXiv 2410.19964](https://arxiv.org/abs/2410.19964).
# - Dropping the first moment: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235), section 4.
# - Gradient of a linear layer as an outer product: Martens & Grosse 2015,
#   [arXiv 1503.05671](https://arxiv.org/abs/1503.05671), section 2; checked above.
# - PyTorch: [`Adam`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html),
#   [`RMSprop`](https://docs.pytorch.org/docs/stable/generated/torch.optim.RMSprop.html),
#   [`Linear`](https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html).
