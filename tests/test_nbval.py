"""A test of the test: what `validate` notices when a stored output is altered, and what not."""

from nbformat.v4 import new_code_cell
from nbval_run import validate

import execution
import notebook

SOURCES = [
    "print('same')",
    "print('printed')",
    "1 + 1",
    "display({'image/png': 'iVBO', 'text/plain': 'A line.'}, metadata={'image/png': {'alt': 'A line.'}}, raw=True)",
    "display({'text/html': '<b>x</b>'}, raw=True)",
    "print(3)",
]


def test_altered_outputs_are_noticed(tmp_path):
    nb = notebook.assemble([new_code_cell(source) for source in SOURCES])
    nb.cells[5].metadata.tags = ["varies", "nbval-ignore-output"]
    execution.execute(nb, "sample")
    stored = tmp_path / "sample.ipynb"
    stored.write_text(notebook.text(nb), encoding="utf-8")
    (tmp_path / "untouched").mkdir()
    status, printed, failed = validate(stored, tmp_path / "untouched")
    assert (status, failed) == (0, set()), printed

    nb.cells[1].outputs[0].text = "altered\n"
    nb.cells[2].outputs[0].data["text/plain"] = "3"
    nb.cells[3].outputs[0].data["text/plain"] = "A curve."
    nb.cells[4].outputs[0].data["text/html"] = "<b>y</b>"
    nb.cells[5].outputs[0].text = "4\n"
    stored.write_text(notebook.text(nb), encoding="utf-8")
    (tmp_path / "altered").mkdir()
    status, printed, failed = validate(stored, tmp_path / "altered")
    assert (status, failed) == (1, {1, 2, 3, 4}), printed
