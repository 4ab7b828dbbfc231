"""Exercise 07 against the libraries: rates, steps, the listing with its faults, and the stand-ins of its check."""

import re
from functools import partial
from types import SimpleNamespace

import accelerate
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, DataLoader
from transformers import get_scheduler
from transformers.optimization import Adafactor

import course
import exercises
from course_lib import tasks
from course_lib.check import _fake_accelerator as fake
from course_lib.check import _loop_faults, exercise_07

COURSE = course.load()


def text_of(task):
    source = next(exercise for exercise in exercises.written(COURSE) if exercise.id == "07")
    return {p.task.name: p.cell.source for p in exercises.read(COURSE, source) if p.role == "task"}[task]


def first_step(make, X, G):
    Y = torch.nn.Parameter(X.double().clone())
    Y.grad = G.clone()
    make([Y]).step()
    return (Y.detach() - X).square().mean().sqrt().item()


def test_rates_make_both_classes_go_equally_far():
    for rate, X in (case.args for case in exercise_07.torch_rate.cases()):
        G = torch.randn(X.shape, generator=torch.Generator().manual_seed(0)).double()
        by_trainer = first_step(partial(Adafactor, lr=rate, scale_parameter=False, relative_step=False), X, G)
        lr = exercise_07.torch_rate.rule(rate, X)
        assert lr <= 1, "the text says that the cap stays out of it"
        assert first_step(partial(torch.optim.Adafactor, lr=lr), X, G) == pytest.approx(by_trainer, rel=1e-4)


def test_steps_are_those_of_a_loop_with_the_batches_that_accelerate_deals_out():
    for samples, batch, processes, accumulation, epochs in (case.args for case in exercise_07.optimizer_steps.cases()):
        batches = BatchSampler(range(samples), batch, drop_last=False)
        hands = [list(BatchSamplerShard(batches, processes, p)) for p in range(processes)]
        accelerator = accelerate.Accelerator(cpu=True)
        layer = torch.nn.Linear(1, 1)
        optimizer, loader = torch.optim.Adagrad(layer.parameters()), DataLoader(torch.ones(len(hands[0]), 1))
        layer, optimizer, loader = accelerator.prepare(layer, optimizer, loader)
        accelerator.gradient_accumulation_steps = accumulation
        for _ in range(epochs):
            for rows in loader:
                with accelerator.accumulate(layer):
                    accelerator.backward(layer(rows).sum())
                    optimizer.step()
                    optimizer.zero_grad()
        accelerator.gradient_accumulation_steps = 1
        assert len({len(hand) for hand in hands}) == 1
        right = exercise_07.optimizer_steps.rule(samples, batch, processes, accumulation, epochs)
        assert optimizer.state[layer.weight]["step"] == right


def listing():
    """The lines of the program, by number."""
    numbered = re.findall(r"^ ?(\d+)  (.+)$", text_of("faults"), re.MULTILINE)
    lines = {int(number): line for number, line in numbered}
    assert list(lines) == list(_loop_faults.LINES)
    return lines


def run_listing(change=lambda lines: None):
    """Run the listing with stand-ins; `change` may mend its lines."""
    lines = listing()
    change(lines)
    accelerator, model, optimizer, scheduler, loader = fake.pieces(3, 3)
    made = {
        "Accelerator": lambda: accelerator,
        "AutoModelForSequenceClassification": SimpleNamespace(from_pretrained=lambda *_, **__: model),
        "Adafactor": lambda params, lr: optimizer,
        "DataLoader": lambda *_, **__: loader,
        "get_scheduler": lambda *_, num_training_steps, **__: scheduler if num_training_steps == 9 else None,
        "accuracy": lambda model: 0.5,
        **dict.fromkeys(["checkpoint", "rows", "collator"]),
    }
    exec("\n".join(line for _, line in sorted(lines.items())), made)
    return accelerator.record


def mend_7(lines):
    lines[7] = "model, optimizer, loader, lr_scheduler = accelerator.prepare(model, optimizer, loader, lr_scheduler)"


def mend_8(lines):
    del lines[8]
    lines[9.5] = "    model.train()"


def mend_12(lines):
    lines[12] = "        loss = model(**batch).loss"


def mend_13(lines):
    lines[13] = "        accelerator.backward(loss)"


MENDERS = {7: mend_7, 8: mend_8, 12: mend_12, 13: mend_13}


@pytest.mark.parametrize("left", [*sorted(MENDERS), None])
def test_each_fault_of_the_listing_is_one_and_all_other_lines_are_right(left):
    def mend(lines):
        for number, mender in MENDERS.items():
            if number != left:
                mender(lines)

    record = run_listing(mend)
    assert set(MENDERS) == _loop_faults.RIGHT
    found = {
        7: bool(record.raw),
        8: not all(record.training),
        12: not all(record.masked),
        13: record.plain_backward,
    }
    assert [number for number, faulty in found.items() if faulty] == ([left] if left else [])
    assert record.batches == [[0], [1], [2]] * 3 and record.ticks == list(range(9))


def test_the_listing_runs_on_a_cpu_without_an_error(capsys):
    task = tasks.load("small")
    names = {
        "Accelerator": partial(accelerate.Accelerator, cpu=True),
        "AutoModelForSequenceClassification": SimpleNamespace(from_pretrained=lambda *_, **__: task.model().eval()),
        "Adafactor": torch.optim.Adafactor,
        "DataLoader": DataLoader,
        "get_scheduler": get_scheduler,
        "accuracy": lambda model: float(not model.training),
        "rows": task.train.select(range(48)),
        "collator": task.collator,
        "checkpoint": "",
    }
    exec("\n".join(listing().values()), names)
    printed = capsys.readouterr().out
    assert printed.count("Loss = ") == 3 and printed.count("Accuracy = 1.00") == 3


def test_the_faults_show_in_the_record_of_the_listing_as_it_is():
    record = run_listing()
    assert len(record.batches) == 9 and record.raw == {"batches"} and record.training == [True] * 3 + [False] * 6


def test_stand_ins_offer_nothing_that_accelerate_does_not():
    offered = {name for name in dir(fake.Accelerator) if not name.startswith("_")}
    assert offered - set(dir(accelerate.Accelerator)) == set()
    real = accelerate.Accelerator(cpu=True)
    accelerator, model, *_ = fake.pieces(2, 1)
    for name in (
        "num_processes",
        "is_main_process",
        "sync_gradients",
        "mixed_precision",
        "gradient_accumulation_steps",
    ):
        assert getattr(accelerator, name) == getattr(real, name)
    assert isinstance(accelerator.prepare(model), fake.PreparedModel), "one piece comes back as such, as in accelerate"


def test_prepared_stand_ins_are_what_torch_expects():
    accelerator, *pieces = fake.pieces(2, 1)
    model, optimizer, scheduler, loader = accelerator.prepare(*pieces)
    assert isinstance(optimizer, torch.optim.Optimizer) and isinstance(model, torch.nn.Module)
    assert optimizer.state_dict()["param_groups"][0]["lr"] == scheduler.get_last_lr()[0] == 0.02
    assert [name for name, _ in model.named_parameters()] == ["module.weight"] and model.config.num_labels == 2
    assert len(loader) == len(list(loader)) == 2
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
