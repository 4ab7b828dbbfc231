"""An exercise notebook in a real kernel, after a learner has been at it."""

import copy

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

import course as course_list
import execution
import exercises

COURSE = course_list.load()
SWAPPED = """\
def ema(values, beta):
    m, out = 0, []
    for x in values:
        m = (1 - beta) * m + beta * x
        out.append(m)
    return torch.stack(out)
"""
NOISY = """\
import logging, sys, warnings

logging.basicConfig()  # its handler keeps the notebook's stderr

def bias_corrected(m, t, beta):
    warnings.warn("psst")
    print("psst")
    print("psst", file=sys.stderr)
    logging.getLogger("mine").error("psst")
    display("psst")
    return m / (1 - beta**t)
"""
ENDLESS = """\
def first_step_beyond(level):
    t = 1
    while True:
        try:
            t += 1
        except:
            pass
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The executed cells of exercise 02 in this state:

    The first answer is wrong, and its check has been copied. A cell with a syntax error stands in between. The second
    answer is right but noisy. The third never returns, and catches whatever would stop it.
    """
    nb = exercises.unsolved(COURSE, exercises.select(COURSE, ["02"])[0])
    answers = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}
    answers["ema"].source = SWAPPED
    answers["bias_corrected"].source = NOISY
    answers["first_step_beyond"].source = ENDLESS
    check = nb.cells.index(answers["check_ema"])
    nb.cells[check:check] = [new_code_cell("def half("), copy.deepcopy(answers["check_ema"])]
    last = nb.cells.index(answers["check_first_step_beyond"])
    nb.cells.insert(last, new_code_cell("object.__setattr__(check.first_step_beyond, 'seconds', 0.5)"))
    nb.cells.append(new_code_cell("del ema\ncheck.ema()\nema = 3\ncheck.ema()\ncheck.ema.hint()\ncheck.ema.solution()"))
    home = tmp_path_factory.mktemp("kernel")
    client = NotebookClient(nb, kernel_name="python3", timeout=120, allow_errors=True, record_timing=False)
    client.execute(env=execution.environment(home), cwd=str(home))
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def outputs(cells, source):
    return [output for cell in cells if source in cell.source for output in cell.outputs]


def said(output):
    return output.metadata["course_check"]


def test_a_wrong_answer_and_the_copied_check(cells):
    first, second = outputs(cells, "check.ema()")[:2]
    assert said(first) == said(second) == {"task": "ema", "outcome": "incorrect", "belief": "swapped_beta"}
    assert first.data["text/plain"].startswith("✗ Not right yet · ema\n  Input: ema([1, 0], 0.9)")


def test_noise_stays_inside(cells):
    [output] = [output for output in outputs(cells, "check.bias_corrected()") if "course_check" in output.metadata]
    assert said(output)["outcome"] == "correct"
    assert outputs(cells, "\ncheck.bias_corrected()") == [output], "something else was shown"


def test_an_endless_loop_is_stopped(cells):
    [output] = outputs(cells, "\ncheck.first_step_beyond()")
    assert said(output)["belief"] == "never_returns" and "was stopped" in output.data["text/plain"]


def test_nothing_but_the_syntax_error_is_an_error(cells):
    errors = [cell for cell in cells if any(output.output_type == "error" for output in cell.outputs)]
    assert [cell.source for cell in errors] == ["def half("]
    assert all(output.get("name") != "stderr" for cell in cells for output in cell.outputs)


def test_progress_knows_all_three(cells):
    [output] = outputs(cells, "check.progress(")
    assert output.data["text/plain"].startswith("1 of 3 tasks right.   ✗ ema   ✓ bias_corrected   ✗ first_step_beyond")


def test_deleted_overwritten_hint_solution(cells):
    deleted, overwritten, hint, solution = outputs(cells, "del ema")
    assert said(deleted)["outcome"] == "not attempted" and said(overwritten)["belief"] == "overwritten_name"
    assert hint.data["text/plain"].startswith("Hint 1 of 3") and "def ema" in solution.data["text/markdown"]
