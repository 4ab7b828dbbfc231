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
on_meta = tasks.distilbert(device="meta")  # shapes only
kinds = {"AdamW": "adamw", "8-bit AdamW": "adamw8bit_bitsandbytes", "Adafactor": "adafactor_transformers"}
states = {name: memory.predict_state_size(on_meta, kind) for name, kind in kinds.items()}
for name in ("AdamW", "Adafactor"):
    print(f"{name:10} {states[name].elements:11,} numbers in the state")

# %% [markdown]
# How many MiB are left with 8 bits for each number? Not quite what you would expect, and you get to see it when you can
# say why. First: how does a number get into 8 bits at all?

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
# So nearly all values serve the largest tenth, and below 0.002 everything is nearest to 0. 8-bit Adam takes another set
# of values. Here are both. Each stroke is one value; the numbers above count them by powers of ten.

# %%
fig, alt = code_points.code_points()
figures.show(fig, alt=alt)

# %% [markdown]
# Below, each power of ten has its share: half as many values as the one above it, down to 10⁻⁷. That has a price. Where
# the linear map is at its best, between 0.1 and 1, the other has about half as many values: its steps are twice as
# wide.

# %% [markdown]
# > **quantization map** — the values that the codes stand for: with 8 bits, 256 of them between −1 and 1, or between 0
# > and 1.
#
# > **dynamic map** — a quantization map with values in every power of ten down to 10⁻⁷, half as many in each as in the
# > one above it.

# %% [markdown]
# It takes a few lines to make one. Each power of ten is cut into equal steps, and the middle of each step is a value.
# (The idea comes from a way to read a byte: its leading zeros tell the power of ten, and the bits after them the step.)


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
# That one is for V, the second moment, which is never negative. The [first moment](glossary.ipynb#first-moment) M has
# both signs, and its map half as many values for each.

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
    codes = torch.bucketize(blocks / absmax, midpoints)  # between which midpoints: the nearest value
    return codes.to(torch.uint8), absmax


def dequantize(codes, absmax, values):
    return (values[codes.int()] * absmax).flatten()


# %% [markdown]
# > **block-wise quantization** — quantization in which each block of neighbours has its own absmax.
#
# `course_lib.blockwise` does the same, and copes with what this one does not: a last block that is not full, a block of
# zeros, other shapes.

# %%
torch.manual_seed(0)
x = (torch.rand(1024) * 1.5 + 0.5) * torch.randn(1024).sign()  # of sizes between 0.5 and 2, of both signs
signed_map = blockwise.quantization_map(signed=True)
mine, theirs = quantize(x, signed_map, 256), blockwise.quantize(x, 256)
assert torch.equal(mine[0].flatten(), theirs.codes) and torch.equal(mine[1].flatten(), theirs.absmax)
assert torch.equal(dequantize(*mine, signed_map), blockwise.dequantize(theirs))
print(theirs.codes[:8], "…", len(theirs.absmax), "blocks:", theirs.absmax)

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
# Watch it grow. Each square is a block of 256 numbers, 16 × 16; the colour is the error of each, as a share of the
# number itself. Dark means lost. Then make the blocks smaller, and then as large as all four together.

# %% tags=["answer", "picture"]
blocks = block_errors.Blocks(marked=300)


def draw(outlier=1000.0, block_size=256):
    changed = x.clone()
    changed[300] = outlier
    title = f"One number is {outlier:,.0f}, the others between 0.5 and 2; blocks of {block_size:,}"
    return blocks(changed, block_size, title)


print("Relative errors, block by block:")
explore(draw, outlier=Slider(1, 1e4, log=True), block_size=Choice((64, 256, 1024), label="numbers in a block"))

# %% [markdown]
# Two things protect the small numbers, and each does its own part. The **dynamic map** keeps them from becoming 0: they
# only get coarser, from a typical error of half a percent to several percent. The **blocks** keep the damage in one
# place.

# %% [markdown]
# Smaller blocks are better blocks, and dearer ones. Each costs the 32 bits of its absmax. How many bits is that for
# each number?

# %%
for block_size in (64, 256, 1024):
    print(f"blocks of {block_size:5,}: {8 + 32 / block_size:.3f} bits per element")

# %% [markdown]
# With 256 the scales cost an eighth of a bit, less than 2 %. That is the choice of bitsandbytes, the library from which
# 8-bit Adam comes.

# %% [markdown]
# ## On real second moments
#
# Made-up numbers prove little. Here are the second moments of lessons 03 and 04, from the small model after 200 steps.
# Two of them: a matrix from inside a layer, and the token embeddings, with a row for each token. Which of them will
# lose more entries?

