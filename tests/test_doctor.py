"""The doctor on machines that lack something: what it says, whether the course will run, what to do."""

from __future__ import annotations

import ast
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from course_lib import _hub, _machine, doctor, tier

ROOT = Path(__file__).parents[1]
GIB = 2**30
# What the other process says of a machine without a GPU, and of one with.
CPU = {"cuda": None, "hip": None, "available": False, "mps": False}
GPU = {
    **CPU, "cuda": "12.8", "available": True, "name": "NVIDIA L4", "bytes": 22 * GIB, "capability": [8, 9],
    "arches": ["sm_75", "sm_80", "sm_90", "compute_90"],
}  # fmt: skip
SMALL = {"name": "small", "device": "cpu", "why": "no CUDA GPU", "lost": False}


def requirements() -> list[Requirement]:
    """What requirements.txt asks for on this machine."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    asked = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [one for one in asked if not one.marker or one.marker.evaluate()]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine on which all is well but for what is given.

    ``versions`` of packages (None: missing), resources, ``torch``, ``tier`` and further ``facts`` from the other
    process, the answer of nvidia-smi, the system.
    """
    real_version, real_which = metadata.version, shutil.which

    def pretend(
        versions=None, reachable=True, disk=50.0, memory=8.0, commands=("c++",), system="linux", torch=CPU, here=SMALL,
        nvidia=(), wheels=(), **facts,
    ):  # fmt: skip
        def version(name):
            found = (versions or {}).get(name, real_version(name) if name != "torchvision" else None)
            if found is None:
                raise metadata.PackageNotFoundError(name)
            return found

        def which(name, *rest, **more):
            known = {"c++", "g++", "clang++", "cl"}
            return (name if name in commands else None) if name in known else real_which(name, *rest, **more)

        usage = namedtuple("usage", "total used free")(100 * GIB, 0, int(disk * GIB))
        ram = namedtuple("svmem", "total available")(16 * GIB, int(memory * GIB))
        for name in wheels:
            (tmp_path / "wheels").mkdir(exist_ok=True)
            (tmp_path / "wheels" / name).touch()
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        monkeypatch.setattr(doctor, "ROOT", tmp_path)
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(shutil, "which", which)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        monkeypatch.setattr("psutil.virtual_memory", lambda: ram)
        monkeypatch.setattr(_hub, "reachable", lambda: reachable)
        monkeypatch.setattr(tier, "offline_asked", lambda: False)
        monkeypatch.setattr(doctor, "_system", lambda: system)
        monkeypatch.setattr(doctor, "_nvidia", lambda: list(nvidia))
        monkeypatch.setattr(doctor, "_facts", lambda _: {"torch": torch, "tier": here, **facts})

    monkeypatch.delenv("CXX", raising=False)
    return pretend


def look(what):
    """The one finding about something."""
    (found,) = [finding for finding in doctor.check() if finding.what == what]
    return found


def test_all_is_well(machine, capsys):
    machine()
    assert doctor.main() == 0
    *lines, empty, verdict = capsys.readouterr().out.splitlines()
    assert all(line.startswith("ok ") for line in lines) and (empty, verdict) == ("", "The course will run.")
    assert len(lines) == len(doctor.check())
    columns = {line.index(finding.found) for line, finding in zip(lines, doctor.check(), strict=True)}
    assert len(columns) == 1, "the table's columns stand under each other"
    assert doctor.report() is None
    assert capsys.readouterr().out.splitlines() == [*lines, empty, verdict]


