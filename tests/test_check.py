"""The engine behind the checks: finding the learner's function, calling it safely, comparing, and telling."""

import builtins
import contextlib
import gc
import io
import logging
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from course_lib import averages, check
from course_lib.check import _guard, _show, _task, _values
from course_lib.check._task import Belief, Task, case, wrong


def double(**changes):
    """A task: twice the input."""
    settings = {
        "name": "double",
        "rule": lambda x: 2 * x,
        "cases": lambda: [case(torch.tensor([1.0, 3.0])), case(torch.ones(2, 3))],
        "beliefs": [Belief("squares", "A square.", lambda x: x * x), Belief("halves", "Half.", lambda x: x / 2)],
        "hints": ["One `hint`.", "Another."],
        "seconds": 0.3,
    }
    return Task(**{**settings, **changes})


def endless(x):
    while True:
        pass


def stubborn(x):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def left(x):
    x += 1
    return 2 * (x - 1)


def printing(x):
    print(2 * x)


def noisy(x):
    warnings.warn("psst", stacklevel=1)
    print("psst")
    return 2 * x


def yields(x):
    yield 2 * x


async def later(x):
    return 2 * x


def asks(x):
    return float(input("How much? ")) * x


def leaves(x):
    raise SystemExit(3)


def interrupts(x):
    raise KeyboardInterrupt


def refuses(x):
    raise NotImplementedError("only for short ones")


def fails(x):
    raise ValueError("the second\nline")


def missing(x):
    raise NotImplementedError


class Strange(list):
    def __iter__(self):
        raise KeyError("strange")


@pytest.mark.parametrize(
    ("function", "outcome", "belief", "says"),
    [
        (lambda x: 2 * x, "correct", "", "Tried on 2 inputs."),
        (lambda x: (2 * x).numpy(), "correct", "", ""),
        (lambda x: (2 * x).tolist(), "correct", "", ""),
        (lambda x: (2 * x.double()).requires_grad_(), "correct", "", ""),
        (noisy, "correct", "", ""),
        (lambda x: x**2, "incorrect", "squares", "A square."),
        (lambda x: 2 * x + 1, "incorrect", "", "no mistake that the check knows by name"),
        (lambda x: 2 * x.sum(), "incorrect", "", "Its shape is []; [2] was expected."),
        (lambda x: "2", "incorrect", "", "It is a text; an array of shape [2] was expected."),
        (lambda x: [[1], [1, 2]], "incorrect", "", "It is a list; an array"),
        (lambda x: {"a": 1}, "incorrect", "", "It is a dictionary"),
        (lambda x: x * float("nan"), "incorrect", "", ""),
        (lambda x: 10**400, "incorrect", "", "It is a number too large"),
        (lambda x: 1j, "incorrect", "", "It is a complex number; an array of shape [2] was"),
        (lambda x: 1j * x, "incorrect", "", "It is an array of complex numbers"),
        (lambda x: x.to("meta"), "incorrect", "", "It is a tensor without values, on the device `meta`"),
        (lambda x: Strange([1, 2]), "incorrect", "unreadable", "cannot look at"),
        (lambda x: None, "incorrect", "returns_nothing", "a `return` is missing"),
        (lambda: 3, "incorrect", "raises", "raised an error"),
        (printing, "incorrect", "prints_result", "prints its result"),
        (left, "incorrect", "mutates_input", "changes its input"),
        (endless, "incorrect", "never_returns", "still running after 0 seconds, and was stopped"),
        (stubborn, "incorrect", "never_returns", "was stopped"),
        (yields, "incorrect", "generator", "`yield`"),
        (later, "incorrect", "async", "`async def`"),
        (asks, "incorrect", "raises", ""),
        (leaves, "incorrect", "raises", ""),
        (interrupts, "incorrect", "interrupted", "interrupted"),
        (refuses, "incorrect", "raises", ""),
        (fails, "incorrect", "raises", ""),
        (missing, "not attempted", "", "still raises `NotImplementedError`"),
        (None, "not attempted", "", "There is no `double` yet"),
        (3, "incorrect", "overwritten_name", "holds a number now"),
        (averages.ema, "incorrect", "borrowed", "the course's own"),
    ],
)
def test_what_learners_do(function, outcome, belief, says, capfd):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        verdict = double().judge(function)
    assert (verdict.outcome, verdict.belief) == (outcome, belief) and says in verdict.says
    assert capfd.readouterr() == ("", "") and not seen


