"""The build itself, on a course of two small lessons in a folder of its own."""

import contextlib
import json
import sys
import tempfile

import nbformat
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from sample_course import LIST, write_sources

import build
import checks
import course as course_list
import execution
import notebook
import readme
import run
from course import CourseError

FIRST = """\
# %% [markdown]
# ## One
# > **step** — one round of the
# > loop, see [root](glossary.ipynb#root).

# %%
from course_lib import explore, figures
print("one")
print("two")
1 + 1

# %% tags=["answer", "picture"]
def draw(beta=0.5):
    fig, ax = figures.subplots(width=2, height=1)
    return fig, f"An empty plot | with β {beta}."

print("The answer:")
explore.explore(draw, beta=(0.0, 1.0))

# %% tags=["varies"]
import os, sys
print(os.getpid())
assert sys.prefix == os.environ["SAMPLE_PREFIX"]
assert not {"COURSE_TIER", "COURSE_DEVICE"} & set(os.environ) and os.environ["CUDA_VISIBLE_DEVICES"] == ""
assert os.environ.get("MPLBACKEND") != "Agg"
assert "started" not in globals()
"""
SECOND = """\
# %% [markdown]
# ## Two
# Steps come first.
#
# > **root** — what is squared.

# %%
# The same
1

# %%
# The same
1
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A built course, for somebody whose own setup must not count: a tier, a plotting backend, something that IPython
    runs at its start, and a kernel that is called python3 and cannot even start."""
    root = tmp_path_factory.mktemp("sample")
    kernel = root / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    spec = {"argv": ["no-such-python", "{connection_file}"], "display_name": "Another", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    startup = root / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("started = True", encoding="utf-8")
    write_sources(root, FIRST, SECOND)
    (root / "README.md").write_text(f"# Sample\n{readme.BEGIN}\n{readme.END}\nThe end.\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(root / "jupyter"))
        patch.setenv("IPYTHONDIR", str(root / "ipython"))
        patch.setenv("COURSE_TIER", "full")
        patch.setenv("SAMPLE_PREFIX", sys.prefix)
        patch.setenv("MPLBACKEND", "Agg")
        build.build(root, ["00", "01"])
        yield root


def read(root, name):
    return notebook.read(root / "notebooks" / f"{name}.ipynb")


def test_title_and_footer_are_generated(root):
    first, second = read(root, "00_first").cells, read(root, "01_second").cells
    assert (
        first[0].source
        == "# 00 · First\n\n*10 minutes · nothing needed before*\n\n**You will be able to**\n\n- say one"
    )
    assert "*55 minutes · before this: [00 · First](00_first.ipynb)*" in second[0].source
    assert "- **Next:** [01 · Second](01_second.ipynb)\n- **Look" in first[-1].source
    assert "Exercise" not in first[-1].source and "Previous" not in first[-1].source
    assert second[-1].source.splitlines()[2:] == [
        "- **Exercise:** [01 · Second](../exercises/01_second.ipynb)",
        "- **Next:** 02 · Third",  # not written yet, so no link
        "- **Previous:** [00 · First](00_first.ipynb)",
        "- **Look up a term:** [Glossary](glossary.ipynb)",
    ]


def test_outputs_are_stored_clean(root):
    nb = read(root, "00_first")
    setup, printed, answer, varies = (cell for cell in nb.cells if cell.cell_type == "code")
    assert nb.cells[1] is setup and setup.metadata.tags == ["setup"] and setup.outputs == []
    assert [output.output_type for output in printed.outputs] == ["stream", "execute_result"]
    assert printed.outputs[0].text == "one\ntwo\n"
    assert answer.metadata == {"tags": ["answer", "picture"], "jupyter": {"outputs_hidden": True}}
    assert set(answer.outputs[1].data) == {"image/png", "text/plain"}
    assert answer.outputs[1].metadata["image/png"]["alt"] == "An empty plot | with β 0.5."
    assert varies.metadata.tags == ["varies", "nbval-ignore-output"]
    assert "widgets" not in nb.metadata and nb.metadata.language_info == {"name": "python"}
    assert (root / "images" / "00_first.png").read_bytes().startswith(b"\x89PNG")
    text = (root / "notebooks" / "00_first.ipynb").read_text(encoding="utf-8")
    assert "β" in text and text.endswith("}\n") and "iopub" not in text


def test_ids_come_from_what_stands_in_the_cells(root):
    ids = [cell.id for cell in read(root, "01_second").cells]
    assert len(set(ids)) == len(ids) and all(checks.ID.fullmatch(cell_id) for cell_id in ids)
    assert ids[3][:-2] == ids[4][:-2] and (ids[3][-2:], ids[4][-2:]) == ("-1", "-2")  # the same source twice
    course = course_list.load(root)
    cells = notebook.from_source(course, course.lesson("01")).cells[1:-1]
    moved = notebook.assemble([new_markdown_cell("New"), *cells])
    assert [cell.id for cell in moved.cells[1:]] == ids[1:-1]


def test_building_again_changes_nothing(root):
    path = root / "notebooks" / "01_second.ipynb"
    before = path.read_bytes(), path.stat().st_mtime_ns
    build.build(root, ["01"])
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert [path.name for path in (root / "notebooks").iterdir() if path.name.startswith(".")] == []


def test_glossary_lists_the_terms_and_links_back(root):
    sources = [cell.source for cell in read(root, "glossary").cells]
    assert sources[1:] == [
        "## R",
        "### root\n\nwhat is squared.\n\nIntroduced in [01 · Second](01_second.ipynb).",
        "## S",
        "### step\n\none round of the loop, see [root](#root).\n\nIntroduced in [00 · First](00_first.ipynb).",
    ]


def test_an_exercise_is_stored_unsolved_and_solved(root):
    unsolved, solved = (notebook.read(root / folder / "01_second.ipynb").cells for folder in ("exercises", "solutions"))
    assert unsolved[0].source.startswith("# Exercises 01 · Second\n\n*7 minutes · 2 tasks · 4 points*\n\nIn each task,")
    assert solved[0].source.startswith("# Solutions 01 · Second\n\n*7 minutes · 2 tasks · 4 points*")
    heading = "## Task 2 · Correct\n\n*4 minutes · hard · 3 points · good for: Adam*\n\nWrite `bias_corrected`."
    assert heading in [cell.source for cell in unsolved] and heading in [cell.source for cell in solved]
    answer = next(cell for cell in unsolved if "def ema" in cell.source)
    assert answer.source == "def ema(values, beta):\n    '''All averages.'''\n    raise NotImplementedError"
    graded = [cell.metadata.nbgrader for cell in unsolved if "nbgrader" in cell.metadata]
    assert [(cell.grade_id, cell.solution, cell.grade, cell.locked, cell.get("points")) for cell in graded] == [
        ("ema", True, False, False, None),
        ("check_ema", False, True, True, 1),
        ("bias_corrected", True, False, False, None),
        ("check_bias_corrected", False, True, True, 3),
    ]
    why = next(place for place, cell in enumerate(solved) if cell.source == "**Why.** One number is kept.")
    assert "secret" in solved[why - 1].source and "SOLUTION" not in solved[why - 1].source
    text = (root / "exercises" / "01_second.ipynb").read_text(encoding="utf-8")
    assert "secret" not in text and "One number is kept" not in text and "SOLUTION" not in text
    outputs = [output for cell in solved for output in cell.get("outputs", [])]
    assert [output.data["text/plain"].partition("\n")[0] for output in outputs] == [
        "✓ Right · ema",
        "[0.5, 0.25]",
        "✓ Right · bias_corrected",
    ]
    assert "[01 · Second](../notebooks/01_second.ipynb)" in unsolved[-1].source
    answers = json.loads((root / "course_lib" / "data" / "solutions.json").read_text(encoding="utf-8"))
    assert list(answers) == ["ema", "bias_corrected"] and answers["bias_corrected"]["why"].startswith("The weights")


def test_questions_reach_the_library(root):
    exported = json.loads((root / "course_lib" / "data" / "questions.json").read_text(encoding="utf-8"))
    assert [(question["id"], question["options"][1]["text"]) for question in exported] == [("00-sum", "2")]


def test_course_map_goes_between_its_markers(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Sample\n") and text.endswith("-->\nThe end.\n")
    alt = "An empty plot &#124; with β 0.5."
    assert f'| <img src="images/00_first.png" width="240" alt="{alt}"> | **[00 · First](notebooks/' in text
    assert "<br>The second.<br>[Exercises](exercises/01_second.ipynb), 7 minutes | 55 |" in text
    assert "|  | **02 · Third**<br>Not written yet. | 5 |" in text and "| 1 h 10 |" in text
    assert readme.with_map(text, course_list.load(root)) == text
    with pytest.raises(CourseError, match="needs the two lines"):
        readme.with_map("# Sample", course_list.load(root))


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("import sys; print('psst', file=sys.stderr)", r"cell 3 \(import sys.*stderr is stored.*'psst'"),
        ("import os; print(os.getcwd())", "a path of this machine stands in the printed text"),
        ("import ipywidgets; display(ipywidgets.IntSlider())", "a live control leaves nothing to see"),
        ("1 / 0", r"00_first, cell 3 \(1 / 0\) ended in an error(?s:.*)ZeroDivisionError"),
    ],
)
def test_a_lesson_that_breaks_a_rule_is_not_stored(tmp_path, cell, complaint):
    write_sources(tmp_path, f"# %%\n{cell}\n")
    course = course_list.load(tmp_path)
    with pytest.raises(CourseError, match=complaint):
        build.build_lesson(course, course.lesson("00"))
    assert not course.notebook(course.lesson("00")).exists()


def test_unknown_tags_and_lessons_are_refused(tmp_path):
    write_sources(tmp_path, '# %% tags=["anwser"]\n1\n')
    course = course_list.load(tmp_path)
    with pytest.raises(CourseError, match="00_first.py, cell 1: the tag 'anwser' means nothing; there are answer,"):
        notebook.from_source(course, course.lesson("00"))
    with pytest.raises(CourseError, match=r"sources/lessons/01_second\.py is missing"):
        build.build(tmp_path, ["01"])
    with pytest.raises(CourseError, match="There is no lesson '7'; sources/course.yaml has 00, 01, 02"):
        course.select(["7"])


def test_a_course_list_that_contradicts_itself_is_refused(tmp_path):
    write_sources(tmp_path)
    path = tmp_path / "sources" / "course.yaml"
    path.write_text(LIST.replace('needs: ["00"]', 'needs: ["02"]'), encoding="utf-8")
    with pytest.raises(CourseError, match=r"lesson 01 needs \['02'\]"):
        course_list.load(tmp_path)
    path.write_text(LIST.replace('id: "01"', 'id: "00"'), encoding="utf-8")
    with pytest.raises(CourseError, match="two lessons '00'"):
        course_list.load(tmp_path)


def test_run_prints_a_row_for_each_lesson_and_says_what_failed(root, capsys):
    before = [path.read_bytes() for path in sorted((root / "notebooks").iterdir())]
    course = course_list.load(root)
    (failure,) = run.run(course, course.lessons)
    assert "notebooks/02_third.ipynb is missing" in failure
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["lesson", "seconds", "peak", "MiB", "result"]
    assert [(row.split()[2], row.split()[-1]) for row in rows] == [
        ("First", "passed"),
        ("Second", "passed"),
        ("Third", "FAILED"),
    ]
    assert all(0 < float(row.split()[3]) < 60 and 20 < float(row.split()[4]) < 2000 for row in rows[:2])
    assert [path.read_bytes() for path in sorted((root / "notebooks").iterdir())] == before


@pytest.mark.parametrize("ending", ["", "1 / 0"])
def test_no_kernel_is_left_running(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    nb = notebook.assemble([new_code_cell("import os; print(os.getpid())"), new_code_cell(ending or "2")])
    with pytest.raises(CourseError) if ending else contextlib.nullcontext():
        execution.execute(nb, "x")
    assert not psutil.pid_exists(int(nb.cells[0].outputs[0].text))
    assert list(tmp_path.iterdir()) == []  # neither its folder nor its connection file


def test_peak_memory_is_that_of_the_kernel():
    nb = notebook.assemble([new_code_cell("block = bytearray(300 * 2**20); import time; time.sleep(0.5)")])
    small = execution.execute(notebook.assemble([new_code_cell("import time; time.sleep(0.5)")]), "x")
    assert 300 <= execution.execute(nb, "x") - small + 20 <= 400
    nbformat.validate(nb)
