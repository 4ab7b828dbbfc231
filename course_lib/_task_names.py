"""The small tier's task: to tell the language of a name. Needs no network and writes no file.

The names come from the Unicode CLDR (cldr.unicode.org, Unicode License v3) through ``babel``.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from course_lib.tasks import Task, assemble

if TYPE_CHECKING:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

LANGUAGES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian", "pt": "Portuguese"}
LABELS = list(LANGUAGES.values())
VALIDATION_SHARE = 0.1
VOCABULARY_SIZE = 1500
MAX_LENGTH = 64
SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def load() -> Task:
    """Split the names, train the tokenizer on the training split, and put the task together."""
    from datasets import ClassLabel, Dataset, Features, Value

    rows = names()
    random.Random(0).shuffle(rows)
    cut = round(len(rows) * VALIDATION_SHARE)
    features = Features({"text": Value("string"), "label": ClassLabel(names=LABELS)})
    raw_train, raw_validation = (
        Dataset.from_dict({"text": [text for text, _ in part], "label": [label for _, label in part]}, features)
        for part in (rows[cut:], rows[:cut])
    )
    tokenizer = train_tokenizer(list(raw_train["text"]))
    return assemble(
        raw_train,
        raw_validation,
        tokenizer,
        ["text"],
        name="names",
        description="Names of countries, languages, currencies, cities and months: which language is it?",
        average="macro",
        epochs=4,
        batch_size=32,
        learning_rate=1e-3,
        build=lambda: build_model(len(tokenizer)),
    )


def names() -> list[tuple[str, int]]:
    """Pairs of a name and the id of its language, sorted. Names spelled alike in two languages are left out."""
    from babel import Locale

    spellings: dict[str, dict[int, str]] = {}
    for label, code in enumerate(LANGUAGES):
        locale = Locale(code)
        found = [*locale.territories.values(), *locale.languages.values(), *locale.currencies.values()]
        found += [zone["city"] for zone in locale.time_zones.values() if "city" in zone]
        found += [month for context in locale.months.values() for month in context["wide"].values()]
        for name in found:
            name = " ".join(name.replace("\N{SOFT HYPHEN}", "").split())  # only German has soft hyphens in its names
            spellings.setdefault(name.casefold(), {}).setdefault(label, name)
    return sorted((name, label) for own in spellings.values() if len(own) == 1 for label, name in own.items())


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer made from these texts. Equal texts give an equal vocabulary, with equal ids."""
    from tokenizers import models, processors, trainers
    from transformers import PreTrainedTokenizerFast

    # The trainer would give ids to the letters inside words in the order of a hash map with a random seed, and equally
    # frequent pairs are merged by id. Letters that it is given beforehand keep their order.
    letters = sorted(set("".join(texts)) - {" "})
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)],
        show_progress=False,
    )
    learner = _word_piece(models.WordPiece(unk_token="[UNK]"))
    learner.train_from_iterator(texts, trainer)
    # A second tokenizer with the same vocabulary, since to the first one each letter is a special token now.
    backend = _word_piece(models.WordPiece(learner.get_vocab(), unk_token="[UNK]"))
    backend.post_processor = processors.BertProcessing(
        *((token, backend.token_to_id(token)) for token in ("[SEP]", "[CLS]"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def _word_piece(model: models.WordPiece) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def build_model(vocabulary_size: int) -> PreTrainedModel:
    """A DistilBERT of two layers and width 128, with random weights."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=vocabulary_size,
        max_position_embeddings=MAX_LENGTH,
        dim=128,
        n_layers=2,
        n_heads=4,
        hidden_dim=512,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    return DistilBertForSequenceClassification(config)
