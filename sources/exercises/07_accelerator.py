# %% [markdown]
# You find the rate that makes torch's Adafactor go as far as Trainer's, write the loop that Trainer wrote for you, look
# for the faults of somebody else's, and count the steps of several processes.

# %%
import torch
from torch.optim import Adafactor

from course_lib import figures, tasks, tier

torch.set_num_threads(1)  # this model is too small for two threads to help
task = tasks.load("small")

# %% [markdown] task="torch_rate" minutes=6 difficulty="easy" good_for="taking a run from Trainer to your own loop"
# ## Translate the rate
#
# Trainer runs its Adafactor with the learning rate `rate`, without a
# [relative step size](../notebooks/glossary.ipynb#relative-step-size) and without
# [RMS scaling](../notebooks/glossary.ipynb#RMS-scaling). You go over to `torch.optim.Adafactor`, whose `eps` stays at
# its default, `(None, 0.001)`.
#
# Write `torch_rate(rate, X)`: the `lr` with which torch's first step on `X` is as long as Trainer's. `X` is a tensor of
# parameters, a matrix or a bias. Its entries may be large or tiny, or all be zero. (No `lr` asked here is above 1, so
# the cap 1/√t stays out of it.)


# %%
def torch_rate(rate, X):
    """The `lr`, a number, with which torch's first step on `X` is as long as Trainer's with `rate`."""
    ### BEGIN SOLUTION
    rms = X.square().mean().sqrt().item()
    return rate / max(0.001, rms)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# torch's first step has the size `lr` · max(ε₂, RMS(X)), and Trainer's has the size `rate`. Set equal and solved for
# `lr`, that is a division. The floor ε₂ = 0.001 keeps zeros from standing still, and you from dividing by zero.

# %%
check.torch_rate()

# %% [markdown]
# Both classes take their first step with your rate:


# %%
def both_classes():
    from transformers.optimization import Adafactor as Transformers

    torch.manual_seed(0)
    tensors = {"matrix": torch.randn(8, 4) * 0.05, "bias": torch.zeros(8), "scales": torch.ones(8)}
    for name, X in tensors.items():
        G, lr = torch.randn_like(X), float(torch_rate(1e-3, X))
        moved = []
        for make in (
            lambda X: Transformers([X], lr=1e-3, scale_parameter=False, relative_step=False),
            lambda X, lr=lr: Adafactor([X], lr=lr),
        ):
            Y = torch.nn.Parameter(X.clone())
            Y.grad = G.clone()
            make(Y).step()
            moved.append((Y.detach() - X).square().mean().sqrt().item())
        print(f"{name:7} your lr {lr:.4f}   Trainer's moves {moved[0]:.6f}, torch's {moved[1]:.6f}")


check.preview(both_classes)

# %% [markdown] task="train" minutes=10 difficulty="medium" good_for="every training that Trainer has no setting for"
# ## Write the loop
#
# Write `train(accelerator, model, optimizer, scheduler, batches, epochs)`, which does what `trainer.train()` did.
#
# - `accelerator` is an `Accelerator`, for any number of devices, without
#   [gradient accumulation](../notebooks/glossary.ipynb#gradient-accumulation).
# - `model`, `optimizer`, `scheduler` and `batches`, a loader, have just been made. Nothing has been prepared. The model
#   comes from `from_pretrained`, in the mode in which that leaves it.
# - Each batch is a dictionary with `input_ids`, `attention_mask` and `labels`. The model returns an object with `loss`.
# - The [schedule](../notebooks/glossary.ipynb#learning-rate-schedule) is planned in optimizer steps, for all `epochs`
#   passes over the batches.
#
# Return the loss of every batch of every epoch, in order: one list of Python numbers. Evaluation is left aside.
#
# The check hands you stand-ins that write down what is called. Calls that may come in another order may do so here.


# %%
def train(accelerator, model, optimizer, scheduler, batches, epochs):
    """Train for so many `epochs`; returns the losses of all batches, a list of Python numbers."""
    ### BEGIN SOLUTION
    prepared = accelerator.prepare(model, optimizer, scheduler, batches)
    model, optimizer, scheduler, batches = prepared
    losses = []
    for _ in range(epochs):
        model.train()
        for batch in batches:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Everything that depends on the machine goes through the accelerator: `prepare` once, `backward` for each batch. The
# rest is order. A gradient has to live from backward to step and no longer, so `zero_grad` may stand first or last; the
# schedule follows the step, so that the first rate is used. `**batch` brings the mask along. `model.train()` in each
# epoch also holds when somebody adds an evaluation.

# %%
check.train()

# %% [markdown]
# Your loop with the real Accelerator: the task of lesson 07, 40 batches of 16 rows, twice.


