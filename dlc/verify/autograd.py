"""Gradients by PyTorch: the definitions of ops, run on its tensors, and its autograd through them.

Every op is opened down to the loops that define it, rules for gradients that ops name themselves left aside. The loops
are run point by point, all points at once, so this is for small models. What no gradient goes through is numpy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from dlc.base.diagnostics import error
from dlc.base.types import Array, DType, bool_, f64, i64
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Item
from dlc.graph.walk import toposort
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS

Value = Any
"""A tensor of PyTorch; a tuple of them for an op with several results."""
MOST: Final = 1 << 25
"""Points of all loops together that are still taken: each is a number of PyTorch's graph, and there are several."""
_SPELLED: Final[Mapping[str, str]] = {
    "mod": "remainder",
    "min": "minimum",
    "max": "maximum",
    "neg": "neg",
    "bitand": "bitwise_and",
    "bitor": "bitwise_or",
    "bitxor": "bitwise_xor",
    "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
    "not": "logical_not",
    "select": "where",
    "floordiv": "floor_divide",
}
"""Scalar functions that PyTorch names otherwise."""
_REDUCED: Final = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def torch_gradients(value: Op, wrt: Sequence[Op], feeds: Mapping[Op, Array]) -> list[Array]:
    """The gradients of a scalar with respect to inputs, all of them f64.

    Raises:
        DlcError: (`no-reference`) the loops have too many points, or compute what PyTorch has no function for.
    """
    value = _opened(value)
    order, path = toposort((value,)), {w.digest for w in wrt}
    for op in order:
        if any(t.dtype.is_float for t in op.types) and any(x.digest in path for x in op.operands):
            path.add(op.digest)
    points = sum(n.points for op in order if op.digest in path and op not in feeds for n in _nests(op))
    if points > MOST:
        raise error("no-reference", f"the loops have {points} points, all of which PyTorch would store")
    leaves = {w.digest: torch.tensor(feeds[w], dtype=torch.float64, requires_grad=True) for w in wrt}
    known: dict[str, Value] = {op.digest: array for op, array in feeds.items()} | leaves
    for op in order:
        if op.digest not in known:
            args = [known[x.digest] for x in op.operands]
            known[op.digest] = _applied(op, args) if op.digest in path else _plain(op, args)
    if not isinstance(known[value.digest], torch.Tensor) or not known[value.digest].requires_grad:
        return [np.zeros(w.shape) for w in wrt]
    found: Any = torch.autograd.grad(known[value.digest], list(leaves.values()), allow_unused=True)
    return [np.zeros(w.shape) if g is None else g.numpy() for w, g in zip(wrt, found, strict=True)]


def _opened(value: Op) -> Op:
    """The value without composites."""
    graph = Graph((), (value,), ("value",))
    while (opened := graph.rewrite(lambda op: op.expansion)).digest != graph.digest:
        graph = opened
    return graph.outputs[0]


def _nests(op: Op) -> tuple[Nest, ...]:
    return () if isinstance(op, Item) else _kernel(op).nests


def _kernel(op: Op) -> Kernel:
    try:
        return op.kernel
    except TypeError:
        raise error("no-reference", f"{op.text_name} is not defined by loops") from None


def _plain(op: Op, args: Sequence[Value]) -> Value:
    """What an op gives that no gradient goes through."""
    with np.errstate(all="ignore"):
        found = op.evaluate(*(a.detach().numpy() if isinstance(a, torch.Tensor) else a for a in args))
    if len(op.types) > 1:
        return tuple(np.asarray(f, t.dtype.numpy).reshape(t.shape) for f, t in zip(found, op.types, strict=True))
    return np.asarray(found, op.dtype.numpy).reshape(op.shape)


def _applied(op: Op, args: Sequence[Value]) -> Value:
    if isinstance(op, Item):
        (several,) = args
        return several[op.index]
    kernel = _kernel(op)
    env = {p.name: _tensor(a) for p, a in zip(kernel.params, args, strict=True)}
    for t in (*kernel.results, *kernel.locals):
        env[t.name] = torch.full(t.shape, kernel.start_of(t.name), dtype=_dtype(t.dtype))
    for nest in kernel.nests:
        if nest.points:
            env[nest.out] = _Loops(kernel, nest, env).result()
    first, *others = (env[r.name] for r in kernel.results)
    return (first, *others) if others else first


def _dtype(dtype: DType) -> torch.dtype:
    """Integers of all kinds are i64: they only tell places here."""
    return torch.float64 if dtype.is_float else torch.bool if dtype is bool_ else torch.int64


