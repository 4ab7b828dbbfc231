"""Time the steps of optimizers side by side, on several sets of parameters. `make bench` runs it: some minutes.

It writes `results/steps.csv`, `results/steps.md` and the picture `results/steps.svg`.
"""

from __future__ import annotations

import argparse
import csv
import gc
import io
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch.nn import Parameter

from _common import MIB, ROOT, timm_adafactor, write
from course_lib import figures, memory, meter, step_needs, step_time, tasks
from course_lib.adafactor import Adafactor
from course_lib.figures import COLORS
from course_lib.step_needs import ADAMW_8BIT, FOREACH, FUSED, OURS, TORCH, TRANSFORMERS

WHOLE = "Adafactor, ours, whole matrices"
OURS_SCALED, TRANSFORMERS_SCALED = "Adafactor, ours, its defaults", "Adafactor, transformers, its defaults"
TIMM = "Adafactor, timm"  # measured where it is installed
STREAM = "stream"
PASSES = step_time.PASSES | {
    WHOLE: step_time.ADAFACTOR_PASSES,
    TIMM: step_time.ADAFACTOR_PASSES,
    OURS_SCALED: step_time.SCALED_ADAFACTOR_PASSES,
    TRANSFORMERS_SCALED: step_time.SCALED_ADAFACTOR_PASSES,
}
NAMES = (FUSED, OURS, WHOLE, TRANSFORMERS, OURS_SCALED, TRANSFORMERS_SCALED, TORCH, FOREACH, ADAMW_8BIT)
EIGHT_BIT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROUNDS = 15
SECONDS = 60.0  # for one set of parameters; no round begins after that
SIDES = tuple(2**k for k in range(5, 14))  # of the square matrices that show how the time grows
COLOR = {FUSED: COLORS["adamw"], OURS: COLORS["adafactor"], TRANSFORMERS: COLORS["row"], FOREACH: COLORS["col"]}


@dataclass(frozen=True)
class Row:
    """What one optimizer needs for one set of parameters.

    Attributes:
        parameters: of the set, as a name.
        optimizer: one of ``NAMES``.
        numbers: how many parameters.
        seconds, quartiles: of a step: the median, and a quarter and three quarters of the rounds.
        ratio: the median over that of fused AdamW.
        floor: the least time for its passes over memory, from the bandwidth in the same rounds; in seconds.
        state, added: bytes between steps, and on top of that within one.
    """

    parameters: str
    optimizer: str
    numbers: int
    seconds: float
    quartiles: tuple[float, float]
    ratio: float
    floor: float
    state: int
    added: int


def distilbert() -> list[Parameter]:
    """The tensors of DistilBERT."""
    return list(tasks.distilbert().parameters())


def small_tensors() -> list[Parameter]:
    """4,000 small matrices and vectors of six shapes: the overhead of a tensor decides."""
    shapes = ((32, 32), (64, 16), (8, 128), (32,), (128,), (1, 64))
    return [Parameter(torch.randn(shapes[i % len(shapes)])) for i in range(4_000)]


def embedding() -> list[Parameter]:
    """One embedding of 250,000 tokens and a width of 256."""
    return [Parameter(torch.randn(250_000, 256))]


def large_layer() -> list[Parameter]:
    """One layer of a model of 7 billion parameters: attention of width 4,096, a feed-forward part of 11,008."""
    shapes = [(4096, 4096)] * 4 + [(11008, 4096)] * 2 + [(4096, 11008), (4096,), (4096,)]
    return [Parameter(torch.randn(shape) * 0.02) for shape in shapes]


def convolutions() -> list[Parameter]:
    """Weights of four axes: windows of 7 × 7, 3 × 3 and 1 × 1."""
    shapes = [(64, 3, 7, 7), (256, 256, 3, 3), (512, 512, 3, 3), (512, 512, 3, 3), (2048, 512, 1, 1)]
    return [Parameter(torch.randn(shape) * 0.02) for shape in shapes]


def cast(make: Callable[[], list[Parameter]], dtype: torch.dtype) -> Callable[[], list[Parameter]]:
    """The same parameters in another dtype."""
    return lambda: [Parameter(p.detach().to(dtype)) for p in make()]


SETS: dict[str, Callable[[], list[Parameter]]] = {
    "DistilBERT": distilbert,
    "DistilBERT in bf16": cast(distilbert, torch.bfloat16),
    "DistilBERT in fp16": cast(distilbert, torch.float16),
    "a layer of a 7 B model": large_layer,
    "one large embedding": embedding,
    "4,000 small tensors": small_tensors,
    "convolutions": convolutions,
}


