"""The meter: peaks worked out by hand, to the byte."""

import gc
import re
from types import SimpleNamespace

import nbformat
import psutil
import pytest
import torch

import execution
from course_lib import meter

MIB = 2**20


def one_mib():
    return torch.zeros(512, 512)  # 2**18 numbers of 4 bytes


def test_a_peak_between_two_quiet_ends():
    x = one_mib()
    with meter.measure(x) as usage:
        y = x + 1  # 2 MiB
        z = y * 2  # 3 MiB, the peak
        del y  # 2 MiB
        z.add_(1)  # in place
        torch.zeros(128, 512)  # 2.25 MiB, at once free again
    assert (usage.before, usage.peak, usage.after) == (MIB, 3 * MIB, 2 * MIB)
    assert usage.added == 2 * MIB
    assert usage.reserved is None and usage.resident > 0


def test_views_and_wider_numbers():
    x = one_mib()
    with meter.measure(x) as usage:
        top, wide = x[:100], x.double()
    assert (usage.peak, usage.after) == (3 * MIB, 3 * MIB)
    del top, wide


def test_a_training_step_by_hand():
    # Weight 1 MiB. The gradient takes 1 more. AdamW's first step makes two moments and a 4-byte step count, and
    # works with two temporaries at most: the root of the second moment, and that root over its bias correction.
    layer = torch.nn.Linear(512, 512, bias=False)
    x = torch.zeros(1, 512)
    optimizer = torch.optim.AdamW(layer.parameters(), foreach=False)
    with meter.measure(layer, x) as usage:
        layer(x).sum().backward()
    assert usage.before == MIB + 4 * 512
    assert usage.after == 2 * MIB + 4 * 512
    with meter.measure(layer, optimizer) as usage:
        optimizer.step()
    assert (usage.before, usage.after) == (2 * MIB, 4 * MIB + 4)
    with meter.measure(layer, optimizer) as usage:
        optimizer.step()
    assert (usage.before, usage.after) == (4 * MIB + 4, 4 * MIB + 4)
    assert usage.added == 2 * MIB
    optimizer.zero_grad()
    with meter.measure(layer, optimizer) as usage:
        pass
    assert usage.before == usage.peak == usage.after == 3 * MIB + 4


def test_twice_the_same_whatever_else_is_alive():
    layer = torch.nn.Linear(512, 512)
    layer.weight.grad, layer.bias.grad = one_mib(), torch.zeros(512)
    found, kept = [], []
    for _ in range(3):
        optimizer = torch.optim.Adafactor(layer.parameters())
        with meter.measure(layer, optimizer) as usage:
            optimizer.step()
        found.append((usage.before, usage.peak, usage.after))
        kept.append(one_mib())  # as Out[] does
    assert len(set(found)) == 1


BEGIN = """
import torch
from course_lib import meter

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(128, 256)
model(x).sum().backward()
optimizer.step()
optimizer.zero_grad()
"""
MEASURE = """
with meter.measure(model, optimizer, x) as usage:
    out = model(x)
    loss = out.square().sum()
    loss.backward()
    optimizer.step()
optimizer.zero_grad()
print(usage)
out
"""
FAIL = """
def forward():
    hidden = model(x) * torch.randn(50, 128, 256)
    raise RuntimeError("on purpose")

forward()
"""


def test_a_cell_that_is_run_again_gives_the_same_number():
    # Between the runs Out[] keeps each output with what led to it, and the traceback what its functions had.
    notebook = nbformat.v4.new_notebook()
    sources = [
        BEGIN,
        MEASURE,
        MEASURE,
        FAIL,
        MEASURE,
        "usage",
        MEASURE,
        "len([k for k in Out if torch.is_tensor(Out[k])])",
    ]
    notebook.cells = cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[3].metadata.tags = ["raises-exception"]
    execution.execute(notebook, "a notebook")
    printed = [cell.outputs[0].text for cell in cells if cell.source == MEASURE]
    assert len(printed) == 4 and len(set(printed)) == 1
    # Two weights and biases, and two moments of each; the batch. Then come what the layers keep, and gradients.
    assert printed[0].startswith(f"tensors on cpu: {(3 * (2 * 256 * 512 + 768) + 128 * 256) * 4 / MIB:.2f} MiB before")
    assert cells[-1].outputs[0].data["text/plain"] == "4"
    assert "resident set" in cells[5].outputs[0].data["text/html"]


