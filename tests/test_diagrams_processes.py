"""The picture of one process beside several: what its bars and its description say is what the runs hold."""

import pytest

from course_lib.diagrams import processes

MIB = 2**20


def run(count, activations, messages, losses=(1.5, 1.25)):
    held = {"weights": 2, "gradients": 2, "messages": messages, "state": 4, "activations": activations}
    return {"processes": count, "losses": list(losses), "bytes": {k: [v * MIB] * count for k, v in held.items()}}


def test_bars_have_the_lengths_of_what_is_held():
    fig, alt = processes.compare(run(1, 12, 0), run(3, 4, 2))
    left, right = fig.axes
    rows = {}
    for bar in right.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2), []).append((bar.get_x(), bar.get_width()))
    assert rows[0] == [(0, 2), (2, 2), (4, 0), (4, 4), (8, 12)]
    assert rows[1] == rows[2] == rows[3] == [(0, 2), (2, 2), (4, 2), (6, 4), (10, 4)]
    assert [label.get_text() for label in right.get_yticklabels()] == [
        "alone",
        *(f"process {p}\nof 3" for p in range(3)),
    ]
    assert "alone: weights 2.00, gradients 2.00, messages 0.00, state 4.00, activations 12.00; process 0 of 3:" in alt
    assert {text.get_text() for text in right.texts} >= {"20.0", "14.0"}  # the sums


def test_losses_of_both_runs_are_drawn_and_compared():
    fig, alt = processes.compare(run(1, 1, 0), run(2, 1, 1, losses=(1.5, 1.26)))
    drawn = [list(line.get_ydata()) for line in fig.axes[0].lines]
    assert drawn == [[1.5, 1.25], [1.5, 1.26]]
    assert "at most 1e-02 apart" in alt and "from 1.50 to 1.25" in alt


def test_runs_of_unequal_length_are_not_compared():
    with pytest.raises(ValueError):
        processes.furthest([1.0, 2.0], [1.0])
