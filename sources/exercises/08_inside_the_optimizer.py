# %% [markdown]
# You count what real optimizers keep, tell whose a state is, predict Adafactor's, and hold a published claim against
# your count.

# %%
from functools import partial

import torch
from torch import nn
from transformers.optimization import Adafactor as Transformers

from course_lib import adafactor, memory, planner

makers = {
    "sgd_momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
    "adafactor": adafactor.Adafactor,
    "adafactor_transformers": Transformers,
    "adafactor_torch": torch.optim.Adafactor,
}


def stepped(make, parameters):
    """The optimizer that `make` makes for these parameters, after one step."""
    parameters = list(parameters)
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer = make(parameters)
    optimizer.step()
    return optimizer


# %% [markdown] task="compute_optimizer_size" minutes=12 difficulty="hard" good_for="measuring any optimizer you use"
# ## Count any optimizer
#
# The function of the lesson counts AdamW and Adafactor. Write a `compute_optimizer_size(states)` that survives more.
# `states` has one dictionary for each parameter: `optimizer.state.values()` itself, a list, or a generator, which can
# be gone through only once. There may be no dictionaries, or empty ones. Leave them as they are.
#
# What counts are the *values* in these dictionaries. Each of them is one of these four, and nothing else:
#
# - a tensor of any shape and dtype, on the CPU. Each of its numbers is an element, and takes the bytes of its dtype.
# - a Python number, `int` or `float`: one element and no bytes, wherever and however often it stands there.
# - None: no element and no bytes.
# - a list, tuple or dictionary of such values, to any depth. It adds nothing itself; what is inside counts.
#
# The same tensor counts **once** for all states together, in elements and in bytes, even if it stands in several
# states, under several names, or in a list as well: 8-bit optimizers give one tensor to all parameters. The same means
# one tensor object. Two tensors with equal numbers count as two. Two tensors never share memory here (no views).
#
# Return the size in MiB, of 1024² bytes, and the number of elements.


# %%
def compute_optimizer_size(states):
    """Size of the states, one dictionary for each parameter: `(MiB, number of elements)`."""
    ### BEGIN SOLUTION
    nbytes, elements, met = 0, 0, set()

    def count(entry):
        nonlocal nbytes, elements
        if torch.is_tensor(entry):
            if id(entry) not in met:
                met.add(id(entry))
                nbytes += entry.numel() * entry.element_size()
                elements += entry.numel()
        elif isinstance(entry, (int, float)):
            elements += 1
        elif isinstance(entry, dict):
            count(list(entry.values()))
        elif isinstance(entry, (list, tuple)):
            for part in entry:
                count(part)

    for state in states:
        count(state)
    return nbytes / 1024**2, elements
    ### END SOLUTION


# %% [markdown] tags=["why"]
# `count` asks what an entry is before it asks for anything else, and calls itself for what is inside. `element_size`
# is 4 in fp32, 2 in bf16 and 1 for codes of 8 bits. `met` holds for all states together, since a tensor can be shared
# between parameters. The `id` tells whether it is the same tensor; equal numbers do not.

# %%
check.compute_optimizer_size()

# %% [markdown]
# Your function beside the library's, on real optimizers of a small model. In the last line the model
# is in bf16.


# %%
def side_by_side():
    lines = [f"{'':22} {'yours: elements':>16} {'MiB':>9}   {'library: elements':>18} {'MiB':>9}"]
    for name, make in [*makers.items(), ("adamw in bf16", torch.optim.AdamW)]:
        model = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 512), nn.Linear(512, 128))
        optimizer = stepped(make, (model.bfloat16() if "bf16" in name else model).parameters())
        size, elements = compute_optimizer_size(optimizer.state.values())
        counted = memory.state_size(optimizer)
        lines.append(f"{name:22} {elements:16,} {size:9.4f}   {counted.elements:18,} {counted.mib:9.4f}")
    print("\n".join(lines))


check.preview(side_by_side)

