"""The maps of lesson 08: areas in proportion, and what they write is what was counted."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from course_lib import figures
from course_lib.diagrams import peak, treemap
from course_lib.diagrams.squarify import Box, inset, squarify

MIB = 2**20
# A "model" of one embedding of 2**18 × 2 numbers and a bias of 2**18, in float32.
ADAMW = {
    "embeddings.weight": {"step": (), "exp_avg": (2**18, 2), "exp_avg_sq": (2**18, 2)},
    "layer.0.bias": {"step": (), "exp_avg": (2**18,), "exp_avg_sq": (2**18,)},
}
FACTORED = {
    "embeddings.weight": {"exp_avg_sq_row": (2**18,), "exp_avg_sq_col": (2,), "RMS": ()},
    "layer.0.bias": {"exp_avg_sq": (2**18,), "RMS": ()},
}


def texts(fig):
    return [text.get_text() for ax in fig.axes for text in ax.texts]


def areas(fig):
    """Color and area of every tensor drawn, in square inches."""
    found = []
    for collection in fig.axes[0].collections:
        if isinstance(collection, PolyCollection):
            for path, color in zip(collection.get_paths(), collection.get_facecolor(), strict=True):
                width, height = np.ptp(path.vertices, axis=0)
                found.append((tuple(color[:3].round(2)), width * height))
    return found


def test_the_example_of_the_paper():
    # Bruls, Huizing & van Wijk 2000, section 3: a rectangle of 6 × 4 for the areas 6, 6, 4, 3, 2, 2, 1.
    boxes = squarify([6, 6, 4, 3, 2, 2, 1], Box(0, 0, 6, 4))
    assert [box.area for box in boxes] == pytest.approx([6, 6, 4, 3, 2, 2, 1])
    assert boxes[:2] == [Box(0, 0, 3, 2), Box(0, 2, 3, 2)]
    assert boxes[2] == pytest.approx(Box(3, 0, 12 / 7, 7 / 3))
    assert boxes[3] == pytest.approx(Box(3 + 12 / 7, 0, 9 / 7, 7 / 3))
    assert boxes[4] == pytest.approx(Box(3, 7 / 3, 6 / 5, 5 / 3))


def test_a_row_grows_while_its_worst_box_gets_better():
    # By hand: one 6 and 30 ones, in a square with sides of 6. The 6 alone is 1 × 6; with three ones beside it, 1.5 × 4
    # (ratio 2.67). A fourth would make the ones 1.67 × 0.6 (2.78).
    boxes = squarify([6] + 30 * [1], Box(0, 0, 6, 6))
    assert boxes[0] == pytest.approx(Box(0, 0, 1.5, 4))
    assert [box.x for box in boxes[:5]] == pytest.approx([0, 0, 0, 0, 1.5])


def test_boxes_fill_the_rectangle_without_overlap():
    sizes = sorted(np.random.default_rng(0).integers(1, 1000, 40).tolist(), reverse=True)
    boxes = squarify(sizes, Box(1, 2, 7, 3))
    assert [box.area for box in boxes] == pytest.approx([21 * size / sum(sizes) for size in sizes])
    for i, a in enumerate(boxes):
        assert a.x > 1 - 1e-9 and a.y > 2 - 1e-9 and a.x + a.width < 8 + 1e-9 and a.y + a.height < 5 + 1e-9
        for b in boxes[:i]:
            wide = min(a.x + a.width, b.x + b.width) - max(a.x, b.x)
            high = min(a.y + a.height, b.y + b.height) - max(a.y, b.y)
            assert min(wide, high) < 1e-9


def test_a_margin_never_eats_up_a_thin_box():
    assert inset(Box(0, 0, 1, 1), 0.1) == pytest.approx(Box(0.1, 0.1, 0.8, 0.8))
    assert inset(Box(0, 0, 1, 0.1), 0.1) == pytest.approx(Box(0.1, 0.01, 0.8, 0.08))


def test_the_map_of_adamw():
    fig, alt = treemap.draw(ADAMW, "AdamW", weights=3 * MIB)
    drawn = texts(fig)
    # 2 + 1 MiB of weights, so 3 for each moment.
    for text in ("AdamW: 6.0 MiB", "first moment 3.0 MiB", "second moment 3.0 MiB", "embeddings\n2.0 MiB"):
        assert text in drawn, text
    assert "and the total, with weights and gradients: 12.0 MiB" in drawn
    assert any(text.endswith("vectors, 33.3%") for text in drawn)
    assert "scalars 8 bytes" in alt and "together 6.0 MiB" in alt and "The total is 12.0 MiB" in alt


def test_the_map_of_adafactor_and_its_scale():
    fig, alt = treemap.draw(FACTORED, "Adafactor", weights=3 * MIB)
    drawn = texts(fig)
    assert "rows 1.0 MiB, 50%" in drawn and "vectors 1.0 MiB, 50%" in drawn
    assert "columns 8 bytes" in alt and "scalars 8 bytes" in alt
    by_color = {color: area for color, area in areas(fig) if area > 0.1}
    green, blue = (
        tuple(np.round([int(figures.COLORS[c][i : i + 2], 16) / 255 for i in (1, 3, 5)], 2))
        for c in ("row", "adafactor")
    )
    assert by_color[green] == pytest.approx(by_color[blue], rel=0.02)
    assert sum(by_color.values()) == pytest.approx(treemap.MAP_WIDTH * treemap.MAP_HEIGHT, rel=0.05)

    half, _ = treemap.draw(FACTORED, "Adafactor", weights=3 * MIB, span=4 * MIB)
    assert sum(area for _, area in areas(half)) == pytest.approx(sum(by_color.values()) / 2, rel=0.05)
    tiny, _ = treemap.draw(FACTORED, "Adafactor", weights=3 * MIB, span=400 * MIB)
    assert "all of it: 2.0 MiB" in texts(tiny)
    assert sum(area for _, area in areas(tiny)) < sum(by_color.values()) / 190


def test_two_peaks_side_by_side():
    fig, alt = peak.two_bars({"AdamW": (500.0, 1200.0), "Adafactor": (0.7, 700.0)}, 250.0, "Batch of 8")
    drawn = texts(fig)
    for text in ("1,200 MiB", "700 MiB", "state\n500", "the rest\n450", "the rest\n449", "state 0.7"):
        assert text in drawn, text
    assert fig.axes[0].get_title(loc="left") == "Batch of 8: 500 MiB less, a factor of 1.71"
    assert "AdamW 1,200 MiB" in alt and "Adafactor against AdamW: 500 MiB less" in alt
