"""Graphs whose dimensions are numbers: what some steps need, and what they say where a dimension is none."""

from __future__ import annotations

from dlc.base.diagnostics import ExitCode, error, quote
from dlc.base.extents import symbols
from dlc.graph.graph import Graph


def check_closed(graph: Graph, who: str) -> None:
    """Raises DlcError (USAGE, `symbolic-dimension`): an input has a dimension that is known when the program runs.

    Args:
        graph: The model.
        who: What needs numbers, as a message begins with it.
    """
    found = {s: i.name for i in graph.inputs for s in symbols(*i.type.shape)}
    if not found:
        _check_decided(graph, who)
        return
    notes = [f"{s.name} is {s.sizes}: of input {quote(name)}" for s, name in found.items()]
    raise error(
        "symbolic-dimension",
        f"{who} needs sizes that are known when the model is built",
        notes=notes,
        help=f"give one size: {' '.join(f'--dim {s.name}={s.high * s.unit}' for s in found)}",
        exit_code=ExitCode.USAGE,
    )


def _check_decided(graph: Graph, who: str) -> None:
    """Raises DlcError (USAGE, `symbolic-dimension`): values of inputs have to lead to the shapes of results."""
    names = list(dict.fromkeys(s.name for op in graph.ops for s in op.requires()))
    if names:
        raise error(
            "symbolic-dimension",
            f"{who} needs shapes that do not depend on the values of inputs: {', '.join(names[:8])}",
            help="export the model with the operands that decide shapes as constants",
            exit_code=ExitCode.USAGE,
        )
