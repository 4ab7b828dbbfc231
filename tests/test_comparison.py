"""The statistics of lesson 10, its committed table, and the program that measures it."""

import csv
import io
import json
import statistics
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

import compare
from course_lib import comparison, lockstep, memory, meter, tasks
from course_lib.comparison import difference
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, NAMES, RELATIVE, Run

MIB = 2**20


def test_sd_is_that_of_a_sample():
    values = (0.71, 0.74, 0.75, 0.68)
    assert comparison.sd(values) == pytest.approx(statistics.stdev(values))
    with pytest.raises(ValueError, match="two values or more; there were 1"):
        comparison.sd([0.7])


def test_sampling_error_is_the_binomial_one():
    assert comparison.sampling_error(0.75, 300) == pytest.approx(0.025)
    drawn = np.random.default_rng(0).binomial(473, 0.74, 20_000) / 473
    assert comparison.sampling_error(0.74, 473) == pytest.approx(drawn.std(), rel=0.02)
    for accuracy, rows in ((1.1, 10), (74, 473), (0.5, 0)):
        with pytest.raises(ValueError, match=f"it was {accuracy} on {rows}"):
            comparison.sampling_error(accuracy, rows)


def test_a_difference_by_hand():
    a, b = np.array([[1, 1, 0], [1, 0, 0]], bool), np.array([[0, 1, 0], [1, 0, 1]], bool)
    found = difference(a, b)  # entries [[1, 0, 0], [0, 0, -1]]: means of seeds 1/3, -1/3, of rows 1/2, 0, -1/2
    assert found.mean == 0
    assert found.from_seeds == pytest.approx(sqrt(2 / 9) / sqrt(2))
    assert found.from_rows == pytest.approx(0.5 / sqrt(3))
    assert found.error == pytest.approx(sqrt(1 / 9 + 1 / 12))
    assert found.interval == pytest.approx((-2 * found.error, 2 * found.error)) and not found.resolved


def test_rows_that_are_hard_for_both_add_no_error():
    hard = np.zeros((4, 300), bool)
    easy = ~hard
    a = np.concatenate([easy, hard], 1)
    assert (difference(a, a).mean, difference(a, a).error) == (0, 0)
    one_more = a.copy()
    one_more[:, 300] = True  # one hard row answered by every seed
    found = difference(one_more, a)
    assert found.from_seeds == 0 and found.mean == pytest.approx(1 / 600) and found.from_rows == pytest.approx(1 / 600)


@pytest.mark.parametrize(("truth", "seeds", "rows"), [(0.0, 8, 400), (0.03, 8, 400), (0.03, 3, 100)])
def test_the_interval_catches_the_truth(truth, seeds, rows):
    generator = np.random.default_rng(1)
    caught = 0
    for _ in range(400):
        hardness = generator.normal(0.74, 0.2, rows)
        luck = generator.normal(0, 0.01, (2, seeds, 1))
        chances = np.clip(np.stack([hardness + truth / 2 + luck[0], hardness - truth / 2 + luck[1]]), 0, 1)
        a, b = generator.random((2, seeds, rows)) < chances
        low, high = difference(a, b).interval
        caught += low <= (np.clip(hardness + truth / 2, 0, 1) - np.clip(hardness - truth / 2, 0, 1)).mean() <= high
    assert caught / 400 > 0.93


def test_a_clear_lead_is_resolved_whoever_has_it():
    generator = np.random.default_rng(2)
    a, b = generator.random((8, 400)) < 0.8, generator.random((8, 400)) < 0.6
    assert difference(a, b).resolved and difference(b, a).resolved
    assert difference(b, a).mean == -difference(a, b).mean < -0.1


@pytest.mark.parametrize("shapes", [((2, 3), (2, 4)), ((1, 3), (1, 3)), ((2, 1), (2, 1)), ((3,), (3,))])
def test_a_difference_needs_the_same_seeds_and_rows(shapes):
    with pytest.raises(ValueError, match="two or more of each"):
        difference(*(np.zeros(shape, bool) for shape in shapes))


