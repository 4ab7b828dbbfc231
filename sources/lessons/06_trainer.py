# %% [markdown]
# ## Where we are
#
# R and C in place of V: for DistilBERT that is 0.68 MiB of state where AdamW has 501.9, and half the total. So far
# this is arithmetic. The other half of the claim is that a model *learns* with it. You train one now, and you judge
# the result.

# %% tags=["varies"]
import tempfile
from collections import Counter
from math import log
from pathlib import Path

import torch
from sklearn.metrics import accuracy_score, f1_score

from course_lib import figures, memory, tasks, tier
from course_lib.diagrams import switch_card, training_runs
from course_lib.diagrams.baseline import Baseline
from course_lib.explore import Choice, Slider, Switch, explore, predict, reveal

here = tier.current()
assert here.name in tier.TIERS

# %%
model = tasks.distilbert(device="meta")
weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**20
for kind in ("adamw", "adafactor_transformers"):
    state = memory.predict_state_size(model, kind).mib
    print(f"{kind:23} state {state:6.2f} MiB, with weights and gradients {2 * weights + state:7.1f} MiB")

# %% [markdown]
# Which Adafactor will train it? The card that closed lesson 05 says what is on in each form:

# %%
figures.show(*switch_card.draw())

# %% [markdown]
# Read the third column. Factoring, the growing decay and update clipping are what you know. **Relative step and RMS
# scaling are off**: how far a step goes is for *you* to say. Keep that in mind.

# %% [markdown]
# (On the short route, look up [update](glossary.ipynb#update), [update clipping](glossary.ipynb#update-clipping),
# [relative step size](glossary.ipynb#relative-step-size), [RMS scaling](glossary.ipynb#RMS-scaling),
# [EMA](glossary.ipynb#EMA) and its [decay](glossary.ipynb#decay), which is β₂ for the second moment: each is a
# sentence.)

# %% [markdown]
# ## The task
#
# Look at a few examples before anything else. Could you tell the right answer yourself?

# %%
task = tasks.load()
print(task)
for row in task.raw_validation.select(range(6)):
    text = " | ".join(value for value in row.values() if isinstance(value, str))
    print(f"{task.labels[row['label']]:>14}:  {text}")

# %% [markdown]
# And count the classes, in the rows that will judge the model:

# %%
labels = list(task.validation["labels"])
counts = Counter(labels)
for label, count in counts.most_common():
    print(f"{task.labels[label]:>14} {count:4} of {len(labels)}, {count / len(labels):.3f}")

# %% [markdown]
# ## Before you train: what does laziness score?
#
# Imagine a classifier that reads nothing, and always answers the class that is most frequent in the training data.
# Whatever you train has to beat that.
#
# > **majority baseline** — the scores of always answering the most frequent class; a model that does not beat them
# > has learned nothing that they show.

# %% [markdown]
# *Accuracy* is the share of right answers. The second score looks at one class at a time. *Precision* is the share of
# right answers among those that name the class, *recall* the share of its rows that are found.
#
# > **F1** — 2 · precision · recall / (precision + recall), the harmonic mean of both for one class: high only if both
# > are.

# %% [markdown]
# Now take MRPC, the task of the full tier, with two classes. In 279 of the 408 pairs of sentences that judge a model,
# both say the same.

# %%
predict("06-lazy-f1")

# %% tags=["answer"]
truth = [1] * 279 + [0] * 129  # 1: both sentences say the same
lazy = [1] * 408
print("Always “the same”:")
print(f"accuracy {accuracy_score(truth, lazy):.3f}")
print(f"F1       {f1_score(truth, lazy):.3f}")
reveal("06-lazy-f1")

# %% [markdown]
# An example that is often shown ends with `{'epoch': 1.0, 'eval_accuracy': 0.6, 'eval_f1': 0.5}`. Is that a success?
# It is the blue run below, beside the lazy answer in black. **Drag the share from one half to MRPC's 0.68.**

# %%
picture = Baseline()


def draw(share=0.5, classes=2, run=True):
    return picture.update(share, classes, run=(0.6, 0.5) if run else None)


share = Slider(0.1, 1.0, step=0.01, label="most frequent class")
explore(draw, share=share, classes=Choice((2, 3, 4, 5, 6)), run=Switch("show a run with accuracy 0.6 and F1 0.5"))

