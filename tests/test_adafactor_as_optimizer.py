"""course_lib.adafactor among its kind: settings, groups, saving and loading, and the tools that take an optimizer."""

import copy
import io
import math
import pickle
import warnings

import pytest
import torch
import transformers
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from transformers.optimization import AdafactorSchedule

from course_lib import adafactor, meter
from course_lib.adafactor import Adafactor

TRAINER = {"lr": 1e-3, "scale_parameter": False, "relative_step": False}
BOTH = pytest.mark.parametrize("options", [{}, TRAINER], ids=["lr=None", "trainer"])
SHAPES = [(), (4,), (3, 5), (2, 3, 4), (1, 4)]


def make(dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)) for shape in SHAPES]


def steps(optimizer, params, times):
    """One step for each of `times`, with gradients that depend only on the time and the parameter's place."""
    for t in times:
        g = torch.Generator().manual_seed(100 + t)
        for p in params:
            p.grad = torch.randn(p.shape, generator=g, dtype=torch.float64).to(p.dtype) * 3.0**t
        optimizer.step()


def values(params):
    return [p.detach().clone() for p in params]


def same(xs, ys):
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(xs, ys, strict=True))


def snapshot(optimizer):
    return copy.deepcopy(optimizer.state_dict())


def same_state(one, other):
    """Equal to the last bit: groups, keys, dtypes, values."""
    assert one["param_groups"] == other["param_groups"] and one["state"].keys() == other["state"].keys()
    for index, state in one["state"].items():
        assert state.keys() == other["state"][index].keys()
        assert same(state.values(), [other["state"][index][key] for key in state])
    return True


# --- settings and groups ---


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"lr": 1e-3}, ["lr=0.001", "relative_step=True"]),
        ({"lr": 0.0}, ["lr=0.0", "relative_step=True"]),
        ({"lr": 1e-3, "warmup_init": True}, ["lr=0.001", "relative_step=True"]),
        ({"lr": 1e-3, "relative_step": False, "warmup_init": True}, ["warmup_init=True", "relative_step=False"]),
        ({"relative_step": False}, ["lr=None", "relative_step=False"]),
        ({"lr": -1e-3, "relative_step": False}, ["lr", "at least 0", "-0.001"]),
        ({"lr": math.nan, "relative_step": False}, ["lr", "at least 0", "nan"]),
        ({"eps": 1e-8}, ["eps", "pair", "1e-08"]),
        ({"eps": (None, 1e-3)}, ["eps", "pair", "None"]),
        ({"eps": (1e-30, 1e-3, 0.0)}, ["eps", "pair"]),
        ({"eps": (1e-30, -1e-3)}, ["eps", "at least 0"]),
        ({"clip_threshold": 0.0}, ["clip_threshold", "above 0"]),
        ({"clip_threshold": math.nan}, ["clip_threshold", "above 0"]),
        ({"decay_rate": 0.8}, ["decay_rate", "at most 0", "0.8"]),
        ({"weight_decay": -0.1}, ["weight_decay", "at least 0"]),
    ],
)
def test_settings_that_cannot_work_are_refused_by_the_constructor(options, names):
    for build in (
        lambda: Adafactor(make(), **options),
        lambda: Adafactor([{"params": make(), **options}]),
        lambda: Adafactor(make()).add_param_group({"params": make(), **options}),
    ):
        with pytest.raises(ValueError) as error:
            build()
        assert all(name in str(error.value) for name in names)


def test_a_refused_group_leaves_the_optimizer_as_it_was():
    optimizer = Adafactor(make())
    for group in ({"params": make(seed=1), "lr": 1.0}, {"params": [torch.zeros(2, dtype=torch.complex64)]}):
        with pytest.raises(ValueError, match="relative_step=True|real parameters"):
            optimizer.add_param_group(group)
        assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match="real parameters"):
        Adafactor([torch.zeros(2, dtype=torch.complex64, requires_grad=True)])


def test_what_torch_refuses_is_refused_with_its_own_errors():
    p = make()[0]
    for bad, error in ((p, TypeError), ([], ValueError), ([p * 2], ValueError), ([3.0], TypeError)):
        with pytest.raises(error) as theirs:
            torch.optim.SGD(bad)
        with pytest.raises(error, match=str(theirs.value)[:30]):
            Adafactor(bad)


