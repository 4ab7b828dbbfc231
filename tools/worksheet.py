"""The worksheet: one step of Adafactor by hand, and its key, whose blanks the course's own optimizer fills in."""

from __future__ import annotations

import io
import re
from fractions import Fraction

import torch
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas
from torch import Tensor

from course import Course
from course_lib import adafactor, averages, factored
from paper import BOLD, INK, MARGIN, MUTED, REGULAR, WIDTH, canvas, write_foot

TITLE = "One step of Adafactor, by hand"
X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
G = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
EPS2, D = 1e-3, 1.0

# In points: room for one number in handwriting, and where the eight stages stand.
CELL, HEIGHT, GAP = 21 * mm, 11 * mm, 3 * mm
LEFT, RIGHT = MARGIN, MARGIN + 0.53 * WIDTH
TOPS = tuple(top * mm for top in (250, 191, 132, 82))


def solve() -> dict[str, Tensor]:
    """Every number of the first step with the paper's settings (`lr=None`), under the name that its blank has."""
    p = torch.nn.Parameter(X.clone())
    p.grad = G.clone()
    optimizer = adafactor.Adafactor([p], eps=(1e-30, EPS2), clip_threshold=D)
    optimizer.step()
    squared = G.square()
    R, C = optimizer.state[p]["exp_avg_sq_row"], optimizer.state[p]["exp_avg_sq_col"]
    V_hat = factored.reconstruct(R, C)
    U = G / V_hat.sqrt()
    beta2, rho = torch.tensor([averages.adafactor_beta2(1), min(1e-2, 1**-0.5)], dtype=torch.float64)
    return {
        "squared": squared, "row_sums": squared.sum(-1), "col_sums": squared.sum(-2), "total": squared.sum(),
        "beta2": beta2, "R": R, "C": C, "mean": R.mean(), "V_hat": V_hat, "U": U, "rms_U": _rms(U),
        "rho": rho, "rms_X": _rms(X), "alpha": rho * _rms(X).clamp(min=EPS2), "new_X": p.detach(),
    }  # fmt: skip


def worksheet(course: Course) -> bytes:
    """The sheet and, as a page of its own, its key."""
    buffer = io.BytesIO()
    page = canvas(buffer, TITLE, course.title)
    for number, known in enumerate(({}, solve()), start=1):
        _draw(page, known)
        lesson = course.lesson("05")
        write_foot(page, f"{course.title} · Worksheet for lesson {lesson.label}", str(number), 2 * MARGIN + WIDTH)
        page.showPage()
    page.save()
    return buffer.getvalue()


def _draw(page: Canvas, known: dict[str, Tensor]) -> None:
    """All eight stages, with the blanks filled by what is `known`."""
    page.setStrokeColor(MUTED)
    page.setLineWidth(0.7)
    _write(page, LEFT, 274 * mm, f"{TITLE}: the key" if known else TITLE, 17, BOLD)
    if not known:
        _write(page, RIGHT + 22 * mm, 274 * mm, "Name", 9.5)
        page.line(RIGHT + 33 * mm, 273 * mm, LEFT + WIDTH, 273 * mm)
    intro = (
        "The first step, t = 1, of a matrix of parameters, with the paper's settings: d = 1, ε₂ = 0.001; ε₁ = 10⁻³⁰",
        "is too small to show in these numbers. You need a calculator with a root. Keep six decimals.",
    )
    for line, words in enumerate(intro):
        _write(page, LEFT, (265 - 5 * line) * mm, words, 9)

    top = _stage(page, LEFT, TOPS[0], "1  Gradient", "Given: the parameters X and their gradient G.")
    for x, name, values in ((LEFT, "X", X), (LEFT + 44 * mm, "G", G)):
        _write(page, x, top - 1.2 * HEIGHT, name, 11, BOLD)
        _grid(page, x + 6 * mm, top, 2, 2, values, width=0.75 * CELL)

    top = _stage(page, RIGHT, TOPS[0], "2  Square", "G² entry by entry. Add up rows, columns, and all.")
    _margins(page, RIGHT, top, known, ("row_sums", "col_sums", "total"), ("row sums", "column sums", "total"))
    _grid(page, RIGHT, top, 2, 2, known.get("squared"))

    top = _stage(page, LEFT, TOPS[1], "3  Average", "β₂(1) = 1 − 1/1^0.8 =")
    _fill(page, LEFT + 37 * mm, top + 4 * mm, 12 * mm, known.get("beta2"))
    _write(page, LEFT + 50 * mm, top + 4 * mm, ", so take plain means", 9)
    _margins(page, LEFT, top, known, ("R", "C", "mean"), ("R, of rows", "C, of columns", "mean(R)"))
    page.setDash(1, 2)
    page.rect(LEFT, top - 2 * HEIGHT, 2 * CELL, 2 * HEIGHT)
    page.setDash()
    _write(page, LEFT + 9.5 * mm, top - HEIGHT - 1 * mm, "no matrix kept", 8, color=MUTED)

    top = _stage(page, RIGHT, TOPS[1], "4  Multiply", "V̂ = R of the row · C of the column / mean(R)")
    _grid(page, RIGHT, top, 2, 2, known.get("V_hat"))
    _write(page, RIGHT, top - 2 * HEIGHT - 6 * mm, "Check: row sum · column sum / total is the same.", 8, color=MUTED)
    if known:
        fractions = (str(Fraction(value).limit_denominator(100)) for value in known["V_hat"].flatten().tolist())
        _write(page, RIGHT, top - 2 * HEIGHT - 11 * mm, f"As fractions: {', '.join(fractions)}.", 8)

    top = _stage(page, LEFT, TOPS[2], "5  Divide", "U = G / √V̂, entry by entry")
    _grid(page, LEFT, top, 2, 2, known.get("U"))

    top = _stage(page, RIGHT, TOPS[2], "6  Clip", "RMS: the root of the mean of all four squares.")
    _line(page, RIGHT, top - 6 * mm, "RMS(U)  =", 21 * mm, known.get("rms_U"))
    above = bool(known["rms_U"] > D) if known else None
    ticks = ["☒" if above is answer else "☐" for answer in (True, False)]
    _write(page, RIGHT, top - 16 * mm, f"{ticks[0]}  above d: divide U by RMS(U)", 9.5)
    _write(page, RIGHT, top - 23 * mm, f"{ticks[1]}  not above d: U stays", 9.5)

    top = _stage(page, LEFT, TOPS[3], "7  Scale", "α = ρ₁ · max(ε₂, RMS(X))")
    _line(page, LEFT, top - 6 * mm, "ρ₁  =  min(0.01, 1/√1)  =", 46 * mm, known.get("rho"))
    _line(page, LEFT, top - 16 * mm, "RMS(X)  =", 46 * mm, known.get("rms_X"))
    _line(page, LEFT, top - 26 * mm, "α  =", 46 * mm, known.get("alpha"))

    top = _stage(page, RIGHT, TOPS[3], "8  Subtract", "new X = X − α U, entry by entry")
    _grid(page, RIGHT, top, 2, 2, known.get("new_X"))
    if known:
        below = top - 2 * HEIGHT - 6 * mm
        _write(page, RIGHT, below, "To ten decimals:", 8)
        for line, row in enumerate(known["new_X"].tolist()):
            _write(page, RIGHT + 25 * mm, below - 4.5 * line * mm, "   ".join(_number(x, 10) for x in row), 8)

    _write(page, LEFT, 30 * mm, "Which of these numbers must Adafactor still have at step 2?", 9.5, BOLD)
    if known:
        words = "R and C, and that one step is done. X lasts too, as part of the model. All else is made anew."
        _write(page, LEFT, 23 * mm, words, 9)
    else:
        page.line(LEFT, 20 * mm, LEFT + WIDTH, 20 * mm)


