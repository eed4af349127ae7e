"""Compositions of ops in op packs: `x * sigmoid(scale(x, factor=beta))`, read once and applied to each op's operands.

    expression := term (('+' | '-') term)*      term := factor (('*' | '/') factor)*      factor := '-' factor | atom
    atom       := number | NAME | '(' expression (',' expression)* ')' | op '(' [argument (',' argument)*] ')'
    argument   := expression | NAME '=' value
    value      := expression of numbers | "text" | true | false | none | element type | '(' [value (',' value)*] ')'

A name is an operand, a dimension or an attribute. A number takes the element type of the operand beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from dlc.base.diagnostics import did_you_mean, nearest
from dlc.base.lexer import MAX_DEPTH, Token, Tokens
from dlc.base.types import DTYPES, DType, f32
from dlc.graph.op import Op
from dlc.kernel.define import ShapeError
from dlc.ops.elementwise import Add, Div, Mul, Neg, Sub
from dlc.ops.pointwise import scalar

_LEVELS: Final[Mapping[str, int]] = {"+": 1, "-": 1, "*": 2, "/": 2}
_OPS: Final[Mapping[str, Callable[[Op, Op], Op]]] = {"+": Add, "-": Sub, "*": Mul, "/": Div}
_NUMBERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
_WORDS: Final[Mapping[str, Any]] = {"true": True, "false": False, "none": None}

Node: TypeAlias = "Name | Literal | Tuple | Binary | Call"


@dataclass(frozen=True)
class Name:
    """An operand, dimension or attribute."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A value as it is written."""

    value: Any


@dataclass(frozen=True)
class Tuple:
    """Several values."""

    items: tuple[Node, ...]


