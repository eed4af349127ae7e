"""Nests that add to one tensor become few: equal spaces merge, and constant guards become ranges of the output.

    out[i] += f(i)                                       for i = 0..1:  out[i] = f(i)
    out[i] += g(i) if i >= 1 and i < n+1         →       for i = 1..n:  out[i] = f(i) + g(i)
    (0 <= i < n+1, f where i < n)                        for i = n..n+1: out[i] = g(i)

A gradient arrives as one nest per occurrence of a tensor. Cutting its space into boxes, in each of which the same terms
are active, leaves no test in any loop: Hückelheim et al., "Automatic differentiation for adjoint stencil loops", 2019.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product

from dlc.base.types import DType
from dlc.kernel.expr import Apply, Axis, Const, Expr, Number, apply, both
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.box import Box, commute, constant_box
from dlc.kernel.schedules.groups import is_product, plain_write
from dlc.kernel.simplify import conjuncts, simplify_guard, simplify_nest

MOST_BOXES = 4
"""Boxes per output, times 3 to the power of its rank: more would be more text than they save in tests."""
MOST_TERMS = 512
"""Terms of all boxes of an output, and of one merged body."""


@dataclass(frozen=True)
class _Sum:
    """A nest that stands for several: the bodies that it adds up, in order."""

    nest: Nest
    bodies: tuple[Expr, ...]


def tidy(nests: Sequence[Nest], tensors: Mapping[str, Param]) -> tuple[Nest, ...]:
    """Nests that leave the same in every tensor, up to the order of sums.

    Args:
        nests: In order. Those that add under plain left sides are what is looked at.
        tensors: What the nests name, at least everything that they write.
    """
    simple = [_positional(simplify_nest(n), tensors[n.out].shape) for n in nests]
    other = {n.out for n in simple if n.reduce not in (None, "add")}
    live = [n for n in simple if n.where != Const(False) or n.out in other]
    return _neighbours(_boxed(_merged(live, tensors), tensors))


def _neighbours(nests: Sequence[Nest]) -> tuple[Nest, ...]:
    """Assignments of different tensors over one box behind one another, where they can share their loops."""
    out: list[Nest] = []
    for nest in nests:
        place = len(out)
        for k in range(len(out) - 1, -1, -1) if nest.reduce is None else ():
            if not commute(out[k], nest):
                break
            if (out[k].reduce, out[k].axes, out[k].where) == (None, nest.axes, nest.where):
                place = k + 1
                break
        out.insert(place, nest)
    return tuple(out)


def _positional(nest: Nest, shape: tuple[int, ...]) -> Nest:
    """A nest with a plain left side under names that tell what its axes do, so that equal loops are equal."""
    if not plain_write(nest, shape):
        return nest
    names = {i: Axis(f"u{d}", i.extent) for d, i in enumerate(nest.index) if isinstance(i, Axis)}
    names |= {a: Axis(f"w{k}", a.extent) for k, a in enumerate(nest.reduction_axes)}
    nest = nest.substitute(names, tuple(names[a] for a in nest.axes))
    return replace(nest, where=simplify_guard(nest.where))


def _merged(nests: Sequence[Nest], tensors: Mapping[str, Param]) -> list[_Sum]:
    """Sums over equal spaces as one."""
    out: list[_Sum] = []
    for nest in nests:
        for place in range(len(out) - 1, -1, -1):
            joined = _joined(out[place], nest, tensors[nest.out].shape)
            if joined is not None:
                out[place] = joined
                break
            if not commute(out[place].nest, nest):
                out.append(_Sum(nest, (nest.body,)))
                break
        else:
            out.append(_Sum(nest, (nest.body,)))
    return [replace(s, nest=replace(s.nest, body=_total(s.bodies, tensors[s.nest.out].dtype))) for s in out]


def _joined(total: _Sum, nest: Nest, shape: tuple[int, ...]) -> _Sum | None:
    """The sum with the nest's body added, or None when it belongs to another loop."""
    first = total.nest
    if first.out != nest.out or not (first.reduce == nest.reduce == "add") or len(total.bodies) >= MOST_TERMS:
        return None
    if (first.index, first.reduction_axes) != (nest.index, nest.reduction_axes):
        return None
    if set(conjuncts(first.where)) != set(conjuncts(nest.where)):
        return None
    if first.out in nest.reads() | first.reads() or not plain_write(first, shape):
        return None
    if first.reduction_axes and not _may_share_loops(total.bodies, nest):
        return None
    return _Sum(first, (*total.bodies, nest.body))


