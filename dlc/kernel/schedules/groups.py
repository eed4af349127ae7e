"""Which nests share loops: neighbours that meet element by element run inside common outer loops.

    for i j: t[i] += f(i, j)                 for i: t = Σⱼ f(i, j)
    for i:   r[i]  = g(t[i])           →            r[i] = g(t)

Axes are linked where one nest reads (or writes again) what another wrote, at the same plain subscript. A class of
linked axes is shared when every nest of the group has exactly one of them, as an axis of its output.

Where a kernel has several results, neighbours that have nothing to do with each other share their loops as well if they
assign whole elements of equal spaces: gradients of an element-wise statement read their common operands once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, loads, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param

Node = tuple[int, Axis]

SHORTEST = 16
"""Neighbouring elements from which on loops over them stay innermost."""
MOST_BESIDE = 8
"""Independent results of one loop: each is one more stream of stores."""


@dataclass(frozen=True)
class Group:
    """Nests that run inside the loops of `shared`, which occur as the same axes in all of them."""

    nests: tuple[Nest, ...]
    shared: tuple[Axis, ...]


def plain_write(nest: Nest, shape: tuple[int, ...]) -> bool:
    """Whether the output's subscripts are distinct whole axes: output axes and elements correspond one to one."""
    axes = [i for i in nest.index if isinstance(i, Axis)]
    whole = all(
        (isinstance(i, Axis) and i.extent == d) or (i == Const(0) and d == 1)
        for i, d in zip(nest.index, shape, strict=True)
    )
    return whole and len(set(axes)) == len(axes)


def _accesses(nest: Nest) -> Iterator[tuple[str, tuple[Expr, ...], bool]]:
    """(tensor, subscripts, whether it is written)."""
    yield nest.out, nest.index, True
    for e in nest.exprs():
        for load in loads(e):
            yield load.param, load.index, False


