"""The parser of expressions and statements: precedence climbing over the tokens of one kernel.

statement := ref '=' expr ';'
ref       := Id [ '<' Int (',' Int)* '>' ] [ '[' expr (',' expr)* ']' ]
expr      := or;  or := and ('or' and)*;  and := not ('and' not)*;  not := 'not' not | compare
compare   := sum [ ('<' | '<=' | '>' | '>=' | '==' | '!=') sum ]
sum       := prod (('+' | '-') prod)*
prod      := unary (('*' | '/' | '//' | '%') unary)*;  unary := '-' unary | atom
atom      := Number | ref | Id '(' expr (',' expr)* ')' | reduction '[' Id (',' Id)* ']' '(' expr ')' | '(' expr ')'
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from dlc.base.diagnostics import did_you_mean, nearest
from dlc.base.lexer import Token
from dlc.kernel.nest import Reduce
from dlc.kernel.scalar import SCALARS
from dlc_frontend_kernel.instead import FUNCTIONS, POWER, STATEMENTS
from dlc_frontend_kernel.instead import REDUCTIONS as OTHER_REDUCTIONS
from dlc_frontend_kernel.syntax import (
    BOUND,
    Call,
    Declared,
    Group,
    Index,
    Node,
    Number,
    Operation,
    Reduction,
    Ref,
    Statement,
    too_high,
)
from dlc_frontend_kernel.tokens import KernelTokens

MAX_NESTING = 100
"""Expressions within expressions: what is deeper was not written by hand, and Python's stack ends somewhere."""
MAX_SUBSCRIPT = 50
"""Operations within each other in a subscript: arithmetic of subscripts recurses."""
MAX_DIMENSIONS = 16
MAX_SIZE = 2**31 - 1
"""Largest size of a dimension and largest constant in a subscript: constants of the language have 32 bits."""

