# %% [markdown]
# ## Where we are
#
# In lesson 00, AdamW kept 501.9 MiB of [optimizer state](glossary.ipynb#optimizer-state) for DistilBERT. Without one of
# its two averages that was 250.9, and with Adafactor 0.68, while the total halved. Here you see where this number sits
# among everything that training holds in memory, and which two ways there are to make it smaller.

# %%
import torch

from course_lib import figures, memory, planner, tasks
from course_lib.adafactor import Adafactor
from course_lib.diagrams import kept, trade_off, waterfall
from course_lib.explore import Choice, Slider, Switch, explore, predict, reveal

MIB = 2**20  # bytes
model = tasks.distilbert(device="meta")  # shapes only
parameters = sum(p.numel() for p in model.parameters())
print(f"{parameters:,} parameters × 4 bytes = {4 * parameters / MIB:.1f} MiB")
for kind in ("adamw", "rmsprop", "adafactor"):
    print(f"state with {kind:9} {memory.predict_state_size(model, kind).mib:6.2f} MiB")

# %% [markdown]
# ## Four parts
#
# A *parameter* is any number that training changes: the entries of weight matrices, and of biases. Three parts of
# training memory grow with their count. The **weights** are the parameters themselves. The **gradients** are one
# number for each. The **optimizer state** you know.

# %% [markdown]
# The fourth part comes from your data. To compute gradients, the backward pass needs results from inside the
# network. So the forward pass must keep them until then.
#
# > **activations** — the results inside a network that the forward pass keeps for the backward pass.

# %% [markdown]
# How much is that? PyTorch can say: it has a hook that is called with each tensor it keeps. `saved_bytes` runs the
# forward pass and adds these up, each memory once. On the `meta` device that takes a moment and no memory.


# %%
def activations(batch, length):
    tokens = torch.zeros(batch, length, dtype=torch.long, device="meta")
    labels = torch.zeros(batch, dtype=torch.long, device="meta")
    return planner.saved_bytes(model, lambda: model(tokens, labels=labels).loss)


def parts(optimizer, batch, length):
    sizes = {**planner.parts(model, optimizer), "activations": activations(batch, length)}
    return {part: size / MIB for part, size in sizes.items()}


# %%
predict("01-largest")

# %% tags=["answer"]
print("The four parts:")
sizes = parts("AdamW", batch=8, length=128)
fig, alt = waterfall.stack(sizes, "DistilBERT with AdamW, batch of 8 × 128 tokens", span=1700)
figures.show(fig, alt=alt)
print("largest part:", max(sizes, key=sizes.get))
reveal("01-largest")

# %% [markdown]
# Was it close? (The activations are the tensors that PyTorch keeps on a CPU. On a GPU, fused attention keeps
# fewer.) Now move everything you can choose. Which part follows which control? And which never moves?


# %%
def draw(optimizer="AdamW", batch=2, length=128):
    title = f"{optimizer}, batch of {batch} × {length} tokens"
    return waterfall.stack(parts(optimizer, batch, length), title, span=4000)


explore(draw, optimizer=Choice(("AdamW", "Adafactor")), batch=Slider(1, 16), length=Slider(16, 256, step=16))

# %% [markdown]
# Batch and length move the activations, and nothing else. The optimizer moves the state, and nothing else. With
# Adafactor and a large batch, most of what is left is activations, and no optimizer will help with those.

# %% [markdown]
# It is tempting to think that **a memory-efficient optimizer compresses weights or gradients**. Look at a layer after
# one step with either. Its weights and gradients take the same bytes; only what the optimizer keeps beside them
# differs.


# %%
def one_step(optimizer_class):
    layer = torch.nn.Linear(512, 1024, bias=False)
    optimizer = optimizer_class(layer.parameters())
    layer(torch.randn(8, 512)).square().mean().backward()
    optimizer.step()
    return layer.weight, optimizer


