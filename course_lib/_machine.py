"""What the doctor finds out in a process of its own: whether packages load, and what torch makes of the GPU.

A package that does not fit the machine can end the process that imports it, without a word and without an exception. So
:func:`ask` starts this module as a script. It says one line of JSON for each thing, and whoever listens knows how far
it came.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MARK = "found out: "
# What is imported to see whether a package loads, where that is not the package's own name.
MODULES = {
    "babel": "babel.core",
    "matplotlib": "matplotlib.figure",
    "scikit-learn": "sklearn.metrics",
    "scipy": "scipy.stats",
    # transformers itself loads nothing; this loads torch, tokenizers and, where it is installed, torchvision.
    "transformers": "transformers.models.distilbert.modeling_distilbert",
}
SECONDS = 120.0

Facts = dict[str, dict[str, Any]]


def ask(packages: Iterable[str], seconds: float = SECONDS) -> Facts:
    """Start the script, wait for it, and put together what it has said.

    Args:
        packages: to be imported, by the names that pip knows.
        seconds: after which it is stopped.

    Returns:
        ``torch`` (see :func:`torch_facts`), ``tier`` (see :func:`tier_facts`), and an entry for each package, empty if
        it loads. What failed has the key ``error``; what was not reached in time ``slow``. After an error of torch, or
        the end of the process, the rest is missing.
    """
    packages = list(packages)
    paths = [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}
    script = subprocess.Popen(
        [sys.executable, "-m", "course_lib._machine", *packages],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    try:
        said, complaints = script.communicate(timeout=seconds)
        end = {"error": _end(script.returncode, complaints)}
    except subprocess.TimeoutExpired:
        script.kill()
        said, _ = script.communicate()
        end = {"slow": f"not done after {seconds:g} seconds"}
    lines = [json.loads(line[len(MARK) :]) for line in said.splitlines() if line.startswith(MARK)]
    facts = {line.pop("what"): line for line in lines}
    if "error" not in facts.get("torch", {}):
        unsaid = [name for name in ("torch", "tier", *packages) if name not in facts]
        facts.update({name: end for name in unsaid[:1]})
    return facts


def _end(status: int, complaints: str) -> str:
    """Why a process ended early, in words."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        return f"importing it ended the process with the signal {name}"
    lines = complaints.strip().splitlines()
    return lines[-1] if lines else f"importing it ended the process with the status {status}"


def torch_facts() -> dict[str, Any]:
    """What torch says of itself and of the GPU.

    Returns:
        ``cuda`` and ``hip``, the versions it was built for, or None; ``available``; ``mps``. With a GPU ``name``,
        ``bytes``, ``capability`` and ``arches``, and ``trouble`` if it cannot compute there. Without one, but built
        for CUDA, ``trouble`` is why CUDA does not start.
    """
    import torch

    facts = {
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "available": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    try:
        if facts["available"]:
            gpu = torch.cuda.get_device_properties(0)
            facts.update(name=gpu.name, bytes=gpu.total_memory, capability=[gpu.major, gpu.minor])
            facts["arches"] = torch.cuda.get_arch_list()
            if (torch.ones(8, device="cuda") * 2).sum().item() != 16:
                facts["trouble"] = "it computes wrongly"
        elif facts["cuda"]:
            torch.cuda.init()
    except Exception as error:
        facts["trouble"] = first_line(error)
    return facts


def tier_facts() -> dict[str, Any]:
    """The tier: ``name``, ``device``, ``why``, and ``lost`` if it needs files that are neither cached nor in reach."""
    from course_lib import _hub, tier

    here = tier.current(quiet=True)
    lost = here.name == "full" and here.offline and not _hub.cached()
    return {"name": here.name, "device": here.device.type, "why": here.why, "lost": lost}


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _say(what: str, find_out: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        found = find_out()
    except ValueError as error:  # the course's own, with a sentence
        found = {"error": str(error).splitlines()[0] if what == "tier" and str(error) else first_line(error)}
    except Exception as error:
        found = {"error": first_line(error)}
    print(MARK + json.dumps({"what": what, **found}), flush=True)
    return found


def main(packages: Iterable[str]) -> None:
    if "error" in _say("torch", torch_facts):
        return
    _say("tier", tier_facts)
    for name in packages:
        _say(name, lambda name=name: {} if importlib.import_module(MODULES.get(name, name)) else {})


if __name__ == "__main__":
    main(sys.argv[1:])
