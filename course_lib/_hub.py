"""What the full tier takes from the Hugging Face hub: which files, whether they can be had, and fetching them."""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple


class Repository(NamedTuple):
    """A repository on the hub and the files that are needed of it."""

    name: str
    kind: str
    files: tuple[str, ...]


MODEL = Repository(
    "distilbert/distilbert-base-cased",
    "model",
    ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
)
DATASET = Repository(
    "nyu-mll/glue",
    "dataset",
    ("mrpc/train-00000-of-00001.parquet", "mrpc/validation-00000-of-00001.parquet"),
)
SIZE = "about 270 MB"


def reachable(seconds: float = 2.5) -> bool:
    """Whether the hub hands out the model's files, found out within so many seconds, everything included.

    The question is asked in a thread of its own, since a name look-up that hangs obeys no time limit.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    answers: list[int] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(f"{endpoint}/{MODEL.name}/resolve/main/{MODEL.files[0]}", method="HEAD")
            with urllib.request.urlopen(request, timeout=seconds) as response:
                answers.append(response.status)
        except Exception:  # no route, no name, refused, not found, no HTTP: whatever it is, the hub cannot be used
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers == [200]


def cached() -> bool:
    """Whether all the files are in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    return all(
        isinstance(try_to_load_from_cache(repository.name, file, repo_type=repository.kind), str)
        for repository in (MODEL, DATASET)
        for file in repository.files
    )


def fetch(repository: Repository, local_only: bool) -> Path:
    """The folder that holds the repository's files, after a download if it is needed and allowed.

    Raises:
        FileNotFoundError: a file is missing after all; other errors of the download as they come.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import logging

    wanted = {"allow_patterns": list(repository.files), "local_files_only": local_only}
    with only_errors(logging):  # not each new try, nor that nobody is logged in
        folder = Path(snapshot_download(repository.name, repo_type=repository.kind, **wanted))
    # Without a connection snapshot_download returns a folder that an earlier, broken download has left.
    if missing := [file for file in repository.files if not (folder / file).exists()]:
        raise FileNotFoundError(f"{', '.join(missing)} of {repository.name} did not arrive")
    return folder


@contextmanager
def only_errors(logging: ModuleType) -> Iterator[None]:
    """Leave out warnings; ``logging`` is the module of that name in a library of Hugging Face's."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
