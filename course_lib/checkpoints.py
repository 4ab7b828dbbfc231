"""Checkpoints that outlive an interruption, and the question whether a run may go on from one.

For what Trainer writes (``checkpoint-2``), and Accelerate's ``save_state``. A run needs a folder of its own: in one
that another run has used, the newest checkpoint may be the other's.
"""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import is_zipfile

import torch

from course_lib._saved_state import fits, packings, rounded, sizes, writer

_NAME = re.compile(r"checkpoint[-_](\d+)")
_BY_TORCH = {".pt", ".pth", ".bin", ".pkl"}  # torch.save writes zip files; what they hold is listed at their end


def last(folder: str | Path) -> Path:
    """The newest checkpoint in ``folder`` that was written to its end.

    ``trainer.train(resume_from_checkpoint=True)`` takes the newest, finished or not.

    Raises:
        FileNotFoundError: there is none.
    """
    paths = [path for path in Path(folder).glob("checkpoint*") if path.is_dir()]
    found = {int(match[1]): path for path in paths if (match := _NAME.fullmatch(path.name))}
    for _, path in sorted(found.items(), reverse=True):
        if _unfinished(path) is None:
            return path
    unfinished = f", only unfinished ones: {', '.join(path.name for path in found.values())}" if found else ""
    raise FileNotFoundError(
        f"There is no checkpoint to go on from in {Path(folder).name!r}{unfinished}. Start afresh, without resuming."
    )


def check(checkpoint: str | Path, optimizer: Any) -> None:
    """Make sure that a run with this optimizer can go on from this checkpoint. Call it before anything is loaded.

    Nothing is changed, and of the saved state only the outline is read. It can stand before ``accelerator.load_state``,
    or in ``accelerator.register_load_state_pre_hook(lambda models, folder: check(folder, optimizer))``.

    Args:
        checkpoint: a folder that Trainer or ``accelerator.save_state`` wrote, of one optimizer.
        optimizer: the optimizer, plain or prepared by Accelerate; or a Trainer, which is asked for its own.

    Raises:
        ValueError: the checkpoint was not written to its end, or its state fits another optimizer or other groups.
        FileNotFoundError: there is no such checkpoint, or no optimizer state in it.

    Warns:
        UserWarning: loading would round the state, so that the run goes on a little differently. torch casts a state
            to the dtype of its parameter; transformers' Adafactor keeps float32 for parameters in 16 bits.
    """
    checkpoint = Path(checkpoint)
    name = checkpoint.name
    if problem := _unfinished(checkpoint):
        raise ValueError(f"{name} is not complete: {problem}. Go on from an earlier one; checkpoints.last finds it.")
    saved, given = _saved(checkpoint), _optimizer(optimizer)
    groups = saved["param_groups"]
    packed, packs = packings(saved, given)
    if packed != packs or not all(fits(group, given) for group in groups):
        raise ValueError(
            f"The optimizer state in {name} was written by {writer(groups[0], packed)}, but this run has "
            f"{writer(given.defaults, packs)}, which keeps other numbers. Go on with the optimizer that wrote it. Or "
            "start with the weights of the checkpoint alone, without resuming; the new optimizer then begins at step 1."
        )
    if (were := sizes(groups)) != (are := sizes(given.param_groups)):
        raise ValueError(
            f"The optimizer state in {name} is for {were}, but this run's optimizer has {are}. States are matched by "
            "position, so make the groups as they were. (Trainer makes two: one with weight decay, one without.)"
        )
    if dtypes := rounded(saved, given):
        warnings.warn(
            f"Loading the state in {name} rounds it from {dtypes[0]} to {dtypes[1]}, as the parameters are: the run "
            "will not go on exactly as it would have. The course's Adafactor keeps its averages in float32. So does "
            "any optimizer of float32 parameters, as under bf16=True.",
            stacklevel=2,
        )


def resume(trainer: Any, checkpoint: str | Path | None = None) -> Any:
    """``trainer.train`` from this checkpoint, or the last complete one in its ``output_dir``, after a :func:`check`.

    Returns:
        What ``trainer.train`` returns.

    Raises:
        FileNotFoundError, ValueError: as :func:`last` and :func:`check` say.
    """
    checkpoint = last(trainer.args.output_dir) if checkpoint is None else checkpoint
    check(checkpoint, trainer)
    return trainer.train(resume_from_checkpoint=str(checkpoint))


def save_state(accelerator: Any, folder: str | Path) -> None:
    """``accelerator.save_state``, so that ``folder`` is complete or not there, whenever the program is killed.

    It is written under another name, ending in ``.partial``, and renamed at the end. (Accelerate itself writes over
    what is there, and with a ``total_limit`` deletes the old checkpoint before it writes the new one.) What has the
    name already is kept, ending in ``.old``, until the new one has taken its place.

    Args:
        accelerator: the Accelerator; all its processes call this.
        folder: where to, such as ``"results/checkpoint-100"``; names of this form are found by :func:`last`.
    """
    folder = Path(folder)
    partial, old = (folder.with_name(folder.name + ending) for ending in (".partial", ".old"))
    if accelerator.is_main_process:
        shutil.rmtree(partial, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(partial))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        partial.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    accelerator.wait_for_everyone()


def _unfinished(checkpoint: Path) -> str | None:
    """What is missing of a checkpoint, or None. Last, Trainer writes its own state, and Accelerate the random state."""
    if not checkpoint.is_dir():
        raise FileNotFoundError(f"There is no checkpoint {checkpoint.name!r} here.")
    by_trainer, by_accelerate = checkpoint / "trainer_state.json", checkpoint / "random_states_0.pkl"
    if not by_trainer.exists() and not by_accelerate.exists():
        return f"it has neither {by_trainer.name} nor {by_accelerate.name}, and one of them is written last"
    if by_trainer.exists():
        try:
            json.loads(by_trainer.read_text(encoding="utf-8"))
        except ValueError:
            return f"{by_trainer.name} breaks off"
    broken = [path.name for path in checkpoint.iterdir() if path.suffix in _BY_TORCH and not is_zipfile(path)]
    return f"{' and '.join(sorted(broken))} cannot be read to the end" if broken else None


def _saved(checkpoint: Path) -> dict[str, Any]:
    for name in ("optimizer.pt", "optimizer.bin"):
        if (checkpoint / name).exists():
            try:  # mmap leaves the numbers in the file
                return torch.load(checkpoint / name, map_location="cpu", weights_only=True, mmap=True)
            except UnpicklingError as error:
                raise ValueError(
                    f"The optimizer state in {checkpoint.name} holds things of a kind that is not known here. Import "
                    "the library whose optimizer wrote it, such as torchao, and go on with that optimizer."
                ) from error
    raise FileNotFoundError(
        f"{checkpoint.name} holds no optimizer state, as after save_only_model=True. Trainer would go on with a new "
        "one and say nothing. If that is what you want, start with the weights alone, without resuming."
    )


def _optimizer(thing: Any) -> torch.optim.Optimizer:
    if hasattr(thing, "create_optimizer"):  # a Trainer, which makes its optimizer when training begins
        trainer, before = thing, thing.optimizer
        trainer.create_optimizer()
        thing, trainer.optimizer = trainer.optimizer, before
    return getattr(thing, "optimizer", thing)  # Accelerate's wrapper has the optimizer inside
