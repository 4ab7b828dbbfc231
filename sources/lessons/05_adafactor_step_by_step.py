# %% [markdown]
# ## Where we are
#
# AdamW's 501.9 MiB became 250.9 when the first moment went, and 0.68 when the second one was factored. You know both
# moves by now. Here they become one optimizer, and you will see what keeps it steady without a first moment.

# %%
from math import inf

import torch

from course_lib import adafactor, averages, factored, figures, memory, tasks
from course_lib.diagrams import pipeline, step_sizes, switch_card
from course_lib.diagrams.first_step import FirstStep
from course_lib.explore import Choice, Switch, explore, predict, reveal

torch.set_printoptions(precision=6, sci_mode=False)
model = tasks.distilbert(device="meta")
weights = 4 * model.num_parameters() / 2**20  # MiB in fp32; the gradients take as much
for kind, keeps in (("adamw", "both moments"), ("rmsprop", "the second moment"), ("adafactor", "R and C")):
    size = memory.predict_state_size(model, kind)
    print(f"{keeps:18} {size.mib:7.2f} MiB, with weights and gradients {size.mib + 2 * weights:7,.1f}")

# %% [markdown]
# ## One step, in eight stages
#
# Take the smallest matrix that has rows and columns. X holds its parameters, G the gradient that `backward` has left.
# Eight stages lead from G to the new X. The grey ones wait for numbers: you will work them out one after the other.

# %%
X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
G = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
figures.show(*pipeline.draw(G=G))

# %% [markdown]
# Solid frames hold what lasts: the parameters, and the few numbers of stage 3. Dashed frames hold what this step needs
# and the next one makes anew. **Apart from a count of the steps, stage 3 is all that Adafactor keeps.**

# %% [markdown]
# ### Stages 2 and 3: square, then average
#
# Square every entry, and add ε₁ = 1e-30, so that no entry is exactly zero. Then add up rows and columns, as the paper
# does. You can do it in your head: what are the two row sums, the two column sums, the total?

# %%
squared = G**2 + 1e-30
row_sums, col_sums, total = squared.sum(dim=-1), squared.sum(dim=-2), squared.sum()
print("row sums", row_sums.numpy(), "  column sums", col_sums.numpy(), f"  total {total:.2f}")
torch.testing.assert_close(row_sums, torch.tensor([0.05, 0.25], dtype=torch.float64))
torch.testing.assert_close(col_sums, torch.tensor([0.10, 0.20], dtype=torch.float64))

# %% [markdown]
# What lasts is their EMA, with the growing decay $\beta_2(t) = 1 - t^{-0.8}$ of lesson 02. At the first step it is 0:
# the average is today's value, and nothing needs correcting. From here on we keep means, as all the implementations
# do.

# %%
beta2 = averages.adafactor_beta2(1)
R, C = torch.zeros(2), torch.zeros(2)  # where every average starts
R = beta2 * R + (1 - beta2) * squared.mean(dim=-1)
C = beta2 * C + (1 - beta2) * squared.mean(dim=-2)
print("β₂(1) =", beta2, "  R =", R.numpy(), "  C =", C.numpy())
figures.show(*pipeline.draw(G=G, squared=squared, R=R, C=C))

# %% [markdown]
# ### Stage 4: multiply
#
# Row mean times column mean over the mean of all entries, as in lesson 04. From sums you divide by the total instead,
# and V̂ comes out the same.

# %%
V_hat = torch.outer(R, C) / R.mean()
torch.testing.assert_close(V_hat, torch.outer(row_sums, col_sums) / total)
print(V_hat.numpy().round(6))
assert V_hat.numpy().round(6).tolist() == [[0.016667, 0.033333], [0.083333, 0.166667]]
figures.show(*pipeline.draw(G=G, squared=squared, R=R, C=C, V_hat=V_hat))

# %% [markdown]
# An EMA of squared gradients is a second moment. So the upper row of the picture, taken together, is Adam's second
# moment in another form: remembered as R and C, written out as V̂ for the length of one step.

# %% [markdown]
# ### Stages 5 and 6: divide, then clip
#
# Divide the gradient by the root of V̂. How large is the result? We need one number for the typical size of a whole
# matrix.


