# %% [markdown]
# ## Where we are
#
# 501.9 MiB of state, 250.9 without the first moment, 0.68 with rows and columns. In lesson 06 Trainer used this for
# you. Now you write the loop yourself, with another Adafactor, the one that comes with PyTorch. In 08 you will look
# into both.

# %% tags=["varies"]
import warnings
from functools import partial
from math import log
from statistics import median
from types import SimpleNamespace
from unittest import mock

import torch
from sklearn.metrics import accuracy_score, f1_score

from course_lib import adafactor, figures, launch, memory, tasks, tier
from course_lib.diagrams import switch_card, training_runs
from course_lib.explore import Slider, explore, predict, reveal

torch.set_num_threads(1)  # this model is too small for two threads to help
here = tier.current()
assert here.name in tier.TIERS
in_shards = launch.start("course_lib.sharded_step", processes=2)  # works while you read; for the end

# %%
model = tasks.distilbert(device="meta")
for kind in ("adamw", "rmsprop", "adafactor_torch"):
    print(f"{kind:15} {memory.predict_state_size(model, kind).mib:6.2f} MiB")

# %% [markdown]
# ## The same name, another rate
#
# First the card again. You know the third column from lesson 06. Today's optimizer is the **last** one: what is
# different?

# %%
figures.show(*switch_card.draw())

# %% [markdown]
# Everything is on. RMS scaling cannot even be switched off: torch's class multiplies by RMS(X), always. Its `lr` is the
# cap of the relative step size. So the rate that you found in lesson 06 will not do here. Which one will? (torch has
# had this class since version 2.5.)

# %%
import inspect

from torch.optim import Adafactor

for name, setting in inspect.signature(Adafactor).parameters.items():
    if name != "params":
        print(f"{name} = {setting.default}", end="   ")

# %%
predict("07-rate")


# %% tags=["answer"]
from transformers.optimization import Adafactor as Transformers


def first_step(make, size=0.05):
    X = torch.nn.Parameter(torch.full((4, 4), size, dtype=torch.float64))
    X.grad = torch.ones_like(X)
    make([X]).step()
    return size - X[0, 0].item()


print("The first step at RMS(X) = 0.05:")
by_trainer = partial(Transformers, scale_parameter=False, relative_step=False)
print(f"as Trainer has it, rate 0.001   {first_step(partial(by_trainer, lr=1e-3)):.7f}")
for lr in (5e-5, 1e-3, 1e-2, 2e-2):
    print(f"torch, lr = {lr:<8g}            {first_step(partial(Adafactor, lr=lr)):.7f}")
reveal("07-rate")

# %% [markdown]
# Hold these lines against each other: what does torch do with its `lr`? To be sure, keep the `lr` and change the
# matrix:

# %% tags=["answer"]
print("torch's first step with lr = 0.01:")
for size in (0.05, 0.1, 1.0):
    print(f"RMS(X) = {size:<4g}  {first_step(partial(Adafactor, lr=1e-2), size):.4f}")

# %% [markdown]
# torch's step size is $\min(\mathrm{lr}, 1/\sqrt t) \cdot \max(\varepsilon_2, \mathrm{RMS}(X))$. To go as far as a
# rate without RMS scaling, **divide that rate by RMS(X)**. The cap 1/√t falls below 0.02 only after step 2,500:

# %%
assert abs(first_step(partial(Adafactor, lr=1e-3 / 0.05)) - 1e-3) < 1e-12
print("1/√t at step 2,500:", 2500**-0.5)

# %% [markdown]
# ### One rate for a whole model
#
# A model has many tensors, with many sizes. Let both forms take a first step on your task's model. (Left out are the
# biases of the keys: their gradient is 0 but for rounding.)

# %%
task = tasks.load()
rows = task.collator([task.train[i] for i in range(8)])


def rms(x):
    return x.detach().square().mean().sqrt().item()


def first_moves(make):
    model, start = task.model(seed=0).eval(), task.model(seed=0)
    model(**rows).loss.backward()
    make(model.parameters()).step()
    moved = {name: rms(p - start.get_parameter(name)) for name, p in model.named_parameters()}
    return {name: move for name, move in moved.items() if "k_lin.bias" not in name}


# %% [markdown]
# While 1/√t is no smaller, a step in torch is proportional to `lr`. So we measure it for `lr=1`, and the slider
# multiplies. **Can you find a rate that brings all circles onto the crosses?**

# %% tags=["varies"]
from course_lib.diagrams.rates import FirstMoves

given = first_moves(partial(by_trainer, lr=task.learning_rate))
relative = first_moves(partial(Adafactor, lr=1.0))
sizes = {name: rms(p) for name, p in task.model(seed=0).named_parameters()}
picture = FirstMoves()


def draw(lr=0.01):
    return picture.update(sizes, given, {name: lr * move for name, move in relative.items()}, lr)


explore(draw, lr=Slider(1e-3, 0.2, log=True, label="torch's lr"))

# %% [markdown]
# There is none: a flat line and a slope meet in one point. Where tensors are small, as biases are at first, torch
# moves them less far; where they are large, as the scales of LayerNorm, further. You can match the *matrices*, in
# which nearly all parameters sit:

# %% tags=["varies"]
typical = median(rms(p) for p in task.model(seed=0).parameters() if p.ndim == 2)
lr = task.learning_rate / typical
print(f"{task.learning_rate:g} / {typical:.3f} = {lr:.3g}, your task's rate for torch")
assert abs(first_step(partial(Adafactor, lr=lr), size=typical) / task.learning_rate - 1) < 1e-6

# %% [markdown]
# ## The pieces of a loop
#
# Trainer made all of these for you. Now you make them: model, optimizer, two loaders that turn rows into batches, and
# the linear schedule of lesson 06. `num_training_steps` is how often it will be asked to step. Fewer epochs
# than there will do.

# %%
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import get_scheduler

tier.seed_everything(0)
accelerator = Accelerator(mixed_precision=here.mixed_precision)
model = task.model(seed=0)
optimizer = Adafactor(params=model.parameters(), lr=lr)
train_loader = DataLoader(task.train, batch_size=task.batch_size, shuffle=True, collate_fn=task.collator)
eval_loader = DataLoader(task.validation, batch_size=task.batch_size, collate_fn=task.collator)
epochs = (task.epochs + 1) // 2
steps = epochs * len(train_loader)
print(f"epochs {epochs} (there {task.epochs}), batches {len(train_loader)}, steps {steps}")
lr_scheduler = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=steps)

# %% [markdown]
# Then hand them all to `accelerator.prepare`. It returns them in the same order, fit for wherever the program runs:
# on the right device, with the right number of bits, wrapped to work with other processes.

# %% tags=["varies"]
model, optimizer, train_loader, eval_loader, lr_scheduler = accelerator.prepare(
    model, optimizer, train_loader, eval_loader, lr_scheduler
)
for piece in (model, optimizer, train_loader, lr_scheduler):
    print(type(piece).__name__)
print("device:", accelerator.device, "  processes:", accelerator.num_processes)
assert accelerator.num_processes == 1 and type(optimizer).__name__ == "AcceleratedOptimizer"

# %% [markdown]
# The optimizer is an `AcceleratedOptimizer` now, as Trainer's was at the end of lesson 06. It passes `step`,
# `param_groups` and `state` on to the one inside. With a single process the model keeps its class; with several it
# would be wrapped too.

# %% [markdown]
# ## The loop
#
# Read it aloud, call by call: forward, backward, step, schedule, clear. Loss and rate are logged as Trainer logs them.
# `require_finite` ends the run if the loss is NaN, with advice, as the callback of lesson 06 did. It takes a while.

# %% tags=["varies"]
from course_lib.finite import require_finite

history, last = [], None
for epoch in range(epochs):
    model.train()
    for step, batch in enumerate(train_loader):
        loss = model(**batch).loss  # the batch brings its labels along
        last = require_finite(loss, step, last)  # before it can do harm
        accelerator.backward(loss)
        history.append({"loss": last, "learning_rate": lr_scheduler.get_last_lr()[0]})
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"epoch {epoch + 1}, step {step:3}: Loss = {loss:.2f}")
assert sum(line["loss"] for line in history[-50:]) < 0.8 * sum(line["loss"] for line in history[:50])

# %% tags=["varies"]
figures.show(*training_runs.loss_and_rate({"this loop": history}, chance=log(len(task.labels))))
together = sum(line["learning_rate"] for line in history)
print(f"all rates together {together:.2f}, times the matrices' size {together * typical:.3f}")
as_in_06 = task.learning_rate * (len(history) + 1) / 2
print(f"all rates together as Trainer has it:            {as_in_06:.3f}")
assert abs(together * typical / as_in_06 - 1) < 0.02

# %% [markdown]
# On the left the loss falls. On the right the area is now a length in units of the tensor's *own size*. Multiplied by
# the size with which the matrices began, it is the way that Trainer's rate allows them. That is what the translation
# was for.

# %% [markdown]
# ## Does it beat the baseline?
#
# Evaluation is a loop too: evaluation mode, no gradients, the answers collected. `gather_for_metrics` brings them
# together from all processes, and drops rows that were dealt out twice to make batches even.


# %%
def evaluate():
    model.eval()
    truth, answers = [], []
    for batch in eval_loader:
        with torch.no_grad():
            logits = model(**batch).logits
        found = accelerator.gather_for_metrics((batch["labels"], logits.argmax(dim=-1)))
        truth += found[0].tolist()
        answers += found[1].tolist()
    return truth, answers


def scores(truth, answers):
    return accuracy_score(truth, answers), f1_score(truth, answers, average=task.average)


# %% tags=["varies"]
truth, answers = evaluate()
result, baseline = scores(truth, answers), scores(truth, [task.majority] * len(truth))
for name, (accuracy, f1) in (("this loop", result), ("always the most frequent class", baseline)):
    print(f"{name:31} accuracy {accuracy:.3f}, {task.average} F1 {f1:.3f}")
assert truth == list(task.validation["labels"])
assert result[0] > baseline[0] + 0.05 and result[1] > baseline[1]

# %% [markdown]
# It learned. Compare with your run in lesson 06, which had more epochs: another class, another loop, the same
# size of step. And what does this optimizer keep? `state` looks through the wrapping:

