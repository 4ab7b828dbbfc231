"""How large an optimizer's state is: measured after a step, or predicted from shapes.

Megabytes here name their unit: MiB is 2**20 bytes, MB is 10**6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from course_lib._layouts import EMBEDDINGS_IN_32BIT, LAYOUTS
from course_lib._sizes import KeySize, StateSize
from course_lib._state_walk import leaves, states_of
from course_lib._storages import Storages
from course_lib._tensor_parts import Packed, is_metadata, type_name


def state_size(thing: Any) -> StateSize:
    """Count an optimizer's state, as it is now.

    - Moments are all tensors but those that follow. Scalars are the entries named ``step`` and ``RMS``, other 0-dim
      tensors, and Python numbers. In the state of a 0-dim parameter, where moments are 0-dim too, only the names
      decide. Metadata are the entries whose names begin with ``qmap``, ``map``, ``absmax``, ``scale`` or
      ``zero_point``.
    - A Python number is one element and no bytes. ``True``, ``False``, ``None`` and text are not counted.
    - Storage that several entries share counts once, elements and bytes, under the name that comes first. An entry
      that shows only part of a storage counts the elements it shows, and all the bytes that it keeps alive.
    - Dicts, lists, tuples and data classes inside a state are looked into; a dict's entries are named like
      ``outer.inner``. So are other objects, for tensors: the numbers in them are taken for settings. What is there
      twice, as an optimizer beside its schedule, counts once.
    - Only the state counts, not what is set in ``param_groups``, as a rate in a tensor, nor an optimizer's attributes.
    - A quantized tensor (torchao) counts as many moments as the numbers it stands for, and the bytes of its codes; its
      scales and its map are metadata, named like ``exp_avg.scale``. What it says of its own size is not asked.
    - Of a tensor that several processes share (``DTensor``), the part that this process holds counts, elements and
      bytes. The sum over the processes is the whole, with what each of them keeps a copy of counted for each.
    - A tensor on the ``meta`` device counts the bytes that it would take; ``by_device`` tells them from real ones.

    Args:
        thing: an optimizer, plain or wrapped (by Accelerate, in a Trainer); its ``state_dict()``, its ``state``, its
            ``state.values()``; one parameter's state, or a list of those; a list or dict of optimizers. Of a
            checkpoint, where an optimizer's ``state_dict()`` is in a dict beside other things, that alone counts.

    Returns:
        The size; all zeros where there is no state yet, as before an optimizer's first step.

    Raises:
        ValueError: ``thing`` is None, as ``trainer.optimizer`` is before ``trainer.train()``.
        TypeError: ``thing`` is none of the above, or holds what has a memory that cannot be counted, such as an array.
    """
    counts = {"moments": 0, "scalars": 0, "metadata": 0}
    by_key: dict[str, KeySize] = {}
    storages, met = Storages(), {}
    for state in states_of(thing):
        entries = list(leaves(state, met=met))
        zero_dim = all(leaf.ndim == 0 for _, leaf in entries if isinstance(leaf, Tensor))
        for key, leaf in entries:
            size = _count(leaf, storages)
            counts[_role(key, leaf, zero_dim)] += size.elements
            before = by_key.get(key, KeySize(0, 0))
            by_key[key] = KeySize(before.elements + size.elements, before.bytes + size.bytes)
    return StateSize(
        **counts, bytes=sum(size.bytes for size in by_key.values()), by_key=by_key, by_device=storages.by_device
    )


def compute_optimizer_size(states: Iterable[Mapping[str, Any]]) -> tuple[float, int]:
    """Size of an optimizer's state, given as ``optimizer.state.values()`` or anything that ``state_size`` takes.

    Returns:
        ``(total_size_megabytes, total_num_elements)``. As in the material this function is known from, a megabyte is
        1024**2 bytes (MiB), and a Python number, such as the step in ``transformers``' Adafactor, is an element.
    """
    size = state_size(states)
    return size.mib, size.elements


def predict_state_size(model: nn.Module, kind: str, embeddings_in_32bit: bool = False) -> StateSize:
    """The size that ``state_size`` will measure after a step in which every trainable parameter has a gradient.

    The optimizer is the one that is given the parameters with ``requires_grad=True`` and its default arguments (and
    a momentum, for ``sgd_momentum``). Tied parameters count once. (torch's Adagrad makes its state on construction, so
    it keeps state for frozen parameters too if it is handed any; the others do not.)

    Args:
        model: a module, on any device; on ``meta`` it takes no memory. Nothing else is installed for it.
        kind: ``sgd``, ``sgd_momentum``, ``adagrad``, ``rmsprop``, ``adamw``, ``adafactor`` (the course's own),
            ``adafactor_transformers``, ``adafactor_torch``; ``adamw8bit_bitsandbytes``, ``lion8bit_bitsandbytes``,
            ``lion_bitsandbytes`` (in 32 bits); ``adamw8bit_torchao`` or ``adamw4bit_torchao``.
        embeddings_in_32bit: what transformers' Trainer asks of bitsandbytes' 8-bit optimizers: to keep the state of
            every ``torch.nn.Embedding`` in 32 bits.

    Raises:
        ValueError: an unknown kind, or ``embeddings_in_32bit`` for one that has no such rule.
        TypeError: ``model`` has no parameters to ask for.
    """
    if kind not in LAYOUTS:
        raise ValueError(f"Unknown kind of optimizer: {kind!r}. Known kinds: {', '.join(LAYOUTS)}.")
    if embeddings_in_32bit and kind not in EMBEDDINGS_IN_32BIT:
        raise ValueError(
            f"embeddings_in_32bit=True means nothing for {kind!r}: Trainer has this rule for "
            f"{' and '.join(EMBEDDINGS_IN_32BIT)} alone. Leave it out, or choose one of these."
        )
    if not callable(getattr(model, "parameters", None)):
        raise TypeError(
            f"predict_state_size needs a model, such as a torch.nn.Module; it was given {type_name(model)}."
        )
    apart = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)} if embeddings_in_32bit else set()
    # parameters() yields a tied parameter once.
    trained = [p for p in model.parameters() if p.requires_grad]
    return state_size([(EMBEDDINGS_IN_32BIT if id(p) in apart else LAYOUTS)[kind](p) for p in trained])


def _count(leaf: Any, storages: Storages) -> KeySize:
    if isinstance(leaf, Packed):
        return KeySize(*storages.count_packed(leaf.numel, leaf.stored))
    return KeySize(*storages.count(leaf)) if isinstance(leaf, Tensor) else KeySize(1, 0)


def _role(key: str, leaf: Any, zero_dim: bool) -> str:
    if is_metadata(key):
        return "metadata"
    if isinstance(leaf, Packed):
        return "moments"
    name = key.rpartition(".")[2]
    if name in ("step", "RMS") or not isinstance(leaf, Tensor) or (leaf.ndim == 0 and not zero_dim):
        return "scalars"
    return "moments"
