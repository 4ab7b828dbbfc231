"""Runs of four steps of a tiny model, to stop and to go on with; as a program, runs that kill themselves while saving.

`python tests/resume_runs.py trainer|accelerator FOLDER` saves after every step and dies half-way through the third.
"""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

from course_lib import adafactor, checkpoints, libraries, tier

tier.current(quiet=True)

from transformers import (  # noqa: E402
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    default_data_collator,
    get_scheduler,
)
from transformers.optimization import Adafactor, AdafactorSchedule  # noqa: E402

bitsandbytes = libraries.bitsandbytes()

GIVEN = {"lr": 1e-2, "relative_step": False, "scale_parameter": False}
# The optimizers of the course, made by hand.
OPTIMIZERS = {
    "AdamW": partial(torch.optim.AdamW, lr=1e-2, fused=False),
    "AdamW, fused": partial(torch.optim.AdamW, lr=1e-2, fused=True),
    "SGD": partial(torch.optim.SGD, lr=0.1),
    "SGD with momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "RMSprop": partial(torch.optim.RMSprop, lr=1e-3),
    "Adagrad": partial(torch.optim.Adagrad, lr=1e-2),
    "our Adafactor": partial(adafactor.Adafactor, **GIVEN),
    "our Adafactor, relative step": adafactor.Adafactor,
    "transformers' Adafactor": partial(Adafactor, **GIVEN),
    "transformers' Adafactor, relative step": Adafactor,
    "torch's Adafactor": partial(torch.optim.Adafactor, lr=1e-2),
}
# A relative step leaves a schedule nothing to multiply.
SCHEDULES = {"our Adafactor, relative step": None, "transformers' Adafactor, relative step": AdafactorSchedule}
# What Trainer makes itself.
STRINGS = {
    "AdamW": {"optim": "adamw_torch"},
    "AdamW, fused": {"optim": "adamw_torch_fused"},
    "SGD": {"optim": "sgd"},
    "SGD with momentum": {"optim": "sgd", "optim_args": "momentum=0.9"},
    "RMSprop": {"optim": "rmsprop", "learning_rate": 1e-3},
    "Adagrad": {"optim": "adagrad"},
    "transformers' Adafactor": {"optim": "adafactor"},
}
if bitsandbytes is not None:
    OPTIMIZERS["8-bit AdamW"] = partial(bitsandbytes.optim.AdamW8bit, lr=1e-2)
    OPTIMIZERS["bitsandbytes' Lion"] = partial(bitsandbytes.optim.Lion, lr=1e-3)
    STRINGS["8-bit AdamW"] = {"optim": "adamw_bnb_8bit"}

ROWS = [{"input_ids": [1, i % 50, 2, 7 * i % 50], "attention_mask": [1] * 4, "labels": i % 3} for i in range(6)]


def new_model(seed=0, dtype=torch.float32):
    """A DistilBERT of one layer, with dropout, and with matrices of 4,096 numbers, which 8 bits are for."""
    torch.manual_seed(seed)
    config = DistilBertConfig(
        vocab_size=64, max_position_embeddings=8, dim=64, n_layers=1, n_heads=2, hidden_dim=64, num_labels=3
    )
    return DistilBertForSequenceClassification(config).to(dtype)


def new_trainer(folder, name=None, seed=0, model=None, **settings):
    """Two epochs of three steps at most. By name Trainer makes the optimizer, or else the one named is handed over."""
    usual = {
        "output_dir": str(folder),
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": 2,
        "dataloader_pin_memory": False,
    }
    model = new_model(seed) if model is None else model
    pair = (None, None)
    if name is not None and name not in STRINGS:
        optimizer = OPTIMIZERS[name](model.parameters())
        pair = (optimizer, SCHEDULES[name](optimizer) if name in SCHEDULES else None)
    settings = {**usual, **STRINGS.get(name, {}), **settings}
    callbacks = settings.pop("callbacks", None)
    trainer = Trainer(
        model=model, args=TrainingArguments(**settings), train_dataset=ROWS, optimizers=pair, callbacks=callbacks
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


class Loop:
    """The same with Accelerate. Data come in an order of their own generator, so that resuming finds the same batch."""

    def __init__(self, name, seed=0, dtype=torch.float32):
        forget_accelerate()
        self.accelerator = Accelerator(
            cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
        )
        model = new_model(seed, dtype)
        optimizer = OPTIMIZERS[name](model.parameters())
        make_schedule = SCHEDULES.get(name, lambda optimizer: get_scheduler("linear", optimizer, 0, 4))
        schedule = make_schedule and make_schedule(optimizer)
        generator = torch.Generator()
        loader = DataLoader(ROWS, batch_size=2, shuffle=True, collate_fn=default_data_collator, generator=generator)
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, loader, schedule
        )
        self.done = 0

    def train(self, until, after_step=lambda step: None):
        while self.done < until:
            epoch, skipped = divmod(self.done, len(self.loader))
            self.loader.set_epoch(epoch)
            for batch in self.accelerator.skip_first_batches(self.loader, skipped):
                self.accelerator.backward(self.model(**batch).loss)
                self.optimizer.step()
                if self.schedule is not None:
                    self.schedule.step()
                self.optimizer.zero_grad()
                self.done += 1
                after_step(self.done)
                if self.done == until:
                    break


def forget_accelerate():
    """An Accelerator takes over the settings of one before it, as would never happen in a new process."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def half_a_file(call, then):
    """A torch.save that writes half a file when it is called for the `call`-th time, and does `then`."""
    real, files = torch.save, []

    def save(thing, file, *args, **kwargs):
        real(thing, file, *args, **kwargs)
        files.append(Path(file))
        if len(files) == call:
            content = files[-1].read_bytes()
            files[-1].write_bytes(content[: len(content) // 2])
            then()

    return save


def die():
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


if __name__ == "__main__":
    torch.set_num_threads(1)
    kind, folder = sys.argv[1:]
    if kind == "trainer":
        torch.save = half_a_file(2 * 4 + 2, die)  # each checkpoint: arguments, optimizer, schedule, random state
        new_trainer(folder, "transformers' Adafactor", save_steps=1).train()
    else:
        torch.save = half_a_file(2 * 3 + 1, die)  # optimizer, schedule, random state
        loop = Loop("torch's Adafactor")
        loop.train(4, lambda step: checkpoints.save_state(loop.accelerator, Path(folder, f"checkpoint-{step}")))
    print("not killed")
