import math
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
import torch
import transformers
from accelerate import Accelerator
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from transformers.optimization import Adafactor as TransformersAdafactor

from course_lib.adafactor import Adafactor
from course_lib.memory import StateSize, compute_optimizer_size, predict_state_size, state_size

OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "sgd_momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
    "adafactor": Adafactor,
    "adafactor_transformers": TransformersAdafactor,
    "adafactor_torch": torch.optim.Adafactor,
}


def stepped(make, model, steps=1):
    """An optimizer over the trainable parameters of `model`, after steps in which each has a random gradient."""
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = make(params)
    for p in params:
        p.grad = torch.empty_like(p).uniform_(0.5, 1.5)
    for _ in range(steps):
        optimizer.step()
    return optimizer


class Tensors(nn.Module):
    """A model of nothing but parameters of the shapes given."""

    def __init__(self, *shapes, dtype=torch.float32, device=None):
        super().__init__()
        self.tensors = nn.ParameterList(torch.ones(shape, dtype=dtype, device=device) for shape in shapes)


def tied(device=None):
    model = nn.Sequential(nn.Embedding(7, 4, device=device), nn.Linear(4, 7, bias=False, device=device))
    model[1].weight = model[0].weight
    return model


def frozen(device=None):
    model = nn.Sequential(nn.Embedding(7, 4, device=device), nn.Linear(4, 3, device=device))
    model[0].requires_grad_(False)
    return model


MODELS = {
    "linear": lambda device=None: nn.Linear(5, 3, device=device),
    "conv": lambda device=None: nn.Conv2d(6, 8, 3, device=device),
    "conv 1x1": lambda device=None: nn.Conv2d(32, 64, 1, bias=False, device=device),
    "three axes": lambda device=None: Tensors((2, 3, 4), device=device),
    "embedding": lambda device=None: nn.Embedding(7, 4, device=device),
    "row and column": lambda device=None: Tensors((1, 6), (6, 1), device=device),
    "vector": lambda device=None: Tensors((5,), device=device),
    "one number": lambda device=None: Tensors((), device=device),
    "number and matrix": lambda device=None: Tensors((), (4, 3), (), device=device),
    "tied": tied,
    "frozen": frozen,
    "bf16": lambda device=None: nn.Linear(5, 3, dtype=torch.bfloat16, device=device),
    "fp16": lambda device=None: nn.Linear(5, 3, dtype=torch.float16, device=device),
    "fp64": lambda device=None: nn.Linear(5, 3, dtype=torch.float64, device=device),
    "two dtypes": lambda device=None: nn.Sequential(
        nn.Linear(5, 3, device=device), nn.Linear(3, 2, dtype=torch.bfloat16, device=device)
    ),
}


# --- the numbers that the course accounts for


def distilbert():
    """DistilBERT-base-cased with two labels, on the meta device: 65,783,042 parameters in 104 tensors."""
    with torch.device("meta"):
        return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(vocab_size=28996))


@pytest.fixture(scope="module")
def real_distilbert():
    """The same in memory, with parameters and gradients of no particular value: some 500 MiB, made once."""
    model = distilbert().to_empty(device="cpu")
    with torch.no_grad():
        for p in model.parameters():
            p.uniform_(-0.02, 0.02)
            p.grad = p.clone()
    return model


@pytest.mark.parametrize(
    ("kind", "moments", "scalars", "size_in_bytes", "mib"),
    [
        ("adamw", 131_566_084, 104, 526_264_752, 501.885),
        ("adafactor_transformers", 178_504, 208, 714_432, 0.681),
        ("adafactor_torch", 178_504, 104, 714_432, 0.681),
        ("adafactor", 178_504, 104, 714_432, 0.681),
    ],
)
def test_full_size_distilbert(real_distilbert, kind, moments, scalars, size_in_bytes, mib):
    # Fused, as Trainer's AdamW is, it is much the quickest on a CPU.
    variant = {"fused": True} if kind == "adamw" else {}
    optimizer = OPTIMIZERS[kind](real_distilbert.parameters(), **variant)
    optimizer.step()
    measured = state_size(optimizer)
    assert (measured.moments, measured.scalars, measured.metadata) == (moments, scalars, 0)
    assert measured.bytes == size_in_bytes
    assert compute_optimizer_size(optimizer.state.values()) == (size_in_bytes / 2**20, moments + scalars)
    assert round(measured.mib, 3) == mib
    assert predict_state_size(distilbert(), kind) == measured


