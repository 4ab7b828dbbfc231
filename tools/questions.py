"""The question bank: `sources/questions.yaml`, checked, as the JSON file that course_lib reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from nbformat import NotebookNode

from course import Course, CourseError, Lesson, write

LETTERS = "ABCD"
TEXTS = ("id", "lesson", "question", "right", "next")
USES = ("discussion", "test")  # the printed sheets that a question can be meant for
CALL = re.compile(r"\b(predict|reveal)\(\s*[\"']([^\"']+)[\"']")


@dataclass(frozen=True)
class Bank:
    """The questions, and what is wrong with them by lesson (None: it is not known of which)."""

    questions: tuple[dict[str, Any], ...]
    problems: tuple[tuple[str | None, str], ...]

    def meant_for(self, use: str) -> list[dict[str, Any]]:
        """The questions of one printed sheet, in the bank's order."""
        return [question for question in self.questions if question.get("use") == use]

    def problems_of(self, lessons: Iterable[Lesson]) -> list[str]:
        """The problems that concern these lessons."""
        ids = {lesson.id for lesson in lessons}
        return [problem for lesson, problem in self.problems if lesson is None or lesson in ids]


def load(course: Course) -> Bank:
    """Read and check the question bank; a question with a problem is left out.

    Raises:
        CourseError: the file is no YAML list.
    """
    try:
        listed = yaml.safe_load((course.root / "sources" / "questions.yaml").read_text(encoding="utf-8")) or []
    except yaml.YAMLError as error:
        raise CourseError(f"sources/questions.yaml cannot be read: {error}") from None
    if not isinstance(listed, list):
        raise CourseError("sources/questions.yaml must be a list: each question begins with `- id: …`.")
    lessons = {lesson.id for lesson in course.lessons}
    good: dict[str, dict[str, Any]] = {}
    problems: list[tuple[str | None, str]] = []
    for place, question in enumerate(listed, start=1):
        where = f"question {question.get('id', place) if isinstance(question, dict) else place}"
        found = list(_problems(question, lessons))
        if not found and question["id"] in good:
            found.append("another question has this id")
        lesson = question.get("lesson") if isinstance(question, dict) else None
        problems += [(lesson if lesson in lessons else None, f"{where}: {problem}") for problem in found]
        if not found:
            good[question["id"]] = question
    return Bank(tuple(good.values()), tuple(problems))


def _problems(question: Any, lessons: set[str]) -> Iterable[str]:
    if not isinstance(question, dict):
        yield "it must have id, lesson, question, options, right and next"
        return
    for key in TEXTS:
        if not _is_text(question.get(key)):
            yield f"{key} must be a text (put numbers in quotes)"
    if unknown := set(question) - {*TEXTS, "options", "use"}:
        yield f"{', '.join(sorted(map(str, unknown)))} means nothing here"
    if question.get("lesson") not in lessons:
        yield f"there is no lesson {question.get('lesson')!r}"
    elif _is_text(question.get("id")) and not question["id"].startswith(f"{question['lesson']}-"):
        yield f"its id must begin with {question['lesson']}-"
    options = question.get("options")
    if not isinstance(options, list) or len(options) != 4:
        yield "there must be exactly four options"
    elif not all(
        isinstance(o, dict) and set(o) == {"text", "belief"} and all(map(_is_text, o.values())) for o in options
    ):
        yield "each option must have text and belief, both texts (put numbers in quotes), and nothing else"
    elif len({option["text"] for option in options}) < 4:
        yield "two options say the same"
    if question.get("right") not in tuple(LETTERS):
        yield "right must be A, B, C or D"
    if question.get("use", USES[0]) not in USES:
        yield f"use must be {' or '.join(USES)}, or be left out"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def text(bank: Bank) -> str:
    """The questions as course_lib reads them: without the test, whose answers nobody should meet by chance."""
    listed = [
        {key: value for key, value in question.items() if key != "use"}
        for question in bank.questions
        if question.get("use") != "test"
    ]
    return json.dumps(listed, ensure_ascii=False, indent=1) + "\n"


def export(course: Course, bank: Bank) -> None:
    """Write the questions where course_lib finds them."""
    write(course.root / "course_lib" / "data" / "questions.json", text(bank))


def check_calls(notebook: NotebookNode, lesson: Lesson, bank: Bank) -> list[str]:
    """Problems with the predictions of one lesson: each asks a question of its own and is answered further down."""
    own = {question["id"] for question in bank.questions if question["lesson"] == lesson.id}
    tested = {question["id"] for question in bank.meant_for("test")}
    asked: set[str] = set()
    answered: set[str] = set()
    problems = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for call, question in CALL.findall(cell.source):
            if question not in own:
                problems.append(f"{call}({question!r}): sources/questions.yaml has no such question for this lesson")
            elif question in tested:
                problems.append(f"{call}({question!r}): this question belongs to the test, so ask another one")
            elif call == "predict":
                asked.add(question)
            elif question not in asked:
                problems.append(f"reveal({question!r}) stands before its predict")
            elif "answer" not in cell.metadata.get("tags", []):
                problems.append(f'reveal({question!r}) gives the answer away: tag its cell with tags=["answer"]')
            else:
                answered.add(question)
    problems += [f"predict({question!r}) is never answered by a reveal" for question in sorted(asked - answered)]
    return [f"{lesson.name}: {problem}" for problem in problems]
