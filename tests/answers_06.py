"""Answers to exercise 06."""

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from answers import right, wrong
from sklearn.metrics import accuracy_score, classification_report, f1_score, precision_score, recall_score
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SchedulerType
from transformers.training_args import OptimizerNames


def settings(rows, **changes):
    usual = {
        "optim": "adafactor",
        "learning_rate": 0.001,
        "warmup_steps": 0.1,
        "max_grad_norm": 0,
        "eval_strategy": "epoch",
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 64 // rows,
    }
    return {**usual, **changes}


@wrong("training_arguments", "old_name")
def _(folder, rows):
    return TrainingArguments(
        output_dir=folder,
        evaluation_strategy="epoch",
        optim="adafactor",
        learning_rate=1e-3,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=64 // rows,
    )


@wrong("training_arguments", "old_name", note="warm-up")
def _(folder, rows):
    return TrainingArguments(folder, eval_strategy="epoch", optim="adafactor", warmup_ratio=0.1)


@wrong("training_arguments", "old_name", note="flag")
def _(folder, rows):
    return TrainingArguments(folder, adafactor=True)


@wrong("training_arguments", "unknown_name")
def _(folder, rows):
    return TrainingArguments(folder, optim="adafactor", lr=1e-3, batch_size=rows)


@wrong("training_arguments", "wrong_optim_string")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, optim="Adafactor"))


@wrong("training_arguments", "wrong_optim_string", note="torch's")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, optim="adafactor_torch"))


@wrong("training_arguments", "other_optimizer")
def _(folder, rows):
    named = settings(rows)
    named.pop("optim")
    return TrainingArguments(folder, **named)


@wrong("training_arguments", "fixed_folder")
def _(folder, rows):
    return TrainingArguments("results", **settings(rows))


@wrong("training_arguments", "adamw_default_rate")
def _(folder, rows):
    named = settings(rows)
    named.pop("learning_rate")
    return TrainingArguments(folder, **named)


@wrong("training_arguments", "rate_too_small")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, learning_rate=2e-5))


@wrong("training_arguments", "rate_too_large")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, learning_rate=1e-2))


@wrong("training_arguments", "none_with_linear_schedule")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, learning_rate=None, optim_args="relative_step=True"))


@wrong("training_arguments", "other_schedule")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, lr_scheduler_type="constant_with_warmup"))


@wrong("training_arguments", "no_warmup")
def _(folder, rows):
    named = settings(rows)
    named.pop("warmup_steps")
    return TrainingArguments(folder, **named)


@wrong("training_arguments", "warmup_of_fixed_length")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, warmup_steps=100))


@wrong("training_arguments", "warmup_of_other_length")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, warmup_steps=0.01))


@wrong("training_arguments", "clipping_is_none")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, max_grad_norm=None))


@wrong("training_arguments", "clips_twice")
def _(folder, rows):
    named = settings(rows)
    named.pop("max_grad_norm")
    return TrainingArguments(folder, **named)


@wrong("training_arguments", "not_every_epoch")
def _(folder, rows):
    named = settings(rows)
    named.pop("eval_strategy")
    return TrainingArguments(folder, **named)


@wrong("training_arguments", "not_every_epoch", note="steps")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, eval_strategy="steps", eval_steps=100))


@wrong("training_arguments", "accumulation_multiplied")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, per_device_train_batch_size=64))


@wrong("training_arguments", "accumulation_as_decimal")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, gradient_accumulation_steps=64 / rows))


@wrong("training_arguments", "other_number_of_rows")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, gradient_accumulation_steps=4))


@wrong("training_arguments", "batch_too_large")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, per_device_train_batch_size=64, gradient_accumulation_steps=1))


@wrong("training_arguments", "rows_for_batches")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, gradient_accumulation_steps=64))


@wrong("training_arguments", "no_accumulation")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, gradient_accumulation_steps=1))


@wrong("training_arguments", "fixed_numbers")
def _(folder, rows):
    return TrainingArguments(folder, **settings(16))


@wrong("training_arguments", "fixed_numbers", note="batch size and accumulation swapped")
def _(folder, rows):
    swapped = {"per_device_train_batch_size": 64 // rows, "gradient_accumulation_steps": rows}
    return TrainingArguments(folder, **settings(rows, **swapped))


@wrong("training_arguments", "clips_twice", note="length as text")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, max_grad_norm="0"))


@wrong("training_arguments", "other_number_of_rows", note="batch size left out")
def _(folder, rows):
    plan = settings(rows)
    del plan["per_device_train_batch_size"]
    return TrainingArguments(folder, **plan)


