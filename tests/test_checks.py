"""Every check against answers that learners might give: wrong ones, each recognised, and right ones, accepted."""

from collections import Counter
from functools import cache
from importlib import import_module

import answers
import pytest

import course as course_list
import exercises
from course_lib import check

COURSE = course_list.load()
WRITTEN = exercises.written(COURSE)
for written in WRITTEN:
    import_module(f"answers_{written.id}")

WRONG = [answer for answer in answers.ANSWERS if answer.belief]
RIGHT = [answer for answer in answers.ANSWERS if not answer.belief]
TASKS = [task for tasks in check.EXERCISES.values() for task in tasks]


@cache
def verdict_on(answer):
    return getattr(check, answer.task).judge(answer.function)


def called(answer):
    return f"{answer.task}-{answer.name}"


@pytest.mark.parametrize("answer", WRONG, ids=called)
def test_wrong_answer_is_recognised(answer):
    verdict = verdict_on(answer)
    assert (verdict.outcome, verdict.belief) == ("incorrect", answer.belief), verdict
    assert verdict.says


@pytest.mark.parametrize("answer", RIGHT, ids=called)
def test_unusual_right_answer_is_accepted(answer):
    verdict = verdict_on(answer)
    assert verdict.outcome == "correct", verdict


@pytest.mark.parametrize("task", TASKS)
def test_task_knows_four_misconceptions_apart(task):
    found = {a.belief: verdict_on(a).says for a in WRONG if a.task == task}
    assert len(found) >= 4, f"tests/answers_*.py has wrong answers of {len(found)} kinds for {task}; it needs four"
    assert len(set(found.values())) == len(found), "two misconceptions get the same message"
    assert any(answer.task == task for answer in RIGHT), f"tests/answers_*.py has no unusual right answer for {task}"


@pytest.mark.parametrize("task", TASKS)
def test_every_belief_of_a_check_is_met_by_an_answer(task):
    known = {belief.name for belief in getattr(check, task).beliefs}
    assert known - {answer.belief for answer in WRONG if answer.task == task} == set()


def test_answers_are_counted(capsys):
    kinds = Counter("wrong" if answer.belief else "right" for answer in answers.ANSWERS)
    with capsys.disabled():
        print(f"\n{len(TASKS)} tasks; {kinds['wrong']} wrong answers rejected, {kinds['right']} right ones accepted")
    assert kinds["wrong"] >= 4 * len(TASKS) and {answer.task for answer in answers.ANSWERS} == set(TASKS)


def test_checks_and_sources_have_the_same_tasks():
    sources = {
        exercise.id: [task.name for task in exercises.tasks(exercises.read(COURSE, exercise))] for exercise in WRITTEN
    }
    assert {name.removeprefix("exercise_"): list(tasks) for name, tasks in check.EXERCISES.items()} == sources
