"""The sheets that are made of questions: for discussions in class, and the test before and after the course."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reportlab.lib.colors import black, white
from reportlab.lib.units import mm
from reportlab.platypus import Flowable, KeepTogether, PageBreak, Spacer, Table

from course import Course
from paper import BOLD, LINE, MUTED, REGULAR, WIDTH, document, text
from questions import CALL, LETTERS

Question = dict[str, Any]

VOTES = (
    "Show the question. Everybody thinks alone for a minute and writes a letter down.",
    "All show their letters at once: fingers or cards. Note the counts in the left boxes.",
    "If between a third and two thirds are right, let neighbours with different letters convince each other for two "
    "minutes, then vote again: the right boxes. If fewer are right, give a hint first; if more, go on to step 4.",
    "Ask what speaks for each letter before you say which is right. Under each stands what to reply to whoever chose "
    "it, and behind the arrow what to do next. Some lessons ask the same question: then run their cells.",
)  # fmt: skip
TICKS = {
    "colWidths": [7 * mm, 7 * mm, 6 * mm, WIDTH - 20 * mm],
    "style": [
        ("FONT", (1, 0), (1, -1), REGULAR, 14), ("VALIGN", (0, 0), (-1, -1), "MIDDLE"),
        ("LEFTPADDING", (0, 0), (-1, -1), 0), ("RIGHTPADDING", (0, 0), (-1, -1), 0),
        ("BOTTOMPADDING", (1, 0), (1, -1), 6),
    ],
}  # fmt: skip
SOURCE = "The method: Crouch & Mazur 2001, Peer Instruction: Ten years of experience and results, Am. J. Phys. 69."


def discussion(course: Course, questions: Sequence[Question]) -> bytes:
    """The teacher's sheet: each question with replies to its four answers, and boxes for the counts of two votes."""
    title = "Discussion questions, for the teacher"
    asked = _asked(course)
    story: list[Flowable] = [text(title, 17, bold=True, after=8)]
    story += [_row(f"{number}.", text(words, 9)) for number, words in enumerate(VOTES, start=1)]
    story += [text(SOURCE, 7.5, color=MUTED, after=4)]
    for number, question in enumerate(questions, start=1):
        lesson = course.lesson(question["lesson"])
        where = f"Lesson {lesson.label}" + (", which asks it too" if question["id"] in asked else "")
        block = [*_head(number, question, where), _replies(question), Spacer(0, 2)]
        story.append(KeepTogether([*block, _row("→", text(question["next"], 9))]))
    return document(title, course.title, story)


def discussion_to_show(course: Course, questions: Sequence[Question]) -> bytes:
    """The same questions to be projected: one on a page, large, without answers."""
    story: list[Flowable] = []
    for number, question in enumerate(questions, start=1):
        story += [text(f"{number}", 20, color=MUTED, after=6), text(question["question"], 24, bold=True), Spacer(0, 24)]
        options = [[letter, text(option["text"], 21)] for letter, option in _lettered(question)]
        look = [("FONT", (0, 0), (0, -1), BOLD, 21), ("VALIGN", (0, 0), (-1, -1), "TOP")]
        look += [("BOTTOMPADDING", (0, 0), (-1, -1), 14), ("LEADING", (0, 0), (0, -1), 21 * 1.35)]
        story += [Table(options, colWidths=[14 * mm, 247 * mm], style=[*look, ("LEFTPADDING", (0, 0), (0, -1), 0)])]
        story += [PageBreak()] if number < len(questions) else []
    return document("Discussion questions", course.title, story, sideways=True)


def test(course: Course, questions: Sequence[Question]) -> bytes:
    """The learner's test, with boxes to tick."""
    title = "What do you think?"
    when = Table(
        [["Name", "", "Date", "", "☐ before the course   ☐ after it"]],
        colWidths=[13 * mm, 55 * mm, 12 * mm, 32 * mm, WIDTH - 112 * mm],
        style=[
            ("FONT", (0, 0), (-1, -1), REGULAR, 9.5), ("LEFTPADDING", (0, 0), (0, 0), 0),
            ("LINEBELOW", (1, 0), (1, 0), 0.6, LINE), ("LINEBELOW", (3, 0), (3, 0), 0.6, LINE),
            ("ALIGN", (4, 0), (4, 0), "RIGHT"), ("RIGHTPADDING", (4, 0), (4, 0), 0),
        ],
    )  # fmt: skip
    how = "Tick one box for each question. If you have no idea, leave all four empty: that is an answer, too."
    story: list[Flowable] = [text(title, 17, bold=True, after=10), when, Spacer(0, 12), text(how, after=4)]
    for number, question in enumerate(questions, start=1):
        options = [["", "☐", text(letter, 10), text(option["text"], 10)] for letter, option in _lettered(question)]
        story.append(KeepTogether([*_head(number, question, "", 10.5), Table(options, **TICKS), Spacer(0, 8)]))
    return document(title, course.title, story)


