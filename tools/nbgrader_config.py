"""How nbgrader grades this course. `make classroom` copies this file into the class's folder, where you may change it."""

import os
import sys
import time
from pathlib import Path

from nbformat.v4 import new_output
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, ClearOutput, DeduplicateIds, LimitOutput
from nbgrader.preprocessors import Execute as NbgraderExecute
from nbgrader.preprocessors import OverwriteCells as NbgraderOverwriteCells
from nbgrader.preprocessors import OverwriteKernelspec, SaveAutoGrades
from traitlets import Integer

c = get_config()  # noqa: F821 - nbgrader defines it

# nbgrader gives a check its points if nothing was raised. In a learner's notebook a check never raises, so without this a
# blank notebook would get full marks. With it, a check raises AssertionError unless the answer is right.
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

    seconds_in_all = Integer(900, help="Seconds for a whole notebook; cells that come later count as failed.")
    seconds_in_all.tag(config=True)
    characters = Integer(1_000_000, help="Characters of a cell's output that are kept.").tag(config=True)

    def preprocess(self, nb, resources):
        self.end = time.monotonic() + self.seconds_in_all
        self.timeout_func = lambda cell: max(1, min(self.timeout, int(self.end - time.monotonic())))
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "code" and time.monotonic() >= self.end:
            said = f"The notebook took longer than {self.seconds_in_all} seconds."
            cell.outputs = [new_output("error", ename="TimeoutError", evalue=said, traceback=[said])]
            return cell, resources
        return super().preprocess_cell(cell, resources, index)

    def output(self, outs, msg, display_id, cell_index):
        printed = sum(len(out.get("text", "")) for out in outs)
        if msg["msg_type"] != "error" and (printed > self.characters or len(outs) > 1000):
            return None
        return super().output(outs, msg, display_id, cell_index)


class OverwriteCells(NbgraderOverwriteCells):
    """Brings edited checks back to their text, and deleted ones to the end of the notebook."""

    def preprocess(self, nb, resources):
        self.add_missing_cells = True
        return super().preprocess(nb, resources)

    def add_missing_grade_cells(self, nb, resources):
        # nbgrader's own way fails where the answer's cell was deleted together with the check.
        there = {cell.metadata.nbgrader["grade_id"] for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade")}
        released = self.gradebook.find_notebook(self.notebook_id, self.assignment_id)
        sources = {cell.name: cell for cell in released.source_cells}
        for check in released.grade_cells:
            if check.name not in there:
                nb.cells.append(self.missing_cell_transform(sources[check.name], check.max_score))
        return nb, resources


c.Autograde.sanitize_preprocessors = [
    ClearOutput,
    DeduplicateIds,
    OverwriteKernelspec,
    OverwriteCells,
    CheckCellMetadata,
]
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
