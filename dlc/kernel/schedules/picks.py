"""Elements that data pick from short rows are lanes of vectors that hold a row, where all places are within it.

    for j<96: if 0 <= p[j] < 47: r[j] = a[j]·t[p[j]] + b[j]·t[p[j] + 1]
    →
    inside = all of 0 <= p[j] < 47
    if inside: w = t[0 .. +16], t[16 .. +16], t[32 .. +16]
               for j step 16: r[j .. +16] = a[j .. +16]·w[p[j .. +16]] + b[j .. +16]·w[p[j .. +16] + 1]
    else: for j<96: …

Whether data are inside is found once, for all rows. Processors with vectors of 64 bytes find lanes of two vectors by
one instruction, and take longer to load elements one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dlc.base.types import f32, i32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, loads, operands_of, select, substitute
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Block, For, If, Lanes, Let, Local, Pick, Set, Shuffle, Stmt, Store
from dlc.kernel.schedules.choice import Place
from dlc.kernel.schedules.flat import axis_inside, coefficient
from dlc.kernel.schedules.lanes import vectorise
from dlc.kernel.simplify import conjuncts, is_index, simplify

BYTES = 64
"""Of vectors whose lanes data pick by one instruction."""
MOST = 4
"""Vectors of a row."""


def with_picks(body: tuple[Stmt, ...], place: Place) -> tuple[Stmt, ...]:
    """The statements of a group with the module's rewrite in its loops."""
    machine = place.machine
    if machine.ordered or machine.vector_bytes < BYTES:
        return body
    rows = _Rows(place.kernel, machine.lanes(f32.itemsize), place.number)
    changed = rows.changed(body)
    return (*rows.tests, *changed) if rows.tests else body


@dataclass(frozen=True)
class _Place:
    """An element of a row that data pick.

    Attributes:
        row: The first element of the row.
        length: Elements of the row.
        data: What counts the elements of the row.
        ahead: How many elements it is behind the one that `data` counts.
    """

    row: Load
    length: int
    data: Load
    ahead: int

    @property
    def inside(self) -> tuple[Expr, ...]:
        """What holds where the element is one of the row."""
        return apply("ge", self.data, 0), apply("lt", self.data, self.length - self.ahead)