# %% [markdown] task="whose_state" minutes=8 difficulty="medium" good_for="reading somebody else's checkpoint"
# ## Whose state is this?
#
# You find the [state](../notebooks/glossary.ipynb#optimizer-state) of one parameter, `optimizer.state[p]`, and the
# parameter's shape. Which optimizer has left it? Write `whose_state(state, shape)`, which returns one of these names:
#
# - one of the seven keys of `makers` above, where `"adafactor"` is the course's own;
# - `"adamw8bit_bitsandbytes"`: the 8-bit AdamW of lesson 09. It keeps its two moments as `state1` and `state2`. For
#   fewer than 4,096 numbers they stay in 32 bits; otherwise maps and scales stand beside them.
#
# `shape` is a `torch.Size`: of a matrix, a vector, or a convolution with four axes. The optimizer took at least one
# step. Not all were made with default settings: RMSProp may have `momentum` or be `centered`, AdamW may have
# `amsgrad`, and the Adafactor of `transformers` a `beta1`. Here is what each keeps for a 4 × 3 matrix by default.
# Leave the state as you find it.


# %%
def look(state):
    shown = {key: list(v.shape) if torch.is_tensor(v) else repr(v) for key, v in state.items()}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


for name, make in makers.items():
    p = nn.Parameter(torch.ones(4, 3))
    print(f"{name:22} {look(stepped(make, [p]).state[p])}")


# %%
def whose_state(state, shape):
    """The name of the optimizer that keeps this dictionary for a parameter of this shape."""
    ### BEGIN SOLUTION
    if "state1" in state:
        return "adamw8bit_bitsandbytes"
    if "RMS" in state:
        return "adafactor_transformers"
    if "row_var" in state or "variance" in state:
        return "adafactor_torch"
    if "sum" in state:
        return "adagrad"
    if "square_avg" in state:
        return "rmsprop"
    if "exp_avg" in state:
        return "adamw"
    return "sgd_momentum" if "momentum_buffer" in state else "adafactor"
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The names decide, and what nobody else has is asked first. `RMS` comes before `exp_avg`, which `beta1` adds, and
# `square_avg` before `momentum_buffer`, which RMSProp may have as well. Last comes the course's Adafactor: for a vector
# it keeps a lone `exp_avg_sq`. The shape is of no use here.

# %%
check.whose_state()

# %% [markdown] task="predicted_numbers" minutes=9 difficulty="medium" good_for="knowing what a run takes beforehand"
# ## Predict Adafactor's moments
#
# Write `predicted_numbers(model)`: how many numbers the course's Adafactor will keep as *moments* after a step in
# which every trainable parameter has a gradient. The step counts are left out. What is factored, and along which axes,
# is in lesson 04.
#
# `model` is any module. Two of its layers may share a weight; a parameter may be frozen (its `requires_grad` is then
# `False`); shapes have any number of axes, from `()` for a single number to the four or more of a convolution. The
# model may be on the `meta` device, as those of `planner` are. Take no step: the shapes are enough, and the model stays
# as it is.
#
# By hand, before you write it: what is kept for a convolution's weight of shape (8, 6, 3, 3)?


# %%
def predicted_numbers(model):
    """How many numbers, a whole number, Adafactor will keep as moments for this `nn.Module`."""
    ### BEGIN SOLUTION
    kept = 0
    for p in model.parameters():
        if p.requires_grad and p.ndim >= 2:
            V = p.detach().to("meta")
            kept += V.mean(-1).numel() + V.mean(-2).numel()
        elif p.requires_grad:
            kept += p.numel()
    return kept
    ### END SOLUTION


# %% [markdown] tags=["why"]
# `parameters()` gives a tied parameter once. On `meta` the means cost nothing and have the right shapes: [8, 6, 3]
# twice for the convolution, which is 288 of 432, since each place on the leading axes is a matrix of its own. What has
# fewer than two axes keeps its second moment whole.

