# %% [markdown]
# ## Where we are
#
# 501.9 MiB of state with AdamW, 127.8 with 8-bit AdamW, 0.68 with Adafactor: you have accounted for every byte. What
# does the saving cost, in accuracy and in time? In this lesson all three have been measured side by side, and you
# learn to read such a table without being fooled by it.

# %%
import random
from math import hypot
from textwrap import fill

import torch

from course_lib import comparison, figures, lockstep, memory, planner, tasks
from course_lib.comparison import difference, mean, sampling_error, sd
from course_lib.diagrams import cheat_sheet, seeds, tried_rates, trade_off
from course_lib.explore import Slider, explore, predict, reveal

MIB, GIB = 2**20, 2**30  # bytes

# %%
compared = comparison.load()
print(compared)

# %% [markdown]
# The table is a file of this course, `optimizers.json`. In a copy of the course `make compare` measures everything
# anew, on your own machine, in 10 to 25 minutes. It is always the *small* task, which tells the language of a name.

# %%
results, task = compared.results, compared.task
on_meta = tasks.distilbert(device="meta")
kinds = ("adamw", "adamw8bit_bitsandbytes", "adafactor_transformers", "adafactor_torch")
for (name, result), kind in zip(results.items(), kinds, strict=True):
    assert result.memory.state == memory.predict_state_size(on_meta, kind).bytes
    print(f"{name:24} {result.memory.state / MIB:6.2f} MiB of state for DistilBERT")

# %% [markdown]
# There are four rows: 8-bit AdamW is that of bitsandbytes, with embeddings in 8 bits too, and Adafactor has two forms.
# **Given rate** is what Trainer sets. **Relative step** is torch's class, with [relative step
# size](glossary.ipynb#relative-step-size) and [RMS scaling](glossary.ipynb#RMS-scaling); its rate is a cap, 0.01 in the
# paper.

# %% [markdown]
# ## Pick a winner
#
# All four were trained with the same seed: the same first weights, the same batches in the same order, the same
# dropout. Here is how they came out. Further left is less state, further up is more accuracy. (The yellow band has its
# turn later.) **Which one would you take? Write it down.**

# %%
states = {name: result.memory.state / MIB for name, result in results.items()}
accuracy = {name: result.accuracy for name, result in results.items()}
runs = seeds.Seeds(states, accuracy, task["validation"])
figures.show(*runs.update(1))

# %% [markdown]
# Now reveal more seeds, one by one. Below, a mark says whose mean was the highest after each. **Do you keep your
# winner?** Then reveal them in another order: what would you have picked if another seed had come first?


# %%
def draw(revealed=1, shuffle=0):
    order = list(range(len(compared.seeds)))
    if shuffle:
        random.Random(shuffle).shuffle(order)
    return runs.update(revealed, order)


explore(
    draw,
    revealed=Slider(1, len(compared.seeds), label="seeds revealed"),
    shuffle=Slider(0, 9, label="another order"),
)

# %% [markdown]
# And with all seeds:

# %% tags=["answer", "picture"]
print(f"All {len(compared.seeds)} seeds:")
figures.show(*runs.update(len(compared.seeds)))

# %% [markdown]
# ## Two kinds of chance
#
# The dots scatter although nothing was changed but the seed. Their standard deviation (SD) says how much. It is the
# first kind of chance: **the seed**.

# %%
print(f"{'':24} accuracy, mean ± SD   from    to     macro F1, mean ± SD")
for name, result in results.items():
    ends = f"{min(result.accuracy):.3f}  {max(result.accuracy):.3f}"
    print(f"{name:24} {mean(result.accuracy):.3f} ± {sd(result.accuracy):.3f}", end="         ")
    print(ends, end="   ")
    print(f"{mean(result.f1):.3f} ± {sd(result.f1):.3f}")
    assert min(result.accuracy) > task["majority"] + 0.3
print(f"always the most frequent class: {task['majority']:.3f}")

# %% [markdown]
# ### The best seed
#
# Reports often give one number only. Which one of these would you be shown?

# %%
predict("10-best")

# %% tags=["answer"]
print("The best of eight, above their mean, in standard deviations:")
draws = torch.randn(100_000, 8, generator=torch.Generator().manual_seed(0))
print(f"simulated  {(draws.amax(1) - draws.mean(1)).mean():.2f}")
for name, result in results.items():
    print(f"{name:24} {(max(result.accuracy) - mean(result.accuracy)) / sd(result.accuracy):.2f}")
