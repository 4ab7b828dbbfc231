# %% [markdown]
# ## Where we are
#
# Adafactor went from 501.9 MiB to 0.68 by keeping *fewer numbers*. Lesson 01 showed a second way: as many numbers,
# *fewer bits* for each. 8-bit Adam goes that way. Here you see how an average fits into one byte, what is lost, and
# where every byte is that remains.

# %%
import timeit
from math import ceil

import torch

from course_lib import blockwise, figures, libraries, memory, moments, tasks
from course_lib.diagrams import block_errors, code_points, waterfall
from course_lib.explore import Choice, Slider, explore, predict, reveal
from course_lib.threads import one_thread

MIB = 2**20  # bytes

# %%
on_meta = tasks.distilbert(device="meta")  # shapes only
kinds = {
    "AdamW": "adamw",
    "8-bit AdamW": "adamw8bit_bitsandbytes",
    "Adafactor": "adafactor_transformers",
}
states = {name: memory.predict_state_size(on_meta, kind) for name, kind in kinds.items()}
for name in ("AdamW", "Adafactor"):
    print(f"{name:10} {states[name].elements:11,} numbers in the state")

# %% [markdown]
# How many MiB are left with 8 bits for each number? You can predict that once you know how a number gets into 8 bits,
# and how it gets out again.

# %% [markdown]
# ## Numbers into codes
#
# A byte can hold 256 different codes. The first idea is to space their values evenly. Divide all numbers by the largest
# absolute value, so that they lie between −1 and 1; multiply by 127; round.

# %%
numbers = torch.tensor([0.5, -0.26, 0.03, 0.006, -0.0005])
absmax = numbers.abs().max()
codes = (numbers / absmax * 127).round().to(torch.int8)
print("kept:     ", codes, "and", absmax)
print("read back:", codes / 127 * absmax)

# %% [markdown]
# > **quantization** — keeping numbers as codes of a few bits, where each code stands for one of a fixed set of values.
#
# > **absmax** — the largest absolute value among numbers that are quantized together. It is kept in 32 bits; the codes
# > stand for shares of it.

# %% [markdown]
# The large numbers came back nearly right. 0.006 came back a third too large, and −0.0005 is **gone**: it became 0. In
# the moments of a model that matters, as their sizes span many powers of ten.
#
# V, the second moment, is never negative. So all 256 codes can stand for values from 0 to 1.

# %%
predict("09-linear")

# %% tags=["answer"]
linear = torch.linspace(0, 1, 256)
print("Evenly spaced values from 0 to 1:")
for low in (0.1, 0.01, 0.001, 0.0001):
    count = ((linear >= low) & (linear < 10 * low)).sum() + (low == 0.1)  # and 1 itself
    print(f"from {low:6} to {10 * low:5}: {count:3}")
reveal("09-linear")

# %% [markdown]
# Even spacing serves the largest numbers best. 8-bit Adam takes another set of values. Here are both, for numbers that
# are not negative. Each stroke is one value; the numbers above count them by powers of ten.

# %% tags=["answer"]
print("The values above 0, on an axis of powers of ten:")
fig, alt = code_points.code_points()
figures.show(fig, alt=alt)

# %% [markdown]
# In the lower picture each power of ten has its share, down to 10⁻⁷: half as many values as the next larger power. That
# has a price. From 0.1 to 1, where most values of the upper picture lie, the lower one has little more than half as
# many: its steps are nearly twice as wide.

# %% [markdown]
# > **quantization map** — the values that the codes stand for: with 8 bits, 256 of them between −1 and 1, or between 0
# > and 1.
#
# > **dynamic map** — a quantization map with values in every power of ten down to 10⁻⁷, half as many in each as in the
# > next larger one.

# %% [markdown]
# It takes a few lines to make one. Each power of ten is cut into equal steps, 128 from 0.1 to 1, then 64, 32 and so on;
# the middle of each step is a value. (The idea comes from a way to read a byte: its leading zeros tell the power of
# ten, and the bits after them the step.)


# %%
def dynamic_map():
    values = [torch.tensor([0.0, 1.0])]
    for power in range(7):
        edges = torch.linspace(0.1, 1, 2 ** (7 - power) + 1)
        values.append((edges[:-1] + edges[1:]) / 2 * 10.0**-power)
    return torch.cat(values).sort().values


