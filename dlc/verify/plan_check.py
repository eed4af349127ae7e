"""A plan held against its graph: every step finds what it reads, on a memory that knows which value lies where.

    plan   →   what is wrong with it, one sentence each

Every memory (the regions of the plan, the buffers of inputs and of outputs) is a map from bytes to the value that was
written there last. Steps run in order; each must find all bytes of its operands, writes within its regions, and may
write over an operand only where its kernel reads an element before that one is written. A value that no step computes
lies inside others, as a reshape, a slice or a concatenation whose parts are written in place: where, is found by
evaluating the subscripts of its kernel. Of values that lie between each other in one memory, each with some elements,
it is seen here that nothing else is written there; their elements are judged in `dlc.verify.plan_elements`. An output
over an input that it may share is taken to lie there, so an update of a weight that comes too early is found. Nothing
is known here of how planners choose. Before offsets are planned, each value has a memory of its own, and only the order
is judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from dlc.api.plan import INPUTS, Plan, results_of
from dlc.graph.evaluate import is_constant
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.placement.check_steps import Memory
from dlc.verify.kernel_places import Part, copied, in_place
from dlc.verify.plan_elements import wrong_elements


class Span(NamedTuple):
    """Bytes of a memory."""

    memory: str
    start: int
    end: int

    def meets(self, other: Span) -> bool:
        """Whether they share a byte."""
        return self.memory == other.memory and max(self.start, other.start) < min(self.end, other.end)


def check_plan(plan: Plan) -> list[str]:
    """Everything wrong with the order and the places of a plan, one sentence each; an empty list means it is right."""
    faults = [f"{text} of a body" for body in plan.bodies.values() for text in check_plan(body)]
    return faults + _misplaced(plan) + _Machine(plan).run() + (wrong_elements(plan) if plan.beside else [])


def _misplaced(plan: Plan) -> list[str]:
    """Values that are not at the offsets which the user gave, as the plan's facts tell: `fixed NAME`."""
    faults: list[str] = []
    for fact, offset in plan.facts.items():
        word, _, name = fact.partition(" ")
        if word != "fixed":
            continue
        values = [v for step in plan.steps if name in plan.graph.origin(step) for v in results_of(step)]
        last = values[-1:] or [i for i in plan.graph.inputs if i.name == name]
        slots = [plan.slots[v.digest] for v in last if v.digest in plan.slots]
        if offset not in [slot.offset for slot in slots]:
            faults.append(f"{name} is at {slots[0].offset if slots else 'no offset'}, not at the fixed one, {offset}")
    return faults


