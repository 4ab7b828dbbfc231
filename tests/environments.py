"""The lessons in other environments: Colab's versions, the oldest that requirements.txt admits, the newest there are.

`make test-colab`, `make test-oldest`, `make test-newest`. Each makes an environment outside the checkout, puts the zip
of `make colab` beside it and nothing else of the course, runs the first cell of the notebooks, then all lessons, with
the network cut off, and an exercise with its answers. Any cell error fails, and so does any change that the first cell
makes to a version that was there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from nbval_run import cut_off
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import colab
import course as course_list
import execution
import setup_cell
from course import ROOT

# The one build of torch for CPUs that every environment gets, whatever else is in it: others bring CUDA along.
TORCH = "torch==2.13.0"
# Colab in August 2026 (torch 2.11 for CUDA and Python 3.13 are its own), and of what it has besides any version.
COLAB = [
    *("ipywidgets==7.7.1", "ipython==7.34.0", "ipykernel==6.17.1", "transformers==5.15.*", "datasets==4.0.*"),
    *("accelerate==1.14.*", "matplotlib==3.10.0", "numpy==2.1.3", "pandas==2.2.3", "scikit-learn", "scipy", "psutil"),
]
# What the first cell has to install there. Colab has babel, and so has this list by way of jupyterlab_server: it is
# taken away, so that something is missing which the course cannot do without.
ABSENT_IN_COLAB = {"babel", "bitsandbytes"}
EXERCISE = "02_moving_averages"
LESSONS = ("lessons-1", "lessons-2")  # steps of this script that run at the same time
PROBE = "import course_lib, numpy, torch; print(course_lib.__file__, torch.__version__, numpy.__version__)"


class Failure(Exception):  # noqa: N818
    """What was found wrong, in a sentence."""


def packages(kind: str) -> list[str]:
    """What pip is asked for, besides torch."""
    if kind == "colab":
        return COLAB
    lines = (line.partition("#")[0].strip() for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines())
    wanted = [one for one in map(Requirement, filter(None, lines)) if not one.marker or one.marker.evaluate()]
    wanted = [one for one in wanted if one.name != "torch"]
    if kind == "newest":
        return [str(one).partition(";")[0] for one in wanted]
    return [f"{one.name}=={part.version}" for one in wanted for part in one.specifier if part.operator == ">="]


class Environment:
    """A Python of its own in `folder/env`, and `folder/content`, the folder of a session, which holds the zip alone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.content = folder, folder / "content"
        self.zip = self.content / f"{setup_cell.ZIP}.zip"
        self.python = folder / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def make(self, wanted: Sequence[str], unwanted: Collection[str]) -> None:
        """Install the wanted, and take away the unwanted; what is there already is kept."""
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "env"], check=True)
            pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
            for asked in (["pip"], [TORCH], [TORCH, *wanted]):
                done = subprocess.run([*pip, *asked], stderr=subprocess.PIPE, text=True, errors="replace")
                if done.returncode:
                    raise Failure(f"pip cannot install this together: {' '.join(asked)}\n{done.stderr}")
        if unwanted:
            remove = [self.python, "-m", "pip", "uninstall", "--quiet", "--yes", *unwanted]
            subprocess.run(remove, check=True, stderr=subprocess.DEVNULL)  # it warns of what is not there

    def upload(self) -> None:
        """Put the zip into the session's folder, which has to be new."""
        self.content.mkdir()
        self.zip.write_bytes(colab.edition(course_list.load()))

    def notebooks(self) -> dict[str, NotebookNode]:
        """The lessons and the exercise in the zip; and the exercise with its answers, which are not in the zip."""
        with zipfile.ZipFile(self.zip) as file:
            names = sorted(name for name in file.namelist() if re.search(r"/notebooks/\d\d_\w+\.ipynb$", name))
            names.append(f"{setup_cell.ZIP}/exercises/{EXERCISE}.ipynb")
            texts = {name.partition("/")[2]: file.read(name).decode() for name in names}
        solved = f"solutions/{EXERCISE}.ipynb"
        texts[solved] = (ROOT / solved).read_text(encoding="utf-8")
        return {name: nbformat.reads(text, as_version=4) for name, text in texts.items()}

    def versions(self) -> dict[str, str]:
        """What is installed."""
        asked = [self.python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
        listed = subprocess.run(asked, capture_output=True, check=True, env=self.variables()).stdout
        return {canonicalize_name(one["name"]): one["version"] for one in json.loads(listed)}

    def variables(self) -> dict[str, str]:
        """Those of a kernel, with nothing in them that leads to the checkout or to this environment."""
        own = re.compile(r"PYTHON.*|VIRTUAL_ENV|COURSE_.*|HF_.*|TRANSFORMERS_.*|JUPYTER.*")
        variables = execution.environment(self.folder)
        quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}  # on which the old ipykernel writes to stderr
        return {name: value for name, value in variables.items() if not own.fullmatch(name)} | quiet

    def run(self, nb: NotebookNode, **variables: str) -> None:
        """Run a notebook in the session's folder, with these variables set as well.

        Raises:
            Failure: a cell ended in an error, took too long, or ended the kernel.
        """
        specs = self.folder / f"kernels-{os.getpid()}" / "other"  # others run notebooks at the same time
        specs.mkdir(parents=True, exist_ok=True)
        argv = [str(self.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": argv, "display_name": "other", "language": "python"}
        (specs / "kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
        known = KernelSpecManager(kernel_dirs=[str(specs.parent)])
        manager = AsyncKernelManager(kernel_name="other", kernel_spec_manager=known)
        resources = {"metadata": {"path": str(self.content)}}
        told = {"timeout": execution.CELL_TIMEOUT, "extra_arguments": ["--IPKernelApp.log_level=ERROR"]}
        client = NotebookClient(nb, km=manager, resources=resources, **told)
        try:
            client.execute(env=self.variables() | variables, cleanup_kc=True)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            raise Failure(str(error)) from None


def printed(nb: NotebookNode, stream: str = "stdout") -> str:
    outputs = [output for cell in nb.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == stream)


def verdicts(nb: NotebookNode) -> list[dict[str, str]]:
    """What the checks of an exercise said."""
    outputs = [output for cell in nb.cells for output in cell.get("outputs", [])]
    return [output.metadata["course_check"] for output in outputs if "course_check" in output.get("metadata", {})]


def set_up(environment: Environment, **variables: str) -> str:
    """Run the first cell; returns what it printed.

    Raises:
        Failure: it ended in an error, or wrote to stderr.
    """
    nb = new_notebook(cells=[setup_cell.cell(course_list.load()), new_code_cell(PROBE)])
    environment.run(nb, **variables)
    if complaint := printed(nb, "stderr"):
        raise Failure(f"the first cell writes to stderr: {complaint}")
    return printed(nb)


def check_without_network(environment: Environment) -> None:
    """In a session that lacks something and has no network, the first cell says so, in one sentence."""
    try:
        set_up(environment, PIP_CONFIG_FILE=os.devnull, PIP_NO_CACHE_DIR="1", PIP_FIND_LINKS="")
    except Failure as failure:
        last = str(failure).strip().splitlines()[-1]
        if not re.match(r"SessionError: Could not install babel\S* \(pip: .*\)\. Look whether", last):
            raise Failure(f"without a network, the first cell said: {failure}") from None
        print(f"  {last}")
        return
    raise Failure("without a network, the first cell ended as if it had installed what is missing")


def run_all(environment: Environment, first: int, every: int) -> list[str]:
    """Run every so many of the lessons and the exercise, and print a row for each; returns what went wrong."""
    failures = []
    for name, nb in list(environment.notebooks().items())[first::every]:
        start, stored = time.monotonic(), verdicts(nb)
        nb.cells.append(new_code_cell(PROBE))
        try:
            environment.run(nb)
            result = "passed"
            if "nothing was missing" not in printed(nb) or str(environment.content / "course") not in printed(nb):
                failures.append(f"{name}: the first cell did more or less than expected, or another course_lib ran")
            if verdicts(nb) != stored:
                failures.append(f"{name}: the checks said {verdicts(nb)}")
            if complaint := printed(nb, "stderr"):
                result += f", with a line on stderr: {complaint.strip().splitlines()[-1][:100]}"
        except Failure as failure:
            failures.append(f"{name}: {failure}")
            result = "FAILED"
        print(f"  {name:45} {time.monotonic() - start:6.1f} s  {result}", flush=True)
    return failures


def cut(folder: Path, *steps: str) -> bool:
    """Do steps of this script side by side, each in a process without a network; returns whether all went well."""
    start = [*cut_off()[0], sys.executable, __file__]
    running = [subprocess.Popen([*start, step, "--folder", folder]) for step in steps]
    return not any([process.wait() for process in running])


def test(kind: str, folder: Path) -> list[str]:
    """Make the environment and do everything; returns what went wrong."""
    start = time.monotonic()

    def so_far() -> str:
        return f"{time.monotonic() - start:.0f} s so far"

    environment = Environment(folder)
    environment.make(packages(kind), ABSENT_IN_COLAB if kind == "colab" else ())
    environment.upload()
    before = environment.versions()
    names = [canonicalize_name(Requirement(one).name) for one in [TORCH, *packages(kind)]]
    print(f"{kind}: Python {'.'.join(map(str, sys.version_info[:3]))}, {so_far()}", flush=True)
    print(f"  {', '.join(f'{name} {before[name]}' for name in names)}", flush=True)
    if not cut_off()[0]:
        print(f"  The network is not cut off: {cut_off()[1]}.")
    elif kind == "colab":
        if present := ABSENT_IN_COLAB & set(before):
            return [f"{present} are there before the first cell has run"]
        if not cut(folder, "without-network"):
            return ["the first cell without a network, see above"]
    said = set_up(environment)
    print(f"  {said.splitlines()[0]}", flush=True)
    after = environment.versions()
    failures = []
    if changed := {name: (was, after.get(name)) for name, was in before.items() if after.get(name) != was}:
        failures.append(f"the first cell changed {changed}")
    added = set(after) - set(before)
    if kind == "colab" and not added >= ABSENT_IN_COLAB or kind != "colab" and added:
        failures.append(f"the first cell installed {added}")
    failures += [] if cut(folder, *LESSONS) else ["lessons failed, see above"]
    print(f"{kind}: {'FAILED' if failures else 'passed'}, {so_far()}")
    return failures


def main() -> None:
    steps = {"without-network": check_without_network}
    steps |= {name: partial(run_all, first=i, every=len(LESSONS)) for i, name in enumerate(LESSONS)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["colab", "oldest", "newest", *steps])
    parser.add_argument("--folder", type=Path, help="where to make the environment; without it, it is not kept")
    options = parser.parse_args()
    try:
        if options.kind in steps:
            failures = steps[options.kind](Environment(options.folder)) or []
        elif options.folder:
            options.folder.mkdir(parents=True, exist_ok=True)
            failures = test(options.kind, options.folder)
        else:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                failures = test(options.kind, Path(folder))
    except Failure as failure:
        failures = [str(failure)]
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
