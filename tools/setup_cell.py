"""The first code cell of every notebook: in Colab it brings in course_lib, where that is installed it does nothing."""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from course import Course

TAG = "setup"
# The name of the zip that a learner uploads, which Colab may have numbered, as in "adafactor-course (1).zip".
ZIP = "adafactor-course"
# JupyterLab shows the first line of a folded cell, and Colab the title alone.
SOURCE = """\
# @title In Colab this fetches course_lib; where the course is installed it does nothing.
import importlib.util
if importlib.util.find_spec("course_lib") is None:
    import glob, os, shutil, sys{imports}
    zips = glob.glob("{zip}*.zip") + glob.glob("/content/{zip}*.zip")
    {otherwise}
    shutil.unpack_archive(max(zips, key=os.path.getmtime), "course", "zip")
    sys.path += glob.glob(os.path.abspath("course/*"))
    from course_lib import colab; colab.install_missing()"""
SAY = 'assert zips, "Upload {zip}.zip to this session first; at home, start with make lab."'
FETCH = (
    'zips = zips or [urllib.request.urlretrieve("https://github.com/{repository}/archive/refs/heads/{branch}.zip")[0]]'
)


def source(course: Course) -> str:
    """The text of the cell. Without an uploaded zip it fetches the public repository, or says what to do."""
    if course.repository:
        imports, otherwise = ", urllib.request", FETCH.format(repository=course.repository, branch=course.branch)
    else:
        imports, otherwise = "", SAY.format(zip=ZIP)
    return SOURCE.format(imports=imports, zip=ZIP, otherwise=otherwise)


def cell(course: Course) -> NotebookNode:
    """The cell, folded in JupyterLab and in Colab."""
    folded = {"tags": [TAG], "cellView": "form", "jupyter": {"source_hidden": True}}
    return new_code_cell(source(course), metadata=folded)
