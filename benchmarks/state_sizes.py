"""Every kind of optimizer state, predicted from shapes and measured after a step. `make sizes` runs it.

It takes a few minutes and 2.5 GiB, and writes `results/state_sizes.csv` and `results/state_sizes.md`. Where a
prediction is not what was measured, element for element and byte for byte under each name, it says so, writes nothing,
and fails.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from _common import ROOT, write
from course_lib import adafactor, libraries, memory, tasks, tier
from course_lib._layouts import EMBEDDINGS_IN_32BIT, LAYOUTS
from course_lib._sizes import KeySize, StateSize

CSV, MARKDOWN = (ROOT / "benchmarks" / "results" / f"state_sizes.{ending}" for ending in ("csv", "md"))
TORCHAO = ROOT / ".torchao"
LIBRARIES = ("torch", "transformers", "bitsandbytes")


@dataclass(frozen=True, order=True)
class Variant:
    """A ``kind`` of :func:`course_lib.memory.predict_state_size`, with its embeddings in 32 bits or not."""

    kind: str
    embeddings_in_32bit: bool = False

    def __str__(self) -> str:
        return f"{self.kind}, embeddings in 32 bits" if self.embeddings_in_32bit else self.kind


VARIANTS = tuple(
    variant
    for kind in LAYOUTS
    for variant in (Variant(kind), *([Variant(kind, True)] if kind in EMBEDDINGS_IN_32BIT else []))
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    variant: Variant
    predicted: StateSize
    measured: StateSize


# --- the models


@cache
def _task() -> tasks.Task:
    return tasks.load("small")


def small(device: str) -> nn.Module:
    with torch.device(device):
        return _task().model()


def tied(device: str) -> nn.Module:
    tier.current(quiet=True)
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=1500, n_positions=64, n_embd=128, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0
    )
    with torch.device(device):
        return GPT2LMHeadModel(config)


def frozen(device: str) -> nn.Module:
    model = small(device)
    model.distilbert.embeddings.word_embeddings.requires_grad_(False)
    model.distilbert.transformer.layer[0].requires_grad_(False)
    return model


MODELS: dict[str, tuple[str, Callable[[str], nn.Module]]] = {
    "small": ("The course's small model: a DistilBERT of two layers and width 128", small),
    "DistilBERT": ("A full-size DistilBERT with random weights", lambda device: tasks.distilbert(device=device)),
    "tied": (
        "Tied weights: a GPT-2 of two layers and width 128, whose output layer is its table of embeddings",
        tied,
    ),
    "frozen": ("Frozen layers: the small model, of which word embeddings and first layer are not trained", frozen),
}


def with_gradients(model: nn.Module) -> nn.Module:
    """The model after the backward pass of one text of eight tokens: every trained parameter has a gradient."""
    model(input_ids=torch.arange(8)[None]).logits.square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not without, without
    return model


# --- the optimizers


def make(variant: Variant, model: nn.Module) -> Optimizer:
    """The optimizer over the trained parameters; with embeddings in 32 bits it is the one that Trainer makes.

    Raises:
        KeyError: a kind for which nobody has said here what makes it.
    """
    if variant.kind.endswith("_bitsandbytes"):
        import bitsandbytes

        # Its register of exceptions knows parameters by their id, which a later one may have again.
        bitsandbytes.optim.GlobalOptimManager.get_instance().initialize()
    if variant.embeddings_in_32bit:
        return _trainers(TRAINERS_NAMES[variant.kind], model)
    makers = torchaos() if variant.kind.endswith("_torchao") else others()
    return makers[variant.kind]([p for p in model.parameters() if p.requires_grad])


def others() -> dict[str, Callable[..., Optimizer]]:
    import bitsandbytes
    from transformers.optimization import Adafactor

    return {
        "sgd": torch.optim.SGD,
        "sgd_momentum": partial(torch.optim.SGD, momentum=0.9),
        "adagrad": torch.optim.Adagrad,
        "rmsprop": torch.optim.RMSprop,
        "adamw": torch.optim.AdamW,
        "adafactor": adafactor.Adafactor,
        "adafactor_transformers": Adafactor,
        "adafactor_torch": torch.optim.Adafactor,
        "adamw8bit_bitsandbytes": bitsandbytes.optim.AdamW8bit,
        "lion8bit_bitsandbytes": bitsandbytes.optim.Lion8bit,
        "lion_bitsandbytes": bitsandbytes.optim.Lion,
    }


def torchaos() -> dict[str, Callable[..., Optimizer]]:
    from torchao.optim import AdamW4bit, AdamW8bit

    return {"adamw8bit_torchao": AdamW8bit, "adamw4bit_torchao": AdamW4bit}


TRAINERS_NAMES = {"adamw8bit_bitsandbytes": "adamw_bnb_8bit", "lion8bit_bitsandbytes": "lion_8bit"}


def _trainers(name: str, model: nn.Module) -> Optimizer:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        return Trainer(model, TrainingArguments(folder, optim=name, use_cpu=True, report_to="none")).create_optimizer()


# --- predicted and measured


def measure(name: str, variants: Iterable[Variant]) -> Iterator[Row]:
    """For one of ``MODELS`` the state of each variant: predicted on the meta device, measured after a real step."""
    _, build = MODELS[name]
    planned, model = build("meta"), with_gradients(build("cpu"))
    for variant in variants:
        predicted = memory.predict_state_size(planned, *dataclasses.astuple(variant))
        optimizer = make(variant, model)
        optimizer.step()
        yield Row(name, variant, predicted, memory.state_size(optimizer))


def measure_torchao(names: Iterable[str], folder: Path = TORCHAO) -> tuple[list[Row], str]:
    """The rows of torchao's kinds and torchao's version, from a process of its own.

    Importing torchao changes what transformers does, so it is not in ``.venv`` but in a folder of its own.
    """
    command = [sys.executable, __file__, "--torchao", str(folder), "--models", *names]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=1200)
    if done.returncode:  # what it writes to stderr otherwise are torchao's notes on parts that a CPU does not need
        raise RuntimeError(f"torchao's optimizers could not be measured:\n{done.stderr}")
    told = json.loads(done.stdout)
    return [_parsed(row) for row in told["rows"]], told["version"]


def print_torchao(names: Iterable[str], folder: str) -> None:
    """What runs in that process."""
    for _, build in MODELS.values():
        build("meta")  # transformers is all there now, and has found no torchao
    sys.path.append(folder)
    # The state is the same, and neither a compiler nor patience is needed.
    torch.compiler.set_stance("force_eager")
    variants = [variant for variant in VARIANTS if variant.kind.endswith("_torchao")]
    rows = [dataclasses.asdict(row) for name in names for row in measure(name, variants)]
    json.dump({"version": version("torchao"), "rows": rows}, sys.stdout)


def _parsed(row: dict[str, Any]) -> Row:
    def size(told: dict[str, Any]) -> StateSize:
        return StateSize(**{**told, "by_key": {key: KeySize(*pair) for key, pair in told["by_key"].items()}})

    return Row(row["model"], Variant(**row["variant"]), size(row["predicted"]), size(row["measured"]))


def measure_all() -> tuple[list[Row], dict[str, str]]:
    """All rows, in the order of ``MODELS`` and ``VARIANTS``, and the versions that they were measured with."""
    found, torchao = measure_torchao(MODELS)
    here = [variant for variant in VARIANTS if not variant.kind.endswith("_torchao")]
    for name in MODELS:
        print(f"Measuring the state of {name} …", flush=True)
        found += measure(name, here)
    rows = {(row.model, row.variant): row for row in found}
    versions = {**{name: version(name) for name in LIBRARIES}, "torchao": torchao, "Python": platform.python_version()}
    return [rows[name, variant] for name in MODELS for variant in VARIANTS], versions


# --- the table

FIELDS = (
    "model",
    "kind",
    "embeddings_in_32bit",
    "elements_predicted",
    "elements_measured",
    "bytes_predicted",
    "bytes_measured",
)
HEADS = ("kind", "elements, predicted", "elements, measured", "bytes, predicted", "bytes, measured", "MiB", "equal")


def numbers(row: Row) -> tuple[int, int, int, int]:
    """Elements and bytes, each predicted and measured, as the table has them."""
    return row.predicted.elements, row.measured.elements, row.predicted.bytes, row.measured.bytes


def as_csv(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(FIELDS)
    for row in rows:
        writer.writerow([row.model, row.variant.kind, row.variant.embeddings_in_32bit, *numbers(row)])
    return text.getvalue()


def about(versions: dict[str, str]) -> str:
    """When and with what the table was made."""
    *first, last = (f"{name} {number}" for name, number in versions.items())
    return f"Written by `make sizes` on {date.today().isoformat()},\nwith {', '.join(first)} and {last}."


def as_markdown(rows: Iterable[Row], made: str) -> str:
    """A table for each model, after the sentence ``made`` that :func:`about` gives."""
    rows = list(rows)
    equal = sum(row.predicted == row.measured for row in rows)
    lines = [
        "# The state of every optimizer: predicted and measured",
        "",
        made,
        f"Predicted and measured are equal in {equal} of {len(rows)} rows.",
        "",
        "- **Predicted**: `predict_state_size(model, kind)`, from a model without memory, on the `meta` device.",
        "- **Measured**: `state_size(optimizer)`, after one step on a CPU, with gradients of a real backward pass.",
        "- **Elements** are all numbers: moments, steps, and the scales and maps of quantized moments. A Python number",
        "  is one element and takes no bytes. **MiB**: 2²⁰ bytes.",
        "- **Embeddings in 32 bits** is what `transformers.Trainer` asks of bitsandbytes; it made these optimizers.",
        "- **Equal** means so for each name in the state too, such as `exp_avg`.",
    ]
    for name, (description, build) in MODELS.items():
        params = list(build("meta").parameters())
        trained = sum(p.numel() for p in params if p.requires_grad)
        count = f"{sum(p.numel() for p in params):,} parameters in {len(params)} tensors"
        lines += ["", f"## {description}", ""]
        lines += [
            f"{count}, all trained." if all(p.requires_grad for p in params) else f"{count}; {trained:,} trained."
        ]
        lines += ["", f"| {' | '.join(HEADS)} |", "|---|" + "---:|" * 5 + "---|"]
        for row in rows:
            if row.model == name:
                cells = [f"{number:,}" for number in numbers(row)] + [f"{row.measured.mib:,.3f}"]
                same = "yes" if row.predicted == row.measured else "**no**"
                lines.append(f"| {row.variant} | {' | '.join(cells)} | {same} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torchao", metavar="FOLDER", help="print the rows of torchao's kinds, installed there")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="which, for --torchao")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.torchao:
        print_torchao(given.models, given.torchao)
        return
    if libraries.bitsandbytes() is None or not (TORCHAO / "torchao").is_dir():
        sys.exit("Nothing was measured: it takes bitsandbytes, and torchao in .torchao/. `make sizes` installs both.")
    rows, versions = measure_all()
    if different := [row for row in rows if row.predicted != row.measured]:
        told = "\n".join(f"{row.model}, {row.variant}: {row.predicted!r} and {row.measured!r}" for row in different)
        sys.exit(f"Nothing was written: {len(different)} of {len(rows)} predictions are not what was measured.\n{told}")
    write({CSV: as_csv(rows), MARKDOWN: as_markdown(rows, about(versions))})


if __name__ == "__main__":
    main()
