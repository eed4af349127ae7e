"""Cycles and bytes that loops take on one core of a machine.

    cycles = Σ over loops: iterations · max(arithmetic, loads, stores, latency of sums) + their start
             + bytes from the second level / its rate + bytes from beyond / theirs

What hints fetch early enough takes no time of its own, unless it takes longer than all else. The model is the roofline
of Williams, Waterman and Patterson (2009) with issue ports as in llvm-mca: as many arithmetic operations and loads in a
cycle as the machine says, and one store. Loops over scalars count as vectors where a compiler makes them vectors. A
number tells only which of two ways is faster: what a processor takes differs from it by a factor that both share.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlc.base.types import f32
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import (
    WORD,
    Block,
    Buffer,
    Dots,
    Fold,
    For,
    If,
    Lanes,
    Let,
    Pick,
    Prefetch,
    Set,
    Shuffle,
    Stmt,
    Store,
    Words,
    exprs_of,
    walk_stmts,
)
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.estimate.traffic import Nested, accesses
from dlc.kernel.schedules.extents import is_size
from dlc.kernel.schedules.flat import axis_inside, coefficient
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import INDEX_FUNCTIONS, conjuncts, is_index, linear

BESIDES = 0.1
"""Of what does not decide how long statements take: processors overlap it, but not wholly."""
LINE = 64
"""Bytes of a line of cache."""
PARTED = 1.5
"""Operations that make bytes of packed elements: a mask, and a shift for all but the lowest."""
START = 4.0
"""Cycles of a loop besides its iterations."""


@dataclass(frozen=True)
class Estimate:
    """What loops take.

    Attributes:
        cycles: Of one core, for one run with the largest sizes.
        bytes: That come from beyond the second-level cache, or go there.
        near: Of the cycles, those that they would take if these bytes took none.
    """

    cycles: float
    bytes: float
    near: float


Sizes = Mapping[str, tuple[int, int]]
"""Name → (bytes of an element, bytes of all)."""


def sizes_of(kernel: Kernel, buffers: Iterable[Buffer]) -> Sizes:
    """Of a kernel's tensors and of buffers. Those of a kernel are found once: it may have thousands."""
    return ChainMap({b.name: (b.dtype.itemsize, b.type.nbytes) for b in buffers}, kernel.sizes)


def estimate(body: Sequence[Stmt], sizes: Sizes, machine: Machine) -> Estimate:
    """What statements over tensors and buffers of these sizes take on a machine."""
    estimator = _Estimator(sizes, machine)
    work = estimator.work(body, {})
    whole = Nested("", 1, (), work.nested)
    near, far = sum(whole.traffic(machine.l1).values()), whole.traffic(machine.l2)
    total, ahead = sum(far.values()), sum(far.get(name, 0.0) for name in estimator.ahead)
    sides = work.cycles + near / machine.l2_rate, ahead / machine.memory_rate
    cycles = max(sides) + BESIDES * min(sides) + (total - ahead) / machine.memory_rate
    return Estimate(cycles, total, sides[0])


def least_cycles(nests: Iterable[Nest], kernel: Kernel, machine: Machine) -> float:
    """What any loops of some nests take, where guards always hold: their arithmetic, in whole vectors."""
    return (
        sum(
            n.points
            * (_operations(n.body) + (n.reduce is not None))
            / machine.lanes(kernel.tensors[n.out].dtype.itemsize)
            for n in nests
        )
        / machine.operations
    )


def _operations(body: Expr) -> float:
    """Of an element, where a product that is added is one with the addition."""
    applied = [e for e in walk(body) if isinstance(e, Apply) and not is_index(e)]
    return sum(SCALARS[e.fn].cycles for e in applied) - (bool(applied) and applied[0].fn == "mul")


@dataclass
class _Work:
    """What statements do.

    Attributes:
        machine: Where.
        arithmetic, loads, stores: Operations of vectors, or of scalars.
        inner: Cycles of the loops among the statements.
        chains: How often each variable is combined with a value that waits for it.
        nested: What memory they touch.
    """

    machine: Machine
    arithmetic: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    inner: float = 0.0
    chains: dict[str, float] = field(default_factory=dict[str, float])
    nested: list[Nested] = field(default_factory=list[Nested])

    @property
    def cycles(self) -> float:
        machine = self.machine
        longest = machine.latency * max(self.chains.values(), default=0.0)
        ports = (self.arithmetic / machine.operations, self.loads / machine.loads, self.stores, longest)
        return max(ports) + BESIDES * sum(ports) + self.inner


