"""The printed sheets: in step with their sources, complete, on A4, and without answers where learners see them."""

import io
import re

import pytest
import torch
from pypdf import PdfReader
from reportlab.lib.pagesizes import A4, landscape
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

import course as course_list
import paper
import question_sheets
import questions
import sheets
import worksheet

COURSE = course_list.load()
BANK = questions.load(COURSE)
MADE = dict(sheets.render(COURSE, BANK))


def texts(pdf: bytes) -> list[str]:
    """The text of each page, on one line: where a line breaks does not matter here."""
    return [" ".join(page.extract_text().split()) for page in PdfReader(io.BytesIO(pdf)).pages]


def content(pdf: bytes) -> list[tuple]:
    """What is on each page, and the fonts it takes, unpacked: how a file is packed depends on the machine's zlib."""
    pages = []
    for page in PdfReader(io.BytesIO(pdf)).pages:
        fonts = [font.get_object() for _, font in sorted(page["/Resources"]["/Font"].items())]
        files = [font["/FontDescriptor"]["/FontFile2"].get_data() for font in fonts if "/FontDescriptor" in font]
        pages.append((page.mediabox, page.get_contents().get_data(), files))
    return pages


def test_sheets_are_in_step():
    assert {path.name for path in (COURSE.root / "sheets").iterdir()} == set(MADE)
    for name, pdf in MADE.items():
        stored = (COURSE.root / "sheets" / name).read_bytes()
        assert content(stored) == content(pdf), f"sheets/{name} is not what its sources make: make build"


def test_sheets_are_the_same_each_time():
    assert dict(sheets.render(COURSE, BANK)) == MADE


@pytest.mark.parametrize(
    ("name", "size", "pages"),
    [
        ("discussion_questions.pdf", A4, 5),
        ("discussion_to_show.pdf", landscape(A4), 12),
        ("test.pdf", A4, 2),
        ("test_key.pdf", A4, 3),
        ("worksheet.pdf", A4, 2),
    ],
)
def test_pages_are_a4_and_no_more_than_planned(name, size, pages):
    boxes = [page.mediabox for page in PdfReader(io.BytesIO(MADE[name])).pages]
    assert [(float(box.width), float(box.height)) for box in boxes] == [pytest.approx(size, abs=0.01)] * pages


@pytest.mark.parametrize(("use", "count"), [("discussion", 12), ("test", 8)])
def test_as_many_questions_as_promised(use, count):
    chosen = BANK.meant_for(use)
    assert len(chosen) == count
    assert max([question["right"] for question in chosen].count(letter) for letter in "ABCD") <= count / 3 + 1


@pytest.mark.parametrize("name", ["discussion_questions.pdf", "discussion_to_show.pdf", "test.pdf", "test_key.pdf"])
def test_each_question_is_printed_with_its_options(name):
    printed = " ".join(texts(MADE[name]))
    for question in BANK.meant_for(sheets.QUESTIONS[name.removesuffix(".pdf")][1]):
        assert question["question"] in printed
        assert [option["text"] for option in question["options"] if option["text"] not in printed] == []


@pytest.mark.parametrize("name", ["discussion_questions.pdf", "test_key.pdf"])
def test_teachers_get_every_reply_and_what_to_do_next(name):
    printed = " ".join(texts(MADE[name]))
    for question in BANK.meant_for(sheets.QUESTIONS[name.removesuffix(".pdf")][1]):
        assert [option["belief"] for option in question["options"] if option["belief"] not in printed] == []
        assert f"→ {question['next']}" in printed
        assert COURSE.lesson(question["lesson"]).label in printed
    assert ", which asks it too" in printed or name == "test_key.pdf"


def test_the_key_lists_the_right_letters():
    first = texts(MADE["test_key.pdf"])[0]
    assert "1 2 3 4 5 6 7 8 " + " ".join(question["right"] for question in BANK.meant_for("test")) in first


@pytest.mark.parametrize("make", [question_sheets.discussion_to_show, question_sheets.test])
def test_what_learners_see_does_not_depend_on_the_answers(make):
    chosen = BANK.meant_for("test")
    others = [
        {**question, "right": "BCDA"["ABCD".index(question["right"])], "next": "Go on.", "options": [
            {"text": option["text"], "belief": "So it is."} for option in question["options"]
        ]}
        for question in chosen
    ]  # fmt: skip
    assert make(COURSE, chosen) == make(COURSE, others)
    assert question_sheets.test_key(COURSE, chosen) != question_sheets.test_key(COURSE, others)


def test_the_worksheet_has_blanks_and_its_key_the_numbers_worked_out_on_paper():
    blank, key = texts(MADE["worksheet.pdf"])
    for numbers in (
        "0.05 0.25 0.1 0.2 0.3",  # sums of rows, of columns, and the total
        "0.016667 0.033333 0.083333 0.166667",
        "0.774597 1.095445 1.03923 0.979796",
        "RMS(U) = 0.979796",
        "RMS(X) = 2.738613 α = 0.027386",
        "0.9787867966 1.97 2.9715395011 3.9731671843",
    ):
        assert numbers in key
    assert "☒ not above d" in key and "☐ above d" in key
    assert sorted(set(re.findall(r"\d\.\d+", blank))) == ["0.001", "0.01", "0.1", "0.2", "0.3", "0.4", "0.8"]
    assert blank.count("☐") == 2 and "☒" not in blank


def test_the_stages_of_the_worksheet_lead_to_the_new_parameters():
    known = worksheet.solve()
    torch.testing.assert_close(known["row_sums"][:, None] * known["col_sums"] / known["total"], known["V_hat"])
    assert known["rms_U"] < worksheet.D
    step = known["alpha"] * worksheet.G / known["V_hat"].sqrt()
    torch.testing.assert_close(worksheet.X - step, known["new_X"], rtol=0, atol=1e-12)


def test_texts_of_the_worksheet_keep_clear_of_each_other_and_of_the_edge(monkeypatch):
    drawn = []

    class Recorder(Canvas):
        def drawString(self, x, y, text, *args, **kwargs):  # noqa: N802, as reportlab calls it
            width = stringWidth(text, self._fontname, self._fontsize)
            drawn.append((self.getPageNumber(), text, x, y, x + width, y + 0.75 * self._fontsize))
            super().drawString(x, y, text, *args, **kwargs)

    monkeypatch.setattr(paper, "Canvas", Recorder)
    worksheet.worksheet(COURSE)
    drawn = [entry for entry in drawn if entry[1].strip(" \u0302")]  # a hat stands over its V
    assert len(drawn) > 100
    for place, (page, text, left, bottom, right, top) in enumerate(drawn):
        assert paper.MARGIN - 1 < left and right < paper.MARGIN + paper.WIDTH + 1, text
        for other_page, other, x0, y0, x1, y1 in drawn[:place]:
            apart = page != other_page or right <= x0 + 0.1 or x1 <= left + 0.1 or top <= y0 or y1 <= bottom
            assert apart, f"{text!r} stands over {other!r}"
