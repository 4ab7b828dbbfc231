"""The bundle for a class without a network: what is in it, and that it installs and runs with the network cut off.

That last takes minutes and some gigabytes of disk: `make test-bundle`.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from nbval_run import cut_off
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bundle
import checks
import course as course_list
from course import ROOT, CourseError

REQUIREMENTS = "# what a learner needs\nsomething>=1\n"


def wheel(folder: Path, name: str, version: str) -> Path:
    """A package with nothing in it, as pip takes it."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_inside, text in files.items():
            archive.writestr(name_inside, text)
    return path


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course of a few files in a git repository, and a shop of its own where pip finds packages."""
    root, shop = tmp_path / "course", tmp_path / "shop"
    for name, text in {
        "requirements.txt": REQUIREMENTS,
        "constraints.txt": "something==1.1\nsetuptools==99.0\n",
        "README.md": "# The course\n",
        "notebooks/00_first.ipynb": "{}",
        ".gitignore": "work/\n",
        "work/notebooks/mine.ipynb": "mine",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    for name, version in (("something", "1.1"), ("something", "1.2"), ("setuptools", "99.0")):
        wheel(shop, name, version)
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    return root


def contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


COURSE = {".gitignore", "README.md", "constraints.txt", "notebooks/00_first.ipynb", "requirements.txt"}
WHEELS = {"wheels/setuptools-99.0-py3-none-any.whl", "wheels/something-1.1-py3-none-any.whl"}


def test_it_holds_the_course_and_the_pinned_packages(course, tmp_path):
    folder = tmp_path / "bundle"
    bundle.make(course, folder)
    assert contents(folder) == COURSE | WHEELS | {"OFFLINE.md"}
    assert (folder / "requirements.txt").read_bytes() == REQUIREMENTS.encode()
    note = (folder / "OFFLINE.md").read_text(encoding="utf-8")
    assert f"**Python {sys.version_info[0]}.{sys.version_info[1]} on " in note and "2 files, 0 MB" in note
    assert str(tmp_path) not in note and not checks.MACHINE_PATH.search(note)


def test_it_is_brought_up_to_date(course, tmp_path):
    folder = tmp_path / "bundle"
    bundle.make(course, folder)
    (course / "notebooks" / "00_first.ipynb").rename(course / "notebooks" / "00_renamed.ipynb")
    (course / "constraints.txt").write_text("something==1.2\nsetuptools==99.0\n", encoding="utf-8")
    bundle.make(course, folder)
    assert {name for name in contents(folder) if "first" in name or "1.1" in name} == set()
    assert {"notebooks/00_renamed.ipynb", "wheels/something-1.2-py3-none-any.whl"} < contents(folder)


@pytest.mark.parametrize("there", ["letter.txt", "OFFLINE.md work/notebooks/mine.ipynb", "OFFLINE.md .venv/pyvenv.cfg"])
def test_what_is_not_its_own_is_left_alone(course, tmp_path, there):
    folder = tmp_path / "bundle"
    for name in there.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine", encoding="utf-8")
    with pytest.raises(CourseError, match="another folder|does not exist yet"):
        bundle.make(course, folder)
    assert contents(folder) == set(there.split())


def test_a_missing_package_is_said(course, tmp_path):
    (course / "constraints.txt").write_text("something==3\n", encoding="utf-8")
    with pytest.raises(CourseError, match="could not fetch every package"):
        bundle.make(course, tmp_path / "bundle")
    assert "not finished" in (tmp_path / "bundle" / "OFFLINE.md").read_text(encoding="utf-8")


def test_packages_that_do_not_suffice_are_found(course, tmp_path, monkeypatch):
    real = subprocess.run

    def forget(command, **more):
        done = real(command, **more)
        if "wheel" in command:
            next((tmp_path / "bundle" / "wheels").glob("something-*")).unlink()
        return done

    monkeypatch.setattr(subprocess, "run", forget)
    with pytest.raises(CourseError, match="do not suffice"):
        bundle.make(course, tmp_path / "bundle")


def test_without_git_it_says_so(course, tmp_path):
    shutil.rmtree(course / ".git")
    with pytest.raises(CourseError, match="needs git"):
        bundle.course_files(course)


def test_what_the_course_puts_in():
    try:
        files = {path.as_posix() for path in bundle.course_files(ROOT)}
    except CourseError as error:
        pytest.skip(str(error))
    course = course_list.load()
    wanted = {course.notebook(lesson).relative_to(ROOT).as_posix() for lesson in course.written}
    wanted |= {"Makefile", "README.md", "requirements.txt", "constraints.txt", "pyproject.toml", "course_lib/doctor.py"}
    assert wanted <= files
    assert not [name for name in files if re.match(r"(work|dist|\.venv|wheels|\.git)/", name)]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@pytest.mark.parametrize("bundled", [False, True])
def test_make_takes_packages_from_the_folder_beside_it(tmp_path, bundled):
    for name in ("Makefile", "requirements.txt", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    if bundled:
        (tmp_path / "wheels").mkdir()
    said = subprocess.run(["make", "-n", "lab"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True).stdout
    installs = [line for line in said.splitlines() if " pip " in line and " install " in line]
    assert len(installs) == 2
    assert all((f" install {bundle.FROM_WHEELS} " in line) == bundled for line in installs)


def test_the_lines_for_windows_are_those_of_readme():
    """But for the options with which pip finds the wheels, and the Python they are for."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (here,) = re.findall(r"```powershell\n(.*?)```", readme, re.DOTALL)
    (there,) = re.findall(r"```powershell\n(.*?)```", bundle.note(ROOT), re.DOTALL)
    python = f"py -{sys.version_info[0]}.{sys.version_info[1]}"
    assert there.replace(f"{bundle.FROM_WHEELS} ", "").replace(python, "py -3") == here


