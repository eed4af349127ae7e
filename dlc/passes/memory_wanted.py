"""What a plan needs places for: values over their lifetimes, and workspaces during one step each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dlc.api.plan import Plan, Slot, results_of
from dlc.graph.op import Op
from dlc.graph.structure import Input, Item
from dlc.passes.memory import MemoryModel, overwritten_inputs
from dlc.passes.views import seen
from dlc.placement import Lifetimes, Task, lifetimes


@dataclass(frozen=True)
class Wanted:
    """Buffers, and what lies in each."""

    kept: tuple[Input, ...]
    """Inputs that are copied first."""
    lives: Lifetimes
    values: Mapping[str, tuple[int, int]]
    """Digest of a value, of a view or of a kept input → (number of its buffer, bytes)."""
    workspaces: Mapping[str, int]
    """Digest of a step → number of its buffer."""
    unshared: int
    """Bytes if nothing shared any."""
    shared: frozenset[int]
    """Numbers of the buffers in which values lie beside each other."""

    @classmethod
    def of(cls, plan: Plan, in_place: bool) -> Wanted:
        model = MemoryModel.of(plan.graph, in_place, plan.workspace_of, plan.steps)
        position = {c.digest: k for k, c in enumerate(model.calls)}
        order = [position[s.digest] for s in plan.steps]
        kept = overwritten_inputs(plan.graph, plan.steps)
        sizes = (*model.sizes, *(i.type.nbytes for i in kept))
        copies = {i.digest: len(model.sizes) + k for k, i in enumerate(kept)}
        ops = plan.graph.ops if copies else ()
        shown = {op.digest: copies[x.digest] for op in ops if (x := seen(op, position)).digest in copies}
        storage = {**model.storage, **shown}
        tasks = _reading(model, shown)
        lives = lifetimes(tasks, sizes, order)
        placed = (*kept, *(v for op in plan.graph.ops if op.runs for v in results_of(op)))
        numbers = zip(model.calls, lives.of_workspace, strict=True)
        return cls(
            kept,
            lives,
            {v.digest: (lives.of_storage[storage[v.digest]], v.type.nbytes) for v in placed if v.digest in storage},
            {call.digest: buffer for call, buffer in numbers if buffer >= 0},
            sum(sizes) + sum(task.workspace for task in tasks),
            frozenset(lives.of_storage[storage[d]] for d in model.overlays.root if d in storage),
        )

    def described(self, plan: Plan, buffer: int) -> str:
        """What a buffer holds, for messages."""
        values = (v for s in plan.steps for v in results_of(s) if self.values.get(v.digest, (-1, 0))[0] == buffer)
        texts = [f"{v.type} from {origin_of(plan, v)}" for v in values]
        texts += [f"what {origin_of(plan, s)} works in" for s in plan.steps if self.workspaces.get(s.digest) == buffer]
        return texts[-1] if texts else "a copy of an input"

    def plan(
        self,
        state: Plan,
        place: Callable[[int], tuple[str, int]],
        regions: Mapping[str, int],
        facts: Mapping[str, int | str],
    ) -> Plan:
        """The plan with places: `place` gives (memory, offset) of a buffer."""
        buffers = self.lives.buffers
        return replace(
            state,
            slots={d: Slot(*place(buffer), size) for d, (buffer, size) in self.values.items()},
            workspaces={d: Slot(*place(b), buffers[b].size) for d, b in self.workspaces.items()},
            regions=regions,
            facts={**state.facts, **facts},
        )

    def alive(self, plan: Plan, step: int) -> list[Op]:
        """The values that are in use at a step; of those that were handed over in place, the last one."""
        buffers = {b.id for b in self.lives.buffers if b.birth <= step < b.death}
        values = (v for s in plan.steps[: step + 1] for v in results_of(s))
        last = {self.values[v.digest][0]: v for v in values if v.digest in self.values}
        return [v for buffer, v in last.items() if buffer in buffers]


def origin_of(plan: Plan, op: Op) -> str:
    """The nodes that a value came from."""
    return ", ".join(plan.graph.origin(op.of if isinstance(op, Item) else op)) or "unnamed"


def _reading(model: MemoryModel, kept: Mapping[str, int]) -> list[Task]:
    """The tasks, reading kept inputs and views of them from storages that are there from the start."""
    return [
        replace(task, reads=(*task.reads, *dict.fromkeys(kept[a.digest] for a in call.operands if a.digest in kept)))
        for call, task in zip(model.calls, model.tasks, strict=True)
    ]