@wrong("training_arguments", "settings_only")
def _(folder, rows):
    return {"output_dir": folder, **settings(rows)}


@wrong("training_arguments", "rate_as_text")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, learning_rate="1e-3"))


@right("training_arguments", "with enums, and another rate")
def _(folder, rows):
    return TrainingArguments(
        folder,
        optim=OptimizerNames.ADAFACTOR,
        learning_rate=2e-3,
        lr_scheduler_type=SchedulerType.LINEAR,
        eval_strategy=IntervalStrategy.EPOCH,
        warmup_steps=0.1,
        max_grad_norm=0.0,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=round(64 / rows),
    )


@right("training_arguments", "changed afterwards, with settings that nobody asked for")
def _(folder, rows):
    made = TrainingArguments(folder, report_to="none", save_strategy="no", seed=7, num_train_epochs=5, use_cpu=True)
    made.optim, made.learning_rate, made.warmup_steps, made.max_grad_norm = "adafactor", 1e-3, 1 / 10, 0
    made.eval_strategy, made.per_device_train_batch_size = "epoch", rows
    made.gradient_accumulation_steps = 64 // rows
    return made


def both(labels, answers, average="macro"):
    return {"accuracy": accuracy_score(labels, answers), "f1": f1_score(labels, answers, average=average)}


@right("training_arguments", "a length that stops nothing")
def _(folder, rows):
    return TrainingArguments(folder, **settings(rows, max_grad_norm=float("inf")))


@wrong("compute_metrics", "argmax_axis_0")
def _(evaluation):
    return both(evaluation.label_ids, np.argmax(evaluation.predictions, axis=0))


@wrong("compute_metrics", "argmax_axis_0", note="in torch")
def _(evaluation):
    answers = torch.tensor(evaluation.predictions).argmax(0)
    labels = torch.tensor(evaluation.label_ids)
    return {"accuracy": (answers == labels).float().mean(), "f1": f1_score(labels, answers, average="macro")}


@wrong("compute_metrics", "labels_predictions_swapped")
def _(evaluation):
    labels, logits = evaluation
    return both(labels, logits.argmax(-1))


@wrong("compute_metrics", "labels_predictions_swapped", note="axis 1")
def _(evaluation):
    labels, logits = evaluation
    return both(labels, logits.argmax(axis=1))


@wrong("compute_metrics", "argmax_of_everything")
def _(evaluation):
    return both(evaluation.label_ids, evaluation.predictions.argmax())


@wrong("compute_metrics", "scores_for_answers")
def _(evaluation):
    return both(evaluation.label_ids, evaluation.predictions)


@wrong("compute_metrics", "binary_on_six")
def _(evaluation):
    answers = evaluation.predictions.argmax(-1)
    return {"f1": f1_score(evaluation.label_ids, answers), "accuracy": accuracy_score(evaluation.label_ids, answers)}


@wrong("compute_metrics", "binary_on_six", note="one class by hand")
def _(evaluation):
    labels, answers = evaluation.label_ids == 1, evaluation.predictions.argmax(-1) == 1
    right_ones = (evaluation.predictions.argmax(-1) == evaluation.label_ids).mean()
    return {"accuracy": right_ones, "f1": f1_score(labels, answers)}


@wrong("compute_metrics", "micro_f1_is_accuracy")
def _(evaluation):
    return both(evaluation.label_ids, evaluation.predictions.argmax(axis=1), "micro")


@wrong("compute_metrics", "weighted_average")
def _(evaluation):
    return both(evaluation.label_ids, evaluation.predictions.argmax(axis=1), "weighted")


@wrong("compute_metrics", "f1_of_the_means")
def _(evaluation):
    truth, answers = evaluation.label_ids, evaluation.predictions.argmax(axis=1)
    precision = precision_score(truth, answers, average="macro", zero_division=0)
    recall = recall_score(truth, answers, average="macro", zero_division=0)
    accuracy = accuracy_score(truth, answers)
    return {"accuracy": accuracy, "f1": 2 / (1 / precision + 1 / recall)}


@wrong("compute_metrics", "one_for_each_class")
def _(evaluation):
    return both(evaluation.label_ids, evaluation.predictions.argmax(axis=1), None)


@wrong("compute_metrics", "divides_zero_by_zero")
def _(evaluation):
    labels, answers = evaluation.label_ids, evaluation.predictions.argmax(-1)
    f1s = []
    for c in range(6):
        hits = ((labels == c) & (answers == c)).sum()
        precision, recall = hits / (answers == c).sum(), hits / (labels == c).sum()
        f1s.append(2 * precision * recall / (precision + recall))
    return {"accuracy": (labels == answers).mean(), "f1": np.mean(f1s)}


