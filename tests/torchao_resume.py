"""Run as `python tests/torchao_resume.py TORCHAO FOLDER`: runs with torchao's optimizers that go on from a checkpoint.

A process of its own, as importing torchao changes what transformers does. It leaves a checkpoint of 8-bit AdamW in
FOLDER and prints JSON: for each kind of run and number of bits what a resumed run has in common with one that was not
interrupted; and what `checkpoints.check` says about each pair of optimizers.
"""

import copy
import json
import sys
from functools import partial
from pathlib import Path

import torch
from resume_runs import OPTIMIZERS, Loop, new_model, new_trainer

from course_lib import checkpoints

SETTINGS = {"lr": 1e-2, "weight_decay": 0.0}


def parts(value):
    """A tensor, or those inside a quantized one, or a number."""
    names = value.__tensor_flatten__()[0] if hasattr(value, "__tensor_flatten__") else ()
    return [getattr(value, name) for name in names] or [value]


def outcome(run):
    """Each weight and each part of the state that a Trainer or a Loop ends with."""
    found = {name: p.detach() for name, p in run.model.named_parameters()}
    for index, state in run.optimizer.state_dict()["state"].items():
        found |= {f"{index} {key} {i}": part for key in state for i, part in enumerate(parts(state[key]))}
    return copy.deepcopy(found)


def compared(whole, resumed):
    equal = [name for name in whole if name in resumed and torch.equal(whole[name], resumed[name])]
    packed = sum(part.dtype == torch.uint8 for part in whole.values())
    return {"parts": len(whole), "equal": len(equal), "packed": packed, "as many": len(resumed) == len(whole)}


def by_trainer(name, folder):
    whole, resumed = new_trainer(folder, name), new_trainer(folder, name, seed=1)
    whole.train()
    checkpoints.resume(resumed, folder / "checkpoint-2")
    return compared(outcome(whole), outcome(resumed))


def by_loop(name, folder):
    whole, resumed = Loop(name), Loop(name, seed=1)
    whole.train(4, lambda step: step == 2 and checkpoints.save_state(whole.accelerator, folder / "checkpoint-2"))
    expected = outcome(whole)
    checkpoints.check(folder / "checkpoint-2", resumed.optimizer)
    resumed.accelerator.load_state(folder / "checkpoint-2")
    resumed.done = 2
    resumed.train(4)
    return compared(expected, outcome(resumed))


def told(checkpoint, optimizer):
    try:
        checkpoints.check(checkpoint, optimizer)
    except ValueError as error:
        return str(error)
    return "accepted"


def main(torchao, folder):
    torch.set_num_threads(1)
    sys.path.append(torchao)  # behind the import of transformers
    torch.compiler.set_stance("force_eager")
    from torchao.optim import AdamW4bit, AdamW8bit

    names = {"8": "torchao's 8-bit AdamW", "4": "torchao's 4-bit AdamW"}
    OPTIMIZERS[names["8"]] = partial(AdamW8bit, **SETTINGS)
    OPTIMIZERS[names["4"]] = partial(AdamW4bit, **SETTINGS)
    found = {"whole": {}, "told": {}}
    for bits, name in names.items():
        for kind, run in (("trainer", by_trainer), ("loop", by_loop)):
            found["whole"][f"{kind} {bits}"] = run(name, Path(folder, f"{kind}-{bits}"))
    new = Loop("AdamW")
    new.train(1)
    checkpoints.save_state(new.accelerator, Path(folder, "loop-AdamW", "checkpoint-2"))
    for wrote in ("8", "4", "AdamW"):
        for name in ("8", "4", "AdamW"):
            optimizer = OPTIMIZERS[names.get(name, name)](new_model().parameters())
            found["told"][f"{wrote} {name}"] = told(Path(folder, f"loop-{wrote}", "checkpoint-2"), optimizer)
    # A model of small tensors only, which are not packed.
    small = AdamW8bit(torch.nn.Linear(3, 2).parameters())
    small.param_groups[0]["params"][0].grad = torch.ones(2, 3)
    small.step()
    state = Path(folder, "small", "checkpoint-1")
    state.mkdir(parents=True)
    torch.save(small.state_dict(), state / "optimizer.pt")
    (state / "trainer_state.json").write_text("{}", encoding="utf-8")
    found["told"]["small"] = told(state, AdamW8bit(torch.nn.Linear(3, 2).parameters()))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
