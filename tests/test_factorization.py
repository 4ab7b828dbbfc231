"""The pictures of lesson 04: what they draw and what their descriptions say."""

from math import inf, log2

import numpy as np
import pytest
import torch
from scipy.stats.contingency import expected_freq

from course_lib import figures
from course_lib.diagrams import factorization, fit_quality

V = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
V_HAT = torch.tensor([[1.2, 1.8], [2.8, 4.2]])


def shown(heatmap) -> np.ndarray:
    return np.asarray(heatmap.image.get_array())


def extents(bars) -> list[tuple[float, float]]:
    """Width and height of each bar."""
    return [tuple(np.ptp(path.vertices, axis=0)) for path in bars.get_paths()]


def test_the_drawing_multiplies_what_independence_expects():
    fig, alt = factorization.four_steps()
    pictures = [ax.images[0].get_array() for ax in fig.axes if ax.images]
    np.testing.assert_allclose(pictures[-1], expected_freq(factorization.EXAMPLE))
    for matrix in pictures[:-1]:
        np.testing.assert_array_equal(matrix, factorization.EXAMPLE)
    assert [bool(ax.images) for ax in fig.axes] == [True, True, False, True]
    assert [len(ax.collections) for ax in fig.axes] == [0, 2, 2, 2]
    assert "4 + 5 = 9" in alt and "over the total" in alt


def test_a_comparison_shows_matrix_product_and_doublings():
    compare = factorization.Comparison(0.1, 10)
    fig, alt = compare(V, V_HAT)
    first, second, ratio = map(shown, compare.heatmaps)
    np.testing.assert_array_equal(first, V)
    np.testing.assert_array_equal(second, V_HAT)
    np.testing.assert_allclose(ratio, [[log2(1.2), log2(0.9)], [log2(2.8 / 3), log2(1.05)]], rtol=1e-5)
    assert alt == (
        "V (2 × 2), its product V̂, and their ratio. I-divergence 0.004 of the total; relative error 0.073; 100 % of "
        "the entries within a factor of two. V̂ is at most 1.2 times too large and 1.1 times too small."
    )
    assert compare.note.get_text() == "100 % of the entries\nwithin a factor of two"


def test_calling_again_updates_the_same_figure():
    compare = factorization.Comparison(0.1, 10)
    fig, _ = compare(V, V_HAT)
    fig.draw_without_rendering()
    fig.set_layout_engine("none")  # as explore does
    before = figures.png(fig, dpi=40)
    axes = len(fig.axes)
    again, alt = compare(2 * V, V)
    assert again is fig and len(fig.axes) == axes
    np.testing.assert_array_equal(shown(compare.heatmaps[2]), -torch.ones(2, 2))
    assert "2.0 times too small" in alt
    assert figures.png(fig, dpi=40) != before
    compare(V, V_HAT)
    assert figures.png(fig, dpi=40) == before


def test_margin_bars_measure_rows_and_columns_on_the_colour_scale():
    compare = factorization.Comparison(0.1, 10)
    compare(torch.tensor([[1.0, 1.0, 1.0], [10.0, 10.0, 10.0]]), torch.ones(2, 3))
    rows, cols = extents(compare.margins[0].rows), extents(compare.margins[0].cols)
    # From 0.1 to 10, 1 lies half-way and 10 at the end; the column mean is 5.5.
    assert [width for width, _ in rows] == pytest.approx([3 * factorization.BAR / 2, 3 * factorization.BAR])
    assert [height for _, height in cols] == pytest.approx([2 * factorization.BAR * log2(55) / log2(100)] * 3)
    assert [path.vertices[:, 1].mean().round() for path in compare.margins[0].rows.get_paths()] == [0, 1]
    assert [width for width, _ in extents(compare.margins[1].rows)] == pytest.approx([3 * factorization.BAR / 2] * 2)
    row_color, col_color = (bars.get_facecolor()[0] for bars in (compare.margins[0].rows, compare.margins[0].cols))
    assert figures.COLORS["row"].lower() == matplotlib_hex(row_color)
    assert figures.COLORS["col"].lower() == matplotlib_hex(col_color)


