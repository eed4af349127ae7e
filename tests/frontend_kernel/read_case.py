"""JSON cases as syntax trees of the tests: Python's own parser reads them, so nothing is shared with the frontend."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

from tests.frontend_kernel.small_language import Bin, Case, Group, Num, Ref, Statement, Tree, Var

DATA = Path(__file__).parent.parent / "data" / "kernel"
_GROUP = "group"
_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}


def read_case(path: Path) -> Case:
    """The case in a JSON file."""
    found = json.loads(path.read_text(encoding="utf-8"))
    ins, outs, grad_to = (tuple(found.get(key, ())) for key in ("ins", "outs", "grad_to"))
    return Case(found["name"], ins, outs, found["data_type"], read_kernel(found["kernel"]), grad_to)


def read_kernel(text: str) -> tuple[Statement, ...]:
    """The statements of a kernel's text."""
    # A parenthesis becomes a call, because Python's tree does not keep it; a shape becomes another.
    text = re.sub(r"(\w+)\s*<([\d\s,]+)>", r"\1(\2)", text.replace("(", f"{_GROUP}("))
    return tuple(_statement(ast.parse(line.strip()).body[0]) for line in text.split(";") if line.strip())


def _statement(node: ast.stmt) -> Statement:
    match node:
        case ast.Assign(targets=[left], value=right) if isinstance(found := _tree(left), Ref):
            return Statement(found, _tree(right))
        case _:
            raise ValueError(ast.dump(node))


def _tree(node: ast.expr) -> Tree:
    match node:
        case ast.Constant(int() | float() as value):
            return Num(value)
        case ast.Name(name):
            return Var(name)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return Num(-value)
        case ast.BinOp(left, op, right):
            return Bin(_OPERATORS[type(op)], _tree(left), _tree(right))
        case ast.Call(ast.Name(name), args) if name == _GROUP:
            return Group(_tree(args[0]))
        case ast.Call(ast.Name(name), args):
            return Ref(name, _shape(args), None)
        case ast.Subscript(ast.Call(ast.Name(name), args), ast.Tuple(items)):
            return Ref(name, _shape(args), tuple(map(_tree, items)))
        case ast.Subscript(ast.Call(ast.Name(name), args), item):
            return Ref(name, _shape(args), (_tree(item),))
        case _:
            raise ValueError(ast.dump(node))


def _shape(args: list[ast.expr]) -> tuple[int, ...]:
    return tuple(a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, int))
