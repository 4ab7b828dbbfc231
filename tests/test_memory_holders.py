"""What a learner may hand to state_size: every holder of a state, every kind of tensor in it."""

from array import array
from collections import deque
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed._shard.sharded_tensor import zeros as sharded_zeros
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.testing._internal.two_tensor import TwoTensor
from transformers.optimization import Adafactor as TransformersAdafactor

from course_lib import blockwise
from course_lib.memory import compute_optimizer_size, predict_state_size, state_size


def stepped(params, make=torch.optim.AdamW):
    params = list(params)
    optimizer = make(params)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    return optimizer


# --- holders


def test_several_optimizers():
    # As of a generator and a discriminator, or one optimizer for each parameter.
    one, two = (stepped(nn.Linear(n, 3).parameters()) for n in (5, 7))
    expected = 2 * (5 * 3 + 3) + 2 + 2 * (7 * 3 + 3) + 2
    accelerator = Accelerator(cpu=True)
    for thing in (
        [one, two],
        {"generator": one, "discriminator": two},
        {"generator": one.state_dict(), "discriminator": two.state_dict()},
        [accelerator.prepare(one), accelerator.prepare(two)],
        {next(iter(optimizer.state)): optimizer for optimizer in (one, two)},
        (one.state, two.state),
    ):
        assert compute_optimizer_size(thing) == (expected * 4 / 2**20, expected)
    assert state_size([one, one]).elements == state_size(one).elements


def test_nothing_counts_twice_not_even_a_python_number():
    layer = nn.Linear(5, 3)
    optimizer = stepped(layer.parameters(), TransformersAdafactor)
    schedule = torch.optim.lr_scheduler.ConstantLR(stepped(layer.parameters(), torch.optim.AdamW))
    expected = predict_state_size(layer, "adafactor_transformers")
    assert expected.by_key["step"] == (2, 0)
    for thing in (
        [optimizer, optimizer],
        {"optimizer": optimizer, "saved": optimizer.state_dict()},
        [*optimizer.state.values(), *optimizer.state.values()],
        {"one": [optimizer], "list of lists": [[optimizer]]},
    ):
        assert state_size(thing) == expected
    assert state_size([schedule, schedule.optimizer]) == state_size(schedule) == predict_state_size(layer, "adamw")


def test_of_a_checkpoint_only_the_optimizer_counts():
    layer = nn.Linear(5, 3)
    optimizer = stepped(layer.parameters())
    saved, expected = optimizer.state_dict(), predict_state_size(layer, "adamw")
    for thing in (
        {"model": layer.state_dict(), "optimizer": saved, "epoch": 3},
        {"model": layer.state_dict(), "optimizers": [saved]},
        {"run": {"model": optimizer}},
        {"optimizer": optimizer, "of another": {0: {"step": 1}}, "learning rate": 0.1},
    ):
        size = state_size(thing)
        assert (size.moments, size.bytes) == (expected.moments, expected.bytes)
        assert size.scalars == expected.scalars + ("of another" in thing)
    flattened = get_optimizer_state_dict(layer, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    assert "state.weight.exp_avg" in flattened and "param_groups.weight.lr" in flattened
    assert state_size(flattened) == expected


def test_settings_are_no_state():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=torch.tensor(0.1))
    optimizer.param_groups[0]["rates"] = torch.ones(10)
    optimizer.own = torch.ones(10)
    for thing in (optimizer, optimizer.state_dict()):
        assert state_size(thing).elements == 0


@pytest.mark.parametrize(
    ("make", "moments", "scalars", "size"),
    [
        (torch.optim.Adadelta, 36, 2, 38 * 4),
        (torch.optim.Adamax, 36, 2, 38 * 4),
        (torch.optim.ASGD, 18, 6, 24 * 4),
        (torch.optim.RAdam, 36, 2, 38 * 4),
        (torch.optim.Rprop, 36, 2, 38 * 4),
        (lambda params: torch.optim.Adam(params, amsgrad=True), 54, 2, 56 * 4),
        (lambda params: torch.optim.AdamW(params, lr=torch.tensor(0.1), foreach=False), 36, 2, 38 * 4),
        (lambda params: torch.optim.Muon([p for p in params if p.ndim == 2]), 15, 0, 15 * 4),
    ],
)
def test_other_optimizers_of_torch(make, moments, scalars, size):
    optimizer = stepped(nn.Linear(5, 3).parameters(), make)
    for thing in (optimizer, optimizer.state_dict(), optimizer.state.values()):
        found = state_size(thing)
        assert (found.moments, found.scalars, found.metadata, found.bytes) == (moments, scalars, 0, size)


