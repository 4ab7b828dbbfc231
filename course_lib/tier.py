"""Which tier this machine gets: the small course task, or the full one on a GPU with the Hugging Face hub.

Call :func:`current` before anything of Hugging Face is imported: without a hub it switches the libraries to offline
mode, and they read that setting when they are imported. Otherwise an unreachable hub costs minutes.
"""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from course_lib import _hub

if TYPE_CHECKING:
    import torch

TIERS = ("small", "full")
DEVICES = ("cpu", "cuda", "mps")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_before: dict[str, str | None] = {}  # what the variables held that are set here


@dataclass(frozen=True)
class Tier:
    """What this machine gets: ``name`` ("small" or "full"), ``device``, ``why``, and whether it keeps ``offline``."""

    name: str
    device: torch.device
    why: str
    offline: bool = True

    def __str__(self) -> str:
        return f"Tier: {self.name}, on {self.device.type} ({self.why})."

    @property
    def mixed_precision(self) -> str:
        """For ``Accelerator(mixed_precision=…)``: "bf16" on a GPU that has it natively, "fp16" on others, else "no"."""
        import torch

        if self.device.type != "cuda":
            return "no"
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"


def current(quiet: bool = False) -> Tier:
    """The tier of this machine, said in one printed line.

    ``full`` needs a CUDA GPU and a Hugging Face hub that is reachable, or that has everything in the local cache;
    anything else is ``small``. The environment variable ``COURSE_TIER`` (small, full) overrides the choice of tier
    and ``COURSE_DEVICE`` (cpu, cuda, mps) that of the device. The answer is kept for the rest of the process.

    Offline mode is switched on unless a hub is needed and there, and Trainer and Accelerator are kept to the device.

    Args:
        quiet: do not print.

    Raises:
        ValueError: one of the two variables holds something else, or names a device that is not there.
    """
    tier = _decide(os.environ.get("COURSE_TIER", ""), os.environ.get("COURSE_DEVICE", ""))
    _apply(tier)
    if not quiet:
        print(tier)
    return tier


def seed_everything(seed: int = 0) -> None:
    """Seed the random numbers of Python, numpy and torch, on every device."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def offline_asked() -> bool:
    """Whether Hugging Face was put into offline mode from outside, rather than by this module."""
    values = [_before.get(name, os.environ.get(name)) or "" for name in _OFFLINE[:2]]
    return any(value.upper() in {"1", "ON", "YES", "TRUE"} for value in values)


@cache
def _decide(asked_tier: str, asked_device: str) -> Tier:
    for variable, asked, accepted in (("COURSE_TIER", asked_tier, TIERS), ("COURSE_DEVICE", asked_device, DEVICES)):
        if asked and asked not in accepted:
            raise ValueError(f"{variable} is {asked!r}; it must be {' or '.join(accepted)}, or not be set at all.")
    device = _device(asked_device)
    if asked_tier == "small":
        return Tier("small", device, "COURSE_TIER asks for it")
    if not asked_tier and device.type != "cuda":
        return Tier("small", device, f"COURSE_DEVICE is {asked_device}" if asked_device else "no CUDA GPU")

    _silence()  # before the cache is looked through, which imports huggingface_hub
    reason = "COURSE_TIER asks for it" if asked_tier else "a CUDA GPU"
    if not offline_asked() and _hub.reachable():
        return Tier("full", device, f"{reason}, and the Hugging Face hub is reachable", offline=False)
    if _hub.cached():
        return Tier("full", device, f"{reason}, and the hub's files are in the local cache")
    hub = "but the Hugging Face hub is not reachable, and its files are not in the local cache"
    return Tier(asked_tier or "small", device, f"{reason}, {hub}")


def _device(asked: str) -> torch.device:
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked and not there[asked]:
        raise ValueError(f"COURSE_DEVICE is {asked!r}, and PyTorch finds no such device here. Unset it, or use cpu.")
    # A Mac's MPS only on request, so that its results are those that the course shows.
    return torch.device(asked or ("cuda" if there["cuda"] else "cpu"))


def _silence() -> None:
    for variable in ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(variable, "1")


def _set_variable(name: str, value: str, wanted: bool) -> None:
    """Set an environment variable, or put back what it held before it was set here."""
    if wanted:
        _before.setdefault(name, os.environ.get(name))
        os.environ[name] = value
    elif name in _before:
        os.environ.pop(name, None)
        if (old := _before.pop(name)) is not None:
            os.environ[name] = old


def _apply(tier: Tier) -> None:
    """Make the libraries keep to the tier: offline mode, and the CPU where that is the tier's device."""
    _silence()
    for name in _OFFLINE:
        _set_variable(name, "1", tier.offline)
    # Trainer and Accelerator would otherwise take any GPU that is there, MPS too.
    _set_variable("ACCELERATE_USE_CPU", "true", tier.device.type == "cpu")
    # Libraries that are imported already have read the variable.
    for module in ("huggingface_hub.constants", "datasets.config"):
        if module in sys.modules:
            sys.modules[module].HF_HUB_OFFLINE = tier.offline or offline_asked()
