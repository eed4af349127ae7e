"""The vocabulary that op definitions are written in: `axes`, `grid`, `comp`, `same`, `inside`.

An op's `define` receives one `Param` per operand and returns what it computes:

    def define(self, a, b):
        same(a.shape[1], b.shape[0], "inner dimensions")
        m, n, k = axes("m n k", a.shape[0], b.shape[1], a.shape[1])
        return comp((m, n), a[m, k] * b[k, n], sum=(k,))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.base.budget import tick
from dlc.base.extents import Dim, bounds, capacity
from dlc.base.polynomials import Symbol
from dlc.base.types import DType, Type, i64
from dlc.kernel.expr import SIZE, Axis, Expr, Number, apply, axes_in, both, lift, loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import LITERAL_DTYPES, Nest, Param, Reduce, dtype_of
from dlc.kernel.rounding import rounded_once


class ShapeError(ValueError):
    """Operand shapes or types that an op does not accept."""

    op: str = ""
    """The op with its operands' names and types, added where ops are made: "mat_mul of x f32[1,100] and f32[99,2]"."""


@dataclass(frozen=True)
class Comp:
    """One comprehension: the nest it becomes, and the shape of the tensor it writes into."""

    index: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    body: Expr
    reduce: Reduce | None
    where: Expr | None
    shape: tuple[int, ...]


def axes(names: str, *extents: int) -> tuple[Axis, ...]:
    """Axes with these names and extents; a negative extent is a shape error."""
    out = tuple(Axis(n, e) for n, e in zip(names.split(), extents, strict=True))
    for a in out:
        if a.extent < 0:
            raise ShapeError(f"dimension {a.name} would be {a.extent}")
    return out


def grid(shape: Sequence[int], prefix: str = "i") -> tuple[Axis, ...]:
    """One axis per dimension of a shape."""
    return tuple(Axis(f"{prefix}{d}", e) for d, e in enumerate(shape))


def same(a: int, b: int, what: str) -> int:
    """The common size of two dimensions that must agree.

    Raises:
        ShapeError: they differ.
    """
    if a != b:
        raise ShapeError(f"{what} differ: {a} and {b}")
    return a


def nearest(place: Expr, extent: int) -> Expr:
    """The subscript of an element that is nearest to a place; 0 where a dimension may have, and has, no elements."""
    if isinstance(extent, Dim) and bounds(extent)[0] < 1:
        return apply("max", apply("min", place, extent - 1), 0)
    return apply("min", apply("max", place, 0), extent - 1)


def inside(*conditions: tuple[Expr, int]) -> Expr | None:
    """Guard that each index lies in [0, extent)."""
    guard: Expr | None = None
    for index, extent in conditions:
        guard = both(guard, both(index >= 0, index < extent))
    return guard


def comp(
    index: Sequence[Expr | int],
    body: Expr | Number,
    *,
    sum: Sequence[Axis] = (),
    prod: Sequence[Axis] = (),
    max: Sequence[Axis] = (),
    min: Sequence[Axis] = (),
    where: Expr | None = None,
    into: Sequence[int] | None = None,
    over: Sequence[Axis] = (),
) -> Comp:
    """`out[index] = reduction of body`.

    Args:
        index: Output subscripts. Plain axes give the output's shape; otherwise pass `into`.
        sum: Axes to add over; of the four kinds of reduction, one at most.
        prod: Axes to multiply over.
        max: Axes to take the largest over.
        min: Axes to take the smallest over.
        where: Guard; points outside it contribute nothing.
        into: Shape of the output when subscripts are compound.
        over: Output axes, outermost first, when subscripts are compound.
    """
    tick()
    items = tuple(lift(i) for i in index)
    kinds: tuple[tuple[Reduce, Sequence[Axis]], ...] = (("add", sum), ("mul", prod), ("max", max), ("min", min))
    used: list[tuple[Reduce, tuple[Axis, ...]]] = [(kind, tuple(a)) for kind, a in kinds if a]
    if len(used) > 1:
        raise ValueError("one reduction per comprehension")
    reduce: Reduce | None = used[0][0] if used else None
    reduced = used[0][1] if used else ()
    plain = tuple(i for i in items if isinstance(i, Axis))
    outer = tuple(over) or plain
    if into is None:
        if len(plain) != len(items):
            raise ValueError("compound output subscripts need `into` and `over`")
        into = tuple(a.extent for a in plain)
    return Comp(items, (*outer, *reduced), lift(body), reduce, where, tuple(into))


