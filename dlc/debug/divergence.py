"""The first tensor of a graph that is computed wrongly: by halves over the cuts of its order, with little memory.

    inputs ── ops ──┤ cut ├── ops ──┤ cut ├── ops ── outputs
                    right            wrong             →  the first wrong op lies between the two

A cut is the set of tensors that the ops after it read. From a cut that is right, the reference and what is tested run
on to the one in the middle, both on the tensors of the reference: errors of rounding do not add up, and one error is
not taken for the next. Held at once are the tensors of three cuts at most, beside what computing one part takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dlc.base.types import Array
from dlc.debug.matching import matching
from dlc.debug.states import Closeness
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Item
from dlc.graph.walk import evaluate_ops
from dlc.verify.compare import Comparison

_TRIES = 8
"""Matches that are given up before nothing is told."""

Run: TypeAlias = "Callable[[Mapping[Op, Array], Sequence[Op]], Sequence[Array]]"
"""(values of some ops, ops that are wanted) → their values."""
Wrong: TypeAlias = "Sequence[tuple[Op, Comparison, float, float]]"
"""Tensors of a cut that are wrong, how far off each is, and its worst element: as it is, and as it should be."""


@dataclass(frozen=True)
class Divergence:
    """The first tensor that differs."""

    op: Op
    nodes: tuple[str, ...]
    """Of the model, that it comes from."""
    comparison: Comparison
    got: float
    """The worst element."""
    want: float
    position: int
    """Of the op among those that are computed, from 1."""
    total: int
    parts: int
    """How many parts of the graph were run."""
    held: int
    """Bytes of the tensors of cuts that were held at once, at most."""
    bound: int
    """What that may be at most: three times the largest cut."""
    accumulated: bool
    """Whether no part is wrong by itself: errors within the tolerance add up to this one."""


@dataclass(frozen=True)
class Cut:
    """Tensors behind which a graph goes on without anything before them."""

    position: int
    """Of the last op before it."""
    ops: tuple[Op, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(op.type.nbytes for op in self.ops)


def numpy_run(graph: Graph, feeds: Mapping[str, Array]) -> Run:
    """The graph in numpy."""
    inputs = {i: feeds[i.name] for i in graph.inputs}
    return lambda known, wanted: evaluate_ops(wanted, {**inputs, **known})


def cuts_of(graph: Graph, known: Collection[Op]) -> tuple[Sequence[Op], list[Cut]]:
    """(ops that are computed from the inputs, in order; cuts all of whose tensors are among the `known`).

    The last cut is the outputs.
    """
    constant: dict[str, bool] = {}
    ops = [op for op in graph.ops if not is_constant(op, constant)]
    place = {op: k for k, op in enumerate(ops)}
    end = len(ops)
    last = {op: end if op in set(graph.outputs) else -1 for op in ops}
    for k, op in enumerate(ops):
        for x in op.operands:
            if x in place and last[x] < end:
                last[x] = max(last[x], k)
    live: dict[Op, None] = {}
    found: list[Cut] = []
    for k, op in enumerate(ops):
        for x in [x for x in live if last[x] <= k]:
            del live[x]
        if last[op] > k:
            live[op] = None
        if op.operands and all(x in known for x in live):
            found.append(Cut(k, tuple(live)))
    outputs = Cut(end - 1, tuple(dict.fromkeys(o for o in graph.outputs if o in place)))
    return ops, [*(c for c in found if c.position < end - 1), outputs]


def first_divergence(
    graph: Graph,
    reference: Run,
    tested: Run,
    feeds: Mapping[str, Array],
    close: Closeness,
    known: Collection[Op] | None = None,
    tell: Callable[[str], object] = str,
) -> Divergence | None:
    """The first tensor that is wrong; None where all of them are right.

    Args:
        graph: What is searched.
        reference: Gives right values of the known ops.
        tested: Gives values of any op.
        feeds: Inputs by name.
        close: How far values may be apart.
        known: Ops that the reference knows; None: all of one result.
        tell: Told what is run now.
    """
    return _Search(graph, reference, tested, feeds, close, tell).first(known)


class _Search:
    def __init__(
        self,
        graph: Graph,
        reference: Run,
        tested: Run,
        feeds: Mapping[str, Array],
        close: Closeness,
        tell: Callable[[str], object],
    ) -> None:
        self._graph, self._reference, self._tested = graph, reference, tested
        self._feeds, self._close, self._tell = feeds, close, tell
        self._parts, self._held = 0, 0

    def first(self, known: Collection[Op] | None) -> Divergence | None:
        graph = self._graph
        all_known = {op for op in graph.ops if len(op.types) == 1} if known is None else known
        ops, cuts = cuts_of(graph, all_known)
        held: Mapping[Op, Array] = {i: self._feeds[i.name] for i in graph.inputs}
        low, high = -1, len(cuts) - 1
        suspects: Wrong = ()
        while high - low > 1:
            middle = (low + high) // 2
            want, wrong = self._step(held, cuts[middle])
            if wrong:
                high, suspects = middle, wrong
            else:
                low, held = middle, want
        _, wrong = self._step(held, cuts[high])
        if wrong:
            return self._told(wrong, ops, cuts, accumulated=False)
        if not suspects:
            # Nothing was wrong from one cut to the next: only all parts together may be.
            _, suspects = self._step({i: self._feeds[i.name] for i in graph.inputs}, cuts[-1])
        return self._told(suspects, ops, cuts, accumulated=True) if suspects else None

    def _step(self, held: Mapping[Op, Array], cut: Cut) -> tuple[Mapping[Op, Array], Wrong]:
        """(right tensors of a cut, what is wrong there), from tensors of another one."""
        self._parts += 1
        self._tell(f"part {self._parts}: up to tensor {cut.position + 1}")
        want = dict(zip(cut.ops, self._reference(held, cut.ops), strict=True))
        got = dict(zip(cut.ops, self._tested(held, cut.ops), strict=True))
        self._held = max(self._held, sum(a.nbytes for values in (held, want, got) for a in values.values()))
        wrong: list[tuple[Op, Comparison, float, float]] = []
        for op in cut.ops:
            (found,) = self._close.compared([(op.text_name, got[op], want[op])])
            if not found.ok:
                wrong.append((op, found, _element(got[op], found), _element(want[op], found)))
        return want, wrong

    def _told(self, wrong: Wrong, ops: Sequence[Op], cuts: Sequence[Cut], *, accumulated: bool) -> Divergence:
        place = {op: k for k, op in enumerate(ops)}
        op, found, got, want = min(wrong, key=lambda w: place[w[0]])
        inputs = sum(i.type.nbytes for i in self._graph.inputs)
        bound = 3 * max(inputs, *(c.nbytes for c in cuts))
        nodes = self._graph.origin(op) or (self._graph.origin(op.of) if isinstance(op, Item) else ())
        shown = nodes or tuple(n for n, o in zip(self._graph.names, self._graph.outputs, strict=True) if o == op)
        return Divergence(
            op, shown, found, got, want, place[op] + 1, len(ops), self._parts, self._held, bound, accumulated
        )


def first_wrong_match(
    after: Graph, before: Graph, feeds: Mapping[str, Array], want: Mapping[str, Array], close: Closeness
) -> Divergence | None:
    """The first tensor of a graph that is not what it was in the graph that it was made from; None: nobody can tell.

    A match of tensors is believed if one that reads it, or the outputs, are right with the value from before instead.
    """
    known = matching(after, before)
    old, new = numpy_run(before, feeds), numpy_run(after, feeds)
    inputs = {i: feeds[i.name] for i in after.inputs}

    def reference(held: Mapping[Op, Array], wanted: Sequence[Op]) -> Sequence[Array]:
        return old({known[op]: value for op, value in held.items() if op in known}, [known[op] for op in wanted])

    def believed(op: Op, value: Array) -> bool:
        if op in after.outputs:
            return True
        for user in after.users.get(op, ()):
            if user in known:
                others = [x for x in user.operands if x in known and x != op]
                given = {op: value, **dict(zip(others, reference({}, others), strict=True))}
                (got,), (wanted,) = new(given, [user]), reference({}, [user])
                if all(c.ok for c in close.compared([(user.text_name, got, wanted)])):
                    return True
        outputs = evaluate_ops(after.outputs, {**inputs, op: value})
        return close.worst(dict(zip(after.names, outputs, strict=True)), want).ok

    for _ in range(_TRIES):
        found = first_divergence(after, reference, new, feeds, close, known.keys())
        if found is None or found.accumulated:
            return None
        (value,) = reference({}, [found.op])
        if believed(found.op, value):
            return found
        del known[found.op]
    return None


def _element(array: Array, found: Comparison) -> float:
    return float(array[found.worst]) if array.ndim == len(found.worst) and array.size else float("nan")
