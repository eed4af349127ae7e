"""`Plan`: an order and a place for everything; the one thing that backends consume."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from dlc.api.program import Port, Signature
from dlc.api.region_memory import RegionMemory, region_memory
from dlc.base.types import Type
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.loops import Loop, Scan
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item, Splat
from dlc.graph.walk import toposort

T = TypeVar("T")
INPUTS: Final = "inputs"
"""`inputs:0` is a region: the memory of input 0, after its last reader."""


@dataclass(frozen=True)
class Slot:
    """Where a value or a workspace lives: `size` bytes at `offset` in a region."""

    region: str
    """Name of the memory, among `Backend.regions`."""
    offset: int
    """Bytes from its start."""
    size: int
    """Bytes."""


def _nothing() -> Mapping[str, int | str]:
    return MappingProxyType[str, int | str]({})


@dataclass(frozen=True, eq=False)
class Plan:
    """A kernel-level graph with an execution order and, after plan-memory, places.

    Inputs are read from the caller's buffers, graph outputs are written to the caller's buffers, constants come from
    the weights; only the values in between have slots. So has an input that is read when an output may have overwritten
    it already (`Graph.aliases`): it is copied to its slot before the first step, and read from there.

    A step whose kernel works in more memory than its arguments and results (`Graph.workspaces`) has a place for that as
    well, which nothing that is alive while it runs shares. So has a step that holds graphs: each of these has a plan of
    its own, whose arena is a part of that place.
    """

    kind: ClassVar[str] = "plan"
    graph: Graph
    """The graph of kernel calls: its inputs, outputs and names, and what each call came from (`Graph.origin`)."""
    steps: tuple[Op, ...]
    """Execution order: ops that run."""
    slots: Mapping[str, Slot] = field(default_factory=lambda: MappingProxyType[str, Slot]({}))
    """Digest of an intermediate value, of a view of one, or of an input to be kept → its place."""
    regions: Mapping[str, int] = field(default_factory=lambda: MappingProxyType[str, int]({}))
    """Bytes per region: {"arena": 8192}; of several the fastest first."""
    facts: Mapping[str, int | str] = field(default_factory=_nothing)
    """Figures of the planner: bound, gap, method."""
    workspaces: Mapping[str, Slot] = field(default_factory=lambda: MappingProxyType[str, Slot]({}))
    """Digest of a step → where it works."""
    bodies: Mapping[str, Plan] = field(default_factory=lambda: MappingProxyType[str, "Plan"]({}))
    """Digest of a graph that a step holds → its plan, of memory in the workspace of that step (`region_memory`)."""

    @cached_property
    def digest(self) -> str:
        """Content digest (32 hex digits)."""
        h = blake2b(b"plan\0", digest_size=16)
        h.update(self.graph.digest.encode())
        h.update(plan_text(self).encode())
        return h.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def signature(self) -> Signature:
        """How the program is called."""
        outputs = zip(self.graph.names, self.graph.outputs, strict=True)
        return Signature(
            tuple(Port(i.name, i.type, i.range) for i in self.graph.inputs),
            tuple(Port(name, op.type, labels=self.graph.labels.get(name, ())) for name, op in outputs),
            self.graph.aliases,
        )

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls of kernels among the steps. Raises TypeError: there are instructions of a target."""
        if any(not isinstance(step, Call) and not step.body_names for step in self.steps):
            raise TypeError("the plan has steps that are no calls of kernels")
        return tuple(step for step in self.steps if isinstance(step, Call))

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """This plan, then those of the graphs that its steps hold, those inside them included; each once."""
        inner = {p.graph.digest: p for body in self.bodies.values() for p in body.plans}
        return (self, *inner.values())

    def memory_of(self, step: Op) -> RegionMemory:
        """The workspace of a step that holds graphs. Raises KeyError: one of these has no plan."""
        return region_memory(step, lambda body: self.bodies[body.digest].memory)

    def workspace_of(self, step: Op) -> int:
        """Bytes that a step works in."""
        return self.memory_of(step).size if step.body_names else self.graph.workspace(step)

    @cached_property
    def constants(self) -> tuple[Op, ...]:
        """The constant values that steps read (constants and constant expressions), in order of first use."""
        computed = {c.digest for c in self.steps}
        known: dict[str, bool] = {}
        found: dict[str, Op] = {}
        for step in self.steps:
            begins = step.carried if isinstance(step, Loop | Scan) else ()
            for x in step.operands:
                base = x.of if isinstance(x, Item) else x
                # Zeros that a loop begins with are written where its first iteration reads: they need no bytes.
                if is_zeros(x) and x in begins and step.operands.count(x) == begins.count(x):
                    continue
                # A view of a computed value is no step, and no constant either.
                if base.digest not in computed and is_constant(base, known):
                    found.setdefault(x.digest, x)
        return tuple(found.values())

    @cached_property
    def values(self) -> Mapping[str, tuple[int, Type]]:
        """Digest of every value that a step computes → (step number, type)."""
        out: dict[str, tuple[int, Type]] = {}
        for k, step in enumerate(self.steps):
            for v in results_of(step):
                out[v.digest] = (k, v.type)
        return out

    @cached_property
    def last_uses(self) -> Mapping[str, int]:
        """Digest of a value → the last step that reads it, be it through views, which are calls that are no steps."""
        last = {x.digest: number for number, call in enumerate(self.steps) for x in call.operands}
        computed = {call.digest for call in self.steps}
        for op in reversed(self.graph.ops):
            if op.runs and op.digest in last and op.digest not in computed:
                for x in op.operands:
                    last[x.digest] = max(last.get(x.digest, 0), last[op.digest])
        return last

    def given(self, value: Op) -> Op:
        """The input that a value without a slot is a view of, which is read in its place; any other is itself."""
        found = value
        while isinstance(found, Call) and found.digest not in self.values and found.digest not in self.slots:
            if not found.operands:
                return value
            found = found.operands[0]
        return found if isinstance(found, Input) else value

    @cached_property
    def beside(self) -> Mapping[str, str]:
        """Digest of a value that has a part of a memory to itself, beside others → digest of what holds them all.

        Such are the operands of an overlay that is no step: see `dlc.passes.overlays`. It is a value of that kind
        itself, with all of the memory.
        """
        found: dict[str, str] = {}
        for op in reversed(self.graph.ops):
            if not isinstance(op, Call) or op.digest not in self.slots or op.digest in self.values:
                continue
            tensors = [x for x in op.args if x.type.symbol is None]
            if len(tensors) > 1:
                whole = found.setdefault(op.digest, op.digest)
                found |= dict.fromkeys((x.digest for x in tensors), whole)
        return found

    @cached_property
    def held(self) -> Mapping[str, tuple[str, ...]]:
        """Digest of what holds values that lie beside each other (`beside`) → of those values that steps compute."""
        found: dict[str, list[str]] = {}
        for digest in self.values:
            if (whole := self.beside.get(digest)) is not None:
                found.setdefault(whole, []).append(digest)
        return {whole: tuple(parts) for whole, parts in found.items()}

    def beside_each_other(self, one: Op, other: Op) -> bool:
        """Whether two values have parts of one memory."""
        whole = self.beside.get(one.digest)
        return whole is not None and whole == self.beside.get(other.digest)

    @cached_property
    def lives(self) -> Mapping[str, tuple[int, int]]:
        """Digest of a value that has a slot, views aside → the steps [birth, death) in which it is needed."""
        births = {i.digest: 0 for i in self.kept}  # copied before the first step
        births |= {digest: step for digest, (step, _) in self.values.items() if digest in self.slots}
        return {d: (birth, max(birth, self.last_uses.get(d, birth)) + 1) for d, birth in births.items()}

    @cached_property
    def kept(self) -> tuple[Input, ...]:
        """The inputs that are copied to their slots before the first step."""
        return tuple(i for i in self.graph.inputs if i.digest in self.slots)

    @property
    def memory(self) -> int:
        """Bytes of working memory, of all regions together; that of inputs is none."""
        return sum(self.own_regions.values())

    @cached_property
    def own_regions(self) -> Mapping[str, int]:
        """The regions without those that are the memory of inputs."""
        return {name: size for name, size in self.regions.items() if name.partition(":")[0] != INPUTS}

    @cached_property
    def consumed(self) -> tuple[int, ...]:
        """Numbers of the inputs in whose memory values lie later."""
        return tuple(sorted(int(name.partition(":")[2]) for name in self.regions if name not in self.own_regions))

    @property
    def workspace(self) -> int:
        """Bytes that the neediest step works in, beside its operands and results."""
        return max((slot.size for slot in self.workspaces.values()), default=0)

    @cached_property
    def outputs(self) -> Mapping[str, int]:
        """Digest of a value → the number of the graph output that it is."""
        return {o.digest: k for k, o in enumerate(self.graph.outputs)}


