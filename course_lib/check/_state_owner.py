"""The task `whose_state` of exercise 08: tell from a state which optimizer has left it."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import or_
from typing import Any

import torch
from torch import Tensor

from course_lib import adafactor, memory
from course_lib.check import _everyday, _values
from course_lib.check._state_ways import State, eight_bit, stepped, transformers_adafactor
from course_lib.check._task import Attempt, Belief, NotFit, Task, Verdict, wrong

OWNERS = ("sgd_momentum", "adagrad", "rmsprop", "adamw", "adafactor", "adafactor_transformers", "adafactor_torch")
OWNERS += ("adamw8bit_bitsandbytes",)
ADAFACTORS = tuple(name for name in OWNERS if name.startswith("adafactor"))


@dataclass(frozen=True)
class _Found:
    """A state of one parameter, as the learner sees it, and what is known of it.

    Attributes:
        settings: what the optimizer was given beyond its defaults, in words; empty for none.
        came: the learner's answer, once there is one; None if there is `trouble`.
        trouble: the verdict on an error, or on an answer that is None.
    """

    state: State
    shape: torch.Size
    owner: str
    settings: str = ""
    came: Any = None
    trouble: Verdict | None = None

    @property
    def wrong(self) -> bool:
        return _normal(self.came) != self.owner

    def says(self) -> str:
        value = ", ".join(f"{key!r}: {_look(part)}" for key, part in self.state.items())
        return f"whose_state({{{value}}}, {tuple(self.shape)})"


def _look(part: Any) -> str:
    return f"{list(part.shape)} {part.dtype}".replace("torch.", "") if isinstance(part, Tensor) else repr(part)


def _found() -> list[_Found]:
    makers: dict[str, Callable[..., Any]] = {
        "sgd_momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "adagrad": torch.optim.Adagrad,
        "rmsprop": torch.optim.RMSprop,
        "adamw": torch.optim.AdamW,
        "adafactor": adafactor.Adafactor,
        "adafactor_transformers": transformers_adafactor,
        "adafactor_torch": torch.optim.Adafactor,
    }
    settings = [
        ("rmsprop", "momentum=0.9", {"momentum": 0.9}),
        ("rmsprop", "centered=True", {"centered": True}),
        ("adamw", "amsgrad=True", {"amsgrad": True}),
        ("adafactor_transformers", "beta1=0.9", {"beta1": 0.9}),
    ]
    found = []
    for shape in map(torch.Size, [(64, 64), (64,), (8, 6, 3, 3), (6, 1)]):
        found += [_Found(stepped(make, shape)[0], shape, owner) for owner, make in makers.items()]
        found.append(_Found(eight_bit(shape)[0], shape, "adamw8bit_bitsandbytes"))
        if len(shape) < 3:
            found += [
                _Found(stepped(partial(makers[owner], **given), shape)[0], shape, owner, words)
                for owner, words, given in settings
            ]
    return found


def _moments(state: State) -> int:
    return sum(value.numel() for value in state.values() if isinstance(value, Tensor) and value.ndim)


def _elements(state: State) -> int:
    return memory.state_size([state]).elements


# What somebody may look at who does not look at the names.
SIZES = (_moments, _elements, lambda state: memory.state_size([state]).bytes)
SHAPES = (
    lambda state: sorted(str(getattr(value, "shape", value)) for value in state.values()),
    lambda state: [str(getattr(value, "shape", value)) for value in state.values()],
)

WHOSE = {
    "always_the_same": "Your answer is the same whatever state comes in. Look at what is in it.",
    "judged_by_key_count": "Your answer depends on nothing but how many entries there are. AdamW keeps three for each "
    "parameter, and so do two Adafactors for a matrix: read the names.",
    "judged_by_size": "Your answer depends on nothing but the size. Adagrad and RMSProp keep equally much, and the "
    "Adafactors nearly so: read the names.",
    "judged_by_shapes": "Your answer depends on the shapes alone. Those of Adagrad and RMSProp are the same, and so "
    "are those of AdamW and of RMSProp with momentum: read the names.",
    "not_on_the_list": "This is none of the names on the list. Return one of them, spelled as it is there.",
    "everyone_has_a_step": "You read the entry `step`, and SGD's state has none. Ask first whether it is there.",
    "step_is_a_tensor": "You take the step for a tensor. In some states it is a Python `int`, and that is a clue.",
    "rmsprop_is_adafactor_vector": "One average of squares in the parameter's own shape: RMSProp keeps that, and so "
    "does Adafactor for a vector, which it does not factor. The name of the average tells them apart.",
    "half_of_adamw": "Here is an average of squares and none of gradients, so it is not AdamW's. Some optimizer keeps "
    "a vector's second moment alone, under the same name.",
    "two_moments_mean_adamw": "The two moments are there as in AdamW, but look at what stands beside them. One "
    "Adafactor keeps a first moment too, if it is given `beta1`.",
    "int_step_means_transformers": "A step that is an `int` does not settle it: 8-bit AdamW counts in one too. Look at "
    "what stands beside it.",
    "eight_bit_is_adamw": "It is an AdamW, but one of 8 bits: look at the names of its moments, and at the maps and "
    "scales beside them.",
    "convolution_not_factored": "Adafactor factors a convolution as well. Look for the means of rows and columns.",
    "momentum_means_sgd": "There is a momentum buffer, but it is not alone: what else is kept here?",
    "same_averages_same_class": "It is an Adafactor, but another one. These classes keep the same averages; names, and "
    "what stands beside them, differ.",
    "small_is_not_8bit": "This *is* from the 8-bit AdamW. It leaves small parameters in 32 bits, without maps and "
    "scales; the names of the moments stay.",
    "exact_keys": "For matrices and default settings you are right, as printed above. A setting can add "
    "an entry to a state, and for a vector there may be other ones: ask for what must be there, not for exactly these "
    "keys.",
    "defaults_only": "With default settings you are right. A setting can add an entry to a state: ask for what must be "
    "there, not for exactly these keys.",
    "matrices_only": "For matrices you are right. Some optimizers keep something else for a vector, or under another "
    "name.",
}
RAISED = {"everyone_has_a_step": "^KeyError: 'step'", "step_is_a_tensor": "'int' object has no|not int$"}


def _normal(name: Any) -> str:
    return name.strip().casefold() if isinstance(name, str) else ""


def _only_by(look: Callable[[State], Any], found: list[_Found], with_shape: bool = True) -> bool:
    """Whether all states that look alike got the same answer."""
    answers: dict[str, set[str]] = {}
    for one in found:
        answers.setdefault(f"{look(one.state)} {tuple(one.shape) * with_shape}", set()).add(_normal(one.came))
    return all(len(names) == 1 for names in answers.values())


def _pattern(found: list[_Found]) -> str:
    """What all the answers together look like; empty for nothing known."""
    if len({_normal(one.came) for one in found}) == 1:
        return "always_the_same"
    if _only_by(len, found, with_shape=False) or _only_by(len, found):
        return "judged_by_key_count"
    if any(_only_by(look, found) for look in SIZES):
        return "judged_by_size"
    return "judged_by_shapes" if any(_only_by(look, found) for look in SHAPES) else ""


def _confusion(one: _Found) -> str:
    """What one wrong answer looks like; empty for nothing known."""
    came, vector = _normal(one.came), one.owner in ADAFACTORS and len(one.shape) < 2
    if came not in OWNERS:
        return "not_on_the_list" if came else ""
    if one.owner == "adamw8bit_bitsandbytes":
        known = {"adafactor_transformers": "int_step_means_transformers", "adamw": "eight_bit_is_adamw"}
        return known.get(came, "") if "qmap1" in one.state else "small_is_not_8bit"
    if one.owner in ADAFACTORS and came in ADAFACTORS:
        return "same_averages_same_class"
    if one.owner == "rmsprop" and came == "sgd_momentum" and "momentum_buffer" in one.state:
        return "momentum_means_sgd"
    if one.owner in ADAFACTORS and came == "adamw":
        return "two_moments_mean_adamw" if "exp_avg" in one.state else "half_of_adamw" if vector else ""
    if one.owner in ADAFACTORS and len(one.shape) > 2:
        return "convolution_not_factored"
    if (vector and came == "rmsprop") or (one.owner == "rmsprop" and came in ADAFACTORS):
        return "rmsprop_is_adafactor_vector"
    return ""


def _only_these(failing: list[_Found]) -> str:
    """What it looks like that all other states are judged right; empty for nothing known."""
    settings, vectors = [one.settings != "" for one in failing], [len(one.shape) < 2 for one in failing]
    if all(settings):
        return "defaults_only"
    if all(vectors):
        return "matrices_only"
    return "exact_keys" if all(map(or_, settings, vectors)) else ""


def _asked(attempt: Attempt, one: _Found) -> _Found:
    """The state with the learner's answer to it."""
    attempt.given, state = one.says(), copy.deepcopy(one.state)
    try:
        came = attempt(state, one.shape)
    except NotFit as unfit:
        if unfit.verdict.belief != "raises":
            raise
        return replace(one, trouble=unfit.verdict)
    if not _values.unchanged(state, one.state):
        raise NotFit(wrong(_everyday.MISTAKES["mutates_input"], "mutates_input", given=one.says()))
    return replace(one, came=came, trouble=attempt.nothing() if came is None else None)


