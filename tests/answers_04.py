"""Answers to exercise 04."""

import math

import numpy as np
import torch
from answers import right, wrong

# Means


@wrong("row_col_means", "sums")
def _(v):
    return v.sum(dim=-1), v.sum(dim=-2)


@wrong("row_col_means", "sums", note="by einsum")
def _(v):
    return torch.einsum("...ij->...i", v), torch.einsum("...ij->...j", v)


@wrong("row_col_means", "axes_swapped")
def _(v):
    row, col = v.mean(-1), v.mean(-2)
    return col, row


@wrong("row_col_means", "axes_swapped", note="row means from axis 0")
def _(v):
    return np.asarray(v).mean(axis=0), np.asarray(v).mean(axis=1)


@wrong("row_col_means", "flattened")
def _(v):
    return v.mean(), v.mean()


@wrong("row_col_means", "flattened", note="over the batch too")
def _(v):
    batch = tuple(range(v.ndim - 2))
    return v.mean((*batch, v.ndim - 1)), v.mean((*batch, v.ndim - 2))


@wrong("row_col_means", "flattened", note="as one tall matrix")
def _(v):
    tall = v.flatten(0, -2)
    return tall.mean(1), tall.mean(0)


@wrong("row_col_means", "flattened", note="as optimizers once did with kernels")
def _(v):
    wide = v.view(len(v), -1).numpy()
    return wide.mean(1), wide.mean(0)


@wrong("row_col_means", "two_d_only")
def _(v):
    return v.mean(dim=1), v.mean(dim=0)


@wrong("row_col_means", "two_d_only", note="unpacks the shape")
def _(v):
    n, m = v.shape
    return [sum(v[i]) / m for i in range(n)], [sum(v[:, j]) / n for j in range(m)]


@wrong("row_col_means", "two_d_only", note="loops over rows")
def _(v):
    return torch.stack([x.mean() for x in v]), torch.stack([x.mean() for x in v.T])


@wrong("row_col_means", "two_d_only", note="lists of lists")
def _(v):
    table = v.tolist()
    return [sum(x) / len(x) for x in table], [sum(x) / len(x) for x in zip(*table, strict=True)]


@wrong("row_col_means", "keeps_axes")
def _(v):
    return v.mean(-1, keepdim=True), v.mean(-2, keepdim=True)


@wrong("row_col_means", "divides_by_the_other_side")
def _(v):
    n, m = v.shape[-2:]
    return v.sum(-1) / n, v.sum(-2) / m


@wrong("row_col_means", "keeps_axes", note="of the columns only")
def _(v):
    return torch.mean(v, dim=-1), torch.mean(v, dim=-2, keepdim=True)


@wrong("row_col_means", "half_of_it")
def _(v):
    return v.mean(-1)


@wrong("row_col_means", "divides_by_the_other_side", note="by one number for both")
def _(v):
    length = v.shape[-1]
    return torch.einsum("...ij->...i", v) / length, torch.einsum("...ij->...j", v) / length


@wrong("row_col_means", "divides_by_the_other_side", note="by the number of all entries")
def _(v):
    n, m = v.shape[-2:]
    return v.sum(-1).numpy() / (n * m), v.sum(-2).numpy() / (n * m)


@wrong("row_col_means", "squares_again")
def _(v):
    squared = v.square()
    return squared.mean(-1), squared.mean(-2)


@wrong("row_col_means", "returns_nothing")
def _(v):
    v.mean(-1), v.mean(-2)


@wrong("row_col_means", "two_d_only", note="turns the axes with T")
def _(v):
    return v.mean(dim=-1), v.T.mean(dim=-1)


@right("row_col_means", "axes counted from the front, after counting them")
def _(v):
    return [v.double().mean(v.ndim - 1), v.mT.double().mean(v.ndim - 1)]


@right("row_col_means", "in NumPy")
def _(v):
    v = v.numpy().astype(np.float64)
    return v.mean(axis=-1), np.swapaxes(v, -1, -2).mean(axis=-1)


@right("row_col_means", "by recursion, as lists")
def _(v):
    if v.ndim > 2:
        parts = [means_by_recursion(part) for part in v]
        return [part[0] for part in parts], [part[1] for part in parts]
    n, m = v.shape
    return [float(sum(v[i, :])) / m for i in range(n)], [float(sum(v[:, j])) / n for j in range(m)]


means_by_recursion = _


