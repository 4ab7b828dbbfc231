"""Exercise 04: row and column means, their product, a matrix it cannot fit, and what commutes with it."""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib import factored
from course_lib.check import _values
from course_lib.check._task import Belief, Task, Verdict, case, wrong


def _matrices() -> list[Tensor]:
    """Second moments, single ones and batches, none of them symmetric."""
    batch = torch.arange(24.0).reshape(2, 3, 4)
    return [
        torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 60.0]]),
        torch.tensor([[1.0, 8.0], [0.0, 3.0], [5.0, 0.5]], dtype=torch.float64),
        torch.tensor([[9.0, 1.0], [0.0, 0.0]]),
        torch.tensor([[4.0, 0.0, 1.0, 3.0]]),
        batch**2 % 13,
        (batch[:, :, :3].reshape(3, 2, 3) ** 3 % 17).double(),
        batch[:, :, :2].reshape(2, 1, 3, 2) ** 2,
    ]


def _flat(v: Tensor) -> Tensor:
    return v.reshape(-1, v.shape[-1])


def _sizes(v: Tensor) -> int:
    return v.shape[-2] * v.shape[-1]


row_col_means = Task(
    name="row_col_means",
    rule=lambda v: factored.row_col_means(v.double()),
    cases=lambda: [case(v) for v in _matrices()],
    beliefs=[
        Belief(
            "axes_swapped",
            "Row means and column means have changed places. An average over an axis takes that axis *away*: one "
            "number for each row is what is left when you average along the row.",
            [lambda v: (v.mean(-2), v.mean(-1)), lambda v: (v.mean(0), v.mean(1))],
        ),
        Belief(
            "sums",
            "These are sums. The paper keeps sums, but here means are asked, as in the usual code.",
            [lambda v: (v.sum(-1), v.sum(-2)), lambda v: (v.sum(1), v.sum(0))],
        ),
        Belief(
            "divides_by_the_other_side",
            "You add up the right entries but divide by the wrong number. A row of an n × m matrix has m entries, so "
            "its sum is divided by m; a column has n.",
            [
                lambda v: (v.sum(-1) / v.shape[-2], v.sum(-2) / v.shape[-1]),
                lambda v: (v.sum(1) / v.shape[0], v.sum(0) / v.shape[1]),
                lambda v: (v.sum(-1) / v.shape[-1], v.sum(-2) / v.shape[-1]),
                lambda v: (v.sum(-1) / v.shape[-2], v.sum(-2) / v.shape[-2]),
                lambda v: (v.sum(-1) / _sizes(v), v.sum(-2) / _sizes(v)),
            ],
        ),
        Belief(
            "flattened",
            "Entries that do not belong together are averaged: those of different rows and columns, or of different "
            "matrices. Each row and each column of *each matrix* has a mean of its own.",
            [
                lambda v: (v.mean(), v.mean()),
                lambda v: (v.transpose(-1, -2).reshape(-1, v.shape[-2]).mean(0), _flat(v).mean(0)),
                lambda v: (_flat(v).mean(1), _flat(v).mean(0)),
                lambda v: (v.flatten(1).mean(1), v.flatten(1).mean(0)),
            ],
        ),
        Belief(
            "keeps_axes",
            "The numbers are right, but an averaged axis is still there, with length 1. That helps to multiply back "
            "later; here `[..., n]` and `[..., m]` are asked.",
            [
                lambda v: (v.mean(-1, keepdim=True), v.mean(-2, keepdim=True)),
                lambda v: (v.mean(-1, keepdim=True), v.mean(-2)),
                lambda v: (v.mean(-1), v.mean(-2, keepdim=True)),
            ],
        ),
        Belief(
            "half_of_it",
            "Only one tensor comes back. Two are asked, the row means and then the column means: `return row, col`.",
            [lambda v: v.mean(-1), lambda v: v.mean(-2)],
        ),
        Belief(
            "squares_again",
            "You square `v` before you average. It is a second moment already: the squares are in it.",
            [lambda v: ((v**2).mean(-1), (v**2).mean(-2)), lambda v: ((v**2).mean(1), (v**2).mean(0))],
        ),
        Belief(
            "two_d_only",
            "A single matrix comes out right, a batch does not. Counted from the front, rows and columns are at other "
            "places in a batch; counted from the end, they are always the last two axes.",
            only_on=lambda v: v.ndim > 2,
        ),
    ],
    hints=[
        "Take a matrix of 2 rows and 3 columns. How many row means has it, and which axis is averaged away for them?",
        "Axes can be counted from the end: -1 is the last one, -2 the one before, in a batch too.",
        "`v.mean(axis)` averages one axis away. You need it twice.",
    ],
    praise="A kernel of shape [8, 6, 3, 3] is a batch of 48 matrices to your function, with 6 means for each.",
)