def _stage(page: Canvas, x: float, y: float, title: str, formula: str) -> float:
    """The words above a stage; returns where its blanks may begin."""
    _write(page, x, y, title, 11, BOLD)
    _write(page, x, y - 6 * mm, formula, 9)
    return y - 10 * mm


def _margins(
    page: Canvas, x: float, top: float, known: dict[str, Tensor], names: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    """A column on the right of a 2 × 2 matrix, a row below it, and one number in the corner."""
    beside, below = x + 2 * CELL + GAP, top - 2 * HEIGHT - GAP
    under = below - HEIGHT - 4 * mm
    _grid(page, beside, top, 2, 1, known.get(names[0]))
    _grid(page, x, below, 1, 2, known.get(names[1]))
    _grid(page, beside, below, 1, 1, known.get(names[2]))
    right = beside + CELL + 2 * mm
    for left, y, label in ((right, top - 1.1 * HEIGHT, labels[0]), (x, under, labels[1]), (beside, under, labels[2])):
        _write(page, left, y, label, 7.5, color=MUTED)


def _grid(
    page: Canvas, x: float, top: float, rows: int, columns: int, values: Tensor | None, width: float = CELL
) -> None:
    """Cells to write into, or with numbers in them."""
    for i in range(rows):
        for j in range(columns):
            page.rect(x + j * width, top - (i + 1) * HEIGHT, width, HEIGHT)
            if values is not None:
                words = _number(values.flatten()[i * columns + j])
                left = x + (j + 0.5) * width - stringWidth(words, BOLD, 10) / 2
                _write(page, left, top - (i + 0.64) * HEIGHT, words, 10, BOLD)


def _line(page: Canvas, x: float, y: float, label: str, room: float, value: Tensor | None) -> None:
    """A label, and a line to write on."""
    _write(page, x, y, label, 9.5)
    _fill(page, x + room, y, 30 * mm, value)


def _fill(page: Canvas, x: float, y: float, width: float, value: Tensor | None) -> None:
    page.line(x, y - 1 * mm, x + width, y - 1 * mm)
    if value is not None:
        _write(page, x + 2 * mm, y, _number(value), 10, BOLD)


def _number(value: float | Tensor, decimals: int = 6) -> str:
    return f"{float(value):.{decimals}f}".rstrip("0").rstrip(".")


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt()


def _write(page: Canvas, x: float, y: float, words: str, size: float, font: str = REGULAR, color=INK) -> None:
    """Text on one line. The hat of V̂ is set by hand: PDF does not place it over its letter."""
    page.setFillColor(color)
    page.setFont(font, size)
    for piece in re.split("(?<=\u0302)", words):
        page.drawString(x, y, piece.removesuffix("\u0302"))
        x += stringWidth(piece, font, size)
        if piece.endswith("\u0302"):
            page.drawString(x - 0.06 * size, y + 0.1 * size, "\u0302")
