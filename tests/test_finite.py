"""A loss that is NaN or infinite ends a run with advice, before weights, state or a checkpoint are spoilt."""

from math import inf, nan
from types import SimpleNamespace

import pytest
import torch
from resume_runs import OPTIMIZERS, Loop, forget_accelerate, new_model, new_trainer

from course_lib import checkpoints, threads
from course_lib.callbacks import StopAtNaN
from course_lib.finite import require_finite


@pytest.fixture(autouse=True)
def alone():
    with threads.one_thread():
        yield
    forget_accelerate()


# --- the function


@pytest.mark.parametrize(
    "value", [1.5, torch.tensor(1.5), torch.tensor([1.5], requires_grad=True), torch.tensor(1.5).half()]
)
def test_a_finite_loss_comes_back_as_a_number(value):
    found = require_finite(value, 3)
    assert type(found) is float and found == 1.5


@pytest.mark.parametrize("value", [nan, inf, -inf, torch.tensor(nan), torch.tensor([inf], requires_grad=True)])
@pytest.mark.parametrize("last", [None, 2.0])
def test_any_other_stops(value, last):
    with pytest.raises(FloatingPointError, match=f"^Step 3: the loss is {torch.as_tensor(value).item()}"):
        require_finite(value, 3, last)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "try a lower learning rate, a warm-up or clipping of gradients."),
        ({"lr": 0.05}, "try a learning rate below 0.05, a warm-up or clipping of gradients."),
        ({"lr": torch.tensor(0.5)}, "try a learning rate below 0.5, a warm-up or clipping of gradients."),
        ({"warmup": True}, "try a lower learning rate or clipping of gradients."),
        ({"clipping": True}, "try a lower learning rate or a warm-up."),
        ({"warmup": True, "clipping": True, "lr": 1e-3}, "try a learning rate below 0.001."),
        ({"fp16": True}, "clipping of gradients. And compute in bf16 instead of fp16, whose largest number is 65,504."),
    ],
)
def test_advice_leaves_out_what_is_done_already(settings, sentence):
    with pytest.raises(FloatingPointError) as error:
        require_finite(nan, 7, 1.2345678, **settings)
    told = str(error.value)
    assert told.startswith("Step 7: the loss is nan; the last finite loss was 1.235. Go back to an earlier checkpoint")
    assert told.endswith(sentence)
    assert torch.finfo(torch.float16).max == 65_504


def test_a_run_that_never_had_a_finite_loss_is_sent_to_its_data():
    with pytest.raises(
        FloatingPointError, match="no loss was finite before it. Look at this batch's inputs and labels"
    ):
        require_finite(nan, 1)


def test_in_a_loop_it_stops_before_the_step():
    loop = Loop("transformers' Adafactor")
    loss_of = loop.model.forward
    last, seen = None, []

    def forward(**batch):
        output = loss_of(**batch)
        output.loss = output.loss * (nan if len(seen) == 2 else 1.0)
        return output

    loop.model.forward = forward
    with pytest.raises(FloatingPointError, match="Step 3: the loss is nan; the last finite loss was") as error:
        for step, batch in enumerate(loop.loader, start=1):
            loss = loop.model(**batch).loss
            last = require_finite(loss, step, last)
            seen.append(last)
            loop.accelerator.backward(loss)
            loop.optimizer.step()
            loop.optimizer.zero_grad()
    assert f"{seen[1]:.4g}" in str(error.value) and len(seen) == 2
    assert finite(loop.model.parameters()) and finite(tensors(loop.optimizer))


def finite(values):
    return all(bool(value.isfinite().all()) for value in values)


def tensors(optimizer):
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]


# --- the callback


FAR = {"learning_rate": 1e20}  # the second loss is NaN


def test_trainer_alone_goes_on_and_logs_a_loss_of_zero(tmp_path):
    trainer = new_trainer(tmp_path, "transformers' Adafactor", **FAR)
    trainer.train()
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[0] > 0 and losses[1:] == [0.0, 0.0, 0.0]
    assert all(bool(p.isnan().any()) for p in trainer.model.parameters())
    # And it saves them.
    assert checkpoints.last(tmp_path).name == "checkpoint-4"


def test_with_the_callback_it_stops_at_the_step_with_advice(tmp_path):
    trainer = new_trainer(tmp_path, "transformers' Adafactor", callbacks=[StopAtNaN()], save_steps=1, **FAR)
    with pytest.raises(FloatingPointError) as error:
        trainer.train()
    first = trainer.state.log_history[0]["loss"]
    assert str(error.value) == (
        f"Step 2: the loss is nan; the last finite loss was {first:.4g}. Go back to an earlier checkpoint, and try a "
        "learning rate below 7.5e+19 or a warm-up."
    )
    assert trainer.state.global_step == 1 and finite(trainer.model.parameters()) and finite(tensors(trainer.optimizer))
    assert checkpoints.last(tmp_path).name == "checkpoint-1"
    assert not trainer.model._forward_hooks


def test_it_changes_nothing_in_a_run_that_is_well(tmp_path):
    trained = []
    for callbacks in ([], [StopAtNaN()]):
        trainer = new_trainer(tmp_path, "AdamW", save_strategy="no", callbacks=callbacks, gradient_accumulation_steps=2)
        trainer.train()
        trained.append(trainer)
    plain, watched = trained
    assert all(map(torch.equal, plain.model.parameters(), watched.model.parameters()))
    assert not watched.model._forward_hooks