@dataclass
class _Rows:
    """Loops of a group that pick elements of rows.

    Attributes:
        tests: What finds out whether data are inside of rows.
    """

    kernel: Kernel
    lanes: int
    number: int
    tests: list[Stmt] = field(default_factory=list[Stmt])

    def changed(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Statements with vectors in the loops that pick elements."""
        return tuple(x for s in body for x in self._changed(s))

    def _changed(self, s: Stmt) -> tuple[Stmt, ...]:
        match s:
            case For(body=(If(guard, (Store() as store,), ()),)):
                return self._picked(s, guard, store) or (s,)
            case For(body=(Store() as store,)):
                return self._picked(s, None, store) or (s,)
            case For(body=body) | Block(body):
                return (replace(s, body=self.changed(body)),)
            case If(condition, then, otherwise):
                return (If(condition, self.changed(then), self.changed(otherwise)),)
            case _:
                return (s,)

    def _picked(self, loop: For, guard: Expr | None, store: Store) -> tuple[Stmt, ...]:
        """A loop in two ways, by whether data are inside of rows; () where it has no such vectors."""
        axis = loop.axis
        apart = coefficient(store.at, axis) != 1 or store.lanes > 1
        if apart or loop.step != 1 or loop.start != Const(0) or loop.stop != Const(axis.extent):
            return ()
        picked = [x for x in loads(store.value) if axis_inside(x, axis) and not is_index(x.index[0])]
        places = {x: p for x in dict.fromkeys(picked) if (p := self._place(x, axis)) is not None}
        conditions = (*conjuncts(guard), *(c for p in places.values() for c in p.inside))
        if not picked or len(places) < len(set(picked)) or not self._is_same(conditions, axis):
            return ()
        if store.out in {p.row.param for p in places.values()} or axis.extent < self.lanes:
            return ()
        prefix = f"g{self.number}_{len(self.tests) // 2}"
        rows = {p.row: p.length for p in places.values()}
        held = {row: self._held(row, n, f"{prefix}w{k}") for k, (row, n) in enumerate(rows.items())}
        names: dict[Load, Local] = {x: Local(f"{prefix}x{k}", f32, self.lanes) for k, x in enumerate(places)}
        lane = Axis("lane", self.lanes)
        mapping: dict[Expr, Expr] = {axis: axis + lane}
        value = vectorise(substitute(store.value, names), mapping, lane, self.kernel.dtypes, f32)
        if value is None or self.kernel.dtypes[store.out] is not f32:
            return ()
        found = (Pick(held[p.row][0], Lanes(p.data, self.lanes), p.ahead) for p in places.values())
        lets = (Let(x, e) for x, e in zip(names.values(), found, strict=True))
        body = (*lets, replace(store, value=value, lanes=self.lanes))
        end = axis.extent // self.lanes * self.lanes
        fast: tuple[Stmt, ...] = tuple(s for _, loaded in held.values() for s in loaded)
        fast = (*fast, replace(loop, stop=Const(end), body=body, step=self.lanes))
        if end < axis.extent:
            fast = (*fast, replace(loop, start=Const(end)))
        inside = Local(f"{prefix}inside", i32)
        self.tests += self._test(inside, conditions, axis)
        return (If(apply("ne", inside, 0), fast, (loop,)),)

    def _test(self, inside: Local, conditions: Sequence[Expr], axis: Axis) -> Iterator[Stmt]:
        """Whether conditions hold for all values of an axis."""
        value: Expr = inside
        for c in reversed(dict.fromkeys(conditions)):
            value = select(c, value, 0)
        yield Let(inside, Const(1))
        yield For(axis, Const(0), axis.stop, (Set(inside, value),))

    def _is_same(self, conditions: Sequence[Expr], axis: Axis) -> bool:
        """Whether conditions are the same for all rows, and the kernel changes nothing that they read."""
        params = {p.name for p in self.kernel.params}
        return all(set(axes_in(c)) <= {axis} and {x.param for x in loads(c)} <= params for c in conditions)

    def _place(self, x: Load, axis: Axis) -> _Place | None:
        """Where an element is; None where that is no element of a short row that data count."""
        tensor = self.kernel.tensors[x.param]
        moving = [e for e in operands_of("add", x.index[0]) if axis_inside(e, axis)]
        found = _clamped(moving[0]) if len(moving) == 1 else None
        if found is None or tensor.storage is not f32 or tensor.packed:
            return None
        data, ahead, last = found
        if self.kernel.dtypes[data.param] is not i32 or coefficient(data.index[0], axis) != 1:
            return None
        if not self.lanes <= last + 1 <= MOST * self.lanes or not 0 <= ahead <= last:
            return None
        row: Expr = Const(0)
        for e in operands_of("add", x.index[0]):
            row = row if e is moving[0] else apply("add", row, e)
        return _Place(Load(x.param, (row,)), last + 1, data, ahead)

    def _held(self, row: Load, length: int, name: str) -> tuple[tuple[Local, ...], list[Stmt]]:
        """Vectors that hold a row, and what loads them; behind the last element are others of it."""
        parts = tuple(Local(f"{name}_{k}", f32, self.lanes) for k in range(-(-length // self.lanes)))
        lets: list[Stmt] = []
        for k, part in enumerate(parts):
            first = min(k * self.lanes, length - self.lanes)
            value: Expr = Lanes(Load(row.param, (_ahead(row.index[0], first),)), self.lanes)
            if skipped := k * self.lanes - first:
                end = replace(part, name=f"{name}_end")
                lets.append(Let(end, value))
                value = Shuffle(end, end, tuple(min(k + skipped, self.lanes - 1) for k in range(self.lanes)))
            lets.append(Let(part, value))
        return parts, lets


def _ahead(e: Expr, n: int) -> Expr:
    return simplify(e + n) if is_index(e) else apply("add", e, n)


def _clamped(e: Expr) -> tuple[Load, int, int] | None:
    """(x, k, n) for an integer x + k that is clamped to 0 … n."""
    match e:
        case Apply("i64", (Apply("min" | "max") as clamped,)):
            return _clamped(clamped)
        case Apply("min", (Apply("max", (inner, Const(0))), Const(int() as last))):
            found = _moved(inner)
            return None if found is None else (*found, last)
        case _:
            return None


def _moved(e: Expr) -> tuple[Load, int] | None:
    """(x, k) for an integer x + k."""
    match e:
        case Load():
            return e, 0
        case Apply("i64", (inner,)):
            return _moved(inner)
        case Apply("add", (inner, Const(int() as k))):
            found = _moved(inner)
            return None if found is None else (found[0], found[1] + k)
        case _:
            return None