def _outer(row: Tensor, col: Tensor) -> Tensor:
    return row.double()[..., :, None] * col.double()[..., None, :]


def _mean(row: Tensor) -> Tensor:
    return row.double().mean(-1)[..., None, None]


def _entries(row: Tensor, col: Tensor) -> int:
    return row.shape[-1] * col.shape[-1]


reconstruct = Task(
    name="reconstruct",
    rule=lambda row, col: _outer(row, col) / _mean(row),
    cases=lambda: [case(*factored.row_col_means(v)) for v in _matrices()],
    beliefs=[
        Belief(
            "no_division",
            "You multiply and stop there. A mean times a mean has the unit of a *squared* entry, and so has a sum "
            "times a sum. Something of the unit of an entry has to be divided out.",
            [_outer, lambda row, col: _outer(row, col) * _entries(row, col), torch.outer, np.outer],
        ),
        Belief(
            "sums_over_mean",
            "You turn the means into sums, but do not divide by the total of all entries. Either all three are sums or "
            "all three are means.",
            [
                lambda row, col: _outer(row, col) * _entries(row, col) / _mean(row),
                lambda row, col: _outer(row, col) * col.shape[-1] / _mean(row),
                lambda row, col: _outer(row, col) * row.shape[-1] / _mean(row),
            ],
        ),
        Belief(
            "means_over_sum",
            "The product of two *means* is divided by a *sum*, so everything is too small. Sums over the total, or "
            "means over the mean.",
            [
                lambda row, col: _outer(row, col) / (_mean(row) * row.shape[-1]),
                lambda row, col: _outer(row, col) / (_mean(row) * col.shape[-1]),
                lambda row, col: _outer(row, col) / (_mean(row) * _entries(row, col)),
                lambda row, col: _outer(row, col) / row.double().sum(),
                lambda row, col: _outer(row, col) / col.double().sum(),
            ],
        ),
        Belief(
            "additive",
            "You add the means. A sum can turn negative where V̂ must not, and it does not follow rows that are "
            "multiples of each other. V̂ *multiplies* them.",
            [
                lambda row, col: row[..., :, None] + col[..., None, :] - _mean(row),
                lambda row, col: row[..., :, None] + col[..., None, :] - row.mean(),
                lambda row, col: row[..., :, None] + col[..., None, :],
                lambda row, col: (row[..., :, None] + col[..., None, :]) / 2,
            ],
        ),
        Belief(
            "shared_denominator",
            "You divide the whole batch by one common mean. Each matrix has a mean of its own: that of its own row "
            "means.",
            lambda row, col: _outer(row, col) / row.double().mean(),
        ),
        Belief(
            "denominator_on_the_wrong_axis",
            "Single matrices come out right. In a batch each matrix has a mean of its own, of its last axis, and yours "
            "does not line up with the matrices: it needs two more axes at its end before you divide.",
            [
                lambda row, col: _outer(row, col) / row.double().mean(-1),
                lambda row, col: _outer(row, col) / row.double().mean(-1, keepdim=True),
            ],
        ),
        Belief(
            "divides_twice",
            "You divide the row means and the column means both by the mean of all entries. One of the two divisions "
            "is too many: 100 times V would leave your result as it is.",
            [
                lambda row, col: _outer(row, col) / _mean(row) ** 2,
                lambda row, col: _outer(row, col) / _outer(row, col).mean(),
            ],
        ),
        Belief(
            "geometric_mean",
            "This is the root of row mean times column mean, the geometric mean of both. It has the right unit, but "
            "not V's margins: the product is divided by the mean of all entries instead.",
            lambda row, col: _outer(row, col).sqrt(),
        ),
        Belief(
            "root_taken",
            "You go on to the root, or to one over it, which a step needs later. V̂ itself is asked.",
            [
                lambda row, col: (_outer(row, col) / _mean(row)).sqrt(),
                lambda row, col: (_outer(row, col) / _mean(row)).rsqrt(),
            ],
        ),
        Belief(
            "transposed",
            "Rows and columns have changed places in the result: entry (i, j) belongs to row mean i and column mean j.",
            lambda row, col: (_outer(row, col) / _mean(row)).transpose(-1, -2),
        ),
        Belief(
            "two_d_only",
            "A single matrix comes out right, a batch does not. `torch.outer`, `[:, None]` and `mean(0)` know only one "
            "matrix. For a batch, count axes from the end: `row` gets a new last axis, `col` one before its last.",
            only_on=lambda row, col: row.ndim > 1,
        ),
        Belief(
            "entry_by_entry",
            "`row * col` multiplies entry by entry, so it needs two of one length. V̂ has an entry for each *pair* of a "
            "row and a column: every row mean meets every column mean.",
            [
                lambda row, col: row * col / row.mean(),
                lambda row, col: row * col / row.mean(-1, keepdim=True),
                lambda row, col: row * col,
            ],
        ),
    ],
    hints=[
        "Entry (i, j) is row mean i times column mean j, over the mean of all entries. Where does that mean come from?",
        "All rows are equally long, so the mean of the row means is the mean of all entries. Each matrix has its own.",
        "`row[..., :, None]` is a column of shape [..., n, 1], `col[..., None, :]` a row of shape [..., 1, m].",
    ],
    praise="The mean of `col` would have served as well: both are the mean of all entries, so nobody stores it.",
)


