# %% [markdown]
# ## Where we are
#
# 501.9 MiB of optimizer state became 250.9 when the [first moment](glossary.ipynb#first-moment) went. What is left is
# one [second moment](glossary.ipynb#second-moment), the running average of the squared gradient G², for every parameter
# of DistilBERT. This lesson explains the longest step of the way: from 250.9 to 0.68.

# %%
import re
import timeit

import torch

from course_lib import factored, figures, memory, moments, tasks
from course_lib.diagrams import factorization, fit_quality
from course_lib.explore import Slider, explore, predict, reveal
from course_lib.threads import one_thread

model = tasks.distilbert(device="meta")  # shapes only
weights = 4 * model.num_parameters() / 2**20  # MiB in fp32; the gradients take as much
keeps = {"adamw": "both moments", "rmsprop": "the second moment", "adafactor": "its rows and columns"}
for kind, what in keeps.items():
    size = memory.predict_state_size(model, kind)
    print(f"{what:21} {size.mib:7.2f} MiB, with weights and gradients {size.mib + 2 * weights:7,.1f}")

# %% [markdown]
# ## Nine numbers for twenty
#
# The second moment V of a 4 × 5 matrix has 20 entries. Suppose you may keep only nine numbers. Which nine would tell
# you most about all twenty? Adafactor's answer takes four steps.

# %%
fig, alt = factorization.four_steps()
figures.show(fig, alt=alt)

# %% [markdown]
# So the matrix itself is **not stored**. Its row sums and column sums are. Whenever an entry is needed, the sum of
# its row times the sum of its column, divided by the total of all entries, stands in for it.

# %% [markdown]
# ## By hand: two rows, two columns
#
# Take a matrix that you can work out on paper. The four steps speak of sums; the usual code keeps means, and you will
# soon see that it makes no difference. Find the mean of each row and of each column before you run the cell.

# %%
V = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
R = V.mean(-1)  # along each row
C = V.mean(-2)  # down each column
print("R =", R)
print("C =", C)

# %% [markdown]
# > **row means** — R, one number for each row of a matrix: the mean over its last axis. For V of shape `[n, m]`, R
# > has shape `[n]`.
#
# > **column means** — C, one number for each column of a matrix: the mean over its second-last axis. For V of shape
# > `[n, m]`, C has shape `[m]`.

# %% [markdown]
# It is tempting to think that **"row" statistics come from `dim=0`**, because axis 0 counts the rows. But `mean(0)`
# averages axis 0 *away*: what remains is one number per column. A matrix that is not square shows it.

# %%
wide = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
print("mean(-1):", wide.mean(-1), " 2 numbers, one for each row")
print("mean(0): ", wide.mean(0), " 3 numbers, one for each column")

# %% [markdown]
# Now multiply back. Entry $(i, j)$ becomes $R_i$ times $C_j$ (together: the outer product of R and C) over the mean
# of all entries. That mean need not be kept: it is the mean of R, and of C too.

# %%
predict("04-exact")

# %% tags=["answer"]
V_hat = torch.outer(R, C) / R.mean()
print("The outer product of R and C, over the mean:")
print(V_hat)
reveal("04-exact")

# %% [markdown]
# In symbols, with $\bar V$ the mean of all entries:
#
# $$\hat V_{ij} = \frac{R_i\, C_j}{\bar V}$$
#
# > **factored second moment** — R and C kept in place of the second moment V; their outer product over the mean of R,
# > written V̂, stands in for V.


# %%
def product(V):
    R, C = V.mean(-1), V.mean(-2)
    return torch.outer(R, C) / R.mean()


assert torch.equal(product(V), V_hat)

# %% [markdown]
# ### Sums or means?
#
# The paper keeps sums, the public implementations keep means. The product is the same, *if* you divide by the total.
# "Row sums times column sums" alone, as it is often told, is off by that factor: here by ten.

# %%
row_sums, col_sums, total = V.sum(-1), V.sum(-2), V.sum()
print("sums, not divided:\n", torch.outer(row_sums, col_sums))
print("sums, over the total:\n", torch.outer(row_sums, col_sums) / total)
torch.testing.assert_close(torch.outer(row_sums, col_sums) / total, V_hat)

# %% [markdown]
# ## Why multiply?
#
# You could also *add*: row mean plus column mean minus overall mean. On this very matrix that is exact, and the
# product is not!