def test_every_requirement_is_looked_at_with_its_range(machine):
    machine()
    wanted = {asked.name: (set(map(str, asked.specifier)), metadata.version(asked.name)) for asked in requirements()}
    findings = {finding.what: finding for finding in doctor.check()}
    assert {name: (set(findings[name].advice.split(",")), findings[name].found) for name in wanted} == wanted
    (python,) = re.findall(r'requires-python = "(.+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert findings["Python"] == doctor.Finding("ok", "Python", sys.version.split()[0], python)


@pytest.mark.parametrize(
    ("package", "version", "status", "advice"),
    [
        ("transformers", "5.14.1", "problem", 'pip install "transformers>=5.15,<6"'),
        ("transformers", "6.0.0", "problem", 'pip install "transformers>=5.15,<6"'),
        ("transformers", None, "problem", 'pip install "transformers>=5.15,<6"'),
        ("transformers", "no number", "problem", 'pip install "transformers>=5.15,<6"'),
        ("transformers", "5.15.0", "ok", ">=5.15,<6"),
        ("torch", "2.10.0.dev20251101+cu128", "ok", ">=2.6"),
        ("torch", "2.5.1", "problem", 'pip install "torch>=2.6"'),
        ("bitsandbytes", None, "note", "needed only for real 8-bit steps in lesson 09, which goes on without"),
        ("bitsandbytes", "0.49.2", "problem", 'pip install "bitsandbytes>=0.50"'),
        ("jupyterlab", None, "note", "needed only to open the notebooks here; Colab and VS Code do without"),
        ("jupyterlab", "3.6.0", "problem", 'pip install "jupyterlab>=4.3"'),
    ],
)
def test_versions(machine, package, version, status, advice):
    machine(versions={package: version})
    found = look(package)
    assert (found.status, found.found, found.advice) == (status, version or "missing", advice)
    assert ("make lab installs" in found.steps) == (status == "problem")
    assert doctor.main() == (status == "problem")


def test_what_a_broken_install_leaves_counts_as_missing(machine, monkeypatch):
    machine()
    whole = metadata.version

    def version(name):
        return whole(name) if name != "numpy" else {}["Version"]

    monkeypatch.setattr(metadata, "version", version)
    assert look("numpy").found == "missing"


def test_the_same_steps_are_said_once(machine, capsys):
    machine(versions={"transformers": None, "datasets": "1.0"})
    assert doctor.main() == 1
    printed = capsys.readouterr().out
    assert printed.count("make lab installs what is missing") == 1
    assert re.search(r"^- transformers, datasets: In the course's folder", printed, re.MULTILINE)
    table, below = printed.split("\nWhat to do:\n")
    assert max(map(len, below.splitlines())) <= doctor.WIDTH
    assert below.endswith("\n\nNot ready yet: 2 to solve, marked as problem above.\n")


@pytest.mark.parametrize(
    ("system", "steps"),
    [
        ("linux", "sudo apt install python3.12 python3.12-venv"),
        ("darwin", "brew install python@3.12"),
        ("win32", "with py -3.12 in place of py -3"),
    ],
)
def test_python_too_old(machine, monkeypatch, system, steps):
    machine(system=system)
    monkeypatch.setattr(sys, "version_info", (3, 10, 14, "final", 0))
    (found,) = doctor.check()
    assert (found.status, found.found, found.advice) == (
        "problem",
        "3.10.14",
        "make an environment with Python >=3.11",
    )
    assert steps in found.steps and ("make lab" in found.steps) == (system != "win32")
    assert SpecifierSet(doctor._python_needed()).contains(doctor.NEWER), "the Python it names would do"


def test_python_of_32_bits(machine, monkeypatch):
    machine()
    monkeypatch.setattr(sys, "maxsize", 2**31 - 1)
    (found,) = doctor.check()
    assert (found.status, found.advice) == ("problem", "PyTorch needs a Python of 64 bits")


def test_a_python_too_old_can_read_the_doctor():
    for name in ("__init__.py", "doctor.py"):
        text = (ROOT / "course_lib" / name).read_text(encoding="utf-8")
        tree = ast.parse(text, feature_version=(3, 8))
        outer = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        own = [node.module for node in outer if (node.module or "").startswith(("course_lib", "packaging"))]
        assert own == [], f"{name} imports these before it has looked at Python"
        # Names that came later than 3.8, where they would run before a word is said.
        assert not re.search(r"strict=|\.remove(pre|suf)fix|functools import cache|^\s*match .*:$", text, re.MULTILINE)


@pytest.mark.skipif(not (OLD := [v for v in ("3.8", "3.9", "3.10") if shutil.which(f"python{v}")]), reason="none here")
def test_a_python_that_is_too_old_is_told_so():
    for version in OLD:
        told = subprocess.run([f"python{version}", "-c", ""], capture_output=True)
        if told.returncode:  # a name that leads to no Python
            continue
        run = subprocess.run(
            [f"python{version}", "-m", "course_lib.doctor"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
        )
        assert (run.returncode, run.stderr) == (1, "")
        assert run.stdout.startswith(f"problem  Python  {version}.")


@pytest.mark.parametrize(
    ("here", "what", "status", "found", "advice", "steps"),
    [
        ({"reachable": False}, "Hugging Face hub", "note", "not reachable", "small tier needs none", ""),
        ({"disk": 0.06}, "disk", "problem", "0.1 GiB free", "make room: lessons", ""),
        ({"disk": 1.5}, "disk", "note", "1.5 GiB free", "270 MB", ""),
        ({"disk": 2.5}, "disk", "ok", "2.5 GiB free", "", ""),
        ({"disk": 2.5, "versions": {"torch": None}}, "disk", "problem", "2.5 GiB free", "need about 3 GiB", "smaller"),
        ({"disk": 2.5, "versions": {"babel": None}}, "disk", "ok", "2.5 GiB free", "", ""),
        ({"memory": 1.5}, "memory", "note", "1.5 of 16.0 GiB free", "close other programs", ""),
        ({"memory": 2.5}, "memory", "ok", "2.5 of 16.0 GiB free", "", ""),
        ({"commands": ()}, "C++ compiler", "note", "none", "torch.compile and torchao", "apt install g++"),
        ({"commands": (), "system": "darwin"}, "C++ compiler", "note", "none", "torchao", "xcode-select --install"),
        ({"commands": (), "system": "win32"}, "C++ compiler", "note", "none", "torchao", "Build Tools for Visual"),
        ({"commands": ("cl",)}, "C++ compiler", "ok", "cl", "", ""),
        ({"torch": {**CPU, "mps": True}, "system": "darwin"}, "device", "ok", "CPU", "COURSE_DEVICE=mps", ""),
        ({}, "tier", "ok", "small, on cpu", "no CUDA GPU", ""),
        ({"here": {"error": "COURSE_TIER is 'medium'"}}, "tier", "problem", "unknown", "is 'medium'", ""),
        ({"torch": {"slow": "not done after 120 seconds"}}, "device", "note", "unknown", "after 120 seconds", ""),
        ({"here": {"slow": "not done after 120 seconds"}}, "tier", "note", "unknown", "after 120 seconds", ""),
        (
            {"versions": {"torchvision": "0.1"}, "torchvision": {"error": "RuntimeError: torchvision::nms"}},
            "torchvision", "problem", "0.1", "uninstall it", ".venv/bin/python -m pip uninstall torchvision",
        ),
        (
            {"here": {**SMALL, "name": "full", "lost": True}},
            "Hugging Face hub", "problem", "not reachable", "COURSE_TIER asks for", "Unset COURSE_TIER",
        ),
    ],
)  # fmt: skip
def test_resources(machine, here, what, status, found, advice, steps):
    machine(**here)
    finding = look(what)
    assert (finding.status, finding.found) == (status, found)
    assert advice in finding.advice and steps in finding.steps and bool(steps) == bool(finding.steps)
    others = "versions" in here and what == "disk"
    assert doctor.main() == (status == "problem" or others)


@pytest.mark.parametrize(
    ("here", "status", "found", "advice", "steps"),
    [
        ({"torch": GPU}, "ok", "NVIDIA L4", "22 GiB", ""),
        ({"nvidia": ["NVIDIA L4"]}, "note", "CPU", "without CUDA", "To use the NVIDIA L4: https://pytorch.org"),
        (
            {"nvidia": ["NVIDIA L4"], "torch": {**CPU, "cuda": "12.8", "trouble": "RuntimeError: driver is too old"}},
            "note", "CPU", "CUDA does not start", "torch said: RuntimeError: driver is too old. To use the",
        ),
        ({"nvidia": ["?Failed to initialize NVML"]}, "note", "CPU", "driver does not answer", "Failed to initialize N"),
        (
            {"torch": {**GPU, "trouble": "OutOfMemoryError: out of memory"}},
            "problem", "NVIDIA L4", "cannot compute on it", "torch said: OutOfMemoryError: out of memory.",
        ),
        (
            {"torch": {**GPU, "capability": [6, 1], "trouble": "AcceleratorError: no kernel image"}},
            "problem", "NVIDIA L4", "not made for its compute capability 6.1", "This torch has sm_75, sm_80, sm_90",
        ),
    ],
)  # fmt: skip
def test_gpus(machine, here, status, found, advice, steps):
    machine(here={**SMALL, "device": "cuda" if here.get("torch", CPU)["available"] else "cpu"}, **here)
    finding = look("device")
    assert (finding.status, finding.found) == (status, found)
    assert advice in finding.advice and steps in finding.steps and bool(steps) == bool(finding.steps)
    assert doctor.main() == (status == "problem")


def test_a_gpu_that_is_not_asked_for_is_no_problem(machine):
    machine(torch={**GPU, "trouble": "RuntimeError: busy"}, here={**SMALL, "why": "COURSE_DEVICE is cpu"})
    assert look("device").status == "note"
    assert doctor.main() == 0


@pytest.mark.parametrize(
    ("arches", "capability", "fits"),
    [
        (["sm_80"], (8, 0), True),
        (["sm_80"], (8, 9), True),
        (["sm_86"], (8, 0), False),
        (["sm_80"], (9, 0), False),
        (["sm_80", "compute_80"], (9, 0), True),
        (["compute_90"], (8, 9), False),
        (["sm_90a"], (9, 0), True),
        (["sm_90a"], (9, 1), False),
        (["sm_100", "sm_120"], (12, 0), True),
        (["sm_100"], (12, 0), False),
        ([], (8, 0), False),
        (["gfx90a"], (9, 0), False),
    ],
)
def test_which_gpus_a_build_of_torch_has_code_for(arches, capability, fits):
    assert doctor.supports(arches, *capability) is fits


def test_amd_gpus_have_other_architectures(machine):
    machine(torch={**GPU, "cuda": None, "hip": "6.4", "name": "AMD Instinct", "arches": ["gfx90a"]})
    assert look("device").status == "ok"


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo 'GPU 0: NVIDIA L4 (UUID: GPU-1)'; echo 'GPU 1: Tesla T4 (UUID: GPU-2)'", ["NVIDIA L4", "Tesla T4"]),
        ("echo 'No devices found.'", []),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch' >&2; exit 18", ["?Failed to initialize "]),
        ("exit 9", ["?"]),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the stand-in for nvidia-smi is a shell script")
def test_what_nvidia_smi_says(tmp_path, monkeypatch, script, names):
    command = tmp_path / "nvidia-smi"
    command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = doctor._nvidia()
    assert len(found) == len(names) and all(map(str.startswith, found, names))


def test_a_mac_with_an_intel_processor(machine, monkeypatch):
    machine(versions={"torch": "2.2.2"}, system="darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(doctor, "_output", lambda *_: "")
    found = look("torch")
    assert (found.status, found.advice) == ("problem", "none is made for this machine") and "Colab" in found.steps
    monkeypatch.setattr(doctor, "_output", lambda *_: "1")
    assert "Rosetta" in look("torch").steps
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert look("torch").advice == 'pip install "torch>=2.6"'


def test_a_mac_with_an_intel_processor_that_has_a_torch(machine, monkeypatch):
    machine(system="darwin")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert look("torch").status == "ok"


def test_a_torch_that_does_not_load_on_windows(machine):
    machine(system="win32", torch={"error": "OSError: [WinError 126] c10.dll"})
    found = look("device")
    assert (found.status, found.found) == ("problem", "torch does not load")
    assert "[WinError 126]" in found.steps and "Visual C++ Redistributable" in found.steps
    assert r".venv\Scripts\python" in found.steps and "/bin/" not in found.steps


def test_packages_that_do_not_load(machine):
    machine(scipy={"error": "ImportError: _ufuncs"}, bitsandbytes={"error": "OSError: no"}, numpy={"slow": "not done"})
    found = look("scipy")
    assert (found.status, found.advice) == ("problem", "is installed but does not load")
    assert "ImportError: _ufuncs" in found.steps and "--force-reinstall" in found.steps
    assert (look("bitsandbytes").status, look("numpy").status) == ("note", "ok")
    assert doctor.main() == 1


def test_transformers_is_not_blamed_for_torchvision(machine):
    broken = {"error": "RuntimeError: operator torchvision::nms does not exist"}
    machine(versions={"torchvision": "0.1"}, torchvision=broken, transformers={"error": "ModuleNotFoundError: Could"})
    assert [finding.what for finding in doctor.check() if finding.status == "problem"] == ["torchvision"]


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", True),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl", True),
        ("torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl", False),
        ("torch-2.13.0-cp311-cp311-manylinux_2_28_aarch64.whl", False),
        ("torch-2.13.0-cp311-none-macosx_11_0_x86_64.whl", False),
    ],
)
def test_wheels_for_another_machine(machine, monkeypatch, wheel, fits):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    machine(versions={"torch": None}, wheels=[wheel])
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    assert [finding.what for finding in doctor.check() if finding.what == "wheels"] == ([] if fits else ["wheels"])


