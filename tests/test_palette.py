"""Colours that everybody can tell apart, words that stand out from what they are written on, pictures in words."""

from __future__ import annotations

import itertools
import re

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.text import Text

import course as course_list
import notebook
import pictures
from course import ROOT
from course_lib import averages, figures
from course_lib.diagrams import averages as average_diagrams
from course_lib.diagrams import moments, peak, processes, switch_card, timeline, waterfall
from course_lib.figures import COLORS

COURSE = course_list.load()
# Distances of two colours in CIELAB: about 2.3 can just be noticed side by side (Mahy, Van Eycken & Oosterlinck 1994).
APART = 10
# WCAG 2.2, success criterion 1.4.3, for text of the usual size.
CONTRAST = 4.5
# G. M. Machado, M. M. Oliveira & L. A. F. Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency", IEEE TVCG 15(6), 2009, severity 1.0; they act on linear RGB.
SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# IEC 61966-2-1, for the white D65.
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def cielab(rgb, sight: str = "full") -> np.ndarray:
    """What somebody sees of sRGB colours of shape ``[..., 3]``, as L*, a* and b* (CIE 15)."""
    rgb = np.asarray(rgb)
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(linear @ np.transpose(SIGHT[sight]), 0, 1)
    share = (seen @ XYZ.T) / XYZ.sum(axis=1)
    root = np.where(share > (6 / 29) ** 3, np.cbrt(share), share / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = np.moveaxis(root, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def distance(one: str, other: str, sight: str) -> float:
    return float(np.linalg.norm(cielab(to_rgb(one), sight) - cielab(to_rgb(other), sight)))


def contrast(one, other) -> float:
    """Of two colours, from 1 to 21 (WCAG 2.2, "contrast ratio")."""
    low, high = sorted(float(figures.luminance(to_rgb(color))) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_the_ruler():
    """Published values: CIELAB of white and of the red of sRGB, contrasts of black, grey and red on white."""
    assert cielab([1.0, 1.0, 1.0]) == pytest.approx([100, 0, 0], abs=0.02)
    assert cielab([1.0, 0.0, 0.0]) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert (contrast("white", "black"), round(contrast("#777777", "white"), 2)) == (21, 4.48)
    assert contrast("#FF0000", "white") == pytest.approx(4.00, abs=0.005)


@pytest.mark.parametrize("sight", SIGHT)
def test_what_is_simulated(sight):
    assert np.sum(SIGHT[sight], axis=1) == pytest.approx([1, 1, 1], abs=1e-5), "greys are seen as they are"
    # A red and a green that are alike to somebody with protanopia or deuteranopia, and a blue and a green to others.
    alike = {"protanopia": ("#8A6E00", "#5F7300"), "deuteranopia": ("#A06000", "#6B7A00")}
    if sight in alike:
        assert distance(*alike[sight], sight) < 0.6 * distance(*alike[sight], "full")


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_are_told_apart(sight):
    different = {color: name for name, color in COLORS.items()}
    near = {
        (different[one], different[other]): round(found, 1)
        for one, other in itertools.combinations(different, 2)
        if (found := distance(one, other, sight)) < APART
    }
    assert near == {}


def test_a_palette_that_cannot_be_told_apart_is_found():
    """The plain red and green that many figures have."""
    assert distance("#D62728", "#2CA02C", "full") > 100
    assert distance("#D62728", "#2CA02C", "deuteranopia") < 60
    assert distance("#999999", "#CC79A7", "deuteranopia") < APART, "Okabe and Ito's grey and purple"


def lightness(cmap: str, sight: str) -> np.ndarray:
    return cielab(matplotlib.colormaps[cmap](np.linspace(0, 1, 256))[:, :3], sight)[:, 0]


@pytest.mark.parametrize("sight", SIGHT)
def test_larger_numbers_are_lighter_in_heatmaps(sight):
    steps = np.diff(lightness(figures.SEQUENTIAL, sight))
    assert steps.min() > 0
    assert np.ptp(lightness(figures.SEQUENTIAL, sight)) > 60


@pytest.mark.parametrize("sight", SIGHT)
def test_diverging_heatmaps_are_lightest_at_zero_and_have_two_sides(sight):
    steps = np.diff(lightness(figures.DIVERGING, sight))
    assert steps[:127].min() > 0 and steps[-127:].max() < 0
    seen = cielab(matplotlib.colormaps[figures.DIVERGING](np.linspace(0, 1, 256))[:, :3], sight)
    mirrored = np.linalg.norm(seen - seen[::-1], axis=1)
    assert mirrored[:100].min() > APART, "errors of either sign, from a fifth of the scale on"


@pytest.mark.parametrize("cmap", ["jet", "hsv"])
def test_a_rainbow_would_be_found(cmap):
    assert np.diff(lightness(cmap, "full")).min() < 0


@pytest.mark.parametrize("cmap", [figures.SEQUENTIAL, figures.DIVERGING])
def test_numbers_stand_out_from_the_cell_they_are_written_in(cmap):
    _, ax = figures.subplots()
    values = torch.linspace(-1, 1, 256)[None]
    scale = "diverging" if cmap == figures.DIVERGING else "linear"
    heatmap = figures.heatmap(ax, values, "every colour there is", scale=scale, numbers=True)
    cells = heatmap.image.cmap(heatmap.image.norm(values.numpy()))[0]
    assert min(contrast(text.get_color(), cell[:3]) for text, cell in zip(heatmap.texts, cells, strict=True)) > CONTRAST


def words_and_grounds(fig) -> list[tuple[str, str, float]]:
    """For each text of a figure: what it says, the colour it stands on, its contrast against that.

    The figure is drawn without its texts, and looked at where they were. A text on several colours, each with a fifth
    of its area or more, counts for each. Text on white is left out.
    """
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    texts = [text for text in fig.findobj(Text) if text.get_visible() and text.get_text().strip()]
    places = [text.get_window_extent() for text in texts]
    fig.set_layout_engine("none")  # without its texts it would be laid out anew
    for text in texts:
        text.set_visible(False)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[::-1, :, :3] / 255  # from the bottom upwards, as extents are
    found = []
    for text, place in zip(texts, places, strict=True):
        x, y = max(int(place.x0), 0), max(int(place.y0), 0)
        area = pixels[y : int(place.y1) + 1, x : int(place.x1) + 1].reshape(-1, 3)
        if (patch := text.get_bbox_patch()) is not None:  # a box of the text's own, which hides what is below
            *face, alpha = to_rgba(patch.get_facecolor())
            area = alpha * np.array(face) + (1 - alpha) * area
        colors, counts = np.unique(area.round(2), axis=0, return_counts=True)
        for color in colors[counts > 0.2 * counts.sum()]:
            if color.min() < 0.97:
                found.append((text.get_text(), str(color), contrast(text.get_color(), color)))
    return found


def exported():
    for name, target in pictures.drawn().items():
        yield pytest.param(target, id=name)


@pytest.mark.parametrize("target", list(exported()))
def test_words_stand_out_in_pictures_of_readme(target):
    from pkgutil import resolve_name

    fig, _ = resolve_name(target)()
    assert [words for words in words_and_grounds(fig) if words[2] < CONTRAST] == []


PARTS = {"weights": 250.9, "gradients": 250.9, "state": 501.9, "activations": 300.0}


def averages_of_a_window():
    beta = 0.9
    weights = (1 - beta) * beta ** torch.arange(60).flip(0)
    return average_diagrams.window_against_cut(weights, round(averages.effective_window(beta)))


def two_processes():
    held = {part: [40 * 2**20] * 2 for part in processes.FACES}
    run = {"losses": [2.0, 1.0], "bytes": held, "processes": 2}
    fig, ax = figures.subplots(height=3)
    processes._draw_bars(ax, {"one of 2": processes._held(run, 0)})
    return fig, ""


@pytest.mark.parametrize(
    ("draw", "fills"),
    [
        (lambda: waterfall.three_bars({"AdamW": PARTS, "Adafactor": {**PARTS, "state": 0.7}}), 7),
        (lambda: moments.memory_bars(250.9, {"AdamW": "MV", "none": ""}), 6),
        (averages_of_a_window, 1),
        (two_processes, 4),
        (lambda: peak.two_bars({"AdamW": (300.0, 700.0), "Adafactor": (0.7, 400.0)}, 250.9, "peaks"), 4),
        (switch_card.draw, 5),
        (lambda: timeline.Timeline().update(640, 16, 2, 4), 0),
    ],
    ids=["waterfall", "moments", "averages", "processes", "peak", "switch_card", "timeline"],
)
def test_words_stand_out_in_pictures_of_lessons(draw, fills):
    fig, _ = draw()
    found = words_and_grounds(fig)
    assert len(found) >= fills, "these words were looked at"
    assert [words for words in found if words[2] < CONTRAST] == []


def test_words_that_do_not_stand_out_are_found():
    fig, ax = figures.subplots(height=2)
    ax.axis("off")
    ax.axvspan(0, 1, color=COLORS["activations"])
    ax.text(0.5, 0.5, "white on yellow", color="white", ha="center")
    ((words, _, found),) = words_and_grounds(fig)
    assert words == "white on yellow" and found < 1.5


# Pictures in words. Notebooks hold their pictures only as pixels, so numbers are looked for in words alone there.
NO_NUMBERS = {
    "03_second_moments": "flow charts of optimizers, without numbers",
    "07_accelerator": "who writes which part of a training run, without numbers",
}
NUMBERLESS = re.compile(r"^(SGD|momentum|RMSProp|Adam) keeps |^Who writes which part of a training run\.")


def described():
    folders = [ROOT / folder for folder in ("notebooks", "exercises", "solutions")]
    for path in sorted(path for folder in folders for path in folder.glob("*.ipynb")):
        nb = notebook.read(path)
        outputs = [output for cell in nb.cells for output in cell.get("outputs", [])]
        alts = [pictures.alt(output) for output in outputs if "image/png" in output.get("data", {})]
        if alts:
            yield pytest.param(path.stem, alts, id=f"{path.parent.name}-{path.stem}")


@pytest.mark.parametrize(("name", "alts"), list(described()))
def test_pictures_are_described_with_their_numbers(name, alts):
    for alt in alts:
        assert re.search(r"\w{2,}.*[.)!?]$", alt, re.DOTALL) and len(alt.split()) >= 5, f"no sentence: {alt!r}"
        assert re.search(r"\d", alt) or (name in NO_NUMBERS and NUMBERLESS.search(alt)), f"no number: {alt!r}"


def test_exceptions_are_needed():
    lacking = {
        entry.values[0] for entry in described() for alt in entry.values[1] if not re.search(r"\d", alt)
    }  # fmt: skip
    assert lacking == set(NO_NUMBERS)


@pytest.mark.parametrize("target", list(exported()))
def test_numbers_of_a_description_stand_in_the_picture(target):
    from pkgutil import resolve_name

    fig, alt = resolve_name(target)()
    written = " ".join(text.get_text() for text in fig.findobj(Text))
    numbers = set(re.findall(r"\d[\d,.]*\d|\d", alt))
    if target.endswith((":adam_build_up", ":trainer_accelerator")):
        assert numbers == set()
    else:
        shown = {number for number in numbers if number in written}
        assert len(shown) >= 0.5 * len(numbers) > 0, f"of {numbers} the picture shows only {shown}"
