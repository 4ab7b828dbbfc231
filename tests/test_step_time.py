import itertools

import pytest
import torch

from course_lib import step_needs, step_time
from course_lib.step_time import Stream, Timing


def test_a_stream_reads_three_tensors_and_writes_one():
    stream = Stream(1000)
    x, y, z = (tensor.fill_(value) for tensor, value in zip(stream.tensors, (0.0, 2.0, 3.0), strict=True))
    stream()
    assert x.tolist() == pytest.approx([6e-9] * 1000) and (y[0], z[0]) == (2, 3)
    assert stream.bytes == 4 * x.nbytes == 16_000


def clock(monkeypatch, *ticks):
    """Let the clock show these times, one after the other."""
    monkeypatch.setattr(step_time, "perf_counter", iter(ticks).__next__)


def test_bandwidth_is_that_of_the_best_round(monkeypatch):
    # The start, then for each of three rounds its beginning and end, and between them a look at the limit.
    clock(monkeypatch, 0, 0, 4, 4, 10, 12, 12, 20, 23)
    assert step_time.bandwidth(500, rounds=3) == 16 * 500 / 2


def test_medians_and_quartiles():
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0))
    assert (timing.median, timing.quartiles, timing.best) == (3.0, (2.0, 4.0), 1.0)
    assert Timing((2.0,)).quartiles == (2.0, 2.0)


def test_all_take_turns_and_another_one_is_first_each_time():
    called = []
    functions = {name: lambda name=name: called.append(name) for name in "abc"}
    timings = step_time.in_turns(functions, rounds=4, wait=lambda: called.append("."))
    assert "".join(called) == "abc." + "a.b.c." + "b.c.a." + "c.a.b." + "a.b.c."
    assert list(timings) == ["a", "b", "c"]
    assert all(len(timing.seconds) == 4 and timing.best >= 0 for timing in timings.values())


def test_each_time_is_that_of_its_own_function(monkeypatch):
    now = itertools.count()
    passed = {"short": 1, "long": 10}
    time = 0.0

    def tick():
        next(now)
        return time

    def run(name):
        nonlocal time
        time += passed[name]

    monkeypatch.setattr(step_time, "perf_counter", tick)
    timings = step_time.in_turns({name: lambda name=name: run(name) for name in passed}, rounds=3)
    assert timings == {"short": Timing((1.0,) * 3), "long": Timing((10.0,) * 3)}


@pytest.mark.parametrize(("limit", "rounds"), [(0, 1), (25, 3), (1000, 5)])
def test_no_round_begins_after_the_limit(monkeypatch, limit, rounds):
    time = 0.0

    def ten_seconds():
        nonlocal time
        time += 10

    monkeypatch.setattr(step_time, "perf_counter", lambda: time)
    assert len(step_time.in_turns({"slow": ten_seconds}, rounds=5, limit=limit)["slow"].seconds) == rounds


def test_nothing_to_time():
    for functions, rounds in (({}, 3), ({"a": list}, 0)):
        with pytest.raises(ValueError, match="one function or more"):
            step_time.in_turns(functions, rounds)


def test_floor():
    # 10⁹ float32 parameters, 7 passes: 28 GB, at 14 GB/s two seconds; half of it in 16 bits
    assert step_time.floor_seconds(10**9, 7, 14e9) == 2.0
    assert step_time.floor_seconds(10**9, 7, 14e9, bytes_per_number=2) == 1.0


def test_passes_of_every_optimizer():
    assert list(step_time.PASSES) == list(step_needs.NAMES)
    # bytes per parameter of 8-bit AdamW: three times 4, four times 1, and for 256 parameters four scales of 4
    assert 4 * step_time.PASSES[step_needs.ADAMW_8BIT] == 12 + 4 + 16 / 256


def test_waiting():
    assert step_time.waiting("cpu") is None and step_time.waiting("cuda:0") is torch.cuda.synchronize
