"""Kernels as text, printed and parsed: `print_kernel` and `parse_kernel` are inverse on canonical kernels.

kernel(f32[2,3], f32[3]) -> (f32[2]) {
  k<3: r0[i] += p0[i,k]*p1[k] if i+k < 4
}

Names mean nothing: parameters are p0…, results r0…, locals t0…, the axes of a nest i, j, k… by position. Text from
elsewhere may name them as it likes, `(a: f32[2,3])`; what is read has the canonical names.

An axis that is a subscript of the left side by itself runs over that dimension (`i` above); the others stand in front
with their extents. Axes that stand nowhere in front are the outer ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dlc.base.diagnostics import did_you_mean, nearest
from dlc.base.lexer import MAX_DEPTH, Token, Tokens
from dlc.base.types import DTYPES, Type
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, Number, apply, axes_in
from dlc.kernel.nest import Kernel, Nest, Param, Reduce
from dlc.kernel.scalar import SCALARS

_PRECEDENCE: Mapping[str, int] = {
    "or": 1, "and": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5,
}  # fmt: skip
_BY_INFIX = {s.infix: s.name for s in SCALARS.values() if s.infix}
# Without l and o, which look like digits.
_AXES = "ijkmnuvwxyz"
_ASSIGN: Mapping[str | None, str] = {None: "=", "add": "+=", "mul": "*=", "max": "max=", "min": "min="}


def print_literal(value: bool | int | float) -> str:
    """A literal in kernel text; floats keep every bit."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return repr(value)


_LITERALS: Mapping[str, Number] = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}
Names = Mapping[str | Axis, str]
"""How tensors (by name) and axes are spelled; what is missing stands as itself."""


class _Canonical(dict[str | Axis, str]):
    """The names of a canonical kernel: what a part of it was printed as holds wherever it stands."""


def print_expr(e: Expr, outer: int = 0, names: Names = MappingProxyType({})) -> str:
    """An expression, parenthesised where its operator binds more loosely than the surrounding one."""
    match e:
        case Const(value):
            text = print_literal(value)
            return f"({text})" if text.startswith("-") and outer > 0 else text
        case Axis(name, _):
            return names.get(e, name)
        case Load(param, index):
            return f"{names.get(param, param)}[{','.join(print_expr(i, 0, names) for i in index)}]"
        case Apply(fn) if e.text and isinstance(names, _Canonical):
            infix = SCALARS[fn].infix if fn in SCALARS and len(e.args) == 2 else ""
            return f"({e.text})" if infix and _PRECEDENCE[infix] < outer else e.text
        case Apply("add", (x, Const(int() as value))) if value < 0 and type(value) is int:
            return _infix("-", (x, Const(-value)), outer, names)  # `apply` knows no other form of x-2
        case Apply(fn, args):
            # A function that does not exist prints as a call: also what is wrong has a text, for messages.
            infix = SCALARS[fn].infix if fn in SCALARS and len(args) == 2 else ""
            if infix:
                return _infix(infix, args, outer, names)
            return f"{fn}({', '.join(print_expr(a, 0, names) for a in args)})"
        case _:
            raise AssertionError(e)


def _infix(infix: str, args: tuple[Expr, ...], outer: int, names: Names) -> str:
    level = _PRECEDENCE[infix]
    space = " " if infix.isalpha() or level == 3 or infix == "%" else ""
    text = f"{print_expr(args[0], level, names)}{space}{infix}{space}{print_expr(args[1], level + 1, names)}"
    return f"({text})" if level < outer else text


def _canonical_line(nest: Nest, shape: tuple[int, ...]) -> str:
    """A nest of a canonical kernel, whose tensors are spelled as they are named.

    Its body's text is noted, and used where the body has become a part of a larger one: kernels grow that way.
    """
    if shape in nest.lines:
        return nest.lines[shape]
    names: Names = axis_names(nest)
    if all(a.name == f"i{k}" for k, a in enumerate(nest.axes)):
        names = _Canonical(names)
        if isinstance(nest.body, Apply):
            object.__setattr__(nest.body, "text", print_expr(nest.body, 0, names))
    nest.lines[shape] = _line(nest, shape, names)
    return nest.lines[shape]


def axis_names(nest: Nest) -> Names:
    """How the axes of a nest are spelled: by position."""
    return {a: _AXES[k] if k < len(_AXES) else f"i{k}" for k, a in enumerate(nest.axes)}


def print_nest(nest: Nest, shape: tuple[int, ...], tensors: Mapping[str, str]) -> str:
    """A nest on one line, tensors spelled as told; `shape` is that of what it writes."""
    return _line(nest, shape, {**tensors, **axis_names(nest)})


def _line(nest: Nest, shape: tuple[int, ...], names: Names) -> str:
    shown = nest.axes[_implied(nest, shape) :]
    front = " ".join(f"{names[a]}<{a.extent}" for a in shown) + (": " if shown else "")
    out = print_expr(Load(nest.out, nest.index), 0, names)
    guard = "" if nest.where is None else f" if {print_expr(nest.where, 0, names)}"
    return f"{front}{out} {_ASSIGN[nest.reduce]} {print_expr(nest.body, 0, names)}{guard}"