def test_distilbert_by_key_as_transformers_prints_it():
    size = predict_state_size(distilbert(), "adafactor_transformers")
    assert size.elements == 178_712
    assert size.by_key["step"] == (104, 0)
    assert size.by_key["RMS"] == (104, 416)
    # In each of six layers: biases of q, k, v and the output, two layer norms, two biases of the feed-forward part.
    # Then the embeddings' layer norm and the biases of the two heads.
    vectors = 6 * (4 * 768 + 2 * 2 * 768 + 3072 + 768) + 2 * 768 + 768 + 2
    assert size.by_key["exp_avg_sq"] == (vectors, 4 * vectors)


def test_t5_3b_needs_megabytes_not_gigabytes():
    with torch.device("meta"):
        config = transformers.T5Config(d_model=1024, d_kv=128, d_ff=16384, num_layers=24, num_heads=32)
        model = transformers.T5ForConditionalGeneration(config)
    assert predict_state_size(model, "adafactor_transformers").mib == pytest.approx(12.6, abs=0.05)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sgd", 0),
        ("sgd_momentum", 524_800),
        ("rmsprop", 524_800 + 2),
        ("adagrad", 524_800 + 2),
        ("adamw", 1_049_600 + 2),
        ("adafactor", 1024 + 512 + 512 + 2),
    ],
)
def test_linear_worked_by_hand(kind, expected):
    assert predict_state_size(nn.Linear(1024, 512, device="meta"), kind).elements == expected


@pytest.mark.parametrize("kind", ["adafactor", "adafactor_transformers", "adafactor_torch"])
@pytest.mark.parametrize(
    ("shape", "moments"),
    [((1024, 512), 1536), ((8, 6, 3, 3), 288), ((64, 32, 1, 1), 4096), ((1, 6), 7), ((9,), 9), ((), 1)],
)
def test_adafactor_moments_worked_by_hand(kind, shape, moments):
    assert predict_state_size(Tensors(shape), kind).moments == moments


# --- predicted equals measured


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_prediction_equals_measurement(kind, name):
    predicted = predict_state_size(MODELS[name]("meta"), kind)
    assert predicted == state_size(stepped(OPTIMIZERS[kind], MODELS[name](), steps=2))
    assert predicted == predict_state_size(MODELS[name](), kind)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(OPTIMIZERS)),
    shapes=st.lists(st.lists(st.integers(1, 5), max_size=4).map(tuple), min_size=1, max_size=4),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_prediction_equals_measurement_for_any_shapes(kind, shapes, dtype):
    model = Tensors(*shapes, dtype=dtype)
    measured = state_size(stepped(OPTIMIZERS[kind], model))
    assert predict_state_size(model, kind) == measured
    if kind == "adamw":
        assert measured.moments == 2 * sum(math.prod(shape) for shape in shapes)
        assert measured.scalars == len(shapes)
        assert measured.bytes == measured.moments * dtype.itemsize + 4 * len(shapes)


@pytest.mark.parametrize("variant", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_variants_of_adamw_keep_the_same_state(variant):
    model = nn.Linear(5, 3)
    optimizer = stepped(lambda params: torch.optim.AdamW(params, **variant), model)
    assert all(state["step"].shape == () and state["step"].nbytes == 4 for state in optimizer.state.values())
    assert state_size(optimizer) == predict_state_size(model, "adamw")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_prediction_follows_the_default_dtype(kind):
    torch.set_default_dtype(torch.float64)
    try:
        model = nn.Linear(5, 3)
        assert predict_state_size(model, kind) == state_size(stepped(OPTIMIZERS[kind], model))
    finally:
        torch.set_default_dtype(torch.float32)


def test_tied_parameters_count_once_and_frozen_ones_not_at_all():
    assert predict_state_size(tied(), "adamw").moments == 2 * 7 * 4
    assert predict_state_size(frozen(), "adamw").moments == 2 * (4 * 3 + 3)


def test_unknown_kind_names_the_known_ones():
    with pytest.raises(ValueError, match="'adam'") as error:
        predict_state_size(nn.Linear(2, 2), "adam")
    assert all(kind in str(error.value) for kind in OPTIMIZERS)


def test_predicting_needs_a_model():
    with pytest.raises(TypeError, match="needs a model.*list"):
        predict_state_size([torch.ones(2)], "adamw")


# --- what may be measured


def test_every_way_to_hand_over_a_state():
    model = nn.Linear(5, 3)
    optimizer = stepped(torch.optim.AdamW, model)
    expected = StateSize(moments=36, scalars=2, bytes=38 * 4, by_key={"step": (2, 8), "exp_avg": (18, 72)})
    expected.by_key["exp_avg_sq"] = (18, 72)
    wrapped = Accelerator(cpu=True).prepare(optimizer)
    assert type(wrapped) is not type(optimizer)
    states = optimizer.state
    for thing in (
        optimizer,
        wrapped,
        optimizer.state_dict(),
        wrapped.state_dict(),
        states,
        wrapped.state,
        states.values(),
        list(states.values()),
        tuple(states.values()),
        (state for state in states.values()),
    ):
        assert state_size(thing) == expected
        assert compute_optimizer_size(thing if not hasattr(thing, "send") else states.values()) == (152 / 2**20, 38)
    assert state_size(states[model.bias]) == state_size([states[model.bias]])
    assert state_size(states[model.bias]).elements == 7


def test_trainer_optimizer_before_and_after_training(tmp_path):
    class Line(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x, labels):
            return {"loss": (self.layer(x) - labels).square().mean()}

    trainer = transformers.Trainer(
        model=Line(),
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path),
            optim="adafactor",
            max_steps=1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=[{"x": [1.0], "labels": [1.0]}] * 2,
    )
    for thing in (trainer, trainer.optimizer):
        with pytest.raises(ValueError, match=r"trainer\.train\(\)"):
            state_size(thing)
    trainer.train()
    # weight: a row and a column of one number; bias: one number; step and RMS for each.
    for thing in (trainer, trainer.optimizer, trainer.optimizer.state.values()):
        assert compute_optimizer_size(thing) == (5 * 4 / 2**20, 7)


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_loaded_state_has_the_size_of_the_saved_one(kind):
    model = MODELS["number and matrix"]()
    saved = stepped(OPTIMIZERS[kind], model)
    loaded = OPTIMIZERS[kind](model.parameters())
    loaded.load_state_dict(saved.state_dict())
    assert state_size(loaded) == state_size(saved)


