"""Exercise 08: count an optimizer's state, tell whose it is, predict Adafactor's, and check a published claim."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib import adafactor, memory
from course_lib.check import _values
from course_lib.check._state_claim import t5_3b as t5_3b
from course_lib.check._state_owner import whose_state as whose_state
from course_lib.check._state_predicted import predicted_numbers as predicted_numbers
from course_lib.check._state_ways import GIB, MIB, State, Way, eight_bit, stepped, transformers_adafactor
from course_lib.check._task import Attempt, Belief, Case, NotFit, Task, case, wrong

ANCHORS = "anchors"
REMEMBERS = (
    "Counted a second time, the same states have another size: something of the first call is still there. A set in "
    "the `def` line or outside the function is made once and serves all calls. Make it anew inside."
)


def _states() -> list[Case]:
    """States of real optimizers, and how they are handed over: as a view, a list or a generator."""
    matrix, vector = (6, 4), (4,)
    momentum, plain = partial(torch.optim.SGD, lr=0.1, momentum=0.9), partial(torch.optim.SGD, lr=0.1)
    lbfgs = partial(torch.optim.LBFGS, max_iter=4, history_size=6)
    lookahead = {"slow": torch.ones(matrix), "inner": stepped(torch.optim.AdamW, matrix)[0]}
    factors = ([torch.ones(6, 6), torch.ones(4, 4)], (torch.ones(6), {"count": 2, "mean": torch.ones(4)}))
    target = torch.ones(matrix)
    listed = [
        ("AdamW for a 6 × 4 matrix and a vector of 4", "view", stepped(torch.optim.AdamW, matrix, vector)),
        ("SGD with momentum, as a list", "list", stepped(momentum, matrix, vector)),
        (
            "transformers' Adafactor for a matrix and two vectors",
            "view",
            stepped(transformers_adafactor, matrix, vector, vector),
        ),
        ("AdamW for parameters in bf16", "view", stepped(torch.optim.AdamW, matrix, vector, dtype=torch.bfloat16)),
        ("the course's Adafactor, as a generator", "generator", stepped(adafactor.Adafactor, matrix, vector)),
        ("SGD without momentum", "view", stepped(plain, matrix, vector)),
        ("LBFGS, which keeps numbers, lists and None", "view", stepped(lbfgs, matrix)),
        ("a wrapper with AdamW's state as a dictionary in its own", "list", [lookahead]),
        ("8-bit AdamW, where two matrices share their maps", "view", eight_bit((64, 64), (65, 64), (64,))),
        ("an optimizer with lists and tuples in a tuple", "view", [{"step": 3, "factors": factors}]),
        (
            "two parameters that share a tensor under two names, once in a list",
            "view",
            [{"step": 1, "slow": target}, {"step": 1, ANCHORS: [target, torch.ones(vector)]}],
        ),
        ("an optimizer before its first step: there are none", "view", []),
    ]
    return [
        case(states if form == "list" else dict(enumerate(states)), form, given=f"the states of {name}")
        for name, form, states in listed
    ]


def _handed_over(call: Callable[..., Any], states: Any, form: str) -> Any:
    """What comes out; the learner's function also counts the same states once more, and must come to the same."""
    before = copy.deepcopy(states) if isinstance(call, Attempt) else None
    first = call(_as_asked(states, form))
    size = _values.as_array(first)
    if isinstance(call, Attempt) and size is not None and _values.unchanged(states, before):
        again = call(_as_asked(states, form))
        repeated = _values.as_array(again)
        if repeated is None or not np.array_equal(size, repeated, equal_nan=True):
            given = f"{call.given}, counted twice in a row"
            raise NotFit(wrong(REMEMBERS, "remembers", given=given, came=again, expected=first))
    return first


def _as_asked(states: Any, form: str) -> Any:
    if form == "generator":
        return (states[number] for number in states)
    return states.values() if form == "view" else states


RIGHT = Way()
# What a function that does not open all may open.
CONTAINERS = ((Mapping,), (list,), (list, tuple), (Mapping, list), (Mapping, tuple), ())
# Functions that get one thing wrong often leave these undone, too: each is recognised with any of them.
UNDONE: list[State] = [
    {**fate, **once}
    for fate in (
        {},
        {"opens": ()},
        {"opens": (), "other": 0, "none": 0},
        {"opens": (), "other": AttributeError, "none": AttributeError},
        {"opens": (), "other": TypeError, "none": TypeError},
    )
    for once in ({}, {"once": ()})
]


