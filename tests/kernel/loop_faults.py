"""Faults seeded into loops, and an oracle that says whether they change anything.

The oracle runs loops in double precision on whole numbers, twice, and compares the results with those of the loops
without the fault; for loops marked parallel it compares what their iterations touch, element by element.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import Machine, run_loops
from dlc.kernel.loops.memory import LoopFault, Memory
from dlc.kernel.loops.print import print_head, sizes_of
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Lanes,
    Let,
    Local,
    LoopProgram,
    Set,
    Stmt,
    Store,
    walk_stmts,
)
from dlc.kernel.loops.values import Values
from dlc.kernel.schedules.schedule import schedule
from tests.backend_c.harness import samples
from tests.kernel.triples import Triple, in_double


@dataclass(frozen=True)
class Fault:
    """A program with a fault.

    Attributes:
        kind: What was done: a name of `KINDS`.
        where: The statement before it was changed.
        program: With the fault.
    """

    kind: str
    where: str
    program: LoopProgram


Body = tuple[Stmt, ...]
Change = Callable[[random.Random, Body, int], Body | None]
"""(random numbers, a body, position of a statement) → the body with a fault there; None: there is no such fault."""


def on_one_thread(triple: Triple) -> LoopProgram:
    """The loops of a triple, none of which is marked parallel."""
    machine = replace(triple.machine, threads=1)
    return schedule(triple.kernel, machine, tuple(replace(c, parallel=()) for c in triple.choices))


def seeded(program: LoopProgram, rng: random.Random, kind: str) -> Fault | None:
    """The program with one fault of a kind somewhere; None where there is no place for it."""
    places = [(body, whole, k) for body, whole in _bodies(program.body, tuple) for k in range(len(body))]
    rng.shuffle(places)
    for body, whole, k in places:
        changed = KINDS[kind](rng, body, k)
        if changed is not None and changed != body:
            where = print_head(body[k], sizes_of(program))
            return Fault(kind, where, replace(program, body=whole(changed)))
    return None


def _bodies(body: Body, whole: Callable[[Body], Body]) -> Iterator[tuple[Body, Callable[[Body], Body]]]:
    """A body and all inside it, each with what makes the whole program of another one in its place.

    Statements may be one object in two places, of which only one is to have the fault.
    """
    yield body, whole
    for k, s in enumerate(body):
        for name in ("body", "then", "otherwise"):
            if hasattr(s, name):
                yield from _bodies(getattr(s, name), partial(_around, body, whole, k, name))


def _around(body: Body, whole: Callable[[Body], Body], k: int, name: str, new: Body) -> Body:
    return whole(_with(body, k, replace(body[k], **{name: new})))


def _with(body: Body, k: int, *new: Stmt) -> Body:
    return (*body[:k], *new, *body[k + 1 :])


def _bound(rng: random.Random, body: Body, k: int) -> Body | None:
    """A loop that starts or ends one iteration too early or too late."""
    s = body[k]
    if not isinstance(s, For):
        return None
    by = rng.choice((-1, 1)) * rng.choice((1, s.step))
    return _with(body, k, replace(s, stop=s.stop + by) if rng.random() < 0.6 else replace(s, start=s.start + by))


def _tail(rng: random.Random, body: Body, k: int) -> Body | None:
    """A loop, block or condition that is missing after another one."""
    del rng
    return _with(body, k) if k and isinstance(body[k], For | Block | If) else None


def _order(rng: random.Random, body: Body, k: int) -> Body | None:
    """Two neighbours in the wrong order."""
    del rng
    return (*body[:k], body[k + 1], body[k], *body[k + 2 :]) if k + 1 < len(body) else None


def _overlap(rng: random.Random, body: Body, k: int) -> Body | None:
    """Blocks that overlap, or leave something out between them."""
    s = body[k]
    if not isinstance(s, For) or s.step == 1:
        return None
    return _with(body, k, replace(s, step=s.step + rng.choice((-1, 1))))


def _parallel(rng: random.Random, body: Body, k: int) -> Body | None:
    """A loop that is marked parallel."""
    del rng
    s = body[k]
    return _with(body, k, replace(s, parallel=True)) if isinstance(s, For) and not s.parallel else None


def _subscript(rng: random.Random, body: Body, k: int) -> Body | None:
    """A subscript that is off by one."""
    s, by = body[k], rng.choice((-1, 1))
    if isinstance(s, Store) and rng.random() < 0.5:
        return _with(body, k, replace(s, at=s.at + by))
    if not isinstance(s, Let | Set | Store):
        return None
    loads = [e for e in _parts(s.value) if isinstance(e, Load)]
    if not loads:
        return None
    chosen = rng.choice(loads)
    moved = Load(chosen.param, (chosen.index[0] + by,))
    return _with(body, k, replace(s, value=_exchanged(s.value, chosen, moved)))


def _term(rng: random.Random, body: Body, k: int) -> Body | None:
    """A statement that is left out, or happens twice."""
    s = body[k]
    if not isinstance(s, Set | Store):
        return None
    return _with(body, k) if rng.random() < 0.7 else _with(body, k, s, s)


def _operand(rng: random.Random, body: Body, k: int) -> Body | None:
    """A variable in the place of another one."""
    s = body[k]
    if not isinstance(s, Let | Set | Store):
        return None
    used = [e for e in _parts(s.value) if isinstance(e, Local)]
    others = [x.local for x in body[:k] if isinstance(x, Let)]
    pairs = [(u, o) for u in used for o in others if o.name != u.name and (o.dtype, o.lanes) == (u.dtype, u.lanes)]
    if not pairs:
        return None
    old, new = rng.choice(pairs)
    return _with(body, k, replace(s, value=_exchanged(s.value, old, new)))


def _condition(rng: random.Random, body: Body, k: int) -> Body | None:
    """A condition that holds for one more or one less."""
    s = body[k]
    if not isinstance(s, If):
        return None
    compared = [e for e in _parts(s.condition) if isinstance(e, Apply) and e.fn in ("lt", "le", "gt", "ge")]
    if not compared:
        return None
    old = rng.choice(compared)
    new = Apply(old.fn, (old.args[0] + rng.choice((-1, 1)), old.args[1]))
    return _with(body, k, replace(s, condition=_exchanged(s.condition, old, new)))


KINDS: Mapping[str, Change] = {
    "a bound off by one": _bound,
    "a missing tail": _tail,
    "a swapped order": _order,
    "an overlap": _overlap,
    "a wrong parallel mark": _parallel,
    "a subscript off by one": _subscript,
    "a term left out or doubled": _term,
    "another operand": _operand,
    "a condition off by one": _condition,
}


def _parts(e: Expr) -> Iterator[Expr]:
    yield e
    match e:
        case Apply(_, args):
            for a in args:
                yield from _parts(a)
        case Lanes(first, _):
            yield from _parts(first)
        case _:
            pass


def _exchanged(e: Expr, old: Expr, new: Expr) -> Expr:
    """An expression with every part that is `old` replaced."""
    if e == old:
        return new
    match e:
        case Apply(fn, args):
            return Apply(fn, tuple(_exchanged(a, old, new) for a in args))
        case Lanes(first, lanes):
            found = _exchanged(first, old, new)
            return Lanes(found, lanes) if isinstance(found, Load) else e
        case _:
            return e


class Oracle:
    """Says which faults of a kernel's loops change anything."""

    def __init__(self, kernel: Kernel, program: LoopProgram) -> None:
        """Of loops without a fault."""
        self._program = program
        self._runs = [(args, run_loops(in_double(program), args)) for args in (_whole(kernel, s) for s in (1, 2))]

    def changes(self, fault: Fault) -> bool:
        """Whether the results are others, loops do what C leaves undefined, or parallel iterations meet."""
        if fault.kind == "a wrong parallel mark":
            return self._meet(fault.program)
        for args, want in self._runs:
            try:
                found = run_loops(in_double(fault.program), args)
            except LoopFault:
                return True
            if not all(_same(a, b) for a, b in zip(found, want, strict=True)):
                return True
        return False

    def _meet(self, program: LoopProgram) -> bool:
        """Whether iterations of the loop that is marked touch what another one writes, or assign to one variable."""
        (loop,) = (s for s in walk_stmts(program.body) if isinstance(s, For) and s.parallel)
        inside = list(walk_stmts(loop.body))
        declared = {s.local.name for s in inside if isinstance(s, Let)}
        if any(isinstance(s, Set) and s.local.name not in declared for s in inside):
            return True
        args, _ = self._runs[0]
        given = {p.name: np.ravel(np.asarray(a, p.storage.numpy)) for p, a in zip(program.params, args, strict=True)}
        empty = {r.name: np.zeros(r.type.capacity, r.storage.numpy) for r in program.results}
        empty |= {b.name: np.zeros(b.size, b.dtype.numpy) for b in program.buffers}
        dtypes = {p.name: p.dtype for p in (*program.params, *program.results, *program.buffers)}
        stored = {p.name: p.stored for p in (*program.params, *program.results) if p.stored is not None}
        memory = _Noting(given, empty)
        _InOrder(memory, dtypes, stored, loop).start(program.body)
        return memory.met


