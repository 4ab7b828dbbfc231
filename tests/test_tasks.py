"""The tasks of both tiers: what is in them, that they train, and that nothing is left behind or half done."""

from __future__ import annotations

import math
import shutil
from collections import Counter

import hub_cache
import pytest
import torch

from course_lib import _task_names, tasks
from course_lib.threads import one_thread


@pytest.fixture(scope="module")
def small():
    return tasks.load("small")


def test_sizes_and_baseline(small):
    assert 3_800 < len(small.train) < 4_800
    assert 0.09 < len(small.validation) / (len(small.train) + len(small.validation)) < 0.11
    counts = Counter(small.raw_train["label"])
    assert len(counts) == len(small.labels) == 6
    assert counts[small.majority] == max(counts.values())
    assert 0.18 < counts[small.majority] / len(small.train) < 0.26


def test_names_belong_to_one_language(small):
    """Against babel's own data, kind by kind."""
    from babel import Locale

    codes = {"English": "en", "German": "de", "French": "fr", "Spanish": "es", "Italian": "it", "Portuguese": "pt"}

    def known(code):
        locale = Locale(code)
        values = [*locale.territories.values(), *locale.languages.values(), *locale.currencies.values()]
        values += [zone.get("city", "") for zone in locale.time_zones.values()]
        values += [*locale.months["format"]["wide"].values(), *locale.months["stand-alone"]["wide"].values()]
        return {value.replace("\xad", "").casefold() for value in values}

    by_language = {label: known(code) for label, code in codes.items()}
    for rows in (small.raw_train, small.raw_validation):
        for text, label in zip(rows["text"], rows["label"], strict=True):
            assert [name for name in small.labels if text.casefold() in by_language[name]] == [small.labels[label]]


def test_names_that_everybody_knows(small):
    texts = [*small.raw_train["text"], *small.raw_validation["text"]]
    language = dict(zip(texts, [*small.raw_train["label"], *small.raw_validation["label"]], strict=True))
    known = {"Germany": "English", "Deutschland": "German", "Allemagne": "French", "Germania": "Italian"}
    known |= {"Alemania": "Spanish", "Alemanha": "Portuguese", "October": "English", "Lissabon": "German"}
    known |= {"Reykjavík": None, "Portugal": None, "Tokyo": None, "abril": None}
    assert {name: small.labels[language[name]] if name in language else None for name in known} == known
    folded = [text.casefold() for text in texts]
    assert len(set(folded)) == len(folded)
    assert "mai" not in folded, "German Mai and French mai are spelled alike but for the capital"


def test_validation_is_kept_out_of_the_tokenizer(monkeypatch):
    seen = []
    real = _task_names.train_tokenizer
    monkeypatch.setattr(_task_names, "train_tokenizer", lambda texts: seen.extend(texts) or real(texts))
    task = tasks.load("small")
    assert seen == list(task.raw_train["text"])


def test_tokenizer_cuts_as_wordpiece_does(small):
    """transformers' own DistilBERT tokenizer with the same vocabulary gives the same ids."""
    from transformers import DistilBertTokenizerFast

    vocabulary = small.tokenizer.get_vocab()
    assert 1_400 < len(vocabulary) <= 1_500 and sorted(vocabulary.values()) == list(range(len(vocabulary)))
    reference = DistilBertTokenizerFast(vocab=vocabulary, do_lower_case=False)
    for raw, rows in ((small.raw_train, small.train), (small.raw_validation, small.validation)):
        assert list(rows["input_ids"]) == reference(list(raw["text"]))["input_ids"]
    assert small.tokenizer.unk_token_id not in {i for ids in small.train["input_ids"] for i in ids}
    assert small.tokenizer.decode(small.train[0]["input_ids"], skip_special_tokens=True) == small.raw_train[0]["text"]


def test_rows_feed_a_data_loader_and_the_model(small):
    from torch.utils.data import DataLoader

    for rows, raw in ((small.train, small.raw_train), (small.validation, small.raw_validation)):
        assert set(rows.column_names) == {"input_ids", "attention_mask", "labels"}
        assert list(rows["labels"]) == list(raw["label"])
    batch = next(iter(DataLoader(small.train, batch_size=8, collate_fn=small.collator)))
    assert {key: value.dtype for key, value in batch.items()} == dict.fromkeys(batch, torch.int64)
    assert batch["labels"].tolist() == small.raw_train["label"][:8]
    output = small.model()(**batch)
    assert output.logits.shape == (8, 6)
    # With small random weights every class is about as likely as any other.
    assert output.loss.item() == pytest.approx(math.log(6), abs=0.15)


