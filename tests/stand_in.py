"""A small stand-in for MRPC and the pretrained DistilBERT from which the full tier's settings learn, in seconds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from course_lib.threads import one_thread

if TYPE_CHECKING:
    from hub_cache import Rows
    from transformers import DistilBertConfig, DistilBertForMaskedLM, DistilBertTokenizerFast

WHO = ("dog", "cat", "bird", "girl", "boy", "teacher", "farmer", "singer")
DOES = ("sleeps", "eats", "sings", "waits", "works", "reads")
WHERE = ("in the garden", "at home", "by the river", "in the street", "near the station")
SAME = 0.68  # MRPC's share of pairs that say the same
WIDTH = 64
# The real run has 690 steps, each of which moves 768 numbers for a class. This one has 120 steps and 64 numbers; with
# features so many times larger they go as far.
LOUDER = 20.0


def rows() -> Rows:
    """640 pairs to train on and 120 to validate: the second sentence turns the first around, or denies it.

    One label in twelve of the second split is wrong, so that no score is perfect.
    """
    draw = random.Random(0)
    made = {"train": [_pair(draw) for _ in range(640)], "validation": [_pair(draw) for _ in range(120)]}
    made["validation"] = [
        (first, second, label if (i + 1) % 12 else 1 - label)
        for i, (first, second, label) in enumerate(made["validation"])
    ]
    return made


def _pair(draw: random.Random) -> tuple[str, str, int]:
    who, does, where = draw.choice(WHO), draw.choice(DOES), draw.choice(WHERE)
    same = draw.random() < SAME
    return f"The {who} {does} {where}.", f"{where.capitalize()} the {who} {'' if same else 'never '}{does}.", int(same)


def config(vocabulary: int) -> DistilBertConfig:
    """One layer of width 64, and a head for two classes."""
    from transformers import DistilBertConfig

    return DistilBertConfig(vocab_size=vocabulary, dim=WIDTH, hidden_dim=2 * WIDTH, n_layers=1, n_heads=2)


@one_thread()
def model(tokenizer: DistilBertTokenizerFast, rows: Rows) -> DistilBertForMaskedLM:
    """A DistilBERT of one layer whose encoder has learned to tell the pairs apart. Its head is not passed on."""
    from transformers import DistilBertForMaskedLM, DistilBertForSequenceClassification

    sizes = config(len(tokenizer))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learner, kept = DistilBertForSequenceClassification(sizes).train(), DistilBertForMaskedLM(sizes)
        optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-3)
        for _ in range(200):
            chosen = [rows["train"][i] for i in torch.randint(len(rows["train"]), (32,)).tolist()]
            first, second, labels = zip(*chosen, strict=True)
            batch = tokenizer(list(first), list(second), padding=True, return_tensors="pt")
            optimizer.zero_grad()
            learner(**batch, labels=torch.tensor(labels)).loss.backward()
            optimizer.step()
    kept.distilbert.load_state_dict(learner.distilbert.state_dict())
    last = kept.distilbert.transformer.layer[-1].output_layer_norm
    with torch.no_grad():
        for parameter in last.parameters():
            parameter *= LOUDER
    return kept
