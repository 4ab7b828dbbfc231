"""bitsandbytes' optimizers take a real step; the prediction must equal what they then keep."""

from math import ceil

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from course_lib import tasks
from course_lib.memory import predict_state_size, state_size

bitsandbytes = pytest.importorskip("bitsandbytes")

OPTIMIZERS = {
    "adamw8bit_bitsandbytes": bitsandbytes.optim.AdamW8bit,
    "lion8bit_bitsandbytes": bitsandbytes.optim.Lion8bit,
    "lion_bitsandbytes": bitsandbytes.optim.Lion,
}
TRAINER = {"adamw8bit_bitsandbytes": "adamw_bnb_8bit", "lion8bit_bitsandbytes": "lion_8bit"}


@pytest.fixture(autouse=True)
def manager():
    """bitsandbytes' register of exceptions. It knows parameters by their id, which a later one may have again."""
    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    manager.initialize()
    yield manager
    manager.initialize()


def stepped(kind, params):
    params = list(params)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = OPTIMIZERS[kind](params)
    optimizer.step()
    return optimizer


class Tensors(nn.Module):
    def __init__(self, *shapes, dtype=torch.float32):
        super().__init__()
        self.tensors = nn.ParameterList(torch.ones(shape, dtype=dtype) for shape in shapes)


class Tied(nn.Module):
    """A table of 5,000 numbers that is used twice; a frozen layer; a small bias. Trainer-ready."""

    def __init__(self, vocabulary=100):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 50)
        self.frozen = nn.Linear(50, 50).requires_grad_(False)
        self.layer = nn.Linear(50, 90)
        self.back = nn.Linear(90, 50)
        self.head = nn.Linear(50, vocabulary)
        self.head.weight = self.embedding.weight

    def forward(self, tokens, labels):
        hidden = self.back(self.layer(self.frozen(self.embedding(tokens))))
        return {"loss": nn.functional.cross_entropy(self.head(hidden), labels)}


MODELS = {
    "one matrix": lambda: Tensors((1024, 512)),
    "no whole number of blocks": lambda: Tensors((100, 41)),
    "on both sides of 4,096": lambda: Tensors((63, 65), (64, 64), (4095,), (4096,)),
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(16, 32, 3), nn.Conv2d(64, 64, 1)),
    "small": lambda: nn.Linear(5, 3),
    "one number": lambda: Tensors(()),
    "empty": lambda: Tensors((0, 3), (7,)),
    "tied and frozen": Tied,
    "bf16": lambda: Tensors((64, 64), (5,), dtype=torch.bfloat16),
    "fp16": lambda: Tensors((64, 64), (5,), dtype=torch.float16),
    "fp64": lambda: Tensors((64, 64), (5,), dtype=torch.float64),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_prediction_equals_measurement(kind, name):
    model = MODELS[name]()
    optimizer = stepped(kind, (p for p in model.parameters() if p.requires_grad))
    predicted = predict_state_size(model, kind)
    assert predicted == state_size(optimizer)
    with torch.device("meta"):
        assert predicted == predict_state_size(MODELS[name](), kind)
    # Saved, it keeps its tensors one level down, and by the same names.
    assert predicted == state_size(optimizer.state_dict())


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(OPTIMIZERS)),
    sizes=st.lists(st.integers(0, 3).flatmap(lambda i: st.integers(4090 * i, 4090 * i + 12)), min_size=1, max_size=3),
)
def test_prediction_equals_measurement_for_any_sizes(kind, sizes):
    model = Tensors(*((size,) for size in sizes))
    assert predict_state_size(model, kind) == state_size(stepped(kind, model.parameters()))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_loaded_state_has_the_size_of_the_saved_one(kind):
    model = Tied()
    params = [p for p in model.parameters() if p.requires_grad]
    loaded = OPTIMIZERS[kind](params)
    loaded.load_state_dict(stepped(kind, params).state_dict())
    assert state_size(loaded) == predict_state_size(model, kind)


def test_before_the_first_step_there_is_nothing():
    model = Tensors((64, 64))
    assert state_size(bitsandbytes.optim.AdamW8bit(model.parameters())).bytes == 0