# %%
def added(V):
    return V.mean(-1)[:, None] + V.mean(-2) - V.mean()


print(added(V))

# %% [markdown]
# That is an accident of these four numbers, where both rows grow by 1 from left to right. Make one entry large and
# the rest zero, and the sum turns negative. The optimizer will take a square root of it.

# %%
lonely = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
print("added:   ", added(lonely).tolist(), " root:", added(lonely).sqrt()[1, 1].item())
print("product: ", product(lonely).tolist())

# %% [markdown]
# A product of means of squares is **never negative**. And it is **scale-free**: it works with factors, not with
# differences. Let one row be a thousand times larger than the other, as happens between rows of gradients:

# %%
striped = torch.outer(torch.tensor([1.0, 1000.0]), torch.tensor([1.0, 3.0]))
print("V:       ", striped.tolist())
print("added:   ", added(striped).tolist())
print("product: ", product(striped).tolist())

# %% [markdown]
# The product is exact, because each row is a multiple of the other. With a single input, you found in lesson 03, a
# squared gradient is exactly of this kind.
#
#
# > **rank 1** — said of a matrix whose rows are all multiples of one row. V̂ is always of rank 1, and it equals V
# > exactly when V is.

# %% [markdown]
# ## A picture of the error
#
# Here is the 4 × 5 matrix of the drawing with its numbers. The bars at its margins are R and C. Compare V with V̂,
# then look at the right: the logarithm of their ratio says how many *doublings* V̂ is off.

# %% tags=["picture"]
V = torch.tensor(factorization.EXAMPLE)
V_hat = product(V)
doublings = (V_hat / V).log2()  # +1: twice too large, 0: exact, -1: half of what it should be
print("first row:", doublings[0])
fig, alt = factorization.side_by_side(V, V_hat, numbers=True)
figures.show(fig, alt=alt)

# %% [markdown]
# Red entries are too large, blue ones too small. Nearly all are right to a factor of two. Does it matter? A step
# divides by the *root* of V̂. So a V̂ four times too large makes the step half as long as it should be: the root
# halves every error on this scale.

# %% [markdown]
# ### Three ways to say how wrong
#
# How wrong is V̂ as a whole? Three answers, for [[1, 2], [3, 4]]. The first adds up ratios, the second the squared
# differences, the third counts entries.

# %%
V, V_hat = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.2, 1.8], [2.8, 4.2]])
divergence = (V * (V / V_hat).log() - V + V_hat).sum()
relative = (V - V_hat).norm() / V.norm()
within_two = ((V_hat / V).log2().abs() <= 1).float().mean()
print(f"I-divergence {divergence:.4f}, which is {divergence / V.sum():.4f} of the total")
print(f"relative error {relative:.3f},  within a factor of two {within_two:.0%}")

# %% [markdown]
# > **I-divergence** — how far V̂ is from V, judged by ratios and weighed by size: the sum of V log(V / V̂) − V + V̂
# > over all entries (where V is 0, the first term counts as 0). It is zero only where both agree.
#
# We give it as a share of the total, so that matrices can be compared. Like the relative error, it is 0 for a perfect
# fit.

# %% [markdown]
# ## From the best case to the worst
#
# On the left of this slider is a matrix of rank 1, on the right the identity, and between them mixtures. Where does
# the product stop being useful?

# %%
rows = torch.tensor([1.0, 0.5, 2.0, 0.25, 0.5, 1.5, 2.0, 0.25])
cols = torch.tensor([1.5, 0.25, 1.0, 0.5, 2.0, 0.75, 0.5, 1.5])
rank_one = torch.outer(rows, cols)
identity = 8 * torch.eye(8)  # the same total, 64
picture = factorization.Comparison(vmin=0.05, vmax=20)


def draw(toward_identity=0.2):
    V = (1 - toward_identity) * rank_one + toward_identity * identity
    return picture(V, product(V))


explore(draw, toward_identity=Slider(0.0, 1.0, label="rank 1 → identity"))

# %% [markdown]
# At 0 the error panel is white. At 1 all row means are equal, and all column means: they say *nothing* about where
# the large entries are, and V̂ is flat. No 8 × 8 matrix does worse: log 8 of the total is the bound (the first "Going
# deeper" below says why).

