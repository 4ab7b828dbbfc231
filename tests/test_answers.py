"""The printed questions: the answer that they call right is right, and the wrong ones are what they say they are."""

import math

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score

import course as course_list
import questions
from course_lib import averages, factored, memory, tasks

BY_ID = {question["id"]: question for question in questions.load(course_list.load()).questions}


def options(question_id: str) -> list[str]:
    return [option["text"] for option in BY_ID[question_id]["options"]]


def right(question_id: str) -> str:
    return options(question_id)["ABCD".index(BY_ID[question_id]["right"])]


def lazy(share: int, rows: int) -> tuple[float, float]:
    """Accuracy and F1 of naming the frequent class for every row."""
    labels, answers = [1] * share + [0] * (rows - share), [1] * rows
    return accuracy_score(labels, answers), f1_score(labels, answers)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x.square().mean().sqrt()


def test_sum_of_weights_gradients_and_state():
    layer = torch.nn.Linear(1024, 1024, bias=False, device="meta")
    parts = [2 * layer.weight.nbytes, memory.predict_state_size(layer, "adamw").moments * 4]
    assert sum(parts) / layer.weight.nbytes * 400 == 1600
    assert right("01-sum") == "1,600 MiB"


def test_what_changes_with_adafactor():
    kept = [memory.predict_state_size(tasks.distilbert(device="meta"), kind) for kind in ("adamw", "rmsprop")]
    kept.append(memory.predict_state_size(tasks.distilbert(device="meta"), "adafactor"))
    assert [float(f"{size.mib:.2f}") for size in kept] == pytest.approx([501.9, 250.9, 0.68], abs=0.06)
    assert "501.9 MiB to 250.9, and then to 0.68" in BY_ID["01-changes"]["options"][3]["belief"]
    assert right("01-changes") == options("01-changes")[3]


def test_nearly_700_times_fewer_bytes():
    layer = torch.nn.Linear(512, 1024, bias=False, device="meta")
    ratio = memory.predict_state_size(layer, "adamw").bytes / memory.predict_state_size(layer, "adafactor").bytes
    assert 650 < ratio < 700 and "nearly 700 times fewer bytes" in BY_ID["01-faster"]["question"]


@pytest.mark.parametrize("cast", [False, True])
def test_16_bit_computing_and_16_bit_weights(cast):
    layer = torch.nn.Linear(8, 8).to(torch.bfloat16 if cast else torch.float32)
    optimizer = torch.optim.AdamW(layer.parameters())
    with torch.autocast("cpu", torch.bfloat16):  # what bf16=True does
        layer(torch.ones(1, 8, dtype=layer.weight.dtype)).sum().backward()
    optimizer.step()
    assert optimizer.state[layer.weight]["exp_avg_sq"].dtype == (torch.bfloat16 if cast else torch.float32)
    assert right("01-bf16") == "It stays as it is" and "model.bfloat16()" in BY_ID["01-bf16"]["options"][3]["belief"]


def test_what_ten_steps_leave():
    impulse = torch.zeros(11)
    impulse[0] = 1.0
    weights = averages.ema(impulse, 0.9)
    assert weights[10] / weights[0] == pytest.approx(0.35, abs=0.005) and right("02-forget") == "About a third"


def test_steady_gradient():
    G = torch.full((300,), -2.0)
    M, V = (averages.ema(values, 0.9)[-1].item() for values in (G, G.square()))
    assert (M, V) == pytest.approx((-2, 4)) and right("03-steady") == "M = −2, V = 4"


@pytest.mark.parametrize("optimizer_class", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adafactor])
def test_loss_times_1000(optimizer_class):
    moved = []
    for factor in (1, 1000):
        p = torch.nn.Parameter(torch.ones(3, 4))
        optimizer = optimizer_class([p])
        for step in range(1, 4):
            p.grad = factor * torch.arange(1.0, 13.0).reshape(3, 4) / step
            optimizer.step()
        moved.append((1 - p.detach()).norm().item())
    expected = 1000 if optimizer_class is torch.optim.SGD else 1
    assert moved[1] / moved[0] == pytest.approx(expected, rel=1e-3) and right("03-loss") == "They do not change"


def test_axis_of_row_means():
    V = torch.arange(15.0).reshape(3, 5)
    torch.testing.assert_close(V.mean(-1), factored.row_col_means(V)[0])
    assert right("04-dim").startswith("V.mean(-1)")
    assert (len(V.mean(-1)), len(V.mean(0)), V.mean().ndim) == (3, 5, 0)


def test_entry_from_sums():
    R, C = torch.tensor([4.0, 6.0]) / 2, torch.tensor([2.0, 8.0]) / 2
    V_hat, added = factored.reconstruct(R, C), R[0] + C[1] - R.mean()
    assert V_hat[0].sum().item() == pytest.approx(4)
    values = [V_hat[0, 1], added, R[0] * C[1], 4 * 8]
    assert options("04-entry") == [f"{float(value):.2g}" for value in values] and right("04-entry") == "3.2"


def test_update_clipping():
    U = torch.tensor([1.0, 7.0])
    made = [U.clamp(max=1), U / U.norm(), U / max(1.0, rms(U).item()), U]
    assert options("05-rms") == [f"({float(f'{x[0]:.2f}'):g}, {float(f'{x[1]:.2f}'):g})" for x in made]
    assert right("05-rms") == "(0.2, 1.4)"


def test_lazy_answers():
    assert lazy(900, 1000) == pytest.approx((0.90, 0.947), abs=0.0005) and right("06-share").startswith("Nothing yet")
    accuracy, f1 = lazy(279, 408)  # of the pairs on which MRPC is evaluated
    assert (accuracy, f1) == pytest.approx((0.684, 0.812), abs=0.0005)
    assert 0.60 < accuracy and 0.50 < f1 and right("06-judge").startswith("Nothing that counts")


def test_steps_of_two_processes():
    batches = math.ceil(2000 / 25)
    per_process = math.ceil(batches / 2)
    steps = [2 * batches, 2 * per_process, 2 * math.ceil(batches / 4), 2 * math.ceil(per_process / 4)]
    assert options("07-count") == [str(count) for count in steps] and right("07-count") == "20"


def test_most_numbers_per_parameter():
    shapes = ((256, 128, 1, 1), (4096, 4096), (768,))
    kept = []
    for shape in shapes:
        module = torch.nn.Module()
        module.weight = torch.nn.Parameter(torch.empty(shape, device="meta"))
        kept.append(memory.predict_state_size(module, "adafactor").moments / module.weight.numel())
    assert kept == [2, pytest.approx(8192 / 4096**2), 1] and right("08-most") == options("08-most")[0]
