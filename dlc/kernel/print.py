"""Expressions and nests as text (`dlc.kernel.text` describes the form and reads it)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in
from dlc.kernel.nest import Nest, Param
from dlc.kernel.scalar import SCALARS

PRECEDENCE: Mapping[str, int] = {
    "or": 1, "and": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "//": 5, "%": 5,
}  # fmt: skip
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
            return f"({e.text})" if infix and PRECEDENCE[infix] < outer else e.text
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
    level = PRECEDENCE[infix]
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
    """A nest on one line, with the given names of tensors; `shape` is that of what it writes."""
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


def print_nests(
    params: tuple[Param, ...],
    results: tuple[Param, ...],
    locals: tuple[Param, ...],
    nests: tuple[Nest, ...],
    name: str = "",
) -> str:
    """The text of a kernel, one nest a line; a `name` like `@k0` stands behind the word `kernel`."""
    groups = (("p", params), ("r", results), ("t", locals))
    names = {p.name: f"{letter}{k}" for letter, ps in groups for k, p in enumerate(ps)}
    heads = tuple(f"({', '.join(str(p.type) for p in ps)})" for _, ps in groups)
    local = f" local {heads[2]}" if locals else ""
    head = f"kernel{name and ' '}{name}{heads[0]} -> {heads[1]}{local} {{"
    shapes = {p.name: p.shape for _, ps in groups for p in ps}
    canonical = all(name == spelled for name, spelled in names.items())

    def line(n: Nest) -> str:
        shape = shapes.get(n.out, ())
        return _canonical_line(n, shape) if canonical else print_nest(n, shape, names)

    return "\n".join([head, *(f"  {line(n)}" for n in nests), "}"])
