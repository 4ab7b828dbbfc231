"""A local Hugging Face cache with a small stand-in for what the full tier fetches, and Python runs that use it.

The layout is that of huggingface_hub's documentation, "Understand caching": ``refs/main`` holds a commit, and
``snapshots/COMMIT/FILE`` links to ``blobs/HASH``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import DistilBertForMaskedLM, DistilBertTokenizerFast

Rows = dict[str, list[tuple[str, str, int]]]  # by split: two sentences, and 1 if both say the same

COMMIT = "1" * 40
NO_HUB = {"COURSE_TIER": "full", "HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}  # nobody answers there
DOG, CAT, SUN, RAIN = "A dog sleeps.", "A cat eats.", "The sun is out.", "It rains again."
FEW: Rows = {
    "train": [(DOG, CAT, 0), (DOG, DOG, 1), (SUN, SUN, 1), (SUN, RAIN, 0), (RAIN, RAIN, 1)],
    "validation": [(CAT, CAT, 1), (CAT, RAIN, 0)],
}


def tokenizer(rows: Rows) -> DistilBertTokenizerFast:
    """A tokenizer whose word pieces are the words of the rows."""
    from transformers import DistilBertTokenizerFast

    words = {
        word for split in rows.values() for row in split for text in row[:2] for word in text.replace(".", " .").split()
    }
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return DistilBertTokenizerFast(vocab=vocabulary, do_lower_case=False, model_max_length=512)


def random_model(tokenizer: DistilBertTokenizerFast, rows: Rows) -> DistilBertForMaskedLM:
    """A DistilBERT of one layer of width 16 that knows nothing; ``rows`` are not looked at."""
    from transformers import DistilBertConfig, DistilBertForMaskedLM

    return DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=len(tokenizer), dim=16, hidden_dim=32, n_layers=1, n_heads=2)
    )


def fill(
    home: Path,
    rows: Rows = FEW,
    model: Callable[[DistilBertTokenizerFast, Rows], DistilBertForMaskedLM] = random_model,
) -> Path:
    """Fill ``home/hub`` and return ``home``, which is what HF_HOME has to be.

    ``model`` makes the checkpoint from the tokenizer and the rows. It is what the real one is: trained on masked
    words, if at all, so without a classification head.
    """
    source = home / "source"
    pieces = tokenizer(rows)
    for made in (pieces, model(pieces, rows)):
        made.save_pretrained(source / "model")
    _save_rows(source / "data" / "mrpc", rows)
    for name in ("model/pytorch_model.bin", "data/mrpc/test-00000-of-00001.parquet"):  # there, and not needed
        (source / name).write_bytes(b"large")
    _store(source / "model", home / "hub" / "models--distilbert--distilbert-base-cased")
    _store(source / "data", home / "hub" / "datasets--nyu-mll--glue")
    return home


def snapshot_file(home: Path, name: str) -> Path:
    """The link to a file in the cache, by the file's name."""
    (found,) = (home / "hub").glob(f"*/snapshots/*/**/{name}")
    return found


def outside(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of an environment, but for what is Hugging Face's or the course's."""
    own = ("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "COURSE_", "ACCELERATE_")
    return {name: value for name, value in variables.items() if not name.startswith(own)}


def python(
    code: str,
    *arguments: str,
    cwd: Path | None = None,
    before: Sequence[str] = (),
    seconds: int = 240,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own whose environment is :func:`outside` and ``variables``.

    ``before`` is what stands before the command, and ``seconds`` the most that it may take.
    """
    return subprocess.run(
        [*before, sys.executable, "-c", code, *arguments],
        env=outside() | {"PYTHONUTF8": "1"} | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
    )


class Hub(ThreadingHTTPServer):
    """As much of the hub's interface as a download needs, with the files of a cache.

    ``cut_short`` names a file whose sending breaks off half-way; ``sent`` lists the files whose content was asked for.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.home, self.cut_short, self.sent = home / "hub", None, []
        self.address = f"http://127.0.0.1:{self.server_port}"


@contextmanager
def serve(home: Path) -> Iterator[Hub]:
    """Serve the files of the cache under ``home`` on this machine."""
    with Hub(home) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()


class _Answer(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        path = self.path.partition("?")[0].strip("/").removeprefix("api/")
        kind, path = (
            ("datasets", path[9:]) if path.startswith("datasets/") else ("models", path.removeprefix("models/"))
        )
        owner, name, what, _, *file = path.split("/")
        snapshot = self.server.home / f"{kind}--{owner}--{name}" / "snapshots" / COMMIT
        names = sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file())
        content = {
            "resolve": lambda: (snapshot / "/".join(file)).read_bytes(),
            "revision": lambda: _json(
                {"id": f"{owner}/{name}", "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
            ),
            "tree": lambda: _json([_entry(snapshot, n) for n in names]),
        }[what]()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-HF-Warning", "login; Nobody is logged in.")  # the real one says something like it
        self.end_headers()
        if self.command == "GET":
            if what == "resolve":
                self.server.sent.append(file[-1])
                if file[-1] == self.server.cut_short:
                    content = content[: len(content) // 2]
            self.wfile.write(content)

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _entry(snapshot: Path, name: str) -> dict[str, object]:
    content = (snapshot / name).read_bytes()
    return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha256(content).hexdigest()}


def _save_rows(folder: Path, rows: Rows) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    for split, of_split in rows.items():
        first, second, labels = zip(*of_split, strict=True)
        table = {"sentence1": first, "sentence2": second, "label": labels, "idx": range(len(labels))}
        parquet.write_table(
            pa.table({name: list(column) for name, column in table.items()}),
            folder / f"{split}-00000-of-00001.parquet",
        )


def _store(source: Path, repository: Path) -> None:
    for folder in ("refs", "blobs"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT, encoding="utf-8")
    for file in (path for path in source.rglob("*") if path.is_file()):
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        file.rename(blob)
        link = repository / "snapshots" / COMMIT / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
