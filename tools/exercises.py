"""From the source of an exercise to its notebooks: unsolved for `exercises/`, solved for `solutions/`.

A source is text in jupytext's py:percent format, like a lesson's. A Markdown cell with the metadata `task`, `minutes`,
`difficulty` and `good_for` opens a task; the code cell that holds `### BEGIN SOLUTION` is its answer; a Markdown cell
with the tag `why` gives the reason, which only solutions show; the code cell `check.<task>()` judges it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.preprocessors import ClearSolutions, ComputeChecksums, LockCells

import notebook
import setup_cell
from course import Course, CourseError, Lesson

POINTS = {"easy": 1, "medium": 2, "hard": 3}
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = "raise NotImplementedError"
IMPORT = "from course_lib import check"
HOW = (
    f"In each task, write your answer in place of `{STUB}`, run its cell, then the check below it, as often as you "
    "like: it says which input went wrong and what that looks like. The cell after the check has hints for you and, in "
    "the end, an answer."
)

HINTS = """\
# For a hint, take a # away and run this; once more for the next hint.
# check.{name}.hint()
# check.{name}.solution()"""


@dataclass(frozen=True)
class Exercise:
    """One exercise notebook: that of a lesson, or the capstone, which belongs to none."""

    id: str
    name: str
    title: str
    lesson: Lesson | None


@dataclass(frozen=True)
class Task:
    """What the source says about one task."""

    name: str
    minutes: int
    difficulty: str
    good_for: str

    @property
    def points(self) -> int:
        return POINTS[self.difficulty]


@dataclass(frozen=True)
class Piece:
    """A cell of a source, what it is for (text, code, task, answer, why, check), and the task it belongs to."""

    role: str
    cell: NotebookNode
    task: Task | None


def source(course: Course, exercise: Exercise) -> Path:
    return course.root / "sources" / "exercises" / f"{exercise.name}.py"


def unsolved_path(course: Course, exercise: Exercise) -> Path:
    return course.root / "exercises" / f"{exercise.name}.ipynb"


def solved_path(course: Course, exercise: Exercise) -> Path:
    return course.root / "solutions" / f"{exercise.name}.ipynb"


def answers_path(course: Course) -> Path:
    return course.root / "course_lib" / "data" / "solutions.json"


def written(course: Course) -> list[Exercise]:
    """The exercises whose source exists, in the order of the lessons, the capstone last."""
    of_lessons = [Exercise(lesson.id, lesson.name, lesson.title, lesson) for lesson in course.lessons]
    listed = [*of_lessons, Exercise("capstone", "capstone", notebook.CAPSTONE, None)]
    return [exercise for exercise in listed if source(course, exercise).exists()]


def select(course: Course, ids: list[str]) -> list[Exercise]:
    """The written exercises with these ids, or all of them without any."""
    return [exercise for exercise in written(course) if not ids or exercise.id in ids]