def _counted(name: str, says: str, *changes: State, raises: str = "") -> Belief:
    """A misconception about the count, given as changes to the right way."""
    ways = [replace(RIGHT, **(undone | change)) for change in changes for undone in UNDONE]
    return Belief(name, says, ways, raises)


def _ways(**several: list[Any]) -> list[Way]:
    """The right way with one value for each of these attributes, in all combinations; shared tensors once or twice."""
    several = {**several, "once": [(Tensor,), ()]}
    return [replace(RIGHT, **dict(zip(several, values, strict=True))) for values in product(*several.values())]


def _at(name: str, top: bool = False) -> Callable[[str, Any, bool], bool]:
    """Tells the entries of this name, also inside others, or those at the top only."""
    return lambda key, value, inside: key == name and not (inside and top)


def _single(key: str, value: Any, inside: bool) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _look(tensor: Any) -> tuple[Any, ...]:
    return tensor.shape, *tensor.flatten().tolist()


def _in_a_tensor(value: Any) -> int:
    return torch.as_tensor(value).nbytes


def _one_of_two(size: Way, elements: Way, states: Any) -> tuple[float, int]:
    """The size as one way has it, and the elements as another has them."""
    kept = list(states)
    return size(kept)[0], elements(kept)[1]


def _two_passes(way: Way, lost: int, states: Any) -> tuple[float, int]:
    """Goes through the states twice; of an iterator nothing is left for the second time, so one result is lost."""
    result = way(states)
    return tuple(0 if i == lost else value for i, value in enumerate(result)) if iter(states) is states else result


