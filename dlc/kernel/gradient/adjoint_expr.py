"""Reverse mode over one expression: what its cotangent adds to the elements that it loads.

    g · ∂body/∂x[f]   for every load x[f] of the body, by the formulas of `scalar.SCALARS`

A choice is no factor: what flows through the branch of a `select` counts only where the branch is chosen, so the
infinite derivative of a branch that is not taken meets no zero (∞ · 0 is no number). Where the condition is one of
axes, it becomes part of the guard, because the load itself may be legal only there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from dlc.kernel.expr import Apply, Const, Expr, Load, apply, both, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import bounds, conjuncts, is_index

Place: TypeAlias = tuple[Load, Expr | None]
"""A load that receives a cotangent, and the guard under which it does."""
_COMPARISONS: Mapping[str, str] = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
"""Comparisons of integers and their opposites."""


@dataclass(frozen=True)
class Pull:
    """Reverse mode over the expressions of a kernel.

    Attributes:
        kernel: Whose tensors the expressions load.
        active: Names of the floating-point tensors whose cotangents are wanted.
    """

    kernel: Kernel
    active: frozenset[str]
    _reached: dict[Expr, bool] = field(default_factory=dict[Expr, bool])

    def reaches(self, e: Expr) -> bool:
        """Whether a derivative flows from the value of `e` to a load of an active tensor."""
        known = self._reached.get(e)
        if known is None:
            known = self._reached[e] = self._reaches(e)
        return known

    def _reaches(self, e: Expr) -> bool:
        match e:
            case Load(param, _):
                return param in self.active
            case Apply(fn, args):
                scalar = SCALARS[fn]
                if scalar.rule == "cast":
                    return scalar.to is not None and scalar.to.is_float and self.reaches(args[0])
                if scalar.rule == "select":
                    return self.reaches(args[1]) or self.reaches(args[2])
                return scalar.grad is not None and any(self.reaches(a) for a in args)
            case _:
                return False

    def __call__(self, body: Expr, g: Expr, where: Expr | None) -> dict[Place, Expr]:
        """What every place receives when `body` has the cotangent `g` under a guard."""
        found: dict[Place, list[Expr]] = {}
        if self.reaches(body):
            self._pull(body, g, where, found)
        return {place: total(parts) for place, parts in found.items()}

    def _pull(self, e: Expr, g: Expr, where: Expr | None, into: dict[Place, list[Expr]]) -> None:
        match e:
            case Load():
                into.setdefault((e, where), []).append(g)
            case Apply("select", (condition, then, otherwise)):
                self._choose(condition, then, otherwise, g, where, into)
            case Apply(fn, (x,)) if SCALARS[fn].rule == "cast":
                source = self.kernel.dtype_of(x)
                assert source is not None
                self._pull(x, g if source is SCALARS[fn].to else apply(source.name, g), where, into)
            case Apply(fn, args):
                grad = SCALARS[fn].grad
                assert grad is not None
                for x, own in zip(args, grad(g, e, *args), strict=True):
                    if own is not None and self.reaches(x):
                        self._pull(x, own, where, into)
            case _:
                raise AssertionError(e)

    def _choose(
        self, condition: Expr, then: Expr, otherwise: Expr, g: Expr, where: Expr | None, into: dict[Place, list[Expr]]
    ) -> None:
        """Both branches of `select(condition, then, otherwise)`, each where it is chosen."""
        parts = conjuncts(condition)
        of_axes = _conjunction([c for c in parts if is_axis_condition(c)])
        of_data = _conjunction([c for c in parts if not is_axis_condition(c)])
        if of_data is None:
            for branch, guard in ((then, condition), (otherwise, negated(condition))):
                if self.reaches(branch):
                    self._pull(branch, g, both(where, guard), into)
            return
        yes = self(then, g, both(where, of_axes))
        no = self(otherwise, g, where)
        for place in dict.fromkeys((*yes, *no)):
            load, guard = place
            a, b = yes.get(place), no.get(place)
            if self._inside(load):
                chosen = condition if a is None or of_axes is None else of_data
                into.setdefault(place, []).append(select(chosen, 0.0 if a is None else a, 0.0 if b is None else b))
                continue
            # The subscripts may leave the tensor where the branch is not chosen, so nothing may be written there.
            if a is not None:
                into.setdefault((load, both(guard, of_data)), []).append(a)
            if b is not None:
                into.setdefault((load, both(guard, apply("not", condition))), []).append(b)

    def _inside(self, load: Load) -> bool:
        """Whether the subscripts of a load stay in its tensor everywhere."""
        spans = [bounds(i) for i in load.index]
        shape = self.kernel.tensors[load.param].shape
        return all(s is not None and s[0] >= 0 and s[1] < d for s, d in zip(spans, shape, strict=True))


def is_axis_condition(e: Expr) -> bool:
    """Whether a condition depends on nothing but axes."""
    match e:
        case Const():
            return True
        case Apply(fn, (a, b)) if fn in _COMPARISONS:
            return is_index(a) and is_index(b)
        case Apply("and" | "or" | "xor" | "not", args):
            return all(is_axis_condition(a) for a in args)
        case _:
            return False


def negated(condition: Expr) -> Expr:
    """The opposite of a condition of axes, its comparisons turned around."""
    match condition:
        case Const(value):
            return Const(not value)
        case Apply("and", (a, b)):
            return apply("or", negated(a), negated(b))
        case Apply("or", (a, b)):
            return apply("and", negated(a), negated(b))
        case Apply("not", (a,)):
            return a
        case Apply(fn, (a, b)) if fn in _COMPARISONS:
            return apply(_COMPARISONS[fn], a, b)
        case _:
            return apply("not", condition)


def _conjunction(parts: Sequence[Expr]) -> Expr | None:
    guard: Expr | None = None
    for part in parts:
        guard = both(guard, part)
    return guard


def total(parts: Sequence[Expr]) -> Expr:
    """The sum of expressions, added by halves so that many of them stay shallow."""
    if len(parts) == 1:
        return parts[0]
    half = (len(parts) + 1) // 2
    return total(parts[:half]) + total(parts[half:])


def tree_size(e: Expr, known: dict[int, int]) -> int:
    """Nodes of an expression as a tree, counted on its shared parts: it may be too large to walk.

    Args:
        e: Must stay alive as long as `known` does, which is keyed by identity.
        known: Sizes of parts, added to.
    """
    stack = [e]
    while stack:
        x = stack[-1]
        parts: tuple[Expr, ...] = x.args if isinstance(x, Apply) else x.index if isinstance(x, Load) else ()
        missing = [p for p in parts if id(p) not in known]
        if missing:
            stack += missing
            continue
        stack.pop()
        known[id(x)] = 1 + sum(known[id(p)] for p in parts)
    return known[id(e)]
