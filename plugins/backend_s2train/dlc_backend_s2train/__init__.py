"""Programs for the S2Train accelerator. Holds the hooks only; what they name is imported when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dlc import Lazy, hookimpl
from dlc_backend_s2train.defaults import PLACED, REST, STEP, WORDED

if TYPE_CHECKING:
    import typer

__version__ = "0.1.0"


@hookimpl
def dlc_backends() -> Iterable[Lazy]:
    """The accelerator."""
    return [Lazy("s2train", "dlc_backend_s2train.backend:S2Train")]


@hookimpl
def dlc_ops() -> Iterable[Lazy]:
    """An instruction, and a call of a host function, as ops of a graph."""
    return [
        Lazy("s2_instruction", "dlc_backend_s2train.instruction:S2Instruction"),
        Lazy("s2_again", "dlc_backend_s2train.instruction:S2Again"),
        Lazy("s2_host", "dlc_backend_s2train.instruction:S2Host"),
    ]


@hookimpl
def dlc_passes() -> Iterable[Lazy]:
    """Selection of instructions, and those that the array has."""
    return [
        Lazy("s2-select", "dlc_backend_s2train.select.s2_select:S2Select"),
        Lazy("s2-decompose", "dlc_backend_s2train.decompose.s2_decompose:S2Decompose"),
    ]


@hookimpl
def dlc_pipelines() -> Mapping[str, str]:
    """Selection with what follows it, also for words of version 1; and one training step as the whole program.
    s2train-host is what s2train was called when it refused what no instruction computes."""
    found = {"s2train": PLACED, "s2train-v1": f"{WORDED},{REST}"}
    return {**found, "s2train-host": PLACED, "s2train-step": f"{STEP},{PLACED}"}


@hookimpl
def dlc_commands(app: typer.Typer) -> None:
    """Assembler and disassembler of files, the simulator as a device, and functions of the host in C."""
    from dlc_backend_s2train.device.commands import asm, board, disasm, host_functions

    for command in (asm, disasm, board, host_functions):
        app.command()(command)
