"""A class, the whole way with real nbgrader: from the folder that `make classroom` makes to the gradebook."""

import copy
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_links
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade, is_grade

import classroom
import course as course_list
import exercises
import misconceptions
import notebook
from course import ROOT, CourseError
from misconceptions import Finding

COURSE = course_list.load()
WRITTEN = {exercise.name: exercise for exercise in exercises.written(COURSE)}
NAME = "02_moving_averages"
TASKS = ("ema", "bias_corrected", "first_step_beyond")  # 1, 1 and 2 points

RIGHT = {
    "ema": """
        average, averages = 0.0, []
        for value in values:
            average = beta * average + (1 - beta) * value
            averages.append(average)
        return torch.stack(averages)""",
    "bias_corrected": "return m / (1 - beta**t)",
    "first_step_beyond": """
        t = 1
        while 1 - t**-0.8 <= level:
            t += 1
        return t""",
}
BELIEVED = {
    "ema": """
        m, out = 0.0, []
        for x in values:
            m = (1 - beta) * m + beta * x
            out.append(m)
        return torch.stack(out)""",
    "bias_corrected": "return m / (1 - beta)",
    "first_step_beyond": "return round(1 / (1 - level))",
}


@dataclass
class Submission:
    """What one learner hands in.

    Attributes:
        points: what it deserves, of 4.
        bodies: of the functions; the other tasks stay blank.
        change: what else is done to the notebook.
        found: outcome and belief of each task in the report.
    """

    points: float
    bodies: dict[str, str] = field(default_factory=dict)
    change: Callable[[NotebookNode], None] = lambda nb: None
    found: str = "correct correct correct"


def of(nb: NotebookNode, grade_id: str) -> NotebookNode:
    return next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


def insert(nb: NotebookNode, after: str, cell: NotebookNode) -> None:
    nb.cells.insert(nb.cells.index(of(nb, after)) + 1, cell)


def edit_checks(nb):
    for task in TASKS:
        check = of(nb, f"check_{task}")
        check.source = "print('right')"
        check.metadata.nbgrader.points = 100
    check.cell_type = "markdown"


def delete_checks(nb):
    for grade_id in ("check_ema", "bias_corrected", "check_bias_corrected"):
        nb.cells.remove(of(nb, grade_id))


def leave_a_mess(nb):
    """What Colab makes of a notebook, with the setup deleted, cells copied, a syntax error and a line on stderr."""
    del nb.cells[next(n for n, cell in enumerate(nb.cells) if cell.source.startswith("import torch"))]
    insert(nb, "ema", new_code_cell("import sys, torch\nprint('unwell', file=sys.stderr)"))
    insert(nb, "ema", new_code_cell("this is no Python"))
    for grade_id in ("ema", "check_ema"):
        insert(nb, grade_id, copy.deepcopy(of(nb, grade_id)))
    of(nb, "ema").source = "def ema(values, beta):\n    raise NotImplementedError"
    nb.metadata = {"colab": {"provenance": []}, "kernelspec": {"name": "other", "display_name": "Another"}}
    nb.nbformat_minor = 0
    for cell in nb.cells:
        cell.metadata["id"] = cell.pop("id")


SUBMISSIONS = {
    "perfect": Submission(4, RIGHT),
    "blank": Submission(0, found="not-attempted not-attempted not-attempted"),
    "half": Submission(2, RIGHT | {"first_step_beyond": "return 7"}, found="correct correct incorrect"),
    "raises": Submission(3, RIGHT | {"ema": "return values[len(values)]"}, found="raises correct correct"),
    "edits": Submission(0, {"ema": "return 2 * values"}, edit_checks, found="incorrect not-attempted not-attempted"),
    "deletes": Submission(3, RIGHT, delete_checks, found="correct not-attempted correct"),
    "never-returns": Submission(
        2, RIGHT | {"first_step_beyond": "while True: pass"}, found="correct correct never_returns"
    ),
    "believes": Submission(0, BELIEVED, found="swapped_beta divides_by_one_minus_beta window_for_step"),
    "Grace Hopper": Submission(4, RIGHT, leave_a_mess),
}


