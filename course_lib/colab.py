"""Installing what the course needs and a Colab session lacks: called by the first cell of a notebook.

Only what ``requirements.txt`` names and what is missing or too old is installed. torch and numpy stay as they are, and
so does everything of which a part has been imported: a new version of it would not be used before a restart.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.doctor import OPTIONAL

if TYPE_CHECKING:
    from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements.txt"
# A session brings its own builds of these, made for one another and for its GPU.
KEPT = ("torch", "numpy")
# Not needed where a notebook is open already.
LEFT_OUT = ("jupyterlab",)


class SessionError(RuntimeError):
    """The session lacks something that could not be installed. The message says what, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it: this line alone, since the way there through the library helps no learner."""
        return [f"{type(self).__name__}: {self}"]


def install_missing() -> None:
    """Install what is missing or too old, and say in a line what was done.

    What the course runs without is tried too; if it cannot be had, a second line says what that means.

    Raises:
        SessionError: torch or numpy does not suit the course, or pip could not install the rest.
    """
    lacking = _lacking()
    for requirement in lacking:
        if requirement.name in KEPT:
            found = _version(requirement.name) or "missing"
            raise SessionError(
                f"The course needs {requirement}; here it is {found}, and it is never changed: start a newer session."
            )
    needed = [requirement for requirement in lacking if requirement.name not in OPTIONAL]
    if needed and (why := _install(needed)):
        raise SessionError(
            f"Could not install {_listed(needed)} ({why}). Look whether the session has a network, then run this cell "
            "again; if that does not help, restart the session and run this cell first."
        )
    extras = [requirement for requirement in lacking if requirement.name in OPTIONAL]
    why = _install(extras) if extras else ""
    done = [f"{one.name} {_version(one.name)}" for one in lacking if not (why and one in extras)]
    print(
        f"course_lib is ready. Installed: {', '.join(done)}." if done else "course_lib is ready; nothing was missing."
    )
    if why:
        uses = "; ".join(f"{requirement.name} is needed only {OPTIONAL[requirement.name]}" for requirement in extras)
        print(f"Could not install {_listed(extras)} ({why}): {uses}.")


def _lacking() -> list[Requirement]:
    """What requirements.txt asks for and this Python has not, or not in an accepted version."""
    from packaging.requirements import Requirement  # IPython's kernel needs it too, so that it is there

    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines())
    lacking = []
    for requirement in map(Requirement, filter(None, lines)):
        if requirement.name in LEFT_OUT or (requirement.marker and not requirement.marker.evaluate()):
            continue
        found = _version(requirement.name)
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            requirement.marker = None  # it holds, and would only lengthen messages
            lacking.append(requirement)
    return lacking


def _install(requirements: list[Requirement]) -> str:
    """Let pip install these; returns why it could not, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("".join(f"{pin}\n" for pin in _pins()), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        asked = ["--constraint", str(constraints), *map(str, requirements)]
        done = subprocess.run([*pip, *asked], capture_output=True, text=True, errors="replace", check=False)
    importlib.invalidate_caches()
    if not done.returncode:
        return ""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if re.match("ERROR: (?!ResolutionImpossible)", line)]
    said = (errors or lines[-1:] or [f"exit status {done.returncode}"])[-1]
    return f"pip: {said.rstrip('.')}"


def _pins() -> list[str]:
    """What pip must not change, as lines ``name==version``."""
    from packaging.version import InvalidVersion, Version

    distributions = metadata.packages_distributions()
    imported = {module.partition(".")[0] for module in sys.modules}
    names = {*KEPT, *(name for module in imported for name in distributions.get(module, ()))}
    pins = []
    for name in sorted(names):
        try:
            pins.append(f"{name}=={Version(_version(name) or '')}")
        except InvalidVersion:
            continue  # pip would refuse the whole list
    return pins


def _listed(requirements: list[Requirement]) -> str:
    return ", ".join(map(str, requirements))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
