"""Lessons in the full tier: on the CPU, and from a cache with a stand-in for the model and made-up rows."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter

import hub_cache
import nbformat
import pytest
import stand_in
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from nbval_run import LESSON_TIMEOUT, cut_off

import course as course_list
import execution
import notebook

COURSE = course_list.load()
ROWS = stand_in.rows()
TRUTH = [label for *_, label in ROWS["validation"]]
FROM_CACHE = "Tier: full, on cpu (COURSE_TIER asks for it, and the hub's files are in the local cache).\n"
FROM_HUB = "Tier: full, on cpu (COURSE_TIER asks for it, and the Hugging Face hub is reachable).\n"
# Runs a notebook with a cell more, and hands it back.
EXECUTE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import execution, notebook
from course import CourseError
from nbformat.v4 import new_code_cell
execution.OWN_SETUP.remove("COURSE_TIER")  # here it is meant for the kernel
nb = notebook.read(Path(sys.argv[2]))
nb.cells.append(new_code_cell(sys.argv[3]))
try:
    execution.execute(nb, Path(sys.argv[2]).stem)
except CourseError as error:
    sys.exit(str(error))
print(notebook.text(nb))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return hub_cache.fill(tmp_path_factory.mktemp("cache"), ROWS, stand_in.model)


@pytest.fixture
def run(cache, tmp_path):
    """``run("06", "answers")`` runs the stored notebook of lesson 06, without a network.

    Returns:
        What it printed, and the value that the Python expression has at its end.
    """

    def run(number, expression):
        if not cut_off()[0]:
            warnings.warn(f"this ran with the network at hand: {cut_off()[1]}", stacklevel=1)
        [lesson] = COURSE.select([number])
        arguments = [str(COURSE.root / "tools"), str(COURSE.notebook(lesson))]
        probe = f"import json\nprint(json.dumps({expression}))"
        variables = hub_cache.NO_HUB | {"HF_HOME": str(cache)}
        way = {"cwd": tmp_path, "before": cut_off()[0], "seconds": LESSON_TIMEOUT}
        done = hub_cache.python(EXECUTE, *arguments, probe, **way, **variables)
        assert done.returncode == 0, done.stderr
        cells = [cell for cell in nbformat.reads(done.stdout, 4).cells if cell.cell_type == "code"]
        outputs = [output for cell in cells for output in cell.outputs]
        assert [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"] == []
        *printed, last = (output.text for output in outputs if output.output_type == "stream")
        return "".join(printed), json.loads(last)

    return run


@pytest.fixture(scope="module")
def shapes():
    """The shapes of the stand-in's parameters, with a head for two classes."""
    from transformers import DistilBertForSequenceClassification

    config = stand_in.config(len(hub_cache.tokenizer(ROWS)))
    return [parameter.shape for parameter in DistilBertForSequenceClassification(config).parameters()]


def state_elements(shapes):
    """How many numbers transformers' Adafactor keeps: rows and columns or all, a step and an RMS for each tensor."""
    return sum(sum(shape) if len(shape) == 2 else shape.numel() for shape in shapes) + 2 * len(shapes)


def accuracy_and_f1(answers):
    """Worked out by hand: F1 is that of the class 1 alone, which is what two classes need."""
    pairs = Counter(zip(TRUTH, answers, strict=True))
    right, missed, wrong = pairs[1, 1], pairs[1, 0], pairs[0, 1]
    f1 = 2 * right / (2 * right + missed + wrong)
    other = 2 * pairs[0, 0] / (2 * pairs[0, 0] + missed + wrong)
    accuracy = (right + pairs[0, 0]) / len(TRUTH)
    assert len({f"{score:.3f}" for score in (accuracy, f1, (f1 + other) / 2)}) == 3, "these cannot be told apart"
    return accuracy, f1


LAZY = accuracy_and_f1([1] * len(TRUTH))


def test_the_stand_in_is_like_mrpc():
    assert [len(rows) for rows in ROWS.values()] == [640, 120]
    for rows in ROWS.values():
        assert 0.6 < sum(label for *_, label in rows) / len(rows) < 0.75  # MRPC has 0.67 and 0.68
    denied = ["never" in second for _, second, _ in ROWS["validation"]]
    assert sum(denied[i] == bool(label) for i, label in enumerate(TRUTH)) == 10


def test_lesson_00(run, shapes):
    printed, losses = run("00", "losses")
    assert FROM_CACHE in printed
    assert re.search(r"^ok +tier +full, on cpu +COURSE_TIER asks for it", printed, re.MULTILINE), "the doctor says so"
    assert "Pairs of sentences from the news: do both say the same?\n" in printed
    assert len(losses) == 3 and losses[-1] < 0.8 * losses[0], "the stand-in does not learn"
    adamw = 2 * sum(shape.numel() for shape in shapes) + len(shapes)
    assert f"numbers kept: {state_elements(shapes):,}, where AdamW would keep {adamw:,}\n" in printed