def optimizer(name: str, parameters: list[Parameter]) -> torch.optim.Optimizer:
    """One of ``NAMES``. Rates are so small that the parameters stay what they are."""
    from transformers.optimization import Adafactor as Theirs

    if name == TIMM:
        return timm_adafactor()(parameters, lr=step_needs.RATE)
    if name == OURS_SCALED:
        return Adafactor(parameters)
    if name == TRANSFORMERS_SCALED:
        return Theirs(parameters)
    made = step_needs.make(OURS if name == WHOLE else name, parameters)
    if name == WHOLE:
        made.block_size = None
    return made


def measure(title: str, make: Callable[[], list[Parameter]], names: Sequence[str], rounds: int) -> list[Row]:
    """Time every optimizer on one set of parameters, all in turns, with the bandwidth among them."""
    torch.manual_seed(0)
    parameters = make()
    for p in parameters:
        p.grad = torch.randn_like(p) * 1e-3
    numbers, width = sum(p.numel() for p in parameters), parameters[0].element_size()
    optimizers = {name: optimizer(name, parameters) for name in names}
    stream = step_time.Stream(min(2**26, max(2**20, numbers)))
    functions = {name: made.step for name, made in optimizers.items()} | {STREAM: stream}
    timings = step_time.in_turns(functions, rounds, limit=SECONDS)
    bandwidth = stream.bytes / timings[STREAM].median
    rows = []
    for name, made in optimizers.items():
        holder = torch.nn.ParameterList(parameters)
        with meter.measure(holder, made) as usage:
            made.step()
        rows.append(
            Row(
                title,
                name,
                numbers,
                timings[name].median,
                timings[name].quartiles,
                timings[name].median / timings[FUSED].median,
                step_time.floor_seconds(numbers, PASSES[name], bandwidth, width),
                memory.state_size(made).bytes,
                usage.added,
            )
        )
    return rows


def measure_all(sets: Mapping[str, Callable[[], list[Parameter]]], rounds: int) -> list[Row]:
    """All sets of parameters, one after the other."""
    rows = []
    names = (*NAMES, TIMM) if timm_adafactor() else NAMES
    for title, make in sets.items():
        print(f"{title} …", flush=True)
        rows += measure(title, make, names, rounds)
        gc.collect()
    return rows


def growth(sides: Sequence[int], rounds: int) -> list[Row]:
    """Square matrices of growing side."""
    rows = []
    for side in sides:
        print(f"{side} × {side} …", flush=True)
        rows += measure(str(side), lambda side=side: [Parameter(torch.randn(side, side))], tuple(COLOR), rounds)
        gc.collect()
    return rows


def about() -> dict[str, Any]:
    """When, where and with what."""
    timm = ("timm",) if timm_adafactor() else ()
    return {
        "date": date.today().isoformat(),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "bitsandbytes", *timm)),
        "python": platform.python_version(),
        "processor": f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
    }


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each optimizer and set."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    heads = "parameters,optimizer,numbers,ms,ms_low,ms_high,ratio,floor_ms,state_bytes,added_bytes"
    writer.writerow(heads.split(","))
    for row in rows:
        times = (row.seconds, *row.quartiles)
        writer.writerow(
            [
                row.parameters,
                row.optimizer,
                row.numbers,
                *(f"{1e3 * seconds:.3f}" for seconds in times),
                f"{row.ratio:.3f}",
                f"{1e3 * row.floor:.3f}",
                row.state,
                row.added,
            ]
        )
    return text.getvalue()


