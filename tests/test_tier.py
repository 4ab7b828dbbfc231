"""Which tier a machine gets, what is switched off for it, and how soon that is known."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import hub_cache
import numpy as np
import pytest
import torch

from course_lib import _hub, tier

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine; afterwards everything is as before."""
    variables = dict(os.environ)
    before = dict(tier._before)

    def pretend(cuda=False, reachable=False, cached=False, mps=False, **environment):
        for name in (*OFFLINE, "COURSE_TIER", "COURSE_DEVICE", "ACCELERATE_USE_CPU"):
            os.environ.pop(name, None)
        tier._before.clear()
        os.environ.update(environment)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(_hub, "reachable", lambda: reachable)
        monkeypatch.setattr(_hub, "cached", lambda: cached)
        tier._decide.cache_clear()

    yield pretend
    tier._decide.cache_clear()
    tier._before.clear()
    tier._before.update(before)
    os.environ.clear()
    os.environ.update(variables)
    monkeypatch.undo()
    tier.current(quiet=True)


@pytest.mark.parametrize(
    ("here", "name", "device", "offline"),
    [
        ({}, "small", "cpu", True),
        ({"reachable": True}, "small", "cpu", True),
        ({"mps": True}, "small", "cpu", True),
        ({"mps": True, "COURSE_DEVICE": "mps"}, "small", "mps", True),
        ({"cuda": True}, "small", "cuda", True),
        ({"cuda": True, "reachable": True}, "full", "cuda", False),
        ({"cuda": True, "cached": True}, "full", "cuda", True),
        ({"cuda": True, "reachable": True, "COURSE_TIER": "small"}, "small", "cuda", True),
        ({"cuda": True, "reachable": True, "COURSE_DEVICE": "cpu"}, "small", "cpu", True),
        ({"reachable": True, "COURSE_TIER": "full"}, "full", "cpu", False),
        ({"cached": True, "COURSE_TIER": "full"}, "full", "cpu", True),
        ({"COURSE_TIER": "full"}, "full", "cpu", True),
        ({"cuda": True, "reachable": True, "cached": True, "HF_HUB_OFFLINE": "1"}, "full", "cuda", True),
        ({"cuda": True, "reachable": True, "TRANSFORMERS_OFFLINE": "true"}, "small", "cuda", True),
    ],
)
def test_which_tier(machine, capsys, here, name, device, offline):
    machine(**here)
    found = tier.current()
    assert (found.name, found.device) == (name, torch.device(device))
    assert [os.environ.get(variable) == "1" for variable in OFFLINE[1:]] == [offline] * 2
    assert (os.environ.get("ACCELERATE_USE_CPU") == "true") == (device == "cpu")
    line = capsys.readouterr().out
    assert line == f"{found}\n" and line.startswith(f"Tier: {name}, on {device} (") and found.why in line
    assert tier.current(quiet=True) is found
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        ({}, "no CUDA GPU"),
        ({"cuda": True, "COURSE_DEVICE": "cpu"}, "COURSE_DEVICE is cpu"),
        ({"COURSE_TIER": "small"}, "COURSE_TIER asks for it"),
        ({"cuda": True, "reachable": True}, "hub is reachable"),
        ({"cuda": True, "cached": True}, "in the local cache"),
        ({"cuda": True}, "not reachable"),
    ],
)
def test_the_line_gives_the_reason(machine, here, reason):
    machine(**here)
    assert reason in str(tier.current(quiet=True))


def test_the_hub_is_not_asked_without_need(machine, monkeypatch):
    def asked():
        raise AssertionError("the hub was asked")

    for here in ({}, {"COURSE_TIER": "small", "cuda": True}, {"COURSE_TIER": "full", "HF_HUB_OFFLINE": "1"}):
        machine(**here)
        monkeypatch.setattr(_hub, "reachable", asked)
        tier.current(quiet=True)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"COURSE_TIER": "big"}, ["COURSE_TIER", "'big'", "small or full"]),
        ({"COURSE_DEVICE": "gpu"}, ["COURSE_DEVICE", "'gpu'", "cpu or cuda or mps"]),
        ({"COURSE_DEVICE": "cuda"}, ["COURSE_DEVICE", "'cuda'", "no such device"]),
    ],
)
def test_other_values_are_refused(machine, variables, words):
    machine(**variables)
    with pytest.raises(ValueError) as refusal:
        tier.current()
    assert all(word in str(refusal.value) for word in words)