def test_input_result_and_expectation_are_shown():
    verdict = double().judge(lambda x: x + 1)
    assert (verdict.given, verdict.came, verdict.expected) == ("double([1, 3])", "[2, 4]", "[2, 6]")
    verdict = double().judge(fails)
    assert verdict.came == "ValueError: the second"
    assert "RuntimeError: the function asks for input()" in double().judge(asks).came


def test_only_a_rule_that_fits_every_case_is_recognised():
    def sometimes(x):
        return x * x if x.ndim == 1 else x / 2

    assert double().judge(sometimes).belief == ""
    assert double().judge(lambda x: x / 2).belief == "halves"

    def no_matrices(x):
        if x.ndim > 1:
            raise ValueError("what is this")
        return x * x

    believed = Belief("vectors_only", "Matrices too.", no_matrices)
    assert double(beliefs=[believed]).judge(no_matrices).belief == "vectors_only"
    assert double(beliefs=[believed]).judge(lambda x: x * x).belief == ""


def test_a_belief_may_have_several_rules_an_error_or_a_place():
    known = [
        _task.ways("by_addition", "Added.", lambda x: x + 2, lambda x: x + 1, raises="^KeyError: 'plus"),
        Belief("vectors_only", "Matrices too.", only_on=lambda x: x.ndim > 1),
    ]
    task = double(beliefs=known)
    assert [task.judge(lambda x, n=n: x + n).belief for n in (1, 2, 3)] == ["by_addition", "by_addition", ""]
    verdict = task.judge(lambda x: {}["plus one"])
    assert verdict.belief == "by_addition" and verdict.says == "The function raised an error. Added."
    assert task.judge(lambda x: {}["minus"]).belief == "raises"
    assert task.judge(lambda x: 2 * x if x.ndim == 1 else x).belief == "vectors_only"
    assert task.judge(lambda x: 2 * x if x.ndim == 1 else missing_name).belief == "vectors_only"  # noqa: F821
    assert task.judge(lambda x: x).belief == ""


def test_several_answers_may_be_right():
    task = double(rule=[lambda x: 2 * x, lambda x: 2 * x + 1e-3])
    assert [task.judge(lambda x, e=e: 2 * x + e).outcome for e in (0, 1e-3, 1e-2)] == ["correct"] * 2 + ["incorrect"]


def test_time_limit_is_for_all_inputs_together():
    def slow(x):
        time.sleep(0.2)
        return 2 * x

    assert double(seconds=0.3).judge(slow).belief == "never_returns"
    assert double(seconds=5).judge(slow).outcome == "correct"


def test_nothing_is_left_behind():
    before = signal.getsignal(signal.SIGALRM), sys.gettrace(), builtins.input, logging.root.manager.disable
    for function in (endless, stubborn, asks, fails):
        double().judge(function)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert (signal.getsignal(signal.SIGALRM), sys.gettrace(), builtins.input, logging.root.manager.disable) == before
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        double().judge(later)
        gc.collect()
    assert not seen


