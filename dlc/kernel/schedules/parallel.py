"""Which loops of a group threads share: those whose iterations are independent, where that saves more than it costs.

    for n: for y: s      →      for n parallel own (tile0): for y: s

Marking a loop changes nothing that is computed: results are the same to the bit for every number of threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from dlc.kernel.expr import Apply, Expr, Load, apply, axes_in
from dlc.kernel.loops.accesses import most_iterations
from dlc.kernel.loops.independent import defined_first, grain, own_buffers
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Let,
    Local,
    Set,
    Stmt,
    Store,
    exprs_of,
    subexpressions,
    walk_stmts,
)
from dlc.kernel.schedules.choice import NONE, Applied, Choice, Place
from dlc.kernel.schedules.estimate import Sizes, estimate, sizes_of
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.simplify import is_index, linear, simplify

REGION: Final = 12_000.0
"""Cycles that a parallel loop must save, about 4 us. Handing ranges to threads that look for work takes 0.6 us of these
(measured with loops of 9 us); the rest is for data that another core's cache holds, and for threads that sleep."""
HANDED: Final = 3_000.0
"""Cycles that a parallel loop takes besides its iterations each time that it runs again, its threads awake."""
SMALL: Final = 1 / 8
"""Of the cycles of the longest loop of a name, what others of that name take at least that are shared with it."""


def shared(found: Applied, wanted: Choice, place: Place) -> Applied:
    """A group's loops with those marked whose iterations threads share.

    Args:
        found: The loops.
        wanted: The choice that they come from: its `parallel` says which loops, or leaves it open.
        place: The group.

    Raises:
        Unfit: a loop that is wanted does not exist, or its iterations are not independent.
    """
    machine = place.machine
    if wanted.parallel in ((), NONE) and (machine.threads == 1 or wanted.parallel):
        return replace(found, choice=replace(found.choice, parallel=wanted.parallel))
    if machine.threads == 1:
        raise Unfit("there is one thread, and no loop to be shared")
    local = {b.name for b in found.buffers}
    if place.scope is not None:
        local |= set(place.scope.narrow) - set(place.scope.scalars)
    marks = _Marks(local, sizes_of(place.kernel, found.buffers), machine)
    names: Collection[str] = wanted.parallel
    if names:
        body, marked = marks.marked(found.body, wanted.parallel)
        for name in wanted.parallel:
            if name not in marked:
                raise Unfit(f"there is no loop {name} that threads may share")
    else:
        names = dict.fromkeys(marks.chosen(found.body))
        body, marked = marks.marked(found.body, names)
    names = wanted.parallel or tuple(n for n in names if n in marked)
    return replace(found, body=body, choice=replace(found.choice, parallel=names))


