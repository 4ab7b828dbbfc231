"""The capstone's task `prove`: measure whether training fits into a budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from course_lib import adafactor, memory
from course_lib.check._budget_sizes import MIB, Sizes, measured, predicted
from course_lib.check._task import Belief, Case, Task, case


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
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": torch.optim.AdamW,
    "Adafactor": adafactor.Adafactor,
    "AdamW with amsgrad=True": partial(torch.optim.AdamW, amsgrad=True),  # keeps a third number
}
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
    optimizer = OPTIMIZERS[kind](trained)
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
    digits: int | None = None,
) -> tuple[float, bool]:
    """A measurement with what a misconception changes; `compared` is held against the budget, if not `total`."""
    if step:
        _step(model, optimizer, batch)
    sizes = measured(model, optimizer)
    told = total(sizes) / unit
    return told if digits is None else round(told, digits), (compared or total)(sizes) <= budget * unit


def _without_step(model: nn.Module, optimizer: Any, batch: dict[str, Tensor], budget: float) -> tuple[float, bool]:
    """Gradients as large as the weights that will have them, and the state as it is."""
    sizes = sum(p.nbytes * (2 if p.requires_grad else 1) for p in model.parameters())
    total = sizes / MIB + memory.state_size(optimizer).mib
    return total, total <= budget


def _without_frozen(model: nn.Module, optimizer: Any, batch: dict[str, Tensor], budget: float) -> tuple[float, bool]:
    """Twice the parameters that are trained."""
    _step(model, optimizer, batch)
    total = 2 * sum(p.nbytes for p in model.parameters() if p.requires_grad) / MIB + memory.state_size(optimizer).mib
    return total, total <= budget


def _by_prediction(
    model: nn.Module, optimizer: Any, batch: dict[str, Tensor], budget: float, step: bool
) -> tuple[float, bool]:
    """Nothing is measured but the name of the optimizer."""
    if step:
        _step(model, optimizer, batch)
    kind = "adamw" if isinstance(optimizer, torch.optim.AdamW) else "adafactor"
    total = predicted(model, kind).total / MIB
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
        _proof_case("AdamW with amsgrad=True", "new", 1.2),
    ],
    beliefs=[
        Belief(
            "measured_before_first_step",
            "What you measure is not all there yet: state comes into being in the first step, and gradients in a "
            "backward pass. Go backward and take a step first, then measure.",
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
            "forgot_state",
            "The state is missing in your total.",
            [
                partial(_proof, total=lambda sizes: sizes.weights + sizes.gradients),
                partial(_proof, total=lambda sizes: 2 * sizes.weights),
            ],
        ),
        Belief(
            "forgot_weights",
            "The weights are missing in your total.",
            partial(_proof, total=lambda sizes: sizes.gradients + sizes.state),
        ),
        Belief(
            "frozen_not_counted",
            "You leave frozen parameters out altogether. They have no gradient and no state, but they are weights all "
            "the same.",
            _without_frozen,
        ),
        Belief(
            "predicted_not_measured",
            "That is a prediction. An optimizer may keep more than usual, and only its `state` tells: measure it.",
            [partial(_by_prediction, step=step) for step in (True, False)],
        ),
        Belief(
            "always_the_same",
            "Your total is right, but your second value is the same for every budget. Compare the two, both in MiB.",
            [partial(_proof, compared=lambda sizes, one=one: one) for one in (0.0, inf)],
        ),
        Belief(
            "comparison_turned_round",
            "Your total is right, but you compare it the wrong way round: it fits if it is not *larger* than the "
            "budget.",
            lambda *args: (_proof(*args)[0], not _proof(*args)[1]),
        ),
        Belief(
            "rounded",
            "You round the total. Leave that to whoever prints it.",
            [partial(_proof, digits=digits) for digits in (0, 1, 2)],
        ),
        Belief(
            "mb_for_mib",
            "You divide by a million, or take the budget times a million. A MiB has `2**20` = 1,048,576 bytes.",
            [
                partial(_proof, unit=10**6),
                partial(_proof, compared=lambda sizes: sizes.total * MIB / 10**6),
                partial(_proof, total=lambda sizes: sizes.total * MIB / 10**6, compared=lambda sizes: sizes.total),
                partial(_proof, total=lambda sizes: sizes.weights + sizes.gradients + sizes.state * MIB / 10**6),
            ],
        ),
        Belief(
            "gradients_for_frozen",
            "You count a gradient for each parameter. Frozen ones have none: look whether `p.grad` is None.",
            partial(_proof, total=lambda sizes: 2 * sizes.weights + sizes.state),
            raises=r"'NoneType' object has no attribute '(nbytes|numel|element_size|dtype|nelement|shape)'",
        ),
        Belief(
            "assumes_fp32",
            "You count 4 bytes for each number. In `bfloat16` a number has 2: ask the tensors, with `nbytes`.",
            [partial(_in_float32, of_state=of_state) for of_state in (False, True)],
        ),
        Belief(
            "bytes_not_mib",
            "Your total is in bytes. It is asked in MiB, of `2**20` bytes.",
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
        "`memory.state_size(optimizer).bytes`; divide by `2**20`.",
    ],
    praise="Whoever reads your number can repeat it: it says what was counted, when, and in which unit.",
    changes_input=True,
)
