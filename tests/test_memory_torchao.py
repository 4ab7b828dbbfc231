"""torchao's optimizers take a real step in a process of their own; the prediction must equal what they then keep."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchao_steps
from torch import nn

from course import ROOT
from course_lib import tasks
from course_lib.memory import predict_state_size

FOLDER = ROOT / ".torchao"
KINDS = ("adamw8bit_torchao", "adamw4bit_torchao")


@pytest.fixture(scope="module")
def found():
    if not (FOLDER / "torchao").is_dir():
        pytest.skip("torchao is not installed: `make test` does it, with a network, into .torchao/")
    script = Path(torchao_steps.__file__)
    done = subprocess.run(
        [sys.executable, str(script), str(FOLDER)], capture_output=True, text=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def predicted(model, kind):
    return torchao_steps.numbers(predict_state_size(model, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", torchao_steps.MODELS)
def test_prediction_equals_measurement(found, kind, name):
    with torch.device("meta"):
        model = torchao_steps.MODELS[name]()
    assert predicted(model, kind) == found[f"{kind}, {name}"]


@pytest.mark.parametrize("kind", KINDS)
def test_prediction_follows_the_default_dtype(found, kind):
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert predicted(nn.Linear(64, 64), kind) == found[f"{kind}, bf16 by default"]
    finally:
        torch.set_default_dtype(torch.float32)


def test_it_is_not_believed(found):
    # Two moments of 64 × 64 numbers in 4 bits; a vector of 64 in full.
    assert found["what it says of itself"] == [4 * 4096, 4 * 4096]
    assert found["adamw4bit_torchao, tied"] == predicted(torchao_steps.tied(), "adamw4bit_torchao")
    moments, _, _, size, by_key = found["saved"]
    assert moments == 2 * (4096 + 64)
    assert by_key["exp_avg"] == [4096 + 64, 4096 // 2 + 4 * 64]
    assert by_key["exp_avg.scale"] == [32, 4 * 32] and by_key["exp_avg_sq.qmap"] == [16, 4 * 16]
    assert size == 2 * (2048 + 128 + 64) + 2 * 4 * 64 + 2 * 4


def test_saved_or_twice_it_is_the_same(found):
    assert found["saved"] == found["twice"] == predicted(nn.Linear(64, 64), "adamw4bit_torchao")


def test_eight_bit_floats_count_one_byte_each(found):
    moments, scalars, metadata, size, _ = found["fp8"]
    assert (moments, scalars, metadata) == (2 * 4096, 1, 2 * 16)
    assert size == 2 * 4096 + 4 * 2 * 16 + 4


def test_of_a_shared_tensor_the_own_half_counts(found):
    assert found["shared among processes"] == predicted(nn.Linear(128, 64, bias=False), "adamw4bit_torchao")


@pytest.mark.parametrize(("kind", "size"), [("adamw8bit_torchao", 134_082_576), ("adamw4bit_torchao", 70_342_128)])
def test_distilbert(kind, size):
    # Measured with torchao 0.18.
    predicted = predict_state_size(tasks.distilbert(device="meta"), kind)
    assert predicted.bytes == size
    assert predicted.moments == 2 * 65_783_042
    assert predicted.scalars == 104


@pytest.mark.parametrize(
    ("kind", "per_parameter"),
    [
        ("adamw", 8),
        ("sgd_momentum", 4),
        ("lion_bitsandbytes", 4),
        ("adamw8bit_bitsandbytes", 2.035),
        ("adamw8bit_torchao", 2.035),
        ("adamw4bit_torchao", 1.063),
        ("adafactor", 0.0117),
    ],
)
def test_bytes_per_parameter_of_one_matrix(kind, per_parameter):
    layer = nn.Linear(512, 1024, bias=False, device="meta")
    assert predict_state_size(layer, kind).bytes / 524_288 == pytest.approx(per_parameter, rel=0.003)
