"""The pictures of lesson 07: the timeline against Accelerate's own dealing and counting, and what the others say."""

from functools import partial
from itertools import product

import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard
from matplotlib.colors import to_rgba
from torch.utils.data import BatchSampler, DataLoader

from course_lib.diagrams.rates import FirstMoves
from course_lib.diagrams.timeline import FACES, Epoch, Timeline
from course_lib.diagrams.trainer_accelerator import trainer_accelerator


def words(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def boxes(fig, kind):
    """The boxes of one kind among the lanes, without the one in the key above them."""
    color = to_rgba(FACES[kind][0])
    return [patch for patch in fig.axes[0].patches if patch.get_facecolor() == color and patch.get_y() < 4]


def test_an_epoch_worked_by_hand():
    # 1,000 / 16 = 62.5, 63 / 2 = 31.5, 32 / 4 = 8; a prepared scheduler ticks once for each process.
    assert Epoch.plan(1000, 16, processes=2, accumulation=4) == Epoch(batches=63, each=32, steps=8, ticks=16)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 48, 49, 100, 1000])
def test_batches_are_those_that_accelerate_deals_out(rows):
    batches = BatchSampler(range(rows), 16, drop_last=False)
    for processes in (1, 2, 3, 4):
        epoch = Epoch.plan(rows, 16, processes, 1)
        assert epoch.batches == len(batches)
        for p in range(processes):
            assert epoch.each == len(list(BatchSamplerShard(batches, processes, p)))


def test_steps_are_those_of_a_real_loop():
    accelerator = Accelerator(cpu=True)
    for rows, accumulation in product((8, 9, 12, 13, 33), (1, 2, 4, 5)):
        layer = torch.nn.Linear(1, 1)
        loader = DataLoader(torch.ones(rows, 1), batch_size=2)
        layer, optimizer, loader = accelerator.prepare(layer, torch.optim.Adagrad(layer.parameters()), loader)
        accelerator.gradient_accumulation_steps = accumulation
        for batch in loader:
            with accelerator.accumulate(layer):
                accelerator.backward(layer(batch).sum())
                optimizer.step()
                optimizer.zero_grad()
        accelerator.gradient_accumulation_steps = 1
        assert optimizer.state[layer.weight]["step"] == Epoch.plan(rows, 2, 1, accumulation).steps


def test_timeline_draws_each_call_of_each_process():
    fig, alt = Timeline().update(56, 16, processes=3, accumulation=2)
    assert len(boxes(fig, "backward")) == 6  # 4 batches, 2 for each of 3
    assert [w for w in words(fig) if w.isdigit()] == ["1", "2", "3", "4"] and words(fig).count("↺") == 2
    assert len(boxes(fig, "sync")) == 1 and len(boxes(fig, "step")) == 3
    assert len(boxes(fig, "scheduler")) == 3 * 3 and len(boxes(fig, "zero_grad")) == 3
    assert "4 batches, 2 for each of 3 processes" in alt and "1 optimizer step in an epoch, 3 scheduler ticks" in alt


def test_batches_stand_in_the_lane_that_they_are_dealt_to():
    fig, _ = Timeline().update(1000, 16, processes=2, accumulation=4)
    place = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert place["1"][1] == place["3"][1] == place["63"][1] > place["2"][1] == place["4"][1]
    assert place["1"][0] == place["2"][0] < place["3"][0] < place["63"][0] == place["↺"][0]


def test_left_out_groups_lie_before_the_last_which_may_be_short():
    fig, alt = Timeline().update(530, 16, processes=1, accumulation=4)  # 34 batches: 8 groups of 4, and one of 2
    steps = [w for w in words(fig) if w.startswith("step ")]
    assert steps[0] == "step 1" and steps[-1] == "step 9" and "…" in words(fig)
    numbers = [int(w) for w in words(fig) if w.isdigit()]
    assert numbers[-2:] == [33, 34] and 32 not in numbers
    assert not boxes(fig, "sync") and "average" not in alt and "9 optimizer steps" in alt


def test_updating_redraws_the_same_figure():
    timeline = Timeline()
    first, _ = timeline.update(1000, 16, 4, 8)
    count = len(first.axes[0].patches)
    timeline.update(40, 16, 1, 1)
    again, _ = timeline.update(1000, 16, 4, 8)
    assert again is first and len(again.axes[0].patches) == count


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("accumulation", [1, 3, 8])
def test_nothing_is_drawn_beyond_the_edges(processes, accumulation):
    for rows in (40, 120, 1200):
        fig, _ = Timeline().update(rows, 16, processes, accumulation)
        ax = fig.axes[0]
        right, (bottom, top) = ax.get_xlim()[1], ax.get_ylim()
        for patch in ax.patches:
            assert 0 <= patch.get_x() and patch.get_x() + patch.get_width() <= right
            assert bottom < patch.get_y() and patch.get_y() + patch.get_height() < top
        fig.canvas.draw()
        for text in ax.texts:
            box = text.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= fig.bbox.x1, text.get_text()


def test_first_moves_say_where_both_are_alike():
    sizes = {"bias": 0.0, "small": 0.02, "large": 1.0}
    given = {"bias": 1e-3, "small": 1e-3, "large": 1e-3}
    moved = partial(FirstMoves().update, sizes, given)
    fig, alt = moved({"bias": 5e-5, "small": 1e-3, "large": 0.05}, 0.05)
    assert "alike at 0.02" in words(fig) and "torch, lr = 0.05" in words(fig)
    assert "moves 1 tensors further, 1 less far" in fig.axes[0].get_title(loc="left")
    assert "1 as far within 5 per cent" in alt
    crosses, circles = fig.axes[0].lines[:2]
    assert list(crosses.get_xdata()) == list(circles.get_xdata()) == [1e-3, 0.02, 1.0]
    assert list(circles.get_ydata()) == [5e-5, 1e-3, 0.05]
    again, alt = moved({"bias": 2e-5, "small": 4e-4, "large": 0.02}, 0.02)
    assert again is fig and "alike at size 0.05" in alt and "1 tensors further, 2 less far, 0 as far" in alt


def test_who_writes_what():
    fig, alt = trainer_accelerator()
    written = words(fig)
    # Trainer leaves one part to you, Accelerator five, PyTorch alone all eight.
    assert (written.count("you"), written.count("library")) == (1 + 5 + 8, 7 + 3)
    rows = {text.get_position()[1]: [] for text in fig.axes[0].texts if text.get_text() in ("you", "library")}
    for text in fig.axes[0].texts:
        if text.get_text() in ("you", "library"):
            rows[text.get_position()[1]].append((text.get_position()[0], text.get_text()))
    kinds = [[who for _, who in sorted(row)] for _, row in sorted(rows.items())]
    assert kinds == [["you"] * 3] + [["library", "you", "you"]] * 4 + [["library", "library", "you"]] * 3
    assert "Trainer: you write data, model, metric; Accelerator: you write data, model, metric, loop" in alt
    assert "ease of use" in written and "customizability" in written