def test_wheels_are_no_matter_once_all_is_installed(machine):
    machine(wheels=["torch-2.13.0-cp39-cp39-win_amd64.whl"])
    assert doctor.main() == 0


def test_another_python_than_the_course_s_own(machine, tmp_path):
    machine(versions={"torch": None})
    (tmp_path / ".venv").mkdir()
    assert look("environment").steps.endswith("ask the course's own Python: .venv/bin/python -m course_lib.doctor.")


def test_another_python_that_has_everything(machine, tmp_path):
    machine()
    (tmp_path / ".venv").mkdir()
    assert "environment" not in {finding.what for finding in doctor.check()}


def test_offline_by_wish(machine, monkeypatch):
    machine()
    monkeypatch.setattr(tier, "offline_asked", lambda: True)
    monkeypatch.setattr(_hub, "reachable", lambda: 1 / 0)
    assert look("Hugging Face hub").found == "not asked"


def test_a_hub_that_never_answers_is_given_up(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are accepted, and that is all
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(tier, "_before", {})
        assert doctor._ask_hub() is False


def test_a_look_that_goes_wrong_is_a_finding(machine, monkeypatch, capsys):
    machine()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: 1 / 0)
    assert look("disk") == doctor.Finding(
        "note", "disk", "unknown", "could not be looked at (ZeroDivisionError: division by zero)"
    )
    assert doctor.main() == 0
    monkeypatch.setattr(doctor, "_needed", lambda: 1 / 0)
    assert doctor.main() == 1, "without knowing the packages, nothing can be promised"