def is_zeros(op: Op) -> bool:
    """Whether all bits of a value are zero, however large it is."""
    return isinstance(op, Splat) and op.value == 0 and math.copysign(1.0, op.value) > 0


def results_of(call: Op) -> tuple[Op, ...]:
    """The values of an op that runs: itself, or one `Item` per result."""
    return (call,) if len(call.types) == 1 else tuple(Item(call, k) for k in range(len(call.types)))


def calls_of(graph: Graph) -> tuple[Op, ...]:
    """The ops that run and compute something at run time, operands first: they depend on an input, or are outputs.

    What may be written over an input comes last, so that few still read that input by then.
    """
    over = [graph.outputs[i] for i, _ in graph.aliases]
    variable: set[str] = set()
    outputs = {o.of.digest if isinstance(o, Item) else o.digest for o in graph.outputs}
    found: list[Op] = []
    for op in toposort((*(o for o in graph.outputs if o not in over), *over)):
        known = isinstance(op, Input) or op.body_names or op.digest in outputs
        if known or any(x.digest in variable for x in op.operands):
            variable.add(op.digest)
            if op.runs:
                found.append(op)
    return tuple(found)


def plan_text(plan: Plan) -> str:
    """Order, places and facts as JSON; ops are numbered in graph order, so the text goes with the graph's."""
    number = {op.digest: k for k, op in enumerate(plan.graph.ops)}
    # By number: digests change with the text of a kernel, the order of values does not.
    values = ((number[c.digest], k, v) for c in plan.graph.ops for k, v in enumerate(_placed(c)))
    slots = [[n, k, *_place(plan.slots[v.digest], v.type.nbytes)] for n, k, v in values if v.digest in plan.slots]
    working = [c for c in plan.graph.ops if c.digest in plan.workspaces]
    workspaces = [[number[c.digest], *_place(plan.workspaces[c.digest], plan.workspace_of(c))] for c in working]
    bodies = [json.loads(plan_text(plan.bodies[body.digest])) for body in plan.graph.bodies]
    return json.dumps(
        {
            "steps": [number[s.digest] for s in plan.steps],
            "slots": slots,
            "regions": dict(plan.regions),
            "facts": dict(sorted(plan.facts.items())),
            **({"workspaces": workspaces} if workspaces else {}),
            **({"bodies": bodies} if bodies else {}),
        },
        separators=(",", ":"),
    )


