"""The capstone: choose an optimizer for a budget, prove by measuring that it fits, and train within it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from course_lib import adafactor, memory
from course_lib.check import _values
from course_lib.check._task import Attempt, Belief, Case, NotFit, Task, Verdict, case, wrong

if TYPE_CHECKING:
    from course_lib.tasks import Task as CourseTask

MIB = 2**20
KINDS = ("adamw", "rmsprop", "adafactor")


class Sizes(NamedTuple):
    """Bytes of training."""

    weights: int
    gradients: int
    state: int

    @property
    def total(self) -> int:
        return sum(self)


def _predicted(model: nn.Module, kind: str) -> Sizes:
    parameters = list(model.parameters())
    gradients = sum(p.nbytes for p in parameters if p.requires_grad)
    return Sizes(sum(p.nbytes for p in parameters), gradients, memory.predict_state_size(model, kind).bytes)


def _measured(model: nn.Module, optimizer: Any) -> Sizes:
    parameters = list(model.parameters())
    gradients = sum(p.grad.nbytes for p in parameters if p.grad is not None)
    return Sizes(sum(p.nbytes for p in parameters), gradients, memory.state_size(optimizer).bytes)


def _says(beliefs: Sequence[Belief], name: str) -> str:
    return next(belief.says for belief in beliefs if belief.name == name)


# What somebody takes for the bytes to compare with a budget of so many bytes.
TAKEN: dict[str, Callable[[Sizes], float]] = {
    "mb_for_mib": lambda sizes: sizes.total * MIB / 10**6,
    "gradients_for_frozen": lambda sizes: 2 * sizes.weights + sizes.state,
    "forgot_gradients": lambda sizes: sizes.weights + sizes.state,
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
        "gradients_for_frozen",
        "You count a gradient for every parameter. Frozen ones have none, so a model that is frozen in part needs "
        "less.",
    ),
    Belief(
        "mb_for_mib",
        "You take a MiB for a million bytes. It is 2**20 = 1,048,576 of them, and the difference of nearly 5 % decides "
        "here.",
    ),
    Belief(
        "never_says_none",
        "Where something fits, you find it. But you name an optimizer even where none fits. Then `None` is the answer.",
    ),
]


@cache
def _distilbert(frozen: bool) -> nn.Module:
    from course_lib import tasks

    model = tasks.distilbert(device="meta")
    if frozen:
        model.distilbert.embeddings.requires_grad_(False)
    return model


def _judge_choice(attempt: Attempt) -> Verdict:
    answers = []
    for frozen, budget in ((False, 1100), (False, 800), (False, 510), (False, 500), (True, 450), (True, 410)):
        attempt.given = f"choose(DistilBERT{', its embeddings frozen' if frozen else ''}, {budget})"
        came = attempt(copy.deepcopy(_distilbert(frozen)), budget)
        if came is not None and not (isinstance(came, str) and came in KINDS):
            return wrong("The answer is one of the names in `KINDS`, or None.", given=attempt.given, came=came,
                         expected=" or ".join(map(repr, KINDS)) + " or None")  # fmt: skip
        sizes = {kind: _predicted(_distilbert(frozen), kind) for kind in KINDS}
        answers.append((attempt.given, budget * MIB, sizes, came))
    if all(came is None for *_, came in answers):
        return attempt.nothing()
    failing = next((answer for answer in answers if not _agrees(lambda sizes: sizes.total, *answer[1:])), None)
    if failing is None:
        return Verdict("correct", f"Tried on {len(answers)} inputs. {choose.praise}")
    given, budget, sizes, came = failing
    fitting = [kind for kind in KINDS if sizes[kind].total <= budget]
    total = min(size.total for size in sizes.values()) if came is None else sizes[came].total
    whose = min(KINDS, key=lambda kind: sizes[kind].total) if came is None else came
    name = next(_beliefs_that_agree(answers), "")
    says = f"With {whose} the total is {total / MIB:,.1f} MiB. {_says(CHOICES, name) if name else ''}".strip()
    expected = " or ".join(map(repr, fitting)) or "None"
    return wrong(says, name, given=given, came="None" if came is None else repr(came), expected=expected)


def _agrees(taken: Callable[[Sizes], float], budget: int, sizes: dict[str, Sizes], came: str | None) -> bool:
    """Whether an answer is right for somebody who takes this for the bytes."""
    fits = {kind: taken(size) <= budget for kind, size in sizes.items()}
    return not any(fits.values()) if came is None else fits[came]


def _beliefs_that_agree(answers: Sequence[tuple[str, int, dict[str, Sizes], str | None]]) -> Iterator[str]:
    if len(names := {came for *_, came in answers}) == 1:
        yield "always_adafactor" if names == {"adafactor"} else "always_the_same"
    possible = [a for _, *a in answers if any(size.total <= a[0] for size in a[1].values())]
    if all(_agrees(lambda sizes: sizes.total, *answer) for answer in possible):
        yield "never_says_none"
    for name, taken in TAKEN.items():
        if all(_agrees(taken, *answer) for _, *answer in answers):
            yield name


choose = Task(
    name="choose",
    rule=lambda model, mib: next((kind for kind in KINDS if _predicted(model, kind).total <= mib * MIB), None),
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


class _Classifier(nn.Module):
    """A model with a loss, small and quick: an embedding and a linear layer, 128,390 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(2000, 64)
        self.head = nn.Linear(64, 6)

    def forward(self, input_ids: Tensor, labels: Tensor) -> SimpleNamespace:
        logits = self.head(self.embedding(input_ids).mean(1))
        return SimpleNamespace(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


BATCH = {"input_ids": torch.arange(12).reshape(4, 3), "labels": torch.tensor([0, 1, 2, 5])}
Proof = Callable[[nn.Module, Any, dict[str, Tensor], float], Any]


def _step(model: nn.Module, optimizer: Any, batch: dict[str, Tensor]) -> None:
    optimizer.zero_grad()
    model(**batch).loss.backward()
    optimizer.step()


def _prove(call: Proof, kind: str, setting: str, budget: float) -> Any:
    """What comes of a model and an optimizer in this setting: new, trained, frozen or in bfloat16."""
    with torch.random.fork_rng(devices=[]):
        model = _Classifier()
    if setting == "frozen":
        model.embedding.requires_grad_(False)
    if setting == "bfloat16":
        model.to(torch.bfloat16)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained) if kind == "AdamW" else adafactor.Adafactor(trained)
    batch = {key: value.clone() for key, value in BATCH.items()}
    if setting == "trained":
        _step(model, optimizer, batch)
        optimizer.zero_grad()
    return call(model, optimizer, batch, budget)


