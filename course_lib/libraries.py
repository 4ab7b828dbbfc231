"""Libraries that a lesson can do without."""

from __future__ import annotations

import logging
from types import ModuleType


def bitsandbytes() -> ModuleType | None:
    """bitsandbytes, if it is installed and its 8-bit AdamW takes a step on this machine's CPU.

    Returns:
        The module; or None, after a printed sentence that says why.
    """
    import torch

    # On some processors it advises, at import, to install what only its 4-bit matrices need.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import bitsandbytes as module

        weight = torch.nn.Parameter(torch.ones(4096))  # fewer would stay in 32 bits
        weight.grad = torch.ones(4096)
        module.optim.AdamW8bit([weight]).step()
    except ImportError as error:
        why = f"bitsandbytes cannot be imported here ({_first_line(error)}); `pip install bitsandbytes` may help"
    except Exception as error:  # early versions needed CUDA, and each said so in a way of its own
        told = ": ".join(filter(None, [type(error).__name__, _first_line(error)]))
        why = f"this bitsandbytes takes no step on the CPU ({told}); `pip install --upgrade bitsandbytes` may help"
    else:
        return module
    print(f"Going on without 8-bit steps: {why}.")
    return None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