def handed_in(blank: Path, submission: Submission) -> str:
    nb = notebook.read(blank)
    for task, body in submission.bodies.items():
        answer = of(nb, task)
        assert answer.source.endswith("    raise NotImplementedError")
        body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        answer.source = answer.source.replace("    raise NotImplementedError", body)
    submission.change(nb)
    return json.dumps(nb)


def nbgrader(folder: Path, *arguments: str, succeeds: bool = True) -> str:
    # As for a teacher who has not activated the environment.
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if Path(p) != Path(sys.executable).parent)
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=folder,
        env=os.environ | {"PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert (done.returncode == 0) == succeeds, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class")
    script = [sys.executable, ROOT / "tools" / "classroom.py", folder]
    printed = subprocess.run(script, capture_output=True, check=True).stdout.decode()
    readme = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^  (\.\./\S+ .*)$", printed, re.MULTILINE)
    assert len(commands) == 6 and all(f"\n{command}\n" in readme for command in commands), commands
    return folder


@pytest.fixture(scope="module")
def release(folder):
    nbgrader(folder, "generate_assignment", "*")
    return folder / "release"


@pytest.fixture(scope="module")
def graded(folder, release):
    """A class's folder in which everything has been collected and graded, and what nbgrader said."""
    archive = folder / "downloaded" / NAME / "archive"
    archive.mkdir(parents=True)
    blank = release / NAME / f"{NAME}.ipynb"
    for student, submission in SUBMISSIONS.items():
        (archive / f"{student}_{NAME}.ipynb").write_text(handed_in(blank, submission), encoding="utf-8")
    zipped = archive / f"perfect_{NAME}.ipynb"
    with zipfile.ZipFile(archive / "perfect.zip", "w") as file:
        file.write(zipped, zipped.name)
    zipped.unlink()
    (archive / f"broken_{NAME}.ipynb").write_text("{ half a notebo", encoding="utf-8")
    for name in (f"{NAME}.ipynb", f"eve_{NAME} (1).ipynb", "eve_02_moving.ipynb", "eve.txt"):
        shutil.copy(blank, archive / name)
    collected = nbgrader(folder, "zip_collect", NAME)
    # It ends with an error because of the broken file, after everything else is graded.
    log = nbgrader(folder, "autograde", NAME, succeeds=False)
    return SimpleNamespace(folder=folder, collected=collected, log=log)


@pytest.mark.parametrize("name", WRITTEN)
def test_nbgrader_makes_the_very_notebook_that_learners_have(folder, release, name):
    source = notebook.read(folder / "source" / name / f"{name}.ipynb")
    made = notebook.read(release / name / f"{name}.ipynb")
    stored = notebook.read(exercises.unsolved_path(COURSE, WRITTEN[name]))
    marked = [cell.source for cell in source.cells if exercises.BEGIN in cell.source]
    assert len(marked) == len(exercises.tasks(exercises.read(COURSE, WRITTEN[name])))
    for text in marked:
        between = text.partition(exercises.BEGIN)[2].partition(exercises.END)[0]
        assert between.strip() == exercises.STUB, "a teacher's folder holds an answer"
    assert made.metadata == stored.metadata
    assert [(cell.id, cell.source, cell.metadata) for cell in made.cells] == [
        (cell.id, cell.source, cell.metadata) for cell in stored.cells
    ]
    assert not any(cell.get("outputs") for cell in [*source.cells, *made.cells])


def test_files_are_collected_by_their_names_and_others_named(graded):
    submitted = {path.parent.parent.name for path in graded.folder.glob("submitted/*/*/*.ipynb")}
    assert submitted == {*SUBMISSIONS, "broken"}
    for name in (f"{NAME}.ipynb", f"eve_{NAME} (1).ipynb", "02_moving.ipynb", "eve.txt"):
        assert any("kipped" in line and name in line for line in graded.collected.splitlines()), name