@right("row_col_means", "as matrix products")
def _(v):
    n, m = v.shape[-2:]
    return v @ torch.full((m,), 1 / m, dtype=v.dtype), torch.full((n,), 1 / n, dtype=v.dtype) @ v


# The product


@wrong("reconstruct", "no_division")
def _(row, col):
    return row.unsqueeze(-1) * col.unsqueeze(-2)


@wrong("reconstruct", "no_division", note="of sums")
def _(row, col):
    return (row * col.shape[-1]).unsqueeze(-1) @ (col * row.shape[-1]).unsqueeze(-2)


@wrong("reconstruct", "no_division", note="by torch.outer")
def _(row, col):
    return torch.outer(row, col)


@wrong("reconstruct", "no_division", note="by np.outer")
def _(row, col):
    return np.outer(row.numpy(), col.numpy())


@wrong("reconstruct", "entry_by_entry")
def _(row, col):
    return row * col / row.mean()


@wrong("reconstruct", "entry_by_entry", note="not divided")
def _(row, col):
    return torch.mul(row, col)


@wrong("reconstruct", "sums_over_mean", note="over the sum of the row means")
def _(row, col):
    row_sums, col_sums = row * col.shape[-1], col * row.shape[-1]
    return row_sums[..., None] * col_sums[..., None, :] / row.sum(-1)[..., None, None]


@wrong("reconstruct", "sums_over_mean")
def _(row, col):
    row_sums, col_sums = row * col.shape[-1], col * row.shape[-1]
    return torch.einsum("...i,...j->...ij", row_sums, col_sums) / row.mean(-1)[..., None, None]


@wrong("reconstruct", "means_over_sum")
def _(row, col):
    return row[..., None] * col[..., None, :] / row.sum(-1)[..., None, None]


@wrong("reconstruct", "means_over_sum", note="of the columns")
def _(row, col):
    total = col.sum(dim=-1, keepdim=True)
    return torch.einsum("...i,...j->...ij", row, col / total)


@wrong("reconstruct", "means_over_sum", note="over the total of all entries")
def _(row, col):
    total = (row * col.shape[-1]).sum(-1)
    return row[..., None] * col[..., None, :] / total[..., None, None]


@wrong("reconstruct", "means_over_sum", note="over the sum of the whole batch")
def _(row, col):
    return row[..., None] * col[..., None, :] / row.sum()


@wrong("reconstruct", "additive")
def _(row, col):
    return row[..., :, None] + col[..., None, :] - row.mean(-1)[..., None, None]


@wrong("reconstruct", "additive", note="the mean of both")
def _(row, col):
    return 0.5 * (row[..., :, None] + col[..., None, :])


@wrong("reconstruct", "additive", note="with one mean for the batch")
def _(row, col):
    return row.unsqueeze(-1) + col.unsqueeze(-2) - torch.mean(row)


@wrong("reconstruct", "shared_denominator")
def _(row, col):
    return row[..., :, None] * col[..., None, :] / row.mean()


@wrong("reconstruct", "shared_denominator", note="of the columns")
def _(row, col):
    return torch.einsum("...i,...j->...ij", row / col.mean(), col)


@wrong("reconstruct", "denominator_on_the_wrong_axis")
def _(row, col):
    return torch.matmul(row.unsqueeze(-1), col.unsqueeze(-2)) / row.mean(dim=-1)


@wrong("reconstruct", "denominator_on_the_wrong_axis", note="with one axis kept")
def _(row, col):
    return row[..., None] * col[..., None, :] / row.mean(-1, keepdim=True)


@wrong("reconstruct", "divides_twice", note="by the mean of the product, of the whole batch")
def _(row, col):
    product = row[..., None] * col[..., None, :]
    return product / product.mean()


@wrong("reconstruct", "divides_twice")
def _(row, col):
    row = row / row.mean(-1, keepdim=True)
    col = col / col.mean(-1, keepdim=True)
    return row[..., :, None] * col[..., None, :]


@wrong("reconstruct", "geometric_mean")
def _(row, col):
    return row.sqrt()[..., :, None] * col.sqrt()[..., None, :]


@wrong("reconstruct", "root_taken")
def _(row, col):
    return (row / row.mean(-1, keepdim=True)).sqrt().unsqueeze(-1) * col.sqrt().unsqueeze(-2)


@wrong("reconstruct", "root_taken", note="as transformers goes on")
def _(row, col):
    return (row / row.mean(-1, keepdim=True)).rsqrt().unsqueeze(-1) * col.rsqrt().unsqueeze(-2)