def test_a_change_of_tier_puts_the_variables_back(machine):
    import huggingface_hub.constants as constants

    machine(reachable=True, HF_DATASETS_OFFLINE="0")
    tier.current(quiet=True)
    assert [os.environ.get(name) for name in OFFLINE] == ["1"] * 3 and constants.HF_HUB_OFFLINE
    os.environ["COURSE_TIER"] = "full"
    tier.current(quiet=True)
    assert [os.environ.get(name) for name in OFFLINE] == [None, None, "0"] and not constants.HF_HUB_OFFLINE


def test_mixed_precision(machine, monkeypatch):
    native = {"including_emulation": False}
    for cuda, bf16, expected in ((False, True, "no"), (True, True, "bf16"), (True, False, "fp16")):
        machine(cuda=cuda)
        # A GPU that only emulates bf16 says yes unless asked not to count that.
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda bf16=bf16, **asked: bf16 or asked != native)
        assert tier.current(quiet=True).mixed_precision == expected


@pytest.mark.parametrize("imported_before", ["", "import huggingface_hub.constants, datasets, transformers"])
def test_hugging_face_is_offline_and_quiet_after_current(imported_before):
    code = f"""
import os, sys
{imported_before}
import course_lib.tier
assert {bool(imported_before)} or not {{"torch", "huggingface_hub", "transformers"}} & set(sys.modules)
course_lib.tier.current()
assert {bool(imported_before)} or "huggingface_hub" not in sys.modules
import datasets, huggingface_hub
assert huggingface_hub.is_offline_mode() and datasets.config.HF_HUB_OFFLINE
assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
"""
    run = hub_cache.python(code, COURSE_TIER="small")
    assert run.returncode == 0, run.stderr


def test_seed_everything():
    assert tier.seed_everything(3) is None
    drawn = random.random(), np.random.rand(), torch.rand(1)
    assert drawn[0] == random.Random(3).random()
    assert drawn[1] == np.random.RandomState(3).rand()
    assert drawn[2] == torch.rand(1, generator=torch.Generator().manual_seed(3))


@pytest.fixture
def server(monkeypatch):
    """A hub on this machine that answers with the status and after the seconds it is told."""

    class Hub(BaseHTTPRequestHandler):
        status, seconds, asked = 200, 0.0, []

        def do_HEAD(self):
            Hub.asked.append(self.path)
            time.sleep(Hub.seconds)
            self.send_response(Hub.status)
            self.end_headers()

        def log_message(self, *_):
            pass

    Hub.asked = []
    running = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{running.server_port}/mirror/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield Hub
    running.shutdown()
    running.server_close()


def test_reachable_asks_for_a_file_of_the_model(server):
    assert _hub.reachable()
    assert server.asked == ["/mirror/distilbert/distilbert-base-cased/resolve/main/config.json"]
    for server.status in (204, 403, 404, 429, 503):  # a portal or a proxy that answers is not the hub
        assert not _hub.reachable()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", ["refused", "silent", "name", "no address"])
def test_unreachable_is_known_within_three_seconds(server, monkeypatch, fault):
    if fault == "refused":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    elif fault == "silent":
        server.seconds = 6
    elif fault == "name":  # a resolver that hangs knows no time limit
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(6))
    else:
        monkeypatch.setenv("HF_ENDPOINT", "not an address")
    start = time.monotonic()
    assert not _hub.reachable()
    assert time.monotonic() - start < 3


def test_cached_needs_every_file(tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    assert not _hub.cached()
    hub_cache.fill(tmp_path)
    assert _hub.cached()
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    names += ["train-00000-of-00001.parquet", "validation-00000-of-00001.parquet"]
    for name in names:
        file = hub_cache.snapshot_file(tmp_path, name)
        aside = file.rename(tmp_path / "aside")
        assert not _hub.cached()
        aside.rename(file)
    assert _hub.cached()
