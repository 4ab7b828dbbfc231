"""The arithmetic of course_lib.adafactor: by hand, against transformers and torch, and on numbers of any size."""

import math

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib import adafactor
from course_lib.adafactor import Adafactor

F64 = torch.float64
# What transformers' Trainer passes for optim="adafactor" (trainer_optimizer.py), at lr 1e-3.
TRAINER = {"lr": 1e-3, "scale_parameter": False, "relative_step": False}
# Neither clipping nor RMS(X): each step is lr times the raw update.
RAW = {**TRAINER, "lr": 1.0, "clip_threshold": math.inf}
SHAPES = [(), (1,), (7,), (5, 9), (9, 2), (1, 6), (6, 1), (1, 1), (2, 3, 4), (8, 6, 3, 3), (8, 6, 7, 3)]


def parameter(values, dtype=F64):
    return torch.nn.Parameter(torch.as_tensor(values, dtype=dtype).clone())


def normal(shape, seed=0):
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def gradients(shape, steps, seed=1):
    """Gradients whose size jumps by a factor of 10 or so from step to step; none below 1e-5."""
    for t in range(steps):
        g = normal(shape, seed * 1000 + t)
        size = 10.0 ** normal((), seed * 1000 + 500 + t)
        yield torch.where(g < 0, -1.0, 1.0).to(F64) * (g.abs() * size).clamp(min=1e-5)


def steps(optimizer, p, grads):
    for g in grads:
        p.grad = g.to(p.dtype).clone()
        optimizer.step()
    return p.detach()


def run(x, grads, optimizer_class=Adafactor, dtype=F64, **options):
    p = parameter(x, dtype)
    optimizer = optimizer_class([p], **options)
    return steps(optimizer, p, grads), optimizer.state[p]


def close(got, expected, rtol=1e-12, atol=1e-12):
    torch.testing.assert_close(got, torch.as_tensor(expected, dtype=got.dtype), rtol=rtol, atol=atol)


