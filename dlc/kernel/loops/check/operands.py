"""Random operands for a kernel in the arithmetic of `residues`, and the sizes of a call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from dlc.base.extents import symbols, value
from dlc.base.types import Array, Type
from dlc.kernel.expr import Apply, Const, Expr, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check.modular import HALF, NAN, reduced, residue
from dlc.kernel.loops.check.order import COMPARING
from dlc.kernel.loops.check.terms import sorts
from dlc.kernel.loops.program import Block, For, If, LoopProgram, Stmt, Store
from dlc.kernel.nest import Nest
from dlc.kernel.simplify import conjuncts

_WIDE = 1000
"""Integers that are no subscripts lie between this and its negative, within their type."""
_NARROW = 4
"""Subscripts are below this number."""
_LARGE, _BEYOND = 96, 64
"""Of a size that nobody limits: how far above the least one it is tried, and how many rows lie in memory behind it."""


def operands(kernel: Kernel, sizes: Mapping[str, int], rng: np.random.Generator, draw: int) -> dict[str, Array]:
    """An array for every parameter: residues for floats, small numbers where integers may be subscripts.

    In odd draws, some residues lie near what they are compared with, and subscripts that a guard holds beyond its ends.
    """
    odd = draw % 2 == 1
    near, special = (_thresholds(kernel), _asked_for(kernel)) if odd else ([], [])
    below, ends = _subscripts(kernel), _guarded(kernel) if odd else {}
    found: dict[str, Array] = {}
    for p in kernel.params:
        if (symbol := p.type.symbol) is not None:
            found[p.name] = np.full(p.shape, sizes[symbol.name], p.dtype.numpy)
            continue
        shape = room(p.type, sizes)
        if p.dtype.is_float:
            found[p.name] = _residues(shape, rng, near, special)
        elif p.dtype.name == "bool":
            found[p.name] = rng.random(shape) < 0.5
        else:
            low, high = p.dtype.limits
            if p.name in ends:
                near_ends = (e + k for e in ends[p.name] for k in (-1, 0, 1))
                some = [k for k in {*near_ends, *range(below)} if low <= k <= high]
                found[p.name] = rng.choice(np.asarray(sorted(some)), shape).astype(p.dtype.numpy)
                continue
            low, high = (0, below) if below else (max(low, -_WIDE), min(high, _WIDE) + 1)
            found[p.name] = rng.integers(low, high, shape).astype(p.dtype.numpy)
    return found


def room(of: Type, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The room of a tensor; where nobody limits a size, which is outermost then, what a call needs, and some beyond."""
    if all(s.limited for s in symbols(*of.shape)):
        return of.room
    if of.dense:
        return (value(of.size, sizes),)
    return (value(of.shape[0], sizes) + _BEYOND, *of.room[1:])


def _residues(shape: tuple[int, ...], rng: np.random.Generator, near: list[float], special: list[float]) -> Array:
    """Random residues, half of them near literals where there are comparisons; an eighth are special ones."""
    found = rng.integers(-HALF, HALF + 1, shape).astype(np.float64)
    if near:
        chosen = rng.choice(np.asarray(near), shape) + rng.integers(-1, 2, shape)
        found = np.where(rng.random(shape) < 0.5, reduced(chosen), found)
    if special:
        which = rng.integers(0, 8 * len(special), shape)
        for k, r in enumerate(special):
            found = np.where(which == k, r, found)
    return found


def _asked_for(kernel: Kernel) -> list[float]:
    """NaN and infinities that a kernel asks for. They hide other elements, so only every second draw has some."""
    applied = {x.fn for n in kernel.nests for e in n.exprs() for x in walk(e) if isinstance(x, Apply)}
    asked = (("isnan", NAN), ("isinf", residue(np.inf)), ("isinf", residue(-np.inf)))
    return [r for fn, r in asked if fn in applied]