class _Noting(Memory):
    """Notes the elements that each iteration reads and writes, as sets."""

    def __init__(self, given: Mapping[str, Array], empty: Mapping[str, Array]) -> None:
        super().__init__(given, empty)
        self._shared = frozenset(empty)
        self.noting = self.met = False
        self.reads: list[set[tuple[str, int]]] = []
        self.writes: list[set[tuple[str, int]]] = []

    def read(self, name: str, spots: Array) -> Array:
        if self.noting and name in self._shared:
            self.reads[-1].update((name, int(i)) for i in spots.ravel())
        return super().read(name, spots)

    def write(self, name: str, spots: Array, values: Array) -> None:
        if self.noting:
            self.writes[-1].update((name, int(i)) for i in spots.ravel())
        super().write(name, spots, values)

    def judge(self) -> None:
        """Compare the iterations of one run of the loop with each other."""
        writers: dict[tuple[str, int], int] = {}
        for k, written in enumerate(self.writes):
            self.met |= any(writers.setdefault(element, k) != k for element in written)
        for k, read in enumerate(self.reads):
            self.met |= any(writers.get(element, k) != k for element in read)
        self.reads, self.writes = [], []


class _InOrder(Machine):
    """Runs one loop, and those around it, in order, and tells memory of its iterations."""

    def __init__(self, memory: _Noting, dtypes: dict[str, Any], stored: Mapping[str, Any], watched: For) -> None:
        super().__init__(memory, dtypes, stored)
        self._noted, self._watched = memory, watched

    def iterate(self, s: For, at: Values, start: Array, counts: Array) -> None:
        if not any(x is self._watched for x in walk_stmts((s,))):
            super().iterate(s, at, start, counts)
            return
        for k in range(int(counts.max())):
            if s is self._watched:
                self._noted.noting = True
                self._noted.reads.append(set())
                self._noted.writes.append(set())
            self.in_order(s, at, start + k * s.step, np.clip(counts - k, 0, 1))
        if s is self._watched:
            self._noted.noting = False
            self._noted.judge()


def _whole(kernel: Kernel, seed: int) -> list[Array]:
    """Operands whose floating-point numbers are whole, and different enough that mistakes show."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-99, 100, p.shape).astype(p.dtype.numpy) if p.dtype.is_float else a
        for p, a in zip(kernel.params, samples(kernel, seed), strict=True)
    ]


def _same(got: Array, want: Array) -> bool:
    if want.dtype.kind != "f":
        return bool(np.array_equal(got, want))
    scale = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0))
    return bool(np.allclose(got, want, rtol=1e-10, atol=1e-13 * scale, equal_nan=True))