class Spoilt(torch.nn.Module):
    """Puts NaN into the loss, the gradients or the logits of one batch of the training, counted from 1."""

    def __init__(self, loss_at=None, gradients_at=None, logits_at=None, as_tuple=False):
        super().__init__()
        self.model = new_model()
        self.config = self.model.config
        self.batch, self.as_tuple = 0, as_tuple
        self.loss_at, self.gradients_at, self.logits_at = loss_at, gradients_at, logits_at

    def forward(self, input_ids, attention_mask, labels=None):
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, labels=labels)
        self.batch += 1
        loss, logits = output.loss, output.logits
        if self.batch == self.loss_at:
            loss = loss * nan
        if self.batch == self.logits_at:
            logits = logits * nan
        if self.batch == self.gradients_at:
            weight = self.model.classifier.weight
            loss = loss + (weight - weight).abs().sqrt().sum()  # 0, where the root is infinitely steep
        if self.as_tuple:
            return (logits,) if loss is None else (loss, logits)
        return {"logits": logits} if loss is None else {"loss": loss, "logits": logits}


@pytest.mark.parametrize(
    ("spoilt", "settings", "what", "step"),
    [
        ({"loss_at": 1}, {}, "loss", 1),
        ({"loss_at": 3}, {}, "loss", 3),
        ({"loss_at": 3, "as_tuple": True}, {}, "loss", 3),
        ({"gradients_at": 2}, {}, "largest entry of the gradients", 2),
        ({"gradients_at": 2}, {"max_grad_norm": 0.0}, "largest entry of the gradients", 2),
        # An epoch has three batches; so step 3 has the fourth and the fifth.
        ({"loss_at": 4}, {"gradient_accumulation_steps": 2}, "loss", 3),
        ({"loss_at": 5}, {"gradient_accumulation_steps": 2}, "loss", 3),
        # Trainer computes these losses, where the callback does not see them.
        ({"logits_at": 2}, {"label_smoothing_factor": 0.1}, "largest entry of the gradients", 2),
        ({"logits_at": 2, "as_tuple": True}, {"label_smoothing_factor": 0.1}, "largest entry of the gradients", 2),
    ],
)
def test_whatever_becomes_nan_first_is_found_before_the_step(spoilt, settings, what, step, tmp_path):
    trainer = new_trainer(
        tmp_path, "transformers' Adafactor", model=Spoilt(**spoilt), callbacks=[StopAtNaN()], **settings
    )
    with pytest.raises(FloatingPointError, match=f"^Step {step}: the {what} is nan"):
        trainer.train()
    assert trainer.state.global_step == step - 1
    assert finite(trainer.model.parameters()) and finite(tensors(trainer.optimizer))
    assert not trainer.model._forward_hooks


def test_under_fp16_overflowing_gradients_are_left_to_the_scaler():
    model = torch.nn.Linear(2, 2)
    for p in model.parameters():
        p.grad = torch.full_like(p, inf)
    state = SimpleNamespace(global_step=4)
    run = {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.5)}
    args = SimpleNamespace(fp16=True, warmup_steps=0, max_grad_norm=1.0)
    callback = StopAtNaN()
    callback.on_train_begin(args, state, None, **run)
    callback.on_pre_optimizer_step(args, state, None, **run)
    callback._remember(model, (), {"loss": torch.tensor(inf)})
    with pytest.raises(FloatingPointError, match="Step 5: the loss is inf, .* compute in bf16 instead of fp16"):
        callback.on_pre_optimizer_step(args, state, None, **run)
    args.fp16 = False
    with pytest.raises(FloatingPointError, match="Step 5: the largest entry of the gradients is inf"):
        callback.on_pre_optimizer_step(args, state, None, **run)


def test_evaluation_and_what_has_no_loss_are_let_pass():
    callback, layer = StopAtNaN(), torch.nn.Linear(2, 2)
    for output in (torch.full((2, 2), nan), (torch.full((2, 2), nan),), {"logits": torch.tensor(nan)}, {"loss": None}):
        callback._remember(layer, (), output)
        assert callback._loss is None
    callback._remember(layer.eval(), (), {"loss": torch.tensor(nan)})
    assert callback._loss is None


def test_after_a_stop_the_same_trainer_can_go_on_from_its_checkpoint(tmp_path):
    model = Spoilt(loss_at=3)
    trainer = new_trainer(tmp_path, "transformers' Adafactor", model=model, callbacks=[StopAtNaN()])
    with pytest.raises(FloatingPointError, match="Step 3"):
        trainer.train()
    checkpoints.resume(trainer)
    assert trainer.state.global_step == 4
    whole = new_trainer(tmp_path / "whole", "transformers' Adafactor", model=Spoilt())
    whole.train()
    assert all(map(torch.equal, whole.model.parameters(), trainer.model.parameters()))


def test_it_works_on_a_compiled_model(tmp_path):
    trainer = new_trainer(
        tmp_path, "AdamW", callbacks=[StopAtNaN()], torch_compile=True, torch_compile_backend="eager", **FAR
    )
    with pytest.raises(FloatingPointError, match="Step 2: the loss is nan; the last finite loss"):
        trainer.train()


def test_one_nan_in_a_gradient_is_all_it_takes():
    """Why gradients are looked at: of AdamW one entry is lost, of an Adafactor the whole matrix and its averages."""
    lost = {}
    for name in ("AdamW", "our Adafactor", "transformers' Adafactor", "torch's Adafactor"):
        weight = torch.nn.Parameter(torch.ones(3, 4))
        optimizer = OPTIMIZERS[name]([weight])
        weight.grad = torch.ones(3, 4)
        weight.grad[1, 2] = nan
        optimizer.step()
        weight.grad = torch.ones(3, 4)
        optimizer.step()
        lost[name] = int(weight.isnan().sum())
    assert lost == {"AdamW": 1, "our Adafactor": 12, "transformers' Adafactor": 12, "torch's Adafactor": 12}
