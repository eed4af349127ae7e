"""PyTorch for dlc: torch.export programs, modules in memory, and a backend of torch.compile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlc import Lazy, hookimpl

if TYPE_CHECKING:
    from dlc_frontend_torch.module import CompiledModule, compile  # noqa: A004

__all__ = ["CompiledModule", "compile"]


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """The reader of `.pt2` files."""
    return [Lazy("torch", "dlc_frontend_torch.frontend:Torch")]


def __getattr__(name: str) -> object:
    """What needs PyTorch, imported when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlc_frontend_torch import module

    return getattr(module, name)