def test_before_the_first_step_there_is_nothing_and_it_says_why():
    size = state_size(torch.optim.AdamW(nn.Linear(5, 3).parameters()))
    assert (size.elements, size.bytes, size.mib, size.by_key) == (0, 0, 0.0, {})
    for text in (str(size), repr(size), size._repr_html_()):
        assert "first step" in text
    assert compute_optimizer_size([]) == (0.0, 0)
    assert compute_optimizer_size({}.values()) == (0.0, 0)


@pytest.mark.parametrize("wrong", ["", 3, torch.ones(2), torch.tensor(1.0), nn.Sequential(), [torch.ones(2)], [None]])
def test_what_holds_no_state_is_refused(wrong):
    with pytest.raises(TypeError, match=r"needs an optimizer, its state_dict\(\)"):
        state_size(wrong)


# --- how entries are counted


def test_python_values_and_nested_containers():
    state = {
        "step": 3,
        "lr": 0.1,
        "flag": True,
        "nothing": None,
        "name": "adafactor",
        "inner": {"step": 2, "exp_avg": torch.zeros(4), "deeper": {"RMS": torch.ones(1)}},
        "history": [torch.zeros(2), (torch.zeros(3), 1.5)],
    }
    size = state_size([state])
    assert size == StateSize(
        moments=9,
        scalars=5,
        bytes=40,
        by_key={
            "step": (1, 0),
            "lr": (1, 0),
            "inner.step": (1, 0),
            "inner.exp_avg": (4, 16),
            "inner.deeper.RMS": (1, 4),
            "history": (6, 20),
        },
    )
    assert compute_optimizer_size([state]) == (40 / 2**20, 14)


def test_scalars_are_told_from_the_moments_of_a_single_number():
    number = stepped(torch.optim.AdamW, Tensors(()))
    assert (state_size(number).moments, state_size(number).scalars) == (2, 1)
    # NAdam keeps a product of momenta beside the averages; its step may come with an axis.
    matrix = stepped(torch.optim.NAdam, Tensors((2, 3)))
    assert (state_size(matrix).moments, state_size(matrix).scalars) == (12, 2)
    assert state_size([{"step": torch.ones(1), "exp_avg": torch.ones(4)}]).scalars == 1