@one_thread()
def test_trainer_learns_it(small, tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        tmp_path,
        optim="adafactor",
        learning_rate=small.learning_rate,
        per_device_train_batch_size=small.batch_size,
        num_train_epochs=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(small.model(), arguments, train_dataset=small.train, data_collator=small.collator)
    assert arguments.device.type == "cpu"
    trainer.train()
    prediction = trainer.predict(small.validation)
    accuracy = (prediction.predictions.argmax(-1) == prediction.label_ids).mean()
    assert accuracy > 0.45, "the most frequent class would give about .22"


def test_model_depends_on_the_seed_alone(small):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = small.model(seed=0)
    assert torch.equal(torch.rand(3), expected), "the caller's random numbers are left as they were"
    again, other = small.model(seed=0), small.model(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.classifier.weight, other.classifier.weight)
    assert first.training and first.config.n_layers == 2 and first.config.dim == 128
    assert first.config.id2label == dict(enumerate(small.labels))
    assert {parameter.device.type for parameter in first.parameters()} == {"cpu"}


def test_average_fits_the_labels(small):
    from sklearn.metrics import f1_score

    constant = [small.majority] * len(small.raw_validation)
    share = Counter(small.raw_validation["label"])[small.majority] / len(constant)
    # One class of six is ever predicted: its F1 is 2 share / (1 + share), the others' is 0.
    expected = 2 * share / (1 + share) / 6
    assert f1_score(small.raw_validation["label"], constant, average=small.average) == pytest.approx(expected)


def test_loading_is_quiet_offline_repeatable_and_leaves_no_file(tmp_path):
    code = """
import hashlib, json, socket
def refuse(*_, **__):
    raise SystemExit("the network was asked for")
socket.socket.connect = socket.getaddrinfo = refuse
from course_lib import tasks, tier
tier.current()
task = tasks.load()
everything = [sorted(task.tokenizer.get_vocab().items()), list(task.train), list(task.raw_validation)]
everything += [parameter.tolist() for parameter in task.model(seed=5).parameters()]
print(hashlib.sha256(json.dumps(everything).encode()).hexdigest())
"""
    digests = set()
    for number in "12":
        home = tmp_path / number
        home.mkdir()
        places = dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "XDG_CACHE_HOME"), str(home))
        run = hub_cache.python(code, cwd=home, PYTHONHASHSEED=number, COURSE_TIER="small", **places)
        assert (run.returncode, run.stderr) == (0, "")
        line, digest = run.stdout.splitlines()
        assert line.startswith("Tier: small")
        digests.add(digest)
        assert list(home.iterdir()) == []
    assert len(digests) == 1


def test_distilbert_has_the_real_sizes():
    model = tasks.distilbert(device="meta")
    shapes = [parameter.shape for parameter in model.parameters()]
    assert model.num_parameters() == 65_783_042
    assert (len(shapes), sum(len(shape) == 2 for shape in shapes)) == (104, 40)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert tasks.distilbert(num_labels=6, device="meta").num_parameters() == 65_783_042 + 4 * 769


def test_distilbert_depends_on_the_seed_alone():
    first = tasks.distilbert(seed=3)
    torch.rand(1)
    second = tasks.distilbert(seed=3)
    weights = torch.cat([parameter.detach().flatten() for parameter in first.parameters()])
    assert torch.equal(weights, torch.cat([parameter.detach().flatten() for parameter in second.parameters()]))
    # Initialised as in the paper's code: normal with a standard deviation of .02, biases zero.
    assert first.classifier.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not first.classifier.bias.any() and first.training


def test_unknown_tier_is_refused():
    with pytest.raises(ValueError, match="'large'.*'small' or 'full'"):
        tasks.load("large")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return hub_cache.fill(tmp_path_factory.mktemp("cache"))


LOAD = """
from course_lib import tasks, tier
tier.current()
try:
    task = tasks.load()
    model = task.model()
except tasks.TaskUnavailable as error:
    print("UNAVAILABLE", error)
"""


