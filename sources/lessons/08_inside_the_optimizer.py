# %% [markdown]
# ## Where we are
#
# 501.9 MiB with both moments, 250.9 with the second alone, 0.68 with its rows and columns. So far these were
# predictions from shapes, and lesson 00 promised that you would account for every number. Here you open real
# optimizers of a full-size model, count what is in them, and say what the count proves.

# %%
import random

import torch

from course_lib import adafactor, figures, memory, meter, planner, tasks
from course_lib.diagrams import peak, treemap, waterfall
from course_lib.explore import Choice, explore, predict, reveal

MIB = 2**20  # bytes
model = tasks.distilbert()  # full size, random weights, no download
parameters = sum(p.numel() for p in model.parameters())
tensors = len(list(model.parameters()))
print(f"{parameters:,} parameters in {tensors} tensors")

# %% [markdown]
# ## Open it
#
# How much an optimizer keeps depends on shapes, not on what the model knows. So random weights will do, and random
# gradients too. Here they are, with an optimizer that has not taken a step yet.

# %%
torch.manual_seed(0)
for p in model.parameters():
    p.grad = torch.randn_like(p)
adamw = torch.optim.AdamW(model.parameters())

# %%
predict("08-before")

# %% tags=["answer"]
print("Tensors with state:")
print(f"before the first step {len(adamw.state):3}")
adamw.step()
print(f"after the first step  {len(adamw.state):3}")
assert len(adamw.state) == tensors
reveal("08-before")

# %% [markdown]
# `optimizer.state` is a dictionary. It leads from each parameter to a dictionary of its own, which the first step
# fills. It is tempting to **measure right after making the optimizer**. Then AdamW and Adafactor alike seem to cost
# nothing.

# %%
for key, value in adamw.state[model.classifier.weight].items():
    print(f"{key:11} shape {tuple(value.shape)!s:9} {value.dtype}, {value.nbytes:,} bytes")

# %% [markdown]
# That is one tensor of 104. Here are all of them, each as a rectangle whose area stands for its bytes. Under it
# stands, as always, the total.


# %%
def shapes(optimizer):
    """For each parameter's name the shapes of the tensors in its state."""
    return {
        name: {key: tuple(value.shape) for key, value in optimizer.state[p].items() if torch.is_tensor(value)}
        for name, p in model.named_parameters()
    }


weights = sum(p.nbytes for p in model.parameters())
figures.show(*treemap.draw(shapes(adamw), "AdamW's state", weights=weights))

# %% [markdown]
# Each half repeats the model: word embeddings on the left, then six equal layers. Vectors, which are biases and the
# scales of LayerNorm, are so small that they hardly show. Keep that in mind.

# %% [markdown]
# ## A list of dictionaries
#
# `optimizer.state.values()` leaves the parameters out: what remains is one dictionary for each. To print it whole,
# take something small. An embedding of six tokens, three numbers each; our Adafactor; three steps in which only
# tokens 0, 2 and 5 occur.

# %%
torch.manual_seed(8)
embedding = torch.nn.Embedding(6, 3)
optimizer = adafactor.Adafactor(embedding.parameters())
for ids in ([0, 2], [2, 5], [0, 5]):
    optimizer.zero_grad()
    embedding(torch.tensor(ids)).square().sum().backward()
    optimizer.step()
print(list(optimizer.state.values()))

# %% [markdown]
# Three entries, all of them old friends. `step` counts to 3. `exp_avg_sq_col` is C, one mean for each of the three
# columns. `exp_avg_sq_row` is R, one for each token. But what are the 1e-30?

# %%
R = optimizer.state[embedding.weight]["exp_avg_sq_row"]
for token in range(6):
    print(f"token {token}: R = {R[token]:.1e}", "" if token in (0, 2, 5) else "  never seen")
torch.testing.assert_close(R[[1, 3, 4]], torch.full((3,), 1e-30))

# %% [markdown]
# A token that never occurs has a gradient of exactly 0, and G² + ε₁ is then ε₁. (ε₁ = 1e-30 is added to G² so that
# nothing is divided by 0.) The average of three times 1e-30 is 1e-30. So the state tells which rows have
# never been trained.

# %% [markdown]
# ## Inside a Trainer
#
# A Trainer makes its own optimizer. Where is it, and since when? Three steps on the data of your tier:

# %%
from transformers import Trainer, TrainingArguments
from transformers.optimization import Adafactor as Transformers
from transformers.trainer_callback import PrinterCallback

task = tasks.load()

