"""Floats of narrow types are computed in f32 inside of an op, and rounded once, where the op's result is stored.

    r0[i] = exp(p0[i])*p1[i]        →  r0[i] = f16(exp(f32(p0[i]))*f32(p1[i]))
    r0[i] += p0[i,k]*p1[k]          →  t0[i] += f32(p0[i,k])*f32(p1[k]);  r0[i] = f16(t0[i])

Kernels of ops are written in this form when they are made. The conversions are explicit from then on: where fusion puts
one op's value into another, the rounding between them stays, and fused and unfused kernels give the same bits. What
only moves or chooses elements is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.base.types import DTYPES, DType, Type
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS

_CHOOSING = ("min", "max")
"""Functions that give one of their arguments."""
_NAMES = frozenset(name for name, d in DTYPES.items() if d.is_float and d.narrow)
_SUMS = ("add", "mul")
"""Reductions that round."""


def rounded_once(kernel: Kernel) -> Kernel:
    """The kernel with conversions to and from the types that values are computed in; itself if all are wide."""
    if not any(_narrow(p.dtype) for p in kernel.tensors.values()):
        return kernel
    sums = {n.out for n in kernel.nests if n.reduce in _SUMS and _narrow(kernel.tensors[n.out].dtype)}
    known = {name: kernel.tensors[name] for name in sorted(sums)}
    wide = {name: Param(f"wide.{name}", Type(p.dtype.compute, p.shape)) for name, p in known.items()}
    rewriter = Rewriter(kernel.dtypes, {name: p.name for name, p in wide.items()})
    nests: list[Nest] = []
    last = {n.out: k for k, n in enumerate(kernel.nests)}
    for k, n in enumerate(kernel.nests):
        where = None if n.where is None else rewriter.wide(n.where)
        if n.out in wide:
            nests.append(replace(n, out=wide[n.out].name, body=rewriter.wide(n.body), where=where))
        else:
            nests.append(replace(n, body=rewriter.stored(n.body, kernel.tensors[n.out].dtype), where=where))
        if n.out in wide and last[n.out] == k and kernel.tensors[n.out] in kernel.results:
            nests.append(_rounding(kernel.tensors[n.out], wide[n.out]))
    kept = tuple(p for p in kernel.locals if p.name not in wide)
    return Kernel.canonical(kernel.params, kernel.results, tuple(nests), (*kept, *wide.values()))


def rounded_body(e: Expr, dtypes: Mapping[str, DType], dtype: DType) -> Expr:
    """An expression over tensors of these types, as what is stored into one of type `dtype`."""
    return Rewriter(dtypes, {}).stored(e, dtype) if any(map(_narrow, (*dtypes.values(), dtype))) else e


def unrounded(kernel: Kernel) -> Kernel:
    """The kernel with every narrow float in its compute type, and without the rounding of values to narrow floats.

    What derivatives are taken of: their sums and factors are those of numbers, not of rounded ones. `rounded_as` gives
    the derivative the types of the kernel again. Kernels that read bits of narrow floats stay as they are.
    """
    if not any(_narrow(p.dtype) for p in kernel.tensors.values()):
        return kernel
    narrow = {name for name, d in kernel.dtypes.items() if _narrow(d)}
    bits = (e for n in kernel.nests for x in n.exprs() for e in walk(x) if isinstance(e, Apply))
    if any(SCALARS[e.fn].rule == "bits" and (e.fn[5:] in _NAMES or _reads(e, narrow)) for e in bits):
        return kernel
    nests = tuple(n.map(lambda e: _plain(e, kernel)) for n in kernel.nests)
    params, results, locals_ = (tuple(map(_wide, ps)) for ps in (kernel.params, kernel.results, kernel.locals))
    return Kernel(params, results, locals_, nests)


def with_wide_locals(kernel: Kernel) -> Kernel:
    """The kernel with locals of narrow floats in their compute type: what is between its statements is not rounded.

    Follow it by `rounded_once`, which converts what is loaded from tensors that stay narrow.
    """
    return replace(kernel, locals=tuple(map(_wide, kernel.locals)))


def rounded_as(kernel: Kernel, params: Mapping[str, DType], results: Mapping[str, DType]) -> Kernel:
    """The kernel with some of its parameters and results, by name, in narrow floats: converted where they are read,
    rounded once where they are complete. Locals keep their types."""
    own = {**params, **results}

    def typed(p: Param) -> Param:
        return replace(p, type=replace(p.type, dtype=own[p.name])) if p.name in own else p

    borders = Kernel(tuple(map(typed, kernel.params)), tuple(map(typed, kernel.results)), kernel.locals, kernel.nests)
    return rounded_once(borders)


def _wide(p: Param) -> Param:
    return replace(p, type=replace(p.type, dtype=p.dtype.compute)) if _narrow(p.dtype) else p


def _plain(e: Expr, kernel: Kernel) -> Expr:
    """An expression whose narrow floats have become wide; what converted between the two is gone."""
    match e:
        case Apply(fn, (x,)) if (to := SCALARS[fn].to) is not None and to.is_float:
            of = kernel.dtype_of(x)
            same = of is not None and of.is_float and of.compute is to.compute
            return _plain(x, kernel) if same else apply(to.compute.name, _plain(x, kernel))
        case Apply(fn, args):
            return apply(fn, *(_plain(a, kernel) for a in args))
        case Load(param, index):
            return Load(param, tuple(_plain(i, kernel) for i in index))
        case _:
            return e


def _reads(e: Apply, names: set[str]) -> bool:
    return any(isinstance(x, Load) and x.param in names for x in walk(e))


def _rounding(result: Param, sum: Param) -> Nest:
    axes = tuple(Axis(f"i{k}", extent) for k, extent in enumerate(result.shape))
    return Nest(result.name, axes, axes, Apply(result.dtype.name, (Load(sum.name, axes),)), None, None)


def _narrow(dtype: DType | None) -> bool:
    return dtype is not None and dtype.narrow and dtype.is_float


class Rewriter:
    """Rewrites expressions over tensors of these types; loads of some tensors become loads of their wide ones."""

    def __init__(self, dtypes: Mapping[str, DType], moved: Mapping[str, str]) -> None:
        self._dtypes, self._moved = dtypes, moved
        self._known: dict[Expr, Expr] = {}

    def wide(self, e: Expr) -> Expr:
        """The expression with every float of a narrow type in its compute type."""
        if e not in self._known:
            self._known[e] = self._wide(e)
        return self._known[e]

    def _wide(self, e: Expr) -> Expr:
        match e:
            case Load(param, index) if param in self._moved:
                return Load(self._moved[param], index)
            case Load(param, _) if _narrow(self._dtypes[param]):
                return Apply(self._dtypes[param].compute.name, (e,))
            case Apply(fn, args):
                to = SCALARS[fn].to
                if SCALARS[fn].rule == "bool" and all(isinstance(a, Load | Const | Axis) for a in args):
                    return self._compared(e)
                new = Apply(fn, tuple(map(self.wide, args)))
                if to is None:
                    return new
                (x,) = new.args
                if _narrow(to):
                    return Apply(to.compute.name, (new,))
                return x if isinstance(x, Apply) and SCALARS[x.fn].to is to else new
            case _:
                return e

    def _compared(self, e: Apply) -> Expr:
        """A comparison of elements as they are stored, which needs no conversion."""
        moved = any(isinstance(a, Load) and a.param in self._moved for a in e.args)
        return Apply(e.fn, tuple(map(self.wide, e.args))) if moved else e

    def stored(self, e: Expr, dtype: DType) -> Expr:
        """The expression as what is stored into a tensor of this type: rounded if it is computed at all."""
        if not _narrow(dtype):
            return self.wide(e)
        match e:
            case Load(param, _) if param not in self._moved and self._dtypes[param] == dtype:
                return e
            case Const():
                return e
            case Apply("select", (condition, then, otherwise)):
                return Apply("select", (self.wide(condition), self.stored(then, dtype), self.stored(otherwise, dtype)))
            case Apply(fn, args) if fn in _CHOOSING:
                return Apply(fn, tuple(self.stored(a, dtype) for a in args))
            case Apply(fn, (x,)) if SCALARS[fn].to is dtype:
                return Apply(fn, (self.wide(x),))
            case _:
                return Apply(dtype.name, (self.wide(e),))
