"""An expression for several neighbouring points of one axis at once.

    f(x[i + 0]), …, f(x[i + n-1])   →   f(Lanes(x[i], n))       for loads that move by one element per step of the axis,
                                                                or by a word of packed ones

Rounding to a narrow type, f32(f16(x)), is a function like others; a load of what is stored in one has its value's type.
Loads that do not move are scalars, repeated in every lane. Anything else has no vector form here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from dlc.base.types import DType, i8, i32, u8
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, substitute
from dlc.kernel.loops.program import Lanes, Local
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.simplify import linear, simplify

Known = dict[tuple[object, ...], "Expr | None"]
"""Forms of loads that were found before, by the load and what its axes were replaced by."""
NO_WORDS: Mapping[str, int] = MappingProxyType({})
"""No tensor is packed."""


def vectorise(
    e: Expr,
    mapping: Mapping[Expr, Expr],
    lane: Axis,
    dtypes: Mapping[str, DType],
    dtype: DType,
    known: Known | None = None,
    words: Mapping[str, int] = NO_WORDS,
    apart: bool = False,
) -> Expr | None:
    """The flat expression `e` after `mapping`, for all values of the axis `lane` at once.

    Args:
        e: A flat expression.
        mapping: What replaces the axes of `e`; `lane` may occur in the replacements, its extent is the lane count.
        lane: The axis whose values become lanes.
        dtypes: Element types of the tensors.
        dtype: The type that every vector has.
        known: Remembers loads from call to call, where the mappings replace axes only: in a tile of r rows and v
            vectors there are r·v products of r + v different loads.
        words: Packed tensors, with the elements of a word of 32 bits: neighbouring words may be read as well.
        apart: Whether every second element may be read.

    Returns:
        An expression without `lane`; a scalar when `e` does not depend on it; None when there is no vector form.
    """
    match e:
        case Const():
            return e
        case Local():
            found = mapping.get(e, e)
            return found if not isinstance(found, Local) or found.dtype == dtype else None
        case Load(name, (at,)):
            if dtypes[name] != dtype:
                return None
            if known is None:
                return neighbours(name, at, mapping, lane, words.get(name, 1), apart)
            key = (name, at, *map(mapping.get, _axes_in(at)))
            if key not in known:
                known[key] = neighbours(name, at, mapping, lane, words.get(name, 1))
            return known[key]
        case Apply(fn, (Apply(narrow, (x,)),)) if SCALARS[fn].to is dtype and _rounds(narrow, dtype):
            part = vectorise(x, mapping, lane, dtypes, dtype, known, words, apart)
            return None if part is None else Apply(fn, (Apply(narrow, (part,)),))
        case Apply("i32", (Load(name, (at,)),)) if dtype is i32 and dtypes[name] in (i8, u8):
            part = neighbours(name, at, mapping, lane)
            return None if part is None else Apply("i32", (part,))
        case Apply(fn, args) if has_vectors(fn, dtype):
            parts = [vectorise(a, mapping, lane, dtypes, dtype, known, words, apart) for a in args]
            return None if any(p is None for p in parts) else Apply(fn, tuple(p for p in parts if p is not None))
        case _:
            return None


_axes_in = lru_cache(maxsize=1 << 12)(axes_in)  # of a tile's loads, asked for each of its vectors


def _rounds(fn: str, dtype: DType) -> bool:
    """Whether a function rounds values of a type to a narrow float that is computed with in this type."""
    to = SCALARS[fn].to
    return to is not None and SCALARS[fn].rule == "cast" and to.is_float and to.narrow and to.compute is dtype


def has_vectors(fn: str, dtype: DType) -> bool:
    """Whether a function of vectors of this element type exists."""
    lanes = SCALARS[fn].lanes
    if dtype is i32:
        return fn in ("add", "mul")
    return dtype.is_float if lanes == "float" else dtype.name == lanes


def neighbours(
    name: str, at: Expr, mapping: Mapping[Expr, Expr], lane: Axis, word: int = 1, apart: bool = False
) -> Expr | None:
    """Neighbouring elements, every second one if `apart`, one for all lanes; None when they are further apart.

    Lanes may also be elements of neighbouring words, which hold `word` of them each, at the same place in each.
    """
    spot = substitute(at, mapping)
    match spot:
        case Apply("add", (Apply() as data, plain)) if data.has_load and not axis_inside(data, lane):
            start, spot = data, plain  # what data says where, and how far from there
        case _:
            start = None
    form = linear(spot)
    if form is None or any(atom != lane and axis_inside(atom, lane) for atom, _ in form.terms):
        return None if axis_inside(spot, lane) else Load(name, (_behind(start, simplify(spot)),))
    first, coefficient = form.without(lane).expr(), form.coefficient(lane)
    place = Load(name, (_behind(start, first),))
    match coefficient:
        case 0:
            return place
        case 1:
            return Lanes(place, lane.extent)
        case step if step == word and start is None and isinstance(simplify(first % word), Const):
            return Lanes(place, lane.extent, step)
        case 2 if apart:
            return Lanes(place, lane.extent, 2)
        case _:
            return None


def _behind(start: Expr | None, e: Expr) -> Expr:
    return e if start is None else apply("add", start, e)


def has_lanes(e: Expr) -> bool:
    """Whether an expression is a vector."""
    match e:
        case Lanes():
            return True
        case Local(_, _, n):
            return n > 1
        case Apply(_, args):
            return any(has_lanes(a) for a in args)
        case _:
            return False