def test_one_line_for_a_class(machine, monkeypatch, capsys):
    monkeypatch.setattr(platform, "node", lambda: "desk-17")
    machine()
    assert doctor.main(["--quiet"]) == 0
    assert capsys.readouterr().out == "desk-17: ok: the course will run\n"
    machine(versions={"torch": None}, disk=0.06)
    assert doctor.main(["--quiet"]) == 1
    assert capsys.readouterr().out == "desk-17: problem: torch missing; disk 0.1 GiB free\n"


@pytest.fixture
def bare(tmp_path):
    """A Python without any package but those linked into a folder, and a checkout of the course beside them."""
    shutil.copytree(ROOT / "course_lib", tmp_path / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(*packages, versions=None, environment=None, **fakes):
        for name in packages:
            source = Path(importlib.util.find_spec(name).origin).parent
            (tmp_path / name).symlink_to(source)
        for name, code in fakes.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code, encoding="utf-8")
            version = (versions or {}).get(name, "9.9")
            info = tmp_path / f"{name}-{version}.dist-info"
            info.mkdir()
            info.joinpath("METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
            )
        return subprocess.run(
            [sys._base_executable, "-S", "-m", "course_lib.doctor"],
            env={
                "PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1",
                **(environment or {}),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )  # fmt: skip

    return run


def test_nothing_is_installed_but_packaging(bare):
    run = bare("packaging")
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(r'^problem +torch +missing +pip install "torch>=2\.6"$', run.stdout, re.MULTILINE)
    missing = re.findall(r"^problem +(\S+) +missing", run.stdout, re.MULTILINE)
    assert set(missing) == {asked.name for asked in requirements()} - set(doctor.OPTIONAL)
    assert "does not load" not in run.stdout
    assert re.search(r"^note +memory +unknown +psutil would tell$", run.stdout, re.MULTILINE)
    assert re.search(r"^ok +disk +", run.stdout, re.MULTILINE)


def test_nothing_is_installed_at_all(bare):
    run = bare()
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(r"^problem +packaging +missing +.*pip install -r requirements.txt$", run.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "OSError: libcudart.so.12: cannot open"),
        ("raise SystemExit('no licence')", "no licence"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the signal SIGILL"),
    ],
)
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows ends processes in another way")
def test_a_torch_that_does_not_load(bare, code, said):
    run = bare("packaging", torch=code)
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(r"^ok +torch +9\.9 +>=2\.6$", run.stdout, re.MULTILINE)
    assert re.search(r"^problem +device +torch does not load +uninstall torch, then install", run.stdout, re.MULTILINE)
    assert f"- device: It said: {said}" in re.sub(r"\s+", " ", run.stdout).replace(
        "importing it ended the process with ", ""
    )


