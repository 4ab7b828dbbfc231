"""On machines whose terminal knows no UTF-8, and on Windows: nothing crashes, and files are the same everywhere."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bundle
import checks
import course as course_list
import notebook
from course import ROOT, CourseError
from course_lib import launch

COURSE = course_list.load()
PLAIN = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
# The C locale, in which Python takes ASCII for everything; and a pipe of Windows, where files are taken for ASCII, too.
LOCALES = {"C": PLAIN, "Windows": {**PLAIN, "PYTHONIOENCODING": "cp1252"}}
# What a learner and a maintainer run outside notebooks, without what takes long.
PROGRAM = r"""
import sys
from pathlib import Path
sys.path.insert(0, "tools")
import codecs, locale
assert codecs.lookup(locale.getpreferredencoding(False)).name == "ascii", "this is no C locale"

from course_lib import check, doctor, tier
check.ema(lambda values, beta: values)
check.ema.hint()
check.ema.solution()
check.progress("ema", "rmsprop_step")
tier.current()
doctor._facts = lambda packages: {"torch": {"error": "OSError: \u2717 \u2192"}}
assert doctor.main() == 1
sys.stdout.reconfigure(errors="strict")  # as it was before the doctor

import build
import course as course_list
import workspace
from course import ROOT, CourseError
build.build(ROOT, ["04"], run=False)
there = Path(sys.argv[1])
print(workspace.report(*workspace.update(there)))
print(workspace.report(*workspace.update(there)))

import run
def fail(course, lesson):
    raise CourseError(f"{lesson.label}: \u2717 \u2192 \u03b2\u2082")
run.run_lesson = fail
assert len(run.run(course_list.load(), course_list.load().lessons[:2])) == 2
print("reached the end")
"""


@pytest.mark.parametrize("name", LOCALES)
def test_everything_outside_notebooks_runs_in_every_locale(name, tmp_path):
    for folder in ("notebooks", "exercises"):
        (tmp_path / folder).mkdir()
        stored = next((ROOT / folder).glob("04_*.ipynb"))
        (tmp_path / folder / stored.name).write_bytes(stored.read_bytes())
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT, env={**plain, "HF_HUB_OFFLINE": "1", **LOCALES[name]}, capture_output=True, timeout=300,
    )  # fmt: skip
    printed = done.stdout.decode("cp1252" if name == "Windows" else "ascii")
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert printed.replace("\r", "").endswith("reached the end\n")
    assert "work/: 2 new files." in printed and "work/: 0 new files." in printed
    assert re.search(r"^00 . Start here .*FAILED", printed, re.MULTILINE)
    assert re.search(r"^\? Not right yet", printed, re.MULTILINE), "the words say what the symbol would"
    assert "It said: OSError: ? ?" in printed


def printed_words(path: Path):
    """Each string in a call of print."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "print":
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@pytest.mark.parametrize("name", ["distributed_loop", "sharded_step", "doctor", "tier", "_machine", "_task_mrpc"])
def test_scripts_of_the_library_print_what_every_terminal_has(name):
    words = list(printed_words(ROOT / "course_lib" / f"{name}.py"))
    assert [word for word in words if not word.isascii()] == []


def sources():
    for folder in ("tools", "course_lib", "benchmarks"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_files_are_written_with_the_same_line_ends_everywhere():
    """A text is written with ``newline=``: Windows would end its lines in another way."""
    careless = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            modes = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            text = name == "write_text" or (name in ("open", "fdopen") and any(m in ("w", "a", "x") for m in modes))
            if text and "newline" not in {keyword.arg for keyword in node.keywords}:
                careless.append(f"{path.name}: {ast.unparse(node.func)}")
    passing = {"colab.py: constraints.write_text"}  # for pip on this machine, and gone after that
    assert set(careless) - passing == set()


# Names that Windows keeps for devices, whatever their suffix, and characters that it refuses (Microsoft, "Naming Files,
# Paths, and Namespaces").
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
REFUSED = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$')
# Of the 260 characters that a path may have there, so many are left to the folder in which the course lies.
LONGEST = 100


def acceptable(name: str) -> bool:
    parts = name.split("/")
    return len(name) <= LONGEST and not any(RESERVED.fullmatch(part) or REFUSED.search(part) for part in parts)


@pytest.mark.parametrize("name", ["aux.py", "a/CON", "a:b", "a?.md", "folder./x", "end ", "a\\b", "x" * 101])
def test_names_that_windows_refuses_are_found(name):
    assert not acceptable(name)


def test_windows_can_hold_every_file():
    try:
        names = [path.as_posix() for path in bundle.course_files(ROOT)]
    except CourseError as error:
        pytest.skip(str(error))
    assert len(names) > 200
    assert [name for name in names if not acceptable(name)] == []
    assert len({name.casefold() for name in names}) == len(names), "two names that Windows and macOS hold for the same"


LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:href|src)=\"([^\"]+)\"")


def texts():
    yield "README.md", (ROOT / "README.md").read_text(encoding="utf-8")
    for folder in ("notebooks", "exercises", "solutions"):
        for path in sorted((ROOT / folder).glob("*.ipynb")):
            cells = notebook.read(path).cells
            yield path.stem, "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_links_are_those_of_the_web():
    found = [(name, one or other) for name, text in texts() for one, other in LINK.findall(text)]
    assert len(found) > 100
    assert [(name, link) for name, link in found if "\\" in link or re.match(r"[A-Za-z]:(?!//)|/", link)] == []


def test_paths_that_are_printed_or_stored_have_slashes():
    """``str`` of a path has backslashes on Windows: what is shown or written goes through ``as_posix``."""
    careless = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and "relative_to(" in (code := ast.unparse(node.value)):
                if "as_posix" not in code:
                    careless.append(f"{path.name}: {code}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.sep", "os.path.sep"):
                careless.append(f"{path.name}: {ast.unparse(node)}")
    assert careless == []


def test_the_lines_for_windows_name_files_that_are_there():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```powershell\n(.*?)```", readme, re.DOTALL)
    assert not checks.MACHINE_PATH.search(lines)
    for name in re.findall(r"(?<= )[\w\\]+\.(?:py|txt)\b", lines):
        assert (ROOT / name.replace("\\", "/")).is_file(), name
    shown = re.search(r"lab/tree/(\S+)", lines)[1]
    assert (ROOT / shown).is_file()


def test_processes_are_started_on_windows_too(monkeypatch):
    """No loopback by a name of Linux or macOS, and PyTorch's builds for Windows come without libuv."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr("socket.if_nameindex", lambda: [(1, "ethernet_32768"), (2, "loopback_0")])
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    variables = launch._environment()
    assert variables["USE_LIBUV"] == "0" and "GLOO_SOCKET_IFNAME" not in variables
    assert variables["PYTHONIOENCODING"] == "utf-8"
    monkeypatch.setattr(sys, "platform", "linux")
    assert "USE_LIBUV" not in launch._environment()
