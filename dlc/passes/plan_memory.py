"""plan-memory: every intermediate value gets a place in the arena.

    plan with an order   →   plan with offsets; values whose lifetimes overlap never share bytes

Reshapes share the memory of what they reshape, a map may overwrite the argument it reads for the last time. An input
that is still read when an output may have been written over it gets a place too, for a copy made first. Prints the
arena, the lower bound (most bytes alive at once in this order) and the gap between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from dlc.diagnostics import DlcError, ExitCode, error
from dlc.graph.op import Op
from dlc.graph.structure import Item
from dlc.passes.base import Level, Pass
from dlc.passes.memory import MemoryModel, overwritten_inputs
from dlc.placement import Task, check_placement, lifetimes, place
from dlc.plan import Plan, Slot, results_of
from dlc.report import Report
from dlc.spec import Bytes, option


@dataclass(frozen=True)
class PlanMemory(Pass[Plan, Plan]):
    """Give every intermediate value a place: a plan with an order  →  the plan with offsets in the arena."""

    name: ClassVar[str] = "plan-memory"
    level_in: ClassVar[Level] = "plan"
    level_out: ClassVar[Level] = "plan"
    strategy: Literal["none", "greedy", "best-fit", "search"] = option("search", "how hard to look for a small arena")
    align: int = option(64, "bytes that every offset is a multiple of", low=1)
    in_place: bool = option(True, "let a map overwrite the argument that it reads for the last time")
    seed: int = option(0, "seed of the search; equal seeds give equal plans", low=0)
    limit: Bytes | None = option(None, "largest arena allowed; a larger one is an error that names what to attack")

    def run(self, state: Plan, report: Report) -> Plan:
        """The plan with a slot for every intermediate value."""
        model = MemoryModel.of(state.graph, self.in_place)
        position = {c.digest: k for k, c in enumerate(model.calls)}
        order = [position[s.digest] for s in state.steps]
        kept = overwritten_inputs(state.graph, state.steps)
        sizes = (*model.sizes, *(i.type.nbytes for i in kept))
        storage = {**model.storage, **{i.digest: len(model.sizes) + k for k, i in enumerate(kept)}}
        lives = lifetimes(_reading(model, {i.digest: storage[i.digest] for i in kept}), sizes, order)
        found = place(lives.buffers, align=self.align, strategy=self.strategy, seed=self.seed)
        wrong = check_placement(lives.buffers, found.offsets, self.align)
        assert not wrong, wrong
        slots: dict[str, Slot] = {}
        calls = [op for op in state.graph.ops if op.runs]
        for value in (*kept, *(v for c in calls for v in results_of(c))):
            if value.digest in storage:
                offset = found.offsets[lives.of_storage[storage[value.digest]]]
                slots[value.digest] = Slot("arena", offset, value.type.nbytes)
        gap = 100.0 * (found.arena - found.bound) / found.bound if found.bound else 0.0
        if kept:
            report.note(f"copied first, because an output may be written over them: {', '.join(i.name for i in kept)}")
        report.note(f"arena {found.arena:,} B, bound {found.bound:,} B at step {found.bound_step}, gap {gap:.2f} %")
        if self.limit is not None and found.arena > self.limit:
            alive = {b.id for b in lives.buffers if b.birth <= found.bound_step < b.death}
            # Of values that were handed over in place, the last one lies there.
            values = (v for s in state.steps[: found.bound_step + 1] for v in results_of(s))
            last = {lives.of_storage[model.storage[v.digest]]: v for v in values if v.digest in model.storage}
            held = [v for buffer, v in last.items() if buffer in alive]
            raise self._too_large(state, found.arena, found.bound_step, held)
        facts = {
            "arena": found.arena,
            "bound": found.bound,
            "bound_step": found.bound_step,
            "gap_percent": f"{gap:.2f}",
            "method": found.method,
            "unshared": sum(sizes),
        }
        return replace(state, slots=slots, regions={"arena": found.arena}, facts={**state.facts, **facts})

    def _too_large(self, plan: Plan, arena: int, step: int, held: Sequence[Op]) -> DlcError:
        """The error that names the peak, and who holds the most memory there."""

        def told(op: Op) -> str:
            return ", ".join(plan.graph.origin(op.of if isinstance(op, Item) else op)) or "unnamed"

        largest = sorted(held, key=lambda v: -v.type.nbytes)[:5]
        return error(
            "memory-limit",
            f"the arena takes {arena} bytes, {arena - (self.limit or 0)} more than the limit of {self.limit}",
            notes=(
                f"the peak is at step {step} ({told(plan.steps[step])})",
                *(f"in use there: {v.type}, {v.type.nbytes} bytes, from {told(v)}" for v in largest),
            ),
            help="a smaller batch or input shrinks these tensors",
            exit_code=ExitCode.LIMIT,
        )


def _reading(model: MemoryModel, kept: Mapping[str, int]) -> list[Task]:
    """The tasks, reading kept inputs from storages that are there from the start."""
    return [
        replace(task, reads=(*task.reads, *dict.fromkeys(kept[a.digest] for a in call.operands if a.digest in kept)))
        for call, task in zip(model.calls, model.tasks, strict=True)
    ]