def test_a_debuggers_trace_function_stays():
    def tracer(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        double().judge(stubborn)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_without_an_alarm_a_thread_is_stopped_or_given_up(monkeypatch):
    assert in_thread(lambda: double().judge(endless)).belief == "never_returns"
    assert in_thread(lambda: double().judge(lambda x: 2 * x)).outcome == "correct"
    assert in_thread(lambda: double().judge(fails)).belief == "raises"
    monkeypatch.setattr(_guard, "GIVE_UP", 0.2)
    verdict = in_thread(lambda: double().judge(lambda x: time.sleep(1)))
    assert "cannot be stopped from here: restart the kernel" in verdict.says


def test_inplace_tasks_and_free_answers():
    def after(call, x):
        call(x)
        return x

    squares = Belief("squares", "A square.", lambda x: x.mul_(x))
    inplace = double(changes_input=True, use=after, rule=lambda x: x.mul_(2), beliefs=[squares])
    assert inplace.judge(lambda x: x.add_(x)).outcome == "correct"
    assert inplace.judge(lambda x: x.pow_(2)).belief == "squares"

    even = double(accept=lambda came, x: None if came == 2 else wrong("Odd.", "odd", came=came))
    assert even.judge(lambda x: 2).outcome == "correct"
    verdict = even.judge(lambda x: 3)
    assert (verdict.belief, verdict.came, verdict.given) == ("odd", "3", "double([1, 3])")


@pytest.mark.parametrize(
    ("came", "expected", "equal"),
    [
        (torch.tensor([1.0, 2.0]), np.array([1, 2]), True),
        (torch.tensor([1.00001, 2.0], dtype=torch.bfloat16), (1, 2), True),
        (np.float64(0.1) + 0.2, 0.3, True),
        (torch.tensor([[3.0]]), 3, True),
        ([3.0, 3.0], 3, False),
        (0.30001, 0.3, True),
        (0.3001, 0.3, False),
        ([1e-9, 1.0], torch.tensor([0.0, 1.0]), True),
        (1e-9, 0.0, False),
        (float("inf"), float("inf"), True),
        (float("nan"), 1.0, False),
        (" AdamW", "adamw", True),
        (None, None, True),
        (0, None, False),
        (True, True, True),
        (1, True, True),
        ((torch.ones(2), torch.ones(3)), [torch.ones(2), torch.ones(3)], True),
        (torch.ones(2, 3), (torch.ones(3), torch.ones(3)), True),
        (torch.ones(2, 3), (torch.ones(3), torch.ones(2)), False),
        ({"b": 2, "a": 1.0}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (torch.ones(2, device="meta"), torch.ones(2), False),
    ],
)
def test_values_are_compared_by_what_they_say(came, expected, equal):
    assert _values.same(came, expected) is equal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.tensor([0.1, 2.0]), "[0.1, 2]"),
        (torch.tensor(2), "2"),
        (1234567, "1,234,567"),
        (0.1 + 0.2, "0.3"),
        ((1, [True, None]), "(1, [True, None])"),
        ({"a": torch.ones(1)}, "{'a': [1]}"),
    ],
)
def test_values_are_written_for_reading(value, text):
    assert _values.text(value) == text


def test_long_values_are_cut():
    assert _values.text(torch.ones(30, 40)).startswith("shape [30, 40]: [[1, 1, ..., 1, 1]")
    assert _values.text(list(range(100))) == "100 values: [0, 1, ...]"
    assert _values.text(object()) == "an object" and _values.text(range(3)) == "range(0, 3)"


def shown(act, monkeypatch):
    """What an act displays in a notebook: the data and metadata of each output."""
    outputs = []
    monkeypatch.setattr(_show, "get_ipython", lambda: object())
    monkeypatch.setattr(_show, "display", lambda data, metadata, raw: outputs.append((data, metadata)))
    act()
    return outputs


