"""The tasks `predicted_numbers` and `t5_3b` of exercise 08: what an optimizer will keep, before it has taken a step."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod
from typing import Any

import torch
from torch import nn

from course_lib import adafactor, memory, planner
from course_lib.check import _values
from course_lib.check._state_ways import GIB, State
from course_lib.check._task import Belief, Case, NotFit, Task, Verdict, case, wrong


class _Everything(nn.Module):
    """A tied, a frozen and a convolution parameter, vectors, a single number, and buffers, which are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.body = nn.Sequential(nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 8))
        self.frozen = nn.Conv2d(8, 4, 3).requires_grad_(False)
        self.temperature = nn.Parameter(torch.tensor(1.0))
        self.head = nn.Linear(8, 50)
        self.head.weight = self.embedding.weight


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Embedding(40, 6), nn.Linear(6, 40, bias=False))
    model[1].weight = model[0].weight
    return model


def _models() -> list[Case]:
    with torch.random.fork_rng(devices=[]):  # the notebook's random numbers go on as if nothing had happened
        return [
            case(nn.Linear(6, 4), given="a Linear(6, 4): shapes (4, 6) and (4,)"),
            case(_tied(), given="an Embedding(40, 6) whose weight is also that of a Linear(6, 40) without bias"),
            case(
                nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3).requires_grad_(False)),
                given="a Linear(5, 7), and a Linear(7, 3) that is frozen",
            ),
            case(nn.Conv2d(6, 8, 3), given="a Conv2d(6, 8, 3): shapes (8, 6, 3, 3) and (8,)"),
            case(_Everything(), given="a model with a tied embedding, a frozen and a trained convolution, and more"),
            case(
                nn.Sequential(nn.Conv2d(32, 64, 1, device="meta"), nn.Conv1d(6, 8, 5, bias=False, device="meta")),
                given="on meta: a Conv2d(32, 64, 1) and a Conv1d(6, 8, 5): shapes (64, 32, 1, 1), (64,) and (8, 6, 5)",
            ),
        ]