# %%
collected = moments.train_and_collect()
real = {
    "feed-forward": collected["distilbert.transformer.layer.1.ffn.lin1.weight"],
    "embeddings": collected["distilbert.embeddings.word_embeddings.weight"],
}


def lost(V, block_size, kind):
    """The share of entries that became 0, and the typical relative error of all, leaving out entries that were 0."""
    back = blockwise.dequantize(blockwise.quantize(V, block_size, signed=False, kind=kind))
    back, V = back[V > 0], V[V > 0]
    return (back == 0).float().mean().item(), ((back - V).abs() / V).median().item()


# %% tags=["varies"]
print("               blocks          linear map           dynamic map")
print("                           became 0    typical   became 0    typical")
for name, V in real.items():
    for block_size, told in ((V.numel(), "one scale"), (256, "256"), (64, "64")):
        results = [f"{value:9.1%}" for kind in ("linear", "dynamic") for value in lost(V, block_size, kind)]
        print(f"{name:13} {told:>9} ", "  ".join(results))

# %%
for V in real.values():
    whole, blocks_linear = lost(V, V.numel(), "linear")[0], lost(V, 256, "linear")[0]
    assert whole > 0.1 and blocks_linear < whole / 3 and lost(V, 256, "dynamic")[0] < 0.01
assert lost(real["embeddings"], 256, "linear")[0] > 0.03
print("One scale, linear: over 10 % become 0. Blocks, dynamic: less than 1 %.")

# %% [markdown]
# Inside the layer, blocks alone do nearly all: even the linear map is good with them. In the embeddings it still loses
# entries. There, rows of frequent and of rare tokens share a block, and that is what the dynamic map is for:

# %% tags=["varies"]
V = real["embeddings"].reshape(-1, 256)
largest = V.amax(1, keepdim=True)
fig, alt = code_points.code_points((V / largest)[largest.flatten() > 0])
figures.show(fig, alt=alt)

# %% [markdown]
# Why worry about entries so small? Because Adam **divides** by their root. An entry of V that became 0 leaves only ε to
# divide by, the 10⁻⁸ that guards against 0:

# %%
lr, eps, m, v = 1e-3, 1e-8, 1e-4, 1e-8  # one entry of M, one of V
print(f"step with v = {v}: {lr * m / (v**0.5 + eps):.4f}")
print(f"step with v = 0:     {lr * m / (0.0**0.5 + eps):.0f}")

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
# M and V are unpacked to 32 bits, everything is computed in 32 bits, and the results are packed. The first step starts
# from zeros, which 8 bits hold exactly. Rounding shows from the second step on, and adds up slowly.

# %% [markdown]
# ## For real, with bitsandbytes
#
# bitsandbytes is known as a library for GPUs. Its optimizers take steps on a CPU, too. If it is missing on your
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
        print(f"{key:8}", f"{value.dtype} {list(value.shape)}" if torch.is_tensor(value) else f"Python {value}")

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
# The same weights, maps and scales. Not all codes are the same, though: "Going deeper" at the end looks into that.

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
# Codes take one byte each. Scales are 1.6 % on top. All tensors share the two maps. And there is a line that may
# surprise you: **small tensors**. Those of fewer than 4,096 elements stay in 32 bits: vectors, and the classifier. Now
# measured:

# %%
print(f"predicted {states['8-bit AdamW'].elements:,} elements in {states['8-bit AdamW'].bytes:,} bytes")
if bitsandbytes:
    size = memory.state_size(optimizer)
    print(f"measured  {size.elements:,} elements in {size.bytes:,} bytes")
    assert (size.elements, size.bytes) == (states["8-bit AdamW"].elements, states["8-bit AdamW"].bytes)

# %% [markdown]
# To the last byte. In *elements* it is more than AdamW's 131,566,188, by the scales and the maps: 8-bit Adam keeps a
# few more numbers, in far fewer bits.

# %% [markdown]
# ### Small tensors
#
# In DistilBERT they hardly count. But think of a model that is made of small layers only.

# %%
predict("09-small")

# %% tags=["answer"]
many = torch.nn.Sequential(*(torch.nn.Linear(60, 60, device="meta") for _ in range(100)))
one = torch.nn.Linear(600, 600, device="meta")
print("AdamW's state in bytes, in 32 and in 8 bits:")
for told, layers in (("100 layers of 60 × 60", many), ("one layer of 600 × 600", one)):
    sizes = [memory.predict_state_size(layers, kinds[name]).bytes for name in ("AdamW", "8-bit AdamW")]
    print(f"{told:23} {sizes[0]:9,} {sizes[1]:9,}, {sizes[0] / sizes[1]:.2f} times less")