# %%
def rms(x):
    return x.square().mean().sqrt()


U = G / V_hat.sqrt()
print(U.numpy().round(6), f"  RMS(U) = {rms(U):.6f}")
assert U.numpy().round(6).tolist() == [[0.774597, 1.095445], [1.03923, 0.979796]]

# %% [markdown]
# > **RMS** — root mean square: the root of the mean of all squared entries, one number for the typical size of a
# > vector or matrix.
#
# > **update** — U, what an optimizer makes of the gradient, before any learning rate; in Adafactor the gradient over
# > the root of V̂.

# %% [markdown]
# Stage 6 asks whether the update is too large: it divides U by RMS(U)/d, but only if RMS(U) is above the threshold d
# = 1. Here it is below, so U passes as it is.
#
# > **update clipping** — dividing a whole update by RMS(U)/d where its RMS exceeds the threshold d, so that its RMS
# > becomes d.

# %%
clipped = U / max(1.0, rms(U) / 1.0)
assert torch.equal(clipped, U)

# %% [markdown]
# ### Stages 7 and 8: how far to go
#
# The step size has two factors: $\alpha = \rho_t \cdot \max(\varepsilon_2, \mathrm{RMS}(X))$.
#
# > **relative step size** — ρₜ = min(0.01, 1/√t): the length of a step as a share of the parameters' own size.
#
# > **RMS scaling** — multiplying the step size by the RMS of the parameters, or by ε₂ = 0.001 if that is larger.

# %%
rho = min(1e-2, 1**-0.5)
alpha = rho * max(1e-3, rms(X))
step = alpha * clipped
X_new = X - step
print(f"ρ = {rho},  RMS(X) = {rms(X):.6f},  α = {alpha:.6f}")
numbers = {"G": G, "squared": squared, "R": R, "C": C, "V_hat": V_hat, "U": U, "clipped": clipped, "step": step}
figures.show(*pipeline.draw(**numbers, X=X_new))

# %% [markdown]
# That is one step of Adafactor. Does a real optimizer agree? Here the course's own one takes the same step, and both
# are held against the values worked out on paper, to ten decimals.

# %%
p = torch.nn.Parameter(X.clone())
p.grad = G.clone()
adafactor.Adafactor([p]).step()
print("the optimizer's X:", [f"{x:.10f}" for x in p.flatten()])
by_hand = torch.tensor([[0.9787867966, 1.97], [2.9715395011, 3.9731671843]], dtype=torch.float64)
torch.testing.assert_close(X_new, by_hand, rtol=0, atol=1e-10)
torch.testing.assert_close(p.data, X_new, rtol=0, atol=1e-15)

# %% [markdown]
# ## Five switches
#
# Five parts make this Adafactor: factoring, update clipping, the growing decay, the relative step size and RMS
# scaling. To see what each one does, we switch it off. The first step will do for the first two, as nothing is
# averaged yet:


# %%
def first_update(G, factoring=True, d=1.0):
    squared = G**2 + 1e-30
    V_hat = factored.reconstruct(*factored.row_col_means(squared)) if factoring else squared  # or V itself
    U = G / V_hat.sqrt()
    return U / max(1.0, rms(U) / d)  # d = inf: no clipping


# %% [markdown]
# For examples, real ones: the gradients of the small model on its first batch. And one made to be difficult: a matrix
# with 1 and 0.001 on its diagonal, and zeros elsewhere.

# %%
task = tasks.load("small")
model = task.model(seed=0).eval()
batch = task.collator([task.train[i] for i in range(32)])
model(**batch).loss.backward()
layer, words = model.distilbert.transformer.layer[0], model.distilbert.embeddings.word_embeddings
diagonal = torch.nn.Parameter(torch.full((2, 2), 0.05, dtype=torch.float64))
diagonal.grad = torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64))
examples = {"attention": layer.attention.out_lin.weight, "tokens": words.weight, "diag(1, 0.001)": diagonal}

# %% [markdown]
# ### Factoring
#
# First no factoring and no clipping: V is kept in full.

# %%
predict("05-first-step")

