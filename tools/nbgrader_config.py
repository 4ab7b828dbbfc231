"""How nbgrader grades this course. `make classroom` copies this file into `classroom/`, where you may change it."""

import os
import sys
import time
from pathlib import Path

from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearOutput,
    LimitOutput,
    OverwriteKernelspec,
    SaveAutoGrades,
)
from nbgrader.preprocessors import Execute as NbgraderExecute
from nbgrader.preprocessors import OverwriteCells as NbgraderOverwriteCells
from traitlets import Integer

c = get_config()  # noqa: F821 - nbgrader defines it

# nbgrader gives a check its points unless something is raised. In a learner's notebook a check never raises, so without
# this a blank notebook would get full marks. With it, a check raises AssertionError unless the answer is right.
os.environ["COURSE_CHECK"] = "strict"
# Checks need neither a GPU nor a network.
os.environ["COURSE_TIER"] = "small"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
# Notebooks ask for the kernel "python3": the one of this environment, whatever else is installed under that name.
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
os.environ.pop("JUPYTER_PATH", None)
# nbgrader calls a program, alembic, that lies beside this Python.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


class Execute(NbgraderExecute):
    """Runs a notebook to its end, whatever its cells do, in a limited time and with a limited output."""

    seconds_in_all = Integer(900, help="Seconds for a whole notebook; the rest is not run.").tag(config=True)
    characters = Integer(100_000, help="How many characters that a cell prints are kept.").tag(config=True)

    def preprocess(self, nb, resources):
        self.end = time.monotonic() + self.seconds_in_all
        self.timeout_func = lambda cell: max(1, min(self.timeout, int(self.end - time.monotonic())))
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code" or time.monotonic() < self.end:
            try:
                return super().preprocess_cell(cell, resources, index)
            except DeadKernelError:
                self.end = 0.0
        said = "Not run: before this, the kernel ended or the time was up."
        cell.outputs = [new_output("error", ename="NotRun", evalue=said, traceback=[said])]
        return cell, resources

    def output(self, outs, msg, display_id, cell_index):
        if msg["msg_type"] == "stream":
            printed = sum(len(out.get("text", "")) for out in outs)
            msg["content"]["text"] = msg["content"]["text"][: max(0, self.characters - printed)]
        if len(outs) > 1000 and msg["msg_type"] != "error":
            return None
        return super().output(outs, msg, display_id, cell_index)


class OverwriteCells(NbgraderOverwriteCells):
    """Gives edited checks their text back, puts deleted ones at the end, and takes the last of copied cells.

    nbgrader's own steps stop at a copied cell, and at an answer that was deleted together with its check.
    """

    add_missing_cells = True

    def preprocess(self, nb, resources):
        names = resources["nbgrader"]
        with Gradebook(names["db_url"]) as gradebook:
            released = gradebook.find_notebook(names["notebook"], names["assignment"])
            missing = {cell.name for cell in released.source_cells}
        for cell in reversed(nb.cells):
            grading = cell.metadata.pop("nbgrader", {})
            if grading.get("grade_id") in missing:
                missing.remove(grading["grade_id"])
                cell.metadata["nbgrader"] = {**grading, "schema_version": 3}
        return super().preprocess(nb, resources)

    def add_missing_grade_cells(self, nb, resources):
        there = {cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells}
        released = self.gradebook.find_notebook(self.notebook_id, self.assignment_id)
        sources = {cell.name: cell for cell in released.source_cells}
        for check in released.grade_cells:
            if check.name not in there:
                nb.cells.append(self.missing_cell_transform(sources[check.name], check.max_score))
        return nb, resources


c.Autograde.sanitize_preprocessors = [ClearOutput, OverwriteKernelspec, OverwriteCells, CheckCellMetadata]
c.Autograde.autograde_preprocessors = [Execute, LimitOutput, SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]

# Seconds for one cell. Checks stop a function that never returns by themselves, after 10; this is for other cells.
c.Execute.timeout = 300
# A kernel that does not even stop when it is interrupted says nothing any more; the rest is graded all the same.
c.Execute.raise_on_iopub_timeout = False

c.ClearSolutions.code_stub = {"python": "raise NotImplementedError"}

# The names of files that are handed in: ada_02_moving_averages.ipynb, or a zip of such files.
c.FileNameCollectorPlugin.named_regexp = r".*[/\\](?P<student_id>[^/\\]+?)_(?P<file_id>\d\d_[a-z_]+|capstone)\.ipynb$"
# A file under any other name is left out, with a warning that names it.
c.ZipCollectApp.strict = True