@pytest.fixture(autouse=True, scope="module", params=[None, 7, 64], ids=["whole", "blocks of 7", "blocks of 64"])
def way(request):
    """All that follows holds for tensors taken as a whole, and for matrices walked in blocks, however small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adafactor.Adafactor, "block_size", request.param)
        if request.param:
            patch.setattr(adafactor, "SMALL", 0)
        yield request.param


# --- by hand ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0.9787867966, 1.97], [2.9715395011, 3.9731671843]]),
        (TRAINER, [[0.9992254033, 1.9989045549], [2.9989607695, 3.9990202041]]),
    ],
)
def test_the_two_by_two_step_by_hand(options, expected):
    got, state = run([[1, 2], [3, 4]], [torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=F64)], **options)
    close(got, expected, atol=5e-11)
    close(state["exp_avg_sq_row"], [0.05 / 2, 0.25 / 2])
    close(state["exp_avg_sq_col"], [0.10 / 2, 0.20 / 2])


def test_the_update_of_the_two_by_two_example():
    got, _ = run(torch.zeros(2, 2), [torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=F64)], **RAW)
    close(-got, [[0.774597, 1.095445], [1.039230, 0.979796]], atol=5e-7)
    assert got.square().mean().sqrt().item() == pytest.approx(0.979796, abs=5e-7)


def test_a_vector_by_hand_over_two_steps():
    """Algorithm 5: V = G^2 first, then with beta2(2) = 1 - 2^-0.8; the second update has RMS above 1 and is clipped."""
    g1, g2 = torch.tensor([1.0, -2.0], dtype=F64), torch.tensor([3.0, 2.0], dtype=F64)
    w = 2**-0.8
    v = (1 - w) * g1**2 + w * g2**2
    u = g2 / v.sqrt()
    rms = math.sqrt((u[0] ** 2 + u[1] ** 2) / 2)
    assert rms > 1.1
    got, state = run([0.0, 0.0], [g1, g2], **{**TRAINER, "lr": 0.5})
    close(got, -0.5 * torch.tensor([1.0, -1.0]) - 0.5 * u / rms)
    close(state["exp_avg_sq"], v)
    assert state["step"].item() == 2


def test_clipping_slows_the_innocent():
    """The worst case for the product: an exact V would give 1 in both corners."""
    g = torch.diag(torch.tensor([1.0, 1e-3], dtype=F64))
    raw, _ = run(torch.zeros(2, 2), [g], **RAW)
    close(-raw, torch.diag(torch.tensor([1.0000005, 1000.0005], dtype=F64)), rtol=1e-9)
    clipped, _ = run(torch.zeros(2, 2), [g], **{**RAW, "clip_threshold": 1.0})
    close(-clipped, torch.diag(torch.tensor([0.002, 2.0])), rtol=1e-5)
    assert clipped.square().mean().sqrt().item() == pytest.approx(1)
    half, _ = run(torch.zeros(2, 2), [g], **{**RAW, "clip_threshold": 0.5})
    close(half, clipped / 2)


@pytest.mark.parametrize(
    ("options", "t", "step"),
    [
        ({}, 1, 0.01),
        ({}, 10_000, 0.01),
        ({}, 40_000, 0.005),
        ({"warmup_init": True}, 1, 1e-6),
        ({"warmup_init": True}, 3_000, 0.003),
        ({"warmup_init": True}, 40_000, 0.005),
    ],
)
def test_the_relative_step_size(options, t, step):
    """min(1e-2, 1/sqrt(t)), times RMS(X): a single entry of 8 whose gradient is always 1 moves by just that."""
    p = parameter([8.0])
    optimizer = Adafactor([p], **options)
    steps(optimizer, p, [torch.ones(1)])
    optimizer.state[p]["step"].fill_(t - 1)
    with torch.no_grad():
        p.fill_(8.0)
    assert 8 - steps(optimizer, p, [torch.ones(1)]).item() == pytest.approx(8 * step)


def test_which_eps_is_which():
    """eps[0] is added to the squared gradient; eps[1] is the floor under RMS(X)."""
    got, state = run([0.0, 0.0], [torch.tensor([3.0, 4.0])], eps=(7.0, 0.5))
    close(state["exp_avg_sq"], [16.0, 23.0])
    close(got, -0.01 * 0.5 * torch.tensor([3 / 4, 4 / math.sqrt(23)], dtype=F64))
    got, _ = run([3.0, 4.0], [torch.tensor([3.0, 4.0])], eps=(7.0, 0.5))  # RMS(X) = 3.54 is above the floor
    close(got, torch.tensor([3.0, 4.0]) - 0.01 * math.sqrt(12.5) * torch.tensor([3 / 4, 4 / math.sqrt(23)], dtype=F64))


# --- against transformers and torch ---

OPTIONS = {
    "lr=None": {},
    "trainer": TRAINER,
    "lr, scaled": {"lr": 3e-2, "relative_step": False},
    "warmup": {"warmup_init": True},
    "relative, not scaled": {"scale_parameter": False},
    "trainer, decay": {**TRAINER, "weight_decay": 0.3},
    "lr, scaled, decay": {"lr": 3e-2, "relative_step": False, "weight_decay": 0.3},
    "relative, decay": {"weight_decay": 0.3},
    "other constants": {"eps": (1e-2, 2.0), "clip_threshold": 0.7, "decay_rate": -0.5},
    "no clipping": {**TRAINER, "clip_threshold": math.inf},
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_transformers(options, shape):
    x, grads = normal(shape), list(gradients(shape, 6))
    got, state = run(x, grads, **options)
    expected, theirs = run(x, grads, transformers.optimization.Adafactor, **options)
    close(got, expected)
    for key in state.keys() - {"step"}:
        close(state[key], theirs[key], atol=0)
    assert state["step"].item() == theirs["step"] == 6
    assert not torch.equal(got, x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {"lr": 1e-2}),
        ({"lr": 3e-3, "relative_step": False}, {"lr": 3e-3}),
        ({"clip_threshold": 1.5, "decay_rate": -0.5, "eps": (1e-30, 2.0)},
         {"lr": 1e-2, "d": 1.5, "beta2_decay": -0.5, "eps": (None, 2.0)}),
    ],
    ids=["lr=None", "lr, scaled", "other constants"],
)  # fmt: skip
def test_equals_torch_where_the_definitions_agree(ours, theirs, foreach, shape):
    x, grads = normal(shape), list(gradients(shape, 6))
    got, state = run(x, grads, **ours)
    expected, reference = run(x, grads, torch.optim.Adafactor, foreach=foreach, **theirs)
    close(got, expected)
    for key, other in ("exp_avg_sq_row", "row_var"), ("exp_avg_sq_col", "col_var"), ("exp_avg_sq", "variance"):
        if key in state:
            close(state[key], reference[other].reshape(state[key].shape), atol=0)


@pytest.mark.parametrize("shape", [(), (7,), (5, 9), (2, 3, 4)], ids=str)
def test_weight_decay_equals_torch_once_the_rate_is_converted(shape):
    """torch takes off lr x decay x X, we (and transformers) step size x decay x X, where the step size holds RMS(X)."""
    x = normal(shape)
    ours, theirs = parameter(x), parameter(x)
    optimizer = Adafactor([ours])
    reference = torch.optim.Adafactor([theirs], lr=1e-2, weight_decay=0.3)
    for g in gradients(shape, 6):
        optimizer.param_groups[0]["weight_decay"] = 0.3 / ours.detach().square().mean().sqrt().item()
        close(steps(optimizer, ours, [g]), steps(reference, theirs, [g]))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_equals_transformers_in_float32_up_to_rounding(options):
    for shape in SHAPES:
        x, grads = normal(shape), list(gradients(shape, 6))
        got, state = run(x, grads, dtype=torch.float32, **options)
        expected, theirs = run(x, grads, transformers.optimization.Adafactor, dtype=torch.float32, **options)
        close(got, expected, rtol=1e-6, atol=1e-6)
        for key in state.keys() - {"step"}:
            close(state[key], theirs[key], rtol=2e-6, atol=0)


# --- shapes ---


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((), {"exp_avg_sq": ()}),
        ((7,), {"exp_avg_sq": (7,)}),
        ((5, 9), {"exp_avg_sq_row": (5,), "exp_avg_sq_col": (9,)}),
        ((1, 6), {"exp_avg_sq_row": (1,), "exp_avg_sq_col": (6,)}),
        ((6, 1), {"exp_avg_sq_row": (6,), "exp_avg_sq_col": (1,)}),
        ((2, 3, 4), {"exp_avg_sq_row": (2, 3), "exp_avg_sq_col": (2, 4)}),
        ((8, 6, 3, 3), {"exp_avg_sq_row": (8, 6, 3), "exp_avg_sq_col": (8, 6, 3)}),
        ((8, 6, 7, 3), {"exp_avg_sq_row": (8, 6, 7), "exp_avg_sq_col": (8, 6, 3)}),
        ((64, 32, 1, 1), {"exp_avg_sq_row": (64, 32, 1), "exp_avg_sq_col": (64, 32, 1)}),
    ],
)
def test_the_state_is_that_of_the_design_and_nothing_else(shape, expected):
    _, state = run(normal(shape), gradients(shape, 2))
    assert {key: tuple(value.shape) for key, value in state.items()} == {"step": (), **expected}


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 1, 5), (2, 2, 4, 3)], ids=str)
def test_leading_axes_hold_separate_matrices_each_with_its_own_denominator(shape):
    """With a given rate, no clipping and no RMS(X), the three things that look at the whole tensor are gone."""
    size = torch.logspace(-3, 3, shape[0], dtype=F64).reshape(-1, *[1] * (len(shape) - 1))
    x, grads = normal(shape), [g * size for g in gradients(shape, 5)]
    options = {**RAW, "weight_decay": 0.01}
    got, state = run(x, grads, **options)
    matrix = shape[-2:]
    for i, part in enumerate(x.reshape(-1, *matrix)):
        expected, one = run(part, [g.reshape(-1, *matrix)[i] for g in grads], **options)
        close(got.reshape(-1, *matrix)[i], expected)
        for key in ("exp_avg_sq_row", "exp_avg_sq_col"):
            close(state[key].flatten(0, -2)[i], one[key], atol=0)


def test_leading_axes_share_one_clipping_and_one_rms():
    x, grads = normal((2, 3, 4)), list(gradients((2, 3, 4), 1))
    alone, _ = run(x[0], [g[0] for g in grads])
    together, _ = run(x, grads)
    assert (together[0] - alone).abs().max() > 1e-4


@pytest.mark.parametrize("shape", [(1, 6), (6, 1)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_matrix_of_one_row_or_column_moves_like_a_vector(options, shape):
    """R C / mean(R) is then V itself. (Up to eps[0], which is added once in each.)"""
    x, grads = normal(6), list(gradients((6,), 5))
    vector, _ = run(x, grads, **options)
    matrix, _ = run(x.reshape(shape), [g.reshape(shape) for g in grads], **options)
    close(matrix.flatten(), vector)


@pytest.mark.parametrize("shape", [(5, 9), (9, 2), (1, 6), (2, 3, 4), (8, 6, 7, 3)], ids=str)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_transposing_a_matrix_transposes_its_update(options, shape):
    x, grads = normal(shape), list(gradients(shape, 5))
    got, state = run(x.mT, [g.mT for g in grads], **options)
    expected, straight = run(x, grads, **options)
    close(got.mT, expected)
    close(state["exp_avg_sq_row"], straight["exp_avg_sq_col"], atol=0)


@pytest.mark.parametrize("shape", [(7,), (5, 9), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("factor", [-1.0, 1e-9, 1e9])
def test_the_unit_of_the_loss_does_not_matter(shape, factor):
    x, grads = normal(shape), list(gradients(shape, 5))
    got, _ = run(x, [factor * g for g in grads])
    expected, _ = run(x, [math.copysign(1, factor) * g for g in grads])
    close(got, expected)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("options", [{}, TRAINER])
def test_empty_parameters_are_no_trouble(options, shape):
    full = parameter(normal((3, 2)))
    alone, _ = run(full, gradients((3, 2), 2), **options)
    empty = parameter(torch.zeros(shape))
    optimizer = Adafactor([empty, full], **options)
    for g in gradients((3, 2), 2):
        empty.grad = torch.zeros(shape, dtype=F64)
        steps(optimizer, full, [g])
    assert torch.equal(full, alone) and empty.shape == shape
    assert all(value.isfinite().all() for value in optimizer.state[empty].values())


# --- magnitudes and dtypes ---


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float32, 1e-8), (torch.float32, 1e-14), (torch.bfloat16, 1e-4), (torch.bfloat16, 1e-10),
     (torch.float16, 1e-4), (torch.float32, 1e8), (torch.bfloat16, 1e15)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(50,), (20, 30), (4, 5, 6)], ids=str)
def test_gradients_of_any_size_move_parameters_by_about_the_step_size(shape, dtype, size):
    """From zero, so that no rounding of a large weight hides the step. torch's eps, 7.8e-3 in bfloat16, swallows it."""
    got, _ = run(torch.zeros(shape), [normal(shape) * size], dtype=dtype, lr=1e-2, scale_parameter=False,
                 relative_step=False)  # fmt: skip
    assert 0.5e-2 < got.double().square().mean().sqrt() < 1.01e-2
    assert got.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, TRAINER, {"weight_decay": 0.1}])