# %% tags=["answer"]
G = examples["attention"].grad.double()
U = first_update(G, factoring=False, d=inf)
print("The smallest and the largest of all entries:")
print(f"|G| from {G.abs().min():.0e} to {G.abs().max():.0e}")
print(f"|U| from {U.abs().min():.6f} to {U.abs().max():.6f}")
assert torch.allclose(U, G.sign())
print("Each entry of U is the sign of its gradient, 1 or -1.")
reveal("05-first-step")

# %% [markdown]
# In the picture below, where each dot is an entry, **every departure from the line at 1 is factoring error**. Switch
# factoring off and on. Then try the other gradients.

# %% tags=["picture"]
picture = FirstStep()


def draw(gradient="attention", factoring=True, d=inf, rms_scaling=False):
    X, G = examples[gradient].detach().double(), examples[gradient].grad.double()
    U = first_update(G, factoring, d) * (rms(X) if rms_scaling else 1.0)
    return picture.update(G, U, gradient, factoring=factoring, clipping=d < inf, RMS_scaling=rms_scaling)


threshold = Choice((inf, 2.0, 1.0, 0.5), "clip at d (inf: off)")
explore(draw, gradient=[*examples], factoring=True, d=threshold, rms_scaling=Switch("RMS scaling: times RMS(X)"))

# %% [markdown]
# Large gradients land close to the line; the dashed line shows what they would get without any scaling. Entries that
# are small *for their row and column* stay small: V̂ knows what is usual there, not what each one is. Clipping and
# RMS scaling move all dots together.

# %% [markdown]
# ### Update clipping
#
# Now the diagonal matrix, factored. R and C cannot say that the zeros are zeros. So V̂ takes the second entry for a
# million times smaller than it is, and the unclipped U is about (1, 1000) on the diagonal.

# %%
G = diagonal.grad
print("V: ", (G**2).diag().numpy())
print("V̂: ", factored.reconstruct(*factored.row_col_means(G**2)).diag().numpy())

# %%
predict("05-clip")

# %% tags=["answer"]
before, after = first_update(G, d=inf), first_update(G, d=1.0)
print("The diagonal of U, before and after clipping:")
print("before:", before.diag().numpy().round(6).tolist())
print("after: ", after.diag().numpy().round(6).tolist())
print(f"The RMS was {rms(before):.2f}, and is {rms(after):.2f}.")
reveal("05-clip")

# %% [markdown]
# The entry with gradient 1 had the right update, and clipping shrank it along with the other. **It slows the
# innocent.** That is the price of one number for a whole matrix; the gain is that no factoring error can throw the
# parameters far off.

# %% [markdown]
# It is tempting to think that **clipping acts entry by entry**. That would bend the update into another direction.
# Update clipping shortens it and keeps all ratios:

# %%
for name, U in (("unclipped", before), ("entry by entry", before.clamp(-1, 1)), ("as a whole", after)):
    print(f"{name:14}  second entry = {U[1, 1] / U[0, 0]:6.1f} times the first")

# %% [markdown]
# Nor is it the **l2 clip** that is known from gradients (`max_grad_norm`), which looks at the length, the root of the
# *sum* of squares. The length of a healthy update grows with the matrix. Its RMS does not:

# %%
for shape in ((2, 2), (768, 768), (3072, 768)):
    healthy = torch.ones(shape)  # every |U| is 1
    print(f"{shape!s:12} RMS {rms(healthy):.0f}   length {healthy.norm():6.0f}")

# %% [markdown]
# With d = 1 an l2 clip would slow the large matrix 1,536 times, for being large. And real updates, factored but
# unclipped: how far is their RMS from 1?

# %% tags=["varies"]
for name, p in examples.items():
    print(f"{name:14} RMS(U) = {rms(first_update(p.grad.double(), d=inf)):7.2f}")
    assert rms(first_update(p.grad.double(), d=inf)) > 1

# %% [markdown]
# Of the real ones, attention is shortened a little, and the tokens more: they fit their rows and columns less well,
# as you know from lesson 04. All of their update pays for a few large entries.

# %% [markdown]
# ### The growing decay
#
# Switch β₂(t) off: take a constant 0.999 and no correction. Let every gradient be 1. How long is an unclipped update?