def test_the_gradebook_has_the_points_that_are_deserved(graded):
    with Gradebook(f"sqlite:///{graded.folder}/gradebook.db") as gradebook:
        submissions = gradebook.assignment_submissions(NAME)
        points = {submission.student.id: submission.score for submission in submissions}
        open_ones = {submission.student.id for submission in submissions if submission.needs_manual_grade}
        assert {submission.max_score for submission in submissions} == {4}
    assert points == {**{student: submission.points for student, submission in SUBMISSIONS.items()}, "broken": 0}
    assert open_ones == {"broken"}
    assert f"error processing assignment '{NAME}' for student 'broken'" in graded.log


def test_grades_are_exported(graded):
    nbgrader(graded.folder, "export")
    rows = list(csv.DictReader((graded.folder / "grades.csv").open(encoding="utf-8")))
    scores = {row["student_id"]: float(row["score"]) for row in rows if row["assignment"] == NAME}
    assert scores == {**{student: submission.points for student, submission in SUBMISSIONS.items()}, "broken": 0}


def test_feedback_says_what_the_checks_said(graded):
    nbgrader(graded.folder, "generate_feedback", NAME)
    pages = {path.parent.parent.name: path for path in graded.folder.glob("feedback/*/*/*.html")}
    assert set(pages) == set(SUBMISSIONS)
    page = pages["believes"].read_text(encoding="utf-8")
    assert "Known as: swapped_beta" in page and "(Score: 0.0 / 4.0)" in page


def test_report_counts_outcomes_and_misconceptions(graded):
    expected: Counter[Finding] = Counter()
    for submission in SUBMISSIONS.values():
        for task, found in zip(TASKS, submission.found.split(), strict=True):
            found = found.replace("-", " ")
            outcome, belief = (found, "") if found in misconceptions.OUTCOMES else ("incorrect", found)
            expected[Finding(NAME, task, outcome, belief)] += 1
    counted, ungraded = misconceptions.collect(graded.folder)
    assert counted == expected
    assert ungraded == {NAME: ["broken"]}
    script = [sys.executable, ROOT / "tools" / "misconceptions.py", graded.folder]
    printed = subprocess.run(script, capture_output=True, check=True).stdout.decode()
    assert "\nema: 5 correct, 3 incorrect, 1 not attempted\n" in printed
    assert "1  swapped_beta\n       β and 1 − β have changed places" in printed
    assert "1  not recognised" in printed and "broken" in printed
    rows = list(csv.DictReader((graded.folder / "misconceptions.csv").open(encoding="utf-8")))
    table = {tuple(row.values()) for row in rows}
    assert (NAME, "ema", "incorrect", "swapped_beta", "1") in table and len(rows) == len(expected)


def test_report_wants_graded_notebooks(tmp_path):
    with pytest.raises(CourseError, match="autograde"):
        misconceptions.collect(tmp_path)


def test_without_strict_checks_a_blank_notebook_would_get_full_marks(graded):
    # The stored notebook has been run as a learner runs it; for the graded one, the configuration sets COURSE_CHECK.
    for path, share in ((ROOT / "exercises", 1), (graded.folder / "autograded" / "blank" / NAME, 0)):
        grades = [determine_grade(cell) for cell in notebook.read(path / f"{NAME}.ipynb").cells if is_grade(cell)]
        assert grades == [(share * most, most) for _, most in grades]
        assert sum(most for _, most in grades) == 4


def test_what_comes_again_is_graded_again(graded):
    blank = graded.folder / "release" / NAME / f"{NAME}.ipynb"
    again = graded.folder / "downloaded" / NAME / "archive" / f"broken_{NAME}.ipynb"
    again.write_text(handed_in(blank, Submission(4, RIGHT)), encoding="utf-8")
    nbgrader(graded.folder, "zip_collect", NAME, "--force")
    nbgrader(graded.folder, "autograde", NAME, "--force", "--student=broken")
    with Gradebook(f"sqlite:///{graded.folder}/gradebook.db") as gradebook:
        points = {submission.student.id: submission.score for submission in gradebook.assignment_submissions(NAME)}
    assert points == {**{student: submission.points for student, submission in SUBMISSIONS.items()}, "broken": 4}


