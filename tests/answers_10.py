"""Answers to exercise 10."""

import statistics
from itertools import starmap
from operator import sub

import numpy as np
import torch
from answers import right, wrong
from scipy import stats

from course_lib import planner

# --- better


def t_of(a, b):
    d = np.subtract(a, b)
    return d.mean() / (d.std(ddof=1) / np.sqrt(d.size)) if d.any() else 0.0


def named(t, limit=2.0):
    return "a" if t > limit else "b" if t < -limit else "unclear"


@wrong("better", "names_swapped")
def _(a, b):
    return "unclear" if len(a) < 5 else named(t_of(b, a))


@wrong("better", "no_difference_proves_equal")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    return {"unclear": "equal"}.get(named(t_of(a, b)), named(t_of(a, b)))


@wrong("better", "no_difference_proves_equal", "few seeds, too")
def _(a, b):
    t = t_of(a, b)
    if len(a) >= 5 and abs(t) > 2:
        return "a" if t > 0 else "b"
    return "same"


@wrong("better", "never_says_b")
def _(a, b):
    return "a" if len(a) > 4 and t_of(a, b) > 2 else "unclear"


@wrong("better", "never_says_b", "only the size counts")
def _(a, b):
    return "a" if len(a) >= 5 and abs(t_of(a, b)) > 2 else "unclear"


@wrong("better", "not_a_so_b")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    return "a" if t_of(a, b) > 2 else "b"


@wrong("better", "not_a_so_b", "few seeds, too")
def _(a, b):
    return ("b", "a")[bool(len(a) >= 5 and t_of(a, b) > 2)]


@wrong("better", "few_seeds_ignored")
def _(a, b):
    return named(t_of(a, b))


@wrong("better", "few_seeds_ignored", "four are enough")
def _(a, b):
    return named(t_of(a, b)) if len(a) >= 4 else "unclear"


@wrong("better", "five_is_few")
def _(a, b):
    if len(a) <= 5:
        return "unclear"
    return named(t_of(a, b))


@wrong("better", "higher_mean_wins")
def _(a, b):
    return "a" if statistics.mean(a) > statistics.mean(b) else "b"


@wrong("better", "higher_mean_wins", "unclear where few or equal")
def _(a, b):
    gap = sum(a) - sum(b)
    if len(a) < 5 or abs(gap) < 1e-12:
        return "unclear"
    return "a" if gap > 0 else "b"


@wrong("better", "best_seed")
def _(a, b):
    return "a" if max(a) > max(b) else "b"


@wrong("better", "best_seed", "unclear where few or equal")
def _(a, b):
    if len(a) < 5 or max(a) == max(b):
        return "unclear"
    return "ab"[np.argmax([max(a), max(b)])]


@wrong("better", "always_the_same")
def _(a, b):
    return "unclear"


@wrong("better", "single_run")
def _(a, b):
    return "a" if a[-1] > b[-1] else "b"


@wrong("better", "single_run", "the worst")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    return "a" if min(a) > min(b) else "b"


@wrong("better", "median_for_mean")
def _(a, b):
    d = np.subtract(a, b)
    return named(np.median(d), 2 * stats.sem(d)) if len(d) >= 5 and abs(d).max() else "unclear"


@wrong("better", "median_for_mean", "absolute value")
def _(a, b):
    d = np.subtract(a, b)
    if len(d) < 5 or abs(np.median(d)) <= 2 * d.std(ddof=1) / np.sqrt(len(d)):
        return "unclear"
    return "a" if np.median(d) > 0 else "b"


@wrong("better", "higher_median_wins")
def _(a, b):
    return "a" if statistics.median(a) > statistics.median(b) else "b"


@wrong("better", "most_seeds_win")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    wins_a = sum(x > y for x, y in zip(a, b, strict=True))
    wins_b = sum(x < y for x, y in zip(a, b, strict=True))
    return "a" if wins_a > wins_b else "b" if wins_b > wins_a else "unclear"


@wrong("better", "every_seed_has_to_win")
def _(a, b):
    d = np.subtract(a, b)
    if len(d) < 5:
        return "unclear"
    return "a" if (d > 0).all() else "b" if (d < 0).all() else "unclear"


@wrong("better", "ignores_pairs")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    error = np.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))
    return named((np.mean(a) - np.mean(b)) / error)


@wrong("better", "ignores_pairs", "intervals that overlap")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    (low_a, high_a), (low_b, high_b) = ((np.mean(x) - 2 * stats.sem(x), np.mean(x) + 2 * stats.sem(x)) for x in (a, b))
    return "a" if low_a > high_b else "b" if low_b > high_a else "unclear"


