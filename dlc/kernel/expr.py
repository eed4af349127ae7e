"""Scalar expressions of a nest: constants, axes, loads and applied scalar functions.

`expr := Const | Axis | Load | Apply`. Construction through `apply` (and the operators, which call it) folds what is
known: `i * 1` is `i`, `0 + i` is `i`, integer constants combine. Floating-point algebra is never touched here, because
`x + 0` is not `x` for `x = -0.0` and `x * 0` is not `0` for NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

from dlc.base.budget import tick
from dlc.base.extents import Dim
from dlc.base.polynomials import Least, Quotient, Symbol, Terms

Number: TypeAlias = bool | int | float


class Expr:
    """Base of the four node kinds; gives the arithmetic operators."""

    __slots__ = ()

    def __add__(self, other: Expr | Number) -> Expr:
        return apply("add", self, other)

    def __radd__(self, other: Expr | Number) -> Expr:
        return apply("add", other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return apply("sub", self, other)

    def __rsub__(self, other: Expr | Number) -> Expr:
        return apply("sub", other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return apply("mul", self, other)

    def __rmul__(self, other: Expr | Number) -> Expr:
        return apply("mul", other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return apply("div", self, other)

    def __rtruediv__(self, other: Expr | Number) -> Expr:
        return apply("div", other, self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return apply("floordiv", self, other)

    def __mod__(self, other: Expr | Number) -> Expr:
        return apply("mod", self, other)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __lt__(self, other: Expr | Number) -> Expr:
        return apply("lt", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return apply("le", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return apply("gt", self, other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return apply("ge", self, other)

    def __and__(self, other: Expr | Number) -> Expr:
        return apply("and", self, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return apply("or", self, other)


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A literal. Its dtype is that of what it is combined with (a literal alone is i64, f32 or bool)."""

    value: Number

    # 1 == 1.0 == True and 0.0 == -0.0 in Python, but they are different literals here, and NaN equals itself.
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Const) or type(self.value) is not type(other.value):
            return False
        return self.value == other.value if type(self.value) is int else repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(self.value if self.value == self.value else "nan")  # Python hashes NaN by its address


@dataclass(frozen=True)
class Axis(Expr):
    """A loop variable: 0, 1, …, extent - 1.

    `limit`, where there is one, is an expression over sizes: the loop ends there, before `extent` at the latest. Only
    schedules know of it; kernels have guards.
    """

    name: str
    extent: int
    limit: Expr | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.name, self.extent, self.limit)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def stop(self) -> Expr:
        """Where the loop ends."""
        return Const(self.extent) if self.limit is None else self.limit

    def named(self, name: str) -> Axis:
        """The same loop under another name."""
        return Axis(name, self.extent, self.limit)


@dataclass(frozen=True)
class Load(Expr):
    """An element of a parameter, result or local of the kernel. Indices are integer expressions, one per dimension."""

    param: str
    index: tuple[Expr, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tick()
        object.__setattr__(self, "_hash", hash((self.param, self.index)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Load) or self._hash != other._hash:
            return False
        return self.param == other.param and self.index == other.index

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True)
class Apply(Expr):
    """A scalar function of `scalar.SCALARS` applied to arguments.

    Attributes:
        has_load: Whether any part is a load.
        text: How a canonical kernel spells it, or "" where `kernel.print` has not noted it.
    """

    fn: str
    args: tuple[Expr, ...]
    has_load: bool = field(init=False, repr=False, compare=False)
    text: str = field(init=False, repr=False, compare=False, default="")
    _hash: int = field(init=False, repr=False, compare=False)

    # Once, from the parts: expressions are trees with much sharing, which the default would walk at every look-up, and
    # chains of hundreds, on which it would recurse.
    def __post_init__(self) -> None:
        tick()
        found = False
        for a in self.args:
            if isinstance(a, Apply):
                found = found or a.has_load
            elif isinstance(a, Load):
                found = True
        object.__setattr__(self, "has_load", found)
        object.__setattr__(self, "_hash", hash((self.fn, self.args)))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Apply) or self._hash != other._hash:
            return False
        return self.fn == other.fn and self.args == other.args

    def __hash__(self) -> int:
        return self._hash


TRUE = Const(True)


def lift(value: Expr | Number) -> Expr:
    """A Python number as a literal; an expression as itself."""
    return value if isinstance(value, Expr) else size(value) if isinstance(value, Dim) else Const(value)


def size(extent: int | Dim) -> Expr:
    """An extent as an expression, an `i64`: symbols are loaded from scalar parameters of their names, within bounds."""
    if not isinstance(extent, Dim):
        return Const(extent)
    return _polynomial(extent.terms)


def _polynomial(terms: Terms) -> Expr:
    total: Expr = Const(0)
    for monomial, factor in terms:
        term: Expr = Const(factor)
        for atom in monomial:
            match atom:
                case Quotient(number, divisor):
                    term = apply("floordiv", _polynomial(number), divisor) * term
                case Least(a, b):
                    term = apply("min", _polynomial(a), _polynomial(b)) * term
                case _:
                    term = size_of(atom) * term
        total = total + term
    return total


def size_of(symbol: Symbol) -> Expr:
    """The units of a symbol. The clamps tell of its bounds wherever the expression is moved."""
    load = apply("floordiv", Load(SIZE + symbol.name, ()), symbol.unit)
    return apply("min", apply("max", load, symbol.low), symbol.high)