@wrong("reconstruct", "transposed")
def _(row, col):
    return col[..., :, None] * row[..., None, :] / row.mean(-1)[..., None, None]


@wrong("reconstruct", "two_d_only")
def _(row, col):
    return torch.outer(row, col) / row.mean()


@wrong("reconstruct", "two_d_only", note="in NumPy, which flattens")
def _(row, col):
    return np.outer(row, col) / row.numpy().mean()


@wrong("reconstruct", "two_d_only", note="a table, entry by entry")
def _(row, col):
    mean = sum(row) / len(row)
    return [[float(r * c / mean) for c in col] for r in row]


@wrong("reconstruct", "two_d_only", note="axes counted from the front")
def _(row, col):
    return row.unsqueeze(1) * col.unsqueeze(0) / row.mean()


@wrong("reconstruct", "two_d_only", note="einsum for one matrix")
def _(row, col):
    return torch.einsum("i,j->ij", row, col) / row.mean(0)


@right("reconstruct", "a matrix product of thin matrices")
def _(row, col):
    return (row / row.mean(-1, keepdim=True)).unsqueeze(-1) @ col.unsqueeze(-2)


@right("reconstruct", "over the root of the product's own mean")
def _(row, col):
    product = row[..., None] * col[..., None, :]
    return product / product.mean(dim=(-1, -2), keepdim=True).sqrt()


@right("reconstruct", "over the mean of the columns, in NumPy")
def _(row, col):
    row, col = row.numpy(), col.numpy()
    return row[..., :, None] * (col / col.mean(axis=-1, keepdims=True))[..., None, :]


@right("reconstruct", "with sums throughout")
def _(row, col):
    row_sums, col_sums = row * col.shape[-1], col * row.shape[-1]
    return row_sums[..., None] * col_sums[..., None, :] / col_sums.sum(-1)[..., None, None]


@right("reconstruct", "one matrix after the other")
def _(row, col):
    if row.ndim == 1:
        return torch.outer(row, col) / row.mean()
    return torch.stack([product_of_parts(r, c) for r, c in zip(row, col, strict=True)])


product_of_parts = _


@right("reconstruct", "in logarithms")
def _(row, col):
    return (row.log()[..., :, None] + col.log()[..., None, :] - row.mean(-1).log()[..., None, None]).exp()


# The worst matrix


def bad(belief, note, matrix):
    wrong("worst_matrix", belief, note)(lambda: matrix)


