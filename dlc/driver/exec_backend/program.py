"""Graphs and plans as the message `Program`, and what the protocol has no words for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

import numpy as np

from dlc.api.backend import Reason
from dlc.api.plan import Plan, results_of
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.extents import Dim
from dlc.base.types import DType, Type
from dlc.driver.exec_backend import protocol as p
from dlc.graph import evaluate_ops
from dlc.graph.constants import compute_ops, read_constants
from dlc.graph.graph import Graph
from dlc.graph.op import Op, attr_text
from dlc.graph.structure import Call
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param
from dlc.kernel.text import print_kernel

ALIGN = 64
"""Of constants in the file of weights."""


def op_info(op: Op, nodes: Sequence[str] = ()) -> p.OpInfo:
    """An op as executables are asked about it."""
    operands: dict[str, Any] = {}
    for name in op.operand_names:
        value = getattr(op, name)
        if isinstance(value, tuple):
            operands[name] = tuple(map(_type, cast("tuple[Op, ...]", value)))
        else:
            operands[name] = None if value is None else _type(cast("Op", value))
    results = tuple(p.TensorType(str(t.dtype), _sizes(t)) for t in op.types)
    return p.OpInfo(op.text_name, operands, attributes(op), results, tuple(nodes))


def attributes(op: Op) -> Mapping[str, Any]:
    """The attributes of an op as JSON has them; types and kernels as dlc's text."""
    return {name: _attribute(value) for name, value in op.attrs.items()}


def no_words(op: Op) -> Reason | None:
    """Why the protocol cannot say what an op is; None where it can."""
    if op.body_names:
        return Reason(
            "branches and loops are not part of the protocol", "see docs/control-flow.md on how to unroll them"
        )
    for t in (*op.types, *(x.type for x in op.operands)):
        if any(isinstance(d, Dim) for d in t.shape):
            return Reason(f"{t} depends on a size of the call", "give sizes with --dim NAME=SIZE")
    return None


def _type(op: Op) -> p.TensorType:
    return p.TensorType(str(op.dtype), _sizes(op.type))


def _sizes(t: Type) -> tuple[int, ...]:
    """The shape; of what depends on sizes of a call, the largest."""
    return tuple(t.room)


def _attribute(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return tuple(_attribute(v) for v in cast("tuple[Any, ...]", value))
        case DType() | Type():
            return str(value)
        case _:
            return attr_text(value)


@dataclass
class _Writer:
    """A program that grows by values."""

    values: list[p.Value] = field(default_factory=list[p.Value])
    numbers: dict[str, int] = field(default_factory=dict[str, int])
    """Digest → number."""
    kernels: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, op: Op, plan: Plan | None) -> int:
        """The number of a value, which is added where it is new."""
        if op.digest not in self.numbers:
            slot = plan.slots.get(op.digest) if plan else None
            # A call that is no step moves nothing: its result is its argument, with another shape.
            is_view = plan is not None and isinstance(op, Call) and op.digest not in plan.values
            view = self.add(op.operands[0], plan) if is_view else None
            self.numbers[op.digest] = len(self.values)
            where = (slot.region, slot.offset) if slot else (None, None)
            self.values.append(p.Value(str(op.dtype), _sizes(op.type), *where, view))
        return self.numbers[op.digest]

    def kernel(self, kernel: Kernel) -> int:
        """The number of a kernel."""
        return self.kernels.setdefault(kernel.digest, len(self.kernels))