# %%
worst = factored.i_divergence(identity, product(identity)) / identity.sum()
print(f"I-divergence of the identity: {worst:.4f} of the total,  log 8 = {torch.tensor(8.0).log():.4f}")

# %% [markdown]
# ## One large entry
#
# Real gradients have outliers. Go back to the matrix of rank 1, where the product is exact, and let a single entry
# grow.

# %%
predict("04-spike")

# %% tags=["answer"]
spiked = rank_one.clone()
spiked[4, 3] *= 10_000
ratio = product(spiked) / spiked
print("Entries of the product, compared with the matrix:")
print(f"the entry itself:      {ratio[4, 3]:.2f} of its value")
print(f"others in its row:     {ratio[4, 0]:.1f} times too large")
print(f"others in its column:  {ratio[0, 3]:.1f} times too large")
print(f"all the rest:          {1 / ratio[0, 0]:.1f} times too small")
reveal("04-spike")

# %% [markdown]
# Now watch it happen. Grow the entry slowly: to 100 times, then to 10,000. Which entries go first, which follow? What
# do the green and orange bars of V and V̂ do?

# %%
spike_picture = factorization.Comparison(vmin=0.05, vmax=1e4)


def draw_spiked(toward_identity=0.0, spike=100.0):
    V = (1 - toward_identity) * rank_one + toward_identity * identity
    V[4, 3] *= spike
    return spike_picture(V, product(V))


explore(
    draw_spiked,
    toward_identity=Slider(0.0, 1.0, label="rank 1 → identity"),
    spike=Slider(1, 1e4, log=True, label="one entry times"),
)

# %% [markdown]
# **First the spike spoils its row and its column**: they become too large. The margins stay exact all the while. So
# what the spike's column gained, the rest of every row must lose: **then everything else becomes too small**, by the
# factor by which the total grew.

# %%
growth = (spiked.sum() / rank_one.sum()).item()
print(f"total grew {growth:.1f} times; the rest is {1 / ratio[0, 0]:.1f} times too small")
print(f"so its steps are {growth**0.5:.1f} times too long")
print(f"relative error: only {factored.relative_error(spiked, product(spiked)):.2f}")

# %% [markdown]
# Too small is the dangerous side: it makes steps too *long*. Lesson 05 has a brake for that. Note the last line too:
# the relative error sees only the largest entries, and calls this fit a good one.

# %% [markdown]
# ## What the product keeps exactly
#
# You saw the bars stay the same. Whatever V is, V̂ has exactly V's row means and column means, and so its total.

# %%
V = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) ** 4
V_hat = product(V)
torch.testing.assert_close(V_hat.mean(-1), V.mean(-1))
torch.testing.assert_close(V_hat.mean(-2), V.mean(-2))
print("column means of V:", V.mean(-2))
print("column means of V̂:", V_hat.mean(-2))
print(f"largest entry of V {V.max():.3f}, of V̂ {V_hat.max():.3f}")

# %% [markdown]
# ## Why V never has to exist
#
# One thing is still missing. V is an *average over steps*, an [EMA](glossary.ipynb#EMA) with
# [decay](glossary.ipynb#decay) β₂. To take its row means, don't we need all of V first? Run both ways side by side:
# average G², then factor; or factor each G², then average.

# %%
beta2 = 0.9
generator = torch.Generator().manual_seed(0)
V, R, C = (torch.zeros(shape, dtype=torch.float64) for shape in ((6, 4), (6,), (4,)))
for _ in range(50):
    G2 = torch.randn(6, 4, dtype=torch.float64, generator=generator) ** 2
    V = beta2 * V + (1 - beta2) * G2
    R = beta2 * R + (1 - beta2) * G2.mean(-1)
    C = beta2 * C + (1 - beta2) * G2.mean(-2)
print(f"averaged, then factored: {V.mean(-1)}\nfactored, then averaged: {R}")
assert torch.allclose(V.mean(-1), R, rtol=1e-12) and torch.allclose(V.mean(-2), C, rtol=1e-12)

# %% [markdown]
# The same, up to rounding. A mean is a sum, an EMA is a sum, and sums may be taken in either order. **That makes the
# idea usable**: the running averages of R and C are all that is kept from one step to the next. The last three lines
# of the loop need no V.

# %% [markdown]
# > **Stopping point for a class.** So far: what is kept, what comes out, when it fails, why V need not exist. What
# > follows: shapes, then real matrices.
#
# *For those who are done early:* R and C commute with the average. Does V̂? Think of two 2 × 2 matrices, each with a
# single 1 on its diagonal, before you run the next cell.

