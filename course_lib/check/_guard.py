"""Calling a learner's function so that nothing it does hurts the notebook: prints, warnings, errors, endless loops."""

from __future__ import annotations

import builtins
import ctypes
import linecache
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from IPython.utils.capture import capture_output

# Seconds between two attempts to stop a function that catches the first one.
AGAIN = 0.05
# Seconds after which a function in a thread that does not stop is given up.
GIVE_UP = 2.0


class TimeIsUp(BaseException):
    """Raised inside a function that runs too long; no `except Exception` in there stops it."""


@dataclass
class Outcome:
    """What came of one call.

    Attributes:
        value: what the function returned.
        error: what it raised, or None.
        line: the learner's line that raised, if it can be found.
        printed: what it wrote to stdout.
        stopped: it ran longer than it may.
        running: and it could not be stopped either, so it still runs.
    """

    value: Any = None
    error: BaseException | None = None
    line: str = ""
    printed: str = ""
    stopped: bool = False
    running: bool = False


def call(function: Callable[[], Any], seconds: float, quiet: bool = True) -> Outcome:
    """Call a function without arguments for at most so many seconds, quietly or letting out what it shows.

    Raises nothing. What a function shows from another thread would get lost, so without an alarm one that may show
    something has no time limit.
    """
    outcome = Outcome()
    limited = _with_alarm if _has_alarm() else _in_thread
    with _quiet() if quiet else nullcontext() as captured:
        try:
            outcome.value = limited(function, seconds) if quiet or _has_alarm() else function()
        except TimeIsUp as error:
            outcome.stopped, outcome.running = True, error.args == ("running",)
        except BaseException as error:  # also SystemExit, and KeyboardInterrupt when the learner presses stop
            outcome.error, outcome.line = error, _line(error)
    outcome.printed = captured.stdout if captured else ""
    return outcome


@contextmanager
def _quiet() -> Iterator[Any]:
    """Keep prints, pictures and log lines from the notebook, and let nothing wait for a keyboard."""

    def refuse(prompt: object = "") -> str:
        raise RuntimeError("the function asks for input(); it gets all it needs as arguments")

    ask, builtins.input = builtins.input, refuse
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with capture_output() as captured:
            yield captured
    finally:
        logging.disable(level)
        builtins.input = ask


def _has_alarm() -> bool:
    """An alarm can interrupt Python on Linux and macOS, and there on the main thread only."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


def _with_alarm(function: Callable[[], Any], seconds: float) -> Any:
    rung = 0

    def inside() -> Any:
        return function()

    def ring(_: int, frame: Any) -> None:
        nonlocal rung
        around = frame
        while around is not None:  # an alarm that comes late must not hit the code around the call
            if around.f_code is inside.__code__:
                rung += 1
                if rung > 1:  # the function caught the first one: raise again where it does so
                    frame.f_trace = in_handler
                    sys.settrace(in_handler)
                raise TimeIsUp
            around = around.f_back

    def in_handler(_: Any, event: str, __: Any) -> Any:
        if event == "line":
            raise TimeIsUp
        return in_handler

    before, traced = signal.signal(signal.SIGALRM, ring), sys.gettrace()
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        return inside()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        sys.settrace(traced)


def _in_thread(function: Callable[[], Any], seconds: float) -> Any:
    done: dict[str, Any] = {}

    def work() -> None:
        try:
            done["value"] = function()
        except BaseException as error:
            done["error"] = error

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    give_up = time.monotonic() + GIVE_UP
    while thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeIsUp))
        thread.join(AGAIN)
        if time.monotonic() > give_up:
            raise TimeIsUp("running")
    if "error" in done:
        raise done["error"]
    return done["value"]


def _line(error: BaseException) -> str:
    """The last line of the learner's own code on the way to the error: what is defined in a notebook's cells."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if "ipykernel_" in frame.filename or frame.filename.startswith("<"):
            return (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return ""