OWN_CELLS = {
    "never_ends": ("while True: print('still here, ' * 1000)", 2),
    "cannot_be_stopped": ("import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: pass", 1),
    "ends_the_kernel": ("import os\nos._exit(1)", 1),
}


def test_cells_that_never_end_or_end_the_kernel_cost_what_comes_after(tmp_path):
    """In cells of their own, where no check stops them; with short limits, on notebooks that need nothing."""

    def check(name):
        grading = {"grade": True, "grade_id": name, "locked": True, "points": 1, "schema_version": 3}
        return new_code_cell("1 + 1;", metadata={"nbgrader": {**grading, "solution": False, "task": False}})

    shutil.copy(ROOT / "tools" / classroom.CONFIG, tmp_path)
    cells = [check("check_before"), new_code_cell("# own cell"), check("check_after")]
    course_list.write(tmp_path / "source" / "a" / "a.ipynb", notebook.text(notebook.assemble(cells)))
    nbgrader(tmp_path, "generate_assignment", "a")
    for student, (source, _) in OWN_CELLS.items():
        nb = notebook.read(tmp_path / "release" / "a" / "a.ipynb")
        nb.cells[1].source = source
        course_list.write(tmp_path / "submitted" / student / "a" / "a.ipynb", notebook.text(nb))
    limits = {"timeout": 2, "seconds_in_all": 8, "iopub_timeout": 2}
    nbgrader(tmp_path, "autograde", "a", *(f"--Execute.{name}={seconds}" for name, seconds in limits.items()))
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as gradebook:
        points = {submission.student.id: submission.score for submission in gradebook.assignment_submissions("a")}
    assert points == {student: deserved for student, (_, deserved) in OWN_CELLS.items()}
    printed = notebook.read(tmp_path / "autograded" / "never_ends" / "a" / "a.ipynb").cells[1].outputs
    assert sum(len(output.get("text", "")) for output in printed) <= 100_000
    last = notebook.read(tmp_path / "autograded" / "ends_the_kernel" / "a" / "a.ipynb").cells[2]
    assert last.outputs[0].evalue.startswith("Not run")
    counted, ungraded = misconceptions.collect(tmp_path)
    assert counted == {Finding("a", task, "no verdict", ""): 3 for task in ("before", "after")} and not ungraded


def test_a_second_run_leaves_what_a_class_has_alone(tmp_path):
    assert classroom.make(COURSE, tmp_path)
    (tmp_path / classroom.CONFIG).write_text("mine", encoding="utf-8")
    (tmp_path / "gradebook.db").write_text("grades", encoding="utf-8")
    (tmp_path / "source" / NAME / f"{NAME}.ipynb").unlink()
    assert classroom.make(COURSE, tmp_path) == [tmp_path / "source" / NAME / f"{NAME}.ipynb"]
    assert (tmp_path / classroom.CONFIG).read_text(encoding="utf-8") == "mine"
    assert (tmp_path / "gradebook.db").read_text(encoding="utf-8") == "grades"


@pytest.fixture(scope="module")
def edition(folder, tmp_path_factory):
    """The class edition, unpacked."""
    unpacked = tmp_path_factory.mktemp("edition")
    with zipfile.ZipFile(folder / f"{classroom.EDITION}.zip") as archive:
        archive.extractall(unpacked)
    return unpacked / classroom.EDITION