for optimizer_class in (torch.optim.AdamW, Adafactor):
    W, optimizer = one_step(optimizer_class)
    print(f"{optimizer_class.__name__}, bytes:")
    print(f"  weights {W.nbytes:,}  gradients {W.grad.nbytes:,}  state {memory.state_size(optimizer).bytes:,}")

# %% [markdown]
# ## Three optimizers side by side
#
# That layer makes a good specimen: one matrix of 1,024 × 512 = 524,288 parameters. Here is what three optimizers keep
# for it. Where does each save, compared with AdamW?

# %%
fig, alt = kept.three_optimizers((1024, 512), block=256)
figures.show(fig, alt=alt)

# %% [markdown]
# **AdamW** keeps two averages for each parameter, in 32 bits each. **8-bit Adam** keeps the same two, in 8 bits
# each. **Adafactor** stays with 32 bits, and keeps one number for each row and one for each column.

# %% [markdown]
# Eight bits can tell 256 values apart. So that these suit both large and small numbers, each block of 256 neighbours
# shares one *scale* of 32 bits. That costs every number a little more than its 8 bits:

# %%
n, m, block = 1024, 512, 256
bits = 8 + 32 / block
print(f"8-bit Adam: {bits} bits for each number, with its share of the scale")
print(f"AdamW       2 · {n * m:,} numbers · 32    bits = {2 * n * m * 32 / 8:>9,.0f} bytes")
print(f"8-bit Adam  2 · {n * m:,} numbers · {bits} bits = {2 * n * m * bits / 8:>9,.0f} bytes")
print(f"Adafactor         {n + m:,} numbers · 32    bits = {(n + m) * 32 / 8:>9,.0f} bytes")

# %% [markdown]
# So there are two things to count, and both have a name here:
#
# > **state elements per parameter** — how many numbers an optimizer keeps for each parameter, leaving out single ones
# > such as a step count. AdamW: 2.
#
# > **bits per element** — how many bits each of these numbers takes, 32 as a rule.

# %% [markdown]
# Their product is what counts in the end:
#
# $$\text{bytes per parameter} = \text{state elements per parameter} \times \text{bits per element} \,/\, 8$$
#
# (Elsewhere you will find "precision" for the bits. Here that word is left to the metric of classifiers.)

# %% [markdown]
# You may have heard that **8-bit Adam computes in 8 bits**. It only *keeps* them. A step unpacks a block to 32 bits,
# computes as ever, and packs the result. Here is that round trip in small, with codes that are evenly spaced. (The
# real ones are not.)

# %%
codes, scale = torch.tensor([127, -64, 5], dtype=torch.int8), torch.tensor(0.02)  # kept
gradient = torch.tensor([0.01, -0.03, 0.002])
average = codes.float() / 127 * scale  # unpack
average = 0.9 * average + 0.1 * gradient  # compute
scale = average.abs().max()  # pack
codes = (average / scale * 127).round().to(torch.int8)
print(f"computed in {average.dtype}: {average.numpy().round(4)}")
print(f"kept in {codes.dtype}: {codes.numpy()} and one scale, {scale:.4f}")
hundred = torch.tensor(100, dtype=torch.int8)
print(f"what computing in 8 bits would do: 100 + 100 = {hundred + hundred}")

# %% [markdown]
# ## The trade-off
#
# Put both counts on one plane. Every optimizer becomes a point, and on each dotted line the bytes are the same. (SGD
# with momentum is an older optimizer; it keeps one number for each parameter.) Before you look: in which direction does
# 8-bit Adam lie from AdamW, and in which Adafactor?

# %% tags=["picture"]
kinds = {"AdamW": "adamw", "8-bit Adam": "adamw", "SGD with momentum": "sgd_momentum", "Adafactor": "adafactor"}
points = {name: (planner.elements_per_parameter((n, m), kind), 32) for name, kind in kinds.items()}
points["8-bit Adam"] = (points["AdamW"][0], bits)
fig, alt = trade_off.trade_off(points)
figures.show(fig, alt=alt)

