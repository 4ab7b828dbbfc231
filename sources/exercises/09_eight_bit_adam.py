# %% [markdown]
# You quantize numbers by hand, price 8-bit AdamW to the byte, and measure which numbers 8 bits lose.

# %%
import torch

from course_lib import blockwise, figures, memory, tasks
from course_lib.diagrams import waterfall

MIB = 2**20  # bytes

# %% [markdown] task="quantize_blocks" minutes=12 difficulty="medium" good_for="reading any 8-bit optimizer"
# ## Quantize, block by block
#
# Write `quantize_blocks(x, block_size)`: linear
# [block-wise quantization](../notebooks/glossary.ipynb#block-wise-quantization) of the numbers in `x`, a tensor with
# one axis. Its first `block_size` numbers are the first block, and so on; the last block holds what is left.
#
# - The scale of a block is its [absmax](../notebooks/glossary.ipynb#absmax).
# - The code of a number is its share of that scale, times 127, rounded to the nearest whole number: −127 to 127.
# - A block may hold nothing but zeros. Then all its codes are 0, and its scale may be any finite number.
#
# Return the codes, one for each number, and the scales, one for each block. Gradients and their squares can be tiny,
# so it has to work for numbers of 10⁻²⁵ too. A loop over the blocks is fine.


# %%
def quantize_blocks(x, block_size):
    """For `x` of shape [n]: `(codes, scales)`, of the shapes [n] and [number of blocks]."""
    ### BEGIN SOLUTION
    codes, scales = [], []
    for block in x.split(block_size):
        absmax = block.abs().max()
        shares = block / absmax if absmax > 0 else block
        codes.append((shares * 127).round().to(torch.int8))
        scales.append(absmax)
    return torch.cat(codes), torch.stack(scales)
    ### END SOLUTION


# %% [markdown] tags=["why"]
# `split` leaves a shorter block at the end, where `reshape(-1, block_size)` would stop with an error. The largest
# number of a block gets the code 127 or −127, whatever its sign, because the scale is an *absolute* value. Only a
# block of zeros needs care, since 0 / 0 is no number.

# %%
check.quantize_blocks()

# %% [markdown]
# Three blocks of 16 numbers between 0.5 and 2. In the middle one you put an outlier. What comes back?


# %%
def read_back():
    x = torch.rand(48, generator=torch.Generator().manual_seed(0)) * 1.5 + 0.5
    x[20] = 300.0
    codes, scales = (torch.as_tensor(part) for part in quantize_blocks(x, 16))
    back = codes / 127 * scales.reshape(-1).repeat_interleave(16)
    errors = 100 * (back - x).abs() / x
    lost = int((back[16:32] == 0).sum())
    outside = max(errors[:16].max(), errors[32:].max()).item()
    fig, ax = figures.subplots(height=2.6)
    ax.bar(range(48), errors, color=figures.COLORS["adam8bit"])
    for edge in (15.5, 31.5):
        ax.axvline(edge, color=figures.COLORS["muted"], linewidth=1)
    ax.set(title=f"{lost} of 15 neighbours of the outlier came back as 0")
    ax.set(xlabel="number", ylabel="error in %")
    alt = f"Error of 48 numbers, in three blocks. In the block of the outlier, number 20, {lost} come "
    alt += f"back as 0, an error of 100 %; in the other two it is at most {outside:.1f} %."
    figures.show(fig, alt=alt)


check.preview(read_back)

# %% [markdown] task="adam8bit_bytes" minutes=10 difficulty="medium" good_for="knowing beforehand what 8 bits save"
# ## Price it to the byte
#
# Write `adam8bit_bytes(shapes)`: how many bytes of state 8-bit AdamW, as in bitsandbytes, keeps for parameters of
# these shapes. `shapes` is a list of tuples such as `[(1024, 512), (512,)]`. Count as in the lesson:
#
# - Each tensor has a first and a second moment. Each of them is kept in codes of 8 bits, in blocks of 256 numbers of
#   the flattened tensor, and with one scale of 32 bits for each block. The last block need not be full.
# - Tensors of fewer than 4,096 elements are not quantized. They keep both moments in 32 bits for each number.
# - There are two [maps](../notebooks/glossary.ipynb#quantization-map) of 256 numbers, of 32 bits each, which all
#   quantized tensors share. Without a quantized tensor there are no maps.
# - The counts of steps are Python numbers and take no bytes here.