def test_answers_are_packed_bit_by_bit():
    assert comparison.pack([True, *[False] * 7, True]) == "8080"
    answers = np.random.default_rng(0).random(473) < 0.7
    assert np.array_equal(comparison.unpack(comparison.pack(answers), 473), answers)


def sample_table():
    """A table of two optimizers, two seeds, four rows, as compare.py makes it."""
    runs = [
        {
            "optimizer": name,
            "rate": 1e-3,
            "seed": seed,
            "accuracy": sum(correct) / 4,
            "f1": 0.5,
            "seconds_ratio": ratio,
            "correct": comparison.pack(correct),
        }
        for name, seed, ratio, correct in (
            (ADAMW, 1, 1.0, (1, 1, 1, 0)),
            (GIVEN, 1, 1.3, (1, 1, 1, 1)),
            (ADAMW, 0, 1.0, (1, 0, 1, 0)),
            (GIVEN, 0, 1.1, (0, 0, 1, 0)),
        )
    ]
    search = [
        {"optimizer": name, "rate": rate, "seed": seed, "accuracy": accuracy, "f1": 0.1}
        for name in (ADAMW, GIVEN)
        for rate, seed, accuracy in ((1e-3, 5, 0.6), (1e-3, 6, 0.8), (1e-4, 5, 0.2), (1e-4, 6, 0.3))
    ]
    sizes = {"state": 200, "elements": 50, "weights": 100, "added": 30, "step_ratio": 1.0, "quartiles": [0.9, 1.1]}
    return {
        "about": {
            "date": "2030-01-02",
            "torch": "9",
            "transformers": "8",
            "bitsandbytes": "7",
            "python": "3",
            "processor": "any",
        },
        "task": {
            "train": 40,
            "validation": 4,
            "majority": 0.25,
            "epochs": 4,
            "batch_size": 8,
            "parameters": 12,
            "search_train": 36,
            "search_validation": 4,
        },
        "memory": {ADAMW: sizes, GIVEN: {**sizes, "state": 2}},
        "search": search,
        "runs": runs,
    }


def test_a_table_is_read_in_the_order_of_seeds_and_rates():
    compared = comparison.parse(sample_table())
    result = compared.results[GIVEN]
    assert compared.seeds == result.seeds == (0, 1) and result.accuracy == (0.25, 1.0)
    assert result.correct.tolist() == [[False, False, True, False], [True] * 4] and result.ratios == (1.1, 1.3)
    assert list(result.tried) == [1e-4, 1e-3] and list(result.tried.values()) == pytest.approx([0.25, 0.7])
    assert (result.memory.total, result.memory.peak) == (202, 232)
    assert "2030-01-02 with torch 9" in str(compared) and "2 seeds" in str(compared)


def test_the_search_takes_the_highest_mean_and_says_when_it_was_too_narrow(capsys):
    peaks = {ADAMW: 2, ADAMW_8BIT: 1, GIVEN: 4, RELATIVE: 3}  # which of the five is best
    runs = [
        Run(name, rate, seed, 0.7 - 0.1 * abs(i - peaks[name]) + 0.05 * (-1) ** seed, 0.0, (), 0.0)
        for name in NAMES
        for i, rate in enumerate(compare.RATES[name])
        for seed in (1, 2)
    ]
    chosen = compare.best_rates(runs)
    assert chosen == {name: compare.RATES[name][peaks[name]] for name in NAMES}
    assert (
        capsys.readouterr().out == f"Mind: for {GIVEN} the best rate, 0.01, is at the end of those that were tried.\n"
    )
    level = [replace(run, accuracy=0.5) for run in runs]
    assert compare.best_rates(level)[ADAMW] == 1e-4


def test_every_optimizer_gets_a_search_of_the_same_size_on_seeds_of_its_own():
    assert len({len(rates) for rates in compare.RATES.values()}) == 1 and list(compare.RATES) == list(NAMES)
    steps = [np.diff(np.log10(rates)) for rates in compare.RATES.values()]
    assert np.allclose(steps, 0.5, atol=0.03)
    assert not set(compare.SEEDS) & set(compare.SEARCH_SEEDS) and len(compare.SEEDS) >= 3