def _thresholds(kernel: Kernel) -> list[float]:
    """Residues of the literals of a kernel that compares: a random number seldom lies between two of them."""
    exprs = [x for n in kernel.nests for x in walk(n.body)]
    if not any(isinstance(x, Apply) and x.fn in COMPARING | _CHOOSING | _EXTREMES for x in exprs):
        return []
    literals = (float(x.value) for x in exprs if isinstance(x, Const))
    return sorted({0.0, *(residue(x) for x in literals if math.isfinite(x))})


def _subscripts(kernel: Kernel) -> int:
    """What integer operands must be below, as they are subscripts or compared with some; 0: they are not."""
    tensors = kernel.tensors
    extents = [_NARROW]
    found = False
    for nest in kernel.nests:
        places = [(nest.out, nest.index), *((name, x.index) for name, xs in nest.loads.items() for x in xs)]
        for name, index in places:
            for i, extent in zip(index, tensors[name].shape, strict=True):
                if any(isinstance(x, Load) and tensors[x.param].type.symbol is None for x in walk(i)):
                    found = True
                    extents.append(max(1, extent))
        guards = [] if nest.where is None else [nest.where]
        guards += [x for x in walk(nest.body) if isinstance(x, Apply) and x.fn in COMPARING]
        found |= any(isinstance(x, Load) and not tensors[x.param].dtype.is_float for g in guards for x in walk(g))
    return min(extents) if found else 0


def _guarded(kernel: Kernel) -> dict[str, set[int]]:
    """Integer operands that guards hold within tensors wherever they are in a subscript, with the ends of the guards.

    Only what lies outside shows an end that is wrong, and what a guard does not hold must not lie there.
    """
    tensors = kernel.tensors
    ends: dict[str, set[int]] = {}
    loose: set[str] = set()
    for nest in kernel.nests:
        held = _held(nest)
        places = [(nest.out, nest.index), *((name, x.index) for name, xs in nest.loads.items() for x in xs)]
        for name, index in places:
            for i, extent in zip(index, tensors[name].shape, strict=True):
                low, stop = held.get(i, (-1, extent + 1))
                integers = {x.param for x in walk(i) if isinstance(x, Load) and tensors[x.param].type.symbol is None}
                if low < 0 or stop > extent:
                    loose |= integers
                for p in integers:
                    ends.setdefault(p, set()).update((low, stop))
    return {p: found for p, found in ends.items() if p not in loose}


def _held(nest: Nest) -> dict[Expr, tuple[int, int]]:
    """Expressions that the guard of a nest holds between literals: the least value, and what they are below."""
    lows: dict[Expr, int] = {}
    stops: dict[Expr, int] = {}
    for part in conjuncts(nest.where):
        match part:
            case Apply("ge", (e, Const(int(low)))) | Apply("le", (Const(int(low)), e)):
                lows[e] = max(low, lows.get(e, low))
            case Apply("lt", (e, Const(int(stop)))) | Apply("gt", (Const(int(stop)), e)):
                stops[e] = min(stop, stops.get(e, stop))
            case _:
                pass
    return {e: (low, stops[e]) for e, low in lows.items() if e in stops}


_CHOOSING = frozenset({"select", "abs", "sign"})
_EXTREMES = frozenset({"min", "max"})
_MOST_DRAWS = 512


