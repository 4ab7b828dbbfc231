"""Exercise 06: write Trainer's settings and scores, judge a run, and take one step's gradient in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.check._task import Belief, NotFit, Task, Verdict, case, ways, wrong
from course_lib.diagrams.baseline import always_majority

# ---- training_arguments

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
        lambda a, rows: bool(a.max_grad_norm),
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
        "A step has 64 rows, but its batches do not have what this device holds. Compute both numbers from `rows`.",
    ),
    Fault(
        "accumulation_multiplied",
        "per_device_train_batch_size",
        "what the device can hold",
        lambda a, rows: _batch(a)[0] > rows and _batch(a)[1] > 1,
        "Your batch has more rows than the device can hold, and accumulation beside it. Trainer does not cut a batch "
        "into pieces, it multiplies: a step has batch size times accumulation rows.",
    ),
    Fault(
        "batch_too_large",
        "per_device_train_batch_size",
        "what the device can hold",
        lambda a, rows: _batch(a)[0] > rows,
        "A batch has more rows than the device can hold. Take smaller ones, and let their gradients add up.",
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
        "Batch size times accumulation is not 64. For each number of rows that a device can hold, it should be.",
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


# ---- compute_metrics

CLASSES = 6


def _evaluation(labels: Sequence[int], answers: Sequence[int], dtype: type = np.float32) -> Any:
    """What Trainer hands over: class scores, the highest of each row at its answer, and of all in the last row."""
    from transformers import EvalPrediction

    scores = np.random.default_rng(len(labels)).normal(size=(len(labels), CLASSES))
    scores[np.arange(len(labels)), answers] = scores.max(axis=1) + 0.5
    scores[-1] += 9
    given = f"label_ids {list(labels)}; the highest scores in predictions are at {list(answers)}"
    return case(EvalPrediction(predictions=scores.astype(dtype), label_ids=np.array(labels)), given=given)


class Counts(NamedTuple):
    """For each class: rows that have it, rows that are answered with it, rows where both is so; and each class's F1."""

    have: np.ndarray
    said: np.ndarray
    both: np.ndarray
    f1: np.ndarray


def _counts(labels: np.ndarray, answers: np.ndarray) -> Counts:
    has, says = (values == np.arange(CLASSES)[:, None] for values in (labels, answers))
    have, said, both = (rows.sum(axis=1) for rows in (has, says, has & says))
    return Counts(have, said, both, 2 * both / (have + said))


def _scores(evaluation: Any, f1: Callable[[Counts], Any] = lambda n: n.f1.mean(), axis: int = -1) -> dict[str, Any]:
    labels, answers = evaluation.label_ids, evaluation.predictions.argmax(axis=axis)
    return {"accuracy": (answers == labels).mean(), "f1": f1(_counts(labels, answers))}


def _f1_or_nan(n: Counts) -> Any:
    with np.errstate(invalid="ignore"):
        precision, recall = n.both / n.said, n.both / n.have
        return (2 * precision * recall / (precision + recall)).mean()


