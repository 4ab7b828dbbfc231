"""Scripts in processes of their own: their results, their errors in one sentence, and their end when time is up."""

import json
import re
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from nbval_run import cut_off

from course_lib import launch
from course_lib.launch import LaunchError

RANK = "import os, sys, json; rank = int(os.environ.get('RANK', 0)); first = rank == 0\n"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that can be run as a script, and returns its name."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def write(text):
        (tmp_path / "toy_script.py").write_text(RANK + text, encoding="utf-8")
        return "toy_script"

    return write


def test_one_process_is_plain_python(module):
    name = module("print('α', sys.argv[1:]); print(json.dumps({'torchrun': 'WORLD_SIZE' in os.environ}))")
    run = launch.run(name, "--steps", "3")
    assert (run.results, run.printed) == ({"torchrun": False}, "α ['--steps', '3']")


def test_several_processes_can_add_up_a_number(module):
    name = module(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.tensor(10.0 ** rank); dist.all_reduce(x)\n"
        "if first: print(json.dumps([x.item(), dist.get_world_size(), torch.get_num_threads()]))\n"
        "dist.destroy_process_group()"
    )
    run = launch.run(name, processes=3)
    assert (run.results, run.printed) == ([111.0, 3, 1], "")


def test_processes_find_each_other_with_the_network_cut_off(module):
    prefix, reason = cut_off()
    if not prefix:
        pytest.skip(reason)
    name = module(
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "if first: print(dist.get_world_size())\n"
        "dist.destroy_process_group()"
    )
    program = f"from course_lib import launch; print(launch.run({name!r}, processes=2).results)"
    done = subprocess.run([*prefix, sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_what_the_caller_has_set_up_does_not_reach_the_script(module, monkeypatch):
    own = {"RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "8", "MASTER_ADDR": "192.0.2.1", "ACCELERATE_USE_FSDP": "true"}
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    for variable, value in {**own, "COURSE_TIER": "full", "COURSE_DEVICE": "cuda", "OMP_NUM_THREADS": "64"}.items():
        monkeypatch.setenv(variable, value)
    name = module("print(json.dumps(dict(os.environ)))")
    seen = launch.run(name).results
    assert not set(own) & set(seen)
    assert (seen["COURSE_TIER"], seen["COURSE_DEVICE"], seen["OMP_NUM_THREADS"]) == ("small", "cpu", "1")
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    assert {seen.get("GLOO_SOCKET_IFNAME")} == (loopback or {None}), "messages would leave the machine"


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_the_script_is_told_in_its_own_words(module, processes):
    name = module("print('begun')\nif rank == 0: raise ValueError('63 rows are odd.')\nimport time; time.sleep(60)")
    word = "process" if processes == 1 else "processes"
    start = time.monotonic()
    with pytest.raises(LaunchError) as caught:
        launch.run(name, processes=processes)
    assert str(caught.value) == f"toy_script with {processes} {word} ended in an error: ValueError: 63 rows are odd."
    assert time.monotonic() - start < 60, "it waited for the process that slept"


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("name", "reason"), [("KILL", ", most likely for want of memory."), ("ABRT", ".")])
def test_a_process_that_a_signal_ended_is_told_as_such(module, processes, name, reason):
    script = module(f"import os, signal, time\nif rank == 0: os.kill(os.getpid(), signal.SIG{name})\ntime.sleep(60)")
    number = getattr(signal, f"SIG{name}").value
    with pytest.raises(LaunchError, match=rf"ended by a signal \(Signal {number}\b.*\){re.escape(reason)}$"):
        launch.run(script, processes=processes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("print('Loss = 1.0')", "its last line is no JSON, but 'Loss = 1.0'"),
        ("pass", "its last line is no JSON, but ''"),
        ("sys.exit('no such option')", "ended in an error: no such option"),
        ("sys.exit(3)", "ended in an error: exit status 3"),
    ],
)
def test_no_result_is_told_in_one_sentence(module, text, complaint):
    with pytest.raises(LaunchError) as caught:
        launch.run(module(text))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_is_left_running_when_time_is_up(module, processes, tmp_path):
    pids = tmp_path / "pids"
    name = module(
        "import signal, subprocess, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # it does not go when asked to
        f"own = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"with open({str(pids)!r}, 'a') as file: file.write(f'{{os.getpid()}}\\n{{own.pid}}\\n')\n"
        "time.sleep(600)"
    )
    limit = 5.0
    while True:  # on a busy machine it takes a while until they have begun
        with pytest.raises(LaunchError) as caught:
            launch.run(name, processes=processes, time_limit=limit)
        started = pids.read_text().split() if pids.exists() else []
        if len(started) >= 2 * processes:
            break
        limit *= 2
    assert f"took longer than {limit:g} seconds and was stopped" in str(caught.value)
    assert [pid for pid in map(int, started) if _runs(pid)] == []


def test_an_interrupt_ends_the_script_too(module, tmp_path, monkeypatch):
    def interrupted(self, timeout=None):
        if timeout is None:
            return wait(self)
        while not pids.exists() or not pids.read_text():
            time.sleep(0.05)
        raise KeyboardInterrupt

    pids = tmp_path / "pids"
    name = module(f"import time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    wait = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launch.run(name)
    assert not _runs(int(pids.read_text()))


def test_scripts_that_are_started_run_side_by_side(module, tmp_path):
    """Each waits until the other is there, which a script that runs alone would do until its time is up."""
    name = module(
        "import pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "(here / sys.argv[1]).touch()\n"
        "while not (here / sys.argv[2]).exists(): time.sleep(0.05)\n"
        "print(sys.argv[1]); print(1)"
    )
    started = [launch.start(name, *names, time_limit=60) for names in (("one", "two"), ("two", "one"))]
    assert [script.result().printed for script in started] == ["one", "two"]
    assert started[0].result() == started[0].result(), "a cell that asks for the result can be run again"


def test_a_script_that_says_a_lot_is_over_before_anybody_asks(module, tmp_path):
    over = tmp_path / "over"
    name = module(
        "for stream in (sys.stderr, sys.stdout): print('x' * 1_000_000, file=stream)\n"
        f"print(1, flush=True); open({str(over)!r}, 'w').close()"
    )
    script = launch.start(name)
    limit = time.monotonic() + 60
    while not over.exists():
        assert time.monotonic() < limit, "it waits for somebody to read"
        time.sleep(0.05)
    assert len(script.result().printed) == 1_000_000


def test_a_result_that_nobody_fetched_in_time_is_still_there(module):
    script = launch.start(module("print(1)"), time_limit=0.01)
    script._script.wait(60)
    assert script.result().results == 1


def test_a_script_that_is_no_longer_wanted_is_ended(module, tmp_path):
    pids = tmp_path / "pids"
    script = launch.start(module(f"import time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)"))
    while not pids.exists() or not pids.read_text():
        time.sleep(0.05)
    del script
    assert not _runs(int(pids.read_text()))


def test_no_process_at_all_is_refused():
    with pytest.raises(ValueError, match="0 processes cannot be started"):
        launch.run("course_lib.doctor", processes=0)


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_results_are_what_json_can_say(module):
    thing = {"losses": [1.5, None], "text": "β₂"}
    assert launch.run(module(f"print({json.dumps(thing)!r})")).results == thing