@wrong("better", "ignores_pairs", "outside the interval of a")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    return named((np.mean(a) - np.mean(b)) / stats.sem(a))


@wrong("better", "ignores_pairs", "test for two samples")
def _(a, b):
    test = stats.ttest_ind(a, b)
    if len(a) < 5 or test.pvalue > 0.05:
        return "unclear"
    return "a" if test.statistic > 0 else "b"


@wrong("better", "spread_for_error")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    d = list(map(sub, a, b))
    middle, spread = statistics.fmean(d), statistics.stdev(d)
    return "a" if middle > 2 * spread else "b" if middle < -2 * spread else "unclear"


@wrong("better", "spread_for_error", "one of them")
def _(a, b):
    d = torch.tensor(a) - torch.tensor(b)
    if len(d) < 5 or d.mean().abs() < d.std():
        return "unclear"
    return "a" if d.mean() > 0 else "b"


@wrong("better", "spread_for_error", "ranges that overlap")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    return "a" if min(a) > max(b) else "b" if min(b) > max(a) else "unclear"


@wrong("better", "population_sd")
def _(a, b):
    d = np.array(a) - np.array(b)
    if len(d) < 5:
        return "unclear"
    error = d.std() / len(d) ** 0.5
    return "a" if d.mean() > 2 * error else "b" if d.mean() < -2 * error else "unclear"


@wrong("better", "one_standard_error")
def _(a, b):
    return "unclear" if len(a) < 5 else named(t_of(a, b), 1.0)


@wrong("better", "wrong_root")
def _(a, b):
    d = list(map(sub, a, b))
    if len(d) < 5:
        return "unclear"
    error = statistics.stdev(d) / len(d)
    return "a" if sum(d) / len(d) > 2 * error else "b" if sum(d) / len(d) < -2 * error else "unclear"


@wrong("better", "table_of_t")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    test = stats.ttest_rel(a, b)
    return ("a" if test.statistic > 0 else "b") if test.pvalue < 0.05 else "unclear"


@wrong("better", "fixed_margin")
def _(a, b):
    lead = statistics.mean(a) - statistics.mean(b)
    if len(a) < 5 or abs(lead) < 0.01:
        return "unclear"
    return "a" if lead > 0 else "b"


@wrong("better", "fixed_margin", "half a point, any number of seeds")
def _(a, b):
    lead = np.mean(a) - np.mean(b)
    return named(lead, 0.005)


@wrong("better", "identical_wins")
def _(a, b):
    d = np.subtract(a, b)
    if len(d) < 5 or abs(d.mean()) < 2 * stats.sem(d):
        return "unclear"
    return "a" if d.mean() > 0 else "b"


@wrong("better", "returns_nothing")
def _(a, b):
    if len(a) >= 5 and abs(t_of(a, b)) > 2:
        return "a" if t_of(a, b) > 0 else "b"


@right("better", "an interval, in NumPy")
def _(a, b):
    if len(a) < 5:
        return "unclear"
    d = np.asarray(a) - np.asarray(b)
    ends = d.mean() + np.array([-2, 2]) * d.std(ddof=1) / np.sqrt(len(d))
    return "a" if ends.min() > 0 else "b" if ends.max() < 0 else "unclear"


@right("better", "in 32 bits, with a capital letter")
def _(a, b):
    d = torch.tensor(a) - torch.tensor(b)
    t = d.mean() / d.std() * len(d) ** 0.5
    return "Unclear" if len(d) < 5 or not abs(t) > 2 else "A" if t > 0 else "B"


@right("better", "squares only")
def _(a, b):
    n, d = len(a), list(starmap(sub, zip(a, b, strict=True)))
    total = sum(d)
    variance = (sum(x * x for x in d) - total * total / n) / (n - 1)
    clear = n >= 5 and (total / n) ** 2 > 4 * variance / n
    return ("a" if total > 0 else "b") if clear else "unclear"


# --- flaws


def at_edge(report):
    return not min(report["tried"]) < report["rate"] < max(report["tried"])


def leaks(report):
    return report["chosen_by"] == report["judged_by"]


def found(a, b, **changed):
    answers = {
        "search": len(a["tried"]) != len(b["tried"]),
        "edge": at_edge(a) or at_edge(b),
        "leak": leaks(a) or leaks(b),
        "pairs": sorted(a["seeds"]) != sorted(b["seeds"]) or a["judged_by"] != b["judged_by"],
    }
    return {word for word, there in {**answers, **changed}.items() if there}


