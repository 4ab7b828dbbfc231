import pytest
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from course_lib import planner

# Counts of the published checkpoints (classifiers with a fresh head of two labels).
PUBLISHED = {
    "DistilBERT": 65_783_042,
    "BERT base": 109_483_778,
    "BERT large": 335_143_938,
    "GPT-2": 124_439_808,
    "GPT-2 medium": 354_823_168,
    "GPT-2 large": 774_030_080,
    "GPT-2 XL": 1_557_611_200,
    "T5 base": 222_903_552,
    "T5 3B": 2_851_598_336,
    "OPT 6.7B": 6_658_473_984,
    "LLaMA 7B": 6_738_415_616,
}


@pytest.mark.parametrize("name", planner.MODELS)
def test_models_have_the_published_number_of_parameters_and_take_no_memory(name):
    model = planner.build(name)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[name]
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_distilbert_takes_the_known_bytes():
    model = planner.build("DistilBERT")
    assert planner.parts(model, "AdamW") == {
        "weights": 4 * 65_783_042,
        "gradients": 4 * 65_783_042,
        "state": 526_264_752,
    }
    assert planner.state_bytes(model, "Adafactor") == 714_432
    assert planner.state_bytes(model, "SGD") == 0
    # bitsandbytes 0.50, which keeps tensors of fewer than 4,096 elements in 32 bits
    assert planner.state_bytes(model, "8-bit Adam") == pytest.approx(134_004_336, rel=0.005)


def test_eight_bit_adam_counts_codes_and_a_scale_for_each_begun_block():
    assert planner.state_bytes(torch.nn.Linear(512, 1024, bias=False), "8-bit Adam") == 1_064_960
    assert planner.state_bytes(torch.nn.Linear(257, 1, bias=False), "8-bit Adam") == 2 * (257 + 2 * 4)


@pytest.mark.parametrize("optimizer", planner.OPTIMIZERS)
def test_frozen_weights_cost_neither_gradient_nor_state(optimizer):
    model = torch.nn.Sequential(torch.nn.Linear(10, 20, bias=False), torch.nn.Linear(20, 30, bias=False))
    whole = planner.parts(model, optimizer)
    model[0].requires_grad_(False)
    assert planner.parts(model, optimizer)["gradients"] == 4 * 20 * 30
    assert planner.parts(model, optimizer)["weights"] == whole["weights"] == 4 * (10 * 20 + 20 * 30)
    assert planner.state_bytes(model, optimizer) == planner.state_bytes(model[1], optimizer)


def test_sizes_follow_the_dtype_of_the_weights():
    model = torch.nn.Linear(10, 20, bias=False, dtype=torch.bfloat16)
    assert planner.parts(model, "SGD") == {"weights": 400, "gradients": 400, "state": 0}


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        ((1024, 512), "adamw", 2),
        ((1024, 512), "sgd_momentum", 1),
        ((1024, 512), "adafactor", 1536 / 524_288),
        ((1024, 1), "adafactor", 1025 / 1024),
        ((10,), "adafactor", 1),
        ((8, 6, 3, 3), "adafactor", 288 / 432),
        ((64, 32, 1, 1), "adafactor", 2),
        ((64, 32, 1, 1), "adamw", 2),
    ],
)
def test_elements_per_parameter(shape, kind, expected):
    assert planner.elements_per_parameter(shape, kind) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (11.6, "fits on 16 GiB and leaves 4.4 GiB"),
        (16, "fits on 24 GiB and leaves 8.0 GiB"),
        (62.9, "fits on 80 GiB and leaves 17.1 GiB"),
        (80, "too large for 80 GiB"),
    ],
)
def test_verdict_names_the_first_card_that_takes_it(total, words):
    assert planner.verdict(total) == words


def test_unknown_names_are_refused_with_those_that_are_known():
    with pytest.raises(ValueError, match="no model 'GPT-9'.*LLaMA 7B"):
        planner.build("GPT-9")
    with pytest.raises(ValueError, match="no optimizer 'adamw'.*8-bit Adam"):
        planner.state_bytes(torch.nn.Linear(2, 2), "adamw")


def test_saved_bytes_of_a_layer_by_hand():
    # The layer needs its input again, 5 × 10, and the square needs the layer's output, 5 × 20.
    layer, x = torch.nn.Linear(10, 20), torch.randn(5, 10)
    assert planner.saved_bytes(layer, lambda: layer(x).square().sum()) == 4 * (5 * 10 + 5 * 20)


def test_saved_bytes_leaves_out_the_weights_that_autograd_keeps_too():
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Linear(20, 30))
    x = torch.randn(5, 10)
    assert planner.saved_bytes(model, lambda: model(x).square().sum()) == 4 * 5 * (10 + 20 + 30)


def test_saved_bytes_counts_once_what_is_needed_twice():
    layer, x = torch.nn.Linear(10, 20), torch.randn(5, 10)

    def loss():
        h = layer(x)
        return (h * h[:, :1]).sum() + h.square().sum()

    assert planner.saved_bytes(layer, loss) == 4 * (5 * 10 + 5 * 20)


def test_a_forward_pass_on_the_meta_device_keeps_what_it_keeps_on_the_cpu():
    config = DistilBertConfig(vocab_size=100, dim=32, n_layers=2, n_heads=2, hidden_dim=64, max_position_embeddings=16)
    kept = {}
    for device in ("cpu", "meta"):
        with torch.device(device):
            model = DistilBertForSequenceClassification(config).train()
            tokens, labels = torch.zeros(3, 8, dtype=torch.long), torch.zeros(3, dtype=torch.long)
        kept[device] = planner.saved_bytes(model, lambda model=model, x=tokens, y=labels: model(x, labels=y).loss)
    assert kept["meta"] == kept["cpu"] > 0
