# %% [markdown]
# You say which of two optimizers is better, and when you cannot say; you look for what is unfair in a comparison; and
# you choose an optimizer five times.

# %%
import random

from course_lib import figures, planner
from course_lib.comparison import mean, sd

# %% [markdown] task="better" minutes=8 difficulty="medium" good_for="not being fooled by a lucky run"
# ## Which of the two is better?
#
# Two optimizers, A and B, were trained with the same seeds. `a[i]` and `b[i]` are their accuracies with the same seed,
# on the same rows, from 0 to 1. Write `better(a, b)`. It returns one of three words, `"a"`, `"b"` or `"unclear"`, by
# this rule, which is agreed on beforehand:
#
# - With fewer than five seeds it is `"unclear"`.
# - Otherwise take the mean of the differences from seed to seed, and the standard error of this mean, as in the
#   lesson's `by_hand` for the seeds. The difference counts if it is more than two standard errors away from 0. Then the
#   better one is named.
# - In all other cases it is `"unclear"`.
#
# `a` and `b` are lists of numbers, both of the same length, which is at least two. `mean(values)` and `sd(values)`, the
# lesson's, are there for you.


# %%
def better(a, b):
    """Which of two lists of accuracies, seed by seed, is better: "a", "b" or "unclear"."""
    ### BEGIN SOLUTION
    if len(a) < 5:
        return "unclear"
    d = [x - y for x, y in zip(a, b, strict=True)]
    error = sd(d) / len(d) ** 0.5
    if abs(mean(d)) <= 2 * error:
        return "unclear"
    return "a" if mean(d) > 0 else "b"
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Subtracting first takes out what a seed does to both. The SD of the differences says how far one of them is off; for
# the mean of n of them it is divided by the root of n. Where the interval of two standard errors has 0 in it, the
# answer is not "equal" but "unclear". And all this is about the *seeds*: other rows to judge by are a chance that no
# seed shows.

# %%
check.better()

# %% [markdown]
# How good is the rule? Here 400 comparisons are made up for each point. A seed moves both accuracies together, by 2
# points as an SD, and each of them by another point of its own. B is truly as good as A, or ahead by 1 or 2 points.
# **How often should the lowest line name a winner, if all is well?**


# %%
def made_up(lead, seeds, rng):
    luck = [rng.gauss(0.75, 0.02) for _ in range(seeds)]
    a, b = ([x + rng.gauss(0, 0.01) for x in luck] for _ in range(2))
    return a, [x + lead for x in b]


def how_often():
    fig, ax = figures.subplots(height=3.2)
    numbers, told = (3, 5, 8, 12, 20), []
    looks = ((0.0, "ink", "o"), (0.01, "state", "s"), (0.02, "adafactor", "^"))
    for lead, color, marker in looks:
        rng, shares = random.Random(0), []
        for seeds in numbers:
            words = [better(*made_up(lead, seeds, rng)) for _ in range(400)]
            shares.append(100 * sum(word in ("a", "b") for word in words) / len(words))
        name = f"{100 * lead:.0f} point{'s' * (lead != 0.01)} apart"
        ax.plot(numbers, shares, f"{marker}-", color=figures.COLORS[color], label=name)
        told.append(f"truly {name}: {', '.join(f'{share:.0f} %' for share in shares)}")
    ax.set(xlabel="seeds", ylabel="% of comparisons", ylim=(-4, 104), xticks=numbers)
    ax.set_title("How often does your rule name a winner?")
    ax.legend(loc="center right", title="in truth")
    seeds_told = ", ".join(map(str, numbers))
    start = f"Share of comparisons with a winner, for {seeds_told} seeds"
    figures.show(fig, alt=f"{start}. {'; '.join(told)}.")


check.preview(how_often)

# %% [markdown]
# The aim of two standard errors is to be wrong in some 5 % of the comparisons where there is nothing to find. With few
# seeds it is more, since their SD is itself a rough number: so the rule keeps silent below five. And where there *is* a
# difference, "unclear" often means that it takes more seeds.

# %% [markdown] task="flaws" minutes=6 difficulty="medium" good_for="reading the tables of a paper"
# ## What is unfair here?
#
# A report says how one optimizer came to its accuracies. It is a dictionary:
#
# - `"tried"`: the learning rates of its search, a list in any order, no rate twice
# - `"rate"`: the one that was chosen from them, and used in all runs
# - `"chosen_by"`: the rows by which it was chosen, such as `"held back"`
# - `"judged_by"`: the rows that give the accuracies, such as `"validation"`
# - `"seeds"`: those of the runs, a list in any order. Accuracies are compared seed by seed, each with that of the same
#   seed.
#
# Write `flaws(a, b)`. It gets the reports of two optimizers and returns a set of words: each that applies, and an empty
# set if none does.
#
# - `"search"`: one side had more rates to choose from than the other. Which rates they are may differ.
# - `"edge"`: the rate of at least one side lies at an end of what this side has tried, so that a still better one may
#   lie beyond.
# - `"leak"`: the rate of at least one side was chosen by the very rows that judge this side.
# - `"pairs"`: the runs cannot all be subtracted in pairs, of the same seed and judged by the same rows.


