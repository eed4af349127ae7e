"""whole-vectors: values with few channels are stored with some more, so that vectors of them are whole.

    y[n,h,w,f] = Σ x[…]·w[…,f], f < 6    →   y'[n,h,w,f] = Σ x[…]·w[…,f], f < 8
    z[n,h,w,f] = g(y[n,h,w,f])           →   z'[n,h,w,f] = g(y'[n,h,w,f])

What a sum or a window writes gets a power of two of channels, at most a third more, and so does what is computed of it
channel by channel. Nobody reads the channels that were added. Factors in panels are long enough already; of short
vectors such as a bias a longer copy is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import Type
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import Apply, Axis, Expr, Load, apply, axes_in, select, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.machine import LEAST_LANES
from dlc.kernel.simplify import bounds
from dlc.ops.pointwise import literal
from dlc.passes.views import is_view
from dlc.spec import option

SHORT = 4
"""Of a vector that is copied to be longer, elements for each channel at most."""


@dataclass(frozen=True)
class WholeVectors(Pass[Graph, Graph]):
    """Store some channels more where vectors would not be whole: y[n,h,w,6]  →  y[n,h,w,8]."""

    name: ClassVar[str] = "whole-vectors"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True
    vector_bytes: int = option(0, "bytes of the machine's vectors; 0: nothing is changed", low=0)
    rows: int = option(256, "how often a value must have its channels", low=1)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs."""
        return _Walk(self, state, report).graph() if self.vector_bytes else state


class _Impossible(Exception):
    """A kernel cannot write more channels."""


@dataclass
class _Walk:
    """One walk from inputs to outputs."""

    options: WholeVectors
    source: Graph
    report: Report
    new: dict[str, Op] = field(default_factory=dict[str, Op])
    constant: dict[str, bool] = field(default_factory=dict[str, bool])
    longer: set[str] = field(default_factory=set[str])
    """Digests of new values that have more channels than before."""

    def graph(self) -> Graph:
        origins = dict(self.source.origins)
        outputs = {o.digest for o in self.source.outputs}
        for op in self.source.ops:
            operands = tuple(self.new[x.digest] for x in op.operands)
            if isinstance(op, Call):
                moved: Op = self._call(op, operands, op.digest in outputs)
            else:
                moved = op.with_operands(operands)
            self.new[op.digest] = moved
            if names := self.source.origin(op):
                origins.setdefault(moved.digest, names)
        made = tuple(self.new[o.digest] for o in self.source.outputs)
        return with_live_origins(replace(self.source, outputs=made, origins=origins))

    def _call(self, op: Call, args: tuple[Op, ...], kept: bool) -> Call:
        params = tuple(Param(p.name, a.type) for p, a in zip(op.body.params, args, strict=True))
        kernel = op.body if params == op.body.params else replace(op.body, params=params)
        if not kept and self._may_grow(op):
            longer = {p.name for p, a in zip(params, args, strict=True) if a.digest in self.longer}
            try:
                call = _grown(kernel, args, longer, self.options)
            except _Impossible:
                pass
            else:
                self.longer.add(call.digest)
                self.report.count("values with more channels")
                return call
        return op if args == op.args else Call(_canonical(kernel), args)

    def _may_grow(self, op: Call) -> bool:
        """Whether only calls read its only result, subscript by subscript."""
        users = self.source.users.get(op, ())
        alone = len(op.types) == 1 and not op.type.is_open and not is_constant(op, self.constant)
        return alone and all(isinstance(u, Call) and not is_view(u) for u in users) and not is_view(op)