@wrong("compute_metrics", "divides_zero_by_zero", note="plain numbers")
def _(evaluation):
    labels, answers = evaluation.label_ids.tolist(), evaluation.predictions.argmax(-1).tolist()
    total = 0
    for c in range(6):
        hits = sum(a == b == c for a, b in zip(labels, answers, strict=True))
        p, r = hits / answers.count(c), hits / labels.count(c)
        total += 2 * p * r / (p + r)
    return {"accuracy": sum(map(int.__eq__, labels, answers)) / len(labels), "f1": total / 6}


def by_hand(evaluation, classes):
    labels, answers = evaluation.label_ids, evaluation.predictions.argmax(-1)
    return {
        "accuracy": float(np.mean(labels == answers)),
        "f1": f1_score(labels, answers, average="macro", labels=classes(labels, answers)),
    }


@wrong("compute_metrics", "skipped_classes")
def _(evaluation):
    return by_hand(evaluation, lambda labels, answers: np.unique(answers))


@wrong("compute_metrics", "skipped_classes", note="without a row")
def _(evaluation):
    return by_hand(evaluation, lambda labels, answers: sorted(set(labels)))


@wrong("compute_metrics", "skipped_classes", note="nan left out")
def _(evaluation):
    labels, answers = evaluation.label_ids, evaluation.predictions.argmax(-1)
    hits = np.array([((labels == c) & (answers == c)).sum() for c in range(6)])
    precision, recall = hits / np.bincount(answers, minlength=6), hits / np.bincount(labels, minlength=6)
    return {"accuracy": hits.sum() / len(labels), "f1": np.nanmean(2 * precision * recall / (precision + recall))}


@right("compute_metrics", "counted in plain Python")
def _(evaluation):
    truth = evaluation.label_ids.tolist()
    answers = [row.index(max(row)) for row in evaluation.predictions.tolist()]
    pairs = list(zip(truth, answers, strict=True))
    f1 = {c: 2 * pairs.count((c, c)) / (truth.count(c) + answers.count(c)) for c in {*truth, *answers}}
    return {"f1": sum(f1.values()) / len(f1), "accuracy": sum(a == b for a, b in pairs) / len(pairs)}


@right("compute_metrics", "from a confusion matrix in torch, rounded")
def _(evaluation):
    table = torch.zeros(6, 6)
    for label, row in zip(evaluation.label_ids, evaluation.predictions, strict=True):
        table[label, int(np.argsort(row)[-1])] += 1
    f1 = 2 * table.diag() / (table.sum(0) + table.sum(1))
    return {"f1": round(f1.mean().item(), 4), "accuracy": round((table.trace() / table.sum()).item(), 4)}


@right("compute_metrics", "from scikit-learn's report, with the pair unpacked")
def _(evaluation):
    scores, labels = evaluation
    report = classification_report(labels, scores.argmax(1), output_dict=True, labels=range(6), zero_division=0)
    return {"accuracy": np.mean(labels == scores.argmax(1)), "f1": report["macro avg"]["f1-score"]}


def lazy(counts):
    p = max(counts) / sum(counts)
    f1 = 2 * p / (1 + p)
    if len(counts) == 2:
        return p, f1 * (counts[1] == max(counts))
    return p, f1 / len(counts)


@wrong("judgement", "above_half_is_good")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": accuracy > 0.5 and f1 > 0.5}


@wrong("judgement", "above_half_is_good", note="accuracy")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": accuracy > 0.5}


@wrong("judgement", "above_half_is_good", note="at least")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": min(accuracy, f1) >= 1 / 2}


@wrong("judgement", "lazy_f1_is_zero")
def _(counts, accuracy, f1):
    p, _ = lazy(counts)
    return {"accuracy": p, "f1": 0, "learned": accuracy > p and f1 > 0}


@wrong("judgement", "f1_is_accuracy")
def _(counts, accuracy, f1):
    p = max(counts) / sum(counts)
    return {"accuracy": p, "f1": p, "learned": accuracy > p and f1 > p}


@wrong("judgement", "one_class_counts")
def _(counts, accuracy, f1):
    p = max(counts) / sum(counts)
    base = 2 * p / (1 + p)
    return {"accuracy": p, "f1": base, "learned": accuracy > p and f1 > base}


@wrong("judgement", "one_class_counts", note="class 0 noticed")
def _(counts, accuracy, f1):
    p = max(counts) / sum(counts)
    base = 0.0 if len(counts) == 2 and counts[0] > counts[1] else 2 * p / (1 + p)
    return {"accuracy": p, "f1": base, "learned": accuracy > p and f1 > base}


