# %% [markdown]
# You write the two functions that replace a second moment by its row and column means, build a matrix for which they
# go badly wrong, and decide what may be done before or after them.

# %%
import torch
from matplotlib.colors import LogNorm

from course_lib import factored, figures
from course_lib.diagrams import factorization

# %% [markdown] task="row_col_means" minutes=5 difficulty="easy" good_for="knowing which axis is averaged away"
# ## Take the means
#
# Write `row_col_means(v)`. `v` is a tensor of shape `[..., n, m]`: one matrix of `n` rows and `m` columns, or a batch
# of such matrices, numbered by the axes before the last two. Return two tensors: the
# [row means](../notebooks/glossary.ipynb#row-means), of shape `[..., n]`, and the
# [column means](../notebooks/glossary.ipynb#column-means), of shape `[..., m]`. Each matrix of a batch has its own.


# %%
def row_col_means(v):
    """`(row, col)`: the row means [..., n] and the column means [..., m] of v, [..., n, m]."""
    ### BEGIN SOLUTION
    return v.mean(-1), v.mean(-2)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The mean over the last axis goes along a row, and takes that axis away: one number for each row is left. Counted
# from the end, the two axes are the same ones however many come before.

# %%
check.row_col_means()

# %% [markdown] task="reconstruct" minutes=7 difficulty="medium" good_for="reading any Adafactor: each has this line"
# ## Multiply back
#
# Write `reconstruct(row, col)`, the way back: it takes row means of shape `[..., n]` and column means of shape
# `[..., m]`, both of the same matrix or batch of matrices, and returns the product V̂ that stands in for it, of shape
# `[..., n, m]`. The mean of all entries of a matrix is not given. No matrix consists of zeros only.


# %%
def reconstruct(row, col):
    """V̂, of shape [..., n, m], from the row means [..., n] and the column means [..., m]."""
    ### BEGIN SOLUTION
    mean = row.mean(-1)[..., None, None]
    return row[..., :, None] * col[..., None, :] / mean
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The mean of the row means is the mean of all entries, for all rows are equally long; the mean of the column means is
# the same number. The mean has to be taken over the last axis only, so that each matrix of a batch keeps its own, and
# two axes are put behind it so that it meets the right matrix.

# %%
check.reconstruct()

# %% [markdown]
# Here are your two functions on a matrix of stripes with some noise. If both are right, the bars beside V and V̂ are
# the same.


# %%
def beside_it():
    generator = torch.Generator().manual_seed(4)
    rows = 10 ** torch.rand(6, 1, generator=generator)
    cols = 10 ** torch.rand(1, 8, generator=generator)
    V = rows * cols * 2 ** torch.randn(6, 8, generator=generator).clamp(-1, 1)
    fig, alt = factorization.side_by_side(V, reconstruct(*row_col_means(V)))
    figures.show(fig, alt=alt)


check.preview(beside_it)

# %% [markdown] task="worst_matrix" minutes=10 difficulty="hard" good_for="knowing why Adafactor needs a brake"
# ## Make a step much too long
#
# A step divides the gradient by the root of V. With V̂ in its place, entry $(i, j)$ moves
# $\sqrt{V_{ij} / \hat V_{ij}}$ times as far. Call this the **stretch** of that entry. Where $V_{ij}$ is 0 the gradient
# has always been 0, and nothing moves: such entries do not count.
#
# Write `worst_matrix()`: a 4 × 4 matrix, a tensor or a list of lists, with at least one stretch of **100 or more**.
# The rules: no entry is negative, and the largest is at most 10,000 times the smallest of those above zero. Zeros are
# allowed.
#
# Guess first: is the identity a good start? A spike? Then measure with `stretches`.


# %%
def stretches(V):
    """How many times too long the product makes the step in each entry of V; 0 where V is 0."""
    V = torch.as_tensor(V, dtype=torch.float64)
    V_hat = factored.reconstruct(*factored.row_col_means(V))
    return torch.where(V > 0, V / V_hat, 0).sqrt()


print("largest stretch of the identity:", stretches(torch.eye(4)).max().item())


# %%
def worst_matrix():
    """A 4 × 4 matrix within the rules above, with a stretch of 100 or more."""
    ### BEGIN SOLUTION
    V = torch.full((4, 4), 10_000.0)
    V[3, :] = 0
    V[:, 3] = 0
    V[3, 3] = 1
    return V
    ### END SOLUTION


# %% [markdown] tags=["why"]
# In sums, V over V̂ is the entry times the total, over the sum of its row and the sum of its column. Let the entry be
# alone in both: then its row sum and its column sum are the entry itself, and what remains is the total over the
# entry. So the entry is to be as small, and the rest as large, as the rules allow. With nine entries of 10,000 the
# total is 90,001 times the lone 1, and the root of that is the most a 4 × 4 matrix can reach here. A diagonal of
# 10,000, 10,000, 10,000 and 1 passes as well.

