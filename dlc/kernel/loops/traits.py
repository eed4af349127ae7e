"""What is known of a loop before it runs: whether its iterations may be evaluated together.

They may not when one changes a variable in a way that the next sees, or when all write the same element. Variables that
every iteration only adds to, and the like, are no hindrance: `s = s + f(k)` is a sum over k.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Expr
from dlc.kernel.loops.program import Block, For, If, Let, Local, Set, Stmt, Store, exprs_of, parts, walk_stmts, writes

_COMBINING = frozenset({"add", "mul", "min", "max"})


@dataclass(frozen=True)
class Traits:
    """A loop's properties.

    Attributes:
        ordered: Iterations run one after another.
        writes: Tensors that are written.
        sums: Variables from outside that iterations combine values into, with the function that does it.
        locals: These variables by name.
        lanes: The most lanes of any vector inside.
        shares: Whether a parallel loop is inside: it runs for one iteration of this one at a time.
    """

    ordered: bool
    writes: frozenset[str]
    sums: Mapping[str, str]
    locals: Mapping[str, Local]
    lanes: int
    shares: bool = False


def traits(loop: For) -> Traits:
    """The properties of a loop, from its text alone."""
    inside = list(walk_stmts(loop.body))
    declared = {s.local.name for s in inside if isinstance(s, Let)}
    outer = [s for s in inside if isinstance(s, Set) and s.local.name not in declared]
    uses = Counter(e.name for s in inside for x in exprs_of(s) for e in _walk(x) if isinstance(e, Local))
    sums: dict[str, str] = {}
    ordered = False
    for s in outer:
        match s.value:
            case Apply(fn, (Local(name, _, _), _)) if name == s.local.name and fn in _COMBINING:
                ordered |= sums.setdefault(name, fn) != fn
            case _:
                ordered = True
    changes = Counter(s.local.name for s in outer)
    ordered = ordered or any(uses[name] != n for name, n in changes.items()) or _overwrites(loop)
    lanes = max((_lanes(s) for s in inside), default=1)
    shares = any(isinstance(s, For) and s.parallel for s in inside)
    return Traits(ordered, frozenset(writes(loop.body)), sums, {s.local.name: s.local for s in outer}, lanes, shares)


def _lanes(s: Stmt) -> int:
    match s:
        case Let(local, _) | Set(local, _):
            return local.lanes
        case Store(_, _, _, lanes):
            return lanes
        case _:
            return 1


def _overwrites(loop: For) -> bool:
    """Whether a statement stores to a place that does not move with the loop."""
    return bool(overwritten(loop))


def overwritten(loop: For) -> frozenset[str]:
    """Tensors with a store to a place that does not move with the loop."""
    return frozenset(name for name, moves in _stores(loop.body, frozenset({loop.axis.name})) if not moves)


def _stores(body: tuple[Stmt, ...], moving: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """For every store its tensor, and whether its place depends on one of the moving names."""
    for s in body:
        match s:
            case For(axis, start, _, inner, _):
                yield from _stores(inner, moving | {axis.name} if _depends(start, moving) else moving)
            case If(_, then, otherwise):
                yield from _stores(then, moving)
                yield from _stores(otherwise, moving)
            case Block(inner):
                yield from _stores(inner, moving)
            case Let(local, value) | Set(local, value):
                moving = moving | {local.name} if _depends(value, moving) else moving
            case Store(out, at, _, _):
                yield out, _depends(at, moving)
            case _:
                pass


def _depends(e: Expr, names: frozenset[str]) -> bool:
    return any(isinstance(x, Axis | Local) and x.name in names for x in _walk(e))


def _walk(e: Expr) -> Iterator[Expr]:
    stack, seen = [e], set[int]()
    while stack:
        x = stack.pop()
        yield x
        if id(x) not in seen:
            seen.add(id(x))
            stack.extend(parts(x))
