"""ONNX models for dlc."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlc import Lazy, hookimpl

if TYPE_CHECKING:
    import typer


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """The reader of `.onnx` files."""
    return [Lazy("onnx", "dlc_frontend_onnx.frontend:Onnx")]


@hookimpl
def dlc_onnx_rules() -> Iterable[Lazy]:
    """Operators of the standard, of its relatives for classical models and training, and of onnxruntime."""
    from dlc_frontend_onnx.domains import OFFERS

    return OFFERS


@hookimpl
def dlc_commands(app: typer.Typer) -> None:
    """`dlc export`."""
    from dlc_frontend_onnx.export_command import export

    app.command()(export)
