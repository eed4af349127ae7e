"""ONNX models for dlc."""

from collections.abc import Iterable

from dlc import Lazy, hookimpl


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """The reader of `.onnx` files."""
    return [Lazy("onnx", "dlc_frontend_onnx.frontend:Onnx")]