compute_metrics = Task(
    name="compute_metrics",
    rule=_scores,
    cases=lambda: [
        _evaluation([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 0]),
        _evaluation([0, 1, 2, 3, 4, 5, 0, 0], [0, 1, 2, 3, 0, 5, 0, 1]),
        _evaluation([0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 5], [0] * 12),
        _evaluation([0, 0, 1, 1, 2, 2, 3, 3, 4], [0, 1, 1, 1, 2, 5, 3, 3, 4], np.float64),
    ],
    rtol=2e-3,
    beliefs=[
        Belief(
            "argmax_axis_0",
            "Your answers go down the columns: for each class, the row with its highest score. A row's answer is its "
            "best class, so look along the last axis.",
            partial(_scores, axis=0),
            raises=r"samples: \[(\d+, 6|6, \d+)\]|\(6,\)|tensor [ab] \(6\)",
        ),
        Belief(
            "labels_predictions_swapped",
            "Labels and predictions have changed places. `predictions` comes first, with a row of scores for each "
            "example; `label_ids` has one whole number for each.",
            raises=r"Got (np\.int64\()?(\d|1[01])\)? instead|axis 1 is out of bounds",
        ),
        Belief(
            "argmax_of_everything",
            "Without an axis, `argmax` finds a single place: that of the highest score of all rows together. Each row "
            "needs an answer.",
            raises=r"Got (np\.int64\()?\d+\)? instead",
        ),
        Belief(
            "scores_for_answers",
            "You compare labels with class scores. First make an answer of each row: the class with the highest score.",
            raises="continuous-multioutput",
        ),
        Belief(
            "binary_on_six",
            "F1 without `average` means the class labelled 1 alone. With six classes you have to say how they count "
            "together.",
            partial(_scores, f1=lambda n: n.f1[1]),
            raises="average='binary'",
        ),
        Belief(
            "micro_f1_is_accuracy",
            "Your F1 is the accuracy again. With micro, all rows go into one pot, and where each has one class the two "
            "are the same. Macro takes the mean over the classes.",
            partial(_scores, f1=lambda n: n.both.sum() / n.have.sum()),
        ),
        Belief(
            "weighted_average",
            "In your F1, frequent classes count for more. In the macro average all count the same, however many rows "
            "they have.",
            partial(_scores, f1=lambda n: (n.f1 * n.have).sum() / n.have.sum()),
        ),
        Belief(
            "one_for_each_class",
            "Your F1 is one number for each class. A single one is asked: their mean.",
            partial(_scores, f1=lambda n: n.f1),
        ),
        Belief(
            "divides_zero_by_zero",
            "For a class that is never named, precision is 0 divided by 0. Nothing of it has been found, so its F1 is "
            "0, and it counts in the mean.",
            partial(_scores, f1=_f1_or_nan),
            raises="ZeroDivisionError",
        ),
        ways(
            "skipped_classes",
            "You leave classes out: those that are never found, never named, or that no row has. All that occur among "
            "labels or answers count, with 0 where nothing is right.",
            partial(_scores, f1=lambda n: n.f1[n.both > 0].mean()),
            partial(_scores, f1=lambda n: n.f1[n.said > 0].mean()),
            partial(_scores, f1=lambda n: n.f1[n.have > 0].mean()),
        ),
    ],
    hints=[
        "`predictions` has a row for each example and a column for each class. Which axis holds the classes?",
        "scikit-learn has both scores. With `average=` you tell F1 that every class counts the same.",
    ],
    praise="A class that is never found costs the macro average up to a sixth, and the accuracy only its few rows.",
)


# ---- judgement


def _class_1(counts: Sequence[int], share: float) -> float:
    """F1 of the lazy classifier: of class 1 where there are two, else the macro average."""
    if len(counts) == 2:
        return always_majority(share, 2).binary if counts[1] > counts[0] else 0.0
    return _macro(counts, share)


def _macro(counts: Sequence[int], share: float) -> float:
    return _majority(counts, share) / len(counts)


def _majority(counts: Sequence[int], share: float) -> float:
    return 2 * share / (1 + share)


def _same_share(counts: Sequence[int], share: float) -> float:
    return share


def _largest_share(counts: Sequence[int]) -> float:
    return max(counts) / sum(counts)


def _judgement(
    counts: Sequence[int],
    accuracy: float,
    f1: float,
    lazy_f1: Callable[[Sequence[int], float], float] = _class_1,
    share: Callable[[Sequence[int]], float] = _largest_share,
    learned: Callable[[float, float, float, float], bool] = lambda a, f, lazy_a, lazy_f: a > lazy_a and f > lazy_f,
) -> dict[str, Any]:
    lazy = {"accuracy": share(counts), "f1": lazy_f1(counts, share(counts))}
    return lazy | {"learned": learned(accuracy, f1, *lazy.values())}


