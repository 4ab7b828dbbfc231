"""Running a notebook again under nbval, with the network cut off where the system allows that."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import execution

# Seconds for a whole lesson; on two idle cores one takes less than 60.
LESSON_TIMEOUT = 900


@functools.cache
def cut_off() -> tuple[list[str], str]:
    """What to put before a command so that it has no network but loopback; if that cannot be, nothing, and why."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return [], "there is no unshare command here (it is Linux's)"
    prefix = [unshare, "-rn", sys.executable, str(Path(__file__).with_name("offline.py"))]
    tried = subprocess.run([*prefix, sys.executable, "-c", ""], capture_output=True, text=True)
    return (prefix, "") if tried.returncode == 0 else ([], f"unshare is refused here: {tried.stderr.strip()}")


def validate(notebook: Path, folder: Path) -> tuple[int, str, set[int]]:
    """Run a copy of `notebook` in `folder` and compare outputs.

    Returns:
        nbval's exit status, what it printed, and the code cells that failed, counted from 0.
    """
    copy = folder / "notebooks" / notebook.name
    copy.parent.mkdir()
    shutil.copyfile(notebook, copy)
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # so that pytest looks for settings no further
    nbval = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={execution.CELL_TIMEOUT}"]
    quiet = ["-q", "-rf", "--color=no", "-p", "no:cacheprovider", f"--rootdir={folder}"]
    done = subprocess.run(
        [*cut_off()[0], sys.executable, "-m", "pytest", *nbval, *quiet, str(copy)],
        cwd=folder,
        env=execution.environment(folder),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=LESSON_TIMEOUT,
    )
    failed = {int(number) for number in re.findall(r"^FAILED .*::Cell (\d+)", done.stdout, re.MULTILINE)}
    return done.returncode, done.stdout + done.stderr, failed