class _Marks:
    """Loops of one group; what was found of each is kept, because whoever chooses asks more than once."""

    def __init__(self, local: Collection[str], sizes: Sizes, machine: Machine) -> None:
        self._local, self._sizes, self._machine = local, sizes, machine
        self._own: dict[int, tuple[str, ...] | None] = {}
        self._cycles: dict[int, float] = {}

    def own(self, loop: For) -> tuple[str, ...] | None:
        """As `own_buffers`; None also for a loop of one iteration, and one that compilers may round in two ways."""
        if id(loop) not in self._own:
            fits = (_iterations(loop) or 0) > 1 and (self._machine.ordered or not _rounds_in_two_ways(loop))
            self._own[id(loop)] = own_buffers(loop, self._local) if fits else None
        return self._own[id(loop)]

    def marked(self, body: tuple[Stmt, ...], names: Collection[str]) -> tuple[tuple[Stmt, ...], set[str]]:
        """Statements with the outermost loops of these names marked that may be, and the names of those.

        None are where statements between them need what the loops would have to themselves.
        """
        marked, found = self._marked(body, names, self._least(body, names))
        own = {name for s in walk_stmts(marked) if isinstance(s, For) for name in s.own}
        return (marked, found) if all(defined_first(marked, name) for name in own) else (body, set())

    def _least(self, body: tuple[Stmt, ...], names: Collection[str]) -> Mapping[str, float]:
        """The least cycles of a loop that is marked, by its name: loops inside of others may have the same name."""
        loops = [s for s in walk_stmts(body) if isinstance(s, For) and s.axis.name in names]
        longest: dict[str, float] = {}
        for s in loops if len(loops) > len(names) else ():
            longest[s.axis.name] = max(longest.get(s.axis.name, 0.0), self.cycles(s))
        return {name: SMALL * cycles for name, cycles in longest.items()}

    def _marked(
        self, body: tuple[Stmt, ...], names: Collection[str], least: Mapping[str, float]
    ) -> tuple[tuple[Stmt, ...], set[str]]:
        out: list[Stmt] = []
        found: set[str] = set()
        for s in body:
            match s:
                case For(axis) if (
                    axis.name in names
                    and (own := self.own(s)) is not None
                    and (axis.name not in least or self.cycles(s) >= least[axis.name])
                ):
                    found.add(axis.name)
                    s = replace(s, parallel=True, own=own)
                case For(_, _, _, inner) | Block(inner):
                    inner, more = self._marked(inner, names, least)
                    s, found = replace(s, body=inner), found | more
                case If(_, then, otherwise):
                    then, a = self._marked(then, names, least)
                    otherwise, b = self._marked(otherwise, names, least)
                    s, found = replace(s, then=then, otherwise=otherwise), found | a | b
                case _:
                    pass
            out.append(s)
        return tuple(out), found

    def chosen(self, body: tuple[Stmt, ...]) -> tuple[str, ...]:
        """Names of the loops to share: what takes least, of statements where that saves enough."""
        found = [self._saved(s) for s in body if self.cycles(s) > 2 * REGION]
        return tuple(name for saved, names in found if saved + HANDED > REGION for name in names)

    def _saved(self, s: Stmt) -> tuple[float, tuple[str, ...]]:
        """(cycles that sharing saves, names of the loops): the most that there is."""
        match s:
            case For(axis, _, _, body) if (alone := self.cycles(s)) > 2 * HANDED:
                count, threads = _iterations(s) or 1, self._machine.parallelism
                inside, names = self._all_saved(body)
                # Loops inside count as if they found nothing in the caches, however often they run.
                most_saved = alone * (1 - 1 / threads) - HANDED * count * len(names)
                best = max((0.0, ()), (min(inside * count, most_saved), names), key=lambda x: x[0])
                most = -(-count // (threads * grain(s))) * grain(s)
                if alone * (1 - most / count) - HANDED > best[0] and self.own(s) is not None:
                    saved = alone - self._share(s, most) - self._exchanged(s) - HANDED
                    best = max(best, (saved, (axis.name,)), key=lambda x: x[0])
                return best
            case Block(body):
                return self._all_saved(body)
            case If(_, then, otherwise):
                return max(self._all_saved(then), self._all_saved(otherwise), key=lambda x: x[0])
            case _:
                return 0.0, ()

    def _all_saved(self, body: tuple[Stmt, ...]) -> tuple[float, tuple[str, ...]]:
        found = [each for s in body if (each := self._saved(s))[0] > 0]
        return sum(saved for saved, _ in found), tuple(name for _, names in found for name in names)

    def _share(self, loop: For, most: int) -> float:
        """What so many iterations take: what all of them read counts whole."""
        return estimate((replace(loop, stop=_first(loop, most)),), self._sizes, self._machine).cycles

    def _exchanged(self, loop: For) -> float:
        """What it takes others to read results of which each thread has written some between those of others.

        Where threads have parts one behind the other, most of what the next kernel's threads read is their own.
        """
        stores = (s for s in walk_stmts(loop.body) if isinstance(s, Store) and s.out not in self._local)
        scattered = {s.out for s in stores if s.out in self._sizes and _scattered(s.at, loop)}
        threads = self._machine.parallelism
        return sum(self._sizes[n][1] for n in scattered) * (1 - 1 / threads) / self._machine.memory_rate

    def cycles(self, s: Stmt) -> float:
        """What a statement takes on one thread."""
        if id(s) not in self._cycles:
            self._cycles[id(s)] = estimate((s,), self._sizes, self._machine).cycles
        return self._cycles[id(s)]


def _rounds_in_two_ways(loop: For) -> bool:
    """Whether compilers may round a statement in one way where the loop stands and in another in a function of its own.

    Of two products that are added they fuse either one with the sum. Products that are added to a variable they fuse
    with it, but not where they compute several products at once and add them in order.
    """
    statements = [s for s in walk_stmts(loop.body) if not isinstance(s, For)]
    products = {s.local.name for s in statements if isinstance(s, Let | Set) and _is_product(s.value, ())}
    return any(
        _sums_products(s, products) or any(_adds_two(e, products) for e in subexpressions(exprs_of(s)))
        for s in statements
    )


def _sums_products(s: Stmt, products: Collection[str]) -> bool:
    match s:
        case Set(local, Apply("add" | "sub", args)):
            return local.lanes == 1 and local in args and any(_is_product(a, products) for a in args)
        case Store(out, at, Apply("add" | "sub", args), lanes):
            return lanes == 1 and Load(out, (at,)) in args and any(_is_product(a, products) for a in args)
        case _:
            return False


def _adds_two(e: Expr, products: Collection[str]) -> bool:
    match e:
        case Apply("add" | "sub", args):
            return not is_index(e) and all(_is_product(a, products) for a in args)
        case _:
            return False


def _is_product(e: Expr, products: Collection[str]) -> bool:
    match e:
        case Apply("neg", (x,)):
            return _is_product(x, products)
        case Apply("mul", _):
            return not is_index(e)
        case Local(name, _, _):
            return name in products
        case _:
            return False


def _first(loop: For, count: int) -> Expr:
    """Where a loop stops after so many iterations."""
    return simplify(apply("min", loop.start + count * loop.step, loop.stop))


def _scattered(at: Expr, loop: For) -> bool:
    """Whether places of an iteration lie between those of others: a loop inside has larger steps."""
    form, inside = linear(at), {s.axis for s in walk_stmts(loop.body) if isinstance(s, For)}
    if form is None or not (step := abs(form.coefficient(loop.axis))):
        return False
    return any(abs(c) > step and inside & set(axes_in(e)) for e, c in form.terms)


def _iterations(loop: For) -> int | None:
    return most_iterations(loop.start, loop.stop, loop.step, loop.axis.extent)