REDUCTIONS: Final[Mapping[str, Reduce]] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_ALIASES: Final[Mapping[str, str]] = {"float": "f32", "double": "f64", "int": "i32"}
_LEVELS: Final[Mapping[str, int]] = {
    "or": 1, "and": 2,
    "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip
_NOT, _COMPARE, _UNARY = 3, 4, 7
COMPARISONS: Final = frozenset(op for op, level in _LEVELS.items() if level == _COMPARE)


class Reader:
    """Reads statements; remembers the shapes that the text has shown so far.

    Args:
        tokens: The text.
        tensors: What is declared; the tensors that the text shows are added.
        named: Names of inputs and outputs whose shapes are not known yet.
    """

    def __init__(self, tokens: KernelTokens, tensors: dict[str, Declared], named: Collection[str] = ()) -> None:
        self.tokens, self.tensors, self._named = tokens, tensors, named
        self._bound: list[Mapping[str, str]] = []
        self._reductions = 0

    def statement(self, or_else: str = "") -> Statement:
        """Consume `target = value;`. `or_else` is reported as what might stand here instead."""
        tokens = self.tokens
        start = tokens.current
        if start.kind != "word":
            raise tokens.unexpected(f"a statement such as A<8>[i] = B<8>[i];{or_else}")
        if start.text in STATEMENTS and start.text not in self.tensors and tokens.ahead not in ("<", "[", "="):
            what, help = STATEMENTS[start.text]
            raise tokens.fault("syntax", f"there are no {what}", start.offset, help)
        target = self._ref(tokens.take(), 0, shaped=tokens.peek("<"))
        if not isinstance(target, Ref):
            help = f"write {start.text}<…>[…], or {start.text}<1> for a scalar"
            raise tokens.fault("unknown-shape", f"the shape of {start.text} is not known here", start.offset, help)
        if tokens.current.text in ("+", "-", "*", "/") and tokens.ahead == "=":
            raise tokens.unexpected("'='", f"write {start.text}[…] = {start.text}[…] {tokens.current.text} …")
        tokens.expect("=")
        value = self.expr(1, 0)
        end = tokens.current.offset
        if not tokens.accept(";"):
            raise tokens.unexpected("an operator or ';'")
        return Statement(target, value, " ".join(tokens.text[start.offset : end].split()), start.offset)

    def expr(self, level: int, depth: int) -> Node:
        """Consume an expression whose operators bind at least as tightly as `level`."""
        left = self._operand(level, depth + 1)
        while (found := _LEVELS.get(self.tokens.current.text, 0)) >= level:
            token = self.tokens.take()
            if token.text == "*" and self.tokens.peek("*"):
                raise self.tokens.fault("syntax", POWER[0], token.offset, POWER[1])
            left = Operation(token.text, (left, self.expr(found + 1, depth + 1)), token.offset)
            if found == _COMPARE and _LEVELS.get(self.tokens.current.text) == _COMPARE:
                raise self.tokens.fail("comparisons do not chain", help="write (a < b) and (b < c)")
        return left

    def _operand(self, level: int, depth: int) -> Node:
        tokens = self.tokens
        token = tokens.current
        if depth > MAX_NESTING:
            message = f"an expression is nested deeper than {MAX_NESTING} levels"
            raise tokens.fault("too-large", message, token.offset, "divide it into several statements")
        if tokens.accept("("):
            inner = self.expr(1, depth)
            if not tokens.accept(")"):
                raise tokens.unexpected("an operator or ')'")
            return Group(inner, token.offset)
        if tokens.accept("-"):
            return Operation("neg", (self.expr(_UNARY, depth),), token.offset)
        if level <= _NOT and tokens.accept("not"):
            return Operation("not", (self.expr(_NOT, depth),), token.offset)
        if token.kind == "number":
            return self._number(tokens.take())
        if token.kind != "word" or token.text in ("and", "or", "not"):
            raise tokens.unexpected("a number, a tensor, an index, a function or '('")
        tokens.take()
        if tokens.peek("(") and token.text not in self.tensors:
            return self._call(token, depth)
        if token.text in REDUCTIONS and tokens.peek("[") and token.text not in self.tensors:
            return self._reduction(token, depth)
        return self._ref(token, depth, shaped=self._shape_ahead())

    def _number(self, token: Token) -> Number:
        if token.text.isdigit():
            return Number(int(token.text), token.offset)
        value = float(token.text)
        if value == float("inf"):
            raise self.tokens.fault("bad-number", f"{token.text} is too large for a number", token.offset)
        return Number(value, token.offset)

    def _call(self, name: Token, depth: int) -> Call:
        fn = _ALIASES.get(name.text, name.text)
        if fn not in SCALARS:
            help = did_you_mean(name.text, [*SCALARS, *_ALIASES], "functions")
            help = f"the reduction is written {name.text}[k](…)" if name.text in REDUCTIONS else help
            instead = FUNCTIONS | OTHER_REDUCTIONS
            help = f"write {instead[name.text]}" if name.text in instead else help
            raise self.tokens.fault("unknown-function", f"there is no function {name.text}", name.offset, help)
        args = self._listed("(", ")", depth)
        arity = SCALARS[fn].arity
        if len(args) != arity:
            help = f"the reduction is written {name.text}[k](…)" if name.text in REDUCTIONS else ""
            message = f"{name.text} takes {arity} argument{'s' * (arity != 1)}, found {len(args)}"
            raise self.tokens.fault("arguments", message, name.offset, help)
        return Call(fn, args, name.offset)

    def _reduction(self, name: Token, depth: int) -> Reduction:
        tokens = self.tokens
        tokens.expect("[")
        bound: dict[str, str] = {}
        while True:
            word = tokens.kind("word", f"an index that {name.text} runs over")
            if word.text in bound or word.text in self.tensors:
                what = "is a tensor" if word.text in self.tensors else "stands here twice"
                raise tokens.fault("bad-index", f"{word.text} {what}, not an index to reduce over", word.offset)
            self._reductions += 1
            bound[word.text] = f"{word.text}{BOUND}{self._reductions}"
            if not tokens.accept(","):
                break
        if not tokens.accept("]"):
            raise tokens.unexpected("',' or ']'")
        tokens.expect("(")
        self._bound.append(bound)
        body = self.expr(1, depth)
        self._bound.pop()
        if not tokens.accept(")"):
            raise tokens.unexpected("an operator or ')'")
        return Reduction(REDUCTIONS[name.text], tuple(bound.values()), body, name.offset)

    def _listed(self, opening: str, closing: str, depth: int) -> tuple[Node, ...]:
        tokens = self.tokens
        tokens.expect(opening)
        out = [self.expr(1, depth)]
        while tokens.accept(","):
            out.append(self.expr(1, depth))
        if not tokens.accept(closing):
            raise tokens.unexpected(f"an operator, ',' or '{closing}'")
        return tuple(out)

    # ---- tensors ----
    def _shape_ahead(self) -> bool:
        """Whether `<8,8>` stands here, rather than a comparison."""
        texts = [t.text for t in self.tokens.following]
        k = 1
        while texts[0] == "<" and k + 1 < len(texts) and texts[k].isdigit():
            if texts[k + 1] != ",":
                break
            k += 2
        if texts[0] != "<" or k + 1 >= len(texts) or not texts[k].isdigit() or texts[k + 1] != ">":
            return False
        behind = self.tokens.following[k + 2] if k + 2 < len(texts) else self.tokens.current
        # `i<3` before `>4` is a comparison of a comparison, which means nothing: then it is reported as such.
        operand = behind.kind in ("number", "word") or behind.text == "("
        return behind.text == "[" or (texts[1] == "1" and k == 1) or not operand

    def _ref(self, name: Token, depth: int, shaped: bool) -> Node:
        tokens = self.tokens
        shape = self._shape(name) if shaped else None
        known = self.tensors.get(name.text)
        if tokens.peek("["):
            if shape is None and known is None:
                raise self._unknown(name)
            self._declare(name, shape)
            return Ref(name.text, self._subscripts(name, depth), name.offset)
        if shape is None and known is None:
            if name.text in self._named:
                help = f"write {name.text}<1> for a scalar, {name.text}<…>[…] for a tensor"
                message = f"the shape of {name.text} is not known here"
                raise tokens.fault("unknown-shape", message, name.offset, help)
            key = next((b[name.text] for b in reversed(self._bound) if name.text in b), name.text)
            return Index(name.text, key, name.offset)
        if shape is not None and shape != (1,):
            count = "a subscript" if len(shape) == 1 else f"{len(shape)} subscripts"
            raise tokens.unexpected(f"'[' and {count} of {name.text}", "only <1> without subscripts is a scalar")
        if known is not None and known.shape == (1,) and shape is not None:
            return Ref(name.text, (Number(0, name.offset),), name.offset)
        self._declare(name, () if shape is not None else None)
        if self.tensors[name.text].shape:
            wanted = len(self.tensors[name.text].shape)
            raise tokens.unexpected(f"'[' and {wanted} subscript{'s' * (wanted != 1)} of {name.text}")
        return Ref(name.text, (), name.offset)

    def _unknown(self, name: Token) -> Exception:
        if name.text in OTHER_REDUCTIONS:
            help = f"write {OTHER_REDUCTIONS[name.text]}"
            return self.tokens.fault("unknown-function", f"there is no reduction {name.text}", name.offset, help)
        close = nearest(name.text, [*self.tensors, *self._named])
        help = f"did you mean {close}?" if close and close != name.text else ""
        help = help or f"write the shape where {name.text} stands first: {name.text}<8,8>[…]"
        return self.tokens.fault("unknown-shape", f"the shape of {name.text} is not known here", name.offset, help)

    def _shape(self, name: Token) -> tuple[int, ...]:
        tokens = self.tokens
        tokens.expect("<")
        out = [self.size(f"a size of {name.text}")]
        while tokens.accept(","):
            out.append(self.size(f"a size of {name.text}"))
        if tokens.peek(">="):
            tokens.split()
        if not tokens.accept(">"):
            raise tokens.unexpected("',' or '>'")
        self.check_rank(name, len(out))
        return tuple(out)

    def size(self, what: str) -> int:
        """Consume the size of a dimension."""
        token = self.tokens.kind("number", what)
        if not token.text.isdigit() or not 1 <= int(token.text) <= MAX_SIZE:
            message = f"{token.text} is no size of a dimension"
            raise self.tokens.fault("bad-size", message, token.offset, f"sizes are whole numbers from 1 to {MAX_SIZE}")
        return int(token.text)

    def check_rank(self, name: Token, rank: int) -> None:
        """Refuse what has too many dimensions."""
        if rank > MAX_DIMENSIONS:
            message = f"{name.text} has {rank} dimensions; the limit is {MAX_DIMENSIONS}"
            raise self.tokens.fault("too-large", message, name.offset)

    def _declare(self, name: Token, shape: tuple[int, ...] | None) -> None:
        """Remember a shape, or compare it with the one that is known."""
        known = self.tensors.get(name.text)
        if known is None:
            assert shape is not None
            self.tensors[name.text] = Declared(name.text, shape, name.offset)
        elif shape is not None and shape != known.shape:
            line = self.tokens.line_of(known.at)
            message = f"{name.text} is {_shown(shape)} here and {_shown(known.shape)} in line {line}"
            raise self.tokens.fault("shape", message, name.offset, "a tensor has one shape")

    def _subscripts(self, name: Token, depth: int) -> tuple[Node, ...]:
        start = self.tokens.current.offset
        out = self._listed("[", "]", depth + 1)
        wanted = self.tensors[name.text].shape
        if len(out) != len(wanted):
            count = f"{len(wanted)} subscript{'s' * (len(wanted) != 1)}"
            message = f"{name.text}{_shown(wanted)} takes {count}, found {len(out)}"
            message = f"{name.text} is a scalar and takes no subscripts" if not wanted else message
            raise self.tokens.fault("subscripts", message, start)
        for subscript in out:
            if too_high(subscript, MAX_SUBSCRIPT):
                message = f"a subscript of more than {MAX_SUBSCRIPT} operations in each other"
                raise self.tokens.fault("too-large", message, start)
        return out


def _shown(shape: tuple[int, ...]) -> str:
    return f"<{','.join(map(str, shape))}>" if shape else "a scalar"
