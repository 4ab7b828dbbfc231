"""What it takes to train a model: bytes of weights, gradients, optimizer state and activations, from shapes alone.

Models are built on the ``meta`` device: they have shapes and no memory, so that the largest takes a fraction of a
second. Nothing is downloaded. All sizes are for 32-bit training, as ``torch`` does it unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib import memory, tier

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# For each name the classes of model and configuration in transformers, and what differs from the configuration's
# defaults. Source: the config.json that each was published with. Sequence classifiers have two labels.
MODELS: dict[str, tuple[str, str, dict[str, int]]] = {
    "DistilBERT": ("DistilBertForSequenceClassification", "DistilBertConfig", {"vocab_size": 28996}),
    "BERT base": ("BertForSequenceClassification", "BertConfig", {}),
    "BERT large": (
        "BertForSequenceClassification",
        "BertConfig",
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    ),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {}),
    "GPT-2 medium": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1024, "n_layer": 24, "n_head": 16}),
    "GPT-2 large": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1280, "n_layer": 36, "n_head": 20}),
    "GPT-2 XL": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}),
    "T5 base": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    ),
    "T5 3B": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"d_model": 1024, "d_kv": 128, "d_ff": 16384, "num_layers": 24, "num_heads": 32},
    ),
    "OPT 6.7B": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "hidden_size": 4096,
            "word_embed_proj_dim": 4096,
            "ffn_dim": 16384,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
        },
    ),
    "LLaMA 7B": ("LlamaForCausalLM", "LlamaConfig", {}),
}
OPTIMIZERS = {"AdamW": "adamw", "8-bit Adam": None, "Adafactor": "adafactor", "SGD": "sgd"}
CARDS = (16, 24, 80)  # GiB


def build(name: str) -> PreTrainedModel:
    """One of ``MODELS``, on the ``meta`` device.

    Raises:
        ValueError: an unknown name.
    """
    if name not in MODELS:
        raise ValueError(f"There is no model {name!r} here. Known: {', '.join(MODELS)}.")
    tier.current(quiet=True)  # sets offline mode, so it comes before any import of Hugging Face
    import transformers

    model, config, changes = MODELS[name]
    with torch.device("meta"):
        return getattr(transformers, model)(getattr(transformers, config)(**changes))


def state_bytes(model: torch.nn.Module, optimizer: str) -> int:
    """Bytes of the optimizer's state, for one of ``OPTIMIZERS``.

    8-bit Adam is taken as two 8-bit numbers for each parameter and a 32-bit scale for each 256 of them (Dettmers et
    al. 2022, arXiv 2110.02861). Libraries keep small tensors in 32 bits, which changes the sum by less than 1 %.

    Raises:
        ValueError: an unknown optimizer.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"There is no optimizer {optimizer!r} here. Known: {', '.join(OPTIMIZERS)}.")
    kind = OPTIMIZERS[optimizer]
    if kind is not None:
        return memory.predict_state_size(model, kind).bytes
    return sum(2 * (p.numel() + 4 * ceil(p.numel() / 256)) for p in model.parameters() if p.requires_grad)


def verdict(total: float, cards: Sequence[float] = CARDS) -> str:
    """The first of ``cards`` that takes ``total``, and what it leaves for activations, in words; all in GiB."""
    for card in cards:
        if total < card:
            return f"fits on {card} GiB and leaves {card - total:.1f} GiB"
    return f"too large for {cards[-1]} GiB"


def elements_per_parameter(shape: Sequence[int], kind: str) -> float:
    """How many numbers an optimizer keeps for each parameter of one tensor, leaving out single ones such as the step.

    Args:
        shape: of the tensor.
        kind: as for :func:`course_lib.memory.predict_state_size`.
    """
    weight = torch.nn.Parameter(torch.empty(*shape, device="meta"))
    return memory.predict_state_size(torch.nn.ParameterList([weight]), kind).moments / weight.numel()


def parts(model: torch.nn.Module, optimizer: str) -> dict[str, int]:
    """Bytes of weights, gradients and state, by name. Frozen weights count among the weights only.

    Raises:
        ValueError: an unknown optimizer.
    """
    weights = {p: p.numel() * p.element_size() for p in model.parameters()}
    gradients = sum(size for p, size in weights.items() if p.requires_grad)
    return {"weights": sum(weights.values()), "gradients": gradients, "state": state_bytes(model, optimizer)}


def saved_bytes(model: torch.nn.Module, forward: Callable[[], Tensor]) -> int:
    """Bytes that autograd keeps for the backward pass after ``forward()``, beside the model's own tensors.

    What several operations keep in common counts once. On the ``meta`` device a DistilBERT in training mode keeps what
    it keeps on a CPU, and takes no memory; without dropout a CPU has a leaner attention.

    Args:
        model: whose weights are not counted.
        forward: computes the loss.
    """
    kept: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        forward()
    storages = {id(storage): storage for storage in (tensor.untyped_storage() for tensor in kept)}
    for tensor in (*model.parameters(), *model.buffers()):
        storages.pop(id(tensor.untyped_storage()), None)
    return sum(storage.nbytes() for storage in storages.values())
