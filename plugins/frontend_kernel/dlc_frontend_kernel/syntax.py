"""What the parser makes of a text: statements over tensors and indices, each node with its offset.

statement := ref = node
node      := Number | Index | Ref | Operation | Call | Group | Reduction
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dlc.base.types import DType
from dlc.kernel.nest import Reduce
from dlc_frontend_kernel.tokens import KernelTokens

BOUND: Final = "'"
"""In keys of indices that a reduction binds: behind the name, before a number."""


@dataclass(frozen=True, eq=False)
class Number:
    """A literal; a whole one is an int."""

    value: int | float
    at: int


@dataclass(frozen=True, eq=False)
class Index:
    """An index variable.

    Attributes:
        key: Tells apart the indices of equal name that different reductions bind.
    """

    name: str
    key: str
    at: int


@dataclass(frozen=True, eq=False)
class Ref:
    """An element of a tensor; a scalar has no subscripts."""

    tensor: str
    subscripts: tuple[Node, ...]
    at: int


@dataclass(frozen=True, eq=False)
class Operation:
    """An infix operator, or the prefix ones `neg` and `not`."""

    op: str
    args: tuple[Node, ...]
    at: int


@dataclass(frozen=True, eq=False)
class Call:
    """A scalar function applied: `exp(x)`."""

    fn: str
    args: tuple[Node, ...]
    at: int


@dataclass(frozen=True, eq=False)
class Group:
    """Parentheses: what is inside is one unit of summation."""

    inner: Node
    at: int


@dataclass(frozen=True, eq=False)
class Reduction:
    """`max[k](…)`: combines the values for all k.

    Attributes:
        indices: Keys of the indices that it binds.
    """

    kind: Reduce
    indices: tuple[str, ...]
    body: Node
    at: int


Node: TypeAlias = Number | Index | Ref | Operation | Call | Group | Reduction


@dataclass(frozen=True, eq=False)
class Statement:
    """`target = value;`"""

    target: Ref
    value: Node
    text: str
    at: int


@dataclass(frozen=True)
class Declared:
    """A tensor as the text first shows it; `dtype` None: that of the values stored."""

    name: str
    shape: tuple[int, ...]
    at: int
    dtype: DType | None = None


@dataclass(frozen=True, eq=False)
class KernelSource:
    """One kernel, parsed: what goes in and out, and the statements in order.

    Attributes:
        ins: Names of the inputs, in the order of the calling convention; those that are also in `outs` are in/out.
        outs: Names of the results.
        tensors: Every tensor by name.
        dtype: Element type where nothing else decides.
        tokens: The text, for errors.
        grad: Inputs to differentiate by; empty: the kernel itself is meant.
    """

    name: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    tensors: Mapping[str, Declared]
    statements: tuple[Statement, ...]
    dtype: DType
    tokens: KernelTokens
    grad: tuple[str, ...] = field(default=())


def parts(node: Node) -> tuple[Node, ...]:
    """Direct parts, in the order of the text."""
    match node:
        case Ref(_, subscripts, _):
            return subscripts
        case Operation(_, args, _) | Call(_, args, _):
            return args
        case Group(inner, _) | Reduction(_, _, inner, _):
            return (inner,)
        case Number() | Index():
            return ()


def walk_nodes(node: Node) -> Iterator[Node]:
    """Every node, parents before their parts, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(parts(node)))


def too_high(node: Node, limit: int) -> bool:
    """Whether more than `limit` nodes lie one in another."""
    level = [node]
    for _ in range(limit):
        level = [p for n in level for p in parts(n)]
        if not level:
            return False
    return True


def free(node: Node) -> tuple[str, ...]:
    """Keys of the indices that no reduction inside binds, in order of appearance."""
    nodes = list(walk_nodes(node))
    bound = {key for n in nodes if isinstance(n, Reduction) for key in n.indices}
    return tuple(dict.fromkeys(n.key for n in nodes if isinstance(n, Index) and n.key not in bound))


def bare(node: Node) -> Node:
    """What is inside of parentheses."""
    while isinstance(node, Group):
        node = node.inner
    return node


def reads(statement: Statement) -> list[Ref]:
    """The tensors' elements that a statement reads, those in subscripts of the left side included."""
    nodes = [n for s in statement.target.subscripts for n in walk_nodes(s)]
    return [n for n in (*nodes, *walk_nodes(statement.value)) if isinstance(n, Ref)]
