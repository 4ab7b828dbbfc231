"""The capstone's task `choose`: an optimizer with which training fits into a budget."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from torch import nn

from course_lib.check._budget_sizes import KINDS, MIB, Sizes, predicted, says_of
from course_lib.check._task import Attempt, Belief, Task, Verdict, wrong

# What somebody takes for the bytes to compare with a budget of so many bytes.
TAKEN: dict[str, Callable[[Sizes], float]] = {
    "mb_for_mib": lambda sizes: sizes.total * MIB / 10**6,
    "gradients_for_frozen": lambda sizes: 2 * sizes.weights + sizes.state,
    "forgot_gradients": lambda sizes: sizes.weights + sizes.state,
    "forgot_weights": lambda sizes: sizes.gradients + sizes.state,
    "forgot_state": lambda sizes: sizes.weights + sizes.gradients,
    "state_only_budget": lambda sizes: sizes.state,
}
CHOICES = [
    Belief(
        "always_adafactor",
        "Your answer is Adafactor whatever the budget. Its state is tiny, but weights and gradients are as large as "
        "ever: there are budgets into which it does not fit.",
    ),
    Belief(
        "always_the_same",
        "Your answer is the same whatever the budget. Compare what each kind takes with `budget_mib`.",
    ),
    Belief(
        "state_only_budget",
        "You compare the state alone with the budget. Weights and gradients are in memory at the same time, and here "
        "they are larger than most states.",
    ),
    Belief(
        "forgot_gradients",
        "You add weights and state. After each backward pass there is also a gradient for each parameter that is "
        "trained, as large as the parameter.",
    ),
    Belief(
        "forgot_weights",
        "You add gradients and state. The weights themselves are in memory too.",
    ),
    Belief(
        "forgot_state",
        "You add weights and gradients, which are the same for each optimizer. What differs is the state: count it in.",
    ),
    Belief(
        "frozen_not_counted",
        "You leave frozen parameters out altogether. They need no gradient and no state, but they are weights all the "
        "same.",
    ),
    Belief(
        "gradients_for_frozen",
        "You count a gradient for every parameter. Frozen ones have none, so a model that is frozen in part needs "
        "less.",
    ),
    Belief(
        "mb_for_mib",
        "You take a MiB for a million bytes. It is `2**20` = 1,048,576 of them, and the difference of nearly 5 % "
        "decides here.",
    ),
    Belief(
        "never_says_none",
        "Where something fits, you find it. But you name an optimizer even where none fits. Then `None` is the answer.",
    ),
    Belief(
        "exactly_does_not_fit",
        "A total that is exactly the budget fits. You ask for less than that.",
    ),
    Belief(
        "never_fits",
        "Your answer is None whatever the budget. Is a `return` missing, or do you compare bytes with MiB?",
    ),
]


@cache
def _distilbert(frozen: bool) -> nn.Module:
    from course_lib import tasks

    model = tasks.distilbert(device="meta")
    if frozen:
        model.distilbert.embeddings.requires_grad_(False)
    return model


class _Answer(NamedTuple):
    """What came of one input, and what could have."""

    given: str
    budget: float  # in bytes
    sizes: dict[str, Sizes]
    came: str | None

    def agrees(self, taken: Callable[[Sizes], float]) -> bool:
        """Whether the answer is right for somebody who takes this for the bytes."""
        fits = {kind: taken(size) <= self.budget for kind, size in self.sizes.items()}
        return not any(fits.values()) if self.came is None else fits[self.came]

    @property
    def right(self) -> bool:
        return self.agrees(lambda sizes: sizes.total)


def _budgets() -> Iterator[tuple[bool, float, str]]:
    """Whether the embeddings are frozen, MiB, and how to tell them."""
    for frozen, budget in ((False, 1100), (False, 800), (False, 510), (False, 500), (True, 450), (True, 410)):
        yield frozen, budget, str(budget)
    yield False, predicted(_distilbert(False), "adafactor").total / MIB, "just what Adafactor takes"


def _judge_choice(attempt: Attempt) -> Verdict:
    answers: list[_Answer] = []
    for frozen, budget, told in _budgets():
        attempt.given = f"choose(DistilBERT{', its embeddings frozen' if frozen else ''}, {told})"
        came = attempt(copy.deepcopy(_distilbert(frozen)), budget)
        if came is not None and not (isinstance(came, str) and came in KINDS):
            return wrong("The answer is one of the names in `KINDS`, or None.", given=attempt.given,
                         came=repr(came) if isinstance(came, str) else came,
                         expected=" or ".join(map(repr, KINDS)) + " or None")  # fmt: skip
        sizes = {kind: predicted(_distilbert(frozen), kind) for kind in KINDS}
        answers.append(_Answer(attempt.given, budget * MIB, sizes, came))
    if attempt.printed.strip() and all(answer.came is None for answer in answers):
        return attempt.nothing()
    failing = next((answer for answer in answers if not answer.right), None)
    if failing is None:
        return Verdict("correct", f"Tried on {len(answers)} inputs. {choose.praise}")
    given, budget, sizes, came = failing
    fitting = [kind for kind in KINDS if sizes[kind].total <= budget]
    whose = came or min(KINDS, key=lambda kind: sizes[kind].total)
    name = next(_beliefs_that_agree(answers), "")
    says = f"With {whose} the total is {sizes[whose].total / MIB:,.1f} MiB. {says_of(CHOICES, name) if name else ''}"
    expected = " or ".join(map(repr, fitting)) or "None"
    return wrong(says.strip(), name, given=given, came="None" if came is None else repr(came), expected=expected)


def _beliefs_that_agree(answers: Sequence[_Answer]) -> Iterator[str]:
    if len(names := {answer.came for answer in answers}) == 1:
        yield {None: "never_fits", "adafactor": "always_adafactor"}.get(names.pop(), "always_the_same")
    wrongs = [answer for answer in answers if not answer.right]
    if all(answer.came is None and min(map(sum, answer.sizes.values())) == answer.budget for answer in wrongs):
        yield "exactly_does_not_fit"
    if all(answer.agrees(lambda sizes: 2 * sizes.gradients + sizes.state) for answer in answers):
        yield "frozen_not_counted"
    if all(answer.came and all(size.total > answer.budget for size in answer.sizes.values()) for answer in wrongs):
        yield "never_says_none"
    for name, taken in TAKEN.items():
        if all(answer.agrees(taken) for answer in answers):
            yield name


choose = Task(
    name="choose",
    rule=lambda model, mib: next((kind for kind in KINDS if predicted(model, kind).total <= mib * MIB), None),
    judge_with=_judge_choice,
    beliefs=CHOICES,
    hints=[
        "Three things are in memory between two steps. Which of them depends on the optimizer, and which does not?",
        "`sum(p.nbytes for p in model.parameters())` are the weights. Gradients are the same, but for frozen "
        "parameters.",
        "Try the kinds one after the other: weights + gradients + state, compared with `budget_mib * 2**20` bytes. "
        "After the loop, return None.",
    ],
    praise="Adafactor fits DistilBERT into 510 MiB. Nothing fits it into 500: weights and gradients alone take 501.9.",
)
