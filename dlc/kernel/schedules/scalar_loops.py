"""The schedule that every kernel has: scalar loops in an order that makes stores contiguous.

    reductions:  for out axes: a = start; for reduced axes: a = a r body; out = a
    the rest:    for axes: out = body

Reductions add up in the order of their axes, long ones part by part. Groups share their outer loops (see groups.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, substitute, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Block, For, Let, Local, Set, Stmt, Store, loop, wrap
from dlc.kernel.nest import Nest, Param, zero
from dlc.kernel.schedules.clip import guarded
from dlc.kernel.schedules.extents import reach_in
from dlc.kernel.schedules.flat import coefficient, flat_simplify
from dlc.kernel.schedules.fold import CHUNK, PARTIAL, folded, folded_together
from dlc.kernel.schedules.inside import Box, all_terms, split
from dlc.kernel.schedules.interleaved import interleaved
from dlc.kernel.schedules.levels import levels
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.runs import alike, runs_of
from dlc.kernel.schedules.scope import Scope, merge_run, order
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.written_out import written_out
from dlc.kernel.take_apart import assignment_apart


@dataclass(frozen=True)
class Numbers:
    """What loops over elements have to decide.

    Attributes:
        innermost: Which of the outer loops is the innermost of them, from 1 for the outermost; 0: the last.
        sums: Partial results of a sum along contiguous elements, at most.
        chunk: Elements that are evaluated at a time where a sum has no vector form.
    """

    innermost: int = 0
    sums: int = PARTIAL
    chunk: int = CHUNK

    def order(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        """Outer loops with the innermost of them last. Raises Unfit where there is no such loop."""
        if not self.innermost:
            return axes
        if self.innermost > len(axes):
            raise Unfit(f"there are {len(axes)} outer loops, and no loop {self.innermost}")
        return (*axes[: self.innermost - 1], *axes[self.innermost :], axes[self.innermost - 1])


AS_EVER = Numbers()
"""Contiguous stores, and as many partial results as run at the same time."""


def outer_loops(scope: Scope) -> tuple[Axis, ...]:
    """The loops around everything else of a group, outermost first: stores are contiguous along the last."""
    if not _is_assignment(scope):
        return scope.shared
    (nest,) = scope.nests
    return order(nest.axes, nest) if set(scope.shared) == set(nest.axes) else nest.axes


def _is_assignment(scope: Scope) -> bool:
    return len(scope.nests) == 1 and scope.nests[0].reduce is None and not scope.scalars


def scalar_group(
    scope: Scope, kernel: Kernel, machine: Machine, written: frozenset[str], numbers: Numbers = AS_EVER
) -> tuple[Stmt, ...]:
    """A group as loops. `written`: tensors that earlier groups wrote or that were filled.

    Raises:
        Unfit: the numbers mean nothing here.
    """
    outermost = numbers.order(outer_loops(scope))
    if _is_assignment(scope):
        (nest,) = scope.nests
        axes, stores = interleaved(nest, outermost)
        as_ever = len(stores) == 1 and outermost == outer_loops(scope)
        apart = assignment_apart(nest) if as_ever else nest
        if apart is not nest:
            nest, axes = apart, order(apart.axes, apart)
            stores = (Store(nest.out, nest.index[0], nest.body),)
        return guarded(axes, nest.where, stores)
    together = _common_guard(scope)
    if together is not None:
        scope = replace(scope, nests=tuple(replace(n, where=None) for n in scope.nests))
    body: list[Stmt] = []
    known = set(written)
    for name in scope.narrow:
        if name not in scope.scalars and needs_fill(kernel, name):
            body += starting(scope.tensors[name], kernel)
            known.add(name)
    for run in runs_of(scope, machine, known):
        k, nest = run[0], scope.nests[run[0]]
        shared = _in_one_loop(scope, run, kernel, machine, numbers) if len(run) > 1 else None
        if shared is not None:
            body += shared
            known |= {scope.nests[k].out for k in run}
            continue
        for k in run:
            body += _started(scope, k, kernel, machine, known, numbers)
            known.add(scope.nests[k].out)
    contiguous = together is None and outermost == tuple(scope.shared)
    short = _short(scope, kernel, machine, written, tuple(body)) if contiguous else None
    if short is not None:
        return wrap(outermost[:-1], short)
    box = _inside(scope, machine, written) if together is None else None
    if box is not None:
        (nest,) = scope.nests

        def element(where: Expr | None) -> tuple[Stmt, ...]:
            part = replace(scope, nests=(replace(nest, where=where),))
            return _nest(part, 0, kernel, machine, set(written), numbers)

        return split(outermost, box, nest.where, element)
    # Braces, because variables of different groups may share names.
    return guarded(outermost, together, tuple(body)) if outermost else (Block(tuple(body)),)


def _started(
    scope: Scope, k: int, kernel: Kernel, machine: Machine, known: set[str], numbers: Numbers
) -> tuple[Stmt, ...]:
    """A nest as loops, with the start of the variable that it is in."""
    nest = scope.nests[k]
    scalar = scope.scalars.get(nest.out)
    if scalar is None or nest.out in known:
        return _nest(scope, k, kernel, machine, known, numbers)
    if nest.reduce is None and nest.where is None and set(scope.shared).issuperset(nest.axes):
        return (Let(scalar, nest.body),)
    return (Let(scalar, Const(kernel.start_of(nest.out))), *_nest(scope, k, kernel, machine, known, numbers))


def _in_one_loop(
    scope: Scope, run: Sequence[int], kernel: Kernel, machine: Machine, numbers: Numbers
) -> tuple[Stmt, ...] | None:
    """Nests of `runs_of` as one loop; None where sums have no vectors."""
    nests = alike([scope.nests[k] for k in run], scope.shared)
    axes = tuple(a for a in nests[0].axes if a not in scope.shared)
    if nests[0].out not in scope.scalars:
        return wrap(axes, _elements(scope, nests, run, kernel))
    sums = [scope.scalars[n.out] for n in nests]
    total = folded_together(nests, axes, sums, machine, kernel.dtypes, numbers.sums * len(run))
    start = (Let(s, Const(kernel.start_of(n.out))) for s, n in zip(sums, nests, strict=True))
    return None if total is None else (*start, *total)


def _elements(scope: Scope, nests: Sequence[Nest], run: Sequence[int], kernel: Kernel) -> tuple[Stmt, ...]:
    """What computes an element of each of some nests, and then stores all of them.

    A processor may hold up loads that follow a store to an address that is alike in its last bits.
    """
    others = {x for k, n in enumerate(scope.nests) if k not in run for x in n.reads()}
    found: dict[Expr, Expr] = {}
    values: list[Stmt] = []
    stores: list[Stmt] = []
    for k, n in zip(run, nests, strict=True):
        value = Local(f"e{k}", kernel.dtypes[n.out])
        values.append(Let(value, substitute(_updated(n), found)))
        found[Load(n.out, n.index)] = value
        if n.out not in scope.narrow or n.out in others:
            stores.append(Store(n.out, n.index[0], value))
    return (*values, *stores)


def _updated(nest: Nest) -> Expr:
    """What a nest stores: its value, or what its value makes of the element that is there."""
    return nest.body if nest.reduce is None else apply(nest.reduce, Load(nest.out, nest.index), nest.body)


def _inside(scope: Scope, machine: Machine, written: frozenset[str]) -> Box | None:
    """Where all terms of a lone short sum exist; None where loops are not divided for that."""
    first, *followers = scope.nests
    if followers or not machine.vector_bytes or first.out in written or not scope.plain[0] or scope.narrow:
        return None
    return all_terms(first, scope.shared)


def _common_guard(scope: Scope) -> Expr | None:
    """The guard of assignments that all have the same, if it tells of shared axes only: it bounds the shared loops."""
    guard = scope.nests[0].where
    if guard is None or any(n.where != guard or n.reduce is not None for n in scope.nests):
        return None
    inside = all(isinstance(x, Axis | Const | Apply) for x in walk(guard)) and set(axes_in(guard)) <= set(scope.shared)
    return guard if inside and not scope.scalars else None


def _short(
    scope: Scope, kernel: Kernel, machine: Machine, written: frozenset[str], general: tuple[Stmt, ...]
) -> tuple[Stmt, ...] | None:
    """The innermost shared loop of a short reduction, and element-wise followers of it; None for any other group."""
    first, *followers = scope.nests
    shared = set(scope.shared)
    sum = scope.scalars.get(first.out)
    if first.reduce is None or first.out in written or not shared or not scope.plain[0]:
        return None
    if any(n.reduce is not None or n.where is not None or not shared.issuperset(n.axes) for n in followers):
        return None
    column = scope.shared[-1]
    if any(n.out not in scope.scalars and coefficient(n.index[0], column) != 1 for n in scope.nests):
        return None
    reduced = tuple(a for a in first.axes if a not in shared)
    if not shared <= set(first.axes) or set(scope.narrow) - set(scope.scalars):
        return None

    def finish(value: Expr) -> tuple[Stmt, ...]:
        found: list[Stmt] = [Let(sum, value) if sum else Store(first.out, first.index[0], value)]
        for n in followers:
            scalar = scope.scalars.get(n.out)
            found.append(Let(scalar, n.body) if scalar else Store(n.out, n.index[0], n.body))
        return tuple(found)

    return written_out(
        first, reduced, column, Const(kernel.start_of(first.out)), kernel.dtypes[first.out], general, finish, machine
    )


def _nest(
    scope: Scope, k: int, kernel: Kernel, machine: Machine, started: set[str], numbers: Numbers
) -> tuple[Stmt, ...]:
    nest = scope.nests[k]
    inner = tuple(a for a in nest.axes if a not in scope.shared)
    reduced = tuple(a for a in inner if a in nest.reduction_axes)
    outer = order(tuple(a for a in inner if a not in reduced), nest)
    scalar = scope.scalars.get(nest.out)
    if nest.reduce is None:
        (nest,), outer = merge_run((nest,), (*reduced, *outer))
        write = Set(scalar, nest.body) if scalar else Store(nest.out, nest.index[0], nest.body)
        return guarded(outer, nest.where, (write,))
    if scalar is None and not scope.plain[k]:
        old = Load(nest.out, nest.index)
        update = Store(nest.out, nest.index[0], apply(nest.reduce, old, nest.body))
        return guarded(inner if machine.ordered else (*outer, *reduced), nest.where, (update,))
    sum = scalar or Local(f"a{k}", scope.tensors[nest.out].dtype)
    start: Expr = Load(nest.out, nest.index) if nest.out in started else Const(kernel.start_of(nest.out))
    before: tuple[Stmt, ...] = () if scalar else (Let(sum, start),)
    after: tuple[Stmt, ...] = () if scalar else (Store(nest.out, nest.index[0], sum),)
    fast = folded(nest, reduced, sum, machine, kernel.dtypes, numbers.sums, numbers.chunk)
    total = fast if fast is not None else reduction(nest, reduced, sum, machine)
    body = (*before, *total, *after)
    out, index = nest.out, nest.index[0]
    if scalar is not None or not outer or coefficient(index, outer[-1]) != 1:
        return wrap(outer, body)

    def finish(value: Expr) -> tuple[Stmt, ...]:
        return (Store(out, index, value),)

    short = written_out(nest, reduced, outer[-1], start, sum.dtype, body, finish, machine)
    return wrap(outer, body) if short is None else wrap(outer[:-1], short)


def reduction(nest: Nest, reduced: tuple[Axis, ...], sum: Local, machine: Machine) -> tuple[Stmt, ...]:
    """sum = sum r body over the reduced axes, one after another; long sums of floats in two levels."""
    assert nest.reduce is not None
    (nest,), reduced = merge_run((nest,), reduced)
    long = nest.reduce == "add" and nest.where is None and sum.dtype.is_float and not machine.ordered
    cut = levels(reduced) if long else None
    if cut is None:
        return guarded(reduced, nest.where, (Set(sum, apply(nest.reduce or "add", sum, nest.body)),))
    part = replace(sum, name=f"{sum.name}_part")
    out: list[Stmt] = []
    for piece in cut.pieces:
        term = flat_simplify(substitute(nest.body, {cut.axis: piece.value}))
        inner = wrap(piece.inner, (Set(part, part + term),))
        out += wrap(piece.blocks, (Block((Let(part, zero(part.dtype)), *inner, Set(sum, sum + part))),))
    return wrap(cut.outer, tuple(out))


def fill(name: str, size: int, value: bool | int | float, end: Expr | None = None) -> tuple[For, ...]:
    """Every element set to one value, or those before an end that is known when the program runs."""
    axis = Axis("z", size, end)
    return (loop(axis, Store(name, axis, Const(value))),)


def starting(p: Param, kernel: Kernel) -> tuple[For, ...]:
    """All elements of a tensor that a call has, set to what its writers begin with."""
    return fill(p.name, p.type.capacity, kernel.start_of(p.name), reach_in(p.type, kernel))
