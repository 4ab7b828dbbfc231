"""Answers to exercise 07."""

import math
from contextlib import suppress
from itertools import chain

import numpy as np
import torch
from answers import right, wrong


def size(X):
    return (X.double() ** 2).mean() ** 0.5


@wrong("torch_rate", "same_rate")
def _(rate, X):
    return rate


@wrong("torch_rate", "multiplied")
def _(rate, X):
    return rate * size(X)


@wrong("torch_rate", "multiplied", "with the floor")
def _(rate, X):
    return rate * max(size(X).item(), 0.001)


@wrong("torch_rate", "forgot_floor", "inf for zeros")
def _(rate, X):
    return rate / size(X)


@wrong("torch_rate", "forgot_floor", "an error for zeros")
def _(rate, X):
    return rate / float(size(X))


@wrong("torch_rate", "forgot_floor", "the paper's other epsilon")
def _(rate, X):
    return rate / max(1e-30, size(X).item())


@wrong("torch_rate", "forgot_floor", "a small number added")
def _(rate, X):
    return rate / (torch.norm(X) / X.numel() ** 0.5 + 1e-8)


@wrong("torch_rate", "floor_for_zeros_only")
def _(rate, X):
    rms = size(X).item()
    return rate if rms == 0 else rate / rms


@wrong("torch_rate", "eps_added")
def _(rate, X):
    return rate / (size(X) + 1e-3)


@wrong("torch_rate", "floor_before_the_root")
def _(rate, X):
    return rate / np.sqrt(np.clip((X.numpy() ** 2).mean(), 0.001, None))


@wrong("torch_rate", "smaller_for_larger")
def _(rate, X):
    return rate / torch.clamp(size(X), max=0.001)


@wrong("torch_rate", "size_of_the_lesson")
def _(rate, X):
    return 20 * rate


@wrong("torch_rate", "size_of_the_lesson", "the rate of the lesson")
def _(rate, X):
    return 2e-2


@wrong("torch_rate", "largest_for_rms")
def _(rate, X):
    return rate / max(1e-3, X.abs().amax().item())


@wrong("torch_rate", "length_for_rms")
def _(rate, X):
    return rate / max(1e-3, X.norm().item())


@wrong("torch_rate", "length_for_rms", "without the floor")
def _(rate, X):
    return rate / np.sqrt(np.sum(X.numpy() ** 2))


@wrong("torch_rate", "forgot_root")
def _(rate, X):
    return rate / max(1e-3, float((X * X).mean()))


@wrong("torch_rate", "mean_for_rms")
def _(rate, X):
    return rate / max(1e-3, float(X.abs().mean()))


@wrong("torch_rate", "mean_for_rms", "signs cancel")
def _(rate, X):
    return rate / X.mean()


@wrong("torch_rate", "spread_for_rms")
def _(rate, X):
    return rate / max(1e-3, float(np.std(X.numpy())))


@wrong("torch_rate", "capped_at_default")
def _(rate, X):
    return min(rate / max(1e-3, float(size(X))), 1e-2)


@wrong("torch_rate", "upside_down")
def _(rate, X):
    return max(1e-3, float(size(X))) / rate


@right("torch_rate", "clamped, float32, as a tensor of one number")
def _(rate, X):
    return (rate / X.pow(2).mean().sqrt().clamp(min=1e-3)).reshape(1)


@right("torch_rate", "from the length, in NumPy")
def _(rate, X):
    return rate / np.maximum(np.linalg.norm(X.numpy().ravel()) / math.sqrt(X.numel()), 0.001)


@right("torch_rate", "measured on torch's own step")
def _(rate, X):
    Y = torch.nn.Parameter(X.double().clone())
    Y.grad = torch.ones_like(Y)
    torch.optim.Adafactor([Y], lr=1e-2).step()
    return rate * 1e-2 / (X.double() - Y).abs().max().item()


