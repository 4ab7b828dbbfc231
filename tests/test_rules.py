"""The rules of stored notebooks: what breaks one is found, what only looks so is not."""

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

import checks
import notebook

ROOT = Path("/srv/checkout")  # where the course lies, for these tests: nowhere that looks like a user's folder


def problems(*cells):
    return checks.check(notebook.assemble([new_markdown_cell("# Top"), *cells]), "x", ROOT)


def printing(**output):
    return new_code_cell("show()", outputs=[new_output(**output)])


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (printing(output_type="stream", name="stderr", text="Warning: psst"), "stderr is stored"),
        (printing(output_type="stream", text="/ho" + "me/ada/course"), "a path of this machine"),
        (printing(output_type="stream", text="C:" + r"\Users\ada"), "a path of this machine"),
        (printing(output_type="stream", text="/srv/checkout/notebooks"), "a path of this machine"),
        (printing(output_type="stream", text="lib/site-" + "packages/torch"), "a path of this machine"),
        (printing(output_type="stream", text="10/10 [00:01, 9.1it/s]"), "a progress bar"),
        (printing(output_type="stream", text="10\r20"), "a progress bar"),
        (printing(output_type="display_data", data={"text/html": "<progress value='1'>"}), "a progress bar"),
        (printing(output_type="display_data", data={"text/plain": "<Figure size 8x4>"}), "a stray figure"),
        (printing(output_type="execute_result", data={"text/plain": "<f at 0x7f1234567890>"}), "a memory address"),
        (printing(output_type="display_data", data={"image/png": "iVBO", "text/plain": "A line."}), "no alt text"),
        (
            printing(
                output_type="display_data",
                data={"image/png": "iVBO", "text/plain": "A line."},
                metadata={"image/png": {"alt": "Another line."}},
            ),
            "text/plain is not its alt text",
        ),
        (new_markdown_cell("![a line](line.png)"), "a Markdown picture"),
        (new_markdown_cell('See <img src="line.png" alt="a line">'), "a Markdown picture"),
        (new_markdown_cell("Look into `/ho" + "me/ada/course`."), "a path of this machine"),
        (new_markdown_cell("Look into `/srv/checkout`."), "a path of this machine"),
        (new_markdown_cell(" "), "the cell is empty"),
        (new_markdown_cell("# Another top"), "there are 2 headings with one #"),
        (new_markdown_cell("### Too deep"), "the heading 'Too deep' skips a level"),
    ],
)
def test_each_rule_of_stored_notebooks_is_checked(cell, complaint):
    found = problems(cell)
    assert len(found) >= 1 and all(complaint in problem for problem in found), found


def test_what_looks_like_a_broken_rule_and_is_none():
    described = {"image/png": {"alt": "A line."}}
    cells = [
        new_markdown_cell("## Two\n\n```python\n# no heading\n```\n\nhttps://example.org/tmp/x, `![x](y.png)`"),
        printing(output_type="stream", text="a/home/b  100 %  and/or 0x10 C: 3"),
        printing(output_type="display_data", data={"image/png": "iVBO", "text/plain": "A line."}, metadata=described),
    ]
    assert problems(*cells) == []


@pytest.mark.parametrize(
    ("output", "harmless"),
    [
        ({"output_type": "stream", "text": "The answer:\n42\n"}, True),
        ({"output_type": "display_data", "data": {"text/markdown": "You recorded no prediction.\n\nIt is 42."}}, True),
        ({"output_type": "stream", "text": "It is 42.\nThat is why:\n"}, False),
        ({"output_type": "execute_result", "data": {"text/plain": "42"}}, False),
        ({"output_type": "display_data", "data": {"text/markdown": "It is 42."}}, False),
    ],
)
def test_a_collapsed_answer_shows_a_first_line_that_gives_nothing_away(output, harmless):
    cell = printing(**output)
    assert problems(cell) == []
    cell.metadata["tags"] = ["answer"]
    assert ["give the answer away" in problem for problem in problems(cell)] == ([] if harmless else [True])


def test_repeated_ids_are_found():
    nb = notebook.assemble([new_markdown_cell("# Top"), new_markdown_cell("x")])
    nb.cells[1].id = nb.cells[0].id
    assert checks.check(nb, "x", ROOT) == [
        "x: cell ids must differ, with 1 to 64 of a-z, A-Z, 0-9, - and _; build it again"
    ]
