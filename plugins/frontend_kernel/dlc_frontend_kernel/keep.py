"""The elements that a statement does not write: nests that copy them from the tensor's value before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dlc.kernel.define import grid
from dlc.kernel.expr import TRUE, Apply, Axis, Const, Expr, Load, apply, both, substitute
from dlc.kernel.nest import Nest, Param

_NEGATED: Mapping[str, str] = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


def is_whole(target: Param, index: Sequence[Expr], conditions: Sequence[Expr]) -> bool:
    """Whether a left side names every element of its tensor."""
    plain = all(isinstance(e, Axis) and e.extent == d for e, d in zip(index, target.shape, strict=True))
    return plain and len(set(index)) == len(index) and not conditions


def kept(target: Param, old: Param, index: Sequence[Expr], conditions: Sequence[Expr]) -> Iterator[Nest]:
    """target[u] = old[u] wherever a statement with plain subscripts (axes and constants) writes nothing.

    What is written lies in an intersection of half-spaces C1 & C2 & …; the rest is, disjoint, not C1; C1 & not C2; ….
    Each piece has linear conditions only, which loops and gradients can take up.
    """
    axes = grid(target.shape, "u")
    inside = list(_box(axes, index))
    where = {e: u for e, u in zip(index, axes, strict=True) if isinstance(e, Axis)}
    inside += [substitute(c, where) for c in conditions]
    before: Expr | None = None
    for c in inside:
        assert isinstance(c, Apply)
        yield Nest(target.name, axes, axes, Load(old.name, axes), None, both(before, apply(_NEGATED[c.fn], *c.args)))
        before = both(before, c)


def _box(axes: Sequence[Axis], index: Sequence[Expr]) -> Iterator[Expr]:
    for u, e in zip(axes, index, strict=True):
        match e:
            case Axis(_, extent) if extent < u.extent:
                yield u < extent
            case Const(int() as value):
                yield u >= value
                yield u <= value
            case _:
                pass


def kept_by_mask(target: Param, old: Param, mask: Param, written: Nest) -> Iterator[Nest]:
    """The same for any left side: a mask is set where it writes, the others are copied."""
    yield Nest(mask.name, written.index, written.axes, TRUE, None, written.where)
    axes = grid(target.shape, "u")
    yield Nest(target.name, axes, axes, Load(old.name, axes), None, apply("not", Load(mask.name, axes)))