def test_each_group_follows_its_own_settings():
    params = make()
    optimizer = Adafactor([{"params": params[:2]}, {"params": params[2:], **TRAINER, "weight_decay": 0.1}])
    steps(optimizer, params, range(3))
    relative, fixed = make(), make()
    steps(Adafactor(relative), relative, range(3))
    steps(Adafactor(fixed, **TRAINER, weight_decay=0.1), fixed, range(3))
    assert same(params, relative[:2] + fixed[2:])


def test_a_group_added_after_some_steps_starts_at_its_own_step_one():
    first, late, alone = make(), make(seed=1), make(seed=1)
    optimizer = Adafactor(first)
    steps(optimizer, first, range(3))
    optimizer.add_param_group({"params": iter(late)})
    for p in first:
        p.grad = None
    steps(optimizer, late, range(3))
    steps(Adafactor(alone), alone, range(3))
    assert same(late, alone)
    assert {optimizer.state[p]["step"].item() for p in (*first, *late)} == {3}


@pytest.mark.parametrize("options", [{}, TRAINER, {"warmup_init": True}, {"lr": 1e-3, "relative_step": False}])
def test_no_setting_has_changed_after_fifty_steps_over_five_parameters(options):
    params = make()
    optimizer = Adafactor(params, **options)
    before = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    assert before["lr"] == options.get("lr")
    steps(optimizer, params, [t % 5 for t in range(50)])
    assert {key: value for key, value in optimizer.param_groups[0].items() if key != "params"} == before
    assert [optimizer.state[p]["step"].item() for p in params] == [50] * 5


@BOTH
def test_updates_do_not_depend_on_order_or_grouping(options):
    together, apart = make(), make()
    steps(Adafactor(together, **options), together, range(4))
    order = [apart[i] for i in (3, 0, 4)], [apart[i] for i in (2, 1)]
    steps(Adafactor([{"params": group} for group in order], **options), apart, range(4))
    assert same(together, apart)


