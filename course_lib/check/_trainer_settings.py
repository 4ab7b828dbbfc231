"""Exercise 06, first task: Trainer's settings for a run, and a table of what may not be as asked about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from course_lib.check._task import Belief, Task, Verdict, case, wrong

STEP = 64  # rows in one step of the optimizer
OLD_NAMES = "evaluation_strategy|warmup_ratio|adafactor|no_cuda|overwrite_output_dir|logging_dir"


class Fault(NamedTuple):
    """A way in which settings are not as asked: ``there(arguments, rows)`` finds it."""

    name: str
    setting: str
    asked: str
    there: Callable[[Any, int], bool]
    says: str


def _value(setting: Any) -> Any:
    """What stands behind an enum's member, where the setting is one."""
    return getattr(setting, "value", setting)


def _batch(arguments: Any) -> tuple[int, int]:
    return arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps


def _warmup(arguments: Any, steps: int) -> int | None:
    try:
        return arguments.get_warmup_steps(steps)
    except TypeError:
        return None


def _clips(length: Any) -> bool:
    """Whether Trainer clips at this length: not at 0 or below, and infinity stops nothing."""
    return not isinstance(length, (int, float)) or 0 < length < float("inf")


FAULTS = [
    Fault(
        "other_optimizer",
        "optim",
        "'adafactor'",
        lambda a, rows: _value(a.optim) != "adafactor",
        "This trains with another optimizer. Trainer's default is an AdamW, so Adafactor has to be asked for.",
    ),
    Fault(
        "none_with_linear_schedule",
        "learning_rate",
        "a number",
        lambda a, rows: a.learning_rate is None,
        "You leave the rate to Adafactor, as its relative step would want. But Trainer switches the relative step off, "
        "and its linear schedule multiplies the rate: `None` cannot be multiplied.",
    ),
    Fault(
        "rate_as_text",
        "learning_rate",
        "a number",
        lambda a, rows: not isinstance(a.learning_rate, (int, float)),
        "`TrainingArguments` takes it without a word, but the rate has to be a number.",
    ),
    Fault(
        "adamw_default_rate",
        "learning_rate",
        "a rate for random weights",
        lambda a, rows: a.learning_rate == 5e-5,
        "The rate is 5e-5, Trainer's default for every optimizer. Lesson 06's first run had it: after an epoch the "
        "random weights had hardly moved, and the scores were those of the baseline.",
    ),
    Fault(
        "rate_too_small",
        "learning_rate",
        "a rate for random weights",
        lambda a, rows: not a.learning_rate >= 5e-4,
        "With this rate, random weights do not get far: the rates of all steps add up to the most that a matrix can "
        "move. It suits pretrained weights, which are nearly where they should be.",
    ),
    Fault(
        "rate_too_large",
        "learning_rate",
        "a rate for random weights",
        lambda a, rows: a.learning_rate > 5e-3,
        "This rate is too large: a step moves a matrix by up to that much in RMS, whatever its size. With such a rate "
        "lesson 06's short run ended at the baseline.",
    ),
    Fault(
        "other_schedule",
        "lr_scheduler_type",
        "'linear'",
        lambda a, rows: _value(a.lr_scheduler_type) != "linear",
        "The rate follows another curve. After the warm-up it is to fall along a straight line, down to 0.",
    ),
    Fault(
        "no_warmup",
        "warmup_steps",
        "a tenth of all steps",
        lambda a, rows: _warmup(a, 3000) == 0,
        "There is no warm-up: the first step has the full rate already.",
    ),
    Fault(
        "warmup_of_fixed_length",
        "warmup_steps",
        "a tenth of all steps",
        lambda a, rows: _warmup(a, 3000) == _warmup(a, 300),
        "Your warm-up has a fixed number of steps, so its share depends on how long the run is. Below 1, the same "
        "setting means a share of all steps.",
    ),
    Fault(
        "warmup_of_other_length",
        "warmup_steps",
        "a tenth of all steps",
        lambda a, rows: _warmup(a, 3000) != 300,
        "The warm-up has another length than asked for.",
    ),
    Fault(
        "clipping_is_none",
        "max_grad_norm",
        "0.0",
        lambda a, rows: a.max_grad_norm is None,
        "`None` looks as if it meant no clipping, but Trainer asks whether the value is above 0, and stops with a "
        "TypeError. The number 0 switches it off.",
    ),
    Fault(
        "clips_twice",
        "max_grad_norm",
        "0.0",
        lambda a, rows: _clips(a.max_grad_norm),
        "Trainer still clips the gradients by their length, as it does unless you switch that off. Adafactor has its "
        "own clipping, at the update.",
    ),
    Fault(
        "not_every_epoch",
        "eval_strategy",
        "'epoch'",
        lambda a, rows: _value(a.eval_strategy) != "epoch",
        "The run is not evaluated at the end of every epoch. Trainer's default is never, and then nothing in its log "
        "could be compared with a baseline.",
    ),
    Fault(
        "accumulation_as_decimal",
        "gradient_accumulation_steps",
        "a whole number",
        lambda a, rows: not all(isinstance(number, int) for number in _batch(a)),
        "Batch size and accumulation have to be whole numbers, and `/` makes a decimal one, even where nothing is left "
        "over. Trainer would stop with a TypeError.",
    ),
    Fault(
        "fixed_numbers",
        "per_device_train_batch_size",
        "`rows`",
        lambda a, rows: _batch(a)[0] != rows and _batch(a)[1] > 1 and _batch(a)[0] * _batch(a)[1] == STEP,
        "A step uses 64 rows, as asked, but not in batches of `rows` rows. One of the two settings is `rows` itself; "
        "work out the other from it.",
    ),
    Fault(
        "accumulation_multiplied",
        "per_device_train_batch_size",
        "`rows`",
        lambda a, rows: _batch(a)[0] > rows and _batch(a)[1] > 1,
        "Your batch has more than `rows` rows, and accumulation beside it. Trainer does not cut a batch into pieces: a "
        "step uses batch size times accumulation rows.",
    ),
    Fault(
        "batch_too_large",
        "per_device_train_batch_size",
        "`rows`",
        lambda a, rows: _batch(a)[0] > rows,
        "A batch has more rows than the device has memory for. Take smaller ones, and let their gradients add up.",
    ),
    Fault(
        "no_accumulation",
        "gradient_accumulation_steps",
        "64 rows in a step",
        lambda a, rows: _batch(a)[1] == 1 and _batch(a)[0] < STEP,
        "A step uses a single batch, so it has fewer rows than asked for. Several batches have to be added up.",
    ),
    Fault(
        "rows_for_batches",
        "gradient_accumulation_steps",
        "64 rows in a step",
        lambda a, rows: _batch(a)[1] == STEP,
        "`gradient_accumulation_steps` counts batches, and you give it rows: a step would use 64 batches.",
    ),
    Fault(
        "other_number_of_rows",
        "gradient_accumulation_steps",
        "64 rows in a step",
        lambda a, rows: _batch(a) != (rows, STEP // rows),
        "A step uses batch size times accumulation rows, and that is not 64 here. It should be for every `rows`.",
    ),
]


def _training_arguments(folder: str, rows: int) -> Any:
    from transformers import TrainingArguments

    plan = {"optim": "adafactor", "learning_rate": 1e-3, "warmup_steps": 0.1, "max_grad_norm": 0.0}
    batches = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": STEP // rows}
    return TrainingArguments(folder, eval_strategy="epoch", **plan, **batches)


def _accept_arguments(came: Any, folder: str, rows: int) -> Verdict | None:
    from transformers import TrainingArguments

    if not isinstance(came, TrainingArguments):
        says = "Trainer takes a `TrainingArguments` and nothing else, so make one of your settings and return it."
        return wrong(says, "settings_only", came=came, expected="a TrainingArguments")
    if str(came.output_dir) != folder:
        says = "The run would write into another folder than the given one. Hand `folder` on."
        return wrong(says, "fixed_folder", came=f"output_dir={came.output_dir!r}", expected=repr(folder))
    for name, setting, asked, there, says in FAULTS:
        if there(came, rows):
            return wrong(says, name, came=f"{setting}={_value(getattr(came, setting))!r}", expected=asked)
    return None


training_arguments = Task(
    name="training_arguments",
    rule=_training_arguments,
    cases=lambda: [case("results", 16), case("results/second", 4), case("results/third", 64)],
    accept=_accept_arguments,
    seconds=60.0,  # the first TrainingArguments of a process looks for devices
    beliefs=[
        Belief(
            "old_name",
            "This setting has been renamed since the example was written that you know it from. Near its end, lesson "
            "06 has a table of old names and new ones.",
            raises=f"unexpected keyword argument '({OLD_NAMES})'",
        ),
        Belief(
            "unknown_name",
            "`TrainingArguments` has no setting of this name. `help(TrainingArguments)` lists those that it has.",
            raises="TrainingArguments.*unexpected keyword argument",
        ),
        Belief(
            "wrong_optim_string",
            "Trainer knows its optimizers by fixed names, letter by letter, and this is none of them. Lesson 06 prints "
            "the menu.",
            raises="is not a valid OptimizerNames",
        ),
        *(Belief(fault.name, fault.says) for fault in FAULTS),
    ],
    hints=[
        "Every line of the list is one setting, or two. Lesson 06 uses all of them, under today's names.",
        "The warm-up is `warmup_steps`, which takes a share too; the clipping is `max_grad_norm`; the rate is the best "
        "of the three that lesson 06 tried.",
        "Rows in a step = `per_device_train_batch_size` · `gradient_accumulation_steps`, and the first is `rows`.",
    ],
    praise="Factoring, growing decay and clipping come from Adafactor; how far a step goes comes from your rate.",
)