def test_rows_and_gradients_of_zeros_stay_finite(options, dtype):
    """As embeddings have: rows of tokens that were not in the batch. Their row mean is eps[0]."""
    g = normal((4, 3))
    g[1] = 0
    g[:, 2] = 0
    x = normal((4, 3)) / 50  # small, so that a step of 1e-3 is not lost in bfloat16
    for grads in ([g] * 3, [g, 0 * g, g], [0 * g, 0 * g, g]):
        got, state = run(x, grads, dtype=dtype, **options)
        assert got.isfinite().all() and all(value.isfinite().all() for value in state.values())
        close(state["exp_avg_sq_row"][1], 1e-30, rtol=1e-6, atol=0)
        if "weight_decay" not in options:
            assert torch.equal(got[1], x[1].to(dtype)) and (got[0, :2] != x[0, :2].to(dtype)).all()


def test_a_row_and_a_column_of_zeros_beside_huge_gradients():
    """There the factors of row and column are huge, too: their product overflows in float32."""
    g = normal((4, 3)) * 1e15
    g[1] = 0
    g[:, 2] = 0
    x = normal((4, 3))
    got, _ = run(x, [g, g], dtype=torch.float32, **TRAINER)
    exact, _ = run(x, [g, g], **TRAINER)
    close(got, exact, rtol=1e-5, atol=0)
    assert torch.equal(got[1], x[1].float()) and torch.equal(got[:, 2], x[:, 2].float())


