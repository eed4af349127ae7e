"""A graph in a few rows: what it takes and gives, and what it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import quote
from dlc.cli.terminal import columns, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlc.api.program import Port
    from dlc.graph.graph import Graph

SHOWN = 8
"""Labels of an output that a line has room for."""


def describe_graph(graph: Graph) -> tuple[list[tuple[str, str]], str, dict[str, Any]]:
    """(rows, table, data): inputs, outputs and constants; how often each op occurs; and all of it for programs."""
    from collections import Counter

    from dlc.api.program import Port
    from dlc.graph.structure import Call, Constant, Input

    constants = [op for op in graph.ops if isinstance(op, Constant)]
    weights = sum(op.type.packed_bytes for op in constants)
    counts = Counter(
        op.text_name for op in graph.ops if not isinstance(op, Constant | Input) and op.text_name != "item"
    )
    kernels = len({op.body.digest for op in graph.ops if isinstance(op, Call)})
    ops = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    inputs = [Port(i.name, i.type, i.range) for i in graph.inputs]
    outputs = [Port(name, o.type) for name, o in zip(graph.names, graph.outputs, strict=True)]
    rows = [*port_rows("input", inputs), *port_rows("output", outputs)]
    rows.append(("constants", f"{len(constants)} tensors, {size(weights)}"))
    if kernels:
        rows.append(("kernels", f"{kernels} different ones in {counts['call']} calls"))
    rows.append(("ops", f"{sum(counts.values())}"))
    data = {
        "inputs": ports_data(inputs),
        "outputs": ports_data(outputs),
        "constants": {"tensors": len(constants), "bytes": weights},
        "ops": dict(ops),
    }
    return rows, columns([(f"  {name}", f"{n}") for name, n in ops], right=(1,)), data


def port_rows(what: str, ports: Sequence[Port]) -> list[tuple[str, str]]:
    """Rows of inputs or outputs, with what integers may be that choose something."""
    ranges = (f", {p.allowed.noun} {p.allowed.words}" if p.allowed else "" for p in ports)
    told = (", told by the arrays" if p.type.symbol else "" for p in ports)
    rows = zip(ports, ranges, told, strict=True)
    return [(what, f"{quote(p.name)}: {p.type.text}{r}{t}{_labels(p)}") for p, r, t in rows]


def _labels(port: Port) -> str:
    """The first of the texts that an output stands for."""
    if not port.labels:
        return ""
    more = f" and {len(port.labels) - SHOWN} more" if len(port.labels) > SHOWN else ""
    return f", labels {', '.join(map(quote, port.labels[:SHOWN]))}{more}"


def ports_data(ports: Sequence[Port]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "name": p.name,
            "type": p.type.text,
            **({"allowed": p.allowed.json} if p.allowed else {}),
            **({"labels": list(p.labels)} if p.labels else {}),
        }
        for p in ports
    ]
