import json
import xml.etree.ElementTree as ElementTree

import pytest
from test_comparison import sample_table
from test_diagrams_memory_use import assert_readable

import pictures
from course_lib import comparison
from course_lib.comparison import Difference
from course_lib.diagrams import cheat_sheet, tried_rates
from course_lib.diagrams.seeds import LOOKS, Seeds
from course_lib.figures import COLORS
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, NAMES, RELATIVE

STATES = {ADAMW: 501.9, ADAMW_8BIT: 127.796, GIVEN: 0.6813, RELATIVE: 0.6813}
ACCURACY = {
    ADAMW: [0.70, 0.74, 0.73, 0.75],
    ADAMW_8BIT: [0.72, 0.72, 0.72, 0.72],
    GIVEN: [0.73, 0.71, 0.73, 0.702],
    RELATIVE: [0.71, 0.70, 0.72, 0.742],
}


def runs():
    return Seeds(STATES, ACCURACY, rows=475)


def dots(ax, name):
    """The accuracies drawn as dots of one optimizer, without the hollow ones."""
    color, marker, *_ = LOOKS[name]
    found = [line for line in ax.lines if line.get_marker() == marker and line.get_color() == color]
    return [list(line.get_ydata()) for line in found if line.get_fillstyle() == "full"]


def leaders(picture):
    """For each mark of the strip its place, to the nearest seed, and its color."""
    return [(round(line.get_xdata()[0]), line.get_color()) for line in picture.strip.lines]


def test_seeds_are_revealed_one_by_one_and_the_mean_follows():
    picture = runs()
    fig, alt = picture.update(1)
    assert dots(picture.ax, ADAMW) == [[0.70]]
    assert "1 seed of 4. AdamW, 501.9 MiB: mean 0.700; 8-bit" in alt
    assert picture.ax.get_title(loc="left") == "1 seed of 4"  # no mean and no SD to speak of yet
    assert leaders(picture) == [(1, COLORS["adafactor"])]
    assert [text.get_text() for text in picture.strip.texts] == ["?"] * 3
    again, alt = picture.update(4)
    assert again is fig and dots(picture.ax, RELATIVE) == [ACCURACY[RELATIVE]]
    assert "mean and standard deviation" in picture.ax.get_title(loc="left")
    # AdamW by hand: mean .73, deviations -.03 .01 0 .02, SD sqrt(.0014 / 3) = .0216
    assert "mean 0.730 ± 0.022; 8-bit AdamW, 127.8 MiB: mean 0.720 ± 0.000; " in alt
    # sums after 2: 1.44 1.44 1.44 1.41; after 3: 2.17 2.16 2.17 2.13; after 4: 2.92 2.88 2.872 2.872
    assert alt.endswith(
        "Highest mean now: AdamW; after each seed so far: Adafactor, given rate, AdamW and 8-bit AdamW and Adafactor, "
        "given rate, AdamW and Adafactor, given rate, AdamW."
    )
    assert [place for place, _ in leaders(picture)] == [1, 2, 2, 2, 3, 3, 4] and not picture.strip.texts
    assert picture.update(1)[1].endswith("after each seed so far: Adafactor, given rate.")
    assert dots(picture.ax, ADAMW) == [[0.70]]


def test_another_order_reveals_other_runs_first():
    picture = runs()
    _, alt = picture.update(1, order=[3, 2, 1, 0])
    assert dots(picture.ax, RELATIVE) == [[0.742]] and "Highest mean now: AdamW;" in alt
    assert picture.update(4, order=[3, 2, 1, 0])[1].split("Highest")[0] == picture.update(4)[1].split("Highest")[0]


def test_the_band_is_the_sampling_error_about_all_that_is_shown():
    picture = runs()
    _, alt = picture.update(4)
    # mean of the four means .73 .72 .718 .718 is .7215; sqrt(.7215 · .2785 / 475) = .020568
    (band,) = picture.ax.patches
    low, high = band.get_xy()[1], band.get_xy()[1] + band.get_height()
    assert (low, high) == pytest.approx((0.7215 - 0.020568, 0.7215 + 0.020568), abs=1e-5)
    assert "Sampling error ± 0.021." in alt


