"""Colab: the first cell, what it installs and what it leaves alone; the zip; links; refreshing without a run."""

import copy
import io
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import environments
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import classroom
import colab
import course as course_list
import exercises
import notebook
import readme
import refresh
import setup_cell
from course import ROOT, CourseError

COURSE = course_list.load()
PUBLIC = replace(COURSE, repository="ada/adafactor", branch="v1")
UNSET = replace(COURSE, repository="")


def zipped(contents):
    return classroom.archive({name: text.encode() for name, text in contents.items()})


# ---- the cell


def test_every_notebook_begins_with_the_same_folded_cell():
    """And shows nothing, since here the course is installed."""
    paths = [path for folder in ("notebooks", "exercises", "solutions") for path in (ROOT / folder).glob("*.ipynb")]
    assert len(paths) > 30
    for path in set(paths) - {COURSE.glossary}:
        title, first, *rest = notebook.read(path).cells
        assert title.source.startswith("# "), path
        assert first.source == setup_cell.source(COURSE) and (first.outputs, first.execution_count) == ([], 1), path
        assert first.metadata == {"tags": ["setup"], "cellView": "form", "jupyter": {"source_hidden": True}}
        assert setup_cell.TAG not in [tag for cell in rest for tag in cell.metadata.get("tags", [])]


@pytest.mark.parametrize("course", [UNSET, PUBLIC], ids=["unset", "public"])
def test_the_cell_is_short(course):
    assert len(setup_cell.source(course).splitlines()) <= 9
    assert max(map(len, setup_cell.source(UNSET).splitlines())) <= 100


def test_the_public_repository_is_fetched_and_linked(tmp_path):
    assert '"https://github.com/ada/adafactor/archive/refs/heads/v1.zip"' in setup_cell.source(PUBLIC)
    address = "(https://colab.research.google.com/github/ada/adafactor/blob/v1/{})"
    lesson, exercise = PUBLIC.written[2], exercises.written(PUBLIC)[0]
    for nb, folder in (
        (notebook.from_source(PUBLIC, lesson), "notebooks"),
        (exercises.unsolved(PUBLIC, exercise), "exercises"),
        (exercises.solved(PUBLIC, exercise), "solutions"),
    ):
        assert f"\n\n[Open in Colab]{address.format(f'{folder}/{lesson.name}.ipynb')}\n\n" in nb.cells[0].source
    table = readme.course_map(PUBLIC)
    for folder in ("notebooks", "exercises"):
        assert table.count(f"[open in Colab]{address.format(f'{folder}/{lesson.name}.ipynb')}") == 1
    assert f"[open in Colab]{address.format('exercises/capstone.ipynb')}" in table


def test_without_a_public_repository_there_is_no_link():
    made = notebook.from_source(UNSET, UNSET.written[0])
    assert "colab.research" not in notebook.text(made) + readme.course_map(UNSET)
    assert "github.com" not in setup_cell.source(UNSET)


def test_the_repository_is_read_from_the_list_of_lessons(tmp_path):
    (tmp_path / "sources").mkdir()
    lessons = (ROOT / "sources" / "course.yaml").read_text(encoding="utf-8")
    assert lessons.count('repository: "') == 1
    file = tmp_path / "sources" / "course.yaml"
    for given, found in (('""', ("", "main")), ('"ada/adafactor"', ("ada/adafactor", "main"))):
        file.write_text(_with_repository(lessons, given), encoding="utf-8")
        course = course_list.load(tmp_path)
        assert (course.repository, course.branch) == found
    file.write_text(_with_repository(lessons, '"https://github.com/ada/adafactor"'), encoding="utf-8")
    with pytest.raises(CourseError, match="write owner/name"):
        course_list.load(tmp_path)


def _with_repository(text, given):
    kept = [line for line in text.splitlines() if not line.startswith(("repository:", "branch:"))]
    return "\n".join([*kept, f"repository: {given}"])


# ---- the zip


def test_the_zip_holds_what_a_session_needs_and_no_more():
    made = colab.edition(COURSE)
    assert made == colab.edition(COURSE)
    with zipfile.ZipFile(io.BytesIO(made)) as file:
        names = {name.removeprefix("adafactor-course/"): name for name in file.namelist()}
        text = file.read(names["README.md"]).decode()
    assert {name.partition("/")[0] for name in names} - {"LICENSE"} == {
        *("README.md", "requirements.txt", "course_lib", "notebooks", "exercises")
    }
    assert {"course_lib/colab.py", "course_lib/data/solutions.json", f"exercises/{COURSE.written[2].name}.ipynb"} <= {
        *names
    }
    assert "notebooks/00_start_here.ipynb" in text and "adafactor-course.zip" in text and "{" not in text


