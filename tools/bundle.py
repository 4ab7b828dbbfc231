"""Make a folder from which the course installs and runs on machines of the same kind, without a network.

It holds the course, as far as it is in the repository, and in `wheels/` every package that a learner needs, in the
versions of `constraints.txt`, for the Python that runs this. `make lab` there takes packages from `wheels/`, and from
nowhere else.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from course import ROOT, CourseError, write

NAME = "adafactor-course"
WHEELS = "wheels"
NOTE = "OFFLINE.md"
# What `pip` is told on the machine that has no network; the Makefile tells it the same if there is a folder wheels/.
FROM_WHEELS = f"--no-index --find-links {WHEELS}"

TEXT = """\
# The course without a network

In this folder is the course and, in `{wheels}/`, every package it needs: {count} files, {megabytes:,} MB. They are made
for **Python {python} on {system}**, and fit no other Python.

On Linux and macOS:

```bash
make lab PYTHON=python{python}
```

On Windows, in PowerShell:

```powershell
py -{python} -m venv .venv
.venv\\Scripts\\python -m pip install {options} -c constraints.txt -r requirements.txt setuptools
.venv\\Scripts\\python -m pip install {options} --no-deps --no-build-isolation -e .
.venv\\Scripts\\python tools\\workspace.py
cd work
..\\.venv\\Scripts\\python -m jupyterlab --ServerApp.root_dir=. {first_page}
```

Will it run here? Before anything is installed, `python{python} -m course_lib.doctor` says whether this Python fits.
When all is installed, `.venv/bin/python -m course_lib.doctor --quiet` says in one line whether the course will run,
and ends with 0 if it will. README.md has the rest.
"""
FIRST_PAGE = "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"


def kind() -> str:
    """Which machines a bundle made here is for, as part of a file name."""
    return f"python{platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]}-{sysconfig.get_platform()}"


def course_files(root: Path) -> list[Path]:
    """What belongs to the course: what git knows, or would, if it were told; sorted, relative to `root`.

    Raises:
        CourseError: `root` is no git checkout.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError):
        raise CourseError(
            "`make bundle` needs git, and a clone of the repository: git says what belongs to it."
        ) from None
    paths = {Path(name) for name in done.stdout.split("\0") if name}
    return sorted(path for path in paths if (root / path).is_file())


def empty(folder: Path) -> None:
    """Make room for a bundle in `folder`: an earlier one goes, but for its packages, which are fetched only once.

    Raises:
        CourseError: something else is in there, or somebody has worked there.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / NOTE).is_file():
        raise CourseError(f"{folder.name} holds other things than a bundle: name a folder that does not exist yet.")
    if used := [name for name in ("work", ".venv") if (folder / name).exists()]:
        raise CourseError(f"{folder.name} has been used: {used[0]} is in it. Move it away, or name another folder.")
    for path in folder.iterdir():
        if path.name not in (WHEELS, NOTE):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def copy(root: Path, folder: Path) -> None:
    """Put the course's files into `folder`, as they are now."""
    for path in course_files(root):
        write(folder / path, (root / path).read_bytes())
        shutil.copymode(root / path, folder / path)


def fetch(root: Path, folder: Path) -> None:
    """Put wheels of all that a learner needs into `folder`, and take out those that are not needed any more.

    Raises:
        CourseError: pip could not fetch one, or would not make do with them.
    """
    folder.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    wanted = ["--find-links", str(folder), "-c", "constraints.txt", "-r", "requirements.txt", "setuptools"]
    if subprocess.run(
        [*pip, "wheel", "--quiet", "--wheel-dir", str(folder), *wanted], cwd=root, check=False
    ).returncode:
        raise CourseError("pip could not fetch every package; its last lines say why. Run it again to go on.")
    dry = [
        *pip,
        "--isolated",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--no-index",
        "--report",
        "-",
        *wanted,
    ]
    done = subprocess.run(dry, cwd=root, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        raise CourseError(f"The packages in {folder.name}/ do not suffice; pip's last lines say what is missing.")
    files = {item["download_info"]["url"].rpartition("/")[2] for item in json.loads(done.stdout)["install"]}
    for path in folder.iterdir():
        if path.name not in map(unquote, files):
            path.unlink()


def note(folder: Path) -> str:
    """What `OFFLINE.md` says."""
    wheels = list((folder / WHEELS).glob("*.whl"))
    return TEXT.format(
        wheels=WHEELS,
        count=len(wheels),
        megabytes=round(sum(path.stat().st_size for path in wheels) / 10**6),
        python=".".join(platform.python_version_tuple()[:2]),
        system=sysconfig.get_platform(),
        options=FROM_WHEELS,
        first_page=FIRST_PAGE,
    )


def make(root: Path, folder: Path) -> None:
    """Make the bundle, or bring it up to date.

    Raises:
        CourseError: what kept it from being made.
    """
    empty(folder)
    write(folder / NOTE, "This bundle is not finished. Run `make bundle` again.\n")
    copy(root, folder)
    fetch(root, folder / WHEELS)
    write(folder / NOTE, note(folder))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = ROOT / "dist" / f"{NAME}-{kind()}"
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="another folder for the bundle")
    folder = parser.parse_args(arguments).folder
    print(f"Making {folder.name}: this fetches some hundred megabytes ...", flush=True)
    try:
        make(ROOT, folder)
    except CourseError as error:
        sys.exit(str(error))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{size / 10**6:,.0f} MB for {kind()}. Copy the folder, or a zip of it; {NOTE} in it says how to go on.")


if __name__ == "__main__":
    main()