assert torch.equal(dynamic_map(), blockwise.quantization_map(signed=False))
print(len(dynamic_map()), "values; the smallest above 0:", dynamic_map()[1].item())

# %% [markdown]
# That one is for V. The [first moment](glossary.ipynb#first-moment) M has both signs, so its map shares the values out
# between them (1 is among them, −1 is not):

# %%
signed_map = blockwise.quantization_map(signed=True)
above, below = (signed_map > 0).sum().item(), (signed_map < 0).sum().item()
print(above, "values above 0 and", below, "below")

# %% [markdown]
# ## A scale for each block
#
# One absmax for a whole matrix would be at the mercy of its largest entry. So 8-bit Adam cuts the matrix, row after
# row, into blocks of 256 neighbours. Each has an absmax of its own.


# %%
def quantize(x, values, block_size):
    blocks = x.reshape(-1, block_size)
    absmax = blocks.abs().amax(1, keepdim=True)
    midpoints = (values[:-1] + values[1:]) / 2
    codes = torch.bucketize(blocks / absmax, midpoints)  # between which two: the nearest value
    return codes.to(torch.uint8), absmax


def dequantize(codes, absmax, values):
    return (values[codes.int()] * absmax).flatten()


# %% [markdown]
# > **block-wise quantization** — quantization in which each block of neighbours has its own absmax.
#
# `course_lib.blockwise` does the same, and copes with what this one does not: a last block that is not full, a block of
# zeros, other shapes. Try both on 1,024 numbers of either sign, of sizes between 0.5 and 2:

# %%
torch.manual_seed(0)
x = (torch.rand(1024) * 1.5 + 0.5) * torch.randn(1024).sign()
mine, theirs = quantize(x, signed_map, 256), blockwise.quantize(x, 256)
assert torch.equal(mine[0].flatten(), theirs.codes) and torch.equal(
    mine[1].flatten(), theirs.absmax
)
assert torch.equal(dequantize(*mine, signed_map), blockwise.dequantize(theirs))
print("first codes:", theirs.codes[:8].tolist())
print(f"absmax of the {len(theirs.absmax)} blocks:", theirs.absmax)

# %% [markdown]
# ### One outlier
#
# Now let one of these 1,024 numbers grow to 1,000, in a block of 256. With the dynamic map or the linear one: what
# happens to its neighbours?

# %%
predict("09-outlier")

# %% tags=["answer"]
with_outlier = x.clone()
with_outlier[300] = 1000.0
print("Neighbours in the block of the outlier that became 0, of 255:")
for kind in blockwise.KINDS:
    back = blockwise.dequantize(blockwise.quantize(with_outlier, 256, kind=kind))
    print(f"{kind:8} {(back[256:512] == 0).sum():3}")
reveal("09-outlier")

# %% [markdown]
# Watch it grow. Each square is 256 neighbours, 16 × 16; the colour is the error of each, as a share of the number
# itself. Dark means lost; the *typical* error is the median. Then let 64 numbers share a scale, between the white
# lines, and then all 1,024.

# %% tags=["answer", "picture"]
blocks = block_errors.Blocks(marked=300)


def draw(outlier=1000.0, block_size=256):
    changed = x.clone()
    changed[300] = outlier
    size = f"{outlier:,.1f}" if outlier < 10 else f"{outlier:,.0f}"
    title = f"One number is {size}, the others between 0.5 and 2; blocks of {block_size:,}"
    return blocks(changed, block_size, title)


print("Relative errors, block by block:")
explore(
    draw,
    outlier=Slider(1, 1e4, log=True),
    block_size=Choice((64, 256, 1024), label="numbers in a block"),
)

# %% [markdown]
# Two things protect the small numbers, and each does its own part. The **dynamic map** keeps them from becoming 0: they
# only get coarser. The **blocks** keep the damage in one place. Neither keeps an outlier's neighbours as exact as they
# were without it.

# %% [markdown]
# Smaller blocks are better blocks, and dearer ones. Each costs the 32 bits of its absmax. How many bits is that for
# each number?

# %%
for block_size in (64, 256, 1024):
    print(f"blocks of {block_size:5,}: {8 + 32 / block_size:.3f} bits per element")

# %% [markdown]
# With 256 the scales cost an eighth of a bit for each number. That is the choice of bitsandbytes, the library of the
# authors of 8-bit Adam.

