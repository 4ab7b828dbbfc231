"""What Trainer takes as ``callbacks``. Importing this imports transformers: call ``tier.current()`` before."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import torch
from transformers import TrainerCallback

from course_lib.finite import require_finite


class StopAtNaN(TrainerCallback):
    """Ends a run with a ``FloatingPointError`` as soon as its loss or a gradient is NaN or infinite.

    That is before the step which would carry it into the weights, the optimizer state, and the next checkpoint. Trainer
    alone goes on, and by default (``logging_nan_inf_filter``) its log replaces such a loss by the mean of those before.

    The loss is read off what the model returns; where Trainer computes it (``compute_loss_func``, label smoothing), the
    gradients have to tell. Under fp16 they are not looked at, as a step in which they overflow is left out anyway.
    """

    def __init__(self) -> None:
        self.last: float | None = None
        self._loss: Any = None
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._release()
        self.last = None
        self._hook = kwargs["model"].register_forward_hook(self._remember)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._check(args, state, **kwargs)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._check(args, state, **kwargs)
        if not args.fp16:
            grads = [p.grad for p in kwargs["model"].parameters() if p.grad is not None and not p.grad.is_sparse]
            # The largest entry, whose square cannot overflow.
            largest = torch.nn.utils.get_total_norm(grads, norm_type=inf) if grads else 0.0
            self._require(largest, args, state, what="largest entry of the gradients", **kwargs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._release()

    def _remember(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if module.training:
            loss = (
                output.get("loss") if isinstance(output, Mapping) else output[0] if isinstance(output, tuple) else None
            )
            self._loss = loss if isinstance(loss, torch.Tensor) and loss.ndim == 0 else None

    def _check(self, args: Any, state: Any, **kwargs: Any) -> None:
        loss, self._loss = self._loss, None
        if loss is not None:
            self.last = self._require(loss, args, state, **kwargs)

    def _require(self, value: Any, args: Any, state: Any, what: str = "loss", **kwargs: Any) -> float:
        try:
            return require_finite(
                value,
                state.global_step + 1,
                self.last,
                what=what,
                lr=kwargs["optimizer"].param_groups[0]["lr"],
                warmup=args.warmup_steps > 0,
                clipping=args.max_grad_norm > 0,
                fp16=args.fp16,
            )
        except FloatingPointError:
            self._release()
            raise

    def _release(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
