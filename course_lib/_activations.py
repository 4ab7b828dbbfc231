"""What a transformer keeps for the backward pass: as autograd tells, or estimated from the configuration by formula.

The formula is that of Korthikanti et al. 2022 (arXiv 2205.05198), section 4.1: in 16 bits, a layer keeps
s·b·h·(34 + 5·a·s/h) bytes for b texts of s tokens, a width of h, and a heads. Taken apart, these are 16 numbers and 2
dropout masks for each of the s·b·h entries, and 2 numbers and a mask for each of the a·s·s·b attention weights. So it
can be put together again for 32 bits, for models without dropout, and for other feed-forward parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel


@dataclass(frozen=True)
class _Family:
    """What a kind of model has of its own. Names are those in its configuration.

    Attributes:
        inner: name of the width of its feed-forward part.
        kept: how many tensors of that width the part keeps: for ReLU its output, for GELU also its input, for a gated
            SiLU both inputs and the gate too. transformers writes GPT-2's GELU as five operations.
        dropout, attention_dropout: names of the probabilities; of the former none where there is no such dropout.
        products: how many matrix products take the same input, in attention and in the feed-forward part.
        norm: how many tensors a norm keeps; RMSNorm, written as two operations, two.
    """

    inner: str
    kept: int
    dropout: str | None
    attention_dropout: str
    products: tuple[int, int] = (3, 1)
    norm: int = 1


_FAMILIES = {
    "bert": _Family("intermediate_size", 2, "hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": _Family("hidden_dim", 2, "dropout", "attention_dropout"),
    "gpt2": _Family("n_inner", 5, "resid_pdrop", "attn_pdrop", products=(1, 1)),
    "llama": _Family("intermediate_size", 4, None, "attention_dropout", products=(3, 2), norm=2),
    "opt": _Family("ffn_dim", 1, "dropout", "attention_dropout"),
    "t5": _Family("d_ff", 1, "dropout_rate", "dropout_rate", norm=2),
}


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


def estimate_activations(
    model: PreTrainedModel, batch: int, length: int, mixed: bool = False, fused_attention: bool = False
) -> int:
    """Bytes that the forward pass keeps beside the weights, estimated by formula, for weights in 32 bits.

    Without dropout it is within 3 % of what autograd keeps for the known models in 32 bits, and within 6 % under
    autocast. Two things are taken as on a GPU: a dropout mask has one byte for each entry, where PyTorch keeps four on
    a CPU; and under autocast softmax computes in 32 bits, which on a CPU is left to the model.

    Args:
        model: one that :func:`course_lib.planner.build` returns.
        batch, length: texts in a batch, and tokens in each; an encoder-decoder reads as many as it writes.
        mixed: under ``torch.autocast`` with a 16-bit dtype. What matrix products take has 16 bits then, and each
            product makes a copy of its own; norms and softmax work in 32 bits. The 16-bit copies of the matrices,
            which are kept as well, are in the sum.
        fused_attention: as FlashAttention does it (Dao et al. 2022, arXiv 2205.14135), which keeps no attention
            weights. PyTorch chooses it on a GPU where it can.

    Raises:
        ValueError: a family that is not known here.
    """
    config = model.config
    if config.model_type not in _FAMILIES:
        raise ValueError(f"No estimate for a model of type {config.model_type!r}. Known: {', '.join(_FAMILIES)}.")
    family, width = _FAMILIES[config.model_type], 2 if mixed else 4
    h = config.hidden_size
    attention = _attention(config, family, length, mixed, fused_attention)
    feed_forward = _feed_forward(config, family, mixed)
    norm = 4 * h * family.norm
    per_token = config.num_hidden_layers * (attention + feed_forward + 2 * norm)
    if config.is_encoder_decoder:  # whose layers also attend to the encoder
        per_token += config.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    if _writes_tokens(model):  # from the last norm, through the output layer, to logarithms of probabilities
        per_token += norm + width * h + 4 * config.vocab_size
    return batch * length * per_token + (_copies(model) if mixed else 0)


def _attention(config: PretrainedConfig, family: _Family, length: int, mixed: bool, fused: bool) -> int:
    """Bytes for each token: the input, then queries, keys, values and what they give; a mask; the attention weights."""
    h, heads, width = config.hidden_size, config.num_attention_heads, 2 if mixed else 4
    inner = heads * getattr(config, "d_kv", h // heads)
    inputs = family.products[0] if mixed else 1
    kept = width * (inputs * h + 4 * inner) + _drops(config, family.dropout) * h
    if fused:
        return kept
    dropout = _drops(config, family.attention_dropout)
    # Those that softmax gives, those that meet the values if they are others, and a mask.
    return kept + heads * length * (4 + (width if mixed or dropout else 0) + dropout)


def _feed_forward(config: PretrainedConfig, family: _Family, mixed: bool) -> int:
    """Bytes for each token: the input, and tensors of the inner width; a mask."""
    h, width = config.hidden_size, 2 if mixed else 4
    inner, inputs = getattr(config, family.inner) or 4 * h, family.products[1] if mixed else 1
    dropout = _drops(config, family.dropout)
    kept = width * (inputs * h + family.kept * inner) + dropout * h
    # T5 has a second dropout, behind its ReLU.
    return kept + (dropout * (width + 1) * inner if config.model_type == "t5" else 0)


def _drops(config: PretrainedConfig, name: str | None) -> int:
    return int(name is not None and getattr(config, name) > 0)


def _writes_tokens(model: PreTrainedModel) -> bool:
    return model.get_output_embeddings() is not None


def _copies(model: PreTrainedModel) -> int:
    from transformers.pytorch_utils import Conv1D

    layers = (module for module in model.modules() if isinstance(module, (nn.Linear, Conv1D)))
    return 2 * sum(p.numel() for p in {p for layer in layers for p in layer.parameters()})
