"""The task `t5_3b` of exercise 08: hold a published table of sizes against what is really kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn

from course_lib import planner
from course_lib.check import _values
from course_lib.check._state_guesses import GUESS
from course_lib.check._state_ways import GIB, MIB
from course_lib.check._task import Belief, Task, Verdict, wrong

ASKED = ("adamw", "adafactor", "adafactor_momentum")
SAYS: dict[str, str] = {
    "believes_source": "This is the guide's figure, or its 4 bytes for each parameter. Take your own count of what is "
    "kept: rows, columns and vectors.",
    "blames_adamw": "AdamW's line holds: two moments of 4 bytes are 8 bytes for each parameter, and 24 GB are what "
    "that makes for a round 3 billion. Which line is off by far more than rounding?",
    "blames_8bit": "The line on 8 bits holds: two moments of 1 byte are 2 bytes for each parameter, and 6 GB with "
    "them. Which line is off by far more than rounding?",
    "decimal_for_binary": "That is in GB, of 10⁹ bytes. GiB are asked, of 2³⁰ bytes: over 7 % fewer of them.",
    "bits_for_bytes": "That is eight times too much: bits, not bytes. A number in 32 bits takes 4 bytes.",
    "numbers_not_bytes": "That is the count of numbers. Each takes 4 bytes.",
    "two_bytes": "All your sizes are half of what they should be. A number takes 4 bytes here, not 2.",
    "wrong_unit": "The size is right, but in another unit. GiB are asked, of 2³⁰ bytes.",
    "three_billion": "You take 3 billion parameters. This model has fewer: count them.",
    "tied_twice": "The embedding is in your count under several names, as in a saved model. It is one tensor.",
    "one_moment": "That is one moment. AdamW keeps two for each parameter.",
    "weights_are_state": "Weights or gradients are in it. They take memory as well, but the guide, and this task, are "
    "about what the optimizer keeps.",
    "vectors_forgotten": "Vectors are missing. They are not factored, and keep their second moment whole.",
    "one_margin": "Rows or columns alone are in it. For a matrix Adafactor keeps the means of both.",
    "forgets_momentum": "With momentum there is a first moment besides: one number for each parameter, on top of rows, "
    "columns and vectors.",
    "forgets_second_moment": "This is the first moment alone. What Adafactor keeps without momentum comes on top.",
    "second_moment_whole": "Momentum brings back the first moment. The second one stays factored.",
    "first_moment_factored": "You factor the first moment too. It is kept whole: one number for each parameter.",
    "bytes_once": "One of the two moments is in your sum without its 4 bytes for each number.",
    "rounded": "That is rounded, and too little is left of it. Return the number as it is; round where you print it.",
}
# Bytes in what somebody may take for a GiB, with the name of the mistake.
UNITS = {
    GIB: "",
    10**9: "decimal_for_binary",
    **dict.fromkeys((1, 1000, 10**6, 1024, MIB, 1000 * MIB, 10**6 * 1024), "wrong_unit"),
}


@dataclass(frozen=True)
class _Counts:
    """How many numbers there are: parameters, and moments of an Adafactor, all and in part."""

    parameters: int
    moments: int
    vectors: int
    rows: int

    @classmethod
    def of(cls, parameters: list[nn.Parameter]) -> _Counts:
        matrices = [p for p in parameters if p.ndim > 1]
        vectors = sum(p.numel() for p in parameters if p.ndim < 2)
        moments = sum(int(GUESS.of(p.shape)) for p in parameters)
        rows = sum(p.numel() // p.shape[-1] for p in matrices)
        return cls(sum(p.numel() for p in parameters), moments, vectors, rows)

    def bytes(self) -> dict[str, int]:
        """The sizes that are asked for, from these counts."""
        momentum = self.parameters + self.moments
        return {"adamw": 8 * self.parameters, "adafactor": 4 * self.moments, "adafactor_momentum": 4 * momentum}


@cache
def _counts(tied: bool = False) -> _Counts:
    """The counts for T5 3B, with tied parameters under one name or under each."""
    model = planner.build("T5 3B")
    return _Counts.of([p for _, p in model.named_parameters(remove_duplicate=not tied)])


def _right() -> dict[str, Any]:
    return {**{key: size / GIB for key, size in _counts().bytes().items()}, "wrong": "adafactor"}


def _close(came: float, expected: float) -> bool:
    return abs(came - expected) <= 5e-4 * expected


def _wrong_sizes(key: str) -> list[tuple[str, list[float]]]:
    """For each misconception the bytes to which it leads."""
    counts = _counts()
    size, first, moments = counts.bytes()[key], 4 * counts.parameters, 4 * counts.moments
    margins = (counts.rows, counts.moments - counts.vectors - counts.rows)
    own: dict[str, list[tuple[str, list[float]]]] = {
        "adamw": [
            ("believes_source", [24 * GIB]),
            ("three_billion", [8 * 3e9, 4 * 3e9]),
            ("one_moment", [first]),
        ],
        "adafactor": [
            ("believes_source", [12 * GIB, 12e9, first, first + moments]),
            ("vectors_forgotten", [moments - 4 * counts.vectors]),
            ("one_margin", [4 * (margin + extra) for margin in margins for extra in (0, counts.vectors)]),
        ],
        "adafactor_momentum": [
            ("believes_source", [12 * GIB]),
            ("three_billion", [12e9, 12e9 + moments]),
            ("forgets_momentum", [moments]),
            ("forgets_second_moment", [first]),
            ("second_moment_whole", [2 * first, 2 * first + moments]),
            ("first_moment_factored", [2 * moments]),
            ("bytes_once", [counts.parameters + moments, first + counts.moments]),
        ],
    }
    return [
        *own[key],
        ("bits_for_bytes", [8 * size]),
        ("numbers_not_bytes", [size / 4]),
        ("tied_twice", [_counts(tied=True).bytes()[key]]),
        ("weights_are_state", [size + first, size + 2 * first]),
    ]


def _mistake(key: str, came: float) -> str:
    """Which belief leads to this number under this key; empty for nothing known."""
    right = _counts().bytes()[key]
    for unit, name in UNITS.items():
        if name and _close(came, right / unit):
            return name
    for unit in UNITS:  # a mistake may come in another unit besides
        for name, sizes in _wrong_sizes(key):
            if any(_close(came, size / unit) for size in sizes):
                return name
    return "rounded" if any(_close(came, round(right / GIB, places)) for places in range(6)) else ""


def _accept(came: Any) -> Verdict | None:
    expected = _right()
    if says := _values.difference(came, expected):
        return wrong(says, came=came, expected="three numbers and a name, under the keys that are listed")
    sizes = {key: float(_values.as_array(came[key]).reshape(-1)[0]) for key in ASKED}
    for key, size in sizes.items():
        if not _close(size, expected[key]):
            halves = all(_close(2 * sizes[other], expected[other]) for other in ASKED)
            name = "two_bytes" if halves else _mistake(key, size)
            says = SAYS.get(name, "Count the numbers that are kept, and take 4 bytes for each.")
            return wrong(says, name, given=f"t5_3b()[{key!r}], in GiB", came=size, expected="another number")
    blamed = re.sub(r"[\W_]", "", came["wrong"].casefold())
    if blamed == "adafactor":
        return None
    name = {"adamw": "blames_adamw", "8bit": "blames_8bit"}.get(blamed, "")
    says = SAYS.get(name, 'One of the three names is asked: "adamw", "adafactor" or "8bit".')
    return wrong(says, name, given="t5_3b()['wrong']", came=came["wrong"], expected="another line")


t5_3b = Task(
    name="t5_3b",
    accept=_accept,
    beliefs=[Belief(name, says) for name, says in SAYS.items()],
    hints=[
        "Count the parameters of `t5`, and let your `predicted_numbers` or `memory.predict_state_size` tell what is "
        "kept for it.",
        "AdamW: two numbers for each parameter. Adafactor: the moments of task 3. With momentum: one number for each "
        "parameter, and the moments of task 3.",
        "All of them take 4 bytes each, and a GiB is `2**30` bytes. Then hold each line of the guide against yours.",
    ],
    praise="The guide's line describes an Adafactor with momentum. Without, which is the default and what Trainer "
    "sets, state is 12.6 MiB: some 900 times less than the guide has it.",
)