# %% [markdown]
# 8-bit Adam goes **down**: as many numbers, fewer bits for each. Adafactor goes **left**: fewer numbers, as many bits
# for each. Down there is not far to go, since from 32 bits to 8 is a factor of 4. To the left there is:

# %%
for name in ("8-bit Adam", "Adafactor"):
    less = points["AdamW"][0] * points["AdamW"][1] / (points[name][0] * points[name][1])
    print(f"{name:10} takes {less:,.1f} times fewer bytes than AdamW for this matrix")

# %% [markdown]
# Neither is free. Fewer bits mean rounding. Fewer numbers mean that some are not kept but guessed from others, and one
# average is dropped altogether. What that does to training is the question of the lessons to come. (Plain SGD keeps
# nothing, so it has no place on a logarithmic axis.)

# %% [markdown]
# **A stopping point for a class.** So far: four parts, of which the optimizer moves one, and two ways to shrink that
# one. To talk about: could one go down *and* left? Where would that point lie, and what would it give up?

# %% [markdown]
# ## The shape decides
#
# AdamW's 2 is the same for every parameter. Adafactor's number is not. Images are processed by *convolutions*, whose
# weights have four axes: outputs, inputs, height and width of a small window. Adafactor takes the last two for its rows
# and columns.

# %%
predict("01-shape")

# %% tags=["answer"]
shape = torch.nn.Conv2d(32, 64, kernel_size=1).weight.shape
print(f"State elements for shape {tuple(shape)}:")
for name in ("AdamW", "Adafactor"):
    elements = planner.elements_per_parameter(shape, kinds[name])
    print(f"{name:9} {elements:.0f} per parameter, {elements * shape.numel():,.0f} for {shape.numel():,} parameters")
reveal("01-shape")

# %% [markdown]
# To Adafactor this is 2,048 matrices with a single entry. Each gets one number for its row and one for its column. Now
# start from a large square matrix and make it narrower, until it is a single column. Then try the windows.

# %%
plane = trade_off.Plane(points)
windows = {"matrix": (), "convolution, 3 × 3 window": (3, 3), "convolution, 1 × 1 window": (1, 1)}


def draw(kind="matrix", halvings=0):
    shape = (1024, 1024 // 2**halvings, *windows[kind])
    elements = {name: planner.elements_per_parameter(shape, kinds[name]) for name in kinds}
    return plane.move(elements, f"Shape {' × '.join(map(str, shape))}")


halvings = Slider(0, 10, label="halvings of the columns")
explore(draw, kind=Choice(tuple(windows), label="shape of"), halvings=halvings)

# %% [markdown]
# All others stand still. Adafactor slides to the right, past SGD with momentum, and in the end it meets AdamW. Here
# are its stops. A large matrix is what it is made for:

# %%
for shape in ((1024, 1024), (1024, 1), (1024, 1024, 3, 3), (1024, 1024, 1, 1)):
    print(f"{shape!s:20} {planner.elements_per_parameter(shape, 'adafactor'):.5f} state elements per parameter")

# %% [markdown]
# So **Adafactor is always tiny** is not true either. Not even its 0.68 MiB for DistilBERT come from the large matrices
# alone. Biases and the like are vectors, with no rows and columns to share, so it keeps one number for each entry.
# How much of the 0.68 MiB that is, lesson 08 asks.

# %%
vectors = sum(p.numel() for p in model.parameters() if p.ndim < 2)
print(f"vectors: {vectors:,} of {parameters:,} parameters, {100 * vectors / parameters:.1f} %")
small = torch.nn.Conv2d(6, 8, kernel_size=3, bias=False)
print(f"a small convolution: {memory.predict_state_size(small, 'adafactor').moments} of {small.weight.numel()}")

# %% [markdown]
# ## Two things that do not follow
#
# `bf16=True` makes training compute in 16 bits where that is safe, and is often switched on together with a leaner
# optimizer. You may have heard that **`bf16=True` halves the state**. Here is `accelerate`, which `Trainer` uses too,
# with that setting. It runs on the CPU here.

# %%
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="bf16", cpu=True)
layer = torch.nn.Linear(512, 1024, bias=False)
optimizer = accelerator.prepare(torch.optim.AdamW(layer.parameters()))
with accelerator.autocast():
    output = layer(torch.randn(8, 512))
    loss = output.square().mean()
