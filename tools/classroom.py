"""Make `classroom/`: nbgrader's course folder, and the class edition, the course without answers, as a zip.

What is there already of a class, its gradebook and what was handed in, is left alone; so is a configuration that
somebody has changed.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import zipfile
from pathlib import Path

import course as course_list
import exercises
import notebook
import setup_cell
from course import ROOT, Course, CourseError, write

CONFIG = "nbgrader_config.py"
EDITION = setup_cell.ZIP  # a notebook's first cell takes this zip in Colab, too
# Of the course, what a learner needs; and what of it holds answers.
LEARNERS = (
    "LICENSE",
    "requirements.txt",
    "constraints.txt",
    "pyproject.toml",
    "notebooks/*.ipynb",
    "exercises/*.ipynb",
    "images/*",
    "course_lib/**/*.py",
    "course_lib/data/*.json",
    "tools/course.py",
    "tools/workspace.py",
)
ANSWERS = "course_lib/data/solutions.json"
# README's sections that a learner needs, and Makefile's rules.
SECTIONS = ("Start", "The lessons", "Troubleshooting", "Sources and thanks")
RULES = ("help", "lab", "clean", ".venv/python", ".venv/learner")
WELCOME = """\
This is the class edition: the lessons and exercises, without their solutions. All of it runs on a laptop, without a GPU
and, once it is installed, without a network.

**To hand in** an exercise, save its notebook, copy it from `work/exercises/`, and put your name and an underscore
before the copy's name: `ada_02_moving_averages.ipynb`. Your teacher says which name to use, and where to send it.
"""
NEXT = """
Hand out {edition}.zip. Then, for each exercise, here {name}:

  cd classroom
  ../.venv/bin/nbgrader generate_assignment {name}
  # put what was handed in into downloaded/{name}/archive/, then:
  ../.venv/bin/nbgrader zip_collect {name}
  # this runs the learners' code; exercises/README.md says where to do that:
  ../.venv/bin/nbgrader autograde {name}
  ../.venv/bin/nbgrader generate_feedback {name}
  ../.venv/bin/nbgrader export
  ../.venv/bin/python ../tools/misconceptions.py
"""


def make(course: Course, folder: Path) -> list[Path]:
    """Write the class's folder; returns its files that are new or have changed.

    Raises:
        CourseError: an exercise has not been built, or README or Makefile lacks what the class edition takes from it.
    """
    changed = []
    config = folder / CONFIG
    if not config.exists():
        write(config, (course.root / "tools" / CONFIG).read_bytes())
        changed.append(config)
    for exercise in exercises.written(course):
        path = folder / "source" / exercise.name / f"{exercise.name}.ipynb"
        stored = exercises.unsolved_path(course, exercise)
        if not stored.exists():
            raise CourseError(f"exercises/{stored.name} is missing; run `make build LESSON={exercise.id}`.")
        if write(path, notebook.text(exercises.for_nbgrader(notebook.read(stored)))):
            changed.append(path)
    edition = folder / f"{EDITION}.zip"
    if write(edition, class_edition(course)):
        changed.append(edition)
    return changed


def class_edition(course: Course) -> bytes:
    """The zip of the course without its answers: the same bytes for the same course."""
    paths = {path for pattern in LEARNERS for path in course.root.glob(pattern) if path.is_file()}
    contents = {path.relative_to(course.root).as_posix(): path.read_bytes() for path in paths}
    del contents[ANSWERS]
    contents["README.md"] = _readme((course.root / "README.md").read_text(encoding="utf-8")).encode()
    contents["Makefile"] = _makefile((course.root / "Makefile").read_text(encoding="utf-8")).encode()
    return archive(contents)


def archive(contents: dict[str, bytes]) -> bytes:
    """A zip of these files, in one folder: the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{EDITION}/{name}")  # of 1980, whenever it is made
            entry.external_attr = 0o644 << 16
            file.writestr(entry, contents[name], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _readme(text: str) -> str:
    """README for learners: its title, a welcome, and the sections that a class needs."""
    title, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    named = {section.splitlines()[0].removeprefix("## "): section for section in sections}
    if missing := [name for name in SECTIONS if name not in named]:
        raise CourseError(f"README.md has no section {missing[0]!r}, which the class edition takes from it.")
    kept = "".join(named[name] for name in SECTIONS)
    kept, tests = re.subn(r"^make test .*\n", "", kept, flags=re.MULTILINE)
    kept, count = re.subn(r"Two commands:", "One command:", kept)
    if (tests, count) != (1, 1):
        raise CourseError(
            "README.md does not say `Two commands:` and then `make test`; see _readme in tools/classroom.py."
        )
    return f"{title.splitlines()[0]}\n\n{WELCOME}\n{kept.rstrip()}\n"


def _makefile(text: str) -> str:
    """Makefile for learners: its head, and the rules they need."""
    kept, found = [], set()
    for paragraph in text.split("\n\n"):
        rule = re.search(r"^([^\s:=]+):(?!=)", paragraph, flags=re.MULTILINE)
        if rule and rule[1] == ".PHONY":
            names = [name for name in paragraph.removeprefix(".PHONY:").split() if name in RULES]
            kept.append(f".PHONY: {' '.join(names)}")
        elif rule is None or rule[1] in RULES:
            kept.append(paragraph.strip("\n"))
            found |= {rule[1]} if rule else set()
    if missing := [name for name in RULES if name not in found]:
        raise CourseError(f"Makefile has no rule {missing[0]!r}, which the class edition takes from it.")
    return "\n\n".join(kept) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "classroom", help="another folder for the class")
    folder = parser.parse_args().folder
    course = course_list.load()
    try:
        changed = make(course, folder)
    except CourseError as error:
        sys.exit(str(error))
    print(f"{folder.name}/: {len(changed)} new or changed {'file' if len(changed) == 1 else 'files'}.")
    for path in changed:
        print(f"  {path.relative_to(folder).as_posix()}")
    if (folder / CONFIG).read_bytes() != (ROOT / "tools" / CONFIG).read_bytes():
        print(f"Your {CONFIG} differs from the course's, and was kept.")
        print("To get the course's, delete yours and run this again.")
    print(NEXT.format(edition=EDITION, name=exercises.written(course)[0].name))


if __name__ == "__main__":
    main()