STRETCH, REACH = 100, 10_000
SLACK = 1.01  # for entries in half precision
WORST = {
    "beyond_the_range": "The largest entry is {reach:,.0f} times the smallest one above zero; 10,000 times is allowed. "
    "Without a limit there would be no worst matrix: the stretch can grow for ever.",
    "worst_divergence_is_worst_step": "This is about as bad as the I-divergence gets, which adds up what all entries "
    "lose. Yet no step becomes even four times too long. For that one entry is enough, and it may be a small one.",
    "zero_rows_break_it": "You count on a row or column of zeros. Its mean is 0, so V̂ is exactly 0 there, as V is: "
    "that harms nothing. Look at what the other entries share.",
    "stripes_look_bad": "V̂ fits every entry, however wild it looks: each row is nearly a multiple of the others, which "
    "is what the product can say. The *pattern* must be one that means cannot tell.",
    "largest_numbers": "Large numbers alone do nothing: multiply V by 1,000, and V̂ is multiplied by 1,000. What counts "
    "is how entries compare with the others.",
    "one_spike": "A spike makes the rest of V̂ too small, that is the right direction. But the other entries share "
    "their rows and columns, so none is as far off as it could be: within the rules a spike reaches about 25.",
    "too_short_not_too_long": "In one entry V̂ is {large:,.1f} times too *large*, so its step is too short. A stretch "
    "is the opposite: an entry for which V̂ is far too *small*.",
}


def _misjudged(v: np.ndarray, stretch: np.ndarray, reach: float) -> str:
    """Which belief a matrix looks like that does not go far enough; "" if none. Stretches are nan where v is 0."""
    longest, shortest = np.nanmax(stretch), np.nanmin(stretch)
    share = np.nansum(v * np.log(stretch**2)) / v.sum()  # the I-divergence, as a share of the total
    if share >= 0.75 * log(4) and longest < 4:
        return "worst_divergence_is_worst_step"
    if longest < 2 and not (v.any(0).all() and v.any(1).all()):
        return "zero_rows_break_it"
    if v.all() and max(longest, 1 / shortest) < 1.5 and (reach > 100 or v.max() < 1000):
        return "stripes_look_bad"
    if longest < 3 and shortest > 0.1 and np.median(v) >= 1000:
        return "largest_numbers"
    if v.all() and np.partition(v, -2, axis=None)[-2] * 50 <= v.max():
        return "one_spike"
    return "too_short_not_too_long" if longest < 10 and longest * shortest < 1 else ""


def _accept_worst(came: Any) -> Verdict | None:
    v = _values.as_array(came)
    if v is None or v.shape != (4, 4):
        found = _values.kind(came) if v is None else f"of shape {list(v.shape)}"
        return wrong(f"A 4 × 4 matrix is asked; this is {found}.", came=came)
    if not np.isfinite(v).all() or (v < 0).any() or not v.any():
        return wrong(
            "A second moment is a mean of squares: finite numbers, none below zero; and some above it.", came=v
        )
    reach = v.max() / v[v > 0].min()
    scaled = v / v.max()
    with np.errstate(all="ignore"):
        stretch = np.sqrt(scaled * scaled.sum() / np.outer(scaled.sum(1), scaled.sum(0)))
    stretch[v == 0] = np.nan
    most, large = np.nanmax(stretch), np.nanmin(stretch) ** -2
    if reach > REACH * SLACK:
        belief = "beyond_the_range"
    elif most * SLACK >= STRETCH:
        return None
    else:
        belief = _misjudged(v, stretch, reach)
    i, j = np.unravel_index(np.nanargmax(stretch), v.shape)
    says = WORST.get(belief, "Look at the entry with the largest stretch. What else is in its row and its column, "
                             "and how does the entry compare with the rest of the matrix?")  # fmt: skip
    came = f"a largest stretch of {most:,.1f}, at V[{i}, {j}], in {_values.text(v)}"
    expected = f"a stretch of {STRETCH} or more"
    return wrong(says.format(reach=reach, large=large), belief, came=came, expected=expected)


