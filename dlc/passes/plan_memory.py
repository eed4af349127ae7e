"""plan-memory: every intermediate value gets an offset in the arena.

    plan with an order   →   plan with offsets; values whose lifetimes overlap never share bytes

A reshape shares the memory of its operand, and an elementwise kernel may overwrite an argument that it reads for the
last time. The arena also holds the workspaces that kernels need while they run, and a copy of every input that is still
read after an output may have overwritten it. `--explain plan-memory` prints the size of the arena, the lower bound (the
most bytes that are live at once in this order) and the overhead over it.

A graph that an operation holds has an arena of its own, which lies in the workspace of that operation, beside second
places of the values that a loop carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dlc.api.passes import Level, Pass
from dlc.api.plan import Plan, Slot, results_of
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.report import Report
from dlc.graph.closed import unlimited, without_limit
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.passes.memory import MemoryModel, overwritten_inputs
from dlc.placement import Lifetimes, Placement, Task, check_placement, lifetimes, place
from dlc.spec import Bytes, option


@dataclass(frozen=True)
class PlanMemory(Pass[Plan, Plan]):
    """Give every intermediate value a place: a plan with an order  →  the plan with offsets in the arena."""

    name: ClassVar[str] = "plan-memory"
    level_in: ClassVar[Level] = "plan"
    level_out: ClassVar[Level] = "plan"
    strategy: Literal["none", "greedy", "best-fit", "search"] = option(
        "search", "how offsets are chosen; none: values share no memory"
    )
    align: int = option(64, "alignment of every offset, in bytes", low=1)
    in_place: bool = option(True, "let an elementwise kernel overwrite an argument that it reads for the last time")
    seed: int = option(0, "seed of the search; equal seeds give equal plans", low=0)
    limit: Bytes | None = option(
        None, "maximum size of the arena; a larger one is an error that lists the largest values at the peak"
    )

    def run(self, state: Plan, report: Report) -> Plan:
        """The plan with a slot for every intermediate value, and one for every step whose kernel works in memory."""
        inner = replace(self, limit=None)  # what bodies take is a part of the arena, which has the limit
        state = replace(state, bodies={d: inner.run(body, Report()) for d, body in state.bodies.items()})
        wanted = _Wanted.of(state, self.in_place)
        buffers = wanted.lives.buffers
        found = place(buffers, align=self.align, strategy=self.strategy, seed=self.seed)
        wrong = check_placement(buffers, found.offsets, self.align)
        assert not wrong, wrong
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
            report.note(f"arena {found.arena:,} B, {bound}, overhead {overhead:.2f} %")
        if self.limit is not None and found.arena > self.limit:
            raise self._too_large(state, found, wanted)
        facts = {
            "arena": found.arena,
            "bound": found.bound,
            "bound_step": found.bound_step,
            "overhead_percent": f"{overhead:.2f}",
            "method": found.method,
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
        return error(
            "memory-limit",
            f"the arena takes {arena} bytes, {arena - limit} more than the limit of {limit}",
            notes=(
                f"the peak is at step {step} ({described(plan.steps[step])})",
                *(f"in use there: {text}" for _, text in held[:5]),
            ),
            help="use a smaller batch or input",
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
        model = MemoryModel.of(plan.graph, in_place, plan.workspace_of)
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
