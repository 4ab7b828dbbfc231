"""Exercise 10's task `five_scenarios`: an optimizer, a smaller batch, or nothing, by what fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from course_lib.check import _values
from course_lib.check._task import Belief, Task, Verdict, wrong

GIB = 2**30
# Model, texts in a batch, tokens in a text, GiB; the notebook has the same.
SCENARIOS: dict[str, tuple[str, int, int, float]] = {
    "A": ("GPT-2 large", 8, 128, 16),
    "B": ("BERT base", 32, 256, 7),
    "C": ("BERT large", 16, 128, 12),
    "D": ("LLaMA 7B", 4, 512, 48),
    "E": ("T5 3B", 1, 128, 24),
}
OPTIMIZERS = ("adamw", "adamw8bit_bitsandbytes", "adafactor")
ANSWERS = (*OPTIMIZERS, "smaller batch", "none")


@cache
def _plan(letter: str, kind: str, one_text: bool = False) -> Any:
    from course_lib import planner

    name, batch, length, _ = SCENARIOS[letter]
    return planner.plan(planner.build(name), kind, batch=1 if one_text else batch, length=length)


def _chosen(
    letter: str,
    taken: Callable[[Any, str], float] = lambda plan, kind: plan.total,
    order: Sequence[str] = OPTIMIZERS,
    unit: float = GIB,
    batch_first: bool = False,
) -> str:
    """The first answer that fits, for somebody who takes this for the bytes."""
    room = SCENARIOS[letter][3] * unit
    fitting = [kind for kind in order if taken(_plan(letter, kind), kind) <= room]
    smaller = taken(_plan(letter, "adamw", True), "adamw") <= room
    if fitting and not (batch_first and smaller and fitting[0] != "adamw"):
        return fitting[0]
    return "smaller batch" if smaller else "none"


def _quartered(plan: Any, kind: str) -> float:
    share = 4 if "8bit" in kind else 1
    return (plan.weights + plan.gradients) / share + plan.state + plan.activations


# What each of these would answer, in order; of two that say the same the first is named.
WHOLE: dict[str, tuple[str, Callable[[str], str]]] = {
    "always_adafactor": (
        "Adafactor five times. The smallest state is not always needed, and where it is not state that is too large, "
        "it is of no use.",
        lambda letter: "adafactor",
    ),
    "always_adamw": (
        "AdamW five times. It comes first in the list, but it has to fit: its state is twice the weights.",
        lambda letter: "adamw",
    ),
    "fewest_bytes_always": (
        "You take the smallest state wherever something fits. By the rule the *first* that fits is asked: saving what "
        "is not short gains nothing, and costs a new search for the rate.",
        partial(_chosen, order=OPTIMIZERS[::-1]),
    ),
    "state_only": (
        "You compare the state alone with the memory. Weights, gradients and activations have to fit at the same time.",
        partial(_chosen, taken=lambda plan, kind: plan.state),
    ),
    "forgot_activations": (
        "Weights, gradients and state would fit where you say so. The activations are missing: they are there when "
        "memory is fullest, and in two of the cases they decide.",
        partial(_chosen, taken=lambda plan, kind: plan.weights + plan.gradients + plan.state),
    ),
    "forgot_gradients": (
        "Your sums have no gradients. Each parameter has one, as large as itself, whatever the optimizer.",
        partial(_chosen, taken=lambda plan, kind: plan.total - plan.gradients),
    ),
    "weights_in_8_bit": (
        "You let 8-bit AdamW shrink weights and gradients as well. It packs its own state, and nothing else.",
        partial(_chosen, taken=_quartered),
    ),
    "gb_for_gib": (
        "In E it does fit, if narrowly. The memory is in GiB, of 2³⁰ bytes: divided by 10⁹, the sum looks 7 % larger, "
        "and too large.",
        partial(_chosen, unit=10**9),
    ),
    "batch_before_optimizer": (
        "You cut the batch where another optimizer would do. That can be wise, but by the rule it comes after the "
        "three optimizers.",
        partial(_chosen, batch_first=True),
    ),
}
# One answer that gives a belief away, if no whole row does.
SINGLE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "optimizer_fixes_activations": (
        "In B you change the optimizer. Look at the four parts of the sum there: the activations are the largest, and "
        "no optimizer makes them smaller.",
        "B",
        OPTIMIZERS,
    ),
    "optimizer_shrinks_weights": (
        "In D you name an optimizer. Weights and gradients alone take more than there is, and they are the same for "
        "all three.",
        "D",
        OPTIMIZERS,
    ),
    "batch_shrinks_weights": (
        "In D you cut the batch. That makes the activations smaller; weights and gradients, which are too large there, "
        "do not depend on it.",
        "D",
        ("smaller batch",),
    ),
    "gives_up_early": (
        "In B you say that nothing helps. No optimizer does, but `smaller batch` is still to be tried: what is large "
        "there grows with the batch.",
        "B",
        ("none",),
    ),
}


def _accept_choices(came: Any) -> Verdict | None:
    if not isinstance(came, Mapping):
        return wrong(_values.difference(came, {}), came=came, expected=f"a dictionary with {', '.join(SCENARIOS)}")
    said = {str(key).strip().upper(): value for key, value in came.items()}
    if missing := [letter for letter in SCENARIOS if letter not in said]:
        return wrong(f"The key {missing[0]!r} is missing.", came=list(came), expected=list(SCENARIOS))
    for letter in SCENARIOS:
        value = said[letter]
        said[letter] = value = (
            "none" if value is None else value.strip().casefold() if isinstance(value, str) else value
        )
        if not isinstance(value, str) or value not in ANSWERS:
            return wrong(
                f"Under {letter!r}: this is none of the five answers.", came=value, expected=" or ".join(ANSWERS)
            )
    wrongs = [letter for letter in SCENARIOS if said[letter] != _chosen(letter)]
    if not wrongs:
        return None
    name, says, letter = next(_recognised(said), ("", "", wrongs[0]))
    letter = letter or wrongs[0]
    first = f"{len(SCENARIOS) - len(wrongs)} of the five are right. {_about(letter, said[letter])}"
    return wrong(says or first, name, given=f"Situation {letter}", came=said[letter], expected="another answer")


def _recognised(said: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Name and text of a belief, and the situation that shows it, if there is one."""
    for name, (says, choose) in WHOLE.items():
        if all(said[letter] == choose(letter) for letter in SCENARIOS):
            yield name, says, ""
    for name, (says, letter, answers) in SINGLE.items():
        if said[letter] in answers:
            yield name, says, letter
    for name, answer in (("fewest_bytes_always", "adafactor"), ("batch_before_optimizer", "smaller batch")):
        if letter := next((letter for letter in "AC" if said[letter] == answer), ""):
            yield name, WHOLE[name][0], letter


