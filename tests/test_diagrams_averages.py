import math

import numpy as np
import pytest
import torch

from course_lib.diagrams import averages

NOISY = torch.tensor([1.2, 0.8, 1.0, 0.3])
LEVEL = torch.tensor([1.0, 1.0, 1.0, 0.4])


def bars(picture):
    """Heights of the bars drawn as inside the window, and as older."""
    return picture.inside.get_data().values, picture.older.get_data().values


@pytest.mark.parametrize(("window", "expected"), [(2, 0.7), (2.4, 0.7), (2.6, 0.9), (4, 1.0), (5, 1.0), (0, 0.0)])
def test_weight_within_adds_the_newest_weights_only(window, expected):
    assert averages.weight_within(torch.tensor([0.1, 0.2, 0.3, 0.4]), window) == pytest.approx(expected)


def test_weight_within_one_window_of_an_ema_is_one_minus_one_over_e():
    ages = torch.arange(20_000, dtype=torch.float64).flip(0)
    assert averages.weight_within(0.001 * 0.999**ages, 1000) == pytest.approx(1 - 1 / math.e, abs=2e-4)


def test_the_picture_splits_the_weights_at_the_window_and_says_its_numbers():
    picture = averages.SeriesAndWeights(NOISY, LEVEL)
    fig, alt = picture.update(torch.tensor([0.6, 0.7, 0.85, 0.575]), torch.tensor([0.1, 0.2, 0.3]), "Mine", window=2)
    inside, older = bars(picture)
    np.testing.assert_allclose(inside, [0, 0.2, 0.3, 0], rtol=1e-6)
    np.testing.assert_allclose(older, [0.1, 0, 0, 0], rtol=1e-6)
    assert picture.edge.get_visible() and picture.edge.get_xdata()[0] == 1.5
    assert alt == (
        "Mine, over 4 noisy values: at step 3 the average is 0.85, where the true level is 1.00. Its effective window "
        "is 2 steps, the weight inside it 50 %; all weights add to 0.60."
    )
    assert picture.top.get_title(loc="left") == "Mine: 0.85 at step 3, where the true level is 1.00"
    assert "effective window is 1 step, " in picture.update(NOISY, torch.tensor([1.0]), "", window=1.0)[1]


def test_a_redraw_leaves_nothing_of_the_one_before():
    picture = averages.SeriesAndWeights(NOISY, LEVEL)
    first, _ = picture.update(torch.ones(4), torch.tensor([0.1, 0.2, 0.3, 0.4]), "long", window=2, growing=True)
    blue = picture.line.get_color()
    fig, alt = picture.update(torch.zeros(4), torch.tensor([0.25]), "short")
    inside, older = bars(picture)
    assert fig is first
    np.testing.assert_array_equal(inside, [0.25, 0, 0, 0])
    np.testing.assert_array_equal(older, 0)
    assert not picture.edge.get_visible()
    assert list(picture.dot.get_xdata()) == [1] and list(picture.line.get_ydata()) == [0, 0, 0, 0]
    assert picture.line.get_color() != blue
    assert alt.endswith("Its weights add to 0.25.")


def test_the_picture_keeps_its_axes_labels_inside_whatever_the_numbers():
    picture = averages.SeriesAndWeights(torch.ones(300), torch.ones(300))
    for weight in (1.0, 0.1, 0.0234, 0.00512):
        fig, _ = picture.update(torch.ones(300), torch.full((300,), weight), "x", window=100)
        renderer = fig.canvas.get_renderer() if hasattr(fig.canvas, "get_renderer") else fig._get_renderer()
        fig.draw(renderer)
        label = picture.bottom.yaxis.label.get_window_extent(renderer)
        numbers = [tick.label1.get_window_extent(renderer).x0 for tick in picture.bottom.yaxis.get_major_ticks()]
        assert 0 <= label.x0 and label.x1 <= min(numbers), weight


def test_window_against_cut_says_what_is_older():
    ages = torch.arange(1000, dtype=torch.float64).flip(0)
    _, alt = averages.window_against_cut(0.01 * 0.99**ages, window=100)
    assert "from 0.01 at age 0" in alt and "63 % lies on the newest 100 values and 37 % on older" in alt


def test_step_response_marks_one_window():
    _, alt = averages.step_response({0.9: 1 - 0.9 ** torch.arange(1, 100)})
    assert alt.endswith("β = 0.9 reaches 65 % at step 10.")


def test_zero_start_finds_the_step_that_comes_within_five_per_cent():
    # 1 - 0.99**t >= 0.95 from t = ln 0.05 / ln 0.99 = 298.07 on
    _, alt = averages.zero_start(1 - 0.99 ** torch.arange(1, 501), beta=0.99, step=10)
    assert "0.096 at step 10" in alt and "only at step 299" in alt


def test_growing_windows_names_both_and_where_they_meet():
    steps = torch.arange(1, 10_001, dtype=torch.float64)
    windows = {"growing": steps**0.8, "fixed": torch.full_like(steps, 1000)}
    _, alt = averages.growing_windows(windows, meet=(5624, 1000))
    assert "growing: 1 at step 1, 1,585 at step 10,000; fixed: 1,000 at step 1" in alt
    assert alt.endswith("they meet at step 5,624, at a window of 1,000.")
    assert "meet" not in averages.growing_windows(windows)[1]
