"""The loop of lesson 07 as a script: the same training in one process and in two, and what each of them holds."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from accelerate import Accelerator
from accelerate.commands import launch as accelerate_launch

from course_lib import distributed_loop, launch, memory, planner, tasks

STEPS = 12
SCRIPT = "course_lib.distributed_loop"


@cache
def started(kind, processes, steps=STEPS, rows=64):
    arguments = ["--steps", str(steps), "--optimizer", kind, "--rows", str(rows)]
    return launch.run(SCRIPT, *arguments, processes=processes)


@cache
def task():
    return tasks.load("small")


def train(kind="adafactor_torch", steps=STEPS, rows=64):
    return distributed_loop.train(Accelerator(cpu=True), task(), kind, steps, rows)


def test_two_processes_train_as_one_does():
    one, two = (started("adafactor_torch", n).results for n in (1, 2))
    assert (one["processes"], one["rows"], two["processes"], two["rows"]) == (1, 64, 2, 32)
    assert len(one["losses"]) == STEPS and len(set(one["losses"])) == STEPS
    torch.testing.assert_close(torch.tensor(two["losses"]), torch.tensor(one["losses"]), rtol=0, atol=1e-5)
    assert one["apart"] == two["apart"] == 0.0


def test_two_processes_go_on_to_the_next_epoch_as_one_does():
    rows = len(task().train) // 3 // 2 * 2  # three batches, and a few rows that are left over
    one, two = train("adamw", steps=5, rows=rows), started("adamw", 2, steps=5, rows=rows).results
    torch.testing.assert_close(torch.tensor(two["losses"]), torch.tensor(one["losses"]), rtol=0, atol=1e-5)


def test_it_learns():
    losses = train(steps=40)["losses"]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_one_process_trains_as_a_plain_loop_does():
    model, rate, steps = task().model(seed=0), task().learning_rate, 5
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    order = torch.Generator().manual_seed(0)
    loader = torch.utils.data.DataLoader(
        task().train, 64, shuffle=True, generator=order, drop_last=True, collate_fn=task().collator
    )
    losses = []
    for step, batch in zip(range(steps), loader, strict=False):
        optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    torch.testing.assert_close(train("adamw", steps)["losses"], losses, rtol=0, atol=1e-5)


def test_every_process_keeps_all_but_its_share_of_the_activations():
    one, two = (started("adafactor_torch", n).results["bytes"] for n in (1, 2))
    model = task().model(0)
    weights = 4 * sum(p.numel() for p in model.parameters())
    state = memory.predict_state_size(model, "adafactor_torch").bytes
    for held, processes in ((one, 1), (two, 2)):
        assert held["weights"] == held["gradients"] == [weights] * processes
        assert held["state"] == [state] * processes
    assert one["messages"] == [0] and two["messages"] == [weights] * 2
    for share in two["activations"]:
        assert abs(share / one["activations"][0] - 0.5) < 0.001


def test_activations_are_those_of_the_longest_batch():
    model = distributed_loop._without_dropout(task().model(0))
    rows = [max(task().train, key=lambda row: len(row["input_ids"]))] * 64
    kept = planner.saved_bytes(model, lambda: model(**task().collator(rows)).loss)
    assert started("adafactor_torch", 1).results["bytes"]["activations"] == [kept]


@pytest.mark.parametrize("kind", distributed_loop.OPTIMIZERS)
def test_each_optimizer_has_the_state_that_its_name_says(kind):
    found = train(kind, steps=1)["bytes"]["state"]
    assert found == [memory.predict_state_size(task().model(0), kind).bytes]


def test_only_the_main_process_prints():
    one, two = (started("adafactor_torch", n).printed.splitlines() for n in (1, 2))
    assert one[1] == "processes: 1, optimizer: adafactor_torch"
    assert two[1] == "processes: 2, optimizer: adafactor_torch"
    assert one[0] == two[0] and one[2:] == two[2:] and len(one) == 3
    assert one[2] == f"step   1: Loss = {started('adafactor_torch', 1).results['losses'][0]:.4f}"


@pytest.mark.parametrize(
    ("rows", "processes", "steps", "complaint"),
    [
        (63, 2, 1, "63 rows in a step cannot be dealt out evenly to 2 processes: give a multiple of 2."),
        (0, 1, 1, "0 rows in a step cannot be dealt out evenly"),
        (100_000, 2, 1, "100000 rows in a step are more than the"),
        (64, 1, 0, "0 steps are no training"),
    ],
)
def test_what_cannot_be_trained_is_refused(rows, processes, steps, complaint):
    with pytest.raises(ValueError, match=complaint):
        distributed_loop.train(SimpleNamespace(num_processes=processes), task(), "adamw", steps, rows)


def test_accelerate_launch_starts_a_single_process_on_the_cpu():
    """The trap that lesson 07 warns of. If this fails, Accelerate has mended it, and the lesson should say so."""
    command = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "-m", SCRIPT, "--steps", "1"]
    done = subprocess.run(
        [sys.executable, *command], env=launch._environment(), capture_output=True, text=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["processes"] == 1
    assert "num_processes" not in done.stderr, "it says something about it"


def test_the_lines_for_gpus_lead_to_the_launcher_for_several_processes():
    text = re.sub(r"\\\n\s*", "", distributed_loop.__doc__)
    lines = re.findall(r"^ +accelerate launch (.+)$", text, re.MULTILINE)
    assert len(lines) == 2
    for line, machines, processes in zip(lines, (1, 2), (4, 8), strict=True):
        arguments = accelerate_launch.launch_command_parser().parse_args(shlex.split(line))
        assert (arguments.num_machines, arguments.num_processes) == (machines, processes)
        assert arguments.module and arguments.training_script == SCRIPT
        with (
            mock.patch.multiple(accelerate_launch, simple_launcher=mock.DEFAULT, multi_gpu_launcher=mock.DEFAULT) as to,
            mock.patch.object(accelerate_launch, "default_config_file", ""),
        ):
            accelerate_launch.launch_command(arguments)
        assert to["multi_gpu_launcher"].called and not to["simple_launcher"].called
