# %% [markdown]
# ## What this course is about
#
# Training a model takes several times the memory of the model itself. A large part belongs to the *optimizer*, which
# remembers things from one step to the next. How much is that? Can nearly all of it go? And what does that cost? The
# optimizer **Adafactor** is our way to find out.

# %% [markdown]
# You need some Python, and to have seen a training loop in PyTorch once: the loss, `loss.backward()`,
# `optimizer.step()`. You need no GPU, and no network.

# %% [markdown]
# ## Is everything ready?
#
# Click into the cell below and press **Shift + Enter**. That runs the cell and moves on to the next. It looks
# at your machine and prints what it finds, line by line.

# %% tags=["varies"]
from course_lib import doctor

doctor.report()

# %% [markdown]
# The last line is the verdict. A line that begins with `problem` says what to do about it. A `note` can wait.

# %% [markdown]
# Your machine also decides what you will train. Lesson code is the same either way, and numbers that depend on the
# choice are printed, never written into the text.
#
# > **tier** — which data and model the lessons train on: *small*, made for a laptop, or *full*, for a CUDA GPU that
# > reaches the Hugging Face hub.

# %% tags=["varies"]
from course_lib import tier

here = tier.current()
assert here.name in ("small", "full")

# %% [markdown]
# ## How a lesson works
#
# Four things come again and again. You **predict** an answer before you know it. You **look** at a figure. You **do**
# something in a few lines of code. And a **recap** at the end says it all once more.

# %% [markdown]
# Answers stay folded until you run their cell. So you have a chance to be wrong, and that is when you learn most: your
# choice is quoted beside the answer, with what it overlooks. Nobody else sees it.

# %% [markdown]
# ## What an optimizer remembers
#
# A layer holds its weights in a matrix. For each weight, `backward()` computes a *gradient*: how the loss would change
# with it. The optimizer turns gradients into changes of the weights. Here is a small layer, 4 inputs and 3 outputs, and
# it learns for 100 steps to output zero.

# %%
import torch


def train(optimizer_class, inputs=4, outputs=3, steps=100):
    torch.manual_seed(0)
    layer = torch.nn.Linear(inputs, outputs, bias=False)
    optimizer = optimizer_class(layer.parameters())
    for batch in torch.randn(steps, 8, inputs):
        optimizer.zero_grad()
        layer(batch).square().mean().backward()
        optimizer.step()
    return optimizer.state[layer.weight]


# %% [markdown]
# Run the cell: it only defines `train`. The function's last line hands out what the optimizer has kept for this
# layer. Before you call it, predict.

# %%
from course_lib.explore import Choice, Slider, explore, predict, reveal

predict("00-remembers")

# %% tags=["answer"]
print("What AdamW keeps for this layer:")
state = train(torch.optim.AdamW)
for name, value in state.items():
    print(name, value.numpy().round(4), sep="\n")
print("numbers in all:", sum(value.numel() for value in state.values()))
reveal("00-remembers")

# %% [markdown]
# Two matrices as large as the weights, and a count of the steps. `exp_avg` holds running averages of the gradients,
# `exp_avg_sq` running averages of their squares. Every step overwrites them. What they are good for is the matter of
# lessons 02 and 03.
#
# > **optimizer state** — what an optimizer keeps from one step to the next. AdamW keeps two numbers for every weight,
# > and a step count.

# %% [markdown]
# Now the same training with Adafactor, in the version that you will write yourself in lesson 05:

# %%
from course_lib.adafactor import Adafactor

state = train(Adafactor)
for name, value in state.items():
    print(name, value.numpy().round(4))
print("numbers in all:", sum(value.numel() for value in state.values()))

# %% [markdown]
# No matrix any more: one number for each of the 3 rows, and one for each of the 4 columns. It makes do with these.
# (Lesson 04 shows how.) On 12 weights that saves little. **Drag the slider**, or click on it and use the arrow keys:
# what happens as the layer grows?

