"""A lesson goes on where bitsandbytes is missing, or does not work on the CPU."""

import subprocess
import sys
import types

import pytest
from nbformat.v4 import new_code_cell

import course as course_list
import execution
import notebook
from course_lib import libraries


def test_bitsandbytes_is_given_without_a_word():
    program = "from course_lib import libraries; print(libraries.bitsandbytes().optim.AdamW8bit.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == ("AdamW8bit\n", "")


def module_that_raises(error):
    module = types.ModuleType("bitsandbytes")

    def refuse(parameters):
        raise error

    module.optim = types.SimpleNamespace(AdamW8bit=refuse)
    return module


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (None, "Going on without 8-bit steps: bitsandbytes cannot be imported here (import of bitsandbytes halted"),
        (
            module_that_raises(RuntimeError("CUDA Setup failed despite GPU being available.\nPlease run …")),
            "takes no step on the CPU (RuntimeError: CUDA Setup failed despite GPU being available); `pip install",
        ),
        (module_that_raises(NotImplementedError()), "takes no step on the CPU (NotImplementedError)"),
    ],
)
def test_what_keeps_bitsandbytes_away_is_said_in_one_sentence(module, sentence, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "bitsandbytes", module)
    assert libraries.bitsandbytes() is None
    printed = capsys.readouterr()
    assert sentence in printed.out and printed.out.count("\n") == 1 and printed.err == ""


def test_lesson_09_goes_on_without_bitsandbytes():
    course = course_list.load()
    made = notebook.from_source(course, course.lesson("09"))
    made.cells.insert(0, new_code_cell("import sys\n\nsys.modules['bitsandbytes'] = None"))
    execution.execute(made, "09 without bitsandbytes")  # raises where a cell fails
    outputs = [output for cell in made.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    assert "Going on without 8-bit steps: bitsandbytes cannot be imported here" in printed
    assert "134,004,336" in printed and "256.79 MiB" in printed
    assert not [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
