"""The switch card: which parts of Adafactor are on, in the paper and in three ready-made forms of it.

The paper's column is Algorithm 6 of Shazeer & Stern 2018 (arXiv 1804.04235). The others are not typed: each optimizer
is made as its library makes it, takes a few steps on gradients chosen for the purpose, and is judged by how it moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isclose

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import nn

from course_lib.averages import adafactor_beta2
from course_lib.figures import COLORS

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Cell = tuple[bool, str]  # whether the part is on, and how it reads there

ROWS = ("factoring", "decay β₂(t)", "update clipping", "relative step", "RMS scaling")
PAPER: tuple[Cell, ...] = (
    (True, "keeps R and C"),
    (True, "1 − t^−0.8"),
    (True, "RMS(U) ≤ 1"),
    (True, "min(0.01, 1/√t)"),
    (True, "max(0.001, RMS(X))"),
)


@dataclass(frozen=True)
class Behavior:
    """What an optimizer's steps show.

    Attributes:
        factored: it keeps fewer numbers for a matrix than the matrix has entries.
        beta2: decay of the second moment at steps 2 and 3.
        clip: the largest RMS of an update before the step size; infinite if a sudden gradient passes unclipped.
        step_size: how far parameters of RMS 1 move in the first step.
        late: step size at step 40,000 as a share of the first.
        floor: RMS that parameters of zero are taken to have; None if steps do not depend on the parameters' RMS.
    """

    factored: bool
    beta2: tuple[float, float]
    clip: float
    step_size: float
    late: float
    floor: float | None


def observe(make: Make) -> Behavior:
    """Let optimizers made by ``make(parameters)`` take some steps, and say what those steps show.

    They must be of the kind that divides by the root of a second moment and keeps no first one.
    """
    first, *later = _moves(make, [1.0, 0.5, 0.25])
    V2, V3 = (0.25 / (later[0] / first) ** 2, 0.0625 / (later[1] / first) ** 2)  # V = (G / U)²
    # Unclipped, the update on a sudden gradient would grow with the length of the average before it.
    spikes = [_moves(make, [1.0] * calm + [1e6])[-1] / first for calm in (30, 100)]
    large, zero = (_moves(make, [1.0], start=start)[0] for start in (10.0, 0.0))
    return Behavior(
        factored=_kept(make) < 8 * 9,
        beta2=((V2 - 0.25) / (1 - 0.25), (V3 - 0.0625) / (V2 - 0.0625)),
        clip=spikes[0] if isclose(*spikes, rel_tol=1e-3) else inf,
        step_size=first,
        late=_moves(make, [1.0, 1.0], taken=39_999)[1] / first,
        floor=zero / first if isclose(large, 10 * first, rel_tol=1e-6) else None,
    )


def _moves(make: Make, gradients: Sequence[float], start: float = 1.0, taken: int | None = None) -> list[float]:
    """How far four equal parameters move from ``start`` at each gradient; they are put back after each step.

    With ``taken`` the optimizer believes, after its first step, that it has taken so many.
    """
    p = nn.Parameter(torch.full((4,), start, dtype=torch.float64))
    optimizer = make([p])
    moves = []
    for gradient in gradients:
        p.grad = torch.full_like(p, gradient)
        optimizer.step()
        moves.append(abs(p[0].item() - start))
        p.data.fill_(start)
        state = optimizer.state[p]
        if taken is not None and "step" in state:
            state["step"] = 0 * state["step"] + taken  # a tensor or a number, as it was
    return moves


def _kept(make: Make) -> int:
    """Numbers kept for an 8 × 9 matrix, single ones aside."""
    p = nn.Parameter(torch.ones(8, 9))
    optimizer = make([p])
    p.grad = torch.ones_like(p)
    optimizer.step()
    return sum(kept.numel() for kept in optimizer.state[p].values() if torch.is_tensor(kept) and kept.ndim > 0)


def cells(behavior: Behavior, lr: float | None, schedule: str | None = None) -> tuple[Cell, ...]:
    """One column of the card.

    Args:
        behavior: as observed.
        lr: the optimizer's own setting; None where it computes its step size.
        schedule: of the learning rate, from outside the optimizer.
    """
    grows = all(isclose(b, adafactor_beta2(t), rel_tol=1e-6) for b, t in zip(behavior.beta2, (2, 3), strict=True))
    relative = not isclose(behavior.late, 1, rel_tol=1e-6)
    cap = "lr" if lr is not None and isclose(lr, behavior.step_size, rel_tol=1e-6) else f"{behavior.step_size:.3g}"
    if relative:
        steps = f"min({cap}, 1/√t)" + ("" if lr is None else f"\nlr = {lr:g}")
    else:
        steps = f"lr = {lr:g}, {schedule or 'constant'}"
    return (
        (behavior.factored, "keeps R and C" if behavior.factored else "keeps all of V"),
        (grows, "1 − t^−0.8" if grows else f"β₂(2) = {behavior.beta2[0]:.3g}"),
        (behavior.clip < inf, f"RMS(U) ≤ {behavior.clip:.3g}" if behavior.clip < inf else "none"),
        (relative, steps),
        (behavior.floor is not None, "none" if behavior.floor is None else f"max({behavior.floor:.3g}, RMS(X))"),
    )


def card() -> dict[str, tuple[Cell, ...]]:
    """The columns of the card, each with one cell for each of ``ROWS``."""
    from transformers import Trainer, TrainingArguments
    from transformers.optimization import Adafactor

    arguments = TrainingArguments(output_dir="unused", optim="adafactor", report_to="none", use_cpu=True)
    trainers, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    return {
        "paper, Algorithm 6": PAPER,
        "transformers, default": cells(observe(Adafactor), lr=Adafactor([nn.Parameter(torch.ones(1))]).defaults["lr"]),
        "transformers, as Trainer sets it": cells(
            observe(lambda params: trainers(params, **settings)), settings["lr"], str(arguments.lr_scheduler_type.value)
        ),
        "torch, default": cells(
            observe(torch.optim.Adafactor), torch.optim.Adafactor([nn.Parameter(torch.ones(1))]).defaults["lr"]
        ),
    }


def draw() -> tuple[Figure, str]:
    """The card as a table, and what it says in words."""
    columns = card()
    left, top, width, height = 1.58, 0.62, 1.6, 0.68
    total = top + len(ROWS) * height
    fig = Figure(figsize=(left + len(columns) * width, total))
    ax = fig.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, left + len(columns) * width), ylim=(total, 0))
    ax.axis("off")
    for i, row in enumerate(ROWS):
        ax.text(0.08, top + (i + 0.5) * height, row, va="center", fontweight="bold")
    for j, (name, column) in enumerate(columns.items()):
        middle = left + (j + 0.5) * width
        ax.text(middle, 0.3, name.replace(", ", "\n"), ha="center", va="center", fontweight="bold", linespacing=1.2)
        for i, (on, words) in enumerate(column):
            face, ink = (COLORS["adafactor"], "white") if on else ("white", COLORS["ink"])
            corner = (middle - width / 2 + 0.03, top + i * height + 0.03)
            box = Rectangle(corner, width - 0.06, height - 0.06, facecolor=face, edgecolor=COLORS["muted"])
            ax.add_patch(box)
            words = f"{'on' if on else 'OFF'}\n{words}".replace("t^−0.8", "$t^{-0.8}$")
            ax.text(middle, top + (i + 0.5) * height, words, ha="center", va="center", color=ink, fontsize=10)
    return fig, _describe(columns)


def _describe(columns: dict[str, tuple[Cell, ...]]) -> str:
    told = []
    for name, column in columns.items():
        parts = ", ".join(
            f"{row} {'on' if on else 'OFF'} ({words})".replace("\n", ", ")
            for row, (on, words) in zip(ROWS, column, strict=True)
        )
        told.append(f"{name}: {parts}")
    return f"Which parts of Adafactor are on. {'; '.join(told)}."
