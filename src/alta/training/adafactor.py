"""Adafactor (Shazeer and Stern, 2018), as a CUDA graph can hold it.

PyTorch's own reads norms back from the device in every step, which a graph cannot, and treats a stack of matrices as
one. Here nothing is read back, the learning rate is a tensor, and each matrix of a stack is a parameter of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-30
"""What is added to squared gradients."""

SMALLEST = 1e-3
"""The least size that a parameter is taken to have, in scaling its updates."""

DECAY = -0.8
"""In step t, the share of the new squared gradient in the average is t to the power of this."""


class Adafactor(torch.optim.Optimizer):
    """Updates are clipped to a root mean square of 1, and scaled to that of the parameter."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: Tensor) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step, from the gradients as they are. A closure is not called."""
        assert closure is None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group["lr"])

    def _update(self, parameter: Tensor, gradient: Tensor, rate: Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state.update(_start(parameter))
        state["step"] += 1
        fresh = state["step"] ** DECAY
        squares = gradient.square().add_(EPSILON)
        if "rows" in state:
            rows = state["rows"].lerp_(squares.mean(-1, keepdim=True), fresh)
            columns = state["columns"].lerp_(squares.mean(-2, keepdim=True), fresh)
            scale = (rows / rows.mean(-2, keepdim=True)).rsqrt_() * columns.rsqrt()
        else:
            scale = state["squares"].lerp_(squares, fresh).rsqrt()
        update = gradient * scale
        size = _size(parameter).clamp_(min=SMALLEST)
        parameter.sub_(update * (rate * size / _size(update).clamp_(min=1.0)))


def _start(parameter: Tensor) -> dict[str, Any]:
    step = torch.zeros((), device=parameter.device)
    if parameter.ndim < 2:
        return {"step": step, "squares": torch.zeros_like(parameter)}
    rows, columns = parameter[..., :1], parameter[..., :1, :]
    return {"step": step, "rows": torch.zeros_like(rows), "columns": torch.zeros_like(columns)}


def _size(tensor: Tensor) -> Tensor:
    """The root mean square: of a vector, or of each matrix of a stack."""
    return tensor.square().mean(dim=(-2, -1) if tensor.ndim > 1 else None, keepdim=True).sqrt_()