# %%
def growing_ema(values):
    average, so_far = torch.zeros_like(values[0]), []
    for t, value in enumerate(values, start=1):
        average = torch.lerp(average, value, t**-0.8)  # 1 - β₂(t)
        so_far.append(average)
    return torch.stack(so_far)


# %%
G = torch.ones(1000)
constant, growing = (G / V.sqrt() for V in (averages.ema(G**2, 0.999), growing_ema(G**2)))
for t in (1, 10, 100, 1000):
    print(f"step {t:4}: constant {constant[t - 1]:5.1f}   growing {growing[t - 1]:.1f}")

# %% [markdown]
# A constant decay starts with steps 32 times too long, and is still off after a hundred. With clipping on you would
# not even notice: it would cut them all to 1. The growing decay needs no such rescue, and its window grows as
# training calms down.

# %% [markdown]
# ### The relative step size
#
# Now ρₜ = min(0.01, 1/√t), which takes the place of a learning rate.

# %%
predict("05-flat")

# %% tags=["answer"]
t = torch.arange(1, 100_001, dtype=torch.float64)
rho, warmup = torch.clamp(t**-0.5, max=1e-2), torch.minimum(1e-6 * t, t**-0.5)
print("ρₜ over 100,000 steps:")
figures.show(*step_sizes.relative_step(t, rho, warmup))
print(f"The last step at 0.01 is step {int(t[rho == rho[0]][-1]):,}.")
reveal("05-flat")

# %% [markdown]
# You may have heard that **ρₜ decays from the start**. The 1/√t is there from the start, but the smaller of the two
# counts. Many fine-tuning runs are over before the bend: for them the relative step size is a constant.

# %% [markdown]
# Switched off, the step size is the `lr` that you give, for your scheduler to change. We let the library's optimizer
# believe that it has taken many steps:


# %%
def move(at, **settings):
    p = torch.nn.Parameter(torch.ones(2, 2))
    p.grad = torch.ones(2, 2)
    optimizer = adafactor.Adafactor([p], **settings)
    optimizer.step()  # makes the state
    optimizer.state[p]["step"].fill_(at - 1)
    p.data.fill_(1.0)
    optimizer.step()
    return 1 - p[0, 0]


for name, settings in (("on ", {}), ("off", {"relative_step": False, "lr": 1e-2})):
    print(f"relative step {name}: step 2 {move(2, **settings):.4f}, step 40,000 {move(40_000, **settings):.4f}")

# %% [markdown]
# (The dashed line in the figure is the option `warmup_init`: it starts at 0.000001 and climbs until it meets the
# other line, at the bend.)

# %% [markdown]
# ### RMS scaling
#
# Two layers get the same gradient. The parameters of one are a hundred times smaller. By what share of its own size
# does each move in one step?


# %%
def relative_move(X, **settings):
    p = torch.nn.Parameter(X.clone())
    p.grad = 0.1 * torch.ones_like(X)
    adafactor.Adafactor([p], **settings).step()
    return rms(p.detach() - X) / rms(X)


for scaling in (True, False):
    moves = [relative_move(size * torch.ones(2, 2), scale_parameter=scaling) for size in (1.0, 0.01)]
    print(f"RMS scaling {'on ' if scaling else 'off'}: large {moves[0]:.0%}, small {moves[1]:.0%}")

# %% [markdown]
# With scaling both move by 1 %, whatever their size: that is what *relative* means. Without it the small one moves by
# its whole size. A good step size with scaling is therefore too large without, by the factor 1 / RMS(X). In the
# small model, before training:

# %%
sizes = [rms(p.detach()) for p in model.parameters() if p.ndim == 2]
print(f"RMS of the small model's matrices: {min(sizes):.3f} to {max(sizes):.3f}, so a factor of {1 / min(sizes):.0f}")
assert max(sizes) < 0.021
print(f"They are drawn at random, with the standard deviation {model.config.initializer_range}")

# %% [markdown]
# All are drawn with this same size; training spreads them. Then each matrix has a factor of its own.

# %% [markdown]
# > **Stopping point for a class.** So far: one step by hand, and what each of its parts is for. What follows: what
# > the missing first moment costs, and the optimizer as code.