# As little of torch as the doctor looks at, with a GPU or without.
TORCH = """
from types import SimpleNamespace as Space
class device:
    def __init__(self, type): self.type = type
version = Space(cuda={cuda!r}, hip=None)
backends = Space(mps=Space(is_available=lambda: False))
def start(): raise RuntimeError("The NVIDIA driver is too old.\\nUpdate it.")
def ones(*shape, device): raise RuntimeError("CUDA error: device is busy")
cuda = Space(
    is_available=lambda: {available!r}, init=start, get_arch_list=lambda: ["sm_80"],
    get_device_properties=lambda _: Space(name="NVIDIA A100", total_memory=2**35, major=8, minor=0),
)
"""


def test_what_the_other_process_finds_out(bare, tmp_path, monkeypatch):
    fakes = {"torch": TORCH.format(cuda="12.8", available=False), "tokenizers": "1 / 0", "accelerate": ""}
    bare(versions={"accelerate": "1.99"}, **fakes)
    monkeypatch.setattr(sys, "executable", sys._base_executable)
    monkeypatch.setattr(_machine, "__file__", str(tmp_path / "course_lib" / "_machine.py"))
    facts = _machine.ask(["accelerate", "tokenizers", "nothing_like_it"])
    assert facts["torch"] == {**CPU, "cuda": "12.8", "trouble": "RuntimeError: The NVIDIA driver is too old."}
    assert facts["tier"] == {"name": "small", "device": "cpu", "why": "COURSE_TIER asks for it", "lost": False}
    assert facts["accelerate"] == {}
    assert facts["tokenizers"] == {"error": "ZeroDivisionError: division by zero"}
    assert facts["nothing_like_it"] == {"error": "ModuleNotFoundError: No module named 'nothing_like_it'"}