accelerator.backward(loss)
optimizer.step()
print(f"output {output.dtype}, weights {layer.weight.dtype}, gradients {layer.weight.grad.dtype}")
print(f"state {optimizer.state[layer.weight]['exp_avg'].dtype}, {memory.state_size(optimizer).mib:.2f} MiB")

# %% [markdown]
# The *output* has 16 bits: activations do get smaller. Weights, gradients and state keep their 32, and the state is
# as large as before, 4 MiB for this layer.

# %% [markdown]
# It is also tempting to think that **fewer bytes means faster**. Measure it: the same matrix, twenty steps, the
# quickest of them.

# %% tags=["varies"]
import time

quickest = {}
for optimizer_class in (torch.optim.AdamW, Adafactor):
    _, optimizer = one_step(optimizer_class)
    times = []
    for _ in range(20):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    quickest[optimizer_class.__name__] = 1000 * min(times)
print(", ".join(f"{name} {ms:.2f} ms" for name, ms in quickest.items()))

# %% [markdown]
# Nearly 700 times fewer bytes *kept*, and no step anywhere near 700 times faster. Adafactor still goes over every
# entry of the gradient, and of the weights, as AdamW does. What it saves is room, not work.

# %% [markdown]
# ## Will it fit?
#
# Time to plan. The planner knows the shapes of some well-known models with up to 6.7 billion parameters. It adds up
# weights, gradients and state, all in 32 bits but for 8-bit Adam's state. Activations come on top, in a moment.

# %% [markdown]
# Graphics cards are sold with 16, 24 or 80 "GB". Here these are read as GiB, of 2³⁰ bytes, which is the most
# they can mean. What is free on a real card is always somewhat less.

# %%
predict("01-seven-billion")

# %% tags=["answer"]
GIB = 2**30
models = {name: planner.build(name) for name in planner.MODELS}
print("GiB of weights, gradients and state:")
print(f"{'':14}{'parameters':>14}{'AdamW':>10}{'8-bit Adam':>12}{'Adafactor':>11}")
for name, built in models.items():
    count = sum(p.numel() for p in built.parameters())
    totals = [sum(planner.parts(built, optimizer).values()) / GIB for optimizer in ("AdamW", "8-bit Adam", "Adafactor")]
    print(f"{name:14}{count:14,}{totals[0]:10.2f}{totals[1]:12.2f}{totals[2]:11.2f}")
reveal("01-seven-billion")

# %% [markdown]
# And the activations? A formula estimates them from a model's configuration (see Sources), for any batch. So here are
# all four parts. Find a setting that fits on 24 GiB with Adafactor only. Then raise the batch: from where on does no
# optimizer help?


# %%
def draw(model="GPT-2 XL", optimizer="Adafactor", batch=1, tokens=256, mixed=False, fused=False):
    tokens = min(tokens, planner.longest(models[model]))
    kind, options = planner.OPTIMIZERS[optimizer], {"mixed": mixed, "fused_attention": fused}
    plan = planner.plan(models[model], kind, batch=batch, length=tokens, **options)
    sizes = {part: size / GIB for part, size in plan.parts.items()}
    total = plan.total / GIB
    title = f"{model}, {optimizer}, {batch} × {tokens} tokens: {planner.verdict(total)}"
    span = next(span for span in (28, 115, 300, 700) if 1.1 * total < span)
    return waterfall.stack(sizes, title, span=span, unit="GiB", cards=planner.CARDS)


explore(
    draw,
    model=Choice(tuple(planner.MODELS)),
    optimizer=Choice(tuple(planner.OPTIMIZERS)),
    batch=Choice((1, 2, 4, 8, 16)),
    tokens=Choice((128, 256, 512, 1024), label="tokens in each text"),
    mixed=Switch(label="mostly in 16 bits, as with bf16=True"),
    fused=Switch(label="fused attention, as on a GPU"),
)