compute_optimizer_size = Task(
    name="compute_optimizer_size",
    rule=lambda states: memory.compute_optimizer_size(states),
    cases=_states,
    use=_handed_over,
    rtol=1e-6,
    atol=0.0,
    beliefs=[
        _counted(
            "decimal_mb",
            "Your size is in MB, of 10⁶ bytes. MiB are asked, of 1024 · 1024 bytes; mixing them up makes 5 % that are "
            "not there.",
            {"unit": 10**6},
        ),
        _counted(
            "wrong_unit",
            "The elements are right, and the size is too, but in another unit. MiB are asked: 1024 · 1024 bytes.",
            *[{"unit": unit} for unit in (1, 1024, 1000, GIB, 10**9, MIB / 8, 1 / 8)],
        ),
        _counted(
            "rounded",
            "The size is rounded. These states are small, and little or nothing is left of it: return it as it is.",
            *[{"after": lambda size, elements, n=n: (round(size, n), elements)} for n in range(6)],
        ),
        _counted(
            "wrong_order",
            "The two values have changed places: first the size, then the number of elements.",
            {"after": lambda size, elements: (elements, size)},
        ),
        _counted(
            "entries_counted",
            "You count entries. A tensor is as many elements as there are numbers in it.",
            {"numel": lambda tensor: 1},
        ),
        _counted(
            "steps_skipped",
            "Single numbers, such as the step, are missing. They are as much part of the state as the moments.",
            {"skips": _at("step")},
            {"skips": _at("step", top=True)},
            {"skips": _single},
            {"skips": _single, "python": None},
        ),
        _counted(
            "ints_skipped",
            "Python numbers are left out. The step of transformers' Adafactor is one, AdamW's is a tensor: a count "
            "that depends on this says less about the state than about how it is kept.",
            {"python": None},
        ),
        _counted(
            "ints_take_bytes",
            "The elements are right, but Python numbers have bytes in your size. Here only tensors do: the size is "
            "what lies in the memory of the tensors.",
            *[{"python": fate} for fate in (8, 4, sys.getsizeof, _in_a_tensor)],
            dict.fromkeys(("python", "other", "none"), _in_a_tensor) | {"opens": ()},
        ),
        _counted(
            "assumes_fp32",
            "You take 4 bytes for every number. In bf16 it is 2, and a code of 8 bits takes 1: ask the tensor.",
            {"width": 4},
            {"width": 4, "python": 4},
        ),
        _counted(
            "one_moment",
            "Only one of AdamW's two moments is in your count. Go through all entries of a state: each class has names "
            "of its own.",
            *[{"skips": _at(key, top=top)} for key in ("exp_avg", "exp_avg_sq") for top in (False, True)],
            raises="^KeyError: 'exp_avg",
        ),
        Belief("remembers", REMEMBERS),
        Belief(
            "asks_for_values_again",
            "`states` are the values already: a dictionary for each parameter, and no dictionary of them.",
            raises=r"'(dict_values|list|generator)' object has no attribute '(items|values)'",
        ),
        Belief(
            "needs_a_list",
            "`states` need not be a list: what `state.values()` returns has no places to ask for, and a generator has "
            "not even a length. A `for` loop takes them all.",
            raises=r"'(dict_values|generator)' object is not subscriptable|type '(dict_values|generator)' has no len",
        ),
        Belief(
            "compares_tensors",
            "To look for a tensor in a list with `in`, Python compares it with those in there, number by number. Ask "
            "for the same object instead, not for equal numbers.",
            raises="Boolean value of Tensor|size of tensor a",
        ),
        Belief(
            "no_states_at_all",
            "Before the first step there is no state at all, not even an empty one. That is a size too: 0 MiB, 0 "
            "elements.",
            only_on=lambda states, form: not states,
        ),
        Belief(
            "crashes_on_int",
            "The step of transformers' Adafactor is a Python `int`, which has neither a shape nor a `numel`. Ask first "
            "what an entry is.",
            raises=r"'int' object has no attribute|^TypeError: .*\bnot int\b",
        ),
        Belief(
            "crashes_on_the_rest",
            "Tensors and Python numbers are all right, but LBFGS keeps lists and None, and a wrapper a dictionary in "
            "its own. Say what becomes of each kind of entry.",
            raises=r"'(float|list|NoneType|dict)' object has no attribute '(?!items|values)|"
            r"^TypeError: .*\bnot (float|list|NoneType|dict)\b",
        ),
        _counted(
            "floats_skipped",
            "Of the Python numbers you count the whole ones only. LBFGS also keeps the last loss, a `float`.",
            {"skips": lambda key, value, inside: isinstance(value, float)},
        ),
        _counted(
            "alike_is_the_same",
            "You take tensors for one that only look alike, in their numbers or their shape. The steps of two "
            "parameters are both 1, and are two tensors. What counts once is the very same tensor.",
            *[{"known_by": known, "once": (Tensor,)} for known in (_look, lambda tensor: tensor.shape)],
        ),
        _counted(
            "equal_numbers_once",
            "You count Python numbers once, as if equal ones were the same memory. They are: Python has a single 1. "
            "But each parameter counts its own steps, so each is an element. What counts once is a shared tensor.",
            {"once": (object,)},
            {"once": (Tensor, int, float)},
        ),
        Belief(
            "two_passes",
            "You go through `states` twice. A generator is used up by the first time, so nothing is left for the "
            "second: add up both in one loop.",
            [partial(_two_passes, replace(RIGHT, **undone), lost) for lost in (1, 0) for undone in UNDONE],
        ),
        Belief(
            "anything_is_one",
            "Whatever is no tensor is one element to you: a list of tensors too, and None. Look into lists and "
            "dictionaries, and pass over None.",
            _ways(opens=CONTAINERS, other=[0], none=[0, None]),
        ),
        Belief(
            "none_is_a_number",
            "You count None as an element. It says that there is nothing (yet).",
            _ways(none=[0]),
        ),
        Belief(
            "top_level_only",
            "You do not look into every container. What is in a list, or in a dictionary inside a state, takes memory "
            "like anything else.",
            _ways(opens=CONTAINERS) + _ways(depth=[1, 2]),
        ),
        _counted(
            "divides_inside",
            "What is in a list or dictionary comes out far too small: it is divided by 1024² there, and again with all "
            "the rest. Add up bytes, and divide once, in the end.",
            {"inside_unit": MIB},
            {"unit": MIB**2, "inside_unit": MIB},
        ),
        Belief(
            "once_in_one_of_two",
            "A tensor that stands in several states counts once in one of your two results, and each time in the "
            "other. It is there once, with its elements and its bytes.",
            [partial(_one_of_two, *pair) for pair in permutations((RIGHT, replace(RIGHT, once=())))],
        ),
        Belief(
            "shared_by_name",
            "You seem to know a shared tensor by its name. Here it stands under two names: ask whether it is the same "
            "tensor.",
            only_on=lambda states, form: form == "view" and any(ANCHORS in state for state in states.values()),
        ),
        Belief(
            "shared_twice",
            "A tensor that stands in several states is in your count each time. It is there once: 8-bit AdamW's maps "
            "serve all parameters.",
            replace(RIGHT, once=()),
        ),
    ],
    hints=[
        "Go through the entries of each state. What can an entry be? A tensor, a Python number, None, or a list or "
        "dictionary of more such entries.",
        "For what is inside lists and dictionaries, let a small function call itself.",
        "Keep a set of the `id` of each tensor that you have counted, and pass over a tensor whose `id` is in it.",
    ],
    praise="It agrees with the course's `memory.compute_optimizer_size`, on states that differ in every way that "
    "matters here.",
)
