"""What this machine has, whether the course will run on it, and what to do about the rest.

``python -m course_lib.doctor`` prints a table, then what to do, and exits with 0 if the course will run, else with 1.
``--quiet`` prints one line that begins with the machine's name: for a class. Missing and broken packages are reported
rather than run into: what has to be imported is imported in another process. Machine paths are not printed.

This file is kept readable for Pythons from 3.8 on, so that a Python which is too old is told so.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from course_lib._machine import Facts

ROOT = Path(__file__).resolve().parents[1]
GIB = 2**30
WIDTH = 92  # of what is printed below the table
# Packages that the course runs without, and what they are for.
OPTIONAL = {
    "bitsandbytes": "for real 8-bit steps in lesson 09, which goes on without",
    "jupyterlab": "to open the notebooks here; Colab and VS Code do without",
}
NEWER = "3.12"  # a Python to take where this one is too old
TORCH_PAGE = "https://pytorch.org/get-started/locally/"


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        status: "ok"; "note" for something worth knowing; "problem" if lessons will fail.
        what, found: what was looked at, and what is there.
        advice: what is needed, or what to do, in a few words.
        steps: what to do on this system, in sentences, where a few words are not enough.
    """

    status: str
    what: str
    found: str
    advice: str = ""
    steps: str = ""


def check(every: bool = False) -> list[Finding]:
    """Look at everything, which takes some seconds. What is missing becomes a finding, not an error.

    Args:
        every: import every package to see whether it loads, and not only torch; some seconds more.
    """
    python = _python()
    if python.status == "problem":
        return [python]  # another Python has other packages
    with ThreadPoolExecutor() as pool:
        hub = pool.submit(_ask_hub)  # which takes its time, as imports do
        packages = list(_safely("packages", _packages, "problem"))
        facts = {} if _versions_fail(packages, "torch") else _facts(_to_import(packages, every))
    findings = [python, *_with_errors(packages, facts)]
    findings += _safely("environment", lambda: _environment(findings))
    findings += _safely("wheels", lambda: _wheels(packages))
    findings += _safely("device", lambda: _device(facts))
    findings += _safely("tier", lambda: _tier(facts))
    findings += _safely("torchvision", lambda: _torchvision(facts))
    findings += _safely("Hugging Face hub", lambda: _hugging_face(facts, hub.result()))
    findings += _safely("disk", lambda: _disk(_versions_fail(packages, "torch")))
    findings += _safely("memory", _memory)
    findings += _safely("C++ compiler", _compiler)
    return findings


def report() -> None:
    """Print the findings as a table in plain text, what to do, and whether the course will run.

    Of the packages only torch is imported; ``python -m course_lib.doctor`` tries them all.
    """
    _print(check())


def main(arguments: Sequence[str] = ()) -> int:
    """Print the report and return 0 if the course will run, else 1."""
    parser = argparse.ArgumentParser(prog="python -m course_lib.doctor", description="Will the course run here?")
    parser.add_argument("--quiet", action="store_true", help="one line: this machine's name, and what is wrong")
    quiet = parser.parse_args(list(arguments)).quiet
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # messages of other programs may hold what a terminal cannot show
    findings = check(every=True)
    return _print_line(findings) if quiet else _print(findings)


def _print(findings: Sequence[Finding]) -> int:
    table = [(f.status, f.what, f.found, f.advice) for f in findings]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        print("  ".join(cell.ljust(widths[column]) for column, cell in enumerate(row)).rstrip())
    steps = {}
    for finding in findings:
        if finding.steps:
            steps.setdefault(finding.steps, []).append(finding.what)
    for number, (text, names) in enumerate(steps.items()):
        if number == 0:
            print("\nWhat to do:")
        told = f"{', '.join(names)}: {text}"
        print(textwrap.fill(told, WIDTH, initial_indent="- ", subsequent_indent="  ", **_WHOLE_WORDS))
    problems = sum(finding.status == "problem" for finding in findings)
    print()
    print(f"Not ready yet: {problems} to solve, marked as problem above." if problems else "The course will run.")
    return int(problems > 0)


def _print_line(findings: Sequence[Finding]) -> int:
    problems = [f"{f.what} {f.found}" for f in findings if f.status == "problem"]
    verdict = f"problem: {'; '.join(problems)}" if problems else "ok: the course will run"
    print(f"{platform.node() or 'this machine'}: {verdict}")
    return int(bool(problems))


_WHOLE_WORDS = {"break_long_words": False, "break_on_hyphens": False}