worst_matrix = Task(
    name="worst_matrix",
    rule=lambda: torch.diag(torch.tensor([1.0, 1.0, 1.0, 1 / REACH])),
    accept=_accept_worst,
    beliefs=[Belief(name, says) for name, says in WORST.items()],
    hints=[
        "A stretch needs V̂ far below V in one entry. In sums: V̂ is the sum of its row times that of its column, over "
        "the total. Which of these three should be small, and which large?",
        "The sum of a row cannot be less than an entry in it. When is it just that entry?",
        "Put one small entry where it is alone in its row and in its column, and large ones elsewhere.",
    ],
    praise="Means cannot tell that an entry stands alone, so its step becomes far too long. Lesson 05 has a brake.",
)


COMMUTES = {
    "average": (True, "means_do_not_commute", "A mean is a sum, an average of two is a sum, and sums can be taken in "
                "either order. Were it otherwise, all of V would have to be kept."),
    "product": (False, "product_commutes", "The *means* commute with averaging, their product does not. Take [[1, 0], "
                "[0, 0]] and [[0, 0], [0, 1]]: V̂ is exact for both, but 0.25 everywhere for their average."),
    "scale": (True, "scale_gets_squared", "The product has the factor 3 twice, once from R and once from C. But it is "
              "divided by the mean of all entries, which has it too."),
    "one_row": (False, "rows_scale_freely", "A factor on one row gets into the column means, and through them into "
                "every row. Try the identity with its first row tripled: V̂ is [[2.25, 0.75], [0.75, 0.25]], and the "
                "second row was 0.5 and 0.5 before."),
    "plus": (False, "constants_pass_through", "The means grow by 1, but then they are multiplied. [[3, 0], [0, 0]] is "
             "its own V̂; with 1 added to each entry, V̂ has 25/7 in its corner, not 4."),
    "root": (False, "roots_commute", "The mean of roots is not the root of the mean. For the 2 × 2 identity V̂ is 0.5 "
             "everywhere; the identity's roots are the identity again, so nothing has become the root of 0.5."),
    "transpose": (True, "rows_are_special", "When V is transposed, R and C change places, and so do the axes of their "
                  "product. The mean of all entries stays: rows and columns are treated alike."),
    "again": (True, "loses_more_each_time", "V̂ has exactly the row means and column means of V. Factored once more, it "
              "gives the same means, and so the same product: all that can be lost is lost the first time."),
}  # fmt: skip
ALIKE = {
    True: Belief("everything_commutes", "You say that everything commutes. What is a *sum* does: the means. But V̂ is "
                 "a product of means, divided by a third: begin with the two diagonal matrices in the lesson."),
    False: Belief("nothing_commutes", "You say that nothing commutes. Begin with the means: they are sums, and sums "
                  "can be taken in either order. That is what makes Adafactor possible."),
}  # fmt: skip


def _truth(value: Any) -> bool | None:
    """True or False, also as NumPy, torch, or 0 and 1 write it; None for anything else."""
    array = _values.as_array(value)
    return bool(array) if array is not None and array.size == 1 and array.item() in (0, 1) else None


def _accept_commutes(came: Any) -> Verdict | None:
    if problem := _values.difference(came, {name: True for name in COMMUTES}):
        return wrong(problem, came=came)
    said = {name: _truth(came[name]) for name in COMMUTES}
    if unclear := [name for name, truth in said.items() if truth is None]:
        return wrong(
            f"Under {unclear[0]!r} stands {_values.text(came[unclear[0]])}; True or False is asked.", came=came
        )
    if len(set(said.values())) == 1:
        alike = ALIKE[said["average"]]
        return wrong(alike.says, alike.name, came=came)
    misjudged = [name for name, (truth, _, _) in COMMUTES.items() if said[name] != truth]
    if not misjudged:
        return None
    first, more = misjudged[0], len(misjudged) - 1
    _, belief, says = COMMUTES[first]
    rest = f" {more} more {'is' if more == 1 else 'are'} misjudged." if more else ""
    return wrong(
        f"About {first!r}: {says}{rest}", belief, came=f"{first!r}: {said[first]}", expected=str(not said[first])
    )


commutes = Task(
    name="commutes",
    rule=lambda: {name: truth for name, (truth, _, _) in COMMUTES.items()},
    accept=_accept_commutes,
    beliefs=[*ALIKE.values(), *[Belief(name, says) for _, name, says in COMMUTES.values()]],
    hints=[
        "Two kinds of things are asked about: the means, which are sums, and V̂, which is a product of them.",
        "To refute a statement, one small example is enough. Try the 2 × 2 identity, or a matrix with one entry.",
        "An entry of V̂ is a row mean times a column mean, over the mean of all. Ask what becomes of each of the three.",
    ],
    praise="Only R and C may be averaged from step to step. V̂ is made afresh each time it is needed.",
)