def _may_share_loops(bodies: Sequence[Expr], nest: Nest) -> bool:
    """Products of a reduction keep their loops, in which they run as contractions, unless they are the same product."""
    same = all(monomial(b)[1] == monomial(nest.body)[1] for b in bodies)
    return same or not (is_product(nest) or any(is_product(replace(nest, body=b)) for b in bodies))


def monomial(e: Expr) -> tuple[Number, frozenset[tuple[Expr, int]], tuple[Expr, ...]]:
    """A product as its literal factor, its other factors as a multiset, and those in reading order."""
    factor: Number = 1
    found: list[Expr] = []
    stack = [e]
    while stack:
        match stack.pop():
            case Apply("mul", (x, y)):
                stack += [y, x]
            case Apply("neg", (x,)):
                factor = -factor
                stack.append(x)
            case Const(int() | float() as value) if type(value) is not bool and math.isfinite(value):
                factor = factor * value
            case atom:
                found.append(atom)
    return factor, frozenset(Counter(found).items()), tuple(found)


def _total(bodies: Sequence[Expr], dtype: DType) -> Expr:
    """The sum of bodies, equal terms counted: `a*b + b*a` is `2*(a*b)`."""
    if dtype.kind not in ("int", "float"):
        return _added(bodies)
    terms = [t for body in bodies for t in _terms(body)]
    like: dict[frozenset[tuple[Expr, int]], list[Expr]] = {}
    for term in terms:
        like.setdefault(monomial(term)[1], []).append(term)
    total: list[Expr] = []
    for equal in like.values():
        whole: Number = sum(monomial(t)[0] for t in equal)
        if len(equal) == 1 or not whole:
            total += equal
            continue
        factors = monomial(equal[0])[2]
        value = math.prod(factors[1:], start=factors[0]) if factors else None
        literal = Const(float(whole) if dtype.is_float else whole)
        total.append(literal if value is None else value if whole == 1 else apply("mul", literal, value))
    return _added(total)


def _terms(e: Expr) -> list[Expr]:
    """What a sum adds up, in reading order; a difference adds a negative."""
    found: list[Expr] = []
    stack = [(e, False)]
    while stack:
        x, negative = stack.pop()
        match x:
            case Apply("add", (a, b)):
                stack += [(b, negative), (a, negative)]
            case Apply("sub", (a, b)):
                stack += [(b, not negative), (a, negative)]
            case Apply("neg", (a,)):
                stack.append((a, not negative))
            case _:
                positive, odd = _unsigned(x)
                found.append(apply("neg", positive) if odd != negative else positive)
    return found


def _unsigned(e: Expr) -> tuple[Expr, bool]:
    """A product or quotient without the signs of its factors, and whether it is to be negated: exact in any type."""
    match e:
        case Apply("neg", (x,)):
            value, odd = _unsigned(x)
            return value, not odd
        case Apply("mul" | "div" as fn, (x, y)):
            (a, odd), (b, other) = _unsigned(x), _unsigned(y)
            return (e if (a, b) == (x, y) else apply(fn, a, b)), odd != other
        case _:
            return e, False


def _added(terms: Sequence[Expr]) -> Expr:
    """Terms added from left to right; many of them by halves, so that no expression is deeper than its reader."""
    if len(terms) > 16:
        half = len(terms) // 2
        return apply("add", _added(terms[:half]), _added(terms[half:]))
    total = terms[0]
    for t in terms[1:]:
        total = apply("sub", total, t.args[0]) if isinstance(t, Apply) and t.fn == "neg" else apply("add", total, t)
    return total