def _proof(
    model: nn.Module,
    optimizer: Any,
    batch: dict[str, Tensor],
    budget: float,
    total: Callable[[Sizes], float] = lambda sizes: sizes.total,
    compared: Callable[[Sizes], float] | None = None,
    unit: float = MIB,
    step: bool = True,
) -> tuple[float, bool]:
    """A measurement with what a misconception changes; `compared` is held against the budget, if not `total`."""
    if step:
        _step(model, optimizer, batch)
    sizes = _measured(model, optimizer)
    return total(sizes) / unit, (compared or total)(sizes) <= budget * unit


def _without_step(model: nn.Module, optimizer: Any, batch: dict[str, Tensor], budget: float) -> tuple[float, bool]:
    """Gradients as large as the weights that will have them, and the state as it is."""
    sizes = sum(p.nbytes * (2 if p.requires_grad else 1) for p in model.parameters())
    total = sizes / MIB + memory.state_size(optimizer).mib
    return total, total <= budget


def _in_float32(model: nn.Module, optimizer: Any, batch: dict[str, Tensor], budget: float, of_state: bool) -> Any:
    _step(model, optimizer, batch)
    numbers = sum(p.numel() * (2 if p.requires_grad else 1) for p in model.parameters())
    state = memory.state_size(optimizer)
    total = (4 * numbers + (4 * state.elements if of_state else state.bytes)) / MIB
    return total, total <= budget


