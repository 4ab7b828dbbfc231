"""Training side by side: nothing but the optimizer differs, and none disturbs another."""

from dataclasses import replace

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from torch.optim import SGD

from course_lib import libraries, lockstep, tasks
from course_lib.lockstep import ADAMW, ADAMW_8BIT, GIVEN, RELATIVE


@pytest.fixture(scope="module")
def task():
    """The small task, cut to 80 rows (5 batches of 16) and 20 to judge by."""
    whole = tasks.load("small")
    parts = {"train": whole.train.select(range(80)), "validation": whole.validation.select(range(20))}
    return replace(whole, **parts, batch_size=16, epochs=2)


def trained_models(task, rates, **settings):
    """The models after training, by the order of ``rates``, and the runs."""
    models = []

    def build():
        models.append(task.build())
        return models[-1]

    return models, lockstep.train(replace(task, build=build), rates, **settings)


def same(one, other):
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_a_run_does_not_depend_on_its_company(task):
    (alone,), _ = trained_models(task, {GIVEN: 1e-3}, seed=1, steps=4)
    together, runs = trained_models(task, {ADAMW: 1e-3, GIVEN: 1e-3, RELATIVE: 0.03}, seed=1, steps=4)
    assert same(together[1], alone) and not same(together[0], alone) and not same(together[2], alone)
    (other,), _ = trained_models(task, {GIVEN: 1e-3}, seed=2, steps=4)
    assert not same(other, alone)
    assert list(runs) == [ADAMW, GIVEN, RELATIVE] and all(run.seconds > 0 and run.seed == 1 for run in runs.values())


def test_a_run_is_that_of_a_plain_loop(task):
    (model,), runs = trained_models(task, {ADAMW: 1e-3}, seed=3)
    mine = task.model(seed=3)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=1e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, total_iters=10)
    torch.manual_seed(3)
    for _ in range(2):
        for places in torch.randperm(80).split(16):
            mine(**task.collator([task.train[i] for i in places.tolist()])).loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    for p, q in zip(model.parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)
    mine.eval()
    batch = task.collator([task.validation[i] for i in range(20)])
    answers, truth = mine(**batch).logits.argmax(-1).tolist(), batch["labels"].tolist()
    run = runs[ADAMW]
    assert run.accuracy == accuracy_score(truth, answers) == sum(run.correct) / 20
    assert run.f1 == pytest.approx(f1_score(truth, answers, average="macro"))


def test_rates_fall_to_zero_and_turns_rotate(task, monkeypatch):
    seen = []

    class Spy(SGD):
        def step(self, closure=None):
            seen.append((self.name, self.param_groups[0]["lr"]))
            return super().step(closure)

    def make(name, parameters, rate):
        spy = Spy(parameters, lr=rate)
        spy.name = name
        return spy

    monkeypatch.setattr(lockstep, "make", make)
    lockstep.train(task, {"a": 1.0, "b": 0.1}, seed=0, steps=4)
    assert [name for name, _ in seen] == ["a", "b", "b", "a"] * 2
    assert [rate for name, rate in seen if name == "a"] == [1, 0.75, 0.5, 0.25]
    assert [rate for name, rate in seen if name == "b"] == pytest.approx([0.1, 0.075, 0.05, 0.025])


def test_the_callers_random_numbers_go_on_as_before(task):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    lockstep.train(task, {ADAMW: 1e-3}, seed=0, steps=1)
    assert torch.equal(torch.rand(3), expected)


def test_the_given_rate_is_what_trainer_sets():
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments("unused", optim="adafactor", learning_rate=2e-3, report_to="none", use_cpu=True)
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    made = lockstep.make(GIVEN, [torch.nn.Parameter(torch.ones(2, 2))], 2e-3)
    assert type(made) is kind and settings.items() <= made.defaults.items()
    assert made.defaults["weight_decay"] == arguments.weight_decay == 0


def test_the_relative_step_with_the_papers_cap_is_transformers_default():
    from transformers.optimization import Adafactor

    torch.manual_seed(0)
    start, G = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    moved = []
    for make in (lambda p: lockstep.make(RELATIVE, p, 0.01), Adafactor):
        X = torch.nn.Parameter(start.clone())
        optimizer = make([X])
        for scale in (1.0, 0.3, 2.0):
            X.grad = scale * G
            optimizer.step()
        moved.append(X.detach())
    torch.testing.assert_close(*moved, rtol=0, atol=1e-14)


def test_none_decays_weights():
    for name in (ADAMW, GIVEN, RELATIVE) + ((ADAMW_8BIT,) if libraries.bitsandbytes() else ()):
        X = torch.nn.Parameter(torch.ones(64, 64))
        X.grad = torch.zeros_like(X)
        lockstep.make(name, [X], 0.1).step()
        assert torch.equal(X, torch.ones(64, 64)), name


def test_eight_bits_are_eight_bits():
    if libraries.bitsandbytes() is None:
        pytest.skip("bitsandbytes takes no step here")
    X = torch.nn.Parameter(torch.ones(64, 64))
    X.grad = torch.ones_like(X)
    optimizer = lockstep.make(ADAMW_8BIT, [X], 1e-3)
    optimizer.step()
    assert optimizer.state[X]["state1"].dtype == torch.uint8


def test_what_cannot_be_made_is_said(monkeypatch):
    with pytest.raises(ValueError, match="no optimizer 'Adam' here. The names: AdamW, 8-bit AdamW"):
        lockstep.make("Adam", [], 1e-3)
    monkeypatch.setattr(libraries, "bitsandbytes", lambda: None)
    with pytest.raises(RuntimeError, match="needs bitsandbytes"):
        lockstep.make(ADAMW_8BIT, [], 1e-3)