SIZE = "$"
"""First character of a parameter that holds the size of a symbol, until kernels name it by position."""


def _int(e: Expr) -> int | None:
    return e.value if isinstance(e, Const) and type(e.value) is int else None


_INTEGER_FOLDS: Mapping[str, Callable[[int, int], Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": min,
    "max": max,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def apply(fn: str, *arguments: Expr | Number) -> Expr:
    """`fn(arguments)` with integer literals folded and integer identities removed.

    Integer literals only ever meet index arithmetic or integer data, where these identities are exact.
    """
    if len(arguments) == 2:
        a, b = arguments
        return _binary(fn, a if isinstance(a, Expr) else lift(a), b if isinstance(b, Expr) else lift(b))
    args = tuple([a if isinstance(a, Expr) else lift(a) for a in arguments])
    match args:
        case (Const(True), then, _) if fn == "select":
            return then
        case (Const(False), _, otherwise) if fn == "select":
            return otherwise
        case _:
            return Apply(fn, args)


def _binary(fn: str, a: Expr, b: Expr) -> Expr:
    if not isinstance(a, Const) and not isinstance(b, Const):
        return Apply(fn, (a, b))
    x, y = _int(a), _int(b)
    if x is None and y is None and fn != "and":
        return Apply(fn, (a, b))
    if x is not None and y is not None:
        if fn in _INTEGER_FOLDS:
            return Const(_INTEGER_FOLDS[fn](x, y))
        if fn in ("floordiv", "mod") and y > 0:
            return Const(x // y if fn == "floordiv" else x % y)
    match fn, x, y:
        case ("add", 0, _) | ("mul", 1, _):
            return b
        case ("add" | "sub", _, 0) | ("mul" | "floordiv", _, 1):
            return a
        case ("add", _, int(k)) if isinstance(a, Apply) and a.fn == "add" and (c := _int(a.args[1])) is not None:
            return _binary("add", a.args[0], Const(c + k))
        case ("sub", _, int(k)):
            return _binary("add", a, Const(-k))
        case ("and", _, _) if TRUE in (a, b):
            return b if a == TRUE else a
        case _:
            return Apply(fn, (a, b))


def select(condition: Expr, then: Expr | Number, otherwise: Expr | Number) -> Expr:
    """`then` where the condition holds, else `otherwise`. Only the chosen branch may load (loads are guarded)."""
    return apply("select", condition, then, otherwise)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Conjunction of two optional guards; None means true."""
    if a is None or b is None:
        return b if a is None else a
    return apply("and", a, b)


def children(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions."""
    match e:
        case Apply(_, args):
            return args
        case Load(_, index):
            return index
        case _:
            return ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every sub-expression, parents before children, with an explicit stack so that depth is no limit."""
    stack = [e]
    while stack:
        e = stack.pop()
        yield e
        if isinstance(e, Apply):
            stack += e.args[::-1]
        elif isinstance(e, Load):
            stack += e.index[::-1]


def loads(e: Expr) -> Iterator[Load]:
    """Every load in the expression, in reading order."""
    return (x for x in walk(e) if isinstance(x, Load))


def axes_in(*exprs: Expr) -> tuple[Axis, ...]:
    """The axes that occur, each once, in reading order."""
    found: dict[Axis, None] = {}
    stack = list(exprs[::-1])
    while stack:  # as `walk`, which would hand over every part
        e = stack.pop()
        if isinstance(e, Apply):
            stack += e.args[::-1]
        elif isinstance(e, Axis):
            found[e] = None
        elif isinstance(e, Load):
            stack += e.index[::-1]
    return tuple(found)


def operands_of(fn: str, e: Expr) -> Iterator[Expr]:
    """What a function of two combines, from left to right: the factors for `mul`, the terms for `add`."""
    if isinstance(e, Apply) and e.fn == fn:
        for x in e.args:
            yield from operands_of(fn, x)
    else:
        yield e


def combined(fn: str, terms: Iterable[Expr]) -> Expr:
    """What a function of two makes of some terms, from left to right."""
    return reduce(lambda a, b: apply(fn, a, b), terms)


def substitute(e: Expr, mapping: Mapping[Any, Expr]) -> Expr:
    """Replace sub-expressions; unchanged parts are returned as the same objects."""
    if (found := mapping.get(e)) is not None:
        return found
    if isinstance(e, Apply):
        new = tuple([substitute(a, mapping) for a in e.args])
        return e if _same(new, e.args) else apply(e.fn, *new)
    if isinstance(e, Load):
        new = tuple([substitute(i, mapping) for i in e.index])
        return e if _same(new, e.index) else Load(e.param, new)
    return e


def map_loads(e: Expr, change: Callable[[Load], Expr]) -> Expr:
    """Replace every load by `change(load)`, innermost first (an index may itself load)."""
    match e:
        case Load(param, index):
            new = tuple([map_loads(i, change) for i in index])
            return change(e if _same(new, index) else Load(param, new))
        case Apply(fn, args):
            new = tuple([map_loads(a, change) for a in args])
            return e if _same(new, args) else apply(fn, *new)
        case _:
            return e


def _same(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return all(map(operator.is_, a, b))
