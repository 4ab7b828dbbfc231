"""Bring stored notebooks in step with their sources and keep their outputs: `refresh.py`, or `refresh.py 04` for one.

For changes of text, of titles and links, and of the first cell. Outputs are kept, so a notebook whose other code has
changed is refused: only a run, `make build`, makes outputs that belong to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from nbformat import NotebookNode

import checks
import course as course_list
import exercises
import notebook
import readme
import setup_cell
from course import ROOT, Course, CourseError


def refreshed(made: NotebookNode, stored: NotebookNode) -> NotebookNode:
    """`made` with the outputs of `stored`, and the counts of a run from top to bottom.

    Raises:
        CourseError: code has changed, or an output is an error, in which counts stand.
    """
    old = [cell for cell in stored.cells if cell.cell_type == "code" and not _sets_up(cell)]
    new = [cell for cell in made.cells if cell.cell_type == "code" and not _sets_up(cell)]
    if [cell.source for cell in new] != [cell.source for cell in old]:
        raise CourseError("code has changed")
    for cell, before in zip(new, old, strict=True):
        cell.outputs = before.outputs
        if any(output.output_type == "error" for output in cell.outputs):
            raise CourseError("an error is shown, with the count of its cell")
    for count, cell in enumerate((cell for cell in made.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    return made


def _sets_up(cell: NotebookNode) -> bool:
    return setup_cell.TAG in cell.metadata.get("tags", [])


def notebooks(course: Course, ids: Sequence[str]) -> Iterator[tuple[str, Path, NotebookNode]]:
    """The notebooks of these lessons and exercises, or all: their ids, where they lie, and what the sources make."""
    for lesson in course.select(name for name in ids if name != "capstone") if ids else course.written:
        yield lesson.id, course.notebook(lesson), notebook.from_source(course, lesson)
    for exercise in exercises.select(course, list(ids)):
        yield exercise.id, exercises.unsolved_path(course, exercise), exercises.unsolved(course, exercise)
        yield exercise.id, exercises.solved_path(course, exercise), exercises.solved(course, exercise)


def refresh(course: Course, ids: Sequence[str]) -> list[Path]:
    """Refresh what has these ids, or everything; returns the files that have changed.

    Raises:
        CourseError: what could not be refreshed; the rest has been.
    """
    changed, problems = [], []
    for number, path, made in notebooks(course, ids):
        name = path.relative_to(course.root).with_suffix("").as_posix()
        try:
            nb = refreshed(made, notebook.read(path))
        except CourseError as error:
            problems.append(f"{name}: {error}, so it has to be run: make build LESSON={number}")
            continue
        if found := checks.check(nb, name, course.root):
            problems += found
        elif course_list.write(path, notebook.text(nb)):
            changed.append(path)
    readme.export(course)
    if problems:
        raise CourseError(*problems)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", help="ids of lessons, such as 04, or capstone; all if none is given")
    try:
        changed = refresh(course_list.load(), parser.parse_args().ids)
    except CourseError as error:
        sys.exit(str(error))
    for path in changed:
        print(path.relative_to(ROOT).as_posix())
    print(f"{len(changed)} of the notebooks have changed; their outputs are as they were.")


if __name__ == "__main__":
    main()
