"""unroll: branches and loops of known length become plain ops, for targets that have no control flow.

    (y,) = scan(c, x) body=g steps=2   →   (y,) = g(1, g(0, c, x[0]), x[1])
    y = if(p) then=g otherwise=h       →   y = where(p, g, h)        both are computed

Loops whose number of iterations is known only at run time stay as they are, and so does what would make more than
`limit` ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph.bodies import COUNTER
from dlc.graph.branch import If
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.loops import Scan
from dlc.graph.op import Op
from dlc.graph.structure import Item, Splat
from dlc.ops.elementwise import Where
from dlc.ops.shape import Concat, Reshape, Slice
from dlc.spec import option


@dataclass(frozen=True)
class Unroll(Pass[Graph, Graph]):
    """Turn branches into selections and loops of known length into their iterations: scan(c) body=g  →  g(g(c))."""

    name: ClassVar[str] = "unroll"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    idempotent: ClassVar[bool] = True
    limit: int = option(1 << 16, "maximum number of ops that branches and loops may come to", low=0)

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph without branches and loops, as far as they are known."""
        report.missed_as = "not unrolled"
        work = _Unrolling(self.limit)
        found = work.graph(state)
        for op, names in work.left:
            known = _size(op) is not None
            reason = f"it comes to more than {self.limit:,} ops" if known else "its length is known at run time only"
            report.missed(", ".join(names) or op.text_name, reason)
        if work.count:
            report.count("unrolled", work.count)
        return found


class _Unrolling:
    """One walk; bodies first, so that what is inside of a loop is unrolled once."""

    def __init__(self, limit: int) -> None:
        self.room = limit
        self.count = 0
        self.left: list[tuple[Op, tuple[str, ...]]] = []

    def graph(self, graph: Graph) -> Graph:
        if not graph.bodies:
            return graph
        graph = graph.with_bodies(self.graph)
        new: dict[str, Op] = {}
        results: dict[str, Sequence[Op]] = {}
        origins = dict(graph.origins)
        for op in graph.ops:
            if isinstance(op, Item) and op.of.digest in results:
                new[op.digest] = results[op.of.digest][op.index]
                continue
            moved = op.with_operands([new[x.digest] for x in op.operands])
            found = self._results(moved, origins, graph.origin(op)) if op.body_names else None
            if found is not None:
                results[op.digest] = found
                moved = found[0] if len(op.types) == 1 else moved
            elif op.body_names:
                self.left.append((op, graph.origin(op)))
            new[op.digest] = moved
            if graph.origin(op):
                origins.setdefault(moved.digest, graph.origin(op))
        return with_live_origins(replace(graph, outputs=tuple(new[o.digest] for o in graph.outputs), origins=origins))

    def _results(self, op: Op, origins: dict[str, tuple[str, ...]], names: tuple[str, ...]) -> Sequence[Op] | None:
        size = _size(op)
        if size is None or size > self.room:
            return None
        self.room -= size
        self.count += 1

        def inlined(body: Graph, args: Sequence[Op]) -> Sequence[Op]:
            given: dict[Op, Op] = dict(zip(body.inputs, args, strict=True))
            found = body.substitute(given)
            for digest, own in found.origins.items():
                origins.setdefault(digest, own)
            return found.outputs

        match op:
            case If():
                pairs = zip(*(inlined(body, op.captured) for body in op.bodies), strict=True)
                found = [Where(op.condition, a, b) for a, b in pairs]
            case Scan():
                found = _iterations(op, inlined)
            case _:
                return None
        for x in found:
            origins.setdefault(x.digest, names)
        return found


def _size(op: Op) -> int | None:
    """Ops that one becomes; None where that is not known."""
    match op:
        case If():
            return sum(len(body.ops) for body in op.bodies)
        case Scan():
            return op.steps * len(op.body.ops)
        case _:
            return None


def _iterations(op: Scan, inlined: Callable[[Graph, Sequence[Op]], Sequence[Op]]) -> list[Op]:
    """The results of a scan."""
    count = len(op.carried)
    state: Sequence[Op] = op.carried
    rows: list[list[Op]] = [[] for _ in op.types[count:]]
    for t in range(op.steps):
        slices = [_row(x, t) for x in op.scanned]
        outputs = inlined(op.body, (Splat(t, COUNTER), *state, *slices, *op.captured))
        stored = state if op.stored else ()
        for each, row in zip(rows, (*outputs[count:], *stored), strict=True):
            each.append(Reshape(row, to=(1, *row.shape)))
        state = outputs[:count]
    joined = [_joined(each) if each else Splat(0, t) for each, t in zip(rows, op.types[count:], strict=True)]
    return [*state, *joined]


def _joined(rows: Sequence[Op]) -> Op:
    return rows[0] if len(rows) == 1 else Concat(tuple(rows), axis=0)


def _row(x: Op, t: int) -> Op:
    rest = x.shape[1:]
    return Reshape(Slice(x, starts=(t, *(0 for _ in rest)), sizes=(1, *rest)), to=rest)
