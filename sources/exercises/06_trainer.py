# %% [markdown]
# You write the settings of a run and the scores that judge it, say whether a run has learned anything, and take one
# step's gradient in pieces. Nothing is trained here, and no GPU is needed.

# %%
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.nn.functional import cross_entropy
from transformers import TrainingArguments, get_scheduler

from course_lib import figures

# %% [markdown] task="training_arguments" minutes=10 difficulty="medium" good_for="any run with Trainer"
# ## Write the settings of a run
#
# A small model with random weights is to be trained with Adafactor, on one GPU. As in the lesson, a row is one example
# of the data. The GPU has memory for batches of `rows` rows, no more: 16 on one computer, 4 on another, always a number
# that divides 64. Each step of the optimizer is to use 64 rows all the same.
#
# Write `training_arguments(folder, rows)`, which returns a `TrainingArguments`:
#
# - results go to `folder`;
# - the optimizer is the Adafactor of `transformers`, chosen by its name;
# - the rate suits *random* weights, like the best of the three that lesson 06 tried on the small tier;
# - the rate rises during the first tenth of all steps, whatever their number, then falls along a straight line to 0;
# - Trainer does not clip the gradients by their length;
# - a batch has `rows` rows, and every step adds up the gradients of as many batches as make 64 rows:
#   [gradient accumulation](../notebooks/glossary.ipynb#gradient-accumulation);
# - the model is evaluated at the end of each epoch.
#
# Much that you find on the web uses older names; the check tells you.


# %%
def training_arguments(folder, rows):
    """A run's `TrainingArguments`, with results in `folder` and batches of `rows` rows."""
    ### BEGIN SOLUTION
    return TrainingArguments(
        output_dir=folder,
        optim="adafactor",
        learning_rate=1e-3,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        max_grad_norm=0.0,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=64 // rows,
        eval_strategy="epoch",
    )
    ### END SOLUTION


# %% [markdown] tags=["why"]
# `optim="adafactor"` switches the relative step off, so the rate is yours; Trainer's own 5e-5 suits pretrained
# weights. A warm-up below 1 is a share of the steps. Batch size and accumulation multiply, so the second is 64 divided
# by the first, as a whole number. Adafactor clips at its update, which makes the clipping of gradients one too many.

# %%
check.training_arguments()


# %% [markdown]
# How far can such a run go? The rates of all steps, added up, are the most that clipping lets a matrix move, in RMS.
# Here they are for 200 steps, beside those of a run that keeps Trainer's own settings.


# %%
def rates(arguments, steps=200):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=arguments.learning_rate)
    warmup = arguments.get_warmup_steps(steps)
    schedule = get_scheduler(arguments.lr_scheduler_type, optimizer, warmup, steps)
    rates = []
    for _ in range(steps):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return rates


def compare_rates():
    fig, ax = figures.subplots(height=3.0)
    told = []
    for name, color, arguments in (
        ("Trainer's own", "muted", TrainingArguments("results")),
        ("yours", "adafactor", training_arguments("results", 16)),
    ):
        found = rates(arguments)
        top, total = max(found), sum(found)
        ax.plot(found, color=figures.COLORS[color], label=f"{name}: all together {total:.3f}")
        highest = f"highest at step {found.index(top)} with {top:.0e}"
        told.append(f"{name} are {highest}, and {total:.3f} all together")
    ax.set(title="The rates of 200 steps", xlabel="step", ylabel="rate", ylim=(0, None))
    ax.legend()
    figures.show(fig, alt=f"Learning rates of 200 steps: {'; '.join(told)}.")


check.preview(compare_rates)

# %% [markdown] task="compute_metrics" minutes=7 difficulty="easy" good_for="every evaluation: Trainer calls it"
# ## Score six classes
#
# Trainer hands the results of an evaluation to a function. Write `compute_metrics(evaluation)` for a task with *six*
# classes, 0 to 5:
#
# - `evaluation.predictions` is an array of shape `[rows, 6]`, the class scores; a row's answer is the class with the
#   highest score;
# - `evaluation.label_ids` is an array of shape `[rows]`, the right classes.
#
# Return a dictionary with the keys `"accuracy"` and `"f1"`, both numbers from 0 to 1. F1 is the
# [macro average](../notebooks/glossary.ipynb#macro-average). scikit-learn's `accuracy_score` and `f1_score` are
# imported; you may also count yourself.


