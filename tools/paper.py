"""What all printed sheets share: A4 paper, fonts with every sign of the course, files that are the same each time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import matplotlib
from reportlab.lib.colors import HexColor
from reportlab.lib.pagesizes import A4, landscape
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import registerFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, PageTemplate, Paragraph

# PDF's own fonts have no β, √ or ☐. These come with matplotlib; what is used of them is put into the file.
REGULAR, BOLD = "DejaVuSans", "DejaVuSans-Bold"
for name in (REGULAR, BOLD):
    registerFont(TTFont(name, Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")))

MARGIN = 16 * mm
WIDTH = A4[0] - 2 * MARGIN  # between the margins of an upright page
INK, MUTED, LINE = HexColor("#111111"), HexColor("#444444"), HexColor("#999999")


def text(words: str, size: float = 9.5, bold: bool = False, color: HexColor = INK, after: float = 0) -> Paragraph:
    """A paragraph of plain text: `size` in points, `after` the points of room below it."""
    font = BOLD if bold else REGULAR
    style = ParagraphStyle(
        font, fontName=font, fontSize=size, leading=1.35 * size, textColor=color, spaceAfter=after, splitLongWords=0
    )
    return Paragraph(escape(words), style)


def document(title: str, course: str, story: Sequence[Flowable], sideways: bool = False) -> bytes:
    """A PDF of A4 pages, upright or sideways, each with the course's name and a page number at its foot."""
    buffer = io.BytesIO()
    width, height = landscape(A4) if sideways else A4

    def foot(page: Canvas, _: BaseDocTemplate) -> None:
        write_foot(page, f"{course} · {title}", str(page.getPageNumber()), width)

    frame = Frame(MARGIN, MARGIN, width - 2 * MARGIN, height - 2 * MARGIN, 0, 0, 0, 0)
    template = BaseDocTemplate(buffer, pagesize=(width, height), title=title, **_properties(course))
    template.addPageTemplates(PageTemplate(frames=[frame], onPage=foot))
    template.build(list(story))
    return buffer.getvalue()


def canvas(buffer: io.BytesIO, title: str, course: str) -> Canvas:
    """An upright A4 page to draw on."""
    properties = _properties(course)
    page = Canvas(buffer, pagesize=A4, invariant=properties["invariant"], lang=properties["lang"])
    page.setTitle(title)
    page.setAuthor(properties["author"])
    return page


def write_foot(page: Canvas, left: str, right: str, width: float) -> None:
    """Two texts at the foot of a page that is `width` points wide."""
    page.setFont(REGULAR, 7.5)
    page.setFillColor(MUTED)
    page.drawString(MARGIN, 10 * mm, left)
    page.drawRightString(width - MARGIN, 10 * mm, right)


def _properties(course: str) -> dict[str, str | int]:
    # Invariant: no time of making, no random number in the file.
    return {"author": course, "lang": "en", "invariant": 1}
