"""Answers that learners might give to the exercises, right and wrong, collected from the modules `answers_…`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """One function that a learner could have written.

    Attributes:
        task: the task it answers.
        belief: the misconception behind it; empty for a right answer.
        name: what is special about it, for the test's id.
        function: the function.
    """

    task: str
    belief: str
    name: str
    function: Callable[..., Any]


ANSWERS: list[Answer] = []


def wrong(task: str, belief: str, note: str = "") -> Callable[[Callable], Callable]:
    """Collect a wrong answer, which the check has to recognise as `belief`."""

    def collect(function: Callable) -> Callable:
        ANSWERS.append(Answer(task, belief, f"{belief}-{note}" if note else belief, function))
        return function

    return collect


def right(task: str, name: str) -> Callable[[Callable], Callable]:
    """Collect a right answer; `name` says what is unusual about it."""

    def collect(function: Callable) -> Callable:
        ANSWERS.append(Answer(task, "", name, function))
        return function

    return collect
