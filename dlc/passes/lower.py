"""lower: every op becomes a call of its kernel.

    y = relu(x)      →   y = call(x) body=@k        k: r[i] = max(p[i], 0)
    y = add(x, 2.0…) →   the single value of a splat is a literal in the kernel
    (a, b) = f(x)    →   a = call(x); b = call(x)           one kernel for each result, if contractions share no nest

Ops that depend on constants only are not lowered: the backend evaluates them when it writes the weights. Those that
expand constants with less than 8 bits per element are an exception: `fuse` makes them a part of their consumers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc.base.polynomials import Symbol
from dlc.base.report import Report
from dlc.graph.closed import check_limited
from dlc.graph.constants import without_names
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op, attr_text
from dlc.graph.structure import Call, Constant, Input, Item, Splat
from dlc.graph.walk import toposort
from dlc.kernel.define import ShapeError
from dlc.kernel.expr import Const, Expr, Load
from dlc.kernel.fusion.merge import compose
from dlc.kernel.fusion.separate import alone
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param
from dlc.kernel.simplify import simplify_nest
from dlc.passes.outermost import outermost
from dlc.passes.packed_constants import PackedConstants
from dlc.passes.sizes import from_caller, size_input, with_sizes


@dataclass(frozen=True)
class Lower(Pass[Graph, Graph]):
    """Turn ops into calls of their kernels: y = relu(x)  →  y = call(x), r[i] = max(p[i], 0)."""

    name: ClassVar[str] = "lower"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "kernels"

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph with nothing but inputs, constant expressions and calls."""
        memo: dict[str, bool] = {}
        kernels = Kernels()
        packed = PackedConstants(state)
        problems: list[Diagnostic] = []
        computed: dict[Symbol, Op] = {}
        required: dict[Symbol, Op] = {}

        def rule(op: Op) -> Op | None:
            computed.update(op.defines())
            if found := op.requires():
                required.update(found)
                return op.operands[0]
            if isinstance(op, Item):
                return single_result(op)
            if isinstance(op, Input) and op.type.is_open:
                return from_caller(op)
            if isinstance(op, (Input, Constant, Splat)) or op.body_names:
                return None
            if is_constant(op, memo) and not packed.lowered(op):
                return None
            if isinstance(op, Call):
                return lower_op(op, kernels) if any(isinstance(x, Splat) for x in op.args) else None
            try:
                call = lower_op(op, kernels)
            except (ShapeError, TypeError) as e:
                problems.append(
                    Diagnostic(
                        "not-lowered", f"{op.text_name}: {e}", location=Location(node=", ".join(state.origin(op)))
                    )
                )
                return None
            report.count("lowered")
            return call

        graph = without_names(state).rewrite(rule)
        if problems:
            raise DlcError(*problems)
        sized = outermost(with_sizes(graph, {**required, **computed}, required))
        check_limited(sized)
        return sized


@dataclass(frozen=True)
class Kernels:
    """Kernels of the ops that were lowered, each made once: most ops of a large model repeat.

    Attributes:
        single: By what `define` is given.
        composed: By the kernels of the parts, which are held by the value: their addresses stay theirs.
        inlined: By the kernel, likewise, and the literals.
    """

    single: dict[Hashable, Kernel] = field(default_factory=dict[Hashable, Kernel])
    composed: dict[Hashable, tuple[Kernel, object]] = field(default_factory=dict[Hashable, tuple[Kernel, object]])
    inlined: dict[Hashable, tuple[Kernel, object]] = field(default_factory=dict[Hashable, tuple[Kernel, object]])


def lower_op(op: Op, kernels: Kernels | None = None) -> Call:
    """The call of an op's kernel: splat operands inlined as literals, a composite as the sequence of its parts."""
    kernels = kernels or Kernels()
    kernel = _kernel(op, kernels.single) if op.expansion is None else composite_kernel(op, kernels)
    operands = (*op.operands, *(() if isinstance(op, Call) else map(size_input, op.symbols)))
    literals = {p.name: x.value for p, x in zip(kernel.params, operands, strict=True) if isinstance(x, Splat)}
    args = tuple(x for x in operands if not isinstance(x, Splat))
    if not literals:
        return Call(kernel, args)
    # Not the literals themselves: 0.0 equals -0.0, and 1 equals True.
    key = (id(kernel), repr(literals))
    if key not in kernels.inlined:
        kernels.inlined[key] = inline_literals(kernel, literals), kernel
    return Call(kernels.inlined[key][0], args)


def _kernel(op: Op, kernels: dict[Hashable, Kernel]) -> Kernel:
    """The op's kernel, that of an earlier op of the same class, attributes and operand types where there is one."""
    if isinstance(op, Call):
        return op.body
    attributes = tuple(attr_text(value) for value in op.attrs.values())
    operands = tuple(
        None if v is None else tuple(x.type for x in v) if isinstance(v, tuple) else v.type
        for _, v in op.operand_fields()
    )
    key = (type(op), attributes, operands)
    found = kernels.get(key)
    if found is None:
        found = kernels[key] = op.kernel
    return found


def single_result(item: Item) -> Call | None:
    """The call of what one result needs, where it has nothing in common with the others of its call."""
    if not isinstance(item.of, Call):
        return None
    found = alone(item.of.body, item.index)
    return None if found is None else Call(found[0], tuple(item.of.args[k] for k in found[1]))


def composite_kernel(op: Op, kernels: Kernels | None = None) -> Kernel:
    """The kernel of an op that is a composition: its parts in order, what is between them local."""
    assert op.expansion is not None
    kernels = kernels or Kernels()
    operands = (*op.operands, *map(size_input, op.symbols))
    given = {x.digest: k for k, x in enumerate(operands)}
    inputs = {k: Param(f"x{k}", x.type) for k, x in enumerate(operands)}
    parts: list[tuple[Kernel, Sequence[int]]] = []
    outputs: list[int] = []
    number = dict(given)
    for part in toposort((op.expansion,), op.operands):
        if isinstance(part, Splat):
            continue
        call = lower_op(part, kernels)
        number[part.digest] = len(operands) + len(parts)
        parts.append((call.body, [number[a.digest] for a in call.args]))
        outputs.append(number[part.digest])
    # Kernels carry the types of what is between the parts.
    key = (tuple((id(kernel), tuple(numbers)) for kernel, numbers in parts), tuple(inputs.items()), tuple(outputs))
    if key not in kernels.composed:
        kernels.composed[key] = compose(parts, inputs, outputs), parts
    return kernels.composed[key][0]


def inline_literals(kernel: Kernel, literals: dict[str, bool | int | float]) -> Kernel:
    """The kernel with some parameters replaced by one value each."""

    def change(load: Load) -> Expr:
        return Const(literals[load.param]) if load.param in literals else load

    params = tuple(p for p in kernel.params if p.name not in literals)
    nests = tuple(simplify_nest(n.map_loads(change)) for n in kernel.nests)
    return Kernel.canonical(params, kernel.results, nests, kernel.locals)
