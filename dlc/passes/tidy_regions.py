"""Ops that hold graphs take and give no more than is needed.

scan(…, [constant]) body=g    → scan(…, []) body=g with the constant inside
(a, b) = if(…), b not read    → a = if(…)
c = loop(…), body gives c     → the value that it begins with, captured
if(true) then=g               → g
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from dlc.graph.bodies import body_of, item
from dlc.graph.branch import If
from dlc.graph.constants import number
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.loops import Loop, Scan
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.graph.walk import toposort

Results = Mapping[int, Op]
"""Number of a result that is read → the value that it is now."""


def tidied(graph: Graph) -> Graph:
    """An equal graph, in whose bodies nothing else has changed."""
    while graph.bodies:
        new = _once(graph)  # what one op needs no more may be all that another one was there for
        if new.digest == graph.digest:
            break
        graph = new
    return graph


def _once(graph: Graph) -> Graph:
    used: dict[str, set[int]] = {op.digest: {0} if len(op.types) == 1 else set() for op in graph.ops}
    for op in graph.ops:
        if isinstance(op, Item):
            used[op.of.digest].add(op.index)
    new: dict[str, Op] = {}
    results: dict[str, Results] = {}
    origins = dict(graph.origins)
    for op in graph.ops:
        if isinstance(op, Item) and op.of.digest in results:
            new[op.digest] = results[op.of.digest][op.index]
            continue
        moved = op.with_operands([new[x.digest] for x in op.operands])
        if op.body_names:
            results[op.digest] = found = _tidy(moved, used[op.digest])
            moved = found.get(0, moved) if len(op.types) == 1 else moved
            for x in found.values():
                origins.setdefault((x.of if isinstance(x, Item) else x).digest, graph.origin(op))
        new[op.digest] = moved
        origins.setdefault(moved.digest, graph.origin(op))
    outputs = tuple(new[o.digest] for o in graph.outputs)
    return with_live_origins(replace(graph, outputs=outputs, origins={d: n for d, n in origins.items() if n}))


def _tidy(op: Op, used: Collection[int]) -> Results:
    match op:
        case If():
            return _branch(op, sorted(used))
        case Scan():
            return _scan(op, used)
        case Loop():
            return _loop(op, used)
        case _:
            return {k: item(op, k) for k in used}


def _branch(op: If, kept: Sequence[int]) -> Results:
    known = number(op.condition)
    if known is not None or op.then == op.otherwise:
        body = op.otherwise if known is not None and not known else op.then
        given: dict[Op, Op] = dict(zip(body.inputs, op.captured, strict=True))
        whole = body.substitute(given)
        return {k: whole.outputs[k] for k in kept}
    outputs = [[body.outputs[k] for k in kept] for body in op.bodies]
    pairs = [list(zip(op.captured, body.inputs, strict=True)) for body in op.bodies]
    captured = _Captured.of([(x, (i, j)) for (x, i), (_, j) in zip(*pairs, strict=True)], outputs)
    bodies = [captured.body(n, [], outputs[n], body) for n, body in enumerate(op.bodies)]
    return _items(If(op.condition, captured.values, *bodies), kept)


def _scan(op: Scan, used: Collection[int]) -> Results:
    body, count, rows = op.body, len(op.carried), len(op.body.outputs) - len(op.carried)
    carried, slices = body.inputs[1 : 1 + count], body.inputs[1 + count : 1 + count + len(op.scanned)]
    stored = op.stored and any(k >= count + rows for k in used)
    still = {k for k in range(count) if not stored and body.outputs[k] == carried[k]}
    results = {k: op.carried[k] for k in still if k in used}
    wanted = {k if k < count else k - count - rows for k in used if not count <= k < count + rows}
    kept_rows = [k for k in range(count, count + rows) if k in used]
    kept = _needed(carried, body.outputs[:count], wanted - still, [body.outputs[k] for k in kept_rows], still)
    outputs = [body.outputs[k] for k in (*kept, *kept_rows)]
    if not outputs:
        return results
    read = _inputs_of(outputs)
    scanned = [(x, i) for x, i in zip(op.scanned, slices, strict=True) if i.digest in read]
    captured = _Captured.of(
        [
            *((x, (i,)) for x, i in zip(op.captured, body.inputs[1 + count + len(slices) :], strict=True)),
            *((op.carried[k], (carried[k],)) for k in sorted(still)),
        ],
        [outputs],
    )
    first = [(body.inputs[0], "i"), *((carried[k], f"c{n}") for n, k in enumerate(kept))]
    first += [(i, f"x{n}") for n, (_, i) in enumerate(scanned)]
    states, inner = tuple(op.carried[k] for k in kept), captured.body(0, first, outputs, body)
    found = Scan(states, tuple(x for x, _ in scanned), captured.values, inner, op.steps, stored)
    numbers = [*kept, *kept_rows, *(count + rows + k for k in kept if stored)]
    return {**results, **{k: x for k, x in _items(found, numbers).items() if k in used}}


def _loop(op: Loop, used: Collection[int]) -> Results:
    body, count = op.body, len(op.carried)
    again, *values = body.outputs
    carried = body.inputs[1 : 1 + count]
    still = {k for k in range(count) if values[k] == carried[k]}
    results = {k: op.carried[k] for k in still if k in used}
    kept = _needed(carried, values, set(used) - still, [again], still)
    if set(used) <= still:
        return results
    outputs = [again, *(values[k] for k in kept)]
    captured = _Captured.of(
        [
            *((x, (i,)) for x, i in zip(op.captured, body.inputs[1 + count :], strict=True)),
            *((op.carried[k], (carried[k],)) for k in sorted(still)),
        ],
        [outputs],
    )
    first = [(body.inputs[0], "i"), *((carried[k], f"c{n}") for n, k in enumerate(kept))]
    states, inner = tuple(op.carried[k] for k in kept), captured.body(0, first, outputs, body)
    found = _items(Loop(op.count, op.condition, states, captured.values, inner), kept)
    return {**results, **{k: x for k, x in found.items() if k in used}}


def _items(op: Op, numbers: Sequence[int]) -> Results:
    """The results of an op by the numbers that they had."""
    return {k: item(op, n) for n, k in enumerate(numbers)}


def _needed(
    carried: Sequence[Input],
    values: Sequence[Op],
    wanted: Collection[int],
    others: Sequence[Op],
    still: Collection[int],
) -> list[int]:
    """Numbers of the changing values that are wanted, or that these and the others come from."""
    kept = set(wanted)
    while True:
        read = _inputs_of([*(values[k] for k in kept), *others])
        more = kept | {k for k, c in enumerate(carried) if c.digest in read and k not in still}
        if more == kept:
            return sorted(kept)
        kept = more


def _inputs_of(outputs: Sequence[Op]) -> set[str]:
    return {op.digest for op in toposort(outputs) if isinstance(op, Input)}


@dataclass(frozen=True)
class _Captured:
    """What bodies capture, and as which of their inputs."""

    values: tuple[Op, ...]
    """Once each: nothing that no body reads, and no constants."""
    inside: tuple[Mapping[Op, Op], ...]
    """For each body, its inputs → the constants that they are, or the inputs that they will be."""

    @classmethod
    def of(cls, values: Sequence[tuple[Op, tuple[Input, ...]]], outputs: Sequence[Sequence[Op]]) -> _Captured:
        """From values with the input that each is of each body, of which these outputs are kept."""
        read = [_inputs_of(each) for each in outputs]
        constant: dict[str, bool] = {}
        kept: dict[Op, Op] = {}
        inside: list[dict[Op, Op]] = [{} for _ in outputs]
        for x, inputs in values:
            if any(i.digest in seen for i, seen in zip(inputs, read, strict=True)):
                now = x if is_constant(x, constant) else kept.setdefault(x, Input(f"v{len(kept)}", x.type))
                for given, i in zip(inside, inputs, strict=True):
                    given[i] = now
        return cls(tuple(kept), tuple(inside))

    def body(self, n: int, first: Sequence[tuple[Input, str]], outputs: Sequence[Op], old: Graph) -> Graph:
        """Body number `n`, whose first inputs get these names."""
        own: dict[Op, Input] = {i: Input(name, i.of) for i, name in first}
        formals = [Input(f"v{k}", x.type) for k, x in enumerate(self.values)]
        whole = replace(old, outputs=tuple(outputs)).substitute({**own, **self.inside[n]})
        return body_of([*own.values(), *formals], whole.outputs, whole.origins)
