"""A reader without a kernel: each stored lesson as nbconvert shows it, and nbviewer, which uses it, and headings."""

import ast
import base64
import functools
import io

import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from PIL import Image

import course as course_list
import notebook
import prose

COURSE = course_list.load()
ROOT = COURSE.root
# What a control leaves behind where nothing runs it.
DEBRIS = ("widget-view", "VBox(", "HBox(", "HTML(value", "Slider(", "Dropdown(", "Checkbox(", "RadioButtons(")
DEBRIS += ("interactive(", "Output()", "model_id", "<IPython.core", "Error displaying widget", "Loading widget")
PAGES = sorted((ROOT / "notebooks").glob("*.ipynb"))
TEXTS = [ROOT / "README.md", ROOT / "exercises" / "README.md", *sorted((ROOT / "benchmarks" / "results").glob("*.md"))]
each_lesson = pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.name)


@functools.cache
def page(path, template="lab"):
    """The notebook as a page, without what the template brings along: styles and scripts."""
    html, _ = HTMLExporter(template_name=template).from_filename(str(path))
    body = BeautifulSoup(html, "html.parser").body
    for extra in body.find_all(["script", "style"], type=lambda kind: kind in (None, "text/javascript", "text/css")):
        extra.decompose()
    return body


def stored(lesson):
    return [cell for cell in notebook.read(COURSE.notebook(lesson)).cells if cell.cell_type == "code"]


def calls(cell, name):
    """How often a cell calls a function of this name, outside of functions that it defines."""
    return sum(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == name
        for node in ast.walk(ast.parse(cell.source))
    )


def described(lesson):
    """The stored pictures of a lesson with their descriptions."""
    bundles = [output for cell in stored(lesson) for output in cell.outputs if "image/png" in output.get("data", {})]
    return [(output.data["image/png"].strip(), output.metadata["image/png"]["alt"]) for output in bundles]


def sources(images):
    return [img["src"].partition("base64,")[2] for img in images]


@each_lesson
def test_every_figure_is_there_and_its_description_below(lesson):
    """nbconvert's newer template leaves a picture's alt out, so the text has to stand beside it."""
    shown = page(COURSE.notebook(lesson)).find_all("img")
    assert sources(shown) == [png for png, _ in described(lesson)]
    for img, (_, alt) in zip(shown, described(lesson), strict=True):
        assert img.find_next("details").get_text() == f"Picture description{alt}"


@each_lesson
def test_every_figure_has_its_alt_text(lesson):
    """nbconvert's classic template knows alt texts."""
    shown = page(COURSE.notebook(lesson), "classic").find_all("img")
    assert [*zip(sources(shown), (img["alt"] for img in shown), strict=True)] == described(lesson)
    assert all(len(alt.split()) > 5 for _, alt in described(lesson))


@each_lesson
def test_every_control_leaves_its_picture_or_its_question(lesson):
    cells = stored(lesson)
    shown = page(COURSE.notebook(lesson)).select("div.jp-CodeCell")
    assert len(shown) == len(cells)
    for cell, part in zip(cells, shown, strict=True):
        if asked := calls(cell, "explore"):
            assert len(part.select(".jp-OutputArea img[alt]")) == asked, cell.source
        if asked := calls(cell, "predict"):
            text = part.select_one(".jp-OutputArea").get_text()
            assert text.count("Predict.") == asked and all(f"{letter}. " in text for letter in "ABCD"), cell.source


@each_lesson
def test_no_debris_of_controls(lesson):
    assert "widgets" not in notebook.read(COURSE.notebook(lesson)).metadata
    body = page(COURSE.notebook(lesson))
    assert [script["type"] for script in body.find_all("script") if "jupyter" in script.get("type", "")] == []
    outputs = body.select(".jp-OutputArea")
    assert outputs and all(word not in str(output) for output in outputs for word in DEBRIS)


@each_lesson
def test_pictures_have_a_background(lesson):
    """Without one, dark letters would stand on a dark page."""
    for png, _ in described(lesson):
        with Image.open(io.BytesIO(base64.b64decode(png))) as picture:
            colored = picture.convert("RGBA")
        assert colored.getchannel("A").getextrema() == (255, 255)
        assert colored.getpixel((0, 0)) == colored.getpixel((colored.width - 1, 0)) == (255, 255, 255, 255)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_headings_of_the_page_nest(path):
    levels = [int(heading.name[1]) for heading in page(path).find_all(["h1", "h2", "h3", "h4", "h5", "h6"])]
    assert_nested(levels)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_headings_of_the_text_nest(path):
    assert_nested([heading.level for heading in prose.headings(path.read_text(encoding="utf-8"))])


def assert_nested(levels):
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(below <= above + 1 for above, below in zip(levels, levels[1:], strict=False)), levels
