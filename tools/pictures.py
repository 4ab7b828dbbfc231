"""The pictures in `images/`: drawn explanations as SVG, and one PNG for each lesson."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name

from nbformat import NotebookNode

from course import Course, CourseError, Lesson, write


def of_lesson(notebook: NotebookNode) -> NotebookNode | None:
    """The output whose PNG is the lesson's picture: the first one of the cell with the tag `picture`.

    Raises:
        CourseError: several cells have the tag, or the cell shows no picture.
    """
    cells = [cell for cell in notebook.cells if "picture" in cell.metadata.get("tags", [])]
    if not cells:
        return None
    outputs = [output for output in cells[0].get("outputs", []) if "image/png" in output.get("data", {})]
    if len(cells) > 1 or not outputs:
        raise CourseError('The tag "picture" belongs to one cell of a lesson, and that cell must show a picture.')
    return outputs[0]


def alt(output: NotebookNode) -> str:
    """What a picture shows, in words."""
    return output.metadata["image/png"]["alt"]


def export_lesson(course: Course, lesson: Lesson, notebook: NotebookNode) -> None:
    """Write the lesson's picture to `images/`, if it has one."""
    if (output := of_lesson(notebook)) is not None:
        write(course.picture(lesson), base64.b64decode(output.data["image/png"]))


def drawn() -> dict[str, str]:
    """The names of the diagrams to export, and where the function for each lies."""
    from course_lib import diagrams

    return diagrams.EXPORTS


def render(exports: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """For each diagram its name, its SVG, and what it shows in words.

    The SVG is the same each time: no date in it, and ids from a fixed salt.
    """
    import matplotlib

    for name, target in exports.items():
        fig, description = resolve_name(target)()
        buffer = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": name}):
            fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Title": description})
        # matplotlib leaves blanks at the ends of lines
        yield name, "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n", description


def export_drawn(folder: Path, exports: Mapping[str, str]) -> None:
    """Write every diagram as `folder/<name>.svg`."""
    for name, svg, _ in render(exports):
        write(folder / f"{name}.svg", svg)
