"""What a CPU cannot show: the course's tools on a CUDA GPU. `make gpu` runs these; elsewhere they are skipped.

They have been written without a GPU at hand. Whoever runs them first should read a failure with that in mind.
"""

import json
from pathlib import Path

import hub_cache
import pytest
import torch
from torch import nn

from course import ROOT
from course_lib import adafactor, gpu_results, meter, step_needs, tasks
from course_lib.blockwise import dequantize, quantize
from course_lib.memory import predict_state_size, state_size

bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed here")
bnb = pytest.importorskip("bitsandbytes.functional")
pytestmark = pytest.mark.gpu

MIB = 2**20
SHAPES = ((64, 48), (33,), (4, 3, 5, 5), (1, 7), ())
SETTINGS = {
    "relative step": {},
    "Trainer's": {"lr": 0.1, "scale_parameter": False, "relative_step": False},
    "decay": {"lr": 0.1, "relative_step": False, "weight_decay": 0.1},
}


def drawn(*shapes, seed=0, dtype=torch.float32):
    """Random tensors on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def trained(device, dtype, settings, steps=4):
    """Our Adafactor after some steps with the same random gradients on any device, and its parameters."""
    parameters = [nn.Parameter(x.to(device)) for x in drawn(*SHAPES, dtype=dtype)]
    optimizer = adafactor.Adafactor(parameters, **settings)
    for step in range(steps):
        for p, gradient in zip(parameters, drawn(*SHAPES, seed=1 + step, dtype=dtype), strict=True):
            p.grad = gradient.to(device)
        optimizer.step()
    return optimizer, parameters


# --- our optimizer


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_our_adafactor_is_on_cuda_what_it_is_on_the_cpu(dtype, settings):
    here, there = trained("cpu", dtype, settings), trained("cuda", dtype, settings)
    for mine, theirs in zip(here[1], there[1], strict=True):
        assert theirs.is_cuda and theirs.dtype == dtype
        # The averages come from the gradients alone: sums in another order are all that differs.
        for key, value in here[0].state[mine].items():
            other = there[0].state[theirs][key]
            assert other.dtype == torch.float32 and other.is_cuda == (key != "step")
            torch.testing.assert_close(other.cpu(), value, rtol=1e-5, atol=0)
        # A parameter in bf16 may be rounded the other way at some step, which is one place of 8 bits.
        rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (2**-7, 2**-8)
        torch.testing.assert_close(theirs.detach().cpu(), mine.detach(), rtol=rtol, atol=atol)
    moved = [(p.detach() - x).abs().max() for p, x in zip(here[1], drawn(*SHAPES, dtype=dtype), strict=True)]
    assert max(moved) > 0.02, "nothing has moved by more than the tolerance"


def test_a_state_saved_on_the_cpu_goes_on_on_cuda():
    dtype, settings = torch.bfloat16, SETTINGS["Trainer's"]
    saved = trained("cpu", dtype, settings)[0].state_dict()
    optimizer, parameters = trained("cuda", dtype, settings, steps=1)
    optimizer.load_state_dict(saved)
    for p, state in zip(parameters, saved["state"].values(), strict=True):
        for key, value in optimizer.state[p].items():
            assert value.dtype == torch.float32 and value.is_cuda == (key != "step")
            assert torch.equal(value.cpu(), state[key])
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert all(state["step"] == 5 for state in optimizer.state.values())
    assert all(p.isfinite().all() for p in parameters)


# --- counting


class Tensors(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        shapes = ((63, 65), (64, 64), (100, 41), (3, 8, 16, 20), (5000,), (5,))
        self.tensors = nn.ParameterList(torch.ones(shape, dtype=dtype, device="cuda") for shape in shapes)


# For each kind its optimizer, and whether its steps are tensors on the CPU.
KINDS = {
    "sgd_momentum": (lambda p: torch.optim.SGD(p, momentum=0.9), False),
    "adagrad": (torch.optim.Adagrad, True),
    "rmsprop": (torch.optim.RMSprop, True),
    "adamw": (torch.optim.AdamW, True),
    "adamw, fused": (lambda p: torch.optim.AdamW(p, fused=True), False),
    "adafactor": (adafactor.Adafactor, True),
    "adafactor_torch": (torch.optim.Adafactor, True),
    "adafactor_torch, foreach": (lambda p: torch.optim.Adafactor(p, foreach=True), True),
    "adafactor_transformers": (lambda p: step_needs.make(step_needs.TRANSFORMERS, p), False),
    "adamw8bit_bitsandbytes": (bitsandbytes.optim.AdamW8bit, False),
    "lion8bit_bitsandbytes": (bitsandbytes.optim.Lion8bit, False),
    "lion_bitsandbytes": (bitsandbytes.optim.Lion, False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_prediction_equals_measurement_on_cuda(kind, dtype):
    make, steps_on_cpu = KINDS[kind]
    model = Tensors(dtype)
    parameters = list(model.parameters())
    for p in parameters:
        p.grad = torch.ones_like(p)
    optimizer = make(parameters)
    optimizer.step()
    measured = state_size(optimizer)
    assert measured == predict_state_size(model, kind.partition(",")[0])
    on_cpu = {"cpu": 4 * len(parameters)} if steps_on_cpu else {}
    assert measured.by_device == on_cpu | {str(parameters[0].device): measured.bytes - sum(on_cpu.values())}
    assert ("bytes on cpu" in str(measured)) == steps_on_cpu


TORCHAO = """
import json, sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
import torch
import torchao_steps
from course_lib.memory import state_size
torch.compiler.set_stance("force_eager")
from torchao.optim import AdamW4bit, AdamW8bit
found = {}
for kind, made in {"adamw8bit_torchao": AdamW8bit, "adamw4bit_torchao": AdamW4bit}.items():
    for name in sys.argv[3:]:
        optimizer = torchao_steps.stepped(made, torchao_steps.MODELS[name]().cuda().parameters())
        found[f"{kind}, {name}"] = torchao_steps.numbers(state_size(optimizer))
