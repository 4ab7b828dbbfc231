import base64
import io

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from course_lib import figures
from course_lib.diagrams import factorization


@pytest.fixture
def shown(monkeypatch):
    """What `display` was given: a list of (data, metadata)."""
    calls = []
    monkeypatch.setattr(figures, "display", lambda data, metadata=None, raw=False: calls.append((data, metadata)))
    return calls


def test_show_stores_a_png_with_its_description_and_returns_nothing(shown):
    fig, ax = figures.subplots(width=4, height=2)
    ax.plot([1, 2])
    assert figures.show(fig, alt="A line that\n rises from 1 to 2.") is None
    (data, metadata), (description, _) = shown
    assert data["text/plain"] == metadata["image/png"]["alt"] == "A line that rises from 1 to 2."
    assert metadata["image/png"]["width"] == 4 * figures.PAGE_DPI
    pixels = imread(io.BytesIO(base64.b64decode(data["image/png"])))
    assert pixels.shape[:2] == (2 * figures.STORED_DPI, 4 * figures.STORED_DPI)
    assert "A line that rises from 1 to 2." in description["text/html"]


@pytest.mark.parametrize("alt", ["", "  \n"])
def test_show_refuses_an_empty_description(shown, alt):
    fig, _ = figures.subplots()
    with pytest.raises(ValueError, match="alt text"):
        figures.show(fig, alt=alt)
    assert shown == []


def test_description_cannot_break_the_page():
    assert "<b>" not in figures.description_html("V < <b>1</b>")


def test_the_same_picture_is_stored_as_the_same_bytes():
    def draw():
        fig, ax = figures.subplots(width=3, height=2)
        figures.heatmap(ax, torch.eye(3), "identity")
        return figures.png(fig)

    assert draw() == draw()


def test_figures_leave_pyplot_alone():
    import matplotlib.pyplot as plt

    figures.subplots()
    assert plt.get_fignums() == []


def cell_texts(heatmap):
    return [text.get_text() for text in heatmap.texts]


def test_heatmap_writes_small_matrices_and_not_large_ones():
    _, axes = figures.subplots(1, 2)
    assert cell_texts(figures.heatmap(axes[0], [[1.0, 2.5]], "small")) == ["1", "2.5"]
    assert cell_texts(figures.heatmap(axes[1], np.ones((9, 2)), "large")) == []


def test_heatmap_update_changes_picture_numbers_and_keeps_the_scale():
    _, ax = figures.subplots()
    heatmap = figures.heatmap(ax, torch.tensor([[0.0, 4.0]]), "V", numbers=".1f")
    limits = heatmap.image.get_clim()
    heatmap.update(torch.tensor([[2.0, 1.0]]), title="V̂")
    assert cell_texts(heatmap) == ["2.0", "1.0"]
    assert heatmap.image.get_array().tolist() == [[2.0, 1.0]]
    assert heatmap.image.get_clim() == limits
    assert ax.get_title(loc="left") == "V̂"


def test_heatmap_numbers_stand_out_from_their_cell():
    _, ax = figures.subplots()
    dark, light = figures.heatmap(ax, [[0.0, 1.0]], "viridis runs from dark to light").texts
    assert (dark.get_color(), light.get_color()) == ("white", "black")


def test_diverging_heatmap_is_centred_at_zero():
    _, ax = figures.subplots()
    low, high = figures.heatmap(ax, [[-1.0, 3.0]], "error", scale="diverging").image.get_clim()
    assert low == -high == -3.0


def test_heatmap_refuses_an_unknown_scale():
    _, ax = figures.subplots()
    with pytest.raises(ValueError, match="'linear', 'log' or 'diverging'"):
        figures.heatmap(ax, [[1.0]], "V", scale="cubic")


def test_heatmap_takes_bfloat16_tensors_that_require_grad():
    _, ax = figures.subplots()
    matrix = torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True)
    assert cell_texts(figures.heatmap(ax, matrix, "V")) == ["1"] * 4


def pixels(png):
    return imread(io.BytesIO(png))


@pytest.mark.parametrize("animated", [False, True])
def test_a_moving_picture_has_the_pixels_of_a_saved_one(animated):
    fig, ax = figures.subplots(width=4, height=2)
    heatmap = figures.heatmap(ax, torch.eye(3), "identity")
    for artist in (heatmap.image, *heatmap.texts):
        artist.set_animated(animated)
    figures.png(fig)  # lays it out
    fig.set_layout_engine("none")
    for matrix in (torch.eye(3), torch.ones(3, 3)):
        heatmap.update(matrix)
        moving = pixels(figures.moving_png(fig))
        assert moving.shape == (200, 400, 4) and np.array_equal(moving, pixels(figures.png(fig, 100)))


def test_the_pictures_of_lesson_04_move_as_they_are_saved():
    compare = factorization.Comparison(0.1, 10)
    for layout, V in (("constrained", torch.ones(2, 2)), ("none", torch.eye(2) + 1), ("none", torch.ones(3, 4))):
        fig, _ = compare(V, V.mean().expand(V.shape))
        fig.set_layout_engine(layout)
        if layout == "constrained":
            figures.png(fig)
        assert np.array_equal(pixels(figures.moving_png(fig)), pixels(figures.png(fig, 100)))
