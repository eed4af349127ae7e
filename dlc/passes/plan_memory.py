"""plan-memory: every intermediate value gets an offset in the arena.

    plan with an order   →   plan with offsets; values whose lifetimes overlap never share bytes

A reshape shares the memory of its operand, and an elementwise kernel may overwrite an argument that it reads for the
last time. The arena also holds the workspaces that kernels need while they run, and a copy of every input that is still
read after an output may have overwritten it. `--explain plan-memory` prints the size of the arena, the lower bound (the
most bytes that are live at once in this order) and the overhead over it.

Offsets are a problem of their own (dynamic storage allocation, NP-complete), and the strategies differ in what they
spend on it. `search` draws with a seed and counts its work, so results repeat. `exact` asks an allocator, which plugins
offer, whether the values fit into the bound, then into more, until nothing smaller is possible or its work is spent.
Only what is proven is called optimal. A limit in seconds makes results depend on the machine:
what it cut short is not kept in the cache.

A graph that an operation holds has an arena of its own, which lies in the workspace of that operation, beside second
places of the values that a loop carries.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from dlc.api.parts import Part
from dlc.api.passes import Level, Pass
from dlc.api.plan import Plan, Slot, results_of
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error
from dlc.base.report import Report
from dlc.graph.closed import unlimited, without_limit
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.passes.memory import MemoryModel, overwritten_inputs
from dlc.placement import Allocator, Buffer, Lifetimes, Placement, Task, check_placement, lifetimes, place
from dlc.spec import Bytes, option

_WORK: Final = {"auto": 400, "exact": 10_000}
"""Millions of steps of the allocator by default."""


@dataclass(frozen=True)
class PlanMemory(Pass[Plan, Plan]):
    """Give every intermediate value a place: a plan with an order  →  the plan with offsets in the arena."""

    name: ClassVar[str] = "plan-memory"
    level_in: ClassVar[Level] = "plan"
    level_out: ClassVar[Level] = "plan"
    allocators: ClassVar[tuple[Part[Allocator], ...]] = ()
    strategy: Literal["none", "greedy", "best-fit", "search", "exact", "auto"] = option(
        "search",
        "how offsets are chosen; none: values share no memory; exact: proven optimal where the work suffices; "
        "auto: search, then exact where an allocator can be used",
    )
    align: int = option(64, "alignment of every offset, in bytes", low=1)
    in_place: bool = option(True, "let an elementwise kernel overwrite an argument that it reads for the last time")
    seed: int = option(0, "seed of the search; equal seeds give equal plans", low=0)
    limit: Bytes | None = option(
        None, "maximum size of the arena; a larger one is an error that lists the largest values at the peak"
    )
    allocator: str = option("", "what decides for exact and auto; by default the first that can be used")
    work: int | None = option(
        None,
        "what the allocator may do, in millions of its steps, of which 200 take about a second; "
        "by default 400 for auto, 10000 for exact",
        low=1,
    )
    seconds: float | None = option(
        None, "wall-clock limit of the allocator; results that it cuts short are not kept in the cache", low=0.0
    )

    def with_allocators(self, allocators: Sequence[Part[Allocator]]) -> PlanMemory:
        """This pass with the solvers that it may ask."""
        new = copy(self)
        object.__setattr__(new, "allocators", tuple(allocators))
        return new

    @property
    def packages(self) -> tuple[str, ...]:
        """Those of the solvers that it may ask."""
        asked = self.allocators if self.strategy in ("exact", "auto") else ()
        return tuple(dict.fromkeys(package for part in asked for package in part.packages))

    def placed(self, buffers: Sequence[Buffer], report: Report) -> Placement:
        """Offsets of buffers, checked.

        Raises:
            DlcError: (USAGE) no allocator has the name; (TOOL) exact has none that can be used.
        """
        solver = self._allocator() if self.strategy == "exact" else None  # an error without one, needed or not
        reasons: list[str] = []
        found = place(
            buffers,
            align=self.align,
            strategy=self.strategy,
            seed=self.seed,
            allocator=lambda: solver or self._allocator(reasons),
            work=(self.work or _WORK.get(self.strategy, 1)) * 10**6,
            deadline=None if self.seconds is None else time.monotonic() + self.seconds,
        )
        wrong = check_placement(buffers, found.offsets, self.align, found.arena)
        assert not wrong, wrong
        if found.late:
            report.passing = f"the allocator was stopped after {self.seconds:g} s"
        elif reasons and not found.proven:
            report.passing = f"auto: no allocator can be used on this machine: {'; '.join(reasons)}"
        if report.passing:
            report.note(f"{report.passing}; another run may find other offsets, so the cache does not keep these")
        return found

    def _known(self, found: Placement) -> str:
        """What the allocator proved, to be appended to the figures."""
        if self.strategy not in ("exact", "auto"):
            return ""
        if found.proven:
            return ", optimal for this order"
        return f", smallest arena that is not disproved {found.floor:,} B"

    def _allocator(self, reasons: list[str] | None = None) -> Allocator | None:
        """The solver to ask; None where `auto` goes on without one, whose `reasons` are appended."""
        named = [part for part in self.allocators if self.allocator in ("", part.name)]
        if self.allocator and not named:
            raise error(
                "unknown-allocator",
                f"plan-memory: there is no allocator {self.allocator}",
                help=did_you_mean(self.allocator, [part.name for part in self.allocators], "allocators"),
                exit_code=ExitCode.USAGE,
            )
        reasons = [] if reasons is None else reasons
        for part in named:
            kind = part.load()
            lacks = kind.lacks()
            if not lacks:
                return kind()
            reasons.append(f"{part.name}: {lacks}")
        if self.strategy == "exact" or self.allocator:
            raise error(
                "no-allocator",
                f"plan-memory: no allocator can be used for strategy={self.strategy}",
                notes=reasons,
                help='pip install "dlc[c]", whose search needs a C compiler, or pip install "dlc[exact]"; '
                "or use strategy=search",
                exit_code=ExitCode.TOOL,
            )
        reasons += [] if reasons else ["none is installed"]
        return None

    def run(self, state: Plan, report: Report) -> Plan:
        """The plan with a slot for every intermediate value, and one for every step whose kernel works in memory."""
        # What bodies take is a part of the arena, which has the limit.
        inner, within = replace(self, limit=None).with_allocators(self.allocators), Report()
        state = replace(state, bodies={d: inner.run(body, within) for d, body in state.bodies.items()})
        report.passing = within.passing
        wanted = _Wanted.of(state, self.in_place)
        buffers = wanted.lives.buffers
        found = self.placed(buffers, report)
        overhead = 100.0 * (found.arena - found.bound) / found.bound if found.bound else 0.0
        if wanted.kept:
            names = ", ".join(i.name for i in wanted.kept)
            report.note(f"copied first, because an output may be written over them: {names}")
        free = without_limit(state.graph)
        if free and self.limit is not None:
            raise unlimited(free, f"a limit of the arena ({self.limit:,} B) needs one of every size")
        if free:
            report.note(f"no arena for the largest call: {', '.join(s.name for s in free)} without a limit")
        else:
            bound = f"bound {found.bound:,} B at operation {found.bound_step}"
            report.note(f"arena {found.arena:,} B, {bound}, overhead {overhead:.2f} %{self._known(found)}")
        if self.limit is not None and found.arena > self.limit:
            raise self._too_large(state, found, wanted)
        facts = {
            "arena": found.arena,
            "bound": found.bound,
            "bound_step": found.bound_step,
            "overhead_percent": f"{overhead:.2f}",
            "method": found.method,
            **({"floor": found.floor} if found.floor > found.bound else {}),
            "unshared": wanted.unshared,
        }
        return replace(
            state,
            slots={d: Slot("arena", found.offsets[buffer], size) for d, (buffer, size) in wanted.values.items()},
            workspaces={d: Slot("arena", found.offsets[b], buffers[b].size) for d, b in wanted.workspaces.items()},
            regions={"arena": found.arena},
            facts={**state.facts, **facts},
        )

    def _too_large(self, plan: Plan, found: Placement, wanted: _Wanted) -> DlcError:
        """The error that names the peak, and who holds the most memory there."""

        def described(op: Op) -> str:
            return ", ".join(plan.graph.origin(op.of if isinstance(op, Item) else op)) or "unnamed"

        step = found.bound_step
        held = [
            (v.type.nbytes, f"{v.type}, {v.type.nbytes} bytes, from {described(v)}") for v in wanted.alive(plan, step)
        ]
        work = plan.workspace_of(plan.steps[step])
        held += [(work, f"{work} bytes that {described(plan.steps[step])} works in")] if work else []
        held.sort(key=lambda each: -each[0])
        arena, limit = found.arena, self.limit or 0
        impossible = found.floor > limit
        proof = (
            "no offsets in this order of operations take less"
            if found.proven
            else (f"every arena below {found.floor} bytes is proven impossible in this order of operations")
        )
        return error(
            "memory-limit",
            f"the arena takes {arena} bytes, {arena - limit} more than the limit of {limit}",
            notes=(
                f"{proof}, so the limit {'cannot be met' if impossible else 'may be possible: it is not disproved'}",
                f"the peak is at step {step} ({described(plan.steps[step])})",
                *(f"in use there: {text}" for _, text in held[:5]),
            ),
            help="use a smaller batch or input"
            if impossible
            else "try plan-memory{strategy=auto}, or more work for it",
            exit_code=ExitCode.LIMIT,
        )


@dataclass(frozen=True)
class _Wanted:
    """What a plan needs places for: values over their lifetimes, and workspaces during one step each."""

    kept: tuple[Input, ...]
    """Inputs that are copied first."""
    lives: Lifetimes
    values: Mapping[str, tuple[int, int]]
    """Digest of a value, of a view or of a kept input → (number of its buffer, bytes)."""
    workspaces: Mapping[str, int]
    """Digest of a step → number of its buffer."""
    unshared: int
    """Bytes if nothing shared any."""

    @classmethod
    def of(cls, plan: Plan, in_place: bool) -> _Wanted:
        model = MemoryModel.of(plan.graph, in_place, plan.workspace_of, plan.steps)
        position = {c.digest: k for k, c in enumerate(model.calls)}
        order = [position[s.digest] for s in plan.steps]
        kept = overwritten_inputs(plan.graph, plan.steps)
        sizes = (*model.sizes, *(i.type.nbytes for i in kept))
        storage = {**model.storage, **{i.digest: len(model.sizes) + k for k, i in enumerate(kept)}}
        tasks = _reading(model, {i.digest: storage[i.digest] for i in kept})
        lives = lifetimes(tasks, sizes, order)
        placed = (*kept, *(v for op in plan.graph.ops if op.runs for v in results_of(op)))
        numbers = zip(model.calls, lives.of_workspace, strict=True)
        return cls(
            kept,
            lives,
            {v.digest: (lives.of_storage[storage[v.digest]], v.type.nbytes) for v in placed if v.digest in storage},
            {call.digest: buffer for call, buffer in numbers if buffer >= 0},
            sum(sizes) + sum(task.workspace for task in tasks),
        )

    def alive(self, plan: Plan, step: int) -> list[Op]:
        """The values that are in use at a step; of those that were handed over in place, the last one."""
        buffers = {b.id for b in self.lives.buffers if b.birth <= step < b.death}
        values = (v for s in plan.steps[: step + 1] for v in results_of(s))
        last = {self.values[v.digest][0]: v for v in values if v.digest in self.values}
        return [v for buffer, v in last.items() if buffer in buffers]


def _reading(model: MemoryModel, kept: Mapping[str, int]) -> list[Task]:
    """The tasks, reading kept inputs from storages that are there from the start."""
    return [
        replace(task, reads=(*task.reads, *dict.fromkeys(kept[a.digest] for a in call.operands if a.digest in kept)))
        for call, task in zip(model.calls, model.tasks, strict=True)
    ]
