# %% [markdown]
# You write a second moment and a step of RMSProp, find out what such a step does not notice, and count what four
# optimizers keep for a layer.

# %%
import torch

from course_lib import figures, memory
from course_lib.diagrams import valley

# %% [markdown] task="second_moment" minutes=6 difficulty="easy" good_for="knowing what `exp_avg_sq` holds"
# ## Write the second moment
#
# Write `second_moment(gradients, beta)`. `gradients` is a tensor with one gradient for each step along its first
# axis; a gradient may be a single number, a vector or a matrix. Return the
# [second moment](../notebooks/glossary.ipynb#second-moment) $V$ after the last step, in the shape of one gradient. It
# starts at zero and has the decay `beta`. Return it as an optimizer stores it: without
# [bias correction](../notebooks/glossary.ipynb#bias-correction).


# %%
def second_moment(gradients, beta):
    """V after the last of `gradients` (shape [steps, ...]), in the shape of one gradient."""
    ### BEGIN SOLUTION
    V = torch.zeros_like(gradients[0])
    for G in gradients:
        V = beta * V + (1 - beta) * G**2
    return V
    ### END SOLUTION


# %% [markdown] tags=["why"]
# First squared, then averaged, entry by entry. The square takes the sign away, so a gradient that goes back and
# forth counts in full. Nothing is subtracted, so a gradient that never changes counts in full too.

# %%
check.second_moment()

# %% [markdown] task="rmsprop_step" minutes=9 difficulty="medium" good_for="reading the code of adaptive optimizers"
# ## Write a step of RMSProp
#
# Write `rmsprop_step(param, grad, v, lr, beta, eps)`, without bias correction. `param`, `grad` and `v` are tensors of
# one shape: the parameters, their gradient, and the second moment up to the step before. `lr` is the learning rate,
# `beta` the decay of the second moment.
#
# Return two tensors: the new parameters and the new second moment. Each entry is divided by the root of its own
# second moment, in which the gradient of this step already counts. Add `eps` to that root, or to what is under the
# root: both are in use, and both pass. Leave the three tensors as they are.


# %%
def rmsprop_step(param, grad, v, lr, beta, eps):
    """One step of RMSProp: `(new param, new v)`, two new tensors, all of one shape."""
    ### BEGIN SOLUTION
    new_v = beta * v + (1 - beta) * grad**2
    return param - lr * grad / (new_v.sqrt() + eps), new_v
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The second moment comes first, because the step divides by it. Had it not seen this gradient yet, the very first
# step would divide by `eps` alone. What goes on to the next step is `new_v`, one number for each parameter.

# %%
check.rmsprop_step()

# %% [markdown]
# Your step in a race, down a valley of elongation 100 that lies along the coordinates. Each method has the best of
# 109 learning rates, as in the lesson. Without bias correction RMSProp takes long steps at first and shorter ones
# later, which happens to suit this valley.


# %%
def race():
    def your_rule(G, state):
        v = state.get("V", torch.zeros_like(G))
        moved, state["V"] = rmsprop_step(torch.zeros_like(G), G, v, 1.0, 0.99, 1e-8)
        return -moved

    H, start = valley.turned(100, 0)
    rules = {"SGD": lambda G, _: G, "RMSProp": your_rule}
    runs = {name: valley.fastest(rule, H, start) for name, rule in rules.items()}
    fig, alt = valley.Race().update(100, 0, runs)
    figures.show(fig, alt=alt)


check.preview(race)

# %% [markdown] task="same_path" minutes=5 difficulty="medium" good_for="knowing what RMSProp and Adam even out"
# ## Which changes does it not notice?
#
# RMSProp goes down the valley with the loss $\tfrac12 x_1^2 + 15\,x_2^2$. You change one thing from the first step on,
# and keep the learning rate, the decay and the starting point. After which of these changes does it take the same
# path? (Leave the tiny `eps` aside.)
#
# - **a**: The whole loss is 1,000 times as large.
# - **b**: Only the part with $x_2$ is 1,000 times as large: $\tfrac12 x_1^2 + 15{,}000\,x_2^2$.
# - **c**: The valley is turned by 45°, and the starting point with it. (It counts as the same path if it is
#   turned with them and otherwise unchanged.)
# - **d**: 1,000 is added to the loss.
# - **e**: The loss is multiplied by the number of the step: by 1 at the first, by 2 at the second, and so on.
#
# Let `same_path()` return the letters. Decide before you try it out.