def test_a_verdict_is_displayed_and_tells_the_teachers_report(monkeypatch):
    [(data, metadata)] = shown(lambda: double()(lambda x: x * x), monkeypatch)
    assert metadata == {"course_check": {"task": "double", "outcome": "incorrect", "belief": "squares"}}
    assert data["text/plain"].splitlines() == [
        "✗ Not right yet · double",
        "  Input: double([1, 3])",
        "  Came out: [1, 9]",
        "  Expected: [2, 6]",
        "  A square.",
        "  Known as: squares",
    ]
    assert "✗ Not right yet" in data["text/html"] and "[2, 6]" in data["text/html"]
    [(data, _)] = shown(lambda: _show.note("A *very* plain `a*b*c` < 2*3*4."), monkeypatch)
    assert data["text/plain"] == "A very plain a*b*c < 2*3*4."
    assert "A <em>very</em> plain <code>a*b*c</code> &lt; 2*3*4." in data["text/html"]
    [(data, _)] = shown(lambda: double()(lambda x: "<b>"), monkeypatch)
    assert "&lt;b&gt;" in data["text/html"] and "<b>'" not in data["text/html"]


def test_strict_raises_after_showing(monkeypatch):
    monkeypatch.setenv("COURSE_CHECK", "strict")
    double()(lambda x: 2 * x)
    for answer in (lambda x: x, missing):
        with pytest.raises(AssertionError, match="double: (incorrect|not attempted)"):
            double()(answer)
    with pytest.raises(AssertionError, match="not attempted"):
        double()()


def test_outside_a_notebook_it_prints(capsys):
    double()(lambda x: 2 * x)
    assert capsys.readouterr().out.startswith("✓ Right · double\n")


def test_hints_come_one_by_one(capsys):
    task = double(name="hinted")
    for expected in (1, 2, 2):
        task.hint()
        lines = capsys.readouterr().out.splitlines()
        assert lines[:expected] == ["Hint 1 of 2: One hint.", "Hint 2 of 2: Another."][:expected]
        assert len(lines) == (1 if expected == 1 else 3)
    double(name="unhinted", hints=()).hint()
    assert "no hints" in capsys.readouterr().out


def test_solution_on_request_and_in_a_class_edition(capsys, monkeypatch):
    check.ema.solution()
    assert "def ema(values, beta):" in capsys.readouterr().out
    monkeypatch.setattr(_task, "solutions", dict)
    check.ema.solution()
    assert "class edition" in capsys.readouterr().out


def test_progress_and_preview(capsys, monkeypatch):
    monkeypatch.setattr(_show, "outcomes", {"ema": "correct", "bias_corrected": "incorrect"})
    check.progress("ema", "bias_corrected", "first_step_beyond")
    assert capsys.readouterr().out.startswith("1 of 3 tasks right.   ✓ ema   ✗ bias_corrected   ○ first_step_beyond")
    check.preview(lambda: missing(1))
    check.preview(lambda: not_there)  # noqa: F821
    check.preview(lambda: fails(1))
    out = capsys.readouterr().out
    assert "first write the function" in out and "not_there does not exist yet" in out and "ValueError" in out
    check.preview(lambda: None)
    assert capsys.readouterr().out == ""


def test_preview_does_not_wait_for_an_endless_function(capsys):
    task = double(name="endless_one")
    task(endless)
    check.preview(lambda: print("never shown"))
    out = capsys.readouterr().out
    assert "Your endless_one does not come to an end." in out and "never shown" not in out
    task(lambda x: 2 * x)
    check.preview(lambda: print("shown"))
    assert capsys.readouterr().out.endswith("shown\n")
    check.preview(lambda: endless(1), seconds=0.2)
    assert "never ends" in capsys.readouterr().out
    in_thread(lambda: check.preview(lambda: time.sleep(0.2) or print("shown"), seconds=0.1))
    assert capsys.readouterr().out == "shown\n"


def test_names_are_found_and_wrong_ones_are_told():
    assert "ema" in dir(check) and repr(check.ema).startswith("check.ema() judges your ema")
    with pytest.raises(AttributeError, match="no task 'emma'; there are preview, progress, ema"):
        _ = check.emma


def test_import_is_light():
    program = "import sys, course_lib.check; print({'torch', 'IPython', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_captured_text_does_not_leak_from_threads():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        in_thread(lambda: double().judge(noisy))
    assert out.getvalue() == ""
