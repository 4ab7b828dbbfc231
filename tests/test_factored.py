import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.averages import ema
from course_lib.factored import i_divergence, reconstruct, relative_error, row_col_means

F64 = torch.float64
EXAMPLE = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=F64)
quick = settings(deadline=None, max_examples=80, derandomize=True)


@st.composite
def matrices(draw, low=0.0, high=1e6):
    """Non-negative matrices of 1 to 5 rows and columns, zeros among them."""
    n, m = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    entry = st.just(0.0) | st.floats(max(low, 1e-6), high)
    return torch.tensor(draw(st.lists(st.lists(entry, min_size=m, max_size=m), min_size=n, max_size=n)), dtype=F64)


def product(v):
    return reconstruct(*row_col_means(v))


def close(got, expected, rtol=1e-12, atol=0.0):
    torch.testing.assert_close(got, torch.as_tensor(expected, dtype=got.dtype), rtol=rtol, atol=atol)


def test_the_example_by_hand():
    row, col = row_col_means(EXAMPLE)
    assert row.tolist() == [1.5, 3.5] and col.tolist() == [2.0, 3.0]
    approx = product(EXAMPLE)
    close(approx, [[1.2, 1.8], [2.8, 4.2]])
    close(torch.linalg.vector_norm(EXAMPLE - approx), 0.4)
    close(i_divergence(EXAMPLE, approx), 0.0402174323, rtol=1e-8)
    close(relative_error(EXAMPLE, approx), 0.4 / math.sqrt(30))
    assert relative_error(EXAMPLE, approx).item() == pytest.approx(0.073, abs=5e-4)


def test_singular_values_come_closer_in_the_norm_and_less_close_in_divergence():
    u, s, vh = torch.linalg.svd(EXAMPLE)
    best = s[0] * torch.outer(u[:, 0], vh[0])
    close(torch.linalg.vector_norm(EXAMPLE - best), 0.3659661906, rtol=1e-9)
    close(i_divergence(EXAMPLE, best), 0.0450882106, rtol=1e-8)


@pytest.mark.parametrize("make", [lambda v: v, lambda v: v.tolist(), lambda v: v.to(torch.int64)])
def test_lists_and_whole_numbers_are_read_as_floats(make):
    v = make(EXAMPLE)
    approx = product(v)
    assert approx.is_floating_point()
    close(approx, [[1.2, 1.8], [2.8, 4.2]], rtol=1e-6)
    close(i_divergence(v, approx), 0.0402174323, rtol=1e-4)
    close(relative_error(v, approx), 0.4 / math.sqrt(30), rtol=1e-6)
    # Whole-number means, as in a worked example.
    close(reconstruct([3, 9], [4, 8]), [[2.0, 4.0], [6.0, 12.0]], rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype):
    v = torch.rand(4, 3).to(dtype)
    assert {x.dtype for x in (*row_col_means(v), product(v))} == {dtype}


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1), (2, 3, 4), (8, 6, 3, 3), (8, 6, 7, 3)])
def test_leading_axes_are_a_batch_of_separate_matrices(shape):
    v = torch.rand(shape, dtype=F64) * torch.logspace(-6, 6, shape[0], dtype=F64).reshape(-1, *[1] * (len(shape) - 1))
    row, col = row_col_means(v)
    assert row.shape == shape[:-1] and col.shape == (*shape[:-2], shape[-1])
    got = product(v)
    for one, approx in zip(v.reshape(-1, *shape[-2:]), got.reshape(-1, *shape[-2:]), strict=True):
        close(approx, torch.outer(one.sum(1), one.sum(0)) / one.sum())
    each = [i_divergence(one, product(one)) for one in v.reshape(-1, *shape[-2:])]
    close(i_divergence(v, got), torch.stack(each).sum(), rtol=1e-9, atol=1e-9)


@quick
@given(matrices())
def test_it_is_the_sums_of_the_paper_over_their_total(v):
    """Shazeer & Stern 2018, section 3, keep sums and divide the outer product by the grand total."""
    if v.sum() > 0:
        close(product(v), torch.outer(v.sum(dim=1), v.sum(dim=0)) / v.sum(), atol=1e-300)


@quick
@given(matrices())
def test_row_and_column_sums_are_kept(v):
    approx = product(v)
    close(approx.sum(dim=0), v.sum(dim=0), rtol=1e-10)
    close(approx.sum(dim=1), v.sum(dim=1), rtol=1e-10)


@quick
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5), st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_a_rank_one_matrix_comes_back_exactly(a, b):
    v = torch.outer(torch.tensor(a, dtype=F64), torch.tensor(b, dtype=F64))
    close(product(v), v)
    assert relative_error(v, product(v)) < 1e-12
    assert 0 <= i_divergence(v, product(v)) < 1e-9 * v.sum()


@quick
@given(matrices(), st.integers(-90, 60))
def test_the_unit_of_the_matrix_does_not_matter(v, power):
    scale = 2.0**power
    close(product(scale * v), scale * product(v))
    close(relative_error(scale * v, product(scale * v)), relative_error(v, product(v)), rtol=1e-9)
    close(
        i_divergence(scale * v, product(scale * v)),
        scale * i_divergence(v, product(v)),
        rtol=1e-6,
        atol=1e-10 * scale * v.sum().item(),
    )