def matplotlib_hex(rgba) -> str:
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in rgba[:3])


def test_without_limits_the_scale_follows_the_matrix_and_its_shape():
    compare = factorization.Comparison()
    compare(V, V_HAT)
    assert compare.norm.vmax == 4 and 1 <= compare.norm.vmin < 1.1
    tall = 1e-6 * torch.rand(50, 3, generator=torch.Generator().manual_seed(0))
    tall[0] = 0
    fig, alt = compare(tall, tall)
    assert compare.norm.vmax == pytest.approx(tall.max().item()) and 0 < compare.norm.vmin < 1e-6
    assert alt.startswith("V (50 × 3)") and "1.0 times too large and 1.0 times too small" in alt
    assert compare.heatmaps[0].image.get_extent() == [-0.5, 2.5, 49.5, -0.5]
    fig.draw_without_rendering()
    labels = [text.get_text() for ax in fig.axes for text in ax.get_xticklabels()]
    assert "10⁻⁷" in labels and not any("mathdefault" in label for label in labels)


def test_side_by_side_writes_the_numbers_into_the_cells():
    fig, _ = factorization.side_by_side(V, V_HAT, numbers=True)
    texts = [[text.get_text() for text in ax.texts] for ax in fig.axes[:3]]
    assert {"1", "2", "3", "4"} < set(texts[0]) and {"1.2", "1.8", "2.8", "4.2"} < set(texts[1])
    assert "+0.3" in texts[2]


def test_log2_ratio_counts_doublings():
    ratio = fit_quality.log2_ratio(torch.tensor([1.0, 4.0, 0.0, 0.0, 3.0]), torch.tensor([2.0, 1.0, 0.0, 5.0, 0.0]))
    assert ratio.tolist() == [1, -2, 0, inf, -inf]


def test_within_factor_two_counts_both_sides_and_the_edge():
    true, approx = torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([2.0, 0.5, 2.1, 0.4])
    assert fit_quality.within_factor_two(true, approx) == 0.5


def test_the_identity_is_described_by_its_known_divergence():
    v, approx = torch.eye(4), torch.full((4, 4), 0.25)
    text = fit_quality.describe(v, approx, fit_quality.log2_ratio(v, approx))
    assert "I-divergence 1.386" in text  # log 4
    assert "infinitely too large and 4.0 times too small" in text and " 0 % of" in text


@pytest.mark.parametrize(("share", "text"), [(1.0, "100 %"), (0.9999, "99 %"), (0.29, "29 %"), (0.0, "0 %")])
def test_percent_rounds_down(share, text):
    assert fit_quality.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1"), (100.0, "100"), (1e4, "10⁴"), (1e-6, "10⁻⁶"), (1e-12, "10⁻¹²")]
)
def test_plain_power(value, text):
    assert factorization.plain_power(value) == text


@pytest.mark.parametrize(("value", "text"), [(-2.0, "−2"), (0.0, "0"), (2.0, "+2"), (0.5, "+0.5")])
def test_plain_signed(value, text):
    assert factorization.plain_signed(value) == text


def test_error_ranges_draws_the_middle_and_names_the_extremes():
    true = torch.ones(10, 10)
    good = (torch.linspace(-1, 1, 100).exp2()).reshape(10, 10)
    fits = {"good": (true, good), "bad": (true, 8 * true)}
    fig, alt = fit_quality.error_ranges(fits)
    (ax,) = fig.axes
    bars = [line.get_xdata() for line in ax.lines if line.get_linewidth() == 5]
    np.testing.assert_allclose(bars, [[-0.9, 0.9], [3, 3]], atol=0.01)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["good", "bad"]
    assert [text.get_text() for text in ax.texts] == ["100 %", "0 %"]
    assert "from 0 % (bad) to 100 % (good)" in alt
