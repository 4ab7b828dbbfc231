"""Measure what lesson 10 compares: accuracy over seeds, and what a full-size model needs. `make compare` runs it.

It takes 10 to 25 minutes on two cores, and writes `course_lib/data/optimizers.json`, which lessons read, and from
it `results/optimizers.csv` and `results/optimizers.md`.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import gc
import io
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from _common import MIB, ROOT, middle, turns, write
from course_lib import comparison, libraries, lockstep, memory, tasks
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, NAMES, RELATIVE, Run

SEEDS = tuple(range(8))
# A search of the same size for each: five rates, half a power of ten apart, two seeds that no reported run has.
RATES = {
    ADAMW: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    ADAMW_8BIT: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    GIVEN: (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    RELATIVE: (3e-3, 1e-2, 3e-2, 1e-1, 3e-1),  # the cap; the paper's is 1e-2
}
SEARCH_SEEDS = (1000, 1001)
HELD_BACK = 0.1  # share of the training rows that judge the search
ROUNDS = 15  # of timed steps of the full-size model
HEADS = (
    "rate",
    "accuracy",
    "macro F1",
    "training time",
    "state, MiB",
    "total, MiB",
    "added in a step, MiB",
    "time of a step",
)


def searched_on(task: tasks.Task) -> tasks.Task:
    """The task of the search: trained on part of the training rows and judged by the others.

    So no rate is chosen by the rows that judge the reported runs.
    """
    cut = len(task.train) - round(HELD_BACK * len(task.train))
    held_back = task.train.select(range(cut, len(task.train)))
    return dataclasses.replace(task, train=task.train.select(range(cut)), validation=held_back)


def trained(job: tuple[bool, Mapping[str, float], int, int | None]) -> list[Run]:
    """One seed's runs: whether for the search, the rates, the seed, after how many steps to stop."""
    searching, rates, seed, steps = job
    torch.set_num_threads(1)
    task = tasks.load("small")
    return list(lockstep.train(searched_on(task) if searching else task, rates, seed, steps).values())


def run_all(jobs: list[tuple[bool, Mapping[str, float], int, int | None]], processes: int) -> list[Run]:
    """The runs of all jobs, some at the same time. In each job the optimizers take turns, so ratios stay fair."""
    runs = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done in pool.imap(trained, jobs):
            runs += done
            print(
                *(f"  {run.optimizer}, rate {run.rate:g}, seed {run.seed}: {run.accuracy:.3f}" for run in done),
                sep="\n",
                flush=True,
            )
    return runs


def best_rates(search: list[Run]) -> dict[str, float]:
    """For each optimizer the rate with the highest mean accuracy; the smaller one of equals."""
    chosen = {}
    for name, rates in RATES.items():
        means = {
            rate: comparison.mean([run.accuracy for run in search if (run.optimizer, run.rate) == (name, rate)])
            for rate in rates
        }
        chosen[name] = max(rates, key=lambda rate: (round(means[rate], 9), -rate))
        if chosen[name] in (rates[0], rates[-1]):
            print(f"Mind: for {name} the best rate, {chosen[name]:g}, is at the end of those that were tried.")
    return chosen


@contextmanager
def allocations() -> Iterator[list[int]]:
    """How far the CPU's allocator is above the start of the block, in bytes, after each change.

    ``course_lib.meter`` follows tensors from operation to operation. What bitsandbytes makes within its step it does
    not see, so here the allocator itself is asked, through torch's profiler.
    """
    levels = [0]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        yield levels
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]" and event["args"]["Device Type"] == 0]
    for event in sorted(changes, key=lambda event: event["ts"]):
        levels.append(levels[-1] + event["args"]["Bytes"])