def _about(letter: str, answer: str) -> str:
    """What is wrong with an answer, without telling the right one."""
    room, name = SCENARIOS[letter][3], SCENARIOS[letter][0]
    if answer == "none":
        return f"In {letter}, with {name}, something in the list does fit."
    plan = _plan(letter, "adamw", True) if answer == "smaller batch" else _plan(letter, answer)
    total = f"In {letter} the total is then {plan.total / GIB:.2f} GiB"
    if plan.total > room * GIB:
        return f"{total}, more than the {room} there are."
    return f"{total}, which fits, but something before it in the list does too."


five_scenarios = Task(
    name="five_scenarios",
    rule=lambda: {letter: _chosen(letter) for letter in SCENARIOS},
    accept=_accept_choices,
    seconds=40,
    beliefs=[Belief(name, says) for name, (says, *_) in (*WHOLE.items(), *SINGLE.items())],
    hints=[
        "Write down the four parts for each situation: weights, gradients, state, activations. Which is the largest?",
        "`planner.plan(planner.build(name), kind, batch=batch, length=length).total` is the sum in bytes. Divide by "
        "`2**30`.",
        "Loop over the three kinds and stop at the first that fits. If none does, try AdamW with `batch=1`, and if "
        "that does not fit either, it is `none`.",
    ],
    praise="Each of the five answers is right once. What is short decides: state in two cases, activations in one, "
    "weights and gradients in another, and nothing in the last.",
)
