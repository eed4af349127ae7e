"""Expressions of kernels and loops, read from text as `dlc.kernel.print` writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlc.base.diagnostics import nearest
from dlc.base.lexer import MAX_DEPTH, Tokens
from dlc.kernel.expr import Const, Expr, Load, Number, apply
from dlc.kernel.nest import Param
from dlc.kernel.print import PRECEDENCE
from dlc.kernel.scalar import SCALARS

_BY_INFIX = {s.infix: s.name for s in SCALARS.values() if s.infix}
LITERALS: Mapping[str, Number] = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}


class ExprReader:
    """Precedence climbing over the tokens of expressions.

    Attributes:
        names: What a name that is no tensor means where the reader stands: a loop's variable, or another one.
        tensors: The tensors by the names that the text uses.
    """

    def __init__(self, tokens: Tokens, names: Mapping[str, Expr], tensors: Mapping[str, Param]) -> None:
        """Read from where the tokens stand."""
        self._tokens, self.names, self.tensors = tokens, names, tensors

    def expr(self, level: int = 1, depth: int = 0) -> Expr:
        """An expression whose operators bind at least as tightly as `level`."""
        left = self.atom(depth + 1)
        # `a+b+c+…` nests to the left, so its height counts as parentheses do.
        while (found := PRECEDENCE.get(self._tokens.current.text, 0)) >= level:
            depth += 1
            infix = self._tokens.take().text
            left = apply(_BY_INFIX[infix], left, self.expr(found + 1, depth))
        return left

    def atom(self, depth: int) -> Expr:
        """A literal, a variable, an element, a call, or an expression in parentheses."""
        tokens = self._tokens
        if depth > MAX_DEPTH:
            raise tokens.fail(f"expression nested deeper than {MAX_DEPTH}")
        if tokens.accept("("):
            inner = self.expr(1, depth)
            tokens.expect(")")
            return inner
        if tokens.accept("-"):
            return Const(float("-inf")) if tokens.accept("inf") else Const(-_number(tokens))
        if tokens.current.kind == "number":
            return Const(_number(tokens))
        word = tokens.kind("word", "an expression")
        name = word.text
        if name in LITERALS:
            return Const(LITERALS[name])
        if name in self.names:
            return self.names[name]
        if name in self.tensors:
            return self.element(name, depth)
        if name in SCALARS and tokens.peek("("):
            return apply(name, *self.listed("(", ")", depth, SCALARS[name].arity, name))
        known = (*self.names, *self.tensors)
        help = f"axes and tensors here: {', '.join(known)}" if len(known) <= 24 else ""
        close = nearest(name, SCALARS)
        message = f"'{name}' is neither an axis, a tensor nor a function"
        raise tokens.fail(message, word.offset, f"did you mean {close}?" if close else help)

    def element(self, name: str, depth: int) -> Expr:
        """An element of a tensor, whose name is consumed already."""
        of = self.tensors[name]
        return Load(of.name, self.listed("[", "]", depth, len(of.shape), name))

    def listed(self, opening: str, closing: str, depth: int, count: int, name: str) -> tuple[Expr, ...]:
        """So many expressions, with commas between them."""
        start = self._tokens.expect(opening)
        out: list[Expr] = []
        # Not `Tokens.listed`: every level of nesting would take more of the interpreter's stack.
        while not self._tokens.accept(closing):
            out.append(self.expr(1, depth))
            if not self._tokens.peek(closing):
                self._tokens.expect(",")
        if len(out) != count:
            what = "subscripts" if opening == "[" else "arguments"
            raise self._tokens.fail(f"{name} takes {count} {what}, found {len(out)}", start.offset)
        return tuple(out)


def _number(tokens: Tokens) -> int | float:
    text = tokens.kind("number", "a number").text
    return int(text) if text.isdigit() else float(text)