@wrong("judgement", "majority_is_class_1")
def _(counts, accuracy, f1):
    p = max(counts) / sum(counts)
    base = 2 * p / (1 + p) / (1 if len(counts) == 2 else len(counts))
    return {"accuracy": p, "f1": base, "learned": accuracy > p and f1 > base}


@wrong("judgement", "majority_is_class_1", note="class 1 always answered")
def _(counts, accuracy, f1):
    if len(counts) == 2:
        lazy_f1 = 2 * counts[1] / (2 * counts[1] + counts[0])
    else:
        lazy_f1 = 2 * max(counts) / (max(counts) + sum(counts)) / len(counts)
    lazy = max(counts) / sum(counts)
    return {"accuracy": lazy, "f1": lazy_f1, "learned": accuracy > lazy and f1 > lazy_f1}


@wrong("judgement", "macro_on_two")
def _(counts, accuracy, f1):
    truth = np.repeat(np.arange(len(counts)), counts)
    always = np.full_like(truth, np.argmax(counts))
    p, base = accuracy_score(truth, always), f1_score(truth, always, average="macro")
    return {"accuracy": p, "f1": base, "learned": accuracy > p and f1 > base}


@wrong("judgement", "chance_not_majority")
def _(counts, accuracy, f1):
    p = 1 / len(counts)
    return {"accuracy": p, "f1": p, "learned": accuracy > p and f1 > p}


@wrong("judgement", "chance_not_majority", note="macro")
def _(counts, accuracy, f1):
    k = len(counts)
    base = 2 / (k + 1) / k
    return {"accuracy": 1 / k, "f1": base, "learned": accuracy > 1 / k and f1 > base}


@wrong("judgement", "chance_not_majority", note="in the accuracy only")
def _(counts, accuracy, f1):
    truth = [label for label, count in enumerate(counts) for _ in range(count)]
    lazy = [counts.index(max(counts))] * len(truth)
    average = "binary" if len(counts) == 2 else "macro"
    lazy_f1 = f1_score(truth, lazy, average=average, zero_division=0)
    chance = 1 / len(counts)
    return {"accuracy": chance, "f1": lazy_f1, "learned": accuracy > chance and f1 > lazy_f1}


@wrong("judgement", "one_score_is_enough")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": accuracy > p or f1 > base}


@wrong("judgement", "one_score_is_enough", note="accuracy")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": accuracy > p}


@wrong("judgement", "one_score_is_enough", note="F1")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": f1 > base}


@wrong("judgement", "as_good_is_better")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"accuracy": p, "f1": base, "learned": not (accuracy < p or f1 < base)}


@right("judgement", "by formula, rounded as the lesson prints it, with NumPy's bool")
def _(counts, accuracy, f1):
    p, base = lazy(counts)
    return {"learned": np.all(np.array([accuracy, f1]) > [p, base]), "accuracy": round(p, 3), "f1": round(base, 3)}


@right("judgement", "per class, in torch")
def _(counts, accuracy, f1):
    n = torch.tensor(counts, dtype=torch.float64)
    first = n.argmax()
    f1s = torch.zeros(len(n), dtype=torch.float64)
    f1s[first] = 2 * n[first] / (n.sum() + n[first])
    base = f1s[1] if len(n) == 2 else f1s.mean()
    share = n.max() / n.sum()
    return {"accuracy": share, "f1": base, "learned": (share < accuracy) & (base < f1)}


@wrong("gradient_in_pieces", "always_same")
def _(model, x, labels, k):
    total = 0
    for i in range(k):
        loss = F.cross_entropy(model(x.chunk(k)[i]), labels.chunk(k)[i])
        loss.backward()
        total += loss
    return total


@wrong("gradient_in_pieces", "always_same", note="log divided")
def _(model, x, labels, k):
    losses = []
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        losses.append(F.cross_entropy(model(xs), ys))
        losses[-1].backward()
    return torch.stack(losses).mean().item()


@wrong("gradient_in_pieces", "last_batch_only")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        model.zero_grad()
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "last_batch_only", note="undivided")
def _(model, x, labels, k):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(xs), ys)
        loss.backward()
    return loss.item()


@wrong("gradient_in_pieces", "first_batch_only")
def _(model, x, labels, k):
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        return loss.item()


