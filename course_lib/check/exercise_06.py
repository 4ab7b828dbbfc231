"""Exercise 06: write Trainer's settings and scores, judge a run, and take one step's gradient in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from course_lib.check._gradient_in_pieces import gradient_in_pieces as gradient_in_pieces
from course_lib.check._task import Belief, Task, case, ways
from course_lib.check._trainer_settings import training_arguments as training_arguments
from course_lib.diagrams.baseline import always_majority

CLASSES = 6


def _evaluation(labels: Sequence[int], answers: Sequence[int], dtype: type = np.float32) -> Any:
    """What Trainer hands over: class scores, the highest of each row at its answer, and of all in the last row."""
    from transformers import EvalPrediction

    scores = np.random.default_rng(len(labels)).normal(size=(len(labels), CLASSES))
    scores[np.arange(len(labels)), answers] = scores.max(axis=1) + 0.5
    scores[-1] += 9
    given = f"label_ids {list(labels)}; the highest scores in predictions are at {list(answers)}"
    return case(EvalPrediction(predictions=scores.astype(dtype), label_ids=np.array(labels)), given=given)


class Counts(NamedTuple):
    """For each class: rows that have it, rows that are answered with it, rows where both is so; and each class's F1."""

    have: np.ndarray
    said: np.ndarray
    both: np.ndarray
    f1: np.ndarray


def _counts(labels: np.ndarray, answers: np.ndarray) -> Counts:
    has, says = (values == np.arange(CLASSES)[:, None] for values in (labels, answers))
    have, said, both = (rows.sum(axis=1) for rows in (has, says, has & says))
    return Counts(have, said, both, 2 * both / (have + said))


def _scores(evaluation: Any, f1: Callable[[Counts], Any] = lambda n: n.f1.mean(), axis: int = -1) -> dict[str, Any]:
    labels, answers = evaluation.label_ids, evaluation.predictions.argmax(axis=axis)
    return {"accuracy": (answers == labels).mean(), "f1": f1(_counts(labels, answers))}


def _f1_or_nan(n: Counts) -> Any:
    with np.errstate(invalid="ignore"):
        precision, recall = n.both / n.said, n.both / n.have
        return (2 * precision * recall / (precision + recall)).mean()


def _f1_of_means(n: Counts) -> float:
    occurs = n.have + n.said > 0
    precision, recall = ((n.both / np.maximum(total, 1))[occurs].mean() for total in (n.said, n.have))
    return 2 * precision * recall / (precision + recall)


