"""Results whose size follows from the values of operands, which are known when the program runs.

    y = Slice(x[20,10], starts, ends)    declared as [3,10]   →   y[3,10], Checked
                                         not declared         →   y[y_dim0_size(0,20),y_dim1_size(0,10)]

A call for which a declared size would be another is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.base.extents import Dim, capacity, symbol
from dlc.base.types import f64, i64
from dlc.graph import Op
from dlc.kernel.define import ShapeError
from dlc.ops.checked import Checked, FirstRows
from dlc.ops.pointwise import normalized
from dlc.ops.shape import Reshape, Slice
from dlc.ops.sizes import Count
from dlc_frontend_onnx.node import Node
from dlc_frontend_onnx.terms import Number, Term, as_op, clip, where
from dlc_frontend_onnx.unsupported import Unsupported


@dataclass(frozen=True)
class Sized:
    """One dimension of a result."""

    size: int
    """What the model declares, or a dimension whose size the call finds."""
    count: Op
    """How many elements there are when the program runs: an i64[]."""
    name: str
    most: int
    """The largest size that there may be."""
    always: bool
    """Whether the operands cannot lead to a size that is negative or larger."""

    def numbers(self) -> Term:
        """0, 1, 2, … for each element, an i64[size]."""
        if not isinstance(self.size, Dim):
            return Term(Count(self.size))
        count = Term(self.count) if self.always else clip(Term(self.count), 0, self.most)
        return Term(FirstRows(Count(capacity(self.size)), count.op, self.size))

    def checked(self, y: Op) -> Op:
        """A result that a call has only if the size is what the program has room for."""
        if not isinstance(self.size, Dim):
            return Checked(y, self.count, self.name, self.size, self.size)
        return y if self.always else Checked(y, self.count, self.name, 0, self.most)


def sized(node: Node, axis: int, rank: int, count: Number, most: int | None, *, always: bool = False) -> Sized:
    """The size of the first result of a node along an axis.

    Args:
        node: The node.
        axis: The dimension.
        rank: Dimensions of the result.
        count: The number of elements, as a formula.
        most: The largest number that the operands allow; None: there is no largest one.
        always: Whether no operand leads to another number.

    Raises:
        Unsupported: neither the operands nor the model limit the size.
        ShapeError: the model declares a size that is too large, or another number of dimensions.
    """
    shape = node.declared[0] if node.declared else None
    if shape is not None and (len(shape) != rank or (most is not None and shape[axis] > most)):
        raise ShapeError(
            f"the result is declared as {list(shape)}; dimension {axis} of {rank} has at most {most} elements"
        )
    result = node.proto.output[0]
    name = node.values.size_name(result if rank == 1 else f"{result}_dim{axis}")
    found = as_op(count, i64)
    if shape is not None:
        return Sized(shape[axis], found, name, shape[axis], always)
    if most is None:
        raise Unsupported(
            "the size of the result depends on values of the model's inputs, and nothing limits it",
            "export the model with a shape for the result, or with these values as constants",
        )
    size = symbol(name, 0, most) if most else 0
    return Sized(size, found, node.values.size_name(f"{name}_found") if not always else name, most, always)


def elements(node: Node, k: int) -> tuple[Number, ...]:
    """The elements of operand `k` one by one: numbers and symbolic dimensions where they are known, else terms of
    type i64 or f64."""
    x = node.x(k)
    if (known := node.values.extents(x)) is not None:
        return known
    if (value := node.values.value(x)) is not None:
        return tuple(value.reshape(-1).tolist())
    count = x.type.size
    if isinstance(count, Dim):
        raise Unsupported(f"operand {k} has {x.type} elements", "give every dimension one size, as --dim batch=8")
    node.values.budget.check("operands", count, f"operand {k} has elements, of which every one is looked at:")
    flat = x if x.shape == (count,) else Reshape(x, to=(count,))
    wide = f64 if x.dtype.is_float else i64
    parts = (Reshape(Slice(flat, starts=(at,), sizes=(1,), steps=(1,)), to=()) for at in range(count))
    return tuple(Term(as_op(Term(part), wide)) for part in parts)


def along(
    d: int, rank: int, otherwise: tuple[Number, ...], axes: Sequence[Number], *columns: Sequence[Number]
) -> tuple[Number, ...]:
    """What operands say of dimension `d`.

    Args:
        d: The dimension.
        rank: How many there are; axes are counted from either end.
        otherwise: What holds for a dimension that no axis names.
        axes: The dimension that each row of the columns is about.
        columns: For each axis one element, such as a start.
    """
    found = otherwise
    for axis, row in zip(axes, zip(*columns, strict=True), strict=True):
        if isinstance(axis, Term):
            named = axis.same(d) | axis.same(d - rank)
            found = tuple(where(named, a, b) for a, b in zip(row, found, strict=True))
        elif normalized(axis, rank) == d:
            found = row
    return found


def axes_of(node: Node, k: int, rank: int) -> tuple[Number, ...] | None:
    """Operand `k` as axes, element by element, None where it is left out. An input of the model is restricted to axes.

    Raises:
        Unsupported: they are computed from the model's inputs.
    """
    if node.optional(k) is None:
        return None
    found = elements(node, k)
    if any(isinstance(a, Term) for a in found):
        node.values.assume(node.x(k), [range(-rank, rank)] * len(found))
    return found
