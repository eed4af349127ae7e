"""Dimensions that a reduction writes in blocks become two, so that groups are an axis like any other.

    for g k: t[g·M + k] += f(g, k)            for g k: t[g, k] += f(g, k)
    for c:   r[c] = h(t[c], b[c])        →    for g k: r[g, k] = h(t[g, k], b[g·M + k])

Only subscripts change: t[G·M] and t[G, M] are the same memory.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.kernel.expr import Axis, Expr, Load, map_loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import is_index, linear, simplify
from dlc.kernel.take_apart import groups_apart


def split_blocks(kernel: Kernel) -> Kernel:
    """An equal kernel whose reductions write whole axes where they wrote blocks (see the module's equation)."""
    while (found := _blocked(kernel)) is not None:
        kernel = _split(kernel, *found)
    return kernel


def split_groups(kernel: Kernel) -> Kernel:
    """An equal kernel in which the places of a group are an axis by themselves.

    for i<32: t[i, j] += x[i, k]·y[i // 4, k, j]    →    for g<8, m<4: t[g, m, j] += x[4g + m, k]·y[g, k, j]

    The kernel itself where a dimension of such a result cannot become two.
    """
    apart = tuple(map(groups_apart, kernel.nests))
    changed = [k for k, (n, was) in enumerate(zip(apart, kernel.nests, strict=True)) if n is not was]
    found = split_blocks(replace(kernel, nests=apart)) if changed else kernel
    plain = all(plain_write(found.nests[k], found.tensors[found.nests[k].out].shape) for k in changed)
    return found if plain else kernel


def _blocked(kernel: Kernel) -> tuple[str, int, int] | None:
    """A tensor that is no parameter, its dimension that some nest writes in blocks, and the size of a block."""
    reduced = {n.out for n in kernel.nests if n.reduce is not None}
    split = {n.out for n in kernel.nests if n.out in reduced or n.reads() & reduced}
    for nest in kernel.nests:
        for d, e in enumerate(nest.index):
            size = _block(e, kernel.tensors[nest.out].shape[d])
            if nest.out in split and size and _splittable(kernel, nest.out, d):
                return nest.out, d, size
    return None


def _block(e: Expr, extent: int) -> int:
    """M for a subscript g·M + k that covers a dimension, else 0."""
    form = linear(e) if not isinstance(e, Axis) and is_index(e) else None
    if form is None or form.constant or len(form.terms) != 2:
        return 0
    (g, m), (k, one) = sorted(form.terms, key=lambda t: -t[1])
    whole = isinstance(g, Axis) and isinstance(k, Axis) and one == 1 and k.extent == m and g.extent * m == extent
    return m if whole else 0


def _splittable(kernel: Kernel, name: str, d: int) -> bool:
    """Whether every nest walks the dimension by one whole axis or in blocks; what callers pass stays flat."""
    if kernel.tensors[name].type.dense:
        return False
    extent = kernel.tensors[name].shape[d]
    sizes = {_size_of(i[d], extent) for n in kernel.nests for i in _accesses(n, name)}
    return 0 not in sizes and len(sizes - {-1}) == 1


def _size_of(e: Expr, extent: int) -> int:
    """Block size; -1 for a whole axis, which can be cut into any blocks; 0 for anything else."""
    return -1 if isinstance(e, Axis) and e.extent == extent else _block(e, extent)


def _accesses(nest: Nest, name: str) -> list[tuple[Expr, ...]]:
    found: list[tuple[Expr, ...]] = [nest.index] if nest.out == name else []

    def note(load: Load) -> Expr:
        if load.param == name:
            found.append(load.index)
        return load

    for e in nest.exprs():
        map_loads(e, note)
    return found


def _split(kernel: Kernel, name: str, d: int, size: int) -> Kernel:
    """The kernel with the dimension split in its tensor, and the axes that walk it split too."""

    def parts(index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*index[:d], simplify(index[d] // size), simplify(index[d] % size), *index[d + 1 :])

    def change(load: Load) -> Expr:
        return Load(name, parts(load.index)) if load.param == name else load

    def nest_of(n: Nest) -> Nest:
        for axis in dict.fromkeys(i[d] for i in _accesses(n, name) if isinstance(i[d], Axis)):
            assert isinstance(axis, Axis)
            g, k = Axis(f"{axis.name}g", axis.extent // size), Axis(f"{axis.name}k", size)
            axes = tuple(x for a in n.axes for x in ((g, k) if a == axis else (a,)))
            n = n.substitute({axis: g * size + k}, axes)
        index = parts(n.index) if n.out == name else n.index
        return replace(n, index=index).map_loads(change)

    def tensor(p: Param) -> Param:
        if p.name != name:
            return p
        dims = p.type.shape
        return replace(p, type=p.type.with_shape((*dims[:d], p.shape[d] // size, size, *dims[d + 1 :])))

    return replace(
        kernel,
        results=tuple(map(tensor, kernel.results)),
        locals=tuple(map(tensor, kernel.locals)),
        nests=tuple(nest_of(n) for n in kernel.nests),
    )
