"""Parts that are put together and then only moved are written to where they end up, with nothing in between.

t[e(i)] = f(i);  out[s(j)] = t[j] where g(j)      →     out[s(e(i))] = f(i) where g(e(i))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc.base.extents import Dim
from dlc.kernel.expr import Axis, Expr, Load, apply, both, loads, substitute
from dlc.kernel.fusion.inline import reads_each_once
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.extents import limited, size_in
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.simplify import simplify_nest


def may_forward(made: Kernel, value: Param, readers: Sequence[Nest]) -> bool:
    """Whether nests that make a value can write it to where its readers move it.

    Args:
        made: The kernel of the nests, whose result is the value.
        value: The value as the readers know it.
        readers: All nests that read it.
    """
    return len(readers) == 1 and moves_all(readers[0], value) and is_whole(made, made.results[0].name)


def moves_all(nest: Nest, value: Param) -> bool:
    """Whether a nest only copies each element of `value` once, but for those that its guard leaves out."""
    load = nest.body
    if not isinstance(load, Load) or load.param != value.name or len(nest.loads[value.name]) > 1:
        return False
    sizes = all(not x.index for name, found in nest.loads.items() if name != value.name for x in found)
    return sizes and nest.reduce is None and not nest.reduction_axes and reads_each_once(nest, load, value.shape)


def is_whole(kernel: Kernel, name: str) -> bool:
    """Whether assignments write all of a tensor, none of the nests reads it, and none of them follows a reduction.

    What follows a reduction keeps the order of its elements, in which register tiles hold them.
    """
    kernel, _ = limited(kernel)  # a subscript may tell a size, which is known here, but no other data
    parts = [n for n in kernel.nests if n.out == name]
    sums = {n.out for n in kernel.nests if n.reduce is not None}
    if any(n.out in sums or n.reads() & sums or any(True for i in n.index for _ in loads(i)) for n in parts):
        return False
    return name not in kernel.readers and not needs_fill(kernel, name)


def forwarded(
    kernel: Kernel, local: Param, nests: Sequence[Nest], written: Sequence[int], read: Sequence[int]
) -> list[Nest] | None:
    """The nests without a local that the last of those that touch it only moves; None where it has to stay.

    Args:
        kernel: What the nests are about.
        local: One of its locals.
        nests: The nests of the kernel as they are now.
        written: Positions of those that write the local.
        read: Positions of those that read it.
    """
    if not written or len(read) != 1 or read[0] < written[-1] or not moves_all(nests[read[0]], local):
        return None
    reader = nests[read[0]]
    parts = [nests[k] for k in written]
    changed = {n.out for n in nests[written[0] : read[0]] if n.out != local.name}
    if any(n.reads() & (changed | {reader.out}) for n in (*parts, reader)):
        return None
    before = replace(kernel, nests=tuple(n for k, n in enumerate(nests) if k != read[0]))
    if kernel.tensors[reader.out].dtype != local.dtype or not is_whole(before, local.name):
        return None
    moved = [m for n in parts if (m := _moved(n, reader, local, kernel)) is not None]
    if len(moved) < len(parts):
        return None
    rest = [n for k, n in enumerate(nests) if k < read[0] and k not in written]
    return [*rest, *moved, *nests[read[0] + 1 :]]


def _moved(part: Nest, reader: Nest, local: Param, kernel: Kernel) -> Nest | None:
    """One part, written to where the reader moves it; None where the kernel does not know a size that it ends at."""
    assert isinstance(reader.body, Load)
    own = {a: a.named(f"m{k}") for k, a in enumerate(part.axes)}
    part = part.substitute(own, tuple(own.values()))
    to: dict[Expr, Expr] = {i: e for i, e in zip(reader.body.index, part.index, strict=True) if isinstance(i, Axis)}
    index = tuple(substitute(i, to) for i in reader.index)
    where = both(part.where, None if reader.where is None else substitute(reader.where, to))
    # Loops end where the dimensions do that they write: those of `out` may not tell where those of the local end.
    out = kernel.tensors[reader.out].type
    kept = () if out.dense else tuple(zip(index, out.shape, strict=True))
    for e, d in zip(part.index, local.type.shape, strict=True):
        if not isinstance(d, Dim) or (e, d) in kept:
            continue
        end = size_in(kernel, d)
        if end is None:
            return None
        where = both(where, apply("lt", e, end))
    return simplify_nest(replace(part, out=reader.out, index=index, where=where))