class _Machine:
    """The memories while the steps of a plan run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.memories: dict[str, Memory] = {}
        self.numbers: dict[str, int] = {}
        self.computed = {v.digest for step in plan.steps for v in results_of(step)}
        self.known: dict[str, bool] = {}
        self.faults: list[str] = []
        graph = plan.graph
        over = {i: f"{INPUTS}:{j}" for i, j in graph.aliases if plan.regions}
        self.buffers: dict[str, list[str]] = {}
        for k, output in enumerate(graph.outputs):
            self.buffers.setdefault(output.digest, []).append(over.get(k, f"outputs:{k}"))
        self.done: set[str] = set()
        self.inputs = {x.digest: f"{INPUTS}:{j}" for j, x in enumerate(graph.inputs)}

    def run(self) -> list[str]:
        """Run all steps; what was wrong."""
        for op in self.plan.graph.inputs:
            self._write(op, Span(self.inputs[op.digest], 0, op.type.nbytes))
            if (slot := self.plan.slots.get(op.digest)) is not None:
                self._write(op, self._inside(op, Span(slot.region, slot.offset, slot.offset + op.type.nbytes)))
        if len(set(self.plan.steps)) < len(self.plan.steps):
            self.faults.append("a step runs twice")
        for number, step in enumerate(self.plan.steps):
            before = len(self.faults)
            self._step(step)
            where = f"step {number} ({self._name(step)}): "
            self.faults[before:] = [where + fault for fault in self.faults[before:]]
        for op in self.plan.graph.outputs:
            if op.digest in self.computed:
                self._find(op)
        return self.faults

    def _step(self, step: Op) -> None:
        operands = [x for x in step.operands if not self._constant(x)]
        for x in dict.fromkeys(operands):
            self._find(x)
        results = results_of(step)
        written = [[self._inside(v, span) for span in self._spans(v)] for v in results]
        flat = [span for spans in written for span in spans]
        read = [(k, x, span) for k, x in enumerate(step.operands) if x in operands for span in self._spans(x)]
        for r, spans in enumerate(written):
            for k, x, span in read:
                for own in spans:
                    legal = self.plan.beside_each_other(results[r], x) or (own == span and in_place(step, k, r))
                    if own.meets(span) and not legal:
                        self.faults.append(f"result {r} is written over {self._name(x)}, which it still reads")
            apart = [n for n in range(r + 1, len(results)) if not self.plan.beside_each_other(results[r], results[n])]
            others = [span for n in apart for span in written[n]]
            if any(own.meets(span) for own in spans for span in others):
                self.faults.append(f"result {r} shares bytes with another result")
        self._work(step, [*flat, *(span for _, _, span in read)])
        for v, spans in zip(results, written, strict=True):
            self.done.add(v.digest)
            for span in spans:
                self._write(v, span)

    def _work(self, step: Op, used: Iterable[Span]) -> None:
        """Let a step work in its place."""
        size = self.plan.workspace_of(step) if self.plan.regions or self.plan.workspaces else 0
        if not size:
            return
        slot = self.plan.workspaces.get(step.digest)
        if slot is None or slot.size < size:
            self.faults.append(f"it has {slot.size if slot else 0} of the {size} bytes that it works in")
            return
        own = self._inside(step, Span(slot.region, slot.offset, slot.offset + size))
        if any(own.meets(span) for span in used):
            self.faults.append("it works in the memory of an operand or result")
        self._memory(own.memory).write(own.start, size, None)

    def _anywhere(self, op: Op) -> bool:
        return self._constant(op) or any(self._holds(op, span) for span in self._spans(op))

    def _find(self, op: Op) -> None:
        """Note whether a value is somewhere that it should be; of a value inside others, each of their parts."""
        if not self._anywhere(op):
            self.faults.append(f"{self._name(op)} is not where it is read")

    def _written(self, op: Op) -> bool:
        """Whether all steps have run that give a value or parts of it."""
        if op.digest in self.computed or not isinstance(op, Call):
            return op.digest in self.done
        return all(self._written(x) for x in op.args if x.type.symbol is None)

    def _holds(self, op: Op, span: Span) -> bool:
        beside = op.digest in self.plan.beside
        if beside and not self._written(op):
            return False
        if beside or op.digest in self.computed or isinstance(op, Input):
            return self._memory(span.memory).holds(span.start, span.end - span.start, (self._number(op), 0))
        if isinstance(op, Call) and not self.plan.regions:  # what it shows has memories of its own, one each
            return all(self._anywhere(x) for x in op.args if x.type.symbol is None)
        parts = self._parts(op)
        return parts is not None and all(
            self._constant(part.of)
            # The whole value has one place, which its bytes are counted from.
            or any(
                place.memory == span.memory
                and place.start + part.at == span.start + part.start
                and self._holds_part(part.of, place, part)
                for place in self._spans(part.of)
            )
            for part in parts
            if isinstance(part.of, Op)
        )

    def _holds_part(self, op: Op, place: Span, part: Part) -> bool:
        if op.digest not in self.computed and not isinstance(op, Input):
            return self._holds(op, place)
        tag = (self._number(op), 0)
        return self._memory(place.memory).holds(place.start + part.at, part.size, tag)

    def _parts(self, op: Op) -> list[Part] | None:
        """What a value that no step computes consists of; None if that is not known."""
        source = op.of if isinstance(op, Item) else op
        if not isinstance(source, Call):
            return None
        found = copied(source.body, op.index if isinstance(op, Item) else 0)
        return None if found is None else [p._replace(of=source.args[cast("int", p.of)]) for p in found]

    def _spans(self, op: Op) -> list[Span]:
        """Where a value lies; more than one for an output that is given twice."""
        size = op.type.nbytes
        if op.digest in self.buffers and op.digest in self.computed:
            return [Span(name, 0, size) for name in self.buffers[op.digest]]
        if (slot := self.plan.slots.get(op.digest)) is not None:
            return [Span(slot.region, slot.offset, slot.offset + size)]
        if op.digest in self.inputs:
            return [Span(self.inputs[op.digest], 0, size)]
        parts = None if op.digest in self.computed else self._parts(op)
        if parts:  # a value without a place of its own lies where the first of its parts does
            first = min(parts)
            return [
                Span(s.memory, begin, begin + size)
                for s in self._spans(cast("Op", first.of))
                for begin in [s.start + first.at - first.start]
            ]
        return [Span(f"value {self._number(op)}", 0, size)]

    def _inside(self, op: Op, span: Span) -> Span:
        """The span, after a note if it is not within its memory."""
        most = self.plan.regions.get(span.memory, span.end)
        if self.plan.regions and span.memory.startswith("value "):
            self.faults.append(f"{self._name(op)} has no place")
        if span.start < 0 or span.end > most:
            self.faults.append(f"{self._name(op)} is at [{span.start}, {span.end}) of {most} bytes of {span.memory}")
        return span

    def _write(self, op: Op, span: Span) -> None:
        self._memory(span.memory).write(span.start, span.end - span.start, (self._number(op), 0))

    def _number(self, op: Op) -> int:
        return self.numbers.setdefault(self.plan.beside.get(op.digest, op.digest), len(self.numbers))

    def _memory(self, name: str) -> Memory:
        return self.memories.setdefault(name, Memory())

    def _constant(self, op: object) -> bool:
        return isinstance(op, Op) and op.digest not in self.computed and is_constant(op, self.known)

    def _name(self, op: Op) -> str:
        source = op.of if isinstance(op, Item) else op
        return f"{', '.join(self.plan.graph.origin(source)) or getattr(op, 'name', '') or 'unnamed'}, {op.types[0]}"