# %% [markdown]
# (A text is cut to the length that its model can read.) Here is the same question for many models at once: with texts
# of 512 tokens, how large a batch fits on 80 GiB?

# %%
names = ("AdamW", "8-bit Adam", "Adafactor")
print(f"{'':12}{'in 32 bits':>24}{'mostly in 16 bits':>34}")
print(f"{'':12}" + 2 * "".join(f"{name:>11}" for name in names))
for model in ("DistilBERT", "GPT-2 XL", "T5 3B", "OPT 6.7B", "LLaMA 7B"):
    batches = [
        planner.largest_batch(models[model], planner.OPTIMIZERS[name], 80 * GIB, length=512, mixed=mixed)
        for mixed in (False, True)
        for name in names
    ]
    print(f"{model:12}" + "".join(f"{batch:11}" for batch in batches))

# %% [markdown]
# In the first row activations fill the card, and the optimizer hardly matters. In the last ones it decides between no
# batch at all and a few texts. Computing in 16 bits does not halve the activations: some results stay in 32 bits, and
# 16-bit copies of the weights join them. For the largest models these copies can cost more than is saved.

# %% [markdown]
# A last trap: **state is not the total**. For LLaMA 7B, Adafactor's state is a matter of MiB, and training still
# needs some 50 GiB before the first activation. As long as all gradients wait for the step, no optimizer gets below
# weights plus gradients.

# %%
weights, gradients, state = planner.parts(models["LLaMA 7B"], "Adafactor").values()
print(f"state {state / MIB:.1f} MiB; weights and gradients {(weights + gradients) / GIB:.1f} GiB")

# %% [markdown]
# ## For those who are done early
#
# Turn the question round. A card has 24 GiB, and you leave 4 of them to activations. How many parameters may a model
# have, with AdamW and with Adafactor? Count the bytes for one parameter first. The next cell has the answer.

# %% tags=["answer"]
print("Room for 20 GiB of weights, gradients and state:")
for name, (elements, bits_each) in points.items():
    each = 4 + 4 + elements * bits_each / 8  # weight, gradient, state
    print(f"{name:17} {each:5.2f} bytes per parameter: {20 * GIB / each / 1e9:.1f} billion parameters")

# %% [markdown]
# ## Recap
#
# - Training memory has four parts: weights, gradients, optimizer state, activations. The optimizer decides about the
#   state alone; batch and length decide about the activations.
# - State elements per parameter times bits per element is what state costs. 8-bit Adam lowers the bits, Adafactor the
#   elements.
# - Adafactor's gain over AdamW depends on the shape: huge for large matrices, half for vectors, none for 1 × 1
#   convolutions.
# - Fewer bytes kept do not make a step as many times faster, and `bf16=True` does not shrink the state.

# %% [markdown]
# ## Sources
#
# - Adafactor's rows and columns: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235),
#   Algorithms 4 and 5. That it takes the last two axes is the choice of `transformers` and `torch`; the paper
#   treats matrices only.
# - 8-bit Adam, its blocks and its unevenly spaced codes: Dettmers et al. 2022,
#   [arXiv 2110.02861](https://arxiv.org/abs/2110.02861), section 2; blocks of 256:
#   [bitsandbytes](https://huggingface.co/docs/bitsandbytes/explanations/optimizers).
# - Activations: [saved tensors](https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors) in PyTorch's
#   notes on autograd. Fused attention: Dao et al. 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135).
# - Activations by formula: Korthikanti et al. 2022, [arXiv 2205.05198](https://arxiv.org/abs/2205.05198), section 4.1.
# - 16-bit computing: [automatic mixed precision](https://docs.pytorch.org/docs/stable/amp.html) in PyTorch.
# - Shapes of the models: `config.json` of each on the [Hugging Face hub](https://huggingface.co/models).