def loop(body, *, first=(), prepare=True):
    """A training loop from a text: its calls for each batch, and those before each epoch, separated by spaces."""

    def train(accelerator, model, optimizer, scheduler, batches, epochs):
        if prepare:
            model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
        out = []
        for _ in range(epochs):
            for call in first:
                getattr(model, call)()
            for batch in batches:
                loss = None
                for call in body.split():
                    if call == "forward":
                        loss = model(**batch).loss
                        out.append(loss.item())
                    elif call == "backward":
                        accelerator.backward(loss)
                    elif call == "plain":
                        loss.backward()
                    elif call == "zero":
                        optimizer.zero_grad()
                    elif call == "step":
                        optimizer.step()
                    elif call == "tick":
                        scheduler.step()
        return out

    return train


wrong("train", "plain_backward")(loop("forward plain step tick zero", first=["train"]))
wrong("train", "no_zero_grad")(loop("forward backward step tick", first=["train"]))
wrong("train", "no_zero_grad", "once an epoch")(loop("forward backward step tick", first=["train", "zero_grad"]))
wrong("train", "zero_before_step")(loop("forward backward zero step tick", first=["train"]))
wrong("train", "zero_before_step", "and at the end too")(loop("forward backward zero step tick zero", first=["train"]))
wrong("train", "scheduler_before_optimizer")(loop("forward backward tick step zero", first=["train"]))
wrong("train", "scheduler_before_optimizer", "first of all")(loop("tick zero forward backward step", first=["train"]))
wrong("train", "not_prepared", "at all")(loop("forward backward step tick zero", first=["train"], prepare=False))
wrong("train", "never_train_mode")(loop("forward backward step tick zero"))
wrong("train", "never_train_mode", "evaluation mode by mistake")(
    loop("forward backward step tick zero", first=["eval"])
)
wrong("train", "step_before_backward")(loop("forward step backward tick zero", first=["train"]))
wrong("train", "step_before_backward", "cleared first")(loop("zero forward step backward tick", first=["train"]))
wrong("train", "no_scheduler")(loop("forward backward step zero", first=["train"]))
wrong("train", "no_step")(loop("forward backward tick zero", first=["train"]))
wrong("train", "no_backward")(loop("forward step tick zero", first=["train"]))
wrong("train", "uneven")(loop("forward backward step tick tick zero", first=["train"]))
right("train", "zero_grad first")(loop("zero forward backward step tick", first=["train"]))
right("train", "the schedule after zero_grad")(loop("forward backward step zero tick", first=["train"]))


@wrong("train", "not_prepared", "result thrown away")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    accelerator.prepare(model, optimizer, scheduler, batches)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, model, optimizer, scheduler, batches, epochs
    )


@wrong("train", "prepare_order")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, batches, scheduler = accelerator.prepare(model, optimizer, scheduler, batches)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, model, optimizer, scheduler, batches, epochs
    )


@wrong("train", "prepare_order", "from the first piece on")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    optimizer, model, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, model, optimizer, scheduler, batches, epochs
    )


@wrong("train", "not_prepared", "the loader")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, model, optimizer, scheduler, batches, epochs
    )


@wrong("train", "not_prepared", "the scheduler")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, model, optimizer, scheduler, batches, epochs
    )


@wrong("train", "not_prepared", "the model unwrapped again")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    return loop("forward backward step tick zero", first=["train"], prepare=False)(
        accelerator, accelerator.unwrap_model(model), optimizer, scheduler, batches, epochs
    )


@wrong("train", "not_prepared", "an accelerator of one's own")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    from accelerate import Accelerator

    return loop("forward backward step tick zero", first=["train"])(
        Accelerator(), model, optimizer, scheduler, batches, epochs
    )


def spelled(forward, back=lambda accelerator, loss: accelerator.backward(loss), keep=lambda loss: loss.item()):
    """A right loop but for what is made of a batch, how the loss goes backward, and what is kept of it."""

    def train(accelerator, model, optimizer, scheduler, batches, epochs):
        model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
        model.train()
        kept = []
        for batch in chain.from_iterable([batches] * epochs):
            optimizer.zero_grad(set_to_none=False)
            loss = forward(model, batch)
            back(accelerator, loss)
            optimizer.step()
            scheduler.step()
            kept += [keep(loss)]
        return kept

    return train