def test_float32_second_moments_of_tiny_gradients_do_not_underflow():
    v = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    tiny = v * 2.0**-100  # about 1e-30: entries like this are usual, and their squares are 0 in float32
    close(product(tiny), product(v) * 2.0**-100, rtol=1e-6)
    close(relative_error(tiny, product(tiny)), relative_error(v, product(v)), rtol=1e-5)
    assert relative_error(v, product(v)) > 0.1


def test_transposing_the_matrix_transposes_the_product():
    v = torch.rand(4, 7, dtype=F64)
    close(product(v.t()), product(v).t())


def test_means_commute_with_the_moving_average_and_the_product_does_not():
    """What makes it possible to average R and C without ever having V."""
    v = torch.rand(6, 3, 4, dtype=F64, generator=torch.Generator().manual_seed(0))
    row, col = row_col_means(v)
    row_of_average, col_of_average = row_col_means(ema(v, 0.9))
    close(ema(row, 0.9), row_of_average)
    close(ema(col, 0.9), col_of_average)
    assert (ema(product(v), 0.9) - product(ema(v, 0.9))).abs().max() > 0.01


def test_zeros_give_zeros():
    v = torch.zeros(2, 3, 4)
    v[1] = torch.rand(3, 4)
    v[1, 2] = 0
    approx = product(v)
    assert (
        approx.isfinite().all() and (approx[0] == 0).all() and (approx[1, 2] == 0).all() and (approx[1, :2] > 0).all()
    )
    zero = torch.zeros(2, 3)
    assert i_divergence(zero, zero) == 0 and relative_error(zero, zero) == 0 and relative_error(zero, zero + 1) == 0


@quick
@given(matrices())
def test_divergence_is_total_times_mutual_information(v):
    """S x (H(rows) + H(columns) - H(entries)) of V/S, so at least 0 and at most S log min(n, m)."""
    total = v.sum()
    if total > 0:
        rows, columns, entries = (torch.special.entr(x / total).sum() for x in (v.sum(dim=1), v.sum(dim=0), v))
        got = i_divergence(v, product(v))
        close(got, total * (rows + columns - entries), rtol=1e-8, atol=1e-9 * total.item())
        assert 0 <= got <= total * math.log(min(v.shape)) + 1e-9 * total


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_identity_is_the_worst_matrix(n):
    v = 3.0 * torch.eye(n, dtype=F64)
    close(i_divergence(v, product(v)), 3 * n * math.log(n), atol=1e-12)


@quick
@given(matrices(), st.data())
def test_no_other_rank_one_matrix_has_a_smaller_divergence(v, data):
    """D(V‖rc) = D(V‖RC/S) + D(RC/S‖rc): the second term is what any competitor loses."""
    positive = st.floats(1e-3, 1e3)
    r = torch.tensor(data.draw(st.lists(positive, min_size=len(v), max_size=len(v))), dtype=F64)
    c = torch.tensor(data.draw(st.lists(positive, min_size=v.shape[1], max_size=v.shape[1])), dtype=F64)
    rival, best = torch.outer(r, c), product(v)
    size = (v.sum() + rival.sum()).item()
    close(i_divergence(v, rival), i_divergence(v, best) + i_divergence(best, rival), rtol=1e-9, atol=1e-9 * size)
    assert i_divergence(v, best) <= i_divergence(v, rival) + 1e-12 * size


@quick
@given(matrices(), st.floats(1.01, 5))
def test_divergence_of_anything_else_is_positive(v, factor):
    """Between V and a multiple of V it is S (factor - 1 - log factor), by the definition."""
    close(i_divergence(v, factor * v), v.sum() * (factor - 1 - math.log(factor)), rtol=1e-8, atol=1e-12)


def test_divergence_is_infinite_where_the_approximation_rules_out_what_is_there():
    assert i_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])) == math.inf
    assert i_divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.5]])) == 0.5


def test_relative_error_takes_approximations_that_go_negative():
    """Row mean + column mean - grand mean gives -.25 on this one."""
    v = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    additive = torch.tensor([[0.75, 0.25], [0.25, -0.25]])
    assert relative_error(v, additive).item() == pytest.approx(0.5)


def test_nan_is_not_hidden():
    v = torch.tensor([[1.0, math.nan], [3.0, 4.0]])
    assert product(v).isnan().any() and i_divergence(v, v).isnan() and relative_error(v, v).isnan()


@pytest.mark.parametrize("v", [torch.tensor(1.0), torch.ones(3), [1, 2, 3]])
def test_fewer_than_two_axes_are_refused(v):
    with pytest.raises(ValueError, match="at least two axes"):
        row_col_means(v)


@pytest.mark.parametrize("v", [torch.tensor([[1.0, -1e-30]]), torch.tensor([[1, -1]]), [[1.0, -2.0]]])
def test_negative_entries_are_refused(v):
    good = torch.ones(1, 2)
    for call in (lambda: row_col_means(v), lambda: i_divergence(v, good), lambda: i_divergence(good, v)):
        with pytest.raises(ValueError, match="negative"):
            call()
