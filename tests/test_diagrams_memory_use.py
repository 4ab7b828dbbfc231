from itertools import combinations

import pytest
import torch
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba

from course_lib.adafactor import Adafactor
from course_lib.diagrams import kept, trade_off, waterfall
from course_lib.figures import COLORS

DISTILBERT = {"weights": 250.94, "gradients": 250.94}


def boxes(fig):
    """Where each text of a figure stands, in pixels, by its words."""
    fig.draw_without_rendering()
    renderer = fig._get_renderer()
    texts = [text for ax in fig.axes for text in ax.texts if text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer), text.get_fontsize()) for text in texts]


def assert_readable(fig):
    found = boxes(fig)
    width, height = fig.get_size_inches() * fig.dpi
    for words, box, size in found:
        assert box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height, f"{words!r} is cut off"
        assert size >= 10, words
    for (one, box, _), (other, its, _) in combinations(found, 2):
        assert not (box.x0 < its.x1 and its.x0 < box.x1 and box.y0 < its.y1 and its.y0 < box.y1), (one, other)


def test_three_bars_stack_to_their_totals_and_say_so():
    states = {"AdamW": 501.885, "dropped": 250.943, "Adafactor": 0.68134}
    fig, alt = waterfall.three_bars({name: {**DISTILBERT, "state": state} for name, state in states.items()})
    tops = {round(bar.get_x() + bar.get_width() / 2): bar.get_y() + bar.get_height() for bar in fig.axes[0].patches}
    assert tops == pytest.approx({0: 1003.765, 1: 752.823, 2: 502.56134})
    assert fig.axes[0].get_title(loc="left") == "DistilBERT: the state shrinks 737 times, the total 2.0 times"
    assert "dropped: weights 250.9, gradients 250.9, state 250.9, total 752.8 MiB" in alt
    assert alt.endswith("Adafactor: weights 250.9, gradients 250.9, state 0.68, total 502.6 MiB.")
    assert_readable(fig)


def test_the_exported_bars_are_those_of_distilbert():
    _, alt = waterfall.distilbert()
    for words in ("state 501.9, total 1,003.8", "state 250.9, total 752.8", "state 0.68, total 502.6"):
        assert words in alt


@pytest.mark.parametrize("state", [0, 0.68, 250.9, 501.9])
@pytest.mark.parametrize("activations", [3.2, 423.2, 3000])
def test_stack_keeps_its_labels_apart(state, activations):
    fig, alt = waterfall.stack({**DISTILBERT, "state": state, "activations": activations}, "Mine", span=4600)
    bars = [(patch.get_x(), patch.get_width(), patch.get_facecolor()) for patch in fig.axes[0].patches]
    assert [width for _, width, _ in bars] == pytest.approx([250.94, 250.94, state, activations])
    assert bars[3][0] == pytest.approx(501.88 + state)
    assert f"total {501.88 + state + activations:,.1f} MiB" in alt
    assert_readable(fig)


def test_stack_compares_with_another_total():
    fig, alt = waterfall.stack({**DISTILBERT, "state": 0.68}, "Mine", span=1150, before=("AdamW", 1003.8))
    outline = fig.axes[0].patches[-1]
    assert (outline.get_x(), outline.get_width(), outline.get_fill()) == (0, 1003.8, False)
    assert alt == "Mine: weights 250.9, gradients 250.9, state 0.68, total 502.6 MiB, AdamW: 1,003.8 MiB."
    assert_readable(fig)


def test_stack_marks_the_cards_that_its_axis_reaches():
    sizes = {"weights": 25.1, "gradients": 25.1, "state": 12.8}
    for span, expected in ((115, {16, 24, 80}), (75, {16, 24})):
        fig, _ = waterfall.stack(sizes, "Mine", span=span, unit="GiB", cards=(16, 24, 80))
        marks = {line.get_xdata()[0] for line in fig.axes[0].lines if line.get_xdata()[0] == line.get_xdata()[1]}
        assert expected == marks & {16, 24, 80}
        assert_readable(fig)


