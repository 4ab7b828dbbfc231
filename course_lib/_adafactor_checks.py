"""What :mod:`course_lib.adafactor` refuses: settings that contradict each other, and states saved by something else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def check_settings(s: dict[str, Any]) -> None:
    """Raise a ``ValueError`` if the settings of a group contradict each other or are out of range."""
    lr, eps = s["lr"], s["eps"]
    if s["relative_step"] and lr is not None:
        raise ValueError(
            f"lr={lr} and relative_step=True were given together: with relative_step the step size is computed and lr "
            "would be ignored. Pass relative_step=False to use lr, or leave lr=None."
        )
    if s["warmup_init"] and not s["relative_step"]:
        raise ValueError(
            "warmup_init=True and relative_step=False were given together: warmup_init shapes the relative step size. "
            "Pass relative_step=True, or leave warmup_init=False."
        )
    if lr is None and not s["relative_step"]:
        raise ValueError("lr=None with relative_step=False leaves no step size. Give lr, or pass relative_step=True.")
    pair = isinstance(eps, (tuple, list)) and len(eps) == 2 and None not in eps
    for name, allowed, fits in (
        ("lr", "at least 0", lr is None or lr >= 0),
        ("eps", "a pair, at least 0: added to the squared gradient, floor under RMS", pair and min(eps) >= 0),
        ("clip_threshold", "above 0", s["clip_threshold"] > 0),
        ("decay_rate", "at most 0, being the exponent of 1 - t**decay_rate", s["decay_rate"] <= 0),
        ("weight_decay", "at least 0", s["weight_decay"] >= 0),
    ):
        if not fits:
            raise ValueError(f"{name} must be {allowed}; it was {s[name]}.")


def check_saved_groups(groups: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    """Raise a ``ValueError`` unless the saved groups have all of ``settings``, and no momentum."""
    for group in groups:
        # torch puts "differentiable" among the defaults of any optimizer that was loaded or unpickled.
        missing = sorted(settings.keys() - group.keys() - {"differentiable"})
        if missing or group.get("beta1") is not None:
            found = f"no {', '.join(missing)}" if missing else f"momentum (beta1={group['beta1']})"
            raise ValueError(
                f"This state was saved by another optimizer: its groups have {found}. Resume with the optimizer that "
                "saved it, or start this one afresh."
            )


def check_saved_state(p: Tensor, saved: dict[str, Any], new: dict[str, Tensor]) -> None:
    """Raise a ``ValueError`` unless ``saved`` holds all that a ``new`` state of parameter ``p`` does, in its shapes."""
    for key, value in new.items():
        if key not in saved or torch.as_tensor(saved[key]).shape != value.shape:
            raise ValueError(
                f"A parameter of shape {tuple(p.shape)} needs {key!r} of shape {tuple(value.shape)}, and the saved "
                "state does not have it: it belongs to another optimizer or another model."
            )