wrong("train", "mask_dropped")(spelled(lambda model, b: model(b["input_ids"], labels=b["labels"]).loss))
wrong("train", "mask_dropped", "all ones")(
    spelled(lambda m, b: m(b["input_ids"], torch.ones_like(b["input_ids"]), labels=b["labels"]).loss)
)
wrong("train", "batch_not_unpacked")(spelled(lambda model, batch: model(batch).loss))
wrong("train", "no_labels")(spelled(lambda m, b: m(b["input_ids"], attention_mask=b["attention_mask"]).loss))
wrong("train", "keeps_graph")(spelled(lambda model, batch: model(**batch).loss, keep=lambda loss: loss))
right("train", "zeroed and not set to None, tensors without a graph")(
    spelled(lambda model, batch: model(**batch)[0], keep=lambda loss: loss.detach().cpu())
)
right("train", "arguments by place and by attribute")(
    spelled(lambda m, b: m(b.input_ids, b.attention_mask, b.pop("labels")).to_tuple()[0], keep=float)
)


@right("train", "own loss from the logits")
@spelled
def _(model, batch):
    labels = batch.pop("labels")
    return torch.nn.functional.cross_entropy(model(**batch).logits, labels)


def all_there(body):
    """A loop whose return value, made of a list of lists, is `body`'s."""

    def train(accelerator, model, optimizer, scheduler, batches, epochs):
        run = loop("forward backward step tick zero", first=["train"])
        losses = run(accelerator, model, optimizer, scheduler, batches, epochs)
        return body([losses[start : start + len(batches)] for start in range(0, len(losses), len(batches))])

    return train


wrong("train", "last_epoch_only")(all_there(lambda epochs: epochs[-1]))
wrong("train", "list_per_epoch")(all_there(lambda epochs: epochs))
wrong("train", "one_per_epoch")(all_there(lambda epochs: [sum(losses) / len(losses) for losses in epochs]))
wrong("train", "one_per_epoch", "the last batch's")(all_there(lambda epochs: [losses[-1] for losses in epochs]))
wrong("train", "one_number")(all_there(lambda epochs: epochs[-1][-1]))
wrong("train", "one_number", "a tensor with its graph")(
    all_there(lambda epochs: torch.tensor(epochs[-1][-1], requires_grad=True))
)
wrong("train", "returns_nothing")(all_there(lambda epochs: None))
wrong("train", "prints_result")(all_there(print))
right("train", "as an array")(all_there(lambda epochs: np.array(epochs).ravel()))


@wrong("train", "no_training")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    return []


@wrong("train", "epochs_ignored")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    return loop("forward backward step tick zero", first=["train"])(
        accelerator, model, optimizer, scheduler, batches, 1
    )


@wrong("train", "step_per_epoch")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    losses = []
    for _ in range(epochs):
        model.train()
        for batch in batches:
            outputs = model(**batch)
            accelerator.backward(outputs["loss"])
            losses.append(outputs["loss"].item())
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return losses


@wrong("train", "scheduler_per_epoch")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    losses = []
    for _ in range(epochs):
        model.train()
        for batch in batches:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        scheduler.step()
    return losses


@wrong("train", "scheduler_gets_a_number")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
    losses = []
    for epoch in range(epochs):
        model.train()
        for batch in batches:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step(epoch)
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


@wrong("train", "no_step", "of the optimizer that was given")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    mine = torch.optim.Adafactor(model.parameters(), lr=0.02)
    model, mine, scheduler, batches = accelerator.prepare(model, mine, scheduler, batches)
    losses = []
    for _ in range(epochs):
        model.train()
        for batch in batches:
            mine.zero_grad()
            loss = model(**batch).loss
            accelerator.backward(loss)
            mine.step()
            scheduler.step()
            losses.append(loss.item())
    return losses


@right("train", "all prepared again in each epoch, which changes nothing")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    losses = []
    for _ in range(epochs):
        model, optimizer, scheduler, batches = accelerator.prepare(model, optimizer, scheduler, batches)
        model.train()
        for batch in batches:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(float(loss))
    return losses


