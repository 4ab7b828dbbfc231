"""Optimizers on a model cut into shards: AdamW goes along, Adafactor does not, and lesson 07 says how."""

import pytest

from course_lib import launch, sharded_step

ADAFACTORS = ["adafactor_torch", "adafactor_transformers", "adafactor"]
FACTORED = 128 + 64 + 6 + 128 + 128 + 6  # rows and columns of two matrices, and two vectors


@pytest.fixture(scope="module")
def result():
    run = launch.run("course_lib.sharded_step", processes=2)
    assert run.printed == ""
    return run.results


def test_parameters_are_counted(result):
    assert result["parameters"] == 64 * 128 + 128 + 128 * 6 + 6


def test_whole_models_keep_everything_in_every_process(result):
    assert result["found"]["adamw"]["whole"]["moments"] == [2 * result["parameters"]] * 2
    for kind in ADAFACTORS:
        assert result["found"][kind]["whole"]["moments"] == [FACTORED] * 2


@pytest.mark.parametrize("sharded", ["FSDP1", "FSDP2"])
def test_adamw_shares_its_state_out_and_takes_the_same_steps(result, sharded):
    found = result["found"]["adamw"]
    assert found[sharded]["moments"] == [result["parameters"]] * 2  # two moments of half the parameters
    assert sum(found[sharded]["weights"]) == pytest.approx(found["whole"]["weights"][0], rel=1e-6)


@pytest.mark.parametrize(
    ("kind", "error", "line"),
    [
        ("adafactor_torch", "in-place operations that require placement changes are not supported", "torch.norm(grad"),
        ("adafactor_transformers", "got mixed torch.Tensor and DTensor", "exp_avg_sq_row.mul_("),
        ("adafactor", "got mixed torch.Tensor and DTensor", "average.lerp_("),
    ],
)
def test_fsdp2_stops_every_adafactor(result, kind, error, line):
    """If this fails after an update, factored statistics and FSDP2 go together now: lesson 07 should say so."""
    found = result["found"][kind]["FSDP2"]
    assert found["error"].startswith("RuntimeError: ") and error in found["error"]
    assert found["line"].startswith(line)


@pytest.mark.parametrize("kind", ADAFACTORS)
def test_fsdp1_lets_adafactor_through_unfactored(result, kind):
    found = result["found"][kind]
    assert sum(found["FSDP1"]["moments"]) == result["parameters"]
    assert sum(found["FSDP1"]["weights"]) != pytest.approx(found["whole"]["weights"][0], rel=1e-6)


def test_optimizers_are_those_of_the_loop():
    from course_lib import distributed_loop

    assert set(sharded_step.OPTIMIZERS) == set(distributed_loop.OPTIMIZERS)