def test_a_gpu_that_cannot_compute(bare):
    run = bare("packaging", environment={"COURSE_TIER": "small"}, torch=TORCH.format(cuda="12.8", available=True))
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(r"^problem +device +NVIDIA A100 +torch finds it and cannot compute on it$", run.stdout, re.M)
    assert "torch said: RuntimeError: CUDA error: device is busy." in re.sub(r"\s+", " ", run.stdout)


def test_a_wrong_course_tier_is_a_problem(bare):
    run = bare("packaging", environment={"COURSE_TIER": "medium"}, torch=TORCH.format(cuda=None, available=False))
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(
        r"^problem +tier +unknown +COURSE_TIER is 'medium'; it must be small or full", run.stdout, re.MULTILINE
    )


def test_a_package_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(sys, "executable", sys._base_executable)  # no torch there: enough to be slow with
    assert _machine.ask([], seconds=0.001)["torch"] == {"slow": "not done after 0.001 seconds"}


def test_every_package_of_the_course_loads():
    """For real, in the environment of these tests: the names that are imported exist."""
    names = [asked.name for asked in requirements() if asked.name not in ("torch", "jupyterlab")]
    facts = _machine.ask(names, seconds=600)
    assert facts["torch"].keys() >= CPU.keys() and facts["tier"]["name"] == "small"
    assert {name: facts[name] for name in names} == {name: {} for name in names}


def test_no_machine_path_is_printed(tmp_path, monkeypatch, capsys):
    compiler = tmp_path / "my-c++"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CXX", str(compiler))
    doctor.report()
    said = capsys.readouterr().out
    assert re.search(r"^ok +C\+\+ compiler +my-c\+\+$", said, re.MULTILINE)
    assert not re.search(r"(?<![\w.:/])(/|~|[A-Z]:\\)\w", said)
