"""Which element types a graph may have."""

from __future__ import annotations

from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc.graph import Graph, Input


def check_elements(graph: Graph) -> None:
    """Refuse element types that neither the device nor the link to it has: their values would be stored in another way.

    Raises:
        DlcError: (`not-placed`) all inputs and ops that have such a type.
    """
    problems = [
        Diagnostic(
            "not-placed",
            f"{op.text_name}: the element type {found[0]} is not supported",
            location=Location(node=op.name if isinstance(op, Input) else ", ".join(graph.origin(op)) or op.text_name),
            help="convert it to float or int32 in the model, or compile for target c",
        )
        for op in dict.fromkeys((*graph.inputs, *graph.ops))
        if (found := [t.dtype for t in op.types if t.dtype.library])
    ]
    if problems:
        raise DlcError(*problems)
