"""The glossary page, made from the definitions that stand in the lessons, and where a term is used too early."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import jupytext
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

import notebook
import prose
from course import Course, Lesson, write


@dataclass(frozen=True)
class Term:
    """A term, what it means, and the lesson that introduces it."""

    name: str
    meaning: str
    lesson: Lesson

    @property
    def link(self) -> str:
        return f"glossary.ipynb#{prose.anchor(self.name)}"


def markdown_of(course: Course, lesson: Lesson) -> list[str]:
    """The Markdown cells of a lesson's source (what the build generates is not among them)."""
    text = course.source(lesson).read_text(encoding="utf-8")
    return [cell.source for cell in jupytext.reads(text, fmt="py:percent").cells if cell.cell_type == "markdown"]


def terms(course: Course) -> list[Term]:
    """All definitions, in the order of the lessons."""
    return [
        Term(name, meaning, lesson)
        for lesson in course.written
        for cell in markdown_of(course, lesson)
        for name, meaning in prose.definitions(cell)
    ]


def check(course: Course, lessons: Iterable[Lesson], defined: list[Term]) -> list[str]:
    """Problems of these lessons with terms: defined twice, or said before the lesson that introduces them."""
    order = {lesson.id: place for place, lesson in enumerate(course.lessons)}
    first: dict[str, Term] = {}
    for term in defined:
        first.setdefault(term.name.casefold(), term)
    problems = []
    for lesson in lessons:
        for term in defined:
            if term.lesson == lesson and first[term.name.casefold()] is not term:
                earlier = first[term.name.casefold()].lesson
                problems.append(f"{lesson.name}: {term.name!r} is defined in {earlier.name} already; link to it")
        later = [term for term in first.values() if order[term.lesson.id] > order[lesson.id]]
        for cell in markdown_of(course, lesson):
            problems += [
                f"{lesson.name}: {term.name!r} is introduced in {term.lesson.name} only. Use other words, or link: "
                f"[{term.name}]({term.link})\n  in: {' '.join(cell.split())[:100]}"
                for term in later
                if prose.uses(term.name, cell)
            ]
    return problems


def page(course: Course, defined: list[Term]) -> NotebookNode:
    """The glossary as a notebook: terms in alphabetical order, each with a link to its lesson."""
    cells = ["# Glossary\n\nEvery term of the course, with the lesson that introduces it."]
    letter = ""
    for term in sorted(defined, key=lambda term: term.name.casefold()):
        if (first := term.name[0].upper()) != letter:
            letter = first
            cells.append(f"## {letter}")
        meaning = re.sub(r"\]\(glossary\.ipynb#", "](#", term.meaning)
        cells.append(f"### {term.name}\n\n{meaning}\n\nIntroduced in {notebook.link(course, term.lesson)}.")
    return notebook.assemble([new_markdown_cell(cell) for cell in cells])


def export(course: Course, defined: list[Term]) -> None:
    """Write the glossary page."""
    write(course.glossary, notebook.text(page(course, defined)))