reveal("10-best")

# %% [markdown]
# (The 100,000 studies of eight seeds are simulated, with normally distributed numbers. Of each optimizer you have one
# such study, and real accuracies need not be normally distributed.) **The best seed** is a number about luck, and about
# how often somebody tried. Nor is **the higher mean** a winner yet. It is a better summary of the same scattered dots.

# %% [markdown]
# ### The validation set
#
# The yellow band is the second kind of chance. All runs were judged by the same few hundred names. Had other names been
# drawn, all dots would lie elsewhere.

# %%
predict("10-rows")

# %% tags=["answer"]
print("Sampling error of an accuracy of 0.75:")
for rows in (20, 100, 470, 47_000):
    print(f"{rows:6,} rows: ± {100 * sampling_error(0.75, rows):.1f} points")
reveal("10-rows")

# %% [markdown]
# > **sampling error** — how far a number would typically move if other examples had been drawn to measure it by. For
# > an accuracy $p$ on $n$ rows its standard deviation is $\sqrt{p(1-p)/n}$.

# %% [markdown]
# It stays the same however many seeds you add: more runs on the same names do not make more names. But it also does
# not hit one optimizer alone. A name that is hard is hard for all. What counts is how much the **difference** would
# move.

# %% [markdown]
# ## A difference, and how far to trust it
#
# `correct` has a row for each seed and a column for each name: was the answer right? Subtract two such tables, entry
# by entry, and the hard names drop out.


# %%
def by_hand(a, b):
    d = a.correct.astype(float) - b.correct  # −1, 0 or 1, shape [seeds, names]
    from_seeds = d.mean(1).std(ddof=1) / d.shape[0] ** 0.5
    from_names = d.mean(0).std(ddof=1) / d.shape[1] ** 0.5
    return d.mean(), from_seeds, from_names


base = results["AdamW"]
rivals = {name: other for name, other in results.items() if other is not base}
print("Points of accuracy above AdamW:")
for name, other in rivals.items():
    middle, from_seeds, from_names = (100 * number for number in by_hand(other, base))
    print(f"{name:24} {middle:+.2f}, ± {from_seeds:.2f} by seeds, ± {from_names:.2f} by names")

# %% [markdown]
# Each ± is a standard error: the typical distance of the mean from what endless seeds, or endless names, would give.
# (They come together as the root of the sum of their squares.) Two of them to either side make an interval that
# catches the truth in some 95 % of such studies. `difference` of the course's library does all this.

# %%
found = {name: difference(other.correct, base.correct) for name, other in rivals.items()}
for name, other in found.items():
    middle, from_seeds, from_names = by_hand(results[name], base)
    assert abs(middle - other.mean) < 1e-12
    assert abs(from_seeds - other.from_seeds) + abs(from_names - other.from_rows) < 1e-12
figures.show(*tried_rates.differences("AdamW", found))

# %%
for name, other in found.items():
    low, high = (100 * end for end in other.interval)
    place = "outside" if other.resolved else "inside"
    print(f"{name:24} from {low:+.1f} to {high:+.1f} points: 0 is {place}")

# %% [markdown]
# ### If 0 is inside
#
# Then these data do not tell which of the two is better. It is tempting to read on: "no difference, so they are equal".

# %%
predict("10-equal")

# %% tags=["answer"]
print("What each interval makes unlikely:")
for name, other in found.items():
    low, high = (100 * end for end in other.interval)
    worse = f"worse by more than {-low:.1f} points" if low < 0 else "worse at all"
    better = f"better by more than {high:.1f} points" if high > 0 else "better at all"
    print(f"{name:24} {worse}, or {better}")
reveal("10-equal")

# %% [markdown]
# ### If 0 is outside
#
# Then the sign is known, as far as one look can tell. But you took three looks, and with more than one the odd false
# alarm is to be expected. And with few seeds two standard errors are a little narrow, since their SD is itself a rough
# number. Student's t says how many it should be:

# %%
from scipy.stats import t

print(f"at least one false alarm in three looks at 5 %: up to {3 * 0.05:.0%}")
for count in (3, len(compared.seeds)):
    print(f"{count} seeds: {t.ppf(0.975, count - 1):.1f} standard errors instead of 2")