class _Classes:
    """Union-find over (nest, axis), with classes that may be ruled out."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}
        self._broken: set[Node] = set()

    def find(self, node: Node) -> Node:
        while (up := self._parent.get(node, node)) != node:
            node = up
        return node

    def join(self, a: Node, b: Node) -> None:
        x, y = self.find(a), self.find(b)
        if x != y:
            self._parent[y] = x
            if y in self._broken:
                self._broken.add(x)

    def rule_out(self, node: Node) -> None:
        self._broken.add(self.find(node))

    def usable(self, node: Node) -> bool:
        return self.find(node) not in self._broken


def _link(nests: Sequence[Nest], tensors: Mapping[str, Param]) -> _Classes:
    classes = _Classes()
    accesses = [list(_accesses(n)) for n in nests]
    for n in range(len(nests)):
        for m in range(n + 1, len(nests)):
            alike = adds_to_blocks(nests[n]) or adds_to_blocks(nests[m])
            for name, index, written in accesses[n]:
                for other, second, rewritten in accesses[m]:
                    if name == other and (written or rewritten or alike):
                        _link_subscripts(classes, (n, index), (m, second), tensors[name].shape)
    return classes


def _link_subscripts(
    classes: _Classes, a: tuple[int, tuple[Expr, ...]], b: tuple[int, tuple[Expr, ...]], shape: tuple[int, ...]
) -> None:
    for x, y, d in zip(a[1], b[1], shape, strict=True):
        if isinstance(x, Axis) and isinstance(y, Axis) and x.extent == y.extent == d and x.limit == y.limit:
            classes.join((a[0], x), (b[0], y))
            continue
        for nest, e in ((a[0], x), (b[0], y)):
            for axis in _axes_of(e):
                classes.rule_out((nest, axis))


def _axes_of(e: Expr) -> Iterator[Axis]:
    return (x for x in walk(e) if isinstance(x, Axis))


def share(nests: Sequence[Nest], tensors: Mapping[str, Param]) -> Group | None:
    """The group of these nests, or None when they have no loop in common."""
    classes = _link(nests, tensors)
    names: list[dict[Axis, Axis]] = [{} for _ in nests]
    shared: list[Axis] = []
    for axis in nests[0].axes:
        root = classes.find((0, axis))
        members = [[a for a in n.axes if classes.find((k, a)) == root] for k, n in enumerate(nests)]
        if not classes.usable((0, axis)) or any(len(m) != 1 for m in members):
            continue
        if any(m[0] in n.reduction_axes for m, n in zip(members, nests, strict=True)):
            continue
        common = axis.named(f"s{len(shared)}")
        shared.append(common)
        for k, m in enumerate(members):
            names[k][m[0]] = common
    if not shared:
        return None
    renamed = tuple(_rename(n, k, own) for k, (n, own) in enumerate(zip(nests, names, strict=True)))
    return Group(renamed, tuple(shared))


def _rename(nest: Nest, number: int, shared: Mapping[Axis, Axis]) -> Nest:
    """Shared axes under their common names, the others under names of this nest only."""
    own = {a: shared.get(a, a.named(f"n{number}{a.name}")) for a in nest.axes}
    return nest.substitute(own, tuple(own.values()))


def is_product(nest: Nest) -> bool:
    """A sum of products."""
    return nest.reduce == "add" and isinstance(nest.body, Apply) and nest.body.fn == "mul"


def reused(nest: Nest) -> tuple[bool, ...]:
    """Of each factor of a sum of products, whether what is read for it serves several elements of the result."""
    if not (is_product(nest) and isinstance(nest.body, Apply) and nest.reduction_axes):
        return ()
    return tuple(all(set(nest.axes) - set(axes_in(*x.index)) for x in loads(factor)) for factor in nest.body.args)


def has_reuse(nest: Nest) -> bool:
    """A sum of products whose factors all serve several elements: what tiles make faster. A sum of squares is none."""
    found = reused(nest)
    return bool(found) and all(found)


def reads_rows(group: Group) -> bool:
    """Whether what an iteration of the shared loops reads of each tensor lies in one piece."""
    shared = set(group.shared)
    for x in (x for n in group.nests for e in n.exprs() for x in loads(e)):
        axes = [set(axes_in(i)) for i in x.index if axes_in(i)]
        inside = [not shared & a for a in axes]
        if any(a & shared and a - shared for a in axes) or inside != sorted(inside):
            return False
    return True


def partition(
    kernel: Kernel, alone: Collection[str] = (), converted: Collection[str] = (), vectors: bool = True
) -> tuple[Group, ...]:
    """The nests in order, in groups; every nest is in one. What writes a tensor of `alone` has no followers.

    With `vectors`, no loop is shared along which elements lie next to each other if others remain inside of it.

    A product joins the nest that writes one of its `converted` factors, so that only a row of it exists at a time.
    """
    out: list[Group] = []
    run: list[Nest] = []
    group: Group | None = None
    done = 0
    nests = _indices_first(kernel)
    for k, nest in enumerate(nests):
        if k < done:
            continue
        together = run and run[0].out not in alone and _related(run, nest)
        wider = share([*run, nest], kernel.tensors) if together else None
        factor = len(run) == 1 and run[0].out in converted
        if wider is not None and not factor and not _worthwhile(run, nest, wider):
            wider = None
        if wider is not None and vectors and _tears(wider):
            wider = None
        if wider is None and run and run[0].out not in alone and (found := _up_to_reader(run, nests[k:], kernel)):
            group, more = found
            run += more
            done = k + len(more)
            continue
        if wider is None and run and run[0].out not in alone and len(kernel.results) > 1:
            wider = beside(run, nest, kernel.tensors)
        if wider is not None:
            run.append(nest)
            group = wider
            continue
        if group is not None:
            out.append(group)
        run = [nest]
        group = single(nest)
    return (*out, group) if group is not None else tuple(out)


def _tears(group: Group) -> bool:
    """Whether a nest stores elements in an inner loop that are not neighbours, but would be in a shared one."""
    for nest in group.nests:
        kept = [i for i in nest.index if isinstance(i, Axis)]
        if kept and kept[-1] in group.shared and kept[-1].extent >= SHORTEST and set(kept) > set(group.shared):
            return True
    return False


def _up_to_reader(run: Sequence[Nest], rest: Sequence[Nest], kernel: Kernel) -> tuple[Group, Sequence[Nest]] | None:
    """The group with nests that do not read it, up to one that reads both, where all of them read the same rows.

    s[i] += x[i,k]; t[i] += x[i,k]*y[i,k]; r[i,k] = f(s[i], t[i], x[i,k])
    """
    written = {n.out for n in run}
    reads = {name for n in run for name in n.reads()}
    for count, nest in enumerate(rest[:MOST_BESIDE], 1):
        if nest.out in written | reads or has_reuse(nest):
            return None
        more = rest[:count]
        between = {n.out for n in more[:-1]}
        if nest.reads() & written:
            if not nest.reads() & between:
                return None
            group = share([*run, *more], kernel.tensors)
            return (group, more) if group is not None and reads_rows(group) and not has_reuse(run[0]) else None
    return None


def _indices_first(kernel: Kernel) -> Sequence[Nest]:
    """The nests with what depends on indices alone before a larger tensor, not between that and what reads both.

    t[c,y] += x[c,y,k]; n[y] = f(y); r[c,y] = t[c,y]/n[y]   →   n[y] = f(y); t[c,y] += x[c,y,k]; r[c,y] = t[c,y]/n[y]
    """
    nests = list(kernel.nests)
    for k in range(1, len(nests) - 1):
        before, nest, after = nests[k - 1 : k + 2]
        size, larger = (kernel.tensors[n.out].type.capacity for n in (nest, before))
        between = {before.out, nest.out} <= after.reads() and nest.out not in before.reads() | {before.out}
        if between and not nest.reads() and size < larger and len(kernel.writers[nest.out]) == 1:
            nests[k - 1 : k + 1] = nest, before
    return nests


def beside(run: Sequence[Nest], nest: Nest, tensors: Mapping[str, Param]) -> Group | None:
    """The group of independent assignments over one space, guarded alike; None when they are of another form."""
    written = [n.out for n in run]
    if len(run) >= MOST_BESIDE or nest.out in written or nest.reads() & {*written, nest.out}:
        return None
    if any(nest.out in n.reads() or n.reads() & set(written) for n in run):
        return None
    nests = [m for n in (*run, nest) if (m := _by_position(n, tensors[n.out].shape)) is not None]
    if len(nests) <= len(run) or not nests[0].axes:
        return None
    alike = all((n.axes, n.where) == (nests[0].axes, nests[0].where) for n in nests)
    return Group(tuple(nests), nests[0].axes) if alike else None


def _by_position(nest: Nest, shape: tuple[int, ...]) -> Nest | None:
    """An assignment of whole elements with its axes named by position; None for any other nest."""
    if nest.reduce is not None or nest.reduction_axes or not plain_write(nest, shape):
        return None
    names = {i: i.named(f"s{d}") for d, i in enumerate(i for i in nest.index if isinstance(i, Axis))}
    return nest.substitute(names, tuple(names.values()))


def single(nest: Nest) -> Group:
    """A nest by itself; its output axes count as shared."""
    own = {a: a.named(f"s{k}") for k, a in enumerate(nest.axes)}
    shared = tuple(own[a] for a in nest.axes if a not in nest.reduction_axes)
    return Group((nest.substitute(own, tuple(own.values())),), shared)


def ordered(group: Group, kernel: Kernel) -> Group:
    """The group with the loops of a lone scatter in the order of its axes: an element may receive several terms."""
    nest = group.nests[0]
    scatters = nest.reduce is not None and not plain_write(nest, kernel.tensors[nest.out].shape)
    return Group(group.nests, ()) if len(group.nests) == 1 and scatters else group


def adds_to_blocks(nest: Nest) -> bool:
    """Whether a nest adds rows to the sums of the blocks that they are in: it may run wherever its rows are read."""
    return nest.reduce == "add" and any(isinstance(i, Apply) and i.fn == "floordiv" for i in nest.index[:1])


def _related(run: Sequence[Nest], nest: Nest) -> bool:
    written = {n.out for n in run}
    read = {name for n in run for name in n.reads()} if adds_to_blocks(nest) else set[str]()
    return bool((written | read) & nest.reads()) and nest.out not in written


def _worthwhile(run: Sequence[Nest], nest: Nest, wider: Group) -> bool:
    """A product keeps its tiles only if followers are element-wise over all of its output; nothing pulls it in.

    One that no tiles make faster shares loops over rows with others.
    """
    tiled = [n for n in (run[0], nest) if is_product(n) and n.reduction_axes]
    if tiled and not any(map(has_reuse, tiled)) and reads_rows(wider):
        return True
    if nest in tiled and any(n.axes for n in run):
        return False
    if run[0] in tiled:
        kept = len(run[0].axes) - len(run[0].reduction_axes)
        return len(wider.shared) == kept and not nest.reduction_axes
    return True
