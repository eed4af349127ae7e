"""`Call`: a program called with tensors, whose memory it reads and writes in place."""

# pyright: basic
# PyTorch's own types are partly unknown.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from dlc.base.types import Array
from dlc_frontend_torch.fx import TORCH_OF


def array_of(tensor: torch.Tensor) -> Array:
    """The memory of a tensor as an array; a copy only where elements are not one after the other."""
    tensor = tensor.detach()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


class Call:
    """A program of arrays as a function of tensors."""

    def __init__(self, program: Any) -> None:
        """`program` is what `dlc.load` gives."""
        self.program = program
        self._inputs = tuple(p.name for p in program.signature.inputs)
        ports = program.signature.outputs
        self._open = any(p.type.is_open or p.type.symbol is not None for p in ports)
        self._outputs = tuple((p.name, TORCH_OF[p.type.dtype], p.type.shape) for p in ports)

    def __call__(self, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Output name → a new tensor.

        Raises:
            DlcError: a tensor is missing, or of another shape or type.
        """
        arrays = {name: array_of(t) if isinstance(t, torch.Tensor) else t for name, t in given.items()}
        if self._open:
            return {name: torch.from_numpy(a) for name, a in self.program(arrays).items()}
        made = {name: torch.empty(shape, dtype=of) for name, of, shape in self._outputs}
        self.program(arrays, out={name: array_of(t) for name, t in made.items()})
        return made
