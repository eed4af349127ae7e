"""Which sums of its row a nest waits for: nests of rows in stages, each of which needs the one before to be complete.

m = max x[i]                   stage 0
t[j] = exp(x[i,j] - m)         stage 1
s = sum t[j]                   stage 1
r[i,j] = t[j]/s                stage 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Axis, Expr, loads, walk
from dlc.kernel.loops.program import Local
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.choice import Place
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.scope import Scope, merge_run
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.unfit import Unfit

SLACK = 32
"""Vectors of rows that are shorter than what processors look ahead, even with the loops of three rows in one."""


@dataclass(frozen=True)
class RowStages:
    """When nests run, in rows behind the first of them.

    Attributes:
        nests: Nests that share their inner axis.
        inner: That axis.
        of: Stages of nests; -1 for one that computes a number of the row from other numbers, at the end.
        results: Of nests that compute a result of the row from numbers, by their places, the stage that these are
            ready for.
        made: Of numbers of a row, the stage whose row they belong to once they are complete.
        ready: Of numbers of a row, the stage that uses them first.
        last: Of numbers of a row, the last stage that uses them.
    """

    nests: tuple[Nest, ...]
    inner: Axis
    of: tuple[int, ...]
    results: Mapping[int, int]
    made: Mapping[Local, int]
    ready: Mapping[Local, int]
    last: Mapping[Local, int]


def stages_of(place: Place, scope: Scope, count: int) -> RowStages:
    """The stages of rows, of which short ones leave a row's time for lanes of the first sums to be put together.

    Raises:
        Unfit: its nests are not rows of sums and of elements that wait for them.
    """
    stages = _row_stages(place, scope)
    if stages.inner.extent > SLACK * place.machine.lanes(4):
        return stages
    try:
        later = _row_stages(place, scope, 1)
    except Unfit:
        return stages
    return later if 2 * max(later.of) <= count else stages


def _row_stages(place: Place, scope: Scope, slack: int = 0) -> RowStages:
    """The stages of a group's nests; sums of the first stage are used `slack` rows later than they could be.

    Raises:
        Unfit: they are not rows of sums and of elements that wait for them.
    """
    shared = set(scope.shared)
    if place.written & {n.out for n in scope.nests}:
        raise Unfit("a result has a value before")
    if any(needs_fill(place.kernel, name) for name in scope.narrow if name not in scope.scalars):
        raise Unfit("a buffer has a value before")
    nests = [_merged(n, shared) for n in scope.nests]
    axes = [[a for a in n.axes if a not in shared] for n in nests]
    inner = next((a[0] for a in axes if a), None)
    if inner is None or any(a and a[0].named(inner.name) != inner for a in axes):
        raise Unfit("its nests do not run along equal rows")
    alike = tuple(
        n.substitute({a[0]: inner}, tuple(inner if x == a[0] else x for x in n.axes)) if a else n
        for n, a in zip(nests, axes, strict=True)
    )
    of: list[int] = []
    results: dict[int, int] = {}
    made: dict[Local, int] = {}
    ready: dict[Local, int] = {}
    last: dict[Local, int] = {}
    written: dict[str, tuple[int, Expr]] = {}
    for k, (nest, own) in enumerate(zip(alike, axes, strict=True)):
        numbers = {x for x in walk(nest.body) if isinstance(x, Local)}
        stage = max((ready[x] for x in numbers), default=0)
        scalar = scope.scalars.get(nest.out)
        if results and any(x.param == alike[n].out for n in results for x in loads(nest.body)):
            raise Unfit("a result of a row is read again")
        if not own:
            if nest.reduce is not None or any(x.param in written for x in loads(nest.body)):
                raise Unfit("a number of a row is computed from one of its elements")
            stage = max(1, stage)
            of.append(-1)
            if scalar is None:
                results[k] = stage
            else:
                made[scalar] = ready[scalar] = last[scalar] = stage
        else:
            stage = _behind(nest, stage, written, scope.narrow)
            of.append(stage)
            if scalar is not None and nest.reduce is not None:
                made[scalar] = stage + 1
                ready[scalar] = last[scalar] = stage + 1 + (slack if stage == 0 else 0)
            elif scalar is None and nest.reduce is None and coefficient(nest.index[0], inner) == 1 and scope.plain[k]:
                written[nest.out] = stage, nest.index[0]
            else:
                raise Unfit("it has other nests than sums and elements of rows")
        for x in numbers:
            last[x] = max(last[x], stage)
    return RowStages(alike, inner, tuple(of), results, made, ready, last)


def _behind(nest: Nest, stage: int, written: Mapping[str, tuple[int, Expr]], narrow: Sequence[str]) -> int:
    """The stage of a nest that reads elements of its row that others of the group wrote, or of a given later one."""
    for x in loads(nest.body):
        if x.param in written:
            earlier, index = written[x.param]
            stage = max(stage, earlier)
            if x.index[0] != index:
                raise Unfit("an element waits for one at another place")
    if any(x.param in narrow and stage > written[x.param][0] + 1 for x in loads(nest.body) if x.param in written):
        raise Unfit("a buffer would have to hold several rows")
    return stage


def _merged(nest: Nest, shared: set[Axis]) -> Nest:
    """A nest with one inner axis at most, as long as all others'."""
    if nest.where is not None:
        raise Unfit("it has a guard")
    if not shared <= set(nest.axes):
        raise Unfit("a nest does not run for each row")
    (nest,), _ = merge_run((nest,), tuple(a for a in nest.axes if a not in shared))
    own = [a for a in nest.axes if a not in shared]
    if len(own) > 1 or any(a.limit is not None for a in own):
        raise Unfit("elements of its rows are not neighbours")
    return nest