# %%
wide = t.ppf(0.975, len(compared.seeds) - 1)
for name, other in found.items():
    low, high = (100 * (other.mean + side * wide * other.error) for side in (-1, 1))
    place = "inside" if low < 0 < high else "outside"
    print(f"{name:24} from {low:+.1f} to {high:+.1f} points: 0 is {place}")

# %% [markdown]
# So ask for a second opinion: other seeds, other names. There is one in the table. The runs that chose the learning
# rates had two seeds of their own, and were judged by other names. **Do they agree about the signs?**

# %%
for name, other in found.items():
    again = results[name].tried[results[name].rate] - base.tried[base.rate]
    agree = "the same sign" if again * other.mean > 0 else "another sign"
    print(f"{name:24} above AdamW: {100 * other.mean:+.1f} points here", end="")
    print(f", {100 * again:+.1f} there: {agree}")

# %% [markdown]
# (Two seeds make a weak witness, though an independent one.) Look at your winner from the start of the lesson again.
# What would you say of it now?

# %% [markdown]
# ### If it should be equality
#
# To *show* that two are equal for your purpose, say beforehand which difference would not matter to you, and get an
# interval that lies within it. If that is one point, two standard errors have to fit into it, at the very least. Their
# squares add up, so let seeds take one half and names the other. How many of each does that need?

# %%
for name, other in found.items():
    more_seeds, more_names = (
        2 * (2 * error / 0.01) ** 2 for error in (other.from_seeds, other.from_rows)
    )
    print(f"{name:24} about {len(compared.seeds) * more_seeds:.0f} seeds", end="")
    print(f" and {task['validation'] * more_names:,.0f} names")
print(f"in the table             {len(compared.seeds):5} seeds and {task['validation']:,} names")

# %% [markdown]
# ## A fair rate for each
#
# There is a third way to be fooled, and no seed protects from it. Each of the four got its rate from the same
# search: five rates, half a power of ten apart, two seeds that are not among those above, judged by names held back
# from *training*, so that the validation set stays unseen. What if one of them had not been searched for?

# %%
predict("10-untuned")

# %% tags=["answer"]
print("Accuracy on held-back names, at the best of five rates and at 1e-4:")
given = {name: result.tried for name, result in results.items() if 1e-4 in result.tried}
for name, tried in given.items():
    print(f"{name:24} {max(tried.values()):.3f}   {tried[1e-4]:.3f}")
gaps = [
    max(tuned.values()) - left[1e-4]
    for one, tuned in given.items()
    for other, left in given.items()
    if one != other
]
print(f"a tuned one ahead of an untuned rival: {100 * min(gaps):.0f}", end="")
print(f" to {100 * max(gaps):.0f} points")
assert min(gaps) > 0.15
reveal("10-untuned")

# %%
searched = {name: result.tried for name, result in results.items()}
figures.show(*tried_rates.tried_rates(searched, task["majority"]))
for name, result in results.items():
    print(f"{name:24} chosen: {result.rate:g}")

# %% [markdown]
# Lesson 09 said that 8-bit AdamW stays closer to AdamW than Adafactor does: the same rule, with coarser averages. One
# mean says little about that, a curve more. How far is each from AdamW's, at the rate where it is farthest?

# %%
for name, tried in given.items():
    if tried is not base.tried:
        apart = max(abs(value - base.tried[rate]) for rate, value in tried.items())
        print(f"{name:24} at most {100 * apart:.1f} points from AdamW at the same rate")

# %% [markdown]
# With an **untuned rival** each of these three can be made the winner, against each of the others. So ask of every
# comparison how the rates were found, and whether both sides got the same search. (A rate at the edge of the five would
# say that the search was too narrow.)

# %%
assert all(min(result.tried) < result.rate < max(result.tried) for result in results.values())

# %% [markdown]
# **Stopping point for a class.** So far: seeds, names, differences, rates. To talk about: which sentence about these
# four would you be ready to sign? What follows: a seed of your own, memory, time, and a table to decide by.

# %% [markdown]
# ## A seed of your own
#
# Numbers in a file are one thing. Train one yourself, as the table's runs were trained: choose the optimizer and a
# seed that is not in the table. It takes a quarter of a minute or so.

# %%
mine, my_seed = "Adafactor, given rate", 2024  # change them
assert my_seed not in compared.seeds
small = tasks.load("small")
live = lockstep.train(small, {mine: results[mine].rate}, seed=my_seed)[mine]