def full_size(rounds: int) -> dict[str, dict[str, Any]]:
    """State, room and time of a step for a full-size DistilBERT with random weights, with every optimizer in turn."""
    torch.set_num_threads(1)
    model = tasks.distilbert()
    torch.manual_seed(0)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizers = {name: lockstep.make(name, list(model.parameters()), 1e-3) for name in NAMES}
    measured: dict[str, dict[str, Any]] = {}
    for name, optimizer in optimizers.items():
        optimizer.step()  # makes the state
        gc.collect()
        with allocations() as levels:
            optimizer.step()
        size = memory.state_size(optimizer)
        weights = sum(p.nbytes for p in model.parameters())
        measured[name] = {"state": size.bytes, "elements": size.elements, "weights": weights, "added": max(levels)}
    ratios: dict[str, list[float]] = {name: [] for name in NAMES}
    for turn, order in enumerate(turns(NAMES, rounds + 1)):
        seconds = {}
        for name in order:
            start = time.perf_counter()
            optimizers[name].step()
            seconds[name] = time.perf_counter() - start
        for name in NAMES if turn else ():  # the first round warms up
            ratios[name].append(seconds[name] / seconds[ADAMW])
    for name, values in ratios.items():
        ratio, quartiles = middle(values)
        measured[name] |= {"step_ratio": ratio, "quartiles": list(quartiles)}
    return measured


def measure(seeds: tuple[int, ...], search_seeds: tuple[int, ...], rounds: int, steps: int | None) -> dict[str, Any]:
    """The whole table."""
    processes = min(2, os.cpu_count() or 1)
    print("Searching for rates …", flush=True)
    places = range(len(RATES[ADAMW]))
    jobs = [(True, {name: RATES[name][i] for name in NAMES}, seed, steps) for seed in search_seeds for i in places]
    search = run_all(jobs, processes)
    chosen = best_rates(search)
    print("Training with the chosen rates …", flush=True)
    runs = run_all([(False, chosen, seed, steps) for seed in seeds], processes)
    print("Measuring a full-size model …", flush=True)
    seconds = {run.seed: run.seconds for run in runs if run.optimizer == ADAMW}
    task = tasks.load("small")
    shorter = searched_on(task)
    share = comparison.mean([label == task.majority for label in task.validation["labels"]])
    return {
        "about": {
            "date": date.today().isoformat(),
            **{name: version(name) for name in ("torch", "transformers", "bitsandbytes")},
            "python": platform.python_version(),
            "processor": f"{platform.machine()} with {torch.backends.cpu.get_cpu_capability()}",
        },
        "task": {
            "train": len(task.train),
            "validation": len(task.validation),
            "majority": share,
            "epochs": task.epochs,
            "batch_size": task.batch_size,
            "parameters": sum(p.numel() for p in task.model().parameters()),
            "search_train": len(shorter.train),
            "search_validation": len(shorter.validation),
        },
        "memory": full_size(rounds),
        "search": [_row(run) for run in search],
        "runs": [
            _row(run)
            | {
                "seconds_ratio": round(run.seconds / seconds[run.seed], 3),
                "correct": comparison.pack(run.correct),
            }
            for run in runs
        ],
    }


def _row(run: Run) -> dict[str, Any]:
    told = {"optimizer": run.optimizer, "rate": run.rate, "seed": run.seed}
    return told | {"accuracy": round(run.accuracy, 6), "f1": round(run.f1, 6)}


