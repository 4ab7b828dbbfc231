"""Exercise 05: write one step of Adafactor, repair a step with five faults, and fill in the switch card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from course_lib.check import _values
from course_lib.check._adafactor_repair import repaired as repaired
from course_lib.check._adafactor_step import adafactor_step as adafactor_step
from course_lib.check._task import Belief, Task, Verdict, wrong

PARTS = {
    "factoring": ("factor",),
    "growing decay": ("growing", "decay", "beta2", "β"),
    "clipping": ("clip", "update clip"),
    "relative step": ("relative", "rho", "ρ"),
    "RMS scaling": ("rms", "scal"),
}
COLUMNS = ("paper", "transformers", "trainer", "torch")
CARD = {
    "lists_what_is_off": "You list the parts that are *off*. Asked are those that are on.",
    "nothing_switched_off": "You leave every part on everywhere. One of the four switches two of them off: lesson 06 "
    "will begin with that.",
    "trainer_uses_relative_step": "You let Trainer take relative steps. It passes a learning rate of its own, and "
    "that would have no say then.",
    "trainer_scales_by_rms": "You let Trainer multiply its rate by RMS(X). In the lesson, its first step was as long "
    "for small parameters as for large ones.",
    "torch_equals_trainer": "You switch off in torch's class what Trainer switches off. The name is the same, the "
    "algorithm is not: at RMS(X) = 0.05 and one `lr`, one of them went 20 times as far in the lesson.",
    "default_equals_trainer": "You switch off in the default of `transformers` what Trainer switches off. Made by "
    "hand without any setting, the class follows the paper; it is Trainer that passes other settings.",
    "torch_rate_is_constant": "You take torch's `lr` for a plain rate. Its default is 0.01, and the step size is the "
    "smaller of that and 1/√t: no setting turns this off.",
    "torch_without_scaling": "You leave RMS scaling out of torch's class. It has no switch for it because it is always "
    "on.",
    "torch_without_clipping": "You leave clipping out of torch's class. Its argument for the threshold is called `d`, "
    "as in the paper, and is 1.",
    "paper_without_scaling": "You leave RMS scaling out of the paper. There it belongs to the relative step: a share "
    "of the parameters' own size.",
    "trainer_switches_off_more": "You switch more off in Trainer than it does. It changes how far a step goes, and "
    "leaves the update itself as it is.",
}


@cache
def _card() -> dict[str, frozenset[str]]:
    """The parts that are on, as the libraries' own optimizers show by their steps."""
    from course_lib.diagrams import switch_card as libraries

    columns = libraries.card().values()
    return {
        name: frozenset(part for part, (on, _) in zip(PARTS, column, strict=True) if on)
        for name, column in zip(COLUMNS, columns, strict=True)
    }


def _part(written: Any) -> str | None:
    """The part that is meant; None if none is."""
    text = str(written).casefold().replace("_", " ").replace("-", " ").strip()
    starts = [(part, start) for part, known in PARTS.items() for start in (part.casefold(), *known)]
    return next((part for part, start in starts if text.startswith(start)), None)


def _accept_card(came: Any) -> Verdict | None:
    said: dict[str, frozenset[str]] = {}
    if not isinstance(came, Mapping):
        return wrong(_values.difference(came, {}), came=came, expected=f"a dictionary with {', '.join(COLUMNS)}")
    lower = {str(key).casefold(): value for key, value in came.items()}
    for name in COLUMNS:
        if name not in lower:
            return wrong(f"The key {name!r} is missing.", came=list(came), expected=list(COLUMNS))
        column = lower[name]
        if isinstance(column, Mapping):
            column = [part for part, on in column.items() if on]
        if not isinstance(column, (list, tuple, set, frozenset)):
            return wrong(f"Under {name!r} a set of parts is asked.", came=column, expected=f"some of {list(PARTS)}")
        if strange := [part for part in column if _part(part) is None]:
            return wrong(
                f"Under {name!r}: this is none of the parts.", came=strange[0], expected=f"one of {list(PARTS)}"
            )
        said[name] = frozenset(map(_part, column))
    if said == _card():
        return None
    name = next((name for name, holds in _card_beliefs(said) if holds), "")
    if name:
        return wrong(CARD[name], name)
    column = next(name for name in COLUMNS if said[name] != _card()[name])
    differ = len(said[column] ^ _card()[column])
    text = f"Under {column!r}, {differ} of the five parts {'are' if differ > 1 else 'is'} not as it should be."
    return wrong(text, came=[part for part in PARTS if part in said[column]] or "no part")


def _card_beliefs(said: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, bool]]:
    everything, card = frozenset(PARTS), _card()
    lost = {name: everything - parts for name, parts in said.items()}
    both = everything - card["trainer"]
    yield "lists_what_is_off", said == {name: everything - parts for name, parts in card.items()}
    yield "nothing_switched_off", not any(lost.values())
    yield "trainer_uses_relative_step", "relative step" in said["trainer"]
    yield "trainer_scales_by_rms", "RMS scaling" in said["trainer"]
    yield "torch_equals_trainer", both <= lost["torch"]
    yield "default_equals_trainer", both <= lost["transformers"]
    yield "torch_rate_is_constant", "relative step" in lost["torch"]
    yield "torch_without_scaling", "RMS scaling" in lost["torch"]
    yield "torch_without_clipping", "clipping" in lost["torch"]
    yield "paper_without_scaling", "RMS scaling" in lost["paper"]
    yield "trainer_switches_off_more", both < lost["trainer"]


switch_card = Task(
    name="switch_card",
    rule=lambda: {name: set(parts) for name, parts in _card().items()},
    accept=_accept_card,
    beliefs=[Belief(name, says) for name, says in CARD.items()],
    hints=[
        "Only one of the four differs from the others. Which of them passes a plain learning rate to the optimizer?",
        "Two parts decide how far a step goes. Who sets the rate from outside needs both out of the way.",
        "In the lesson, Trainer's settings were `lr=1e-3, scale_parameter=False, relative_step=False`. torch's class "
        "has no such switches; its first step at RMS(X) = 0.05 was 20 times as short.",
    ],
    praise="You agree with the libraries' own optimizers, which this check has watched taking a few steps.",
)
