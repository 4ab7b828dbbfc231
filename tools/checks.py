"""Cleaning what a kernel has sent, and the rules that every stored notebook keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nbformat import NotebookNode

import prose
from execution import describe

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MACHINE_PATH = re.compile(
    r"(?<![\w.-])/(?:home|Users|root|tmp|private|var|opt|usr|mnt)/\w|\b[A-Z]:\\+(?:Users|Windows|Program)|[/\\]site-packages"
)

# What must not stand in an output, and what to do about it.
REFUSED = [
    (MACHINE_PATH, "a path of this machine stands in {}: print names relative to the course, or nothing"),
    (re.compile(r"it/s\]|s/it\]|\d%\||\r|<progress"), "a progress bar is left in {}: switch it off"),
    (re.compile(r"<Figure size"), "a stray figure is left in {}: make figures with course_lib.figures and show them"),
    (re.compile(r"\b0x[0-9a-f]{8,}\b"), "a memory address stands in {}, other in each run: print something else"),
    (re.compile(r"localhos[t]|127\.0\.0\.1"), "an address of this machine stands in {}: leave it out"),
]


def clean(notebook: NotebookNode, name: str) -> list[str]:
    """Take out of the outputs what lives only while a kernel runs: the views of live controls.

    Returns:
        Problems: live controls that leave nothing to see where no kernel runs.
    """
    problems = []
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            live = data.pop(WIDGET_VIEW, None) is not None
            if live and not {"image/png", "text/html"} & set(data):
                problems.append(
                    f"{name}, {describe(notebook, index)}: a live control leaves nothing to see in the stored "
                    "notebook; show it with course_lib.explore"
                )
    return problems


def check(notebook: NotebookNode, name: str, root: Path) -> list[str]:
    """Every rule that a notebook breaks, in sentences that name the cell and say what to do."""
    problems = [f"{name}: {problem}" for problem in _heading_problems(notebook)]
    ids = [cell.id for cell in notebook.cells]
    if len(set(ids)) < len(ids) or not all(ID.fullmatch(cell_id) for cell_id in ids):
        problems.append(f"{name}: cell ids must differ, with 1 to 64 of a-z, A-Z, 0-9, - and _; build it again")
    for index, cell in enumerate(notebook.cells):
        found = [*_source_problems(cell, root)]
        if cell.cell_type == "code":
            for output in cell.outputs:
                found += _output_problems(output, root)
            found += _answer_problems(cell)
        problems += [f"{name}, {describe(notebook, index)}: {problem}" for problem in dict.fromkeys(found)]
    return problems


def _heading_problems(notebook: NotebookNode) -> Iterator[str]:
    before = 0
    tops = 0
    for cell in notebook.cells:
        for heading in prose.headings(cell.source) if cell.cell_type == "markdown" else []:
            tops += heading.level == 1
            if heading.level > before + 1:
                yield f"the heading {heading.text!r} skips a level; make it {'#' * (before + 1)}"
            before = heading.level
    if tops != 1:
        yield f"there are {tops} headings with one #; the build writes the only one, so begin yours with ##"


def _source_problems(cell: NotebookNode, root: Path) -> Iterator[str]:
    if not cell.source.strip():
        yield "the cell is empty: delete it"
    if cell.cell_type == "markdown" and prose.pictures(cell.source):
        yield "a Markdown picture does not load in Colab or offline: draw it in a code cell"
    if str(root) in cell.source or MACHINE_PATH.search(cell.source):
        yield "a path of this machine stands in the cell: use a relative one"


def _output_problems(output: NotebookNode, root: Path) -> Iterator[str]:
    if output.output_type == "stream" and output.name == "stderr":
        yield f"stderr is stored; remove the cause of {_short(output.text)!r}"
    for kind, text in _texts(output):
        for pattern, problem in REFUSED:
            if found := pattern.search(text):
                around = text[max(found.start() - 30, 0) : found.end() + 50]
                yield f"{problem.format(kind)} ({_short(around)!r})"
        if str(root) in text:
            yield f"{REFUSED[0][1].format(kind)} ({_short(text)!r})"
    if "image/png" in output.get("data", {}):
        alt = output.get("metadata", {}).get("image/png", {}).get("alt", "")
        if not alt.strip():
            yield "a picture has no alt text: show it with course_lib.figures.show(fig, alt=…)"
        elif output.data.get("text/plain") != alt:
            yield "a picture's text/plain is not its alt text, so that no test sees it change; use figures.show"


def _answer_problems(cell: NotebookNode) -> Iterator[str]:
    """JupyterLab shows the first line of a collapsed output, which is under the question."""
    if "answer" not in cell.metadata.get("tags", []) or not cell.outputs:
        return
    first = cell.outputs[0]
    text = first.text if first.output_type == "stream" else first.get("data", {}).get("text/markdown", "")
    line = text.strip().partition("\n")[0]
    if not line.endswith(":") and not line.startswith("You recorded no prediction"):
        yield (
            "the first line of an answer's output stays visible when the output is collapsed, and this one may give "
            "the answer away: begin with a printed line that ends with a colon, or with reveal(…)"
        )


def _texts(output: NotebookNode) -> Iterator[tuple[str, str]]:
    """Everything readable in an output, with what kind it is."""
    if output.output_type == "stream":
        yield "the printed text", output.text
    elif output.output_type == "error":
        yield "the error", "\n".join([output.evalue, *output.traceback])
    else:
        yield from ((kind, data) for kind, data in output.data.items() if kind.startswith("text/"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else f"{text[:120]}…"