# %% tags=["picture"]
from course_lib.diagrams import kept


def draw(outputs=12):
    optimizers = {"AdamW": torch.optim.AdamW, "Adafactor": Adafactor}
    states = {name: train(optimizer_class, 12, outputs, steps=1) for name, optimizer_class in optimizers.items()}
    shapes = {name: {key: tuple(value.shape) for key, value in state.items()} for name, state in states.items()}
    return kept.squares((outputs, 12), shapes, rows=16)


explore(draw, outputs=Slider(1, 16, label="outputs of the layer"))

# %% [markdown]
# Each square is one number. A further output is a whole new row for AdamW, twice. For Adafactor it is one square.
# For $n$ rows and $m$ columns that makes $2nm$ numbers against $n + m$, and the gap widens as the matrix grows.

# %% [markdown]
# ## One number, three times
#
# Layers of real models are far larger. DistilBERT is a language model of 2019, small by today's measure. To count,
# its shapes are enough: PyTorch makes these on a device called `meta`, without memory and without a download.

# %%
from course_lib import figures, memory, tasks

model = tasks.distilbert(device="meta")
weights = sum(p.numel() for p in model.parameters())
print(f"{weights:,} weights")
for kind, keeps in (("adamw", "AdamW"), ("rmsprop", "exp_avg dropped"), ("adafactor", "Adafactor")):
    state = memory.predict_state_size(model, kind)  # RMSProp is an older optimizer without exp_avg
    print(f"{keeps:16} {state.elements:>11,} numbers kept, {state.mib:6.2f} MiB")

# %% [markdown]
# A number takes 4 bytes; a MiB has 2²⁰ bytes, about a million. AdamW keeps **501.9 MiB**. Without `exp_avg`
# it would be **250.9**. With rows and columns in place of `exp_avg_sq` it is **0.68**: over 700 times less. These three
# numbers are the thread of the course.

# %% [markdown]
# (README counts 178,712 numbers for Adafactor, not 178,608. That is the version of `transformers`, which also notes
# the size of each tensor. Lesson 08 explains the 104 between them.)

# %% [markdown]
# But state is not all that training holds in memory. There are also the weights, and a gradient for each weight.

# %%
predict("00-total")

# %% tags=["answer"]
from course_lib.diagrams import waterfall


def parts(kind):
    each = 4 * weights / 2**20  # MiB
    return {"weights": each, "gradients": each, "state": memory.predict_state_size(model, kind).mib}


bars = {"AdamW": "adamw", "exp_avg dropped": "rmsprop", "Adafactor:\nexp_avg_sq packed": "adafactor"}
print("The total, for three optimizers:")
fig, alt = waterfall.three_bars({label: parts(kind) for label, kind in bars.items()})
figures.show(fig, alt=alt)
reveal("00-total")

# %% [markdown]
# Two factors, then, one for the state and one for the total. Both are true, and whoever quotes one should know the
# other. Now choose the optimizer yourself. Which parts never move?

# %%
menu = {"AdamW": "adamw", "Adafactor": "adafactor", "SGD with momentum": "sgd_momentum", "SGD": "sgd"}


def draw(optimizer="AdamW"):
    before = ("AdamW, total", sum(parts("adamw").values()))
    return waterfall.stack(parts(menu[optimizer]), f"DistilBERT with {optimizer}", span=1150, before=before)


explore(draw, optimizer=Choice(tuple(menu)))

# %% [markdown]
# Weights and gradients stay as they are, whatever the optimizer. (SGD, the oldest one, keeps no state at all. Then
# why not take that? Lesson 03 shows what remembering is good for.) There is a fourth part, which depends on your
# data; lesson 01 adds it.

# %% [markdown]
# **A stopping point for a class.** To talk about: who gains by halving the total, and who would gain little? Think of a
# model that is a bit too large for the card, and of one that fits many times over.