@right("train", "with all that an accelerator offers")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    batches = accelerator.prepare_data_loader(batches)
    model, optimizer = accelerator.prepare(model.to(accelerator.device), optimizer)
    scheduler = accelerator.prepare(scheduler)
    model.train()
    losses = []
    for epoch in range(epochs):
        for number, batch in enumerate(batches):
            with accelerator.accumulate(model), accelerator.autocast():
                loss = model(**batch.to(accelerator.device)).loss
                accelerator.backward(loss / accelerator.gradient_accumulation_steps)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).mean().item())
            if accelerator.is_main_process and number == len(batches) - 1:
                accelerator.print(epoch, losses[-1], scheduler.get_last_lr(), optimizer.param_groups[0]["lr"])
    accelerator.wait_for_everyone()
    return tuple(losses)


@right("train", "gradients cleared by hand, the model in training mode before it is prepared")
def _(accelerator, model, optimizer, scheduler, batches, epochs):
    model.train()
    pieces = {"m": model, "o": optimizer, "s": scheduler, "b": batches}
    pieces = dict(zip(pieces, accelerator.prepare(*pieces.values()), strict=True))
    losses, left = [], epochs
    while left:
        walk = iter(pieces["b"])
        with suppress(StopIteration):
            while True:
                loss = pieces["m"](**next(walk)).loss
                accelerator.backward(loss)
                pieces["o"].step()
                pieces["s"].step()
                for p in pieces["m"].parameters():
                    p.grad = None
                losses.append(loss.tolist())
        left -= 1
    return losses


FAULTS = {
    "silent_means_right": set(),
    "counts_from_zero": {6, 7, 11, 12},
    "suspects_everything": set(range(1, 19)),
    "launch_sets_precision": {1, 7, 8, 12, 13},
    "rate_looks_too_large": {3, 7, 8, 12, 13},
    "plan_must_be_divided": [6, 7, 8, 12, 13],
    "zero_grad_must_be_last": {7, 11, 12, 13},
    "schedule_per_epoch": (8, 12, 13, 15),
    "item_breaks_the_graph": "7, 8, 12, 13, 16",
    "eval_is_the_fault": {7, 12, 13, 17},
    "suspects_an_innocent": torch.tensor([7, 8, 10, 12, 13]),
    "loader_needs_no_prepare": {8, 12, 13},
    "train_once_is_enough": {7, 12, 13},
    "mask_is_optional": {7, 8, 13},
    "backward_is_backward": {12, 8, 7},
}
for belief, lines in FAULTS.items():
    wrong("faults", belief)(lambda lines=lines: lines)
wrong("faults", "train_once_is_enough", "a single number")(lambda: 7)
wrong("faults", "suspects_an_innocent", "two of them, and nothing else")(lambda: [2, 18])
wrong("faults", "eval_is_the_fault", "one fault found")(lambda: {8, 17})
right("faults", "in an array")(lambda: np.array([13, 12, 8, 7]))
right("faults", "in a text")(lambda: "7 8 12 13")
right("faults", "in a dictionary's keys")(lambda: {7: "", 8: "", 12: "", 13: ""}.keys())


@wrong("optimizer_steps", "forgot_processes")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(math.ceil(samples / batch) / accumulation) * epochs


@wrong("optimizer_steps", "batches_not_steps")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples / (batch * processes)) * epochs


@wrong("optimizer_steps", "rows_not_batches")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples / processes / accumulation) * epochs


@wrong("optimizer_steps", "one_epoch")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples / batch / processes / accumulation)


@wrong("optimizer_steps", "rounded_once")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(epochs * samples / (batch * processes * accumulation))


@wrong("optimizer_steps", "rounded_once", "down")
def _(samples, batch, processes, accumulation, epochs):
    return epochs * samples // (batch * processes * accumulation)