def _proof_case(kind: str, setting: str, budget: float) -> Case:
    return case(kind, setting, budget, given=f"prove(a model, {setting}, {kind}, batch, {budget})")


prove = Task(
    name="prove",
    rule=_proof,
    use=_prove,
    cases=lambda: [
        _proof_case("AdamW", "new", 1.5),
        _proof_case("Adafactor", "new", 1.0),
        _proof_case("AdamW", "trained", 2.0),
        _proof_case("AdamW", "frozen", 0.6),
        _proof_case("AdamW", "bfloat16", 1.5),
    ],
    beliefs=[
        Belief(
            "measured_before_first_step",
            "You measure before the step. A new optimizer has no state then, and a new model no gradients, so the "
            "total is far too small. Step first, then measure.",
            [
                partial(_proof, step=False),
                partial(_proof, step=False, total=lambda sizes: 2 * sizes.weights + sizes.state),
                _without_step,
            ],
        ),
        Belief(
            "gradients_gone",
            "The gradients are missing in your total: not counted, or gone already, because `zero_grad()` has set them "
            "to None. Count them between the backward pass and the next `zero_grad()`.",
            partial(_proof, total=lambda sizes: sizes.weights + sizes.state),
        ),
        Belief(
            "state_only_budget",
            "You hold the state alone against the budget. It fits easily, but weights and gradients need room at the "
            "same time.",
            [
                partial(_proof, total=lambda sizes: sizes.state),
                partial(_proof, compared=lambda sizes: sizes.state),
            ],
        ),
        Belief(
            "mb_for_mib",
            "You divide by a million, or take the budget times a million. A MiB has 2**20 = 1,048,576 bytes.",
            [
                partial(_proof, unit=10**6),
                partial(_proof, compared=lambda sizes: sizes.total * MIB / 10**6),
                partial(_proof, total=lambda sizes: sizes.total * MIB / 10**6, compared=lambda sizes: sizes.total),
            ],
        ),
        Belief(
            "gradients_for_frozen",
            "You count a gradient for each parameter. Frozen ones have none: look whether `p.grad` is None.",
            partial(_proof, total=lambda sizes: 2 * sizes.weights + sizes.state),
        ),
        Belief(
            "assumes_fp32",
            "You count 4 bytes for each number. In `bfloat16` a number has 2: ask the tensors, with `nbytes`.",
            [partial(_in_float32, of_state=of_state) for of_state in (False, True)],
        ),
        Belief(
            "bytes_not_mib",
            "Your total is in bytes. It is asked in MiB, of 2**20 bytes.",
            [
                partial(_proof, total=lambda sizes: sizes.total * MIB, compared=lambda sizes: sizes.total),
                partial(_proof, total=lambda sizes: sizes.total * MIB),
            ],
        ),
    ],
    hints=[
        "When do gradients come into being, when the state, and when do gradients go away again?",
        "The order is: zero_grad, backward pass, step, measure. Then nothing is missing.",
        "Add `p.nbytes` for each parameter, `p.grad.nbytes` where `p.grad` is not None, and "
        "`memory.state_size(optimizer).bytes`; divide by 2**20.",
    ],
    praise="Whoever reads your number can repeat it: it says what was counted, when, and in which unit.",
    changes_input=True,
)


