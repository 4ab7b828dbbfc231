# %% [markdown]
# You write one step of Adafactor, find five faults in a step that somebody else wrote, and say which of its parts
# are on in the paper, in two libraries, and under Trainer.

# %%
import torch

from course_lib import adafactor, figures


def rms(x):
    """The root mean square of a tensor, as in the lesson."""
    return x.square().mean().sqrt()


# %% [markdown] task="adafactor_step" minutes=12 difficulty="medium" good_for="reading any optimizer's `step` method"
# ## Write one step
#
# Write `adafactor_step`, one step for one matrix. It takes
#
# - `param` and `grad`: the parameters X and the gradient G, both `[n, m]`;
# - `row` `[n]` and `col` `[m]`: the averages of the [row means](../notebooks/glossary.ipynb#row-means) and
#   [column means](../notebooks/glossary.ipynb#column-means) up to the step before, all zero before the first step;
# - `step`: the number of this step, 1 at the first;
# - `lr`: a given rate, in the place of ρₜ;
# - `d`: the threshold of [update clipping](../notebooks/glossary.ipynb#update-clipping);
# - `eps1` and `eps2`: the lesson's ε₁ and ε₂.
#
# It returns the new X, the new row averages and the new column averages. The step has all parts of the lesson but the
# relative step: β₂(t), clipping, and [RMS scaling](../notebooks/glossary.ipynb#RMS-scaling) of `lr`. It has no first
# moment and no weight decay. The inputs stay as they are. The last line is given, and so is `rms` above.


# %%
def adafactor_step(param, grad, row, col, step, lr, d=1.0, eps1=1e-30, eps2=1e-3):
    """One step: new X `[n, m]`, new row averages `[n]`, new column averages `[m]`."""
    ### BEGIN SOLUTION
    beta2 = 1 - step**-0.8
    squared = grad**2 + eps1
    new_row = beta2 * row + (1 - beta2) * squared.mean(dim=1)
    new_col = beta2 * col + (1 - beta2) * squared.mean(dim=0)
    V_hat = torch.outer(new_row, new_col) / new_row.mean()
    U = grad / V_hat.sqrt()
    U = U / max(1.0, rms(U) / d)
    new_param = param - lr * max(eps2, rms(param)) * U
    ### END SOLUTION
    return new_param, new_row, new_col


# %% [markdown] tags=["why"]
# Each line is a stage, in the order of the lesson. ε₁ goes in before the means, so no row or column is ever zero. The
# clipping divides by 1 where RMS(U) is below `d`, so it leaves quiet updates alone. ε₂ counts only where the
# parameters are smaller than that.

# %%
check.adafactor_step()

# %% [markdown]
# First your step against the course's optimizer, over five steps. Then its first update in a picture, one dot for each
# entry, without clipping and with it. The gradient is random, but one entry was made 1,000 times larger. Before you
# look: it raises the mean of its row, of its column, and of the whole matrix. Which entries move less for it, which
# more?


# %%
def several_steps():
    make = torch.Generator().manual_seed(0)
    X = torch.randn(6, 4, generator=make, dtype=torch.float64)
    p, R, C = torch.nn.Parameter(X.clone()), torch.zeros(6), torch.zeros(4)
    optimizer = adafactor.Adafactor([p], lr=0.01, relative_step=False)
    for step in range(1, 6):
        p.grad = torch.randn(6, 4, generator=make, dtype=torch.float64)
        optimizer.step()
        X, R, C = adafactor_step(X, p.grad, R, C, step, 0.01)
    print("the same as the course's optimizer:", torch.allclose(X, p.detach(), rtol=1e-9, atol=0))