def _boxed(sums: Sequence[_Sum], tensors: Mapping[str, Param]) -> tuple[Nest, ...]:
    """Outputs whose writers are all sums of this form, element by element, assigned box by box."""
    nests = [s.nest for s in sums]
    out: list[Nest] = []
    assigned: dict[str, list[Nest] | None] = {}
    for k, nest in enumerate(nests):
        first = nest.out not in assigned
        if first:
            writers = [n for n in nests if n.out == nest.out]
            between = nests[k : max(j for j, n in enumerate(nests) if n.out == nest.out)]
            moved = all(commute(n, w) for n in between if n.out != nest.out for w in writers)
            assigned[nest.out] = _assigned(writers, tensors[nest.out]) if moved else None
        boxes = assigned[nest.out]
        out += [nest] if boxes is None else boxes if first else []
    return tuple(out)


def _assigned(writers: Sequence[Nest], param: Param) -> list[Nest] | None:
    """The writers of a tensor as assignments to disjoint boxes; None when they are of another form."""
    for n in writers:
        if n.reduce != "add" or n.reduction_axes or n.out in n.reads() or not plain_write(n, param.shape):
            return None
    first = replace(writers[0], axes=tuple(i for i in writers[0].index if isinstance(i, Axis)))
    ranges = [constant_box(first.axes, n.where) for n in writers]
    known = [r for r in ranges if r is not None]
    cut = _cut(known, first.axes) if len(known) == len(ranges) else None
    if cut is None:
        return [replace(first, reduce=None)] if len(writers) == 1 else None
    return [_box_nest(first, box, _total([writers[k].body for k in active], param.dtype)) for box, active in cut]


def _cut(ranges: Sequence[Box], axes: tuple[Axis, ...]) -> list[tuple[Box, tuple[int, ...]]] | None:
    """The space in boxes, each with the numbers of the ranges that contain it; None when there are too many."""
    marks = [sorted({0, a.extent, *(end for r in ranges for end in r[d])}) for d, a in enumerate(axes)]
    cells = [list(pairwise(m)) for m in marks]
    if math.prod(map(len, cells)) > MOST_BOXES * 3 ** len(axes):
        return None
    boxes: list[tuple[Box, tuple[int, ...]]] = []
    for box in product(*cells):
        active = tuple(
            k for k, r in enumerate(ranges) if all(a <= x < b for (x, _), (a, b) in zip(box, r, strict=True))
        )
        if active:
            boxes.append((box, active))
    for d in reversed(range(len(axes))):
        boxes = _joined_along(boxes, d)
    return boxes if sum(len(active) for _, active in boxes) <= MOST_TERMS else None


def _joined_along(boxes: Sequence[tuple[Box, tuple[int, ...]]], d: int) -> list[tuple[Box, tuple[int, ...]]]:
    """Neighbours along a dimension with the same terms as one box."""

    def others(entry: tuple[Box, tuple[int, ...]]) -> tuple[Box, tuple[int, ...]]:
        return entry[0][:d] + entry[0][d + 1 :], entry[1]

    out: list[tuple[Box, tuple[int, ...]]] = []
    for (rest, active), run in groupby(sorted(boxes, key=lambda e: (others(e), e[0][d])), key=others):
        spans: list[tuple[int, int]] = []
        for box, _ in run:
            if spans and spans[-1][1] == box[d][0]:
                spans[-1] = spans[-1][0], box[d][1]
            else:
                spans.append(box[d])
        out += [((*rest[:d], span, *rest[d:]), active) for span in spans]
    return sorted(out)


def _box_nest(first: Nest, box: Box, body: Expr) -> Nest:
    """One assignment for the elements of a box."""
    where: Expr | None = None
    for axis, (start, stop) in zip(first.axes, box, strict=True):
        where = both(where, axis >= start if start > 0 else None)
        where = both(where, axis < stop if stop < axis.extent else None)
    return replace(first, body=body, reduce=None, where=where)
