"""Statements in order → one `Kernel`."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.rounding import rounded_once, with_wide_locals
from dlc_frontend_kernel.statements import lower_statement
from dlc_frontend_kernel.syntax import KernelSource
from dlc_frontend_kernel.workspace import Workspace


@dataclass(frozen=True)
class Lowered:
    """A program as a kernel.

    Attributes:
        kernel: Parameters: the inputs in `reads`, in this order; results: the outputs in order.
        reads: Names of the inputs that the kernel reads.
        inputs: Every input, whether read or not.
        outputs: Every output.
    """

    kernel: Kernel
    reads: tuple[str, ...]
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]


def lower(program: KernelSource, max_bytes: int = 4 << 30) -> Lowered:
    """The kernel of a program.

    Args:
        program: What the parser gave.
        max_bytes: Largest tensor that is accepted.

    Raises:
        DlcError: what the statements say is not possible; with line and column.
    """
    work = Workspace(program, max_bytes)
    for statement in program.statements:
        lower_statement(work, statement)
    outputs = tuple(work.current[name] for name in program.outs)
    nests, needed = _live(work.nests, {p.name for p in outputs})
    params = tuple(p for p in work.inputs.values() if p.name in needed)
    results = {p.name for p in outputs}
    locals_ = tuple(p for name, p in work.made.items() if name in needed and name not in results)
    kernel = rounded_once(with_wide_locals(Kernel.canonical(params, outputs, nests, locals_)))
    named = tuple(Param(name, p.type) for name, p in zip(program.outs, outputs, strict=True))
    return Lowered(kernel, tuple(p.name for p in params), tuple(work.inputs.values()), named)


def _live(nests: list[Nest], needed: set[str]) -> tuple[tuple[Nest, ...], set[str]]:
    """The nests that lead to tensors, and all tensors on the way."""
    out: list[Nest] = []
    for nest in reversed(nests):
        if nest.out in needed:
            out.append(nest)
            needed = needed | nest.reads()
    return tuple(reversed(out)), needed
