"""Tensors of narrow types hold values of the type that is computed with: memory converts them, arithmetic need not.

    r0[i] = f16(f32(p0[i]) * f32(p1[i]))   →   r0[i] = p0[i] * p1[i]         p0, p1, r0: f32 stored as f16
    t0[i] = f16(x);  … f32(t0[i]) …        →   t0[i] = f32(f16(x));  … t0[i] …       t0: f32

A load of a parameter converts, a store into a result rounds, so that schedules see products, sums and vectors of one
type only. Locals hold values that were rounded already: memory of their own type would save little. Every value stays
what it was, bit for bit, but for the payload of a NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from dlc.base.types import DType, f32
from dlc.kernel.expr import Apply, Const, Expr, Load, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import dtype_of
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS

_CHOOSING = frozenset(("min", "max", "select"))
"""Functions whose value is one of their arguments."""


def widened(kernel: Kernel) -> Kernel:
    """An equal kernel in which tensors of narrow types have their compute type; itself if there are none."""
    if not any(p.dtype.narrow for p in kernel.tensors.values()):
        return kernel
    kept = {n.out for n in kernel.nests if not _widens(n, kernel.tensors[n.out].dtype)}
    rewriter = _Rewriter(kernel, {n: p.dtype for n, p in kernel.tensors.items() if p.dtype.narrow and n not in kept})
    narrow = rewriter.narrow

    def tensor(p: Param, stored: DType | None) -> Param:
        if p.name not in narrow:
            return p
        wide = f32 if p.name in rewriter.floats else p.dtype.compute
        return replace(p, type=replace(p.type, dtype=wide), stored=stored)

    inside = {p.name for p in kernel.locals}
    return Kernel(
        tuple(tensor(p, p.dtype) for p in kernel.params),
        tuple(tensor(p, p.dtype) for p in kernel.results),
        tuple(tensor(p, None) for p in kernel.locals),
        tuple(rewriter.nest(n, n.out in inside) for n in kernel.nests),
    )


def _widens(nest: Nest, dtype: DType) -> bool:
    """Whether what the nest writes may have a wider type: a sum would not wrap, an extreme start elsewhere."""
    if nest.reduce is None or not dtype.narrow:
        return True
    return nest.reduce in ("min", "max") and dtype.extremes == dtype.compute.extremes


class _Rewriter:
    """Rewrites nests; `narrow` are the types of the tensors that become wide."""

    def __init__(self, kernel: Kernel, narrow: Mapping[str, DType]) -> None:
        self._dtypes, self.narrow = kernel.dtypes, narrow
        self._known: dict[tuple[Expr, DType | None], Expr] = {}
        self._types: dict[Expr, DType | None] = {}
        read = {p.name for p in kernel.params if p.dtype.is_integer and p.name in narrow}
        exprs = (e for nest in kernel.nests for e in nest.exprs()) if read else ()
        self.floats = read - {name for e in exprs for name in self._whole(e)}
        """Parameters of narrow integers that are only converted to f32, and so hold f32: vectors of them exist."""

    def _dtype(self, e: Expr) -> DType | None:
        """The type that an expression had."""
        return dtype_of(e, self._dtypes, self._types)

    def nest(self, n: Nest, inside: bool) -> Nest:
        """A nest that writes a local (`inside`) or a result, whose memory rounds."""
        dtype = self.narrow.get(n.out)
        if dtype is None:
            body = self.as_it_was(n.body, self._dtypes[n.out])
        else:
            body = self.value(n.body, dtype) if inside else self._stored(n.body, dtype)
        where = None if n.where is None else self.value(n.where, None)
        return replace(n, body=body, where=where, index=tuple(self.value(i, None) for i in n.index))

    def _stored(self, e: Expr, dtype: DType) -> Expr:
        """What is stored for a value of a narrow type: it may lack the last rounding, which the store makes up for."""
        match e:
            case Apply("select", (condition, x, y)):
                chosen = self.value(condition, None)
                return Apply("select", (chosen, self._stored(x, dtype), self._stored(y, dtype)))
            case Apply(fn, (x,)) if SCALARS[fn].rule == "cast" and SCALARS[fn].to is dtype:
                source = self._dtype(x)
                if source is not None and source.compute is dtype.compute:
                    return self.value(x, None)
            case _:
                pass
        return self.value(e, dtype)

    def as_it_was(self, e: Expr, like: DType | None) -> Expr:
        """The expression with its own type: narrow if it was narrow."""
        dtype = self._dtype(e)
        if dtype is None or not dtype.narrow:
            return self.value(e, like)
        if isinstance(e, Load) and e.param not in self.narrow:
            return Load(e.param, tuple(self.value(i, None) for i in e.index))
        return Apply(dtype.name, (self.value(e, dtype),))

    def value(self, e: Expr, like: DType | None) -> Expr:
        """The expression in its compute type; a literal is one of the type `like`."""
        if isinstance(e, Const):
            return _literal(e, like)
        if (e, like) not in self._known:
            self._known[e, like] = self._value(e, like)
        return self._known[e, like]

    def _value(self, e: Expr, like: DType | None) -> Expr:
        match e:
            case Load(param, index):
                load = Load(param, tuple(self.value(i, None) for i in index))
                dtype = self._dtypes[param]
                return Apply(dtype.compute.name, (load,)) if dtype.narrow and param not in self.narrow else load
            case Apply(fn, args) if SCALARS[fn].to is not None:
                return self._converted(fn, args[0])
            case Apply(fn, args):
                return self._applied(fn, args, like)
            case _:
                return e

    def _whole(self, e: Expr) -> Iterator[str]:
        """Tensors of which an expression uses elements as integers."""
        stack, seen = [(e, False)], set[tuple[Expr, bool]]()
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            x, floating = item
            match x:
                case Load(param, index):
                    if not floating:
                        yield param
                    stack += ((i, False) for i in index)
                case Apply("f32", (y,)):
                    stack.append((y, True))
                case Apply(_, args):
                    stack += ((a, floating and self._exact(x)) for a in args)
                case _:
                    pass

    def _exact(self, e: Apply) -> bool:
        """Whether an integer is as exact if it is computed in f32, from what it is computed from."""
        if e.fn == "i32":
            return self._small(e.args[0])
        return e.fn in ("add", "sub") and all(isinstance(a, Apply) and a.fn == "i32" and self._exact(a) for a in e.args)

    def _small(self, e: Expr) -> bool:
        dtype = self._dtype(e)
        return dtype is not None and dtype.is_integer and dtype.bits <= 16

    def _float(self, e: Expr) -> Expr:
        """An integer as f32."""
        match e:
            case Load(param, _) if param in self.floats:
                return self.value(e, None)
            case Apply("i32", (x,)) if self._exact(e):
                return self._float(x)
            case Apply("add" | "sub" as fn, (a, b)) if self._exact(e):
                return Apply(fn, (self._float(a), self._float(b)))
            case _:
                return Apply("f32", (self.value(e, None),))

    def _converted(self, fn: str, x: Expr) -> Expr:
        to = SCALARS[fn].to
        assert to is not None
        if to is f32 and self.floats and SCALARS[fn].rule == "cast" and any(y.param in self.floats for y in loads(x)):
            return self._float(x)
        source = self._dtype(x)
        if isinstance(x, Const):
            found: Expr = Apply(fn, (x,))
        elif SCALARS[fn].rule == "bits":
            found = Apply(fn, (self.as_it_was(x, None),))
        elif source is to or (source is not None and source.narrow and source.compute is to):
            return self.value(x, None)
        else:
            found = Apply(fn, (self.value(x, None),))
        return Apply(to.compute.name, (found,)) if to.narrow else found

    def _applied(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> Expr:
        values = args[1:] if fn == "select" else args
        dtype = next((d for a in values if (d := self._dtype(a)) is not None), like)
        parts = [self.value(a, dtype) for a in values]
        if fn == "select":
            parts.insert(0, self.value(args[0], None))
        new = Apply(fn, tuple(parts))
        if dtype is None or not dtype.narrow or fn in _CHOOSING or SCALARS[fn].rule == "bool":
            return new
        if fn in ("neg", "abs") and dtype.format and dtype.format.symmetric:
            return new
        return Apply(dtype.compute.name, (Apply(dtype.name, (new,)),))


def _literal(e: Const, like: DType | None) -> Const:
    """A literal in the place of an element of a narrow type, as the value that the type has for it."""
    if like is None or not like.narrow:
        return e
    if like.is_integer:
        return Const(like.wrapped(int(e.value)))
    with np.errstate(over="ignore"):
        return Const(float(np.asarray(e.value, like.numpy)))