def as_markdown(facts: Mapping[str, Any], rows: Sequence[Row], grown: Sequence[Row]) -> str:
    """The tables, dated."""
    lines = [
        "# The time of an optimizer's step",
        "",
        f"Written by `make bench` on {facts['date']}, with {facts['versions']}",
        f"and Python {facts['python']}, on {facts['processor']}; threads: {facts['threads']}.",
        "",
        "- **Time**: of a step, over that of fused AdamW: the median of rounds in which all took turns, in brackets",
        "  for the quartiles of its own times. **ms**: the median itself.",
        "- **Floor**: the least time for its passes over memory (fused AdamW 7, Adafactor 5, with RMS scaling 6), at",
        "  the bandwidth of `x += a * y * z` in the same rounds. The column: how many times as long the step takes.",
        "  Parameters that fit the processor's cache can fall below 1, and small tensors stay far above.",
        "- **State, added**: MiB between two steps, and on top of that within one, by torch's memory tracker; what",
        "  bitsandbytes makes inside its step is not seen.",
        "- Adafactor has Trainer's settings; torch's class always scales by RMS(X), as the rows with defaults do;",
        "  timm's does not, with a given rate.",
        "",
    ]
    for title in dict.fromkeys(row.parameters for row in rows):
        mine = [row for row in rows if row.parameters == title]
        lines += [
            f"## {title[0].upper()}{title[1:]}: {mine[0].numbers:,} parameters",
            "",
            "| | time | ms | over its floor | state, MiB | added, MiB |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        base = next(row.seconds for row in mine if row.optimizer == FUSED)
        for row in mine:
            low, high = (seconds / base for seconds in row.quartiles)
            lines.append(
                f"| {row.optimizer} | {row.ratio:.2f} ({low:.2f} to {high:.2f}) | {1e3 * row.seconds:,.1f} | "
                f"{row.seconds / row.floor:.2f} | "
                f"{row.state / MIB:,.2f} | {row.added / MIB:,.2f} |"
            )
        lines.append("")
    lines += [
        "## Square matrices of growing side: nanoseconds for each parameter",
        "",
        f"| side | {' | '.join(COLOR)} |",
        "|---:|" + "---:|" * len(COLOR),
    ]
    for side in dict.fromkeys(row.parameters for row in grown):
        cells = [f"{1e9 * row.seconds / row.numbers:.2f}" for row in grown if row.parameters == side]
        lines.append(f"| {int(side):,} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "![Both tables as a picture](steps.svg)", ""])


def draw(rows: Sequence[Row], grown: Sequence[Row]) -> Figure:
    """Left: time over fused AdamW's for each set. Right: nanoseconds for each parameter of a growing matrix."""
    fig, (left, right) = figures.subplots(1, 2, width=11.5, height=4.6, width_ratios=(1.25, 1))
    titles = list(dict.fromkeys(row.parameters for row in rows))
    for name, color in COLOR.items():
        mine = [row for row in rows if row.optimizer == name]
        places = [titles.index(row.parameters) for row in mine]
        left.plot([row.ratio for row in mine], places, "o", color=color, markersize=8, label=name)
        found = [row for row in grown if row.optimizer == name]
        sides, each = [int(row.parameters) for row in found], [1e9 * row.seconds / row.numbers for row in found]
        right.plot(sides, each, "o-", color=color, label=name)
    left.set_yticks(range(len(titles)), titles)
    left.invert_yaxis()
    left.axvline(1, color=COLORS["muted"], linestyle=":", linewidth=1, zorder=0)
    left.set(xscale="log", xlabel="time of a step over that of fused AdamW", title="Several sets of parameters")
    left.grid(axis="y", color="#EEEEEE")
    left.set_axisbelow(True)
    right.set(xscale="log", yscale="log", xlabel="side of a square matrix", ylabel="nanoseconds for each parameter")
    right.set_xscale("log", base=2)
    right.set_title("One matrix that grows")
    left.legend(loc="upper right")
    return fig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two rounds of small sets, and write nothing")
    quick = parser.parse_args().quick
    os.environ |= {"COURSE_TIER": "small", "COURSE_DEVICE": "cpu"}  # before anything of Hugging Face is imported
    start = time.perf_counter()
    if quick:
        sets = {"convolutions": lambda: [Parameter(torch.randn(64, 3, 7, 7))], "matrix": embedding_like}
        print(as_markdown(about(), measure_all(sets, 2), growth(SIDES[:2], 2)))
        return
    facts, rows, grown = about(), measure_all(SETS, ROUNDS), growth(SIDES, ROUNDS)
    folder = ROOT / "benchmarks" / "results"
    picture = io.StringIO()
    draw(rows, grown).savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    files: dict[Path, str] = {
        folder / "steps.csv": as_csv([*rows, *grown]),
        folder / "steps.md": as_markdown(facts, rows, grown),
        folder / "steps.svg": picture.getvalue(),
    }
    write(files)
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes.")


def embedding_like() -> list[Parameter]:
    """A small matrix, to try the program."""
    return [Parameter(torch.randn(300, 200))]


if __name__ == "__main__":
    main()
