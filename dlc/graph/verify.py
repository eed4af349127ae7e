"""The verifier: types re-derived, calling convention sound, level as promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlc.base.diagnostics import Diagnostic, Location
from dlc.base.level import Level
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.kernel.check.verify import kernel_problems
from dlc.kernel.define import ShapeError


def verify(graph: Graph, level: Level = "ops") -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a graph, or with the graph of a plan; empty when it is sound."""
    problems: list[Diagnostic] = []

    def report(op: Op | None, message: str, *notes: str) -> None:
        node = ", ".join(graph.origin(op)) if op is not None else ""
        problems.append(Diagnostic("invalid-graph", message, location=Location(node=node), notes=notes))

    _check_convention(graph, report)
    declared = {i.digest for i in graph.inputs}
    constant: dict[str, bool] = {}
    for op in graph.ops:
        if isinstance(op, Input) and op.digest not in declared:
            report(op, f"input {op.name!r} is read but not declared")
        if wrong := _type_problem(op):
            report(op, wrong)
        # Constant expressions stay ops: a backend evaluates them when it writes the weights.
        lowered = op.runs or isinstance(op, Input | Constant | Splat | Item)
        if level != "ops" and not lowered and not is_constant(op, constant):
            report(op, f"{op.text_name} is left, but only kernels are expected here")
        if isinstance(op, Call):
            for problem in kernel_problems(op.body):
                report(op, problem.message, *([problem.nest] if problem.nest else []))
        problems += (problem for body in op.bodies for problem in verify(body, level))
    return tuple(problems)


def _type_problem(op: Op) -> str:
    """How the types of an op differ from those that follow from what it reads; "" where they do not."""
    try:
        types = op.derive_types()
    except ShapeError as e:
        return f"{op.text_name}: {e}"
    return "" if types == op.types else f"{op.text_name}: type changed from {_types(op.types)} to {_types(types)}"


def _check_convention(graph: Graph, report: Callable[[Op | None, str], None]) -> None:
    if len(graph.names) != len(graph.outputs):
        report(None, f"{len(graph.outputs)} outputs have {len(graph.names)} names")
    for what, names in (("inputs", [i.name for i in graph.inputs]), ("outputs", list(graph.names))):
        for name in dict.fromkeys(n for n in names if names.count(n) > 1):
            report(None, f"two {what} are named {name!r}")
    for i, j in graph.aliases:
        if not (0 <= i < len(graph.outputs) and 0 <= j < len(graph.inputs)):
            report(None, f"alias of output {i} and input {j}: there are {len(graph.outputs)} and {len(graph.inputs)}")
        elif graph.outputs[i].type != graph.inputs[j].type:
            report(None, f"output {graph.names[i]!r} aliases input {graph.inputs[j].name!r} of another type")
    for name in graph.labels:
        if name not in graph.names:
            report(None, f"there are labels of output {name!r}, which is not there")
    for what, numbers in (("output", [i for i, _ in graph.aliases]), ("input", [j for _, j in graph.aliases])):
        for k in dict.fromkeys(k for k in numbers if numbers.count(k) > 1):
            report(None, f"{what} {k} is aliased more than once")


def _types(types: Iterable[object]) -> str:
    return ", ".join(map(str, types))