# %%
kept = optimizer.state[model.classifier.weight]
print({key: list(value.shape) for key, value in kept.items()})
parameters = sum(p.numel() for p in model.parameters())
each = memory.state_size(optimizer).elements / parameters
print(f"{each:.2f} numbers kept per parameter, AdamW would keep 2")

# %% [markdown]
# R is called `row_var`, and C `col_var`. In lesson 08 you will count all of `optimizer.state.values()`, and compare
# what the classes keep.

# %% [markdown]
# > **Stopping point for a class.** So far: another rate, the pieces, the loop, the proof that it learned. To talk
# > about: which of its lines have you never seen, when you used Trainer? What follows: the ways in which such a loop
# > goes wrong.

# %% [markdown]
# ## Find the faults
#
# A loop as it is often shown. The model comes from `from_pretrained`, optimizer, loader and scheduler have just been
# made. It runs, no error. What is missing? Three things at least: write them down before you read on.
#
# ```python
# for batch in train_loader:
#     outputs = model(batch["input_ids"], labels=batch["labels"])
#     accelerator.backward(outputs.loss)
#     optimizer.step()
#     lr_scheduler.step()
#     optimizer.zero_grad()
#     print(f"Loss = {outputs.loss:.2f}")
# ```

# %% [markdown]
# If you are short of one, hold this loop against the one above, line by line, and look at what came before each.
# Written down? Here they are, one after the other.

# %% [markdown]
# ### The mask
#
# Rows of a batch are padded to the same length, and the *attention mask* says what is padding. `model(**batch)`
# passes it on. The loop above drops it. Then the model reads the padding too. One row, padded to different lengths:

# %% tags=["varies"]
row = min(task.validation, key=lambda row: len(row["input_ids"]))
model.eval()
for masked in (True, False):
    probabilities = []
    for extra in (0, 30):
        length = len(row["input_ids"]) + extra
        batch = task.tokenizer.pad([row], padding="max_length", max_length=length, return_tensors="pt")
        keys = ("input_ids", "attention_mask") if masked else ("input_ids",)
        batch = {key: batch[key].to(accelerator.device) for key in keys}
        with torch.no_grad():
            probabilities.append(model(**batch).logits.softmax(dim=-1)[0, row["labels"]].item())
    print(f"{'with' if masked else 'without'} mask: {probabilities[0]:.3f}, padded {probabilities[1]:.3f}")
    assert not masked or abs(probabilities[0] - probabilities[1]) < 0.02

# %% [markdown]
# With the mask, padding changes nothing. Without it, the answer for one row depends on how long the *other* rows of
# its batch happen to be. No error says so.

# %% [markdown]
# ### Training mode
#
# A model is in one of two modes. In evaluation mode dropout is off. Which mode does `from_pretrained` leave? We make
# a model in its way, without a download:

# %% tags=["varies"]
fresh = task.model(seed=0)
loaded = type(fresh).from_pretrained(None, config=fresh.config, state_dict=fresh.state_dict())
print("training mode after from_pretrained:", loaded.training)
for mode in (False, True):
    loaded.train(mode)
    losses = [loaded(**rows).loss.item() for _ in range(2)]
    print(f"training mode {mode!s:5}  the same batch twice: {losses[0]:.4f}, {losses[1]:.4f}")
    assert (losses[0] != losses[1]) == mode

# %% [markdown]
# So without `model.train()` a pretrained model trains without its dropout. And if you evaluate after every epoch,
# `model.eval()` stays in force until someone calls `train()` again. That is why it stands *inside* the loop over
# epochs.

# %% [markdown]
# ### Preparing
#
# On one CPU a loop without `prepare` does the same as one with it, and that is the danger. Elsewhere model and batch
# are on different devices, every process works through *all* the data, and nobody averages gradients. One difference
# shows here as well. Eight batches, a step wanted after every fourth:


# %%
def count_steps(prepared, batches=8, accumulation=4):
    layer = torch.nn.Linear(1, 1, bias=False)
    optimizer = Adafactor(layer.parameters())
    layer, loader = accelerator.prepare(layer, DataLoader(torch.full((batches, 1), 0.01)))
    optimizer = accelerator.prepare(optimizer) if prepared else optimizer
    accelerator.gradient_accumulation_steps = accumulation
    for batch in loader:
        with accelerator.accumulate(layer):
            accelerator.backward(layer(batch).mean())
            optimizer.step()
            optimizer.zero_grad()
    accelerator.gradient_accumulation_steps = 1
    return int(optimizer.state[layer.weight]["step"])


print("steps, prepared:    ", count_steps(prepared=True))
print("steps, not prepared:", count_steps(prepared=False))
assert (count_steps(True), count_steps(False)) == (2, 8)

# %% [markdown]
# Under `accelerator.accumulate` a *prepared* optimizer lets three of four calls pass without doing anything. One that
# was not prepared knows nothing of that.

# %% [markdown]
# ### The order of the calls
#
# The loop above had it right: backward, step, schedule, zero_grad. Which other orders work? One of them first:

# %%
predict("07-zero")

