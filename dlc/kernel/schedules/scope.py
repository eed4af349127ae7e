"""A group made ready for loops: locals without their shared dimensions, tensors flat, axes in order and merged.

for i: t[i, j] … t[i, j]   →   for i: t[j] … t[j]          when only this group touches t
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.base.types import Type
from dlc.kernel.expr import Axis, Const, Expr, Load, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Local
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.flat import coefficient, flat_nest, merge_axes, merged_axis
from dlc.kernel.schedules.groups import Group, plain_write


@dataclass(frozen=True)
class Scope:
    """A group in flat form.

    Attributes:
        nests: Flat nests; those whose output is in `scalars` store to a variable.
        shared: The common loops, outermost first.
        plain: Per nest: whether output axes and elements correspond one to one.
        tensors: Shapes as this group sees them: locals that live in it have lost their shared dimensions.
        scalars: Locals of the kernel that are one variable here.
        narrow: Locals that live in this group only and have lost dimensions, the scalars among them.
    """

    nests: tuple[Nest, ...]
    shared: tuple[Axis, ...]
    plain: tuple[bool, ...]
    tensors: Mapping[str, Param]
    scalars: Mapping[str, Local]
    narrow: tuple[str, ...]


def open_scope(group: Group, kernel: Kernel, frozen: Sequence[Axis] = ()) -> Scope:
    """The group in flat form (see the module's equation); `frozen` axes stay as they are."""
    nests, narrowed, scalars = _shrink(group, kernel)
    # Not a copy: a kernel may have as many groups as tensors.
    tensors = ChainMap(narrowed, kernel.tensors)
    plain = tuple(plain_write(n, tensors[n.out].shape) for n in nests)
    flat = tuple(_read_scalars(flat_nest(n, tensors), scalars) for n in nests)
    shared = order(group.shared, flat[-1])
    flat, shared = merge_run(flat, shared, frozen)
    narrow = tuple(name for name, p in narrowed.items() if p.shape != kernel.tensors[name].shape)
    return Scope(flat, shared, plain, tensors, scalars, (*narrow, *(n for n in scalars if n not in narrow)))


def order(axes: Sequence[Axis], nest: Nest) -> tuple[Axis, ...]:
    """Axes with the output's unit stride last, so that stores are contiguous; as they are when strides are unknown."""
    strides = [coefficient(nest.index[0], a) for a in axes]
    if any(s is None for s in strides):
        return tuple(axes)
    return tuple(a for _, a in sorted(zip(strides, axes, strict=True), key=lambda x: -abs(x[0] or 0)))


def merge_run(
    nests: tuple[Nest, ...], axes: tuple[Axis, ...], frozen: Sequence[Axis] = ()
) -> tuple[tuple[Nest, ...], tuple[Axis, ...]]:
    """Neighbouring axes walked as one wherever every subscript allows it."""
    at = len(axes) - 1
    while at > 0:
        free = axes[at - 1] not in frozen and axes[at] not in frozen
        merged = merge_axes(nests, axes[at - 1], axes[at]) if free else None
        if merged is not None:
            both = merged_axis(axes[at - 1], axes[at])
            nests, axes = merged, (*axes[: at - 1], both, *axes[at + 1 :])
        at -= 1
    return nests, axes


def _shrink(group: Group, kernel: Kernel) -> tuple[tuple[Nest, ...], dict[str, Param], Mapping[str, Local]]:
    narrowed: dict[str, Param] = {}
    scalars: dict[str, Local] = {}
    own = _private(group, kernel)
    kept: dict[str, tuple[int, ...]] = {}
    for name in own:
        old = kernel.tensors[name]
        dims = tuple(d for d in range(len(old.shape)) if not _is_shared_dim(group, name, d))
        kept[name] = dims
        narrowed[name] = Param(name, Type(old.dtype, tuple(old.shape[d] for d in dims)))
        if not dims:
            scalars[name] = Local(name, old.dtype)

    def change(load: Load) -> Expr:
        dims = kept.get(load.param)
        return load if dims is None else Load(load.param, tuple(load.index[d] for d in dims))

    def narrow(n: Nest) -> Nest:
        index = n.index if n.out not in kept else tuple(n.index[d] for d in kept[n.out])
        return replace(n, index=index).map_loads(change)

    return tuple(narrow(n) for n in group.nests), narrowed, scalars


def _private(group: Group, kernel: Kernel) -> list[str]:
    """Locals that only this group touches (nests are compared by what they write and read: axes are renamed here)."""
    inside: dict[str, int] = {}
    for n in group.nests:
        for name in n.reads() | {n.out}:
            inside[name] = inside.get(name, 0) + 1
    # What nobody writes is read as its start, which only memory that is filled holds.
    written = sorted({n.out for n in group.nests} & kernel.local_numbers.keys(), key=kernel.local_numbers.__getitem__)
    return [name for name in written if inside[name] == len(kernel.touching(name))]


def _is_shared_dim(group: Group, name: str, d: int) -> bool:
    """Whether every access in the group subscripts this dimension with one shared axis."""
    found: set[Expr] = set()
    for n in group.nests:
        if n.out == name:
            found.add(n.index[d])
        found |= {x.index[d] for e in n.exprs() for x in loads(e) if x.param == name}
    only = next(iter(found))
    return len(found) == 1 and (only in group.shared or only == Const(0))


def _read_scalars(nest: Nest, scalars: Mapping[str, Local]) -> Nest:
    if not scalars:
        return nest

    def change(load: Load) -> Expr:
        return scalars.get(load.param, load)

    return nest.map_loads(change)