# %%
check.worst_matrix()

# %% [markdown]
# Your matrix, its product and the stretch of each entry. The colours of V and V̂ have one logarithmic scale; zeros
# have the colour of its lower end.


# %%
def show_worst():
    V = torch.as_tensor(worst_matrix(), dtype=torch.float64)
    V_hat, stretch = factored.reconstruct(*factored.row_col_means(V)), stretches(V)
    fig, axes = figures.subplots(1, 3, width=8.0, height=2.6)
    for ax, matrix, title in zip(axes, (V, V_hat, stretch), ("V", "V̂", "stretch"), strict=True):
        digits = ".3g" if title == "stretch" else ".2g"
        drawn = figures.heatmap(ax, matrix, title, colorbar=None, numbers=digits)
        ax.set(xticks=[], yticks=[])
        if title != "stretch":
            drawn.image.set_norm(LogNorm(V[V > 0].min() / 10, V.max(), clip=True))
            drawn.update(matrix)
    most, limit = stretch.max(), (1 + 9 * 10_000) ** 0.5
    i, j = divmod(stretch.argmax().item(), 4)
    print(f"The largest stretch is {most:.1f}, at V[{i}, {j}]; the rules allow at most {limit:.1f}.")
    alt = "Heatmaps of your matrix V, its product V̂, and the stretch of each entry. "
    alt += f"At V[{i}, {j}] V is {V[i, j]:.2g}, V̂ is {V_hat[i, j]:.2g}, "
    figures.show(fig, alt=alt + f"and the stretch is {most:.1f}, the largest of all.")


check.preview(show_worst)

# %% [markdown] task="commutes" minutes=6 difficulty="medium" good_for="judging what may be done before factoring"
# ## What commutes?
#
# Two operations commute if their order does not matter. V and W are matrices of one shape, with entries of 0 or more
# and some above 0; V̂ is the product made of V's means. Which of these statements are true for *all* such matrices,
# apart from rounding?
#
# - `"average"`: The row and column means of (V + W) / 2 are the averages of those of V and of W.
# - `"product"`: The product made of (V + W) / 2 is the average of V̂ and Ŵ.
# - `"scale"`: If V is multiplied by 3, V̂ is multiplied by 3.
# - `"one_row"`: If one row of V is multiplied by 3, that row of V̂ is multiplied by 3, and the other rows stay.
# - `"plus"`: If 1 is added to each entry of V, each entry of V̂ grows by 1.
# - `"root"`: The product made of the roots of V's entries has the roots of V̂'s entries.
# - `"transpose"`: If V is transposed, V̂ is transposed.
# - `"again"`: The product made of V̂ is V̂.
#
# Let `commutes()` return a dictionary that says True or False for each. Decide before you try it out.


# %%
def commutes():
    """A dictionary with the eight names as keys, and True or False for each."""
    ### BEGIN SOLUTION
    return {
        "average": True,
        "product": False,
        "scale": True,
        "one_row": False,
        "plus": False,
        "root": False,
        "transpose": True,
        "again": True,
    }
    ### END SOLUTION


# %% [markdown] tags=["why"]
# Means are sums, so they commute with averages and with one factor for all. The product is not a sum: it multiplies
# two means and divides by a third. A common factor comes out of it once. But what is averaged, added or rooted
# beforehand gets mixed in the multiplication, and a factor on one row changes the column means of all the others. To
# transpose only swaps R and C. And V̂ has the means of V, so it has V's product, itself.

# %%
check.commutes()

# %% [markdown]
# Both sides of each statement, computed for two random matrices. One example is enough to refute a statement; that
# the others hold for all matrices is for your reasons to show.


# %%
def try_out():
    said = commutes()
    V, W = torch.rand(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 4
    one_row = torch.tensor([[3.0], [1.0], [1.0]])

    def means(V):
        return torch.cat(factored.row_col_means(V))

    def product(V):
        return factored.reconstruct(*factored.row_col_means(V))

    sides = {
        "average": (means((V + W) / 2), (means(V) + means(W)) / 2),
        "product": (product((V + W) / 2), (product(V) + product(W)) / 2),
        "scale": (product(3 * V), 3 * product(V)),
        "one_row": (product(one_row * V), one_row * product(V)),
        "plus": (product(V + 1), product(V) + 1),
        "root": (product(V.sqrt()), product(V).sqrt()),
        "transpose": (product(V.T), product(V).T),
        "again": (product(product(V)), product(V)),
    }
    for name, (left, right) in sides.items():
        most = (left - right).abs().max()
        print(f"{name:9}  you said {said[name]!s:5}  both sides differ by at most {most:.4f}")


check.preview(try_out)