def test_on_the_meta_device_it_predicts(recwarn):
    found = []
    for device in ("cpu", "meta"):
        model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).to(device)
        optimizer, x = torch.optim.SGD(model.parameters(), momentum=0.9), torch.zeros(64, 512, device=device)
        with meter.measure(model, optimizer, x) as usage:
            model(x).square().sum().backward()
            optimizer.step()
        found.append((usage.before, usage.peak, usage.after))
        assert usage.what == f"tensors on {device}"
    assert found[0] == found[1]
    # Two weights, two biases; then their gradients and momenta beside them.
    assert found[0][2] - found[0][0] == 2 * 2 * (MIB + 4 * 512)
    assert not recwarn.list


class LossInside(torch.nn.Linear):
    def forward(self, x):
        return torch.nn.MSELoss()(super().forward(x), x)


def test_a_module_that_is_gone_before_the_backward_pass_goes_unmentioned(recwarn):
    model = LossInside(512, 512, bias=False)
    with meter.measure(model) as usage:
        model(torch.zeros(1, 512)).backward()
    assert usage.after == 2 * MIB
    assert not recwarn.list


def test_a_block_that_fails_is_measured_and_still_fails():
    x = one_mib()
    with pytest.raises(RuntimeError, match="on purpose"), meter.measure(x) as usage:
        y = x + 1
        raise RuntimeError("on purpose")
    assert usage.peak == 2 * MIB
    del y


def test_what_is_printed_names_its_units():
    usage = meter.Usage("tensors on cpu", before=MIB, peak=1027 * MIB + MIB // 4, after=2 * MIB)
    assert str(usage) == "tensors on cpu: 1.00 MiB before, 1,027.25 MiB at the peak, 2.00 MiB after"
    assert repr(usage) == f"<Usage: {usage}>"
    usage.reserved = 1100 * MIB
    assert str(usage).endswith(", 1,100.00 MiB reserved at most")


def test_a_notebook_shows_the_resident_set_as_information():
    usage = meter.Usage(
        "allocated on cuda", before=MIB, peak=3 * MIB, after=2 * MIB, reserved=4 * MIB, resident=900 * MIB
    )
    shown = usage._repr_html_()
    assert [float(size) for size in re.findall(r"<td>([\d.]+)</td>", shown)] == [1, 3, 2, 4, 900]
    assert "allocated on cuda, at the peak" in shown
    assert "for information: resident set of the process" in shown and "<caption>" in shown
    assert "resident" not in str(usage)
    usage.reserved = None
    assert shown.count("<tr>") == usage._repr_html_().count("<tr>") + 1


def test_the_resident_set_is_the_one_that_the_system_tells():
    with meter.measure() as usage:
        held = torch.ones(64 * MIB, dtype=torch.uint8)
    assert usage.resident == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    assert usage.resident > len(held) and usage.peak == 64 * MIB


def test_on_cuda_the_allocator_is_asked(monkeypatch):
    # A stand-in for torch.cuda that allocates on demand, so that this runs without a GPU.
    now, top = [10], [99]

    def reset(_):
        top[0] = now[0]

    def empty_cache():
        cached[0] = 0

    cached = [1000]
    fake = SimpleNamespace(
        synchronize=lambda _: None,
        empty_cache=empty_cache,
        reset_peak_memory_stats=reset,
        memory_allocated=lambda _: now[0],
        max_memory_allocated=lambda _: top[0],
        max_memory_reserved=lambda _: 2 * top[0] + cached[0],
    )
    monkeypatch.setattr(meter.torch, "cuda", fake)
    with meter._allocated(torch.device("cuda")) as usage:
        now[0], top[0] = 15, max(top[0], 40)  # it rises only above what it was reset to
    assert (usage.before, usage.peak, usage.after, usage.reserved) == (10, 40, 15, 80)
    assert usage.what == "allocated on cuda"


@pytest.mark.gpu
def test_a_peak_on_a_real_gpu():
    gc.collect()
    x = one_mib().cuda()
    with meter.measure(x) as usage:
        y = x + 1
        z = y * 2
        del y
    assert usage.added == 2 * MIB and usage.after - usage.before == MIB
    assert usage.reserved >= usage.peak
    del z
