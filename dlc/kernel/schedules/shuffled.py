"""Vectors along several short axes at once, where one axis is shorter than a vector: many small products.

    for b<4096, i<4, j<4: r[b,i,j] = Σₗ a[b,i,l]·c[b,l,j]
    →
    for b: w = a[16b .. +16]; x = c[16b .. +16]
           r[16b .. +16] = w[0 0 0 0 4 4 4 4 …]·x[0 1 2 3 0 1 2 3 …] + w[1 1 1 1 5 5 5 5 …]·x[4 5 6 7 4 5 6 7 …] + …

Results lie together across axes, so whole vectors of them are stored. What their lanes read lies in few whole vectors
of each operand, of which lanes are picked: nothing is padded or copied, and no element is loaded by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import lcm, prod

from dlc.base.types import DType, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, combined, loads, substitute
from dlc.kernel.loops.program import Block, For, Lanes, Let, Local, Shuffle, Stmt, Store, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import at, axis_inside
from dlc.kernel.schedules.lanes import has_vectors
from dlc.kernel.schedules.loop_plan import overwrites
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import bounds, linear, simplify
from dlc.spec import option

LEAST = 16
"""Bytes of a vector at least."""
MOST = 16
"""Vectors of results, vectors of an operand, and terms of a sum, at most: all of them are written out."""
BESIDES = 2
"""Registers for what is picked."""


@dataclass(frozen=True)
class Shuffled(Choice):
    """Vectors along several short axes at once, lanes picked from whole vectors of the operands."""

    name = "shuffled"
    vectors: int = option(0, "vectors of results that are computed at a time", low=0)

    def apply(self, place: Place) -> Applied:
        scope, dtype = _checked(place)
        lanes = place.machine.lanes(dtype.itemsize)
        problem = Unfit("no number of vectors fits")
        for vectors in (self.vectors,) if self.vectors else (4, 2, 1):
            try:
                chunk = _chunk(scope.shared, vectors, lanes)
                if chunk.again(lanes) and overwrites((n for n in scope.nests if n.reduce is None), place.kernel):
                    raise Unfit("an element may not be computed twice")
                block = _Block(scope, chunk, dtype, lanes)
                body = block.statements(chunk.axis)
            except Unfit as found:
                problem = found
                continue
            if self.vectors or vectors == 1 or block.held + BESIDES <= place.machine.registers:
                loops = (*chunk.loop(body), *(chunk.last(block) if chunk.extent % chunk.step else ()))
                return Applied(type(self)(vectors=vectors), wrap(chunk.outer, loops), ())
        raise problem


def _checked(place: Place) -> tuple[Scope, DType]:
    """The nests in flat form, and the type of all elements; raises Unfit where they have no such loops."""
    scope, machine = place.scope, place.machine
    if scope is None:
        raise Unfit("it ranks elements")
    nests = scope.nests
    dtype = place.kernel.tensors[nests[-1].out].dtype
    conditions = (
        (not machine.ordered, "sums keep the order of their axes"),
        (machine.vector_bytes >= LEAST, f"vectors have {machine.vector_bytes} bytes, {LEAST} are needed"),
        (dtype in (f32, f64), f"there are no vectors of {dtype}"),
        # Compilers move the elements of short rows faster one by one, as of im2col.
        (any(_added_up(n, scope) for n in nests), "it adds nothing up"),
        (all(scope.plain) and nests[-1].out not in scope.scalars, "output axes and elements do not correspond"),
        (all(n.out not in place.written for n in nests), "it has a value before"),
        (len({n.out for n in nests}) == len(nests), "it is added up of several statements"),
        (all(a.extent > 0 for n in nests for a in n.axes), "it is empty"),
        (all(n.where is None and all(a.limit is None for a in n.axes) for n in nests), "it has a guard, or open sizes"),
        (all(set(n.axes) >= set(scope.shared) for n in nests), "not all nests share all loops"),
        (
            all(prod(a.extent for a in _added_up(n, scope)) <= MOST for n in nests),
            f"its sums have more than {MOST} terms",
        ),
    )
    require(conditions)
    lanes = machine.lanes(dtype.itemsize)
    if len(scope.shared) < 2 or scope.shared[-1].extent >= lanes:
        raise Unfit(f"its rows are no shorter than a vector of {lanes} elements")
    written = {n.out for n in nests}
    for n in nests:
        for tensor in (scope.tensors[x.param] for x in loads(n.body)):
            if tensor.name in written or tensor.dtype is not dtype or tensor.stored is not None or tensor.packed:
                raise Unfit(f"{tensor.name} is no operand of {dtype} in memory")
        if n.out not in scope.scalars and (scope.tensors[n.out].dtype is not dtype or scope.tensors[n.out].stored):
            raise Unfit(f"{n.out} has other elements")
        if n.out not in scope.scalars and not _contiguous(n, scope.shared):
            raise Unfit("its results do not lie together")
    return scope, dtype


def _added_up(nest: Nest, scope: Scope) -> tuple[Axis, ...]:
    """The axes of a sum, which a variable has no subscript to tell of."""
    return tuple(a for a in nest.axes if a not in scope.shared)


def _contiguous(nest: Nest, axes: Sequence[Axis]) -> bool:
    """Whether a result lies in the order of the axes."""
    form, stride = linear(nest.index[0]), 1
    for axis in reversed(axes):
        if form is None or (form.coefficient(axis) != stride and axis.extent > 1):
            return False
        stride *= axis.extent
    return True


@dataclass(frozen=True)
class _Chunk:
    """Results that are computed at a time: whole vectors.

    Attributes:
        outer: Loops around.
        axis: The axis that goes on by `step` from one chunk to the next.
        step: How many of its values a chunk has.
        inside: Axes that a chunk has whole.
    """

    outer: tuple[Axis, ...]
    axis: Axis
    step: int
    inside: tuple[Axis, ...]

    @property
    def extent(self) -> int:
        """Values of the axis."""
        return self.axis.extent

    @property
    def points(self) -> list[dict[Axis, int]]:
        """The values of axes of every result, counted from the first of the chunk."""
        axes = (self.axis, *self.inside)
        ranges = (range(self.step), *(range(a.extent) for a in self.inside))
        return [dict(zip(axes, values, strict=True)) for values in product(*ranges)]

    def again(self, lanes: int) -> bool:
        """Whether some results are computed twice."""
        return bool(self.extent % self.step or len(self.points) % lanes)

    def loop(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """All whole chunks."""
        whole = self.extent // self.step * self.step
        return (For(self.axis, Const(0), Const(whole), body, self.step),)

    def last(self, block: _Block) -> tuple[Stmt, ...]:
        """The chunk at the end, which computes again what the one before it has of it."""
        return (Block(block.statements(Const(self.extent - self.step))),)


def _chunk(axes: tuple[Axis, ...], vectors: int, lanes: int) -> _Chunk:
    """The fewest results that lie together and are a multiple of so many vectors.

    Where these are too many, and a single vector would do, the last vector has some of the one before it as well.
    """
    together = [(k, prod(a.extent for a in axes[k + 1 :])) for k in range(len(axes) - 1, -1, -1)]
    for k, size in together:
        step = lcm(size, vectors * lanes) // size
        if step <= axes[k].extent and step * size <= MOST * lanes:
            return _Chunk(axes[:k], axes[k], step, axes[k + 1 :])
    for k, size in together if vectors == 1 else ():
        if lanes <= size <= MOST * lanes:
            return _Chunk(axes[:k], axes[k], 1, axes[k + 1 :])
    raise Unfit(f"no few results that lie together are {vectors} vectors of {lanes} elements")


@dataclass
class _Block:
    """The statements of a chunk.

    Attributes:
        scope: The nests.
        chunk: Its results.
        dtype: Type of all elements.
        lanes: Elements of a vector.
        held: Vectors of operands and results, after `statements`.
    """

    scope: Scope
    chunk: _Chunk
    dtype: DType
    lanes: int
    held: int = 0
    _body: list[Stmt] = field(default_factory=list[Stmt])
    _named: dict[Expr, Local] = field(default_factory=dict[Expr, Local])

    def statements(self, start: Expr) -> tuple[Stmt, ...]:
        """What computes the chunk that begins at a value of its axis."""
        self._body, self._named = [], {}
        points = self.chunk.points
        firsts = [*range(0, len(points) - self.lanes, self.lanes), len(points) - self.lanes]
        groups = [points[k : k + self.lanes] for k in firsts]
        variables = [dict[Expr, Expr]() for _ in groups]
        for nest in self.scope.nests:
            operands = {x: self._operand(x, nest, start) for x in loads(nest.body)}
            local = self.scope.scalars.get(nest.out)
            spot = at(nest.index[0], {self.chunk.axis: start, **dict.fromkeys(self.chunk.inside, Const(0))})
            for first, lanes, known in zip(firsts, groups, variables, strict=True):
                value = self._value(nest, operands, lanes, known)
                if local is not None:
                    known[local] = self._name("v", value)
                else:
                    self._body.append(Store(nest.out, simplify(spot + first), value, self.lanes))
        self.held = len(groups) + sum(isinstance(s, Let) and isinstance(s.value, Lanes) for s in self._body)
        return tuple(self._body)

    def _operand(self, x: Load, nest: Nest, start: Expr) -> _Operand:
        form = linear(x.index[0])
        inside = (self.chunk.axis, *self.chunk.inside, *_added_up(nest, self.scope))
        if form is None or any(not isinstance(e, Axis) and axis_inside(e, a) for e, _ in form.terms for a in inside):
            raise Unfit("what it reads lies in no straight order")
        steps = {a: form.coefficient(a) for a in inside}
        fixed = substitute(form.expr(), {a: Const(0) for a in inside if a != self.chunk.axis})
        first = Axis(self.chunk.axis.name, self.chunk.extent - self.chunk.step + 1)
        span = bounds(simplify(substitute(fixed, {self.chunk.axis: first})))
        if span is None:
            raise Unfit("data decide what it reads")
        offsets = [sum(c * k for c, k in zip(steps.values(), ks, strict=True)) for ks in self._corners(steps)]
        room = -span[0], self.scope.tensors[x.param].type.capacity - self.lanes - span[1]
        place = Load(x.param, (simplify(substitute(fixed, {self.chunk.axis: start})),))
        return _Operand(place, steps, (min(offsets), max(offsets)), room, self.lanes)

    def _corners(self, axes: dict[Axis, int]) -> Iterator[tuple[int, ...]]:
        """The first and last values of axes within a chunk."""
        return product(*((0, (self.chunk.step if a == self.chunk.axis else a.extent) - 1) for a in axes))

    def _value(
        self, nest: Nest, operands: dict[Load, _Operand], lanes: Sequence[dict[Axis, int]], known: dict[Expr, Expr]
    ) -> Expr:
        """The value of a nest at the points of a vector."""
        axes = _added_up(nest, self.scope)
        terms = [
            self._vector(nest.body, operands, [{**p, **dict(zip(axes, ks, strict=True))} for p in lanes], known)
            for ks in product(*(range(a.extent) for a in axes))
        ]
        fn = nest.reduce
        return terms[0] if fn is None else combined(fn, terms)

    def _vector(
        self, e: Expr, operands: dict[Load, _Operand], points: Sequence[dict[Axis, int]], known: dict[Expr, Expr]
    ) -> Expr:
        match e:
            case Const():
                return e
            case Local() if e in known:
                return known[e]
            case Load():
                return self._picked(operands[e], [operands[e].offset(p) for p in points])
            case Apply(fn, args) if has_vectors(fn, self.dtype):
                return Apply(fn, tuple(self._vector(a, operands, points, known) for a in args))
            case _:
                raise Unfit("it computes what vectors do not")

    def _picked(self, x: _Operand, offsets: Sequence[int]) -> Expr:
        """Elements of an operand, by their distances from its first."""
        if len(set(offsets)) == 1:
            return x.element(offsets[0])
        if all(b - a == 1 for a, b in pairwise(offsets)):
            return self._name("w", Lanes(x.element(offsets[0]), self.lanes))
        places = [(start := x.window(k), k - start) for k in offsets]
        first, *others = sorted({start for start, _ in places})
        if len(others) >= MOST:
            raise Unfit(f"a vector reads elements of more than {MOST} others")
        found = self._name("w", Lanes(x.element(first), self.lanes))
        kept: Sequence[int] = [lane if start == first else 0 for start, lane in places]
        if not others:
            return self._name("x", Shuffle(found, found, tuple(kept)))
        for other in others:
            vector = self._name("w", Lanes(x.element(other), self.lanes))
            order = (self.lanes + p[1] if p[0] == other else lane for p, lane in zip(places, kept, strict=True))
            found, kept = self._name("x", Shuffle(found, vector, tuple(order))), range(self.lanes)
        return found

    def _name(self, prefix: str, value: Expr) -> Local:
        """A variable with a value, the same for equal values."""
        if value not in self._named:
            local = Local(f"{prefix}{len(self._named)}", self.dtype, self.lanes)
            self._named[value] = local
            self._body.append(Let(local, value))
        return self._named[value]


@dataclass(frozen=True)
class _Operand:
    """What a chunk reads of a tensor by one subscript.

    Attributes:
        first: The element at the first point of the chunk.
        steps: How far an axis moves.
        span: The least and largest distance from the first element.
        room: The least and largest distance of a vector's first element from it that is within the tensor.
        lanes: Elements of a vector.
    """

    first: Load
    steps: dict[Axis, int]
    span: tuple[int, int]
    room: tuple[int, int]
    lanes: int

    def offset(self, point: dict[Axis, int]) -> int:
        """The distance of the element at a point."""
        return sum(c * point[a] for a, c in self.steps.items())

    def element(self, offset: int) -> Load:
        """An element by its distance."""
        return Load(self.first.param, (simplify(self.first.index[0] + offset),))

    def window(self, offset: int) -> int:
        """Where the vector begins in which an element lies: one of those that cover all, within the tensor."""
        start = self.span[0] + (offset - self.span[0]) // self.lanes * self.lanes
        if self.room[1] < self.room[0]:
            raise Unfit(f"{self.first.param} has less than {self.lanes} elements")
        return max(min(start, self.room[1]), self.room[0])
