"""What :mod:`course_lib.checkpoints` reads from a saved optimizer state: who wrote it, and whether another fits."""

from __future__ import annotations

from typing import Any

import torch

# Which optimizer wrote a state is not saved. But the settings in its groups give it away: the first line of which all
# are there.
_WRITERS = {
    "transformers' Adafactor": {"clip_threshold", "beta1"},
    "the course's Adafactor": {"clip_threshold"},
    "torch's Adafactor": {"beta2_decay"},
    "torch's AdamW or Adam": {"betas", "amsgrad"},
    "bitsandbytes' AdamW": {"betas", "t_alpha"},
    "torch's SGD": {"dampening"},
    "torch's RMSprop": {"centered"},
    "torch's Adagrad": {"lr_decay"},
}
# torchao's have the settings of torch's AdamW. The class of their packed averages tells them apart.
_PACKED = {
    "OptimState8bit": "torchao's AdamW or Adam in 8 bits",
    "OptimState4bit": "torchao's AdamW or Adam in 4 bits",
    "OptimStateFp8": "torchao's AdamW or Adam in 8-bit floats",
}
# In the groups of many optimizers, depending on the version and on who looks after them.
_COMMON = {"params", "param_names", "initial_lr", "foreach", "fused", "maximize", "capturable", "differentiable"}
_COMMON |= {"decoupled_weight_decay"}


def writer(settings: dict[str, Any], packing: str | None = None) -> str:
    """The optimizer that has these settings in its groups, and packs its averages in this way, in words."""
    if packing:
        return _PACKED[packing]
    named = settings.keys() - _COMMON
    known = (name for name, marks in _WRITERS.items() if marks <= named)
    return next(known, f"an optimizer with the settings {', '.join(sorted(named))}")


def fits(group: dict[str, Any], optimizer: torch.optim.Optimizer) -> bool:
    """Whether a saved group has the settings that this optimizer looks for, and no others."""
    # The defaults, since a state that was loaded earlier has put its own settings into the groups.
    own = optimizer.defaults.keys()
    unknown = group.keys() - own - optimizer.param_groups[0].keys()
    differ = ((own - group.keys()) | unknown) - _COMMON
    # The course's Adafactor takes over a state of transformers' class, unless that has momentum.
    return not differ or (differ == {"beta1"} and "beta1" in group and group["beta1"] is None)


def packings(saved: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[str | None, str | None]:
    """How torchao has packed the averages of a saved state, and how this optimizer would; None where they are plain."""
    tensors = [value for state in saved["state"].values() for value in state.values() if torch.is_tensor(value)]
    packed = next((name for name in map(_class, tensors) if name in _PACKED), None)
    make, block = getattr(optimizer, "_subclass_zeros", None), getattr(optimizer, "block_size", 0)
    if make is None or not block:
        return packed, None
    # It leaves small tensors alone, and those that are no whole number of blocks.
    packs = packed or any(tensor.numel() >= 4096 and tensor.numel() % block == 0 for tensor in tensors)
    return packed, _class(make(torch.empty(block), True, block)) if packs else None


def _class(tensor: torch.Tensor) -> str:
    return type(tensor).__name__


def sizes(groups: list[dict[str, Any]]) -> str:
    """How many parameters are in how many groups, in words."""
    counts = " and ".join(str(len(group["params"])) for group in groups)
    return f"{len(groups)} group{'s' * (len(groups) != 1)} of {counts} parameters"


def rounded(saved: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[str, str] | None:
    """The dtypes from and to which torch's own loading would round some average, or None."""
    if type(optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict:
        return None
    for group, own in zip(saved["param_groups"], optimizer.param_groups, strict=True):
        for index, p in zip(group["params"], own["params"], strict=True):
            for key, value in saved["state"].get(index, {}).items():
                if key == "step" or not isinstance(value, torch.Tensor) or not value.is_floating_point():
                    continue
                if torch.promote_types(value.dtype, p.dtype) != p.dtype:
                    return str(value.dtype).removeprefix("torch."), str(p.dtype).removeprefix("torch.")
    return None