@pytest.mark.parametrize("shape", [(), (6,), (4, 6), (2, 4, 6), (0, 3)])
@BOTH
def test_parameters_updated_together_move_as_they_do_alone(options, shape, monkeypatch):
    monkeypatch.setattr(adafactor, "STACKED", 60)  # so that some shapes need several stacks
    together = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64) * 10**k) for k in range(5)]
    alone = [torch.nn.Parameter(p.detach().clone()) for p in together]
    optimizers = [Adafactor(together, **options), *(Adafactor([p], **options) for p in alone)]
    for step in range(3):
        for k, (p, q) in enumerate(zip(together, alone, strict=True)):
            p.grad = torch.randn(shape, dtype=torch.float64) * 10**-k
            if k == step:  # so that step counts come apart
                p.grad = None
            q.grad = None if p.grad is None else p.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for p, q, optimizer in zip(together, alone, optimizers[1:], strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(optimizers[0].state[p], optimizer.state[q], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@BOTH
def test_a_large_matrix_needs_a_few_megabytes_of_room(options, dtype):
    layer = torch.nn.Linear(4096, 4096, dtype=dtype)  # 64 MiB in float32
    for p in layer.parameters():
        p.grad = torch.ones_like(p)
    optimizer = Adafactor(layer.parameters(), **options)
    optimizer.step()
    with meter.measure(layer, optimizer) as usage:
        optimizer.step()
    assert usage.added <= 4 * 2**20


def test_named_parameters_and_a_rate_in_a_tensor_are_taken():
    named, plain = make(), make()
    rate = torch.tensor(1e-3, dtype=torch.float64)
    optimizer = Adafactor([(f"p{i}", p) for i, p in enumerate(named)], **{**TRAINER, "lr": rate})
    steps(optimizer, named, range(2))
    steps(Adafactor(plain, **TRAINER), plain, range(2))
    assert same(named, plain) and rate == 1e-3
    assert optimizer.param_groups[0]["param_names"] == ["p0", "p1", "p2", "p3", "p4"]
    optimizer.load_state_dict(optimizer.state_dict())


# --- gradients ---


@BOTH
def test_parameters_without_a_gradient_are_left_alone_and_have_no_state(options):
    params = make()
    before = values(params)
    optimizer = Adafactor(params, **options)
    optimizer.step()
    assert same(params, before) and len(optimizer.state) == 0
    params[2].grad = torch.ones(3, 5, dtype=torch.float64)
    optimizer.step()
    assert same(params[:2] + params[3:], before[:2] + before[3:]) and not torch.equal(params[2], before[2])
    assert list(optimizer.state) == [params[2]]


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_are_read_only(options, dtype):
    params = make(dtype)
    optimizer = Adafactor(params, weight_decay=0.1, **options)
    for p in params:
        p.grad = torch.randn(p.shape).to(dtype)
    before, versions = [p.grad.clone() for p in params], [p.grad._version for p in params]
    optimizer.step()
    assert same([p.grad for p in params], before) and [p.grad._version for p in params] == versions
    optimizer.zero_grad()
    assert [p.grad for p in params] == [None] * len(params)


def test_memory_layout_does_not_matter():
    x, g = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    plain = torch.nn.Parameter(x.clone())
    strided = torch.nn.Parameter(x.t().contiguous().t())
    assert not strided.is_contiguous()
    images = torch.nn.Parameter(torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last))
    images_plain = torch.nn.Parameter(images.detach().clone(memory_format=torch.contiguous_format))
    optimizer = Adafactor([plain, strided, images, images_plain])
    for _ in range(2):
        plain.grad, strided.grad = g.unsqueeze(1).repeat(1, 4), g.unsqueeze(1).expand(6, 4)
        images.grad = torch.randn(2, 3, 4, 4, dtype=torch.float64).to(memory_format=torch.channels_last)
        images_plain.grad = images.grad.contiguous()
        optimizer.step()
    torch.testing.assert_close(strided, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(images, images_plain, rtol=1e-12, atol=1e-12)


def test_sparse_gradients_are_refused_and_nothing_is_touched():
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    before = embedding.weight.detach().clone()
    optimizer = Adafactor(embedding.parameters())
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        optimizer.step()
    assert torch.equal(embedding.weight, before) and len(optimizer.state) == 0


def test_a_closure_runs_with_gradients_on_and_its_loss_comes_back():
    layer, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    optimizer, plain = Adafactor(layer.parameters()), Adafactor(twin.parameters())
    x = torch.randn(5, 3)
    losses = []

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        losses.append(layer(x).square().mean())
        losses[-1].backward()
        return losses[-1]

    with torch.no_grad():
        assert optimizer.step(closure) is losses[0]
    twin(x).square().mean().backward()
    assert plain.step() is None
    assert len(losses) == 1 and same(layer.parameters(), twin.parameters())
    assert torch.is_grad_enabled()


# --- saving and loading ---


def through_load(params, optimizer, options):
    fresh = [torch.nn.Parameter(p.detach().clone()) for p in params]
    loaded = Adafactor(fresh, weight_decay=0.9)  # every setting comes from the saved state
    loaded.load_state_dict(optimizer.state_dict())
    return fresh, loaded


def through_file(params, optimizer, options):
    file = io.BytesIO()
    torch.save({"params": values(params), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    fresh = [torch.nn.Parameter(p) for p in saved["params"]]
    loaded = Adafactor(fresh, **options)
    loaded.load_state_dict(saved["optimizer"])
    return fresh, loaded


def through_pickle(params, optimizer, options):
    return pickle.loads(pickle.dumps((params, optimizer)))


def through_deepcopy(params, optimizer, options):
    return copy.deepcopy((params, optimizer))


INTERRUPTIONS = [through_load, through_file, through_pickle, through_deepcopy]


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@BOTH
def test_interrupted_training_goes_on_to_the_last_bit(options, dtype, interruption):
    straight, params = make(dtype), make(dtype)
    whole, optimizer = Adafactor(straight, **options), Adafactor(params, **options)
    steps(whole, straight, range(5))
    steps(optimizer, params, range(2))
    at_two = values(params), snapshot(optimizer)
    again, resumed = interruption(params, optimizer, options)
    assert all(p is q for p, q in zip(again, resumed.param_groups[0]["params"], strict=True))
    steps(resumed, again, range(2, 5))
    assert same(again, straight) and same_state(resumed.state_dict(), whole.state_dict())
    expected = torch.float64 if dtype == torch.float64 else torch.float32
    for state in resumed.state.values():
        assert {value.dtype for key, value in state.items() if key != "step"} == {expected}
    # What was saved is a thing of its own.
    assert same(params, at_two[0]) and same_state(optimizer.state_dict(), at_two[1])


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_an_optimizer_that_was_loaded_or_copied_can_be_loaded_again(interruption):
    params = make()
    optimizer = Adafactor(params)
    steps(optimizer, params, range(2))
    early = snapshot(optimizer)
    steps(optimizer, params, range(2, 4))
    late = snapshot(optimizer)
    _, again = interruption(params, optimizer, {})
    for state in (early, late, early):
        again.load_state_dict(state)
        assert same_state(again.state_dict(), state)
        assert not again._optimizer_load_state_dict_pre_hooks and not again._optimizer_load_state_dict_post_hooks


def test_a_look_at_the_state_of_a_parameter_without_one_does_not_spoil_saving():
    params = make()
    optimizer = Adafactor(params)
    assert optimizer.state[params[0]] == {}
    params[1].grad = torch.ones(4, dtype=torch.float64)
    optimizer.step()
    optimizer.load_state_dict(snapshot(optimizer))
    params[0].grad = torch.ones((), dtype=torch.float64)
    optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in params[:2]] == [1, 2]


@pytest.mark.parametrize(
    "options",
    [{}, TRAINER, {"warmup_init": True, "weight_decay": 0.1}, {"lr": 1e-2, "relative_step": False}],
    ids=["lr=None", "trainer", "warmup", "lr, scaled"],
)
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_state_saved_by_transformers_goes_on_as_there(options, scheduled):
    theirs, ours = make(), make()
    reference = transformers.optimization.Adafactor(theirs, **options)
    schedule = transformers.optimization.AdafactorSchedule(reference) if scheduled else None
    steps(reference, theirs, range(3))
    if scheduled:
        schedule.step()  # writes the rate in effect into group["lr"], for logging, also beside relative_step
    optimizer = Adafactor(ours, lr=7.0, relative_step=False)
    with torch.no_grad():
        for p, q in zip(ours, theirs, strict=True):
            p.copy_(q)
    optimizer.load_state_dict(reference.state_dict())
    assert {tuple(state) for state in optimizer.state.values()} == {
        ("step", "exp_avg_sq"),
        ("step", "exp_avg_sq_row", "exp_avg_sq_col"),
    }
    steps(reference, theirs, range(3, 6))
    steps(optimizer, ours, range(3, 6))
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def with_momentum(params):
    return transformers.optimization.Adafactor(params, beta1=0.9)


def taller(params):
    return Adafactor([torch.nn.Parameter(torch.randn(p.shape[::-1], dtype=p.dtype)) for p in params])


def fewer(params):
    return Adafactor(params[:3])


def regrouped(params):
    return Adafactor([{"params": params[:2]}, {"params": params[2:]}])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (torch.optim.AdamW, "another optimizer.*relative_step"),
        (lambda params: torch.optim.SGD(params, momentum=0.9), "another optimizer"),
        (torch.optim.Adafactor, "another optimizer.*clip_threshold"),
        (with_momentum, r"momentum \(beta1=0.9\)"),
        (taller, r"\(3, 5\) needs 'exp_avg_sq_row' of shape \(3,\)"),
        (fewer, "doesn't match the size"),
        (regrouped, "different number of parameter groups"),
    ],
    ids=["AdamW", "SGD", "torch", "momentum", "taller", "fewer", "regrouped"],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(build, message):
    other = build(make())
    steps(other, [p for group in other.param_groups for p in group["params"]], range(2))
    params = make()
    optimizer = Adafactor(params)
    steps(optimizer, params, range(2))
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(other.state_dict())
    assert same_state(optimizer.state_dict(), before)
    optimizer.load_state_dict(before)


@pytest.mark.parametrize("build", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor, with_momentum])
def test_another_optimizer_is_recognised_before_its_first_step(build):
    params = make()
    with pytest.raises(ValueError, match="another optimizer"):
        Adafactor(params).load_state_dict(build(params).state_dict())


def test_a_state_that_lacks_an_average_is_refused():
    params = make()
    optimizer = Adafactor(params)
    steps(optimizer, params, range(1))
    broken = snapshot(optimizer)
    del broken["state"][2]["exp_avg_sq_col"]
    with pytest.raises(ValueError, match=r"\(3, 5\) needs 'exp_avg_sq_col' of shape \(5,\)"):
        optimizer.load_state_dict(broken)


def test_hooks_around_loading_see_and_may_change_what_is_loaded():
    params = make(torch.bfloat16)
    optimizer = Adafactor(params)
    steps(optimizer, params, range(2))
    saved = snapshot(optimizer)

    def before(_, state_dict):
        changed = copy.deepcopy(state_dict)
        changed["state"][1]["step"] += 40
        return changed

    def after(hooked):
        seen.extend(value.clone() for value in hooked.state[params[2]].values())
        hooked.state[params[2]]["step"].fill_(7.0)

    seen = []
    optimizer.register_load_state_dict_pre_hook(before)
    optimizer.register_load_state_dict_post_hook(after)
    optimizer.load_state_dict(saved)
    assert optimizer.state[params[1]]["step"] == 42 and optimizer.state[params[2]]["step"] == 7
    assert same(seen, saved["state"][2].values())
    assert saved["state"][1]["step"] == 2 and saved["state"][2]["step"] == 2


# --- tools that take an optimizer ---


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: LambdaLR(optimizer, lambda t: 1 / (1 + t)),
        lambda optimizer: OneCycleLR(optimizer, max_lr=0.1, total_steps=10, cycle_momentum=False),
        lambda optimizer: transformers.get_linear_schedule_with_warmup(optimizer, 2, 6),
    ],
    ids=["lambda", "one cycle", "linear"],
)
@pytest.mark.parametrize("scale_parameter", [False, True])
def test_schedules_drive_a_given_rate(schedule, scale_parameter):
    options = {"lr": 0.05, "relative_step": False, "scale_parameter": scale_parameter}
    ours, theirs = make(), make()
    optimizer, reference = Adafactor(ours, **options), transformers.optimization.Adafactor(theirs, **options)
    scheduler, beside = schedule(optimizer), schedule(reference)
    rates = []
    for t in range(5):
        steps(optimizer, ours, [t])
        steps(reference, theirs, [t])
        rates.append(scheduler.get_last_lr()[0])
        scheduler.step()
        beside.step()
    assert len(set(rates)) > 3
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_relative_steps_leave_a_schedule_nothing_to_work_on():
    params, plain = make(), make()
    with pytest.raises(TypeError, match="NoneType"):
        LambdaLR(Adafactor(params), lambda t: 1 / (1 + t))
    optimizer = Adafactor(params)
    optimizer.param_groups[0]["lr"] = 5.0  # as AdafactorSchedule does, for the log
    steps(optimizer, params, range(2))
    steps(Adafactor(plain), plain, range(2))
    assert same(params, plain)