def test_the_class_edition_serves_as_well():
    with zipfile.ZipFile(io.BytesIO(classroom.class_edition(COURSE))) as file:
        assert {"adafactor-course/requirements.txt", "adafactor-course/course_lib/colab.py"} <= set(file.namelist())
    assert classroom.EDITION == setup_cell.ZIP


# ---- a session: a Python without course_lib, for which pip finds nothing but some small wheels made here


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that sees the packages of this one, but not course_lib: it goes by a .pth file, which is not read."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=False)
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@pytest.fixture
def session(python, tmp_path):
    """``session(requirements, code)`` runs the first cell, then code, where the zip has these requirements."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "missing_one", "1.5")
    wheel(wheels, "greedy_one", "1.0", "numpy>=99")
    wheel(wheels, "numpy", "99.0")
    content = tmp_path / "content"
    content.mkdir()

    def run(requirements, code="", cell=None):
        if requirements is not None:
            library = (ROOT / "course_lib").glob("*.py")
            files = {f"course_lib/{path.name}": path.read_text(encoding="utf-8") for path in library}
            zip = zipped(files | {"requirements.txt": "\n".join(requirements)})
            (content / "adafactor-course (1).zip").write_bytes(zip)
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        variables |= {"PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONUTF8": "1", **pip}
        program = f"{cell or setup_cell.source(UNSET)}\n{code}"
        return subprocess.run(
            [python, "-c", program], cwd=content, env=variables, capture_output=True, text=True, encoding="utf-8"
        )

    return run


def wheel(folder, name, version, *requires):
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{name}-{version}.dist-info/METADATA": head + "".join(f"Requires-Dist: {one}\n" for one in requires),
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        for path, text in files.items():
            file.writestr(path, text)
        file.writestr(f"{name}-{version}.dist-info/RECORD", "".join(f"{path},,\n" for path in files))


def test_where_the_course_is_installed_the_cell_does_nothing(tmp_path):
    program = f"{setup_cell.source(COURSE)}\nprint(sorted(n for n in globals() if n[0] != '_'), end='')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("['importlib']", "") and list(tmp_path.iterdir()) == []


def test_without_the_zip_a_sentence_says_what_to_do(session):
    done = session(None)
    assert done.returncode and done.stderr.strip().splitlines()[-1] == (
        "AssertionError: Upload adafactor-course.zip to this session first; at home, start with make lab."
    )


NOW = """
import numpy, course_lib, missing_one
from importlib import metadata
print(course_lib.__file__, missing_one.version, metadata.version("torch"), metadata.version("numpy"))
"""


def test_what_is_missing_is_installed_and_nothing_else(session):
    """jupyterlab is left out; what a marker excludes too; torch and numpy are there and stay."""
    from importlib import metadata

    left_out = ["jupyterlab>=999", 'greedy_one; sys_platform == "none"', "# a comment"]
    done = session(["torch>=2.6", "numpy>=2.0", "missing_one>=1", *left_out], NOW)
    assert (done.returncode, done.stderr) == (0, "")
    said, now = done.stdout.splitlines()
    assert said == "course_lib is ready. Installed: missing_one 1.5."
    file, *versions = now.split()
    assert file.endswith(str(Path("content", "course", "adafactor-course", "course_lib", "__init__.py")))
    assert versions == ["1.5", metadata.version("torch"), metadata.version("numpy")]
    # A second session on the same machine, or the same after a restart.
    assert session(["missing_one>=1"]).stdout == "course_lib is ready; nothing was missing.\n"


@pytest.mark.parametrize(
    ("requirement", "complaint"),
    [
        ("greedy_one", "Could not install greedy_one (pip: Cannot install greedy"),
        ("nowhere>=3", "Could not install nowhere>=3 (pip: No matching distribution found for nowhere>=3). Look"),
        ("numpy>=98", "The course needs numpy>=98; here it is 2."),
    ],
)
def test_what_cannot_be_installed_without_harm_is_said(session, requirement, complaint):
    done = session([requirement])
    assert done.returncode and done.stdout == ""
    assert done.stderr.strip().splitlines()[-1].startswith(f"course_lib.colab.SessionError: {complaint}")


def test_what_the_course_runs_without_stops_nothing(session):
    done = session(["bitsandbytes>=999", "missing_one>=1"], NOW)
    assert (done.returncode, done.stderr) == (0, "")
    ready, without, _ = done.stdout.splitlines()
    assert ready.startswith("course_lib is ready") and "bitsandbytes" not in ready
    assert without.startswith("Could not install bitsandbytes>=999 (pip: No matching distribution")
    assert without.endswith(": bitsandbytes is needed only for real 8-bit steps in lesson 09, which goes on without.")


def test_with_a_public_repository_the_course_is_fetched(session, tmp_path):
    """The archive that GitHub makes has one folder, named after repository and branch."""
    archive = tmp_path / "v1.zip"
    library = {f"adafactor-v1/course_lib/{path.name}": path.read_text("utf-8") for path in ROOT.glob("course_lib/*.py")}
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in (library | {"adafactor-v1/requirements.txt": "numpy>=2.0\n"}).items():
            file.writestr(name, text)
    there = "https://github.com/ada/adafactor/archive/refs/heads/v1.zip"
    cell = setup_cell.source(PUBLIC)
    assert there in cell
    done = session(None, "import course_lib; print(course_lib.__file__)", cell.replace(there, archive.as_uri()))
    assert (done.returncode, done.stderr) == (0, "")
    ready, file = done.stdout.splitlines()
    assert ready == "course_lib is ready; nothing was missing."
    assert Path(file).parts[-4:] == ("course", "adafactor-v1", "course_lib", "__init__.py")


# ---- refreshing


def notebook_with(*sources):
    cells = [new_markdown_cell("# Top"), setup_cell.cell(UNSET), *map(new_code_cell, sources)]
    return notebook.assemble(cells)


def test_refreshing_inserts_the_cell_and_keeps_outputs():
    stored = notebook_with("print(1)", "2")
    del stored.cells[1]
    for count, cell in enumerate(stored.cells[1:], start=1):
        cell.execution_count = count
    stored.cells[1].outputs = [new_output("stream", text="1\n")]
    stored.cells[2].outputs = [new_output("execute_result", {"text/plain": "2"}, execution_count=2)]
    outputs = copy.deepcopy([cell.outputs for cell in stored.cells[1:]])
    made = refresh.refreshed(notebook_with("print(1)", "2"), stored)
    _, setup, *rest = made.cells
    assert setup.outputs == [] and [cell.execution_count for cell in made.cells[1:]] == [1, 2, 3]
    outputs[1][0].execution_count = 3
    assert [cell.outputs for cell in rest] == outputs
    assert refresh.refreshed(notebook_with("print(1)", "2"), made) == made


def test_refreshing_refuses_what_has_to_be_run():
    with pytest.raises(CourseError, match="code has changed"):
        refresh.refreshed(notebook_with("print(1)"), notebook_with("print(2)"))
    stored = notebook_with("1 / 0")
    stored.cells[2].outputs = [new_output("error", ename="E", evalue="", traceback=["Cell In[1], line 1"])]
    with pytest.raises(CourseError, match="an error is shown"):
        refresh.refreshed(notebook_with("1 / 0"), stored)


# ---- other environments, which `make test-colab` and the like make


def test_environments_ask_for_what_requirements_say():
    bounds = dict(line.split("==") for line in environments.packages("oldest"))
    requirements = {}
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirements[Requirement(line).name] = Requirement(line).specifier
    assert {"torch", *bounds} >= {*requirements} - {"bitsandbytes"} and "torch" not in bounds
    assert all(
        requirements[name].contains(bound) and bound in str(requirements[name]) for name, bound in bounds.items()
    )
    assert all("==" not in one and not one.startswith("torch") for one in environments.packages("newest"))
    assert requirements["torch"].contains(environments.TORCH.partition("==")[2])


def test_colabs_versions_are_in_the_accepted_ranges():
    """And what the first cell is to install there is named nowhere."""
    accepted = {
        canonicalize_name(one.name): one.specifier
        for one in (Requirement(line) for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines()[1:])
    }
    for one in map(Requirement, environments.COLAB):
        version = str(one.specifier).removeprefix("==").replace(".*", ".0")
        assert canonicalize_name(one.name) not in environments.ABSENT_IN_COLAB
        assert not version or version in accepted.get(canonicalize_name(one.name), one.specifier), one