def element_type(bodies: Sequence[Expr], tensors: Mapping[str, DType]) -> DType:
    """The one type of what is stored, given the types of what is loaded; a literal alone has that of its kind.

    Raises:
        ShapeError: the types differ, or a function is not defined for them.
    """
    try:
        found = {d for body in bodies if (d := dtype_of(body, tensors)) is not None}
    except TypeError as e:
        raise ShapeError(str(e)) from e
    if len(found) > 1:
        raise ShapeError(f"parts of different types: {', '.join(sorted(map(str, found)))}")
    return next(iter(found), None) or LITERAL_DTYPES[type(getattr(bodies[0], "value", 0.0))]


def kernel_of(
    params: tuple[Param, ...], comps: Sequence[Comp], dtype: DType | None = None, sizes: Sequence[Symbol] = ()
) -> Kernel:
    """The kernel with one result that these comprehensions write.

    Args:
        params: The operands, named as in the comprehensions.
        comps: One or more comprehensions into the same tensor.
        dtype: Element type of the result; None: that of the body.
        sizes: The symbols of all dimensions: each is one more parameter, behind the operands.

    Raises:
        ShapeError: bodies have different types or an operand has a type that a function does not accept.
    """
    from dlc.kernel.simplify import simplify_nest

    if dtype is None:
        dtype = element_type([c.body for c in comps], {p.name: p.dtype for p in params})
    out = Param("out", Type(dtype, comps[0].shape))
    shapes = {p.name: p.type.shape for p in params}
    nests = tuple(simplify_nest(_nest(c, shapes)) for c in comps)
    given = (*(Param(p.name, p.type) for p in params), *(size_param(s) for s in sizes))
    return rounded_once(Kernel.canonical(given, (out,), nests))


def size_param(symbol: Symbol) -> Param:
    """The parameter that holds the size of a symbol."""
    return Param(SIZE + symbol.name, Type(i64, (), symbol=symbol))


def _nest(c: Comp, shapes: Mapping[str, tuple[int, ...]]) -> Nest:
    """A comprehension over memory: axes that end where a symbol says run over the room there is.

    What lies behind the end has no meaning, so it may be computed where that is all that is written: at a subscript of
    a dimension that ends there too. Elsewhere a guard stops at the end, and so it does where the room of an operand
    ends before: x[i + start] is inside for i below the size of the result only.
    """
    numbers = {a: Axis(a.name, capacity(a.extent)) for a in c.axes if isinstance(a.extent, Dim)}
    if not numbers:
        return Nest("out", c.index, c.axes, c.body, c.reduce, c.where)
    index = tuple(substitute(i, numbers) for i in c.index)
    body = substitute(c.body, numbers)
    guard: Expr | None = None
    for a, wide in numbers.items():
        ends = any(i == a and d == a.extent for i, d in zip(c.index, c.shape, strict=True))
        if not ends or _leaves(body, wide, shapes):
            guard = both(guard, wide < lift(a.extent))
    where = c.where if c.where is None else substitute(c.where, numbers)
    axes = tuple(numbers.get(a, a) for a in c.axes)
    return Nest("out", index, axes, body, c.reduce, both(guard, where))


def _leaves(body: Expr, axis: Axis, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a subscript that a size moves reaches behind the room of an operand somewhere along an axis."""
    from dlc.kernel.simplify import bounds

    for load in loads(body):
        for i, d in zip(load.index, shapes.get(load.param, ()), strict=False):
            sizes = set(loads(i))
            if axis in axes_in(i) and sizes and all(x.param.startswith(SIZE) for x in sizes):
                found = bounds(substitute(i, {x: Axis(x.param, ANY_SIZE) for x in sizes}))
                if found is None or found[0] < 0 or found[1] >= capacity(d):
                    return True
    return False


ANY_SIZE = 1 << 62
"""More than any size: expressions of sizes keep them within their bounds."""