generator = torch.Generator().manual_seed(0)
bad("largest_numbers", "all the same", torch.full((4, 4), 1e30))
bad("largest_numbers", "random", 1e6 * torch.rand(4, 4, generator=generator))
bad("largest_numbers", "integers", np.random.default_rng(0).integers(1_000, 9_999, (4, 4)))
bad("stripes_look_bad", "rows", [[1] * 4, [10_000] * 4, [1] * 4, [10_000] * 4])
bad("stripes_look_bad", "columns", torch.tensor([1.0, 100.0, 1.0, 100.0]).expand(4, 4))
bad("stripes_look_bad", "both", torch.outer(*2 * (torch.tensor([1.0, 100.0, 1.0, 100.0]),)))
bad("stripes_look_bad", "with noise", torch.tensor([[1.0], [50.0], [1.0], [50.0]]) * (1 + torch.eye(4) / 4))
bad("zero_rows_break_it", "row", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]])
bad("zero_rows_break_it", "all but one entry", np.diag([1e4, 0, 0, 0]))
bad("zero_rows_break_it", "every second column", torch.tensor([0.0, 1.0, 0.0, 1.0]).repeat(4, 1))
bad("zero_rows_break_it", "row and column", np.pad(np.arange(1, 10).reshape(3, 3), ((1, 0), (0, 1))))
bad("worst_divergence_is_worst_step", "identity", torch.eye(4))
bad("worst_divergence_is_worst_step", "permutation", np.eye(4)[[2, 0, 3, 1]] * 1e4)
bad("worst_divergence_is_worst_step", "other diagonal", np.diag([4.0, 3.0, 2.0, 1.0]))
bad("worst_divergence_is_worst_step", "identity and a little", torch.eye(4) + 0.001)
bad("one_spike", "among ones", np.ones((4, 4)) + np.eye(1, 16, 5).reshape(4, 4) * 9999)
bad("one_spike", "small", [[0.1] * 4, [0.1, 100, 0.1, 0.1], [0.1] * 4, [0.1] * 4])
bad("beyond_the_range", "diagonal", torch.diag(torch.tensor([1.0, 1e-8, 1.0, 1.0])))
bad("beyond_the_range", "spike", [[1, 1, 1, 1e12], [1] * 4, [1] * 4, [1] * 4])
bad("too_short_not_too_long", "one small", 1 - 0.9999 * np.eye(4)[[0]] * np.eye(4)[:, [0]])
bad("too_short_not_too_long", "one small among large", [[1, 10_000, 10_000, 10_000], *[[10_000] * 4] * 3])
bad("too_short_not_too_long", "cross", [[1e-4, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])


@wrong("worst_matrix", "prints_result")
def _():
    print(torch.eye(4))


@right("worst_matrix", "a diagonal of two, as a list")
def _():
    return [[10_000, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@right("worst_matrix", "two blocks, no entry alone")
def _():
    return np.kron(np.diag([10_000, 1]), np.ones((2, 2)))


@right("worst_matrix", "tiny numbers, as real second moments are")
def _():
    return torch.diag(torch.tensor([1e-34, 1e-30, 1e-30, 1e-30]))


@right("worst_matrix", "the two entries in half precision")
def _():
    return torch.diag(torch.tensor([1.0, 1e-4, 0.0, 0.0], dtype=torch.bfloat16))


@right("worst_matrix", "a block of squared gradients and a lone one, in NumPy")
def _():
    g = np.zeros((4, 4))
    g[1:, :3] = np.linspace(0.8, 1, 9).reshape(3, 3)
    g[0, 3] = 0.01
    return g**2


@right("worst_matrix", "a graded diagonal that moves in float64")
def _():
    return torch.diag(torch.logspace(4, 0, 4, dtype=torch.float64)).requires_grad_()


@right("worst_matrix", "the corner shares its row with another small one")
def _():
    v = torch.full((4, 4), 1.0)
    v[0] = v[:, 0] = 0
    v[0, 0] = v[0, 1] = 1e-4
    return v


# What commutes

TRUE = {"average", "scale", "transpose", "again"}
ALL = ("average", "product", "scale", "one_row", "plus", "root", "transpose", "again")


def says(belief, *flipped, note=""):
    answer = {name: (name in TRUE) != (name in flipped) for name in ALL}
    wrong("commutes", belief, note)(lambda: dict(answer))


wrong("commutes", "everything_commutes")(lambda: dict.fromkeys(ALL, True))
wrong("commutes", "nothing_commutes")(lambda: dict.fromkeys(reversed(ALL), np.False_))
says("means_do_not_commute", "average")
says("means_do_not_commute", "average", "again", note="and another")
says("product_commutes", "product")
says("product_commutes", "product", "root", "plus", note="and more")
says("scale_gets_squared", "scale")
says("rows_scale_freely", "one_row")
says("constants_pass_through", "plus")
says("roots_commute", "root")
says("roots_commute", "root", "transpose", note="and another")
says("rows_are_special", "transpose")
says("loses_more_each_time", "again")


@right("commutes", "tried out in NumPy")
def _():
    rng = np.random.default_rng(1)
    v, w = rng.random((2, 5, 3))

    def means(v):
        return np.concatenate([v.mean(1), v.mean(0)])

    def hat(v):
        return np.outer(v.mean(1), v.mean(0)) / v.mean()

    row = np.array([[math.pi], [1], [1], [1], [1]])
    return {
        "again": np.allclose(hat(hat(v)), hat(v)),
        "transpose": np.allclose(hat(v.T), hat(v).T),
        "root": np.allclose(hat(v**0.5), hat(v) ** 0.5),
        "plus": np.allclose(hat(v + 1), hat(v) + 1),
        "one_row": np.allclose(hat(row * v), row * hat(v)),
        "scale": np.allclose(hat(3 * v), 3 * hat(v)),
        "product": np.allclose(hat((v + w) / 2), (hat(v) + hat(w)) / 2),
        "average": np.allclose(means((v + w) / 2), (means(v) + means(w)) / 2),
    }


@right("commutes", "as 0 and 1, and NumPy's and torch's True")
def _():
    kinds = (int, bool, np.bool_, torch.tensor, np.int64, float, np.array, bool)
    return {name: kind(name in TRUE) for name, kind in zip(ALL, kinds, strict=True)}
