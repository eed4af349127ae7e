"""`Rule`: one equation of the graph's algebra; `RewriteContext`: what a rule may know about its surroundings.

A rule is a function from an op to an equal op, or None where it does not apply. Its docstring is its equation. Rules
look at operands by `match`; they see them already simplified, because operands come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dlc.base.polynomials import Symbol
from dlc.base.types import DType, Type
from dlc.graph.op import Op
from dlc.graph.structure import Input, Splat
from dlc.ops.pointwise import literal
from dlc.ops.shape import Expand

H = TypeVar("H", bound=Op)


@dataclass(frozen=True)
class Rule:
    """An equation, read from left to right."""

    name: str
    """Its function's name; what statistics and tests call it."""
    equation: str
    """Its function's docstring."""
    heads: tuple[type[Op], ...]
    """The kinds of op, subclasses included, that it looks at."""
    apply: Callable[[Any, RewriteContext], Op | None]
    """The equal op, of the same type, or None."""
    fast: bool = False
    """Whether it may change results that are NaN, infinite or zeros with a sign; used on request only."""
    composes: bool = False
    """Whether it makes composite ops; left out after `expand`, which took them apart."""


@dataclass
class RewriteContext:
    """The surroundings of the op that is being simplified."""

    fast: bool = False
    """Whether rules may change NaN, infinities and signs of zeros."""
    readers: dict[str, int] = field(default_factory=dict[str, int])
    """Digest → number of readers, for every op that was met so far."""
    users: dict[str, tuple[Op, ...]] = field(default_factory=dict[str, tuple[Op, ...]])
    """Digest → the ops that read it and are still to come; () for outputs of the graph."""
    _constant: dict[str, bool] = field(default_factory=dict[str, bool])
    _sizes: dict[str, tuple[frozenset[Symbol], frozenset[Symbol]]] = field(
        default_factory=dict[str, "tuple[frozenset[Symbol], frozenset[Symbol]]"]
    )

    def single(self, op: Op) -> bool:
        """Whether nothing but the op at hand reads `op`: only then it disappears when it is merged into its reader."""
        return self.readers.get(op.digest, 2) <= 1

    def read_by(self, op: Op, accepts: Callable[[Op], bool]) -> bool:
        """Whether `op` is read by ops of this kind only: it disappears when all of them take it in."""
        users = self.users.get(op.digest, ())
        return bool(users) and all(accepts(u) for u in users)

    def constant(self, op: Op) -> bool:
        """Whether `op` depends on no input."""
        known = self._constant.get(op.digest)
        if known is None:
            # Operands were met before, so this does not go deep.
            known = (
                not isinstance(op, Input)
                and not op.symbols
                and not op.body_names
                and all(self.constant(x) for x in op.operands)
            )
            self._constant[op.digest] = known
        return known

    def sizes(self, op: Op) -> tuple[frozenset[Symbol], frozenset[Symbol]]:
        """The symbols that an op or what it depends on reads, and those of them that are defined there."""
        known = self._sizes.get(op.digest)
        if known is None:
            below = [self.sizes(x) for x in op.operands]  # these were met before, so this does not go deep
            read = frozenset(op.symbols).union(*(r for r, _ in below))
            known = self._sizes[op.digest] = read, op.finds.union(*(d for _, d in below))
        return known

    def loses_size(self, op: Op, new: Op) -> bool:
        """Whether `new`, in the place of `op`, reads a size that data decides, and what finds it is gone."""
        found = self.sizes(op)[1]
        if not found:
            return False
        read, defined = self.sizes(new)
        return not found & read <= defined


def rule(
    *heads: type[H], fast: bool = False, composes: bool = False
) -> Callable[[Callable[[H, RewriteContext], Op | None]], Rule]:
    """Make a function a Rule for ops of these kinds.

    Args:
        heads: The kinds of op, subclasses included, that the function is called with.
        fast: Whether it may change results that are NaN, infinite or zeros with a sign; used on request only.
        composes: Whether it makes composite ops; left out after `expand`, which took them apart.

    Returns:
        A decorator of a function that returns the equal op, of the same type, or None. Name and docstring of the
        function become those of the rule.
    """

    def made(function: Callable[[H, RewriteContext], Op | None]) -> Rule:
        return Rule(function.__name__, (function.__doc__ or "").strip(), heads, function, fast, composes)

    return made


def equation(*heads: type[H], fast: bool = False, composes: bool = False) -> Callable[[Callable[[H], Op | None]], Rule]:
    """Make a function that looks at nothing but the op and its operands a Rule.

    Args:
        heads: The kinds of op, subclasses included, that the function is called with.
        fast: Whether it may change results that are NaN, infinite or zeros with a sign; used on request only.
        composes: Whether it makes composite ops; left out after `expand`, which took them apart.

    Returns:
        A decorator of a function that returns the equal op, of the same type, or None. Name and docstring of the
        function become those of the rule.
    """

    def made(function: Callable[[H], Op | None]) -> Rule:
        def apply(op: H, _: RewriteContext) -> Op | None:
            return function(op)

        return Rule(function.__name__, (function.__doc__ or "").strip(), heads, apply, fast, composes)

    return made


def as_shape(x: Op, shape: tuple[int, ...]) -> Op:
    """`x` broadcast to a shape; itself when it has it."""
    return x if x.shape == shape else Expand(x, to=shape)


def full(value: float, like: Type) -> Splat:
    """`value` in every element of a type."""
    return Splat(literal(value, like.dtype), like)


def unit(value: float, dtype: DType) -> Splat:
    """`value` as an operand that broadcasts with everything."""
    return full(value, Type(dtype, ()))
