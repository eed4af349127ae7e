"""Tensor-index kernels for dlc."""

from collections.abc import Iterable

from dlc import Lazy, hookimpl


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """The reader of `.kernel` files and JSON cases."""
    return [Lazy("kernel", "dlc_frontend_kernel.frontend:KernelText")]
