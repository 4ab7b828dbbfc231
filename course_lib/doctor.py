"""What this machine has, whether the course will run on it, and what to do about the rest.

``python -m course_lib.doctor`` prints the table and exits with 0 if the course will run, else with 1. Of the packages
only torch and psutil are imported, so a missing or broken one is reported rather than run into. Machine paths are
not printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib import _hub, tier

if TYPE_CHECKING:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

GIB = 2**30
# Packages that the course runs without, and what they are for.
OPTIONAL = {
    "bitsandbytes": "for real 8-bit steps in lesson 09, which goes on without",
    "jupyterlab": "to open the notebooks here; Colab and VS Code do without",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        status: "ok"; "note" for something worth knowing; "problem" if lessons will fail.
        what, found: what was looked at, and what is there.
        advice: what is needed, or what to do.
    """

    status: str
    what: str
    found: str
    advice: str = ""


def check() -> list[Finding]:
    """Look at everything, which takes some seconds. What is missing becomes a finding, not an error."""
    return [*_packages(), *_device(), *_torchvision(), _hugging_face(), _disk(), _memory(), _compiler()]


def report() -> None:
    """Print the findings as a table in plain text, and whether the course will run."""
    _print(check())


def main() -> int:
    """Print the report and return 0 if the course will run, else 1."""
    return _print(check())


def _print(findings: list[Finding]) -> int:
    widths = [max(map(len, column)) for column in zip(*map(astuple, findings), strict=True)]
    for finding in findings:
        print("  ".join(cell.ljust(width) for cell, width in zip(astuple(finding), widths, strict=True)).rstrip())
    problems = sum(finding.status == "problem" for finding in findings)
    print()
    print(f"Not ready yet: {problems} to solve, marked as problem above." if problems else "The course will run.")
    return int(problems > 0)


def _packages() -> Iterator[Finding]:
    """Python and the packages against the ranges of ``requirements.txt``."""
    python = ".".join(map(str, sys.version_info[:3]))
    try:
        needed_python, requirements = _needed()
    except ImportError:
        yield Finding("problem", "packaging", "missing", "and with it most packages: pip install -r requirements.txt")
        return
    if python in needed_python:
        yield Finding("ok", "Python", python, _range(needed_python))
    else:
        yield Finding("problem", "Python", python, f"make an environment with Python {_range(needed_python)}")
    for requirement in requirements:
        name, accepted = requirement.name, requirement.specifier
        found = _version(name)
        if found and accepted.contains(found, prereleases=True):
            yield Finding("ok", name, found, _range(accepted))
        elif not found and name in OPTIONAL:
            yield Finding("note", name, "missing", f"needed only {OPTIONAL[name]}")
        else:
            yield Finding("problem", name, found or "missing", f'pip install "{name}{_range(accepted)}"')


def _device() -> Iterator[Finding]:
    if not _version("torch"):
        return  # reported with the packages
    try:
        import torch
    except Exception:  # whatever keeps a broken installation from loading
        yield Finding("problem", "device", "torch does not load", "uninstall torch, then install as pytorch.org says")
        return
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        yield Finding("ok", "device", gpu.name, f"{gpu.total_memory / GIB:.0f} GiB")
    elif shutil.which("nvidia-smi"):
        yield Finding("note", "device", "CPU", "the NVIDIA GPU is not used: this build of torch is without CUDA")
    elif torch.backends.mps.is_available():
        yield Finding("ok", "device", "CPU", "COURSE_DEVICE=mps takes the Mac's GPU, and gives other results")
    else:
        yield Finding("ok", "device", "CPU")
    try:
        here = tier.current(quiet=True)
        yield Finding("ok", "tier", f"{here.name}, on {here.device.type}", here.why)
    except ValueError as error:
        yield Finding("problem", "tier", "unknown", str(error))


def _torchvision() -> Iterator[Finding]:
    """The course does without torchvision, but transformers imports it where it is installed."""
    found = _version("torchvision")
    if found and _version("torch") and not _loads("torchvision"):
        yield Finding("problem", "torchvision", found, "not made for this torch, so no model loads: uninstall it")


def _hugging_face() -> Finding:
    if tier.offline_asked():
        return Finding("note", "Hugging Face hub", "not asked", "HF_HUB_OFFLINE is set; the small tier needs no hub")
    if _hub.reachable():
        return Finding("ok", "Hugging Face hub", "reachable")
    return Finding("note", "Hugging Face hub", "not reachable", "the small tier needs none")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / GIB
    found = f"{free:.1f} GiB free"
    if free < 0.1:
        return Finding("problem", "disk", found, "make room: lessons write checkpoints")
    if free < 2:
        return Finding("note", "disk", found, f"little for the full tier, which fetches {_hub.SIZE}")
    return Finding("ok", "disk", found)


def _memory() -> Finding:
    try:
        import psutil
    except ImportError:
        return Finding("note", "memory", "unknown", "psutil would tell")
    memory = psutil.virtual_memory()
    found = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    if memory.available < 2 * GIB:
        return Finding("note", "memory", found, "lesson 08 wants 2 GiB: close other programs and notebooks")
    return Finding("ok", "memory", found)


def _compiler() -> Finding:
    names = [os.environ.get("CXX"), "c++", "g++", "clang++", "cl"]
    found = next((name for name in names if name and shutil.which(name)), None)
    if found:
        return Finding("ok", "C++ compiler", Path(found).name)
    return Finding("note", "C++ compiler", "none", "only torch.compile needs one")


def _needed() -> tuple[SpecifierSet, list[Requirement]]:
    """The accepted versions of Python and of each package: as installed with course_lib, or else from the checkout."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    try:
        python = metadata.metadata("course_lib").get("Requires-Python", "")
        lines = metadata.requires("course_lib") or []
    except metadata.PackageNotFoundError:
        python = ""
        file = Path(__file__).parents[1] / "requirements.txt"
        lines = [line.partition("#")[0] for line in file.read_text(encoding="utf-8").splitlines()]
    requirements = [Requirement(line) for line in lines if line.strip()]
    return SpecifierSet(python), [r for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]


def _range(accepted: SpecifierSet) -> str:
    return ",".join(sorted(map(str, accepted), reverse=True))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _loads(module: str) -> bool:
    """Try in a process of its own: here, a half-imported module would stay behind."""
    try:
        run = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return True  # slow is not broken
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