def _judge_whose(attempt: Attempt) -> Verdict:
    found = [_asked(attempt, one) for one in _found()]
    failing = [one for one in found if one.wrong]
    if not failing:
        return Verdict("correct", f"Tried on {len(found)} inputs. {whose_state.praise}")
    first = failing[0]
    if first.trouble:
        raised = (name for name, error in RAISED.items() if re.search(error, first.trouble.came))
        name = next(raised, "") or _only_these(failing)
        says = f"{first.trouble.says} {WHOSE.get(name, '')}".strip()
        return replace(first.trouble, says=says, belief=name or first.trouble.belief)
    says, name = _values.difference(first.came, first.owner), ""
    if not says:
        name = _pattern(found) or _confusion(first) or _only_these(failing)
        says = WHOSE.get(name, "")
    return wrong(says, name, given=first.says(), came=first.came, expected=first.owner)


whose_state = Task(
    name="whose_state",
    judge_with=_judge_whose,
    beliefs=[Belief(name, says) for name, says in WHOSE.items()],
    hints=[
        "Print the states of a matrix, then of a vector. Which name does only one of the optimizers use?",
        "Begin with names that nobody else has: `sum`, `square_avg`, `row_var`, `state1`. Leave a lone "
        "`momentum_buffer` for later.",
        "Of those with `exp_avg_sq` or `exp_avg_sq_row`, one has an `RMS`. Of the rest, one has an `exp_avg`.",
    ],
    praise="Names tell, even where two optimizers keep equally many numbers in the same shapes.",
)
