"""Lessons and exercises as a learner meets them: in JupyterLab, in a browser, with the keyboard.

Pictures of the windows are kept in results/browser/. Without a browser these tests are skipped; with
COURSE_BROWSER=required, which .ci/run sets, they fail instead.
"""

import os

import lab as jupyterlab
import pytest

import course as course_list
import notebook as stored_notebook

COURSE = course_list.load()
# An arrow key on a menu belongs to JupyterLab, unless the menu is open.
MENU_DOWN, MENU_UP = ("Space", "ArrowDown", "Enter"), ("Space", "ArrowUp", "Enter")
LEFT, RIGHT = ("ArrowLeft",), ("ArrowRight",)
BACK = {LEFT: RIGHT, RIGHT: LEFT, MENU_DOWN: MENU_UP}
# Which control of a lesson to move, with which keys, and what the picture's description says before and afterwards.
MOVES = {
    "00": ("outputs of the layer", RIGHT, "12 × 12 = 144 weights", "13 × 12 = 156 weights"),
    "02": ("fixed β", LEFT, "β = 0.99, as kept,", "β = 0.985, as kept,"),
    "04": ("one entry times", RIGHT, "I-divergence 0.346 ", "I-divergence 0.367 "),
    "05": ("gradient", MENU_DOWN, "attention: factoring on", "tokens: factoring on"),
    "08": ("texts in the batch", MENU_DOWN, "Batch of 8 ", "Batch of 32 "),
}


