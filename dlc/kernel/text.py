"""Kernels as text, printed and parsed: `print_kernel` and `parse_kernel` are inverse on canonical kernels.

kernel(p0: f32[2,3], p1: f32[3]) -> (r0: f32[2]) {
  i0<2 i1<3: r0[i0] += p0[i0,i1]*p1[i1] if i0+i1<4
}
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.nest import Kernel, Nest, Param, Reduce
from dlc.kernel.scalar import SCALARS
from dlc.lexer import MAX_DEPTH, Tokens
from dlc.types import DTYPES, Type

_PRECEDENCE: Mapping[str, int] = {
    "or": 1, "and": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5,
}  # fmt: skip
_BY_INFIX = {s.infix: s.name for s in SCALARS.values() if s.infix}
_ASSIGN: Mapping[str | None, str] = {None: "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}


def print_literal(value: bool | int | float) -> str:
    """A literal in kernel text; floats keep every bit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


def print_expr(e: Expr, outer: int = 0) -> str:
    """An expression, parenthesised where its operator binds more loosely than the surrounding one."""
    match e:
        case Const(value):
            text = print_literal(value)
            return f"({text})" if text.startswith("-") and outer > 0 else text
        case Axis(name, _):
            return name
        case Load(param, index):
            return f"{param}[{','.join(print_expr(i) for i in index)}]"
        case Apply(fn, args):
            infix = SCALARS[fn].infix
            if not infix:
                return f"{fn}({', '.join(print_expr(a) for a in args)})"
            level = _PRECEDENCE[infix]
            space = " " if infix.isalpha() or level == 3 or infix == "%" else ""
            text = f"{print_expr(args[0], level)}{space}{infix}{space}{print_expr(args[1], level + 1)}"
            return f"({text})" if level < outer else text
        case _:
            raise AssertionError(e)


def print_nest(nest: Nest) -> str:
    """A nest on one line."""
    axes = " ".join(f"{a.name}<{a.extent}" for a in nest.axes)
    out = f"{nest.out}[{','.join(print_expr(i) for i in nest.index)}]"
    guard = "" if nest.where is None else f" if {print_expr(nest.where)}"
    return f"{axes}{':' if not axes else ': '}{out} {_ASSIGN[nest.reduce]} {print_expr(nest.body)}{guard}"


def print_kernel(kernel: Kernel, indent: str = "") -> str:
    """A kernel, one nest a line."""

    def params(ps: tuple[Param, ...]) -> str:
        return "(" + ", ".join(f"{p.name}: {p.type}" for p in ps) + ")"

    local = f" local {params(kernel.locals)}" if kernel.locals else ""
    lines = [f"{indent}kernel{params(kernel.params)} -> {params(kernel.results)}{local} {{"]
    lines += [f"{indent}  {print_nest(n)}" for n in kernel.nests]
    return "\n".join([*lines, f"{indent}}}"])


def parse_kernel(text: str, source: str = "<text>") -> Kernel:
    """The inverse of `print_kernel`.

    Raises:
        DlcError: syntax errors with line, column and what was expected.
    """
    tokens = Tokens(text, source)
    kernel = read_kernel(tokens)
    tokens.kind("end", "the end of the text")
    return kernel


def read_kernel(tokens: Tokens, after_keyword: bool = False) -> Kernel:
    """Read one kernel from a token stream (the word `kernel` may be consumed already)."""
    if not after_keyword:
        tokens.expect("kernel")
    params = _read_params(tokens)
    tokens.expect("->")
    results = _read_params(tokens)
    locals_ = _read_params(tokens) if tokens.accept("local") else ()
    tensors = {p.name: p for p in (*params, *results, *locals_)}
    if len(tensors) < len(params) + len(results) + len(locals_):
        raise tokens.fail("two tensors of the kernel have one name")
    tokens.expect("{")
    nests: list[Nest] = []
    while not tokens.accept("}"):
        nests.append(_read_nest(tokens, tensors))
    return Kernel(params, results, locals_, tuple(nests))


