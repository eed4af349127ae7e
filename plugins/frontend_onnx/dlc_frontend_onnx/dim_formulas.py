"""Dimensions that exporters name by formulas of others: `past_length + length`, `2*s0`, `(s1 + 7)//8`.

A formula is one only where every name in it is that of a dimension of its own: `batch-size` mostly is a name.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Final

MOST_CHARACTERS: Final = 200
"""Of a formula."""
_OPERATORS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


def is_formula(text: str, names: Collection[str], said: bool = False) -> bool:
    """Whether the name of a dimension is a formula of others, which are called `names`; a user may say one name."""
    found = names_in(text)
    return bool(found) and found <= set(names) and (said or text not in found)


def names_in(text: str) -> set[str]:
    """The names in a formula; none of any other text."""
    tree = _tree(text)
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} if tree is not None else set()


def formula(text: str, size: Callable[[str], int]) -> int:
    """What a formula gives, of numbers or symbolic sizes (`dlc.base.extents.Dim`).

    Raises:
        ValueError: it has no value, as where a divisor is no number above 0.
    """
    tree = _tree(text)
    assert tree is not None, text
    try:
        return _value(tree, size)
    except (ArithmeticError, ValueError) as problem:
        raise ValueError(f"{text} has no value: {problem}") from None


def _tree(text: str) -> ast.expr | None:
    """The formula; None for any other text."""
    if len(text) > MOST_CHARACTERS or not text.isascii():
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = (n for n in ast.walk(tree) if not isinstance(n, ast.expr_context | ast.operator))
    return tree if all(_allowed(n) for n in nodes) else None


def _allowed(node: ast.AST) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Constant(value):
            return type(value) is int and 0 <= value < 1 << 31
        case ast.BinOp(_, op, _):
            return type(op) in _OPERATORS
        case _:
            return False


def _value(tree: ast.expr, size: Callable[[str], int]) -> int:
    match tree:
        case ast.Name(name):
            return size(name)
        case ast.Constant(int() as value):
            return value
        case ast.BinOp(left, op, right):
            return _OPERATORS[type(op)](_value(left, size), _value(right, size))
        case _:
            raise AssertionError(tree)
