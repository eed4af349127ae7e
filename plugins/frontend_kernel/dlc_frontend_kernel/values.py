"""Expressions of a statement as the core's expressions, with the conditions under which they may be evaluated.

A subscript that its indices' ranges do not keep inside the tensor gives a condition. It skips the points of the term;
in a branch of `select` the element is zero instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from dlc.base.lexer import MAX_DEPTH
from dlc.base.types import DType, bool_, i64
from dlc.kernel.expr import Axis, Const, Expr, Load, apply, both, select
from dlc.kernel.nest import Param
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import depth
from dlc_frontend_kernel.expressions import COMPARISONS, MAX_SIZE
from dlc_frontend_kernel.inference import LOGIC, Types
from dlc_frontend_kernel.known import Sum, facts, follows
from dlc_frontend_kernel.ranges import Bound, Interval, forward
from dlc_frontend_kernel.syntax import Call, Group, Index, Node, Number, Operation, Reduction, Ref, bare, walk_nodes
from dlc_frontend_kernel.tokens import KernelTokens

Conditions = dict[Expr, None]
"""An ordered set."""

_INDEX_CALLS: Final = frozenset({"min", "max"})
_INDEX_OPERATORS: Final[Mapping[str, str]] = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
_COMPARE: Final[Mapping[str, str]] = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
assert set(_COMPARE) == COMPARISONS
MAX_GATHERS = 4
_REACH = 1 << 53
"""Subscripts stay far inside of 64 bits."""


class Values:
    """Translates the expressions of one statement.

    Args:
        tokens: For errors.
        types: Their types.
        tensor: The tensor that a reference reads.
        axes: Loop variables by index key.
        intervals: The ranges of the indices.
        reduce: What a reduction by name becomes.
        dtype: The statement's element type.
    """

    def __init__(
        self,
        tokens: KernelTokens,
        types: Types,
        tensor: Callable[[Ref], Param],
        axes: Mapping[str, Axis],
        intervals: Mapping[str, Interval],
        reduce: Callable[[Reduction, DType], Expr],
        dtype: DType,
    ) -> None:
        self._tokens, self._types, self._tensor = tokens, types, tensor
        self._axes, self._intervals, self._reduce, self._dtype = axes, intervals, reduce, dtype
        self._conditions: list[Conditions] = []
        self._soft = 0
        self._known: dict[Sum, int] = {}
        self._gathers = 0

    def collect(self, node: Node, want: DType) -> tuple[Expr, Conditions]:
        """The value of a node as an element of type `want`, and what must hold wherever it is evaluated."""
        self._conditions.append({})
        outer, self._soft, self._known = (self._soft, self._known), 0, {}
        value = self._value(node, want)
        self._soft, self._known = outer
        if depth(value) > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} operations in each other"
            raise self._tokens.fault("too-large", message, node.at, "divide it into several statements")
        return value, self._conditions.pop()

    def require(self, conditions: Conditions) -> None:
        """Conditions of an inner reduction that concern the expression around it too."""
        if not self._soft:
            self._conditions[-1].update(conditions)

    def _value(self, node: Node, want: DType) -> Expr:
        chain: list[tuple[Operation, DType]] = []
        while isinstance(node, Operation) and len(node.args) == 2:
            want = self._operand_type(node, want)
            chain.append((node, want))
            node = node.args[0]
        value = self._leaf(node, want)
        for op, type in reversed(chain):
            value = self._infix(op.op, type, value, self._value(op.args[1], type))
        return value

    def _operand_type(self, node: Operation, want: DType) -> DType:
        if node.op in LOGIC:
            return bool_
        if node.op not in COMPARISONS:
            return want
        return self._types.operands(node) or self._adapted(node)

    def _adapted(self, node: Node) -> DType:
        """The type in which literals and indices are compared: exact integers where all of it is index arithmetic."""
        nodes = list(walk_nodes(node))
        whole = all(
            isinstance(n, Index | Group)
            or (isinstance(n, Number) and isinstance(n.value, int))
            or (isinstance(n, Operation) and n.op != "/")
            or (isinstance(n, Call) and n.fn in _INDEX_CALLS)
            for n in nodes
        )
        return i64 if whole else self._dtype

    def _leaf(self, node: Node, want: DType) -> Expr:
        match node:
            case Number():
                return self._number(node, 1, want)
            case Index(_, key, _):
                axis = self._axes[key]
                return axis if want is i64 else apply(want.name, axis)
            case Ref():
                return self._element(node, want)
            case Group(inner, _):
                return self._value(inner, want)
            case Operation("not", (x,), _):
                return apply("not", self._value(x, bool_))
            case Operation(_, (Number() as x,), _):
                return self._number(x, -1, want)
            case Operation(_, args, _):
                return apply("neg", self._value(args[0], want))
            case Call():
                return self._call(node, want)
            case Reduction():
                return self._reduce(node, want)

    def _call(self, node: Call, want: DType) -> Expr:
        if node.fn == "select":
            condition = self._value(node.args[0], bool_)
            return select(
                condition,
                self._branch(node.args[1], want, condition, True),
                self._branch(node.args[2], want, condition, False),
            )
        scalar = SCALARS[node.fn]
        if scalar.to is not None:
            source = self._types.of(node.args[0]) or self._adapted(node.args[0])
            value = self._value(node.args[0], source)
            return value if source == scalar.to else apply(node.fn, value)
        type = self._types.operands(node) or (want if scalar.rule == "same" else self._dtype)
        self._types.check_domain(node, node.fn, type)
        return apply(node.fn, *[self._value(a, type) for a in node.args])

    def _branch(self, node: Node, want: DType, condition: Expr, holds: bool) -> Expr:
        """A branch of `select`: what its condition tells is known there."""
        outer = self._known
        self._known = dict(outer)
        for key, bound in facts(condition, holds):
            self._known[key] = min(bound, self._known.get(key, bound))
        self._soft += 1
        value = self._value(node, want)
        self._soft -= 1
        self._known = outer
        return value

    def _infix(self, op: str, type: DType, a: Expr, b: Expr) -> Expr:
        if op in LOGIC:
            return apply(op, a, b)
        if op in _COMPARE:
            return apply(_COMPARE[op], a, b)
        if op == "/":
            return apply("div" if type.is_float else "truncdiv", a, b)
        if op == "//" and type.is_float:
            return apply("floor", apply("div", a, b))
        return apply(_INDEX_OPERATORS[op], a, b)

    def _number(self, node: Number, sign: int, want: DType) -> Expr:
        value = sign * node.value
        if want.is_float:
            found = float(value)
            with np.errstate(over="ignore"):
                stored = float(want.numpy.type(found))
            if math.isinf(stored):
                raise self._tokens.fault("bad-number", f"{value} is too large for {want}", node.at)
            return Const(found)
        if not isinstance(value, int):
            help = f"convert the other operand to floating point: f32(…), or write {round(value)}"
            raise self._tokens.fault("type", f"{value} is not a constant of type {want}", node.at, help)
        low, high = want.limits
        if want is bool_ or not low <= value <= high:
            raise self._tokens.fault("bad-number", f"{value} is not a value of {want}: {low} to {high}", node.at)
        return Const(value)

    # ---- elements and subscripts ----
    def _element(self, node: Ref, want: DType) -> Expr:
        index, conditions = self.place(node)
        load = Load(self._tensor(node).name, index)
        if not self._soft:
            self._conditions[-1].update(conditions)
            return load
        guard: Expr | None = None
        for c in conditions:
            if not follows(c, self._known):
                guard = both(guard, c)
        zero = Const(0.0 if want.is_float else False if want is bool_ else 0)
        return load if guard is None else select(guard, load, zero)

    def subscripts(self, node: Ref) -> tuple[Expr, ...]:
        """The subscripts of a reference."""
        return tuple(self._subscript(s) for s in node.subscripts)

    def place(self, node: Ref) -> tuple[tuple[Expr, ...], Conditions]:
        """The subscripts of a reference, and what must hold for them to lie in the tensor."""
        out: list[Expr] = []
        conditions: Conditions = {}
        for subscript, size in zip(node.subscripts, self._tensor(node).shape, strict=True):
            e = self._subscript(subscript)
            out.append(e)
            low, high = forward(subscript, self._intervals)
            # In a branch of `select` the element is 0, as that of any subscript outside.
            if isinstance(e, Const) and not 0 <= e.value < size and not self._soft:
                message = f"subscript {e.value} of {node.tensor} is not in 0..{size - 1}"
                raise self._tokens.fault("subscript", message, subscript.at)
            if any(self._reach(n) > _REACH for n in walk_nodes(subscript)):
                message = f"a subscript of {node.tensor} reaches beyond {_REACH:,}"
                raise self._tokens.fault("too-large", message, subscript.at)
            if low < 0:
                conditions[apply("ge", e, 0)] = None
            if high >= size:
                conditions[apply("lt", e, size)] = None
        return tuple(out), conditions

    def _reach(self, node: Node) -> Bound:
        """The largest size of a part of a subscript; data apart, which is compared when it is read."""
        if any(isinstance(n, Ref) for n in walk_nodes(node)):
            return 0
        low, high = forward(node, self._intervals)
        return max(abs(low), abs(high))

    def _subscript(self, node: Node) -> Expr:
        match node:
            case Number(int(value), at):
                if value > MAX_SIZE:
                    raise self._tokens.fault("bad-number", f"{value} in a subscript: constants have 32 bits", at)
                return Const(value)
            case Index(_, key, _):
                return self._axes[key]
            case Group(inner, _):
                return self._subscript(inner)
            case Operation("neg", (x,), _):
                return apply("mul", self._subscript(x), -1)
            case Operation("//" | "%" as op, (x, y), at):
                divisor = bare(y)
                if not isinstance(divisor, Number) or not isinstance(divisor.value, int) or divisor.value < 1:
                    help = "divide indices by whole numbers from 1 up"
                    raise self._tokens.fault(
                        "subscript", f"'{op}' in a subscript: the divisor is not a constant from 1 up", at, help
                    )
                return apply(_INDEX_OPERATORS[op], self._subscript(x), self._subscript(divisor))
            case Operation(op, (x, y), _) if op in _INDEX_OPERATORS:
                return apply(_INDEX_OPERATORS[op], self._subscript(x), self._subscript(y))
            case Call(fn, (x, y), _) if fn in _INDEX_CALLS:
                return apply(fn, self._subscript(x), self._subscript(y))
            case Ref():
                return self._index_element(node)
            case _:
                raise self._no_subscript(node)

    def _index_element(self, node: Ref) -> Expr:
        dtype = self._tensor(node).dtype
        if not dtype.is_integer:
            help = f"an index tensor has whole elements: declare {node.tensor}: i32[…] in a .kernel file"
            raise self._tokens.fault("type", f"{node.tensor} of type {dtype} is a subscript", node.at, help)
        # Each level repeats the subscript in the conditions of the next.
        self._gathers += 1
        if self._gathers > MAX_GATHERS:
            message = f"subscripts read from tensors are nested deeper than {MAX_GATHERS}"
            raise self._tokens.fault("too-large", message, node.at, "divide it into several statements")
        value = self._element(node, dtype)
        self._gathers -= 1
        return value if dtype is i64 else apply("i64", value)

    def _no_subscript(self, node: Node) -> Exception:
        match node:
            case Number(value, _):
                message, help = f"{value} in a subscript", "subscripts are whole numbers"
            case Operation("/", _, _):
                message, help = "'/' in a subscript", "write // for whole quotients"
            case Operation(op, _, _):
                message, help = f"'{op}' in a subscript", "subscripts are made of + - * // % min max"
            case Call(fn, _, _):
                message, help = f"{fn} in a subscript", "subscripts are made of + - * // % min max"
            case _:
                message, help = "a reduction in a subscript", "store it in a tensor of whole numbers first"
        return self._tokens.fault("subscript", message, node.at, help)
