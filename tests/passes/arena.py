"""A machine that runs plans: one byte array as the arena, steps in order, every value where its slot says.

It shares nothing with the planner. Loops run point by point in a random order and read memory as it is at that moment,
as any schedule of a backend might; memory that nobody wrote yet is full of NaNs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from dlc.api.plan import Plan, results_of
from dlc.base.types import Type
from dlc.graph import Call, Input, Op, evaluate_ops
from dlc.kernel.evaluate import Array, Points
from dlc.kernel.expr import Expr, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import combine_at
from dlc.passes.views import is_view
from dlc.placement import check_placement
from dlc.verify.plan_check import check_plan as found_in

CHUNKS = 3
LARGEST_RUN = 1 << 20
"""Points of the largest kernel that the judge runs to see whether it works in place."""


def execute(plan: Plan, feeds: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """The outputs of a plan, computed in its arena."""
    machine = _Machine(plan, feeds)
    random = Random(seed)
    for step in plan.calls:
        results = [machine.place(v) for v in results_of(step)]
        machine.scribble(step)
        run_in_place(step.body, [machine.read(a) for a in step.args], results, random)
        machine.scribble(step)
    return {name: machine.read(o) for name, o in zip(plan.graph.names, plan.graph.outputs, strict=True)}


class _Machine:
    """Inputs and outputs in buffers of the caller, constants evaluated, everything else in the arena."""

    def __init__(self, plan: Plan, feeds: Mapping[str, Array]) -> None:
        self._plan = plan
        self._arena = np.full(plan.regions.get("arena", 0), 0xFF, np.uint8)
        self._values: dict[str, Array] = {}
        for i in plan.graph.inputs:
            self._values[i.digest] = np.array(feeds[i.name], i.dtype.numpy)
        # The caller's worst choice: one buffer for an input and the output that may be written over it.
        for i, j in plan.graph.aliases:
            self._values[plan.graph.outputs[i].digest] = self._values[plan.graph.inputs[j].digest]
        over = {plan.graph.inputs[j].digest for _, j in plan.graph.aliases}
        for i in plan.graph.inputs:
            self._values[i.digest].flags.writeable = i.digest in over
        for i in plan.kept:
            self._view(i)[...] = self._values[i.digest]

    def place(self, value: Op) -> Array:
        """The memory of a value that is about to be written."""
        if value.digest in self._plan.outputs:
            return self._values.setdefault(value.digest, _poisoned(value.type))
        return self._view(value)

    def read(self, value: Op) -> Array:
        """The memory of a value."""
        if value.digest in self._plan.slots:
            return self._view(value)
        if value.digest not in self._plan.values and is_view(value):
            return self.read(value.operands[0]).reshape(value.shape)  # of an input: the same memory
        if value.digest not in self._values:
            assert not isinstance(value, Input) and value.digest not in self._plan.values, f"{value} is not there yet"
            (found,) = evaluate_ops((value,), {})
            self._values[value.digest] = found
        return self._values[value.digest]

    def scribble(self, step: Op) -> None:
        """What a kernel may do at any time while it runs: write into all that it works in."""
        if slot := self._plan.workspaces.get(step.digest):
            self._arena[slot.offset : slot.offset + slot.size] = 0xFF

    def _view(self, value: Op) -> Array:
        slot = self._plan.slots[value.digest]
        assert slot.size >= value.type.nbytes
        raw = self._arena[slot.offset : slot.offset + value.type.nbytes]
        assert raw.size == value.type.nbytes, "a slot reaches beyond the arena"
        return raw.view(value.dtype.numpy).reshape(value.shape)


def _poisoned(type: Type) -> Array:
    return np.full(type.nbytes, 0xFF, np.uint8).view(type.dtype.numpy).reshape(type.shape)


def run_in_place(kernel: Kernel, args: list[Array], results: list[Array], random: Random) -> None:
    """A kernel on memory that may overlap: nothing is copied, and results start from whatever lies there."""
    env = {p.name: a for p, a in zip(kernel.params, args, strict=True)}
    env |= {p.name: r for p, r in zip(kernel.results, results, strict=True)}
    env |= {p.name: _poisoned(p.type) for p in kernel.locals}
    started: set[str] = set()
    with np.errstate(all="ignore"):
        for nest in kernel.nests:
            if nest.out not in started and not _covers(nest, env[nest.out]):
                env[nest.out][...] = kernel.start_of(nest.out)
            started.add(nest.out)
            _run_scattered(kernel, nest, env, random)
        for p in (*kernel.results, *kernel.locals):
            if p.name not in started:
                env[p.name][...] = kernel.start_of(p.name)


def _covers(nest: Nest, out: Array) -> bool:
    """Whether a nest writes every element: it writes none twice."""
    return nest.reduce is None and nest.where is None and nest.points == out.size


def _run_scattered(kernel: Kernel, nest: Nest, env: Mapping[str, Array], random: Random) -> None:
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(nest.points)
    extents = tuple(a.extent for a in nest.axes)
    for points in np.array_split(order, CHUNKS):
        if not points.size:
            continue
        places = np.unravel_index(points, extents) if extents else ()
        inside = Points(kernel, env, dict(zip(nest.axes, places, strict=True)))
        keep = np.ones(points.shape, bool)
        if nest.where is not None:
            keep = np.broadcast_to(inside.value(nest.where, None), points.shape)
        dtype = kernel.tensors[nest.out].dtype
        value = np.broadcast_to(inside.value(nest.body, dtype), points.shape)[keep].astype(dtype.numpy)
        index = tuple(np.broadcast_to(inside.index(i), points.shape)[keep] for i in nest.index)
        out = env[nest.out]
        if not index:
            out, index = out.reshape(1), (np.zeros(value.shape, np.int64),)
        if nest.reduce is None:
            out[index] = value
        else:
            combine_at(nest.reduce, out, index, value)


@dataclass
class Life:
    """A stretch of memory in use: the judge's view of a buffer."""

    id: int
    size: int
    birth: int
    death: int
    offset: int


