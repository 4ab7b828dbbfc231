from copy import deepcopy
from math import inf

import pytest
import torch
import transformers
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
    # As a real step of bitsandbytes 0.50 leaves it.
    assert planner.state_bytes(model, "8-bit Adam") == 134_004_336


def test_eight_bit_adam_counts_codes_scales_and_maps_and_leaves_small_tensors_alone():
    maps = 2 * 256 * 4
    assert planner.state_bytes(torch.nn.Linear(512, 1024, bias=False), "8-bit Adam") == 1_064_960 + maps
    assert planner.state_bytes(torch.nn.Linear(4097, 1, bias=False), "8-bit Adam") == 2 * (4097 + 17 * 4) + maps
    assert planner.state_bytes(torch.nn.Linear(4095, 1, bias=False), "8-bit Adam") == 2 * 4095 * 4


@pytest.mark.parametrize("optimizer", planner.OPTIMIZERS)
def test_frozen_weights_cost_neither_gradient_nor_state(optimizer):
    model = torch.nn.Sequential(torch.nn.Linear(10, 20, bias=False), torch.nn.Linear(20, 30, bias=False))
    whole = planner.parts(model, optimizer)
    model[0].requires_grad_(False)
    assert planner.parts(model, optimizer)["gradients"] == 4 * 20 * 30
    assert planner.parts(model, optimizer)["weights"] == whole["weights"] == 4 * (10 * 20 + 20 * 30)
    assert planner.state_bytes(model, optimizer) == planner.state_bytes(model[1], optimizer) <= 2 * 4 * 20 * 30 + 4


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


# --- plans


def test_a_plan_adds_up_what_is_known_and_what_is_estimated():
    plan = planner.plan(planner.build("LLaMA 7B"), "adamw8bit_torchao", batch=1, length=512)
    # 6,738,415,616 parameters: 266,240 of them in vectors of 4,096, all else in matrices; no tensor is small. A code of
    # one byte for each, a scale of four for each 256; for each of 291 tensors two maps of 256 numbers, and a step.
    assert plan.weights == plan.gradients == 4 * 6_738_415_616
    assert plan.state == 2 * (6_738_415_616 + 4 * 6_738_415_616 // 256 + 291 * 1024) + 4 * 291
    assert plan.total == plan.weights + plan.gradients + plan.state + plan.activations
    assert plan.cards((24, 80)) == {24: "too large", 80: "fits"}
    assert str(plan).startswith("weights 25.10, gradients 25.10, state 12.75, activations about ")
    assert "GiB; 16 GB: too large, 24 GB: too large, 80 GB: fits" in str(plan)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("name", "kind"), [("GPT-2 XL", "adamw"), ("LLaMA 7B", "adafactor"), ("DistilBERT", "sgd")])
def test_one_text_more_than_the_largest_batch_does_not_fit(name, kind, mixed):
    model, room = planner.build(name), 80 * planner.GIB
    batch = planner.largest_batch(model, kind, room, length=512, mixed=mixed)
    fits, more = (planner.plan(model, kind, batch=b, length=512, mixed=mixed).total for b in (batch, batch + 1))
    assert batch > 0 and fits <= room < more
    assert planner.largest_batch(model, kind, fits, length=512, mixed=mixed) == batch
    assert planner.largest_batch(model, kind, fits - 1, length=512, mixed=mixed) == batch - 1


def test_where_no_text_fits_the_largest_batch_is_none():
    model = planner.build("GPT-2")
    one = planner.plan(model, "adamw", batch=1, length=64, fused_attention=True)
    for room, batch in ((one.total, 1), (one.total - 1, 0), (one.weights, 0), (0, 0)):
        assert planner.largest_batch(model, "adamw", room, length=64, fused_attention=True) == batch


def test_texts_are_as_long_as_positions_reach():
    assert [planner.longest(planner.build(name)) for name in ("DistilBERT", "GPT-2", "T5 base")] == [512, 1024, inf]


@pytest.mark.parametrize(
    ("total", "word"),
    [
        (16 * 10**9, "fits"),
        (16 * 10**9 + 1, "fits if GB are GiB"),
        (16 * 2**30, "fits if GB are GiB"),
        (16 * 2**30 + 1, "too large"),
    ],
)
def test_a_card_of_16_gb_has_between_14_9_and_16_gib(total, word):
    assert planner.Plan(weights=total - 3, gradients=1, state=1, activations=1).cards()[16] == word


