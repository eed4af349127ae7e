"""Expressions of literals alone, folded in the type that they are computed in.

    p0[i]/sqrt(2.0)         →  p0[i]/1.41421354        (of f32; in f64 it is p0[i]/1.4142135623730951)
    f64(sqrt(f64(2.0)))     →  f64(1.4142135623730951)
    sqrt(2.0) < p0[i]       →  1.41421354 < p0[i]

A literal has no type of its own: it takes that of what it is combined with, or of the tensor that it is stored in. What
is applied to literals alone has none either, so whoever asks for the type of a divisor or a factor would find none, and
whoever moves it elsewhere would change what it is computed in. Here it becomes one literal, where its type is known.
The value is that of the reference (`evaluate`), computed in f64 and rounded to the type after each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dlc.base.types import Array, DType, bool_, f64, i64
from dlc.kernel.evaluate import Arithmetic, Interpreter
from dlc.kernel.expr import Apply, Const, Expr, Load, Number, apply, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS, result_dtype


def fold_literals(kernel: Kernel) -> Kernel:
    """An equal kernel without operations on literals alone, but for conversions that give one its type.

    Raises:
        TypeError: operand types differ where they must not.
    """
    nests = tuple(_nest(n, kernel.dtypes) for n in kernel.nests)
    return kernel if all(a is b for a, b in zip(nests, kernel.nests, strict=True)) else replace(kernel, nests=nests)


def fold(e: Expr, tensors: Mapping[str, DType], like: DType | None) -> Expr:
    """An equal expression over tensors of these types, where it is used as a value of type `like`; None: any."""
    return _Fold(tensors).expr(e, like) if _folds(e) else e


def typed(e: Expr, dtype: DType) -> Expr:
    """A literal, or what chooses or computes with literals alone, as an expression of a type of its own.

    Each literal gets the type, not the value that they come to: that would be computed in another one.
    """
    match e:
        case Const():
            return apply(dtype.name, e)
        case Apply("select", (condition, then, otherwise)):
            return apply("select", condition, typed(then, dtype), typed(otherwise, dtype))
        case Apply(fn, args):
            return apply(fn, *[typed(a, dtype) for a in args])
        case _:
            return e


def _nest(nest: Nest, tensors: Mapping[str, DType]) -> Nest:
    if not any(map(_folds, nest.exprs())):
        return nest
    found = _Fold(tensors)
    return replace(
        nest,
        index=tuple(found.expr(i, i64) for i in nest.index),
        body=found.expr(nest.body, tensors[nest.out]),
        where=None if nest.where is None else found.expr(nest.where, bool_),
    )


def _folds(e: Expr) -> bool:
    """Whether a part of an expression is one of literals, and no literal with its type."""
    return any(isinstance(x, Apply) and x.args and _of_literals(x) and not _typed(x) for x in walk(e))


def _of_literals(e: Apply) -> bool:
    return all(isinstance(a, Const) or (isinstance(a, Apply) and _typed(a)) for a in e.args)


def _typed(e: Apply) -> bool:
    return SCALARS[e.fn].rule == "cast" and isinstance(e.args[0], Const)


class _Exact(Arithmetic):
    """Floats are computed in f64, and rounded to the type of the operands: equal on every machine."""

    def applied(self, fn: str, dtype: DType | None, *values: Array) -> Array:
        of = values[-1].dtype
        if of.kind in "biu" or of == np.float64 or SCALARS[fn].to is not None:
            return super().applied(fn, dtype, *values)
        wide = [v.astype(np.float64) if v.dtype == of else v for v in values]
        found = super().applied(fn, f64, *wide)
        return found.astype(of) if found.dtype == np.float64 else found


_NUMBERS: Final = _Exact()


class _Fold(Interpreter):
    """Folds expressions over tensors of some types."""

    numbers = _NUMBERS

    def __init__(self, tensors: Mapping[str, DType]) -> None:
        self._tensors = tensors
        self._types: dict[int, DType | None] = {}  # by identity: the expressions outlive this
        self._kept: list[Expr] = []

    def dtype(self, e: Expr) -> DType | None:
        match e:
            case Const():
                return None
            case Load(name, _):
                return self._tensors.get(name, i64)
            case Apply(fn, args):
                if id(e) not in self._types:
                    self._kept.append(e)
                    self._types[id(e)] = result_dtype(fn, tuple([self.dtype(a) for a in args]))
                return self._types[id(e)]
            case _:
                return i64

    def expr(self, e: Expr, like: DType | None) -> Expr:
        """The expression folded; a literal there takes the type `like`."""
        match e:
            case Load(name, index):
                return _changed(e, index, [self.expr(i, i64) for i in index], lambda new: Load(name, tuple(new)))
            case Apply(fn, args):
                wanted = self.literal_dtypes(fn, args, like)
                if SCALARS[fn].rule == "select":
                    wanted = (bool_, *wanted[1:])
                new = [self.expr(a, w) for a, w in zip(args, wanted, strict=True)]
                found = _changed(e, args, new, lambda new: apply(fn, *new))
                return self._literal(found, like) if isinstance(found, Apply) else found
            case _:
                return e

    def _literal(self, e: Apply, like: DType | None) -> Expr:
        """An operation on literals as one, with its type where it has one of its own."""
        if not e.args or not _of_literals(e) or _typed(e):
            return e
        own = self.dtype(e)
        dtype = own or like
        with np.errstate(all="ignore"):
            value = self.value(e, like)
            value = self.numbers.kept(value, dtype) if dtype is not None else value
        number = _number(value)
        if own is None or own is bool_:  # a truth value is one wherever it stands
            return Const(number)
        return Apply(own.name, (Const(number),))


def _changed(e: Expr, old: tuple[Expr, ...], new: list[Expr], make: Callable[[list[Expr]], Expr]) -> Expr:
    return e if all(a is b for a, b in zip(old, new, strict=True)) else make(new)


def _number(value: Array) -> Number:
    """An array of one element as a literal, exactly."""
    kind = value.dtype.kind
    if kind == "b":
        return bool(value)
    return int(value) if kind in "iu" else float(value)
