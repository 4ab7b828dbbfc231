import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.blockwise import KINDS, dequantize, quantization_map, quantize

bnb = pytest.importorskip("bitsandbytes.functional", reason="bitsandbytes is not installed here")
BNB_MAPS = {"dynamic": bnb.create_dynamic_map, "linear": bnb.create_linear_map}
each_map = pytest.mark.parametrize(("kind", "signed"), [(kind, signed) for kind in KINDS for signed in (True, False)])


def numbers(*shape, signed=True, seed=0):
    """Numbers whose sizes spread over seven powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator) * 10 ** (-6 * torch.rand(shape, generator=generator))
    return x if signed else x.abs()


def general_codes(x, code, block_size):
    """Codes and absmax by bitsandbytes' general code for the CPU, which looks for the nearest of all 256 values.

    It is what the operator does with float64, after a cast to float32.
    """
    return torch.ops.bitsandbytes.quantize_blockwise.default(x.double(), code, block_size)


def scales(q, x):
    """Each number's absmax."""
    return torch.cat([torch.full((q.block_size,), a) for a in q.absmax.tolist()])[: x.numel()].reshape(x.shape)


def assert_equally_near(q, x, codes):
    """The codes are those of ``q``, but where two values of the map are equally near."""
    share = x.double() / scales(q, x)
    mine, theirs = ((q.map[c.int()] - share).abs() for c in (q.codes, codes))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-7)  # a share has 24 bits
    assert (q.codes != codes).float().mean() < 0.01


@each_map
def test_the_map_is_that_of_bitsandbytes(kind, signed):
    mine, theirs = quantization_map(signed, kind), BNB_MAPS[kind](signed)
    assert mine.dtype == torch.float32 and mine.shape == (256,)
    if kind == "dynamic":
        assert torch.equal(mine, theirs)
    else:  # theirs has values 6e-8 off, 4e-9 in place of the second 0 among them
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("signed", "first"), [(True, 64), (False, 128)])
def test_the_dynamic_map_by_hand(signed, first):
    """Dettmers et al. 2021, section 1: each power of ten has half as many values as the one above it."""
    values = quantization_map(signed).double()
    counts = [int(((values >= 10.0**-k) & (values < 10.0 ** (1 - k))).sum()) - (k == 0) for k in range(1, 8)]
    assert counts == [first // 2**k for k in range(7)]
    assert set(values.tolist()) >= {0.0, 1.0}
    # The middles of the steps: one step from .1 to 1 has its middle at .55, two have theirs at .325 and .775.
    lowest = [5.5e-7] if signed else [3.25e-7, 7.75e-7]
    assert values[values > 0][: len(lowest)].tolist() == pytest.approx(lowest)
    assert values.min().item() == pytest.approx(-(1 - 0.9 / 128) if signed else 0.0)


def test_a_block_by_hand():
    q = quantize(torch.tensor([2.0, -2.0, 0.0, 1.2, -0.004, -0.017]), kind="linear")
    # The steps are 127ths of 2. Codes 127 and 128 both stand for 0, 126 for the first step below it.
    assert q.codes.tolist() == [255, 0, 127, 128 + 76, 127, 126]
    assert q.absmax.tolist() == [2.0]
    assert dequantize(q).tolist() == pytest.approx([2.0, -2.0, 0.0, 2 * 76 / 127, 0.0, -2 / 127])
    unsigned = quantize(torch.tensor([0.0, 0.6, 1.0, 0.25]), signed=False, kind="linear")
    assert unsigned.codes.tolist() == [0, 153, 255, 64]  # 255ths: 0.25 is 63.75 of them


@each_map
@pytest.mark.parametrize(
    ("shape", "block_size"),
    [((1,), 256), ((255,), 256), ((256,), 256), ((257,), 256), ((1000,), 64), ((3, 5, 7, 11), 256), ((64, 64), 4096)],
)
def test_codes_and_scales_are_those_of_bitsandbytes(kind, signed, shape, block_size):
    x = numbers(*shape, signed=signed)
    q = quantize(x, block_size, signed, kind)
    codes, absmax = general_codes(x, BNB_MAPS[kind](signed), block_size)
    assert q.codes.shape == x.shape and q.codes.dtype == torch.uint8
    assert torch.equal(q.absmax, absmax)
    if kind == "linear":
        codes = torch.where((codes == 128) & (q.codes == 127), 127, codes)  # both stand for 0
    assert_equally_near(q, x, codes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("signed", [True, False])
def test_every_float_is_computed_with_in_float32_and_given_back_in_its_own_dtype(dtype, signed):
    x = numbers(700, signed=signed).to(dtype)
    q = quantize(x, signed=signed)
    codes, absmax = general_codes(x.float(), bnb.create_dynamic_map(signed), 256)
    assert_equally_near(q, x, codes)
    assert torch.equal(q.absmax, absmax) and q.absmax.dtype == torch.float32
    back = dequantize(q)
    assert back.dtype == dtype
    if dtype != torch.float64:  # which bitsandbytes does not take
        state = bnb.QuantState(absmax=q.absmax, code=q.map, blocksize=256, dtype=dtype)
        theirs = bnb.dequantize_blockwise(q.codes, state)
        one_place = {torch.float16: 2**-10, torch.bfloat16: 2**-7, torch.float32: 0.0}[dtype]
        torch.testing.assert_close(back, theirs, rtol=one_place, atol=1e-7 if dtype == torch.float16 else 0.0)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_quick_code_of_bitsandbytes_for_the_cpu_is_as_near_as_its_table_is_fine(signed, dtype):
    """Version 0.50 looks codes up in a table of 65,536 places from -1 to 1: the share moves by less than a place."""
    x = numbers(5000, signed=signed).to(dtype)
    q = quantize(x, signed=signed)
    code = bnb.create_dynamic_map(signed)
    codes, state = bnb.quantize_blockwise(x, code=code, blocksize=256)
    assert torch.equal(q.absmax, state.absmax)
    share, place = x.float() / scales(q, x), 2 / 65535 * 1.01
    midpoints = (code[:-1] + code[1:]) / 2
    low, high = (torch.bucketize(share + move, midpoints) for move in (-place, place))
    assert bool(((low <= codes) & (codes <= high)).all())
    far = share.abs() > 0.01  # where places are closer together than the map's values
    assert (q.codes == codes)[far].float().mean() > 0.95


@each_map
def test_a_block_of_zeros_stays_one_and_its_neighbours_keep_their_scale(kind, signed):
    x = torch.cat([torch.zeros(256), numbers(256, signed=signed), torch.zeros(3)])
    q = quantize(x, signed=signed, kind=kind)
    assert q.absmax.tolist() == [0.0, x.max().item() if not signed else x.abs().max().item(), 0.0]
    back = dequantize(q)
    assert (q.map[q.codes[:256].int()] == 0).all(), "a zero has a code that stands for 0"
    assert back.isfinite().all() and (back[:256] == 0).all() and (back[512:] == 0).all()
    assert (back[256:512] != 0).any()


@pytest.mark.parametrize(("outlier", "linear"), [(100.0, 0), (300.0, 255), (1e4, 255)])
def test_an_outlier_zeroes_its_neighbours_with_the_linear_map_only(outlier, linear):
    """Half a step of the linear map is outlier / 254: 1 is lost from 254 on. The other block is not touched."""
    x = torch.ones(512)
    x[7] = outlier
    for kind, expected in (("linear", linear), ("dynamic", 0)):
        back = dequantize(quantize(x, kind=kind))
        assert int((back[:256] == 0).sum()) == expected, kind
        assert back[7] == outlier and (back[256:] == 1).all()


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (2, 3, 4), (8, 6, 3, 3)])
def test_shapes_come_back(shape):
    x = numbers(*shape)
    q = quantize(x, block_size=4)
    assert q.codes.shape == dequantize(q).shape == x.shape
    assert len(q.absmax) == math.ceil(x.numel() / 4)
    assert q.nbytes == x.numel() + 4 * len(q.absmax)


