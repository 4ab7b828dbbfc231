"""The one list of lessons, `sources/course.yaml`, and where the files of each lesson lie."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]

# What a terminal cannot show, such as the dot in a lesson's label, becomes a question mark, and no error.
if hasattr(sys.stdout, "reconfigure"):
    sys.stdout.reconfigure(errors="replace")


class CourseError(Exception):
    """What is wrong with the course's sources, in sentences that say what to do."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Lesson:
    """One entry of the list."""

    id: str
    slug: str
    title: str
    minutes: int
    needs: tuple[str, ...]
    summary: str
    goals: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file name of everything that belongs to the lesson, without its suffix."""
        return f"{self.id}_{self.slug}"

    @property
    def label(self) -> str:
        """How the lesson is called in headings and links."""
        return f"{self.id} · {self.title}"


@dataclass(frozen=True)
class Course:
    """The list of lessons of the course that lies in the folder `root`.

    `repository` is the public one on GitHub, as "owner/name", or empty while there is none.
    """

    root: Path
    title: str
    short_route: tuple[str, ...]
    lessons: tuple[Lesson, ...]
    repository: str = ""
    branch: str = "main"

    def source(self, lesson: Lesson) -> Path:
        return self.root / "sources" / "lessons" / f"{lesson.name}.py"

    def exercise_source(self, lesson: Lesson) -> Path:
        return self.root / "sources" / "exercises" / f"{lesson.name}.py"

    def notebook(self, lesson: Lesson) -> Path:
        return self.root / "notebooks" / f"{lesson.name}.ipynb"

    def picture(self, lesson: Lesson) -> Path:
        return self.root / "images" / f"{lesson.name}.png"

    def colab(self, path: Path) -> str:
        """The address at which Colab opens the notebook at `path`; empty while there is no public repository."""
        if not self.repository:
            return ""
        place = path.relative_to(self.root).as_posix()
        return f"https://colab.research.google.com/github/{self.repository}/blob/{self.branch}/{place}"

    @property
    def glossary(self) -> Path:
        return self.root / "notebooks" / "glossary.ipynb"

    @property
    def written(self) -> tuple[Lesson, ...]:
        """The lessons whose source exists."""
        return tuple(lesson for lesson in self.lessons if self.source(lesson).exists())

    def lesson(self, lesson_id: str) -> Lesson:
        return self.select([lesson_id])[0]

    def select(self, ids: Iterable[str]) -> list[Lesson]:
        """The lessons with these ids, in the given order.

        Raises:
            CourseError: there is no such lesson.
        """
        known = {lesson.id: lesson for lesson in self.lessons}
        for lesson_id in (ids := list(ids)):
            if lesson_id not in known:
                raise CourseError(f"There is no lesson {lesson_id!r}; sources/course.yaml has {', '.join(known)}.")
        return [known[lesson_id] for lesson_id in ids]


def load(root: Path = ROOT) -> Course:
    """Read `sources/course.yaml`.

    Raises:
        CourseError: an id appears twice, a lesson needs one that does not stand before it, or the public repository
            is named in another way than owner/name.
    """
    listed = yaml.safe_load((root / "sources" / "course.yaml").read_text(encoding="utf-8"))
    lessons = [
        Lesson(**{**entry, "needs": tuple(entry["needs"]), "goals": tuple(entry["goals"])})
        for entry in listed["lessons"]
    ]
    seen: set[str] = set()
    for lesson in lessons:
        if lesson.id in seen:
            raise CourseError(f"sources/course.yaml has two lessons {lesson.id!r}; give one of them another id.")
        if missing := [need for need in lesson.needs if need not in seen]:
            raise CourseError(f"sources/course.yaml: lesson {lesson.id} needs {missing}, which do not stand before it.")
        seen.add(lesson.id)
    repository, branch = listed.get("repository") or "", listed.get("branch") or "main"
    if repository and not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise CourseError(f"sources/course.yaml: repository is {repository!r}; write owner/name, as in ada/adafactor.")
    return Course(root, listed["title"], tuple(listed["short_route"]), tuple(lessons), repository, branch)


def write(path: Path, content: str | bytes) -> bool:
    """Put `content` into a file at one stroke, so that nobody reads a half-written one; True if anything changed.

    A file that has this content already keeps its date.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)  # mkstemp makes files that only their owner can read
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True
