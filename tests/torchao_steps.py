"""Run as `python tests/torchao_steps.py FOLDER`: what torchao's optimizers, installed in FOLDER, keep after a step.

A process of its own, since importing torchao changes what transformers does. It prints JSON: for each kind and model
the numbers of a StateSize, in the order of ``numbers``, and then those of some states handed over in other ways.
"""

import json
import sys

import torch
from torch import nn

from course_lib.memory import StateSize, state_size


def tied():
    model = nn.Sequential(nn.Embedding(128, 64), nn.Linear(64, 128))
    model[1].weight = model[0].weight
    return model


def frozen():
    model = nn.Sequential(nn.Embedding(128, 64), nn.Linear(64, 128))
    model[0].requires_grad_(False)
    return model


MODELS = {
    "one matrix": lambda: nn.Linear(512, 1024, bias=False),
    "no whole number of blocks": lambda: nn.Linear(41, 100),
    "whole blocks of 128 only": lambda: nn.Linear(32, 132, bias=False),
    "on both sides of 4,096": lambda: nn.Sequential(nn.Linear(65, 63), nn.Linear(64, 64), nn.LayerNorm(4096)),
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(16, 32, 3), nn.Conv2d(16, 8, 7)),
    "one number": lambda: nn.PReLU(),
    "tied": tied,
    "frozen": frozen,
    "bf16": lambda: nn.Linear(64, 64, dtype=torch.bfloat16),
    "fp64": lambda: nn.Linear(64, 64, dtype=torch.float64),
}


def numbers(size: StateSize) -> list:
    return [size.moments, size.scalars, size.metadata, size.bytes, {key: list(s) for key, s in size.by_key.items()}]


def stepped(optimizer_class: type, params):
    params = [p for p in params if p.requires_grad]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = optimizer_class(params)
    optimizer.step()
    return optimizer


def main(folder: str) -> None:
    sys.path.append(folder)
    # The state is the same, and neither a compiler nor patience is needed.
    torch.compiler.set_stance("force_eager")
    from torchao.optim import AdamFp8, AdamW4bit, AdamW8bit

    found = {}
    for kind, optimizer_class in {"adamw8bit_torchao": AdamW8bit, "adamw4bit_torchao": AdamW4bit}.items():
        for name, make in MODELS.items():
            found[f"{kind}, {name}"] = numbers(state_size(stepped(optimizer_class, make().parameters())))
        torch.set_default_dtype(torch.bfloat16)
        found[f"{kind}, bf16 by default"] = numbers(
            state_size(stepped(optimizer_class, nn.Linear(64, 64).parameters()))
        )
        torch.set_default_dtype(torch.float32)

    optimizer = stepped(AdamW4bit, nn.Linear(64, 64).parameters())
    found["saved"] = numbers(state_size(optimizer.state_dict()))
    found["twice"] = numbers(state_size([*optimizer.state.values(), *optimizer.state.values()]))
    found["fp8"] = numbers(state_size(stepped(AdamFp8, nn.Linear(64, 64, bias=False).parameters())))
    moment = next(iter(optimizer.state.values()))["exp_avg"]
    found["what it says of itself"] = [moment.nbytes, moment.untyped_storage().nbytes()]
    found["shared among processes"] = numbers(state_size(stepped(AdamW4bit, [_half_a_matrix()])))
    json.dump(found, sys.stdout)


def _half_a_matrix() -> nn.Parameter:
    """64 × 128 in a 128 × 128 matrix, which two processes share; the other one is not there."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    return nn.Parameter(distribute_tensor(torch.ones(128, 128), init_device_mesh("cpu", (2,)), [Shard(0)]))


if __name__ == "__main__":
    main(sys.argv[1])