def _tensor(value: Value) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    kind = "f8" if value.dtype.kind == "f" else "?" if value.dtype.kind == "b" else "i8"
    return torch.tensor(np.array(value, kind))


class _Loops:
    """One nest on all of its points at once."""

    def __init__(self, kernel: Kernel, nest: Nest, env: Mapping[str, torch.Tensor]) -> None:
        self.kernel, self.nest, self.env = kernel, nest, env
        rank = len(nest.axes)
        shapes = ([-1 if k == n else 1 for k in range(rank)] for n in range(rank))
        self.grid = {a: torch.arange(a.extent).reshape(s) for a, s in zip(nest.axes, shapes, strict=True)}
        self.shape = tuple(a.extent for a in nest.axes)

    def result(self) -> torch.Tensor:
        """What is written, with what it is written into."""
        nest, out = self.nest, self.env[self.nest.out]
        value = self.value(nest.body, self.kernel.tensors[nest.out].dtype).expand(self.shape)
        keep = None if nest.where is None else self.value(nest.where, bool_).expand(self.shape)
        if (whole := self._whole(value, keep, out)) is not None:
            return whole
        places = torch.zeros(self.shape, dtype=torch.int64)
        for i, size in zip(nest.index, out.shape, strict=True):
            places = places * size + self.value(i, i64)
        places, value = (x if keep is None else x[keep] for x in (places.expand(self.shape), value))
        flat, at, new = out.reshape(-1), places.reshape(-1), value.reshape(-1)
        if nest.reduce is None:
            return flat.index_put((at,), new).reshape(out.shape)
        how: Any = _REDUCED[nest.reduce]
        return flat.scatter_reduce(0, at, new, how, include_self=True).reshape(out.shape)

    def _whole(self, value: torch.Tensor, keep: torch.Tensor | None, out: torch.Tensor) -> torch.Tensor | None:
        """Where every element of the result is a loop of its own, one reduction; None elsewhere."""
        nest = self.nest
        kept = [a for a in nest.index if isinstance(a, Axis)]
        if len(kept) < len(nest.index) or len(set(kept)) < len(kept) or [a.extent for a in kept] != list(out.shape):
            return None
        if nest.reduce not in (None, "add") or any(n.out == nest.out for n in self.kernel.nests if n is not nest):
            return None
        if keep is not None:
            value = torch.where(keep, value, torch.zeros((), dtype=value.dtype))
        reduced = [k for k, a in enumerate(nest.axes) if a not in kept]
        value = value.sum(reduced) if reduced else value
        left = [a for a in nest.axes if a in kept]
        return value.permute([left.index(a) for a in kept])

    def value(self, e: Expr, like: DType | None) -> torch.Tensor:
        """The value at all points; a literal takes the type `like`."""
        match e:
            case Const(v):
                default = bool_ if isinstance(v, bool) else i64 if isinstance(v, int) else f64
                return torch.tensor(v, dtype=_dtype(like or default))
            case Axis():
                return self.grid[e]
            case Load(param, index):
                tensor = self.env[param]
                if not tensor.numel():
                    return torch.zeros((), dtype=tensor.dtype)
                sizes = zip(index, tensor.shape, strict=True)
                where = tuple(self.value(i, i64).clamp(0, size - 1) for i, size in sizes)
                return tensor[where] if where else tensor
            case Apply(fn, args):
                return self._function(fn, args, like)
            case _:
                raise AssertionError(e)

    def _function(self, fn: str, args: tuple[Expr, ...], like: DType | None) -> torch.Tensor:
        scalar = SCALARS[fn]
        if scalar.rule == "bits":
            raise error("no-reference", f"PyTorch's tensors of f64 have no {fn}")
        if scalar.to is not None:
            return self.value(args[0], None).to(_dtype(scalar.to))
        rest = args[1:] if scalar.rule == "select" else args
        common = next((d for a in rest if (d := self.kernel.dtype_of(a)) is not None), None)
        inner = common or (None if scalar.rule == "bool" else like)
        values = [self.value(a, inner) for a in rest]
        if scalar.rule == "select":
            values = [self.value(args[0], bool_), *values]
        if fn == "truncdiv":
            return torch.div(*values, rounding_mode="trunc")
        function: Callable[..., torch.Tensor] | None = getattr(torch, _SPELLED.get(fn, fn), None)
        if function is None:
            raise error("no-reference", f"PyTorch has no function {fn}")
        return function(*values)