judgement = Task(
    name="judgement",
    rule=_judgement,
    cases=lambda: [
        case([129, 279], 0.6, 0.5),
        case([18, 22, 20, 16, 14, 10], 0.6, 0.5),
        case([300, 100], 0.78, 0.2),
        case([25, 60, 15], 0.62, 0.24),
        case([25, 60, 15], 0.58, 0.31),
        case([15, 20, 50, 15], 0.5, 0.4),
        case([25, 24, 25, 26], 0.45, 0.42),
    ],
    rtol=3e-3,
    beliefs=[
        ways(
            "above_half_is_good",
            "The baseline is right, but you compare the run with one half. That is a lot with six even classes, and "
            "less than not reading at all where one class has two thirds of the rows. Compare with the baseline.",
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 and f > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 and f >= 0.5),
            partial(_judgement, learned=lambda a, f, *_: a >= 0.5 and f >= 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5 or f > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a > 0.5),
            partial(_judgement, learned=lambda a, f, *_: a >= 0.5),
        ),
        Belief(
            "lazy_f1_is_zero",
            "You give the lazy classifier an F1 of 0. The classes that it never names have 0; the one that it always "
            "names is found in every row that has it, so its F1 is high, and counts.",
            partial(_judgement, lazy_f1=lambda counts, share: 0.0),
        ),
        Belief(
            "f1_is_accuracy",
            "Your F1 of the lazy classifier is its accuracy. For the class that it names, precision is the share p, "
            "but recall is 1.",
            partial(_judgement, lazy_f1=_same_share),
        ),
        ways(
            "one_class_counts",
            "You take the F1 of the most frequent class for that of all. With more than two classes the macro average "
            "is asked, and in it the classes that are never named have 0.",
            partial(_judgement, lazy_f1=_majority),
            partial(_judgement, lazy_f1=lambda n, share: (_majority if len(n) > 2 else _class_1)(n, share)),
        ),
        Belief(
            "majority_is_class_1",
            "With two classes, F1 is that of class 1. Where class 0 is the more frequent one, the lazy classifier "
            "never names class 1.",
            partial(_judgement, lazy_f1=lambda n, share: (_majority if len(n) == 2 else _macro)(n, share)),
        ),
        Belief(
            "macro_on_two",
            "You average over the classes where there are only two of them, too. There, F1 is that of class 1 alone.",
            partial(_judgement, lazy_f1=_macro),
        ),
        ways(
            "chance_not_majority",
            "Your baseline throws dice: 1 divided by the number of classes. Always naming the most frequent class "
            "scores more, and does not read either.",
            *(
                partial(_judgement, share=lambda counts: 1 / len(counts), lazy_f1=f1)
                for f1 in (_class_1, _macro, _same_share, _majority)
            ),
        ),
        ways(
            "one_score_is_enough",
            "You call it learned if one of the two scores beats the baseline, but both have to: the lazy classifier is "
            "ahead in the other one.",
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a > lazy_a),
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: f > lazy_f),
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a > lazy_a or f > lazy_f),
        ),
        Belief(
            "as_good_is_better",
            "A run that is only as good as the lazy classifier counts as learned in your answer. It has to be above.",
            partial(_judgement, learned=lambda a, f, lazy_a, lazy_f: a >= lazy_a and f >= lazy_f),
        ),
    ],
    hints=[
        "Write down what the lazy classifier answers for [129, 279]: 408 times class 1. How many are right?",
        "If the most frequent class has the share p, always naming it has accuracy p, and for that class F1 is 2p / "
        "(1 + p). The F1 of each other class is 0.",
        "With two classes, is class 1 the one that is always named, or the one that never is? With more, the mean over "
        "all classes is 2p / (1 + p) divided by their number.",
    ],
    praise="The same two numbers, 0.6 and 0.5, show nothing on MRPC, and a lot with six even classes.",
)


# ---- gradient_in_pieces