# %% [markdown]
# To find out, a single 2 × 2 parameter, a gradient that is always 1, four steps, a rate that falls from 0.04 in four
# equal parts. Such questions belong to torch, with Accelerate or without.


# %%
def run(order, steps=4):
    X = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = Adafactor([X], lr=0.04)
    schedule = get_scheduler("linear", optimizer, 0, steps)
    do = {"zero_grad": optimizer.zero_grad, "schedule": schedule.step, "step": optimizer.step}
    do["backward"] = lambda: X.sum().backward()
    seen = []
    for name in steps * order.split():
        if name == "step":
            length = 0.0 if X.grad is None else X.grad.norm().item()
            seen.append((length, schedule.get_last_lr()[0]))
        do[name]()
    return (*zip(*seen, strict=True), 1 - X[0, 0].item())


# %% tags=["answer"]
print("At each of the four steps:")
results = {}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for order in (
        "backward step schedule zero_grad",
        "zero_grad backward step schedule",
        "backward zero_grad step schedule",
        "backward step schedule",
        "backward schedule step zero_grad",
    ):
        lengths, rates, moved = results[order] = run(order)
        lengths, rates = (" ".join(f"{x:g}" for x in column) for column in (lengths, rates))
        print(f"{order:33}  ‖G‖ {lengths}   rates {rates:19}  moved {moved:.3f}")
print("A warning from torch:", str(caught[-1].message).partition(". ")[0])
reveal("07-zero")

# %% [markdown]
# And the other orders in the table:
#
# - `zero_grad` first, before `backward`: as good as last. Many loops are written so.
# - `zero_grad` missing: gradients pile up. Yet X moves the same way here, since Adafactor looks at no lengths. Real
#   batches differ, and all the old ones would have a say in every step.
# - Schedule before step: the first rate is never used, and the last step has rate 0. Only here somebody warns.

# %%
usual, first, early, never, schedule_first = results.values()
assert first == usual and early[2] == 0.0
assert never[0] == (2.0, 4.0, 6.0, 8.0) and never[2] == usual[2]
assert schedule_first[1] == (0.03, 0.02, 0.01, 0.0)

# %% [markdown]
# ## Accumulation
#
# In lesson 06 Trainer's loss came out k times too large with
# [gradient accumulation](glossary.ipynb#gradient-accumulation). Here `accelerator.backward` divides every loss by k,
# whatever the model does. `accumulate` marks what belongs together. The same test, with the same 8 rows:


# %%
def length_of_gradient(pieces):
    accelerator.gradient_accumulation_steps = pieces
    model = task.model(seed=0).eval()  # no dropout
    loader = DataLoader(task.train.select(range(8)), batch_size=8 // pieces, collate_fn=task.collator)
    model, loader = accelerator.prepare(model, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
    accelerator.gradient_accumulation_steps = 1
    return torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()


whole = length_of_gradient(1)
for pieces in (1, 2, 4):
    share = length_of_gradient(pieces) / whole
    print(f"{8 // pieces} × {pieces}: {share:.2f} of the whole batch's gradient")
    assert abs(share - 1) < 0.05

# %% [markdown]
# ## Several processes
#
# Your loop runs in several processes without a change: that is what `prepare` is for. How it counts, you should know
# before you start one.
#
# > **data parallelism** — several processes, each with a copy of the model and batches of its own; they average their
# > gradients before each step, so that all copies stay equal.

# %% [markdown]
# The batches are dealt out in turn, like cards. If the last round is not full, the first rows serve once more. And a
# step that is due at the end of an epoch is taken there, even if its group is incomplete.

# %%
predict("07-steps")

# %% [markdown]
# Accelerate's own dealer works without other processes. And for one process the steps can be counted in a real loop.


# %% tags=["answer"]
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler

batches = BatchSampler(range(1000), batch_size=16, drop_last=False)
hands = [list(BatchSamplerShard(batches, num_processes=2, process_index=p)) for p in range(2)]
print("Dealt out to two processes:")
each = len(hands[0])
print(f"{len(batches)} batches, {each} and {len(hands[1])} for each; the last begins with row {hands[1][-1][0]} again")
by_epoch = count_steps(True, each)
print(f"{each} in groups of 4: {by_epoch} steps in an epoch, {3 * by_epoch} in three")
print(f"one more, {each + 1} in groups of 4: {count_steps(True, each + 1)} steps")
reveal("07-steps")
assert len(hands[1]) == each and count_steps(True, each + 1) == by_epoch + 1

# %% [markdown]
# Three divisions, each rounded up: rows to batches, batches to processes, batches to steps. In the picture each lane
# is a process. Go from one process to four, and watch the colored bars behind each step. **What grows with the
# processes, and what shrinks?**

# %% tags=["picture"]
from course_lib.diagrams.timeline import Epoch, Timeline

timeline = Timeline()


def draw(processes=2, accumulation=4, rows=1000):
    return timeline.update(rows, 16, processes, accumulation)


explore(
    draw,
    processes=Slider(1, 4),
    accumulation=Slider(1, 8, label="backwards to a step"),
    rows=Slider(40, 1200, step=40, label="rows of the data set"),
)

# %% [markdown]
# (Widths show the order of calls, not their time.) Steps become fewer: with two processes each has twice as many rows.
# But behind every step there are as many **scheduler ticks** as there are processes. Is that so?

# %%
from accelerate.scheduler import AcceleratedScheduler

for line in inspect.getsource(AcceleratedScheduler.step).splitlines():
    if "sync_gradients" in line or "num_processes" in line:
        print(line.strip())

# %%
predict("07-ticks")

# %% [markdown]
# We can make the scheduler believe that there are more processes than one. Eight steps each, a schedule made for
# eight:


# %%
def rates_with(processes, steps=8, planned=8):
    X = torch.nn.Parameter(torch.ones(2, 2, device=accelerator.device))
    optimizer = Adafactor([X], lr=0.08)
    schedule = get_scheduler("linear", optimizer, 0, planned)
    optimizer, schedule = accelerator.prepare(optimizer, schedule)
    rates = []
    pretended = SimpleNamespace(num_processes=processes)
    with mock.patch("accelerate.scheduler.AcceleratorState", lambda: pretended):
        for _ in range(steps):
            rates.append(schedule.get_last_lr()[0])
            accelerator.backward(X.sum())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return rates


# %% tags=["answer"]
print("Rates of eight steps:")
for processes in (1, 2, 4):
    print(f"processes: {processes}  ", " ".join(f"{rate:.2f}" for rate in rates_with(processes)))
reveal("07-ticks")

# %% [markdown]
# Why is it built so? Each process gets its share of the batches only. A schedule, though, is meant to be made before
# `prepare`, from the length of the *whole* loader, and then ticks and plan agree, but for rounding. If you count steps
# yourself, plan for **steps times processes**.

# %% [markdown]
# Steps, not batches: while gradients are still being added up, the `if` in the lines of the scheduler lets no tick
# pass. With accumulation over k batches, divide the length of the loader by k, and round up.

# %%
epoch = Epoch.plan(1000, 16, processes=2, accumulation=4)
assert epoch.steps == count_steps(True, each)
planned = epoch.steps * 2
print(f"{epoch.steps} steps on 2 processes, planned for {planned}:", end=" ")
rates = rates_with(2, steps=epoch.steps, planned=planned)
print(" ".join(f"{rate:.2f}" for rate in rates))
torch.testing.assert_close(torch.tensor(rates), 0.08 * (1 - torch.arange(8) / 8))
assert rates_with(4) == [0.08, 0.04, 0, 0, 0, 0, 0, 0]

# %% [markdown]
# ### The same loop in two processes
#
# A notebook is one process. (`notebook_launcher` starts more, but fails once the notebook has touched the GPU.) What
# outgrows it becomes a script, which is started once for each process. `course_lib/distributed_loop.py` is your loop
# as a script. What is new in it?

# %%
from course_lib import distributed_loop

source = inspect.getsource(distributed_loop.train)
print(source[source.index("    model, optimizer, loader") : source.index("    held")])

# %% [markdown]
# `reduce` makes the loss a mean over all processes, and `accelerator.print` prints in the *main process* only. To
# be compared, runs must have the same rows in each step (64 in all, dealt out), in the same order, and no dropout,
# whose masks would differ. **What does each of two processes hold, compared with one alone?**

# %%
predict("07-holds")

# %% [markdown]
# In a terminal you start the script with one process, and with two, by these lines:
#
# ```bash
# python -m course_lib.distributed_loop --steps 40
# torchrun --nproc_per_node 2 -m course_lib.distributed_loop --steps 40
# ```
#
# From a notebook, `launch.start` does the same, on the CPU, and `result` stops what takes longer than three minutes.
# Here both run side by side. They take some seconds, most of them for imports.

# %% tags=["varies"]
script = "course_lib.distributed_loop"
started = [launch.start(script, "--steps", "40", processes=n) for n in (1, 2)]
alone, pair = (run.result() for run in started)
print(alone.printed, pair.printed, sep="\n\n")

# %% tags=["answer", "varies"]
from course_lib.diagrams import processes

print("Their losses, and what they hold:")
figures.show(*processes.compare(alone.results, pair.results))
reveal("07-holds")

# %% [markdown]
# And the losses? Is it the same training, and do both processes end with the same weights and the same state?

# %% tags=["varies"]
apart = processes.furthest(alone.results["losses"], pair.results["losses"])
print(f"losses, one process and two: at most {apart:.0e} apart")
print("weights and state of the two at the end:", pair.results["apart"], "apart")
assert apart < 1e-3 and pair.results["apart"] == 0

# %% [markdown]
# The same training, and copies that are equal to the last bit. **Activations are shared out, weights, gradients and
# state are not.** On top come the *messages*, a second copy of the gradients, in which they are exchanged.
# (`gradient_as_bucket_view=True` makes the two one.) So the state has its price in every process. For DistilBERT:

# %%
for part in ("weights", "gradients", "state"):
    assert pair.results["bytes"][part] == 2 * alone.results["bytes"][part]  # one entry for each
full = tasks.distilbert(device="meta")
for kind in ("adamw", "adafactor_torch"):
    each = memory.predict_state_size(full, kind).mib
    print(f"{kind:15}  {each:6.2f} MiB of state in each process, {8 * each:8.2f} MiB in 8 of them")

# %% [markdown]
# On GPUs, `accelerate launch` is the starter. On one machine with four of them, and on two such machines:
#
# ```bash
# accelerate launch --multi_gpu --num_machines 1 --num_processes 4 -m course_lib.distributed_loop
# accelerate launch --multi_gpu --num_machines 2 --machine_rank 0 --num_processes 8 \
#     --main_process_ip ADDRESS --main_process_port 29500 -m course_lib.distributed_loop
# ```
#
# The second is typed on both, with `--machine_rank 1` on the other; `--num_processes` counts those of all machines.

# %% [markdown]
# **A trap:** `accelerate launch --cpu --num_processes 2` starts one process, and says nothing. (A test of this course
# watches whether that is still so.) On a CPU take `torchrun`, and anywhere let the main process print
# `accelerator.num_processes`, as the script does in its second line.

# %% [markdown]
# ## Computing in 16 bits
#
# > **mixed precision** — computing forward and backward in 16 bits per number where that is safe, while weights, their
# > gradients and the optimizer state keep 32.

# %% [markdown]
# `Accelerator(mixed_precision="bf16")` is all it takes, or `"fp16"` on older GPUs, where `accelerator.backward` also
# enlarges the loss, so that small gradients do not vanish. It is tempting to think that **bf16 halves the state**.
# Look at yours:

# %% tags=["varies"]
print("mixed precision:", accelerator.mixed_precision)
print("weights:", {p.dtype for p in model.parameters()})
kept = [value for state in optimizer.state.values() for value in state.values()]
print("state:  ", {value.dtype for value in kept})
assert {value.dtype for value in kept} == {torch.float32}

# %% [markdown]
# On a CPU that is no surprise, as `no` stands above. On a GPU the last two lines are the same. Lesson 01 shows it for
# bf16 on any machine: activations get smaller, the state does not.

# %% [markdown]
# ## Trainer or Accelerator?
#
# You have trained with both. Who wrote what? White is what you write, and what you can therefore change.

# %%
from course_lib.diagrams.trainer_accelerator import trainer_accelerator

figures.show(*trainer_accelerator())

# %% [markdown]
# Trainer is easier to use: the loop with all its traps is not yours. Accelerator is easier to change: each line is
# yours, and only what depends on the machine is not. For one and the same wish:
#
# | you want another … | with Trainer | with Accelerator |
# |---|---|---|
# | loss | `compute_loss_func=…` | the line with `loss =` |
# | optimizer or schedule | `optimizers=(…, …)` | the lines that make them |
# | log, or reason to stop | `callbacks=[…]` | a line in the loop |
# | kind of step | a subclass with its own `training_step` | the loop itself |

# %%
from transformers import Trainer

arguments = inspect.signature(Trainer).parameters
print([name for name in ("compute_loss_func", "optimizers", "callbacks") if name in arguments])
print("training_step" in dir(Trainer))
assert {"compute_loss_func", "optimizers", "callbacks"} <= set(arguments)

# %% [markdown]
# A rule of thumb: begin with Trainer. Go on to Accelerator when you find yourself working *around* Trainer: two
# models that train in turn, a loss over several batches, an optimizer of your own making in a loop of your own making.

# %% [markdown]
# ## Going deeper: go on where you stopped
#
# In lesson 06 a [checkpoint](glossary.ipynb#checkpoint) took a run to the same weights, bit by bit. Your loop can do
# that too, even from the middle of an epoch. For that the batches have to come in the same order again, and dropout
# has to draw the same numbers.

# %%
from accelerate.utils import DataLoaderConfiguration

ordered = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)


def new_run():
    run = SimpleNamespace(done=0, losses=[])
    run.accelerator = Accelerator(mixed_precision=here.mixed_precision, dataloader_config=ordered)
    model = task.model(seed=0)
    optimizer = Adafactor(model.parameters(), lr=lr)
    rows, own = task.train.select(range(24)), torch.Generator()
    loader = DataLoader(rows, 8, shuffle=True, collate_fn=task.collator, generator=own)
    schedule = get_scheduler("linear", optimizer, 0, 2 * len(loader))
    prepared = run.accelerator.prepare(model, optimizer, loader, schedule)
    run.model, run.optimizer, run.loader, run.schedule = prepared
    return run


# %% [markdown]
# With `use_seedable_sampler` the order of an epoch depends on its number alone. And a loader draws a random number
# each time it starts: with a generator of its own it leaves dropout's alone.
#
# The loop is the one above. It only has to find its place: which epoch, and how many batches of that are done.

# %%
from itertools import islice


def go_on(run, until):
    while run.done < until:
        epoch, over = divmod(run.done, len(run.loader))
        run.loader.set_epoch(epoch)
        rest = run.accelerator.skip_first_batches(run.loader, over)
        for batch in islice(rest, until - run.done):
            loss = run.model(**batch).loss
            run.accelerator.backward(loss)
            run.optimizer.step()
            run.schedule.step()
            run.optimizer.zero_grad()
            run.losses.append(loss.item())
            run.done += 1


# %% [markdown]
# Now a run of two epochs with three batches each, and a second one that stops after four batches, in the middle of the
# second epoch:

# %%
import tempfile
from pathlib import Path

from course_lib import checkpoints

folder = tempfile.TemporaryDirectory()  # gone when the notebook's kernel ends
tier.seed_everything(0)
whole = new_run()
go_on(whole, until=6)
tier.seed_everything(0)
stopped = new_run()
go_on(stopped, until=4)
checkpoints.save_state(stopped.accelerator, Path(folder.name, "checkpoint-4"))

# %% [markdown]
# `checkpoints.save_state` is `accelerator.save_state`, but whenever the run is killed, the folder is complete or not
# there. A third run, with other random numbers as in a new program, goes on from it:

# %% tags=["varies"]
tier.seed_everything(1)
resumed = new_run()
checkpoint = checkpoints.last(folder.name)
checkpoints.check(checkpoint, resumed.optimizer)
resumed.accelerator.load_state(checkpoint)
resumed.done = 4
go_on(resumed, until=6)
print("without a break:", *(f"{loss:.6f}" for loss in whole.losses))
print("resumed:        ", *["        "] * 4, *(f"{loss:.6f}" for loss in resumed.losses))

# %% tags=["varies"]
pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
same = all(torch.equal(one, other) for one, other in pairs)
print("every weight the same:", same)
torch.testing.assert_close(resumed.losses, whole.losses[4:], rtol=0.05, atol=0)
assert here.device.type != "cpu" or same and resumed.losses == whole.losses[4:]

# %% [markdown]
# (On a GPU, some sums may be added up in another order each time, with or without a break.) `last` finds the newest
# complete folder, `check` makes sure that its state fits the optimizer. All processes call `save_state`. With
# accumulation, save after a step: gradients that are still being added up are not in the folder.

# %% [markdown]
# ## Going deeper: two traps of torch's Adafactor
#
# Its ε₁ is not the paper's, as lesson 05 showed. It is a floor under V̂, and it is squared. So what happens if you
# pass the paper's 1e-30? Think of word embeddings: tokens that are not in the batch have rows of zeros.


# %%
def new_values(make, X, G):
    X = torch.nn.Parameter(X)
    X.grad = G
    make([X]).step()
    return X.detach().tolist()


G = torch.tensor([[0.0, 0.0], [0.1, 0.2]])
for name, make in (
    ("torch, default   ", Adafactor),
    ("torch, ε₁ = 1e-30", partial(Adafactor, eps=(1e-30, 1e-3))),
    ("ours,  ε₁ = 1e-30", adafactor.Adafactor),
):
    print(name, [[round(x, 4) for x in row] for row in new_values(make, torch.ones(2, 2), G)])

# %% [markdown]
# 1e-60 is no 32-bit number: it becomes 0, and 0 divided by it is NaN. So all tokens that are not in the first batch
# have NaN for a row, and when one of them comes up, the loss is NaN too, and `require_finite` ends the run. **Leave
# torch's ε₁ alone.**

# %% [markdown]
# The default is no constant either, but the resolution of the parameters' type. For `bfloat16` parameters that is
# 0.0078: gradients far below it hardly move anything.

# %%
print("resolution of bfloat16:", torch.finfo(torch.bfloat16).eps)
for size in (1.0, 1e-2, 1e-3):
    X, G = (torch.full((2, 2), value, dtype=torch.bfloat16) for value in (1.0, size))
    moved = [1 - new_values(make, X.clone(), G)[0][0] for make in (Adafactor, adafactor.Adafactor)]
    print(f"|G| = {size:<5g}  torch moves {moved[0]:.4f}, ours {moved[1]:.4f}")

# %% [markdown]
# (0.0117 and not 0.01: bfloat16 has nothing nearer to 0.99.) With mixed precision this does not arise, as parameters
# keep 32 bits. It does if the model itself is in bf16,
# `model.bfloat16()`, to halve weights and gradients.

# %% [markdown]
# ## Going deeper: shards instead of copies
#
# Instead of keeping less, processes can keep a part each:
#
# > **sharded data parallelism** — data parallelism in which each process keeps only a part, a *shard*, of weights,
# > gradients and state, and fetches the others' when it computes with them.

# %% [markdown]
# PyTorch calls it *fully sharded*, FSDP, and has it twice: FSDP1, and the newer FSDP2. The script that you started at
# the top takes two steps with each optimizer, in two processes, on a small model that is whole or in shards. **What
# becomes of the moments?**

# %% tags=["varies"]
shards = in_shards.result().results
ways = ("whole", "FSDP2", "FSDP1")
print(f"torch {shards['torch']}, {shards['parameters']:,} parameters. Moments in one process and in the other:")
print(f"{'':23}", *(f"{way:17}" for way in ways))
for kind, found in shards["found"].items():
    cells = (found[way].get("moments") or found[way]["error"].split(":")[:1] for way in ways)
    print(f"{kind:23}", *(f"{' | '.join(f'{n:,}' if type(n) is int else n for n in cell):17}" for cell in cells))

# %%
assert shards["found"]["adamw"]["FSDP2"]["moments"] == [shards["parameters"]] * 2

# %% [markdown]
# AdamW shares its moments out. **FSDP2 stops every Adafactor. FSDP1 lets all of them pass, and that is worse:** both
# processes together keep one number for each parameter, and no word is said. FSDP1 joins a module's tensors to one
# vector before it cuts, and vectors are not factored. Which one do you get by default?

# %%
from accelerate.commands.launch import launch_command_parser

asked = launch_command_parser().parse_args(["--use_fsdp", "script.py"])
print("accelerate launch --use_fsdp takes FSDP", asked.fsdp_version)

# %% [markdown]
# And FSDP2, where does it stop? It cuts every matrix between two rows. These are the optimizers' own lines:

# %% tags=["varies"]
from textwrap import shorten

for kind in ("adafactor_torch", "adafactor_transformers"):
    found = shards["found"][kind]["FSDP2"]
    print(kind, found.get("line"), shorten(found.get("error", ""), 110, placeholder=" …"), "", sep="\n")

# %% [markdown]
# transformers' class, and ours, have plain tensors for R and C, while G is in shards. That could be mended. torch's
# comes a step further, to the column means, and there is the real difficulty. A matrix of your own, cut in two:

# %%
V = torch.arange(24.0).reshape(6, 4)
shard_0, shard_1 = V.chunk(2)
print("row means:    whole", V.mean(dim=1).tolist())
print("              shards", shard_0.mean(dim=1).tolist(), "and", shard_1.mean(dim=1).tolist())
print("column means: whole", V.mean(dim=0).tolist())
print("              shards", shard_0.mean(dim=0).tolist(), "and", shard_1.mean(dim=0).tolist())

# %%
assert torch.equal((shard_0.mean(dim=0) + shard_1.mean(dim=0)) / 2, V.mean(dim=0))

# %% [markdown]
# R is complete in each shard. **C needs a message:** one number for each column, exchanged in every step. It can be
# done, and today's classes do not. So you choose, AdamW in shards or Adafactor in copies. DistilBERT, in MiB for each
# process, without activations and messages:

# %%
fixed = 2 * 4 * sum(p.numel() for p in full.parameters()) / 2**20  # weights and gradients, 4 bytes each
adamw, small = (memory.predict_state_size(full, kind).mib for kind in ("adamw", "adafactor_torch"))
for n in (1, 2, 4, 8):
    copies = f"in copies: AdamW {fixed + adamw:6.1f}, Adafactor {fixed + small:5.1f}"
    print(f"{n} process{'es' * (n > 1):2}  {copies}   in shards: AdamW {(fixed + adamw) / n:6.1f}")

# %% [markdown]
# With two processes they are level, and beyond that shards win, as they divide weights and gradients too. They cost
# messages: weights travel in every step, and a layer's are whole while it computes. On a single GPU there is nothing
# to share out, and Adafactor saves all the same.

# %% [markdown]
# **For those who are done early.** Evaluate after every epoch and keep the best weights. How many lines is that in the
# loop, and where do they go? Then look up what Trainer calls it (`load_best_model_at_end`), and what it wants in
# return.

# %% [markdown]
# ## Recap
#
# - torch's Adafactor always scales by RMS(X): divide Trainer's rate by the size of your matrices.
# - The loop: `train()`, forward with the whole batch, `accelerator.backward`, step, schedule, zero_grad; everything
#   prepared.
# - Faults are silent: no mask, no training mode, not prepared, cleared too early. Check that parameters move, and
#   that the baseline is beaten.
# - Several processes: round up three times to count the steps. A prepared scheduler ticks once for each process. The
#   state stands whole in every one.
# - Trainer for ease of use, Accelerator for control; the state is the same small one.

# %% [markdown]
# ## Sources
#
# - [`torch.optim.Adafactor`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html): its rate,
#   its ε₁. Relative step and RMS scaling: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235),
#   section 8 and Algorithm 6.
# - Accelerate: [the loop](https://huggingface.co/docs/accelerate/basic_tutorials/migration), [gradient
#   accumulation](https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation),
#   [`AcceleratedScheduler`, `BatchSamplerShard`](https://huggingface.co/docs/accelerate/package_reference/torch_wrappers),
#   [batches and learning rates on several
#   devices](https://huggingface.co/docs/accelerate/concept_guides/performance),
#   [checkpoints](https://huggingface.co/docs/accelerate/usage_guides/checkpoint).
# - Data parallelism: Li et al. 2020, [arXiv 2006.15704](https://arxiv.org/abs/2006.15704); [its
#   buckets](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html);
#   [`torchrun`](https://docs.pytorch.org/docs/stable/elastic/run.html) and [`accelerate
#   launch`](https://huggingface.co/docs/accelerate/basic_tutorials/launch). In shards: Zhao et al. 2023,
#   [arXiv 2304.11277](https://arxiv.org/abs/2304.11277). Adafactor in shards:
#   [pytorch#109581](https://github.com/pytorch/pytorch/issues/109581). Mixed precision: Micikevicius et al. 2018,
#   [arXiv 1710.03740](https://arxiv.org/abs/1710.03740).
# - Accumulation in Trainer: [transformers#47688](https://github.com/huggingface/transformers/issues/47688). Processes
#   from a notebook: [accelerate#166](https://github.com/huggingface/accelerate/issues/166).
