"""How long an optimizer's step takes, and how long it has to take at least: what it moves over the machine's bandwidth.

An elementwise operation computes little with each number, so it waits for memory. Its time then has a floor: the bytes
that have to come from memory and go back, divided by the bytes per second that the machine can move. That is the
sloping part of the roofline model (Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance
model for multicore architectures", Communications of the ACM 52(4), doi 10.1145/1498765.1498785).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import torch

from course_lib import step_needs

# How often a step has to move as many numbers as the parameters have, between memory and processor, at least: each
# reading and each writing of the parameters, of their gradient, or of a state of their size is one pass. Adafactor
# reads the gradient three times: for its averages, for the root mean square by which it is clipped, and for the step.
# Each needs what is complete only after the one before. Then it reads and writes the parameters; RMS scaling reads them
# once more. Rows, columns and vectors are left out.
ADAFACTOR_PASSES = 5  # with a given rate
SCALED_ADAFACTOR_PASSES = 6  # with RMS scaling, which torch's class always has
ADAMW_PASSES = 7  # reads gradient, parameters and both moments; writes parameters and both moments
SGD_PASSES = 3  # reads gradient and parameters; writes parameters
# Of 8-bit AdamW: gradient, parameters, and one byte instead of four for each reading and writing of a moment, and with
# each block of 256 bytes a scale of four.
ADAMW_8BIT_PASSES = 3 + 4 * (1 + 4 / 256) / 4
# For each optimizer of ``step_needs``, with the settings that it has there.
PASSES: dict[str, float] = {
    step_needs.ADAMW: ADAMW_PASSES,
    step_needs.FUSED: ADAMW_PASSES,
    step_needs.ADAMW_8BIT: ADAMW_8BIT_PASSES,
    step_needs.TRANSFORMERS: ADAFACTOR_PASSES,
    step_needs.TORCH: SCALED_ADAFACTOR_PASSES,
    step_needs.FOREACH: SCALED_ADAFACTOR_PASSES,
    step_needs.OURS: ADAFACTOR_PASSES,
}


class Stream:
    """``x += a * y * z`` on three tensors: when called, it moves ``bytes`` bytes and computes next to nothing.

    It is close to the triad of STREAM (McCalpin, "STREAM: Sustainable Memory Bandwidth in High Performance Computers",
    www.cs.virginia.edu/stream), but works in place, as a step does: three tensors are read and one of them is written.
    To write into another one would make most processors read that one too, unseen. (With fewer tensors at a time a
    single core does not always get all the bandwidth that there is.)

    Args:
        numbers: of each tensor, in float32. To measure memory and no cache, take far more than the cache holds; STREAM
            asks for four times as much.
        device: where they are.

    Attributes:
        bytes: that a call reads and writes: 16 for each number.
    """

    def __init__(self, numbers: int = 2**25, device: torch.device | str = "cpu") -> None:
        self.tensors = tuple(torch.ones(numbers, device=device) for _ in range(3))
        self.bytes = 4 * self.tensors[0].nbytes

    def __call__(self) -> None:
        x, y, z = self.tensors
        x.addcmul_(y, z, value=1e-9)


def bandwidth(numbers: int = 2**25, rounds: int = 5, device: torch.device | str = "cpu") -> float:
    """The memory bandwidth that torch gets on this machine, on as many threads as it uses, in bytes per second.

    It is the best of several calls of a :class:`Stream`, as in STREAM: whatever else the machine does can only make a
    call slower. To compare with the times of something, rather put a Stream among the functions of :func:`in_turns`:
    then both meet the same disturbances.

    Args:
        numbers, device: see :class:`Stream`. The default needs 384 MiB for a moment.
        rounds: how often to measure.
    """
    stream = Stream(numbers, device)
    return stream.bytes / in_turns({"stream": stream}, rounds, wait=waiting(device))["stream"].best


@dataclass(frozen=True)
class Timing:
    """Times of one function, in seconds, in the order in which they were taken."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the times is below the first, a quarter above the second; a single time is both."""
        if len(self.seconds) == 1:
            return self.seconds * 2
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    @property
    def best(self) -> float:
        """The shortest."""
        return min(self.seconds)


def in_turns(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int = 7,
    *,
    limit: float = inf,
    wait: Callable[[], Any] | None = None,
) -> dict[str, Timing]:
    """Time functions side by side: each once in every round, and in each round another one first.

    What disturbs the machine for a while then disturbs all of them, so that ratios of medians mean something where the
    times themselves do not. Before the first round each is called once without a clock, to make what it keeps.

    Args:
        functions: without arguments, by name.
        rounds: how many.
        limit: seconds after which no further round begins; the first one always takes place.
        wait: called before the clock is read, where a function returns before its work is done (see :func:`waiting`).

    Raises:
        ValueError: there is nothing to time.
    """
    names = list(functions)
    if not names or rounds < 1:
        raise ValueError("Give one function or more, and one round or more.")
    wait = wait or (lambda: None)
    for name in names:
        functions[name]()
    wait()
    times: dict[str, list[float]] = {name: [] for name in names}
    start = perf_counter()
    for turn in range(rounds):
        if turn and perf_counter() - start > limit:
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            began = perf_counter()
            functions[name]()
            wait()
            times[name].append(perf_counter() - began)
    return {name: Timing(tuple(taken)) for name, taken in times.items()}


def waiting(device: torch.device | str) -> Callable[[], Any] | None:
    """What waits until a device has done its work, for :func:`in_turns`; None on a CPU, which returns when it has."""
    return torch.cuda.synchronize if torch.device(device).type == "cuda" else None


def floor_seconds(parameters: int, passes: float, bandwidth: float, bytes_per_number: float = 4) -> float:
    """The least time of a step in seconds: the bytes that it has to move over the bandwidth.

    Args:
        parameters: how many numbers are updated.
        passes: how often that many numbers are read or written, see ``PASSES``.
        bandwidth: bytes per second.
        bytes_per_number: 4 in float32.
    """
    return parameters * passes * bytes_per_number / bandwidth
