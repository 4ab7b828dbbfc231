"""The committed comparison of optimizers that ``make compare`` has measured, and what can be said of its numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import sqrt
from typing import Any

import numpy as np

FILE = "data/optimizers.json"  # in course_lib


@dataclass(frozen=True)
class Memory:
    """What one optimizer needs for a full-size DistilBERT, on the CPU. All sizes are in bytes.

    Attributes:
        state, elements: what it keeps between two steps.
        weights: of the model; there are as many bytes of gradients.
        added: what a step needs for as long as it lasts, at its highest.
        step_ratio: time of its step over AdamW's: median of rounds in which all optimizers took a turn.
        quartiles: the same ratio, a quarter and three quarters of the rounds.
    """

    state: int
    elements: int
    weights: int
    added: int
    step_ratio: float
    quartiles: tuple[float, float]

    @property
    def total(self) -> int:
        """Weights, gradients and state: what stays from step to step."""
        return 2 * self.weights + self.state

    @property
    def peak(self) -> int:
        """The most during the optimizer's step. Activations are not in it: they are gone by then."""
        return self.total + self.added


@dataclass(frozen=True)
class Result:
    """All runs of one optimizer with the rate that the search has chosen, in the order of their seeds.

    Attributes:
        rate: learning rate; for the relative step its cap.
        seeds: one for each run.
        accuracy, f1: of each run.
        correct: shape ``[seeds, rows]``: for each run and each validation row whether the answer was right.
        ratios: of each run, time of its training over that of AdamW with the same seed.
        tried: the search: for each rate the mean accuracy on rows that were held back from training.
        memory: for a full-size DistilBERT.
    """

    rate: float
    seeds: tuple[int, ...]
    accuracy: tuple[float, ...]
    f1: tuple[float, ...]
    correct: np.ndarray
    ratios: tuple[float, ...]
    tried: Mapping[float, float]
    memory: Memory


@dataclass(frozen=True)
class Comparison:
    """All that was measured.

    Attributes:
        about: when, with which versions, on what kind of processor.
        task: what the runs were trained on and judged by.
        results: by optimizer.
    """

    about: Mapping[str, Any]
    task: Mapping[str, Any]
    results: Mapping[str, Result]

    def __str__(self) -> str:
        about, task = self.about, self.task
        return (
            f"Measured {about['date']} with torch {about['torch']}, transformers {about['transformers']} and "
            f"bitsandbytes {about['bitsandbytes']}\non {about['processor']}, one thread. {len(self.seeds)} seeds; "
            f"{task['train']:,} rows to train on, {task['validation']} to judge by, {task['epochs']} epochs."
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The same for every optimizer."""
        return next(iter(self.results.values())).seeds


@dataclass(frozen=True)
class Difference:
    """How much more accurate one optimizer's runs are than another's, and how far that can be trusted.

    Attributes:
        mean: over seeds and rows.
        from_seeds, from_rows: standard error of ``mean`` if other seeds, or other validation rows, had been drawn.
    """

    mean: float
    from_seeds: float
    from_rows: float

    @property
    def error(self) -> float:
        """Standard error from both together."""
        return sqrt(self.from_seeds**2 + self.from_rows**2)

    @property
    def interval(self) -> tuple[float, float]:
        """Two standard errors to either side, which is some 95 %."""
        return self.mean - 2 * self.error, self.mean + 2 * self.error

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves out 0, so that the sign is known."""
        low, high = self.interval
        return low > 0 or high < 0


@cache
def load() -> Comparison:
    """The committed table."""
    return parse(json.loads(resources.files("course_lib").joinpath(FILE).read_text(encoding="utf-8")))


def parse(table: Mapping[str, Any]) -> Comparison:
    """A table as ``benchmarks/compare.py`` writes it."""
    results = {}
    for name, memory in table["memory"].items():
        runs = sorted((run for run in table["runs"] if run["optimizer"] == name), key=lambda run: run["seed"])
        tried = [run for run in table["search"] if run["optimizer"] == name]
        results[name] = Result(
            rate=runs[0]["rate"],
            seeds=tuple(run["seed"] for run in runs),
            accuracy=tuple(run["accuracy"] for run in runs),
            f1=tuple(run["f1"] for run in runs),
            correct=np.array([unpack(run["correct"], table["task"]["validation"]) for run in runs]),
            ratios=tuple(run["seconds_ratio"] for run in runs),
            tried={
                rate: mean([run["accuracy"] for run in tried if run["rate"] == rate])
                for rate in sorted({run["rate"] for run in tried})
            },
            memory=Memory(**{**memory, "quartiles": tuple(memory["quartiles"])}),
        )
    return Comparison(table["about"], table["task"], results)


def pack(correct: Sequence[bool]) -> str:
    """Right and wrong answers as hexadecimal digits."""
    return np.packbits(np.array(correct, dtype=bool)).tobytes().hex()


def unpack(digits: str, rows: int) -> np.ndarray:
    """The answers that :func:`pack` has packed, shape ``[rows]``, bool."""
    return np.unpackbits(np.frombuffer(bytes.fromhex(digits), dtype=np.uint8), count=rows).astype(bool)


def mean(values: Sequence[float]) -> float:
    """Their sum over their number."""
    return sum(values) / len(values)


def sd(values: Sequence[float]) -> float:
    """Standard deviation of a sample: the squared distances from its mean are summed and divided by n − 1.

    Raises:
        ValueError: fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"A standard deviation needs two values or more; there were {len(values)}.")
    middle = mean(values)
    return sqrt(sum((value - middle) ** 2 for value in values) / (len(values) - 1))


def sampling_error(accuracy: float, rows: int) -> float:
    """Standard error of an accuracy, had other rows been drawn to judge by: √(p (1 − p) / n), the binomial one.

    Raises:
        ValueError: no accuracy, or no rows.
    """
    if not 0 <= accuracy <= 1 or rows < 1:
        raise ValueError(f"An accuracy is from 0 to 1, on one row or more; it was {accuracy} on {rows}.")
    return sqrt(accuracy * (1 - accuracy) / rows)


def difference(a: np.ndarray, b: np.ndarray) -> Difference:
    """How much more accurate the runs ``a`` are than ``b``, judged by the same rows, with the same seeds.

    Since both answer the same rows, a row that is hard for both tells nothing: what counts is how much the *difference*
    varies, from seed to seed and from row to row.

    Args:
        a, b: shape ``[seeds, rows]``, bool, as ``Result.correct``.

    Raises:
        ValueError: the shapes differ, or there are fewer than two seeds or rows.
    """
    if a.shape != b.shape or a.ndim != 2 or min(a.shape) < 2:
        raise ValueError(f"Two arrays [seeds, rows] of one shape, two or more of each; they were {a.shape}, {b.shape}.")
    d = a.astype(float) - b.astype(float)
    by_seed, by_row = d.mean(1), d.mean(0)
    return Difference(
        mean=float(d.mean()),
        from_seeds=sd(by_seed.tolist()) / sqrt(len(by_seed)),
        from_rows=sd(by_row.tolist()) / sqrt(len(by_row)),
    )
