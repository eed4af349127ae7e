"""The kernel language by brute force: plain loops over every point, written apart from the compiler.

Semantics: an index has, per statement, the smallest interval that its subscripts allow when each is read alone with
every other index at 0 or above. Where a subscript of the left side's indices alone lies outside of its tensor, nothing
is written. A term is summed over its own indices that the left side lacks; points at which one of its references lies
outside add nothing. The whole right side is computed before the tensor changes.

Values may be of any numeric type, numpy rows included, which is how many perturbed runs cost one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

from tests.frontend_kernel.small_language import (
    Bin,
    Case,
    Group,
    Num,
    Ref,
    Statement,
    Tree,
    Var,
    refs,
    terms,
    variables,
)

Point: TypeAlias = Mapping[str, int]
Interval: TypeAlias = tuple[float, float]
Values: TypeAlias = Mapping[str, Sequence[Any]]
"""Name → elements in row-major order."""

_NATURAL: Interval = (0, math.inf)


class Unbounded(ValueError):
    """An index whose range no subscript bounds."""


def run(case: Case, inputs: Values) -> dict[str, list[Any]]:
    """The outputs for these inputs. What is no input starts at 0."""
    state: dict[str, list[Any]] = {name: [0] * math.prod(shape) for name, shape in case.shapes.items()}
    state |= {name: list(inputs[name]) for name in case.ins}
    for statement in case.statements:
        state[statement.left.name] = _assign(statement, state, ranges(statement))
    return {name: state[name] for name in case.outs}


def _assign(statement: Statement, state: Values, spans: Mapping[str, range]) -> list[Any]:
    left = statement.left
    new = list(state[left.name])
    place = place_of(left)
    own = variables(left)
    guards = [_place_of_part(r, own) for r in refs(statement.right)]
    parts = [(sign, *_term(term, state, own)) for sign, term in terms(statement.right)]
    for point in _points(own, spans):
        at = place(point)
        if at is None or any(guard(point) is None for guard in guards):
            continue
        total: Any = 0
        for sign, inner, value in parts:
            for p in _points(inner, spans, point):
                v = value(p)
                if v is not None:
                    total = total + v if sign > 0 else total - v
        new[at] = total
    return new


def _points(names: Sequence[str], spans: Mapping[str, range], outer: Point | None = None) -> Iterator[dict[str, int]]:
    for values in product(*(spans[n] for n in names)):
        yield {**(outer or {}), **dict(zip(names, values, strict=True))}


def _term(term: Tree, state: Values, own: Sequence[str]) -> tuple[tuple[str, ...], Callable[[Point], Any]]:
    """Indices that the term sums over, and its value at a point; None where it has none."""
    found = list(refs(term))
    places = [place_of(r) for r in found]
    inner = tuple(v for v in variables(term) if v not in own)
    numbers = {r: n for n, r in enumerate(found)}
    compute = _value(term, numbers)

    def value(point: Point) -> Any:
        read: list[Any] = []
        for ref, place in zip(found, places, strict=True):
            at = place(point)
            if at is None:
                return None
            read.append(state[ref.name][at])
        return compute(read)

    return inner, value


def _value(tree: Tree, numbers: Mapping[Ref, int]) -> Callable[[Sequence[Any]], Any]:
    match tree:
        case Num(number):
            return lambda _: number
        case Ref():
            n = numbers[tree]
            return lambda read: read[n]
        case Group(inner):
            return _value(inner, numbers)
        case Bin(op, left, right):
            f, a, b = _OPERATORS[op], _value(left, numbers), _value(right, numbers)
            return lambda read: f(a(read), b(read))
        case Var():
            raise ValueError(f"index {tree.name} outside of subscripts")


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def _subscript(tree: Tree) -> Callable[[Point], int]:
    match tree:
        case Num(number):
            value = int(number)
            return lambda _: value
        case Var(name):
            return lambda point: point[name]
        case Group(inner):
            return _subscript(inner)
        case Bin(op, left, right):
            f, a, b = _OPERATORS[op], _subscript(left), _subscript(right)
            return lambda point: f(a(point), b(point))
        case Ref():
            raise ValueError(f"{tree.name} as a subscript")


def place_of(ref: Ref) -> Callable[[Point], int | None]:
    """Number of the element at a point; None outside of the tensor."""
    subscripts = [(_subscript(e), d) for e, d in zip(ref.index or (), ref.shape, strict=ref.index is not None)]

    def place(point: Point) -> int | None:
        at = 0
        for e, d in subscripts:
            k = e(point)
            if not 0 <= k < d:
                return None
            at = at * d + k
        return at

    return place


def _place_of_part(ref: Ref, own: Sequence[str]) -> Callable[[Point], int | None]:
    """`place_of`, of the subscripts that have no indices but these."""
    pairs = zip(ref.index or (), ref.shape, strict=ref.index is not None)
    kept = [(e, d) for e, d in pairs if set(variables(e)) <= set(own)]
    return place_of(Ref(ref.name, tuple(d for _, d in kept), tuple(e for e, _ in kept)))


def ranges(statement: Statement) -> dict[str, range]:
    """Every index of a statement with its values.

    Raises:
        Unbounded: no subscript says where an index ends.
    """
    found: dict[str, Interval] = {}
    for ref in refs(Bin("=", statement.left, statement.right)):
        for e, d in zip(ref.index or (), ref.shape, strict=ref.index is not None):
            for name in variables(e):
                found.setdefault(name, _NATURAL)
            for name, (low, high) in _implied(e, (0, d - 1)):
                found[name] = (max(found[name][0], low), min(found[name][1], high))
    for name, (_, high) in found.items():
        if high == math.inf:
            raise Unbounded(name)
    return {name: range(int(low), int(high) + 1) for name, (low, high) in found.items()}


def _implied(e: Tree, within: Interval) -> Iterator[tuple[str, Interval]]:
    """What `e` within an interval says of each index, the others being anything from 0 on."""
    parts, constant = _linear(e)
    for part, factor in parts.items():
        others = [_scaled(_default(p), k) for p, k in parts.items() if p != part]
        low = within[0] - constant - sum(high for _, high in others)
        high = within[1] - constant - sum(low for low, _ in others)
        if factor < 0:
            low, high = -high, -low
        k = abs(factor)
        span = (_up(low, k), _down(high, k))
        match part:
            case Var(name):
                yield name, span
            case Bin("//", inner, Num(c)):
                yield from _implied(inner, (span[0] * c, span[1] * c + c - 1))
            case _:
                pass  # a remainder says nothing of what it is a remainder of


def _linear(e: Tree) -> tuple[dict[Tree, int], int]:
    """`e` as a sum of factors times indices, quotients and remainders, and a constant."""
    match e:
        case Num(value):
            return {}, int(value)
        case Group(inner):
            return _linear(inner)
        case Bin("+" | "-" as op, left, right):
            (parts, a), (more, b) = _linear(left), _linear(right)
            sign = 1 if op == "+" else -1
            for part, factor in more.items():
                parts[part] = parts.get(part, 0) + sign * factor
            return {p: k for p, k in parts.items() if k}, a + sign * b
        case Bin("*", left, right):
            (parts, a), (more, b) = _linear(left), _linear(right)
            if parts and more:
                raise ValueError("a product of indices")
            factor = b if parts else a
            return {p: k * factor for p, k in (parts or more).items() if factor}, a * b
        case Bin("//" | "%" as op, left, right):
            parts, a = _linear(left)
            if not parts:
                return {}, int(_OPERATORS[op](a, _linear(right)[1]))
            return {Bin(op, left, Num(_linear(right)[1])): 1}, 0
        case _:
            return {e: 1}, 0


def _default(part: Tree) -> Interval:
    match part:
        case Bin("%", _, Num(c)):
            return 0, c - 1
        case _:
            return _NATURAL


def _scaled(span: Interval, k: int) -> Interval:
    low, high = (0.0 if v == 0 else v * k for v in span)
    return (low, high) if k > 0 else (high, low)


def _up(value: float, k: int) -> float:
    return value if math.isinf(value) else -(-int(value) // k)


def _down(value: float, k: int) -> float:
    return value if math.isinf(value) else int(value) // k