compute_metrics = Task(
    name="compute_metrics",
    rule=_scores,
    cases=lambda: [
        _evaluation([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 0]),
        _evaluation([0, 1, 2, 3, 4, 5, 0, 0], [0, 1, 2, 3, 0, 5, 0, 1]),
        _evaluation([0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 5], [0] * 12),
        _evaluation([0, 0, 1, 1, 2, 2, 3, 3, 4], [0, 1, 1, 1, 2, 5, 3, 3, 4], np.float64),
    ],
    rtol=2e-3,
    beliefs=[
        Belief(
            "argmax_axis_0",
            "Your answers go down the columns: for each class, the row with its highest score. A row's answer is its "
            "best class, so look along the last axis.",
            partial(_scores, axis=0),
            raises=r"samples: \[(\d+, 6|6, \d+)\]|\(6,\)|tensor [ab] \(6\)",
        ),
        Belief(
            "labels_predictions_swapped",
            "Labels and predictions have changed places. `predictions` comes first, with a row of scores for each "
            "example; `label_ids` has one whole number for each.",
            raises=r"Got (np\.int64\()?(\d|1[01])\)? instead|axis 1 is out of bounds",
        ),
        Belief(
            "argmax_of_everything",
            "Without an axis, `argmax` finds a single place: that of the highest score of all rows together. Each row "
            "needs an answer.",
            raises=r"Got (np\.int64\()?\d+\)? instead",
        ),
        Belief(
            "scores_for_answers",
            "You compare labels with class scores. First make an answer of each row: the class with the highest score.",
            raises="continuous-multioutput",
        ),
        Belief(
            "binary_on_six",
            "F1 without `average` means the class labelled 1 alone. With six classes you have to say how they count "
            "together.",
            partial(_scores, f1=lambda n: n.f1[1]),
            raises="average='binary'",
        ),
        Belief(
            "micro_f1_is_accuracy",
            "Your F1 is the accuracy again. With micro, all rows go into one pot, and where each has one class the two "
            "are the same. Macro takes the mean over the classes.",
            partial(_scores, f1=lambda n: n.both.sum() / n.have.sum()),
        ),
        Belief(
            "weighted_average",
            "In your F1, frequent classes count for more. In the macro average all count the same, however many rows "
            "they have.",
            partial(_scores, f1=lambda n: (n.f1 * n.have).sum() / n.have.sum()),
        ),
        Belief(
            "f1_of_the_means",
            "You average precision and recall over the classes first, and make one F1 of both means. In the macro "
            "average each class has an F1 of its own, and their mean is taken.",
            partial(_scores, f1=_f1_of_means),
        ),
        Belief(
            "one_for_each_class",
            "Your F1 is one number for each class. A single one is asked: their mean.",
            partial(_scores, f1=lambda n: n.f1),
        ),
        Belief(
            "divides_zero_by_zero",
            "For a class that is never named, precision is 0 divided by 0. Nothing of it has been found, so its F1 is "
            "0, and it counts in the mean.",
            partial(_scores, f1=_f1_or_nan),
            raises="ZeroDivisionError",
        ),
        ways(
            "skipped_classes",
            "You leave classes out: those that are never found, never named, or that no row has. All that occur among "
            "labels or answers count, with 0 where nothing is right.",
            partial(_scores, f1=lambda n: n.f1[n.both > 0].mean()),
            partial(_scores, f1=lambda n: n.f1[n.said > 0].mean()),
            partial(_scores, f1=lambda n: n.f1[n.have > 0].mean()),
        ),
    ],
    hints=[
        "`predictions` has a row for each example and a column for each class. Which axis holds the classes?",
        "scikit-learn has both scores. With `average=` you tell F1 that every class counts the same.",
    ],
    praise="A class that is never found costs the macro average up to a sixth, and the accuracy only its few rows.",
)


def _class_1(counts: Sequence[int], share: float) -> float:
    """F1 of the lazy classifier: of class 1 where there are two, else the macro average."""
    if len(counts) == 2:
        return always_majority(share, 2).binary if counts[1] > counts[0] else 0.0
    return _macro(counts, share)


def _macro(counts: Sequence[int], share: float) -> float:
    return _majority(counts, share) / len(counts)


def _majority(counts: Sequence[int], share: float) -> float:
    return 2 * share / (1 + share)


def _same_share(counts: Sequence[int], share: float) -> float:
    return share


def _right_f1(counts: Sequence[int], share: float) -> float:
    """The right one beside another share."""
    return _class_1(counts, _largest_share(counts))


def _largest_share(counts: Sequence[int]) -> float:
    return max(counts) / sum(counts)


def _judgement(
    counts: Sequence[int],
    accuracy: float,
    f1: float,
    lazy_f1: Callable[[Sequence[int], float], float] = _class_1,
    share: Callable[[Sequence[int]], float] = _largest_share,
    learned: Callable[[float, float, float, float], bool] = lambda a, f, lazy_a, lazy_f: a > lazy_a and f > lazy_f,
) -> dict[str, Any]:
    lazy = {"accuracy": share(counts), "f1": lazy_f1(counts, share(counts))}
    return lazy | {"learned": learned(accuracy, f1, *lazy.values())}


