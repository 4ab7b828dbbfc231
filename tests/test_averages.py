import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.averages import adafactor_beta2, effective_window, ema

F64 = torch.float64
DECAYS = st.floats(0, 0.999)
SERIES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


def weights_by_age(length: int, beta: float) -> np.ndarray:
    """[t, i]: what value i weighs in the average at t, (1 - beta) beta^(t - i), written out without a recursion."""
    age = np.arange(length)[:, None] - np.arange(length)
    return np.where(age >= 0, (1 - beta) * np.float64(beta) ** np.maximum(age, 0), 0.0)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(SERIES, DECAYS)
def test_ema_is_the_weighted_sum_with_weights_by_age(values, beta):
    expected = weights_by_age(len(values), beta) @ np.array(values)
    got = ema(torch.tensor(values, dtype=F64), beta)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-9)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(SERIES, DECAYS)
def test_corrected_ema_is_the_weighted_mean(values, beta):
    weights = weights_by_age(len(values), beta)
    expected = (weights @ np.array(values)) / weights.sum(axis=1)
    got = ema(torch.tensor(values, dtype=F64), beta, bias_correction=True)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize(
    ("values", "plain", "corrected"),
    [
        ([1.0, 0.0], [0.1, 0.09], [1.0, 0.09 / 0.19]),
        ([0.0, 1.0], [0.0, 0.1], [0.0, 0.1 / 0.19]),
        ([2.0, 2.0, 2.0], [0.2, 0.38, 0.542], [2.0, 2.0, 2.0]),
    ],
)
def test_ema_by_hand(values, plain, corrected):
    values = torch.tensor(values, dtype=F64)
    torch.testing.assert_close(ema(values, 0.9), torch.tensor(plain, dtype=F64))
    torch.testing.assert_close(ema(values, 0.9, bias_correction=True), torch.tensor(corrected, dtype=F64))


def test_average_of_a_constant_one_starts_far_too_low():
    ones = torch.ones(10, dtype=F64)
    assert ema(ones, 0.99)[9].item() == pytest.approx(1 - 0.99**10) == pytest.approx(0.0956, abs=5e-5)
    assert ema(ones, 0.99, bias_correction=True)[9].item() == pytest.approx(1.0, abs=1e-14)


def test_ema_matches_adams_own_average():
    """The first moment of torch's Adam, fed the same gradients, is this average, entry by entry."""
    gradients = torch.randn(6, 3, 4, dtype=F64)
    p = torch.nn.Parameter(torch.zeros(3, 4, dtype=F64))
    adam = torch.optim.Adam([p], betas=(0.8, 0.95))
    for t, gradient in enumerate(gradients):
        p.grad = gradient.clone()
        adam.step()
        torch.testing.assert_close(ema(gradients, 0.8)[t], adam.state[p]["exp_avg"])
        torch.testing.assert_close(ema(gradients.square(), 0.95)[t], adam.state[p]["exp_avg_sq"])


def test_beta_zero_returns_the_values_themselves():
    values = torch.randn(4, 2)
    assert torch.equal(ema(values, 0), values)
    assert torch.equal(ema(values, 0, bias_correction=True), values)


