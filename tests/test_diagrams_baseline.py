import math
import re

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from course_lib.diagrams.baseline import Baseline, always_majority
from course_lib.diagrams.training_runs import loss_and_rate


@pytest.mark.parametrize("counts", [(279, 129), (50, 50), (102, 91, 77, 73, 70, 60), (9, 1, 1), (7, 0)])
def test_the_lazy_scores_are_those_of_scikit_learn(counts):
    truth = np.repeat(np.arange(len(counts)), counts)
    lazy = np.zeros_like(truth)
    every = range(len(counts))
    scores = always_majority(counts[0] / sum(counts), len(counts))
    assert scores.accuracy == pytest.approx(accuracy_score(truth, lazy))
    assert scores.binary == pytest.approx(f1_score(truth, lazy, labels=[0], average="macro"))
    assert scores.macro == pytest.approx(f1_score(truth, lazy, labels=every, average="macro", zero_division=0))


def test_mrpc_is_the_published_case():
    scores = always_majority(279 / 408, 2)
    assert (round(scores.accuracy, 4), round(scores.binary, 4)) == (0.6838, 0.8122)


@pytest.mark.parametrize(("share", "classes"), [(0.4, 2), (0.1, 6), (1.1, 2)])
def test_a_share_that_no_most_frequent_class_has_is_refused(share, classes):
    with pytest.raises(ValueError, match=f"1/{classes} to 1; it was {share}"):
        always_majority(share, classes)


def test_the_picture_says_how_a_run_compares():
    fig, alt = Baseline().update(279 / 408, 2, run=(0.6, 0.5))
    assert alt == (
        "Always answering the most frequent of 2 classes, 68% of the rows, scores accuracy 0.68 (a run has 0.60, 0.08 "
        "below), binary F1 0.81 (a run has 0.50, 0.31 below), macro F1 0.41."
    )
    assert "2 classes, 68%" in fig.get_suptitle()


def test_with_more_classes_a_run_is_held_against_macro_f1():
    _, alt = Baseline().update(102 / 473, 6, run=(0.75, 0.7))
    assert alt.endswith("accuracy 0.22 (a run has 0.75, 0.53 above), macro F1 0.06 (a run has 0.70, 0.64 above).")
    assert "binary" not in alt


def test_a_run_as_good_as_laziness_is_called_the_same():
    _, alt = Baseline().update(0.25, 4, run=(0.25, 0.1))
    assert alt.count("the same") == 2


def test_two_classes_can_be_judged_by_macro_f1():
    _, alt = Baseline().update(2 / 3, 2, average="macro", run=(0.6, 0.5))
    assert "binary F1 0.80, macro F1 0.40 (a run has 0.50, 0.10 above)" in alt


def test_a_share_too_small_to_be_the_most_frequent_is_raised():
    assert "the most frequent of 4 classes, 25% of the rows" in Baseline().update(0.1, 4)[1]


def test_a_redraw_leaves_nothing_of_the_one_before():
    picture = Baseline()
    fig, first = picture.update(0.68, 2, run=(0.6, 0.5))
    words = [text.get_text() for ax in picture.axes for text in ax.texts]
    assert sorted(words) == ["0.68", "binary 0.81", "macro 0.40", "run 0.50", "run 0.60"]
    again, _ = picture.update(0.5, 5)
    assert again is fig
    assert [text.get_text() for ax in picture.axes for text in ax.texts] == ["0.50", "macro 0.13"]
    assert picture.update(0.68, 2, run=(0.6, 0.5))[1] == first


@pytest.mark.parametrize("run", [(0.6, 0.5), (0.84, 0.89), (0.68, 0.81), None])
@pytest.mark.parametrize(("share", "classes"), [(0.684, 2), (0.2156, 6), (1.0, 6), (0.5, 2)])
def test_no_words_run_into_each_other_or_out_of_the_picture(share, classes, run):
    picture = Baseline()
    fig, _ = picture.update(share, classes, run=run)
    renderer = fig._get_renderer()
    fig.draw(renderer)
    for ax in picture.axes:
        boxes = [text.get_window_extent(renderer) for text in ax.texts]
        assert all(fig.bbox.x0 <= box.x0 and box.x1 <= fig.bbox.x1 for box in boxes)
        assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])


def log(rate, losses):
    steps = len(losses)
    lines = [{"loss": loss, "learning_rate": rate * (1 - i / steps)} for i, loss in enumerate(losses)]
    return [*lines, {"eval_loss": 9.0, "epoch": 1.0}, {"train_loss": 9.0}]


def test_the_rates_of_a_run_add_up_to_its_way():
    logs = {"slow": log(1e-3, [2.0] * 4), "long": log(0.1, [2.0] * 100)}
    fig, alt = loss_and_rate(logs, chance=math.log(6))
    # a line that falls from r to r/n in n steps adds up to r (n + 1) / 2
    assert "slow: 4 steps, smoothed loss from 2.00 to 2.00; rate from 0.001 to 0.0003, all rates together 0.0025" in alt
    assert "long: 100 steps, smoothed loss from 2.00 to 2.00; rate from 0.1 to 0.001, all rates together 5.1" in alt
    assert alt.endswith("Knowing nothing costs a loss of 1.79.")
    assert [text.get_text() for text in fig.axes[1].texts] == ["slow\nall together 0.0025", "long\nall together 5.1"]


def test_the_smoothed_loss_is_a_corrected_average():
    _, alt = loss_and_rate({"run": log(1e-3, [1.0, 0.0])}, chance=1.0)
    # by hand: (.05 · .95 · 1 + .05 · 0) / (1 − .95²) = .0475 / .0975
    assert re.search(r"smoothed loss from 1\.00 to 0\.49;", alt)