@pytest.mark.parametrize("options", [{}, {"scale_parameter": False}, {"warmup_init": True}], ids=str)
def test_a_relative_step_can_be_shown_by_adafactor_schedule_which_changes_nothing(options):
    """It is what transformers reports of its own, but for RMS(X), which a step has changed by 1 % at most."""
    ours, theirs, plain = make(), make(), make()
    optimizer, alone = Adafactor(ours, **options), Adafactor(plain, **options)
    reference = transformers.Adafactor(theirs, **options)
    schedule, beside = AdafactorSchedule(optimizer), AdafactorSchedule(reference)
    assert schedule.get_last_lr() == beside.get_last_lr() == [0.0], "the first report, though the step is not 0"
    for t in range(6):
        steps(optimizer, ours, [t])
        steps(reference, theirs, [t])
        steps(alone, plain, [t])
        schedule.step()
        beside.step()
        shown, used = schedule.get_last_lr()[0], float(beside.get_last_lr()[0])
        assert type(shown) is float and shown == pytest.approx(used, rel=0.0101)
        size = max(1e-3, ours[0].abs().item()) if options.get("scale_parameter", True) else 1.0  # RMS of one number
        t += 1
        assert shown == pytest.approx(min(1e-6 * t if "warmup_init" in options else 1e-2, t**-0.5) * size, rel=1e-12)
    assert same(ours, plain)


