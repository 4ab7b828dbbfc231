"""benchmarks/steps.py: what it computes from times, with made-up ones, and that it measures at all."""

import csv
import io

import pytest
import torch
from torch.nn import Parameter

import steps
from course_lib import step_needs, step_time
from course_lib.memory import predict_state_size

ROWS = [
    steps.Row("a set", steps.FUSED, 1_000, 2.0, (1.0, 3.0), 1.0, 0.5, 8 * 2**20, 0),
    steps.Row("a set", steps.OURS, 1_000, 3.0, (2.8, 3.4), 1.5, 0.25, 2**20, 2**19),
]
GROWN = [steps.Row("10", name, 100, 1e-6, (1e-6, 1e-6), 1.0, 1e-7, 0, 0) for name in steps.COLOR]
FACTS = dict.fromkeys(["date", "versions", "python", "processor", "threads"], "some")


def test_the_table_holds_ratios_and_multiples_of_the_floor():
    text = steps.as_markdown(FACTS, ROWS, GROWN)
    assert "## A set: 1,000 parameters" in text
    assert "| AdamW, fused | 1.00 (0.50 to 1.50) | 2,000.0 | 4.00 | 8.00 | 0.00 |" in text
    assert "| Adafactor, ours | 1.50 (1.40 to 1.70) | 3,000.0 | 12.00 | 1.00 | 0.50 |" in text
    assert "| 10 | 10.00 | 10.00 | 10.00 | 10.00 |" in text


def test_the_lines_hold_times_in_milliseconds():
    first, second = csv.DictReader(io.StringIO(steps.as_csv(ROWS)))
    assert (first["optimizer"], first["ms"], first["ms_low"], first["ms_high"]) == (
        steps.FUSED,
        "2000.000",
        "1000.000",
        "3000.000",
    )
    assert (second["ratio"], second["floor_ms"], second["added_bytes"]) == ("1.500", "250.000", str(2**19))


def test_the_picture_has_a_dot_for_each_set_and_a_line_for_growth():
    left, right = steps.draw(ROWS, GROWN).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["a set"]
    assert [list(line.get_xdata()) for line in left.lines[:2]] == [[1.0], [1.5]]
    assert [list(line.get_ydata()) for line in right.lines] == [[10.0]] * len(steps.COLOR)


def test_a_measurement_of_every_optimizer():
    rows = steps.measure("tiny", lambda: [Parameter(torch.ones(8, 6)), Parameter(torch.ones(5))], steps.NAMES, 2)
    assert [row.optimizer for row in rows] == list(steps.NAMES)
    model = torch.nn.ParameterList([Parameter(torch.ones(8, 6)), Parameter(torch.ones(5))])
    for row in rows:
        kind = step_needs.KINDS.get(row.optimizer, "adafactor")
        if row.optimizer == steps.TRANSFORMERS_SCALED:
            kind = "adafactor_transformers"
        assert row.numbers == 53 and row.state == predict_state_size(model, kind).bytes
        assert row.quartiles[0] <= row.seconds <= row.quartiles[1] and row.floor > 0
    base = rows[0]
    assert base.optimizer == steps.FUSED and base.ratio == 1
    assert all(row.ratio == pytest.approx(row.seconds / base.seconds) for row in rows)


def test_floors_follow_from_the_passes_over_memory():
    assert (steps.PASSES[steps.FUSED], steps.PASSES[steps.OURS], steps.PASSES[steps.OURS_SCALED]) == (7, 5, 6)
    assert step_time.floor_seconds(10**6, 5, 10**9) == pytest.approx(0.02)


@pytest.mark.parametrize("title", ["4,000 small tensors", "convolutions"])
def test_sets_of_parameters(title):
    parameters = steps.SETS[title]()
    assert len(parameters) == (4_000 if "small" in title else 5)
    assert {p.dtype for p in steps.cast(lambda: parameters[:3], torch.bfloat16)()} == {torch.bfloat16}