# The tight one is above Adafactor's total in MiB (4.73) and below it in MB (4.96), the impossible one below weights and
# gradients alone (4.69 MiB).
BUDGETS = {"roomy": 12.0, "tight": 4.8, "impossible": 4.6}
STEPS = 100
MARGIN = 0.05
FITS = [
    Belief(
        "budget_ignored",
        "The optimizer is the same whatever the budget, even where nothing fits. Let your `choose` decide, and return "
        "None if it does.",
    ),
    Belief(
        "state_only_budget",
        "The state by itself is within the budget, but weights and gradients are in memory at the same time, and with "
        "them it is not.",
    ),
    Belief(
        "mb_for_mib",
        "You give up where Adafactor fits. In MB, of a million bytes, its total is a larger number than the budget; "
        "but the budget is in MiB, of 2**20 bytes.",
    ),
    Belief(
        "never_says_none",
        "The impossible budget is below weights and gradients alone, so no optimizer can help. Return None there, and "
        "do not train.",
    ),
    Belief(
        "another_model",
        "The optimizer you return does not hold the parameters of the model you return. Perhaps you made the model "
        "twice: then one of them was trained, and you hand over the other.",
    ),
    Belief(
        "only_the_head",
        "Parts of the model are frozen, or not in the optimizer. That saves memory, but here all weights are to be "
        "trained.",
    ),
    Belief(
        "steps_ignored",
        "The optimizer has not taken the number of steps that was asked. Stop in the middle of an epoch if need be, "
        "and begin another one if the rows run out.",
    ),
    Belief(
        "never_beat_baseline",
        "It fits, but it has learned too little: it does not beat always answering the most frequent class. Look at "
        "the learning rate first.",
    ),
    Belief(
        "trained_on_validation",
        "The model knows the validation rows much better than those of `task.train`, so they have been trained on. "
        "Then their accuracy says nothing about names it has never seen.",
    ),
]


@cache
def _small() -> CourseTask:
    from course_lib import tasks

    return tasks.load("small")


def _accuracy(model: nn.Module, rows: Any) -> float:
    """The share of right answers; the model is left in the mode it was in."""
    training, device = model.training, next(model.parameters()).device
    batch = {key: value.to(device) for key, value in _small().collator([rows[i] for i in range(len(rows))]).items()}
    model.eval()
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    model.train(training)
    return (logits.argmax(-1) == batch["labels"]).double().mean().item()


def _trained(attempt: Attempt, budget: float, steps: int) -> tuple[nn.Module, Any] | None:
    """What `fit` makes of a budget: None, or a model and its optimizer; anything else is not judged further."""
    attempt.given = f"fit(the small task, {budget}, {steps})"
    came = attempt(_small(), budget, steps)
    if came is None:
        return None
    if isinstance(came, (tuple, list)) and len(came) == 2:
        model, optimizer = came
        if isinstance(model, type(_small().model())) and isinstance(optimizer, torch.optim.Optimizer):
            return model, optimizer
        came = f"{_values.kind(model)} and {_values.kind(optimizer)}"
    says = "Two values are asked, the model that `task.model` made and its optimizer; or None."
    raise NotFit(wrong(says, given=attempt.given, came=came, expected="(model, optimizer) or None"))


def _structure(model: nn.Module, optimizer: Any, steps: int) -> str:
    """The name of what is wrong with a trained model and its optimizer; empty if nothing is."""
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    own = {id(p) for p in model.parameters()}
    if not held & own:
        return "another_model"
    if own - held or not all(p.requires_grad for p in model.parameters()):
        return "only_the_head"
    counts = [float(state["step"]) for state in optimizer.state.values() if "step" in state]
    return "steps_ignored" if any(count != steps for count in counts) else ""


def _with_gradients(model: nn.Module, optimizer: Any) -> Sizes:
    """As measured, with a gradient for each parameter whether it is there at the moment or not."""
    weights, _, state = _measured(model, optimizer)
    return Sizes(weights, weights, state)


def _fault(name: str, attempt: Attempt, says: str = "", came: Any = "", expected: Any = "") -> Verdict:
    says = f"{says} {_says(FITS, name) if name else ''}".strip()
    return wrong(says, name, given=attempt.given, came=came, expected=expected)