def runs_of_terms(kernel: Kernel, program: LoopProgram, most: int) -> int:
    """How often loops are to be run in the arithmetic of `terms`: where there are maxima and minima, and comparisons.

    A number that is compared shows there in every second element, in the true order in every third. Where a statement
    writes few, of a vector perhaps half are none of the result.
    """
    compared = not sorts(kernel) and any(
        x.fn in COMPARING and not _is_of_integers(kernel, x) for n in kernel.nests for x in _applied(n)
    )
    extremes = any(n.reduce in _EXTREMES or any(x.fn in _EXTREMES for x in _applied(n)) for n in kernel.nests)
    needed = math.ceil(24 / max(1, _fewest_written(program.body))) if compared else 0
    return max(int(extremes), min(needed, max(1, most // _points(kernel))))


def _is_of_integers(kernel: Kernel, e: Apply) -> bool:
    """Whether a comparison is one of integers, which terms compare as they are."""
    dtype = next((d for a in e.args if (d := kernel.dtype_of(a)) is not None), None)
    return dtype is not None and not dtype.is_float


def _applied(nest: Nest) -> list[Apply]:
    return [x for x in walk(nest.body) if isinstance(x, Apply)]


def draws(kernel: Kernel, program: LoopProgram, most: int) -> int:
    """How often loops are to be run on other operands, computing at most `most` values or once.

    A term that is missing from a maximum shows where it is the largest: where a statement writes one result of 5 terms,
    in one run of 5. Every term is to be the largest of some element in some even run, but for a chance of about e^-12.
    What `terms` tells about maxima of floating-point numbers needs no more runs.
    """
    needed = each = 2.0 if _thresholds(kernel) or _asked_for(kernel) or _guarded(kernel) else 1.0
    fewest = _fewest_written(program.body)
    for nest in kernel.nests:
        places = max(1, min(fewest, math.prod(kernel.tensors[nest.out].shape)))
        choosing = _CHOOSING
        if not kernel.tensors[nest.out].dtype.is_float:
            choosing |= _EXTREMES
            if nest.reduce in _EXTREMES:
                needed = max(needed, each * 12 * math.prod(a.extent for a in nest.reduction_axes) / places)
        if any(x.fn in choosing for x in _applied(nest)):
            needed = max(needed, 24 / places)
    return max(1, min(math.ceil(needed), _MOST_DRAWS, most // _points(kernel)))


def _points(kernel: Kernel) -> int:
    return max(1, sum(n.points for n in kernel.nests))


def _fewest_written(body: tuple[Stmt, ...]) -> float:
    """Elements that are written by the statement that writes the fewest; infinite without any."""
    found = math.inf
    for s in body:
        match s:
            case Store(_, _, _, lanes):
                found = min(found, lanes)
            case For(axis, start, stop, inner, step):
                ends = stop.value - start.value if isinstance(start, Const) and isinstance(stop, Const) else axis.extent
                found = min(found, max(1, -(-int(ends) // step)) * _fewest_written(inner))
            case If(_, then, otherwise):
                found = min(found, _fewest_written(then), _fewest_written(otherwise))
            case Block(inner):
                found = min(found, _fewest_written(inner))
            case _:
                pass
    return found


def sizes_to_check(kernel: Kernel, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """Sizes of the symbols of a kernel: the largest, the least, and some between; {} once where it has none.

    Of a symbol that nobody limits, `_LARGE` is the largest. Of a kernel that sorts, every magnitude is as probable as
    another, so that few are large.
    """
    named = [p.type.symbol for p in kernel.params if p.type.symbol is not None]
    found = {s.name: s for s in (*named, *symbols(*(d for t in kernel.tensors.values() for d in t.type.shape)))}
    if not found:
        yield {}
        return
    high = {name: s.high if s.limited else s.low + _LARGE for name, s in found.items()}
    yield {name: high[name] * s.unit for name, s in found.items()}
    yield {name: s.low * s.unit for name, s in found.items()}
    between, often = (_magnitude, 4) if sorts(kernel) else (_evenly, 2)
    for _ in range(often):
        yield {name: between(s.low, high[name], rng) * s.unit for name, s in found.items()}


def _evenly(low: int, high: int, rng: np.random.Generator) -> int:
    return int(rng.integers(low, high + 1))


def _magnitude(low: int, high: int, rng: np.random.Generator) -> int:
    """From `low` to `high`, of evenly distributed logarithms."""
    return min(high, low - 1 + int((high - low + 2) ** rng.random()))
