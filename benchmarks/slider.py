"""Measure how long a picture takes to follow its slider, in JupyterLab in a browser. `make slider` runs it.

From the page's `keydown` event until the new picture is decoded, so with everything between: widget, kernel, drawing,
PNG, and back. It takes about two minutes and writes `results/slider.md`.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]
RESULT = ROOT / "benchmarks" / "results" / "slider.md"
# The slider: lesson, label, key.
SLIDERS = (
    ("02_moving_averages", "fixed β", "ArrowLeft"),
    ("04_row_column_factorization", "one entry times", "ArrowRight"),
)
WARM_UP, MOVES = 3, 20
PACKAGES = ("jupyterlab", "ipywidgets", "matplotlib", "pillow", "torch")


def measure(lesson: str, label: str, key: str) -> list[float]:
    """Milliseconds of each of MOVES moves of one slider, after WARM_UP others."""
    import lab

    with tempfile.TemporaryDirectory() as folder, lab.start(Path(folder)) as running:
        with running.open(f"notebooks/{lesson}.ipynb") as notebook:
            notebook.run_all()
            control = notebook.control(label)
            notebook.watch(control)
            times = []
            for _ in range(WARM_UP + MOVES):
                times.append(notebook.press(control, key))
                notebook.page.wait_for_timeout(200)  # a learner looks; and nothing waits for the move before
            return times[WARM_UP:]


def table(measured: dict[tuple[str, str], list[float]], load: float) -> str:
    """The results as Markdown; `load` is how many processes wanted a core in the minute before."""
    import lab

    browser = subprocess.run([lab.executable(), "--version"], capture_output=True, text=True).stdout.strip()
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines = [
        "# From the slider to the picture",
        "",
        f"Written by `make slider` on {date.today()}, on {os.cpu_count()} cores. Load before it: {load:.1f}.",
        f"With {browser.partition(' built')[0]}, Python {platform.python_version()},",
        f"{versions}.",
        "",
        "| lesson | slider | moves | median, ms | quartiles, ms | longest, ms |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (lesson, label), times in measured.items():
        low, _, high = quantiles(times, n=4)
        numbers = f"{len(times)} | {median(times):.0f} | {low:.0f} to {high:.0f} | {max(times):.0f}"
        lines.append(f"| {lesson[:2]} | {label} | {numbers} |")
    lines += [
        "",
        "Measured in the page, in headless Chromium without a GPU, after the whole lesson has run: from `keydown` on",
        "the slider until the picture that answers it is decoded. Each move waits for the one before.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    import lab

    if reason := lab.missing():
        sys.exit(f"Nothing was measured: {reason}.")
    load = os.getloadavg()[0]
    measured = {(lesson, label): measure(lesson, label, key) for lesson, label, key in SLIDERS}
    text = table(measured, load)
    RESULT.write_text(text, encoding="utf-8", newline="\n")
    print(text)


if __name__ == "__main__":
    main()