def test_adafactor_schedule_shows_the_first_parameter_of_each_group():
    params = [torch.nn.Parameter(torch.full((2, 2), size)) for size in (1.0, 9.0, 0.5, 9.0)]
    optimizer = Adafactor([{"params": params[:2]}, {"params": params[2:]}])
    schedule = AdafactorSchedule(optimizer)
    for p in params:
        p.grad = torch.zeros(2, 2)  # so that nothing moves
    assert optimizer._get_lr(optimizer.param_groups[1], optimizer.state[params[2]]) == pytest.approx(0.005)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.01, 0.005])
    optimizer.load_state_dict(snapshot(optimizer))
    schedule.step()
    assert schedule.get_last_lr() == pytest.approx([0.01, 0.005])
    optimizer.param_groups[0]["eps"] = (1e-30, 2.0)  # a floor above RMS(X)
    assert optimizer._get_lr(optimizer.param_groups[0], optimizer.state[params[0]]) == pytest.approx(0.02)
    assert optimizer._get_lr(optimizer.param_groups[0], optimizer.state[params[1]]) == pytest.approx(0.09)


@pytest.mark.parametrize("options", [TRAINER, {"lr": 1e-3, "relative_step": False}])
def test_adafactor_schedule_with_a_given_rate_is_refused_instead_of_training_with_rate_0(options):
    params = make()
    optimizer = Adafactor(params, **options)
    schedule = AdafactorSchedule(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.0
    steps(optimizer, params, [0])
    with pytest.raises(ValueError, match="any other schedule"):
        schedule.step()


def test_trainer_logs_a_relative_step_as_it_does_for_transformers(tmp_path):
    from resume_runs import new_model, new_trainer

    logs = []
    for kind in (Adafactor, transformers.Adafactor):
        model = new_model()
        optimizer = kind(model.parameters())
        trainer = new_trainer(tmp_path, model=model, save_strategy="no", max_steps=3)
        trainer.optimizer, trainer.lr_scheduler = optimizer, AdafactorSchedule(optimizer)
        trainer.train()
        logs.append([line["learning_rate"] for line in trainer.state.log_history if "learning_rate" in line])
    assert logs[0][0] == logs[1][0] == 0.0 and 0 < min(logs[0][1:])
    assert logs[0] == pytest.approx(logs[1], rel=0.0101)


def test_a_gradient_scaler_skips_the_step_that_overflowed_so_that_no_average_is_poisoned():
    layer, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    optimizer, plain = Adafactor(layer.parameters()), Adafactor(twin.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for x in (torch.ones(4, 3), torch.full((4, 3), math.inf), torch.rand(4, 3)):
        optimizer.zero_grad()
        scaler.scale(layer(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        if x.isfinite().all():
            plain.zero_grad()
            twin(x).square().mean().backward()
            plain.step()
    assert optimizer.state[layer.weight]["step"] == 2
    for p, q in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_parameters_of_a_compiled_model():
    layer, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    twin.load_state_dict(layer.state_dict())
    compiled = torch.compile(layer, backend="eager")
    for model in (compiled, twin):
        optimizer = Adafactor(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
    assert same(layer.parameters(), twin.parameters())


@pytest.fixture
def accelerator():
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@BOTH
def test_accelerate_prepares_steps_saves_and_resumes_it(options, accelerator):
    """Accelerate loads an optimizer's own state back into it while preparing, then once more on resuming."""
    layer = torch.nn.Linear(3, 2)
    twin = copy.deepcopy(layer)
    model, optimizer = accelerator.prepare(layer, Adafactor(layer.parameters(), **options))
    plain = Adafactor(twin.parameters(), **options)
    for t in range(3):
        if t == 2:
            optimizer.load_state_dict(snapshot(optimizer))
        optimizer.zero_grad()
        accelerator.backward(model(torch.ones(4, 3)).square().mean())
        optimizer.step()
        plain.zero_grad()
        twin(torch.ones(4, 3)).square().mean().backward()
        plain.step()
    assert same(layer.parameters(), twin.parameters())
    assert [set(state) for state in optimizer.state.values()] == [
        {"step", "exp_avg_sq_row", "exp_avg_sq_col"},
        {"step", "exp_avg_sq"},
    ]


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = make(torch.float32)
        optimizer = Adafactor(params, weight_decay=0.1)
        steps(optimizer, params, range(2))
        optimizer.load_state_dict(snapshot(optimizer))
