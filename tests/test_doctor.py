"""The doctor on machines that lack something: what it says, whether the course will run, what to do."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from course_lib import _hub, doctor, tier

ROOT = Path(__file__).parents[1]
GIB = 2**30


def requirements() -> list[Requirement]:
    """What requirements.txt asks for on this machine."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    asked = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return [one for one in asked if not one.marker or one.marker.evaluate()]


@pytest.fixture
def machine(monkeypatch):
    """A machine on which all is well but for what is given: versions of packages (None: missing), resources."""
    real_version, real_which = metadata.version, shutil.which

    def pretend(versions=None, reachable=True, disk=50.0, memory=8.0, commands=("c++",), cuda=False, mps=False):
        def version(name):
            found = (versions or {}).get(name, real_version(name) if name != "torchvision" else None)
            if found is None:
                raise metadata.PackageNotFoundError(name)
            return found

        def which(name, *rest, **more):
            known = {"c++", "g++", "clang++", "cl", "nvidia-smi"}
            return (name if name in commands else None) if name in known else real_which(name, *rest, **more)

        usage = namedtuple("usage", "total used free")(100 * GIB, 0, int(disk * GIB))
        ram = namedtuple("svmem", "total available")(16 * GIB, int(memory * GIB))
        monkeypatch.setattr(metadata, "version", version)
        monkeypatch.setattr(shutil, "which", which)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        monkeypatch.setattr("psutil.virtual_memory", lambda: ram)
        monkeypatch.setattr(_hub, "reachable", lambda: reachable)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(doctor, "_loads", lambda _: False)
        monkeypatch.setattr(tier, "offline_asked", lambda: False)

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
    assert look(package) == doctor.Finding(status, package, version or "missing", advice)
    assert doctor.main() == (status == "problem")


def test_python_too_old(machine, monkeypatch):
    machine()
    monkeypatch.setattr(sys, "version_info", (3, 10, 14, "final", 0))
    assert look("Python") == doctor.Finding("problem", "Python", "3.10.14", "make an environment with Python >=3.11")


@pytest.mark.parametrize(
    ("here", "what", "status", "found", "word"),
    [
        ({"reachable": False}, "Hugging Face hub", "note", "not reachable", "small tier needs none"),
        ({"disk": 0.06}, "disk", "problem", "0.1 GiB free", "make room"),
        ({"disk": 1.5}, "disk", "note", "1.5 GiB free", "270 MB"),
        ({"disk": 2.5}, "disk", "ok", "2.5 GiB free", ""),
        ({"memory": 1.5}, "memory", "note", "1.5 of 16.0 GiB free", "close other programs"),
        ({"memory": 2.5}, "memory", "ok", "2.5 of 16.0 GiB free", ""),
        ({"commands": ()}, "C++ compiler", "note", "none", "torch.compile"),
        ({"commands": ("cl",)}, "C++ compiler", "ok", "cl", ""),
        ({"commands": ("c++", "nvidia-smi")}, "device", "note", "CPU", "without CUDA"),
        ({"mps": True}, "device", "ok", "CPU", "COURSE_DEVICE=mps"),
        ({}, "tier", "ok", "small, on cpu", "COURSE_TIER asks for it"),
        ({"versions": {"torchvision": "0.1"}}, "torchvision", "problem", "0.1", "uninstall it"),
    ],
)
def test_resources(machine, here, what, status, found, word):
    machine(**here)
    finding = look(what)
    assert (finding.status, finding.found) == (status, found) and word in finding.advice
    assert doctor.main() == (status == "problem")


def test_a_gpu_is_named(machine, monkeypatch):
    machine(cuda=True)
    gpu = namedtuple("properties", "name total_memory")("NVIDIA L4", 22 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    tier._decide.cache_clear()
    assert look("device") == doctor.Finding("ok", "device", "NVIDIA L4", "22 GiB")
    assert look("tier").found == "small, on cuda"
    tier._decide.cache_clear()


def test_offline_by_wish(machine, monkeypatch):
    machine()
    monkeypatch.setattr(tier, "offline_asked", lambda: True)
    monkeypatch.setattr(_hub, "reachable", lambda: 1 / 0)
    assert look("Hugging Face hub").found == "not asked"


def test_a_wrong_course_tier_is_a_problem(machine, monkeypatch, capsys):
    machine()
    monkeypatch.setenv("COURSE_TIER", "medium")
    assert doctor.main() == 1
    said = capsys.readouterr().out
    assert "COURSE_TIER is 'medium'; it must be small or full" in said
    assert said.endswith("\nNot ready yet: 1 to solve, marked as problem above.\n")


def test_torchvision_is_tried_in_a_process_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "works.py").write_text("", encoding="utf-8")
    (tmp_path / "breaks.py").write_text("raise RuntimeError('torchvision::nms does not exist')", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert doctor._loads("works") and not doctor._loads("breaks")
    assert not {"works", "breaks"} & set(sys.modules)


@pytest.fixture
def bare(tmp_path):
    """A Python without any package but those linked into a folder, and a checkout of the course beside them."""
    shutil.copytree(ROOT / "course_lib", tmp_path / "course_lib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", tmp_path)

    def run(*packages, **fakes):
        for name in packages:
            source = Path(importlib.util.find_spec(name).origin).parent
            (tmp_path / name).symlink_to(source)
        for name, code in fakes.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(code, encoding="utf-8")
            info = tmp_path / f"{name}-9.9.dist-info"
            info.mkdir()
            info.joinpath("METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n", encoding="utf-8"
            )
        return subprocess.run(
            [sys._base_executable, "-S", "-m", "course_lib.doctor"],
            env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "PYTHONUTF8": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )

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


def test_a_torch_that_does_not_load(bare):
    run = bare("packaging", torch="raise OSError('libcudart.so.12: cannot open shared object file')")
    assert (run.returncode, run.stderr) == (1, "")
    assert re.search(r"^ok +torch +9\.9 +>=2\.6$", run.stdout, re.MULTILINE)
    assert re.search(r"^problem +device +torch does not load +uninstall torch, then install", run.stdout, re.MULTILINE)


def test_no_machine_path_is_printed(tmp_path, monkeypatch, capsys):
    compiler = tmp_path / "my-c++"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("CXX", str(compiler))
    doctor.report()
    said = capsys.readouterr().out
    assert re.search(r"^ok +C\+\+ compiler +my-c\+\+$", said, re.MULTILINE)
    assert not re.search(r"(?<![\w.])(/|~|[A-Z]:\\)\w", said)
