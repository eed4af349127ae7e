"""Places in a sorted order are found with a heap where a nest compares all pairs: n·log n steps for n elements.

    for i j: t[i] += x[j] > x[i] or not (x[i] > x[j]) and j < i        →     the heap's elements leave it, last one
    for i:   r[t[i]] = f(i) if t[i] < k                                      first: r[k-1] = f(i), r[k-2] = f(i') …

What is compared decides, never an op's name: keys of a type that is ordered in full, NaN above all numbers, and places
between equal ones. That is a strict order, so the heap (Williams 1964, Floyd's building of it) needs no stability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlc.base.types import i64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, Number, apply, axes_in, map_loads, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, If, Let, Local, Set, Stmt, Store, loop, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.flat import flat_nest
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import conjuncts, simplify

# Fewer pairs are compared faster than a heap is kept.
SMALL = 32


@dataclass(frozen=True)
class Ranking:
    """A nest that counts for every element how many come before it.

    Attributes:
        nest: The nest.
        place: The axis of the element.
        other: The axis of those that it is compared with.
        reader: What assigns by place, if it is all that reads the count; then the count itself is not made.
        first: How many places are wanted.
    """

    nest: Nest
    place: Axis
    other: Axis
    reader: Nest | None
    first: int

    @property
    def writes(self) -> str:
        """The tensor that is written."""
        return (self.reader or self.nest).out


def rankings(kernel: Kernel) -> dict[int, Ranking]:
    """The nests that rank elements, by the position of the last nest that each stands for."""
    found: dict[int, Ranking] = {}
    for k, nest in enumerate(kernel.nests):
        ranking = _ranking(nest, kernel)
        if ranking is not None:
            at, ranking = _selection(ranking, k, kernel)
            found[at] = ranking
    return found


def _ranking(nest: Nest, kernel: Kernel) -> Ranking | None:
    if nest.reduce != "add" or nest.where is not None or len(nest.reduction_axes) != 1:
        return None
    if not plain_write(nest, kernel.tensors[nest.out].shape) or sum(n.out == nest.out for n in kernel.nests) != 1:
        return None
    (other,) = nest.reduction_axes
    match nest.body:
        case Apply(cast, (Apply("or", (before, Apply("and", (Apply("not", (after,)), earlier)))),)):
            places = [i for i in nest.index if isinstance(i, Axis) and simplify(apply("lt", other, i)) == earlier]
        case _:
            return None
    if SCALARS[cast].rule != "cast" or len(places) != 1 or places[0].extent != other.extent or other.extent <= SMALL:
        return None
    (place,) = places
    if place.limit != other.limit:
        return None
    swap: dict[Expr, Expr] = {place: other, other: place}
    if substitute(before, swap) != after or not _is_greater(before, swap, kernel):
        return None
    return Ranking(nest, place, other, None, place.extent)


def _is_greater(e: Expr, swap: Mapping[Expr, Expr], kernel: Kernel) -> bool:
    """Whether `e` is u > v for one key at two places; of floats, with NaN as the greatest key."""
    match e:
        case Apply("gt", (u, v)):
            total = (dtype := kernel.dtype_of(u)) is not None and not dtype.is_float
        case Apply(
            "or", (Apply("gt", (u, v)), Apply("and", (Apply("isnan", (n,)), Apply("not", (Apply("isnan", (m,)),)))))
        ):
            total = (n, m) == (u, v)
        case _:
            return False
    return total and substitute(u, swap) == v and len(set(axes_in(u)) & set(swap)) == 1


def _selection(ranking: Ranking, k: int, kernel: Kernel) -> tuple[int, Ranking]:
    """The ranking with what assigns by place, where nothing else needs the count; and the position of its last nest."""
    name = ranking.nest.out
    readers = [(n, nest) for n, nest in enumerate(kernel.nests) if name in nest.loads]
    if len(readers) != 1 or name not in {p.name for p in kernel.locals}:
        return k, ranking
    ((at, reader),) = readers
    first = _first(ranking, reader)
    changed = {n.out for n in kernel.nests[k + 1 : at]} & ranking.nest.reads()
    pairs = zip(reader.loads[name][0].index, ranking.nest.index, strict=True)
    axes = {a: b for a, b in pairs if isinstance(a, Axis)}
    ends = all(isinstance(b, Axis) and a.limit == b.limit for a, b in axes.items())
    if first is None or at < k or changed or not ends:
        return k, ranking
    reader = reader.substitute(axes, tuple(a for a in ranking.nest.axes if a != ranking.other))
    return at, replace(ranking, reader=reader, first=min(first, ranking.first))


def _first(ranking: Ranking, reader: Nest) -> int | None:
    """k where the reader is r[…, t[i], …] = f(i) if t[i] < k, over all elements of t; None for any other nest."""
    count, *others = reader.loads[ranking.nest.out]
    axes, guards = [i for i in count.index if i != Const(0)], conjuncts(reader.where)
    whole = len(axes) == len(reader.axes) == len(set(axes)) and set(axes) == set(reader.axes)
    if not whole or reader.reduce is not None or reader.index.count(count) != 1 or len(others) != len(guards):
        return None
    limit: Number | None = None
    for guard in guards:
        match guard:
            case Apply("lt", (x, Const(int() as value))) if x == count:
                limit = value
            case Apply("ge", (x, Const(0))) if x == count:
                pass
            case _:
                return None
    return limit


def heap_loops(ranking: Ranking, kernel: Kernel, heap: str) -> tuple[Stmt, ...]:
    """A ranking as loops over a buffer of `ranking.first` places, of which a call uses no more than it has elements."""
    if ranking.first <= 0:
        return ()
    stop = ranking.other.stop  # a dimension may end there when the program runs: what lies after it is not ranked
    size = simplify(apply("min", ranking.first, stop))
    nest = flat_nest(ranking.nest, kernel.tensors)
    assert isinstance(nest.body, Apply)
    (order,) = nest.body.args
    rows = tuple(a for a in nest.axes if a not in (ranking.place, ranking.other))
    work = _Heap(heap, lambda a, b: substitute(order, {ranking.other: a, ranking.place: b}))
    start, half, out = (
        Axis(name, most, None if isinstance(end, Const) else end)
        for name, most, end in (
            ("h0", ranking.first, size),
            ("h1", ranking.first // 2, simplify(size // 2)),
            ("h3", ranking.first, size),
        )
    )
    new, last, middle = Axis("h2", ranking.place.extent), simplify(size - 1 - out), simplify(size // 2 - 1 - half)
    item, leaving = Local("hitem", i64), Local("hout", i64)
    enter = (
        Let(item, apply("i64", new)),
        If(work.before(item, work[0]), (work.set(0, item), *work.sink(Const(0), size, ranking.first, item))),
    )
    settle = (Let(item, work[middle]), *work.sink(middle, size, ranking.first, item))
    leave = (
        Let(leaving, work[0]),
        Let(item, work[last]),
        work.set(0, item),
        *work.sink(Const(0), last, ranking.first, item),
        _write(ranking, kernel, leaving, last),
    )
    body: tuple[Stmt, ...] = (
        loop(start, work.set(start, apply("i64", start))),
        loop(half, *settle),
        For(new, size, stop, enter),
        loop(out, *leave),
    )
    return wrap(rows, body)


def _write(ranking: Ranking, kernel: Kernel, element: Expr, place: Expr) -> Store:
    """What an element and its place in the order leave."""
    if ranking.reader is None:
        nest = flat_nest(ranking.nest, kernel.tensors)
        assert isinstance(nest.body, Apply)
        return Store(nest.out, substitute(nest.index[0], {ranking.place: element}), apply(nest.body.fn, place))
    free = Axis("hplace", ranking.first)

    def change(load: Load) -> Expr:
        return free if load.param == ranking.nest.out else load

    index = tuple(map_loads(i, change) for i in ranking.reader.index)
    nest = flat_nest(replace(ranking.reader, index=index, where=None), kernel.tensors)
    at, value = (substitute(e, {free: place, ranking.place: element}) for e in (nest.index[0], nest.body))
    return Store(nest.out, at, value)


@dataclass(frozen=True)
class _Heap:
    """Places in a buffer, of which each comes behind its two children, 2·p + 1 and 2·p + 2, in the order `before`."""

    name: str
    before: Callable[[Expr, Expr], Expr]

    def __getitem__(self, at: Expr | Number) -> Load:
        return Load(self.name, (at if isinstance(at, Expr) else Const(at),))

    def set(self, at: Expr | Number, value: Expr) -> Store:
        """heap[at] = value."""
        return Store(self.name, at if isinstance(at, Expr) else Const(at), value)

    def sink(self, at: Expr, size: Expr, most: int, item: Local) -> tuple[Stmt, ...]:
        """Bring the heap of `size` (at most `most`) places in order, whose element `item` at `at` may be too early."""
        hole, child = Local("hhole", i64), Local("hchild", i64)
        next_ = apply("add", child, 1)
        later = If(apply("lt", next_, size), (If(self.before(self[child], self[next_]), (Set(child, next_),)),))
        down = (self.set(hole, self[child]), self.set(child, item), Set(hole, child))
        step = If(
            apply("lt", child, size),
            (later, If(self.before(item, self[child]), down, (Set(hole, apply("i64", most)),))),
        )
        level = Axis("h4", most.bit_length())
        return (
            Let(hole, apply("i64", at)),
            loop(level, Let(child, apply("add", apply("mul", hole, 2), 1)), step),
        )