def test_class_edition_has_the_course_without_answers(edition):
    top = {"README.md", "Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"}
    top |= {"notebooks", "exercises", "images", "course_lib", "tools"}
    assert {path.name for path in edition.iterdir()} - {"LICENSE"} == top
    answers = json.loads((ROOT / classroom.ANSWERS).read_text(encoding="utf-8"))
    for path in (path for path in edition.rglob("*") if path.suffix in (".ipynb", ".json", ".py", ".md")):
        text = path.read_text(encoding="utf-8")
        assert exercises.BEGIN not in text, path
        for name, answer in answers.items():
            for secret in answer.values():
                assert secret not in text and json.dumps(secret, ensure_ascii=False)[1:-1] not in text, (path, name)


def test_class_edition_has_no_dead_links(edition):
    pages = [path for pattern in ("*.md", "notebooks/*.ipynb", "exercises/*.ipynb") for path in edition.glob(pattern)]
    assert len(pages) > 3
    assert {path.name: dead for path in pages if (dead := test_links.dead_links(path))} == {}
    readme = (edition / "README.md").read_text(encoding="utf-8")
    assert "make test" not in readme and "solutions/" not in readme and "make lab" in readme


def test_class_edition_works(edition, tmp_path):
    """Its tasks are judged; an answer is not to be had; the commands of its README exist."""
    script = "from course_lib import check; print(check.__file__); check.ema(); check.ema.hint(); check.ema.solution()"
    ran = [sys.executable, "-c", script]
    printed = subprocess.run(ran, cwd=edition, capture_output=True, check=True, text=True, encoding="utf-8").stdout
    assert printed.startswith(str(edition)), "another course_lib was tested"
    assert "Not attempted yet" in printed and "Hint 1" in printed and "class edition" in printed
    subprocess.run([sys.executable, "tools/workspace.py"], cwd=edition, check=True, capture_output=True)
    assert (edition / "work" / "exercises" / f"{NAME}.ipynb").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_class_edition_has_the_targets_that_learners_need(edition):
    def make(*targets):
        return subprocess.run(["make", *targets], cwd=edition, capture_output=True, text=True, encoding="utf-8")

    lab = make("-n", "lab")
    assert lab.returncode == 0 and "pip --disable-pip-version-check install" in lab.stdout
    assert "lesson 00" in make().stdout and "every test" not in make().stdout
    assert make("-n", "test").returncode != 0


def test_the_same_course_makes_the_same_zip():
    first, second = classroom.class_edition(COURSE), classroom.class_edition(COURSE)
    assert first == second and zipfile.ZipFile(io.BytesIO(first)).testzip() is None


def test_class_edition_says_what_it_misses():
    with pytest.raises(CourseError, match="no section 'Start'"):
        classroom._readme("# A\n\n## The lessons\n")
    with pytest.raises(CourseError, match="no rule 'help'"):
        classroom._makefile("lab:\n\techo\n")


def test_timetables_add_up():
    sections = (ROOT / "exercises" / "README.md").read_text(encoding="utf-8").split("| Minutes |")[1:]
    for section, total in zip(sections, (90, 240), strict=True):
        assert sum(int(minutes) for minutes in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)) == total
        assert f"| **{total}** |" in section
        for minutes, name in re.findall(r"^\| (\d+) \| \[.*\]\(\.\./notebooks/(\w+)\.ipynb\)", section, re.MULTILINE):
            assert int(minutes) <= COURSE.lesson(name[:2]).minutes
            assert "topping point" in COURSE.source(COURSE.lesson(name[:2])).read_text(encoding="utf-8")
        for heading in re.findall(r'notebooks/(\w+)\.ipynb\).*"(.+)"', section):
            source = COURSE.source(COURSE.lesson(heading[0][:2])).read_text(encoding="utf-8")
            assert f"# ## {heading[1]}\n" in source


def test_exercise_minutes_of_the_timetables():
    minutes = {
        name: [task.minutes for task in exercises.tasks(exercises.read(COURSE, WRITTEN[name]))]
        for name in (NAME, "04_row_column_factorization")
    }
    assert sum(minutes["04_row_column_factorization"][:2]) == 12 and minutes[NAME][0] == 8