def test_what_an_optimizer_keeps_beside_the_parameters():
    layer = nn.Linear(5, 3)
    optimizer = stepped(layer.parameters(), torch.optim.RMSprop)
    optimizer.state["calls"] = 3
    for thing in (optimizer, optimizer.state):
        size = state_size(thing)
        assert (size.moments, size.scalars) == (18, 3)
        assert set(size.by_key) == {"step", "square_avg", "calls"}


def test_states_that_are_not_there_yet():
    optimizer = torch.optim.SGD(nn.Linear(5, 3).parameters(), momentum=0.9)
    for thing in (optimizer, optimizer.state_dict(), {"param_groups": []}, {}, [{}], {0: {}}, [{"exp_avg": None}]):
        assert state_size(thing).elements == state_size(thing).bytes == 0


class Pair(NamedTuple):
    first: torch.Tensor
    step: int


def test_containers_inside_a_state():
    size = state_size([{"pair": Pair(torch.zeros(3), 7), "queue": deque([torch.zeros(2)], maxlen=4), "bag": {1.5, 2}}])
    assert size.by_key == {"pair.first": (3, 12), "pair.step": (1, 0), "queue": (2, 8), "bag": (2, 0)}


@dataclass
class Record:
    first: torch.Tensor
    step: int = 7


class Projector:
    """As GaLore keeps one for each matrix: a plain object with a matrix and settings."""

    def __init__(self):
        self.rank, self.scale, self.ortho_matrix, self.bases = 4, 0.25, torch.zeros(4, 5), [torch.zeros(2)]


class Slots:
    __slots__ = ("__weakref__", "basis", "unset")

    def __init__(self):
        self.basis = torch.zeros(6)


Kind = Enum("Kind", "FULL HALF")


def test_objects_inside_a_state():
    state = {"projector": Projector(), "slots": Slots(), "space": SimpleNamespace(basis=torch.zeros(3))}
    state |= {
        "record": Record(torch.zeros(2)),
        "kind": Kind.HALF,
        "numbers": range(9),
        "made": torch.zeros,
        "as": Slots,
    }
    state |= {"values": {"a": torch.zeros(8)}.values(), "inner": stepped([nn.Parameter(torch.ones(2, 2))])}
    state |= {"size": torch.float32, "text": b"0123"}
    size = state_size([state])
    assert size.by_key == {
        "projector.ortho_matrix": (20, 80),
        "projector.bases": (2, 8),
        "slots.basis": (6, 24),
        "space.basis": (3, 12),
        "record.first": (2, 8),
        "record.step": (1, 0),
        "values": (8, 32),
        "inner.step": (1, 4),
        "inner.exp_avg": (4, 16),
        "inner.exp_avg_sq": (4, 16),
    }
    assert size.moments == 49 and size.scalars == 2


def test_a_container_that_holds_itself_is_no_trouble():
    mapping, some = {"exp_avg": torch.zeros(2)}, [torch.zeros(3)]
    mapping["itself"] = mapping
    some.append(some)
    thing = SimpleNamespace(moment=torch.zeros(4))
    thing.itself = thing
    assert state_size([mapping, {"list": some, "object": thing}]).by_key == {
        "exp_avg": (2, 8),
        "list": (3, 12),
        "object.moment": (4, 16),
    }


def test_the_quantized_tensors_of_the_course():
    states = [{"exp_avg": blockwise.quantize(torch.linspace(-1, 1, 1000))} for _ in range(2)]
    size = state_size(states)
    assert size.moments == 2 * 1000
    assert size.by_key["exp_avg.codes"] == (2000, 2000) and size.by_key["exp_avg.absmax"] == (8, 32)
    assert "exp_avg.map" in size.by_key
    assert size.metadata == 8 + size.by_key["exp_avg.map"].elements


@pytest.mark.parametrize(
    "values",
    [
        np.ones(3),
        np.ones((), dtype=np.int8),
        np.ma.masked_array([1.0]),
        array("f", [1.0]),
        bytearray(3),
        torch.ones(3).untyped_storage(),
    ],
)
def test_an_array_is_refused_rather_than_left_out(values):
    for value in (values, [values], SimpleNamespace(values=values)):
        with pytest.raises(TypeError, match=rf"'exp_avg.*' is an object of type {type(values).__name__}.*as_tensor"):
            state_size([{"exp_avg": value}])


def test_numbers_of_numpy_are_numbers():
    assert state_size([{"step": np.int64(3), "rate": np.float32(0.1), "flag": np.bool_(True)}]).elements == 2


# --- tensors that are not what they seem


