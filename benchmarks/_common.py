"""What the measuring programs share: taking turns, medians with quartiles, and writing results."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20


def turns(names: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    """The names, once for each round, and each time another one first."""
    for turn in range(rounds):
        start = turn % len(names)
        yield (*names[start:], *names[:start])


def middle(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median, and the quartiles below and above it, to three digits. A single value is all three.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("A median needs a value or more; there was none.")
    low, _, high = quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3
    return round(median(values), 3), (round(low, 3), round(high, 3))


def write(files: Mapping[Path, str]) -> None:
    """Write text files and say which."""
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        print("wrote", path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name)


@cache
def timm_adafactor() -> type[Any] | None:
    """timm's Adafactor, or None where timm is not installed. It is loaded from its own file: all of timm wants
    torchvision, which the course does without.
    """
    spec = find_spec("timm")
    if spec is None or spec.submodule_search_locations is None:
        return None
    folder = spec.submodule_search_locations[0]
    for name, path in (("timm", folder), ("timm.optim", f"{folder}/optim")):
        package = types.ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    return importlib.import_module("timm.optim.adafactor").Adafactor
