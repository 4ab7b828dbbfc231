"""Exercise 06, last task: one step's gradient from several batches, with a count of the rows that are in work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.check._task import Belief, NotFit, Task, case, ways, wrong


class Watched(torch.nn.Linear):
    """A linear layer that knows how many rows are in work: forward has seen them, backward not yet.

    Attributes:
        most: the most rows that were in work at once.
        without: the most rows that it saw at once with no gradient to come.
    """

    in_work = most = without = 0

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        rows = out.numel() // self.out_features
        if out.requires_grad:
            self._add(rows)
            out.register_hook(lambda _: self._add(-rows))
        else:
            self.without = max(self.without, rows)
        return out

    def _add(self, rows: int) -> None:
        self.in_work += rows
        self.most = max(self.most, self.in_work)


STEPS = "The weights have changed. The step comes later, and is an optimizer's work: only the gradient is asked."
NO_GRADIENT = (
    "After the call, parameters have no gradient. Either nothing has called `backward()`, or the gradients have been "
    "cleared since."
)


def _left_behind(call: Callable[..., Any], model: Watched, x: Tensor, labels: Tensor, k: int) -> dict[str, Any] | None:
    """What a call returns and leaves: the loss, how many rows were in work at once, and all gradients in a row."""
    before, given = model.weight.detach().clone(), getattr(call, "given", "")
    loss = call(model, x, labels, k)
    if loss is None:
        return None
    if not torch.equal(before, model.weight):
        raise NotFit(wrong(STEPS, "takes_a_step", given=given))
    gradients = [p.grad for p in model.parameters()]
    if any(gradient is None for gradient in gradients):
        raise NotFit(wrong(NO_GRADIENT, "no_backward", given=given, came="p.grad is None", expected="numbers"))
    gradient = torch.cat([gradient.flatten() for gradient in gradients])
    rows = {"rows at once": model.most, "rows at once, without gradient": model.without}
    return {"loss": loss, **{name: max(seen, len(x) // k) for name, seen in rows.items()}, "gradient": gradient}


def _in_pieces(
    model: Watched,
    x: Tensor,
    labels: Tensor,
    k: int,
    *,
    factor: Callable[[int, int], float] = lambda k, rows: 1 / k,
    report: Callable[[Sequence[float], float], float] = lambda losses, share: sum(losses) / len(losses),
    number: Callable[[int, int], int] = lambda k, rows: k,
    forgets: bool = False,
) -> float:
    """Work through `number` batches, each loss times `factor`; `report` makes one loss of theirs."""
    batches, share, losses = number(k, len(x)), factor(k, len(x)), []
    for some, theirs in zip(x.chunk(batches), labels.chunk(batches), strict=True):
        loss = cross_entropy(model(some), theirs)
        if forgets:
            model.zero_grad()
        (share * loss).backward()
        losses.append(loss.item())
    return report(losses, share)


# Losses that a learner may return beside any gradient, from the batches' losses and what each was multiplied by.
LAST, LAST_SHARE = (lambda losses, share: losses[-1]), (lambda losses, share: share * losses[-1])
MEAN, SUM = (lambda losses, share: sum(losses) / len(losses)), (lambda losses, share: sum(losses))
SHARES, MEAN_SHARE = (lambda losses, share: share * sum(losses)), (lambda losses, share: share * MEAN(losses, share))
REPORTS = (MEAN, SUM, SHARES, MEAN_SHARE, LAST, LAST_SHARE)
FACTORS = WHOLE, BY_K, BY_ROWS = (lambda k, rows: 1), (lambda k, rows: 1 / k), (lambda k, rows: 1 / rows)
BY_ROWS_IN_BATCH, TWICE = (lambda k, rows: k / rows), (lambda k, rows: 1 / k**2)


def _with(*factors: Callable[[int, int], float], **kwargs: Any) -> list[Callable[..., Any]]:
    """Rules with each of these factors, and any loss reported."""
    return [partial(_in_pieces, factor=f, report=r, **kwargs) for f, r in product(factors, REPORTS)]


def _first_batch(
    model: Watched,
    x: Tensor,
    labels: Tensor,
    k: int,
    *,
    factor: Callable[[int, int], float],
    report: Callable[[Sequence[float], float], float],
    times: bool,
) -> float:
    """Only the first batch is worked through: once, or k times."""
    share = factor(k, len(x))
    some, theirs = x.chunk(k)[0], labels.chunk(k)[0]
    losses = [_in_pieces(model, some, theirs, 1, factor=lambda *_: share) for _ in range(k if times else 1)]
    return report(losses, share)


def _loss_of_all(model: Watched, x: Tensor, labels: Tensor, k: int) -> float:
    _in_pieces(model, x, labels, k)
    with torch.no_grad():
        return cross_entropy(model(x), labels).item()


def _pieces(rows: int, k: int, dtype: torch.dtype = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(rows)
    model = Watched(3, 2, dtype=dtype)
    torch.nn.init.normal_(model.weight, generator=generator)
    torch.nn.init.zeros_(model.bias)
    x = torch.randn(rows, 3, generator=generator, dtype=dtype)
    labels = (torch.arange(rows) % 3 == 0).long()
    return case(model, x, labels, k, given=f"a layer 3 → 2, {rows} rows, k = {k}, so {rows // k} × {k}")


gradient_in_pieces = Task(
    name="gradient_in_pieces",
    rule=_in_pieces,
    use=_left_behind,
    changes_input=True,
    cases=lambda: [_pieces(8, 1), _pieces(8, 2), _pieces(8, 4), _pieces(12, 3, torch.float64)],
    rtol=1e-3,
    beliefs=[
        ways(
            "always_same",
            "Your gradient is k times that of the one large batch. Each loss is a mean already, and `backward()` adds, "
            "so k means add up to k times the mean: the fault that lesson 06 found in Trainer.",
            *_with(WHOLE),
        ),
        ways(
            "last_batch_only",
            "The gradient is that of the last batch alone. Whatever sets it to zero inside the loop throws away what "
            "the batches before have added.",
            *_with(WHOLE, BY_K, forgets=True),
        ),
        ways(
            "first_batch_only",
            "The gradient is that of the first batch alone. Does a `return` stand inside the loop, or is the same "
            "batch taken each time?",
            *(
                partial(_first_batch, factor=f, report=r, times=t)
                for f, r, t in product(FACTORS, REPORTS, (False, True))
            ),
        ),
        ways(
            "sums_over_rows",
            "Each loss is a sum over rows, and so the gradient grows with their number. The loss that is asked is the "
            "mean: `cross_entropy` gives it unless told otherwise.",
            *_with(lambda k, rows: rows / k, lambda k, rows: rows / k**2),
        ),
        ways(
            "batches_of_k_rows",
            "Your batches have k rows each. k is the number of batches: 8 rows with k = 2 are two batches of four.",
            *_with(WHOLE, BY_K, BY_ROWS_IN_BATCH, number=lambda k, rows: rows // k),
        ),
        ways(
            "divides_by_rows",
            "You divide by a number of rows. Inside each batch `cross_entropy` has done that already; what is left to "
            "divide by is the number of batches.",
            *_with(BY_ROWS, BY_ROWS_IN_BATCH),
        ),
        ways(
            "divides_by_k",
            "Something has been divided by k twice, and shrinks with the number of batches. Once is enough: each loss, "
            "or their sum.",
            *_with(TWICE),
            partial(_in_pieces, report=MEAN_SHARE),
        ),
        ways(
            "loss_of_last_batch",
            "The gradient is right. The loss that you return is that of the last batch; the step's loss is the mean "
            "over all batches.",
            partial(_in_pieces, report=LAST),
            partial(_in_pieces, report=LAST_SHARE),
        ),
        Belief(
            "sum_of_losses",
            "The gradient is right. The loss that you return is the sum over the batches, k times too large, so 8 × 1 "
            "and 2 × 4 cannot be compared in a log.",
            partial(_in_pieces, report=SUM),
        ),
        Belief(
            "all_rows_at_once",
            "The numbers are right, but all rows are in work at the same time, with their activations in memory. Each "
            "batch needs a forward pass and a `backward()` of its own, before the next one begins.",
            partial(_in_pieces, factor=WHOLE, number=lambda k, rows: 1),
        ),
        Belief(
            "all_rows_for_the_loss",
            "The gradient is right. But for the loss, all rows go through the model together once more, and they do "
            "not fit. Each batch has had its loss already: make one of those.",
            _loss_of_all,
        ),
        Belief("no_backward", NO_GRADIENT),
        Belief("takes_a_step", STEPS),
    ],
    hints=[
        "`x.chunk(k)` cuts the rows into k batches. Each gets a forward pass, a loss and a `backward()` of its own.",
        "Gradients add up by themselves. `cross_entropy` is the mean over its batch; what has to happen to k such "
        "means so that their sum is the mean over all rows?",
        "Call `(loss / k).backward()` for each batch, and return the sum of those shares, as a plain number.",
    ],
    praise="8 × 1, 4 × 2 and 2 × 4 give the same step, with the activations of one small batch in memory.",
)
