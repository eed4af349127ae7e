"""PyTorch's relu and maximum pooling as another machine decided, and how far apart the decisions are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from dlc.base.types import Array


@dataclass(frozen=True)
class Taken:
    """One map's decisions: where those of the other machine and of PyTorch's own values differ."""

    elements: int
    differ: int
    size: float
    """‖x where they differ‖ / ‖x‖, or ‖what the chosen ones lack to the largest of their windows‖ / √2·‖x‖.

    Neither is larger than the other machine's error of x, relative to its norm: a value whose sign differs is smaller
    than its error, and a chosen one lacks no more than its own error and that of the largest together.
    """


class Decided(TorchFunctionMode):
    """relu(x) → x·mask and max_pool2d(x) → x[pointers], taking masks and pointers in the order of calls."""

    def __init__(self, masks: Sequence[Array], pointers: Sequence[Array]) -> None:
        super().__init__()
        self.masks, self.pointers = masks, pointers
        self.relus: list[Taken] = []
        self.pools: list[Taken] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        given = dict(kwargs or {})
        match func.__name__:
            case "relu" | "relu_":
                return self._relu(args[0])
            case "max_pool2d" | "_max_pool2d":
                places = dict(zip(("kernel_size", "stride", "padding"), args[1:4], strict=False)) | given
                window, padding = int(places["kernel_size"]), int(places.get("padding") or 0)
                return self._pool(args[0], window, int(places.get("stride") or window), padding)
            case _:
                return func(*args, **given)

    def _relu(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.tensor(self.masks[len(self.relus)]).reshape(x.shape)
        wrong = mask != (x > 0)
        self.relus.append(Taken(x.numel(), int(wrong.sum()), _norm(x * wrong) / _norm(x)))
        return x * mask

    def _pool(self, x: torch.Tensor, window: int, stride: int, padding: int) -> torch.Tensor:
        framed = nn.functional.pad(x, [padding] * 4, value=-math.inf)
        taps = framed.unfold(2, window, stride).unfold(3, window, stride).flatten(4)
        pointers = torch.tensor(self.pointers[len(self.pools)].astype(np.int64)).reshape(taps.shape[:4])
        chosen = taps.gather(4, pointers[..., None])[..., 0]
        lacks = taps.detach().amax(4) - chosen.detach()
        size = _norm(lacks) / (math.sqrt(2) * _norm(x))
        self.pools.append(Taken(chosen.numel(), int((lacks > 0).sum()), size))
        return chosen


def _norm(x: torch.Tensor) -> float:
    return float(np.linalg.norm(x.detach().numpy()))