# %%
def flaws(a, b):
    """The flaws of a comparison between two reports (dictionaries): a set of words."""
    ### BEGIN SOLUTION
    found = set()
    if len(a["tried"]) != len(b["tried"]):
        found.add("search")
    for report in (a, b):
        if report["rate"] in (min(report["tried"]), max(report["tried"])):
            found.add("edge")
        if report["chosen_by"] == report["judged_by"]:
            found.add("leak")
    if set(a["seeds"]) != set(b["seeds"]) or a["judged_by"] != b["judged_by"]:
        found.add("pairs")
    return found
    ### END SOLUTION


# %% [markdown] tags=["why"]
# `edge` and `leak` are asked of each report, `search` and `pairs` of both together. A rival that was never searched for
# has one rate in its list: that is fewer than the other's, and at an edge too.

# %%
check.flaws()

# %% [markdown] task="five_scenarios" minutes=8 difficulty="medium" good_for="deciding before you rent a GPU"
# ## Five situations
#
# In each of these situations a model is trained in 32 bits, with so many texts in a batch, of so many tokens each, on a
# GPU with so many GiB (2³⁰ bytes). AdamW is tuned and well known there. So the rule is: take the **first** line of this
# list with which it fits.
#
# - `"adamw"`: nothing is changed.
# - `"adamw8bit_bitsandbytes"`: 8-bit AdamW, the batch as it is.
# - `"adafactor"`: Adafactor, the batch as it is.
# - `"smaller batch"`: AdamW, but with a single text in a batch, and
#   [gradients accumulated](../notebooks/glossary.ipynb#gradient-accumulation).
# - `"none"`: none of these fits.
#
# It fits if weights, gradients, [optimizer state](../notebooks/glossary.ipynb#optimizer-state) and
# [activations](../notebooks/glossary.ipynb#activations) together are no more than the GPU has. Count them as lesson 01
# did; the cell below shows how. Let `five_scenarios()` return a dictionary: for each of the keys `"A"` to `"E"` one
# word from the list. Computing them and writing them down are both fine.
#
# Guess first: in how many of the five is Adafactor the answer?

# %%
# Model, texts in a batch, tokens in a text, GiB
scenarios = {
    "A": ("GPT-2 large", 8, 128, 16),
    "B": ("BERT base", 32, 256, 7),
    "C": ("BERT large", 16, 128, 12),
    "D": ("LLaMA 7B", 4, 512, 48),
    "E": ("T5 3B", 1, 128, 24),
}
gpt2 = planner.plan(planner.build("GPT-2"), "adamw", batch=8, length=128)  # sizes in bytes
print(f"activations {gpt2.activations / 2**30:.2f}, in all {gpt2.total / 2**30:.2f} GiB")


# %%
def five_scenarios():
    """For each of the keys "A" to "E" the first answer of the list with which training fits."""
    ### BEGIN SOLUTION
    answers = {}
    for letter, (name, batch, length, gib) in scenarios.items():
        model = planner.build(name)
        plans = {
            kind: planner.plan(model, kind, batch=batch, length=length)
            for kind in ("adamw", "adamw8bit_bitsandbytes", "adafactor")
        }
        plans["smaller batch"] = planner.plan(model, "adamw", batch=1, length=length)
        fitting = [answer for answer, plan in plans.items() if plan.total <= gib * 2**30]
        answers[letter] = fitting[0] if fitting else "none"
    return answers
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Ask first what is large. Where it is the state, another optimizer helps, and one that saves more than is short gains
# nothing. Where it is the activations, only the batch or the texts can give way. Where it is weights and gradients,
# neither does, and you need a smaller model, fewer trained weights, or more GPUs.

# %%
check.five_scenarios()

# %% [markdown]
# What each situation takes with AdamW, part by part, and what your answers are. The dashed line is the GPU's memory.

# %%
PARTS = ("weights", "gradients", "state", "activations")


def part_by_part():
    answers = five_scenarios()
    fig, ax = figures.subplots(height=3.6)
    told = []
    for row, (letter, (name, batch, length, gib)) in enumerate(scenarios.items()):
        plan, left = planner.plan(planner.build(name), "adamw", batch=batch, length=length), 0.0
        sizes = {part: getattr(plan, part) / 2**30 / gib for part in PARTS}
        for part, size in sizes.items():
            label = part if row == 0 else None
            ax.barh(row, size, left=left, color=figures.COLORS[part], label=label)
            left += size
        ax.text(max(left, 1) + 0.03, row, answers[letter], va="center")
        shares = ", ".join(f"{part} {100 * size:.0f} %" for part, size in sizes.items())
        told.append(f"{letter}, {name}: {shares}; answer {answers[letter]}")
    ax.axvline(1, color=figures.COLORS["ink"], linestyle="--", linewidth=1)
    names = [f"{letter}  {name}" for letter, (name, *_) in scenarios.items()]
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set(xlim=(0, 3.6), xlabel="times the GPU's memory")
    ax.set_title("With AdamW, and what you answer")
    ax.legend(loc="upper right")
    figures.show(fig, alt=f"Parts of the GPU's memory that AdamW takes. {'. '.join(told)}.")


check.preview(part_by_part)
