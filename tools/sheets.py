"""The printed material for teachers, as PDF in `sheets/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import question_sheets
import worksheet
from course import Course, write
from questions import Bank

# File name, what makes it, and which of the bank's questions it takes.
QUESTIONS: dict[str, tuple[Callable[..., bytes], str]] = {
    "discussion_questions": (question_sheets.discussion, "discussion"),
    "discussion_to_show": (question_sheets.discussion_to_show, "discussion"),
    "test": (question_sheets.test, "test"),
    "test_key": (question_sheets.test_key, "test"),
}


def render(course: Course, bank: Bank) -> Iterator[tuple[str, bytes]]:
    """Each sheet: its file name and its PDF."""
    for name, (make, use) in QUESTIONS.items():
        yield f"{name}.pdf", make(course, bank.meant_for(use))
    yield "worksheet.pdf", worksheet.worksheet(course)


def export(course: Course, bank: Bank) -> None:
    """Write every sheet to `sheets/`."""
    for name, pdf in render(course, bank):
        write(course.root / "sheets" / name, pdf)