def read_type(tokens: Tokens) -> Type:
    """Read `f32[2,3]`."""
    word = tokens.kind("word", "an element type")
    if word.text not in DTYPES:
        raise tokens.fail(f"unknown element type '{word.text}'", word.offset)
    tokens.expect("[")
    shape: list[int] = []
    while not tokens.accept("]"):
        shape.append(tokens.extent("a dimension"))
        if not tokens.peek("]"):
            tokens.expect(",")
    return Type(DTYPES[word.text], tuple(shape))


def _read_params(tokens: Tokens) -> tuple[Param, ...]:
    tokens.expect("(")
    out: list[Param] = []
    while not tokens.accept(")"):
        name = tokens.kind("word", "a parameter name").text
        tokens.expect(":")
        out.append(Param(name, read_type(tokens)))
        if not tokens.peek(")"):
            tokens.expect(",")
    return tuple(out)


def _read_nest(tokens: Tokens, tensors: Mapping[str, Param]) -> Nest:
    axes: dict[str, Axis] = {}
    while not tokens.accept(":"):
        word = tokens.kind("word", "an axis or ':'")
        name = word.text
        if name in axes or name in tensors:
            raise tokens.fail(f"the name {name} is taken", word.offset)
        tokens.expect("<")
        axes[name] = Axis(name, tokens.extent("an extent"))
    reader = _ExprReader(tokens, axes, tensors)
    target = reader.atom(0)
    if not isinstance(target, Load):
        raise tokens.fail("the left side of a nest is a tensor element")
    reduce = _read_assign(tokens)
    body = reader.expr()
    where = reader.expr() if tokens.accept("if") else None
    return Nest(target.param, target.index, tuple(axes.values()), body, reduce, where)


def _read_assign(tokens: Tokens) -> Reduce | None:
    word = tokens.take().text
    match word:
        case "=":
            return None
        case "+=":
            return "add"
        case "*=":
            return "mul"
        case "max" | "min":
            tokens.expect("=")
            return word
        case _:
            raise tokens.fail(f"expected an assignment (=, +=, *=, max=, min=), found '{word}'")


class _ExprReader:
    """Precedence climbing over the tokens of one nest."""

    def __init__(self, tokens: Tokens, axes: Mapping[str, Axis], tensors: Mapping[str, Param]) -> None:
        self._tokens, self._axes, self._tensors = tokens, axes, tensors

    def expr(self, level: int = 1, depth: int = 0) -> Expr:
        left = self.atom(depth + 1)
        # `a+b+c+…` nests to the left, so its height counts as parentheses do.
        while (found := _PRECEDENCE.get(self._tokens.current.text, 0)) >= level:
            depth += 1
            infix = self._tokens.take().text
            left = apply(_BY_INFIX[infix], left, self.expr(found + 1, depth))
        return left

    def atom(self, depth: int) -> Expr:
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
        literals = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
        if name in literals:
            return Const(literals[name])
        if name in self._axes:
            return self._axes[name]
        if name in self._tensors:
            return Load(name, self._list("[", "]", depth, self._tensors[name].type.rank, name))
        if name in SCALARS and tokens.peek("("):
            return apply(name, *self._list("(", ")", depth, SCALARS[name].arity, name))
        raise tokens.fail(f"'{name}' is neither an axis, a tensor nor a function", word.offset)

    def _list(self, opening: str, closing: str, depth: int, count: int, name: str) -> tuple[Expr, ...]:
        start = self._tokens.expect(opening)
        out: list[Expr] = []
        while not self._tokens.accept(closing):
            out.append(self.expr(1, depth))
            if not self._tokens.peek(closing):
                self._tokens.expect(",")
        if len(out) != count:
            raise self._tokens.fail(f"{name} takes {count}, found {len(out)}", start.offset)
        return tuple(out)


def _number(tokens: Tokens) -> int | float:
    text = tokens.kind("number", "a number").text
    return int(text) if text.isdigit() else float(text)
