"""A kernel becomes loops: groups of nests in order, each by the fastest schedule whose conditions it meets.

Classification is by the roles of axes, never by the name of an op.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.base.types import Type, i64
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Buffer, LoopProgram, Stmt, axes_of
from dlc.kernel.loops.rename import rename
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.columns_innermost import columns_innermost
from dlc.kernel.schedules.contraction import contraction
from dlc.kernel.schedules.converted_factors import converted_factors
from dlc.kernel.schedules.empty import without_empty
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.fold import CHUNK, STAGE, stages
from dlc.kernel.schedules.groups import Group, ordered, partition
from dlc.kernel.schedules.invariant import without_invariant_axes
from dlc.kernel.schedules.machine import STACK_BYTES, Machine
from dlc.kernel.schedules.needed import only_needed
from dlc.kernel.schedules.polyphase import split_phases
from dlc.kernel.schedules.ranking import Ranking, heap_loops, rankings
from dlc.kernel.schedules.scalar_loops import scalar_group, starting
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.split import split_blocks
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.widen import widened
from dlc.kernel.simplify import simplify_nest


def schedule(kernel: Kernel, machine: Machine) -> LoopProgram:
    """The loops of a kernel for a machine; results and reductions as `kernel.evaluate`, up to the order of sums."""
    kernel = widened(without_empty(kernel))
    kernel = only_needed(replace(kernel, nests=tuple(simplify_nest(n) for n in kernel.nests)))
    whole = kernel
    kernel, converted = converted_factors(kernel, machine)
    kernel = split_phases(split_blocks(without_invariant_axes(kernel)), machine)
    kernel, alone = columns_innermost(kernel, machine)
    kernel, sizes = limited(kernel)
    body: list[Stmt] = []
    pieces = _pieces(kernel, alone, converted)
    if machine.strict:
        pieces = [ordered(g, kernel) if isinstance(g, Group) else g for g in pieces]
    scopes = {k: open_scope(g, kernel) for k, g in enumerate(pieces) if isinstance(g, Group)}
    narrow = {name: s.tensors[name].type for s in scopes.values() for name in s.narrow}
    scalars = {name for s in scopes.values() for name in s.scalars}
    buffers = [buffer(p.name, narrow.get(p.name, p.type)) for p in kernel.locals if p.name not in scalars]
    wide = [p for p in (*kernel.results, *kernel.locals) if p.name not in narrow]
    filled = [p for p in wide if needs_fill(kernel, p.name) and not _in_parts(p.name, kernel, whole)]
    for p in filled:
        body += starting(p, kernel)
    written = frozenset(p.name for p in filled)
    for number, g in enumerate(pieces):
        if isinstance(g, Ranking):
            buffers.append(replace(buffer(f"heap{number}", Type(i64, (g.first,))), below=g.place.extent))
            body += heap_loops(g, kernel, f"heap{number}")
            written |= {g.writes}
            continue
        tiled = None if machine.strict else contraction(g, kernel, machine, written)
        if tiled is None:
            loops = scalar_group(scopes[number], kernel, machine, written)
            staged = {STAGE: f"{STAGE}{number}"} if stages(loops) else {}
            body += rename(loops, staged)
            buffers += [buffer(n, Type(kernel.tensors[g.nests[0].out].dtype, (CHUNK,))) for n in staged.values()]
        else:
            names = {p.name: f"{p.name}{number}" for p in tiled.buffers}
            body += rename(tiled.body, names)
            buffers += [buffer(names[p.name], p.type) for p in tiled.buffers]
        written |= {n.out for n in g.nests}
    if sizes:
        used = {a.name for a in axes_of(tuple(body))}
        body = [*(s for s in sizes if s.local.name in used), *body]
    return LoopProgram(whole.params, whole.results, tuple(buffers), tuple(body), machine.vector_bytes > 0)


def _in_parts(name: str, kernel: Kernel, whole: Kernel) -> bool:
    """Whether assignments of a few elements each stand for a nest that writes all of them, as of each remainder.

    A start would not only be stored for nothing: a result may lie where an operand does that is read for it.
    """
    known = name in whole.tensors and not needs_fill(whole, name)
    return known and all(kernel.nests[k].reduce is None for k in kernel.writers.get(name, ()))


def _pieces(kernel: Kernel, alone: frozenset[str], converted: frozenset[str]) -> list[Group | Ranking]:
    """The nests in order: rankings, and groups of those between them."""
    found = rankings(kernel)
    out: list[Group | Ranking] = []
    run: list[Nest] = []
    for k, nest in enumerate(kernel.nests):
        if k in found:
            out += (*partition(replace(kernel, nests=tuple(run)), alone, converted), found[k])
            run = []
        elif all(nest is not r.nest for r in found.values()):  # one that its reader stands for
            run.append(nest)
    return [*out, *partition(replace(kernel, nests=tuple(run)), alone, converted)]


def buffer(name: str, of: Type) -> Buffer:
    """Working memory on the stack when it is small."""
    return Buffer(name, of, of.capacity * of.dtype.itemsize <= STACK_BYTES)