@wrong("gradient_in_pieces", "first_batch_only", note="k times")
def _(model, x, labels, k):
    total, size = 0.0, len(x) // k
    for _ in range(k):
        loss = F.cross_entropy(model(x[:size]), labels[:size]) / k
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "sums_over_rows")
def _(model, x, labels, k):
    total = 0.0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys, reduction="sum")
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "sums_over_rows", note="divided by k")
def _(model, x, labels, k):
    losses = []
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        losses.append(F.cross_entropy(model(xs), ys, reduction="sum"))
        (losses[-1] / k).backward()
    return sum(loss.item() for loss in losses) / k


@wrong("gradient_in_pieces", "all_rows_for_the_loss")
def _(model, x, labels, k):
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        (F.cross_entropy(model(xs), ys) / k).backward()
    with torch.inference_mode():
        return F.cross_entropy(model(x), labels).item()


@wrong("gradient_in_pieces", "no_backward", note="cleared in the end")
def _(model, x, labels, k):
    total = 0.0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        total += loss.item()
    model.zero_grad()
    return total


@wrong("gradient_in_pieces", "batches_of_k_rows")
def _(model, x, labels, k):
    total = 0
    for i in range(0, len(x), k):
        loss = F.cross_entropy(model(x[i : i + k]), labels[i : i + k]) / k
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "batches_of_k_rows", note="divided by their number")
def _(model, x, labels, k):
    pieces = list(zip(x.split(k), labels.split(k), strict=True))
    total = 0
    for xs, ys in pieces:
        loss = F.cross_entropy(model(xs), ys) / len(pieces)
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "divides_by_rows")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys)
        (loss / len(xs)).backward()
        total += loss.item()
    return total / k


@wrong("gradient_in_pieces", "divides_by_rows", note="all rows, in the loss too")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / len(x)
        loss.backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "divides_by_k")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        total += loss.item()
    return total / k


@wrong("gradient_in_pieces", "divides_by_k", note="gradients divided afterwards")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        p.grad /= k
    return total


@wrong("gradient_in_pieces", "loss_of_last_batch")
def _(model, x, labels, k):
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys)
        (loss / k).backward()
    return loss


@wrong("gradient_in_pieces", "loss_of_last_batch", note="divided")
def _(model, x, labels, k):
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
    return loss.item()


@wrong("gradient_in_pieces", "sum_of_losses")
def _(model, x, labels, k):
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys)
        (loss / k).backward()
        total += loss.item()
    return total


@wrong("gradient_in_pieces", "all_rows_at_once")
def _(model, x, labels, k):
    loss = F.cross_entropy(model(x), labels)
    loss.backward()
    return loss.item()


@wrong("gradient_in_pieces", "all_rows_at_once", note="one backward for all batches")
def _(model, x, labels, k):
    loss = sum(F.cross_entropy(model(a), b) for a, b in zip(x.chunk(k), labels.chunk(k), strict=True)) / k
    loss.backward()
    return loss


@wrong("gradient_in_pieces", "takes_a_step")
def _(model, x, labels, k):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total = 0
    for xs, ys in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(xs), ys) / k
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


@wrong("gradient_in_pieces", "no_backward")
def _(model, x, labels, k):
    pairs = zip(x.chunk(k), labels.chunk(k), strict=True)
    return sum(F.cross_entropy(model(a), b).item() for a, b in pairs) / k


@right("gradient_in_pieces", "sums over rows, divided once by their number")
def _(model, x, labels, k):
    total = 0
    for rows in torch.arange(len(x)).reshape(k, -1):
        loss = F.cross_entropy(model(x[rows]), labels[rows], reduction="sum") / len(x)
        loss.backward()
        total = total + loss.detach()
    return total


@right("gradient_in_pieces", "gradients scaled at the end, every k-th row in a batch")
def _(model, x, labels, k):
    losses = []
    for i in range(k):
        losses.append(F.cross_entropy(model(x[i::k]), labels[i::k]))
        losses[-1].backward()
    for p in model.parameters():
        p.grad.div_(k)
    return np.mean([loss.item() for loss in losses])


@right("gradient_in_pieces", "loss from a second pass, batch by batch")
def _(model, x, labels, k):
    pairs = list(zip(x.chunk(k), labels.chunk(k), strict=True))
    for xs, ys in pairs:
        (F.cross_entropy(model(xs), ys) / k).backward()
    with torch.no_grad():
        return torch.stack([F.cross_entropy(model(xs), ys) for xs, ys in pairs]).mean()


@right("gradient_in_pieces", "with autograd.grad")
def _(model, x, labels, k):
    step = 0.0
    for a, b in zip(x.chunk(k), labels.chunk(k), strict=True):
        loss = F.cross_entropy(model(a), b)
        for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            p.grad = g / k if p.grad is None else p.grad + g / k
        step += float(loss) / k
    return step