# %% tags=["answer"]
first, second = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))
print("What you should find:")
print("average of the two V̂:   ", ((product(first) + product(second)) / 2).tolist())
print("V̂ of the averaged matrix:", product((first + second) / 2).tolist())

# %% [markdown]
# ## How many numbers that is
#
# An n × m matrix keeps n + m numbers in place of n · m. For the matrices of DistilBERT:


# %%
def numbers_kept(shape):
    V = torch.empty(shape, device="meta")
    return V.numel() if V.ndim < 2 else V.mean(-1).numel() + V.mean(-2).numel()


def show_kept(name, *shape):
    full, kept = torch.Size(shape).numel(), numbers_kept(shape)
    print(f"{name:18} {'×'.join(map(str, shape)):>12} {full:12,} → {kept:7,}   {100 * kept / full:7.2f} %")


show_kept("token embeddings", 28996, 768)
show_kept("attention", 768, 768)
show_kept("feed-forward", 3072, 768)
show_kept("classifier", 2, 768)
show_kept("bias", 768)

# %% [markdown]
# The share is (n + m) / (n · m) = 1/n + 1/m, so the shorter side decides. A vector has neither rows nor columns: its
# second moment is kept in full. What about more than two axes? The last two count as rows and columns; those before
# them number a batch of separate matrices.

# %%
V = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))  # two matrices of 3 × 4
R, C = V.mean(-1), V.mean(-2)
V_hat = R[..., :, None] * C[..., None, :] / R.mean(-1)[..., None, None]
print("R:", tuple(R.shape), " C:", tuple(C.shape), " V̂:", tuple(V_hat.shape))
torch.testing.assert_close(V_hat, torch.stack([product(V[0]), product(V[1])]))
torch.testing.assert_close(V_hat, factored.reconstruct(*factored.row_col_means(V)))

# %% [markdown]
# Each matrix of the batch is divided by its *own* mean. The course's `factored` module holds these two lines:
# `row_col_means` and `reconstruct`.

# %%
predict("04-conv")

# %% tags=["answer"]
print("Numbers kept of two convolutions:")
show_kept("3 × 3 convolution", 8, 6, 3, 3)
print("48 matrices of 3 × 3: of the 9 entries of each, 6 numbers are kept")
show_kept("1 × 1 convolution", 64, 32, 1, 1)
print("2,048 single numbers: each is kept twice, as row mean and as column mean")
reveal("04-conv")

# %% [markdown]
# So it is not true that **Adafactor is always tiny**. The saving comes from large matrices, of which transformers are
# made.

# %% [markdown]
# ## On real second moments
#
# Enough of made-up matrices. These are the ones of lesson 03, from the small model after 200 training steps. How well
# do real second moments factor?

# %%
predict("04-worst")

# %%
fits = {}
for name, V in moments.train_and_collect().items():
    V = V[V.sum(-1) > 0]  # tokens and positions that never occurred have rows of zeros: nothing to fit
    short = re.sub(r"^distilbert\.\w+\.|\.weight$", "", name)
    fits[short] = V, product(V)
print(len(fits), "matrices, from", next(iter(fits)), "to", next(reversed(fits)))

# %% tags=["answer", "varies"]
print("How far off the product is in each matrix:")
fig, alt = fit_quality.error_ranges(fits)
figures.show(fig, alt=alt)
reveal("04-worst")

# %% [markdown]
# Each bar covers the middle 90 % of one matrix's entries. Here is the same in numbers. The typical factor is the
# median of how many times an entry is off, either way.

# %% tags=["answer", "varies"]
share = {name: fit_quality.within_factor_two(V, V_hat) for name, (V, V_hat) in fits.items()}
divergence = {name: factored.i_divergence(V, V_hat) / V.sum() for name, (V, V_hat) in fits.items()}
typical = {name: 2 ** (V_hat / V).log2().abs().median() for name, (V, V_hat) in fits.items()}
print("How well each matrix is fitted:")
print(f"{'matrix':26}   shape     I-divergence  relative error  typical factor  within 2×")
for name, (V, V_hat) in fits.items():
    shape, relative = "×".join(map(str, V.shape)), factored.relative_error(V, V_hat)
    percent = fit_quality.percent(share[name])
    print(f"{name:26} {shape:9} {divergence[name]:14.3f} {relative:15.2f} {typical[name]:15.2f} {percent:>10}")

