"""Nests that run block by block of rows that they share, what lies between them in buffers of one block.

    s[h,i,j] += q[h,i,d]·k[h,j,d];  p[h,i,j] = f(s[h,i,j]);  r[h,i,d] += p[h,i,j]·v[h,j,d]
    →
    for h: for blocks of i: s'[i',j] += q[h,b+i',d]·k[h,j,d];  p'[i',j] = f(s'[i',j]);  r[h,b+i',d] += p'[i',j]·v[h,j,d]

Axes that all nests have in common are rows if one factor of each product lacks them, so that a block of rows reads it
again and again; of the others, along which nothing is shared, one value is computed at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.base.types import Type
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, select, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param, zero
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.groups import Group, has_reuse, plain_write, share
from dlc.kernel.schedules.machine import PANEL
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import simplify


@dataclass(frozen=True)
class Stages:
    """All nests of a kernel, which share rows.

    Attributes:
        group: The nests, with their common axes under common names.
        batch: Common axes of which one value is computed at a time.
        row: The common axis that blocks divide.
        inside: Locals of the kernel: only a block of them exists.
    """

    group: Group
    batch: tuple[Axis, ...]
    row: Axis
    inside: tuple[str, ...]


def stages_of(kernel: Kernel) -> Stages | None:
    """A kernel as stages; None where its nests share no rows, or no product reads what another nest leaves."""
    inside = tuple(p.name for p in kernel.locals)
    products = [n for n in kernel.nests if has_reuse(n)]
    if not any(n.reads() & set(inside) for n in products):
        return None
    group = share(kernel.nests, kernel.tensors)
    if group is None or any(a.limit is not None for n in group.nests for a in n.axes):
        return None
    rows = [a for a in group.shared if all(_is_row(n, a) for n in group.nests if has_reuse(n))]
    if not rows:
        return None
    row = max(rows, key=lambda a: a.extent)
    return Stages(group, tuple(a for a in group.shared if a != row), row, inside)


def _is_row(nest: Nest, axis: Axis) -> bool:
    assert isinstance(nest.body, Apply)
    return sum(axis in axes_in(factor) for factor in nest.body.args) == 1


@dataclass(frozen=True)
class BlockKernels:
    """The kernels of stages: their expressions have the axes of the loops around them, which they have no range of."""

    stages: Stages
    kernel: Kernel

    @property
    def batch(self) -> dict[Axis, Axis]:
        """The axes of the batch as those of the loops over it."""
        return {a: a.named(f"batch{k}") for k, a in enumerate(self.stages.batch)}

    def panels(self) -> tuple[Kernel, Mapping[int, Load]]:
        """(the kernel that stores factors of products in panels, the loads that take their place by nest)."""
        s, kernel = self.stages, self.kernel
        made: list[Param] = []
        nests: list[Nest] = []
        instead: dict[int, Load] = {}
        for k, nest in enumerate(s.group.nests):
            load = _across(nest, s.row, kernel) if has_reuse(nest) else None
            if load is None:
                continue
            column, name = nest.index[-1], f"panels{len(made)}"
            assert isinstance(column, Axis)
            terms = [a for a in nest.axes if a in axes_in(load) and a != column and a not in s.batch]
            panel, lane = Axis("b", -(-column.extent // PANEL)), Axis("l", PANEL)
            spot = panel * PANEL + lane
            body = substitute(load, {**self.batch, column: spot})
            if column.extent % PANEL:
                body = select(apply("lt", spot, column.extent), body, zero(kernel.tensors[load.param].dtype))
            extents = (panel.extent, *(a.extent for a in terms), PANEL)
            made.append(Param(name, Type(kernel.tensors[load.param].dtype, extents)))
            axes = (panel, *terms, lane)
            nests.append(Nest(name, axes, axes, body))
            instead[k] = Load(name, (column // PANEL, *terms, column % PANEL))
        return Kernel(kernel.params, tuple(made), (), tuple(nests)), instead

    def block(self, first: Expr, count: int, panels: Kernel, instead: Mapping[int, Load]) -> Kernel:
        """The kernel of `count` rows from `first` on, with what `panels` gives.

        Raises:
            Unfit: what it leaves would have to be set to a start before, or is added to what other nests leave.
        """
        s, kernel = self.stages, self.kernel
        row = Axis(f"{s.row.name}b", count)
        mapping: dict[Axis, Expr] = {**self.batch, s.row: simplify(first + row)}
        locals_ = [self._local(name, count) for name in s.inside]
        nests: list[Nest] = []
        for k, nest in enumerate(s.group.nests):
            if k in instead:
                nest = replace(nest, body=_with_factor(nest, instead[k], s.row))
            axes = tuple(row if a == s.row else a for a in nest.axes if a not in s.batch)
            nest = nest.map_loads(lambda x: Load(x.param, self._spot(x.index, row)) if x.param in s.inside else x)
            if nest.out in s.inside:
                nests.append(replace(nest, index=self._spot(nest.index, row), axes=axes).substitute(mapping, axes))
            elif nest.reduce is None:
                nests.append(nest.substitute(mapping, axes))
            elif len(kernel.writers[nest.out]) > 1:
                raise Unfit("a result adds up what several nests leave")
            else:  # a sum of its own, whose elements are stored where they belong
                index = self._spot(nest.index, row)
                own = tuple(i for i in index if isinstance(i, Axis))
                if len(own) + index.count(Const(0)) != len(index):
                    raise Unfit("a result is no sum for each of its elements")
                shape = tuple(i.extent if isinstance(i, Axis) else 1 for i in index)
                sums = Param(f"sums{k}", Type(kernel.tensors[nest.out].dtype, shape))
                locals_.append(sums)
                nests.append(replace(nest, out=sums.name, index=index, axes=axes).substitute(mapping, axes))
                nests.append(replace(nest, body=sums[index], reduce=None, where=None).substitute(mapping, own))
        found = Kernel((*kernel.params, *panels.results), kernel.results, tuple(locals_), tuple(nests))
        if any(needs_fill(found, p.name) for p in locals_):
            raise Unfit("what lies between its products has a value before")
        return found

    def _spot(self, index: Sequence[Expr], row: Axis) -> tuple[Expr, ...]:
        """Where a block holds an element."""
        s = self.stages
        return tuple(Const(0) if i in s.batch else row if i == s.row else i for i in index)

    def _local(self, name: str, count: int) -> Param:
        """A local of a block."""
        s, p = self.stages, self.kernel.tensors[name]
        index = next(n.index for n in s.group.nests if n.out == name)
        shape = (1 if i in s.batch else count if i == s.row else d for i, d in zip(index, p.shape, strict=True))
        return Param(name, Type(p.dtype, tuple(shape)))


def overwritten(kernel: Kernel, stored: Collection[str]) -> Mapping[str, str]:
    """Locals that lie where another one does, of which they are computed element by element and that nobody reads then.

    t[i,j] = exp(s[i,j] - m[i])      →      s[i,j] = exp(s[i,j] - m[i])
    """
    found: dict[str, str] = {}
    for k, nest in enumerate(kernel.nests):
        alone = nest.out in stored and len(kernel.writers[nest.out]) == 1
        if not alone or nest.reduce is not None or not plain_write(nest, kernel.tensors[nest.out].shape):
            continue
        for name, loads in nest.loads.items():
            same = kernel.tensors[name].type == kernel.tensors[nest.out].type and name in stored
            last = max(kernel.touching(name)) == k and name not in found.values()
            if same and last and all(x.index == nest.index for x in loads):
                found[nest.out] = found.get(name, name)
                break
    return found


def _across(nest: Nest, row: Axis, kernel: Kernel) -> Load | None:
    """The factor of a product that all rows read, if it is a parameter whose columns are not next to each other."""
    assert isinstance(nest.body, Apply)
    (factor,) = (f for f in nest.body.args if row not in axes_in(f))
    column = nest.index[-1] if nest.index else None
    if nest.where is not None or not isinstance(factor, Load) or not isinstance(column, Axis) or column == row:
        return None
    if factor.param in kernel.local_numbers or column not in axes_in(factor):
        return None
    step = coefficient(offset(factor.index, kernel.tensors[factor.param].shape), column)
    return factor if step is not None and step != 1 else None


def _with_factor(nest: Nest, factor: Load, row: Axis) -> Expr:
    """The product with another factor in place of the one that all rows read."""
    assert isinstance(nest.body, Apply)
    return Apply("mul", tuple(f if row in axes_in(f) else factor for f in nest.body.args))
