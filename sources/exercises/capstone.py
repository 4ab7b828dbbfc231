# %% [markdown]
# You get a model and a budget in MiB. Choose an optimizer, train, and prove that it fits.
#
# The budget is for what stays from step to step: weights, gradients and
# [optimizer state](../notebooks/glossary.ipynb#optimizer-state). The
# [activations](../notebooks/glossary.ipynb#activations) come and go with the batch and are left out here. Three
# optimizers are on offer, all in 32 bits:

# %%
from itertools import chain, islice, repeat

import torch
from torch.utils.data import DataLoader

from course_lib import adafactor, figures, memory, tasks

MIB = 2**20  # bytes
KINDS = ("adamw", "rmsprop", "adafactor")

# %% [markdown] task="choose" minutes=12 difficulty="medium" good_for="knowing before a run whether it can be afforded"
# ## Choose
#
# Write `choose(model, budget_mib)`. It returns the name of an optimizer from `KINDS` with which training `model` fits
# into the budget. If several do, any of them is right. If none fits, it returns `None`.
#
# - Nothing is trained here: you predict. The model may be on the `meta` device.
# - Some of its parameters may be frozen (`requires_grad=False`).
# - `memory.predict_state_size(model, kind)` predicts the state, for each kind in `KINDS`. Its result has `bytes` and
#   `mib`.
# - A total that is exactly the budget fits.


# %%
def choose(model, budget_mib):
    """One of `KINDS` with which training fits into so many MiB; None if there is none."""
    ### BEGIN SOLUTION
    weights = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    for kind in KINDS:
        total = weights + gradients + memory.predict_state_size(model, kind).bytes
        if total <= budget_mib * MIB:
            return kind
    return None
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The state alone is never the bill. Weights and gradients come first, and no optimizer can make them smaller: a budget
# below their sum is out of reach for all three. A frozen parameter is still a weight, but has neither a gradient nor
# a state. `KINDS` goes from the largest state to the smallest, so this takes the first that fits.

# %%
check.choose()

# %% [markdown]
# DistilBERT in full size, and three budgets with your choices. What fits ends to the left of the line.


# %%
def three_budgets():
    model = tasks.distilbert(device="meta")
    weights = sum(p.nbytes for p in model.parameters()) / MIB
    fig, ax = figures.subplots(height=3.4)
    told = []
    for row, (name, budget) in enumerate((("impossible", 450), ("tight", 550), ("roomy", 1100))):
        line = f"{name}, {budget:,} MiB: {choose(model, budget)}"
        top = -0.7 - 0.4 * row
        ax.plot([budget, budget], [2.6, top], color=figures.COLORS["ink"], linestyle="--", linewidth=1)
        ax.text(budget - 8, top, line, ha="right", va="top")
        told.append(line)
    for row, kind in enumerate(KINDS):
        state = memory.predict_state_size(model, kind).mib
        parts, left = {"weights": weights, "gradients": weights, "state": state}, 0.0
        for part, size in parts.items():
            label = part if row == 0 else None
            ax.barh(row, size, left=left, color=figures.COLORS[part], label=label, zorder=0)
            left += size
        ax.text(10, row, f"total {left:,.1f} MiB", va="center")
        told.append(f"{kind} takes " + ", ".join(f"{part} {size:,.1f}" for part, size in parts.items()))
        told[-1] += f", total {left:,.1f} MiB"
    ax.set(yticks=range(len(KINDS)), yticklabels=KINDS, ylim=(2.6, -1.6), xlim=(0, 1160), xlabel="MiB")
    fig.legend(loc="outside lower center", ncols=3)
    alt = f"DistilBERT's memory as bars, budgets as lines with your choice. {'; '.join(told)}."
    figures.show(fig, alt=alt)


check.preview(three_budgets)

# %% [markdown] task="prove" minutes=10 difficulty="medium" good_for="reporting memory so that others can believe it"
# ## Prove it
#
# A prediction is a promise. Write `prove(model, optimizer, batch, budget_mib)`, which measures. It takes one training
# step on `batch`, so that all that training needs is there, and then adds up the bytes of weights, gradients and state
# as they are.
#
# - `batch` is a dictionary of tensors with the labels in it: `model(**batch).loss` is the loss.
# - `optimizer` holds the parameters of `model` that are not frozen. Both may be new, or have been trained before.
# - The numbers may have other dtypes than `float32`.
# - `memory.state_size(optimizer)` measures the state.
#
# Return two values: the total in MiB, and `True` or `False`: whether it fits into the budget.


# %%
def prove(model, optimizer, batch, budget_mib):
    """Take a step, then measure: `(MiB of weights, gradients and state, whether that fits)`."""
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()
    weights = sum(p.nbytes for p in model.parameters())
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    total = (weights + gradients + memory.state_size(optimizer).bytes) / MIB
    return total, total <= budget_mib
    ### END SOLUTION