# %%
check.predicted_numbers()

# %% [markdown]
# Prediction, the library's prediction, and a real step. Where does factoring save
# nothing, or less than nothing?


# %%
def hold_against_a_step():
    lines = [f"{'':26} {'parameters':>10} {'yours':>7} {'library':>8} {'after a step':>13}"]
    for name, layer in (
        ("matrix and vector", nn.Linear(64, 32)),
        ("convolution, 3 × 3", nn.Conv2d(6, 8, 3, bias=False)),
        ("convolution, 1 × 1", nn.Conv2d(32, 64, 1, bias=False)),
        ("vectors of a LayerNorm", nn.LayerNorm(64)),
    ):
        own = predicted_numbers(layer)
        predicted = memory.predict_state_size(layer, "adafactor").moments
        measured = memory.state_size(stepped(adafactor.Adafactor, layer.parameters())).moments
        parameters = sum(p.numel() for p in layer.parameters())
        lines.append(f"{name:26} {parameters:10,} {own:7,} {predicted:8,} {measured:13,}")
    print("\n".join(lines))


check.preview(hold_against_a_step)

# %% [markdown] task="t5_3b" minutes=6 difficulty="medium" good_for="checking a figure before you buy a GPU for it"
# ## Check a published claim
#
# Version 4.48 of the transformers guide on
# [training on a single GPU](https://huggingface.co/docs/transformers/v4.48.0/perf_train_gpu_one), under "Optimizer
# choice", says what an optimizer takes for a model of 3 billion parameters such as t5-3b:
#
# | optimizer | bytes for each parameter | all |
# |---|---|---|
# | AdamW | 8 | 24 GB |
# | Adafactor | slightly more than 4 | more than 12 GB |
# | AdamW in 8 bits | 2 | 6 GB |
#
# A round 3 billion is an estimate, and the table is fair to it, but one line is off by far more than that. The cell
# below builds `t5` in this size, on `meta`. Let `t5_3b()` return a dictionary. Its sizes are those of the state for
# `t5`, in GiB of 2³⁰ bytes and unrounded; every number in the state takes 4 bytes. Step counts are few enough to
# count or not.
#
# - `"adamw"`: the size for AdamW
# - `"adafactor"`: for Adafactor as it is by default
# - `"adafactor_momentum"`: for Adafactor with `beta1`, which adds a
#   [first moment](../notebooks/glossary.ipynb#first-moment)
# - `"wrong"`: the line that is off: `"adamw"`, `"adafactor"` or `"8bit"`

# %%
t5 = planner.build("T5 3B")


# %%
def t5_3b():
    """Three sizes for `t5` in GiB, and under "wrong" the name of the line that is off."""
    ### BEGIN SOLUTION
    parameters = sum(p.numel() for p in t5.parameters())
    factored = predicted_numbers(t5)
    return {
        "adamw": 4 * 2 * parameters / 2**30,
        "adafactor": 4 * factored / 2**30,
        "adafactor_momentum": 4 * (parameters + factored) / 2**30,
        "wrong": "adafactor",
    }
    ### END SOLUTION


# %% [markdown] tags=["why"]
# "Slightly more than 4 bytes" is an Adafactor with momentum: a first moment of 4 bytes for each parameter, and the
# factors on top. Without, the factors are all. The other two lines are off only because t5-3b has less than 3 billion
# parameters, and because GB are not GiB.

# %%
check.t5_3b()

# %% [markdown]
# The guide's figures beside yours, all in GB of 10⁹ bytes, and how many times too large they are.


# %%
def beside_the_guide():
    yours = t5_3b()
    for key, claimed in (("adamw", 24), ("adafactor", 12), ("adafactor_momentum", 12)):
        in_gb = yours[key] * 2**30 / 10**9
        print(f"{key:20} the guide {claimed} GB, yours {in_gb:8.4f} GB: {claimed / in_gb:6.2f} times")


check.preview(beside_the_guide)