ENTRY = st.just(0.0) | st.floats(1e-20, 1e15).map(lambda x: float(torch.tensor(x, dtype=torch.float32)))
ENTRIES = st.builds(lambda magnitude, sign: sign * magnitude, ENTRY, st.sampled_from([-1.0, 1.0]))


@settings(deadline=None, max_examples=150, derandomize=True)
@given(st.data(), st.sampled_from([(), (3,), (1, 4), (3, 3), (4, 2), (2, 2, 3)]))
def test_wild_gradients_never_give_more_than_the_clipped_step(data, shape):
    size = math.prod(shape)
    tensors = st.lists(ENTRIES, min_size=size, max_size=size).map(lambda xs: torch.tensor(xs).reshape(shape))
    p = parameter(torch.zeros(shape), torch.float32)
    optimizer = Adafactor([p], lr=0.1, scale_parameter=False, relative_step=False)
    for g in data.draw(st.lists(tensors, min_size=1, max_size=4)):
        before = p.detach().clone()
        after = steps(optimizer, p, [g])
        assert after.isfinite().all() and all(value.isfinite().all() for value in optimizer.state[p].values())
        assert (after - before).square().mean().sqrt() <= 0.1 * 1.00001
        assert (after - before)[g == 0].abs().max() == 0 if (g == 0).any() else True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("options", [{}, {**TRAINER, "lr": 0.1, "weight_decay": 0.1}], ids=["lr=None", "trainer"])