def _judge_fit(attempt: Attempt) -> Verdict:
    sizes: dict[str, Sizes | None] = {}
    for steps, (name, budget) in enumerate(BUDGETS.items(), start=2):  # short runs: what is chosen and returned
        trained = _trained(attempt, budget, steps)
        if trained is not None and (fault := _structure(*trained, steps)):
            return _fault(fault, attempt)
        sizes[name] = None if trained is None else _with_gradients(*trained)
    if not any(sizes.values()):
        return attempt.nothing()
    if fault := _budget_fault(attempt, sizes):
        return fault
    trained = _trained(attempt, BUDGETS["tight"], STEPS)
    if trained is None:
        return attempt.nothing()
    model, optimizer = trained
    if fault := _structure(model, optimizer, STEPS):
        return _fault(fault, attempt)
    return _judge_learning(attempt, model, _with_gradients(model, optimizer))


def _budget_fault(attempt: Attempt, sizes: dict[str, Sizes | None]) -> Verdict | None:
    """What is wrong with the choices for the three budgets."""
    over = [name for name, size in sizes.items() if size is not None and size.total > BUDGETS[name] * MIB]
    early = [name for name in ("roomy", "tight") if sizes[name] is None]
    if None not in sizes.values() and len({size.state for size in sizes.values() if size}) == 1:
        belief, of_budget = "budget_ignored", "impossible"
    elif over and over != ["impossible"]:
        belief, of_budget = "state_only_budget", over[0]
    elif early:
        belief, of_budget = "mb_for_mib" if early == ["tight"] else "", early[0]
    elif over:
        belief, of_budget = "never_says_none", "impossible"
    else:
        return None
    attempt.given = f"fit(the small task, {BUDGETS[of_budget]}, steps)"
    size = sizes[of_budget]
    came = "None" if size is None else f"{size.total / MIB:.2f} MiB of weights, gradients and state"
    smallest = f"Adafactor, {_predicted(_small().model(), 'adafactor').total / MIB:.2f} MiB"
    expected = "None" if of_budget == "impossible" else f"what fits, such as {smallest}"
    return _fault(belief, attempt, came=came, expected=expected)


def _judge_learning(attempt: Attempt, model: nn.Module, sizes: Sizes) -> Verdict:
    task = _small()
    lazy = sum(label == task.majority for label in task.validation["labels"]) / len(task.validation)
    reached, known = _accuracy(model, task.validation), _accuracy(model, task.train.select(range(500)))
    if reached < lazy + MARGIN:
        return _fault("never_beat_baseline", attempt, came=f"accuracy {reached:.3f}",
                      expected=f"{lazy + MARGIN:.3f} or more")  # fmt: skip
    if reached > known + 0.15:
        told = f"Accuracy {reached:.3f} on the validation rows, {known:.3f} on those of `task.train`."
        return _fault("trained_on_validation", attempt, told)
    told = f"{sizes.total / MIB:.2f} of {BUDGETS['tight']} MiB, accuracy {reached:.3f}, where laziness has {lazy:.3f}."
    return Verdict("correct", f"{told} {fit.praise}")


fit = Task(
    name="fit",
    judge_with=_judge_fit,
    seconds=100.0,
    beliefs=FITS,
    hints=[
        "Begin with your `choose`, on the fresh model. What has to happen if it returns None?",
        "A loop over a `DataLoader` with `collate_fn=task.collator`, and an optimizer that holds `model.parameters()`. "
        "Count the steps, and stop after `steps` of them.",
        "`adafactor.Adafactor(model.parameters(), lr=task.learning_rate, scale_parameter=False, relative_step=False)` "
        "is what Trainer means by `adafactor`. With Trainer: `max_steps=steps`, and hand over `optimizers=(optimizer, "
        "None)`.",
    ],
    praise="Chosen by prediction, proved by measurement, and worth it, since it has learned.",
)
