"""The stored exercises and solutions: in step with their sources, without a trace of the answers, and run again."""

import re

import nbformat
import pytest
from nbval_run import validate

import checks
import course as course_list
import exercises
import notebook
from course import CourseError
from course_lib import check
from course_lib.check import _show

COURSE = course_list.load()
WRITTEN = exercises.written(COURSE)
each_exercise = pytest.mark.parametrize("exercise", WRITTEN, ids=lambda exercise: exercise.name)
each_kind = pytest.mark.parametrize(
    ("make", "path"),
    [(exercises.unsolved, exercises.unsolved_path), (exercises.solved, exercises.solved_path)],
    ids=["exercises", "solutions"],
)


def stored(path):
    assert path.exists(), f"{path.relative_to(COURSE.root)} is missing: make build"
    return notebook.read(path)


def outcomes(nb):
    """What the checks of a stored notebook said: task, outcome, belief."""
    outputs = [output for cell in nb.cells for output in cell.get("outputs", [])]
    found = [output.metadata["course_check"] for output in outputs if "course_check" in output.get("metadata", {})]
    return [(one["task"], one["outcome"], one["belief"]) for one in found]


def test_every_lesson_from_02_on_has_an_exercise():
    with_exercise = [exercise.lesson for exercise in WRITTEN if exercise.lesson]
    assert with_exercise == [lesson for lesson in COURSE.written if lesson.id >= "02"]
    assert WRITTEN[-1].id == "capstone"


def test_nothing_else_is_stored():
    for path in (exercises.unsolved_path, exercises.solved_path):
        folder = path(COURSE, WRITTEN[0]).parent
        assert set(folder.glob("*.ipynb")) == {path(COURSE, exercise) for exercise in WRITTEN}


@each_kind
@each_exercise
def test_notebook_is_in_step_with_its_source(exercise, make, path):
    def cells(nb):
        return [(cell.id, cell.cell_type, cell.source, cell.metadata) for cell in nb.cells]

    assert cells(stored(path(COURSE, exercise))) == cells(make(COURSE, exercise)), "sources/ has changed: make build"


@each_kind
@each_exercise
def test_stored_notebook_keeps_the_rules(exercise, make, path):
    nb = stored(path(COURSE, exercise))
    nbformat.validate(nb)
    assert checks.check(nb, exercise.name, COURSE.root) == [] and nb.metadata == notebook.METADATA
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "not run once from top to bottom"


@each_exercise
def test_unsolved_says_not_attempted_and_solved_says_right(exercise):
    tasks = [task.name for task in exercises.tasks(exercises.read(COURSE, exercise))]
    for path, outcome in ((exercises.unsolved_path, "not attempted"), (exercises.solved_path, "correct")):
        assert outcomes(stored(path(COURSE, exercise))) == [(task, outcome, "") for task in tasks]


@each_exercise
def test_no_trace_of_the_answer(exercise):
    text = "\n".join(cell.source for cell in stored(exercises.unsolved_path(COURSE, exercise)).cells)
    lines = {line.strip() for line in text.splitlines()}
    assert exercises.BEGIN not in text and exercises.END not in text
    pieces = exercises.read(COURSE, exercise)
    given = {line.strip() for piece in pieces if piece.role == "code" for line in piece.cell.source.splitlines()}
    for piece in pieces:
        if piece.role == "answer":
            answer = piece.cell.source.partition(exercises.BEGIN)[2].partition(exercises.END)[0]
            answer_lines = {line.strip() for line in answer.splitlines() if len(line.strip()) > 8} - given
            assert answer_lines and not answer_lines & lines
        if piece.role == "why":
            assert piece.cell.source not in text


def test_answers_of_the_library_are_in_step():
    assert exercises.answers_path(COURSE).read_text(encoding="utf-8") == exercises.answers(COURSE), "make build"
    for tasks in check.EXERCISES.values():
        for task in tasks:
            assert getattr(check, task).hints, f"{task} has no hints"


@pytest.mark.parametrize("task", [task for tasks in check.EXERCISES.values() for task in tasks])
def test_texts_of_checks_read_well(task):
    judge = getattr(check, task)
    for text in (judge.praise, *judge.hints, *(belief.says for belief in judge.beliefs)):
        assert text.count("`") % 2 == 0 and "  " not in text and text == text.strip(), text
        assert "*" not in _show.plain(re.sub(r"`[^`]*`", "", text)), f"put code into backquotes: {text}"


@each_kind
@each_exercise
def test_notebook_runs_again_with_the_same_outputs(exercise, make, path, tmp_path):
    status, printed, _ = validate(path(COURSE, exercise), tmp_path)
    assert status == 0, printed


SAMPLE = """\
# %% [markdown] task="one" minutes=3 difficulty="easy" good_for="counting"
# ## Say one
#
# Return 1.

# %%
def one():
    ### BEGIN SOLUTION
    return 1
    ### END SOLUTION

# %% [markdown] tags=["why"]
# It is.

# %%
check.one()
"""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("", ""), r"it has the tasks \['one'\]; an exercise has two to four"),
        ((' difficulty="easy"', ""), "cell 1: a task needs difficulty= beside task="),
        (('"easy"', '"simple"'), "difficulty is one of easy, medium, hard"),
        (("# ## Say", "# Say"), "the text of task one begins with its heading"),
        (("def one", "def two"), "the answer of task one defines the function one"),
        (("check.one", "check.two"), r"the check of task one is called check.two\(\)"),
        ((' tags=["why"]', ""), "task one needs, in this order, its text"),
        ((' task="one" minutes=3', ""), "cell 2: this belongs to a task, and none has been opened"),
    ],
)
def test_a_source_that_is_out_of_order_is_refused(tmp_path, change, complaint):
    course = course_list.Course(tmp_path, "Sample", (), COURSE.lessons)
    exercise = exercises.Exercise("02", "02_sample", "Sample", None)
    exercises.source(course, exercise).parent.mkdir(parents=True)
    exercises.source(course, exercise).write_text(SAMPLE.replace(*change), encoding="utf-8")
    with pytest.raises(CourseError, match=complaint):
        exercises.read(course, exercise)
