"""Real second moments: the small tier's model, trained for a few seconds, and what AdamW then keeps of it.

Lessons 03 and 04 look at these matrices. They come from the small tier on every machine, so that both lessons show
the same pictures with and without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from course_lib import tasks
from course_lib.threads import one_thread


def train_and_collect(steps: int = 200, beta2: float = 0.99, seed: int = 0) -> dict[str, Tensor]:
    """Train the small tier's classifier with AdamW and return the second moment of each of its matrices.

    Takes some five seconds; the same seed gives the same matrices.

    Args:
        steps: optimizer steps, each on a batch of 32 names.
        beta2: decay of the average of squared gradients. Lower than AdamW's usual .999, so that after 200 steps the
            average looks at the last hundred gradients or so, and hardly at the zeros that it started from.
        seed: for the weights, the order of the names and dropout.

    Returns:
        Parameter name → second moment V of shape ``[out, in]``, or ``[tokens, width]`` for embeddings, as it stands in
        the optimizer's state: **not** corrected for the start from zero, which would divide all entries by the same
        ``1 - beta2**steps``. Only matrices; vectors (biases, LayerNorm) are left out.
    """
    task = tasks.load("small")
    model = task.model(seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=task.learning_rate, betas=(0.9, beta2))
    batches = torch.utils.data.DataLoader(
        task.train,
        batch_size=task.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=task.collator,
        generator=torch.Generator().manual_seed(seed),
    )
    # Dropout draws from the global generator, which is the caller's.
    with one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        train(model, optimizer, batches, steps)
    return second_moments(model, optimizer)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[dict], steps: int) -> None:
    """Take so many steps, going through ``batches`` again as often as needed.

    Args:
        model: called as ``model(**batch)``; its result has a ``loss``, as with `transformers`.
        optimizer: over the model's parameters.
        batches: dictionaries of tensors.
        steps: how many.
    """
    model.train()
    for _, batch in zip(range(steps), _endless(batches), strict=False):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def second_moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of AdamW's ``exp_avg_sq`` for each matrix of ``model``, by parameter name.

    Raises:
        KeyError: the optimizer has taken no step yet, or it is one that keeps no ``exp_avg_sq``.
    """
    return {
        name: optimizer.state[parameter]["exp_avg_sq"].detach().clone()
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2
    }


def _endless(batches: Iterable[dict]) -> Iterator[dict]:
    while True:
        yield from batches