# %% [markdown] tags=["why"]
# State comes into being in the first step, and gradients in the backward pass. Measured earlier, every optimizer is
# free. `zero_grad()` stands before the backward pass and not after the step: it sets the gradients to `None`, and then
# they would be missing in the sum.

# %%
check.prove()

# %% [markdown]
# Your measurement beside the prediction, for the small model of the course:

# %%
small = tasks.load("small")
batch = small.collator([small.train[i] for i in range(8)])


def predicted_and_measured():
    for kind, make in (
        ("adamw", torch.optim.AdamW),
        ("rmsprop", torch.optim.RMSprop),
        ("adafactor", adafactor.Adafactor),
    ):
        model = small.model(seed=0)
        weights = sum(p.nbytes for p in model.parameters()) / MIB
        predicted = 2 * weights + memory.predict_state_size(model, kind).mib
        total, fits = prove(model, make(model.parameters()), batch, 4.8)
        print(f"{kind:10} predicted {predicted:.3f} MiB, measured {total:.3f} MiB, fits into 4.8: {fits}")


check.preview(predicted_and_measured)

# %% [markdown] task="fit" minutes=23 difficulty="hard" good_for="putting the whole course to use"
# ## Fit a training into the budget
#
# Write `fit(task, budget_mib, steps)`. It chooses an optimizer from `KINDS`. If none fits into the budget, it returns
# `None`. Otherwise it trains and returns two values, the trained model and the optimizer:
#
# - a fresh model, `task.model(seed=0)`, with all its weights, in 32 bits, on the rows of `task.train`;
# - for exactly `steps` steps of the optimizer, which is all the time you have.
#
# In 100 steps the model has to beat the [majority baseline](../notebooks/glossary.ipynb#majority-baseline): its
# accuracy on `task.validation` must be at least 0.05 higher. The batch size, the learning rate and a schedule are up
# to you. Write a loop, or use `Trainer`. `task.collator` pads a list of rows to a batch, `task.batch_size` and
# `task.learning_rate` are settings that do with AdamW and with Adafactor at a fixed rate. Any of `KINDS` that fits and
# learns is right.
#
# The check tries three budgets for the small model, a roomy one, a tight one and an impossible one, with a few steps
# each; then the tight one with 100. That takes some seconds.


# %%
def fit(task, budget_mib, steps):
    """Train for `steps` steps within so many MiB: `(model, optimizer)`; None if nothing fits."""
    ### BEGIN SOLUTION
    model = task.model(seed=0)
    kind = choose(model, budget_mib)
    if kind is None:
        return None
    if kind == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate)
    elif kind == "rmsprop":
        optimizer = torch.optim.RMSprop(model.parameters(), lr=task.learning_rate / 10)
    else:
        optimizer = adafactor.Adafactor(
            model.parameters(),
            lr=task.learning_rate,
            scale_parameter=False,
            relative_step=False,
        )
    loader = DataLoader(
        task.train,
        batch_size=task.batch_size,
        shuffle=True,
        collate_fn=task.collator,
    )
    for batch in islice(chain.from_iterable(repeat(loader)), steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model, optimizer
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The choice comes before the training, and `None` is an answer. `chain.from_iterable(repeat(loader))` goes through the
# rows again and again, shuffled anew each time, and `islice` stops after `steps` batches. RMSProp gets a tenth of the
# rate: without bias correction its first steps are ten times as long as Adam's.

# %% tags=["varies"]
check.fit()

# %% [markdown]
# The whole of it, for three budgets: your choice, your training, your proof. A lazy classifier is right in the share
# of the most frequent class.


# %% tags=["varies"]
def whole():
    budgets = {"roomy": 12.0, "tight": 4.8, "impossible": 4.6}
    torch.manual_seed(0)
    runs = {name: fit(small, budget, 100) for name, budget in budgets.items()}
    labels = torch.tensor(list(small.validation["labels"]))
    rows = small.collator([small.validation[i] for i in range(len(labels))])
    print(f"lazy: accuracy {(labels == small.majority).double().mean():.3f}")
    for name, budget in budgets.items():
        if runs[name] is None:
            print(f"{name:10} {budget:4} MiB: none fits")
            continue
        model, optimizer = runs[name]
        total, fits = prove(model, optimizer, batch, budget)
        with torch.no_grad():
            accuracy = (model.eval()(**rows).logits.argmax(-1) == rows["labels"]).double().mean()
        print(f"{name:10} {budget:4} MiB: {type(optimizer).__name__}, {total:.2f} MiB,", end=" ")
        print(f"fits: {fits}, accuracy {accuracy:.3f}")


check.preview(whole, seconds=300)