def _implied(nest: Nest, shape: tuple[int, ...]) -> int:
    """How many of the outermost axes the left side tells: all its plain subscripts, over whole dimensions, or none."""
    plain = tuple(i for i in nest.index if isinstance(i, Axis))
    whole = all(not isinstance(i, Axis) or i.extent == d for i, d in zip(nest.index, shape, strict=False))
    others = axes_in(*(i for i in nest.index if not isinstance(i, Axis)))
    first = plain == nest.axes[: len(plain)] and len(set(plain)) == len(plain) and len(nest.index) == len(shape)
    return len(plain) if whole and first and not set(plain) & set(others) else 0


def print_kernel(kernel: Kernel, name: str = "") -> str:
    """A kernel, one nest a line; a `name` like `@k0` stands behind the word `kernel`."""
    groups = (("p", kernel.params), ("r", kernel.results), ("t", kernel.locals))
    names = {p.name: f"{letter}{k}" for letter, ps in groups for k, p in enumerate(ps)}
    params, results, locals_ = (f"({', '.join(str(p.type) for p in ps)})" for _, ps in groups)
    local = f" local {locals_}" if kernel.locals else ""
    head = f"kernel{name and ' '}{name}{params} -> {results}{local} {{"
    shapes = {p.name: p.shape for _, ps in groups for p in ps}
    canonical = all(name == spelled for name, spelled in names.items())

    def line(n: Nest) -> str:
        shape = shapes.get(n.out, ())
        return _canonical_line(n, shape) if canonical else print_nest(n, shape, names)

    return "\n".join([head, *(f"  {line(n)}" for n in kernel.nests), "}"])


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
    tensors: dict[str, Param] = {}
    params = _read_params(tokens, "p", tensors)
    tokens.expect("->")
    results = _read_params(tokens, "r", tensors)
    locals_ = _read_params(tokens, "t", tensors) if tokens.accept("local") else ()
    tokens.expect("{")
    nests: list[Nest] = []
    while not tokens.accept("}"):
        nests.append(_read_nest(tokens, tensors))
    return Kernel(params, results, locals_, tuple(nests))


def read_type(tokens: Tokens) -> Type:
    """Read `f32[2,3]`."""
    word = tokens.kind("word", "an element type")
    if word.text not in DTYPES:
        help = did_you_mean(word.text, DTYPES, "element types")
        raise tokens.fail(f"unknown element type '{word.text}'", word.offset, help)
    return Type(DTYPES[word.text], tuple(tokens.listed("[", "]", lambda: tokens.extent("a dimension"))))


def _read_params(tokens: Tokens, letter: str, tensors: dict[str, Param]) -> tuple[Param, ...]:
    """Types in parentheses, perhaps with names: added to `tensors` under the name the text uses."""
    out: list[Param] = []

    def read() -> None:
        start = tokens.current
        spelled = name = f"{letter}{len(out)}"
        if tokens.ahead == ":":
            spelled = tokens.kind("word", "a parameter name").text
            tokens.expect(":")
        out.append(Param(name, read_type(tokens)))
        if spelled in tensors:
            raise tokens.fail("two tensors of the kernel have one name", start.offset)
        tensors[spelled] = out[-1]

    tokens.listed("(", ")", read)
    return tuple(out)


def _read_nest(tokens: Tokens, tensors: Mapping[str, Param]) -> Nest:
    extents: dict[str, int] = {}
    while tokens.current.kind == "word" and tokens.ahead == "<":
        word = tokens.take()
        if word.text in extents or word.text in tensors:
            raise tokens.fail(f"the name {word.text} is taken", word.offset)
        tokens.expect("<")
        extents[word.text] = tokens.extent("an extent")
    if extents or tokens.peek(":"):
        tokens.expect(":")
    extents = _implied_extents(tokens, tensors, extents) | extents
    axes = {name: Axis(f"i{k}", extent) for k, (name, extent) in enumerate(extents.items())}
    reader = _ExprReader(tokens, axes, tensors)
    target = reader.atom(0)
    if not isinstance(target, Load):
        raise tokens.fail("the left side of a nest is a tensor element")
    reduce = _read_assign(tokens)
    body = reader.expr()
    where = reader.expr() if tokens.accept("if") else None
    return Nest(target.param, target.index, tuple(axes.values()), body, reduce, where)


def _implied_extents(tokens: Tokens, tensors: Mapping[str, Param], known: Mapping[str, int]) -> dict[str, int]:
    """Extents of the axes that nothing but the left side, which comes next, tells."""
    target = tensors.get(tokens.current.text)
    found: dict[str, int] = {}
    for extent, subscript in zip(target.shape if target else (), tokens.items_ahead(), strict=False):
        match subscript:
            case (Token("word", name, _),) if name not in (*known, *tensors, *_LITERALS):
                found.setdefault(name, extent)
            case _:
                pass
    return found


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
        if name in _LITERALS:
            return Const(_LITERALS[name])
        if name in self._axes:
            return self._axes[name]
        if name in self._tensors:
            of = self._tensors[name]
            return Load(of.name, self._list("[", "]", depth, of.type.rank, name))
        if name in SCALARS and tokens.peek("("):
            return apply(name, *self._list("(", ")", depth, SCALARS[name].arity, name))
        known = (*self._axes, *self._tensors)
        help = f"axes and tensors here: {', '.join(known)}" if len(known) <= 24 else ""
        close = nearest(name, SCALARS)
        message = f"'{name}' is neither an axis, a tensor nor a function"
        raise tokens.fail(message, word.offset, f"did you mean {close}?" if close else help)

    def _list(self, opening: str, closing: str, depth: int, count: int, name: str) -> tuple[Expr, ...]:
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