@wrong("optimizer_steps", "groups_cross_epochs")
def _(samples, batch, processes, accumulation, epochs):
    return -(-epochs * len(range(0, samples, batch * processes)) // accumulation)


@wrong("optimizer_steps", "not_rounded")
def _(samples, batch, processes, accumulation, epochs):
    return samples / batch / processes / accumulation * epochs


@wrong("optimizer_steps", "drops_last_group")
def _(samples, batch, processes, accumulation, epochs):
    return sum(n % accumulation == 0 for n in range(1, math.ceil(samples / batch / processes) + 1)) * epochs


@wrong("optimizer_steps", "drops_last_round")
def _(samples, batch, processes, accumulation, epochs):
    return -(-(math.ceil(samples / batch) // processes) // accumulation) * epochs


@wrong("optimizer_steps", "drops_last_batch")
def _(samples, batch, processes, accumulation, epochs):
    return epochs * math.ceil(math.ceil(samples // batch / processes) / accumulation)


@wrong("optimizer_steps", "rounded_down")
def _(samples, batch, processes, accumulation, epochs):
    return samples // (batch * processes * accumulation) * epochs


@wrong("optimizer_steps", "rounded_down", "a batch and a group")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples // batch / processes) // accumulation * epochs


@wrong("optimizer_steps", "rounded_to_nearest")
def _(samples, batch, processes, accumulation, epochs):
    return round(samples / (batch * processes * accumulation)) * epochs


@wrong("optimizer_steps", "ticks_not_steps")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples / (batch * processes * accumulation)) * epochs * processes


@wrong("optimizer_steps", "processes_repeat_the_data")
def _(samples, batch, processes, accumulation, epochs):
    return processes * math.ceil(samples / (batch * accumulation)) * epochs


@wrong("optimizer_steps", "accumulation_multiplies")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(samples / (batch * processes)) * accumulation * epochs


@right("optimizer_steps", "one division, rounded up in each epoch")
def _(samples, batch, processes, accumulation, epochs):
    return np.ceil(samples / (batch * processes * accumulation)) * epochs


@right("optimizer_steps", "by dealing the batches out")
def _(samples, batch, processes, accumulation, epochs):
    steps = 0
    for _ in range(epochs):
        mine = list(range(0, samples, batch))[::processes]
        steps += len([mine[i : i + accumulation] for i in range(0, len(mine), accumulation)])
    return steps


@wrong("optimizer_steps", "always_one_more")
def _(samples, batch, processes, accumulation, epochs):
    return (samples // (batch * processes * accumulation) + 1) * epochs


@wrong("optimizer_steps", "always_one_more", "at each division")
def _(samples, batch, processes, accumulation, epochs):
    batches = samples // batch + 1
    each = batches // processes + 1
    return epochs * (each // accumulation + 1)


@wrong("optimizer_steps", "ticks_not_steps", "added up hand by hand, none filled up")
def _(samples, batch, processes, accumulation, epochs):
    batches = list(range(0, samples, batch))
    return epochs * sum(math.ceil(len(batches[first::processes]) / accumulation) for first in range(processes))


@wrong("optimizer_steps", "forgot_processes", "and rounded down")
def _(samples, batch, processes, accumulation, epochs):
    return samples // batch // accumulation * epochs


@wrong("optimizer_steps", "forgot_processes", "groups cross epochs")
def _(samples, batch, processes, accumulation, epochs):
    return math.ceil(epochs * math.ceil(samples / batch) / accumulation)


@wrong("optimizer_steps", "batches_not_steps", "and rounded down")
def _(samples, batch, processes, accumulation, epochs):
    return epochs * (samples // (batch * processes))


@wrong("optimizer_steps", "one_epoch", "and rounded down")
def _(samples, batch, processes, accumulation, epochs):
    return samples // batch // processes // accumulation


@right("optimizer_steps", "group by group")
def _(samples, batch, processes, accumulation, epochs):
    steps = 0
    for _ in range(epochs):
        rows = samples
        while rows > 0:
            rows -= batch * processes * accumulation
            steps += 1
    return steps


@right("optimizer_steps", "NumPy, in one division")
def _(samples, batch, processes, accumulation, epochs):
    return np.float32(epochs) * np.ceil(samples / batch / processes / accumulation)
