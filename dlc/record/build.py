"""The record of a build: its steps, the model, and the program with its layers, kernels, memory and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dlc.api.function_names import LEARNING
from dlc.api.plan import Plan, Slot, results_of
from dlc.bench.steps import works
from dlc.files.hashing import content_size
from dlc.graph.structure import Call, Constant, Input, Item
from dlc.record.graph import kind_of, linked, nodes_of
from dlc.record.memory_roles import COPY, WORKSPACE, roles
from dlc.record.passes import Job, pass_of
from dlc.record.record import (
    Counts,
    File,
    Function,
    Kernel,
    Layer,
    Memory,
    Node,
    Ops,
    Port,
    Record,
    Value,
    Weight,
)
from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact, KernelFunction
    from dlc.api.backend import Backend
    from dlc.api.program import Port as ProgramPort
    from dlc.cache.step_record import StepRecord
    from dlc.graph.graph import Graph
    from dlc.graph.op import Op


def record_of(
    model: str,
    pipeline: str,
    backend: Backend,
    steps: Sequence[StepRecord[Any]],
    artifact: Artifact,
    cache: Counts | None = None,
) -> Record:
    """The record of a build that ended with an artifact.

    Args:
        model: Name of its file.
        pipeline: Spec text.
        backend: That made the artifact.
        steps: In their order.
        artifact: The program.
        cache: How the cache served it.
    """
    passes = tuple(map(pass_of, steps))
    plans = plans_of(steps)
    symbols = backend.kernel_functions(artifact)
    functions = tuple(function_of(name, plan, symbols) for name, plan in plans.items())
    first = next((f for f in functions if f.name in LEARNING), functions[0] if functions else None)
    graph = nodes_of(read) if (read := first_graph(steps)) is not None else ()
    return Record(
        model,
        artifact.target,
        pipeline,
        __version__,
        inputs=tuple(map(_port, artifact.signature.inputs)),
        outputs=tuple(map(_port, artifact.signature.outputs)),
        facts=dict(artifact.facts),
        passes=passes,
        ops=tuple(row for step in steps for row in ops_of(step)),
        graph=linked(graph, first.layers) if first else graph,
        functions=functions,
        kernels=_kernels(plans, steps, symbols),
        files=tuple(File(name, content_size(content)) for name, content in sorted(artifact.files.items())),
        cache=cache,
    )


def _port(port: ProgramPort) -> Port:
    return Port(port.name, str(port.type))


def plans_of(steps: Sequence[StepRecord[Any]]) -> Mapping[str, Plan]:
    """Function → the last plan that a step of its gave, loaded."""
    return {step.function: step.handle.value for step in {s.function: s for s in steps if _is_plan(s)}.values()}


def _is_plan(step: StepRecord[Any]) -> bool:
    return step.handle.kind == Plan.kind


def first_graph(steps: Sequence[StepRecord[Any]]) -> Graph | None:
    """What the frontend gave."""
    return next((step.handle.value for step in steps if step.handle.kind == "graph"), None)


def ops_of(step: StepRecord[Any]) -> tuple[Ops, ...]:
    """What the graph or plan after a pass consists of; nothing for artifacts."""
    if step.handle.kind not in ("graph", Plan.kind):
        return ()
    state = step.handle.value
    graph: Graph = state.graph if isinstance(state, Plan) else state
    counts = Counter(op.text_name for op in graph.ops if not isinstance(op, Constant | Input | Item))
    sizes = [op.type.packed_bytes for op in graph.ops if isinstance(op, Constant)]
    kernels = {op.body.digest for op in graph.ops if isinstance(op, Call)}
    kinds = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return (Ops(step.name, step.function, sum(counts.values()), len(sizes), sum(sizes), kinds, len(kernels)),)


def function_of(name: str, plan: Plan, symbols: Mapping[str, KernelFunction] = MappingProxyType({})) -> Function:
    """A function of a program from its plan; layers of graphs that its steps hold follow its own, once each."""
    layers: list[Layer] = []
    for each in plan.plans:
        layers += _layers(each, len(layers), symbols)
    return Function(name, tuple(layers), nodes_of(plan), memory_of(plan) if plan.slots else None, _weights(plan))


def _layers(plan: Plan, first: int, symbols: Mapping[str, KernelFunction]) -> list[Layer]:
    found: list[Layer] = []
    for own in works(plan, symbols):
        step = plan.steps[own.number]
        found.append(
            Layer(
                first + own.number,
                own.nodes,
                own.kernel,
                kind_of(step),
                tuple(str(x.type) for x in step.operands),
                tuple(map(str, step.types)),
                own.macs,
                own.operations,
                own.constants,
                own.moved,
                slot.size if (slot := plan.workspaces.get(step.digest)) else 0,
            )
        )
    return found


def memory_of(plan: Plan) -> Memory:
    """The arena of a plan over time: a value per placed value or workspace; several memories one behind the other."""
    types = {i.digest: i.type for i in plan.kept} | {digest: type for digest, (_, type) in plan.values.items()}
    owners, slots, role = _owners(plan), plan.slots, roles(plan)
    known = {v.digest: role(v) for step in plan.steps for v in results_of(step)} | {i.digest: COPY for i in plan.kept}
    own = plan.own_regions  # what lies in the memory of inputs is not drawn
    begins = dict(zip(own, accumulate(own.values(), initial=0), strict=False))

    def value(name: str, kind: str, lives: tuple[int, int], slot: Slot, role: str) -> Value:
        text = f"{kind} in {slot.region}" if len(begins) > 1 else kind
        return Value(name, text, *lives, begins[slot.region] + slot.offset, slot.size, role)

    values = [
        value(owners[d], str(types[d]), lives, slots[d], known[d])
        for d, lives in plan.lives.items()
        if slots[d].region in own and d not in plan.beside
    ]
    wholes = {op.digest: op for op in plan.graph.ops if op.digest in plan.held}
    for whole, parts in plan.held.items():
        if slots[whole].region in own:
            lives = [plan.lives[d] for d in parts]
            span = min(birth for birth, _ in lives), max(death for _, death in lives)
            name = ", ".join(plan.graph.origin(wholes[whole])) or owners[parts[0]]
            text = f"{wholes[whole].type} of {len(parts)} values"
            values.append(value(name, text, span, slots[whole], known[parts[0]]))
    values += [
        value(_name(plan, step, k), WORKSPACE, (k, k + 1), slot, WORKSPACE)
        for k, step in enumerate(plan.steps)
        if (slot := plan.workspaces.get(step.digest)) and slot.region in own
    ]
    return Memory(plan.memory, int(plan.facts.get("bound", 0)), tuple(values))


def _name(plan: Plan, step: Op, number: int) -> str:
    return ", ".join(plan.graph.origin(step)) or f"step {number}"


def _owners(plan: Plan) -> Mapping[str, str]:
    """Digest of a value → what it came from."""
    found = {v.digest: _name(plan, step, number) for number, step in enumerate(plan.steps) for v in results_of(step)}
    return {**{i.digest: f"input {i.name}" for i in plan.kept}, **found}


def _weights(plan: Plan) -> tuple[Weight, ...]:
    readers: dict[str, dict[int, None]] = {c.digest: {} for c in plan.constants}
    for number, step in enumerate(plan.steps):
        for x in step.operands:
            if x.digest in readers:
                readers[x.digest][number] = None
    return tuple(
        Weight(
            (c.name if isinstance(c, Constant) else "") or ", ".join(plan.graph.origin(c)),
            str(c.type),
            c.type.packed_bytes,
            tuple(readers[c.digest]),
        )
        for c in plan.constants
    )


@dataclass
class _Known:
    """What the steps of a build say of a kernel."""

    schedule: str = ""
    workspace: int = 0
    cycles: int = 0
    traffic: int = 0
    jobs: list[Job] = field(default_factory=list[Job])


def _kernels(
    plans: Mapping[str, Plan], steps: Sequence[StepRecord[Any]], functions: Mapping[str, KernelFunction]
) -> tuple[Kernel, ...]:
    known: dict[str, _Known] = {}
    for plan in (each for outer in plans.values() for each in outer.plans):
        for call in (step for step in plan.steps if isinstance(step, Call)):
            digest = call.body.digest
            known.setdefault(digest, _Known(plan.graph.schedules.get(digest, ""), plan.graph.workspaces.get(digest, 0)))
    symbols = {f.symbol: digest for digest, f in functions.items()}
    for step in steps:
        for digest, (cycles, traffic) in step.report.kernels.items():
            if digest in known:
                known[digest].cycles, known[digest].traffic = cycles, traffic
        for job in pass_of(step).jobs:
            if (digest := symbols.get(job.subject, job.subject)) in known and job not in known[digest].jobs:
                known[digest].jobs.append(job)
    return tuple(_kernel(digest, k, functions.get(digest)) for digest, k in known.items())


def _kernel(digest: str, known: _Known, function: KernelFunction | None) -> Kernel:
    symbol, file, line, stack = (function.symbol, function.file, function.line, function.stack) if function else _NONE
    estimate = known.cycles, known.traffic
    return Kernel(digest, symbol, file, line, known.schedule, *estimate, known.workspace, stack, tuple(known.jobs))


_NONE: Final = ("", "", 0, 0)


def named_boxes(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Name of a model's node → the number of its box."""
    return {name: k for k, node in enumerate(nodes) for name in node.names}
