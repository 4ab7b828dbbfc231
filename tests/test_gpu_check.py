"""`make gpu` as far as it goes without a GPU: its parts, its time limits, its tables, and how lessons show them."""

import csv
import dataclasses
import io
import json
import sys
import time
from itertools import pairwise
from types import SimpleNamespace

import conftest
import psutil
import pytest
import torch
from nbformat.v4 import new_code_cell

import _common
import course as course_list
import gpu
import notebook
from course_lib import gpu_results, step_needs
from course_lib.step_needs import FUSED, NAMES, OURS, TRANSFORMERS

CPU = torch.device("cpu")
MIB = 2**20
GIB = 2**30


# --- without a GPU


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_without_a_gpu_one_sentence_and_nothing_else(no_gpu, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    for name in ("measure", "run_part", "write"):
        monkeypatch.setattr(gpu, name, lambda *_, name=name: pytest.fail(f"{name} was called"))
    with pytest.raises(SystemExit) as end:
        gpu.main()
    assert end.value.code == gpu.NO_GPU  # Python prints it and exits with 1
    assert gpu.NO_GPU.count(".") == 1 and "no CUDA GPU" in gpu.NO_GPU and "nothing was measured" in gpu.NO_GPU
    assert capsys.readouterr().out == ""


def test_the_cpu_is_no_place_for_the_whole(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "cpu"])
    with pytest.raises(SystemExit) as end:
        gpu.main()
    assert end.value.code == 2 and "add --quick" in capsys.readouterr().err


def test_marked_tests_are_skipped_with_the_reason(no_gpu, monkeypatch):
    def item(*marks):
        added = []
        return SimpleNamespace(get_closest_marker=lambda name: name in marks, add_marker=added.append, added=added)

    items = [item("gpu"), item()]
    conftest.pytest_collection_modifyitems(items)
    assert [len(one.added) for one in items] == [1, 0]
    assert items[0].added[0].kwargs == {"reason": conftest.NO_GPU} and "CUDA GPU" in conftest.NO_GPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    conftest.pytest_collection_modifyitems(items)
    assert len(items[0].added) == 1


def test_files_with_marked_tests_are_found(tmp_path):
    found = [path.rpartition("/")[2] for path in gpu.gpu_test_files()]
    assert {"test_gpu.py", "test_meter.py"} <= set(found) and "test_gpu_check.py" not in found
    assert gpu.gpu_test_files(tmp_path) == []


# --- what is measured


@pytest.fixture(scope="module")
def measured():
    return gpu.measure(CPU, quick=True, rounds=4)


def test_a_tiny_model_is_measured(measured):
    model = gpu.tiny()
    sizes = [p.numel() for p in model.parameters()]
    assert list(measured["optimizers"]) == list(NAMES) and measured["about"]["parameters"] == sum(sizes)
    table = gpu_results.parse(measured)
    weights, inputs = 4 * sum(sizes), 8 * (2 * 16 + 2)  # tokens and labels, 8 bytes each
    inputs += sum(b.nbytes for b in model.buffers())  # the places of tokens
    for name, need in table.needs.items():
        assert need.as_predicted, name
        assert need.training.before == weights + need.state + inputs, name
        assert need.step.before == need.training.before + weights, "the gradients"
        assert need.step.peak <= need.training.peak and need.step.reserved is None
    # Two moments of each number and a step of 4 bytes for each tensor. Fused, AdamW needs no room.
    assert table.needs[FUSED].state == table.needs[step_needs.ADAMW].state == 2 * weights + 4 * len(sizes)
    assert table.needs[FUSED].step.added == 0 < table.needs[OURS].step.added
    assert table.times[FUSED] == gpu_results.Time(1.0, (1.0, 1.0))
    assert all(time.quartiles[0] <= time.ratio <= time.quartiles[1] for time in table.times.values())
    assert measured["about"]["baseline_ms"] > 0
    json.dumps(measured)