# --- worked by hand


def test_one_matrix_byte_for_byte():
    size = predict_state_size(nn.Linear(512, 1024, bias=False), "adamw8bit_bitsandbytes")
    # A code of one byte for each number, a scale of four for each 256; two maps of 256 numbers; the step is an int.
    assert (size.moments, size.metadata, size.scalars) == (2 * 524_288, 2 * 2048 + 2 * 256, 1)
    assert size.bytes == 1_064_960 + 2 * 1024
    assert size.by_key["absmax1"] == (2048, 8192) and size.by_key["qmap2"] == (256, 1024)


def test_two_matrices_share_the_maps():
    one, two = (predict_state_size(Tensors(*[(64, 64)] * n), "adamw8bit_bitsandbytes") for n in (1, 2))
    assert two.bytes - one.bytes == 2 * (4096 + 4 * 16)


def test_lion_keeps_one_moment():
    layer = nn.Linear(512, 1024, bias=False)
    assert predict_state_size(layer, "lion_bitsandbytes").bytes == 4 * 524_288
    assert predict_state_size(layer, "lion8bit_bitsandbytes").bytes == 1_064_960 // 2 + 1024


def test_small_tensors_save_nothing():
    model = Tensors((63, 65))
    assert predict_state_size(model, "adamw8bit_bitsandbytes").bytes == 2 * 4 * 4095
    assert predict_state_size(model, "adamw").bytes == 2 * 4 * 4095 + 4


def test_distilbert_adds_up():
    model = tasks.distilbert(device="meta")
    size = predict_state_size(model, "adamw8bit_bitsandbytes")
    large = [p.numel() for p in model.parameters() if p.numel() >= 4096]
    numbers, blocks = sum(large), sum(ceil(n / 256) for n in large)
    codes, scales, small, maps = 2 * numbers, 2 * 4 * blocks, 2 * 4 * (65_783_042 - numbers), 2 * 4 * 256
    assert (codes, scales, small, maps) == (131_438_592, 2_053_728, 509_968, 2_048)
    assert size.bytes == codes + scales + small + maps == 134_004_336
    assert size.elements == 2 * 65_783_042 + 2 * blocks + 2 * 256 + 104 == 132_080_132
    assert f"{size.mib:.2f}" == "127.80"


def test_a_real_step_on_full_size_distilbert():
    model = tasks.distilbert()
    size = state_size(stepped("adamw8bit_bitsandbytes", model.parameters()))
    assert (size.elements, size.bytes) == (132_080_132, 134_004_336)
    assert size == predict_state_size(model, "adamw8bit_bitsandbytes")


# --- as Trainer sets it up


@pytest.mark.parametrize("kind", TRAINER)
@pytest.mark.parametrize("vocabulary", [100, 70])  # a table of 5,000 numbers, and one that is small anyway
def test_through_trainer_embeddings_stay_in_32_bits(tmp_path, kind, vocabulary):
    model = Tied(vocabulary)
    trainer = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            optim=TRAINER[kind],
            max_steps=1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=[{"tokens": 1, "labels": 2}] * 2,
    )
    trainer.train()
    measured = state_size(trainer.optimizer)
    assert predict_state_size(model, kind, embeddings_in_32bit=True) == measured
    if vocabulary == 100:
        assert predict_state_size(model, kind).bytes < measured.bytes


def test_distilbert_through_trainer():
    size = predict_state_size(tasks.distilbert(device="meta"), "adamw8bit_bitsandbytes", embeddings_in_32bit=True)
    assert f"{size.mib:.2f}" == "256.79"


@pytest.mark.parametrize("kind", ["adamw", "lion_bitsandbytes", "adamw8bit_torchao"])
def test_the_rule_is_refused_where_it_means_nothing(kind):
    with pytest.raises(ValueError, match=f"'{kind}'.*adamw8bit_bitsandbytes and lion8bit_bitsandbytes"):
        predict_state_size(nn.Embedding(100, 50), kind, embeddings_in_32bit=True)
