"""The switch card against the real libraries' settings, and its observer against optimizers whose parts are known."""

from functools import partial
from math import inf

import pytest
import torch
from transformers import Trainer, TrainingArguments
from transformers.optimization import Adafactor as Transformers

from course_lib.adafactor import Adafactor
from course_lib.diagrams import switch_card
from course_lib.diagrams.switch_card import ROWS, observe

PAPER, DEFAULT, TRAINER, TORCH = (
    "paper, Algorithm 6",
    "transformers, default",
    "transformers, as Trainer sets it",
    "torch, default",
)


@pytest.fixture(scope="module")
def card():
    return switch_card.card()


def test_trainer_passes_a_rate_and_switches_two_parts_off(card):
    # The ground for the third column: what Trainer itself passes.
    arguments = TrainingArguments(output_dir="unused", optim="adafactor", report_to="none", use_cpu=True)
    made, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    assert made is Transformers
    assert settings == {"lr": 5e-5, "scale_parameter": False, "relative_step": False}
    on = dict(zip(ROWS, (on for on, _ in card[TRAINER]), strict=True))
    assert on == {
        "factoring": True,
        "decay β₂(t)": True,
        "update clipping": True,
        "relative step": False,
        "RMS scaling": False,
    }
    assert card[TRAINER][3] == (False, "lr = 5e-05, linear")


def test_everything_is_on_elsewhere_and_torch_caps_the_step_by_its_rate(card):
    assert list(card) == [PAPER, DEFAULT, TRAINER, TORCH]
    for name in (PAPER, DEFAULT, TORCH):
        assert all(on for on, _ in card[name]), name
    assert card[DEFAULT] == card[PAPER]  # read off its steps, and equal to Algorithm 6 word for word
    assert card[TORCH][3] == (True, "min(lr, 1/√t)\nlr = 0.01")
    assert [card[TORCH][i] for i in (0, 1, 2, 4)] == [card[PAPER][i] for i in (0, 1, 2, 4)]


def test_observed_numbers_are_those_of_algorithm_6():
    seen = observe(Transformers)
    assert seen.beta2 == pytest.approx((1 - 2**-0.8, 1 - 3**-0.8))
    assert (seen.clip, seen.step_size, seen.floor) == pytest.approx((1.0, 1e-2, 1e-3))
    assert seen.late == pytest.approx((40_000**-0.5) / 1e-2)


@pytest.mark.parametrize(
    ("make", "attribute", "value"),
    [
        (partial(Adafactor, clip_threshold=2.0), "clip", 2.0),
        (partial(Adafactor, clip_threshold=1e9), "clip", inf),
        (partial(Adafactor, decay_rate=-0.5), "beta2", (1 - 2**-0.5, 1 - 3**-0.5)),
        (partial(Adafactor, relative_step=False, lr=1e-3), "late", 1.0),
        (partial(Adafactor, relative_step=False, lr=3e-3), "step_size", 3e-3),
        (partial(Adafactor, scale_parameter=False), "floor", None),
        (partial(Adafactor, eps=(1e-30, 0.01)), "floor", 0.01),
        (partial(torch.optim.Adafactor, lr=2e-3), "step_size", 2e-3),
        (torch.optim.RMSprop, "factored", False),
        (Adafactor, "factored", True),
    ],
)
def test_each_part_is_seen_when_it_changes(make, attribute, value):
    seen = getattr(observe(make), attribute)
    assert seen == value if value is None or isinstance(value, bool) else seen == pytest.approx(value)


def test_parts_that_are_off_read_so():
    off = partial(Adafactor, clip_threshold=1e9, decay_rate=-0.5, scale_parameter=False, relative_step=False, lr=0.1)
    column = switch_card.cells(observe(off), lr=0.1)
    assert [on for on, _ in column] == [True, False, False, False, False]
    assert [words for _, words in column[1:]] == ["β₂(2) = 0.293", "none", "lr = 0.1, constant", "none"]
    full = switch_card.cells(observe(torch.optim.RMSprop), lr=0.01)
    assert full[0] == (False, "keeps all of V")


def test_the_cap_is_called_lr_only_where_it_is():
    assert switch_card.cells(observe(partial(Adafactor, decay_rate=-0.8)), lr=0.5)[3][1] == "min(0.01, 1/√t)\nlr = 0.5"


def test_the_picture_and_its_description_say_what_the_card_says(card):
    fig, alt = switch_card.draw()
    drawn = [text.get_text() for text in fig.axes[0].texts]
    assert sum(words.startswith("OFF") for words in drawn) == 2
    assert sum(words.startswith("on") for words in drawn) == 18
    assert alt.count("OFF") == 2
    for row in ROWS:
        assert row in drawn and row in alt
    assert "transformers, as Trainer sets it" in alt and "lr = 5e-05, linear" in alt