def test_a_plan_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="'AdamW'.*adamw8bit_torchao"):
        planner.plan(planner.build("GPT-2"), "AdamW", batch=1, length=128)
    with torch.device("meta"):
        model = transformers.AlbertForSequenceClassification(transformers.AlbertConfig())
    with pytest.raises(ValueError, match="'albert'.*bert, distilbert"):
        planner.plan(model, "adamw", batch=1, length=128)


# --- estimated activations


def test_a_layer_keeps_what_the_paper_says():
    # BERT base on 2 × 64 tokens: 12 layers, 12 heads, a width of 768. The paper has 34 s·b·h + 5 a·s·s·b bytes, in 16
    # bits and with two one-byte masks in the first term, one in the second. All else is twice that in 32 bits.
    model, tokens, h = planner.build("BERT base"), 2 * 64, 768
    in_32_bits = (2 * (34 - 2) + 2) * tokens * h + (2 * (5 - 1) + 1) * 12 * 64 * tokens
    assert planner.estimate_activations(model, 2, 64) == 12 * in_32_bits
    assert planner.estimate_activations(model, 2, 64, fused_attention=True) == 12 * 66 * tokens * h
    # Under autocast two norms and softmax keep 32 bits, and queries, keys and values each have a copy of their input.
    mixed = (34 + 2 * 2 + 2 * 2) * tokens * h + (5 + 2) * 12 * 64 * tokens
    matrices = 12 * (12 * h * h + 9 * h) + h * h + h + 2 * h + 2  # layers, pooler, classifier
    assert planner.estimate_activations(model, 2, 64, mixed=True) == 12 * mixed + 2 * matrices


SMALL = {
    "BertForSequenceClassification": transformers.BertConfig(
        vocab_size=64, hidden_size=128, num_hidden_layers=6, num_attention_heads=4, intermediate_size=512
    ),
    "DistilBertForSequenceClassification": DistilBertConfig(vocab_size=64, dim=128, n_heads=4, hidden_dim=512),
    "GPT2LMHeadModel": transformers.GPT2Config(vocab_size=64, n_embd=128, n_layer=6, n_head=4),
    "T5ForConditionalGeneration": transformers.T5Config(vocab_size=64, d_model=128, d_kv=32, num_heads=4, d_ff=512),
    "OPTForCausalLM": transformers.OPTConfig(
        vocab_size=64, hidden_size=128, word_embed_proj_dim=128, num_hidden_layers=6, num_attention_heads=4, ffn_dim=512
    ),
    "LlamaForCausalLM": transformers.LlamaConfig(
        vocab_size=64, hidden_size=128, num_hidden_layers=6, num_attention_heads=4, intermediate_size=344
    ),
}
DROPOUT = ["dropout", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop"]
DROPOUT += ["attn_pdrop", "dropout_rate"]


def without_dropout(name):
    config = deepcopy(SMALL[name])
    config.update({key: 0.0 for key in DROPOUT if hasattr(config, key)})
    model = getattr(transformers, name)(config)
    model.set_attn_implementation("eager")
    return model


def kept(model, tokens):
    if "Sequence" in type(model).__name__:
        inputs = {"labels": torch.zeros(len(tokens), dtype=torch.long)}
    else:
        inputs = {"labels": tokens}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    return planner.saved_bytes(model, lambda: model(input_ids=tokens, **inputs).loss)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("length", [32, 160])
def test_the_estimate_is_near_what_autograd_keeps(name, length):
    model, tokens = without_dropout(name), torch.zeros(2, length, dtype=torch.long)
    assert planner.estimate_activations(model, 2, length) == pytest.approx(kept(model, tokens), rel=0.03)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = kept(model, tokens)
    if "Bert" in name:
        # On a CPU autocast leaves its softmax in 16 bits, and what it gives meets the values: 2 bytes in place of 6.
        mixed += 4 * 6 * 4 * length * 2 * length
    assert planner.estimate_activations(model, 2, length, mixed=True) == pytest.approx(mixed, rel=0.06)


def test_every_model_can_be_planned_for():
    for name in planner.MODELS:
        model = planner.build(name)
        assert model.config.model_type in {config.model_type for config in SMALL.values()}
        one, two = (planner.plan(model, "sgd", batch=batch, length=64).activations for batch in (1, 2))
        assert two == 2 * one > 0