# %% [markdown]
# ## On real second moments
#
# Made-up numbers prove little. Here are the second moments of lessons 03 and 04, from the small model after 200 steps.
# Two of them: a matrix from inside a layer, and the token embeddings, with a row for each token.

# %%
collected = moments.train_and_collect()
real = {
    "feed-forward": collected["distilbert.transformer.layer.1.ffn.lin1.weight"],
    "embeddings": collected["distilbert.embeddings.word_embeddings.weight"],
}
for name, V in real.items():
    print(f"{name:12} {V.shape[0]:,} rows of {V.shape[1]}")

# %% [markdown]
# Quantize and read back, with either map, and with blocks of three sizes. Two numbers say what is lost. **Which of the
# two matrices will lose more entries?**


# %%
def lost(V, block_size, kind):
    """Of the entries above 0: the share that became 0, and the typical relative error of all."""
    back = blockwise.dequantize(blockwise.quantize(V, block_size, signed=False, kind=kind))
    back, V = back[V > 0], V[V > 0]
    return (back == 0).float().mean().item(), ((back - V).abs() / V).median().item()


# %% tags=["answer", "varies"]
print("Share of entries that became 0, and typical relative error, in blocks of:")
print("                               linear map            dynamic map")
print("                           became 0    typical   became 0    typical")
for name, V in real.items():
    for block_size, told in ((V.numel(), "one scale"), (256, "256"), (64, "64")):
        results = [
            f"{value:9.1%}" for kind in ("linear", "dynamic") for value in lost(V, block_size, kind)
        ]
        print(f"{name:13} {told:>9} ", "  ".join(results))

# %% tags=["answer"]
print("In both matrices:")
for V in real.values():
    whole, blocks_linear = lost(V, V.numel(), "linear")[0], lost(V, 256, "linear")[0]
    assert whole > 0.1 and blocks_linear < whole / 3 and lost(V, 256, "dynamic")[0] < 0.01
assert lost(real["embeddings"], 256, "linear")[0] > 0.03
print("One scale, linear: over 10 % become 0. Blocks, dynamic: less than 1 %.")

# %% [markdown]
# Inside the layer, blocks alone do nearly all: even the linear map is good with them. In the embeddings it still loses
# entries. A block of 256 is longer than a row there, so the rows of a frequent and of a rare token can share a scale.
# That is what the dynamic map is for:

# %% tags=["answer", "varies"]
print("What the blocks of the embeddings hold:")
V = real["embeddings"].reshape(-1, 256)
largest = V.amax(1, keepdim=True)
fig, alt = code_points.code_points((V / largest)[largest.flatten() > 0])
figures.show(fig, alt=alt)

# %% [markdown]
# Why worry about entries so small? Because Adam **divides** by their root. Let one entry of V become 0. At the next
# step a new gradient puts a thousandth of its square there. If that gradient is 0, as for a token that is not in the
# batch, only ε is left, the 10⁻⁸ that guards against division by 0:

# %%
lr, beta2, eps = 1e-3, 0.999, 1e-8
m, g = 1e-4, 1e-4  # one entry of M, one of the gradient; the entry of V was g²
for told, v in (
    ("v was kept:             ", g**2),
    ("v became 0, gradient g: ", (1 - beta2) * g**2),
    ("v became 0, gradient 0: ", 0.0),
):
    print(f"{told} a step of {lr * m / (v**0.5 + eps):.3f}")

# %% [markdown]
# **Stopping point for a class.** So far: codes, maps, blocks, and what they do to real averages. What follows: an
# optimizer made of them. To talk about: why is it worse for V to become 0 than for M?

# %% [markdown]
# ## Adam in 8 bits
#
# Between two steps M and V lie in bytes. What happens *within* a step? This is all of it, for one tensor:


# %%
def step_8bit(X, G, kept, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    M, V = (blockwise.dequantize(q) for q in kept)  # unpack
    M = beta1 * M + (1 - beta1) * G  # compute
    V = beta2 * V + (1 - beta2) * G**2
    U = (M / (1 - beta1**t)) / ((V / (1 - beta2**t)).sqrt() + eps)
    X = (1 - lr * weight_decay) * X - lr * U
    return X, [blockwise.quantize(M), blockwise.quantize(V, signed=False)]  # pack


# %% [markdown]
# Run it beside torch's AdamW, which keeps 32 bits: the same weights, the same gradients, one step. It is often said
# that **8-bit Adam computes in 8 bits**.

# %%
predict("09-first-step")

# %% tags=["answer"]
torch.manual_seed(0)
start = torch.randn(64, 128)
X = torch.nn.Parameter(start.clone())
adamw, mine, kept = torch.optim.AdamW([X]), start, [blockwise.quantize(torch.zeros(64, 128))] * 2
print("How far the weights are apart, as a share of the way that AdamW's have gone (RMS):")
shares = {}
for t in range(1, 101):
    X.grad = 0.01 * torch.randn(64, 128)
    adamw.step()
    mine, kept = step_8bit(mine, X.grad, kept, t)
    shares[t] = ((mine - X).norm() / (X - start).norm()).item()
    if t in (1, 2, 10, 100):
        print(f"step {t:3}: {shares[t]:.1%}")
assert shares[1] < 1e-4 < 1e-3 < shares[10] < 0.1
reveal("09-first-step")

# %% [markdown]
# M and V are unpacked to 32 bits, everything is computed in 32 bits, and only the results are packed, for the next step
# to start from. So rounding enters once in a step, between two of them, and what it does to the weights adds up slowly.

# %% [markdown]
# ## For real, with bitsandbytes
#
# bitsandbytes is known as a library for GPUs. Its optimizers take steps on a CPU, too. Only if it is missing on your
# machine, the next cell says so. Then the cells that need it print nothing, and the lesson goes on.

# %%
bitsandbytes = libraries.bitsandbytes()

# %% [markdown]
# A full-size DistilBERT with random weights and random gradients, as in lesson 08. One step, and then a look at the
# state of one matrix.

# %%
model = tasks.distilbert()
torch.manual_seed(0)
for p in model.parameters():
    p.grad = torch.randn_like(p)
matrix = model.distilbert.transformer.layer[0].ffn.lin1.weight
print(f"a matrix of {matrix.shape[0]:,} × {matrix.shape[1]}, {matrix.numel():,} weights")

# %%
if bitsandbytes:
    before = matrix.detach().clone()
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    optimizer.step()
    for key, value in optimizer.state[matrix].items():
        tensor = torch.is_tensor(value)
        print(f"{key:8}", f"{value.dtype} {list(value.shape)}" if tensor else f"Python {value}")

# %% [markdown]
# Old friends under new names. `state1` is M and `state2` is V, in codes. `absmax1` and `absmax2` are the scales, one
# for 256 codes. `qmap1` and `qmap2` are the two maps, signed and unsigned. Does our step keep the same?

# %% tags=["varies"]
if bitsandbytes:
    state = optimizer.state[matrix]
    zeros = [blockwise.quantize(torch.zeros_like(matrix))] * 2
    stepped, kept = step_8bit(before, matrix.grad, zeros, t=1)
    torch.testing.assert_close(stepped, matrix.detach())
    for name, q, place in (("M", kept[0], "1"), ("V", kept[1], "2")):
        torch.testing.assert_close(q.absmax, state["absmax" + place])
        torch.testing.assert_close(q.map, state["qmap" + place])
        same = (q.codes == state["state" + place]).float().mean()
        print(f"{name}: the same map, the same scales, {same:.1%} of the codes the same")

# %% [markdown]
# The same weights, maps and scales. Not all codes are the same, though: "Going deeper" at the end shows why.

# %% [markdown]
# ## Byte for byte
#
# AdamW's state has 501.9 MiB. A quarter of that is 125.5.

# %%
predict("09-bytes")

# %% tags=["answer"]
large = [p.numel() for p in on_meta.parameters() if p.numel() >= 4096]
small = [p.numel() for p in on_meta.parameters() if p.numel() < 4096]
counted = {
    "codes": 2 * sum(large),
    "scales": 2 * 4 * sum(ceil(n / 256) for n in large),
    "small tensors": 2 * 4 * sum(small),
    "the two maps": 2 * 4 * 256,
}
print("Bytes of 8-bit AdamW for DistilBERT:")
for name, size in counted.items():
    print(f"{name:13} {size:11,}")
print(f"together      {sum(counted.values()):11,} = {sum(counted.values()) / MIB:.2f} MiB")
assert sum(counted.values()) == states["8-bit AdamW"].bytes
reveal("09-bytes")

# %% [markdown]
# Codes take one byte each, scales 4 bytes for each 256. All tensors share the two maps. And there is a line that may
# surprise you: **small tensors**. Those of fewer than 4,096 elements stay in 32 bits: vectors, and the classifier. Is
# the real state as large as that?

# %% tags=["answer"]
print("The state of 8-bit AdamW for DistilBERT:")
predicted = states["8-bit AdamW"]
print(f"predicted {predicted.elements:,} elements in {predicted.bytes:,} bytes")
if bitsandbytes:
    size = memory.state_size(optimizer)
    print(f"measured  {size.elements:,} elements in {size.bytes:,} bytes")
    assert (size.elements, size.bytes) == (predicted.elements, predicted.bytes)

# %% [markdown]
# To the last byte. In *elements* it is more than AdamW's 131,566,188, by the scales and the maps: 8-bit Adam keeps a
# few more numbers, in far fewer bits.

# %% [markdown]
# ### Small tensors
#
# In DistilBERT they hardly count. But think of a model that is made of small layers only, against one layer with
# nearly as many weights.

# %%
predict("09-small")

# %% tags=["answer"]
many = torch.nn.Sequential(*(torch.nn.Linear(60, 60, device="meta") for _ in range(100)))
one = torch.nn.Linear(600, 600, device="meta")
print("AdamW's state in bytes, in 32 and in 8 bits:")
for told, layers in (("100 layers of 60 × 60", many), ("one layer of 600 × 600", one)):
    sizes = [
        memory.predict_state_size(layers, kinds[name]).bytes for name in ("AdamW", "8-bit AdamW")
    ]
    print(f"{told:23} {sizes[0]:9,} {sizes[1]:9,}, {sizes[0] / sizes[1]:.2f} times less")
reveal("09-small")

# %% [markdown]
# (The few bytes that the small layers do save are torch's step counts, which are Python numbers in bitsandbytes.) Look
# at the sizes of your tensors before you expect a factor of four.

# %% [markdown]
# ## Through Trainer
#
# In Trainer it is one word: `optim="adamw_bnb_8bit"`. But Trainer has a rule of its own: the state of *embeddings*
# stays in 32 bits. In DistilBERT the embeddings are a third of all parameters.

# %%
embeddings = sum(p.numel() for name, p in on_meta.named_parameters() if "_embeddings" in name)
total = sum(p.numel() for p in on_meta.parameters())
print(f"{embeddings:,} of {total:,} parameters, {embeddings / total:.0%}")

# %%
predict("09-trainer")

# %% tags=["answer"]
through_trainer = memory.predict_state_size(
    on_meta, "adamw8bit_bitsandbytes", embeddings_in_32bit=True
)
print("State of DistilBERT in 8-bit AdamW:")
print(f"from bitsandbytes directly {states['8-bit AdamW'].mib:7.2f} MiB")
print(f"through Trainer            {through_trainer.mib:7.2f} MiB")
print(f"of which embeddings        {8 * embeddings / MIB:7.2f} MiB")
reveal("09-trainer")

# %% [markdown]
# Predicted is not measured. So here is a real Trainer, with that one word, two made-up texts of three tokens, and a
# single step:

# %%
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

if bitsandbytes:
    del optimizer  # makes room
    arguments = TrainingArguments(
        "results",
        optim="adamw_bnb_8bit",
        max_steps=1,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    texts = [
        {"input_ids": [101, 7592, 102], "attention_mask": [1, 1, 1], "labels": label}
        for label in (0, 1)
    ]
    trainer = Trainer(model, arguments, train_dataset=texts)
    trainer.remove_callback(PrinterCallback)  # no log here
    trainer.train()

# %% tags=["answer"]
if bitsandbytes:
    print("What Trainer's optimizer keeps:")
    for name, p in model.named_parameters():
        if name.endswith(("_embeddings.weight", "0.ffn.lin1.weight")):
            kept = trainer.optimizer.state[p]["state1"].dtype
            print(f"{name.removeprefix('distilbert.'):40} {kept}")
    size = memory.state_size(trainer.optimizer)
    print(f"measured {size.bytes:,} bytes = {size.mib:.2f} MiB")
    assert (size.elements, size.bytes) == (through_trainer.elements, through_trainer.bytes)

# %% [markdown]
# Why that rule? Some tokens are frequent and most are rare, so the gradients of embeddings are more uneven than others.
# The authors of 8-bit Adam advise 32 bits there, to keep training stable. You have seen it above: the embeddings were
# the matrix that came to harm.

# %% [markdown]
# ### A rule that outlives its Trainer
#
# bitsandbytes keeps such exceptions in *one* list for the whole process, by place: "the first tensor of the first
# group". The next optimizer gets them too, whatever its model is. Here is one for a single layer, without any
# embedding:


# %%
def dtype_of_state(make):
    layer = torch.nn.Linear(128, 64)
    layer(torch.ones(1, 128)).sum().backward()
    optimizer = make(layer.parameters())
    optimizer.step()
    return optimizer.state[layer.weight]["state1"].dtype


if bitsandbytes:
    print("after Trainer:       ", dtype_of_state(bitsandbytes.optim.AdamW8bit))
    bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()
    print("with the list cleared:", dtype_of_state(bitsandbytes.optim.AdamW8bit))

# %% [markdown]
# So in a notebook clear the list after such a Trainer, or restart the kernel. It is one more reason to look at the
# state itself, rather than at the name of its optimizer.

# %% [markdown]
# ## What it does not do
#
# Two more hopes to meet. First: **fewer bytes means faster**. Here is one step for a matrix of 3,072 × 768, on one
# thread of the machine that ran this page.

# %% tags=["varies"]
if bitsandbytes:
    del trainer
    for name, make in (("AdamW", torch.optim.AdamW), ("8-bit AdamW", bitsandbytes.optim.AdamW8bit)):
        weight = torch.nn.Parameter(torch.ones(3072, 768))
        weight.grad = torch.ones_like(weight)
        with one_thread():
            seconds = min(timeit.repeat(make([weight]).step, number=1, repeat=5))
        print(f"{name:12} {1000 * seconds:5.0f} ms")

# %% [markdown]
# Packing and unpacking is work, and on a CPU it comes on top. (On a GPU one kernel does all of it, and the paper
# reports faster steps there.) Bytes kept and time taken are two questions. The next lesson measures both.

# %% [markdown]
# Second: **bf16=True halves the state**. It lets forward and backward compute in 16 bits. Which bits do weights and
# state have then?


# %%
def dtypes(make, cast_weights=False):
    layer = torch.nn.Linear(128, 64)
    if cast_weights:
        layer.bfloat16()
    optimizer = make(layer.parameters())
    with torch.autocast("cpu", torch.bfloat16):  # what bf16=True does
        layer(torch.ones(1, 128, dtype=layer.weight.dtype)).sum().backward()
    optimizer.step()
    values = optimizer.state[layer.weight].values()
    moment = next(value for value in values if getattr(value, "ndim", 0) > 0)
    return f"weights {layer.weight.dtype}, state {moment.dtype}".replace("torch.", "")


print("AdamW, bf16=True:              ", dtypes(torch.optim.AdamW))
print("AdamW, weights cast to 16 bits:", dtypes(torch.optim.AdamW, cast_weights=True))
if bitsandbytes:
    print("8-bit AdamW, bf16=True:        ", dtypes(bitsandbytes.optim.AdamW8bit))

# %% [markdown]
# `bf16=True` leaves weights and state at 32 bits. Casting the weights themselves halves both, and then every step is
# rounded to two or three digits. 8-bit Adam does neither: it keeps the weights as they are, and packs the state.

# %% [markdown]
# ## State and total
#
# And what does it do for the total? Three ways to train DistilBERT, with weights and gradients in 32 bits:

# %%
weights = 4 * total / MIB
figures.show(
    *waterfall.three_bars(
        {
            name: {"weights": weights, "gradients": weights, "state": size.mib}
            for name, size in states.items()
        }
    )
)

# %% [markdown]
# 8-bit Adam keeps both moments, only coarser; Adafactor drops one and factors the other. So 8-bit Adam saves less, and
# stays closer to AdamW. What that means for accuracy is measured in the next lesson.

# %%
for name, size in (*states.items(), ("8-bit AdamW through Trainer", through_trainer)):
    saved = states["AdamW"].mib - size.mib
    print(f"{name:27} state {size.mib:6.2f} MiB, {saved:6.2f} less than AdamW's", end="")
    print(f", total {2 * weights + size.mib:8,.2f}")

# %% [markdown]
# **For those who are done early.** At which block size do the scales cost as much as the codes? And: if somebody wrote
# an 8-bit Adafactor with the same rule for small tensors, which of DistilBERT's 178,504 moments would it keep in 8
# bits?

# %% tags=["answer"]
print("What you should find:")
print("blocks of", next(size for size in range(256, 0, -1) if 32 / size >= 8))
sides = {side for p in on_meta.parameters() if p.ndim == 2 for side in p.shape}
large_sides = [f"{side:,}" for side in sides if side >= 4096]
print("of all R and C only that with", *large_sides, "entries: R of the word embeddings")

# %% [markdown]
# ## Going deeper: which code the CPU picks
#
# In one step above, our codes and those of bitsandbytes were not all the same. Which differ? Take single numbers beside
# a 1, so that the absmax is 1, and ask both for the value they keep.

# %% tags=["varies"]
if bitsandbytes:
    probes = torch.tensor([1.0, 0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    codes, how = bitsandbytes.functional.quantize_blockwise(probes, blocksize=256)
    ours, theirs = blockwise.dequantize(blockwise.quantize(probes)), how.code[codes.int()]
    for probe, mine, its in zip(probes.tolist(), ours.tolist(), theirs.tolist(), strict=True):
        print(f"{probe:7.0e}   ours {mine:8.2e}   bitsandbytes on a CPU {its:8.2e}")
    assert (ours - theirs).abs().max() < 1e-3

# %% [markdown]
# Down to 10⁻⁴ they agree; below, many numbers get one value. It looks as if each number were first rounded to one of
# 2¹⁶ evenly spaced places from −1 to 1, as for a table to look codes up in. If so, rounding first should make our codes
# theirs:

# %% tags=["varies"]
if bitsandbytes:
    torch.manual_seed(0)
    shares = torch.rand(400, 256) ** 4  # many small ones
    shares[:, 0] = 1.0  # the absmax of each block
    unsigned_map = blockwise.quantization_map(signed=False)
    theirs, _ = bitsandbytes.functional.quantize_blockwise(shares, code=unsigned_map, blocksize=256)
    rounded = ((shares + 1) / 2 * (2**16 - 1)).round() / (2**16 - 1) * 2 - 1
    for told, numbers in (("as they are  ", shares), ("rounded first", rounded)):
        same = (blockwise.quantize(numbers, signed=False).codes == theirs).float().mean()
        print(f"{told} {same:.2%} of the codes the same")

# %% [markdown]
# If nearly all are the same now, that is what your bitsandbytes does; version 0.50 does it on a CPU. It is a short way
# to a code, and harmless: what it blurs is less than a ten-thousandth of the absmax, and a 0 comes back as a little
# more than 0, which is on the safe side to divide by.

# %% [markdown]
# ## Recap
#
# - 8 bits hold 256 codes. The dynamic map gives every power of ten some of them; blocks of 256 give every neighbourhood
#   its own scale. Together they keep small entries of V from becoming 0.
# - A step unpacks, computes in 32 bits, and packs. 8 bits are for keeping.
# - DistilBERT: 131,438,592 codes, 2,053,728 bytes of scales, 509,968 of small tensors, 2,048 of maps: 127.80 MiB.
# - Through Trainer 256.79, since embeddings stay in 32 bits. Tensors of fewer than 4,096 elements always do.
# - It is no promise of speed, and `bf16=True` is another matter.

# %% [markdown]
# ## Sources
#
# - Dynamic quantization and blocks, and 32 bits for embeddings: Dettmers et al. 2021, "8-bit Optimizers via Block-wise
#   Quantization", [arXiv 2110.02861](https://arxiv.org/abs/2110.02861), sections 2.1 to 2.3. The dynamic map's
#   origin: Dettmers 2015, [arXiv 1511.04561](https://arxiv.org/abs/1511.04561).
# - Blocks of 256, 4,096 elements:
#   [bitsandbytes' optimizers](https://huggingface.co/docs/bitsandbytes/explanations/optimizers) and its source, version
#   0.50.
# - `optim="adamw_bnb_8bit"`:
#   [`TrainingArguments`](https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments);
#   embeddings in 32 bits: `Trainer.create_optimizer` in the source of transformers.
# - All sizes: counted and measured here.
