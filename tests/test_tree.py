"""What is in the repository: known places only, readable everywhere, nothing of the machine it was made on."""

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import checks
import course as course_list
import pictures
from course import ROOT

FILES = {
    ".gitignore",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    "requirements-dev.txt",
    "requirements.txt",
}
# Folders, and what files in them end in.
FOLDERS = {
    ".ci": {"run"},
    "benchmarks": {".py", ".md", ".json", ".csv"},
    "course_lib": {".py", ".json"},
    "exercises": {".ipynb", ".md"},
    "images": {".png", ".svg"},
    "notebooks": {".ipynb"},
    "sheets": {".pdf"},
    "solutions": {".ipynb"},
    "sources": {".py", ".yaml"},
    "tests": {".py"},
    "tools": {".py"},
}


@pytest.fixture(scope="module")
def files() -> list[Path]:
    """Everything that is committed or would be, relative to the repository's root."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        pytest.skip(f"this is no git checkout: {done.stderr.strip()}")
    return [path for name in done.stdout.split("\0") if name and (ROOT / (path := Path(name))).exists()]


def test_every_file_has_its_place(files):
    def known(path):
        if len(path.parts) == 1:
            return path.name in FILES
        return (path.suffix or path.name) in FOLDERS.get(path.parts[0], ())

    assert [str(path) for path in files if not known(path)] == []


def test_generated_folders_hold_what_is_generated():
    course = course_list.load()
    lessons = {course.notebook(lesson) for lesson in course.lessons}
    images = {course.picture(lesson) for lesson in course.lessons}
    images |= {ROOT / "images" / f"{name}.svg" for name in pictures.drawn()}
    sources = {course.source(lesson) for lesson in course.lessons}
    assert {path for path in (ROOT / "notebooks").glob("*.ipynb")} - lessons == {course.glossary}
    assert set((ROOT / "images").glob("*")) <= images
    assert set((ROOT / "sources" / "lessons").glob("*")) <= sources


def test_every_text_is_utf8_and_free_of_this_machine(files):
    for path in files:
        if path.suffix in (".pdf", ".png"):
            continue
        text = (ROOT / path).read_bytes().decode("utf-8")  # raises, with the place, on anything else
        assert "\r" not in text, f"{path} has Windows line ends"
        if path.suffix == ".ipynb":
            continue  # its pictures are long random texts; its own test looks at the rest
        for number, line in enumerate(text.splitlines(), start=1):
            found = checks.MACHINE_PATH.search(line) or "local" + "host" in line
            assert not found or line.startswith("#!"), f"{path}:{number}: {line.strip()[:120]}"


def test_constraints_name_one_version_that_requirements_allow():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines)
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    for file in ("requirements.txt", "requirements-dev.txt"):
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                wanted = Requirement(line)
                assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), line
