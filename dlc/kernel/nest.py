"""Nests and kernels: the differentiable, order-free form of a computation.

A nest is the only statement: *for axes, where guard: out[index] (reduce)= body*. A kernel is a closed list of nests
over positional parameters, so equal computations are equal kernels and are compiled once, across nodes and models.

Results and locals start at the identity of the first reduction that writes them (zero when nothing reduces), then the
nests run in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Literal

from dlc.base.types import DType, Type, bool_, f32, i64
from dlc.kernel.expr import SIZE, Apply, Axis, Const, Expr, Load, Number, axes_in, lift, map_loads, substitute, walk
from dlc.kernel.scalar import result_dtype

MAX_POINTS: Final = 1 << 52
"""Points of one nest: more could not be counted in the numbers that C loops use, nor run in a lifetime."""

Reduce = Literal["add", "mul", "max", "min"]


def identity(reduce: str | None, dtype: DType) -> bool | int | float:
    """The value that a reduction starts from: `identity(r) r x == x`."""
    if reduce in (None, "add"):
        return 0.0 if dtype.is_float else False if dtype is bool_ else 0
    if reduce == "mul":
        return 1.0 if dtype.is_float else True if dtype is bool_ else 1
    if dtype is bool_:
        return reduce == "min"
    low, high = dtype.extremes
    return low if reduce == "max" else high


def zero(dtype: DType) -> Const:
    """The literal 0 of a type: what variables of schedules begin with, and copies have behind the end of a tensor."""
    return Const(identity(None, dtype))


@dataclass(frozen=True)
class Param:
    """A tensor of a kernel: parameter, result or local. Indexing it makes a load.

    Kernels are about tensors as they lie in memory: `shape` is that of the room, in numbers.

    Attributes:
        name: What nests call it.
        type: Its shape, and the type of the values that loads give and stores take.
        stored: The narrow type in which its elements lie in memory, where that is another one: a load converts, a store
            rounds. Only schedules make such tensors (see `dlc.kernel.schedules.widen`).
        packed: Whether a byte holds several of its elements, of less than 8 bits; only of parameters.
    """

    name: str
    type: Type
    stored: DType | None = None
    packed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.room

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def storage(self) -> DType:
        """The type of its elements in memory."""
        return self.stored or self.type.dtype

    def bytes_before(self, element: int) -> int:
        """Where an element lies, or begins the byte that holds it."""
        return element // self.storage.per_byte if self.packed else element * self.storage.itemsize

    def __getitem__(self, index: Expr | Number | tuple[Expr | Number, ...]) -> Load:
        items = index if isinstance(index, tuple) else (index,)
        if len(items) != len(self.shape):
            raise ValueError(f"{self.name}: {self.type} indexed with {len(items)} subscripts")
        return Load(self.name, tuple(lift(i) for i in items))


class Operand(Param):
    """A tensor as the definition of an op sees it: its dimensions may be symbolic."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape


@dataclass(frozen=True)
class Nest:
    """for axes, where guard: out[index] (reduce)= body.

    Attributes:
        out: Name of the result or local that is written.
        index: Where: one integer expression per dimension, over `axes`.
        axes: The iteration space, outermost first. Axes that `index` lacks are reduced.
        body: The value.
        reduce: How values that meet at one element combine; None: every element is written at most once.
        where: Points at which the guard is false do nothing; loads are legal only where it holds.
    """

    out: str
    index: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    body: Expr
    reduce: Reduce | None = None
    where: Expr | None = None

    @cached_property
    def reduction_axes(self) -> tuple[Axis, ...]:
        """Axes that do not occur in the index of the output."""
        kept = set(axes_in(*self.index))
        return tuple(a for a in self.axes if a not in kept)

    @property
    def points(self) -> int:
        """Size of the iteration space, guards not counted."""
        return math.prod(a.extent for a in self.axes)

    def exprs(self) -> Iterator[Expr]:
        """The index expressions, the body and the guard."""
        yield from self.index
        yield self.body
        if self.where is not None:
            yield self.where

    @cached_property
    def loads(self) -> Mapping[str, tuple[Load, ...]]:
        """Every load of the subscripts, the body and the guard, in reading order, by the tensor it reads."""
        found: dict[str, list[Load]] = {}
        for e in self.exprs():
            for x in walk(e):
                if isinstance(x, Load):
                    found.setdefault(x.param, []).append(x)
        return {name: tuple(xs) for name, xs in found.items()}

    @cached_property
    def _reads(self) -> frozenset[str]:
        return frozenset(self.loads)

    @cached_property
    def lines(self) -> dict[tuple[int, ...], str]:
        """Its text in canonical kernels by the shape of what it writes: kernels that grow print only what is new."""
        return {}

    @cached_property
    def nodes(self) -> int:
        """Size of the body as a tree."""
        return sum(1 for _ in walk(self.body))

    def reads(self) -> frozenset[str]:
        """Names of the tensors that are loaded."""
        return self._reads

    def map(self, change: Callable[[Expr], Expr]) -> Nest:
        """The nest with each of its expressions, those of `exprs`, replaced by `change(expression)`."""
        where = None if self.where is None else change(self.where)
        return replace(self, index=tuple(change(i) for i in self.index), body=change(self.body), where=where)

    def map_loads(self, change: Callable[[Load], Expr]) -> Nest:
        """The nest with every load replaced by `change(load)`, innermost first: in subscripts and the guard as well."""
        return self.map(lambda e: map_loads(e, change))

    def substitute(self, mapping: Mapping[Any, Expr], axes: tuple[Axis, ...]) -> Nest:
        """The nest over new axes, expressions replaced accordingly; the same object when nothing changes."""
        if axes == self.axes and all(old == new for old, new in mapping.items()):
            return self
        return replace(self.map(lambda e: substitute(e, mapping)), axes=axes)

    def _written_to(self, out: str) -> Nest:
        """The same values in another tensor. What is known of the loads stays known."""
        moved = replace(self, out=out)
        moved.__dict__["loads"] = self.loads
        return moved

    def rename(self, names: Mapping[str, str]) -> Nest:
        """The nest with tensors renamed; the same object when none of its own is."""
        if all(name not in names or names[name] == name for name in self.loads):
            out = names.get(self.out, self.out)
            return self if out == self.out else self._written_to(out)

        def change(load: Load) -> Expr:
            new = names.get(load.param, load.param)
            return load if new == load.param else Load(new, load.index)

        return replace(self.map_loads(change), out=names.get(self.out, self.out))


def dtype_of(e: Expr, tensors: Mapping[str, DType]) -> DType | None:
    """Type of an expression over tensors of these types; None for a literal, i64 for an axis.

    Raises:
        TypeError: operand types differ where they must not.
    """
    match e:
        case Const():
            return None
        case Axis():
            return i64
        case Load(param, _):
            return i64 if param.startswith(SIZE) else tensors[param]
        case Apply(fn, args):
            return result_dtype(fn, tuple([dtype_of(a, tensors) for a in args]))
        case _:
            raise AssertionError(e)


# A literal alone has no type of its own until something needs one.
LITERAL_DTYPES: Final[Mapping[type, DType]] = {bool: bool_, int: i64, float: f32}


def converted_dtype(value: Number, to: DType) -> DType:
    """The type in which a literal under a conversion is read: `f64(0.1)` is the f64 next to 0.1, no widened f32."""
    return to if to.is_float else LITERAL_DTYPES[type(value)]