def lives_of(plan: Plan) -> list[Life]:
    """Who uses which bytes when, derived from the steps alone.

    A value lives from the step that writes it through the last that reads it or a view of it. Where a result takes the
    very place of an argument that is read for the last time, and the kernel does work so, the argument ends there. What
    a kernel works in lives during its step.
    """
    base, kept = _bases(plan), plan.kept
    lives = {
        i.digest: Life(n, plan.slots[i.digest].size, 0, 1, plan.slots[i.digest].offset) for n, i in enumerate(kept)
    }
    for k, step in enumerate(plan.calls):
        read = {base.get(a.digest, a.digest) for a in step.args}
        for digest in read & lives.keys():
            lives[digest].death = k + 1
        for value in results_of(step):
            if value.digest in plan.slots:
                slot = plan.slots[value.digest]
                lives[value.digest] = Life(len(lives), slot.size, k, k + 1, slot.offset)
    for k, step in enumerate(plan.calls):
        for old in {base.get(a.digest, a.digest) for a in step.args} & lives.keys():
            for new in {v.digest for v in results_of(step)} & lives.keys():
                same = (lives[old].offset, lives[old].size) == (lives[new].offset, lives[new].size)
                last = lives[old].death == k + 1 and lives[old].birth < k
                if same and last and _works_in_place(step, [base.get(a.digest, a.digest) == old for a in step.args]):
                    lives[old].death = k
    found = list(lives.values())
    for k, step in enumerate(plan.calls):
        assert (step.digest in plan.workspaces) == (plan.graph.workspace(step) > 0)
        if slot := plan.workspaces.get(step.digest):
            assert slot.size >= plan.graph.workspace(step)
            found.append(Life(len(found), slot.size, k, k + 1, slot.offset))
    return found


def _works_in_place(step: Call, over: list[bool]) -> bool:
    """Whether a call with one result gives the same when it overwrites these arguments, which are one memory."""
    if sum(nest.points for nest in step.body.nests) > LARGEST_RUN:
        return _reads_where_it_writes(step.body, over)
    rng = np.random.default_rng(0)
    given = [rng.uniform(0.5, 2, a.shape).astype(a.dtype.numpy) for a in step.args]
    shared = given[over.index(True)].reshape(-1)
    args = [shared.reshape(a.shape) if o else a for a, o in zip(given, over, strict=True)]
    apart = _poisoned(step.type)
    run_in_place(step.body, args, [apart], Random(0))
    run_in_place(step.body, args, [shared.reshape(step.shape)], Random(0))
    return bool(np.array_equal(apart.reshape(-1), shared, equal_nan=apart.dtype.kind == "f"))


def _reads_where_it_writes(kernel: Kernel, over: list[bool]) -> bool:
    """Whether each of many points reads the overwritten arguments at the address that it writes, and only there."""
    names = {p.name for p, o in zip(kernel.params, over, strict=True) if o}
    result = kernel.results[0]
    writers = [k for k, n in enumerate(kernel.nests) if n.out == result.name]
    readers = [k for k, n in enumerate(kernel.nests) if names & n.reads()]
    if any(w < r for w in writers for r in readers) or not _covers(kernel.nests[writers[0]], np.empty(result.shape)):
        return False
    for nest in (kernel.nests[k] for k in readers if k in writers):
        points = np.random.default_rng(0).integers(0, nest.points, 1000)
        places = np.unravel_index(points, tuple(a.extent for a in nest.axes))
        inside = Points(kernel, {}, dict(zip(nest.axes, places, strict=True)))

        written = _addresses(inside, nest.index, result.shape, points.size)
        for load in (x for e in nest.exprs() for x in loads(e) if x.param in names):
            read = _addresses(inside, load.index, kernel.tensors[load.param].shape, points.size)
            if not np.array_equal(read, written):
                return False
    return True


def _addresses(inside: Points, index: tuple[Expr, ...], shape: tuple[int, ...], count: int) -> Array:
    found = [np.broadcast_to(inside.index(i), (count,)) for i in index]
    return np.ravel_multi_index(found, shape)


def _bases(plan: Plan) -> dict[str, str]:
    """Digest of a view → the value whose memory it is."""
    base: dict[str, str] = {}
    for op in plan.graph.ops:
        if isinstance(op, Call) and op.digest in plan.slots and op.digest not in plan.values:
            assert is_view(op), f"{op} has a slot, but no step writes it"
            of = op.args[0].digest
            base[op.digest] = base.get(of, of)
            assert plan.slots[op.digest].offset == plan.slots[base[op.digest]].offset
    return base


def check_plan(plan: Plan, align: int = 64) -> None:
    """Order, places and figures of a plan, judged without its planner."""
    assert found_in(plan) == []
    done: set[str] = set()
    for step in plan.calls:
        for a in step.args:
            written = _bases(plan).get(a.digest, a.digest)
            assert written not in plan.values or written in done, f"{step} reads {a} before it is written"
        done |= {v.digest for v in results_of(step)}
    assert all(o.digest in done for o in plan.graph.outputs)
    lives = lives_of(plan)
    arena = plan.regions["arena"]
    assert check_placement(lives, [b.offset for b in lives], align, arena) == []
    assert plan.facts["arena"] == arena
    sizes = [(b.birth, b.death, -(-b.size // align) * align) for b in lives]
    most = max((sum(n for s, e, n in sizes if s <= k < e) for k in range(len(plan.calls))), default=0)
    assert plan.facts["bound"] == most
    assert arena >= most