def test_one_that_fails_is_told_of_and_the_others_go_on(monkeypatch):
    make = step_needs.make

    def broken(name, parameters):
        if name == FUSED:
            raise RuntimeError("no kernel image is available\nfor this device")
        return make(name, parameters)

    monkeypatch.setattr(step_needs, "make", broken)
    monkeypatch.setattr(step_needs, "NAMES", (FUSED, OURS))
    table = gpu.measure(CPU, quick=True, rounds=2) | {"parts": []}
    assert table["optimizers"][FUSED] == {"error": "RuntimeError: no kernel image is available"}
    assert list(gpu_results.parse(table).needs) == [OURS] and gpu_results.parse(table).times == {}
    assert gpu.problems(table) == [f"{FUSED}: RuntimeError: no kernel image is available"]
    page = gpu.as_markdown(table)
    assert f"| {FUSED} | failed: RuntimeError: no kernel image is available |" in page and "not timed" in page


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="'SGD'.*AdamW; AdamW, fused; 8-bit AdamW"):
        step_needs.make("SGD", [])


def test_on_cuda_time_is_taken_between_events(monkeypatch):
    told = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            told.append("record")

        def synchronize(self):
            told.append("wait")

        def elapsed_time(self, other):
            return 2.5  # milliseconds

    monkeypatch.setattr(gpu.torch, "cuda", SimpleNamespace(Event=Event, synchronize=lambda _: told.append("wait")))
    optimizer = SimpleNamespace(step=lambda: told.append("step"))
    assert gpu.step_seconds(optimizer, torch.device("cuda")) == 0.0025
    assert told == ["wait", "record", "step", "record", "wait"]


def test_medians_and_turns():
    assert _common.middle([4.0, 1.0, 2.0, 3.0, 5.0]) == (3.0, (1.5, 4.5))
    assert _common.middle([7.0]) == (7.0, (7.0, 7.0))
    with pytest.raises(ValueError, match="there was none"):
        _common.middle([])
    assert list(_common.turns("abc", 4)) == [tuple("abc"), tuple("bca"), tuple("cab"), tuple("abc")]


# --- parts


def part(code, limit=60.0):
    return gpu.run_part("a part", [sys.executable, "-c", code], limit, {"ONE_MORE": "x"})


def test_a_part_that_goes_through():
    found, printed = part("import os; print('first'); print(os.environ['ONE_MORE'])")
    assert (found.result, found.detail, printed) == ("passed", "x", "first\nx\n")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('the lesson is missing')", "the lesson is missing"),
        ("raise RuntimeError('CUDA error: an illegal memory access')", "RuntimeError: CUDA error: an illegal memory"),
        ("import os; os.abort()", "ended by a signal (Signal 6)"),
    ],
)
def test_a_part_that_fails_says_why(code, why, capsys):
    found, _ = part(code)
    assert found.result == "failed" and why in found.detail