def parse_plan(graph: Graph, text: str) -> Plan:
    """The inverse of `plan_text`, on the same graph.

    Raises:
        ValueError: the text is not a plan of this graph, or places a value or a workspace outside its region.
    """
    try:
        return _read(graph, json.loads(text))
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as problem:
        raise ValueError(f"not a plan of this graph: {problem!r}") from problem


def _read(graph: Graph, data: Any) -> Plan:
    given: list[Any] = data.get("bodies", [])
    if len(given) != len(graph.bodies):
        raise ValueError(f"{len(given)} plans for {len(graph.bodies)} graphs inside")
    bodies = {body.digest: _read(body, each) for body, each in zip(graph.bodies, given, strict=True)}
    steps = tuple(_call(graph, k) for k in data["steps"])
    regions = {_is(str, name): _is(int, size) for name, size in data["regions"].items()}
    facts = {_is(str, name): value for name, value in data["facts"].items()}
    slots: dict[str, Slot] = {}
    for number, result, *place in data["slots"]:
        value = _placed(graph.ops[_is(int, number)])[_is(int, result)]
        slots[value.digest] = _slot(str(value.type), value.type.nbytes, place, regions)
    workspaces: dict[str, Slot] = {}
    for number, *place in data.get("workspaces", ()):
        step = _call(graph, number)
        size = Plan(graph, (), bodies=bodies).workspace_of(step)
        workspaces[step.digest] = _slot(f"the workspace of op {number}", size, place, regions)
    return Plan(graph, steps, slots, regions, facts, workspaces, bodies)


def _call(graph: Graph, number: object) -> Op:
    found = graph.ops[_is(int, number)]
    if not found.runs:
        raise ValueError(f"op {number} is {found.text_name}, which runs nowhere")
    return found


def _placed(op: Op) -> tuple[Op, ...]:
    """What may have a slot: the results of an op that runs, or an input."""
    return results_of(op) if op.runs else (op,) if isinstance(op, Input) else ()


def _place(slot: Slot, size: int) -> list[str | int]:
    """A slot as text has it: without its size where that is the size of what lies there."""
    return [slot.region, slot.offset, *([slot.size] if slot.size != size else [])]


def _slot(what: str, size: int, place: Sequence[object], regions: Mapping[str, int]) -> Slot:
    """The inverse of `_place`."""
    region, offset, own = place if len(place) == 3 else (*place, size)
    slot = Slot(_is(str, region), _is(int, offset), _is(int, own))
    if slot.offset < 0 or slot.size < size or slot.offset + slot.size > regions[slot.region]:
        raise ValueError(f"{slot} does not hold {what} inside {regions[slot.region]} bytes")
    return slot


def _is(kind: type[T], value: object) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not of type {kind.__name__}")
    return value