print(json.dumps(found))
"""


def test_prediction_equals_measurement_for_torchao():
    import torchao_steps

    folder = ROOT / ".torchao"
    if not (folder / "torchao").is_dir():
        pytest.skip("torchao is not installed: `make test` does it, with a network, into .torchao/")
    names = ["one matrix", "on both sides of 4,096", "tied", "bf16"]
    done = hub_cache.python(TORCHAO, str(Path(__file__).parent), str(folder), *names)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(found) == 2 * len(names)
    for key, numbers in found.items():
        kind, _, name = key.partition(", ")
        assert numbers == torchao_steps.numbers(predict_state_size(torchao_steps.MODELS[name](), kind)), key


# --- peaks


def test_a_block_that_is_run_again_adds_the_same():
    # No tensor is larger than 1 MiB: PyTorch hands these out to the 512 bytes, wherever it finds room.
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(128, 256, device="cuda")
    kept, found = [], []
    for _ in range(4):
        with meter.measure(model, optimizer, x) as usage:
            out = model(x)
            out.square().sum().backward()
            optimizer.step()
        optimizer.zero_grad()
        kept.append(out)  # as Out[] does
        found.append(usage)
    # The first makes the state, and cuBLAS takes the room that it works in.
    assert len({usage.added for usage in found[1:]}) == 1
    gradients = sum(p.nbytes for p in model.parameters())
    assert all(gradients <= usage.added < 20 * gradients for usage in found[1:])
    assert all(usage.before <= usage.peak <= usage.reserved for usage in found)


@pytest.fixture(scope="module")
def distilbert():
    return tasks.distilbert(device="cuda")


@pytest.fixture(scope="module")
def needs(distilbert):
    """What each of the course's optimizers needs for a full-size model, measured once."""
    inputs = step_needs.batch(distilbert.config.vocab_size, 8, 128, "cuda")
    found = {}

    def measured(name):
        if name not in found:
            found[name] = step_needs.needs(distilbert, name, inputs)
        return found[name]

    return measured


@pytest.mark.parametrize("name", step_needs.NAMES)
def test_a_full_size_model_keeps_what_is_predicted(distilbert, needs, name):
    need = needs(name)
    assert need.as_predicted
    for peak in (need.step, need.training):
        assert need.state <= peak.before <= peak.peak <= peak.reserved
    weights = sum(p.nbytes for p in distilbert.parameters())
    # Blocks may be a little larger than what is asked for.
    assert need.step.before - need.training.before == pytest.approx(weights, rel=0.1), "these are the gradients"
    assert need.step.before == pytest.approx(2 * weights + need.state, rel=0.2)


def test_fused_and_8_bit_steps_need_no_room_where_foreach_needs_much(distilbert, needs):
    largest = max(p.nbytes for p in distilbert.parameters())
    for name in (step_needs.FUSED, step_needs.ADAMW_8BIT):
        assert needs(name).step.added < largest / 2
    assert needs(step_needs.FOREACH).step.added > needs(step_needs.TORCH).step.added > largest / 2