def _kept(model: nn.Module) -> int:
    """The moments that a step leaves, taken with a copy of the model."""
    trained = [p for p in copy.deepcopy(model).parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.ones_like(p)
    optimizer = adafactor.Adafactor(trained)
    optimizer.step()
    return memory.state_size(optimizer).moments


TAKES_A_STEP = (
    "You train the model to find out: it comes back with gradients or with other weights. A prediction needs the "
    "shapes only, and leaves the model as it is."
)


def _left_alone(call: Callable[..., Any], model: nn.Module) -> Any:
    """What is predicted, if the model is as it was."""
    before = copy.deepcopy(model)
    result = call(model)
    pairs = zip(model.parameters(), before.parameters(), strict=True)
    if any(p.grad is not None or not (p.is_meta or torch.equal(p, q)) for p, q in pairs):
        raise NotFit(wrong(TAKES_A_STEP, "takes_a_step", given=getattr(call, "given", "")))
    return result


def _rows(shape: torch.Size) -> int:
    return prod(shape[:-1])


def _factors(shape: torch.Size) -> int:
    return _rows(shape) + prod(shape[:-2]) * shape[-1]


@dataclass(frozen=True)
class _Guess:
    """A way to predict Adafactor's moments; as it stands, the right one.

    Attributes:
        tied, frozen: a tied parameter counts under each of its names, a frozen one counts like any other.
        number, vector, matrix, beyond: what is kept for a shape of 0, of 1, of 2 and of more axes.
        extra: further numbers for each parameter.
    """

    tied: bool = False
    frozen: bool = False
    number: Callable[[torch.Size], int] = prod
    vector: Callable[[torch.Size], int] = prod
    matrix: Callable[[torch.Size], int] = _factors
    beyond: Callable[[torch.Size], int] = _factors
    extra: int = 0

    def __call__(self, model: nn.Module) -> int:
        found = [p for _, p in model.named_parameters(remove_duplicate=not self.tied) if p.requires_grad or self.frozen]
        return sum(self.of(p.shape) for p in found)

    def of(self, shape: torch.Size) -> int:
        kinds = (self.number, self.vector, self.matrix)
        return self.extra + (kinds[len(shape)] if len(shape) < 3 else self.beyond)(shape)


def _saved(guess: _Guess, model: nn.Module) -> int:
    return sum(guess.of(value.shape) for value in model.state_dict().values())


def _at_every_level(guess: _Guess, model: nn.Module) -> int:
    return sum(guess(module) for module in model.modules())


GUESS = _Guess()
# For each misconception what is said, and the ways to have it.
GUESSES: dict[str, tuple[str, list[State]]] = {
    "tied_twice": (
        "A tied parameter is in your count under each of its names. It is one tensor, with one gradient and one state.",
        [{"tied": True}],
    ),
    "frozen_counted": (
        "You count frozen parameters. They never get a gradient, so an optimizer keeps nothing for them.",
        [{"frozen": True}],
    ),
    "vector_factored": (
        "You treat a vector as if it had rows and columns. It has one axis, and Adafactor keeps its second moment "
        "whole.",
        [{"vector": lambda shape, n=n: n} for n in (1, 2)]
        + [{"vector": lambda shape: shape[0] + 1, "number": number} for number in (prod, lambda shape: 2)],
    ),
    "n_plus_m_for_conv": (
        "You keep too little for a convolution. Its last two axes are rows and columns, and *each* place on the "
        "leading axes has a matrix of its own, with its own means.",
        [
            {"beyond": lambda shape: shape[0] + shape[1]},
            {"beyond": lambda shape: shape[-2] + shape[-1]},
            {"beyond": sum},
            {"beyond": lambda shape: shape[0] + prod(shape[1:])},
            {"beyond": lambda shape: _rows(shape) + shape[-1]},
            {"beyond": lambda shape: shape[0] * shape[1] + prod(shape[2:])},
        ],
    ),
    "conv_not_factored": (
        "You keep a convolution's second moment whole. Adafactor factors the last two axes of every tensor that has "
        "two or more.",
        [{"beyond": prod}],
    ),
    "not_factored": (
        "This is the whole second moment: one number for each parameter, as RMSProp keeps it. Adafactor factors it.",
        [{"matrix": prod, "beyond": prod}],
    ),
    "both_moments": (
        "These are two numbers for each parameter, as AdamW keeps them. Adafactor drops the first moment and factors "
        "the second.",
        [dict.fromkeys(("number", "vector", "matrix", "beyond"), lambda shape: 2 * prod(shape))],
    ),
    "one_margin": (
        "You count rows or columns. For a matrix Adafactor keeps the means of both.",
        [
            {"matrix": _rows, "beyond": _rows},
            dict.fromkeys(("matrix", "beyond"), lambda shape: prod(shape[:-2]) * shape[-1]),
        ],
    ),
    "vectors_forgotten": (
        "Vectors are missing. They are not factored, but they do have a second moment, which is kept whole.",
        [{"vector": lambda shape: 0, "number": number} for number in (prod, lambda shape: 0)],
    ),
    "single_number_forgotten": (
        "A parameter may be a single number, of shape `()`. It has a second moment too.",
        [{"number": lambda shape: 0}],
    ),
    "steps_counted": (
        "The steps are in your count, or what else is kept once for each parameter. They are part of the state, but "
        "moments alone are asked.",
        [{"extra": 1}, {"extra": 2}],
    ),
}


def _guesses() -> list[Belief]:
    """Each misconception alone; too early or in the wrong place; then two misconceptions at once."""
    alone = [
        Belief(name, says, [replace(GUESS, **change) for change in changes])
        for name, (says, changes) in GUESSES.items()
    ]
    every = [replace(GUESS, **change) for _, changes in GUESSES.values() for change in changes]
    elsewhere = [
        Belief(
            "saved_model_counted",
            "You count what a saved model holds: tied parameters under each name, frozen ones, and buffers such as "
            "those of BatchNorm, which are no parameters. Ask the model for its parameters.",
            [partial(_saved, guess) for guess in (GUESS, *every)],
        ),
        Belief(
            "counted_at_every_level",
            "You go through the modules, and ask each for all parameters inside it. So what lies deeper counts again "
            "at each level.",
            [partial(_at_every_level, guess) for guess in (GUESS, *every)],
        ),
    ]
    before = [
        Belief(
            "waits_for_gradients",
            "You find nothing in any model. There are no gradients and no state yet: all that a prediction has are "
            "the shapes, and `requires_grad`.",
            lambda model: 0,
        ),
        Belief(
            "needs_numbers",
            "You need the numbers of the model. On `meta` there are none, and no prediction needs them: the shapes do.",
            raises="(?i)on meta|meta (tensor|device)|meta.*numpy",
        ),
        Belief(
            "takes_a_step",
            TAKES_A_STEP,
        ),
    ]
    both = [
        Belief(name, says, [replace(guess, **change) for guess in every for change in changes])
        for name, (says, changes) in GUESSES.items()
    ]
    return before + alone + elsewhere + both


predicted_numbers = Task(
    name="predicted_numbers",
    rule=_kept,
    cases=_models,
    use=_left_alone,
    rtol=0.0,
    atol=0.0,
    beliefs=_guesses(),
    hints=[
        "Which parameters get a state at all? `model.parameters()` gives each of them once, tied or not.",
        "For a shape `(a, b, n, m)` write down the shapes of `V.mean(-1)` and of `V.mean(-2)`, and count their "
        "entries.",
        "For two or more axes: all axes but the last, multiplied, and all axes but the last but one, multiplied. Add "
        "both. For fewer axes: all entries.",
    ],
    praise="The check has taken a step with each model, and found what you say. For the 1 × 1 convolution Adafactor "
    "keeps twice as many numbers as it has weights.",
)


# --- t5_3b

SIZES_ASKED = ("adamw", "adafactor", "adafactor_momentum")
T5: dict[str, str] = {
    "believes_source": "This is the guide's figure, or its 4 bytes for each parameter. Take your own count of what is "
    "kept: rows, columns and vectors.",
    "blames_adamw": "AdamW's line holds: two moments of 4 bytes are 8 bytes for each parameter, and 24 GB are what "
    "that makes for a round 3 billion. Which line is off by far more than rounding?",
    "blames_8bit": "The line on 8 bits holds: two moments of 1 byte are 2 bytes for each parameter, and 6 GB with "
    "them. Which line is off by far more than rounding?",
    "decimal_for_binary": "That is in GB, of 10⁹ bytes. GiB are asked, of 2³⁰ bytes: over 7 % fewer of them.",
    "bits_for_bytes": "That is eight times too much: bits, not bytes. A number in 32 bits takes 4 bytes.",
    "numbers_not_bytes": "That is the count of numbers. Each takes 4 bytes.",
    "wrong_unit": "The size is right, but in another unit. GiB are asked, of 2³⁰ bytes.",
    "three_billion": "You take 3 billion parameters. This model has fewer: count them.",
    "tied_twice": "The embedding is in your count under several names, as in a saved model. It is one tensor.",
    "one_moment": "That is one moment. AdamW keeps two for each parameter.",
    "weights_are_state": "Weights or gradients are in it. They take memory as well, but the guide, and this task, are "
    "about what the optimizer keeps.",
    "forgets_momentum": "With momentum there is a first moment besides: one number for each parameter, on top of rows, "
    "columns and vectors.",
    "forgets_second_moment": "This is the first moment alone. What Adafactor keeps without momentum comes on top.",
    "second_moment_whole": "Momentum brings back the first moment. The second one stays factored.",
    "rounded": "That is rounded, and too little is left of it. Return the number as it is; round where you print it.",
}


@cache
def _t5_sizes(tied: bool = False) -> dict[str, int]:
    """The bytes that are asked for, and the number of parameters, tied ones under one name or under each."""
    model = planner.build("T5 3B")
    guess = replace(GUESS, tied=tied)
    count = sum(p.numel() for _, p in model.named_parameters(remove_duplicate=not tied))
    factored = 4 * guess(model)
    sizes = {"adamw": 8 * count, "adafactor": factored, "adafactor_momentum": 4 * count + factored}
    return {**sizes, "parameters": count}


def _t5_right() -> dict[str, Any]:
    return {**{key: _t5_sizes()[key] / GIB for key in SIZES_ASKED}, "wrong": "adafactor"}


def _close(came: float, expected: float) -> bool:
    return abs(came - expected) <= 5e-4 * expected


def _t5_mistake(key: str, came: float) -> str:
    """Which belief leads to this number of GiB; empty for nothing known."""
    sizes, tied = _t5_sizes(), _t5_sizes(tied=True)
    right, count = sizes[key] / GIB, sizes["parameters"] / GIB
    round_count = 3e9 / GIB
    of_round = {"adamw": 8 * round_count, "adafactor_momentum": 4 * round_count + sizes["adafactor"] / GIB}
    known: list[tuple[str, list[float]]] = [
        ("decimal_for_binary", [right * GIB / 10**9]),
        ("wrong_unit", [right * unit for unit in (1024, 2**20, GIB, GIB / 10**6, GIB / 10**3)]),
        (
            "believes_source",
            {"adamw": [24], "adafactor": [12, 4 * count, right + 4 * count], "adafactor_momentum": [12]}[key],
        ),
        ("three_billion", [of_round[key], 4 * round_count] if key in of_round else []),
        ("forgets_momentum", [sizes["adafactor"] / GIB] if key == "adafactor_momentum" else []),
        ("forgets_second_moment", [4 * count] if key == "adafactor_momentum" else []),
        (
            "second_moment_whole",
            [8 * count, 8 * count + sizes["adafactor"] / GIB] if key == "adafactor_momentum" else [],
        ),
        ("one_moment", [4 * count] if key == "adamw" else []),
        ("bits_for_bytes", [8 * right]),
        ("numbers_not_bytes", [right / 4]),
        ("tied_twice", [tied[key] / GIB]),
        ("weights_are_state", [right + 4 * count, right + 8 * count]),
        ("rounded", [round(right, places) for places in range(4)]),
    ]
    for name, values in known:
        if any(_close(came, value) for value in values):
            return name
    # Anything of several GiB comes from some number of bytes for each parameter.
    return "believes_source" if key == "adafactor" and came > count else ""


def _accept_t5(came: Any) -> Verdict | None:
    expected = _t5_right()
    if says := _values.difference(came, expected):
        return wrong(says, came=came, expected=expected)
    for key in SIZES_ASKED:
        size = float(_values.as_array(came[key]).reshape(-1)[0])
        if not _close(size, expected[key]):
            name = _t5_mistake(key, size)
            given = f"t5_3b()[{key!r}], in GiB"
            return wrong(
                T5.get(name, "Count the numbers that are kept, and take 4 bytes for each."),
                name,
                given=given,
                came=size,
                expected=expected[key],
            )
    blamed = re.sub(r"[\W_]", "", came["wrong"].casefold())
    if blamed == "adafactor":
        return None
    name = {"adamw": "blames_adamw", "8bit": "blames_8bit"}.get(blamed, "")
    says = T5.get(name, 'One of the three names is asked: "adamw", "adafactor" or "8bit".')
    return wrong(says, name, given="t5_3b()['wrong']", came=came["wrong"], expected="another line")


t5_3b = Task(
    name="t5_3b",
    rule=_t5_right,
    accept=_accept_t5,
    beliefs=[Belief(name, says) for name, says in T5.items()],
    hints=[
        "Count the parameters of `t5`, and let your `predicted_numbers` or `memory.predict_state_size` tell what is "
        "kept for it.",
        "AdamW: two numbers for each parameter. Adafactor: the moments of task 3. With momentum: one number for each "
        "parameter, and the moments of task 3.",
        "All of them take 4 bytes each, and a GiB is 2**30 bytes. Then hold each line of the guide against yours.",
    ],
    praise="The guide's line describes an Adafactor with momentum. Without, which is the default and what Trainer "
    "sets, state is 12.6 MiB: some 900 times less than the guide has it.",
)
