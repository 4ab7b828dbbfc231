"""The stored notebooks: in step with their sources, clean, and the same when they are run again."""

import base64
import subprocess
import sys
import warnings

import nbformat
import pytest
from nbval_run import cut_off, validate

import build
import checks
import course as course_list
import glossary
import notebook
import pictures
import questions
import readme

COURSE = course_list.load()
each_lesson = pytest.mark.parametrize("lesson", COURSE.lessons, ids=lambda lesson: lesson.name)


def stored(lesson):
    path = COURSE.notebook(lesson)
    assert path.exists(), f"notebooks/{path.name} is missing: make build LESSON={lesson.id}"
    return notebook.read(path)


def text_of(*parts):
    return COURSE.root.joinpath(*parts).read_text(encoding="utf-8")


@each_lesson
def test_notebook_is_in_step_with_its_source(lesson):
    def cells(nb):
        return [(cell.id, cell.cell_type, cell.source, cell.metadata) for cell in nb.cells]

    made = cells(notebook.from_source(COURSE, lesson))
    assert cells(stored(lesson)) == made, f"sources/ has changed: make build LESSON={lesson.id}"


@each_lesson
def test_stored_notebook_keeps_the_rules(lesson):
    nb = stored(lesson)
    nbformat.validate(nb)
    assert checks.check(nb, lesson.name, COURSE.root) == []
    assert nb.metadata == notebook.METADATA
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "not run once from top to bottom"
    assert all(checks.WIDGET_VIEW not in output.get("data", {}) for cell in code for output in cell.outputs)
    assert COURSE.notebook(lesson).read_bytes() == notebook.text(nb).encode("utf-8")


@each_lesson
def test_lesson_has_a_figure(lesson):
    outputs = [output for cell in stored(lesson).cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@each_lesson
def test_picture_is_that_of_the_notebook(lesson):
    output = pictures.of_lesson(stored(lesson))
    assert output is not None, f'sources/lessons/{lesson.name}.py needs one cell with tags=["picture"]'
    assert COURSE.picture(lesson).read_bytes() == base64.b64decode(output.data["image/png"])


def test_sources_have_no_problem():
    build.check_sources(COURSE, COURSE.lessons, questions.load(COURSE))


def test_questions_are_in_step():
    bank = questions.load(COURSE)
    assert bank.problems == ()
    assert text_of("course_lib", "data", "questions.json") == questions.text(bank), "make build"


def test_glossary_is_in_step():
    page = glossary.page(COURSE, glossary.terms(COURSE))
    assert text_of("notebooks", "glossary.ipynb") == notebook.text(page), "make build"
    assert checks.check(page, "glossary", COURSE.root) == []


def test_diagrams_are_in_step():
    drawn = {f"{name}.svg": svg for name, svg, _ in pictures.render(pictures.drawn())}
    assert {path.name for path in (COURSE.root / "images").glob("*.svg")} == set(drawn)
    for name, svg in drawn.items():
        assert text_of("images", name) == svg, f"images/{name} is not what course_lib.diagrams draws: make build"


def test_course_map_is_in_step():
    text = text_of("README.md")
    assert readme.with_map(text, COURSE) == text, "make build"


@each_lesson
def test_lesson_runs_again_with_the_same_outputs(lesson, tmp_path):
    if not cut_off()[0]:
        warnings.warn(f"this ran with the network at hand: {cut_off()[1]}", stacklevel=1)
    status, printed, _ = validate(COURSE.notebook(lesson), tmp_path)
    assert status == 0, printed


def test_network_is_cut():
    prefix, reason = cut_off()
    if not prefix:
        pytest.skip(f"lessons ran with the network at hand: {reason}")
    program = """
import errno, socket
assert [name for _, name in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
for outside in ("192.0.2.1", "1.1.1.1"):
    with socket.socket() as s:
        s.settimeout(5)
        assert s.connect_ex((outside, 443)) == errno.ENETUNREACH, outside
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname(), timeout=5)
client.sendall(b"loopback")
print(server.accept()[0].recv(8).decode())
"""
    done = subprocess.run([*prefix, sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("loopback\n", "")
