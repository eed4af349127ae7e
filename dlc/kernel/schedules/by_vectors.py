"""Loops over contiguous elements as loops over vectors, and over the few elements that are left.

    for j<1000: r[j] = exp(t[j] - m)   →   for j<992 step 16: r[j .. +16] = exp(t[j .. +16] - m);
                                           for j = 984 .. 1000 step 16: r[j .. +16] = exp(t[j .. +16] - m)

Compilers find vectors in most loops by themselves. They do not in the order of NaN that maxima ask for, and where every
second element is read they find slow ones; functions such as exp take less as vectors than as what compilers make of a
scalar function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Block, For, If, Let, Local, Stmt, Store, exprs_of, reads
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.choice import Place
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.pairs import paired
from dlc.kernel.simplify import simplify

LEAST = 16
"""Bytes of a vector."""


@dataclass(frozen=True)
class Wide:
    """What makes vectors of loops.

    Attributes:
        dtypes: Of tensors and buffers.
        apart: Whether every second element may be read as a vector.
        past: What is stored past the caches.
        again: Whether the last vector may compute again what the one before it has of it.
        over: Results for which it never may.
    """

    dtypes: Mapping[str, DType]
    machine: Machine
    apart: bool
    past: frozenset[str] = frozenset()
    again: bool = False
    over: frozenset[str] = frozenset()

    def loop(self, loop: For) -> tuple[Stmt, ...]:
        """A loop of contiguous stores as one over vectors and one over the rest; () where it has no such form."""
        stores = [s for s in loop.body if isinstance(s, Store)]
        if not stores or loop.step != 1 or self.machine.vector_bytes < LEAST:
            return ()
        types = {self.dtypes[s.out] for s in stores}
        dtype = types.pop()
        match simplify(loop.stop - loop.start):
            case Const(int() as count) if not types and dtype in (f32, f64):
                lanes = self._lanes(count, dtype)
            case _:
                return ()
        body = self._body(loop, lanes, dtype) if lanes else ()
        if not body:
            return ()
        end = simplify(loop.start + count // lanes * lanes)
        main = replace(loop, stop=end, body=body, step=lanes)
        if end == loop.stop:
            return (main,)
        if self.again and not {s.out for s in stores} & (reads(body) | self.over):
            return (main, replace(main, start=simplify(loop.stop - lanes), stop=loop.stop))
        return (main, replace(loop, start=end))

    def _lanes(self, count: int, dtype: DType) -> int:
        """Elements of the widest vectors that there are so many elements for; 0: there are none."""
        lanes = self.machine.lanes(dtype.itemsize)
        while lanes > count:
            lanes //= 2
        return lanes if lanes * dtype.itemsize >= LEAST else 0

    def _body(self, loop: For, lanes: int, dtype: DType) -> tuple[Stmt, ...]:
        lane = Axis("lane", lanes)
        mapping: dict[Expr, Expr] = {loop.axis: loop.axis + lane}
        found: list[Stmt] = []
        for s in loop.body:
            match s:
                case Store(out, at, value, 1) if coefficient(at, loop.axis) == 1:
                    wide = vectorise(value, mapping, lane, self.dtypes, dtype, apart=self.apart)
                    if wide is None:
                        return ()
                    wide = paired(wide, dtype, found)
                    found.append(Store(out, at, wide, lanes, out in self.past))
                case Let(Local(name, of, 1) as local, value) if of == dtype:
                    wide = vectorise(value, mapping, lane, self.dtypes, dtype, apart=self.apart)
                    if wide is None or not has_lanes(wide):
                        return ()
                    mapping[local] = Local(f"{name}_wide", of, lanes)
                    wide = paired(wide, dtype, found)
                    found.append(Let(Local(f"{name}_wide", of, lanes), wide))
                case _:
                    return ()
        return tuple(found)


def by_vectors(body: tuple[Stmt, ...], place: Place) -> tuple[Stmt, ...]:
    """Statements of a group with vectors in the loops that are faster for them."""
    kernel, machine = place.kernel, place.machine
    if machine.ordered:
        return body
    apart = all(p.stored is None and not p.packed for p in kernel.params)
    again = not kernel.overwritable
    return _changed(body, Wide(kernel.dtypes, machine, apart, again=again, over=place.over), kernel)


def _changed(body: tuple[Stmt, ...], wide: Wide, kernel: Kernel) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for s in body:
        match s:
            case For(_, _, _, inner):
                known = all(x.out in kernel.tensors for x in inner if isinstance(x, Store))
                vectors = wide.loop(s) if known and _gains(s, wide) else ()
                found += vectors or (replace(s, body=_changed(inner, wide, kernel)),)
            case Block(inner):
                found.append(Block(_changed(inner, wide, kernel)))
            case If(condition, then, otherwise):
                found.append(If(condition, _changed(then, wide, kernel), _changed(otherwise, wide, kernel)))
            case _:
                found.append(s)
    return tuple(found)


def _gains(loop: For, wide: Wide) -> bool:
    """Whether a loop is long enough, and has functions or loads of which compilers make no fast vectors."""
    inside = [x for s in loop.body for e in exprs_of(s) for x in walk(e)]
    hard = any(isinstance(x, Apply) and _is_function(x.fn) for x in inside)
    apart = any(isinstance(x, Load) and coefficient(x.index[0], loop.axis) == 2 for x in inside)
    return loop.axis.extent >= (wide.machine.lanes(4) if not apart else LEAST // 4) and (hard or apart)


def _is_function(fn: str) -> bool:
    """Whether vectors have a function of their own for it, not an operator."""
    return bool(SCALARS[fn].lanes) and not SCALARS[fn].infix and fn not in ("neg", "abs")
