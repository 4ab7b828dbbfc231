"""Starting a script of the course from a notebook, in one process or several, with a time limit.

A notebook is one process, and a group of processes that torch has set up stays until its process ends. So what needs a
group of its own is started anew, by this interpreter, and reports what it found as a line of JSON.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# What tells a process its place in a group, or how Accelerate is to be set up: the notebook's own is not passed on.
_NOT_PASSED_ON = re.compile(
    r"(ACCELERATE|FSDP|TORCHELASTIC|GROUP|ROLE)_\w+|(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)"
)
# The last line of a traceback; torch puts the number of the process in front. ChildFailedError is torchrun's own.
_ERROR = re.compile(r"^(?:\[rank\d+\]: )?(?:\w+\.)*((?!ChildFailed)\w*(?:Error|Exception)(?:: .*)?)$", re.MULTILINE)
_SIGNAL = re.compile(r"Signal \d+ \(\w+\)")


class LaunchError(RuntimeError):
    """The script took too long or failed. The message says which, and what to do."""


@dataclass(frozen=True)
class Run:
    """What a script has left.

    Attributes:
        results: the last line that it printed, read as JSON.
        printed: all that it printed before.
        seconds: from the start to the end of all its processes.
    """

    results: Any
    printed: str
    seconds: float


def run(module: str, *arguments: str, processes: int = 1, time_limit: float = 180.0) -> Run:
    """Run a module as a script on this machine's CPU, with the small tier and one thread for each process.

    With one process this is ``python -m module arguments``, with several ``torchrun --nproc_per_node processes -m
    module arguments``. They talk to each other on this machine only, so no network is needed.

    Args:
        module: such as ``course_lib.distributed_loop``. It prints one line of JSON last.
        arguments: for the script.
        processes: how many to start.
        time_limit: seconds, after which all of them are killed.

    Raises:
        LaunchError: it took longer, ended in an error, or printed no JSON.
        ValueError: fewer than one process.
    """
    if processes < 1:
        raise ValueError(f"{processes} processes cannot be started: give 1 or more.")
    what = f"{module} with {processes} process{'es' if processes > 1 else ''}"
    torchrun = ["torch.distributed.run", f"--nproc_per_node={processes}", *_RENDEZVOUS, "-m"] if processes > 1 else []
    start = time.monotonic()
    script = subprocess.Popen(
        [sys.executable, "-m", *torchrun, module, *arguments],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # an interrupt of the notebook reaches the script through this function alone
    )
    try:
        printed, complaints = script.communicate(timeout=time_limit)
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{what} took longer than {time_limit:g} seconds and was stopped. If the machine is busy with other "
            "things, run it again later or with a larger time_limit."
        ) from None
    finally:
        _end(script)
    if script.returncode:
        raise LaunchError(f"{what} ended in an error: {_cause(complaints, script.returncode)}")
    *lines, last = printed.strip().split("\n")
    try:
        return Run(json.loads(last), "\n".join(lines), time.monotonic() - start)
    except ValueError:
        raise LaunchError(f"{what} ended without a result: its last line is no JSON, but {last[:100]!r}.") from None


# A free port, chosen by the process that listens on it, and an address that needs neither a network nor name service.
_RENDEZVOUS = ["--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0", "--local_addr=127.0.0.1"]


def _environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not _NOT_PASSED_ON.fullmatch(name)}
    variables |= {"COURSE_TIER": "small", "COURSE_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    variables |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONIOENCODING": "utf-8"}
    # Where this library comes from, installed or not.
    folders = [str(Path(__file__).resolve().parents[1]), *filter(None, [variables.get("PYTHONPATH")])]
    variables["PYTHONPATH"] = os.pathsep.join(folders)
    # gloo, which passes the messages, otherwise asks for the address of the machine's name.
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    if loopback:
        variables["GLOO_SOCKET_IFNAME"] = loopback.pop()
    if sys.platform == "win32":
        variables["USE_LIBUV"] = "0"  # PyTorch for Windows comes without
    return variables


def _end(script: subprocess.Popen[str]) -> None:
    """Kill the script, if it still runs, and all that it has started: torchrun gives each a session of its own."""
    if script.poll() is None:
        try:
            parent = psutil.Process(script.pid)
            parent.suspend()  # so that it starts no more
            for process in [*parent.children(recursive=True), parent]:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
        except psutil.NoSuchProcess:
            pass
        script.wait()
        for pipe in (script.stdout, script.stderr):
            pipe.close()


def _cause(complaints: str, status: int) -> str:
    """The first error in what the processes wrote to stderr; later ones mostly follow from it."""
    if found := _ERROR.search(complaints):
        return found.group(1)
    signals = _SIGNAL.findall(complaints) or [f"Signal {-status}"] * (status < 0)
    if signals:
        # torchrun ends the others with SIGTERM.
        first = min(signals, key=lambda signal: "SIGTERM" in signal)
        why = ", most likely for want of memory" if "Signal 9" in first else ""
        return f"a process was ended by a signal ({first}){why}."
    lines = complaints.strip().splitlines()
    return lines[-1][:300] if lines else f"exit status {status}, and not a word."
