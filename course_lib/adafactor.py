"""Adafactor, written to be read.

Source: Shazeer & Stern 2018 (arXiv 1804.04235), Algorithms 4 (matrices), 5 (vectors) and 6 (default settings).
Argument names follow ``transformers.optimization.Adafactor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from course_lib._adafactor_checks import check_saved_groups, check_saved_state, check_settings
from course_lib.averages import adafactor_beta2


class Adafactor(torch.optim.Optimizer):
    """Adafactor without momentum: one number per row and one per column instead of one per parameter.

    State of each parameter, and nothing else:

    - ``step``: 0-dim float32 tensor, the number of updates so far;
    - ``exp_avg_sq_row`` ``[..., n]`` and ``exp_avg_sq_col`` ``[..., m]`` for a parameter of shape ``[..., n, m]``:
      moving averages of the row and column means of the squared gradient (leading axes are separate matrices);
    - ``exp_avg_sq``, of the parameter's own shape, for parameters of fewer than two axes.

    A ``[1, m]`` or ``[n, 1]`` matrix is factored like any other and then keeps one number *more* than it has
    entries. Averages, and the arithmetic on them, are float32, or float64 for float64 parameters.

    A NaN in one entry of a gradient turns every entry of that parameter into NaN in the same step (through the mean
    of the row means and the clipping) and stays in the averages for good: check gradients before ``step`` where
    that can happen.

    Args:
        params: parameters or parameter groups.
        lr: learning rate, or None for the paper's relative step size.
        eps: ``(eps1, eps2)``. ``eps1`` is added to the squared gradient, so that nothing is divided by zero;
            ``eps2`` is the floor under the root mean square of a parameter, so that a parameter of zeros can move.
        clip_threshold: largest root mean square that an update may have before the learning rate, ``d`` in the paper.
        decay_rate: exponent of the decay ``beta2(t) = 1 - t**decay_rate``.
        weight_decay: share of the parameter taken off at each step, times the step size in effect.
        scale_parameter: multiply the step size by the parameter's root mean square (at least ``eps2``).
        relative_step: take ``min(1e-2, 1/sqrt(t))`` as the step size. What a scheduler writes into ``lr`` is then
            ignored.
        warmup_init: start the relative step size small: ``min(1e-6 * t, 1/sqrt(t))``.

    Raises:
        ValueError: settings that contradict each other or are out of range; complex parameters.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | None = None,
        eps: tuple[float, float] = (1e-30, 1e-3),
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        warmup_init: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "eps": eps,
            "clip_threshold": clip_threshold,
            "decay_rate": decay_rate,
            "weight_decay": weight_decay,
            "scale_parameter": scale_parameter,
            "relative_step": relative_step,
            "warmup_init": warmup_init,
        }
        super().__init__(params, defaults)  # calls add_param_group, which checks the settings

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, with its own settings where it names any."""
        check_settings({**self.defaults, **param_group})
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if any(p.is_complex() for p in group["params"]):
            self.param_groups.pop()
            raise ValueError("Adafactor keeps means of squares, which are defined here for real parameters only.")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: recomputes the loss and the gradients, as for torch's own optimizers.

        Returns:
            What ``closure`` returned, or None.

        Raises:
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, group)
        return loss

    def _update(self, p: Tensor, group: dict[str, Any]) -> None:
        if p.grad.is_sparse:
            raise RuntimeError(
                "Adafactor needs dense gradients, but this one is sparse. Build the embedding with sparse=False."
            )
        G = p.grad.to(_state_dtype(p))
        X = p.to(_state_dtype(p))
        state = self.state[p]
        if not state:
            state.update(_new_state(p))
        state["step"] += 1
        if p.numel() == 0:
            return
        t = state["step"].item()
        step_size = _step_size(group, t, X)

        # How large is the gradient usually? Only rows and columns are remembered.
        squared = G.square() + group["eps"][0]
        weight = 1 - adafactor_beta2(t, group["decay_rate"])
        if p.ndim >= 2:
            R, C = state["exp_avg_sq_row"], state["exp_avg_sq_col"]
            R.lerp_(squared.mean(dim=-1), weight)
            C.lerp_(squared.mean(dim=-2), weight)
            # G / sqrt(R C / mean(R)), factor by factor: R C itself could underflow.
            U = G * (R.mean(dim=-1, keepdim=True).sqrt() * R.rsqrt()).unsqueeze(-1)
            U *= C.rsqrt().unsqueeze(-2)
        else:
            V = state["exp_avg_sq"]
            V.lerp_(squared, weight)
            U = G * V.rsqrt()

        # Clip the update as a whole, then take the step.
        U /= (_rms(U) / group["clip_threshold"]).clamp(min=1.0)
        if group["weight_decay"]:
            U += group["weight_decay"] * X
        U *= step_size
        p.sub_(U)  # in the averages' dtype, rounded to the parameter's at the end

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state saved by ``state_dict()``, keeping its averages in float32 (or float64).

        torch's own loading casts every average to the parameter's dtype, which would round the averages of a bfloat16
        or float16 parameter. A state saved by ``transformers.optimization.Adafactor`` is accepted too.

        Raises:
            ValueError: the state belongs to another kind of optimizer, or to parameters of other shapes. This one is
                then left as it was.
        """
        loaded: dict[str, Any] = {}

        def check(_: torch.optim.Optimizer, given: dict[str, Any]) -> None:
            check_saved_groups(given["param_groups"], self.defaults)
            for p, saved in _pairs(self.param_groups, given):
                check_saved_state(p, saved, _new_state(p))
            loaded.update(given)

        def restore(_: torch.optim.Optimizer) -> None:
            for p, saved in _pairs(self.param_groups, loaded):
                self.state[p] = {
                    key: torch.as_tensor(saved[key]).to(new.device, new.dtype, copy=True)
                    for key, new in _new_state(p).items()
                }

        # After the user's own hooks before loading, and before those after it.
        hooks = (
            self.register_load_state_dict_pre_hook(check),
            self.register_load_state_dict_post_hook(restore, prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()


def _state_dtype(p: Tensor) -> torch.dtype:
    return torch.promote_types(p.dtype, torch.float32)


def _new_state(p: Tensor) -> dict[str, Tensor]:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=_state_dtype(p), device=p.device)

    # Like torch's own optimizers, count on the CPU: reading the step then never waits for a GPU.
    step = torch.tensor(0.0, dtype=torch.float32)
    if p.ndim >= 2:
        return {
            "step": step,
            "exp_avg_sq_row": zeros(*p.shape[:-1]),
            "exp_avg_sq_col": zeros(*p.shape[:-2], p.shape[-1]),
        }
    return {"step": step, "exp_avg_sq": zeros(*p.shape)}


def _step_size(group: dict[str, Any], t: float, X: Tensor) -> float | Tensor:
    """The step size in effect. It is never written back to the group, where it would compound."""
    step_size = group["lr"]
    if group["relative_step"]:
        step_size = min(1e-6 * t if group["warmup_init"] else 1e-2, t**-0.5)
    if group["scale_parameter"]:
        step_size = step_size * _rms(X).clamp(min=group["eps"][1])
    return step_size


def _rms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x) / x.numel() ** 0.5


def _pairs(groups: list[dict[str, Any]], loaded: dict[str, Any]) -> Iterable[tuple[Tensor, dict[str, Any]]]:
    """Each parameter that has a saved state, with that state. Parameters are matched by position, as torch does."""
    for group, saved_group in zip(groups, loaded["param_groups"], strict=False):
        for p, index in zip(group["params"], saved_group["params"], strict=False):
            if saved := loaded["state"].get(index):
                yield p, saved
