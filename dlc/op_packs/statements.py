"""The kernel language of op packs: statements over named dimensions, read once and instantiated for each op.

    statement := NAME '[' [place (',' place)*] ']' '=' value [ 'if' condition ]
    place     := axis [ '<' extent ] | ...
    value     := (sum | prod | max | min) '[' bound (',' bound)* ']' '(' expression ')' | expression
    bound     := axis [ '<' extent ]

Expressions are those of kernel text. Capital letters are dimensions of operands, axes are lower case. An axis without
an extent has that of the dimension that it subscribes. `...` stands for the dimensions that operands broadcast.
Where a condition is false, nothing is added to a reduction, and an element that nothing reduces is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc.base.lexer import MAX_DEPTH, Tokens
from dlc.base.types import Type, f32
from dlc.kernel.expr import SIZE, Axis, Expr, Load, apply, walk
from dlc.kernel.nest import Param, Reduce
from dlc.kernel.print import PRECEDENCE
from dlc.kernel.read_expr import LITERALS, ExprReader
from dlc.op_packs.dims import REST

REDUCTIONS: Final[Mapping[str, Reduce]] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
MAX_STATEMENTS: Final = 32
_OPEN: Final = 1 << 40
"""Extent of an axis until an instance knows it."""
REST_AXIS: Final = Axis(REST, _OPEN)


def symbol(name: str) -> Load:
    """A dimension or attribute in a template."""
    return Load(SIZE + name, ())


def axis(name: str) -> Axis:
    """An axis in a template."""
    return Axis(name, _OPEN)


@dataclass(frozen=True)
class Statement:
    """A statement whose axes have no extents yet.

    Attributes:
        target: Name of what it writes.
        places: Axes of the target, in order; `...` among them.
        bound: Axes that it reduces.
        extents: Those that the text says, by axis.
        offset: Where it begins in the text.
    """

    target: str
    places: tuple[str, ...]
    bound: tuple[str, ...]
    extents: Mapping[str, Expr]
    reduce: Reduce | None
    body: Expr
    where: Expr | None
    offset: int

    def exprs(self) -> tuple[Expr, ...]:
        """All expressions."""
        return (self.body, *self.extents.values(), *(() if self.where is None else (self.where,)))

    def reads(self) -> frozenset[str]:
        """Names of the tensors that are loaded, and of the dimensions and attributes that are used, with `SIZE`."""
        return frozenset(x.param for e in self.exprs() for x in walk(e) if isinstance(x, Load))


def read_condition(text: str, source: str, symbols: tuple[str, ...]) -> Expr:
    """A condition on dimensions and attributes. Raises DlcError with line and column in the text."""
    tokens = Tokens(text, source)
    found = _Reader(tokens, symbols, {}).expr()
    tokens.kind("end", "the end of the condition")
    return found


def read_statements(
    text: str, source: str, operands: Mapping[str, tuple[str | int, ...]], symbols: tuple[str, ...], result: str
) -> tuple[Statement, ...]:
    """The statements of a text, the last of which writes the result.

    Args:
        text: One or more statements.
        source: How messages call it.
        operands: Dimensions of the operands, as their types say.
        symbols: Dimensions, and attributes that are numbers.
        result: Name of the result.

    Raises:
        DlcError: syntax errors, unknown names, wrong numbers of subscripts: with line and column in the text.
    """
    tokens = Tokens(text, source)
    shapes = dict(operands)
    out: list[Statement] = []
    while tokens.current.kind != "end":
        start = tokens.current.offset
        if len(out) == MAX_STATEMENTS:
            raise tokens.fail(f"more than {MAX_STATEMENTS} statements", start, "divide the op into several")
        found = _Reader(tokens, symbols, shapes).statement()
        if found.target in shapes or found.target in symbols or found.target in LITERALS:
            raise tokens.fail(f"the name {found.target} is taken", start, "every statement writes a tensor of its own")
        shapes[found.target] = found.places
        out.append(found)
    if not out:
        raise tokens.fail("there is no statement", 0, f"write {result}[...] = …")
    for earlier in out[:-1]:
        if earlier.target == result:
            raise tokens.fail(f"{result} is the result and written before the end", earlier.offset)
        if not any(earlier.target in later.reads() for later in out):
            raise tokens.fail(f"{earlier.target} is written and never read", earlier.offset, "remove the statement")
    if out[-1].target != result:
        help = f"the last statement writes {result}, or name the result: `result: {out[-1].target}`"
        raise tokens.fail(f"the last statement writes {out[-1].target}, not {result}", out[-1].offset, help)
    return tuple(out)


class _Reader(ExprReader):
    """Reads one statement, or one condition."""

    def __init__(self, tokens: Tokens, symbols: tuple[str, ...], shapes: Mapping[str, tuple[str | int, ...]]) -> None:
        self._names: dict[str, Expr] = {name: symbol(name) for name in symbols}
        self._shapes = shapes
        tensors = {name: Param(name, Type(f32, (1,) * len(dims))) for name, dims in shapes.items()}
        super().__init__(tokens, self._names, tensors)

    def statement(self) -> Statement:
        """Consume one statement."""
        tokens = self._tokens
        target = tokens.kind("word", "a statement such as y[...] = x[...]")
        extents: dict[str, Expr] = {}
        places = tuple(tokens.listed("[", "]", lambda: self._bound(extents, rest=True)))
        tokens.expect("=")
        word = tokens.current.text
        reduce = REDUCTIONS[word] if word in REDUCTIONS and tokens.ahead == "[" and word not in self.tensors else None
        bound: tuple[str, ...] = ()
        if reduce:
            tokens.take()
            start = tokens.current.offset
            bound = tuple(tokens.listed("[", "]", lambda: self._bound(extents)))
            if not bound:
                raise tokens.fail("a reduction over no axis", start)
            tokens.expect("(")
            body = self.expr()
            tokens.expect(")")
            if tokens.current.text in PRECEDENCE:
                help = f"write the {word} into a tensor in a statement before this one"
                raise tokens.fail("a reduction is the whole right side of a statement", help=help)
        else:
            body = self.expr()
        where = self.expr() if tokens.accept("if") else None
        return Statement(target.text, places, bound, extents, reduce, body, where, target.offset)

    def _bound(self, extents: dict[str, Expr], rest: bool = False) -> str:
        """An axis, declared."""
        tokens = self._tokens
        if rest and tokens.peek(REST):
            word = tokens.take()
            if REST in self._names:
                raise tokens.fail("`...` occurs twice", word.offset)
            self._names[REST] = REST_AXIS
            return REST
        word = tokens.kind("word", "an axis")
        name = word.text
        if name in self._names or name in self.tensors or name in LITERALS or name != name.lower():
            help = "axes are lower case, and have names of their own"
            raise tokens.fail(
                f"the name {name} is taken" if name == name.lower() else f"{name} is not an axis", word.offset, help
            )
        if tokens.accept("<"):
            extents[name] = self._extent()
        self._names[name] = axis(name)
        return name

    def _extent(self) -> Expr:
        start = self._tokens.current.offset
        found = self.expr(PRECEDENCE["+"])
        if any(isinstance(x, Axis) or (isinstance(x, Load) and not x.param.startswith(SIZE)) for x in walk(found)):
            raise self._tokens.fail("an extent is made of dimensions, attributes and numbers", start)
        return found

    def atom(self, depth: int) -> Expr:
        """What kernel text has, the negative of anything, and `...`."""
        tokens = self._tokens
        if tokens.peek("-") and not (tokens.ahead == "inf" or tokens.ahead[:1].isdecimal() or tokens.ahead[:1] == "."):
            if depth > MAX_DEPTH:
                raise tokens.fail(f"expression nested deeper than {MAX_DEPTH}")
            tokens.take()
            return apply("neg", self.atom(depth + 1))
        if tokens.peek(REST):
            if REST not in self._names:
                raise tokens.fail("`...` is not among the subscripts of the left side")
            tokens.take()
            return REST_AXIS
        if tokens.current.text in REDUCTIONS and tokens.ahead == "[" and tokens.current.text not in self.tensors:
            help = "write it into a tensor in a statement before this one"
            raise tokens.fail("a reduction is the whole right side of a statement", help=help)
        return super().atom(depth)

    def element(self, name: str, depth: int) -> Expr:
        """An element of a tensor, with `...` where the tensor has it."""
        start = self._tokens.current.offset
        found = super().element(name, depth)
        assert isinstance(found, Load)
        dims = self._shapes[name]
        for dim, index in zip(dims, found.index, strict=True):
            if (dim == REST) != (index == REST_AXIS):
                shown = ", ".join(map(str, dims))
                raise self._tokens.fail(f"the subscripts of {name}[{shown}] have `...` where it has it", start)
        return found
