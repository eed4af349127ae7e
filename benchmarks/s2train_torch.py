"""PyTorch as the reference of `s2train_coverage.py`: in double precision, in fp16, and as a perfect fp16 machine.

`Matched` takes the decisions of the device at relus and pools. `Once` does so too and rounds every result of an op, and
every gradient by one, to fp16, once each: no device that stores fp16 does better, except by storing less.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from dlc.base.types import Array
from tests.backend_s2train.torch_decisions import Decided
from tests.training.torch_networks import Network

_MOVES = frozenset(
    ("view", "reshape", "permute", "transpose", "flatten", "unbind", "chunk", "split", "__getitem__", "expand", "pad")
)
"""PyTorch's functions that compute nothing."""


class Matched(Decided):
    """PyTorch with the decisions of the device at every relu and pool that the device has as such.

    Branches may run in another order there: each is given the decisions that are most like its own.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._plain = functools.partial(func, *args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def _relu(self, x: torch.Tensor) -> torch.Tensor:
        here = _next(self.masks, len(self.relus), (x > 0).numpy())
        return super()._relu(x) if here else self._plain()

    def _pool(self, x: torch.Tensor, window: int, stride: int, padding: int) -> torch.Tensor:
        framed = nn.functional.pad(x.detach(), [padding] * 4, value=-np.inf)
        own = framed.unfold(2, window, stride).unfold(3, window, stride).flatten(4).argmax(4).numpy()
        here = own.size == self._plain().numel() and _next(self.pointers, len(self.pools), own)
        return super()._pool(x, window, stride, padding) if here else self._plain()


class _Rounded(torch.autograd.Function):
    """x → x in fp16, and the same of its gradient."""

    @staticmethod
    def forward(ctx: Any, *args: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return args[0].half().double()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:  # noqa: ARG004
        return grad_outputs[0].half().double()


class Once(Matched):
    """Every result of an op rounded to fp16, and every gradient by one; the loss and its gradients as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = super().__torch_function__(func, types, args, kwargs)
        computes = func.__name__ not in _MOVES and func.__name__ != "cross_entropy"
        if computes and isinstance(found, torch.Tensor) and found.dtype == torch.double:
            apply: Callable[[torch.Tensor], torch.Tensor] = _Rounded.apply  # pyright: ignore
            return apply(found)
        return found


def _next(several: Any, place: int, own: Array) -> bool:
    """Put those decisions at a place of the list, of the ones from there on, that are most like others."""
    alike = [k for k in range(place, len(several)) if several[k].size == own.size]
    if not alike:
        return False
    best = min(alike, key=lambda k: int((several[k].reshape(-1) != own.reshape(-1)).sum()))
    several[place], several[best] = several[best], several[place]
    return True


def relative(found: Array, wanted: Array) -> float:
    """‖found - wanted‖ / ‖wanted‖."""
    difference = found.reshape(-1).astype(np.float64) - wanted.reshape(-1)
    return float(np.linalg.norm(difference) / max(float(np.linalg.norm(wanted)), 1e-30))


def errors(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> dict[str, float]:
    """Errors of tensors. One that is nearly zero beside the others is compared with a hundredth of the largest: its
    exact value is rounding (the gradient of a key's bias in attention is zero, for one)."""
    most = max(float(np.linalg.norm(w)) for w in wanted.values())
    each: dict[str, float] = {}
    for name, right in wanted.items():
        difference = found[name].reshape(-1).astype(np.float64) - right.reshape(-1)
        each[name] = float(np.linalg.norm(difference)) / max(float(np.linalg.norm(right)), most / 100)
    return each


def scores_of(module: nn.Module, x: Array) -> Array:
    """What PyTorch gives, in the precision that the module has."""
    dtype = next(module.parameters()).dtype
    given = torch.tensor(x)
    with torch.no_grad():
        return module(given.to(dtype) if given.is_floating_point() else given).double().numpy()


def gradients_of(module: nn.Module, network: Network, x: Array, y: Array, scale: float = 1.0) -> dict[str, Array]:
    """PyTorch's gradients of the mean cross-entropy."""
    dtype = next(module.parameters()).dtype
    given = torch.tensor(x)
    module.zero_grad()
    scores = module(given.to(dtype) if given.is_floating_point() else given)
    labels = torch.tensor(y)
    if network.loss.endswith("{axis=-1}"):
        scores, labels = scores.flatten(0, -2), labels.flatten()
    loss = nn.functional.cross_entropy(scores.float() if dtype == torch.half else scores, labels)
    (loss * scale).backward()  # pyright: ignore[reportUnknownMemberType]
    found = {name: p.grad for name, p in module.named_parameters()}
    return {name: g.double().numpy() / scale for name, g in found.items() if g is not None}


def halved(module: nn.Module) -> nn.Module:
    """A copy whose parameters are fp16."""
    return copy.deepcopy(module).half()
