"""Run stored lessons headless: `run.py` for all, `run.py 04` for one. Prints seconds, peak memory and result of each.

The peak is that of the kernel's resident set, in MiB, everything it loads included (torch alone takes a few hundred).
Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import course as course_list
import execution
import notebook
from course import Course, CourseError, Lesson


def run_lesson(course: Course, lesson: Lesson) -> tuple[float, float]:
    """Execute the stored notebook of a lesson in a kernel of its own; returns its seconds and its peak memory in MiB.

    Raises:
        CourseError: a cell failed, or the lesson has not been built.
    """
    path = course.notebook(lesson)
    if not path.exists():
        raise CourseError(f"notebooks/{path.name} is missing; make it with `make build LESSON={lesson.id}`.")
    start = time.monotonic()
    peak = execution.execute(notebook.read(path), lesson.name)
    return time.monotonic() - start, peak


def run(course: Course, lessons: Sequence[Lesson]) -> list[str]:
    """Run these lessons one after the other and print the table; returns what went wrong."""
    failures: list[str] = []
    width = max(len(lesson.label) for lesson in lessons)
    print(f"{'lesson':{width}}  seconds  peak MiB  result")
    for lesson in lessons:
        try:
            seconds, peak = run_lesson(course, lesson)
            print(f"{lesson.label:{width}}  {seconds:7.1f}  {peak:8.0f}  passed", flush=True)
        except CourseError as error:
            failures.append(str(error))
            print(f"{lesson.label:{width}}  {'':7}  {'':8}  FAILED", flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lessons", nargs="*", help="ids of lessons, such as 04; all if none is given")
    ids = parser.parse_args().lessons
    try:
        course = course_list.load()
        lessons = course.select(ids) if ids else course.lessons
    except CourseError as error:
        sys.exit(str(error))
    if failures := run(course, lessons):
        sys.exit("\n" + "\n".join(failures))


if __name__ == "__main__":
    main()
