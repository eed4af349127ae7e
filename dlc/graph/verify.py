"""The verifier: types re-derived, calling convention sound, level as promised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from dlc.diagnostics import Diagnostic, Location
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.kernel.expr import Apply, Axis, Expr, Load, children, walk
from dlc.kernel.nest import Kernel, Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import bounds, linear
from dlc.types import bool_

Level = Literal["ops", "kernels"]


def verify(graph: Graph, level: Level = "ops") -> tuple[Diagnostic, ...]:
    """Everything that is wrong with a graph; empty when it is sound."""
    problems: list[Diagnostic] = []

    def report(op: Op | None, message: str) -> None:
        node = ", ".join(graph.origin(op)) if op is not None else ""
        problems.append(Diagnostic("invalid-graph", message, location=Location(node=node)))

    _check_convention(graph, report)
    declared = {i.digest for i in graph.inputs}
    kernels: dict[str, list[str]] = {}
    constant: dict[str, bool] = {}
    for op in graph.ops:
        if isinstance(op, Input) and op.digest not in declared:
            report(op, f"input {op.name!r} is read but not declared")
        if (types := op.derive_types()) != op.types:
            report(op, f"{op.text_name}: type changed from {_types(op.types)} to {_types(types)}")
        # Constant expressions stay ops: a backend evaluates them when it writes the weights.
        lowered = op.runs or isinstance(op, Input | Constant | Splat | Item)
        if level == "kernels" and not lowered and not is_constant(op, constant):
            report(op, f"{op.text_name} is left, but only kernels are expected here")
        if isinstance(op, Call):
            if op.body.digest not in kernels:
                kernels[op.body.digest] = kernel_problems(op.body)
            for message in kernels[op.body.digest]:
                report(op, message)
    return tuple(problems)


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
    for what, numbers in (("output", [i for i, _ in graph.aliases]), ("input", [j for _, j in graph.aliases])):
        for k in dict.fromkeys(k for k in numbers if numbers.count(k) > 1):
            report(None, f"{what} {k} is aliased more than once")


def _types(types: Iterable[object]) -> str:
    return ", ".join(map(str, types))


def kernel_problems(kernel: Kernel) -> list[str]:
    """What is wrong with a kernel: names, ranks, axes, types and subscripts of every nest."""
    out: list[str] = []
    writable = {p.name for p in (*kernel.results, *kernel.locals)}
    for k, nest in enumerate(kernel.nests):
        if nest.out not in writable:
            out.append(f"nest {k} writes {nest.out}, which is not a result or local")
            continue
        # Types are asked only of names that exist, subscripts only of what has types.
        found = _name_problems(kernel, nest) or _type_problems(kernel, nest) or _range_problems(kernel, nest)
        out += [f"nest {k}: {m}" for m in found]
    return out


def _name_problems(kernel: Kernel, nest: Nest) -> list[str]:
    rank = kernel.tensors[nest.out].type.rank
    out = [] if len(nest.index) == rank else [f"{nest.out} has {rank} dimensions, written with {len(nest.index)}"]
    if len({a.name for a in nest.axes}) < len(nest.axes):
        out.append("two axes have one name")
    out += [f"axis {a.name} has the extent {a.extent}" for a in nest.axes if a.extent < 0]
    repeated = [a for a in nest.reduction_axes if a.extent > 1]
    if nest.reduce is None and nest.where is None and repeated:
        out.append(f"{nest.out} is written again for each {repeated[0].name}, and nothing reduces")
    known = set(nest.axes)
    for x in (x for e in nest.exprs() for x in walk(e)):
        match x:
            case Axis(name, _) if x not in known:
                out.append(f"axis {name} is not one of the nest's")
            case Load(param, _) if param not in kernel.tensors:
                out.append(f"{param} is not a tensor of the kernel")
            case Load(param, index) if len(index) != kernel.tensors[param].type.rank:
                out.append(f"{param} is loaded with {len(index)} subscripts")
            case Apply(fn, args) if fn not in SCALARS or len(args) != SCALARS[fn].arity:
                out.append(f"{fn} of {len(args)} arguments is not a function")
            case _:
                pass
    return list(dict.fromkeys(out))


def _type_problems(kernel: Kernel, nest: Nest) -> list[str]:
    out: list[str] = []
    try:
        found = kernel.dtype_of(nest.body)
        if found is not None and found != kernel.tensors[nest.out].dtype:
            out.append(f"a value of type {found} is stored into {kernel.tensors[nest.out].type}")
        guard = bool_ if nest.where is None else kernel.dtype_of(nest.where)
        if guard not in (bool_, None):
            out.append(f"the guard is of type {guard}")
        for i in (*nest.index, *(i for e in nest.exprs() for x in walk(e) if isinstance(x, Load) for i in x.index)):
            subscript = kernel.dtype_of(i)
            if subscript is not None and not subscript.is_integer:
                out.append(f"a subscript is of type {subscript}")
    except TypeError as e:
        return [str(e)]
    return out


def _range_problems(kernel: Kernel, nest: Nest) -> list[str]:
    """Subscripts that certainly leave their tensor. A guard may prevent it, so only what nothing guards is judged."""
    if nest.where is not None or nest.points == 0:
        return []
    out: list[str] = []
    for name, index in ((nest.out, nest.index), *((x.param, x.index) for e in nest.exprs() for x in _unguarded(e))):
        for i, size in zip(index, kernel.tensors[name].shape, strict=True):
            form = linear(i)
            span = bounds(i)
            # Intervals are exact for sums of distinct axes; anything else may stay inside all the same.
            if form is None or span is None or not all(isinstance(atom, Axis) for atom, _ in form.terms):
                continue
            low, high = bounds(form.expr()) or span
            if low < 0 or high >= size:
                out.append(f"a subscript of {name} runs from {low} to {high}, the dimension has {size}")
    return out


def _unguarded(e: Expr) -> Iterator[Load]:
    """The loads of an expression that are not inside a branch of `select`."""
    stack = [e]
    while stack:
        match stack.pop():
            case Apply("select", args):
                stack.append(args[0])
            case x:
                if isinstance(x, Load):
                    yield x
                stack.extend(children(x))