def imported(name: str, seen: set[str]) -> set[str]:
    """What a module of `tools/` or `benchmarks/` imports as it is loaded, and what its imports there do."""
    path = next((path for folder in ("tools", "benchmarks") if (path := ROOT / folder / f"{name}.py").exists()), None)
    if path is None or name in seen:
        return {name}
    seen.add(name)
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {one for module in names for one in imported(module.partition(".")[0], seen)}
    return found


def listed(name: str) -> list[str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def with_what_they_need(lines: list[str]) -> set[str]:
    """The packages that these lines ask for, and those that come with them."""
    found, waiting = set(), list(lines)
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and (not requirement.marker or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            waiting += metadata.requires(name) or []
    return found


def test_what_learners_run_needs_no_maintainer_s_package():
    """`make lab`, `make run` and others install only requirements.txt."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^\w[\w-]*: \.venv/learner.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    scripts = {name for rule in rules for name in re.findall(r"(?:tools|benchmarks)/(\w+)\.py", rule)}
    assert {"workspace", "run", "bundle"} <= scripts
    learners = with_what_they_need(listed("requirements.txt"))
    maintainers = {name for name in map(canonicalize_name, listed("requirements-dev.txt")) if name not in learners}
    assert {"jupytext", "pytest"} <= maintainers
    assert {name: imported(name, set()) & maintainers for name in scripts} == dict.fromkeys(scripts, set())


# In the bundle's folder, without a network: install, fetch the page of JupyterLab, run a lesson.
ALONE = r"""
import os, signal, subprocess, sys, time, urllib.request
port = "18731"
flags = f"--no-browser --port={port} --IdentityProvider.token=''"
lab = subprocess.Popen(["make", "lab", f"PYTHON={sys.argv[1]}", f"LAB_FLAGS={flags}"], start_new_session=True)
start = time.monotonic()
page = ""
while lab.poll() is None and not page:
    time.sleep(1)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/lab/tree/notebooks/00_start_here.ipynb") as response:
            page = response.read().decode()
    except OSError:
        pass
print("page after", round(time.monotonic() - start), "s", flush=True)
if lab.poll() is None:
    os.killpg(lab.pid, signal.SIGINT)
    time.sleep(1)
    os.killpg(lab.pid, signal.SIGKILL)
assert "JupyterLab" in page, page[:500]
subprocess.run(["make", "run", "LESSON=00"], check=True)
subprocess.run([".venv/bin/python", "-m", "course_lib.doctor", "--quiet"], check=True)
print("all done in", round(time.monotonic() - start), "s")
"""


@pytest.mark.skipif("COURSE_TEST_BUNDLE" not in os.environ, reason="takes minutes and gigabytes: make test-bundle")
def test_it_installs_and_runs_without_a_network(tmp_path):
    prefix, reason = cut_off()
    assert prefix, reason
    made = Path(os.environ.get("COURSE_TEST_BUNDLE_FOLDER") or tmp_path / "made")
    if not made.exists():
        bundle.make(ROOT, made)
    shutil.make_archive(str(tmp_path / "course"), "zip", made)
    there = tmp_path / "another machine" / "the course"
    there.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        archive.extractall(there)
    for path in there.rglob("*"):
        if path.is_file() and path.suffix in (".md", ".txt", ".toml", ".py"):
            assert str(ROOT) not in path.read_text(encoding="utf-8"), path
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PIP_CONFIG_FILE": os.devnull}
    run = subprocess.Popen(
        [*prefix, sys.executable, "-c", ALONE, sys._base_executable],
        cwd=there, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = run.communicate(timeout=1200)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
    print(printed)
    assert run.returncode == 0, printed[-5000:]
    assert re.search(r"^00 · Start here +.*passed$", printed, re.MULTILINE)
    assert ": ok: the course will run\n" in printed
