"""The full tier's task: MRPC, do two sentences say the same? With the pretrained DistilBERT.

Sources: Dolan & Brockett 2005 for the sentences; GLUE (Wang et al. 2019, arXiv 1804.07461) for the split; Sanh et al.
2019 (arXiv 1910.01108) for the model. Epochs, batch size and rate are usual ones for fine-tuning, not tuned here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from course_lib import _hub
from course_lib.tasks import Task, TaskUnavailable, assemble

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel

SENTENCES = ["sentence1", "sentence2"]
LABELS = ["not_equivalent", "equivalent"]


def load() -> Task:
    """Fetch or find the files, and put the task together.

    Raises:
        TaskUnavailable: a file could not be fetched or read.
    """
    from safetensors import safe_open
    from transformers import AutoTokenizer

    cached = _hub.cached()
    if not cached:
        print(f"Fetching {_hub.MODEL.name} and {_hub.DATASET.name} from the Hugging Face hub: {_hub.SIZE}, once.")
    try:
        checkpoint, data = (_hub.fetch(repository, local_only=cached) for repository in (_hub.MODEL, _hub.DATASET))
        raw_train, raw_validation = (_read(data / file) for file in _hub.DATASET.files)
        tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        with safe_open(checkpoint / "model.safetensors", framework="pt"):  # refuses a file that was cut short
            pass
        return assemble(
            raw_train,
            raw_validation,
            tokenizer,
            SENTENCES,
            name="MRPC",
            description="Pairs of sentences from the news: do both say the same?",
            average="binary",
            epochs=3,
            batch_size=16,
            learning_rate=5e-5,
            build=lambda: build_model(checkpoint),
        )
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise TaskUnavailable(
            f"The full tier's files could not be {'read' if cached else 'fetched'} ({reason}). {_way_on(cached)}, or "
            "set COURSE_TIER=small and restart the kernel: the small tier needs no files."
        ) from None


def build_model(checkpoint: Path) -> PreTrainedModel:
    """The pretrained DistilBERT with a new classification head, in fp32."""
    import torch
    from transformers import DistilBertForSequenceClassification
    from transformers.utils import logging

    with _hub.only_errors(logging):  # not that the head is new, and that the checkpoint's own is left out
        model = DistilBertForSequenceClassification.from_pretrained(
            checkpoint,
            dtype=torch.float32,
            id2label=dict(enumerate(LABELS)),
            label2id={label: i for i, label in enumerate(LABELS)},
        )
    return model.train()


def _read(file: Path) -> Dataset:
    from datasets import ClassLabel, Dataset, Features, Value
    from pyarrow import parquet

    features = Features({**{name: Value("string") for name in SENTENCES}, "label": ClassLabel(names=LABELS)})
    return Dataset.from_dict(parquet.read_table(file, columns=list(features)).to_pydict(), features)


def _way_on(cached: bool) -> str:
    if not cached:
        return "Check the connection and run this again, which goes on with the download"
    folders = " and ".join(f"{r.kind}s--{r.name.replace('/', '--')}" for r in (_hub.MODEL, _hub.DATASET))
    return f"Delete {folders} from the Hugging Face cache and restart the kernel with a connection, to fetch them anew"
