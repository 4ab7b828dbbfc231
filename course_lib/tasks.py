"""Data and model of a tier behind one interface, so that lesson code is the same on both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib import tier as tiers

if TYPE_CHECKING:
    import torch
    from datasets import Dataset
    from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerFast


class TaskUnavailable(RuntimeError):  # noqa: N818
    """The full tier's files could not be fetched or read. The message says why, and what to do."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it: this line alone, since the way there through the library helps no learner."""
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True, repr=False)
class Task:
    """A text classification task, as ``Trainer`` takes it, or a ``DataLoader`` with ``collate_fn=task.collator``.

    Attributes:
        name, description: what it is, in a word and in a sentence.
        labels: the name of each class, by id.
        train, validation: tokenized rows: ``input_ids``, ``attention_mask`` and ``labels``, nothing else.
        raw_train, raw_validation: the same rows in the same order: their text, and ``label``.
        tokenizer, collator: the tokenizer, and what pads a list of rows to a batch of tensors.
        average: the ``average`` that scikit-learn's ``f1_score`` needs: "binary" with two classes, "macro" with more.
        majority: id of the most frequent class in ``train``.
        epochs, batch_size, learning_rate: settings that do, with AdamW and with what Trainer calls "adafactor".
        build: makes a model from torch's random numbers; use :meth:`model`.
    """

    name: str
    description: str
    labels: list[str]
    train: Dataset
    validation: Dataset
    raw_train: Dataset
    raw_validation: Dataset
    tokenizer: PreTrainedTokenizerFast
    collator: DataCollatorWithPadding
    average: str
    majority: int
    epochs: int
    batch_size: int
    learning_rate: float
    build: Callable[[], PreTrainedModel]

    def __repr__(self) -> str:
        return (
            f"Task {self.name}: {self.description} {len(self.train):,} rows to train on, "
            f"{len(self.validation):,} to validate; {len(self.labels)} classes: {', '.join(self.labels)}."
        )

    def model(self, seed: int = 0) -> PreTrainedModel:
        """A fresh model on the CPU, in training mode. The seed alone decides its weights."""
        with _seeded(seed):
            return self.build()


def load(tier: tiers.Tier | str | None = None) -> Task:
    """The task of a tier, or of the tier that :func:`course_lib.tier.current` finds.

    Args:
        tier: a ``Tier`` or its name, "small" or "full".

    Raises:
        TaskUnavailable: the full tier's files could not be fetched or read.
        ValueError: there is no such tier.
    """
    here = tiers.current(quiet=True)  # sets offline mode, so it comes before any import of Hugging Face
    name = here.name if tier is None else getattr(tier, "name", tier)
    if name == "small":
        from course_lib import _task_names

        return _task_names.load()
    if name == "full":
        from course_lib import _task_mrpc

        return _task_mrpc.load()
    raise ValueError(f"There is no tier {name!r}. Give 'small' or 'full', or nothing for the one this machine gets.")


def distilbert(num_labels: int = 2, device: str | torch.device = "cpu", seed: int = 0) -> PreTrainedModel:
    """A full-size DistilBERT-base-cased classifier with random weights: 65,783,042 parameters with two labels.

    Nothing is downloaded. The seed alone decides the weights. On the ``meta`` device it takes neither memory nor time.

    Source: config.json of ``distilbert/distilbert-base-cased``, which is ``DistilBertConfig`` but for the vocabulary.
    """
    import torch

    tiers.current(quiet=True)
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(vocab_size=28996, num_labels=num_labels)
    on_meta = torch.device(device).type == "meta"
    with _seeded(seed), torch.device("meta" if on_meta else "cpu"):  # drawn on the CPU: the same for every device
        model = DistilBertForSequenceClassification(config)
    return model if on_meta else model.to(device)


def assemble(
    raw_train: Dataset, raw_validation: Dataset, tokenizer: PreTrainedTokenizerFast, columns: list[str], **rest: Any
) -> Task:
    """A task from its raw rows: tokenizes the text in ``columns`` and counts the classes of ``label``."""
    from datasets import Dataset
    from transformers import DataCollatorWithPadding

    train, validation = (
        Dataset.from_dict(
            {**tokenizer(*(list(raw[column]) for column in columns), truncation=True), "labels": list(raw["label"])}
        )
        for raw in (raw_train, raw_validation)
    )
    return Task(
        labels=raw_train.features["label"].names,
        train=train,
        validation=validation,
        raw_train=raw_train,
        raw_validation=raw_validation,
        tokenizer=tokenizer,
        collator=DataCollatorWithPadding(tokenizer),
        majority=Counter(raw_train["label"]).most_common(1)[0][0],
        **rest,
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch's generator for the CPU, and put it back as it was afterwards."""
    import torch

    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
