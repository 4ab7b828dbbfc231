"""The pictures of lesson 05: what they write must be what was computed."""

from collections import Counter

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from course_lib import figures
from course_lib.diagrams import pipeline, step_sizes
from course_lib.diagrams.first_step import FirstStep


def texts(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def test_the_whole_pipeline_shows_the_step_worked_by_hand():
    # Shazeer & Stern's Algorithm 4 with the settings of Algorithm 6, worked on paper, rounded to four decimals.
    fig, alt = pipeline.adafactor_pipeline()
    drawn = texts(fig)
    by_hand = {
        "G²": ["0.01", "0.04", "0.09", "0.16"],
        "means of rows and columns": ["0.025", "0.125", "0.05", "0.1"],
        "V̂": ["0.0167", "0.0333", "0.0833", "0.1667"],
        "U": ["0.7746", "1.0954", "1.0392", "0.9798"],
        "α U": ["0.0212", "0.03", "0.0285", "0.0268"],
        "new X": ["0.9788", "1.97", "2.9715", "3.9732"],
    }
    for name, numbers in by_hand.items():
        assert all(number in drawn for number in numbers), name
        assert all(number in alt for number in numbers), name
    assert drawn.count("1.0954") == 2  # RMS(U) is below 1, so clipping changes nothing
    assert any("EMA" in text for text in drawn) and any("second moment" in text for text in drawn)


def test_stages_fill_up_and_the_marks_come_with_them():
    G = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    fig, alt = pipeline.draw(G=G)
    numbers = [text for text in texts(fig) if text.replace(".", "").isdigit()]
    assert numbers == ["0.1", "0.2", "0.3", "0.4"]
    assert "Marked" not in alt and not any("EMA" in text for text in texts(fig))
    fig, alt = pipeline.draw(G=G, squared=G**2, R=torch.tensor([0.025, 0.125]), C=torch.tensor([0.05, 0.1]))
    assert any("EMA" in text for text in texts(fig)) and not any("second moment" in text for text in texts(fig))
    assert alt.endswith("Marked: 3 as EMA.")


def test_only_parameters_and_averages_have_the_solid_frames_of_what_lasts():
    fig, _ = pipeline.adafactor_pipeline()
    cells = [patch for patch in fig.axes[0].patches if patch.get_height() == pipeline.CELL_HEIGHT]
    solid = [to_hex(cell.get_edgecolor()) for cell in cells if cell.get_linestyle() == "-"]
    # By the paper's Algorithm 4, R and C of a 2 × 2 matrix are two numbers each, and X has four.
    expected = {"row": 2, "col": 2, "weights": 4}
    assert Counter(solid) == {figures.COLORS[key].lower(): count for key, count in expected.items()}
    assert len(cells) == 2 + 2 + 4 * 7


def test_entries_of_a_matrix_stand_in_their_rows_and_columns():
    fig, _ = pipeline.draw(G=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    place = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert place["1"][1] == place["2"][1] > place["3"][1] == place["4"][1]
    assert place["1"][0] == place["3"][0] < place["2"][0] == place["4"][0]


def test_row_means_stand_at_their_rows_and_column_means_at_their_columns():
    fig, _ = pipeline.draw(R=torch.tensor([1.0, 2.0]), C=torch.tensor([3.0, 4.0]))
    place = {text.get_text(): text.get_position() for text in fig.axes[0].texts}
    assert place["1"][0] == place["2"][0] and place["1"][1] > place["2"][1]
    assert place["3"][1] == place["4"][1] and place["3"][0] < place["4"][0]
    assert place["3"][1] > place["1"][1] and place["1"][0] > place["4"][0]


def test_first_step_of_the_worst_case():
    # G = diag(1, 1e-3), clipped at RMS 1: diag(0.002, 2).
    G = torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64))
    picture = FirstStep()
    fig, alt = picture.update(G, torch.diag(torch.tensor([0.002, 2.0])), "diagonal", factoring=True, clipping=False)
    x, y = picture.dots.get_data()
    np.testing.assert_allclose((x, y), ([1, 1e-3], [0.002, 2]))
    left, right = fig.axes[0].get_xlim()
    assert left < 1e-3 and right > 1
    assert "diagonal: factoring on, clipping off" in alt
    assert "RMS of the update 1, largest entry 2; 50% of the entries" in alt
    assert fig.axes[0].get_title(loc="left").startswith("diagonal: factoring on, clipping off\n")
    again, alt = picture.update(G, torch.eye(2), "diagonal", factoring=False)
    assert again is fig and "100% of the entries" in alt and "factoring off" in alt


def test_first_step_of_a_large_matrix_is_thinned_out_but_counted_in_full():
    G = torch.ones(200, 100, dtype=torch.float64)
    U = torch.cat([torch.full((50, 100), 10.0), torch.ones(150, 100)])
    picture = FirstStep()
    _, alt = picture.update(G, U, "large")
    assert 2000 < len(picture.dots.get_data()[0]) <= 5000
    assert "75% of the entries" in alt and "largest entry 10" in alt
    assert "one dot for each entry shown (evenly thinned), log axes" in alt


def test_first_step_says_which_entries_have_no_dot():
    def shown(G, U):
        _, alt = FirstStep().update(torch.tensor(G), torch.tensor(U), "some")
        return alt.split("size of the update, ")[1].split(", log axes")[0]

    assert shown([[1.0, 2.0]], [[1.0, 1.0]]) == "one dot for each entry"
    assert shown([[1.0, 0.0]], [[1.0, 0.0]]) == "one dot for each entry shown (without the zeros)"
    assert shown([[1.0, 2.0]], [[1.0, 1e-6]]) == "one dot for each entry shown (the very smallest lie outside)"
    many = [[1e-9] + [1.0] * 199]  # the first lies far to the left of all others
    assert shown(many, [[1.0] * 200]) == "one dot for each entry shown (the very smallest lie outside)"


def test_relative_step_marks_where_it_ends_to_be_flat():
    t = torch.arange(1, 50_001, dtype=torch.float64)
    fig, alt = step_sizes.relative_step(t, torch.clamp(t**-0.5, max=1e-2), torch.minimum(1e-6 * t, t**-0.5))
    assert "flat up to step 10,000" in texts(fig)
    assert "0.01 from step 1 to step 10,000" in alt and "to 0.0045 at step 50,000" in alt


def test_spike_reads_each_line_at_the_step_of_the_spike():
    lines = {"Adam": torch.tensor([1.0, 1.0, 1.5, 1.2]), "Adafactor, clipped": torch.tensor([1.0, 1.0, 1.0, 0.5])}
    fig, alt = step_sizes.spike(lines, at=3, around=(2, 4))
    assert texts(fig) == ["Adam: 1.5", "Adafactor, clipped: 1.0"]
    assert "Adam 1.5" in alt and "Adafactor, clipped 1.0" in alt
    adam, ours = fig.axes[0].lines
    assert adam.get_color() == figures.COLORS["adamw"] and ours.get_color() == figures.COLORS["adafactor"]
    np.testing.assert_allclose(adam.get_ydata(), [1.0, 1.5, 1.2])
    np.testing.assert_array_equal(adam.get_xdata(), [2, 3, 4])
    assert pytest.approx(1.0) == ours.get_ydata()[1]
