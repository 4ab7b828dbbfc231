"""Running a notebook in a kernel of its own, away from the checkout."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from course import CourseError

# Seconds for one cell. A lesson takes less than 60 in all; the rest is for a machine that is busy with other things.
CELL_TIMEOUT = 300

# What a maintainer may have set for themselves, and a learner has not.
OWN_SETUP = {"MPLBACKEND", "COURSE_TIER", "COURSE_DEVICE"}


def environment(home: Path) -> dict[str, str]:
    """The variables a kernel gets: no GPU, which makes the tier the small one, and none of the caller's setup."""
    variables = {name: value for name, value in os.environ.items() if name not in OWN_SETUP}
    # Passive, as in the Makefile: threads that spin while they wait are ruinous on cores that others use too.
    own = {"CUDA_VISIBLE_DEVICES": "", "OMP_WAIT_POLICY": "PASSIVE", "IPYTHONDIR": str(home / "ipython")}
    return {**variables, **own}


def execute(notebook: NotebookNode, name: str, variables: Mapping[str, str] | None = None) -> float:
    """Run the cells of `notebook` in order and put their outputs into it.

    The kernel is the one of this interpreter, whatever kernels the user has installed under the name of python3. It
    works in an empty folder `notebooks/`, since a lesson must run wherever it is copied to.

    Args:
        notebook: changed in place.
        name: what the lesson is called in messages.
        variables: of the kernel, besides those of :func:`environment` and in place of them.

    Returns:
        The peak of the kernel's resident set in MiB.

    Raises:
        CourseError: a cell failed or took longer than CELL_TIMEOUT.
    """
    # Without folders to look for kernels, the manager knows one: the native one, of this interpreter.
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _peak_memory(manager) as peak:
        home = Path(folder)
        (home / "notebooks").mkdir()
        client = NotebookClient(
            notebook,
            km=manager,
            timeout=CELL_TIMEOUT,
            store_widget_state=False,
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],
            resources={"metadata": {"path": str(home / "notebooks")}},
        )
        try:
            # cleanup_kc: a kernel whose manager comes from outside is otherwise left running
            client.execute(env={**environment(home), **(variables or {})}, cleanup_kc=True)
        except CellExecutionError as error:
            raise CourseError(f"{name}, {failed_cell(notebook)} ended in an error.\n{error}") from None
        except CellTimeoutError:
            raise CourseError(f"{name}: a cell took longer than {CELL_TIMEOUT} seconds; make it do less.") from None
        except DeadKernelError:
            raise CourseError(f"{name}: the kernel died, most likely for want of memory.") from None
    return max(peak) / 2**20


def failed_cell(notebook: NotebookNode) -> str:
    """Which cell's outputs end in an error, in words."""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and any(output.output_type == "error" for output in cell.outputs):
            if "raises-exception" not in cell.metadata.get("tags", []):
                return describe(notebook, index)
    return "a cell"


def describe(notebook: NotebookNode, index: int) -> str:
    """How a cell is called in messages: its number, counted from 1, and how it begins."""
    begin = next((line.strip() for line in notebook.cells[index].source.splitlines() if line.strip()), "")
    return f"cell {index + 1} ({begin[:60]}{'…' if len(begin) > 60 else ''})"


@contextmanager
def _peak_memory(manager: AsyncKernelManager, interval: float = 0.1) -> Iterator[list[int]]:
    """Look at the kernel's resident set, in bytes, every `interval` seconds while the block runs.

    Its children are left out: one that has just been forked shares the kernel's pages, which would count twice.
    """
    seen, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(interval):
            pid = getattr(manager.provisioner, "pid", None)
            try:
                seen.append(psutil.Process(pid).memory_info().rss if pid else 0)
            except psutil.Error:  # the kernel has just ended
                continue

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        over.set()
        watcher.join()
