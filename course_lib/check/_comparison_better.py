"""Exercise 10's task `better`: which of two optimizers their runs show to be the better one, if either."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from math import sqrt
from statistics import median
from typing import Any

from course_lib.check._task import Belief, Task, case
from course_lib.comparison import mean, sd

Runs = Sequence[float]
FEW = 5  # seeds; with fewer nothing is said
EQUAL = ("equal", "same", "tie", "draw", "neither", "none", "both", "the same", "no difference", "equally good")


def _subtracted(a: Runs, b: Runs) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _paired(a: Runs, b: Runs) -> float:
    return sd(_subtracted(a, b)) / sqrt(len(a))


def _unpaired(a: Runs, b: Runs) -> float:
    return sqrt((sd(a) ** 2 + sd(b) ** 2) / len(a))


def _two_sides(probability: float, freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + probability / 2, freedom))


def _better(
    a: Runs,
    b: Runs,
    error: Callable[[Runs, Runs], float] = _paired,
    factor: float = 2,
    few: int = FEW,
    middle: Callable[[Runs, Runs], float] = lambda a, b: mean(_subtracted(a, b)),
    words: tuple[str, str, str] = ("a", "b", "unclear"),
    few_word: str = "unclear",
    zero: str = "",
) -> str:
    if len(a) < few:
        return few_word
    lead, needed = middle(a, b), factor * error(a, b)
    if lead == needed == 0 and zero:
        return zero
    return words[0] if lead > needed else words[1] if lead < -needed else words[2]


def _ways(few: Sequence[int] = (FEW, 0), **options: Sequence[Any]) -> list[Callable[..., str]]:
    """Every combination of these options, with and without the rule for few seeds, whatever is said of equal lists."""
    options = {"few": few, "zero": ("", "a", "b", "equal"), **options}
    return [partial(_better, **dict(zip(options, values, strict=True))) for values in product(*options.values())]


def _never(a: Runs, b: Runs) -> float:
    return 0.0


def _lead_of_best(a: Runs, b: Runs) -> float:
    return max(a) - max(b)


def _seeds_won(a: Runs, b: Runs) -> int:
    d = _subtracted(a, b)
    return sum(x > 0 for x in d) - sum(x < 0 for x in d)


def _seeds_less_one(a: Runs, b: Runs) -> float:
    return len(a) - 0.5


def _gap_of_ranges(a: Runs, b: Runs) -> float:
    return max(min(a) - max(b), 0.0) - max(min(b) - max(a), 0.0)


better = Task(
    name="better",
    rule=_better,
    cases=lambda: [
        case([0.747, 0.747, 0.744, 0.744, 0.746], [0.736, 0.749, 0.74, 0.732, 0.74]),
        case([0.71, 0.755, 0.73, 0.743, 0.726], [0.751, 0.745, 0.754, 0.742, 0.737]),
        case(
            [0.744, 0.739, 0.732, 0.739, 0.746, 0.734, 0.726, 0.753, 0.734, 0.717],
            [0.746, 0.739, 0.732, 0.739, 0.748, 0.734, 0.727, 0.752, 0.736, 0.718],
        ),
        case([0.761, 0.745, 0.742, 0.735, 0.751], [0.673, 0.734, 0.731, 0.719, 0.738]),
        case([0.74, 0.74, 0.74, 0.742, 0.738], [0.738, 0.738, 0.737, 0.739, 0.736]),
        case([0.746, 0.815, 0.818, 0.709, 0.833], [0.71, 0.687, 0.778, 0.668, 0.794]),
        case([0.742, 0.743, 0.736, 0.743, 0.739], [0.743, 0.66, 0.736, 0.743, 0.74]),
        case(
            [0.745, 0.747, 0.744, 0.741, 0.743, 0.743, 0.745, 0.745, 0.744, 0.737, 0.74, 0.741],
            [0.738, 0.743, 0.739, 0.73, 0.736, 0.739, 0.741, 0.743, 0.738, 0.741, 0.743, 0.739],
        ),
        case([0.714, 0.709, 0.709, 0.726, 0.745], [0.642, 0.718, 0.734, 0.757, 0.748]),
        case([0.695, 0.709, 0.722, 0.691, 0.697], [0.735, 0.75, 0.765, 0.732, 0.657]),
        case([0.777, 0.782, 0.785, 0.788, 0.791], [0.735, 0.744, 0.745, 0.746, 0.751]),
        case([0.756, 0.735, 0.731, 0.695, 0.73], [0.771, 0.735, 0.73, 0.695, 0.72]),
        case([0.8, 0.81, 0.79], [0.83, 0.842, 0.819]),
        case([0.8, 0.81, 0.79, 0.82], [0.77, 0.778, 0.761, 0.791]),
        case([0.7, 0.72, 0.69, 0.71, 0.73, 0.7], [0.7, 0.72, 0.69, 0.71, 0.73, 0.7]),
    ],
    beliefs=[
        Belief(
            "always_the_same",
            "Your answer is the same for every input, so the runs have no say in it.",
            [lambda a, b, word=word: word for word in ("a", "b", "unclear")],
        ),
        Belief(
            "names_swapped",
            "Your names have changed places: the one with the higher accuracies is the better one.",
            _ways(words=[("b", "a", "unclear")]),
        ),
        Belief(
            "no_difference_proves_equal",
            "Where the sign is open you call the two equal. The runs do not show that: they would look the same if one "
            "were a little ahead. The word is `unclear`.",
            [
                *_ways(words=[("a", "b", word) for word in EQUAL]),
                *(
                    partial(_better, words=("a", "b", word), few_word=few_word)
                    for word, few_word in ((w, f) for w in EQUAL for f in (w, "unclear"))
                ),
            ],
        ),
        Belief(
            "never_says_b",
            "You never answer `b`. A mean difference far below 0 is as clear as one far above.",
            _ways(words=[("a", "unclear", "unclear"), ("a", "a", "unclear")]),
        ),
        Belief(
            "not_a_so_b",
            "Whatever is not clearly `a` is `b` in your answer. That `a` has not been shown to be better does not show "
            "that `b` is.",
            [*_ways(words=[("a", "b", "b")]), partial(_better, words=("a", "b", "b"), few_word="b")],
        ),
        Belief(
            "few_seeds_ignored",
            "With enough seeds your answers are right. With fewer than five the answer is `unclear`, however clear "
            "they look: their scatter is known too badly.",
            _ways(few=(0, 3, 4)),
        ),
        Belief(
            "five_is_few",
            "You ask for six seeds or more. Five are enough here; with fewer than five it is unclear.",
            _ways(few=(6,)),
        ),
        Belief(
            "higher_mean_wins",
            "You name the higher mean, however small its lead. Other seeds would move both means: ask whether the lead "
            "is large beside its standard error.",
            _ways(factor=[0]),
        ),
        Belief(
            "best_seed",
            "You compare the best seed of each. That is luck: the more seeds somebody tries, the higher the best one. "
            "Use all the runs.",
            _ways(middle=[_lead_of_best], error=[_never]),
        ),
        Belief(
            "single_run",
            "You compare one run of each, such as the first, the last or the worst. One run is an anecdote: use all of "
            "them.",
            _ways(
                middle=[lambda a, b: min(a) - min(b), lambda a, b: a[0] - b[0], lambda a, b: a[-1] - b[-1]],
                error=[_never],
            ),
        ),
        Belief(
            "median_for_mean",
            "You take the median of the differences. The rule, and its standard error, are for the mean.",
            _ways(middle=[lambda a, b: median(_subtracted(a, b)), lambda a, b: median(a) - median(b)]),
        ),
        Belief(
            "higher_median_wins",
            "You compare medians, however small the lead. Other seeds would move both: ask whether the mean "
            "difference is large beside its standard error.",
            _ways(middle=[lambda a, b: median(_subtracted(a, b)), lambda a, b: median(a) - median(b)], error=[_never]),
        ),
        Belief(
            "most_seeds_win",
            "You count on how many seeds each of them is ahead, so a lead of 0.1 points counts like one of 2 points. "
            "The mean difference weighs them.",
            _ways(middle=[_seeds_won], error=[_never]),
        ),
        Belief(
            "every_seed_has_to_win",
            "You name a winner only if it is ahead on every seed. A single unlucky one then decides, and the more "
            "seeds there are, the less you ever know.",
            _ways(middle=[_seeds_won], error=[_seeds_less_one], factor=[1]),
        ),
        Belief(
            "ignores_pairs",
            "You judge each list by its own scatter. But a seed that is lucky for one is often lucky for the other, "
            "and that cancels if you subtract seed by seed first.",
            [
                *_ways(error=[_unpaired, lambda a, b: (sd(a) + sd(b)) / sqrt(len(a))]),
                *_ways(error=[lambda a, b: _two_sides(0.95, 2 * len(a) - 2) * _unpaired(a, b)], factor=[1]),
                *_ways(error=[lambda a, b: sd([*a, *b]) / sqrt(len(a)), lambda a, b: sd([*a, *b]) / sqrt(2 * len(a))]),
                *_ways(error=[lambda a, b: sd(a) / sqrt(len(a)), lambda a, b: sd(b) / sqrt(len(b))]),
                *_ways(error=[lambda a, b: max(sd(a), sd(b)) / sqrt(len(a))]),
            ],
        ),
        Belief(
            "spread_for_error",
            "You compare the lead with how far single runs scatter. A *mean* scatters less, and the less the more "
            "seeds there are: that is its standard error.",
            [
                *_ways(error=[lambda a, b: sd(_subtracted(a, b)), lambda a, b: sd(a) + sd(b)], factor=[2, 1]),
                *_ways(
                    error=[lambda a, b: max(sd(a), sd(b)), lambda a, b: sqrt(sd(a) ** 2 + sd(b) ** 2)], factor=[2, 1]
                ),
                *_ways(middle=[_gap_of_ranges], error=[_never]),
            ],
        ),
        Belief(
            "population_sd",
            "Your SD divides by n, as `numpy.std` does by default. For a sample it is n − 1, as in the lesson; with "
            "five seeds that decides.",
            _ways(error=[lambda a, b: _paired(a, b) * sqrt((len(a) - 1) / len(a))]),
        ),
        Belief(
            "one_standard_error",
            "One standard error is enough for you. By luck alone a mean is farther off than that in a third of all "
            "cases; the rule asks for more than two.",
            _ways(factor=[1]),
        ),
        Belief(
            "wrong_root",
            "Your error is too small. The standard error of a mean is the SD over the *root* of how many seeds there "
            "are, not over their number.",
            _ways(
                error=[lambda a, b: _paired(a, b) / sqrt(len(a))],
            ),
        ),
        Belief(
            "table_of_t",
            "That looks like a paired t-test, which asks for more than two standard errors if there are few seeds. A "
            "sound rule; the one asked here is the lesson's, two for any number.",
            _ways(error=[lambda a, b: _two_sides(0.95, len(a) - 1) * _paired(a, b)], factor=[1]),
        ),
        Belief(
            "fixed_margin",
            "You ask for a lead of so many points. Whether luck can make such a lead depends on how the differences "
            "scatter, and on how many there are.",
            _ways(error=[lambda a, b, m=m: m for m in (0.002, 0.005, 0.01, 0.02, 0.05)], factor=[1]),
        ),
        Belief(
            "identical_wins",
            "Only with two identical lists you name a winner. Difference and error are both 0 there, and 0 is not "
            "*more* than 0.",
            only_on=lambda a, b: a == b,
        ),
    ],
    hints=[
        "Which numbers belong together? Make one list of differences first, and forget the two others.",
        "The lesson's `by_hand` has the standard error from seeds: the SD of the differences over the root of their "
        "number.",
        'After the case of few seeds: `"a"` if the mean is above twice the error, `"b"` if it is below minus twice the '
        'error, and otherwise `"unclear"`.',
    ],
    praise="One of these pairs had a lead of less than 0.1 points and a clear winner, another one of more than 2 "
    "points and none: how the differences scatter decides.",
)
