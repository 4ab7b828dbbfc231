"""Check the course on a CUDA GPU, and measure what optimizers need there. `make gpu` runs it: ten minutes at most.

Three kinds of parts, each in a process of its own and with a time limit: the tests marked `gpu`; the optimizers' table;
lessons 06 to 10. It writes `course_lib/data/gpu.json`, which lessons read, and from it `results/gpu.csv` and
`results/gpu.md`. A part that fails is told of there, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from _common import MIB, ROOT, middle, turns, write
from course_lib import gpu_results, step_needs, tasks, tier
from course_lib.launch import _cause, _end

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NO_GPU = "PyTorch finds no CUDA GPU here, so nothing was measured and nothing was written."
LESSONS = ("06", "07", "08", "09", "10")
WHOLE = 590  # seconds; no part gets more than what is left of them
LIMITS = {"tests": 120, "table": 120}
LESSON_LIMIT = 150
ROUNDS, WARM_UP = 30, 3
TESTS, TABLE = "tests marked gpu", "the table below"
TIER = re.compile(r"^Tier: (.*)\.$", re.MULTILINE)
# A cell that is put after a lesson's last one. What has ever been allocated also counts what is freed again.
PROBE = "import torch; print('allocations on the GPU:', torch.cuda.memory_stats().get('allocation.all.allocated', 0))"


@dataclasses.dataclass(frozen=True)
class Part:
    """What came of a part.

    Attributes:
        name, result: "passed" or "failed".
        seconds: from its start to its end.
        detail: what it said last, or why it failed.
    """

    name: str
    result: str
    seconds: float
    detail: str


def run_part(name: str, command: Sequence[str], limit: float, variables: Mapping[str, str]) -> tuple[Part, str]:
    """Run a command with a time limit and kill all that it has started if it takes longer.

    Returns:
        What came of it, and what it printed.
    """
    print(f"{name} …", end=" ", flush=True)
    start = time.monotonic()
    if limit < 1:
        print("failed")
        return Part(name, "failed", 0.0, f"not begun: the {WHOLE} seconds for all were used up"), ""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    printed = said = None
    try:
        printed, said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _end(process)
    seconds = time.monotonic() - start
    if printed is None:
        part = Part(name, "failed", seconds, f"took longer than {limit:.0f} seconds and was stopped")
    elif process.returncode:
        part = Part(name, "failed", seconds, _cause(said or printed, process.returncode))
        print(f"\n{printed[-4000:]}\n{said[-4000:]}", file=sys.stderr)
    else:
        lines = printed.strip().splitlines()
        part = Part(name, "passed", seconds, lines[-1] if lines else "")
    print(f"{part.result}, {seconds:.0f} s", flush=True)
    return part, printed or ""


def with_result(part: Part, printed: str) -> tuple[Part, Any]:
    """The part without a detail, and what its last line holds as JSON; or the part, failed, and None."""
    if part.result != "passed":
        return part, None
    try:
        return dataclasses.replace(part, detail=""), json.loads(printed.strip().rpartition("\n")[2])
    except ValueError:
        return dataclasses.replace(part, result="failed", detail=f"no result, but {part.detail[:100]!r}"), None


def one_gpu() -> dict[str, str]:
    """The variable that shows the first GPU alone: Trainer would split its batches among several."""
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]}


# --- the parts


def judged_tests(part: Part, printed: str) -> Part:
    """The part of the tests, with pytest's last line as its detail. Without a test that passed it has failed."""
    summary = [line.strip("= ") for line in printed.strip().splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", line)]
    detail = summary[-1] if summary else part.detail
    passed = part.result == "passed" and re.search(r"\b[1-9]\d* passed", detail)
    return dataclasses.replace(part, result="passed" if passed else "failed", detail=detail)


def gpu_test_files(folder: Path = ROOT / "tests") -> list[str]:
    """The files that hold tests marked gpu, so that pytest need not import all others."""
    return sorted(str(path) for path in folder.glob("test_*.py") if "pytest.mark.gpu" in path.read_text("utf-8"))


def run_lesson(number: str) -> dict[str, Any]:
    """Execute the stored notebook of a lesson where it sees the GPU, in the tier that it finds by itself.

    Raises:
        CourseError: a cell failed, or the lesson has not been built.
    """
    from nbformat.v4 import new_code_cell

    import course as course_list
    import execution
    import notebook

    course = course_list.load()
    lesson = course.lesson(number)
    path = course.notebook(lesson)
    if not path.exists():
        raise course_list.CourseError(f"notebooks/{path.name} is missing; make it with `make build LESSON={number}`.")
    nb = notebook.read(path)
    nb.cells.append(new_code_cell(PROBE))
    asked = {"COURSE_TIER": os.environ["COURSE_TIER"]} if "COURSE_TIER" in os.environ else {}
    execution.execute(nb, lesson.name, one_gpu() | asked)
    printed = "".join(o.text for c in nb.cells for o in c.get("outputs", []) if o.output_type == "stream")
    tiers = TIER.findall(printed)
    return {"tier": tiers[0] if tiers else "", "allocations": int(printed.strip().rpartition(" ")[2])}


def lesson_detail(found: Mapping[str, Any]) -> str:
    """What is said of a lesson that went through."""
    used = f"{found['allocations']:,} allocations on the GPU" if found["allocations"] else "GPU not used"
    return "; ".join(filter(None, [found["tier"], used]))


def measure(device: torch.device, quick: bool, rounds: int = ROUNDS) -> dict[str, Any]:
    """Needs of all optimizers, and times of their steps: `about`, and by optimizer either a row or an error."""
    model = tiny().to(device) if quick else tasks.distilbert(device=device)
    texts, length = (2, 16) if quick else (gpu_results.TEXTS, gpu_results.LENGTH)
    inputs = step_needs.batch(model.config.vocab_size, texts, length, device)
    rows: dict[str, dict[str, Any]] = {}
    for name in step_needs.NAMES:
        try:
            rows[name] = dataclasses.asdict(step_needs.needs(model, name, inputs))
        except Exception as error:  # told of in the table; the others go on
            rows[name] = {"error": told(error)}
        print(name, "measured" if "error" not in rows[name] else rows[name]["error"], file=sys.stderr, flush=True)
    baseline_ms = add_times(rows, model, inputs, device, rounds)
    measured = {
        "model": "a tiny DistilBERT" if quick else "a full-size DistilBERT",
        "parameters": sum(p.numel() for p in model.parameters()),
        "texts": texts,
        "length": length,
        "baseline_ms": baseline_ms,
    }
    return {"about": about(device) | measured, "optimizers": rows}


def add_times(
    rows: dict[str, dict[str, Any]],
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    device: torch.device,
    rounds: int,
) -> float | None:
    """Time the steps of those that were measured, in turns, and add ratios to fused AdamW's.

    Returns:
        The median of fused AdamW's step in milliseconds; None, and no ratios, where it could not be timed.
    """
    model(**inputs).loss.backward()
    optimizers: dict[str, Optimizer] = {}
    for name in [name for name, row in rows.items() if "error" not in row]:
        try:
            optimizers[name] = step_needs.make(name, list(model.parameters()))
            optimizers[name].step()
        except Exception as error:
            optimizers.pop(name, None)
            rows[name] = {"error": told(error)}
    if step_needs.FUSED not in optimizers:
        return None
    seconds: dict[str, list[float]] = {name: [] for name in optimizers}
    for order in turns(list(optimizers), WARM_UP + rounds):
        for name in order:
            seconds[name].append(step_seconds(optimizers[name], device))
    seconds = {name: values[WARM_UP:] for name, values in seconds.items()}
    baseline = seconds[step_needs.FUSED]
    for name, values in seconds.items():
        ratio, quartiles = middle([mine / base for mine, base in zip(values, baseline, strict=True)])
        rows[name]["time"] = {"ratio": ratio, "quartiles": list(quartiles)}
    return middle([1000 * value for value in baseline])[0]


def step_seconds(optimizer: Optimizer, device: torch.device) -> float:
    """Seconds of one step: on CUDA between two events on the GPU, elsewhere by the clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - start
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    first.record()
    optimizer.step()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000


def tiny() -> PreTrainedModel:
    """A DistilBERT of one layer, to try the program with."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"dim": 64, "hidden_dim": 128, "n_layers": 1, "n_heads": 2}
        return DistilBertForSequenceClassification(DistilBertConfig(vocab_size=500, **sizes)).train()


def told(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def about(device: torch.device) -> dict[str, Any]:
    """When, on what, with which versions."""
    found = {
        "date": date.today().isoformat(),
        "gpu": "no GPU, but the CPU",
        "memory": None,
        "driver": None,
        "cuda": torch.version.cuda,
        "tier": str(tier.current(quiet=True)).removeprefix("Tier: ").rstrip("."),
        "python": platform.python_version(),
    }
    if device.type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "driver": driver()}
        found["memory"] = torch.cuda.get_device_properties(device).total_memory
    for package in ("torch", "transformers", "bitsandbytes"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def driver() -> str | None:
    """The version of NVIDIA's driver, as nvidia-smi tells it."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0] or None


# --- the table


def problems(table: Mapping[str, Any]) -> list[str]:
    """What went wrong in it, in sentences: parts, optimizers that could not be measured, sizes not as predicted."""
    found = [f"{part['name']}: {part['detail']}" for part in table["parts"] if part["result"] != "passed"]
    found += [f"{name}: {row['error']}" for name, row in table["optimizers"].items() if "error" in row]
    for name, need in gpu_results.parse(table).needs.items():
        if not need.as_predicted:
            found.append(f"{name}: {need.state:,} bytes of state, and {need.predicted:,} were predicted")
    return found


def as_csv(table: Mapping[str, Any]) -> str:
    """One line for each optimizer, sizes in bytes."""
    text = io.StringIO()
    peaks = [f"{block}_{what}" for block in ("step", "training") for what in ("before", "peak", "reserved")]
    sizes = ["state", "elements", "predicted", "predicted_elements"]
    writer = csv.DictWriter(
        text, ["optimizer", *sizes, *peaks, "time_ratio", "quartile_1", "quartile_3", "error"], lineterminator="\n"
    )
    writer.writeheader()
    for name, row in table["optimizers"].items():
        line = {"optimizer": name, "error": row.get("error")} | {key: row.get(key) for key in sizes}
        for block in ("step", "training"):
            line |= {f"{block}_{what}": size for what, size in row.get(block, {}).items()}
        if "time" in row:
            low, high = row["time"]["quartiles"]
            line |= {"time_ratio": row["time"]["ratio"], "quartile_1": low, "quartile_3": high}
        writer.writerow(line)
    return text.getvalue()


def as_markdown(table: Mapping[str, Any]) -> str:
    """The whole of it, dated."""
    about, read = table["about"], gpu_results.parse(table)
    versions = ", ".join(
        f"{name} {about[name] or 'not there'}" for name in ("torch", "transformers", "bitsandbytes", "python")
    )
    card = f"{about['gpu']} ({about['memory'] / 2**30:.0f} GiB)" if about["memory"] else about["gpu"]
    lines = [
        "# Optimizers on a GPU",
        "",
        f"Written by `make gpu` on {about['date']}, on {card}; driver {about['driver'] or 'unknown'}, CUDA "
        f"{about['cuda'] or 'none'},",
        f"{versions}. Tier: {about['tier']}.",
        "",
    ]
    if table["parts"]:
        lines += ["| part | result | seconds | |", "|---|---|---:|---|"]
        for part in table["parts"]:
            cells = part["name"], part["result"], f"{part['seconds']:.0f}", part["detail"].replace("|", "/")
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    heads = ("state", "predicted", "elements", *("before", "peak", "added", "reserved") * 2, "time of a step")
    lines += [f"| MiB | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for name, row in table["optimizers"].items():
        if "error" in row:
            lines.append(f"| {name} | failed: {row['error'].replace('|', '/')} |" + " |" * (len(heads) - 1))
            continue
        need = read.needs[name]
        cells = [name, f"{need.state / MIB:,.3f}", f"{need.predicted / MIB:,.3f}", f"{need.elements:,}"]
        for peak in (need.step, need.training):
            sizes = (peak.before, peak.peak, peak.added, peak.reserved)
            cells += ["–" if size is None else f"{size / MIB:,.1f}" for size in sizes]
        if taken := read.times.get(name):
            cells.append(f"{taken.ratio:.2f} ({taken.quartiles[0]:.2f} to {taken.quartiles[1]:.2f})")
        else:
            cells.append("–")
        lines.append(f"| {' | '.join(cells)} |")
    base = f"{about['baseline_ms']:.2f} ms" if about["baseline_ms"] else "not timed"
    model = f"{about['model']} with random weights, {about['parameters']:,} parameters in 32 bits"
    notes = (
        f"Model: {model}. Predicted: from shapes alone.",
        "The first **before, peak, added, reserved** are those of the optimizer's step alone, with the gradients at "
        "hand; the second ones those of a whole training step, forward, backward and optimizer, on "
        f"{about['texts']} texts of {about['length']} tokens. Before and peak: allocated. Reserved: the most that "
        "PyTorch has taken from the card. What cuBLAS keeps to work in is in all three, and not in added.",
        f"**Time**: of the optimizer's step alone, over fused AdamW's ({base}), median of rounds in which all took "
        "turns, and quartiles.",
        "AdamW chooses by itself how it works, which on CUDA is `foreach`. 8-bit AdamW is bitsandbytes', with "
        "embeddings in 8 bits too. The Adafactors of transformers and of the course have Trainer's settings.",
    )
    lines += ["", *(fill(f"- {note}", 118, subsequent_indent="  ", break_on_hyphens=False) for note in notes), ""]
    return "\n".join(lines)


def written(table: Mapping[str, Any], root: Path = ROOT) -> dict[Path, str]:
    """The files and what is in them."""
    return {
        root / "course_lib" / gpu_results.FILE: json.dumps(table, indent=1, ensure_ascii=False) + "\n",
        root / "benchmarks" / "results" / "gpu.csv": as_csv(table),
        root / "benchmarks" / "results" / "gpu.md": as_markdown(table),
    }


def everything() -> int:
    """All parts on the GPU; returns the exit status."""
    end = time.monotonic() + WHOLE
    me = [sys.executable, str(Path(__file__).resolve())]

    def run(name: str, command: Sequence[str], limit: float) -> tuple[Part, str]:
        return run_part(name, command, min(limit, end - time.monotonic()), one_gpu())

    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", *gpu_test_files()]
    parts = [judged_tests(*run(TESTS, tests, LIMITS["tests"]))]
    part, table = with_result(*run(TABLE, [*me, "--part", "table"], LIMITS["table"]))
    parts.append(part)
    for number in LESSONS:
        part, found = with_result(*run(f"lesson {number}", [*me, "--part", number], LESSON_LIMIT))
        parts.append(dataclasses.replace(part, detail=lesson_detail(found)) if found else part)
    told_of = {"parts": [dataclasses.asdict(part) | {"seconds": round(part.seconds, 1)} for part in parts]}
    if table and gpu_results.parse(table).needs:
        table = {"about": table["about"], **told_of, "optimizers": table["optimizers"]}
        print(as_markdown(table))
        write(written(table))
        print("Now `make build LESSON=08` and `make build LESSON=10`: these lessons show the table.")
    else:
        print("No optimizer was measured, so nothing was written.")
        table = {**told_of, "optimizers": table["optimizers"] if table else {}}
    found = problems({"about": {}, **table})
    print(*(f"FAILED  {problem}" for problem in found), sep="\n")
    return int(bool(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu only to try the program")
    parser.add_argument("--quick", action="store_true", help="a tiny model, no other part, and write nothing")
    parser.add_argument("--part", choices=("table", *LESSONS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.device == "cpu" and not given.quick:
        parser.error("the CPU is there to try the program: add --quick")
    if given.device == "cuda" and not torch.cuda.is_available():
        sys.exit(NO_GPU)
    if given.quick:
        table = measure(torch.device(given.device), quick=True, rounds=4) | {"parts": []}
        print("A trial of the program, with a tiny model: nothing below is a result, and nothing was written.\n")
        print(as_markdown(table))
        sys.exit("\n".join(problems(table)) or 0)
    if given.part == "table":
        print(json.dumps(measure(torch.device("cuda"), quick=False)))
    elif given.part:
        sys.path.insert(0, str(ROOT / "tools"))
        from course import CourseError

        try:
            print(json.dumps(run_lesson(given.part)))
        except CourseError as error:
            sys.exit(str(error))
    else:
        sys.exit(everything())


if __name__ == "__main__":
    main()