def test_a_run_of_ones_own_is_hollow_and_counts_for_no_mean():
    picture = runs()
    _, alt = picture.update(4, live={GIVEN: 0.76})
    assert "Adafactor, given rate, 0.68 MiB: mean 0.718 ± 0.014 (your run 0.760)" in alt
    (hollow,) = [line for line in picture.ax.lines if line.get_fillstyle() == "none"]
    assert list(hollow.get_ydata()) == [0.76] and dots(picture.ax, GIVEN) == [ACCURACY[GIVEN]]
    assert hollow.get_color() == COLORS["ink"]  # seen among dots of its optimizer's color
    for far in (0.3, 0.9):
        assert_readable(picture.update(4, live={GIVEN: far})[0])
        assert picture.ax.get_ylim()[0] < far < picture.ax.get_ylim()[1]


def test_each_name_stands_with_its_size_since_dots_stand_aside():
    picture = runs()
    picture.update(2)
    words = [text.get_text().split("\n") for text in picture.ax.texts]
    for name, size in ((GIVEN, "0.68 MiB"), (RELATIVE, "0.68 MiB"), (ADAMW_8BIT, "127.8 MiB"), (ADAMW, "501.9 MiB")):
        assert any(lines[-1] == size and lines[-2] == name.split(", ")[-1] for lines in words)


@pytest.mark.parametrize("seeds", [1, 2, 4])
def test_seeds_are_readable(seeds):
    assert_readable(runs().update(seeds)[0])


def test_rates_show_what_was_tried_and_ring_the_best():
    tried = {ADAMW: {1e-4: 0.3, 1e-3: 0.7, 1e-2: 0.25}, GIVEN: {1e-4: 0.2, 1e-3: 0.6, 1e-2: 0.65}, RELATIVE: {0.1: 0.5}}
    fig, alt = tried_rates.tried_rates(tried, lazy=0.22)
    left, right = fig.axes
    rings = [list(line.get_xdata()) for line in left.lines if line.get_fillstyle() == "none"]
    assert rings == [[1e-3], [1e-2]] and "0.700 at 0.001" in alt and alt.endswith("class: 0.220.")
    assert [list(line.get_ydata()) for line in right.lines][0] == [0.5]
    assert_readable(fig)


def test_differences_show_both_errors():
    found = {ADAMW_8BIT: Difference(0.01, 0.003, 0.004), RELATIVE: Difference(-0.02, 0.002, 0.0)}
    fig, alt = tried_rates.differences(ADAMW, found)
    (ax,) = fig.axes
    spans = [list(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 2][:4]
    assert [x for span in spans for x in span] == pytest.approx([0, 2, 0.4, 1.6, -2.4, -1.6, -2.4, -1.6])
    assert "8-bit AdamW +1.0, from +0.0 to +2.0, from seeds alone ± 0.6" in alt
    assert_readable(fig)


def test_the_cheat_sheet_is_one_readable_page_of_a4():
    fig, alt = cheat_sheet.draw()
    assert fig.get_size_inches() * 25.4 == pytest.approx([210, 297], abs=0.5)
    assert_readable(fig)
    for words in ("state, MiB 501.89", "1,003.8", "127.80", "0.68", "2.03", "0.0117"):
        assert words in alt
    words = [text.get_text() for text in fig.axes[0].texts]
    assert any("256.8 MiB" in line for line in words)  # 8-bit AdamW through Trainer
    assert all(any(name.split(", ")[-1] in line for line in words) for name in NAMES)


def test_the_cheat_sheet_shows_the_table_that_it_is_given():
    table = sample_table()
    table["memory"] = {name: table["memory"][ADAMW] | {"state": 2**20 * i} for i, name in enumerate(NAMES)}
    table["runs"] = [run | {"optimizer": name} for name in NAMES for run in table["runs"] if run["optimizer"] == ADAMW]
    table["search"] = [run | {"optimizer": name} for name in NAMES for run in table["search"][:4]]
    _, alt = cheat_sheet.draw(comparison.parse(json.loads(json.dumps(table))))
    assert "Adafactor, relative step: " in alt and "state, MiB 3.00" in alt
    assert "accuracy, mean ± SD 0.625 ± 0.177" in alt  # of .5 and .75
    assert "points above AdamW, ± 2 standard errors +0.0 (+0.0 to +0.0)" in alt


def test_the_cheat_sheet_is_exported_as_a4():
    ((_, svg, _),) = pictures.render({"cheat_sheet": pictures.drawn()["cheat_sheet"]})
    root = ElementTree.fromstring(svg)
    width, height = (float(root.get(side).removesuffix("pt")) / 72 for side in ("width", "height"))
    assert (width, height) == pytest.approx((8.27, 11.69), abs=0.01)
