"""C programs and libraries from dlc. This module holds the hooks only; what they name is imported when it is used."""

from collections.abc import Iterable
from pathlib import Path

from dlc import Lazy, hookimpl

__version__ = "0.1.0"


@hookimpl
def dlc_backends() -> Iterable[Lazy]:
    """The C backend."""
    return [Lazy("c", "dlc_backend_c.backend:C")]


@hookimpl
def dlc_allocators() -> Iterable[Lazy]:
    """The search for offsets, which is in C."""
    return [Lazy("branch-and-bound", "dlc_backend_c.packing:BranchAndBound")]


@hookimpl
def dlc_machines() -> Iterable[Path]:
    """Processors that come with the backend."""
    return [Path(__file__).parent / "machines"]