@dataclass(frozen=True)
class Binary:
    """An operator between ops or numbers."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    """An op on operands, with attributes."""

    op: str
    operands: tuple[Node, ...]
    attributes: Mapping[str, Node]


@dataclass(frozen=True)
class Signature:
    """Names of the operands and attributes of an op."""

    operands: tuple[str, ...]
    attributes: tuple[str, ...]


@dataclass
class Names:
    """What a composition may name, and what it did."""

    values: tuple[str, ...]
    """Operands, dimensions, attributes."""
    ops: Mapping[str, Signature]
    used: set[str] = field(default_factory=set[str])
    called: set[str] = field(default_factory=set[str])


def read_composition(text: str, source: str, names: Names) -> Node:
    """A composition. Raises DlcError with line and column in the text: syntax, or a name that means nothing."""
    tokens = Tokens(text, source)
    found = _Reader(tokens, names).expr(1, 0)
    tokens.kind("end", "an operator or the end of the composition")
    return found


class _Reader:
    def __init__(self, tokens: Tokens, names: Names) -> None:
        self.tokens, self.names = tokens, names

    def expr(self, level: int, depth: int) -> Node:
        left = self.operand(depth + 1)
        while (found := _LEVELS.get(self.tokens.current.text, 0)) >= level:
            depth += 1
            sign = self.tokens.take().text
            left = Binary(sign, left, self.expr(found + 1, depth))
        return left

    def operand(self, depth: int) -> Node:
        tokens = self.tokens
        if depth > MAX_DEPTH:
            raise tokens.fail(f"a composition nested deeper than {MAX_DEPTH}")
        if tokens.accept("-"):
            inner = self.operand(depth + 1)
            return Literal(-inner.value) if isinstance(inner, Literal) else Binary("-", Literal(0), inner)
        if tokens.peek("("):
            return self.parenthesised(depth)
        token = tokens.take()
        if token.kind == "number":
            return Literal(int(token.text) if token.text.isdigit() else float(token.text))
        if token.kind == "string":
            return Literal(token.text[1:-1])
        if token.kind != "word":
            found = f"'{token.text}'" if token.text else "the end of the text"
            raise tokens.fail(f"expected an operand, a number or an op, found {found}", token.offset)
        return self.call(token, depth) if tokens.peek("(") else self.word(token)

    def parenthesised(self, depth: int) -> Node:
        tokens = self.tokens
        tokens.expect("(")
        items: list[Node] = []
        comma = False
        while not tokens.accept(")"):
            items.append(self.expr(1, depth))
            if not tokens.peek(")"):
                tokens.expect(",")
                comma = True
        return items[0] if len(items) == 1 and not comma else Tuple(tuple(items))

    def word(self, token: Token) -> Node:
        name = token.text
        if name in self.names.values:
            self.names.used.add(name)
            return Name(name)
        if name in _WORDS:
            return Literal(_WORDS[name])
        if name in DTYPES:
            return Literal(DTYPES[name])
        help = f"write {name}(…) for the op" if name in self.names.ops else did_you_mean(name, self.names.values)
        raise self.tokens.fail(f"there is no operand, dimension or attribute {name}", token.offset, help)

    def call(self, token: Token, depth: int) -> Node:
        tokens, name = self.tokens, token.text
        if name not in self.names.ops:
            close = nearest(name, self.names.ops)
            help = f"did you mean {close}?" if close else "`dlc list ops` shows all; those of a pack have its prefix"
            raise tokens.fail(f"there is no op {name}", token.offset, help)
        self.names.called.add(name)
        kind = self.names.ops[name]
        tokens.expect("(")
        operands: list[Node] = []
        attributes: dict[str, Node] = {}
        while not tokens.accept(")"):
            word = tokens.current
            if word.kind == "word" and tokens.ahead == "=":
                tokens.take()
                tokens.expect("=")
                if word.text in attributes:
                    raise tokens.fail(f"{word.text} is given twice", word.offset)
                if word.text not in kind.attributes:
                    help = did_you_mean(word.text, kind.attributes, "attributes")
                    raise tokens.fail(f"{name} has no attribute {word.text}", word.offset, help)
                attributes[word.text] = self.expr(1, depth)
            elif attributes:
                raise tokens.fail("operands stand before attributes", word.offset)
            else:
                operands.append(self.expr(1, depth))
            if not tokens.peek(")"):
                tokens.expect(",")
        if len(operands) > (most := len(kind.operands)):
            raise tokens.fail(f"{name} takes {most} operand{'s' * (most != 1)}, found {len(operands)}", token.offset)
        return Call(name, tuple(operands), attributes)


def composed(node: Node, known: Mapping[str, Any], ops: Mapping[str, type[Op]], dtype: DType = f32) -> Op:
    """The op that a composition gives.

    Args:
        node: What `read_composition` gave.
        known: Operands as ops, dimensions and attributes as numbers; None for what is left out.
        ops: All ops that it may call.
        dtype: Element type of a number that has no operand beside it.

    Raises:
        ShapeError: operands do not fit, or attributes are missing.
    """
    found = _value(node, known, ops, dtype)
    return _op(found, dtype)


def _op(value: Any, dtype: DType) -> Op:
    if isinstance(value, Op):
        if len(value.types) != 1:
            raise ShapeError(f"{value.text_name} has {len(value.types)} results; compositions are of ops with one")
        return value
    if isinstance(value, int | float):
        return scalar(value, dtype)
    raise ShapeError("an operand is needed here, not an attribute or nothing")


def _value(node: Node, known: Mapping[str, Any], ops: Mapping[str, type[Op]], dtype: DType) -> Any:
    match node:
        case Name(name):
            return known.get(name)
        case Literal(value):
            return value
        case Tuple(items):
            return tuple(_value(i, known, ops, dtype) for i in items)
        case Binary(sign, left, right):
            a, b = (_value(x, known, ops, dtype) for x in (left, right))
            if not isinstance(a, Op) and not isinstance(b, Op):
                if not isinstance(a, int | float) or not isinstance(b, int | float) or (sign == "/" and b == 0):
                    raise ShapeError(f"there is no {sign} of {a} and {b}")
                return _NUMBERS[sign](a, b)
            if sign == "-" and left == Literal(0) and isinstance(b, Op):
                return Neg(b)
            like = a.dtype if isinstance(a, Op) else b.dtype
            return _OPS[sign](_op(a, like), _op(b, like))
        case Call(name, operands, attributes):
            return _called(
                ops[name],
                [_value(o, known, ops, dtype) for o in operands],
                {key: _value(v, known, ops, dtype) for key, v in attributes.items()},
                dtype,
            )


def _called(kind: type[Op], operands: list[Any], attributes: dict[str, Any], dtype: DType) -> Op:
    flat = [x for o in operands for x in (cast("tuple[Any, ...]", o) if isinstance(o, tuple) else (o,))]
    like = next((x.dtype for x in flat if isinstance(x, Op)), dtype)
    given = [
        tuple(_op(x, like) for x in cast("tuple[Any, ...]", o))
        if isinstance(o, tuple)
        else None
        if o is None
        else _op(o, like)
        for o in operands
    ]
    try:
        found = kind(*given, **attributes)
    except TypeError as problem:  # of the class's own arguments: what is missing, or what does not exist
        raise ShapeError(f"{kind.text_name}: {str(problem).replace(f'{kind.__name__}.__init__() ', '')}") from None
    _op(found, like)
    return found
