import numpy as np
import pytest
import torch
from test_diagrams_memory_use import assert_readable

from course_lib.diagrams import block_errors, code_points


def strokes(ax):
    """Where the vertical strokes of an axis stand."""
    return [segment[0][0] for segment in ax.collections[0].get_segments()]


def test_code_points_draws_one_stroke_for_each_value_and_counts_them():
    fig, alt = code_points.code_points()
    linear, dynamic = fig.axes
    assert strokes(linear) == pytest.approx([i / 255 for i in range(1, 256)])
    assert len(strokes(dynamic)) == 255 and min(strokes(dynamic)) == pytest.approx(3.25e-7)
    # Evenly spaced by 1/255: 25.5 steps make 0.1, 2.55 make 0.01. Dynamic: half as many each, and 1 itself.
    assert [text.get_text() for text in linear.texts] == ["0", "0", "0", "0", "2", "23", "230"]
    assert [text.get_text() for text in dynamic.texts] == ["2", "4", "8", "16", "32", "64", "129"]
    assert "linear 0, 0, 0, 0, 2, 23, 230; dynamic 2, 4, 8, 16, 32, 64, 129." in alt
    assert_readable(fig)


def test_code_points_with_both_signs_have_half_as_many_above_zero():
    fig, alt = code_points.code_points(signed=True)
    assert [ax.get_title(loc="left") for ax in fig.axes] == [
        "linear: 127 values above 0",
        "dynamic: 128 values above 0",
    ]
    assert "dynamic 1, 2, 4, 8, 16, 32, 65" in alt


def test_code_points_shows_where_the_numbers_lie():
    shares = torch.tensor([1.0, 0.5, 0.1, 0.05, 0.05, 2e-6, 1e-9, 0.0])  # the 0 has no place on the axis
    fig, alt = code_points.code_points(shares)
    heights = [patch.get_height() for patch in fig.axes[2].patches]
    assert sum(heights) == 7
    assert "numbers to be kept 14%, 14%, 0, 0, 0, 29%, 43%, smaller ones included" in alt
    assert_readable(fig)


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([0.1, 0.01, 1.0], [0, 0, 0, 0, 0, 1, 2]),
        ([0.0999, 1e-7, 1e-12, 0.0], [2, 0, 0, 0, 0, 1, 0]),
    ],
)
def test_each_value_counts_in_its_power_of_ten(values, counts):
    assert list(code_points.by_decade(torch.tensor(values, dtype=torch.float64)).values()) == counts


def ones_with(outlier):
    x = torch.ones(1024)
    x[300] = outlier
    return x


def test_blocks_show_the_error_of_every_number():
    blocks = block_errors.Blocks(marked=300)
    fig, alt = blocks(ones_with(1000.0), 256, "An outlier")
    errors = np.array([image.get_array() for image in blocks.images])
    # Linear, above: 1 is less than half a step of 1000/127, so it is lost. In the other blocks 1 is the largest: exact.
    assert (errors[1].flatten() == 1).sum() == 255 and errors[1, 2, 12] == 0  # 300 = 256 + 2 · 16 + 12
    assert not errors[[0, 2, 3, 4, 6, 7]].any()
    # Dynamic, below: the value of the map that is nearest to .001 is 9.4375e-4.
    assert errors[5].flatten()[0] == pytest.approx(1 - 0.94375, rel=1e-4)
    assert [note.get_text().split()[0] for note in blocks.notes] == ["0", "255", "0", "0", "0", "0", "0", "0"]
    for words in (
        "An outlier. ",
        "linear map: 0, 255, 0, 0 became zero, typical relative errors 0 %, 100 %, 0 %, 0 %",
        "dynamic map: 0, 0, 0, 0 became zero, typical relative errors 0 %, 5.6 %, 0 %, 0 %",
        "A frame marks number 300.",
    ):
        assert words in alt
    (frame,) = fig.axes[1].patches
    assert frame.get_xy() == (11.5, 1.5) and len(fig.axes[5].patches) == 1
    assert not any(ax.patches for ax in fig.axes[:8] if ax not in (fig.axes[1], fig.axes[5]))
    assert_readable(fig)
    ticks = [label.get_text() for label in fig.axes[8].get_yticklabels()]
    assert "≤ 0.1 %" in ticks and "100 %" in ticks  # smaller errors, 0 too, have the color of the end


@pytest.mark.parametrize(("block_size", "lines", "lost"), [(64, 3, [0, 63, 0, 0]), (1024, 0, [256, 255, 256, 256])])
def test_blocks_redraw_the_same_figure_for_another_size_of_block(block_size, lines, lost):
    blocks = block_errors.Blocks(marked=300)
    first, _ = blocks(ones_with(1.0), 256, "None")
    assert [len(edge.get_segments()) for edge in blocks.edges] == [0] * 8
    fig, alt = blocks(ones_with(1000.0), block_size, "An outlier")
    assert fig is first
    assert [len(edge.get_segments()) for edge in blocks.edges] == [lines] * 8
    assert f"linear map: {', '.join(map(str, lost))} became zero" in alt
    if lines:
        assert [segment[0][1] for segment in blocks.edges[0].get_segments()] == [3.5, 7.5, 11.5]
    assert_readable(fig)