@wrong("flaws", "untuned_rival")
def _(a, b):
    return found(a, b) - {"search"}


@wrong("flaws", "only_no_search_counts")
def _(a, b):
    lengths = sorted([len(a["tried"]), len(b["tried"])])
    return found(a, b, search=lengths[0] == 1 < lengths[1])


@wrong("flaws", "leak_across", "crosswise")
def _(a, b):
    return found(a, b, leak=b["chosen_by"] == a["judged_by"] or a["chosen_by"] == b["judged_by"])


@wrong("flaws", "validation_is_the_leak")
def _(a, b):
    return found(a, b, leak="validation" in (a["chosen_by"], b["chosen_by"]))


@wrong("flaws", "leak_across")
def _(a, b):
    return found(a, b, leak=any(r["chosen_by"] in (a["judged_by"], b["judged_by"]) for r in (a, b)))


@wrong("flaws", "few_seeds_are_no_pairs")
def _(a, b):
    whole = sorted(a["seeds"]) == sorted(b["seeds"]) and len(a["seeds"]) >= 5
    return found(a, b, pairs=not whole or a["judged_by"] != b["judged_by"])


@wrong("flaws", "some_pairs_are_enough")
def _(a, b):
    common = [seed for seed in a["seeds"] if seed in b["seeds"]]
    return found(a, b, pairs=not common or a["judged_by"] != b["judged_by"])


@wrong("flaws", "some_pairs_are_enough", "one side's seeds only")
def _(a, b):
    missing = [seed for seed in b["seeds"] if seed not in a["seeds"]]
    return found(a, b, pairs=bool(missing) or a["judged_by"] != b["judged_by"])


@wrong("flaws", "same_rate_demanded")
def _(a, b):
    return found(a, b, search=a["rate"] != b["rate"])


@wrong("flaws", "same_list_demanded")
def _(a, b):
    return found(a, b, search=sorted(a["tried"]) != sorted(b["tried"]))


@wrong("flaws", "same_list_demanded", "in the same order")
def _(a, b):
    return list(found(a, b, search=a["tried"] != b["tried"]))


@wrong("flaws", "edge_is_fine")
def _(a, b):
    return found(a, b, edge=False)


@wrong("flaws", "edge_is_fine", "or lies outside")
def _(a, b):
    outside = any(r["rate"] < min(r["tried"]) or r["rate"] > max(r["tried"]) for r in (a, b))
    return found(a, b, edge=outside)


@wrong("flaws", "edge_by_position")
def _(a, b):
    return found(a, b, edge=any(r["tried"].index(r["rate"]) in (0, len(r["tried"]) - 1) for r in (a, b)))


@wrong("flaws", "one_edge_only")
def _(a, b):
    return found(a, b, edge=any(r["rate"] == sorted(r["tried"])[-1] for r in (a, b)))


@wrong("flaws", "one_edge_only", "the lower one")
def _(a, b):
    return found(a, b, edge=any(r["rate"] == min(r["tried"]) for r in (a, b)))


@wrong("flaws", "one_side_only")
def _(a, b):
    return found(a, b, edge=at_edge(a), leak=leaks(a))


@wrong("flaws", "one_side_only", "the edge of b")
def _(a, b):
    return found(a, b, edge=at_edge(b))


@wrong("flaws", "both_have_to")
def _(a, b):
    return found(a, b, edge=at_edge(a) and at_edge(b), leak=leaks(a) and leaks(b))


@wrong("flaws", "leak_missed")
def _(a, b):
    return {word for word in found(a, b) if word != "leak"}


@wrong("flaws", "leak_turned_round")
def _(a, b):
    return found(a, b, leak=any(r["chosen_by"] != r["judged_by"] for r in (a, b)))


@wrong("flaws", "order_of_seeds_counts")
def _(a, b):
    same = a["seeds"] == b["seeds"] and a["judged_by"] == b["judged_by"]
    return found(a, b, pairs=not same)


@wrong("flaws", "as_many_is_enough")
def _(a, b):
    return found(a, b, pairs=len(a["seeds"]) != len(b["seeds"]) or a["judged_by"] != b["judged_by"])


@wrong("flaws", "rows_forgotten")
def _(a, b):
    return found(a, b, pairs=bool(set(a["seeds"]) ^ set(b["seeds"])))


@wrong("flaws", "rows_forgotten", "only if the seeds differ too")
def _(a, b):
    return found(a, b, pairs=set(a["seeds"]) != set(b["seeds"]) and a["judged_by"] != b["judged_by"])


