"""The task `optimizer_steps` of exercise 07: the steps of a loop with several processes and accumulation."""

from __future__ import annotations

import math
from collections.abc import Callable

from course_lib.check._task import Belief, Task, case, ways
from course_lib.diagrams.timeline import Epoch


def _rounding(*roundings: Callable[[float], int]) -> Callable[..., int]:
    """A rule of three divisions, rows to batches to processes to steps, each with its own rounding."""
    to_batches, to_processes, to_steps = roundings

    def rule(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> int:
        return epochs * to_steps(to_processes(to_batches(samples / batch) / processes) / accumulation)

    return rule


def _right_steps(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> int:
    return epochs * Epoch.plan(samples, batch, processes, accumulation).steps


def _exact(samples: int, batch: int, processes: int, accumulation: int, epochs: int) -> float:
    return epochs * samples / (batch * processes * accumulation)


up, down = math.ceil, math.floor
optimizer_steps = Task(
    name="optimizer_steps",
    rule=_right_steps,
    cases=lambda: [
        case(1000, 16, 2, 4, 3),
        case(640, 8, 4, 2, 2),
        case(530, 16, 1, 4, 4),
        case(130, 32, 3, 5, 3),
        case(70, 10, 3, 1, 3),
        case(70, 32, 1, 2, 5),
    ],
    rtol=1e-9,
    atol=0.0,
    beliefs=[
        ways(
            "forgot_processes",
            "You count as for one process. Several share the batches out among them, and step together.",
            lambda s, b, p, a, e: _right_steps(s, b, 1, a, e),
            lambda s, b, p, a, e: _right_steps(s, b, 1, a, 1),
            lambda s, b, p, a, e: e * down(down(s / b) / a),
            lambda s, b, p, a, e: e * down(up(s / b) / a),
            lambda s, b, p, a, e: up(e * up(s / b) / a),
            lambda s, b, p, a, e: down(e * up(s / b) / a),
        ),
        ways(
            "batches_not_steps",
            "You count batches, as if each were followed by a step. With accumulation several backward passes make "
            "one step.",
            lambda s, b, p, a, e: _right_steps(s, b, p, 1, e),
            lambda s, b, p, a, e: _right_steps(s, b, 1, 1, e),
            lambda s, b, p, a, e: e * down(s / b / p),
            lambda s, b, p, a, e: e * down(s / b),
        ),
        Belief(
            "rows_not_batches",
            "You deal out rows, as if each came alone. A process works on a whole batch at once.",
            lambda s, b, p, a, e: _right_steps(s, 1, p, a, e),
        ),
        ways(
            "one_epoch",
            "This is one epoch. The data is gone through `epochs` times.",
            lambda s, b, p, a, e: _right_steps(s, b, p, a, 1),
            lambda s, b, p, a, e: down(s / b / p / a),
        ),
        ways(
            "rounded_once",
            "You round once, at the very end. But each epoch ends with a step of its own, so the rounding comes "
            "before you multiply by the epochs.",
            lambda *args: up(_exact(*args)),
            lambda *args: down(_exact(*args)),
            lambda *args: round(_exact(*args)),
            lambda s, b, p, a, e: up(e * up(s / b) / (p * a)),
            lambda s, b, p, a, e: down(e * up(s / b) / (p * a)),
        ),
        ways(
            "groups_cross_epochs",
            "An incomplete group at the end of an epoch waits for the next epoch in your count. Accelerate does not "
            "wait: it steps at the end of the data.",
            lambda s, b, p, a, e: up(e * up(s / b / p) / a),
            lambda s, b, p, a, e: down(e * up(s / b / p) / a),
            lambda s, b, p, a, e: down(e * down(s / b / p) / a),
        ),
        ways(
            "not_rounded",
            "A part of a step remains. Nobody takes 0.4 of a step: think what happens to the batches, or the group, "
            "that are left over.",
            _exact,
            lambda s, b, p, a, e: e * up(s / b) / p / a,
            lambda s, b, p, a, e: e * up(s / b / p) / a,
        ),
        Belief(
            "drops_last_group",
            "You leave the last group of an epoch out if it is not full. Accelerate steps at the end of the data all "
            "the same.",
            _rounding(up, up, down),
        ),
        Belief(
            "drops_last_round",
            "You leave out the batches that do not go round evenly. The round is filled up with the first rows, so "
            "that all have as many.",
            _rounding(up, down, up),
        ),
        Belief(
            "drops_last_batch",
            "You leave out the last batch if it is not full. A loader keeps it, unless it was made with "
            "`drop_last=True`.",
            _rounding(down, up, up),
        ),
        ways(
            "rounded_down",
            "You round down. What is left over is not lost: a small batch, a round that is not full and an incomplete "
            "group all count.",
            _rounding(down, down, down),
            _rounding(down, down, up),
            _rounding(down, up, down),
            _rounding(up, down, down),
        ),
        ways(
            "always_one_more",
            "You round down and add one. Where a division comes out even nothing is left over, and that is one too "
            "many.",
            lambda s, b, p, a, e: e * (down(s / (b * p * a)) + 1),
            lambda s, b, p, a, e: e * (down((down((down(s / b) + 1) / p) + 1) / a) + 1),
            lambda s, b, p, a, e: e * (down(up(up(s / b) / p) / a) + 1),
            lambda s, b, p, a, e: down(e * s / (b * p * a)) + 1,
        ),
        ways(
            "rounded_to_nearest",
            "You round to the nearest number. What is left over counts, however little it is.",
            lambda s, b, p, a, e: e * round(s / (b * p * a)),
            _rounding(round, round, round),
            _rounding(up, round, round),
            _rounding(up, up, round),
        ),
        ways(
            "ticks_not_steps",
            "You add up what all processes do. So often the prepared scheduler ticks; the optimizers of all processes "
            "step together, and that is one step.",
            lambda s, b, p, a, e: p * _right_steps(s, b, p, a, e),
            lambda s, b, p, a, e: e * sum(up(len(range(first, up(s / b), p)) / a) for first in range(p)),
        ),
        ways(
            "processes_repeat_the_data",
            "More processes make more steps in your count, as if each went through all the data. They share it, so "
            "steps become fewer.",
            lambda s, b, p, a, e: e * up(up(s / b) * p / a),
            lambda s, b, p, a, e: p * _right_steps(s, b, 1, a, e),
            lambda s, b, p, a, e: p * _right_steps(s, b, 1, 1, e),
        ),
        ways(
            "accumulation_multiplies",
            "You multiply by the accumulation. The more backward passes go into one step, the fewer steps there are.",
            lambda s, b, p, a, e: a * _right_steps(s, b, p, 1, e),
            lambda s, b, p, a, e: a * _right_steps(s, b, 1, 1, e),
        ),
    ],
    hints=[
        "One epoch first: rows to batches, batches to processes, batches of one process to steps.",
        "At each of the three divisions ask what happens to what is left over. Is it dropped, or does it count?",
        "Round up at each division, and multiply by the epochs last. `math.ceil` rounds up.",
    ],
    praise="Rounding up once, of rows by batch · processes · accumulation, gives the same: but for each epoch, not for "
    "all of them.",
)