# %% tags=["varies"]
print(f"{mine}, rate {live.rate:g}, seed {my_seed}: accuracy {live.accuracy:.3f}, F1 {live.f1:.3f}")
distance = (live.accuracy - mean(results[mine].accuracy)) / sd(results[mine].accuracy)
side = "above" if distance > 0 else "below"
print(f"{abs(distance):.1f} standard deviations {side} the mean of the table's runs")
figures.show(*runs.update(len(compared.seeds), live={mine: live.accuracy}))
assert live.accuracy > task["majority"] + 0.3

# %% [markdown]
# The hollow mark is yours. One run cannot confirm a mean, but it can make you doubt it: beyond three standard
# deviations something else than the seed may be different, such as a version.

# %% [markdown]
# ## What it costs in memory
#
# The plane of lesson 01, in which you placed optimizers by thinking. Now each point is a state that was counted after
# a step of a full-size DistilBERT, all its vectors and embeddings included.

# %%
labels = {"AdamW": "AdamW", "8-bit Adam": "8-bit AdamW", "Adafactor": "Adafactor, given rate"}
parameters = sum(p.numel() for p in on_meta.parameters())
points = {}
for label, name in labels.items():
    kept = results[name].memory
    points[label] = (kept.elements / parameters, 8 * kept.state / kept.elements)
figures.show(*trade_off.trade_off(points))

# %% [markdown]
# State is not the total, and the total is not the peak. This is what the same step needed, on a CPU:

# %%
print("MiB                       state     total   added in the step     peak")
for name, result in results.items():
    kept = result.memory
    print(f"{name:24} {kept.state / MIB:6.1f}  {kept.total / MIB:8,.1f}", end="")
    print(f"  {kept.added / MIB:18.1f}  {kept.peak / MIB:7,.1f}")
largest = max(p.numel() * 4 for p in on_meta.parameters())
times = round(results["8-bit AdamW"].memory.added / largest)
print(f"8-bit AdamW adds {times} times the largest tensor, {largest / MIB:.1f} MiB, unpacked")

# %% [markdown]
# (Added is what the memory allocator saw. The total has weights and gradients in it.) Look at 8-bit AdamW: here its
# step unpacks both averages of the tensor it works on, with everything that is computed from them. Part of what it
# saves between the steps, it needs again for a moment *within* them. On a GPU one kernel does this in small pieces.

# %% [markdown]
# How high are the peaks there, then? Below stands the table of `make gpu`, if somebody has made it; and two rows
# measured here and now, if this kernel has a CUDA GPU.

# %%
from course_lib import gpu_results

gpu_results.show()

# %% [markdown]
# The peak of a whole training step can lie elsewhere: where most activations are alive. Then the optimizer is not the
# one to ask.

# %%
predict("10-activations")


# %% tags=["answer"]
def activations(batch, length=128):
    tokens = torch.zeros(batch, length, dtype=torch.long, device="meta")
    labels = torch.zeros(batch, dtype=torch.long, device="meta")
    return planner.saved_bytes(on_meta, lambda: on_meta(tokens, labels=labels).loss)


print("What each change saves, in GiB:")
for name, result in results.items():
    print(f"{name:24} {(base.memory.state - result.memory.state) / GIB:.2f}")
print(f"no state at all          {base.memory.state / GIB:.2f}")
halved = (activations(128) - activations(64)) / GIB
print(f"half the batch           {halved:.2f}")
assert halved > 2 > base.memory.state / GIB
reveal("10-activations")

# %% [markdown]
# ## What it costs in time
#
# Times depend on the machine, and on what else it does. So all four took turns, and what was kept is a **ratio** to
# AdamW: of whole training runs of the small model, and of the optimizer's step alone for DistilBERT.

# %%
print("                         training, mean ± SD   large step, median (quartiles)")
for name, result in results.items():
    kept = result.memory
    print(f"{name:24} {mean(result.ratios):.2f} ± {sd(result.ratios):.2f}", end="           ")
    print(f"{kept.step_ratio:.2f} ({kept.quartiles[0]:.2f} to {kept.quartiles[1]:.2f})")

# %% [markdown]
# These are one CPU's ratios, one thread's, with these versions. Take from them that bytes and time do not follow each
# other, and measure on your own machine.

# %% [markdown]
# ## A table to decide by
#
# Nobody needs "the best optimizer". Somebody is short of something. Each line below is a need with a limit, and a ✓
# says who meets it, *by these measurements*. The limits are examples: **put in your own.**