judgement = Task(
    name="judgement",
    rule=_judgement,
    cases=lambda: [
        case([129, 279], 0.6, 0.5),
        case([18, 22, 20, 16, 14, 10], 0.6, 0.5),
        case([300, 100], 0.78, 0.2),
        case([25, 60, 15], 0.62, 0.21),
        case([25, 60, 15], 0.58, 0.31),
        case([15, 20, 50, 15], 0.5, 0.4),
        case([25, 24, 25, 26], 0.45, 0.42),
        case([30, 42, 28], 0.71, 0.69),
    ],
    rtol=3e-3,
    beliefs=[
        ways(
            "above_half_is_good",
            "The baseline is right, but you compare the run with one half. That is a lot with six even classes, and "
            "less than not reading at all where one class has two thirds of the rows. Compare with the baseline.",
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 and f > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 and f >= 0.5),
            partial(_judgement, learned=lambda a, f, *_: a >= 0.5 and f >= 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 or f > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a >= 0.5),
        ),
        Belief(
            "lazy_f1_is_zero",
            "You give the lazy classifier an F1 of 0. The classes that it never names have 0; the one that it always "
            "names is found in every row that has it, so its F1 is high, and counts.",
            partial(_judgement, lazy_f1=lambda counts, share: 0.0),
        ),
        Belief(
            "f1_is_accuracy",
            "Your F1 of the lazy classifier is its accuracy. For the class that it names, precision is the share p, "
            "but recall is 1.",
            partial(_judgement, lazy_f1=_same_share),
        ),
        ways(
            "one_class_counts",
            "You take the F1 of the most frequent class for that of all. With more than two classes the macro average "
            "is asked, and in it the classes that are never named have 0.",
            partial(_judgement, lazy_f1=_majority),
            partial(_judgement, lazy_f1=lambda n, share: (_majority if len(n) > 2 else _class_1)(n, share)),
        ),
        ways(
            "majority_is_class_1",
            "With two classes, F1 is that of class 1. Where class 0 is the more frequent one, the lazy classifier "
            "never names class 1.",
            partial(_judgement, lazy_f1=lambda n, share: (_majority if len(n) == 2 else _macro)(n, share)),
            partial(
                _judgement, lazy_f1=lambda n, share: _majority(n, n[1] / sum(n)) if len(n) == 2 else _macro(n, share)
            ),
        ),
        Belief(
            "macro_on_two",
            "You average over the classes where there are only two of them, too. There, F1 is that of class 1 alone.",
            partial(_judgement, lazy_f1=_macro),
        ),
        ways(
            "chance_not_majority",
            "Your baseline throws dice: 1 divided by the number of classes. Always naming the most frequent class "
            "scores more, and does not read either.",
            *(
                partial(_judgement, share=lambda counts: 1 / len(counts), lazy_f1=f1)
                for f1 in (_class_1, _macro, _same_share, _majority)
            ),
            partial(_judgement, share=lambda counts: 1 / len(counts), lazy_f1=_right_f1),
        ),
        ways(
            "one_score_is_enough",
            "You call it learned if one of the two scores beats the baseline, but both have to: the lazy classifier is "
            "ahead in the other one.",
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a > lazy_a),
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: f > lazy_f),
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a > lazy_a or f > lazy_f),
        ),
        Belief(
            "as_good_is_better",
            "A run that is only as good as the lazy classifier counts as learned in your answer. It has to be above.",
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a >= lazy_a and f >= lazy_f),
        ),
    ],
    hints=[
        "Write down what the lazy classifier answers for [129, 279]: 408 times class 1. How many are right?",
        "If the most frequent class has the share p, always naming it has accuracy p, and for that class F1 is 2p / "
        "(1 + p). The F1 of each other class is 0.",
        "With two classes, is class 1 the one that is always named, or the one that never is? With more, the mean over "
        "all classes is 2p / (1 + p) divided by their number.",
    ],
    praise="The same two numbers, 0.6 and 0.5, show nothing on MRPC, and a lot with six even classes.",
)