@wrong("flaws", "seeds_forgotten")
def _(a, b):
    return found(a, b, pairs=a["judged_by"] != b["judged_by"])


@wrong("flaws", "first_flaw_only")
def _(a, b):
    flaw = found(a, b)
    for word in ("search", "edge", "leak", "pairs"):
        if word in flaw:
            return {word}
    return set()


@right("flaws", "as a list")
def _(a, b):
    return [word for word in ("pairs", "leak", "edge", "search") if word in found(a, b)]


@right("flaws", "as an array")
def _(a, b):
    return np.array(sorted(found(a, b)))


@right("flaws", "by sorting")
def _(a, b):
    edge = any(sorted(r["tried"]).index(r["rate"]) in (0, len(r["tried"]) - 1) for r in (a, b))
    return frozenset(found(a, b, edge=edge))


# --- five_scenarios

SITUATIONS = {
    "A": ("GPT-2 large", 8, 128, 16),
    "B": ("BERT base", 32, 256, 7),
    "C": ("BERT large", 16, 128, 12),
    "D": ("LLaMA 7B", 4, 512, 48),
    "E": ("T5 3B", 1, 128, 24),
}
KINDS = ("adamw", "adamw8bit_bitsandbytes", "adafactor")
SURE = {"A": "adamw8bit_bitsandbytes", "B": "smaller batch", "C": "adamw", "D": "none", "E": "adafactor"}


def chosen(bill, order=KINDS, gib=2**30):
    answers = {}
    for letter, (name, batch, length, room) in SITUATIONS.items():
        model = planner.build(name)
        answers[letter] = "none"
        if bill(planner.plan(model, "adamw", batch=1, length=length)) <= room * gib:
            answers[letter] = "smaller batch"
        for kind in reversed(order):
            if bill(planner.plan(model, kind, batch=batch, length=length)) <= room * gib:
                answers[letter] = kind
    return answers


@wrong("five_scenarios", "always_adafactor")
def _():
    return dict.fromkeys("ABCDE", "adafactor")


@wrong("five_scenarios", "always_adamw")
def _():
    return dict.fromkeys("ABCDE", "adamw")


@wrong("five_scenarios", "fewest_bytes_always")
def _():
    return chosen(lambda plan: plan.total, KINDS[::-1])


@wrong("five_scenarios", "fewest_bytes_always", "in A")
def _():
    return {**SURE, "A": "adafactor"}


@wrong("five_scenarios", "state_only")
def _():
    return chosen(lambda plan: plan.state)


@wrong("five_scenarios", "forgot_activations")
def _():
    return chosen(lambda plan: plan.weights + plan.gradients + plan.state)


@wrong("five_scenarios", "forgot_gradients")
def _():
    return chosen(lambda plan: plan.weights + plan.state + plan.activations)


@wrong("five_scenarios", "weights_in_8_bit")
def _():
    answers = {}
    for letter, (name, batch, length, room) in SITUATIONS.items():
        plan = planner.plan(planner.build(name), "adamw", batch=batch, length=length)
        small = (plan.weights + plan.gradients + plan.state) / 4 + plan.activations
        fits = small <= room * 2**30
        answers[letter] = "adamw8bit_bitsandbytes" if fits and SURE[letter] != "adamw" else SURE[letter]
    return answers


@wrong("five_scenarios", "gb_for_gib")
def _():
    return chosen(lambda plan: plan.total / 1e9, gib=1)


@wrong("five_scenarios", "batch_before_optimizer")
def _():
    return {**SURE, "A": "smaller batch"}


@wrong("five_scenarios", "optimizer_fixes_activations")
def _():
    return {**SURE, "B": "adafactor"}


@wrong("five_scenarios", "optimizer_fixes_activations", "8 bits")
def _():
    return {**SURE, "B": "adamw8bit_bitsandbytes"}


@wrong("five_scenarios", "optimizer_shrinks_weights")
def _():
    return {**SURE, "D": "adafactor"}


@wrong("five_scenarios", "batch_shrinks_weights")
def _():
    return SURE | {"D": "smaller batch"}


@wrong("five_scenarios", "gives_up_early")
def _():
    return {**SURE, "B": "none"}


@right("five_scenarios", "computed")
def _():
    return chosen(lambda plan: plan.total)


@right("five_scenarios", "written down, with None")
def _():
    return {letter.lower(): None if answer == "none" else answer.title() for letter, answer in SURE.items()}