def first_update():
    G = torch.randn(40, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    G[7, 11] *= 1000
    group = torch.zeros(40, 30)  # 1 for entries in the row or column of the outlier, 2 for itself
    group[7] += 1
    group[:, 11] += 1
    X, R, C = torch.ones_like(G), torch.zeros(40), torch.zeros(30)  # RMS(X) = 1, lr = 1: the step is U
    fig, axes = figures.subplots(1, 2, height=3.6, sharey=True)
    told = []
    for ax, d, name in zip(axes, (1e9, 1.0), ("not clipped", "clipped at d = 1"), strict=True):
        U = (X - adafactor_step(X, G, R, C, 1, 1.0, d)[0]).abs()
        said = []
        for number, (who, color) in enumerate(
            (("others", "adafactor"), ("its row and column", "col"), ("outlier", "state"))
        ):
            g, u = G[group == number].abs(), U[group == number]
            ax.loglog(g, u, "." if number < 2 else "o", color=figures.COLORS[color])
            at, ha = ((7, -12), "left") if number == 1 else ((0, 7), "right")
            ax.annotate(who, (g.max(), u.max()), at, textcoords="offset points", ha=ha)
            said.append(f"{who} {u.median():.2f}")
        ax.axhline(1, color=figures.COLORS["ink"], linewidth=1)
        ax.set(title=f"{name}: RMS(U) = {rms(U):.1f}", xlabel="|G|", ylim=(1e-4, 1e3))
        told.append(f"{name}, RMS {rms(U):.1f}, medians of |U|: {', '.join(said)}")
        print(told[-1])
    axes[0].set(ylabel="|U|")
    what = "Size of each entry's gradient against size of its update, log axes."
    figures.show(fig, alt=f"{what} {'; '.join(told)}.")


check.preview(several_steps)
check.preview(first_update)

# %% [markdown] task="repaired" minutes=12 difficulty="hard" good_for="reviewing optimizer code, yours or another's"
# ## Repair a faulty optimizer
#
# `faulty` in the next cell is one step of Adafactor for parameters that are matrices or vectors. It is written as a
# function: `optimizer` is what `self` would be inside a class. It runs without an error, and it has **five faults**.
#
# It should do what the lesson's class does with a given `lr` and all other settings at their defaults, and change
# nothing but the parameters and what is remembered about each in `optimizer.state[p]`, under any names that you like.
# There is one group of parameters, and some of them may have no gradient at some steps.


# %%
def average(state, key, value, beta2):
    """Renew the average that `state` keeps under this key, and return it. All is well here."""
    old = state.get(key, torch.zeros_like(value))
    state[key] = beta2 * old + (1 - beta2) * value
    return state[key]


@torch.no_grad()
def faulty(optimizer):
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


# %% [markdown]
# See it run. The network has an embedding of 20 tokens, of which the data use 10, a matrix and a vector.


# %%
def try_out(step):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.Linear(8, 5))
    optimizer = torch.optim.Optimizer(net.parameters(), {"lr": 0.1})
    tokens = torch.arange(10)
    for number in range(1, 7):
        loss = torch.nn.functional.cross_entropy(net(tokens), tokens % 5)
        net.zero_grad()
        loss.backward()
        step(optimizer)
        nans = sum(p.isnan().sum().item() for p in net.parameters())
        lr = optimizer.param_groups[0]["lr"]
        print(f"step {number}: loss {loss:.3f}, lr {lr:.0e}, {nans} entries are NaN")


try_out(faulty)

# %% [markdown]
# Not all five show here. Copy the lines of `faulty`, from `group = …` on, into `repaired`, and repair them there.


# %%
@torch.no_grad()
def repaired(optimizer):
    """One step for all parameters of the group that have a gradient, in place."""
    ### BEGIN SOLUTION
    group = optimizer.param_groups[0]
    for p in group["params"]:
        if p.grad is None:
            continue
        state = optimizer.state[p]
        state["step"] = state.get("step", 0) + 1
        beta2 = 1 - state["step"] ** -0.8
        squared = p.grad.square() + 1e-30
        if p.ndim == 1:
            V_hat = average(state, "all", squared, beta2)
        else:
            R = average(state, "row", squared.mean(dim=-1, keepdim=True), beta2)
            C = average(state, "col", squared.mean(dim=0, keepdim=True), beta2)
            V_hat = R * C / R.mean()
        U = p.grad / V_hat.sqrt()
        U = U / max(1.0, rms(U))
        p -= group["lr"] * max(1e-3, rms(p)) * U
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The five, from the last line up:
#
# - `group["lr"] = …` wrote the step size of one parameter into the setting, where the next one found it.
# - `square_()` changed `p.grad` itself, so the update was made of squares and went one way only.
# - Without ε₁ a row of zeros became 0 / 0.
# - Over the only axis of a vector, both means are the same single number: all entries shared one scale.
# - One count served all parameters, so a late one met a β₂ above 0 with averages still at zero.

# %%
check.repaired()

# %%
check.preview(lambda: try_out(repaired))

# %% [markdown] task="switch_card" minutes=5 difficulty="easy" good_for="knowing which Adafactor a script really runs"
# ## Fill in the switch card
#
# From memory: which of the five parts are on in each of these four?
#
# | key | what is meant |
# |---|---|
# | `"paper"` | Adafactor as in the paper's Algorithms 4 and 6 |
# | `"transformers"` | the class of `transformers`, made with `Adafactor(params)` |
# | `"trainer"` | the same class as Trainer sets it for `optim="adafactor"` |
# | `"torch"` | PyTorch's class, made with `torch.optim.Adafactor(params)` |
#
# Let `switch_card()` return a dictionary with these keys. Under each stands the set of the parts that are **on**,
# named as in the first line of the function.


# %%
def switch_card():
    """The parts that are on: a dictionary with four keys, and a set of names under each."""
    parts = {"factoring", "growing decay", "clipping", "relative step", "RMS scaling"}
    ### BEGIN SOLUTION
    trainer = parts - {"relative step", "RMS scaling"}
    return {"paper": parts, "transformers": parts, "trainer": trainer, "torch": parts}
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Trainer has a learning rate of its own. It passes `relative_step=False`, or that rate would have no say, and
# `scale_parameter=False`. What makes the update stays on: factoring, β₂(t), clipping. torch has no switch for any of
# the five: its `lr` is the cap of the relative step, and RMS(X) always counts.

# %%
check.switch_card()