def test_blocks_follow_the_order_of_indices_also_where_memory_does_not():
    x = numbers(32, 48).t()
    assert not x.is_contiguous()
    mine, same = quantize(x, 64), quantize(x.contiguous(), 64)
    assert torch.equal(mine.codes, same.codes) and torch.equal(mine.absmax, same.absmax)
    assert torch.equal(dequantize(mine), dequantize(same))


def test_the_tensor_is_left_alone_and_gradients_do_not_matter():
    x = torch.nn.Parameter(numbers(300))
    before = x.detach().clone()
    q = quantize(x)
    assert torch.equal(x, before) and not dequantize(q).requires_grad


@pytest.mark.parametrize("x", [[3, -1, 0], torch.tensor([3, -1, 0]), [3.0, -1.0, 0.0]])
def test_lists_and_whole_numbers_are_read_as_floats(x):
    back = dequantize(quantize(x))
    assert back.dtype == torch.float32
    assert back.tolist() == pytest.approx([3.0, -1.0, 0.0], abs=0.01)


def test_the_smallest_numbers_there_are():
    x = torch.tensor([1e-45, 1e-40, 0.0, 1e-38])  # below 1.2e-38 a float32 has fewer digits
    back = dequantize(quantize(x, block_size=2))
    assert back.isfinite().all() and back[1] == x[1] and back[3] == x[3] and back[2] == 0


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=40),
    st.integers(1, 50),
    st.sampled_from(KINDS),
    st.booleans(),
)
def test_no_number_is_further_off_than_half_the_widest_gap(values, block_size, kind, signed):
    x = torch.tensor(values) if signed else torch.tensor(values).abs()
    q = quantize(x, block_size, signed, kind)
    # Linear: 1/127 or 1/255 apart. Dynamic: .9/64 or .9/128 apart at most, and -1 is .9/128 from the least value.
    half_gap = {("linear", True): 0.5 / 127, ("linear", False): 0.5 / 255, ("dynamic", True): 0.9 / 128}
    allowed = half_gap.get((kind, signed), 0.45 / 128) * scales(q, x)
    assert bool(((dequantize(q) - x).abs() <= allowed * 1.0001 + 1e-44).all())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_numbers_that_are_not_finite_are_refused_with_their_place(bad):
    x = torch.zeros(2, 3, dtype=torch.float64)
    x[1, 1] = bad
    with pytest.raises(ValueError, match=r"Number 4 of x.*(nan|inf) in float32"):
        quantize(x)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"x": torch.tensor([1.0, -1e-30]), "signed": False}, "goes down to -1e-30"),
        ({"x": torch.ones(2), "block_size": 0}, "block_size was 0"),
        ({"x": torch.ones(2), "block_size": -256}, "block_size was -256"),
        ({"x": torch.ones(2), "block_size": 2.5}, "block_size was 2.5"),
        ({"x": torch.ones(2), "block_size": True}, "block_size was True"),
        ({"x": torch.ones(2), "kind": "log"}, "no map 'log'. Known: dynamic, linear"),
        ({"x": torch.ones(2, dtype=torch.complex64)}, "Only real numbers"),
    ],
)
def test_what_cannot_be_quantized_is_refused_in_a_sentence(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        quantize(**arguments)


def test_minus_zero_is_no_negative_number():
    assert dequantize(quantize(torch.tensor([-0.0, 1.0]), signed=False)).tolist() == [0.0, 1.0]
