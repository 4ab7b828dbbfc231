"""The parts of README that come from the list of lessons."""

from __future__ import annotations

import html
import re
from pathlib import Path

import exercises
import notebook
import pictures
from course import Course, CourseError, Lesson, write
from exercises import Exercise

BEGIN = "<!-- course map: written by the build from sources/course.yaml -->"
END = "<!-- end of the course map -->"


def course_map(course: Course) -> str:
    """The table of lessons: picture, title and summary, exercises, minutes; the capstone comes last."""
    rows = ["| | Lesson | Minutes |", "|---|---|---:|"]
    found = {exercise.lesson: exercise for exercise in exercises.written(course)}
    for lesson in course.lessons:
        path = course.notebook(lesson)
        title = f"[{lesson.label}](notebooks/{path.name})" if path.exists() else lesson.label
        colab = f"<br>{_in_colab(course, path)}" if path.exists() and course.repository else ""
        tasks = f"<br>{_link(course, found[lesson], 'Exercises')}" if lesson in found else ""
        rows.append(
            f"| {_picture(course, lesson)} | **{title}**<br>{lesson.summary}{colab}{tasks} | {lesson.minutes} |"
        )
    if None in found:
        rows.append(f"| | **{_link(course, found[None], found[None].title)}** | |")
    total = sum(lesson.minutes for lesson in course.lessons)
    rows.append(f"| | | {total // 60} h {total % 60:02d} |")
    route = " → ".join(course.short_route)
    minutes = sum(lesson.minutes for lesson in course.select(course.short_route))
    return "\n".join(rows) + f"\n\nThe short route, in {minutes} minutes: {route}."


def _link(course: Course, exercise: Exercise, text: str) -> str:
    """A link to an exercise, and how long its tasks take."""
    minutes = sum(task.minutes for task in exercises.tasks(exercises.read(course, exercise)))
    link = f"[{text}](exercises/{exercise.name}.ipynb), {minutes} minutes"
    in_colab = _in_colab(course, exercises.unsolved_path(course, exercise))
    return f"{link}, {in_colab}" if in_colab else link


def _in_colab(course: Course, path: Path) -> str:
    """A link that opens a notebook in Colab, if it is public."""
    return f"[open in Colab]({address})" if (address := course.colab(path)) else ""


def _picture(course: Course, lesson: Lesson) -> str:
    """The lesson's picture as HTML with its description, or nothing."""
    path, picture = course.notebook(lesson), course.picture(lesson)
    if not path.exists() or not picture.exists() or (output := pictures.of_lesson(notebook.read(path))) is None:
        return ""
    alt = html.escape(pictures.alt(output), quote=True).replace("|", "&#124;")
    return f'<img src="images/{picture.name}" width="240" alt="{alt}">'


def with_map(text: str, course: Course) -> str:
    """`text` of README with the course map between its markers.

    Raises:
        CourseError: the markers are missing.
    """
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(text):
        raise CourseError(f"README.md needs the two lines {BEGIN} and {END}; the course map goes between them.")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{course_map(course)}\n\n{END}", text)


def export(course: Course) -> None:
    """Bring the course map in README up to date."""
    path = course.root / "README.md"
    write(path, with_map(path.read_text(encoding="utf-8"), course))
