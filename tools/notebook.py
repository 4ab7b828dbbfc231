"""From the source of a lesson to its notebook, not executed: generated title, setup and footer, cell ids, metadata."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

import setup_cell
from course import Course, CourseError, Lesson

# Tags that a source may use, and what the build makes of each in the notebook.
TAGS = {
    "answer": "the cell answers a prediction; its stored output is collapsed",
    "varies": "the output differs between runs or machines and is not compared",
    "picture": "its PNG is the lesson's picture in README",
    "raises-exception": "the cell ends in an error on purpose",
}
# No version of Python: it would change with whoever builds.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

CAPSTONE = "Capstone: fit a training into a budget"


def from_source(course: Course, lesson: Lesson) -> NotebookNode:
    """The notebook of a lesson, without outputs.

    Raises:
        CourseError: the source is missing, or a cell has a tag that means nothing.
    """
    path = course.source(lesson)
    if not path.exists():
        raise CourseError(f"sources/lessons/{path.name} is missing; write it, or build other lessons.")
    import jupytext  # not sooner: `make run` needs this module, and a learner's environment has no jupytext

    cells = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent").cells
    for number, cell in enumerate(cells, start=1):
        cell.metadata = _cell_metadata(cell, f"{path.name}, cell {number}")
    head = [new_markdown_cell(title(course, lesson)), setup_cell.cell(course)]
    return assemble([*head, *cells, new_markdown_cell(footer(course, lesson))])


def assemble(cells: list[NotebookNode]) -> NotebookNode:
    """A notebook of these cells, with ids that depend on nothing but what stands in them."""
    seen: Counter[str] = Counter()
    for cell in cells:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] += 1
        cell.id = f"{digest}-{seen[digest]}"
    return new_notebook(cells=cells, metadata=METADATA)


def _cell_metadata(cell: NotebookNode, where: str) -> dict:
    """The metadata of a cell of the notebook, from its tags in the source."""
    tags = list(cell.metadata.get("tags", []))
    if unknown := [tag for tag in tags if tag not in TAGS]:
        raise CourseError(f"{where}: the tag {unknown[0]!r} means nothing; there are {', '.join(TAGS)}.")
    if "varies" in tags:
        tags.append("nbval-ignore-output")
    metadata: dict = {"tags": tags} if tags else {}
    if "answer" in tags:
        metadata["jupyter"] = {"outputs_hidden": True}
    return metadata


def title(course: Course, lesson: Lesson) -> str:
    """The first cell: title, minutes, what is needed before, goals."""
    needs = ", ".join(link(course, need) for need in course.select(lesson.needs))
    before = f"before this: {needs}" if needs else "nothing needed before"
    goals = "\n".join(f"- {goal}" for goal in lesson.goals)
    line = f"*{lesson.minutes} minutes · {before}*{open_in_colab(course, course.notebook(lesson))}"
    return f"# {lesson.label}\n\n{line}\n\n**You will be able to**\n\n{goals}"


def open_in_colab(course: Course, path: Path) -> str:
    """What follows the line under a notebook's title: a link that opens it in Colab, if it is public."""
    return f"\n\n[Open in Colab]({address})" if (address := course.colab(path)) else ""


def footer(course: Course, lesson: Lesson) -> str:
    """The last cell: where to go from here."""
    place = course.lessons.index(lesson)
    lines = []
    if course.exercise_source(lesson).exists():
        lines.append(f"**Exercise:** [{lesson.label}](../exercises/{lesson.name}.ipynb)")
    if lesson == course.written[-1] and (course.root / "sources" / "exercises" / "capstone.py").exists():
        lines.append(f"**When you have done all exercises:** [{CAPSTONE}](../exercises/capstone.ipynb)")
    if place + 1 < len(course.lessons):
        lines.append(f"**Next:** {link(course, course.lessons[place + 1])}")
    if place:
        lines.append(f"**Previous:** {link(course, course.lessons[place - 1])}")
    lines.append("**Look up a term:** [Glossary](glossary.ipynb)")
    return "---\n\n" + "\n".join(f"- {line}" for line in lines)


def link(course: Course, lesson: Lesson) -> str:
    """A link to a lesson from another one; its name alone while it is not written."""
    return f"[{lesson.label}]({lesson.name}.ipynb)" if course.source(lesson).exists() else lesson.label


def text(notebook: NotebookNode) -> str:
    """A notebook as the text of its file."""
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def read(path: Path) -> NotebookNode:
    """A stored notebook."""
    return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