def _safely(what: str, look: Callable[[], Iterable[Finding]], status: str = "note") -> list[Finding]:
    """The findings of one look; if it goes wrong itself, one finding that says so."""
    try:
        return list(look())
    except Exception as error:
        return [Finding(status, what, "unknown", f"could not be looked at ({type(error).__name__}: {error})")]


def _system() -> str:
    """This system: "linux", "darwin" or "win32"; others count as Linux."""
    return sys.platform if sys.platform in ("darwin", "win32") else "linux"


def _on(linux: str, darwin: str, win32: str) -> str:
    """What holds for this system."""
    return {"linux": linux, "darwin": darwin, "win32": win32}[_system()]


def _own_python() -> str:
    """How to call the Python of the course's environment, in the course's folder."""
    return _on(".venv/bin/python", ".venv/bin/python", r".venv\Scripts\python")


def _python() -> Finding:
    """The Python that runs this; without packaging, which an old one may lack."""
    found = ".".join(map(str, sys.version_info[:3]))
    needed = _python_needed()
    least = re.search(r">=\s*(\d+)\.(\d+)", needed)
    again = f"Then, in the course's folder: make clean, and make lab PYTHON=python{NEWER}."
    if least and tuple(sys.version_info[:2]) < (int(least.group(1)), int(least.group(2))):
        download = "https://www.python.org/downloads/"
        return Finding(
            "problem", "Python", found, f"make an environment with Python {needed}",
            _on(
                f"Install one beside it: on Debian and Ubuntu sudo apt install python{NEWER} python{NEWER}-venv, "
                f"elsewhere from {download}. {again}",
                f"Install one beside it: brew install python@{NEWER}, or from {download}. {again}",
                f"Install one beside it from {download}. Then delete the folder .venv and go through the lines for "
                f"Windows in README.md again, with py -{NEWER} in place of py -3.",
            ),
        )  # fmt: skip
    if sys.maxsize < 2**32:
        return Finding(
            "problem", "Python", f"{found}, 32 bits", "PyTorch needs a Python of 64 bits",
            "Install the 64-bit build of Python, delete the folder .venv, and install the course again.",
        )  # fmt: skip
    return Finding("ok", "Python", found, needed)


def _python_needed() -> str:
    """The accepted versions of Python, such as ">=3.11": as installed with course_lib, or else from the checkout."""
    try:
        return metadata.metadata("course_lib").get("Requires-Python") or ""
    except metadata.PackageNotFoundError:
        try:
            project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        except OSError:
            return ""
    found = re.search(r'^requires-python = "(.+)"', project, re.MULTILINE)
    return found.group(1) if found else ""


def _packages() -> Iterator[Finding]:
    """The installed packages against the ranges of ``requirements.txt``."""
    install = f"{_own_python()} -m pip install -c constraints.txt -r requirements.txt"
    steps = f"In the course's folder, {_on('make lab', 'make lab', install)} installs what is missing."
    if _system() != "win32":
        steps += f" Without make: {install}"
    try:
        from packaging.version import InvalidVersion

        requirements = _needed()
    except ImportError:
        advice = "and with it most packages: pip install -r requirements.txt"
        yield Finding("problem", "packaging", "missing", advice, steps)
        return
    except OSError:
        yield Finding("note", "packages", "unknown", "course_lib is not installed: pip install -e . in its folder")
        return
    for requirement in requirements:
        name, accepted = requirement.name, requirement.specifier
        wanted = ",".join(sorted(map(str, accepted), reverse=True))
        found = _version(name)
        try:
            fits = found is not None and accepted.contains(found, prereleases=True)
        except InvalidVersion:
            fits = False
        if fits:
            yield Finding("ok", name, found, wanted)
        elif found is None and name in OPTIONAL:
            yield Finding("note", name, "missing", f"needed only {OPTIONAL[name]}")
        elif name == "torch" and (why := _no_torch()):
            yield Finding("problem", name, found or "missing", "none is made for this machine", why)
        else:
            more = ""
            if name == "torch":
                here = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}"
                more = f" If pip finds no torch, there is none for {here}: {TORCH_PAGE} says for which there is."
            yield Finding("problem", name, found or "missing", f'pip install "{name}{wanted}"', steps + more)


