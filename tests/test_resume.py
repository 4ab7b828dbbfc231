"""A run that was interrupted goes on as if it had not been, keeps what was saved, and refuses what cannot work."""

import copy
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from resume_runs import OPTIMIZERS, SCHEDULES, Loop, forget_accelerate, half_a_file, new_model, new_trainer
from transformers import TrainerState

from course import ROOT
from course_lib import checkpoints, memory, threads

BITSANDBYTES = "8-bit AdamW" in OPTIMIZERS


@pytest.fixture(autouse=True)
def alone():
    with threads.one_thread():
        yield
    forget_accelerate()


def equal(one, other):
    """Equal to the last bit, however deeply nested."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def outcome(run):
    """All that a Trainer or a Loop has changed."""
    if isinstance(run, Loop):
        schedule = run.schedule and run.schedule.state_dict()
        return run.model.state_dict(), run.optimizer.state_dict(), schedule, run.done
    steps = [{key: line.get(key) for key in ("step", "loss", "grad_norm", "learning_rate")} for line in history(run)]
    return run.model.state_dict(), run.optimizer.state_dict(), run.lr_scheduler.state_dict(), steps


def history(trainer):
    return [line for line in trainer.state.log_history if "loss" in line]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """For each optimizer, the checkpoint of step 2 and what came out at step 4, of a Loop; made when asked for."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("loop")
            loop = Loop(name)
            loop.train(4, lambda step: step == 2 and checkpoints.save_state(loop.accelerator, folder / "checkpoint-2"))
            made[name] = folder / "checkpoint-2", copy.deepcopy(outcome(loop))
        return made[name]

    return get


# --- as if nothing had happened


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if SCHEDULES.get(name, True)])
def test_trainer_goes_on_to_the_last_bit(name, tmp_path):
    whole = new_trainer(tmp_path, name)
    whole.train()
    resumed = new_trainer(tmp_path, name, seed=1)
    at_start = copy.deepcopy(resumed.model.state_dict())
    checkpoints.resume(resumed, tmp_path / "checkpoint-2")
    assert len(history(resumed)) == 4 and not equal(at_start, resumed.model.state_dict())
    assert all(map(equal, outcome(whole), outcome(resumed)))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_loop_of_accelerate_goes_on_to_the_last_bit(name, saved):
    checkpoint, whole = saved(name)
    loop = Loop(name, seed=1)
    checkpoints.check(checkpoint, loop.optimizer)
    loop.accelerator.load_state(checkpoint)
    loop.done = 2
    loop.train(4)  # the third step ends the first epoch
    assert all(map(equal, whole, outcome(loop)))