# %%
layers, ends = [name for name in fits if "layer" in name], ["word_embeddings", "classifier"]
assert all(share[name] > 0.85 and typical[name] < 1.4 and divergence[name] < 0.15 for name in layers)
assert all(share[name] < 0.7 and typical[name] > 1.6 and divergence[name] > 0.2 for name in ends)
for name in ends:
    V, V_hat = fits[name]
    low, high = (V_hat / V).log2().quantile(torch.tensor([0.05, 0.95]))
    assert high > -low
print("Layers: more than 85 % within a factor of two. The two ends: less than 70 %, the larger errors upward.")

# %% [markdown]
# So real second moments do factor well, **inside the layers**: attention and feed-forward matrices are right to a
# factor of two nearly everywhere, typically to a factor below 1.4. **At the two ends**, in the token embeddings and
# the classifier, a good part of the entries is further off.

# %% [markdown]
# Look at them one by one. Start with an attention matrix: plain stripes, and nearly white on the right. Then choose
# the classifier, which has one row for each of the six languages.

# %% tags=["varies"]
real_picture = factorization.Comparison()  # takes its scale from each matrix


def draw_real(matrix="layer.0.attention.out_lin"):
    return real_picture(*fits[matrix])


explore(draw_real, matrix=[*fits])

# %% [markdown]
# ### Why the ends are worse
#
# In the classifier every language has its own bright columns, and one C for all six cannot say that. In the
# embeddings each token's row follows the few gradients that this token has seen. So ask: how alike are two rows of a
# matrix?


# %% tags=["varies"]
def likeness(V):
    """The mean correlation between two different rows, of at most 300."""
    correlation = torch.corrcoef(V[:300])
    return (correlation.sum() - len(correlation)) / (correlation.numel() - len(correlation))


alike = {name: likeness(V).item() for name, (V, _) in fits.items()}
for name in ("layer.0.attention.out_lin", "layer.0.ffn.lin1", "word_embeddings", "classifier"):
    print(f"{name:26} {alike[name]:.2f}")
assert max(alike[name] for name in ends) < min(alike[name] for name in layers)

# %% [markdown]
# Where rows have a common shape, the product fits; where each has its own, it cannot. One comfort: most large errors
# are on the *too large* side, as the bars in the figure show. They make steps shorter, not longer. Lesson 05 follows
# them to the step.

# %% [markdown]
# ## Going deeper: why this product is the best one
#
# Of all matrices $r_i c_j$, is $\hat V$ the nearest to V? In I-divergence, yes. Write $D(A \,\|\, B)$ for the
# I-divergence of B from A. Then for any $r$ and $c$
#
# $$D(V \,\|\, r c^\top) = D(V \,\|\, \hat V) + D(\hat V \,\|\, r c^\top).$$
#
# Try it with random $r$ and $c$.

# %%
generator = torch.Generator().manual_seed(1)
V = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
for _ in range(3):
    other = torch.outer(*torch.rand(2, 2, dtype=torch.float64, generator=generator) * 3)
    whole = factored.i_divergence(V, other)
    parts = factored.i_divergence(V, product(V)), factored.i_divergence(product(V), other)
    print(f"{whole:.6f} = {parts[0]:.6f} + {parts[1]:.6f}")
    torch.testing.assert_close(whole, parts[0] + parts[1])

# %% [markdown]
# The first part does not depend on $r$ and $c$, and the second is zero only for $r c^\top = \hat V$. It holds because
# $\log(r_i c_j)$ is a row term plus a column term, and V and V̂ have the same row sums and column sums: in such a sum
# one may be put for the other.

# %% [markdown]
# Divide V by its total and it is a table of probabilities. V̂ is then the table you would expect if row and column
# were *independent*. Their distance has a name:
#
# > **mutual information** — how much knowing the row tells you about the column, in nats: zero if they are
# > independent, at most log min(n, m).

# %%
P = V / V.sum()
information = (P * (P / torch.outer(P.sum(-1), P.sum(-2))).log()).sum()
print(f"total × mutual information = {V.sum() * information:.10f}")
print(f"I-divergence               = {factored.i_divergence(V, product(V)):.10f}")