# %% [markdown]
# ## What went with the first moment
#
# Adam divides its *average* gradient by the root. Adafactor divides the latest one. To see the difference, let 200
# gradients be 1 and the next be 100: a batch gone wrong. How long are the steps?

# %%
G = torch.ones(400)
G[200] = 100.0
first, second = averages.ema(G, 0.9, bias_correction=True), averages.ema(G**2, 0.999, bias_correction=True)
growing = G / growing_ema(G**2).sqrt()
lines = {
    "Adam": first / second.sqrt(),
    "no first moment, β₂ = 0.999": G / second.sqrt(),
    "no first moment, β₂(t)": growing,
    "Adafactor, clipped": growing.clamp(max=1.0),  # all entries alike: RMS(U) is |U|
}
figures.show(*step_sizes.spike(lines, at=201, around=(170, 260)))

# %% [markdown]
# Adam's first moment gives the wild gradient a tenth of its weight: the step is 1.5. Drop it, and it is 13.4. The
# growing decay, which at step 201 still adapts faster than 0.999, brings that to 8.3. **Update clipping does the
# rest.** And an update of 1 moves the parameters by one per cent only: the relative step size.

# %% [markdown]
# What nothing makes up for: an average also cancels *noise*. If the gradient's sign flips at every step, Adam nearly
# stands still. Without the average the steps go to and fro, at full length, until the step size falls.

# %%
G = torch.tensor([1.0, -1.0] * 100)
first, second = averages.ema(G, 0.9, bias_correction=True), averages.ema(G**2, 0.999, bias_correction=True)
print(f"Adam's last update:      {(first / second.sqrt())[-1]:5.2f}")
print(f"Adafactor's last update: {(G / growing_ema(G**2).sqrt())[-1]:5.2f}")

# %% [markdown]
# `transformers` can bring a first moment back: `beta1=0.9`. The price is one number per parameter again, the 250.9
# MiB that dropping it had saved. The paper trains a translation model without it, and reports results comparable to
# Adam's.

# %% [markdown]
# ## Two ε with two jobs
#
# They are easily mixed up. **ε₁ = 1e-30 is added to G²**, and keeps dead rows alive. The rows of tokens that are not
# in the batch have a gradient of exactly zero. Without ε₁ the first step divides 0 by 0.


# %%
def one_step(X, G, **settings):
    p = torch.nn.Parameter(X.double())
    p.grad = G.double()
    adafactor.Adafactor([p], **settings).step()
    return p.detach()


zero_row = torch.tensor([[0.0, 0.0], [0.1, 0.2]])
print("ε₁ = 0:    ", one_step(torch.ones(2, 2), zero_row, eps=(0.0, 1e-3)).tolist())
print("ε₁ = 1e-30:", one_step(torch.ones(2, 2), zero_row, eps=(1e-30, 1e-3)).tolist())

# %% [markdown]
# **ε₂ = 1e-3 is the floor under RMS(X)**, and lets zeros leave zero. In DistilBERT a bias starts at zero; its RMS is
# 0, so without a floor its steps would be 0 forever.

# %%
assert all(not p.any() for name, p in model.named_parameters() if name.endswith("bias"))
for eps2 in (0.0, 1e-3):
    print(f"ε₂ = {eps2}: zeros become", one_step(torch.zeros(2), torch.ones(2), eps=(1e-30, eps2)).tolist())

# %% [markdown]
# And if you swap them? Then 0.001 is added to G². Gradients are often smaller than its root, 0.03: these are no
# longer scaled up, and hardly move anything.

# %%
small = torch.full((2, 2), 1e-4)
for eps in ((1e-30, 1e-3), (1e-3, 1e-30)):
    print(f"eps = {eps}: X moves by {(1 - one_step(torch.ones(2, 2), small, eps=eps)).max():.6f}")

# %% [markdown]
# ## One NaN
#
# A 3 × 4 matrix meets a gradient with a single NaN. After that step someone repairs the parameters, and all later
# gradients are clean.

# %%
predict("05-nan")