# %%
def adam8bit_bytes(shapes):
    """Bytes of state for tensors of these shapes, a list of tuples; returns a whole number."""
    ### BEGIN SOLUTION
    total, maps = 0, 0
    for shape in shapes:
        n = 1
        for length in shape:
            n *= length
        if n < 4096:
            total += 2 * 4 * n
        else:
            blocks = (n + 255) // 256
            total += 2 * (n + 4 * blocks)
            maps = 2 * 4 * 256
    return total + maps
    ### END SOLUTION


# %% [markdown] tags=["why"]
# A quantized tensor of n numbers takes 2 · (n + 4 · blocks) bytes: one byte for a code, four for a scale, and all that
# for both moments. `(n + 255) // 256` rounds up, because a block that is not full needs its scale too. For 1024 × 512
# that is 1,064,960 bytes, and 2,048 for the maps.

# %%
check.adam8bit_bytes()

# %% [markdown]
# Your price for all 104 tensors of DistilBERT, beside its weights, its gradients and two other optimizers:


# %%
def price_of_distilbert():
    model = tasks.distilbert(device="meta")
    yours = adam8bit_bytes([tuple(p.shape) for p in model.parameters()])
    print(f"Yours: {yours:,} bytes, counted by the library:", end=" ")
    print(f"{memory.predict_state_size(model, 'adamw8bit_bitsandbytes').bytes:,}")
    weights = sum(p.nbytes for p in model.parameters()) / MIB
    states = {
        "AdamW": memory.predict_state_size(model, "adamw").mib,
        "8-bit AdamW": yours / MIB,
        "Adafactor": memory.predict_state_size(model, "adafactor").mib,
    }
    rest = {"weights": weights, "gradients": weights}
    bars = {name: {**rest, "state": state} for name, state in states.items()}
    figures.show(*waterfall.three_bars(bars))


check.preview(price_of_distilbert)

# %% [markdown] task="share_lost" minutes=8 difficulty="medium" good_for="judging what a tensor loses in 8 bits"
# ## How many numbers are lost?
#
# Write `share_lost(x, block_size, kind)`: quantize the tensor `x` in blocks of `block_size` with the map `kind`,
# `"linear"` or `"dynamic"`, read it back, and return the share of lost numbers, from 0 to 1. A number is *lost* if it
# is not zero in `x` and comes back as zero. Numbers that are zero in `x` are left out of the count altogether: the
# share is that among the others.
#
# `x` is of any shape, has numbers of both signs, and at least one that is not zero. Use `blockwise.quantize`, whose
# codes are places in the map, and `blockwise.dequantize`. Look up their arguments with
# `help(blockwise.quantize)`.


# %%
def share_lost(x, block_size, kind):
    """The share, from 0 to 1, of the numbers of `x` other than zero that come back as zero."""
    ### BEGIN SOLUTION
    back = blockwise.dequantize(blockwise.quantize(x, block_size, kind=kind))
    return (back[x != 0] == 0).double().mean().item()
    ### END SOLUTION


# %% [markdown] tags=["why"]
# What counts is the number that comes *back*. The code 0 says nothing about that: it stands for the first value of the
# map, which is the one nearest to −1. Zeros in `x` cannot get lost, so `back[x != 0]` leaves them out, above and below
# the line of the fraction.

# %%
check.share_lost()

# %% [markdown]
# One of 1,024 numbers grows, in blocks of 256. From which size on does it cost its neighbours, and how many of them
# at most?


# %%
def growing_outlier():
    torch.manual_seed(0)
    x = (torch.rand(1024) * 1.5 + 0.5) * torch.randn(1024).sign()
    sizes = torch.logspace(0, 8, 81)
    fig, ax = figures.subplots(height=3)
    told = []
    for kind, color in (("linear", "state"), ("dynamic", "adafactor")):
        shares = []
        for size in sizes:
            x[300] = size
            shares.append(100 * float(share_lost(x, 256, kind)))
        ax.plot(sizes, shares, color=figures.COLORS[color], label=kind)
        costly = [f"{size:,.0f}" for size, share in zip(sizes, shares, strict=True) if share > 0]
        told.append(f"with the {kind} map from {[*costly, 'no size'][0]} on, {max(shares):.1f} % at most")
    ax.set(xscale="log", title="What one outlier costs")
    ax.set(xlabel="size of the outlier", ylabel="% of all numbers lost")
    ax.legend(loc="center left")
    figures.show(fig, alt=f"Share of lost numbers against the size of one outlier: {'; '.join(told)}.")


check.preview(growing_outlier)