# %%
def compute_metrics(evaluation):
    """A dictionary: "accuracy" and macro "f1" of `.predictions` against `.label_ids`."""
    ### BEGIN SOLUTION
    answers = evaluation.predictions.argmax(axis=-1)
    f1 = f1_score(evaluation.label_ids, answers, average="macro")
    return {"accuracy": accuracy_score(evaluation.label_ids, answers), "f1": f1}
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The classes stand along the last axis. Binary F1 knows one class only, and micro F1 is the accuracy again.
# Macro gives each class the same weight; one that is never named has F1 0 and pulls the mean down, as it should.

# %%
check.compute_metrics()

# %% [markdown] task="judgement" minutes=8 difficulty="medium" good_for="reading anybody's results"
# ## Has this run learned anything?
#
# A run reports its accuracy and its F1. You also know how many rows of each class have judged it: `counts[c]` for
# class `c`, at least one, and no two classes share the first place. Compare with a lazy classifier, which always
# answers the most frequent of these classes: the
# [majority baseline](../notebooks/glossary.ipynb#majority-baseline).
#
# [F1](../notebooks/glossary.ipynb#F1) is the one of lesson 06: with *two* classes that of class 1, with more the macro
# average. Write `judgement(counts, accuracy, f1)`. Return a dictionary:
#
# - `"accuracy"` and `"f1"`: what the lazy classifier scores on these rows;
# - `"learned"`: True if the run is above it in both, otherwise False.


# %%
def judgement(counts, accuracy, f1):
    """The baseline's "accuracy" and "f1" for a list of counts, and if a run has "learned"."""
    ### BEGIN SOLUTION
    truth = [label for label, count in enumerate(counts) for _ in range(count)]
    lazy = [counts.index(max(counts))] * len(truth)
    average = "binary" if len(counts) == 2 else "macro"
    lazy_accuracy, lazy_f1 = accuracy_score(truth, lazy), f1_score(truth, lazy, average=average)
    learned = accuracy > lazy_accuracy and f1 > lazy_f1
    return {"accuracy": lazy_accuracy, "f1": lazy_f1, "learned": learned}
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Writing out what the lazy classifier answers, and scoring it like any other, needs no formula and forgets no case. By
# formula: with the share p the accuracy is p, the F1 of the class that is always named 2p / (1 + p), and that of each
# other class 0.

# %%
check.judgement()

# %% [markdown]
# The example that is often shown, with accuracy 0.6 and F1 0.5, judged by you: on MRPC, and on six nearly even classes.


# %%
def often_shown():
    for name, counts in (("MRPC", [129, 279]), ("six classes", [18, 22, 20, 16, 14, 10])):
        found = judgement(counts, 0.6, 0.5)
        lazy = f"accuracy {found['accuracy']:.2f}, F1 {found['f1']:.2f}"
        print(f"{name:12} baseline: {lazy}   learned: {found['learned']}")


check.preview(often_shown)

# %% [markdown] task="gradient_in_pieces" minutes=9 difficulty="hard" good_for="batches that do not fit the memory"
# ## Take the gradient in pieces
#
# 8 rows do not fit the memory, 2 do. Write `gradient_in_pieces(model, x, labels, k)`: gradient accumulation over `k`
# batches of equal size, so that afterwards each parameter's `.grad` is what one large batch would give. `model(x)`
# gives the class scores, and the loss is `cross_entropy(scores, labels)`, the mean over its rows.
#
# `x` has the shape `[rows, features]`, `labels` `[rows]`, and `k` divides the number of rows. The model comes without
# gradients; do not change its weights. Never let more than one batch go through the model at a time, and be done with
# it before the next. Return the step's loss: the mean over all rows, as a number.


# %%
def gradient_in_pieces(model, x, labels, k):
    """The mean loss of all rows; its gradient is left in the parameters, batch by batch."""
    ### BEGIN SOLUTION
    total = 0.0
    for some, theirs in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = cross_entropy(model(some), theirs) / k
        loss.backward()
        total += loss.item()
    return total
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The mean over all rows is the mean of the k batch means, as the batches are of equal size. `backward()` adds to
# `.grad`, so each loss goes in with 1/k. It also frees the batch's activations, which is what all this is for.

# %%
check.gradient_in_pieces()

# %% [markdown]
# Lesson 06's question, for your function: the same 8 rows as 8 × 1, 4 × 2 and 2 × 4.


# %%
def three_ways():
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(8, 3, generator=generator), torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    for k in (1, 2, 4):
        model = torch.nn.Linear(3, 2)
        torch.nn.init.eye_(model.weight)
        torch.nn.init.zeros_(model.bias)
        loss = gradient_in_pieces(model, x, labels, k)
        length = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
        print(f"{8 // k} × {k}: loss {loss:.3f}, length of the gradient {length:.3f}")


check.preview(three_ways)