reveal("09-small")

# %% [markdown]
# Nearly the same number of weights, and in the many small layers the only bytes that are saved are those of torch's
# step counts, which are Python numbers in bitsandbytes. Look at the sizes of your tensors before you expect a factor of
# four.

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
through_trainer = memory.predict_state_size(on_meta, "adamw8bit_bitsandbytes", embeddings_in_32bit=True)
print("State of DistilBERT in 8-bit AdamW:")
print(f"from bitsandbytes directly {states['8-bit AdamW'].mib:7.2f} MiB")
print(f"through Trainer            {through_trainer.mib:7.2f} MiB")
print(f"of which embeddings        {8 * embeddings / MIB:7.2f} MiB")
reveal("09-trainer")

# %% [markdown]
# A third of the parameters, at four times the bytes: that doubles the sum. Predicted is not measured, so here is a
# Trainer, with two made-up texts of three tokens and a single step:

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
    texts = [{"input_ids": [101, 7592, 102], "attention_mask": [1, 1, 1], "labels": label} for label in (0, 1)]
    trainer = Trainer(model, arguments, train_dataset=texts)
    trainer.remove_callback(PrinterCallback)  # no log here
    trainer.train()

# %%
if bitsandbytes:
    for name, p in model.named_parameters():
        if name.endswith(("_embeddings.weight", "0.ffn.lin1.weight")):
            print(f"{name.removeprefix('distilbert.'):40} {trainer.optimizer.state[p]['state1'].dtype}")
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
# On this CPU the smaller state made the slower step: packing and unpacking is work, and it comes on top. (On a GPU one
# kernel does all of it, and the paper reports faster steps there.) Bytes kept and time taken are two questions. Lesson
# 11 takes up the second.

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
    moment = next(value for value in optimizer.state[layer.weight].values() if getattr(value, "ndim", 0) > 0)
    return f"weights {layer.weight.dtype}, state {moment.dtype}".replace("torch.", "")


print("AdamW, bf16=True:              ", dtypes(torch.optim.AdamW))
print("AdamW, weights cast to 16 bits:", dtypes(torch.optim.AdamW, cast_weights=True))
if bitsandbytes:
    print("8-bit AdamW, bf16=True:        ", dtypes(bitsandbytes.optim.AdamW8bit))

# %% [markdown]
# `bf16=True` leaves weights and state at 32 bits. Only who casts the weights themselves halves both, and then rounds
# every step to some three digits. 8-bit Adam does neither: it keeps the weights as they are, and packs the state.

# %% [markdown]
# ## State and total
#
# And what does it do for the total? Three ways to train DistilBERT, with weights and gradients in 32 bits:

# %%
weights = 4 * total / MIB
figures.show(
    *waterfall.three_bars(
        {name: {"weights": weights, "gradients": weights, "state": size.mib} for name, size in states.items()}
    )
)

# %% [markdown]
# 8-bit Adam keeps both moments, only coarser; Adafactor drops one and factors the other. So 8-bit Adam saves less, and
# stays closer to AdamW. What that means for accuracy is measured in the next lesson.

# %%
for name, size in (*states.items(), ("8-bit AdamW through Trainer", through_trainer)):
    print(f"{name:27} state {size.mib:6.2f} MiB, {states['AdamW'].mib - size.mib:6.2f} less than AdamW's, ", end="")
    print(f"total {2 * weights + size.mib:8,.2f}")

# %% [markdown]
# **For those who are done early.** At which block size do the scales cost as much as the codes? And: if somebody wrote
# an 8-bit Adafactor with the same rule for small tensors, which of DistilBERT's 178,504 moments would it keep in 8
# bits?

# %% tags=["answer"]
print("What you should find:")
print("blocks of", next(size for size in range(256, 0, -1) if 32 / size >= 8))
sides = {side for p in on_meta.parameters() if p.ndim == 2 for side in p.shape}
print("of all R and C only that with", *(side for side in sides if side >= 4096), "entries: R of the word embeddings")

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
# On a CPU bitsandbytes 0.50 picks codes as from a table of 65,536 evenly spaced places from −1 to 1. They lie 3 · 10⁻⁵
# apart. Whatever is closer together gets the same code, and a 0 may come back as 2 · 10⁻⁵ of the absmax. Its general
# code, for other devices, picks the nearest value, as ours does.

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
