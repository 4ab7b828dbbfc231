"""Feedback on exercises: `check.ema()` judges your `ema`, `check.ema.hint()` helps, `check.ema.solution()` tells.

Each exercise notebook has a module here with its tasks. A check calls your function on several inputs and says which
one went wrong, what came out, what was expected, and which misconception that looks like. It judges what the function
does, not how it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# Which module has which tasks, in the order of the notebook.
EXERCISES: dict[str, tuple[str, ...]] = {
    "exercise_02": ("ema", "bias_corrected", "first_step_beyond"),
    "exercise_03": ("second_moment", "rmsprop_step", "same_path", "state_numbers"),
    "exercise_04": ("row_col_means", "reconstruct", "worst_matrix", "commutes"),
    "exercise_05": ("adafactor_step", "repaired", "switch_card"),
    "exercise_06": ("training_arguments", "compute_metrics", "judgement", "gradient_in_pieces"),
    "exercise_07": ("torch_rate", "train", "faults", "optimizer_steps"),
    "exercise_08": ("compute_optimizer_size", "whose_state", "predicted_numbers", "t5_3b"),
    "exercise_09": ("quantize_blocks", "adam8bit_bytes", "share_lost"),
    "exercise_10": ("better", "flaws", "five_scenarios"),
    "capstone": ("choose", "prove", "fit"),
}


def __getattr__(name: str) -> Any:
    for module, tasks in EXERCISES.items():
        if name in tasks:
            return getattr(import_module(f"course_lib.check.{module}"), name)
    raise AttributeError(f"The course has no task {name!r}; there are {', '.join(__dir__())}.")


def __dir__() -> list[str]:
    return ["preview", "progress", *(task for tasks in EXERCISES.values() for task in tasks)]


def progress(*tasks: str) -> None:
    """Show one line: how many of these tasks are right in this kernel, and which are not.

    Args:
        *tasks: names of tasks, such as "ema".
    """
    from course_lib.check import _show

    _show.progress(tasks)


def preview(make: Callable[[], Any], seconds: float = 60.0) -> None:
    """Show what your functions make of something, if they are written already; otherwise say what is missing.

    It does not start while a function of yours is known to run on and on.

    Args:
        make: a function without arguments, such as ``lambda: ema(series, 0.9)``. What it returns is shown, unless it is
            None.
        seconds: it is stopped after so many, where the system can do that.
    """
    from IPython.display import display

    from course_lib.check import _guard, _show

    if _show.endless:
        return _show.note(f"Your `{min(_show.endless)}` does not come to an end. To see something here, mend it first.")
    outcome = _guard.call(make, seconds, quiet=False)
    error = outcome.error
    if outcome.stopped:
        return _show.note(f"This still ran after {seconds:.0f} seconds. Look for a loop of yours that never ends.")
    if isinstance(error, NotImplementedError):
        return _show.note("To see something here, first write the function above.")
    if isinstance(error, NameError):
        return _show.note(f"`{error.name}` does not exist yet: run the cell that defines it.")
    if error is not None:
        return _show.note(f"Your function raised `{type(error).__name__}: {error}`")
    if outcome.value is not None:
        display(outcome.value)
