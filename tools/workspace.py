"""Make or update `work/`, the learner's own copy of notebooks and exercises. Nothing in it is ever overwritten.

It also asks the environment's JupyterLab to save controls with a notebook.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from course import ROOT

FOLDERS = ("notebooks", "exercises")
# Without it a notebook that was run, saved and opened again shows "model not found" in the place of each control.
SETTINGS = {"@jupyter-widgets/jupyterlab-manager:plugin": {"saveState": True}}


def update(root: Path) -> tuple[list[Path], list[Path]]:
    """Copy into `root/work` what is not there yet.

    Returns:
        The files that were added, and those that were kept although their cells differ from the course's, both
        relative to `root/work`. A copy that differs in outputs only counts as the same.
    """
    work = root / "work"
    added, kept = [], []
    for folder in FOLDERS:
        (work / folder).mkdir(parents=True, exist_ok=True)
        for original in sorted((root / folder).glob("*.ipynb")):
            copy = work / folder / original.name
            try:
                with copy.open("xb") as file:  # x: fails where a file exists, so that none can be lost
                    file.write(original.read_bytes())
                added.append(copy.relative_to(work))
            except FileExistsError:
                if sources(copy) != sources(original):
                    kept.append(copy.relative_to(work))
    return added, kept


def sources(path: Path) -> object:
    """What stands in the cells of a notebook, without outputs; of something else, its bytes."""
    data = path.read_bytes()
    try:
        return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(data)["cells"]]
    except (ValueError, KeyError, TypeError):
        return data


def report(added: list[Path], kept: list[Path]) -> str:
    """What was done, in words."""
    lines = [f"work/: {len(added)} new {'file' if len(added) == 1 else 'files'}."]
    if kept:
        lines.append("Your copy of these differs from the course's, and was kept:")
        lines += [f"  work/{path.as_posix()}" for path in kept]
        lines.append("To get the course's version of one, rename or delete your copy and run this again.")
    return "\n".join(lines)


def keep_controls(environment: Path) -> None:
    """Let the JupyterLab of a virtual environment save the controls in a notebook; its other defaults stay."""
    path = environment / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known | SETTINGS, indent=1) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if sys.prefix != sys.base_prefix:
        keep_controls(Path(sys.prefix))
    print(report(*update(ROOT)))