# %% [markdown]
# So the product loses what rows and columns know about each other, and nothing else. That is why the identity is the
# worst case: there the row tells you the column, and the loss is the total times log n.

# %% [markdown]
# ## Going deeper: against the best rank-1 SVD
#
# The singular value decomposition gives the rank-1 matrix with the smallest *squared* error. Is it better?


# %%
def rank_one_svd(V):
    u, s, vt = torch.linalg.svd(V, full_matrices=False)
    return s[0] * torch.outer(u[:, 0], vt[0])


for name, fit in (("product", product(V)), ("SVD", rank_one_svd(V))):
    print(f"{name:8} squared error, root: {(V - fit).norm():.3f}   I-divergence: {factored.i_divergence(V, fit):.4f}")

# %% [markdown]
# Each wins by its own measure. On the real matrices, too, they are not far apart:

# %% tags=["varies"]
for name in ("layer.0.attention.out_lin", "layer.0.ffn.lin1", "word_embeddings", "classifier"):
    V, V_hat = (matrix.double() for matrix in fits[name])
    mine, best = factored.relative_error(V, V_hat), factored.relative_error(V, rank_one_svd(V))
    print(f"{name:26} relative error: product {mine:.2f}, SVD {best:.2f}")
    assert best <= mine < 1.5 * best

# %% [markdown]
# The reasons against the SVD lie elsewhere. The first is cost. For an n × m matrix it takes some n · m · min(n, m)
# operations, the product of means some n · m. So the larger the matrix, the wider the gap. Here are the times on one
# thread of the machine that ran this page:


# %% tags=["varies"]
def milliseconds(fit, V):
    return 1000 * min(timeit.repeat(lambda: fit(V), number=1, repeat=3))


with one_thread():
    for n in (64, 512):
        V = torch.rand(n, n, generator=torch.Generator().manual_seed(0))
        print(f"{n:3} × {n:3}: product {milliseconds(product, V):.2f} ms, SVD {milliseconds(rank_one_svd, V):.2f} ms")

# %% [markdown]
# The second is decisive: it needs the whole V, for **it does not commute with the average**. Averaging the factors of
# two steps does not give the factors of the average:

# %%
first, second = torch.tensor([[4.0, 1.0], [1.0, 1.0]]), torch.tensor([[1.0, 1.0], [1.0, 9.0]])


def svd_factors(V):
    u, s, vt = torch.linalg.svd(V)
    return (s[0].sqrt() * u[:, 0]).abs(), (s[0].sqrt() * vt[0]).abs()  # the two signs are arbitrary


for name, factors in (("means", lambda V: (V.mean(-1), V.mean(-2))), ("SVD", svd_factors)):
    averaged = [(a + b) / 2 for a, b in zip(factors(first), factors(second), strict=True)]
    print(f"{name:6} averaged: {averaged[0]}   of the average: {factors((first + second) / 2)[0]}")

# %% [markdown]
# ## Recap
#
# - V is replaced by its row means R and column means C: n + m numbers for n · m. An entry is $R_i C_j$ over the mean.
# - Margins are exact whatever V is. The product is exact for rank 1 only; a spike makes its row and column too large
#   and the rest too small.
# - R and C of an average are the averages of R and C, so V never has to exist.
# - Real matrices inside the layers are striped and factor well; token embeddings and classifier do so less well.
# - Only the last two axes are factored. Vectors save nothing, small kernels little or less than nothing.

# %% [markdown]
# ## Sources
#
# - Row and column sums, the product over the total, its optimality: Shazeer & Stern 2018, [arXiv
#   1804.04235](https://arxiv.org/abs/1804.04235), section 3; Algorithms 4 (matrices) and 5 (vectors).
# - I-divergence as a measure of fit for non-negative matrices: Lee & Seung 1999, *Nature* 401, 788–791.
# - Means, and the last two axes:
#   [`torch.optim.Adafactor`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html) and
#   [`transformers.Adafactor`](https://huggingface.co/docs/transformers/main_classes/optimizer_schedules#transformers.Adafactor).
# - Mutual information and its bound: Cover & Thomas, *Elements of Information Theory*, chapter 2. The best rank-1
#   matrix in squared error: Eckart & Young 1936, *Psychometrika* 1, 211–218. The cost of an SVD: Golub & Van Loan,
#   *Matrix Computations*, section 8.6.
# - Real second moments: measured here, with `course_lib.moments`.