def test_full_tier_from_the_cache_alone(cache, tmp_path):
    code = f"""{LOAD}
import hashlib, torch
print(tier.current(quiet=True).name, task.name, task.labels, task.average, task.majority)
print(task.raw_train[0], task.train.column_names, len(task.train), len(task.validation))
print(task.tokenizer.convert_ids_to_tokens(task.train[0]["input_ids"]))
batch = task.collator([task.train[0], task.train[1]])
print(list(model(**batch).logits.shape), model.training, model.dtype, model.config.id2label)
other, again = task.model(seed=1), task.model(seed=0)
same = lambda a, b, name: torch.equal(a.get_parameter(name), b.get_parameter(name))
print(same(model, again, "classifier.weight"), same(model, other, "classifier.weight"))
from safetensors.torch import load_file
from course_lib import _hub
saved = load_file(_hub.fetch(_hub.MODEL, local_only=True) / "model.safetensors")
name = "distilbert.embeddings.word_embeddings.weight"
print(torch.equal(model.get_parameter(name), saved[name]))
"""
    before = {path for path in cache.rglob("*")}
    run = hub_cache.python(code, cwd=tmp_path, HF_HOME=str(cache), **hub_cache.NO_HUB)
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
    assert run.stdout.splitlines() == [
        "Tier: full, on cpu (COURSE_TIER asks for it, and the hub's files are in the local cache).",
        "full MRPC ['not_equivalent', 'equivalent'] binary 1",
        "{'sentence1': 'A dog sleeps.', 'sentence2': 'A cat eats.', 'label': 0} "
        "['input_ids', 'attention_mask', 'labels'] 5 2",
        "['[CLS]', 'A', 'dog', 'sleeps', '.', '[SEP]', 'A', 'cat', 'eats', '.', '[SEP]']",
        "[2, 2] True torch.float32 {0: 'not_equivalent', 1: 'equivalent'}",
        "True False",
        "True",
    ]
    assert {path for path in cache.rglob("*")} == before and list(tmp_path.iterdir()) == []


def _unavailable(run):
    assert (run.returncode, run.stderr) == (0, "")
    line = run.stdout.splitlines()[-1]
    assert line.startswith("UNAVAILABLE The full tier's files could not be") and "COURSE_TIER=small" in line
    return line


def test_without_cache_and_hub_there_is_one_clear_sentence(tmp_path):
    run = hub_cache.python(LOAD, HF_HOME=str(tmp_path), **hub_cache.NO_HUB)
    line = _unavailable(run)
    assert "fetched" in line and "run this again" in line


@pytest.mark.parametrize("name", ["train-00000-of-00001.parquet", "model.safetensors", "tokenizer.json", "config.json"])
def test_a_broken_file_is_refused_when_the_task_is_loaded(cache, tmp_path, monkeypatch, name):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    shutil.copytree(cache / "hub", tmp_path / "hub", symlinks=True)
    assert tasks.load("full").name == "MRPC"
    file = hub_cache.snapshot_file(tmp_path, name).resolve()
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(tasks.TaskUnavailable) as refusal:
        tasks.load("full")
    sentence = str(refusal.value)
    assert "could not be read" in sentence and "COURSE_TIER=small" in sentence and "\n" not in sentence
    assert "models--distilbert--distilbert-base-cased and datasets--nyu-mll--glue" in sentence
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__, (
        "one sentence, not several tracebacks"
    )


def test_a_download_that_breaks_is_gone_on_with_and_then_kept(cache, tmp_path):
    code = f"{LOAD}\nif 'task' in vars(): print(task)"
    with hub_cache.serve(cache) as hub:
        here = hub_cache.NO_HUB | {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path)}
        hub.cut_short = "validation-00000-of-00001.parquet"
        line = _unavailable(hub_cache.python(code, **here))
        assert "fetched" in line and "run this again" in line
        needed = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
        assert set(hub.sent) == needed | {"train-00000-of-00001.parquet", hub.cut_short}

        sent_before = hub.sent.copy()
        hub.cut_short = None
        second = hub_cache.python(code, **here)
        assert hub.sent == [*sent_before, "validation-00000-of-00001.parquet"], "what had arrived is not fetched again"
        third = hub_cache.python(code, **here)
        assert hub.sent == [*sent_before, "validation-00000-of-00001.parquet"]
    assert (second.returncode, second.stderr, third.stderr) == (0, "", "")
    tier_line, fetching, task_line = second.stdout.splitlines()
    assert "hub is reachable" in tier_line and fetching.startswith("Fetching") and task_line.startswith("Task MRPC: ")
    assert third.stdout.splitlines() == [tier_line, task_line]