def as_csv(table: Mapping[str, Any]) -> str:
    """One line for each run."""
    text = io.StringIO()
    fields = ("part", "optimizer", "rate", "seed", "accuracy", "f1", "seconds_ratio")
    writer = csv.DictWriter(text, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for part in ("search", "runs"):
        writer.writerows({"part": part, **run} for run in table[part])
    return text.getvalue()


def as_markdown(table: Mapping[str, Any]) -> str:
    """The summary, dated."""
    compared = comparison.parse(table)
    about, task, seeds = compared.about, compared.task, len(compared.seeds)
    error = comparison.sampling_error(
        comparison.mean([value for result in compared.results.values() for value in result.accuracy]),
        task["validation"],
    )
    lines = [
        "# AdamW, 8-bit AdamW and two forms of Adafactor",
        "",
        f"Written by `make compare` on {about['date']}, with torch {about['torch']}, transformers "
        f"{about['transformers']},",
        f"bitsandbytes {about['bitsandbytes']} and Python {about['python']}, on {about['processor']}; one thread.",
        "",
        f"| | {' | '.join(HEADS)} |",
        "|---|" + "---:|" * len(HEADS),
    ]
    for name, result in compared.results.items():
        kept = result.memory
        cells = (
            name,
            f"{result.rate:g}",
            spread(result.accuracy),
            spread(result.f1),
            spread(result.ratios, 2),
            f"{kept.state / MIB:,.2f}",
            f"{kept.total / MIB:,.1f}",
            f"{kept.added / MIB:,.1f}",
            f"{kept.step_ratio:.2f} ({kept.quartiles[0]:.2f} to {kept.quartiles[1]:.2f})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        f"- **Accuracy, F1, training time**: mean ± standard deviation over {seeds} seeds, on the course's small task:",
        f"  {task['train']:,} names to train on, {task['epochs']} epochs in batches of {task['batch_size']}, "
        f"{task['validation']} names to judge by, a model of",
        f"  {task['parameters']:,} parameters. Always answering the most frequent class has an accuracy of "
        f"{task['majority']:.3f}. Other names to judge",
        f"  by would move each accuracy by about {error:.3f} (one standard error): compare runs by the same names.",
        "- All start from the same weights for each seed, see the same batches and the same dropout; the rate falls",
        "  along a line to 0; no weight decay. They take turns at every batch, and the time is a ratio to AdamW's.",
        "- **State, total, step**: a full-size DistilBERT with random weights, 32 bits. Total: weights, gradients,",
        "  state. Added: what the step needs for as long as it lasts, as the CPU's allocator sees it. Time: of the",
        "  optimizer's step alone over AdamW's, median of rounds in which all took turns, and quartiles.",
        "- **8-bit AdamW** is bitsandbytes', with embeddings in 8 bits too. **Given rate** is the Adafactor of",
        "  transformers with Trainer's settings, **relative step** that of torch, whose rate is a cap (0.01 in the",
        "  paper).",
        "",
        "## The search for the rates",
        "",
        f"Mean accuracy over {len({run['seed'] for run in table['search']})} seeds, trained on "
        f"{task['search_train']:,} of the names to train on and judged by the other {task['search_validation']}.",
        "",
    ]
    given = [name for name in compared.results if name != RELATIVE]
    for names in (given, [name for name in compared.results if name == RELATIVE]):
        if not names:
            continue
        rates = compared.results[names[0]].tried
        lines += [f"| rate | {' | '.join(f'{rate:g}' for rate in rates)} |", "|---|" + "---:|" * len(rates)]
        for name in names:
            lines.append(f"| {name} | {' | '.join(f'{x:.3f}' for x in compared.results[name].tried.values())} |")
        lines.append("")
    return "\n".join(lines)


def spread(values: tuple[float, ...], digits: int = 3) -> str:
    """Mean and standard deviation."""
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    return f"{comparison.mean(values):.{digits}f} ± {comparison.sd(values):.{digits}f}"


def written(table: Mapping[str, Any], root: Path = ROOT) -> dict[Path, str]:
    """The files and what is in them."""
    return {
        root / "course_lib" / comparison.FILE: json.dumps(table, indent=1, ensure_ascii=False) + "\n",
        root / "benchmarks" / "results" / "optimizers.csv": as_csv(table),
        root / "benchmarks" / "results" / "optimizers.md": as_markdown(table),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two seeds of 30 steps, and write nothing: tries the program"
    )
    quick = parser.parse_args().quick
    os.environ |= {"COURSE_TIER": "small", "COURSE_DEVICE": "cpu"}  # before anything of Hugging Face is imported
    if libraries.bitsandbytes() is None:
        sys.exit("Nothing was measured: the table compares 8-bit AdamW too.")
    start = time.perf_counter()
    table = measure(SEEDS[:2], SEARCH_SEEDS[:1], 2, 30) if quick else measure(SEEDS, SEARCH_SEEDS, ROUNDS, None)
    if quick:
        print(as_markdown(table))
        return
    write(written(table))
    print(f"{(time.perf_counter() - start) / 60:.1f} minutes. Now `make build`: lesson 10 shows these numbers.")


if __name__ == "__main__":
    main()
