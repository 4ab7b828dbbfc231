"""The elongated valley: its geometry, and the race down it against closed formulas."""

import math

import pytest
import torch

from course_lib import figures
from course_lib.diagrams import valley


def sgd(G, state):
    return G


def sign(G, state):
    return G.sign()


@pytest.mark.parametrize("rotation", [0, 30, 45])
def test_the_valley_is_turned_with_its_starting_point(rotation):
    H, start = valley.turned(100, rotation)
    angle = math.radians(rotation)
    along = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.eigvalsh(H), torch.tensor([1.0, 100.0], dtype=torch.float64))
    torch.testing.assert_close(along @ H, along)  # it curves by 1 along its length
    torch.testing.assert_close(start @ along, torch.tensor(-2.0, dtype=torch.float64))
    torch.testing.assert_close(start.norm(), torch.tensor(math.hypot(2, 0.5), dtype=torch.float64))


def sgd_steps(elongation, rate):
    """Steps after which ``X_t = (1 - rate * curvature)**t * X_0`` is within a tenth of the start for five steps."""
    if rate > 2 / elongation:
        return math.inf
    near = 0
    for t in range(1, 3000):
        along, across = -2 * (1 - rate) ** t, 0.5 * (1 - rate * elongation) ** t
        near = near + 1 if math.hypot(along, across) <= 0.1 * math.hypot(2, 0.5) else 0
        if near == 5:
            return t - 4
    return math.inf


@pytest.mark.parametrize("elongation", [1, 10, 100])
@pytest.mark.parametrize("rotation", [0, 45])
def test_sgd_takes_the_steps_of_the_closed_formula_however_the_valley_lies(elongation, rotation):
    run = valley.fastest(sgd, *valley.turned(elongation, rotation))
    assert run.arrived
    assert run.steps == min(sgd_steps(elongation, float(rate)) for rate in valley.RATES)
    assert run.rate < 2 / elongation
    assert run.path.norm(dim=1)[-1] <= 0.1 * math.hypot(2, 0.5) < run.path.norm(dim=1)[-2]


def test_a_passing_visit_is_no_arrival():
    """Steps of a fixed length jump over the lowest point and back; only small ones ever stay near it."""
    H, start = valley.turned(1, 0)
    run = valley.fastest(sign, H, start)
    assert run.arrived
    assert run.rate <= 2 * 0.1 * math.hypot(2, 0.5)


@pytest.mark.parametrize("longest", [50, 400])  # after 400 steps, the largest rates have led beyond all numbers
def test_whoever_does_not_arrive_says_so(longest):
    run = valley.fastest(sgd, *valley.turned(1000, 0), longest=longest)
    assert not run.arrived
    assert run.steps == longest
    assert str(run) == f"more than {longest} steps"
    assert bool(run.path.isfinite().all())


def test_steps_are_counted_from_one_and_taken_on_one_thread():
    seen = []

    def rule(G, state):
        seen.append((state["step"], torch.get_num_threads()))
        return G

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        for _ in range(2):
            seen.clear()
            valley.fastest(rule, *valley.turned(1, 0), longest=3)
            assert seen == [(1, 1), (2, 1), (3, 1)]
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_runs_in_words():
    path = torch.zeros(2, 2)
    assert str(valley.Run(path, 0.1, arrived=True)) == "1 step"
    assert str(valley.Run(torch.zeros(1161, 2), 0.1, arrived=True)) == "1,160 steps"


def test_the_race_is_redrawn_in_the_same_figure():
    picture = valley.Race()
    runs = {"SGD": valley.fastest(sgd, *valley.turned(10, 20))}
    fig, alt = picture.update(10, 20, runs)
    artists = len(fig.axes[0].lines), len(fig.axes[1].lines), len(fig.axes[1].texts)
    runs = {"SGD": valley.fastest(sgd, *valley.turned(100, 45))}
    again, alt_again = picture.update(100, 45, runs)
    assert again is fig
    assert artists == (len(fig.axes[0].lines), len(fig.axes[1].lines), len(fig.axes[1].texts))
    assert "curves 10 times" in alt and "turned by 20°" in alt and "SGD 12 steps" in alt
    assert "curves 100 times" in alt_again and "SGD 115 steps" in alt_again
    path, distance, _ = picture.drawn["SGD"]
    torch.testing.assert_close(torch.tensor(path.get_xydata()), runs["SGD"].path)
    assert list(distance.get_xdata()) == list(range(116))
    torch.testing.assert_close(torch.tensor(distance.get_ydata()), runs["SGD"].path.norm(dim=1))


def test_contours_are_lines_of_equal_loss():
    picture = valley.Race()
    picture.update(50, 30, {})
    H, _ = valley.turned(50, 30)
    for line in picture.levels:
        X = torch.tensor(line.get_xydata())
        loss = ((X @ H) * X).sum(dim=1) / 2
        torch.testing.assert_close(loss, loss.mean().expand_as(loss))


def test_paths_are_described_by_where_they_end():
    ways = {name: torch.tensor([[-2.0, 0.5], [0.0, 0.25 * k]]) for k, name in enumerate(valley.LINES)}
    fig, alt = valley.paths(30, ways)
    assert "after 1 steps: SGD 0.00, momentum 0.25, RMSProp 0.50, Adam 0.75" in alt
    assert len(figures.png(fig, dpi=20)) > 1000