class Hollow(torch.Tensor):
    """A wrapper that does not say what is inside."""

    @staticmethod
    def __new__(cls, **inside):
        return torch.Tensor._make_wrapper_subclass(cls, (1000,), dtype=torch.float32)

    def __init__(self, **inside):
        vars(self).update(inside)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


def test_a_wrapper_takes_what_is_inside_and_not_what_it_says():
    codes, scale = torch.zeros(500, dtype=torch.uint8), torch.zeros(4)
    size = state_size([{"exp_avg": Hollow(codes=codes, scale=scale, name="packed")}])
    assert (size.moments, size.metadata, size.bytes) == (1000, 4, 500 + 16)
    assert size.by_key == {"exp_avg": (1000, 500), "exp_avg.scale": (4, 16)}
    # What it shares with another one counts once, half of it by half.
    other = Hollow(codes=torch.cat([codes]))
    half = Hollow(codes=codes[:250])
    assert state_size([{"a": half, "b": Hollow(codes=codes), "c": other}]).by_key == {
        "a": (1000, 500),
        "b": (500, 0),
        "c": (1000, 500),
    }


def test_wrappers_in_wrappers():
    inner = [TwoTensor(torch.zeros(1000), torch.zeros(1000)) for _ in range(2)]
    assert state_size([{"exp_avg": TwoTensor(*inner)}]).by_key == {"exp_avg": (1000, 16_000)}
    around = Hollow(inner=Hollow(codes=torch.zeros(500, dtype=torch.uint8), scale=torch.zeros(4)))
    assert state_size([{"exp_avg": around}]).by_key == {"exp_avg": (1000, 500), "exp_avg.scale": (4, 16)}


def test_a_tensor_whose_memory_cannot_be_seen_is_refused():
    for tensor in (Hollow(), torch.eye(4).to_mkldnn()):
        with pytest.raises(TypeError, match="cannot see the memory behind"):
            state_size([{"exp_avg": tensor}])


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    ("make", "elements", "size"),
    [
        # Indices of eight bytes: for each row or column (of blocks) and one, and for each value (or block).
        (lambda: torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (4, 3)), 4 + 2, 4 * 8 + 2 * 4),
        (lambda: torch.sparse_csr_tensor([0, 1, 2, 2], [2, 0], [1.0, 2.0], (3, 3)), 4 + 2 + 2, 6 * 8 + 2 * 4),
        (lambda: torch.sparse_csc_tensor([0, 1, 2, 2], [2, 0], [1.0, 2.0], (3, 3)), 4 + 2 + 2, 6 * 8 + 2 * 4),
        (lambda: torch.sparse_bsr_tensor([0, 1, 2], [0, 1], torch.ones(2, 2, 2), (4, 4)), 3 + 2 + 8, 5 * 8 + 8 * 4),
        (lambda: torch.sparse_bsc_tensor([0, 1, 2], [0, 1], torch.ones(2, 2, 2), (4, 4)), 3 + 2 + 8, 5 * 8 + 8 * 4),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), 5, 5 * 4),
        (lambda: torch.ones(3, dtype=torch.complex64), 3, 3 * 8),
        (lambda: torch.ones(3, dtype=torch.complex64).conj(), 3, 3 * 8),
        (lambda: torch.ones(5, dtype=torch.bool), 5, 5),
    ],
)
def test_other_layouts_and_dtypes(make, elements, size):
    found = state_size([{"exp_avg": make()}])
    assert (found.elements, found.bytes) == (elements, size)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_tensors_quantized_by_torch():
    one = torch.quantize_per_tensor(torch.ones(10), 0.1, 0, torch.quint8)  # its scale is a Python number
    each = torch.quantize_per_channel(torch.ones(4, 5), torch.ones(4), torch.zeros(4), 0, torch.qint8)
    size = state_size([{"exp_avg": one}, {"exp_avg": each}, {"exp_avg": each}])
    assert (size.moments, size.metadata) == (10 + 20, 4 + 4)
    scales, zero_points = each.q_per_channel_scales(), each.q_per_channel_zero_points()
    assert size.bytes == 10 + 20 + scales.nbytes + zero_points.nbytes
    assert size.by_key["exp_avg.scale"] == (4, scales.nbytes)


def test_a_parameter_without_a_shape_takes_nothing_yet():
    assert state_size([{"exp_avg": nn.LazyLinear(3).weight}]).by_key == {}


def test_a_freed_storage_holds_nothing():
    # As FSDP does with the full parameters between two uses.
    for tensor in (torch.ones(4), torch.ones(4)[::2]):
        tensor.untyped_storage().resize_(0)
        assert state_size([{"exp_avg": tensor}]).by_key == {"exp_avg": (0, 0)}


