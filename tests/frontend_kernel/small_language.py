"""The kernel language as the tests see it: a syntax tree that prints, written apart from the frontend.

Precedence: `* / // %` before `+ -`, both left-associative. Parentheses are printed where the tree needs them, and where
a `Group` says so, because a parenthesised group is one unit of summation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Num:
    """A constant: an integer subscript, or a number of the right-hand side. Negative ones print with a minus."""

    value: int | float


@dataclass(frozen=True)
class Var:
    """An index."""

    name: str


@dataclass(frozen=True)
class Ref:
    """`name<shape>[index]`; `index` None: a scalar, `name<1>`."""

    name: str
    shape: tuple[int, ...]
    index: tuple[Tree, ...] | None


@dataclass(frozen=True)
class Bin:
    """`left op right` for + - * / // %."""

    op: str
    left: Tree
    right: Tree


@dataclass(frozen=True)
class Group:
    """Parentheses that the tree alone would not need."""

    inner: Tree


Tree: TypeAlias = Num | Var | Ref | Bin | Group


@dataclass(frozen=True)
class Statement:
    """`left = right;`"""

    left: Ref
    right: Tree


@dataclass(frozen=True)
class Case:
    """A kernel with its interface: what a JSON file holds."""

    name: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    dtype: str
    statements: tuple[Statement, ...]
    grad_to: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The kernel's text."""
        return " ".join(f"{show(s.left)} = {show(s.right)};" for s in self.statements)

    def document(self, *, grad: bool = False) -> dict[str, Any]:
        """The JSON object; with `grad`, asking for the gradients."""
        found: dict[str, Any] = {
            "name": self.name,
            "ins": list(self.ins),
            "outs": list(self.outs),
            "data_type": self.dtype,
            "kernel": self.text,
        }
        return found | {"grad_to": list(self.grad_to)} if grad else found

    def json(self, *, grad: bool = False) -> bytes:
        """The content of the JSON file."""
        return json.dumps(self.document(grad=grad)).encode()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name → shape of every tensor; () for scalars."""
        found: dict[str, tuple[int, ...]] = {}
        for statement in self.statements:
            for ref in refs(Bin("=", statement.left, statement.right)):
                found[ref.name] = () if ref.index is None else ref.shape
        return found


def show(tree: Tree, tighter_than: int = 0) -> str:
    """The tree as text, in parentheses if it binds less tightly than its place."""
    match tree:
        case Num(value):
            text = str(value)
            return f"({text})" if text.startswith("-") and tighter_than > 0 else text
        case Var(name):
            return name
        case Ref(name, shape, index):
            subscripts = "" if index is None else f"[{', '.join(map(show, index))}]"
            return f"{name}<{','.join(map(str, shape))}>{subscripts}"
        case Group(inner):
            return f"({show(inner)})"
        case Bin(op, left, right):
            binds = 1 if op in "+-" else 2
            text = f"{show(left, binds - 1)} {op} {show(right, binds)}"
            return f"({text})" if binds <= tighter_than else text


def walk(tree: Tree) -> Iterator[Tree]:
    """Every part of the tree, subscripts included."""
    yield tree
    match tree:
        case Ref(_, _, index):
            for e in index or ():
                yield from walk(e)
        case Bin(_, left, right):
            yield from walk(left)
            yield from walk(right)
        case Group(inner):
            yield from walk(inner)
        case _:
            pass


def refs(tree: Tree) -> Iterator[Ref]:
    """Every reference in the tree, in reading order."""
    return (x for x in walk(tree) if isinstance(x, Ref))


def variables(*trees: Tree) -> tuple[str, ...]:
    """The indices that occur, each once, in reading order."""
    return tuple(dict.fromkeys(x.name for tree in trees for x in walk(tree) if isinstance(x, Var)))


def terms(tree: Tree) -> list[tuple[int, Tree]]:
    """The units of summation of a right-hand side with their signs: what top-level + and - separate."""
    match tree:
        case Bin("+" | "-" as op, left, right):
            return [*terms(left), (1 if op == "+" else -1, right)]
        case _:
            return [(1, tree)]