def without_browser(reason):
    """Skip, or fail where a browser has been promised."""
    if os.environ.get("COURSE_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


def test_a_skip_is_a_failure_where_a_browser_is_required(monkeypatch):
    monkeypatch.delenv("COURSE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="none here"):
        without_browser("none here")
    monkeypatch.setenv("COURSE_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="none here"):
        without_browser("none here")
    monkeypatch.setenv("PATH", "")
    assert "make" in jupyterlab.missing()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    if reason := jupyterlab.missing():
        without_browser(reason)
    with jupyterlab.start(tmp_path_factory.mktemp("lab")) as started:
        yield started


def assert_described(notebook):
    """What a screen reader gets of pictures and controls."""
    for picture in notebook.heard("figure img"):
        assert picture["role"] == "image" and len(picture["name"].split()) > 5, picture
    # JupyterLab drops the alt text of a still picture; it stands, folded, below.
    for folded in notebook.heard("summary"):
        assert folded["name"] == "Picture description" and len(folded["description"].split()) > 5, folded
    for control in notebook.heard("select, input[type=checkbox], input[type=radio]"):
        assert control["name"], control
    # ipywidgets gives a slider a role and a value, but no name: its label stands before it.
    for slider in notebook.heard("[role=slider]"):
        assert slider["role"] == "slider" and "value" in slider, slider
    for label in notebook.page.locator(".jp-OutputArea-output .widget-slider .widget-label").all_text_contents():
        assert label.strip()


@pytest.mark.parametrize("lesson_id", MOVES)
def test_lesson(lab, lesson_id):
    """Every cell runs; a key moves one picture, once; nothing piles up, and nothing comes from outside."""
    lesson = COURSE.lesson(lesson_id)
    label, keys, before, after = MOVES[lesson_id]
    # Lesson 00 is what README's command opens by itself.
    with lab.open("" if lesson_id == "00" else f"notebooks/{lesson.name}.ipynb", dark=lesson_id == "08") as notebook:
        assert lesson.name in notebook.page.url
        notebook.run_all()
        assert notebook.complaints == []
        shown = notebook.pictures
        assert len(shown) == pictures_stored(COURSE.notebook(lesson))
        assert all(picture["loaded"] and 0 < picture["width"] <= picture["room"] for picture in shown)
        [index] = [index for index, picture in enumerate(shown) if before in picture["alt"]]
        assert shown[index]["caption"] == shown[index]["alt"]
        outputs, control = notebook.outputs.count(), notebook.control(label)

        notebook.watch(control)
        notebook.press(control, *keys)
        notebook.page.wait_for_timeout(500)  # for a second change, which would be one too many
        assert notebook.page.evaluate("watched.sources.length") == 2
        now = notebook.pictures
        assert after in now[index]["alt"] and now[index]["caption"] == now[index]["alt"]
        assert now[index]["loaded"] and now[index]["source"] != shown[index]["source"]
        assert [*map(what, now[:index] + now[index + 1 :])] == [*map(what, shown[:index] + shown[index + 1 :])]
        notebook.screenshot(f"lesson_{lesson_id}", control)

        # There and back five times, faster than pictures can follow; then back to where it began.
        for each in (*(keys + BACK[keys]) * 5, *BACK[keys]) if len(keys) == 1 else BACK[keys]:
            notebook.page.keyboard.press(each)
        notebook.page.wait_for_function(SHOWS, arg=[index, shown[index]["source"]])
        assert [*map(what, notebook.pictures)] == [*map(what, shown)] and notebook.outputs.count() == outputs
        assert_described(notebook)
        there, reached = notebook.tabbed(control)
        assert there == len(reached) > 0
        if lesson_id == "00":
            lab.save(notebook, lesson.name)
    if lesson_id == "00":  # saved and opened again, without the kernel that drew them
        with lab.open(f"notebooks/{lesson.name}.ipynb") as notebook:
            notebook.page.get_by_text(label, exact=True).wait_for()
            assert notebook.complaints == [] and len(notebook.pictures) == len(shown)
    assert (lab.outside, lab.broken) == ([], [])


def pictures_stored(path):
    """How many pictures the stored notebook has."""
    outputs = [output for cell in stored_notebook.read(path).cells for output in cell.get("outputs", [])]
    return sum("image/png" in output.get("data", {}) for output in outputs)


def what(picture):
    """What a picture shows and says."""
    return picture["source"], picture["alt"], picture["caption"]


SHOWS = """([index, source]) =>
    document.querySelectorAll('.jp-Notebook .jp-OutputArea-output img')[index].src === source"""


EXERCISES = {
    "02": (
        "ema",
        "def ema(values, beta):\n    m, out = 0.0, []\n    for x in values:\n"
        "        m = (1 - beta) * m + beta * x\n        out.append(m)\n    return torch.stack(out)",
        ("(1 - beta) * m + beta * x", "beta * m + (1 - beta) * x"),
        "swapped_beta",
    ),
    "04": (
        "row_col_means",
        "def row_col_means(v):\n    return v.sum(-1), v.sum(-2)",
        (".sum(", ".mean("),
        "sums",
    ),
}


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_exercise(lab, exercise_id):
    """Typed into its cell, a wrong answer is recognised, and a right one praised."""
    task, wrong, change, belief = EXERCISES[exercise_id]
    [path] = (COURSE.root / "exercises").glob(f"{exercise_id}_*.ipynb")
    sources = [cell.source for cell in stored_notebook.read(path).cells if cell.cell_type == "code"]
    [answer] = [index for index, source in enumerate(sources) if f"def {task}(" in source]
    [check] = [index for index, source in enumerate(sources) if source.endswith(f"\ncheck.{task}()")]
    with lab.open(f"exercises/{path.name}") as notebook:
        notebook.run(notebook.code(answer - 1))  # the imports
        said = notebook.code(check).locator(".jp-OutputArea-output")
        notebook.run(notebook.code(check))
        assert said.text_content().startswith("○ Not attempted yet")
        for text, verdict in ((wrong, "✗ Not right yet"), (wrong.replace(*change), "✓ Right")):
            notebook.type(notebook.code(answer), text)
            notebook.run(notebook.code(answer))
            notebook.run(notebook.code(check))
            assert said.text_content().startswith(f"{verdict} · {task}")
            assert (belief in said.text_content()) == (text == wrong)
            notebook.screenshot(f"exercise_{exercise_id}_{'wrong' if text == wrong else 'right'}", said)
        notebook.run_all()
        assert said.count() == 1 and said.text_content().startswith("✓ Right")
        assert notebook.complaints == []
    assert (lab.outside, lab.broken) == ([], [])