class Watched(torch.nn.Linear):
    """A linear layer that knows how many rows are in work: forward has seen them, backward not yet."""

    in_work = most = 0

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        if out.requires_grad:
            self._add(out.numel() // self.out_features)
            out.register_hook(lambda gradient: self._add(-gradient.numel() // self.out_features))
        return out

    def _add(self, rows: int) -> None:
        self.in_work += rows
        self.most = max(self.most, self.in_work)


def _left_behind(call: Callable[..., Any], model: Watched, x: Tensor, labels: Tensor, k: int) -> dict[str, Any] | None:
    """What a call returns and leaves: the loss, how many rows were in work at once, and all gradients in a row."""
    before = model.weight.detach().clone()
    loss = call(model, x, labels, k)
    if loss is None:
        return None
    if not torch.equal(before, model.weight):
        says = "The weights have changed. The step comes later, and is an optimizer's work: only the gradient is asked."
        raise NotFit(wrong(says, "takes_a_step", given=getattr(call, "given", "")))
    gradients = [p.grad for p in model.parameters()]
    gradient = None if any(g is None for g in gradients) else torch.cat([g.flatten() for g in gradients])
    return {"loss": loss, "rows at once": max(model.most, len(x) // k), "gradient": gradient}


def _in_pieces(
    model: Watched,
    x: Tensor,
    labels: Tensor,
    k: int,
    *,
    factor: Callable[[int, int], float] = lambda k, rows: 1 / k,
    report: Callable[[Sequence[float], float], float] = lambda losses, share: sum(losses) / len(losses),
    number: Callable[[int, int], int] = lambda k, rows: k,
    forgets: bool = False,
    backward: bool = True,
) -> float:
    """Work through `number` batches, each loss times `factor`; `report` makes one loss of theirs."""
    batches, share, losses = number(k, len(x)), factor(k, len(x)), []
    for some, theirs in zip(x.chunk(batches), labels.chunk(batches), strict=True):
        loss = cross_entropy(model(some), theirs)
        if forgets:
            model.zero_grad()
        if backward:
            (share * loss).backward()
        losses.append(loss.item())
    return report(losses, share)


# Losses that a learner may return beside any gradient, from the batches' losses and what each was multiplied by.
LAST, LAST_SHARE = (lambda losses, share: losses[-1]), (lambda losses, share: share * losses[-1])
MEAN, SUM = (lambda losses, share: sum(losses) / len(losses)), (lambda losses, share: sum(losses))
SHARES, MEAN_SHARE = (lambda losses, share: share * sum(losses)), (lambda losses, share: share * MEAN(losses, share))
REPORTS = (MEAN, SUM, SHARES, MEAN_SHARE, LAST, LAST_SHARE)
WHOLE, BY_K, BY_ROWS = (lambda k, rows: 1), (lambda k, rows: 1 / k), (lambda k, rows: 1 / rows)
BY_ROWS_IN_BATCH, TWICE = (lambda k, rows: k / rows), (lambda k, rows: 1 / k**2)


def _with(*factors: Callable[[int, int], float], **kwargs: Any) -> list[Callable[..., Any]]:
    """Rules with each of these factors, and any loss reported."""
    return [partial(_in_pieces, factor=f, report=r, **kwargs) for f, r in product(factors, REPORTS)]


def _pieces(rows: int, k: int, dtype: torch.dtype = torch.float32) -> Any:
    generator = torch.Generator().manual_seed(rows)
    model = Watched(3, 2, dtype=dtype)
    torch.nn.init.normal_(model.weight, generator=generator)
    torch.nn.init.zeros_(model.bias)
    x = torch.randn(rows, 3, generator=generator, dtype=dtype)
    labels = (torch.arange(rows) % 3 == 0).long()
    return case(model, x, labels, k, given=f"a layer 3 → 2, {rows} rows, k = {k}, so {rows // k} × {k}")


gradient_in_pieces = Task(
    name="gradient_in_pieces",
    rule=_in_pieces,
    use=_left_behind,
    changes_input=True,
    cases=lambda: [_pieces(8, 1), _pieces(8, 2), _pieces(8, 4), _pieces(12, 3, torch.float64)],
    rtol=1e-3,
    beliefs=[
        ways(
            "always_same",
            "Your gradient is k times that of the one large batch. Each loss is a mean already, and `backward()` adds, "
            "so k means add up to k times the mean: the fault that lesson 06 found in Trainer.",
            *_with(WHOLE),
        ),
        ways(
            "last_batch_only",
            "The gradient is that of the last batch alone. Whatever sets it to zero inside the loop throws away what "
            "the batches before have added.",
            *_with(WHOLE, BY_K, forgets=True),
        ),
        ways(
            "batches_of_k_rows",
            "Your batches have k rows each. k is the number of batches: 8 rows with k = 2 are two batches of four.",
            *_with(WHOLE, BY_K, BY_ROWS_IN_BATCH, number=lambda k, rows: rows // k),
        ),
        ways(
            "divides_by_rows",
            "You divide by a number of rows. Inside each batch `cross_entropy` has done that already; what is left to "
            "divide by is the number of batches.",
            *_with(BY_ROWS, BY_ROWS_IN_BATCH),
        ),
        ways(
            "divides_by_k",
            "Something has been divided by k twice, and shrinks with the number of batches. Once is enough: each loss, "
            "or their sum.",
            *_with(TWICE),
            partial(_in_pieces, report=MEAN_SHARE),
        ),
        ways(
            "loss_of_last_batch",
            "The gradient is right. The loss that you return is that of the last batch; the step's loss is the mean "
            "over all batches.",
            partial(_in_pieces, report=LAST),
            partial(_in_pieces, report=LAST_SHARE),
        ),
        Belief(
            "sum_of_losses",
            "The gradient is right. The loss that you return is the sum over the batches, k times too large, so 8 × 1 "
            "and 2 × 4 cannot be compared in a log.",
            partial(_in_pieces, report=SUM),
        ),
        Belief(
            "all_rows_at_once",
            "The numbers are right, but all rows are in work at the same time, with their activations in memory. Each "
            "batch needs a forward pass and a `backward()` of its own, before the next one begins.",
            partial(_in_pieces, factor=WHOLE, number=lambda k, rows: 1),
        ),
        ways(
            "no_backward",
            "No gradient has come about: nothing calls `backward()`.",
            *_with(WHOLE, backward=False),
        ),
    ],
    hints=[
        "`x.chunk(k)` cuts the rows into k batches. Each gets a forward pass, a loss and a `backward()` of its own.",
        "Gradients add up by themselves. `cross_entropy` is the mean over its batch; what has to happen to k such "
        "means so that their sum is the mean over all rows?",
        "Call `(loss / k).backward()` for each batch, and return the sum of those shares, as a plain number.",
    ],
    praise="8 × 1, 4 × 2 and 2 × 4 give the same step, with the activations of one small batch in memory.",
)
