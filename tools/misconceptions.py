"""Which misconceptions the checks recognised in a class, and how often; to run after `nbgrader autograde`.

Reads the graded notebooks of `classroom/` or of the folder that is named, prints a report, and writes the same as
`misconceptions.csv` beside the gradebook. It names no learner but those whose notebook could not be graded.
"""

from __future__ import annotations

import argparse
import csv
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

import notebook
from course import ROOT, CourseError
from course_lib import check
from course_lib.check._show import plain

FIELDS = ("assignment", "task", "outcome", "belief", "learners")
OUTCOMES = ("correct", "incorrect", "not attempted", "no verdict")


@dataclass(frozen=True)
class Finding:
    """What a check found in one learner's answer; without a verdict where the check was not reached or cut short."""

    assignment: str
    task: str
    outcome: str
    belief: str


def findings(nb: NotebookNode, assignment: str) -> Iterator[Finding]:
    """What the checks say in a graded notebook: the last verdict of each graded cell, in their order."""
    for cell in nb.cells:
        grading = cell.metadata.get("nbgrader", {})
        if not grading.get("grade"):
            continue
        task = grading["grade_id"].removeprefix("check_")
        said = [output.get("metadata", {}).get("course_check", {}) for output in cell.get("outputs", [])]
        outcome, belief = next(
            ((one["outcome"], one["belief"]) for one in reversed(said) if one.get("task") == task), ("no verdict", "")
        )
        yield Finding(assignment, task, outcome, belief)


def collect(folder: Path) -> tuple[Counter[Finding], dict[str, list[str]]]:
    """All findings of a class, counted, and for each assignment the submissions that could not be graded.

    Raises:
        CourseError: nothing has been graded.
    """
    counted: Counter[Finding] = Counter()
    for path in sorted(folder.glob("autograded/*/*/*.ipynb")):
        counted.update(findings(notebook.read(path), path.parent.name))
    if not counted:
        raise CourseError(f"{folder}/autograded has no graded notebooks; run `nbgrader autograde` first.")
    ungraded: dict[str, list[str]] = {}
    for path in sorted(folder.glob("submitted/*/*/")):
        if not any((folder / "autograded" / path.relative_to(folder / "submitted")).glob("*.ipynb")):
            ungraded.setdefault(path.name, []).append(path.parent.name)
    return counted, ungraded


def report(counted: Counter[Finding], ungraded: dict[str, list[str]]) -> str:
    """The findings for reading: for each task its outcomes, then what was wrong, the most frequent first."""
    lines = []
    for assignment in dict.fromkeys(finding.assignment for finding in sorted(counted, key=lambda f: f.assignment)):
        lines += [assignment, "=" * len(assignment)]
        if names := ungraded.get(assignment):
            lines.append(f"Could not be graded, see nbgrader's messages: {', '.join(names)}")
        for task in dict.fromkeys(finding.task for finding in counted if finding.assignment == assignment):
            own = Counter({f: n for f, n in counted.items() if (f.assignment, f.task) == (assignment, task)})
            totals = {outcome: sum(n for f, n in own.items() if f.outcome == outcome) for outcome in OUTCOMES}
            lines += ["", f"{task}: " + ", ".join(f"{n} {outcome}" for outcome, n in totals.items() if n)]
            for finding, number in own.most_common():
                if finding.outcome == "incorrect":
                    lines.append(f"{number:5}  {finding.belief or 'not recognised'}")
                    lines += textwrap.wrap(_says(finding), 92, initial_indent=" " * 7, subsequent_indent=" " * 7)
        lines.append("")
    return "\n".join(lines)


def write_csv(counted: Counter[Finding], path: Path) -> None:
    """The findings as a table: one row for each task, outcome and belief, with the number of learners."""
    rows = sorted((*vars(finding).values(), number) for finding, number in counted.items())
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([FIELDS, *rows])


def _says(finding: Finding) -> str:
    """What the check told the learner about this belief; nothing for mistakes that can happen in any task."""
    beliefs = getattr(check, finding.task).beliefs if finding.task in dir(check) else ()
    return next((plain(belief.says) for belief in beliefs if belief.name == finding.belief), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "classroom", help="the class's folder")
    folder = parser.parse_args().folder
    try:
        counted, ungraded = collect(folder)
    except CourseError as error:
        sys.exit(str(error))
    print(report(counted, ungraded))
    write_csv(counted, folder / "misconceptions.csv")
    print(f"The same as a table: {folder / 'misconceptions.csv'}")


if __name__ == "__main__":
    main()
