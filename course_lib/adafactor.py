"""Adafactor, written to be read.

Source: Shazeer & Stern 2018 (arXiv 1804.04235), Algorithms 4 (matrices), 5 (vectors) and 6 (default settings).
Argument names follow ``transformers.optimization.Adafactor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from course_lib._adafactor_blocks import fits_blocks, update_in_blocks
from course_lib._adafactor_checks import check_saved_groups, check_saved_state, check_settings
from course_lib.averages import adafactor_beta2

SMALL = 2**14  # tensors of at most so many numbers are updated together, those of one shape as one,
STACKED = 2**18  # as long as they make up no more numbers than this


class Adafactor(torch.optim.Optimizer):
    """Adafactor without momentum: one number per row and one per column instead of one per parameter.

    State of each parameter, and nothing else:

    - ``step``: 0-dim float32 tensor, the number of updates so far;
    - ``exp_avg_sq_row`` ``[..., n]`` and ``exp_avg_sq_col`` ``[..., m]`` for a parameter of shape ``[..., n, m]``:
      moving averages of the row and column means of the squared gradient (leading axes are separate matrices);
    - ``exp_avg_sq``, of the parameter's own shape, for parameters of fewer than two axes.

    A ``[1, m]`` or ``[n, 1]`` matrix is factored like any other and then keeps one number *more* than it has
    entries. Averages, and the arithmetic on them, are float32, or float64 for float64 parameters.

    Small parameters of one shape are updated together, and a large matrix on a CPU is walked in blocks of
    ``block_size`` numbers. That is the same arithmetic in another order, so results agree up to rounding. It is faster,
    and needs a few megabytes of room where a whole matrix needs twice its own size.

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

    Attributes:
        block_size: numbers in a block: 2**18, a megabyte in float32, which fits a core's own cache. None takes every
            large matrix as a whole, as is done on other devices.

    Raises:
        ValueError: settings that contradict each other or are out of range; complex parameters.
    """

    block_size: int | None = 2**18

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
            RuntimeError: a gradient is sparse. No parameter of its group has changed then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.is_sparse for p in trained):
                raise RuntimeError(
                    "Adafactor needs dense gradients, but one is sparse. Build the embedding with sparse=False."
                )
            for t, alike in self._stacks(trained):
                if self.block_size and fits_blocks(alike[0], SMALL):
                    update_in_blocks(alike[0], self.state[alike[0]], t, _rate(group, t), group, self.block_size)
                else:
                    self._update(alike, t, group)
        return loss

    def _stacks(self, trained: list[Tensor]) -> Iterator[tuple[float, list[Tensor]]]:
        """Parameters that are updated together, with their step count: small ones of one kind, large ones alone."""
        alike: dict[Any, list[Tensor]] = {}
        for p in trained:
            state = self.state[p]
            if not state:
                state.update(_new_state(p))
            state["step"] += 1
            t = state["step"].item()
            if p.numel() > SMALL:
                yield t, [p]
            elif p.numel():
                alike.setdefault((t, p.shape, p.dtype, p.device), []).append(p)
        for (t, shape, *_), params in alike.items():
            together = STACKED // shape.numel()
            yield from ((t, params[i : i + together]) for i in range(0, len(params), together))

    def _update(self, params: list[Tensor], t: float, group: dict[str, Any]) -> None:
        """Update parameters of one shape as one tensor, whose first axis tells them apart."""
        states = [self.state[p] for p in params]
        G, X = _stacked([p.grad for p in params]), _stacked(params)
        step_size = _step_size(group, t, X)

        # How large is the gradient usually? Only rows and columns are remembered.
        squared = G.square() + group["eps"][0]
        weight = 1 - adafactor_beta2(t, group["decay_rate"])
        if params[0].ndim >= 2:
            R = _averaged([state["exp_avg_sq_row"] for state in states], squared.mean(dim=-1), weight)
            C = _averaged([state["exp_avg_sq_col"] for state in states], squared.mean(dim=-2), weight)
            # G / sqrt(R C / mean(R)), factor by factor: R C itself could underflow.
            U = G * (R.mean(dim=-1, keepdim=True).sqrt() * R.rsqrt()).unsqueeze(-1)
            U *= C.rsqrt().unsqueeze(-2)
        else:
            V = _averaged([state["exp_avg_sq"] for state in states], squared, weight)
            U = G * V.rsqrt()

        # Clip each update as a whole, then take the step.
        U /= (_rms(U) / group["clip_threshold"]).clamp(min=1.0)
        if group["weight_decay"]:
            U += group["weight_decay"] * X
        U *= step_size
        for p, u in zip(params, U, strict=True):
            p.sub_(u.view_as(p))  # in the averages' dtype, rounded to the parameter's at the end

    @torch.no_grad()
    def _get_lr(self, group: dict[str, Any], state: dict[str, Any]) -> float:
        """The relative step size in effect, which ``transformers.optimization.AdafactorSchedule`` asks for, to show it.

        It is that of the last step, but for RMS(X), which is measured anew, as the state does not keep it: with the
        default settings at most 1 % off. Before the first step it is that of the first.

        Args:
            group: one of ``param_groups``.
            state: that of one of the group's parameters.

        Raises:
            ValueError: the group has a given rate. AdafactorSchedule would write over it.
        """
        if not group["relative_step"]:
            raise ValueError(
                "AdafactorSchedule is for relative_step=True. It writes what it shows into lr, beginning with 0, so a "
                "rate that was given would be lost. With a given rate, take any other schedule."
            )
        p = next(p for p in group["params"] if self.state.get(p) is state)
        return float(_step_size(group, max(1.0, float(state.get("step", 0.0))), _stacked([p])))

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


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Tensors of one shape as one, at least in float32, with a first axis that tells them apart and another one."""
    stack = torch.stack(tensors) if len(tensors) > 1 else tensors[0].unsqueeze(0)
    return stack.to(_state_dtype(stack)).reshape(len(tensors), *(tensors[0].shape or (1,)))


def _averaged(averages: list[Tensor], news: Tensor, weight: float) -> Tensor:
    """Move each average towards its new value, in place, and return them stacked."""
    for average, new in zip(averages, news, strict=True):
        average.lerp_(new.view_as(average), weight)
    return _stacked(averages)


def _rate(group: dict[str, Any], t: float) -> float | Tensor:
    """The rate in effect. It is never written back to the group, where it would compound."""
    if not group["relative_step"]:
        return group["lr"]
    return min(1e-6 * t if group["warmup_init"] else 1e-2, t**-0.5)


def _step_size(group: dict[str, Any], t: float, X: Tensor) -> float | Tensor:
    """The rate in effect, times the size of each of the stacked tensors where that is asked for."""
    rate = _rate(group, t)
    return rate * _rms(X).clamp(min=group["eps"][1]) if group["scale_parameter"] else rate


def _rms(x: Tensor) -> Tensor:
    """Root mean square of each of the stacked tensors, with axes kept."""
    rest = tuple(range(1, x.ndim))
    return torch.linalg.vector_norm(x, dim=rest, keepdim=True) / x[0].numel() ** 0.5


def _pairs(groups: list[dict[str, Any]], loaded: dict[str, Any]) -> Iterable[tuple[Tensor, dict[str, Any]]]:
    """Each parameter that has a saved state, with that state. Parameters are matched by position, as torch does."""
    for group, saved_group in zip(groups, loaded["param_groups"], strict=False):
        for p, index in zip(group["params"], saved_group["params"], strict=False):
            if saved := loaded["state"].get(index):
                yield p, saved