def test_ema_leaves_its_input_alone_and_returns_a_new_tensor():
    values = torch.randn(5, 2)
    before = values.clone()
    for beta in (0.0, 0.9):
        ema(values, beta).add_(1)
        assert torch.equal(values, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ema_keeps_the_dtype_and_does_not_stall_in_half_precision(dtype):
    got = ema(torch.ones(2000, dtype=dtype), 0.999)
    assert got.dtype == dtype
    # In bfloat16 arithmetic it would stop at 0.5, where adding 0.001 x 0.5 rounds to nothing.
    assert got[-1].item() == pytest.approx(1 - 0.999**2000, rel=0.005)


@pytest.mark.parametrize("values", [torch.tensor([[4, 2], [0, 6]]), [[4, 2], [0, 6]], np.array([[4, 2], [0, 6]])])
def test_whole_numbers_are_averaged_as_floats(values):
    got = ema(values, 0.5)
    assert got.dtype == torch.float32
    assert got.tolist() == [[2.0, 1.0], [1.0, 3.5]]


def test_ema_of_nothing_and_of_a_strided_view():
    assert ema(torch.zeros(0, 3), 0.9).shape == (0, 3)
    values = torch.randn(4, 6, dtype=F64)
    torch.testing.assert_close(ema(values.t(), 0.7), ema(values.t().contiguous(), 0.7))


def test_gradients_flow_through_ema_by_its_weights():
    values = torch.zeros(4, requires_grad=True)
    ema(values, 0.5)[-1].backward()
    assert values.grad.tolist() == [0.0625, 0.125, 0.25, 0.5]


@pytest.mark.parametrize("beta", [-0.1, 1, 1.0, 1.5, float("nan")])
def test_decays_outside_zero_to_one_are_refused(beta):
    with pytest.raises(ValueError, match=r"at least 0 and below 1"):
        ema(torch.ones(3), beta)
    with pytest.raises(ValueError, match=r"at least 0 and below 1"):
        effective_window(beta)


def test_a_single_number_has_no_axis_to_average_along():
    with pytest.raises(ValueError, match="at least one axis"):
        ema(torch.tensor(3.0), 0.9)


@pytest.mark.parametrize(("beta", "window"), [(0, 1), (0.5, 2), (0.9, 10), (0.999, 1000)])
def test_effective_window_is_the_mean_age_of_the_weights(beta, window):
    assert effective_window(beta) == pytest.approx(window)
    ages = np.arange(1, 50_000)  # counted from 1
    assert ((1 - beta) * np.float64(beta) ** (ages - 1) * ages).sum() == pytest.approx(window)


def test_adafactor_beta2_by_hand():
    assert adafactor_beta2(1) == 0
    assert adafactor_beta2(2) == pytest.approx(1 - 2**-0.8) == pytest.approx(0.42565, abs=5e-6)
    assert adafactor_beta2(32) == pytest.approx(1 - 1 / 16)
    assert adafactor_beta2(4, decay_rate=-0.5) == pytest.approx(0.5)
    assert adafactor_beta2(7, decay_rate=0) == 0


def test_beta2_passes_999_at_step_5624():
    assert next(t for t in range(1, 10_000) if adafactor_beta2(t) > 0.999) == 5624


@pytest.mark.parametrize("decay_rate", [-0.8, -1, -1.0])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_beta2_of_a_tensor_of_steps(dtype, decay_rate):
    steps = torch.tensor([[1, 2, 3], [10, 100, 1000]], dtype=dtype)
    got = adafactor_beta2(steps, decay_rate)
    assert got.shape == steps.shape
    expected = torch.tensor([[adafactor_beta2(t, decay_rate) for t in row] for row in steps.tolist()], dtype=got.dtype)
    torch.testing.assert_close(got, expected)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(SERIES, st.floats(-2, 0))
def test_an_average_with_beta2_needs_no_bias_correction(values, decay_rate):
    """Its weights add up to 1 at every step, and with exponent -1 they are those of the plain mean."""
    total, average = 0.0, 0.0
    for t, value in enumerate(values, start=1):
        beta2 = adafactor_beta2(t, decay_rate)
        total = beta2 * total + (1 - beta2)
        beta2 = adafactor_beta2(t, -1)
        average = beta2 * average + (1 - beta2) * value
    assert total == pytest.approx(1, abs=1e-12)
    assert average == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("t", [0, 0.5, -3, float("nan"), torch.tensor([1, 0, 2])])
def test_steps_below_one_are_refused(t):
    with pytest.raises(ValueError, match="counted from 1"):
        adafactor_beta2(t)


@pytest.mark.parametrize("decay_rate", [0.8, float("nan")])
def test_an_exponent_of_the_wrong_sign_is_refused(decay_rate):
    with pytest.raises(ValueError, match=r"decay_rate .* at most 0"):
        adafactor_beta2(2, decay_rate)