def test_without_its_state_a_run_goes_elsewhere_and_trainer_says_nothing(tmp_path):
    whole = new_trainer(tmp_path, "AdamW")
    whole.train()
    (tmp_path / "checkpoint-2" / "optimizer.pt").unlink()
    resumed = new_trainer(tmp_path, "AdamW", seed=1)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert not equal(whole.model.state_dict(), resumed.model.state_dict())
    with pytest.raises(FileNotFoundError, match="checkpoint-2 holds no optimizer state, as after save_only_model=True"):
        checkpoints.resume(new_trainer(tmp_path, "AdamW"), tmp_path / "checkpoint-2")


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("our Adafactor", True),
        ("transformers' Adafactor", False),
        ("torch's Adafactor", True),
        ("AdamW", True),
        *([("8-bit AdamW", True)] if BITSANDBYTES else []),
    ],
)
def test_state_of_parameters_in_16_bits(name, exact, tmp_path):
    """torch casts a loaded state to the parameters' dtype, and transformers' Adafactor keeps float32 averages."""
    whole = Loop(name, dtype=torch.bfloat16)
    whole.train(4, lambda step: step == 2 and checkpoints.save_state(whole.accelerator, tmp_path / "checkpoint-2"))
    whole = copy.deepcopy(outcome(whole))
    loop = Loop(name, seed=1, dtype=torch.bfloat16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoints.check(tmp_path / "checkpoint-2", loop.optimizer)
    loop.accelerator.load_state(tmp_path / "checkpoint-2")
    loop.done = 2
    loop.train(4)
    assert all(map(equal, whole, outcome(loop))) == exact
    told = [str(warning.message) for warning in caught]
    assert len(told) == (not exact) and all("from float32 to bfloat16" in message for message in told)


# --- with torchao's optimizers, in a process of their own


@pytest.fixture(scope="module")
def torchao(tmp_path_factory):
    """What the process found, and the folder with its checkpoints."""
    library, folder = ROOT / ".torchao", tmp_path_factory.mktemp("torchao")
    if not (library / "torchao").is_dir():
        pytest.skip("torchao is not installed: `make test` does it, with a network, into .torchao/")
    program = [sys.executable, str(Path(__file__).with_name("torchao_resume.py")), str(library), str(folder)]
    done = subprocess.run(program, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


@pytest.mark.parametrize("run", ["trainer 8", "trainer 4", "loop 8", "loop 4"])
def test_torchaos_optimizers_go_on_to_the_last_bit(run, torchao):
    found = torchao[0]["whole"][run]
    assert found["equal"] == found["parts"] and found["as many"]
    assert found["packed"] == 2 * 8  # both moments of the matrices of 4,096 numbers


WORDS = {
    "8": "torchao's AdamW or Adam in 8 bits",
    "4": "torchao's AdamW or Adam in 4 bits",
    "AdamW": "torch's AdamW or Adam",
}


@pytest.mark.parametrize("wrote", WORDS)
@pytest.mark.parametrize("name", WORDS)
def test_packed_averages_fit_the_optimizer_that_packed_them(wrote, name, torchao):
    # Their settings are the same.
    told = torchao[0]["told"]
    if wrote == name:
        assert told[f"{wrote} {name}"] == told["small"] == "accepted"
    else:
        assert f"was written by {WORDS[wrote]}, but this run has {WORDS[name]}, which" in told[f"{wrote} {name}"]


def test_what_cannot_be_read_without_its_library_is_refused_in_a_sentence(torchao):
    checkpoint = torchao[1] / "loop-8" / "checkpoint-2"
    with pytest.raises(ValueError, match="checkpoint-2 holds things of a kind .* such as torchao, and go on with that"):
        checkpoints.check(checkpoint, OPTIMIZERS["AdamW"](new_model().parameters()))


# --- nothing that was saved is lost


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The checkpoints of steps 2 and 4, and the files that were there before Trainer's own state was written."""
    folder = tmp_path_factory.mktemp("trainer")
    trainer = new_trainer(folder, "transformers' Adafactor")
    there, save = [], TrainerState.save_to_json

    def look_and_save(state, path):
        there[:] = sorted(file.name for file in Path(path).parent.iterdir())
        save(state, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainerState, "save_to_json", look_and_save)
        trainer.train()
    return folder, there


def test_trainer_writes_its_own_state_last(finished):
    # What tells a complete checkpoint from another rests on this.
    folder, there = finished
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} < set(there)
    assert {file.name for file in (folder / "checkpoint-4").iterdir()} - set(there) == {"trainer_state.json"}
    assert checkpoints.last(folder).name == "checkpoint-4"


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_checkpoint_that_breaks_off_anywhere_is_passed_over(place, share, finished, tmp_path):
    folder, there = finished
    names = [*there, "trainer_state.json"]
    assert len(names) == 7
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    broken = tmp_path / "checkpoint-4" / names[place]
    content = broken.read_bytes()
    broken.write_bytes(content[: int(share * len(content))])
    for name in names[place + 1 :]:
        (tmp_path / "checkpoint-4" / name).unlink()
    assert checkpoints.last(tmp_path).name == "checkpoint-2"
    with pytest.raises(ValueError, match="checkpoint-4 is not complete: .*; checkpoints.last finds it"):
        checkpoints.check(tmp_path / "checkpoint-4", new_trainer(tmp_path, "transformers' Adafactor"))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_so_is_one_in_which_a_file_breaks_off(name, finished, tmp_path):
    # As after a copy for which the disk was too small.
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    file = tmp_path / "checkpoint-4" / name
    file.write_bytes(file.read_bytes()[:-100])
    assert checkpoints.last(tmp_path).name == "checkpoint-2"
    with pytest.raises(ValueError, match=f"checkpoint-4 is not complete: {name} cannot be read to the end"):
        checkpoints.check(tmp_path / "checkpoint-4", new_trainer(tmp_path, "transformers' Adafactor"))


@pytest.mark.parametrize("kind", ["trainer", "accelerator"])
def test_a_run_that_is_killed_while_it_saves_goes_on_from_the_save_before(kind, tmp_path):
    """Steps 1 and 2 are saved, and the third save is cut off by a signal that no program can catch."""
    program = [sys.executable, str(Path(__file__).with_name("resume_runs.py")), kind, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert done.returncode != 0 and "not killed" not in done.stdout, done.stderr
    assert "Traceback" not in done.stderr
    assert len(list(tmp_path.glob("checkpoint-*"))) == 3
    assert checkpoints.last(tmp_path).name == "checkpoint-2"
    if kind == "trainer":
        name = "transformers' Adafactor"
        whole, resumed = new_trainer(tmp_path / "whole", name), new_trainer(tmp_path, name, seed=1, save_steps=1)
        whole.train()
        with pytest.raises(FileNotFoundError):  # it takes the third, which is not complete
            new_trainer(tmp_path, name).train(resume_from_checkpoint=True)
        checkpoints.resume(resumed)
        assert all(map(equal, outcome(whole), outcome(resumed)))
    else:
        whole = Loop("torch's Adafactor")
        whole.train(4)
        whole = copy.deepcopy(outcome(whole))
        resumed = Loop("torch's Adafactor", seed=1)
        resumed.accelerator.load_state(checkpoints.last(tmp_path))
        resumed.done = 2
        resumed.train(4, lambda step: checkpoints.save_state(resumed.accelerator, tmp_path / f"checkpoint-{step}"))
        assert all(map(equal, whole, outcome(resumed)))
    # The run went on saving, over what had been left behind.
    assert checkpoints.last(tmp_path).name == "checkpoint-4"
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [f"checkpoint-{i}" for i in range(1, 5)]


class Interrupted(Exception):  # noqa: N818
    pass


def interrupt():
    raise Interrupted


@pytest.mark.parametrize("call", [1, 2, 3])
def test_saving_under_the_same_name_keeps_the_old_one_until_the_new_one_is_complete(call, tmp_path, monkeypatch):
    loop = Loop("torch's Adafactor")
    loop.train(1)
    folder = tmp_path / "checkpoint-1"
    (tmp_path / "checkpoint-1.partial").mkdir()
    (tmp_path / "checkpoint-1.partial" / "of_another_time.bin").write_bytes(b"")
    checkpoints.save_state(loop.accelerator, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "model.safetensors" in before and "of_another_time.bin" not in before
    loop.train(2)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", half_a_file(call, interrupt))
        with pytest.raises(Interrupted):
            checkpoints.save_state(loop.accelerator, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    checkpoints.save_state(loop.accelerator, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} != before


def test_killed_between_the_two_renames_both_are_still_there(tmp_path, monkeypatch):
    loop = Loop("torch's Adafactor")
    loop.train(1)
    folder = tmp_path / "checkpoint-1"
    checkpoints.save_state(loop.accelerator, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rename = Path.rename

    def rename_once(path, target):
        if path.name.endswith(".partial"):
            interrupt()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_once)
    with pytest.raises(Interrupted):
        checkpoints.save_state(loop.accelerator, folder)
    old, new = tmp_path / "checkpoint-1.old", tmp_path / "checkpoint-1.partial"
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before
    assert {path.name for path in new.iterdir()} == set(before)


@pytest.mark.parametrize("ours", [False, True])
def test_accelerate_alone_deletes_the_old_checkpoint_before_the_new_one_is_there(ours, tmp_path, monkeypatch):
    # The reason for save_state.
    limit = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=not ours, total_limit=1)
    accelerator = Accelerator(cpu=True, project_config=limit)
    model = torch.nn.Linear(3, 2)
    accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

    def save(step):
        if ours:
            checkpoints.save_state(accelerator, tmp_path / "checkpoints" / f"checkpoint-{step}")
        else:
            accelerator.save_state()

    save(1)
    monkeypatch.setattr(torch, "save", half_a_file(1, interrupt))
    with pytest.raises(Interrupted):
        save(2)
    if ours:
        assert checkpoints.last(tmp_path / "checkpoints").name == "checkpoint-1"
    else:
        with pytest.raises(FileNotFoundError, match="no checkpoint to go on from in 'checkpoints', only unfinished"):
            checkpoints.last(tmp_path / "checkpoints")


def test_where_there_is_none_the_sentence_says_what_to_do(tmp_path):
    (tmp_path / "checkpoint-7").write_text("a file")
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-3.partial").mkdir()
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match=f"no checkpoint to go on from in '{folder.name}'. Start afresh"):
            checkpoints.last(folder)
    with pytest.raises(FileNotFoundError, match="There is no checkpoint 'checkpoint-2' here"):
        checkpoints.check(tmp_path / "checkpoint-2", torch.optim.SGD(new_model().parameters()))


def test_the_newest_is_the_one_with_the_largest_number(finished, tmp_path):
    folder, _ = finished
    for step in (2, 9, 10):
        shutil.copytree(folder / "checkpoint-2", tmp_path / f"checkpoint-{step}")
    assert checkpoints.last(str(tmp_path)).name == "checkpoint-10"


# --- another optimizer

# What the message calls it. Those with one name take over each other's state.
NAMES = {
    "AdamW": "torch's AdamW or Adam",
    "AdamW, fused": "torch's AdamW or Adam",
    "SGD": "torch's SGD",
    "SGD with momentum": "torch's SGD",
    "RMSprop": "torch's RMSprop",
    "Adagrad": "torch's Adagrad",
    "our Adafactor": "the course's Adafactor",
    "our Adafactor, relative step": "the course's Adafactor",
    "transformers' Adafactor": "transformers' Adafactor",
    "transformers' Adafactor, relative step": "transformers' Adafactor",
    "torch's Adafactor": "torch's Adafactor",
    "8-bit AdamW": "bitsandbytes' AdamW",
    "bitsandbytes' Lion": "an optimizer with the settings betas, eps, lr, weight_decay",
}
TAKES_OVER = ("transformers' Adafactor", "the course's Adafactor")


@pytest.mark.parametrize("wrote", OPTIMIZERS)
def test_every_other_optimizer_is_refused_by_name(wrote, saved):
    checkpoint, _ = saved(wrote)
    model = new_model()
    for name, make in OPTIMIZERS.items():
        optimizer = make(model.parameters())
        before = copy.deepcopy(optimizer.state_dict())
        if NAMES[wrote] == NAMES[name] or (NAMES[wrote], NAMES[name]) == TAKES_OVER:
            checkpoints.check(checkpoint, optimizer)
        else:
            told = f"in checkpoint-2 was written by {NAMES[wrote]}, but this run has {NAMES[name]}, which keeps other"
            with pytest.raises(ValueError) as error:
                checkpoints.check(checkpoint, optimizer)
            assert told in str(error.value) and "Go on with the optimizer that wrote it." in str(error.value)
            assert str(checkpoint.parent) not in str(error.value)
        assert equal(optimizer.state_dict(), before)


@pytest.mark.parametrize(
    ("wrote", "name", "key"),
    [
        ("transformers' Adafactor", "AdamW", "betas"),
        ("AdamW", "transformers' Adafactor", "beta1"),
        ("AdamW", "SGD", "momentum"),
    ],
)
def test_trainer_alone_stops_with_the_name_of_a_key(wrote, name, key, tmp_path):
    new_trainer(tmp_path, wrote, max_steps=2).train()
    with pytest.raises(KeyError, match=f"^'{key}'$"):
        new_trainer(tmp_path, name).train(resume_from_checkpoint=True)
    trainer = new_trainer(tmp_path, name)
    with pytest.raises(ValueError, match=f"written by {NAMES[wrote]}, but this run has {NAMES[name]}"):
        checkpoints.resume(trainer)
    assert trainer.optimizer is None and trainer.state.global_step == 0
    trainer.train()  # from the start, it does what it would have done
    twin = new_trainer(tmp_path / "twin", name)
    twin.train()
    assert all(map(equal, outcome(trainer), outcome(twin)))


def test_an_optimizer_that_was_spoilt_by_a_load_is_still_known(saved):
    checkpoint, _ = saved("AdamW")
    optimizer = OPTIMIZERS["transformers' Adafactor"](new_model().parameters())
    optimizer.load_state_dict(torch.load(checkpoint / "optimizer.bin", weights_only=True))
    with pytest.raises(ValueError, match="written by torch's AdamW or Adam, but this run has transformers' Adafactor"):
        checkpoints.check(checkpoint, optimizer)


def test_as_a_hook_it_stops_accelerate_before_anything_is_loaded(saved):
    checkpoint, _ = saved("AdamW")
    loop = Loop("torch's Adafactor", seed=1)
    loop.accelerator.register_load_state_pre_hook(lambda models, folder: checkpoints.check(folder, loop.optimizer))
    before = copy.deepcopy(outcome(loop))
    with pytest.raises(ValueError, match="written by torch's AdamW or Adam, but this run has torch's Adafactor"):
        loop.accelerator.load_state(checkpoint)
    assert all(map(equal, before, outcome(loop)))
    own, _ = saved("torch's Adafactor")
    loop.accelerator.load_state(own)
    assert not all(map(equal, before, outcome(loop)))


def test_momentum_that_the_courses_adafactor_lacks(tmp_path):
    loop = Loop("transformers' Adafactor")
    loop.optimizer.param_groups[0]["beta1"] = 0.9
    loop.train(1)
    checkpoints.save_state(loop.accelerator, tmp_path / "checkpoint-1")
    with pytest.raises(ValueError, match="written by transformers' Adafactor, but this run has the course's"):
        checkpoints.check(tmp_path / "checkpoint-1", OPTIMIZERS["our Adafactor"](new_model().parameters()))


def test_groups_that_differ_are_counted(finished):
    checkpoint = finished[0] / "checkpoint-2"
    params = list(new_model().parameters())
    make = OPTIMIZERS["transformers' Adafactor"]
    with pytest.raises(
        ValueError, match=r"for 2 groups of 10 and 14 parameters, .* has 1 group of 24 parameters\. .*Trainer"
    ):
        checkpoints.check(checkpoint, make(params))
    with pytest.raises(ValueError, match="has 2 groups of 4 and 20 parameters"):
        checkpoints.check(checkpoint, make([{"params": params[:4]}, {"params": params[4:]}]))
    checkpoints.check(checkpoint, make([{"params": params[:10]}, {"params": params[10:]}]))


def test_there_is_a_sentence_for_trainers_optimizer_before_train(tmp_path):
    trainer = new_trainer(tmp_path, "transformers' Adafactor", save_strategy="no")
    for look in (memory.state_size, memory.compute_optimizer_size):
        with pytest.raises(ValueError, match="A Trainer makes its optimizer in trainer.train"):
            look(trainer.optimizer)
    trainer.train()
    assert memory.state_size(trainer.optimizer).scalars == 2 * 24