# %% tags=["varies"]
def for_real():
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from transformers import get_scheduler

    tier.seed_everything(0)
    model, rows = task.model(seed=0).eval(), task.train.select(range(40 * 16))
    optimizer = Adafactor(model.parameters(), lr=0.05)
    batches = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=task.collator)
    scheduler = get_scheduler("linear", optimizer, 0, 2 * len(batches))
    losses = torch.tensor(train(Accelerator(), model, optimizer, scheduler, batches, 2))

    fig, ax = figures.subplots(height=2.6)
    ax.plot(losses, color=figures.COLORS["adafactor"])
    first, last = losses[:10].mean(), losses[-10:].mean()
    chance = torch.tensor(len(task.labels)).log()
    ax.axhline(chance, color=figures.COLORS["muted"], linewidth=1, linestyle="--", label="guessing")
    ax.set(title=f"Your losses: the first ten {first:.2f} on average, the last ten {last:.2f}")
    ax.set(xlabel="batch", ylabel="loss")
    ax.legend()
    alt = f"A line, the losses of {len(losses)} batches: {first:.2f} on average over the first ten, "
    alt += f"{last:.2f} over the last ten. Guessing would give {chance:.2f}."
    figures.show(fig, alt=alt)


check.preview(for_real)

# %% [markdown] task="faults" minutes=6 difficulty="medium" good_for="reading other people's training scripts"
# ## Find the faults
#
# A colleague has turned a run with Trainer into a loop. There, Adafactor ran at the rate 0.001; the matrices have
# RMS 0.05. `Adafactor` is torch's, and `accuracy(model)` measures on the validation set. So far the program has run on
# one CPU, without an error. Next, `accelerate launch --num_processes 2 --mixed_precision fp16` starts it on two GPUs.
#
# ```text
#  1  accelerator = Accelerator()
#  2  model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=6)
#  3  optimizer = Adafactor(params=model.parameters(), lr=0.02)
#  4  loader = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collator)
#  5  steps = 3 * len(loader)
#  6  lr_scheduler = get_scheduler("linear", optimizer, 0, num_training_steps=steps)
#  7  model, optimizer, lr_scheduler = accelerator.prepare(model, optimizer, lr_scheduler)
#  8  model.train()
#  9  for epoch in range(3):
# 10      for batch in loader:
# 11          optimizer.zero_grad()
# 12          loss = model(batch["input_ids"], labels=batch["labels"]).loss
# 13          loss.backward()
# 14          optimizer.step()
# 15          lr_scheduler.step()
# 16      print(f"Loss = {loss.item():.2f}")
# 17      model.eval()
# 18      print(f"Accuracy = {accuracy(model):.2f}")
# ```
#
# Some lines are faulty, others only look so. Write `faults()`: the set of the numbers of all lines that have to be
# changed, or moved to another place. Each fault needs one line only.


# %%
def faults():
    """The numbers of the lines that have to be changed or moved, counted from 1; a set."""
    ### BEGIN SOLUTION
    return {7, 8, 12, 13}
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Line 7: the loader is not prepared, so each process works through all the data. Line 8: after the first `model.eval()`
# nobody goes back to training mode; it belongs between 9 and 10. Line 12: no mask. Line 13 should be
# `accelerator.backward(loss)`.
#
# Innocent: line 1, since `accelerate launch` hands on `fp16`. Line 3, as 0.02 · 0.05 = 0.001. Lines 5 and 6, since the
# schedule is planned from the whole loader. Line 11, since gradients are cleared before backward. Lines 16 and 17 do
# what they should.

# %%
check.faults()

# %% [markdown] task="optimizer_steps" minutes=6 difficulty="medium" good_for="planning a schedule, warmup or budget"
# ## Count the steps
#
# Write `optimizer_steps(samples, batch, processes, accumulation, epochs)`: how many steps the optimizer takes in a
# prepared loop with [data parallelism](../notebooks/glossary.ipynb#data-parallelism), in all epochs together. All are
# whole numbers: `samples` rows in the data set, `batch` rows in a batch of one process, `processes` among which the
# batches are dealt out, `accumulation` backward calls to a step.
#
# It works as in lesson 07. The loader keeps its last batch, however small. If the batches do not go round evenly, the
# first rows serve once more, so that all processes get the same number of batches. At the end of each epoch a step is
# taken, even if fewer than `accumulation` backward calls have come together.


# %%
def optimizer_steps(samples, batch, processes, accumulation, epochs):
    """How many steps the optimizer takes in all `epochs` together; a whole number."""
    ### BEGIN SOLUTION
    batches = -(-samples // batch)
    each = -(-batches // processes)
    return epochs * -(-each // accumulation)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Whatever is left over counts: a small batch, a round that is not full, an incomplete group. So each division rounds
# up, and `-(-a // b)` is `math.ceil(a / b)` in whole numbers. Epochs come last, as each of them ends with a step.

# %%
check.optimizer_steps()