def program_of(state: Graph | Plan, title: str, weights: IO[bytes]) -> p.Program:
    """A graph of ops or a plan as a message; its constants are written to `weights`.

    Raises:
        DlcError: (MODEL) the protocol has no words for a part of it.
    """
    plan = state if isinstance(state, Plan) else None
    graph = state.graph if isinstance(state, Plan) else state
    if plan and plan.beside:
        message = "the plan has values that lie beside each other in one memory"
        raise error("unsupported-op", message, help="leave the pass parts out, or its option bytes at 0")
    steps = plan.steps if plan else compute_ops(graph)
    for op in steps:
        if reason := no_words(op):
            raise error("unsupported-op", f"{op.text_name}: {reason.text}", help=reason.help)
    writer = _Writer()
    inputs = tuple(p.Port(i.name, writer.add(i, plan)) for i in graph.inputs)
    constants = tuple(_constants(read_constants(graph, steps), writer, weights))
    made: list[p.Step] = []
    kernels: list[p.Kernel] = []
    for op in steps:
        number = None
        if isinstance(op, Call):
            number = writer.kernel(op.body)
            if number == len(kernels):
                kernels.append(kernel_of(op.body))
        results = tuple(writer.add(value, plan) for value in results_of(op))
        operands = {name: _operand(getattr(op, name), writer, plan) for name in op.operand_names}
        given: Mapping[str, Any] = {} if number is not None else attributes(op)
        made.append(p.Step(op.text_name, number, operands, given, results, graph.origin(op)))
    outputs = tuple(p.Port(n, writer.add(o, plan)) for n, o in zip(graph.names, graph.outputs, strict=True))
    regions = dict(plan.regions) if plan else {}
    tables = (tuple(writer.values), constants, tuple(kernels), tuple(made))
    return p.Program(title, inputs, outputs, *tables, graph.aliases, regions)


def _constants(ops: Iterable[Op], writer: _Writer, weights: IO[bytes]) -> Iterable[p.ConstantData]:
    at = 0
    for op in ops:
        at += weights.write(b"\0" * (-at % ALIGN))
        (array,) = evaluate_ops((op,), {})
        content = np.ascontiguousarray(array).tobytes()
        weights.write(content)
        yield p.ConstantData(writer.add(op, None), at, len(content))
        at += len(content)


def _operand(value: object, writer: _Writer, plan: Plan | None) -> Any:
    match value:
        case None:
            return None
        case tuple():
            return tuple(writer.add(x, plan) for x in cast("tuple[Op, ...]", value))
        case _:
            return writer.add(cast("Op", value), plan)


def kernel_of(kernel: Kernel) -> p.Kernel:
    """A kernel as a message. Raises DlcError (USAGE): its arguments are packed, which needs words of its own."""
    if any(param.packed for param in kernel.params):
        message = "a kernel reads constants of which a byte holds several"
        help = "leave the pass that packs them out of the pipeline: integers or layout"
        raise error("unsupported-op", message, help=help, exit_code=ExitCode.USAGE)
    nests = tuple(
        p.Nest(
            n.out,
            tuple(map(expression, n.index)),
            tuple(p.NestAxis(a.name, a.extent) for a in n.axes),
            expression(n.body),
            n.reduce,
            None if n.where is None else expression(n.where),
        )
        for n in kernel.nests
    )
    params, results, locals = (tuple(map(_tensor, ps)) for ps in (kernel.params, kernel.results, kernel.locals))
    return p.Kernel(print_kernel(kernel), params, results, locals, nests)


def _tensor(param: Param) -> p.KernelTensor:
    return p.KernelTensor(param.name, str(param.dtype), param.shape)


def expression(e: Expr) -> p.Expression:
    """An expression as a message. Raises DlcError (MODEL): it is nested too deep to be written as JSON."""
    try:
        return _expression(e)
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> DlcError:
    return error("unsupported-op", "an expression is nested too deep for JSON", help="--set fuse.max-nests=1")


def _expression(e: Expr) -> p.Expression:
    match e:
        case Const(value):
            return p.Const(value)
        case Axis(name):
            return p.Axis(name)
        case Load(param, index):
            return p.Load(param, tuple(map(_expression, index)))
        case Apply(fn, args):
            return p.Apply(fn, tuple(map(_expression, args)))
        case _:
            raise AssertionError(e)
