"""One exercise task: how the learner's function is found, tried on inputs, compared, and answered."""

from __future__ import annotations

import copy
import inspect
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from course_lib.check import _everyday as everyday
from course_lib.check import _guard, _show, _values

# Seconds in all that a task's function may take.
SECONDS = 10.0
_hints_given: dict[str, int] = {}


@dataclass(frozen=True)
class Verdict:
    """What a check has to say.

    Attributes:
        outcome: "not attempted", "incorrect" or "correct".
        says: sentences for the learner; a name in backquotes is shown as code.
        belief: the name of the recognised misconception, or "".
        given, came, expected: the input that shows it, what came out, and what should have.
    """

    outcome: str
    says: str = ""
    belief: str = ""
    given: str = ""
    came: str = ""
    expected: str = ""


def wrong(says: str, belief: str = "", *, given: str = "", came: Any = "", expected: Any = "") -> Verdict:
    """The verdict "incorrect"; `came` and `expected` may be any value."""
    came, expected = (value if isinstance(value, str) else _values.text(value) for value in (came, expected))
    return Verdict("incorrect", says, belief, given, came, expected)


class NotFit(Exception):  # noqa: N818 - it carries a verdict out of a judge
    """A call came to nothing that could be judged; `verdict` says why."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.says)


@dataclass(frozen=True)
class Case:
    """One input: the arguments of the call, and how they are shown to the learner."""

    args: tuple[Any, ...] = ()
    given: str = ""


def case(*args: Any, given: str = "") -> Case:
    """An input with these arguments; `given` describes it where the arguments themselves cannot be shown."""
    return Case(args, given)


@dataclass(frozen=True)
class Belief:
    """A misconception that a check can recognise.

    Attributes:
        name: how teachers call it: lower case with underscores.
        says: one to three sentences to the learner: what was probably done, and why it is not what is asked.
        rule: what somebody who believes this would write; it is recognised where it gives, for every input, what the
            learner's function gives. Several, if there are several ways to write it. None for a belief that only
            `raises`, `only_on`, `accept` or `judge_with` names.
        raises: it is recognised as well where the function raises an error that this regular expression finds in
            ``TypeError: its message``.
        only_on: it is recognised as well where the function is wrong for exactly those inputs for which
            ``only_on(*args)`` is true, and right for all others.
    """

    name: str
    says: str
    rule: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None
    raises: str = ""
    only_on: Callable[..., bool] | None = None

    @property
    def rules(self) -> Sequence[Callable[..., Any]]:
        """The ways to write it."""
        return () if self.rule is None else (self.rule,) if callable(self.rule) else self.rule


def ways(name: str, says: str, *rules: Callable[..., Any], raises: str = "") -> Belief:
    """A misconception that can be written in several ways, which compute different numbers."""
    return Belief(name, says, rules, raises)


def _returned(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


@dataclass(frozen=True)
class Task:
    """One task; calling it judges the learner's function and shows the verdict.

    Attributes:
        name: the name under which the learner defines the function.
        rule: a right answer, or several that differ and are right.
        cases: makes the inputs, fresh each time.
        beliefs: the misconceptions it recognises, the more particular ones first.
        hints: the steps of `.hint()`, from a nudge to nearly the answer.
        praise: what to say when it is right: something worth knowing, in one or two sentences.
        seconds: how long the function may take in all.
        changes_input: the function is meant to change its arguments (an optimizer's step).
        use: ``use(call, *args)`` makes of one input what is compared, where that is not just what the function returns.
        accept: ``accept(came, *args)`` returns None if `came` is right, otherwise a verdict from :func:`wrong`; for
            tasks with many right answers. Without it, results are compared with those of `rule`.
        judge_with: ``judge_with(attempt)`` returns a verdict; for tasks that need more than inputs and results. It
            calls the learner's function with ``attempt(*args)``.
        rtol, atol: tolerances, see `_values.same`.
    """

    name: str
    rule: Callable[..., Any] | Sequence[Callable[..., Any]] = ()
    cases: Callable[[], Sequence[Case]] = lambda: [Case()]
    beliefs: Sequence[Belief] = ()
    hints: Sequence[str] = ()
    praise: str = ""
    seconds: float = SECONDS
    changes_input: bool = False
    use: Callable[..., Any] = _returned
    accept: Callable[..., Verdict | None] | None = None
    judge_with: Callable[[Attempt], Verdict] | None = None
    rtol: float = 1e-4
    atol: float = 1e-6

    def __call__(self, function: Any = None) -> None:
        """Judge the learner's function, found in the notebook by its name, or `function`; show the verdict.

        Raises:
            AssertionError: the answer is not right, and the environment variable COURSE_CHECK is "strict": the way in
                which a class is graded. Otherwise it raises nothing.
        """
        verdict = self.judge(_from_notebook(self.name) if function is None else function)
        _show.verdict(self.name, verdict)
        _show.outcomes[self.name] = verdict.outcome
        _show.endless.discard(self.name)
        if verdict.belief == "never_returns":
            _show.endless.add(self.name)
        if os.environ.get("COURSE_CHECK") == "strict" and verdict.outcome != "correct":
            raise AssertionError(f"{self.name}: {verdict.outcome}. {verdict.says}".strip())

    def judge(self, function: Any) -> Verdict:
        """The verdict on a function, without showing it. `function` None means that there is none."""
        if function is None:
            return Verdict("not attempted", f"There is no `{self.name}` yet: run the cell that defines it.")
        if not callable(function):
            return self._everyday("overwritten_name", kind=_values.kind(function))
        if (getattr(function, "__module__", None) or "").startswith("course_lib."):
            return self._everyday("borrowed")
        attempt = Attempt(self, function)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a strange result makes of the comparison is of no use to anybody
                return (self.judge_with or self._judge)(attempt)
        except NotFit as unfit:
            return unfit.verdict
        except Exception as error:  # a result stranger than any the judge knows how to look at
            return self._everyday("unreadable", given=attempt.given, came=f"{type(error).__name__} while looking at it")

    def hint(self) -> None:
        """Show the next hint; the last one stays."""
        number = min(_hints_given.get(self.name, 0) + 1, len(self.hints))
        _hints_given[self.name] = number
        _show.hint(self.name, list(self.hints[:number]), len(self.hints))

    def solution(self) -> None:
        """Show a right answer, and why it is right."""
        _show.solution(self.name, solutions().get(self.name))

    def __repr__(self) -> str:
        return f"check.{self.name}() judges your {self.name}; .hint() and .solution() help."

    def _everyday(self, belief: str, given: str = "", came: str = "", expected: str = "", **words: str) -> Verdict:
        """The verdict on a mistake that has nothing to do with the task."""
        says = everyday.MISTAKES[belief].format(name=self.name, **words)
        return wrong(says, belief, given=given, came=came, expected=expected)

    def _judge(self, attempt: Attempt) -> Verdict:
        """Try every case; the first failing one is shown, and all of them together tell which belief it was."""
        results, wrongs, failing = [], [], None
        cases = self.cases()
        for tried in cases:
            try:
                result: Any = self._result(attempt, tried)
                verdict = self._verdict(result, tried)
            except NotFit as unfit:
                result, verdict = unfit, unfit.verdict
                if verdict.outcome == "not attempted" or verdict.belief in ("never_returns", "interrupted"):
                    return verdict
            results.append(result)
            wrongs.append(verdict is not None)
            if verdict is not None and failing is None:
                failing = verdict
        if failing is None:
            tries = f"Tried on {len(cases)} inputs. " if len(cases) > 1 else ""
            return Verdict("correct", f"{tries}{self.praise}".strip())
        if not failing.belief or failing.belief in ("raises", "returns_nothing"):
            if belief := self._recognised(cases, results, wrongs):
                text = f"{failing.says} {belief.says}" if failing.belief else belief.says
                return Verdict("incorrect", text, belief.name, failing.given, failing.came, failing.expected)
        return failing if failing.says else replace(failing, says=everyday.UNKNOWN.format(name=self.name))

    def _result(self, attempt: Attempt, tried: Case) -> Any:
        """What the learner's function makes of a case."""
        attempt.given = self._given(tried)
        args = copy.deepcopy(tried.args)
        result = self.use(attempt, *args)
        if result is None:
            raise NotFit(attempt.nothing())
        if not self.changes_input and not _values.unchanged(args, tried.args):
            raise NotFit(self._everyday("mutates_input", given=attempt.given))
        return result

    def _verdict(self, result: Any, tried: Case) -> Verdict | None:
        """None if the result is right."""
        given = self._given(tried)
        if self.accept is not None:
            verdict = self.accept(result, *copy.deepcopy(tried.args))
            return verdict if verdict is None or verdict.given else replace(verdict, given=given)
        rules = (self.rule,) if callable(self.rule) else self.rule
        expected = [self._right(rule, tried) for rule in rules]
        if any(_values.same(result, right, self.rtol, self.atol) for right in expected):
            return None
        says = _values.difference(result, expected[0])
        return wrong(says, "", given=given, came=_values.text(result), expected=_values.text(expected[0]))

    def _right(self, rule: Callable[..., Any], tried: Case) -> Any:
        return self.use(rule, *copy.deepcopy(tried.args))

    def _recognised(self, cases: Sequence[Case], results: Sequence[Any], wrongs: Sequence[bool]) -> Belief | None:
        """The first belief that explains the results: by its rule, by an error, or by where they are wrong."""
        errors = [result.verdict.came for result in results if isinstance(result, NotFit)]
        for belief in self.beliefs:
            if belief.raises and any(re.search(belief.raises, error) for error in errors):
                return belief
            if belief.only_on and [bool(belief.only_on(*tried.args)) for tried in cases] == list(wrongs):
                return belief
            for rule in belief.rules:
                if all(self._matches(tried, result, rule) for tried, result in zip(cases, results, strict=True)):
                    return belief
        return None

    def _matches(self, tried: Case, result: Any, rule: Callable[..., Any]) -> bool:
        try:
            believed = self._right(rule, tried)
        except Exception as error:
            return isinstance(result, NotFit) and result.verdict.came.startswith(type(error).__name__)
        return not isinstance(result, NotFit) and _values.same(result, believed, self.rtol, self.atol)

    def _given(self, tried: Case) -> str:
        if tried.given or not tried.args:
            return tried.given
        return f"{self.name}({', '.join(_values.text(arg) for arg in tried.args)})"


class Attempt:
    """The learner's function, called safely.

    Calling it returns what the function returns, also None.

    Raises:
        NotFit: it raised, ran too long, or is not attempted.
    """

    def __init__(self, task: Task, function: Callable[..., Any]) -> None:
        self.task, self.function = task, function
        self.left = task.seconds
        self.given = ""
        self.printed = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start = time.monotonic()
        outcome = _guard.call(lambda: self.function(*args, **kwargs), max(self.left, 0.1))
        self.left -= time.monotonic() - start
        self.printed = outcome.printed
        if outcome.stopped:
            raise NotFit(self._too_long(outcome))
        if outcome.error is not None:
            raise NotFit(self._raised(outcome))
        if inspect.iscoroutine(outcome.value):
            outcome.value.close()
            raise NotFit(self._everyday("async"))
        if inspect.isgenerator(outcome.value):
            raise NotFit(self._everyday("generator"))
        return outcome.value

    def nothing(self) -> Verdict:
        """The verdict on a function that returned None."""
        belief = "prints_result" if self.printed.strip() else "returns_nothing"
        return self._everyday(belief, came="None", expected="a value")

    def _too_long(self, outcome: _guard.Outcome) -> Verdict:
        end = "cannot be stopped from here: restart the kernel" if outcome.running else "was stopped"
        return self._everyday("never_returns", seconds=f"{self.task.seconds:.0f}", end=end)

    def _raised(self, outcome: _guard.Outcome) -> Verdict:
        error = outcome.error
        if isinstance(error, NotImplementedError) and not str(error):
            return Verdict("not attempted", everyday.STUB.format(name=self.task.name))
        if isinstance(error, KeyboardInterrupt):
            return self._everyday("interrupted")
        name, message = type(error).__name__, str(error).strip().partition("\n")[0]
        line = f" The line is `{outcome.line}`." if outcome.line else ""
        return self._everyday("raises", line=line, came=f"{name}: {message}" if message else name, expected="a value")

    def _everyday(self, belief: str, came: str = "", expected: str = "", **words: str) -> Verdict:
        return self.task._everyday(belief, given=self.given, came=came, expected=expected, **words)


@cache
def solutions() -> dict[str, dict[str, str]]:
    """Code and reason for each task, by name; empty in a class edition, which comes without the answers."""
    file = resources.files("course_lib").joinpath("data/solutions.json")
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _from_notebook(name: str) -> Any:
    """What stands under a name in the notebook, or in the program that runs."""
    from IPython import get_ipython

    shell = get_ipython()
    return (shell.user_ns if shell else vars(sys.modules["__main__"])).get(name)