# %% tags=["answer"]
print("After a step with one NaN, and one without:")
for optimizer_class in (torch.optim.AdamW, adafactor.Adafactor):
    p = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = optimizer_class([p])
    p.grad = torch.ones(3, 4)
    p.grad[1, 2] = torch.nan
    optimizer.step()
    p.data.fill_(1.0)  # repaired
    p.grad = torch.ones(3, 4)
    optimizer.step()
    print(f"{optimizer_class.__name__:9} {p.isnan().sum().item():2} of {p.numel()} entries are NaN")
reveal("05-nan")

# %% [markdown]
# AdamW keeps an average for each entry, Adafactor shares its averages, and **no average ever gets rid of a NaN**. So
# check gradients *before* the step, or let a loss scaler skip such steps.

# %% [markdown]
# ## The optimizer in forty lines
#
# You have all its parts. First the second moment. Matrices keep R and C, and axes before the last two are a batch.
# Vectors have no rows and columns: they are not factored (Algorithm 5) and keep all of V.


# %%
def average(state, key, value, beta2):
    old = state.get(key, torch.zeros_like(value))
    state[key] = beta2 * old + (1 - beta2) * value
    return state[key]


def root_of_second_moment(state, squared, beta2):
    if squared.ndim < 2:
        return average(state, "exp_avg_sq", squared, beta2).sqrt()
    R = average(state, "exp_avg_sq_row", squared.mean(dim=-1), beta2)
    C = average(state, "exp_avg_sq_col", squared.mean(dim=-2), beta2)
    share = R / R.mean(dim=-1, keepdim=True)
    return share.sqrt()[..., :, None] * C.sqrt()[..., None, :]


# %% [markdown]
# The last line takes the roots *before* it multiplies. On paper that is the same. But where a dead row meets a dead
# column, V̂ is smaller than a 32-bit number can be, and 0 divided by it would be NaN:

# %%
share, column = torch.tensor(1e-26), torch.tensor(1e-30)
print("root of the product:  ", (share * column).sqrt().item())
print("product of the roots: ", (share.sqrt() * column.sqrt()).item())

# %% [markdown]
# Then the step size, with its two switches: a given `lr` in place of ρₜ, and RMS scaling.


# %%
def step_size(group, t, X):
    rho = min(1e-2, t**-0.5) if group["lr"] is None else group["lr"]
    return rho * max(group["eps"][1], rms(X)) if group["scale_parameter"] else rho


# %% [markdown]
# The rest is bookkeeping that every `torch.optim.Optimizer` shares: settings in groups, a state for each parameter.
# Read the eight stages in `update`.


# %%
class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, lr=None, eps=(1e-30, 1e-3), clip_threshold=1.0, scale_parameter=True):
        settings = {"lr": lr, "eps": eps, "clip_threshold": clip_threshold, "scale_parameter": scale_parameter}
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for X in group["params"]:
                if X.grad is not None:
                    self.update(X, X.grad, self.state[X], group)

    def update(self, X, G, state, group):
        t = state["step"] = state.get("step", 0) + 1
        squared = G**2 + group["eps"][0]
        U = G / root_of_second_moment(state, squared, beta2=1 - t**-0.8)
        U = U / max(1.0, rms(U) / group["clip_threshold"])
        X -= step_size(group, t, X) * U


# %% [markdown]
# Try it on the example. Then open its state: this, for a matrix and for a vector, is all that it remembers.

# %%
X = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
bias = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
X.grad, bias.grad = X.detach() / 10, torch.tensor([0.1, 0.2], dtype=torch.float64)
optimizer = Adafactor([X, bias])
optimizer.step()
torch.testing.assert_close(X.detach(), by_hand, rtol=0, atol=1e-10)
for name, p in (("X", X), ("bias", bias)):
    print(name, optimizer.state[p])

# %% [markdown]
# ## Is it the real one?
#
# Now the test: several steps, on a vector, a wide matrix and a batch of matrices, against the course's library and
# the two public ones. In 64 bits per number, so that rounding cannot hide a difference.


# %%
def run(make, steps=5):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((6,), (5, 7), (2, 3, 4))]
    optimizer = make(params)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in params])


def difference(one, other):
    return (run(one) - run(other)).abs().max().item()


# %%
from functools import partial

