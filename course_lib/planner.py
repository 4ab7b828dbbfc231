"""What it takes to train a model: bytes of weights, gradients, optimizer state and activations, from shapes alone.

Models are built on the ``meta`` device: they have shapes and no memory, so that the largest takes a fraction of a
second. Nothing is downloaded. Weights, gradients and state are those of 32-bit training, as ``torch`` does it unless
told otherwise; mixed precision leaves them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING

import torch

from course_lib import memory, tier
from course_lib._activations import estimate_activations
from course_lib._activations import saved_bytes as saved_bytes  # part of this module's names

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
OPTIMIZERS = {"AdamW": "adamw", "8-bit Adam": "adamw8bit_bitsandbytes", "Adafactor": "adafactor", "SGD": "sgd"}
CARDS = (16, 24, 80)  # sold as so many "GB"; here GiB, unless said otherwise
GIB = 2**30


@dataclass(frozen=True)
class Plan:
    """What training a model takes, in bytes. Activations are an estimate; all else is exact."""

    weights: int
    gradients: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        """The sum: what is in use after the forward pass, if the last step's gradients still wait to be cleared."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """The four parts by name."""
        return asdict(self)

    def cards(self, sizes: Sequence[int] = CARDS) -> dict[int, str]:
        """For each card, sold with so many "GB", whether the total fits: GB are 10⁹ bytes, GiB 2³⁰."""
        return {size: self._on_card(size) for size in sizes}

    def _on_card(self, size: int) -> str:
        if self.total <= size * 10**9:
            return "fits"
        return "fits if GB are GiB" if self.total <= size * GIB else "too large"

    def __str__(self) -> str:
        sizes = (f"{name} {size / GIB:.2f}" for name, size in self.parts.items() if name != "activations")
        cards = ", ".join(f"{size} GB: {word}" for size, word in self.cards().items())
        about = f"activations about {self.activations / GIB:.1f}, total about {self.total / GIB:.1f} GiB"
        return f"{', '.join(sizes)}, {about}; {cards}"


def plan(
    model: PreTrainedModel,
    kind: str,
    *,
    batch: int,
    length: int,
    mixed: bool = False,
    fused_attention: bool = False,
) -> Plan:
    """What it takes to train ``model``, one that :func:`build` returns, on ``batch`` texts of ``length`` tokens.

    Args:
        kind: of the optimizer, as for :func:`course_lib.memory.predict_state_size`.
        mixed: computing in 16 bits under ``torch.autocast``, as ``bf16=True`` has it.
        fused_attention: attention that keeps no attention weights, as FlashAttention on a GPU.

    Raises:
        ValueError: an unknown kind; a model of a family for which there is no estimate.
    """
    state = memory.predict_state_size(model, kind).bytes
    activations = estimate_activations(model, batch, length, mixed, fused_attention)
    return Plan(**_weights(model), state=state, activations=activations)


def largest_batch(
    model: PreTrainedModel,
    kind: str,
    room: float,
    *,
    length: int,
    mixed: bool = False,
    fused_attention: bool = False,
) -> int:
    """How many texts of ``length`` tokens a batch may have, if training is to take at most ``room`` bytes.

    0 where not even one fits. The other arguments are those of :func:`plan`, as are the errors.
    """
    one, two = (
        plan(model, kind, batch=batch, length=length, mixed=mixed, fused_attention=fused_attention).total
        for batch in (1, 2)
    )
    each = two - one  # activations grow in proportion to the batch, and nothing else does
    return max(0, int((room - one) // each) + 1)


def longest(model: PreTrainedModel) -> float:
    """How many tokens a text may have for ``model``; infinite where positions are relative, as in T5."""
    return getattr(model.config, "max_position_embeddings", None) or inf


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

    8-bit Adam is that of bitsandbytes, which keeps small tensors in 32 bits.

    Raises:
        ValueError: an unknown optimizer.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"There is no optimizer {optimizer!r} here. Known: {', '.join(OPTIMIZERS)}.")
    return memory.predict_state_size(model, OPTIMIZERS[optimizer]).bytes


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
    return {**_weights(model), "state": state_bytes(model, optimizer)}


def _weights(model: torch.nn.Module) -> dict[str, int]:
    weights = {p: p.numel() * p.element_size() for p in model.parameters()}
    gradients = sum(size for p, size in weights.items() if p.requires_grad)
    return {"weights": sum(weights.values()), "gradients": gradients}