# %%
def same_path():
    """The letters of all changes after which the path is the same: a text such as "ce"."""
    ### BEGIN SOLUTION
    return "abd"
    ### END SOLUTION


# %% [markdown] tags=["why"]
# A factor that a coordinate's gradient has at *every* step is in the root of its V as well, and cancels: whether all
# coordinates share it (a) or one has it alone (b). A constant (d) never reaches the gradient. A turn (c) mixes the
# coordinates, and each divisor belongs to a coordinate. A factor that grows (e) is larger in this gradient than in
# the average, which holds the past.

# %%
check.same_path()

# %% [markdown]
# Try it out with your own `rmsprop_step`. How far does each path of 30 steps get from the one in the unchanged valley?


# %%
def loss(X, steepness=15):
    return X[0] ** 2 / 2 + steepness * X[1] ** 2


def walk(changed, turn):
    X = turn @ torch.tensor([-2.0, 0.5], dtype=torch.float64)
    v, path = torch.zeros_like(X), []
    for step in range(1, 31):
        X.requires_grad_()
        (grad,) = torch.autograd.grad(changed(turn.T @ X, step), X)
        X, v = rmsprop_step(X.detach(), grad, v, 0.015, 0.99, 1e-12)
        path.append(turn.T @ X)
    return torch.stack(path)


def try_out():
    said = "".join(same_path()).lower()
    straight = torch.eye(2, dtype=torch.float64)
    turned = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64) / 2**0.5
    plain = walk(lambda X, step: loss(X), straight)
    for letter, changed, turn in (
        ("a", lambda X, step: 1000 * loss(X), straight),
        ("b", lambda X, step: loss(X, 15_000), straight),
        ("c", lambda X, step: loss(X), turned),
        ("d", lambda X, step: loss(X) + 1000, straight),
        ("e", lambda X, step: step * loss(X), straight),
    ):
        away = (walk(changed, turn) - plain).norm(dim=1).max()
        yours = "the same" if letter in said else "another"
        print(f"{letter}: you said {yours:9} at most {away:.4f} away")


check.preview(try_out)

# %% [markdown] task="state_numbers" minutes=6 difficulty="easy" good_for="pricing an optimizer before you start a run"
# ## Count what they keep
#
# Write `state_numbers(in_features, out_features)` for a layer `torch.nn.Linear(in_features, out_features)`, which has
# a bias. Return a dictionary with the keys `"sgd"`, `"sgd_momentum"`, `"rmsprop"` and `"adamw"`: how many numbers of
# $M$ and $V$ each of them has in its [optimizer state](../notebooks/glossary.ipynb#optimizer-state) after a step, for
# all parameters of the layer together. Leave out the counts of steps.


# %%
def state_numbers(in_features, out_features):
    """A dictionary: how many numbers of M and V each of the four optimizers keeps."""
    ### BEGIN SOLUTION
    n = out_features * in_features + out_features  # weight and bias
    return {"sgd": 0, "sgd_momentum": n, "rmsprop": n, "adamw": 2 * n}
    ### END SOLUTION


# %% [markdown] tags=["why"]
# The weight has `out_features * in_features` entries, the bias one for each output. SGD remembers nothing, momentum
# an M, RMSProp a V, and AdamW both. Weights and gradients are there in any case, and are not state.

# %%
check.state_numbers()

# %% [markdown]
# Does PyTorch keep what you say?


# %%
def against_pytorch():
    yours = state_numbers(1024, 512)
    for kind, optimizer, settings in (
        ("sgd", torch.optim.SGD, {}),
        ("sgd_momentum", torch.optim.SGD, {"momentum": 0.9}),
        ("rmsprop", torch.optim.RMSprop, {}),
        ("adamw", torch.optim.AdamW, {}),
    ):
        layer = torch.nn.Linear(1024, 512)
        running = optimizer(layer.parameters(), lr=0.01, **settings)
        layer(torch.ones(1, 1024)).sum().backward()
        running.step()
        print(f"{kind:12}  yours {yours[kind]:>9,}  PyTorch's {memory.state_size(running).moments:>9,}")


check.preview(against_pytorch)