from transformers.optimization import Adafactor as Transformers

same = {
    "course_lib": adafactor.Adafactor,
    "transformers, lr=None": Transformers,
    "torch, lr=1e-2": partial(torch.optim.Adafactor, lr=1e-2),
}

# %% tags=["varies"]
for name, make in same.items():
    print(f"{name:22} largest difference {difference(Adafactor, make):.0e}")
    assert difference(Adafactor, make) < 1e-12

# %% [markdown]
# Equal, up to rounding. `Trainer` uses the class of `transformers` too, but passes a rate and switches two parts off.
# Our class has those switches. The second line is the 2 × 2 example with these settings, known from paper as well.
# (The switch card at the end asks Trainer itself.)

# %% tags=["varies"]
trainer = partial(Transformers, lr=1e-3, scale_parameter=False, relative_step=False)
ours = partial(Adafactor, lr=1e-3, scale_parameter=False)
print(f"{'as Trainer sets it':22} largest difference {difference(ours, trainer):.0e}")
assert difference(ours, trainer) < 1e-12
p = torch.nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
p.grad = p.detach() / 10
ours([p]).step()
print("new X:", [f"{x:.10f}" for x in p.flatten()])
assert p.detach().numpy().round(10).tolist() == [[0.9992254033, 1.9989045549], [2.9989607695, 3.9990202041]]

# %% [markdown]
# Is it then the same as torch's class with the same `lr`? It is tempting to think so: one name, one rate. But torch
# scales by RMS(X), always, and what Trainer sets does not:

# %%
torchs = partial(torch.optim.Adafactor, lr=1e-3)
print(f"largest difference {difference(trainer, torchs):.1e}, in steps of 1e-3")
assert difference(trainer, torchs) > 1e-4

# %%
for size in (1.0, 0.05):
    for name, make in (("as Trainer sets it", trainer), ("torch", torchs)):
        p = torch.nn.Parameter(size * torch.ones(2, 2, dtype=torch.float64))
        optimizer = make([p])
        p.grad = torch.ones_like(p)
        optimizer.step()
        print(f"RMS(X) = {size:<4}  {name:18}  first step {size - p[0, 0]:.0e}")

# %% [markdown]
# At RMS(X) = 0.05 one goes 20 times as far as the other. Lesson 07 will translate one rate into the other.

# %% [markdown]
# ### It trains
#
# A last check: handwritten digits, 8 × 8 pixels, and a network of two layers. This is no contest: one run proves
# nothing. Does your class learn, and what does it keep?

# %%
from sklearn.datasets import load_digits

images, digits = load_digits(return_X_y=True)
images, digits = torch.tensor(images[:500] / 16).float(), torch.tensor(digits[:500])


# %%
def train(make, steps=200):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = make(net.parameters())
    losses = []
    for _ in range(steps):
        losses.append(torch.nn.functional.cross_entropy(net(images), digits))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    return losses[0].item(), losses[-1].item(), memory.state_size(optimizer)


# %% tags=["varies"]
for name, make in (("AdamW", torch.optim.AdamW), ("our Adafactor", Adafactor)):
    first, last, size = train(make)
    print(f"{name:14} loss {first:.2f} → {last:.2f}   state: {size.elements:6,} numbers")
    assert last < 0.5

# %% [markdown]
# ## Going deeper: a rate that eats itself
#
# A fault that two libraries had. With `scale_parameter=True` each parameter needs its own step size. Someone wrote
# that back into the group's `lr`, where the next parameter found it. Five parameters, six steps:

# %%
lr = 1e-3
for step in range(1, 7):
    for size in (0.05, 0.5, 1.0, 0.02, 0.05):  # RMS of five parameters
        lr = lr * size  # the mistake: group["lr"] = ...
    print(f"after step {step}: lr = {lr:.0e}")

# %% [markdown]
# No error, no warning; the loss stops moving. Look at `step_size` above: it *returns* the product and leaves the
# group alone. After 50 steps over five parameters the library's rate is what was given:

# %%
params = [torch.nn.Parameter(size * torch.ones(2, 2)) for size in (0.05, 0.5, 1.0, 0.02, 0.05)]
optimizer = adafactor.Adafactor(params, lr=1e-3, relative_step=False)
for _ in range(50):
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
print("lr after 50 steps:", optimizer.param_groups[0]["lr"])
assert optimizer.param_groups[0]["lr"] == 1e-3

# %% [markdown]
# ## Going deeper: another place for ε₁
#
# torch does not add ε₁ to G². It keeps mean(R) and **√V̂** from falling below it, and its ε₁ is far larger. You notice
# only when gradients are tiny:

# %%
for size in (1.0, 1e-4, 1e-8):
    for name, make in (("ours", adafactor.Adafactor), ("torch", torch.optim.Adafactor)):
        p = torch.nn.Parameter(torch.ones(2, 2))
        optimizer = make([p])
        p.grad = torch.full((2, 2), size)
        optimizer.step()
        print(f"|G| = {size:.0e}  {name:5} moves {1 - p[0, 0]:.4f}")

# %% [markdown]
# ## The switch card
#
# Which parts are on, in the paper and in what you will use? Only the first column is copied from the paper. For the
# others the libraries' own optimizers take a few steps, and their moves give them away.

# %%
figures.show(*switch_card.draw())

# %% [markdown]
# Read the third column: what Trainer sets has two parts **off**. You choose the rate, and no RMS(X) adapts it to the
# layer. Lessons 06 and 07 begin with this card.

# %% [markdown]
# **For those who are done early.** Give your class a first moment: an EMA of the scaled step, with decay 0.9, kept
# under `exp_avg`. Compare it to `partial(Transformers, beta1=0.9)` with `difference`. How many numbers does the state
# of the digits' network hold then? The next cell has an answer.


# %% tags=["answer"]
class WithFirstMoment(Adafactor):
    def update(self, X, G, state, group):
        before = X.clone()
        super().update(X, G, state, group)
        X.copy_(before - average(state, "exp_avg", before - X, 0.9))


print("One way to do it, and what it keeps:")
assert difference(WithFirstMoment, partial(Transformers, beta1=0.9)) < 1e-12
print("The same parameters as from transformers, to 12 decimals.")
without, with_it = (train(make)[2].elements for make in (Adafactor, WithFirstMoment))
print(f"The digits: {without} + {with_it - without:,} = {with_it:,} numbers. One more for each parameter.")

# %% [markdown]
# ## Recap
#
# - One step: square, average rows and columns, multiply, divide, clip, scale, subtract. Only R and C last.
# - At the first step an exact V makes every |U| 1; what departs from 1 is factoring error.
# - Clipping scales the whole update by its RMS. It limits the damage, and slows the innocent.
# - No first moment: sudden gradients are caught by clipping, a growing decay and small relative steps; noise is not
#   averaged.
# - What Trainer sets is Adafactor without relative step size and RMS scaling. torch's class has both on.

# %% [markdown]
# ## Sources
#
# - The steps: Shazeer & Stern 2018, [arXiv 1804.04235](https://arxiv.org/abs/1804.04235), Algorithm 4 (matrices), 5
#   (vectors), 6 (settings). Dropping the first moment: section 4; what is unstable then: 5; update clipping: 6; the
#   growing decay: 7; relative step size and RMS scaling: 8.
# - [`transformers.Adafactor`](https://huggingface.co/docs/transformers/main_classes/optimizer_schedules#transformers.Adafactor),
#   for `warmup_init`, `beta1` and the settings' names; what Trainer passes: `Trainer.get_optimizer_cls_and_kwargs`.
# - [`torch.optim.Adafactor`](https://docs.pytorch.org/docs/stable/generated/torch.optim.Adafactor.html): `lr` as the
#   cap of ρₜ, its own use of ε₁.
# - The rate written back: [transformers#9751](https://github.com/huggingface/transformers/pull/9751),
#   [ParlAI#2547](https://github.com/facebookresearch/ParlAI/pull/2547). The two ε mixed up:
#   [prodigy#25](https://github.com/konstmish/prodigy/issues/25).
# - Digits: UCI, *Optical Recognition of Handwritten Digits*, through
#   [`load_digits`](https://scikit-learn.org/stable/modules/generated/sklearn.datasets.load_digits.html).