def lives(pid: int) -> bool:
    """Whether the process runs. One that has ended can stay listed until its parent asks for its status."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_part_that_takes_too_long_is_stopped_with_all_it_has_started(tmp_path):
    child = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    start = time.monotonic()
    found, _ = part(code, limit=6.0)
    assert (found.result, found.detail) == ("failed", "took longer than 6 seconds and was stopped")
    assert time.monotonic() - start < 60
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    while lives(pid):  # a killed process ends a moment after the signal
        assert time.monotonic() - start < 60
        time.sleep(0.1)


def test_a_part_without_time_left_is_not_begun():
    found, _ = part("print(1)", limit=0.5)
    assert found.result == "failed" and "were used up" in found.detail


@pytest.mark.parametrize(
    ("printed", "result", "passed"),
    [
        ("....\n===== 4 passed, 9 deselected in 3.21s =====\n", "passed", True),
        ("4 passed, 1 skipped in 63.00s (0:01:03)\n", "passed", True),
        ("ss\n2 skipped in 1.00s\n", "passed", False),
        ("1 failed, 4 passed in 3.21s\n", "failed", False),
        ("", "failed", False),
    ],
)
def test_tests_have_passed_if_one_did_and_none_failed(printed, result, passed):
    found = gpu.judged_tests(gpu.Part("tests", result, 1.0, "what was said"), printed)
    assert (found.result == "passed") == passed
    assert found.detail in (printed or "what was said")


def test_a_part_without_a_result_has_failed():
    ended = gpu.Part("lesson 06", "passed", 1.0, "Killed")
    assert gpu.with_result(ended, "noise\n[1, 2]\n") == (dataclasses.replace(ended, detail=""), [1, 2])
    failed, found = gpu.with_result(ended, "noise\nKilled\n")
    assert (failed.result, found) == ("failed", None) and "no result, but 'Killed'" in failed.detail
    failed = dataclasses.replace(ended, result="failed")
    assert gpu.with_result(failed, "[1, 2]") == (failed, None)


def test_a_lesson_sees_one_gpu_and_chooses_its_tier_itself(tmp_path, monkeypatch):
    sample = course_list.Course(tmp_path, "", (), (course_list.Lesson("09", "x", "X", 1, (), "", ()),))
    monkeypatch.setattr(course_list, "load", lambda: sample)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    monkeypatch.delenv("COURSE_TIER")
    with pytest.raises(course_list.CourseError, match="09_x.ipynb is missing"):
        gpu.run_lesson("09")
    told = "import os; print('Tier: ' + os.environ['CUDA_VISIBLE_DEVICES'], 'COURSE_TIER' in os.environ, end='.\\n')"
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "09_x.ipynb").write_text(
        notebook.text(notebook.assemble([new_code_cell(told)])), encoding="utf-8"
    )
    assert gpu.run_lesson("09") == {"tier": "3 False", "allocations": 0}


def test_what_is_said_of_a_lesson():
    assert gpu.lesson_detail({"tier": "full, on cuda", "allocations": 1234}) == (
        "full, on cuda; 1,234 allocations on the GPU"
    )
    assert gpu.lesson_detail({"tier": "", "allocations": 0}) == "GPU not used"


# --- the whole


def made_up():
    """A table as of a GPU that does not exist: one optimizer in full, one without a time, one that failed."""
    peak = {"before": 500 * MIB, "peak": 750 * MIB, "reserved": 800 * MIB}
    row = {
        "state": 100 * MIB,
        "elements": 1000,
        "predicted": 100 * MIB,
        "predicted_elements": 1000,
        "step": peak,
        "training": {**peak, "peak": 1750 * MIB, "reserved": 2000 * MIB},
    }
    about = {
        "date": "2030-01-02",
        "gpu": "Abacus 9",
        "memory": 24 * GIB,
        "driver": "700.1",
        "cuda": "15.0",
        "tier": "small, on cuda (why)",
        "python": "3",
        "torch": "9",
        "transformers": "8",
        "bitsandbytes": None,
        "model": "a full-size DistilBERT",
        "parameters": 65_783_042,
        "texts": 8,
        "length": 128,
        "baseline_ms": 1.234,
    }
    return {
        "about": about,
        "parts": [
            {"name": "tests", "result": "passed", "seconds": 61.4, "detail": "12 passed"},
            {"name": "lesson 07", "result": "failed", "seconds": 150.0, "detail": "took longer | than"},
        ],
        "optimizers": {
            FUSED: {**row, "time": {"ratio": 1.0, "quartiles": [1.0, 1.0]}},
            TRANSFORMERS: {**row, "time": {"ratio": 12.3456, "quartiles": [11.0, 13.0]}},
            OURS: {**row, "state": 90 * MIB},
            "8-bit AdamW": {"error": "RuntimeError: no | kernel"},
        },
    }


def test_the_table_as_text():
    page = gpu.as_markdown(made_up())
    assert "on 2030-01-02, on Abacus 9 (24 GiB); driver 700.1, CUDA 15.0,\ntorch 9, transformers 8" in page
    assert "bitsandbytes not there" in page and "Tier: small, on cuda (why)." in page
    assert "| lesson 07 | failed | 150 | took longer / than |" in page
    sizes = "500.0 | 750.0 | 250.0 | 800.0 | 500.0 | 1,750.0 | 1,250.0 | 2,000.0"
    assert f"| {TRANSFORMERS} | 100.000 | 100.000 | 1,000 | {sizes} | 12.35 (11.00 to 13.00) |" in page
    assert f"| {OURS} | 90.000 | 100.000 | 1,000 | {sizes} | – |" in page
    assert "1.23 ms" in page and "8 texts of 128 tokens" in page and "65,783,042 parameters" in page
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for above, below in pairwise(rows[4:]):
        assert above.count("|") == below.count("|"), below
    lines = list(csv.DictReader(io.StringIO(gpu.as_csv(made_up()))))
    assert [line["optimizer"] for line in lines] == [FUSED, TRANSFORMERS, OURS, "8-bit AdamW"]
    assert lines[1]["step_peak"] == str(750 * MIB) and lines[1]["training_reserved"] == str(2000 * MIB)
    assert (lines[1]["time_ratio"], lines[1]["quartile_3"], lines[2]["time_ratio"]) == ("12.3456", "13.0", "")
    assert lines[3]["error"] == "RuntimeError: no | kernel" and lines[3]["state"] == ""


def test_problems_are_parts_optimizers_and_predictions():
    found = gpu.problems(made_up())
    assert len(found) == 3
    assert found[:2] == ["lesson 07: took longer | than", "8-bit AdamW: RuntimeError: no | kernel"]
    assert found[2] == f"{OURS}: 94,371,840 bytes of state, and 104,857,600 were predicted"


@pytest.fixture
def whole(monkeypatch):
    """``whole(**outcomes)`` runs everything with made-up parts; returns the status, the files, and the limits."""

    def run(table, fails=(), seconds=1.0):
        now, limits, files = [0.0], {}, {}

        def run_part(name, command, limit, variables):
            limits[name] = limit
            now[0] += min(seconds, limit)
            if name in fails:
                return gpu.Part(name, "failed", seconds, "why"), ""
            printed = {
                gpu.TESTS: "3 passed in 1.00s",
                gpu.TABLE: json.dumps({key: table[key] for key in ("about", "optimizers")}),
            }
            return gpu.Part(name, "passed", seconds, "said"), printed.get(name, '{"tier": "", "allocations": 5}')

        monkeypatch.setattr(gpu, "run_part", run_part)
        monkeypatch.setattr(gpu, "write", files.update)
        monkeypatch.setattr(gpu.time, "monotonic", lambda: now[0])
        return gpu.everything(), files, limits

    return run


def good():
    table = made_up()
    del table["optimizers"]["8-bit AdamW"], table["optimizers"][OURS]
    return table


def test_all_well(whole, capsys):
    status, files, limits = whole(good())
    assert status == 0 and "FAILED" not in capsys.readouterr().out
    assert [path.relative_to(gpu.ROOT).as_posix() for path in files] == [
        "course_lib/data/gpu.json",
        "benchmarks/results/gpu.csv",
        "benchmarks/results/gpu.md",
    ]
    assert list(limits) == [gpu.TESTS, gpu.TABLE, *(f"lesson {number}" for number in gpu.LESSONS)]
    table = json.loads(next(iter(files.values())))
    assert [one["detail"] for one in table["parts"]] == ["3 passed in 1.00s", "", *["5 allocations on the GPU"] * 5]
    assert gpu.problems(table) == []


@pytest.mark.parametrize("name", [gpu.TESTS, "lesson 08"])
def test_a_part_that_fails_is_in_the_table_and_in_the_status(whole, capsys, name):
    status, files, _ = whole(good(), fails=[name])
    assert status == 1 and f"FAILED  {name}: why" in capsys.readouterr().out
    page = next(text for path, text in files.items() if path.suffix == ".md")
    assert f"| {name} | failed | 1 | why |" in page and f"| {TRANSFORMERS} |" in page


def test_without_any_optimizer_nothing_is_written(whole, capsys):
    status, files, _ = whole(good(), fails=[gpu.TABLE])
    assert (status, files) == (1, {}) and "nothing was written" in capsys.readouterr().out
    table = good()
    table["optimizers"] = {name: {"error": "no"} for name in table["optimizers"]}
    status, files, _ = whole(table)
    out = capsys.readouterr().out
    assert (status, files) == (1, {}) and f"FAILED  {FUSED}: no" in out


def test_it_all_fits_in_ten_minutes(whole):
    _, files, limits = whole(good(), seconds=1000.0)  # every part takes all that it gets
    assert sum(limits.values()) == pytest.approx(gpu.WHOLE) and gpu.WHOLE < 600
    assert limits["lesson 10"] == 0 and limits["lesson 06"] >= 60


# --- what lessons show


def test_without_a_table_a_sentence_says_what_to_do(tmp_path, monkeypatch, capsys):
    assert gpu_results.gpu_table(tmp_path / "gpu.json") is None
    monkeypatch.setattr(gpu_results, "gpu_table", lambda: None)
    monkeypatch.setattr(gpu_results, "live", lambda: None)
    gpu_results.show()
    assert capsys.readouterr().out == f"{gpu_results.NOBODY}\n"
    assert "make gpu" in gpu_results.NOBODY and "GPU yet" in gpu_results.NOBODY


def test_a_table_is_shown_dated(tmp_path, monkeypatch, capsys):
    for path, text in gpu.written(made_up(), tmp_path).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    table = gpu_results.gpu_table(tmp_path / "course_lib" / gpu_results.FILE)
    assert list(table.needs) == [FUSED, TRANSFORMERS, OURS] and list(table.times) == [FUSED, TRANSFORMERS]
    assert not table.needs[OURS].as_predicted and table.needs[FUSED].training.added == 1250 * MIB
    lines = str(table).splitlines()
    assert lines[0] == "Abacus 9, 2030-01-02, torch 9; MiB" and max(map(len, lines)) <= 92
    [line] = [line for line in lines if line.startswith(TRANSFORMERS)]
    numbers = line.removeprefix(TRANSFORMERS).split()
    assert numbers == ["100.00", "500.0", "750.0", "800.0", "500.0", "1,750.0", "2,000.0", "12.35"]
    assert lines[-1].endswith("–")

    shown = []
    monkeypatch.setattr(gpu_results, "gpu_table", lambda: table)
    monkeypatch.setattr(gpu_results, "live", lambda: dataclasses.replace(table, times={}))
    monkeypatch.setattr("course_lib.figures.show", lambda fig, alt: shown.append((fig, alt)))
    gpu_results.show()
    printed = capsys.readouterr().out
    assert printed.startswith(f"{table}\n") and "Measured here and now:\nAbacus 9" in printed
    [(fig, alt)] = shown
    assert "2030-01-02 on Abacus 9" in alt
    assert f"{TRANSFORMERS}: 100.0 state, 750.0 allocated at the peak of the step alone, 1,750.0" in alt
    [ax] = fig.axes
    assert [bar.get_width() for bar in ax.patches if bar.get_width() > 1900] == [2000] * 3
    assert [label.get_text() for label in ax.get_yticklabels()] == list(table.needs)


def test_without_a_gpu_nothing_is_measured_live():
    assert gpu_results.live() is None


def test_what_is_committed_is_whole_or_not_there():
    paths = list(gpu.written(made_up()))
    if gpu_results.gpu_table() is None:
        assert [path for path in paths if path.exists()] == [], "gpu.json is missing beside them"
        return
    table = json.loads(paths[0].read_text(encoding="utf-8"))
    for path, text in gpu.written(table).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make gpu writes it"
    assert table["about"]["memory"] and table["about"]["parameters"] == 65_783_042
    assert all(need.as_predicted for need in gpu_results.gpu_table().needs.values())