def _grown(kernel: Kernel, args: tuple[Op, ...], longer: set[str], options: WholeVectors) -> Call:
    """The call with more channels of its result. Raises _Impossible."""
    result = kernel.results[0]
    channels = result.type.shape[-1] if result.type.rank > 1 else 0
    more = LEAST_LANES
    while more < channels:
        more *= 2
    fits = more * result.dtype.itemsize <= options.vector_bytes and channels < more and 3 * more <= 4 * channels
    if not fits or result.type.capacity < options.rows * channels:
        raise _Impossible
    names, grown = _names(kernel, channels), dict[str, Axis]()
    if not _begins(kernel, names, longer):
        raise _Impossible
    tensors = {p.name: p for p in kernel.tensors.values()}
    for name in names:
        tensors[name] = Param(name, _with_channels(tensors[name].type, -1, more))
    copies: dict[str, int] = {}
    nests: list[Nest] = []
    for nest in kernel.nests:
        if nest.out in names:
            old = nest.index[-1]
            assert isinstance(old, Axis)
            grown[nest.out] = new = Axis(old.name, more)
            for load in (x for xs in nest.loads.values() for x in xs):
                _check(load, old, new, tensors, copies)
            nest = nest.substitute({old: new}, tuple(new if a == old else a for a in nest.axes))
        nests.append(nest)
    made = list(args)
    for k, p in enumerate(kernel.params):
        if p.name in copies:
            if sum(len(n.loads.get(p.name, ())) for n in kernel.nests) != 1:
                raise _Impossible
            made[k] = _copy(args[k], copies[p.name], more)
            tensors[p.name] = Param(p.name, made[k].type)
    params, results, locals_ = (
        tuple(tensors[p.name] for p in ps) for ps in (kernel.params, kernel.results, kernel.locals)
    )
    return Call(Kernel.canonical(params, results, tuple(nests), locals_), tuple(made))


def _names(kernel: Kernel, channels: int) -> set[str]:
    """The result and the locals that it comes from channel by channel. Raises _Impossible."""
    found, waiting = set[str](), [kernel.results[0].name]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for k in kernel.writers.get(name, ()):
            nest = kernel.nests[k]
            last = nest.index[-1] if nest.index else None
            if len(kernel.writers[name]) != 1 or not isinstance(last, Axis) or last.extent != channels:
                raise _Impossible
            loads = [x for xs in nest.loads.values() for x in xs]
            waiting += [x.param for x in loads if x.param in kernel.local_numbers and last in axes_in(*x.index)]
    return found


def _begins(kernel: Kernel, names: set[str], longer: set[str]) -> bool:
    """Whether one of these is a sum or the maximum of a window, or is computed of what has more channels."""
    for nest in (n for n in kernel.nests if n.out in names):
        last = nest.index[-1]
        if nest.reduce is not None or any(x.index[-1] == last for n in longer for x in nest.loads.get(n, ())):
            return True
    return False


def _check(load: Load, old: Axis, new: Axis, tensors: Mapping[str, Param], copies: dict[str, int]) -> None:
    """Raises _Impossible unless a load exists for all channels, or does in a longer copy, which is noted."""
    shape = tensors[load.param].type.shape
    for d, i in enumerate(load.index):
        if old not in axes_in(i):
            continue
        if any(isinstance(x, Load) for x in _parts(i)):
            raise _Impossible
        span, extent = bounds(substitute(i, {old: new})), shape[d]
        assert isinstance(extent, int)
        if i == old and extent == old.extent and tensors[load.param].type.capacity <= SHORT * extent:
            copies[load.param] = d
        elif span is None or span[1] >= extent or i != old:
            raise _Impossible


def _parts(e: Expr) -> list[Expr]:
    return [e, *(y for x in (e.args if isinstance(e, Apply) else ()) for y in _parts(x))]


def _with_channels(of: Type, dim: int, more: int) -> Type:
    shape = list(of.shape)
    shape[dim] = more
    return of.with_shape(tuple(shape))


def _copy(value: Op, dim: int, more: int) -> Call:
    """A vector with zeros behind its elements."""
    of = _with_channels(value.type, dim, more)
    axes = tuple(Axis(f"d{d}", int(n)) for d, n in enumerate(of.shape))
    source, result = Param("x", value.type), Param("r", of)
    exists = apply("lt", axes[dim], value.type.shape[dim])
    nest = Nest("r", axes, axes, select(exists, source[axes], literal(0, of.dtype)))
    return Call(Kernel.canonical((source,), (result,), (nest,)), (value,))


def _canonical(kernel: Kernel) -> Kernel:
    return Kernel.canonical(kernel.params, kernel.results, kernel.nests, kernel.locals)
