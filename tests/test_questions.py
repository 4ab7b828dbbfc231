"""The question bank, and the predictions that lessons make of it."""

import json

import pytest
from nbformat.v4 import new_code_cell
from sample_course import QUESTIONS, write_sources

import course as course_list
import notebook
import questions


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("id: 00-sum", "id: sum", "its id must begin with 00-"),
        ('lesson: "00"', "lesson: 0", "lesson must be a text"),
        ('lesson: "00"', 'lesson: "09"', "there is no lesson '09'"),
        ("question: How much is 1 + 1?", "question: ''", "question must be a text"),
        ('    - {text: "3", belief: It is less.}\n', "", "exactly four options"),
        ('text: "3"', "text: 3", "each option must have text and belief"),
        (", belief: Right.", "", "each option must have text and belief"),
        ('text: "3"', 'text: "2"', "two options say the same"),
        ("right: B", "right: E", "right must be A, B, C or D"),
        ("next: Count.", "", "next must be a text"),
        ("next: Count.", "next: Count.\n  nxet: Count.", "nxet means nothing here"),
        ("right: B", "right: B\n  use: exam", "use must be discussion or test"),
        (QUESTIONS, QUESTIONS + QUESTIONS, "another question has this id"),
    ],
)
def test_questions_are_checked(tmp_path, old, new, complaint):
    write_sources(tmp_path)
    course = course_list.load(tmp_path)
    assert questions.load(course).problems == ()
    assert QUESTIONS.count(old) == 1
    (tmp_path / "sources" / "questions.yaml").write_text(QUESTIONS.replace(old, new), encoding="utf-8")
    bank = questions.load(course)
    assert any(complaint in problem for _, problem in bank.problems), bank.problems
    assert any(complaint in problem for problem in bank.problems_of([course.lesson("00")]))


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ([("predict('00-sum')", []), ("reveal('00-sum')", ["answer"])], None),
        ([("predict('00-none')", [])], "has no such question"),
        ([("predict('00-sum')", [])], "is never answered"),
        ([("reveal('00-sum')", ["answer"])], "stands before its predict"),
        ([("predict('00-sum')", []), ("reveal('00-sum')", [])], "gives the answer away"),
    ],
)
def test_predictions_are_asked_then_answered(tmp_path, cells, complaint):
    write_sources(tmp_path)
    course = course_list.load(tmp_path)
    nb = notebook.assemble([new_code_cell(source, metadata={"tags": tags}) for source, tags in cells])
    found = questions.check_calls(nb, course.lesson("00"), questions.load(course))
    assert (not found) if complaint is None else any(complaint in problem for problem in found)


def test_questions_of_the_test_stay_out_of_lessons_and_library(tmp_path):
    write_sources(tmp_path)
    course = course_list.load(tmp_path)
    path = tmp_path / "sources" / "questions.yaml"
    other = QUESTIONS.replace("00-sum", "00-talk").replace("right: B", "right: B\n  use: discussion")
    path.write_text(QUESTIONS.replace("right: B", "right: B\n  use: test") + other, encoding="utf-8")
    bank = questions.load(course)
    assert bank.problems == () and [question["id"] for question in bank.meant_for("test")] == ["00-sum"]
    (exported,) = json.loads(questions.text(bank))
    assert exported["id"] == "00-talk" and "use" not in exported
    nb = notebook.assemble([new_code_cell("predict('00-sum')")])
    assert "belongs to the test" in questions.check_calls(nb, course.lesson("00"), bank)[0]
