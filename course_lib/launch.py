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
import tempfile
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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
    """

    results: Any
    printed: str


class Started:
    """A script that has been started and works on its own until :meth:`result` waits for it. Made by :func:`start`."""

    def __init__(self, command: list[str], what: str, time_limit: float) -> None:
        self._what, self._time_limit, self._start = what, time_limit, time.monotonic()
        # In files, since a pipe that nobody reads yet would fill up and stop the script.
        self._printed, self._complaints = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self._script = subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=self._printed,
            stderr=self._complaints,
            start_new_session=True,  # an interrupt of the notebook reaches the script through this class alone
        )
        # When nobody asks for the result, it ends with the notebook's kernel at the latest.
        weakref.finalize(self, _clean_up, self._script, self._printed, self._complaints)

    def result(self) -> Run:
        """Wait until the script is over; what it has left. Can be asked for again.

        Raises:
            LaunchError: it took longer than its time limit and was killed, ended in an error, or printed no JSON.
        """
        left = self._time_limit - (time.monotonic() - self._start)
        try:
            self._script.wait(max(left, 0.0))
        except subprocess.TimeoutExpired:
            raise LaunchError(
                f"{self._what} took longer than {self._time_limit:g} seconds and was stopped. If the machine is busy "
                "with other things, run it again later or with a larger time_limit."
            ) from None
        finally:
            _end(self._script)
        if self._script.returncode:
            cause = _cause(_text(self._complaints), self._script.returncode)
            raise LaunchError(f"{self._what} ended in an error: {cause}")
        *lines, last = _text(self._printed).strip().split("\n")
        try:
            return Run(json.loads(last), "\n".join(lines))
        except ValueError:
            raise LaunchError(
                f"{self._what} ended without a result: its last line is no JSON, but {last[:100]!r}."
            ) from None


def start(module: str, *arguments: str, processes: int = 1, time_limit: float = 180.0) -> Started:
    """Start a module as a script on this machine's CPU, with the small tier and one thread for each process.

    With one process this is ``python -m module arguments``, with several ``torchrun --nproc_per_node processes -m
    module arguments``. They talk to each other on this machine only, so no network is needed. Ask for the
    :meth:`Started.result` later: several that are started one after the other run side by side.

    Args:
        module: such as ``course_lib.distributed_loop``. It prints one line of JSON last.
        arguments: for the script.
        processes: how many to start.
        time_limit: seconds from now, after which ``result`` kills all of them.

    Raises:
        ValueError: fewer than one process.
    """
    if processes < 1:
        raise ValueError(f"{processes} processes cannot be started: give 1 or more.")
    what = f"{module} with {processes} process{'es' if processes > 1 else ''}"
    torchrun = ["torch.distributed.run", f"--nproc_per_node={processes}", *_RENDEZVOUS, "-m"] if processes > 1 else []
    return Started([sys.executable, "-m", *torchrun, module, *arguments], what, time_limit)


def run(module: str, *arguments: str, processes: int = 1, time_limit: float = 180.0) -> Run:
    """:func:`start` a script, and wait for its result.

    Raises:
        LaunchError, ValueError: as :meth:`Started.result` and :func:`start` say.
    """
    return start(module, *arguments, processes=processes, time_limit=time_limit).result()


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


def _end(script: subprocess.Popen[bytes]) -> None:
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


def _clean_up(script: subprocess.Popen[bytes], *files: IO[bytes]) -> None:
    _end(script)
    for file in files:
        file.close()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", errors="replace").replace("\r\n", "\n")


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