def test_slices_of_one_large_buffer():
    # 400 GB, if it were there: neither a copy nor a table of its bytes may be made.
    flat = torch.empty(10**11, device="meta")
    size = state_size([{"exp_avg": flat[i * 10**10 : (i + 1) * 10**10]} for i in (3, 0, 1, 2, 1)])
    assert (size.elements, size.bytes) == (4 * 10**10, 4 * 10**11)
    overlapping = state_size([{"exp_avg": flat[:10]}, {"exp_avg": flat[8:20]}, {"exp_avg": flat[5:15].view(2, 5).T}])
    assert overlapping.elements == 20


def test_spans_and_gaps_in_one_storage():
    flat = torch.zeros(20)
    by_key = state_size([{"a": flat[:4], "b": flat[::2], "c": flat[2:10], "d": flat}]).by_key
    assert [size.elements for size in by_key.values()] == [4, 8, 3, 5]


# --- devices


def test_real_bytes_are_told_from_those_that_are_only_planned():
    size = state_size([{"exp_avg": torch.zeros(3), "exp_avg_sq": torch.zeros(100, device="meta"), "step": 1}])
    assert (size.elements, size.bytes) == (104, 412)
    assert size.by_device == {"cpu": 12, "meta": 400}
    told = "of these 12 bytes on cpu, 400 bytes not in memory (on meta)"
    assert str(size).endswith(told) and told in size._repr_html_()
    assert "of these" not in str(state_size([{"exp_avg": torch.zeros(3)}]))


def test_a_fake_tensor_is_in_no_memory():
    with FakeTensorMode():
        fake = torch.zeros(4)
    assert fake.device.type == "cpu"
    assert state_size([{"exp_avg": fake}]).by_device == {"meta": 16}


def test_sizes_are_equal_wherever_they_are():
    model = nn.Linear(5, 3)
    measured, predicted = state_size(stepped(model.parameters())), predict_state_size(model, "adamw")
    assert measured == predicted
    assert (measured.by_device, predicted.by_device) == ({"cpu": 152}, {"meta": 152})


def test_the_default_device_plays_no_part():
    with torch.device("meta"):
        assert state_size([{"a": torch.zeros(20, device="cpu")[::2]}]).by_key == {"a": (10, 80)}


# --- tensors that several processes share


@pytest.fixture
def one_process():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.fixture
def second_of_four():
    dist.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


def test_a_process_of_its_own_holds_all(one_process):
    weight = nn.Parameter(distribute_tensor(torch.ones(8, 6), one_process, [Shard(0)]))
    optimizer = stepped([weight])
    assert isinstance(optimizer.state[weight]["exp_avg"], DTensor)
    size = state_size(optimizer)
    assert (size.moments, size.scalars, size.bytes) == (2 * 48, 1, 2 * 48 * 4 + 4)


def test_an_optimizer_that_leaves_the_state_to_another_one(one_process):
    layer = nn.Linear(5, 3)
    optimizer = stepped(layer.parameters(), lambda params: ZeroRedundancyOptimizer(params, torch.optim.AdamW))
    assert not optimizer.state
    assert state_size(optimizer) == predict_state_size(layer, "adamw")
    optimizer.consolidate_state_dict()
    optimizer.load_state_dict(optimizer.state_dict())
    assert state_size(optimizer.optim) == predict_state_size(layer, "adamw")


def test_of_a_shared_tensor_the_own_part_counts(one_process):
    # Three of the eight rows are here. The tensor itself claims to be whole.
    shared = DTensor.from_local(torch.ones(3, 6), one_process, [Shard(0)], shape=(8, 6), stride=(6, 1))
    assert (shared.numel(), shared.nbytes) == (48, 192)
    for thing in ([{"exp_avg": shared}], [{"exp_avg": shared}, {"exp_avg": shared}]):
        assert state_size(thing).by_key == {"exp_avg": (18, 72)}


def test_a_quarter_of_every_matrix(second_of_four):
    weight = nn.Parameter(distribute_tensor(torch.ones(8, 6), second_of_four, [Shard(0)]))
    bias = nn.Parameter(distribute_tensor(torch.ones(6), second_of_four, [Replicate()]))
    size = state_size(stepped([weight, bias]))
    assert size.by_key["exp_avg"] == (12 + 6, 4 * (12 + 6))
    assert size.bytes == 2 * 4 * 18 + 2 * 4


@pytest.mark.filterwarnings("ignore:Please use DTensor")
def test_the_older_sharded_tensor(one_process):
    sharded = sharded_zeros(ChunkShardingSpec(dim=0, placements=["rank:0/cpu"]), 8, 6)
    assert state_size([{"exp_avg": sharded}]).by_key == {"exp_avg": (48, 192)}