# %%
budget = 700  # MiB, for a DistilBERT
bearable = 2  # points of accuracy that you could bear to lose
slower = 1.2  # times as long as with AdamW
near = 5  # points below the best rate that would do


# %%
def good_rates(result):
    return sum(
        100 * (max(result.tried.values()) - value) <= near for value in result.tried.values()
    )


def against_adamw(result):
    return difference(result.correct, base.correct).interval


needs = {
    f"weights, gradients, state: {budget} MiB": lambda r: r.memory.total <= budget * MIB,
    f"the same at the step's peak: {budget} MiB": lambda r: r.memory.peak <= budget * MIB,
    "not shown to be worse than AdamW": lambda r: against_adamw(r)[1] >= 0,
    f"shown to be at most {bearable} points worse": lambda r: 100 * against_adamw(r)[0] > -bearable,
    f"training takes at most {slower} of the time": lambda r: mean(r.ratios) <= slower,
    f"two of five rates within {near} points": lambda r: good_rates(r) >= 2,
}

# %%
print(" " * 40 + "".join(f"{name.split(', ')[-1]:>15}" for name in results))
for need, met in needs.items():
    marks = ["✓" if met(result) else "–" for result in results.values()]
    print(f"{need:40}" + "".join(f"{mark:>15}" for mark in marks))

# %% [markdown]
# Read the third and the fourth line together: not shown to be worse, and shown not to be much worse, are two things.
# (Set `bearable` to 0.5 or less and run these cells again.) And read down: an optimizer with a ✓ in *your* lines will
# do. If several will, take the one you know how to tune.

# %%
for name, result in results.items():
    missed = [need for need, met in needs.items() if not met(result)]
    print(fill(f"{name}: {'; '.join(missed) or 'meets all of them'}", 92, subsequent_indent="  "))

# %% [markdown]
# ## One page
#
# What this lesson and those before it come to, to print: `images/cheat_sheet.svg` in the course's repository.

# %%
figures.show(*cheat_sheet.draw())

# %% [markdown]
# **For those who are done early.** Train all four with your seed in one call of `lockstep.train`, and compare their
# order with that of the means. Then: `difference` needs the same names on both sides. What would you have to
# compute if the runs had been judged by *different* names?

# %% tags=["answer"]
print("Standard error from names, of the difference to AdamW, in points:")


def own_error(result):
    by_name = result.correct.mean(0)  # the share of seeds that got a name right
    return by_name.std(ddof=1) / len(by_name) ** 0.5


for name, other in found.items():
    different = hypot(own_error(results[name]), own_error(base))  # root of the sum of the squares
    print(f"{name:24} same names {100 * other.from_rows:.2f}", end="")
    print(f", different names {100 * different:.2f}")
    assert different > other.from_rows

# %% [markdown]
# ## Recap
#
# - One seed is an anecdote, and the best seed a lucky one. Report the mean, the SD and how many.
# - Other names would have moved all accuracies. Compare on the same rows, and look at the difference and its interval.
# - An interval with 0 in it leaves the sign open. It does not prove equality. One without 0 wants a second opinion.
# - A rival without a search loses for no reason of its own. The same search for each.
# - Decide by what is short: state, peak, time, or tuning. Activations are not the optimizer's to save.

# %% [markdown]
# ## Sources
#
# - All numbers: measured by `benchmarks/compare.py`; its results, with date and versions, in `benchmarks/results`.
# - Seeds and validation sets as sources of variance: Bouthillier et al. 2021, [arXiv
#   2103.03098](https://arxiv.org/abs/2103.03098). Seeds in fine-tuning: Dodge et al. 2020, [arXiv
#   2002.06305](https://arxiv.org/abs/2002.06305).
# - What tuning does to comparisons of optimizers: Choi et al. 2019, [arXiv
#   1910.05446](https://arxiv.org/abs/1910.05446); Schmidt et al. 2021, [arXiv
#   2007.01547](https://arxiv.org/abs/2007.01547).
# - No difference found is no equality: Altman & Bland 1995, "Absence of evidence is not evidence of absence", *BMJ*
#   311:485.
# - The mean of the largest of n normal values: Tippett 1925, *Biometrika* 17:364–387.
# - Room for a step in 8 bits: counted here; bitsandbytes' code for CPUs, version 0.50.