# %% [markdown]
# ## Train with it
#
# In practice Adafactor is one argument away. `Trainer`, from Hugging Face's `transformers`, runs the training loop for
# you, here with the data and the model of your tier. What follows `optim` sets the pace and keeps the output short.

# %%
from transformers import Trainer, TrainingArguments

task = tasks.load()
print(task.description)
arguments = TrainingArguments(
    output_dir="results",
    optim="adafactor",
    learning_rate=task.learning_rate,
    per_device_train_batch_size=task.batch_size,
    max_steps=60,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
    dataloader_pin_memory=False,
)

# %% tags=["varies"]
trainer = Trainer(task.model(), arguments, train_dataset=task.train, data_collator=task.collator)
trainer.train()
losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
assert here.name == "full" or losses[-1] < losses[0]

# %% [markdown]
# `Trainer` prints the loss every 20 steps. On the small tier it begins to fall. Lesson 06 trains in earnest, and judges
# the result. And what did *this* optimizer keep?

# %%
size, with_adamw = memory.state_size(trainer.optimizer), memory.predict_state_size(trainer.model, "adamw")
print(f"numbers kept: {size.elements:,}, where AdamW would keep {with_adamw.elements:,}")

# %% [markdown]
# ## The way ahead
#
# Lesson 01 says where these numbers sit in the memory that training takes. Lessons 02 to 05 take the state apart,
# until you can write Adafactor yourself. In 06 and 07 you train with it. In 08 you open a full-size optimizer and
# account for **every one** of those 131,566,188 numbers, and of those that are left.

# %% [markdown]
# Short of time? The short route is 00 → [01](01_optimizer_trade_offs.ipynb) → [04](04_row_column_factorization.ipynb)
# → [06](06_trainer.ipynb) → [08](08_inside_the_optimizer.ipynb). Sections that begin with *Going deeper* can be
# skipped on any route. Every term is explained where it first comes up, and again in the [glossary](glossary.ipynb).

# %% [markdown]
# ## For those who are done early
#
# Is there a layer for which Adafactor keeps as many numbers as AdamW? Try `train(Adafactor, inputs=…, outputs=…)`. The
# next cell has an answer.

# %% tags=["answer"]
print("One input, one output:")
for optimizer_class in (torch.optim.AdamW, Adafactor):
    state = train(optimizer_class, inputs=1, outputs=1)
    print(optimizer_class.__name__, "keeps", sum(value.numel() for value in state.values()), "numbers for one weight")

# %% [markdown]
# ## Recap
#
# - Optimizer state is what an optimizer keeps between steps. AdamW keeps two numbers for every weight.
# - Adafactor keeps one for each row and one for each column of a matrix.
# - For DistilBERT that is 501.9 MiB against 0.68; with weights and gradients, the total halves.
# - `optim="adafactor"` is all it takes to use it. Knowing what it does takes a few lessons more.

# %% [markdown]
# ## Sources
#
# - Adafactor: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235), sections 3 and 4. AdamW:
#   Loshchilov & Hutter 2019, [arXiv 1711.05101](https://arxiv.org/abs/1711.05101).
# - DistilBERT: Sanh et al. 2019, [arXiv 1910.01108](https://arxiv.org/abs/1910.01108); its shapes are those of
#   [distilbert-base-cased](https://huggingface.co/distilbert/distilbert-base-cased) with two labels.
# - `optim`: [`TrainingArguments`](https://huggingface.co/docs/transformers/main_classes/trainer). The `meta` device:
#   [PyTorch's documentation](https://docs.pytorch.org/docs/stable/meta.html).
# - Data of the small tier: names from the [Unicode CLDR](https://cldr.unicode.org) (Unicode License v3), through
#   [babel](https://babel.pocoo.org). Data of the full tier: MRPC in
#   [GLUE](https://huggingface.co/datasets/nyu-mll/glue).