def test_lists_as_in_lbfgs():
    p = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.LBFGS([p], lr=0.01, max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = (p**4).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    size = state_size(optimizer)
    history = optimizer.state[p]["old_dirs"]
    assert len(history) > 1
    assert size.by_key["old_dirs"] == (2 * len(history), 8 * len(history))
    assert size.by_key["func_evals"] == (1, 0)


def test_shared_storage_counts_once():
    table = torch.zeros(256)
    states = [
        {"state1": torch.zeros(512, dtype=torch.uint8), "absmax1": torch.zeros(2), "qmap1": table} for _ in range(3)
    ]
    states[2]["qmap1"] = table.view(16, 16).T
    size = state_size(states)
    assert (size.moments, size.scalars, size.metadata) == (3 * 512, 0, 3 * 2 + 256)
    assert size.bytes == 3 * 512 + 3 * 8 + 1024
    assert size.by_key["qmap1"] == (256, 1024)


def test_part_of_a_storage_counts_what_it_shows_and_what_it_keeps_alive():
    flat = torch.zeros(20)
    assert state_size([{"exp_avg": flat[:5]}]).by_key == {"exp_avg": (5, 80)}
    two = state_size([{"a": flat[:12], "b": flat[8:].view(3, 4), "c": flat[8:10]}])
    assert two.by_key == {"a": (12, 80), "b": (8, 0), "c": (0, 0)}
    assert state_size([{"exp_avg": torch.zeros(3, 1).expand(3, 7)}]).by_key == {"exp_avg": (3, 12)}
    assert state_size([{"exp_avg": torch.zeros(6)[:3].expand(2, 3)}]).by_key == {"exp_avg": (3, 24)}
    assert state_size([{"a": flat, "b": flat.view(torch.uint8)}]).by_key == {"a": (20, 80), "b": (0, 0)}
    assert state_size([{"a": torch.zeros(4, 3).T}]).by_key == {"a": (12, 48)}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 3), st.booleans()), min_size=1, max_size=4),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_overlapping_views_count_each_number_once(cuts, dtype):
    grid = torch.arange(64, dtype=torch.float32).view(8, 8)
    stored = grid.to(dtype)
    views, values = [], set()
    for row, col, stride, transpose in cuts:
        cut = (slice(row, None, stride), slice(None, col + 1))
        views.append(stored[cut].T if transpose else stored[cut])
        values.update(grid[cut].flatten().tolist())
    size = state_size([{"exp_avg": view} for view in views])
    assert (size.moments, size.bytes) == (len(values), 64 * dtype.itemsize)


def test_passing_tensors_are_not_mistaken_for_shared_ones():
    size = state_size({"exp_avg": torch.zeros(1000)} for _ in range(20))
    assert (size.moments, size.bytes) == (20_000, 80_000)


def test_a_wrapper_counts_its_own_numbers_and_the_bytes_inside():
    wrapper = TwoTensor(torch.zeros(3, 4), torch.zeros(3, 4))
    size = state_size([{"exp_avg": wrapper}, {"exp_avg": wrapper}])
    assert (size.moments, size.bytes) == (12, 2 * 12 * 4)


def test_sparse_momentum_counts_what_it_stores():
    embedding = nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 7])).sum().backward()
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1, momentum=0.9)
    optimizer.step()
    size = state_size(optimizer)
    assert size.by_key == {"momentum_buffer": (2 + 2 * 4, 2 * 8 + 2 * 4 * 4)}


def test_empty_tensors_take_nothing():
    assert state_size([{"a": torch.zeros(0), "b": torch.zeros(0, 3)}]).by_key == {"a": (0, 0), "b": (0, 0)}


# --- the result


def test_units_and_sum():
    size = StateSize(moments=5, scalars=2, metadata=1, bytes=3 * 2**20)
    assert (size.elements, size.mib, size.mb) == (8, 3.0, 3.145728)
    with pytest.raises(FrozenInstanceError):
        size.bytes = 0


def test_texts_name_the_numbers_and_the_unit():
    size = predict_state_size(distilbert(), "adafactor_transformers")
    assert str(size) == "178,712 elements (178,504 moments + 208 scalars), 714,432 bytes = 0.681 MiB"
    assert repr(size) == f"<StateSize: {size}>"
    assert "1 metadata" in str(StateSize(metadata=1, bytes=4, by_key={"qmap1": (1, 4)}))
    tiny = state_size([{"exp_avg": torch.zeros(7)}])
    assert str(tiny).endswith("28 bytes = 2.7e-05 MiB")


def test_html_is_a_table_with_a_total_and_nothing_unescaped():
    size = state_size([{"<b>": torch.zeros(1000), "step": 4}])
    table = size._repr_html_()
    assert "<b>" not in table and "&lt;b&gt;" in table
    assert table.count("<tr>") == 1 + 2 + 1
    assert "<td>1,001</td><td>4,000</td><td>" in table
    assert "1,000 moments + 1 scalars" in table


def test_importing_it_pulls_in_no_training_library():
    code = "import sys, course_lib.memory; print(*{'transformers', 'accelerate', 'datasets'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True, timeout=120
    )
    assert done.stdout.strip() == ""