def _needed() -> list[Requirement]:
    """The accepted versions of each package: as installed with course_lib, or else from the checkout."""
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires("course_lib") or []
    except metadata.PackageNotFoundError:
        file = ROOT / "requirements.txt"
        lines = [line.partition("#")[0] for line in file.read_text(encoding="utf-8").splitlines()]
    requirements = [Requirement(line) for line in lines if line.strip()]
    return [r for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
    except Exception:  # what an install that broke off has left
        return None


def _no_torch() -> str:
    """Why there is no current PyTorch for this machine, and what to do; "" if there is one."""
    if _system() != "darwin" or platform.machine() != "x86_64":
        return ""
    if _output("sysctl", "-n", "hw.optional.arm64") == "1":
        return (
            "This Mac has Apple silicon, but its Python is made for Intel and runs under Rosetta. Install a Python for "
            f"Apple silicon (brew install python@{NEWER}, or from https://www.python.org/downloads/), then: make "
            f"clean, and make lab PYTHON=python{NEWER}."
        )
    return (
        "PyTorch is no longer made for Macs with an Intel processor; its last version for them is 2.2. Take Colab, or "
        "another machine. Notebooks can still be read here: they hold their pictures and numbers."
    )


def _versions_fail(packages: Iterable[Finding], name: str) -> bool:
    """Whether a package is missing or has a version that does not fit."""
    return not any(finding.what == name and finding.status == "ok" for finding in packages)


def _to_import(packages: Iterable[Finding], every: bool) -> list[str]:
    # JupyterLab takes long to import, and runs in a process of its own anyway.
    sound = [f.what for f in packages if f.status == "ok" and f.what not in ("torch", "jupyterlab", "packages")]
    # torchvision first: what is wrong with it keeps transformers from loading, with a message that misleads.
    return (["torchvision"] if _version("torchvision") else []) + (sound if every else [])


def _facts(packages: Sequence[str]) -> Facts:
    from course_lib import _machine

    return _machine.ask(packages)


def _with_errors(packages: Iterable[Finding], facts: Facts) -> Iterator[Finding]:
    """The findings, with those corrected whose package has the right version and does not load."""
    blamed = "error" in facts.get("torchvision", {})  # transformers fails with it
    for finding in packages:
        error = facts.get(finding.what, {}).get("error")
        if not error or finding.what == "torch" or (finding.what == "transformers" and blamed):
            yield finding
            continue
        again = f"{_own_python()} -m pip install --force-reinstall --no-deps -c constraints.txt {finding.what}"
        yield replace(
            finding, status="note" if finding.what in OPTIONAL else "problem",
            advice="is installed but does not load",
            steps=f"It said: {error}. In the course's folder: {again}. If that does not help, make a new environment.",
        )  # fmt: skip


def _environment(findings: Iterable[Finding]) -> Iterator[Finding]:
    """A word if something is wrong, the course's environment is there, and this Python is another."""
    own = ROOT / ".venv"
    wrong = any(finding.status == "problem" for finding in findings)
    if wrong and own.is_dir() and Path(sys.prefix).resolve() != own.resolve():
        yield Finding(
            "note", "environment", "not .venv", "this Python has other packages than the course's own",
            f"In the course's folder, ask the course's own Python: {_own_python()} -m course_lib.doctor.",
        )  # fmt: skip


def _wheels(packages: Iterable[Finding]) -> Iterator[Finding]:
    """A bundle's wheels for another Python or another system, as long as they are needed."""
    names = [path.name for path in (ROOT / "wheels").glob("torch-*.whl")]
    if not names or not _versions_fail(packages, "torch"):
        return
    _, tag, _, system = names[0][: -len(".whl")].rsplit("-", 3)
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    kind, machine = _on("linux", "macosx", "win"), platform.machine().lower()
    if tag != here or not (kind in system and system.endswith(machine)):
        yield Finding(
            "problem", "wheels", f"for {tag}, {system}", f"this is {here}, {sysconfig.get_platform()}",
            "The packages in the folder wheels/ are made for another Python or another kind of machine. Take a Python "
            "of that version, or a bundle made on a machine like this one.",
        )  # fmt: skip


def _device(facts: Facts) -> Iterator[Finding]:
    """What torch computes on."""
    torch = facts.get("torch")
    if torch is None:
        return  # reported with the packages
    if "slow" in torch:
        yield Finding("note", "device", "unknown", f"torch is slow to load: {torch['slow']}")
    elif "error" in torch:
        advice = "uninstall torch, then install as pytorch.org says"
        more = _on(
            "",
            "",
            " If a DLL is missing, install the Microsoft Visual C++ Redistributable first.",
        )
        python = _own_python()
        steps = f"It said: {torch['error']}. In the course's folder: {python} -m pip uninstall torch, then the command "
        yield Finding(
            "problem", "device", "torch does not load", advice, f"{steps}that {TORCH_PAGE} gives, with {python}.{more}"
        )
    elif torch["available"]:
        yield _gpu(torch, on_cpu=facts.get("tier", {}).get("device") == "cpu")
    elif names := _nvidia():
        yield _unused(names, torch)
    elif torch["mps"]:
        yield Finding("ok", "device", "CPU", "COURSE_DEVICE=mps takes the Mac's GPU, and gives other results")
    else:
        yield Finding("ok", "device", "CPU")


def _gpu(torch: dict, on_cpu: bool) -> Finding:
    """A GPU that torch has found, if torch can compute on it."""
    status = "note" if on_cpu else "problem"
    name = torch.get("name", "a GPU")
    around = _on("export COURSE_DEVICE=cpu", "export COURSE_DEVICE=cpu", "$env:COURSE_DEVICE = 'cpu'")
    until = f"Until then the course runs on the CPU with {around} before JupyterLab is started."
    capability, arches = torch.get("capability"), torch.get("arches", [])
    if capability and not torch["hip"] and not supports(arches, *capability):
        number = ".".join(map(str, capability))
        return Finding(
            status, "device", name, f"this torch is not made for its compute capability {number}",
            f"This torch has {', '.join(arches) or 'no architectures'}. Choose another build, for another CUDA, on "
            f"{TORCH_PAGE}. {until}",
        )  # fmt: skip
    if "trouble" in torch:
        return Finding(
            status, "device", name, "torch finds it and cannot compute on it",
            f"torch said: {torch['trouble']}. See with nvidia-smi whether another program holds its memory, restart "
            f"the machine, and update the driver. {until}",
        )  # fmt: skip
    return Finding("ok", "device", name, f"{torch['bytes'] / GIB:.0f} GiB")


def _unused(names: Sequence[str], torch: dict) -> Finding:
    """An NVIDIA GPU that torch has not found. Lessons then run on the CPU."""
    if names[0].startswith("?"):
        return Finding(
            "note", "device", "CPU", "the NVIDIA driver does not answer",
            f"nvidia-smi said: {names[0][1:].strip() or 'nothing'}. Restart the machine; if that does not help, "
            "install the NVIDIA driver again.",
        )  # fmt: skip
    if not torch["cuda"]:
        python = _own_python()
        return Finding(
            "note", "device", "CPU", "the NVIDIA GPU is not used: this build of torch is without CUDA",
            f"To use the {names[0]}: {TORCH_PAGE} gives the command for a build with CUDA. In the course's folder, run "
            f"it with {python} -m pip after {python} -m pip uninstall torch.",
        )  # fmt: skip
    trouble = torch.get("trouble", "")
    return Finding(
        "note", "device", "CPU", "the NVIDIA GPU is not used: CUDA does not start",
        (f"torch said: {trouble}. " if trouble else "")
        + f"To use the {names[0]}, update its driver"
        + _on(
            " (Debian, Ubuntu: sudo ubuntu-drivers install; in WSL, the driver of Windows)", "", " from nvidia.com"
        )
        + ", restart, and see whether CUDA_VISIBLE_DEVICES hides the GPU.",
    )  # fmt: skip


def supports(arches: Iterable[str], major: int, minor: int) -> bool:
    """Whether a build of torch has code for a GPU.

    Code for ``sm_80`` runs on 8.0 and later 8.x; ``compute_80`` is translated for 8.0 and all that is later; with a
    letter, as in ``sm_90a``, it is for that one alone (NVIDIA, CUDA C++ Programming Guide, "Compute Capability").

    Args:
        arches: as from ``torch.cuda.get_arch_list()``.
        major, minor: compute capability of the GPU.
    """
    for arch in arches:
        parts = re.match(r"(sm|compute)_(\d+)(\d)([a-z]?)$", arch)
        if parts is None:
            continue
        made = int(parts.group(2)), int(parts.group(3))
        if parts.group(4) == "a":
            fits = made == (major, minor)
        elif parts.group(1) == "sm":
            fits = made[0] == major and made[1] <= minor
        else:
            fits = made <= (major, minor)
        if fits:
            return True
    return False


def _nvidia() -> list[str]:
    """Names of the NVIDIA GPUs that the driver sees; one that begins with "?" if the driver does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        run = subprocess.run(
            [command, "-L"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace", timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"?{type(error).__name__}"]
    names = re.findall(r"^GPU \d+: (.+?)(?: \(UUID.*)?$", run.stdout, re.MULTILINE)
    if names or run.returncode == 0:
        return names
    lines = run.stdout.strip().splitlines()
    return ["?" + (lines[0] if lines else "")]


def _tier(facts: Facts) -> Iterator[Finding]:
    found = facts.get("tier")
    if found is None:
        return
    if "error" in found:
        yield Finding("problem", "tier", "unknown", found["error"])
    elif "slow" in found:
        yield Finding("note", "tier", "unknown", found["slow"])
    else:
        yield Finding("ok", "tier", f"{found['name']}, on {found['device']}", found["why"])


def _torchvision(facts: Facts) -> Iterator[Finding]:
    """The course does without torchvision, but transformers imports it where it is installed."""
    if "error" in facts.get("torchvision", {}):
        yield Finding(
            "problem", "torchvision", _version("torchvision") or "?",
            "not made for this torch, so no model loads: uninstall it",
            f"In the course's folder: {_own_python()} -m pip uninstall torchvision. Or, if you need it for other "
            f"things, install the version that {TORCH_PAGE} names beside this torch.",
        )  # fmt: skip


def _ask_hub() -> bool | None:
    """Whether the hub can be reached, found out within three seconds; None if it must not be asked."""
    from course_lib import _hub, tier

    return None if tier.offline_asked() else _hub.reachable()


def _hugging_face(facts: Facts, reachable: bool | None) -> Iterator[Finding]:
    from course_lib import _hub

    if facts.get("tier", {}).get("lost"):
        yield Finding(
            "problem", "Hugging Face hub", "not reachable", "the full tier that COURSE_TIER asks for needs it",
            f"Unset COURSE_TIER, which gives the small tier. Or connect to the network, once, to fetch {_hub.SIZE}; "
            "behind a proxy, set HTTPS_PROXY.",
        )  # fmt: skip
    elif reachable is None:
        yield Finding("note", "Hugging Face hub", "not asked", "HF_HUB_OFFLINE is set; the small tier needs no hub")
    elif reachable:
        yield Finding("ok", "Hugging Face hub", "reachable")
    else:
        yield Finding("note", "Hugging Face hub", "not reachable", "the small tier needs none")


def _disk(to_install: bool) -> Iterator[Finding]:
    """Room for what lessons write, for packages that are still to be installed, and for the full tier's download."""
    from course_lib import _hub

    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HF_HOME") or os.path.expanduser("~")
    here, for_packages = _free(Path(".")), _free(Path(sys.prefix))
    free = min(here, _free(Path(cache)))
    found = f"{free:.1f} GiB free"
    if here < 0.1:
        yield Finding("problem", "disk", f"{here:.1f} GiB free", "make room: lessons write checkpoints")
    elif to_install and for_packages < 3:
        yield Finding(
            "problem", "disk", f"{for_packages:.1f} GiB free", "make room: the packages need about 3 GiB",
            "With CUDA, which PyTorch for Linux brings along by default, they need several more; README.md says how to "
            "get the smaller build.",
        )  # fmt: skip
    elif free < 2:
        yield Finding("note", "disk", found, f"little for the full tier, which fetches {_hub.SIZE}")
    else:
        yield Finding("ok", "disk", found)


def _free(path: Path) -> float:
    """GiB that are free where a path is, or will be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free / GIB


def _memory() -> Iterator[Finding]:
    try:
        import psutil
    except ImportError:
        yield Finding("note", "memory", "unknown", "psutil would tell")
        return
    memory = psutil.virtual_memory()
    found = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    if memory.available < 2 * GIB:
        yield Finding("note", "memory", found, "lesson 08 wants 2 GiB: close other programs and notebooks")
    else:
        yield Finding("ok", "memory", found)


def _compiler() -> Iterator[Finding]:
    names = [os.environ.get("CXX"), "c++", "g++", "clang++", "cl"]
    found = next((name for name in names if name and shutil.which(name)), None)
    if found:
        yield Finding("ok", "C++ compiler", Path(found).name)
        return
    yield Finding(
        "note", "C++ compiler", "none", "only torch.compile and torchao need one",
        _on(
            "If you want to try these: on Debian and Ubuntu sudo apt install g++, on Fedora sudo dnf install gcc-c++.",
            "If you want to try these: xcode-select --install.",
            "If you want to try these: install the Build Tools for Visual Studio with their C++ workload, and start "
            "JupyterLab from their Developer PowerShell.",
        ),
    )  # fmt: skip


def _output(*command: str) -> str:
    """What a program prints; "" if it cannot be run."""
    try:
        run = subprocess.run(list(command), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.decode("utf-8", "replace").strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