def test_lesson_06(run):
    printed, answers = run(
        "06", "trained.model.eval()(**task.collator(list(task.validation))).logits.argmax(-1).tolist()"
    )
    assert FROM_CACHE in printed
    assert "Task MRPC: Pairs of sentences from the news" in printed
    assert "640 rows to train on, 120 to validate; 2 classes: not_equivalent, equivalent.\n" in printed
    names = ["not_equivalent", "equivalent"]
    for first, second, label in ROWS["validation"][:6]:
        assert re.search(f"^ *{names[label]}: +{re.escape(first)} \\| {re.escape(second)}$", printed, re.MULTILINE)
    for label, count in Counter(TRUTH).items():
        assert re.search(f"^ *{names[label]} +{count} of 120, {count / 120:.3f}$", printed, re.MULTILINE)
    assert f"To beat: accuracy {LAZY[0]:.3f}, binary F1 {LAZY[1]:.3f}\n" in printed

    evaluations = re.findall(r"\{'epoch': (\S+), 'eval_accuracy': (\S+), 'eval_f1': (\S+)\}", printed)
    assert [float(epoch) for epoch, *_ in evaluations] == [1, 3], "the first run and the one in full"
    found = [float(score) for score in evaluations[-1][1:]]
    assert found == [round(score, 3) for score in accuracy_and_f1(answers)]


def test_lesson_07(run):
    printed, (truth, answers, average) = run("07", "[truth, answers, task.average]")
    assert FROM_CACHE in printed
    assert (truth, average) == (TRUTH, "binary")
    for who, (accuracy, f1) in {"this loop": accuracy_and_f1(answers), "always the most frequent class": LAZY}.items():
        assert re.search(f"^{who} +accuracy {accuracy:.3f}, binary F1 {f1:.3f}$", printed, re.MULTILINE)
    assert f"{{'step': [], 'row_var': [2, 1], 'col_var': [1, {stand_in.WIDTH}]}}\n" in printed
    assert "mixed precision: no\n" in printed


def test_lesson_08(run, shapes):
    printed, (task, bias) = run(
        "08", "[task.name, trainer.optimizer.state[trainer.model.classifier.bias]['exp_avg_sq'].shape]"
    )
    assert (task, bias) == ("MRPC", [2])
    assert f"{len(shapes)} dictionaries; the last, of the classifier's bias:\n" in printed
    assert f"In the Trainer: {state_elements(shapes):,} elements, " in printed
    assert "178,504 moments + 104 RMS + 104 steps = 178,712 elements\n" in printed, "the same in both tiers"


def test_a_download_that_breaks_off_in_lesson_06(cache, tmp_path):
    """One sentence, and the same cell again, in the same kernel, goes on."""
    [lesson] = COURSE.select(["06"])
    _, first, *rest = [cell for cell in notebook.read(COURSE.notebook(lesson)).cells if cell.cell_type == "code"]
    [load] = [cell for cell in rest if "= tasks.load()" in cell.source]
    nb = notebook.assemble([first, load, new_code_cell("print(task.model().config.id2label)")])
    client = NotebookClient(nb, kernel_name="python3", timeout=execution.CELL_TIMEOUT, allow_errors=True)

    def outputs(index):
        """What the cell prints, what it shows as errors, and nothing else."""
        cell = nb.cells[index]
        cell.outputs = []
        client.execute_cell(cell, index)
        errors = [output for output in cell.outputs if output.output_type == "error"]
        printed = [output for output in cell.outputs if output.get("name") == "stdout"]
        assert len(errors) + len(printed) == len(cell.outputs), cell.outputs
        return "".join(output.text for output in printed), errors

    with hub_cache.serve(cache) as hub:
        hub.cut_short = "model.safetensors"
        here = hub_cache.NO_HUB | {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home")}
        environment = hub_cache.outside(execution.environment(tmp_path)) | here
        with client.setup_kernel(env=environment, cwd=str(tmp_path)):
            assert outputs(0) == (FROM_HUB, [])
            fetching, [error] = outputs(1)
            assert fetching.startswith(
                "Fetching distilbert/distilbert-base-cased and nyu-mll/glue from the Hugging Face"
            )
            assert error.traceback == [f"TaskUnavailable: {error.evalue}"], "more is shown than the sentence"
            assert error.evalue.startswith("The full tier's files could not be fetched (") and "\n" not in error.evalue
            assert "Check the connection and run this again" in error.evalue and "COURSE_TIER=small" in error.evalue

            hub.cut_short = None
            printed, errors = outputs(1)
            assert "\nTask MRPC: Pairs of sentences from the news" in printed and errors == []
            assert outputs(2) == ("{0: 'not_equivalent', 1: 'equivalent'}\n", [])