# %%
arguments = TrainingArguments(
    "results",
    optim="adafactor",
    max_steps=3,
    per_device_train_batch_size=task.batch_size,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = Trainer(task.model(seed=0), arguments, train_dataset=task.train, data_collator=task.collator)
trainer.remove_callback(PrinterCallback)  # no log here

# %%
print("before train():", trainer.optimizer)
trainer.train()
print("after train(): ", type(trainer.optimizer).__name__, "around", type(trainer.optimizer.optimizer).__name__)

# %% [markdown]
# Before, there is `None`, and `trainer.optimizer.state` would be an error. After, Accelerate, which works inside
# Trainer, has wrapped the optimizer. (In lesson 07 you call it yourself.) `state` looks through the wrapping:

# %% tags=["varies"]
states = list(trainer.optimizer.state.values())
print(len(states), "dictionaries; the last, of the classifier's bias:")
print(states[-1])
assert states[-1].keys() == {"step", "exp_avg_sq", "RMS"} and states[-1]["step"] == 3

# %% [markdown]
# This is not quite what our class keeps: there is an `RMS`, the size of the parameter for
# [RMS scaling](glossary.ipynb#RMS-scaling), and `step` is a plain 3, not `tensor(3.)`. The
# difference will matter as soon as we count.

# %% [markdown]
# ## Who keeps what
#
# One step of four optimizers, on a 4 × 3 matrix and a vector of 4:

# %%
makers = {
    "AdamW": torch.optim.AdamW,
    "transformers": Transformers,
    "torch": torch.optim.Adafactor,
    "ours": adafactor.Adafactor,
}


def look(value):
    return str(list(value.shape)) if torch.is_tensor(value) else type(value).__name__


def step_on(make, *of_shape):
    p = torch.nn.Parameter(torch.ones(of_shape))
    p.grad = torch.ones(of_shape)
    optimizer = make([p])
    optimizer.step()
    return optimizer.state[p]


# %%
for of_shape in ((4, 3), (4,)):
    for name, make in makers.items():
        state = step_on(make, *of_shape)
        told = ", ".join(f"{key} {look(value)}" for key, value in state.items())
        print(f"{of_shape!s:7} {name:13}", told)

# %% [markdown]
# `[]` is a tensor with a single number. transformers and torch keep the same averages under other names: torch says
# `row_var` and `col_var`, and shapes them `[n, 1]` and `[1, m]`; `variance` is a vector's whole V. A state with
# `step` as a tensor *and* `exp_avg_sq_row` comes from neither. Ours keeps it.

# %% [markdown]
# **Whose state is this?** Below are the states of one 64 × 64 matrix in three of these optimizers, shuffled and
# without names. It is tempting to judge by size. Can you tell them apart?

# %%
order = random.Random(1).sample(["ours", "torch", "transformers"], 3)

for letter, name in zip("abc", order, strict=True):
    values = step_on(makers[name], 64, 64).values()
    numbers = sum(value.numel() if torch.is_tensor(value) else 1 for value in values)
    print(f"{letter}: {', '.join(look(value) for value in values)}; {numbers} numbers")

# %% tags=["answer"]
print("In the order of the letters:")
print(", ".join(order))

# %% [markdown]
# The number of elements hardly tells; keys, shapes and the kind of `step` do.

# %% [markdown]
# ## Count it
#
# Now a function that adds up everything. It takes `optimizer.state.values()`, and returns the size in MiB, of 1024²
# bytes, and the number of elements. An element is a number in the state, whatever it stands for.


# %%
def compute_optimizer_size(states):
    size, elements = 0, 0
    for state in states:
        for value in state.values():
            size += value.numel() * value.element_size()
            elements += value.numel()
    return size / 1024**2, elements


# %%
predict("08-elements")

# %% tags=["answer"]
size, elements = compute_optimizer_size(adamw.state.values())
print("Counted:")
print(f"{elements:,} elements, which is 2 × {parameters:,} + {tensors}; size {size:.3f} MiB")
assert elements == 2 * parameters + tensors
reveal("08-elements")

# %% [markdown]
# AdamW is accounted for, to the last element.
# Now the Adafactor of `transformers`, the one that Trainer uses:

# %%
factored = Transformers(model.parameters())
factored.step()
try:
    compute_optimizer_size(factored.state.values())
except AttributeError as error:
    print("AttributeError:", error)

# %% [markdown]
# A Python number has no `numel`. The usual repair is to skip what is not a tensor. But the step is as much a part of
# the state as AdamW's is. So which is right, to skip or to count?


# %%
def compute_optimizer_size(states, count_python_numbers=True):
    size, elements = 0, 0
    for value in (value for state in states for value in state.values()):
        if torch.is_tensor(value):
            size += value.numel() * value.element_size()
            elements += value.numel()
        elif count_python_numbers:
            elements += 1  # and no bytes: it is no tensor
    return size / 1024**2, elements


for count in (False, True):
    size, elements = compute_optimizer_size(factored.state.values(), count_python_numbers=count)
    print(f"Python numbers {'counted' if count else 'skipped'}: {elements:,} elements, {size:.3f} MiB")

# %% [markdown]
# Both numbers are in circulation. They differ by 104, one step for each tensor. We count: then whether a class keeps
# its step in a tensor or in an `int` makes no difference to the number of elements.

# %% [markdown]
# ### The two famous lines
#
# The course's library counts like this too, and knows some cases more (shared tensors, wrapped optimizers, saved
# states). It prints what you may have seen elsewhere:

# %%
for name, optimizer in (("Adafactor", factored), ("AdamW", adamw)):
    size, elements = memory.compute_optimizer_size(optimizer.state.values())
    print(f"Number of {name} parameters: {elements:,}")
    print(f"{name} size: {size:.0f} MB")

# %% [markdown]
# Two words and a number need care. "Parameters" are elements of the *state*. "MB" is **MiB**, 2²⁰ bytes. And "1" is
# 0.68, rounded up. With the units named:

# %%
for name, optimizer in (("Adafactor", factored), ("AdamW", adamw)):
    size = memory.state_size(optimizer)
    print(f"{name:9} {size.bytes:11,} bytes = {size.mib:7.3f} MiB = {size.mb:7.3f} MB")
print(f"MB against MiB: {size.mb / size.mib - 1:.0%} more")

# %% [markdown]
# In true megabytes, of 10⁶ bytes, AdamW's state is 526. Whoever mixes the two finds 5 % that are not there.

# %% [markdown]
# Inside a Trainer the call is the same. The library's `state_size`, which names the units, also takes the optimizer
# itself, or its saved `state_dict()`:

# %% tags=["varies"]
size, elements = memory.compute_optimizer_size(trainer.optimizer.state.values())
print(f"In the Trainer: {elements:,} elements, {size:.3f} MiB")
assert memory.state_size(trainer.optimizer).elements == elements
assert memory.state_size(trainer.optimizer.state_dict()).elements == elements

# %% [markdown]
# **Stopping point for a class.** So far: opening and counting. What follows: where each of the 178,712 comes from, and
# what the count does *not* say.

# %% [markdown]
# ## To the last element
#
# Adafactor keeps rows and columns for a matrix. A vector has none, so it keeps the whole
# [V](glossary.ipynb#second-moment). That cannot matter much, or can it? In the map of AdamW the vectors hardly showed.

# %%
matrices = [p for p in model.parameters() if p.ndim == 2]
vectors = [p for p in model.parameters() if p.ndim == 1]
share = sum(p.numel() for p in vectors) / parameters
print(f"{len(matrices)} matrices, {len(vectors)} vectors; vectors are {share:.1%} of the parameters")

# %%
predict("08-vectors")

# %% tags=["answer"]
means = sum(sum(p.shape) for p in matrices)  # n + m for each
entries = sum(p.numel() for p in vectors)
moments = means + entries
print("Counted:")
print(f"{means:,} row and column means + {entries:,} entries of vectors = {moments:,} moments")
print(f"{moments:,} moments + {tensors} RMS + {tensors} steps = {moments + 2 * tensors:,} elements")
print(f"share of the vectors: {entries / moments:.0%}")
assert moments + 2 * tensors == memory.state_size(factored).elements
reveal("08-vectors")

# %% [markdown]
# Now take the map apart yourself, stage by stage, from AdamW to Adafactor. The last stage shows the same state as the
# one before, with the map enlarged to fit it.

# %% tags=["answer", "picture"]
both, few = shapes(adamw), shapes(factored)
second = {name: {key: shape for key, shape in kept.items() if key != "exp_avg"} for name, kept in both.items()}
stages = {
    "AdamW": both,
    "AdamW, first moment dropped": second,
    "Adafactor, second moment factored": few,
    "Adafactor, enlarged": few,
}
whole, few_bytes = memory.state_size(adamw).bytes, memory.state_size(factored).bytes


def draw(stage="Adafactor, enlarged"):
    return treemap.draw(stages[stage], stage, weights=weights, span=None if "enlarged" in stage else whole)


print("The map, stage by stage:")
explore(draw, stage=Choice(tuple(stages)))

# %% [markdown]
# What hardly shows in AdamW's map is a third of Adafactor's. Factoring did nothing for vectors: it made everything
# else small. `state_size` tells the same by key:

# %% tags=["answer"]
print("By key:")
memory.state_size(factored)

# %% [markdown]
# The course's Adafactor and torch's keep no `RMS`. What do they add up to?

# %%
print(f"{moments:,} moments + {tensors} steps = {moments + tensors:,}")

# %% [markdown]
# ## Predicted, measured
#
# `predict_state_size` has told you sizes since lesson 00, on the `meta` device, without any step. Hold it against
# four real optimizers: elements, and bytes.

# %%
optimizers = {"AdamW": adamw, "transformers": factored}
for name in ("torch", "ours"):
    optimizers[name] = makers[name](model.parameters())
    optimizers[name].step()

kinds = ("adamw", "adafactor_transformers", "adafactor_torch", "adafactor")
on_meta = tasks.distilbert(device="meta")
for (name, optimizer), kind in zip(optimizers.items(), kinds, strict=True):
    size, predicted = memory.state_size(optimizer), memory.predict_state_size(on_meta, kind)
    print(f"{name:13} measured {size.elements:11,} in {size.bytes:11,} bytes, ", end="")
    print(f"predicted {predicted.elements:11,} in {predicted.bytes:11,}")
    assert (size.elements, size.bytes) == (predicted.elements, predicted.bytes)

# %% [markdown]
# Equal, byte for byte. transformers' 104 extra elements cost no bytes beyond torch's: its RMS takes the place of the
# step, which is a Python number. From here on a prediction is as good as a measurement, for models of any size.

# %% [markdown]
# ### A claim to check
#
# A guide that is often quoted says: for a model of 3 billion parameters, such as t5-3b, Adafactor needs **more than
# 12 GB**, because it keeps slightly more than 4 bytes for each parameter. Does it?

# %%
t5 = planner.build("T5 3B")
count = sum(p.numel() for p in t5.parameters())
print(f"{count:,} parameters")
state = memory.predict_state_size(t5, "adafactor_transformers")
print(f"Adafactor's state: {state.mib:.1f} MiB")
print(f"4 bytes for each parameter: {4 * count / 10**9:.1f} GB, {4 * count / 2**30:.1f} GiB")
print(f"the state is {4 * count / state.bytes:.0f} times less")

# %% [markdown]
# Over 800 times less. The claim fits an Adafactor *with* a first moment, where `beta1` brings back one number
# for each parameter. That is off by default, and in what Trainer sets.

# %%
from functools import partial

for name, make in (("default", Transformers), ("beta1=0.9", partial(Transformers, beta1=0.9))):
    print(f"{name:10}", ", ".join(step_on(make, 4, 3)))

# %% [markdown]
# ### Which parameters count
#
# State belongs to *trainable parameters*. A saved model lists a tied one under each of its names, and frozen ones like
# all others. Counting there goes wrong in both directions:

# %%
tied = torch.nn.Sequential(torch.nn.Embedding(1000, 64), torch.nn.Linear(64, 1000, bias=False))
tied[1].weight = tied[0].weight
saved = sum(value.numel() for value in tied.state_dict().values())
print(f"saved numbers: {saved:,}   AdamW's moments: {memory.predict_state_size(tied, 'adamw').moments:,}")
tied[0].weight.requires_grad_(False)
print(f"saved numbers: {saved:,}   AdamW's moments, frozen: {memory.predict_state_size(tied, 'adamw').moments:,}")

# %% [markdown]
# Twice the saved numbers would be 256,000. It is 128,000, as one matrix serves twice; and 0 once it is frozen.

# %% [markdown]
# ## State, total, peak
#
# Now what the count does not say. State is what an optimizer holds *between* steps. **State is not the total**: that
# has weights and gradients in it. And the total is not the peak, since a step needs room to work.

# %% [markdown]
# > **peak memory** — the most that is in use at any moment of a stretch of training, however short the moment.

# %%
predict("08-peak")

# %% [markdown]
# `meter.measure` watches a block of code with PyTorch's own memory tracker. It counts every tensor from when it is
# made to when it is freed. On a CPU torch's optimizers go through the parameters one at a time.

# %% tags=["answer"]
print("All in MiB:")
print("               state   total before   at the peak   added in the step")
measured = {}
for name, optimizer in list(optimizers.items())[:3]:  # ours works as the one of transformers does
    with meter.measure(model, optimizer) as usage:
        optimizer.step()
    measured[name] = usage
    sizes = [memory.state_size(optimizer).mib, usage.before / MIB, usage.peak / MIB, usage.added / MIB]
    print(f"{name:13} {sizes[0]:6.1f} {sizes[1]:14,.1f} {sizes[2]:13,.1f} {sizes[3]:19.1f}")
largest = max(p.nbytes for p in model.parameters()) / MIB
print(f"\nThe largest matrix, the word embeddings: {largest:.1f} MiB")
assert [round(usage.added / MIB / largest) for usage in measured.values()] == [2, 2, 1]
reveal("08-peak")

# %% [markdown]
# What takes the room? In transformers' code G² and beside it G² + ε₁, of the tensor that is being worked on; torch's
# Adafactor makes do with one temporary. Then they are gone. Is the number to be trusted? Measure the same block again:

# %% tags=["answer"]
print("Measured again:")
with meter.measure(model, factored) as again:
    factored.step()
print(again)
assert again.peak == measured["transformers"].peak

# %% [markdown]
# The same, to the byte. That is not a matter of course: what a system monitor shows also depends on what the process
# has freed and kept, and on what a notebook's old outputs still hold.

# %%
del adamw, factored, optimizers, optimizer  # their state is no longer needed

# %% [markdown]
# ### "Adafactor saves nothing"
#
# Reports of that kind exist: someone changes the optimizer, watches the memory of the GPU, and sees no less, or even
# more. How can that be, with 501 MiB gone? Let us measure a whole training step: forward, backward, step. On `meta`
# tensors, so that it takes neither memory nor patience.

# %%
by_trainer = partial(Transformers, lr=1e-3, scale_parameter=False, relative_step=False)


def step_peak(make, batch, length=128):
    optimizer = make(on_meta.parameters())
    for p in on_meta.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()  # makes the state
    optimizer.zero_grad()
    tokens, labels = (torch.zeros(shape, dtype=torch.long, device="meta") for shape in ((batch, length), (batch,)))
    with meter.measure(on_meta, optimizer, tokens, labels) as usage:
        on_meta(tokens, labels=labels).loss.backward()
        optimizer.step()
    return memory.state_size(optimizer).mib, usage.peak / MIB


# %%
peaks = {}
print("batch     AdamW   Adafactor   less by    share")
for batch in (1, 8, 32, 128):  # texts
    peaks[batch] = {"AdamW": step_peak(torch.optim.AdamW, batch), "Adafactor": step_peak(by_trainer, batch)}
    (_, before), (_, after) = peaks[batch].values()
    print(f"{batch:5} {before:9,.1f} {after:11,.1f} {before - after:9.1f} {1 - after / before:8.0%}")

# %% [markdown]
# With one text in the batch, the peak is the optimizer's step, and `meta` predicts what was measured above. With more,
# it is the moment when most activations are alive, and the optimizer's work has no part in that.

# %%
for name, key in (("AdamW", "AdamW"), ("Adafactor", "transformers")):
    predicted, by_cpu = peaks[1][name][1], measured[key].peak / MIB
    print(f"{name:10} predicted {predicted:,.2f} MiB, measured {by_cpu:,.2f} MiB")
    assert abs(predicted - by_cpu) < 0.01

# %% [markdown]
# At every batch size the peak is lower by **501 MiB**. As a *share* that is over two fifths with one text in the batch,
# and hardly to be seen with 128: the activations have buried it. Look:

# %%
fixed = weights / MIB


def draw(batch=8):
    return peak.two_bars(peaks[batch], fixed, f"Batch of {batch} × 128 tokens")


explore(draw, batch=Choice(tuple(peaks), label="texts in the batch"))

# %% [markdown]
# So a report needs three numbers. The **state** says what the optimizer keeps: over 700 times less. The **total** of
# weights, gradients and state halves. The **peak** decides whether it runs, and there the batch has its say.

# %% [markdown]
# ### Going deeper: all tensors at once
#
# The room that a step needs is a matter of how it is written. With `foreach=True` operations run over all parameters
# at once, which is faster on a GPU. torch's AdamW then does so by itself, its Adafactor only if you ask. For there
# are temporaries of all at once, too:

# %%
optimizer = torch.optim.Adafactor(model.parameters(), foreach=True)
with meter.measure(model, optimizer) as usage:
    optimizer.step()
for how, highest in (("one at a time", measured["torch"].peak), ("all at once", usage.peak)):
    print(f"{how:14} {highest / MIB - 2 * fixed:6.1f} MiB beside weights and gradients")

# %% [markdown]
# The same state, the same step, and nearly three times the room. That alone can hide the saving from someone who looks
# only at the peak. On a GPU there is one more trap: PyTorch's allocator keeps what it has once reserved, and
# `nvidia-smi` shows that, used or not. There `meter` gives both, named.

# %% [markdown]
# What did a GPU say? `make gpu` measures each optimizer of the course there: state, *allocated* and *reserved*, of the
# step alone and of a whole training step. Here is its table, if there is one yet. A kernel with a CUDA GPU also
# measures two of them anew.

# %%
from course_lib import gpu_results

gpu_results.show()

# %% [markdown]
# ## The promise of lesson 00
#
# Three bars, as on the first day. AdamW's state and Adafactor's are measured now. The one between is that of RMSProp,
# predicted, and you have seen what a prediction is worth.

# %%
states = {
    "AdamW": whole / MIB,
    "first moment\ndropped": memory.predict_state_size(on_meta, "rmsprop").mib,
    "Adafactor": few_bytes / MIB,
}
figures.show(
    *waterfall.three_bars(
        {name: {"weights": fixed, "gradients": fixed, "state": state} for name, state in states.items()}
    )
)

# %% [markdown]
# 501.9 MiB are 131,566,188 numbers: two for each parameter and one for each tensor. 0.68 MiB are 178,712: a number for
# each row and column of 40 matrices, one for each entry of 64 vectors, and two for each tensor. The total goes from
# 1,004 to 503.

# %%
assert (whole, 2 * parameters + tensors, moments + 2 * tensors) == (526_264_752, 131_566_188, 178_712)
totals = [2 * fixed + state for state in states.values()]
print("totals:", ", ".join(f"{total:,.0f} MiB" for total in totals))
print(f"state: {states['AdamW'] / states['Adafactor']:.1f} times smaller, total: {totals[0] / totals[-1]:.1f} times")

# %% [markdown]
# **For those who are done early.** Freeze the word embeddings of `on_meta` and predict Adafactor's state by hand
# before `predict_state_size` does. Then take a model from `planner.MODELS`. For which is the vectors' share largest?

# %% [markdown]
# ## Recap
#
# - `optimizer.state.values()`, or `trainer.optimizer.state.values()`, is one dictionary per parameter. It is empty
#   before the first step.
# - Keys, shapes and the kind of `step` tell whose state it is. Python numbers count as elements and take no bytes.
# - AdamW: 2 × 65,783,042 + 104 = 131,566,188 elements, 501.9 MiB. Adafactor: 178,504 + 104 + 104 = 178,712, 0.68 MiB.
# - "502 MB" and "1 MB" are MiB, the latter rounded up. Vectors are 35 % of Adafactor's moments.
# - State, total and peak are three numbers. The saving is the same 501 MiB in each; the share is not.

# %% [markdown]
# ## Sources
#
# - The numbers of elements and of MB: counted here, on the shapes of
#   [distilbert-base-cased](https://huggingface.co/distilbert/distilbert-base-cased) with two labels.
# - State and its keys: [`torch.optim`](https://docs.pytorch.org/docs/stable/optim.html),
#   [`torch.optim.Adafactor`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html),
#   [`transformers.Adafactor`](https://huggingface.co/docs/transformers/main_classes/optimizer_schedules#transformers.Adafactor).
#   Factored for matrices, whole for vectors: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235),
#   Algorithms 4 and 5.
# - Measured before the first step: [transformers#15622](https://github.com/huggingface/transformers/pull/15622). More
#   memory in use, not less: [gpt-neox#453](https://github.com/EleutherAI/gpt-neox/pull/453),
#   [transformers#43796](https://github.com/huggingface/transformers/pull/43796).
# - "More than 12 GB": transformers' guide [Methods and tools for efficient training on a single
#   GPU](https://huggingface.co/docs/transformers/v4.48.0/perf_train_gpu_one), "Optimizer choice".
# - Peaks: `MemTracker` of `torch.distributed._tools`. What an allocator keeps: [PyTorch's notes on memory
#   management](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management).
# - The map: Bruls, Huizing & van Wijk 2000, "Squarified treemaps", in *Data Visualization 2000*, 33–42.