def test_the_search_sees_no_row_of_the_validation_set():
    task = tasks.load("small")
    shorter = compare.searched_on(task)
    rows = [tuple(row) for row in task.train["input_ids"]]
    parts = [[tuple(row) for row in part["input_ids"]] for part in (shorter.train, shorter.validation)]
    assert parts[0] + parts[1] == rows
    assert len(parts[1]) == round(0.1 * len(rows)) and shorter.epochs == task.epochs


def test_allocations_count_what_the_block_needs_at_its_highest():
    def work():
        first = torch.ones(MIB)  # 4 MiB
        second = first + 1  # and 4 more
        del first
        return second + 1  # 4 of which are gone

    with compare.allocations() as levels:
        kept = work()
    assert max(levels) == pytest.approx(8 * MIB, abs=4096)
    assert levels[-1] == pytest.approx(4 * MIB, abs=4096) and kept[0] == 3


def test_the_table_as_text():
    table = sample_table()
    lines = list(csv.DictReader(io.StringIO(compare.as_csv(table))))
    assert len(lines) == 12 and lines[9]["optimizer"] == GIVEN and lines[9]["seconds_ratio"] == "1.3"
    page = compare.as_markdown(table)
    assert "on 2030-01-02, with torch 9" in page
    # 0.25 and 1 have the mean 0.625 and the SD 0.53; 202 bytes are 0 MiB
    assert "| Adafactor, given rate | 0.001 | 0.625 ± 0.530 | 0.500 ± 0.000 | 1.20 ± 0.14 | 0.00 |" in page
    assert "| AdamW | 0.250 | 0.700 |" in page


# --- what is committed


@pytest.fixture(scope="module")
def table():
    return json.loads((compare.ROOT / "course_lib" / comparison.FILE).read_text(encoding="utf-8"))


def test_csv_and_page_are_those_of_the_committed_table(table):
    for path, text in compare.written(table).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: make compare writes it"


def test_the_committed_table_is_whole(table):
    compared = comparison.load()
    assert list(compared.results) == list(NAMES) and len(compared.seeds) >= 3
    for name, result in compared.results.items():
        assert result.seeds == compared.seeds
        assert result.correct.shape == (len(compared.seeds), compared.task["validation"])
        assert result.correct.mean(1).tolist() == pytest.approx(result.accuracy, abs=1e-6)
        assert tuple(result.tried) == compare.RATES[name]
        assert result.tried[result.rate] == max(result.tried.values()), "not the rate that the search has found"
        assert min(result.accuracy) > compared.task["majority"] and all(0 < f1 < 1 for f1 in result.f1)
    assert set(compared.results[ADAMW].ratios) == {1.0}
    assert not {run["seed"] for run in table["runs"]} & {run["seed"] for run in table["search"]}


def test_committed_sizes_are_those_predicted():
    model = tasks.distilbert(device="meta")
    kinds = ("adamw", "adamw8bit_bitsandbytes", "adafactor_transformers", "adafactor_torch")
    for (name, result), kind in zip(comparison.load().results.items(), kinds, strict=True):
        predicted = memory.predict_state_size(model, kind)
        assert (result.memory.state, result.memory.elements) == (predicted.bytes, predicted.elements), name
        assert result.memory.weights == 4 * 65_783_042


def test_committed_room_is_what_the_meter_finds_where_it_can_see():
    """bitsandbytes' step is one operation to the meter; those of the others are made of torch's."""
    model = tasks.distilbert(device="meta")
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for name in (ADAMW, GIVEN):  # torch's Adafactor takes no step on meta tensors
        optimizer = lockstep.make(name, list(model.parameters()), 1e-3)
        optimizer.step()
        with meter.measure(model, optimizer) as usage:
            optimizer.step()
        assert comparison.load().results[name].memory.added == pytest.approx(usage.added, abs=0.1 * MIB)
