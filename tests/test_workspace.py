"""The learner's copy: filled, brought up to date, never overwritten."""

import json
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_output

import notebook
import workspace


@pytest.fixture
def root(tmp_path):
    for name in ("notebooks/00_first", "notebooks/01_second", "exercises/01_second"):
        save(tmp_path / f"{name}.ipynb", name)
    return tmp_path


def save(path, source, printed="stored"):
    path.parent.mkdir(parents=True, exist_ok=True)
    output = new_output("stream", text=printed)
    text = notebook.text(notebook.assemble([new_code_cell(source, outputs=[output])]))
    path.write_text(text, encoding="utf-8")
    return text


def test_a_new_copy_has_everything(root):
    added, kept = workspace.update(root)
    assert added == [
        Path("notebooks/00_first.ipynb"),
        Path("notebooks/01_second.ipynb"),
        Path("exercises/01_second.ipynb"),
    ]
    assert kept == []
    for path in added:
        assert (root / "work" / path).read_bytes() == (root / path).read_bytes()
    assert workspace.update(root) == ([], [])


def test_new_files_are_added_and_changed_ones_kept_and_named(root):
    workspace.update(root)
    mine = root / "work" / "notebooks" / "01_second.ipynb"
    changed = save(mine, "my own answer")
    save(root / "notebooks" / "02_third.ipynb", "third")
    added, kept = workspace.update(root)
    assert (added, kept) == ([Path("notebooks/02_third.ipynb")], [Path("notebooks/01_second.ipynb")])
    assert mine.read_text(encoding="utf-8") == changed
    said = workspace.report(added, kept)
    assert "1 new file." in said and "work/notebooks/01_second.ipynb" in said and "rename or delete" in said


def test_other_outputs_are_kept_silently(root):
    workspace.update(root)
    mine = root / "work" / "notebooks" / "00_first.ipynb"
    rerun = save(mine, "notebooks/00_first", printed="my run")
    assert workspace.update(root) == ([], [])
    assert mine.read_text(encoding="utf-8") == rerun


def test_a_change_of_the_course_leaves_the_copy_alone(root):
    workspace.update(root)
    mine = root / "work" / "notebooks" / "00_first.ipynb"
    before = mine.read_bytes()
    save(root / "notebooks" / "00_first.ipynb", "a new version")
    assert workspace.update(root) == ([], [Path("notebooks/00_first.ipynb")])
    assert mine.read_bytes() == before


@pytest.mark.parametrize("broken", [b"", b"{}", b"[]", b"{ half a notebo", b'{"cells": [1]}', b"\xff"])
def test_a_broken_copy_is_kept_too(root, broken):
    workspace.update(root)
    mine = root / "work" / "notebooks" / "00_first.ipynb"
    mine.write_bytes(broken)
    assert workspace.update(root) == ([], [Path("notebooks/00_first.ipynb")])
    assert mine.read_bytes() == broken


def test_the_report_is_short_when_nothing_differs():
    assert workspace.report([], []) == "work/: 0 new files."


def test_jupyterlab_is_asked_to_save_controls_and_keeps_its_other_defaults(tmp_path):
    asked = {"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True}}
    path = tmp_path / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    workspace.keep_controls(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == asked
    path.write_text('{"another:plugin": {"a": 1}}', encoding="utf-8")
    workspace.keep_controls(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"another:plugin": {"a": 1}, **asked}