def test_a_lesson_measures_on_this_gpu():
    here = gpu_results.live(step_needs.TRANSFORMERS)
    assert here.about["gpu"] == torch.cuda.get_device_name()
    assert here.needs[step_needs.TRANSFORMERS].elements == 178_712
    assert max(map(len, str(here).splitlines())) <= 110


# --- 8 bits


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_codes_are_those_of_bitsandbytes_on_cuda(dtype, signed):
    [x] = drawn((100, 257))
    x *= 10 ** (-6 * torch.rand(x.shape, generator=torch.Generator().manual_seed(1)))
    x = (x if signed else x.abs()).to("cuda", dtype)
    q = quantize(x, signed=signed)
    codes, state = bnb.quantize_blockwise(x, code=bnb.create_dynamic_map(signed).cuda(), blocksize=256)
    assert q.codes.is_cuda and torch.equal(q.absmax, state.absmax)
    # Its kernel multiplies by a rounded 1/absmax, so near the middle between two values it may take the other one.
    share = x.float() / q.absmax.repeat_interleave(256)[: x.numel()].reshape(x.shape)
    mine, theirs = ((q.map[c.int()] - share).abs() for c in (q.codes, codes))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
    assert (q.codes != codes).float().mean() < 0.01
    one_place = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    back = bnb.dequantize_blockwise(q.codes, bnb.QuantState(absmax=q.absmax, code=q.map, blocksize=256, dtype=dtype))
    torch.testing.assert_close(dequantize(q), back, rtol=one_place, atol=1e-7)


def test_moments_of_a_first_8_bit_step_on_cuda_are_ours_quantized():
    [gradient] = drawn((64, 256))
    p = nn.Parameter(torch.zeros(64, 256, device="cuda"))
    p.grad = gradient.cuda()
    optimizer = bitsandbytes.optim.AdamW8bit([p], betas=(0.9, 0.999))
    optimizer.step()
    state = optimizer.state[p]
    for i, moment in ((1, 0.1 * p.grad), (2, 0.001 * p.grad.square())):
        q = quantize(moment, signed=i == 1)
        torch.testing.assert_close(state[f"absmax{i}"], q.absmax, rtol=1e-5, atol=0)
        apart = (state[f"state{i}"].int() - q.codes.int()).abs()
        # The next value, where rounding decides, or where the nearest one has the other sign.
        assert apart.max() <= 1 and (apart > 0).float().mean() < 0.02


# --- the tier

FIND = """
import json
from course_lib import tier
here = tier.current()
import torch
from transformers import Trainer, TrainingArguments
from course_lib import memory, tasks
task = tasks.load()
arguments = TrainingArguments(
    "results", optim="adafactor", max_steps=2, per_device_train_batch_size=2, save_strategy="no", report_to="none",
    disable_tqdm=True, **({here.mixed_precision: True} if here.mixed_precision != "no" else {}),
)
trainer = Trainer(task.model(), arguments, train_dataset=task.train, data_collator=task.collator)
loss = trainer.train().training_loss
size = memory.state_size(trainer.optimizer)
print(json.dumps({
    "tier": here.name, "device": here.device.type, "offline": here.offline, "task": task.name,
    "precision": here.mixed_precision, "loss": loss, "on": list(size.by_device),
    "as predicted": size == memory.predict_state_size(trainer.model, "adafactor_transformers"),
}))
"""


@pytest.mark.parametrize(("filled", "name"), [(True, "full"), (False, "small")])
def test_the_tier_with_a_gpu_and_no_hub(tmp_path, filled, name):
    if filled:
        hub_cache.fill(tmp_path)
    nowhere = {key: value for key, value in hub_cache.NO_HUB.items() if key != "COURSE_TIER"}
    done = hub_cache.python(FIND, cwd=tmp_path, HF_HOME=str(tmp_path), **nowhere)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.strip().splitlines()
    found = json.loads(last)
    assert first.startswith(f"Tier: {name}, on cuda (a CUDA GPU, ")
    assert ("in the local cache" in first and "not" not in first) == filled
    assert (found["tier"], found["device"], found["offline"]) == (name, "cuda", True)
    assert found["task"] == ("MRPC" if filled else tasks.load("small").name)
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    assert found["precision"] == ("bf16" if native else "fp16")
    assert 0 < found["loss"] < 10 and found["as predicted"]
    assert found["on"] == ["cuda:0"]
