"""Nests of a group that share their inner loop as well: sums of one row, and neighbours that store elements of one row.

    s = Σₖ x[k]; t = Σₖ y[k]; r[k] = f(s, x[k]); q[k] = g(t, y[k])  →  for k: s += …; t += …;  for k: r[k] = …; q[k] = …

What several of them read is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dlc.base.types import DType
from dlc.kernel.expr import Axis, Load, axes_in, loads, walk
from dlc.kernel.loops.program import Local
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.fold import PARTIAL
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scope import Scope


def runs_of(scope: Scope, machine: Machine, known: Collection[str]) -> list[list[int]]:
    """The positions of a group's nests in the order in which they run, those that share a loop together.

    Args:
        scope: The group.
        machine: What it runs on: sums of all nests of a loop are in its registers.
        known: What has a value before.
    """
    runs: list[list[int]] = []
    most = max(1, machine.registers // PARTIAL - 1)
    for k in range(len(scope.nests)):
        place = None if machine.ordered or not machine.vector_bytes else _place(scope, runs, k, known, most)
        if place is None:
            runs.append([k])
        else:
            runs[place].append(k)
    return runs


def _place(scope: Scope, runs: Sequence[Sequence[int]], k: int, known: Collection[str], most: int) -> int | None:
    """The run that a nest may join; None: it begins one."""
    nest, read = scope.nests[k], _read(scope.nests[k])
    if not (_is_sum(scope, nest, known) or _is_map(scope, k)):
        return None
    for place in range(len(runs) - 1, -1, -1):
        others = [scope.nests[j] for j in runs[place]]
        alone = _is_map(scope, k) and not all(_is_map(scope, j) for j in runs[place])
        if len(others) < most and not alone and _fits(scope, others, nest, known):
            return place
        # A map stays where it is: what it writes may be in the way of others.
        if not _is_sum(scope, nest, known) or any(n.out in read for n in others):
            return None
    return None


def _fits(scope: Scope, others: Sequence[Nest], nest: Nest, known: Collection[str]) -> bool:
    """Whether a nest runs in the loop of others."""
    if any(_inner(scope, n) != _inner(scope, nest) for n in others):
        return False
    if _is_sum(scope, nest, known):
        return all(
            _is_sum(scope, n, known) and _combined(scope, n) == _combined(scope, nest) and n.out not in _read(nest)
            for n in others
        )
    same = alike([*others, nest], scope.shared)
    written = {n.out: Load(n.out, n.index) for n in same}
    if len(written) < len(same) or any(n.where is not None or n.out in scope.scalars for n in same):
        return False
    return all(x == written[x.param] for n in same for x in loads(n.body) if x.param in written)


def _combined(scope: Scope, nest: Nest) -> tuple[str | None, DType]:
    """How a sum combines values, and their type."""
    return nest.reduce, scope.scalars[nest.out].dtype


def _read(nest: Nest) -> set[str]:
    """The tensors and variables that a nest reads."""
    found = (x for e in nest.exprs() for x in walk(e))
    return {x.param if isinstance(x, Load) else x.name for x in found if isinstance(x, Load | Local)}


def _inner(scope: Scope, nest: Nest) -> tuple[Axis, ...]:
    """How far the inner loops of a nest run, whatever their names are."""
    return tuple(a.named("") for a in nest.axes if a not in scope.shared)


def _is_sum(scope: Scope, nest: Nest, known: Collection[str]) -> bool:
    """Whether a nest adds up a row, or finds the largest of it, in a variable."""
    inside = nest.out in scope.scalars and nest.out not in known and bool(_inner(scope, nest))
    return inside and nest.reduce is not None and nest.where is None


def _is_map(scope: Scope, k: int) -> bool:
    """Whether a nest stores, or adds to, one element for each step of its inner loops."""
    nest = scope.nests[k]
    inner = [a for a in nest.axes if a not in scope.shared]
    once = nest.reduce is None or not scope.plain[k]
    own = len(inner) == 1 and inner[0] in axes_in(nest.index[0])
    return own and nest.where is None and nest.out not in scope.scalars and once


def alike(nests: Sequence[Nest], shared: Collection[Axis]) -> list[Nest]:
    """Nests with the same axes inside of shared ones."""
    axes = [a for a in nests[0].axes if a not in shared]
    out: list[Nest] = []
    for n in nests:
        own = dict(zip((a for a in n.axes if a not in shared), axes, strict=True))
        out.append(n.substitute(own, tuple(own.get(a, a) for a in n.axes)))
    return out
