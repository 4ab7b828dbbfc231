"""Build the course: `build.py` for all of it, `build.py 04 05` for these lessons and their exercises.

Each lesson's source becomes an executed notebook, each exercise's one without and one with the answers; glossary,
question bank, pictures and README's course map follow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import checks
import course as course_list
import execution
import exercises
import glossary
import notebook
import pictures
import questions
import readme
import sheets
from course import ROOT, Course, CourseError, Lesson
from exercises import Exercise


def check_sources(course: Course, lessons: Sequence[Lesson], bank: questions.Bank) -> None:
    """What can be said about these lessons without running them.

    Raises:
        CourseError: everything that is wrong.
    """
    made = {lesson: notebook.from_source(course, lesson) for lesson in lessons}
    problems = bank.problems_of(lessons) + glossary.check(course, lessons, glossary.terms(course))
    for lesson, unrun in made.items():
        problems += checks.check(unrun, lesson.name, course.root) + questions.check_calls(unrun, lesson, bank)
    if problems:
        raise CourseError(*problems)


def build_lesson(course: Course, lesson: Lesson) -> float:
    """Execute a lesson, and store its notebook and picture if it keeps every rule; returns the peak memory in MiB.

    Raises:
        CourseError: a cell failed, or a rule is broken; then nothing is written.
    """
    made = notebook.from_source(course, lesson)
    peak = execution.execute(made, lesson.name)
    made.metadata = notebook.METADATA  # without the version of Python that the kernel reports
    if problems := checks.clean(made, lesson.name) + checks.check(made, lesson.name, course.root):
        raise CourseError(*problems)
    pictures.export_lesson(course, lesson, made)
    course_list.write(course.notebook(lesson), notebook.text(made))
    return peak


def build_exercise(course: Course, exercise: Exercise) -> None:
    """Execute an exercise without and with its answers, and store both notebooks if they keep every rule.

    Raises:
        CourseError: a cell failed, or a rule is broken; then nothing is written.
    """
    finished = {}
    for path, made in (
        (exercises.unsolved_path(course, exercise), exercises.unsolved(course, exercise)),
        (exercises.solved_path(course, exercise), exercises.solved(course, exercise)),
    ):
        name = path.relative_to(course.root).with_suffix("").as_posix()
        execution.execute(made, name)
        made.metadata = notebook.METADATA
        if problems := checks.clean(made, name) + checks.check(made, name, course.root):
            raise CourseError(*problems)
        finished[path] = notebook.text(made)
    for path, text in finished.items():
        course_list.write(path, text)


def build_exercises(course: Course, chosen: Sequence[Exercise]) -> None:
    """Build these exercises, after the library's file of answers, which their hints come from.

    Raises:
        CourseError: what is wrong with any of them.
    """
    course_list.write(exercises.answers_path(course), exercises.answers(course))
    problems = []
    for exercise in chosen:
        print(f"exercises {exercise.id} …", flush=True)
        try:
            build_exercise(course, exercise)
        except CourseError as error:
            problems.append(str(error))
    if problems:
        raise CourseError(*problems)


def build(root: Path, ids: Sequence[str], run: bool = True, lessons_too: bool = True) -> None:
    """Build what has these ids, or everything, in the folder `root`.

    Args:
        ids: of lessons, whose exercises are built too, or "capstone".
        run: without it, sources are checked only, and nothing is written.
        lessons_too: without it, only exercises are built.

    Raises:
        CourseError: what is wrong.
    """
    course = course_list.load(root)
    chosen = exercises.select(course, list(ids))
    if not lessons_too:
        build_exercises(course, chosen)
        return
    lessons = course.select(name for name in ids if name != "capstone") if ids else list(course.written)
    bank = questions.load(course)
    check_sources(course, lessons, bank)
    if not run:
        return
    questions.export(course, bank)
    glossary.export(course, glossary.terms(course))
    problems = []
    for lesson in lessons:
        print(f"{lesson.label} …", flush=True)
        try:
            build_lesson(course, lesson)
        except CourseError as error:
            problems.append(str(error))
    try:
        build_exercises(course, chosen)
    except CourseError as error:
        problems.append(str(error))
    if not ids:
        pictures.export_drawn(root / "images", pictures.drawn())
        sheets.export(course, bank)
    readme.export(course)
    if problems:
        raise CourseError(*problems)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lessons", nargs="*", help="ids of lessons, such as 04, or capstone; all if none is given")
    parser.add_argument("--exercises", action="store_true", help="build exercises only, not the lessons")
    parser.add_argument("--no-execute", action="store_true", help="check the sources only, and write nothing")
    options = parser.parse_args()
    try:
        build(ROOT, options.lessons, run=not options.no_execute, lessons_too=not options.exercises)
    except CourseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
