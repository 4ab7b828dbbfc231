"""A step of each optimizer on a model that is cut into shards, one for each process: what is kept, or what is raised.

    torchrun --nproc_per_node 2 -m course_lib.sharded_step

PyTorch has *fully sharded data parallelism* twice. ``fully_shard``, "FSDP2", cuts each tensor along its first axis; the
parts are ``DTensor``s. ``FullyShardedDataParallel``, "FSDP1", joins a module's tensors to one vector and cuts that.
The numbers that each process keeps as moments are put beside those of an optimizer whose model is whole.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from transformers.optimization import Adafactor as AdafactorOfTransformers

from course_lib import memory
from course_lib.adafactor import Adafactor

Maker = Callable[[Iterable[nn.Parameter]], Optimizer]
Wrapper = Callable[[nn.Module], nn.Module]

# Named as in course_lib.memory.
OPTIMIZERS: dict[str, Maker] = {
    "adamw": partial(torch.optim.AdamW, lr=1e-2),
    "adafactor_torch": torch.optim.Adafactor,
    "adafactor_transformers": AdafactorOfTransformers,
    "adafactor": Adafactor,
}


def model() -> nn.Module:
    """Two layers, with the same weights each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 6))


def by_fsdp2(module: nn.Module) -> nn.Module:
    return fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def by_fsdp1(module: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel  # on its way out: one day it will not be there

    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)


def steps(make: Maker, wrap: Wrapper) -> Optimizer:
    """An optimizer after two steps on the wrapped model, the same batch in all processes."""
    wrapped = wrap(model())
    optimizer = make(wrapped.parameters())
    batch = torch.linspace(-1, 1, 8 * 64).reshape(8, 64)
    for _ in range(2):
        wrapped(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def outcome(make: Maker, wrap: Wrapper) -> dict[str, Any]:
    """What two steps leave in each process: ``moments``, how many numbers, and ``weights``, the sum of their sizes.

    If they raise: ``error``, and ``line``, the optimizer's own that did.
    """
    try:
        optimizer = steps(make, wrap)
    except Exception as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_optimizer(frame.filename)]
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}", "line": own[-1].line if own else ""}
    parameters = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    local = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]
    each = torch.zeros(dist.get_world_size(), 2, dtype=torch.float64)
    each[dist.get_rank()] = torch.tensor([memory.state_size(optimizer).moments, sum(p.abs().sum() for p in local)])
    dist.all_reduce(each)
    return {"moments": [int(count) for count in each[:, 0]], "weights": each[:, 1].tolist()}


def _is_optimizer(path: str) -> bool:
    return path.replace("\\", "/").rpartition("/")[2] in {
        "optimization.py",
        "_adafactor.py",
        "adafactor.py",
        "adamw.py",
    }


def main() -> None:
    dist.init_process_group("gloo")
    wrappings = {"whole": lambda module: module, "FSDP2": by_fsdp2, "FSDP1": by_fsdp1}
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as FSDP1 tells
        for kind, make in OPTIMIZERS.items():
            found[kind] = {name: outcome(make, wrap) for name, wrap in wrappings.items()}
    if dist.get_rank() == 0:
        parameters = sum(p.numel() for p in model().parameters())
        print(json.dumps({"torch": torch.__version__, "parameters": parameters, "found": found}))
    dist.destroy_process_group()
    # The threads that sharding has started in torch are sometimes still there when Python unloads it, which then aborts
    # the process. All is said and done, so leave without unloading.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