def test_key(course: Course, questions: Sequence[Question]) -> bytes:
    """The teacher's key to the test: right letters first, then what each answer says about whoever chose it."""
    title = "Key to the test “What do you think?”"
    how = (
        "Give the test before the course and again after it, and compare question by question. A wrong letter that "
        "stays is worth more than the sum of points: under it stands what the learner probably believes."
    )
    cells = [[str(number) for number in range(1, len(questions) + 1)], [question["right"] for question in questions]]
    look = [("ALIGN", (0, 0), (-1, -1), "CENTER"), ("GRID", (0, 0), (-1, -1), 0.6, LINE)]
    look += [("FONT", (0, 0), (-1, 0), REGULAR, 9), ("FONT", (0, 1), (-1, 1), BOLD, 11)]
    story: list[Flowable] = [text(title, 17, bold=True, after=8), text(how, 9, after=8)]
    story += [Table(cells, colWidths=12 * mm, rowHeights=7 * mm, hAlign="LEFT", style=look)]
    for number, question in enumerate(questions, start=1):
        where = f"Lesson {course.lesson(question['lesson']).label}"
        block = [*_head(number, question, where), _replies(question, votes=False), Spacer(0, 2)]
        story.append(KeepTogether([*block, _row("→", text(question["next"], 9))]))
    return document(title, course.title, story)


def _head(number: int, question: Question, where: str, size: float = 10) -> list[Flowable]:
    above = [Spacer(0, 12), text(where, 7.5, color=MUTED, after=1)] if where else [Spacer(0, 14)]
    return [*above, _row(f"{number}", text(question["question"], size, bold=True, after=4), bold=True, size=size)]


def _replies(question: Question, votes: bool = True) -> Table:
    """The four options, each with its reply; the right letter is white on black, which any printer can print."""
    box = 10 * mm if votes else 0.0
    cells: list[list[Any]] = [["", "", *["vote 1", "vote 2"] * votes]]
    for letter, option in _lettered(question):
        words = text(option["text"], 9, bold=letter == question["right"])
        cells.append([letter, [words, text(option["belief"], 8.5, color=MUTED)], *["", ""] * votes])
    right = 1 + LETTERS.index(question["right"])
    look = [
        ("VALIGN", (0, 1), (-1, -1), "TOP"), ("FONT", (0, 1), (0, -1), BOLD, 9), ("ALIGN", (0, 1), (0, -1), "CENTER"),
        ("TOPPADDING", (0, 1), (-1, -1), 2.5), ("BOTTOMPADDING", (0, 1), (-1, -1), 3.5),
        ("FONT", (0, 0), (-1, 0), REGULAR, 6.5), ("TEXTCOLOR", (0, 0), (-1, 0), MUTED),
        ("ALIGN", (2, 0), (-1, 0), "CENTER"), ("LEFTPADDING", (2, 0), (-1, 0), 0), ("RIGHTPADDING", (2, 0), (-1, 0), 0),
        ("GRID", (0, 1), (-1, -1), 0.5, LINE),
        ("BACKGROUND", (0, right), (0, right), black), ("TEXTCOLOR", (0, right), (0, right), white),
    ]  # fmt: skip
    widths = [7 * mm, WIDTH - 7 * mm - 2 * box, *[box, box] * votes]
    heights = [9 if votes else 2, None, None, None, None]
    return Table(cells, colWidths=widths, rowHeights=heights, style=look)


def _row(mark: str, content: Flowable, width: float = 7 * mm, bold: bool = False, size: float = 9) -> Table:
    """A mark in a narrow column, and what belongs to it beside it."""
    look = [("VALIGN", (0, 0), (-1, -1), "TOP"), ("FONT", (0, 0), (0, 0), BOLD if bold else REGULAR, size)]
    look += [("LEFTPADDING", (0, 0), (-1, -1), 0), ("RIGHTPADDING", (0, 0), (-1, -1), 0)]
    look += [("TOPPADDING", (0, 0), (-1, -1), 1.5), ("BOTTOMPADDING", (0, 0), (-1, -1), 1.5)]
    return Table([[mark, content]], colWidths=[width, WIDTH - width], style=look)


def _asked(course: Course) -> set[str]:
    """The ids of all questions that lessons ask."""
    sources = (course.source(lesson).read_text(encoding="utf-8") for lesson in course.written)
    return {question for source in sources for _, question in CALL.findall(source)}


def _lettered(question: Question) -> list[tuple[str, dict[str, str]]]:
    return list(zip(LETTERS, question["options"], strict=True))