def read(course: Course, exercise: Exercise) -> list[Piece]:
    """The cells of an exercise's source.

    Raises:
        CourseError: what is missing or out of order.
    """
    path = source(course, exercise)
    pieces: list[Piece] = []
    task = None
    for number, cell in enumerate(jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").cells, start=1):
        where = f"sources/exercises/{path.name}, cell {number}"
        if "task" in cell.metadata:
            task = _task(cell, where)
        role = _role(cell)
        if role in ("answer", "why", "check") and task is None:
            raise CourseError(f"{where}: this belongs to a task, and none has been opened before it.")
        pieces.append(Piece(role, cell, task))
    if problems := list(_problems(pieces)):
        raise CourseError(*[f"sources/exercises/{path.name}: {problem}" for problem in problems])
    return pieces


def tasks(pieces: list[Piece]) -> list[Task]:
    """The tasks, in their order."""
    return [piece.task for piece in pieces if piece.role == "task" and piece.task]


def unsolved(course: Course, exercise: Exercise) -> NotebookNode:
    """The notebook for learners and classes, not executed: nbgrader's preprocessors clear answers and lock cells."""

    def make(piece: Piece) -> Iterator[NotebookNode]:
        if piece.role == "why":
            return
        cell = _plain(piece)
        name = piece.task.name if piece.task else ""
        if piece.role == "answer":
            cell.metadata["nbgrader"] = _grading(name)
        yield cell
        if piece.role == "check" and piece.task:
            cell.metadata["nbgrader"] = {**_grading(f"check_{name}"), "grade": True, "points": piece.task.points}
            cell.metadata["nbgrader"] |= {"solution": False, "locked": True}
            yield new_code_cell(HINTS.format(name=name))

    nb = _notebook(course, exercise, make, solution=False)
    for preprocessor in (LockCells(), ClearSolutions(code_stub={"python": STUB}), ComputeChecksums()):
        nb, _ = preprocessor.preprocess(nb, {})
    return notebook.assemble(nb.cells)


def solved(course: Course, exercise: Exercise) -> NotebookNode:
    """The notebook with answers and reasons, not executed."""

    def make(piece: Piece) -> Iterator[NotebookNode]:
        cell = _plain(piece)
        if piece.role == "answer":
            cell.source = _without_markers(cell.source)
        elif piece.role == "why":
            cell.source = f"**Why.** {cell.source}"
        yield cell

    return notebook.assemble(_notebook(course, exercise, make, solution=True).cells)


def for_nbgrader(made: NotebookNode) -> NotebookNode:
    """The source from which `nbgrader generate_assignment` makes this unsolved notebook, without its outputs.

    Between the marks of a solution stands what nbgrader puts there, so that a teacher's folder holds no answers.
    """
    source = copy.deepcopy(made)
    for cell in source.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if cell.metadata.get("nbgrader", {}).get("solution"):
            marked = rf"\g<1>{BEGIN}\n\g<0>\n\g<1>{END}"
            cell.source = re.sub(rf"^([ ]*){re.escape(STUB)}$", marked, cell.source, flags=re.MULTILINE)
    return source


def answers(course: Course) -> str:
    """The text of the library's file of answers: code and reason for each task."""
    found: dict[str, dict[str, str]] = {}
    for exercise in written(course):
        for piece in read(course, exercise):
            if piece.task and piece.role == "answer":
                found[piece.task.name] = {"code": _without_markers(piece.cell.source), "why": ""}
            elif piece.task and piece.role == "why":
                found[piece.task.name]["why"] = piece.cell.source
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _task(cell: NotebookNode, where: str) -> Task:
    try:
        task = Task(*(cell.metadata[key] for key in ("task", "minutes", "difficulty", "good_for")))
    except KeyError as error:
        raise CourseError(f"{where}: a task needs {error.args[0]}= beside task=.") from None
    if task.difficulty not in POINTS or not isinstance(task.minutes, int):
        raise CourseError(f"{where}: difficulty is one of {', '.join(POINTS)}, and minutes is a whole number.")
    return task


def _role(cell: NotebookNode) -> str:
    if "task" in cell.metadata:
        return "task"
    if "why" in cell.metadata.get("tags", []):
        return "why"
    if cell.cell_type == "code" and BEGIN in cell.source:
        return "answer"
    if cell.cell_type == "code" and re.fullmatch(r"check\.\w+\(\)", cell.source.strip()):
        return "check"
    return "text" if cell.cell_type == "markdown" else "code"


def _problems(pieces: list[Piece]) -> Iterator[str]:
    names = [task.name for task in tasks(pieces)]
    if not 2 <= len(names) <= 4 or len(set(names)) < len(names):
        yield f"it has the tasks {names}; an exercise has two to four, of different names"
    for task in tasks(pieces):
        own = [piece for piece in pieces if piece.task == task and piece.role not in ("text", "code")]
        if [piece.role for piece in own] != ["task", "answer", "why", "check"]:
            yield f"task {task.name} needs, in this order, its text, its answer, a cell tagged why, and its check"
            continue
        text, answer, _, check = (piece.cell.source for piece in own)
        if not text.startswith("## "):
            yield f"the text of task {task.name} begins with its heading, ## and a few words"
        if not re.search(rf"^def {task.name}\(", answer, re.MULTILINE) or END not in answer:
            yield f"the answer of task {task.name} defines the function {task.name}, with its solution up to {END}"
        if check.strip() != f"check.{task.name}()":
            yield f"the check of task {task.name} is called {check.strip()}"


def _plain(piece: Piece) -> NotebookNode:
    """The cell as both notebooks have it, without the source's own metadata."""
    cell = copy.deepcopy(piece.cell)
    tags = [tag for tag in cell.metadata.get("tags", []) if tag != "why"]
    cell.metadata = {"tags": [*tags, "nbval-ignore-output"]} if "varies" in tags else {"tags": tags} if tags else {}
    if piece.role == "check":
        cell.source = f"{IMPORT}\n\n{cell.source}"
    return cell


def _notebook(
    course: Course, exercise: Exercise, make: Callable[[Piece], Iterator[NotebookNode]], solution: bool
) -> NotebookNode:
    pieces = read(course, exercise)
    cells = [new_markdown_cell(_title(course, exercise, tasks(pieces), solution)), setup_cell.cell(course)]
    number = 0
    for piece in pieces:
        made = list(make(piece))
        if piece.role == "task" and piece.task:
            number += 1
            made[0].source = _heading(made[0].source, piece.task, number)
        cells += made
    if not solution:
        names = ", ".join(f'"{task.name}"' for task in tasks(pieces))
        cells.append(new_code_cell(f"{IMPORT}\n\ncheck.progress({names})"))
    cells.append(new_markdown_cell(_footer(course, exercise)))
    return new_notebook(cells=cells, metadata=notebook.METADATA)


def _title(course: Course, exercise: Exercise, listed: list[Task], solution: bool) -> str:
    kind = "Solutions" if solution else "Exercises"
    label = (
        f"{kind} {exercise.lesson.label}" if exercise.lesson else exercise.title + (": solutions" if solution else "")
    )
    minutes, points = sum(task.minutes for task in listed), sum(task.points for task in listed)
    path = solved_path(course, exercise) if solution else unsolved_path(course, exercise)
    line = f"*{minutes} minutes · {len(listed)} tasks · {points} points*{notebook.open_in_colab(course, path)}"
    if solution:
        return f"# {label}\n\n{line}\n\nOne right answer to each task, and why it is right. Yours may look different."
    return f"# {label}\n\n{line}\n\n{HOW}"


def _heading(text: str, task: Task, number: int) -> str:
    head, _, rest = text.partition("\n")
    points = f"{task.points} point{'s' * (task.points != 1)}"
    line = f"*{task.minutes} minutes · {task.difficulty} · {points} · good for: {task.good_for}*"
    return f"## Task {number} · {head.removeprefix('## ')}\n\n{line}\n\n{rest.strip()}".rstrip()


def _footer(course: Course, exercise: Exercise) -> str:
    lines = []
    if exercise.lesson:
        lines.append(f"**Back to the lesson:** [{exercise.lesson.label}](../notebooks/{exercise.name}.ipynb)")
    else:
        first = course.lessons[0]
        lines.append(f"**The lessons:** [{first.label}](../notebooks/{first.name}.ipynb) and what follows")
    listed = written(course)
    place = listed.index(exercise)
    if place + 1 < len(listed):
        following = listed[place + 1]
        label = following.lesson.label if following.lesson else following.title
        lines.append(f"**Next exercises:** [{label}]({following.name}.ipynb)")
    lines.append("**Look up a term:** [Glossary](../notebooks/glossary.ipynb)")
    return "---\n\n" + "\n".join(f"- {line}" for line in lines)


def _grading(grade_id: str) -> dict:
    """nbgrader's metadata of an answer cell."""
    return {"grade": False, "grade_id": grade_id, "locked": False, "schema_version": 3, "solution": True, "task": False}


def _without_markers(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() not in (BEGIN, END))
