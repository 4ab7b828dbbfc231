"""What ``make gpu`` has measured on a CUDA GPU, if somebody has, and the same on the GPU of whoever reads a lesson."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib import step_needs
from course_lib.step_needs import Need, Peak

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FILE = "data/gpu.json"  # in course_lib
NOBODY = "Nobody has measured this on a GPU yet. On a machine with a CUDA GPU, `make gpu` does."
MIB = 2**20
TEXTS, LENGTH = 8, 128  # the batch of a training step


@dataclass(frozen=True)
class Time:
    """Time of an optimizer's step over that of fused AdamW: the median of rounds in which all took turns.

    Attributes:
        ratio: the median.
        quartiles: the same ratio, a quarter and three quarters of the rounds.
    """

    ratio: float
    quartiles: tuple[float, float]


@dataclass(frozen=True)
class GpuTable:
    """Needs of optimizers for a full-size DistilBERT with random weights, on a GPU.

    Attributes:
        about: when, on which GPU, with which versions.
        needs: by optimizer. One that could not be measured is not there.
        times: by optimizer. Empty where no times were taken.
    """

    about: Mapping[str, Any]
    needs: Mapping[str, Need]
    times: Mapping[str, Time]

    def __str__(self) -> str:
        heads = f"{'before':>9}{'peak':>8}{'reserved':>9}"
        lines = [
            f"{self.about['gpu']}, {self.about['date']}, torch {self.about['torch']}; MiB",
            f"{'':32}{'step, with gradients':>26}{'whole training step':>26}{'time':>7}",
            f"{'':24}{'state':>8}{heads}{heads}{'ratio':>7}",
        ]
        for name, need in self.needs.items():
            peaks = "".join(
                f"{_mib(peak.before):>9}{_mib(peak.peak):>8}{_mib(peak.reserved):>9}"
                for peak in (need.step, need.training)
            )
            time = f"{self.times[name].ratio:.2f}" if name in self.times else "–"
            lines.append(f"{name:24}{need.state / MIB:8.2f}{peaks}{time:>7}")
        return "\n".join(lines)


def gpu_table(file: Path | None = None) -> GpuTable | None:
    """The committed table; None where nobody has measured yet.

    Args:
        file: another one than the course's.
    """
    path = file or resources.files("course_lib").joinpath(FILE)
    return parse(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def parse(table: Mapping[str, Any]) -> GpuTable:
    """A table as ``benchmarks/gpu.py`` writes it."""
    rows = {name: dict(row) for name, row in table["optimizers"].items() if "error" not in row}
    times = {
        name: Time(row["time"]["ratio"], tuple(row["time"]["quartiles"])) for name, row in rows.items() if "time" in row
    }
    needs = {
        name: Need(
            **{key: value for key, value in row.items() if key not in ("step", "training", "time")},
            step=Peak(**row["step"]),
            training=Peak(**row["training"]),
        )
        for name, row in rows.items()
    }
    return GpuTable(table["about"], needs, times)


def live(*names: str) -> GpuTable | None:
    """Measure here and now, without times, if this kernel's tier is on a CUDA GPU; else None.

    It takes some seconds and, for AdamW, about 3 GiB of the GPU.

    Args:
        names: of the optimizers, as in ``step_needs.NAMES``; if none is given, AdamW and the Adafactor of Trainer.
    """
    from datetime import date

    import torch

    from course_lib import tasks, tier

    device = tier.current(quiet=True).device
    if device.type != "cuda":
        return None
    model = tasks.distilbert(device=device)
    inputs = step_needs.batch(model.config.vocab_size, TEXTS, LENGTH, device)
    found = {
        name: step_needs.needs(model, name, inputs) for name in names or (step_needs.ADAMW, step_needs.TRANSFORMERS)
    }
    about = {"gpu": torch.cuda.get_device_name(device), "date": date.today().isoformat(), "torch": torch.__version__}
    return GpuTable(about, found, {})


def figure(table: GpuTable) -> tuple[Figure, str]:
    """State and peaks of each optimizer as bars, and the alternative text."""
    from course_lib import figures

    bars = {
        "state": (lambda need: need.state, figures.COLORS["state"]),
        "allocated at the peak of the step alone": (lambda need: need.step.peak, figures.COLORS["col"]),
        "allocated at the peak of a training step": (lambda need: need.training.peak, figures.COLORS["row"]),
        "reserved at most in a training step": (lambda need: need.training.reserved, figures.COLORS["muted"]),
    }
    fig, ax = figures.subplots(height=0.9 + 0.75 * len(table.needs))
    thick = 0.8 / len(bars)
    for i, (label, (size, color)) in enumerate(bars.items()):
        places = [place + (i - 1.5) * thick for place in range(len(table.needs))]
        drawn = ax.barh(places, [size(need) / MIB for need in table.needs.values()], thick, color=color, label=label)
        ax.bar_label(drawn, fmt="{:,.1f}", padding=3, fontsize=8)
    ax.set_yticks(range(len(table.needs)), list(table.needs))
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.set_xlabel("MiB")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    fig.suptitle(f"A step of DistilBERT on {table.about['gpu']}, {table.about['date']}", x=0.01, ha="left", fontsize=12)
    fig.legend(loc="outside lower left", ncols=2)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{_mib(size(need))} {label}" for label, (size, _) in bars.items())
        for name, need in table.needs.items()
    )
    return fig, f"Bars for each optimizer, in MiB, measured {table.about['date']} on {table.about['gpu']}. {told}."


def show() -> None:
    """Show the committed table with its figure, or say that there is none; below it what this kernel's GPU says."""
    from course_lib import figures

    if table := gpu_table():
        print(table)
        figures.show(*figure(table))
    else:
        print(NOBODY)
    if here := live():
        print("Measured here and now:")
        print(here)


def _mib(size: int | None) -> str:
    return "–" if size is None else f"{size / MIB:,.1f}"