def test_half_precision_parameters_are_float32_arithmetic_rounded_at_the_end(options, shape, dtype):
    low, high = parameter(normal(shape), dtype), parameter(normal(shape).to(dtype), torch.float32)
    optimizer, reference = Adafactor([low], **options), Adafactor([high], **options)
    for g in gradients(shape, 5):
        g = (g * 1e-3).to(dtype)
        steps(optimizer, low, [g])
        rounded = steps(reference, high, [g]).to(dtype)
        assert torch.equal(low, rounded)
        with torch.no_grad():
            high.copy_(rounded)
        for key, value in optimizer.state[low].items():
            assert value.dtype == torch.float32
            assert torch.equal(value, reference.state[high][key])


def test_the_squares_of_small_half_precision_gradients_do_not_underflow():
    """transformers#10830: in float16 the square of 1e-5 is 0, and a mean of squares of 300 is infinite."""
    for size in (1e-5, 300.0):
        _, state = run(torch.ones(3, 2), [torch.full((3, 2), size)], dtype=torch.float16)
        close(state["exp_avg_sq_row"].double(), [size**2] * 3, rtol=2e-2, atol=0)


def test_one_nan_takes_the_whole_parameter_where_adamw_loses_one_entry():
    def poisoned(optimizer_class, shape, **options):
        p, other = parameter(normal(shape)), parameter(normal(shape))
        optimizer = optimizer_class([p, other], **options)
        bad = normal(shape)
        bad.view(-1)[1] = math.nan
        for g in (normal(shape, 2), bad, normal(shape, 3)):
            other.grad = normal(shape)
            steps(optimizer, p, [g])
        assert other.isfinite().all()
        return p, optimizer.state[p]

    p, state = poisoned(Adafactor, (3, 4))
    assert p.isnan().all()
    assert state["exp_avg_sq_row"].isnan().tolist() == [True, False, False]
    assert state["exp_avg_sq_col"].isnan().tolist() == [False, True, False, False]
    p, state = poisoned(Adafactor, (5,), **TRAINER)
    assert p.isnan().all() and state["exp_avg_sq"].isnan().sum() == 1
    for shape in ((3, 4), (5,)):
        assert poisoned(torch.optim.AdamW, shape, lr=1e-3)[0].isnan().sum() == 1