@pytest.mark.parametrize(
    ("span", "names"),
    [
        (115, ["16 GiB", "24 GiB", "80 GiB"]),
        (300, ["16, 24 GiB", "80 GiB"]),
        (700, ["16, 24, 80 GiB"]),
    ],
)
def test_stack_names_cards_together_that_stand_close(span, names):
    fig, _ = waterfall.stack({"weights": 0.9 * span}, "Mine", span=span, unit="GiB", cards=(16, 24, 80))
    assert [words for words, *_ in boxes(fig) if words[0].isdigit() and words.endswith("GiB")] == names
    assert_readable(fig)


def shapes(optimizer_class, n, m):
    weight = torch.nn.Parameter(torch.ones(n, m))
    optimizer = optimizer_class([weight])
    weight.grad = torch.ones(n, m)
    optimizer.step()
    return {key: tuple(value.shape) for key, value in optimizer.state[weight].items()}


@pytest.mark.parametrize("n", [1, 2, 3, 16])
def test_there_is_one_square_for_each_number(n):
    states = {"AdamW": shapes(torch.optim.AdamW, n, 12), "Adafactor": shapes(Adafactor, n, 12)}
    fig, alt = kept.squares((n, 12), states, rows=16)
    counts = {}
    for collection in fig.axes[0].collections:
        assert isinstance(collection, PolyCollection)
        color = tuple(collection.get_facecolor()[0])
        counts[color] = counts.get(color, 0) + len(collection.get_paths())
    by_name = {name: counts.get(to_rgba(COLORS[name]), 0) for name in ("weights", "adamw", "row", "col", "adafactor")}
    assert by_name == {"weights": 12 * n, "adamw": 24 * n + 1, "row": n, "col": 12, "adafactor": 1}
    assert f"AdamW keeps {24 * n + 1:,} numbers" in alt and f"Adafactor keeps {n + 13} numbers" in alt
    # Inside the outline only where it has room.
    assert ("← exp_avg_sq_row" if n > 2 else "↑ exp_avg_sq_row") in [words for words, *_ in boxes(fig)]
    assert_readable(fig)


def test_three_optimizers_say_what_they_keep():
    fig, alt = kept.three_optimizers((1024, 512), block=256)
    for words in (
        "AdamW: 2 × 524,288 numbers of 32 bits, 4 MiB",
        "8-bit Adam: 2 × 524,288 numbers of 8 bits and 2 × 2,048 scales of 32 bits, 1.02 MiB",
        "Adafactor: 1,024 + 512 numbers of 32 bits, 6 KiB",
    ):
        assert words in alt
    areas = [patch.get_width() * patch.get_height() for patch in fig.axes[0].patches if patch.get_fill()]
    # exp_avg in 32 bits, in 8 bits, then exp_avg_sq likewise: a quarter of the bits, a quarter of the area
    assert areas == pytest.approx([areas[0], areas[0] / 4, areas[0], areas[0] / 4])
    assert_readable(fig)


def test_plane_puts_bytes_per_parameter_on_their_lines():
    fig, alt = trade_off.trade_off()
    assert alt == (
        "State elements × bits, and bytes, per parameter: AdamW 2 × 32 = 8; 8-bit Adam 2 × 8.125 = 2.03; SGD with "
        "momentum 1 × 32 = 4; Adafactor 0.00293 × 32 = 0.0117 bytes."
    )
    dotted = [line for line in fig.axes[0].lines if line.get_linestyle() == ":"]
    products = [{round(x * y / 8, 9) for x, y in zip(*line.get_data(), strict=True)} for line in dotted]
    assert products == [{size} for size in trade_off.BYTES_PER_PARAMETER]
    assert_readable(fig)


@pytest.mark.parametrize("x", [0.00195, 0.0313, 0.25, 0.667])
def test_a_point_moves_along_its_height_and_takes_its_label_with_it(x):
    plane = trade_off.Plane({"AdamW": (2, 32), "Adafactor": (0.5, 32)})
    fig, alt = plane.move({"Adafactor": x}, "Shape 3 × 4")
    assert [tuple(*marker.get_xydata()) for marker in plane.markers.values()] == [(2, 32), (x, 32)]
    assert plane.labels["Adafactor"].xy == (x, 32)
    assert plane.labels["Adafactor"].get_text() == f"Adafactor\n{4 * x:.3g} B"
    assert plane.labels["AdamW"].get_text() == "AdamW\n8 B"
    assert alt.startswith("Shape 3 × 4. ") and f"Adafactor {x:.3g} × 32" in alt