# %% [markdown]
# On MRPC that run has learned nothing: not reading at all scores more, twice. You may have heard that *above one half
# is good*. It depends: go to six classes with a share of 0.22, and the same run is far above the line.

# %% [markdown]
# Where does the dashed curve come from? If a class has the share $p$ and is always the answer, its precision is $p$
# and its recall 1, so its F1 is $2p / (1 + p)$. That is never less than $p$.

# %% [markdown]
# ### Which F1?
#
# With two classes F1 means the class labelled 1, which scikit-learn calls `average="binary"`. With more, you have to
# say how the classes count together:

# %%
truth, answers = ["a", "a", "b", "c"], ["a", "a", "a", "b"]
try:
    f1_score(truth, answers)
except ValueError as error:
    print("binary:", error)
for average in ("macro", "micro"):
    print(f"{average}:  {f1_score(truth, answers, average=average):.3f}")
print(f"accuracy: {accuracy_score(truth, answers):.3f}")

# %% [markdown]
# > **macro average** — the mean over the classes of a score such as F1, every class counting the same.
#
# Micro F1 is accuracy under another name, where every row has one class. So with six classes we take macro: a class
# that is never found costs up to a sixth. `task.average` knows which one your task needs.


# %%
def scores(truth, answers):
    f1 = f1_score(truth, answers, average=task.average)
    return {"accuracy": accuracy_score(truth, answers), "f1": f1}


baseline = scores(labels, [task.majority] * len(labels))
print(f"To beat: accuracy {baseline['accuracy']:.3f}, {task.average} F1 {baseline['f1']:.3f}")

# %% [markdown]
# ## What Trainer wants
#
# Trainer wants settings, and a function that scores. The function gets two arrays: `predictions`, one row of class
# scores (*logits*) for each example, and `label_ids`. The answer is the class with the highest score, along the
# *last* axis.


# %%
def compute_metrics(evaluation):
    return scores(evaluation.label_ids, evaluation.predictions.argmax(axis=-1))


# %% [markdown]
# Now the settings. The first three lines are the point; the dictionary keeps the notebook quiet.

# %%
from transformers import PrinterCallback, Trainer, TrainingArguments

quiet = {
    "report_to": "none",  # no tracking service
    "disable_tqdm": True,  # no progress bar
    "save_strategy": "no",  # no files
    "dataloader_pin_memory": False,  # pinning would want a GPU
    "logging_steps": 1,  # every step into the log
}
arguments = TrainingArguments(
    output_dir="results",
    eval_strategy="epoch",
    optim="adafactor",
    num_train_epochs=1,
    per_device_train_batch_size=task.batch_size,
    **quiet,
)

# %% [markdown]
# What does `optim="adafactor"` really set? Trainer tells, if you ask the function that it uses itself:

# %%
optimizer_class, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
print(optimizer_class.__module__, optimizer_class.__name__, settings)
print("schedule:", arguments.lr_scheduler_type.value, "  warm-up steps:", arguments.warmup_steps)
print("gradients clipped to length:", arguments.max_grad_norm)
assert settings == {"lr": 5e-5, "scale_parameter": False, "relative_step": False}

# %% [markdown]
# Two switches off, as on the card. And a rate of **5e-5**, from nowhere: it is Trainer's default for every optimizer.
# Mind the last line too: Trainer clips gradients (by their length, over all parameters together), which the
# documentation of this Adafactor advises against. Its own clipping comes later, at U.

# %% [markdown]
# ## The first run
#
# `processing_class` is the tokenizer, `data_collator` pads rows to a batch. `remove_callback` takes away Trainer's
# own printing, in which all numbers have been turned into strings.

# %%
first = Trainer(
    model=task.model(seed=0),
    args=arguments,
    train_dataset=task.train,
    eval_dataset=task.validation,
    compute_metrics=compute_metrics,
    processing_class=task.tokenizer,
    data_collator=task.collator,
)
first.remove_callback(PrinterCallback)
print("before train():", first.optimizer)
first.train()
print("after train(): ", type(first.optimizer).__name__)

# %% [markdown]
# (Trainer makes its optimizer when training begins. Look for the state earlier, and you find `None`.) Now the
# evaluation. `evaluate()` returns a dictionary of plain numbers; we keep three of them:


# %% tags=["varies"]
def evaluated(trainer):
    found = trainer.evaluate()
    return {key: round(found[key], 3) for key in ("epoch", "eval_accuracy", "eval_f1")}


after_first = evaluated(first)
print(after_first)
print(f"to beat: accuracy {baseline['accuracy']:.3f}, F1 {baseline['f1']:.3f}")
answers = first.predict(task.validation).predictions.argmax(axis=-1)
print("classes that it answers:", ", ".join(sorted({task.labels[answer] for answer in answers})))
assert here.name == "full" or after_first["eval_accuracy"] == round(baseline["accuracy"], 3)

# %% [markdown]
# Compare the first two lines. On the small tier they are *equal*: the model answers one class, whatever it reads. No
# error, no warning, a whole epoch for nothing. Without the baseline, would you have noticed? Let us find out why.

# %% [markdown]
# ## How far can a run go?
#
# No step moves a matrix by more than the rate, in RMS: clipping keeps RMS(U) ≤ 1, and no RMS(X) enlarges it. And the
# rate does not stay. Trainer's default lets it fall along a straight line, from `learning_rate` to 0.

# %% [markdown]
# > **learning-rate schedule** — the rule that sets the learning rate for every step, such as a rise (warm-up) and
# > then a fall to zero.

# %%
predict("06-reach")

# %% tags=["answer"]
from transformers import get_scheduler

print("All 1,000 rates:")
for name in ("linear", "cosine", "constant"):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    schedule = get_scheduler(name, optimizer, num_warmup_steps=0, num_training_steps=1000)
    rates = []
    for _ in range(1000):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    print(f"{name:9} first {rates[0]:.0e}, last {rates[-1]:.0e}, all together {sum(rates):.2f}")
reveal("06-reach")

# %% [markdown]
# So add up the rates of your run, and compare with the size of what they had to move. Trainer's log has the rate of
# every step.


# %%
def rms(x):
    return x.detach().square().mean().sqrt().item()


def journey(trainer):
    path = "distilbert.transformer.layer.0.attention.q_lin.weight"
    start, end = (model.get_parameter(path).detach().cpu() for model in (task.model(seed=0), trainer.model))
    reach = sum(line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line)
    return rms(start), reach, rms(end - start)


# %% tags=["varies"]
size, reach, moved = journey(first)
print(f"size of the matrix, RMS(X)    {size:.4f}")
print(f"all rates together            {reach:.4f}   {reach / size:.0%} of it, if every step went the same way")
print(f"moved, RMS(last X − first X)  {moved:.4f}   {moved / size:.0%} of it")
assert moved <= reach

# %% [markdown]
# Random weights have to change a great deal, and these could not. A *pretrained* model, as on the full tier, is
# nearly where it should be: for fine-tuning such models 5e-5 is a usual choice. The default is no fault; it was made
# for another journey.

# %% [markdown]
# ## A rate that fits
#
# Short runs find the order of magnitude. A function for the many trainers to come, and 60 steps with each of three
# rates:


# %%
def new_trainer(model=None, rows=task.train, optimizers=(None, None), **settings):
    usual = {"output_dir": "results", "optim": "adafactor", "per_device_train_batch_size": task.batch_size}
    trainer = Trainer(
        model=model or task.model(seed=0),
        args=TrainingArguments(**{**usual, **quiet, **settings}),
        train_dataset=rows,
        eval_dataset=task.validation,
        compute_metrics=compute_metrics,
        processing_class=task.tokenizer,
        data_collator=task.collator,
        optimizers=optimizers,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


# %% tags=["varies"]
print(f"to beat: accuracy {baseline['accuracy']:.3f}")
tried = {}
for rate in (1e-4, 1e-3, 1e-2):
    trainer = new_trainer(max_steps=60, learning_rate=rate)
    trainer.train()
    tried[rate] = trainer.evaluate()["eval_accuracy"]
    print(f"rate {rate:.0e}: accuracy {tried[rate]:.3f}")
assert here.name == "full" or tried[1e-3] == max(tried.values()) > baseline["accuracy"]

# %% [markdown]
# Too small never arrives, too large breaks what was there. In between there is room. On the small tier 1e-3 does
# well, the rate that `transformers`' documentation names for this Adafactor; pretrained models mostly want less.

# %% [markdown]
# ## The run
#
# Now in full, with your task's rate and number of epochs. On a GPU we let Trainer compute with 16 bits per number; on
# a CPU the last two settings are False.

# %% tags=["varies"]
trained = new_trainer(
    eval_strategy="epoch",
    num_train_epochs=task.epochs,
    learning_rate=task.learning_rate,
    bf16=here.mixed_precision == "bf16",
    fp16=here.mixed_precision == "fp16",
)
trained.train()
for line in trained.state.log_history:
    if "eval_accuracy" in line:
        print(f"epoch {line['epoch']:.0f}: accuracy {line['eval_accuracy']:.3f}, F1 {line['eval_f1']:.3f}")

# %% tags=["varies"]
result = evaluated(trained)
print(result)
print(f"to beat: accuracy {baseline['accuracy']:.3f}, F1 {baseline['f1']:.3f}")
assert result["eval_accuracy"] > baseline["accuracy"] + 0.05 and result["eval_f1"] > baseline["f1"]

# %% [markdown]
# That is learning. The picture is the one from before, with your task's classes and your own run:

# %% tags=["picture", "varies"]
share = counts[task.majority] / len(labels)
run = (result["eval_accuracy"], result["eval_f1"])
figures.show(*Baseline().update(share, len(task.labels), task.average, run))

# %% [markdown]
# Both runs, step by step. Each batch has its own loss, so an EMA is drawn through them. A model that knows nothing
# gives every class the same probability; its loss is the logarithm of the number of classes.

# %% tags=["varies"]
logs = {"first run": first.state.log_history, "trained": trained.state.log_history}
figures.show(*training_runs.loss_and_rate(logs, chance=log(len(task.labels))))
size, reach, moved = journey(trained)
print(f"RMS(X) {size:.4f}   all rates together {reach:.4f}   moved {moved:.4f}")
assert moved <= reach

# %% [markdown]
# And what did the optimizer keep? The model is small, so its MiB would say little. Per parameter they are the same
# story:

# %%
parameters = sum(p.numel() for p in trained.model.parameters())
for name, kept in (
    ("this run", memory.state_size(trained.optimizer)),
    ("with AdamW", memory.predict_state_size(trained.model, "adamw")),
):
    print(f"{name:11} {kept.elements / parameters:.2f} numbers kept per parameter")

# %% [markdown]
# > **Stopping point for a class.** So far: a baseline, a run that learned nothing, and one that did. To talk about:
# > what else could go unnoticed without a baseline? What follows: the second recipe, and three traps.

# %% [markdown]
# ## Two recipes
#
# The first one you have used: **a given rate with a schedule**. The second is the paper's: the relative step size.
# Trainer's arguments cannot ask for it. There is `optim_args`, but for this optimizer nobody reads it:

# %%
arguments = TrainingArguments("results", optim="adafactor", optim_args="relative_step=True", report_to="none")
print(Trainer.get_optimizer_cls_and_kwargs(arguments)[1])

# %% [markdown]
# So make the optimizer yourself and hand it over. `lr=None` is this class's default, with relative step and RMS
# scaling on. Trainer still wants a schedule. If you give none, it adds its own:

# %%
from transformers.optimization import Adafactor, AdafactorSchedule

model = task.model(seed=0)
optimizer = Adafactor(model.parameters())
try:
    new_trainer(model, optimizers=(optimizer, None), max_steps=1).train()
except TypeError as error:
    print("TypeError:", error)

# %% [markdown]
# A linear schedule multiplies the rate, and `None` cannot be multiplied. `AdafactorSchedule` multiplies nothing: it
# only reports what the optimizer does. **A relative step goes with AdafactorSchedule, a schedule with a given rate.**

# %%
for steps in (1, 3):
    model = task.model(seed=0)
    optimizer = Adafactor(model.parameters())
    trainer = new_trainer(model, optimizers=(optimizer, AdafactorSchedule(optimizer)), max_steps=steps)
    trainer.train()
    logged = [round(line["learning_rate"], 6) for line in trainer.state.log_history if "learning_rate" in line]
    size, _, moved = journey(trainer)
    print(f"steps {steps}: logged {logged}, moved by {moved / size:.1%} of RMS(X)")
    assert logged[0] == 0 and 0 < moved <= 1.001 * steps * 0.01 * size

# %% [markdown]
# The log begins with **0**, yet the first step went as far as any: one per cent of the matrix's own size. The report
# comes a step late, and starts with `initial_lr`, which is 0 unless you set it. It is also the rate of the *first*
# parameter only, and here each has its own:

# %%
for name in ("attention.q_lin.weight", "attention.q_lin.bias", "sa_layer_norm.weight"):
    p = model.get_parameter(f"distilbert.transformer.layer.0.{name}")
    print(f"{name:23} 0.01 · max(0.001, RMS(X)) = {0.01 * max(1e-3, rms(p)):.5f}")

# %% [markdown]
# ## Gradient accumulation
#
# A batch of 8 takes more memory for activations than a batch of 2. So you can work through it in pieces: add up the
# gradients of 4 × 2 rows, then take one step.
#
# > **gradient accumulation** — summing the gradients of several small batches, each divided by their number, before
# > one step; meant to equal one large batch.

# %% [markdown]
# Let us check that, with the same 8 rows each time: as one batch of 8, as 2 batches of 4, as 4 of 2. No dropout, so
# that nothing is left to chance.


# %%
def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def two_steps(pieces, mended=False, **settings):
    model, rows = without_dropout(task.model(seed=0)), task.train.select(range(8))
    settings |= {"per_device_train_batch_size": 8 // pieces, "gradient_accumulation_steps": pieces}
    trainer = new_trainer(model, rows, max_steps=2, lr_scheduler_type="constant", max_grad_norm=0.0, **settings)
    if mended:
        trainer.model_accepts_loss_kwargs = False
    trainer.train()
    return [line for line in trainer.state.log_history if "loss" in line]


# %%
predict("06-accumulation")

# %% tags=["answer"]
ways = (1, 2, 4)
faulty = {k: two_steps(k) for k in ways}
print("Rows × batches:")
for k, (step, _) in faulty.items():
    print(f"{8 // k} × {k}: loss {step['loss']:.3f}, length of the gradient {step['grad_norm']:.3f}")
reveal("06-accumulation")

# %% [markdown]
# For k batches, Trainer leaves the division by k to the model, if the model's `forward` takes
# `num_items_in_batch`, and it believes so of every `forward` with `**kwargs`. This one takes the number, and ignores
# it (transformers#47688). Tell Trainer the truth:

# %%
mended = {k: two_steps(k, mended=True) for k in ways}
for k, (step, _) in mended.items():
    print(f"{8 // k} × {k}: loss {step['loss']:.3f}, length of the gradient {step['grad_norm']:.3f}")
    for key in ("loss", "grad_norm"):
        torch.testing.assert_close(step[key], mended[1][0][key], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(faulty[k][0][key], k * step[key], rtol=1e-4, atol=1e-5)

# %% [markdown]
# How can such a fault go unnoticed? Let the faulty gradients take a step, and look at the loss after it, divided by k
# to put the log right:

# %%
for name, settings in {"sgd": {"learning_rate": 0.1}, "adafactor": {"learning_rate": task.learning_rate}}.items():
    second = {k: two_steps(k, optim=name, **settings)[1]["loss"] / k for k in ways}
    print(f"after a step of {name:9}", ", ".join(f"{8 // k} × {k}: {loss:.4f}" for k, loss in second.items()))
    same = abs(second[4] - second[1]) < 1e-3 * second[1]
    assert here.name == "full" or same == (name == "adafactor")

# %% [markdown]
# SGD goes k times as far as it should. **Adafactor hides the fault**: U is the gradient over its own size, and k
# cancels. The log is wrong all the same, and whatever looks at the gradient's length is misled, clipping with
# `max_grad_norm` for one.

# %% [markdown]
# ## Save and resume
#
# Long runs get interrupted. Here is one of four steps; a second one that writes checkpoints on its way; and a third
# one that starts from the checkpoint of step 2. All on the CPU, where the same sums give the same bits.
#
# > **checkpoint** — a folder with all that a run needs to go on: weights, optimizer state, schedule, random state.

# %%
folder = tempfile.TemporaryDirectory()  # gone when the notebook's kernel ends
four_steps = {"max_steps": 4, "use_cpu": True, "per_device_train_batch_size": 8, "output_dir": folder.name}
whole = new_trainer(**four_steps)
whole.train()
saving = four_steps | {"save_strategy": "steps", "save_steps": 2}
new_trainer(**saving).train()
checkpoint = Path(folder.name, "checkpoint-2")
resumed = new_trainer(**saving)
resumed.train(resume_from_checkpoint=str(checkpoint))
files = {file.name: file.stat().st_size for file in sorted(checkpoint.iterdir())}

# %%
for name, size in files.items():
    print(f"{name:22} {size / files['model.safetensors']:.2f} of the weights' size")
adamw = memory.predict_state_size(whole.model, "adamw").bytes
print(f"with AdamW, state of   {adamw / files['model.safetensors']:.2f}")
pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
same = all(torch.equal(one, other) for one, other in pairs)
print(f"steps {resumed.state.global_step}, every weight the same: {same}")
assert same and resumed.state.global_step == whole.state.global_step == 4

# %% [markdown]
# Not close: equal. `optimizer.pt` holds R and C, and the step t, without which β₂(t) would begin at 0 again. With
# AdamW it would be twice as large as the weights. **Adafactor makes checkpoints small too.**

# %% [markdown]
# ### Interrupted while it saves
#
# A run may also be killed *while* it writes a checkpoint. The file with Trainer's own state comes last. Take it away
# from the newest checkpoint, as if the run had not got that far, and try to go on:

# %%
from course_lib import checkpoints

Path(folder.name, "checkpoint-4", "trainer_state.json").unlink()
try:
    new_trainer(**saving).train(resume_from_checkpoint=True)
except FileNotFoundError as error:
    missed = Path(error.filename)
    print("Trainer misses", missed.name, "in", missed.parent.name)
newest = checkpoints.last(folder.name)
print("the newest complete one:", newest.name)
assert newest == checkpoint

# %% [markdown]
# `resume_from_checkpoint=True` takes the newest, complete or not. What was saved before is not lost: `checkpoints.last`
# finds it, and `checkpoints.resume(trainer)` goes on from there. (Give every run a folder of its own. Otherwise the
# newest checkpoint may be another run's.)

# %% [markdown]
# ### The same optimizer?
#
# And if you go on with *another* optimizer? First Trainer alone, then with a look at what was saved:

# %%
from textwrap import fill

adamw = saving | {"optim": "adamw_torch"}
try:
    new_trainer(**adamw).train(resume_from_checkpoint=str(checkpoint))
except KeyError as error:
    print("KeyError:", error)
try:
    checkpoints.resume(new_trainer(**adamw))
except ValueError as error:
    print(fill(str(error), 92))

# %% [markdown]
# Trainer had loaded R and C into AdamW, which then looked for its two decays and found none. R and C are no first and
# second moment: whoever changes the optimizer starts its averages anew. That is allowed, but you should know it.

# %% [markdown]
# ## Stop at NaN
#
# One interruption you should *want*. NaN, "not a number", is what ∞ − ∞ gives, and all that is computed with it. A
# rate of 1e20 gets there in one step. (In fp16 far less will do.) **What does the log say?**

# %% tags=["varies"]
too_far = four_steps | {"learning_rate": 1e20}
trainer = new_trainer(**too_far)
trainer.train()
print("losses:", [round(line["loss"], 3) for line in trainer.state.log_history if "loss" in line])
spoilt = [bool(p.isnan().any()) for p in trainer.model.parameters()]
print(f"NaN in {sum(spoilt)} of {len(spoilt)} tensors")
assert all(spoilt) and trainer.state.log_history[-2]["loss"] == 0

# %% [markdown]
# A loss of **0**, as if all were perfect, and NaN everywhere. In its log, Trainer replaces NaN by the mean of
# the losses since the last line, and here there were none (`logging_nan_inf_filter`). It would save those weights, too.
# A callback can end such a run:

# %% tags=["varies"]
from course_lib.callbacks import StopAtNaN

trainer = new_trainer(**too_far)
trainer.add_callback(StopAtNaN())
try:
    trainer.train()
except FloatingPointError as error:
    print(fill(str(error), 92))
assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())

# %% [markdown]
# It looks at the loss and the gradients *before* each step. So weights, state and checkpoints are still good. With
# Adafactor that matters: lesson 05 put one NaN into a gradient, and the whole matrix was lost, its averages for good.

# %% [markdown]
# ## Old names
#
# Much that you find on the web was written for older versions. Many a setting has been renamed, and an old name is an
# error. Do not learn them by heart: try them.


# %%
def outcome(make, **argument):
    try:
        make(**argument)
    except (TypeError, ValueError) as error:
        return type(error).__name__
    return "works"


def make_arguments(**argument):
    return TrainingArguments("results", report_to="none", **argument)


def make_trainer(**argument):
    return Trainer(task.model(seed=0), make_arguments(), **argument)


# %%
for make, old, new, value in (
    (make_arguments, "evaluation_strategy", "eval_strategy", "epoch"),
    (make_arguments, "warmup_ratio", "warmup_steps", 0.1),
    (make_arguments, "no_cuda", "use_cpu", True),
    (make_trainer, "tokenizer", "processing_class", task.tokenizer),
):
    print(f"{old:20} {outcome(make, **{old: value}):10}  {new:16} {outcome(make, **{new: value})}")
for gone, value in (("adafactor", True), ("overwrite_output_dir", True), ("logging_dir", "logs")):
    print(f"{gone:20} {outcome(make_arguments, **{gone: value})}")

# %% [markdown]
# `adafactor=True` has become `optim="adafactor"`; TensorBoard's folder is set by the environment variable
# `TENSORBOARD_LOGGING_DIR`. The menu of optimizers changes as well. Ask your own version, and ask the *code*:
# documentation lags behind.

# %%
from transformers.training_args import OptimizerNames

menu = [name.value for name in OptimizerNames]
print(fill(", ".join(menu), 92))
for name in ("adafactor", "adamw_hf", "muon"):
    print(f"optim={name!r}: {outcome(make_arguments, optim=name)}, documented: {name in TrainingArguments.__doc__}")
    assert (name in menu) == (name == "adafactor")

# %% [markdown]
# **For those who are done early.** Train one epoch with each of the two recipes. Which is ahead? Work out beforehand
# how far each can go. For the relative step that is 0.01 · RMS(X) in every step, and nothing falls before step
# 10,000.

# %% [markdown]
# ## Recap
#
# - First the majority baseline, then the run. On MRPC a lazy answer has accuracy .68 and F1 .81.
# - `optim="adafactor"` means: no relative step, no RMS scaling, and Trainer's rate of 5e-5 unless you give one.
# - RMS(U) ≤ 1, so the rates add up to the farthest that a matrix can move. Compare with its size.
# - A given rate goes with a schedule, a relative step with `AdafactorSchedule`.
# - Under gradient accumulation check the loss. Stop at NaN, which the log hides.
# - From a complete checkpoint, with the same optimizer, a run goes on as if nothing had happened.

# %% [markdown]
# ## Sources
#
# - Rates of 2e-5 to 5e-5 for pretrained models: Devlin et al. 2019, [arXiv
#   1810.04805](https://arxiv.org/abs/1810.04805), appendix A.3.
# - [`Trainer`, `TrainingArguments`](https://huggingface.co/docs/transformers/main_classes/trainer); for what is set,
#   `Trainer.get_optimizer_cls_and_kwargs` and `transformers/trainer_optimizer.py`.
# - [`Adafactor`, `AdafactorSchedule`](https://huggingface.co/docs/transformers/main_classes/optimizer_schedules):
#   both recipes, the rate 1e-3, and the advice against clipping gradients too. Clipping and relative step: Shazeer &
#   Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235), Algorithms 4 and 6.
# - F1 and its averages: [scikit-learn's
#   guide](https://scikit-learn.org/stable/modules/model_evaluation.html#precision-recall-f-measure-metrics).
# - MRPC: Dolan & Brockett 2005; its 408 pairs for validation, 279 of them paraphrases, are those of
#   [GLUE](https://huggingface.co/datasets/nyu-mll/glue), Wang et al. 2019, [arXiv
#   1804.07461](https://arxiv.org/abs/1804.07461).
# - `None` times a number: [transformers#11612](https://github.com/huggingface/transformers/issues/11612). The logged
#   0: [#13033](https://github.com/huggingface/transformers/issues/13033). Accumulation:
#   [#47688](https://github.com/huggingface/transformers/issues/47688).
