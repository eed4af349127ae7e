"""The verifier: types re-derived, calling convention sound, level as promised."""

from __future__ import annotations

from typing import Literal

from dlc.diagnostics import Diagnostic, Location
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.kernel.expr import Axis, axes_in, loads
from dlc.kernel.nest import Kernel, Nest

Level = Literal["ops", "kernels"]


def verify(graph: Graph, level: Level = "ops") -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a graph; empty when it is sound."""
    problems: list[Diagnostic] = []

    def report(op: Op | None, message: str) -> None:
        node = ", ".join(graph.origin(op)) if op is not None else ""
        problems.append(Diagnostic("invalid-graph", message, location=Location(node=node)))

    if len(graph.names) != len(graph.outputs):
        report(None, f"{len(graph.outputs)} outputs have {len(graph.names)} names")
    for what, names in (("inputs", [i.name for i in graph.inputs]), ("outputs", list(graph.names))):
        for name in {n for n in names if names.count(n) > 1}:
            report(None, f"two {what} are named {name!r}")
    declared = {i.digest for i in graph.inputs}
    constant: dict[str, bool] = {}
    for op in graph.ops:
        if isinstance(op, Input) and op.digest not in declared:
            report(op, f"input {op.name!r} is read but not declared")
        if op.derive_types() != op.types:
            report(op, f"{op.text_name}: type changed from {op.types} to {op.derive_types()}")
        # Constant expressions stay ops: a backend evaluates them when it writes the weights.
        lowered = isinstance(op, (Input, Constant, Splat, Call, Item)) or is_constant(op, constant)
        if level == "kernels" and not lowered:
            report(op, f"{op.text_name} is left, but only kernels are expected here")
        if isinstance(op, Call):
            for message in kernel_problems(op.body):
                report(op, message)
    for i, j in graph.aliases:
        if graph.outputs[i].type != graph.inputs[j].type:
            report(None, f"output {graph.names[i]!r} aliases input {graph.inputs[j].name!r} of another type")
    return tuple(problems)


def kernel_problems(kernel: Kernel) -> list[str]:
    """What is wrong with a kernel: names, ranks, axes and types of every nest."""
    out: list[str] = []
    writable = {p.name for p in (*kernel.results, *kernel.locals)}
    for k, nest in enumerate(kernel.nests):
        if nest.out not in writable:
            out.append(f"nest {k} writes {nest.out}, which is not a result or local")
            continue
        out += [f"nest {k}: {m}" for m in _nest_problems(kernel, nest)]
    return out


def _nest_problems(kernel: Kernel, nest: Nest) -> list[str]:
    out: list[str] = []
    if len(nest.index) != kernel.tensors[nest.out].type.rank:
        out.append(f"{nest.out} has {kernel.tensors[nest.out].type.rank} dimensions, written with {len(nest.index)}")
    known: set[Axis] = set(nest.axes)
    for e in nest.exprs():
        out += [f"axis {a.name} is not one of the nest's" for a in axes_in(e) if a not in known]
        for x in loads(e):
            if x.param not in kernel.tensors:
                out.append(f"{x.param} is not a tensor of the kernel")
            elif len(x.index) != kernel.tensors[x.param].type.rank:
                out.append(f"{x.param} is loaded with {len(x.index)} subscripts")
    if out:
        return out
    try:
        found = kernel.dtype_of(nest.body)
    except TypeError as e:
        return [str(e)]
    if found is not None and found != kernel.tensors[nest.out].dtype:
        out.append(f"a value of type {found} is stored into {kernel.tensors[nest.out].type}")
    return out
