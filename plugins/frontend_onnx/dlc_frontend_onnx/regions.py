"""Branches and iterations that run at run time: what of them lies inside a body, and what a body captures.

A loop keeps what depends on its iteration; the rest is computed once, before it. A branch keeps what is its own, since
the other one may be taken. Constants without a name lie inside; one with a name is a parameter, which a gradient has to
see, so it is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlc.graph import Constant, Graph, If, Input, Item, Op
from dlc.graph.bodies import closed
from dlc.graph.walk import toposort
from dlc.ops.elementwise import Where
from dlc.ops.pointwise import Pointwise
from dlc.ops.shape import Concat, Expand, Reshape, Slice, Transpose
from dlc_frontend_onnx.unsupported import Unsupported

SELECTED = 8
"""Cheap ops of two branches up to which both are computed: a choice between elements costs less than a branch."""
_CHEAP = (Pointwise, Concat, Expand, Reshape, Slice, Transpose, Item)


_SIZES: Final = "give every dimension one size, as --dim batch=8"


class Formal(Input):
    """What a body reads while it is imported. It equals no input of a model, whatever that is called."""


@dataclass(frozen=True)
class Around:
    """What the graph around a body offers."""

    values: Collection[Op]
    """Those in the scope of its node."""
    is_constant: Callable[[Op], bool]
    origins: Mapping[str, tuple[str, ...]]
    _free: dict[str, bool] = field(default_factory=dict[str, bool])

    def free(self, op: Op) -> bool:
        """Whether an op is constant and reads no parameter."""
        if op.digest not in self._free:
            for x in toposort((op,)) if self.is_constant(op) else ():
                named = isinstance(x, Constant) and bool(x.name)
                self._free[x.digest] = not named and all(self._free[y.digest] for y in x.operands)
            self._free.setdefault(op.digest, False)
        return self._free[op.digest]

    def local(self, outputs: Sequence[Op], formals: Sequence[Op] = ()) -> tuple[Op, ...]:
        """What was made for outputs, operands before users."""
        return toposort(outputs, (*formals, *(v for v in self.values if not self.free(v))))


def iteration(outputs: Sequence[Op], formals: Mapping[Op, Input], around: Around) -> tuple[Graph, tuple[Op, ...]]:
    """The body of a loop, whose inputs are `formals` and then what is captured, and what that is."""
    inside: set[str] = {f.digest for f in formals}
    for op in around.local(outputs, tuple(formals)):
        if any(x.digest in inside for x in op.operands):
            inside.add(op.digest)
    captured = _read(outputs, inside, around)
    if _is_open((*formals, *captured), outputs, inside):
        raise Unsupported("an iteration works on values whose sizes are known at run time only", _SIZES)
    given = {**formals, **_numbered(captured)}
    return closed(outputs, given, around.origins), captured


def branch(condition: Op, then: Sequence[Op], otherwise: Sequence[Op], around: Around) -> list[Op]:
    """The results of two branches, of equal types: chosen from where both are cheap, else of the one that is run."""
    local = around.local((*then, *otherwise))
    own = [op for op in local if not around.free(op)]
    if len(own) <= SELECTED and all(isinstance(op, _CHEAP) for op in own):
        return [Where(condition, a, b) for a, b in zip(then, otherwise, strict=True)]
    inside = {op.digest for op in local if not isinstance(op, Input)}
    captured = _read((*then, *otherwise), inside, around)
    if _is_open(captured, (*then, *otherwise), inside):
        return [Where(condition, a, b) for a, b in zip(then, otherwise, strict=True)]
    given = _numbered(captured)
    op = If(condition, captured, *(closed(each, given, around.origins) for each in (then, otherwise)))
    return [op] if len(op.types) == 1 else [Item(op, k) for k in range(len(op.types))]


def _is_open(given: Sequence[Op], outputs: Sequence[Op], inside: Collection[str]) -> bool:
    """Whether a body would read or compute values whose dimensions are known at run time only."""
    own = (op for op in toposort(outputs, given) if op.digest in inside)
    return any(op.type.is_open for op in given) or any(op.symbols for op in own)


def _read(outputs: Sequence[Op], inside: Collection[str], around: Around) -> tuple[Op, ...]:
    """What lies outside and is read inside, or is an output, in order; constants that are free lie inside."""
    found: dict[Op, None] = {}
    waiting, seen = list(reversed(outputs)), set[str]()
    while waiting:
        op = waiting.pop()
        if op.digest in seen:
            continue
        seen.add(op.digest)
        if op.digest in inside:
            waiting += reversed(op.operands)
        elif not around.free(op):
            found[op] = None
    return tuple(found)


def _numbered(captured: Sequence[Op]) -> dict[Op, Input]:
    return {op: Input(f"v{k}", op.type) for k, op in enumerate(captured)}