class _Estimator:
    """Walks statements from the outside in, with a typical value of each axis around.

    Attributes:
        ahead: Tensors of which parts are fetched into the second-level cache long before they are read.
    """

    def __init__(self, tensors: Sizes, machine: Machine) -> None:
        self._tensors, self._machine = tensors, machine
        self.ahead: set[str] = set()
        self._steps: dict[str, int] = {}

    def work(self, body: Sequence[Stmt], env: Mapping[str, int], along: Axis | None = None) -> _Work:
        """Of statements in a row, which a compiler makes vectors `along` an axis."""
        found = _Work(self._machine)
        places: list[tuple[str, Expr, int]] = []
        for s in body:
            match s:
                case For():
                    self._loop(s, found, env, along)
                case If(condition, then, otherwise):
                    parts = [self.work(b, env, along) for b in _parts(condition, then, otherwise, env)]
                    found.inner += max(w.cycles for w in parts)
                    found.nested += (n for w in parts for n in w.nested)
                    self._value(condition, 1, along, found, places)
                case Block(inner):
                    within = self.work(inner, env, along)
                    found.inner += within.cycles
                    found.nested += within.nested
                case Let(local, value):
                    self._value(value, local.lanes, along, found, places)
                case Set(local, value):
                    if _combines(s):
                        chain = found.chains.get(local.name, 0.0)
                        found.chains[local.name] = chain + self._operations(1, along)
                    self._value(value, local.lanes, along, found, places)
                case Store(out, at, value, lanes):
                    places.append((out, at, lanes))
                    found.stores += self._moves(out, at, lanes, along)
                    self._value(value, lanes, along, found, places)
                case Prefetch():
                    if s.hint == "later":
                        self.ahead.add(s.tensor)
        if places:
            found.nested.append(Nested("", 1, accesses(places, self._tensors), ()))
        return found

    def _loop(self, s: For, found: _Work, env: Mapping[str, int], along: Axis | None) -> None:
        start, stop = (_typical(e, env) for e in (s.start, s.stop))
        trips = max(0, -(-(stop - start) // s.step))
        if not trips:
            return
        if along is None and self._becomes_vectors(s, trips):
            along = s.axis
        self._steps[s.axis.name] = s.step
        turn = self._operations(1, along) if along is s.axis else 1.0
        found.inner += START
        for at, count in _alike(s, trips):
            within = self.work(s.body, {**env, s.axis.name: start + at * s.step}, along)
            found.inner += count * max(turn, within.cycles)
            nested = [n.by_steps(s.axis.name, s.step) for n in within.nested]
            found.nested.append(Nested(s.axis.name, count, (), nested))

    def _becomes_vectors(self, s: For, trips: int) -> bool:
        """Whether compilers compute several iterations at once: stores are contiguous, and at most one loop is inside,
        of sums that each iteration has to itself."""
        if self._machine.vector_bytes < 16 or s.step != 1 or trips < self._machine.lanes(4):
            return False
        inside = list(_flat(s.body))
        loops = [x for x in inside if isinstance(x, For)]
        if len(loops) > 1 or any(axis_inside(e, s.axis) for x in loops for e in (x.start, x.stop)):
            return False
        own = {x.local for x in inside if isinstance(x, Let)}
        return all(
            _is_scalar(x, s.axis) and (not isinstance(x, Set) or x.local in own or not _combines(x))
            for x in (*inside, *(y for x in loops for y in _flat(x.body)))
            if not (isinstance(x, For) and x in loops)
        )

    def _value(
        self, e: Expr, lanes: int, along: Axis | None, found: _Work, places: list[tuple[str, Expr, int]]
    ) -> None:
        """Count what an expression of a statement of so many lanes computes and reads."""
        stack, seen = [e], set[int]()
        while stack:
            x = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            match x:
                case Lanes(Load(name, (at,)), count, step):
                    places.append((name, at, x.span))
                    found.loads += step * self._moves(name, at, count, along) * self._lines(name, at, count)
                    found.arithmetic += (step > 1) * self._operations(count, None)
                case Words(Load(name, (at,)), count, step):
                    itemsize = self._tensors[name][0]
                    places.append((name, at, x.span(itemsize)))
                    found.loads += self._moves(name, at, WORD * count // itemsize, along)
                    found.arithmetic += (step > 1) * PARTED * self._operations(count, along)
                case Dots() if x.dtype is f32:
                    found.arithmetic += (max(1, self._machine.pairs) - 1) * self._operations(lanes, along)
                case Load(name, (at,)):
                    places.append((name, at, 1))
                    found.loads += self._moves(name, at, 1, along)
                    if not is_index(at):
                        stack.append(at)
                case Shuffle(a, b):  # of two vectors, few machines have it as one instruction
                    found.arithmetic += (1 + (a != b)) * self._operations(lanes, None)
                case Pick(of, data):
                    found.arithmetic += (2 * len(of) - 1) * self._operations(lanes, None)
                    stack.append(data)
                case Fold(_, vector):
                    found.arithmetic += 2.0 * vector.lanes.bit_length()
                case Apply(fn, args) if not is_index(x):
                    product = fn == "add" and any(isinstance(a, Apply) and a.fn == "mul" for a in args)
                    cost = SCALARS[fn].cycles * (1 if _has_vectors(fn) or lanes == 1 else lanes)
                    found.arithmetic += (cost - product) * self._operations(lanes, along)
                    stack += args
                case _:
                    pass

    def _operations(self, lanes: int, along: Axis | None, itemsize: int = 4) -> float:
        """How many operations work on so many elements of a statement."""
        if lanes == 1:
            return 1.0 if along is None else 1.0 / self._machine.lanes(itemsize)
        return -(-lanes * itemsize // max(itemsize, self._machine.vector_bytes))

    def _lines(self, tensor: str, at: Expr, lanes: int) -> float:
        """How many lines of cache a vector lies in, on average: each is a load of its own."""
        form = linear(at)
        if form is not None and form.constant % lanes == 0:
            steps = (c * (self._steps.get(x.name, 1) if isinstance(x, Axis) else 1) for x, c in form.terms)
            if all(step % lanes == 0 for step in steps):
                return 1.0
        return 1.0 + min(1.0, lanes * self._tensors[tensor][0] / LINE)

    def _moves(self, tensor: str, at: Expr, lanes: int, along: Axis | None) -> float:
        """How many loads or stores move elements."""
        itemsize = self._tensors[tensor][0]
        if lanes > 1 or along is None:
            return self._operations(lanes, None, itemsize)
        match coefficient(at, along):
            case 0:
                return 0.0
            case 1:
                return self._operations(1, along, itemsize)
            case 2:  # two vectors, and every second element of both
                return 3 * self._operations(1, along, itemsize)
            case _:
                return 1.0


def _alike(s: For, trips: int) -> tuple[tuple[int, int], ...]:
    """Iterations and how many each stands for: the middle for all, but the last of blocks for itself."""
    inside = (x for x in walk_stmts(s.body) if isinstance(x, For | If)) if s.step > 1 and trips > 1 else ()
    if any(axis_inside(e, s.axis) for x in inside for e in exprs_of(x)):
        return ((trips - 1) // 2, trips - 1), (trips - 1, 1)
    return ((trips // 2, trips),)


def _has_vectors(fn: str) -> bool:
    """Whether a function of vectors takes as long as one of a scalar."""
    return bool(SCALARS[fn].lanes) or SCALARS[fn].rule == "cast"


def _combines(s: Set) -> bool:
    """Whether a variable is combined with a value, so that the next time waits for it."""
    return isinstance(s.value, Apply) and s.local in s.value.args


def _is_scalar(s: Stmt, axis: Axis) -> bool:
    """Whether a statement computes one element, and stores it next to that of the iteration before."""
    match s:
        case Let(local, _) | Set(local, _):
            return local.lanes == 1
        case Store(_, at, _, lanes):
            return lanes == 1 and coefficient(at, axis) == 1
        case _:
            return False


def _flat(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Statements, those of blocks and conditions among them."""
    for s in body:
        match s:
            case Block(inner):
                yield from _flat(inner)
            case If(_, then, otherwise):
                yield from _flat(then)
                yield from _flat(otherwise)
            case _:
                yield s


def _parts(
    condition: Expr, then: tuple[Stmt, ...], otherwise: tuple[Stmt, ...], env: Mapping[str, int]
) -> tuple[tuple[Stmt, ...], ...]:
    """The part of a branch that runs with the loops around in the middle of their range; both where data decide."""
    if not all(is_index(e) for c in conjuncts(condition) if isinstance(c, Apply) for e in c.args):
        return then, otherwise
    holds = all(_holds(c, env) for c in conjuncts(condition))
    return (then if holds else otherwise,)


def _holds(c: Expr, env: Mapping[str, int]) -> bool:
    match c:
        case Apply(fn, args):
            return bool(SCALARS[fn].numpy(*(_typical(a, env) for a in args)))
        case Const(value):
            return bool(value)
        case _:
            return True


def _typical(e: Expr, env: Mapping[str, int]) -> int:
    """The value of a bound with the loops around in the middle of their range, and the largest sizes."""
    match e:
        case Const(value):
            return int(value)
        case Axis(name, extent):
            # Loops around that are not looked at are in the middle too.
            return env.get(name, extent if is_size(e) else extent // 2)
        case Apply(fn, args) if fn in INDEX_FUNCTIONS:
            return int(SCALARS[fn].numpy(*(_typical(a, env) for a in args)))
        case _:
            return 1
