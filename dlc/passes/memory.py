"""What a graph of kernels means for memory: which values need storage, which share it, who reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence, Set
from dataclasses import dataclass, field

from dlc.api.plan import calls_of, results_of
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.expr import loads
from dlc.kernel.kernel import Kernel
from dlc.passes.overlays import Overlays
from dlc.passes.views import is_view, seen
from dlc.placement import Task


@dataclass(frozen=True)
class MemoryModel:
    """Calls as tasks over storages.

    Attributes:
        calls: The ops that run (views do not), in graph order.
        tasks: One per call, in the same order.
        sizes: Bytes per storage.
        storage: Digest of an intermediate value, of a view of one, or of an overlay that none of the calls is → its
            storage. Inputs and views of inputs have none.
        overlays: Those overlays. Values that lie beside others in one storage are storages of no bytes as well: who
            reads and writes them holds the storage.
    """

    calls: tuple[Op, ...]
    tasks: tuple[Task, ...]
    sizes: tuple[int, ...]
    storage: dict[str, int]
    overlays: Overlays

    @classmethod
    def of(
        cls,
        graph: Graph,
        in_place: bool = True,
        workspace: Callable[[Op], int] | None = None,
        steps: Sequence[Op] = (),
    ) -> MemoryModel:
        """The model of a kernel-level graph, whose calls work in as many bytes as the graph or `workspace` says.

        `steps` are the calls in the order of a plan, which may have what overwrites an input before those who read it.
        """
        ops = calls_of(graph)
        place = {step.digest: k for k, step in enumerate(steps)}
        outputs = {o.digest for o in graph.outputs}
        found = _Storages(Overlays.of(graph, ops, place.keys()), outputs)
        calls: list[Op] = []
        writer: dict[str, int] = {}
        tasks: list[Task] = []
        readers: dict[str, list[int]] = {}
        over = {graph.outputs[i].digest: graph.inputs[j].digest for i, j in graph.aliases}
        for call in ops:
            if call.digest not in outputs and found.shows(call):
                continue
            # Outputs lie in the caller's memory, so no storage says that a reader of one must wait for its writer.
            after = tuple(dict.fromkeys(writer[d] for a in call.operands if (d := a.digest) in writer))
            # What may overwrite an input had better come after those who read it: they then need no copy of it.
            late = (k for v in results_of(call) for k in readers.get(over.get(v.digest, ""), ()))
            after += tuple(k for k in late if not place or place[calls[k].digest] < place[call.digest])
            for a in call.operands if over else ():
                readers.setdefault(seen(a, outputs).digest, []).append(len(calls))
            reads = found.read(call)
            writer |= {v.digest: len(calls) for v in results_of(call) if v.digest in outputs}
            writes = tuple(found.written(v) for v in results_of(call) if v.digest not in outputs)
            own = in_place and not any(v.digest in found.held for v in results_of(call))
            pairs = in_place_pairs(call, found.of, found.sizes) if own else ()
            holds = dict.fromkeys(
                found.held[x.digest] for x in (*call.operands, *results_of(call)) if x.digest in found.held
            )
            calls.append(call)
            tasks.append(Task(reads, writes, (workspace or graph.workspace)(call), pairs, after, tuple(holds)))
        return cls(tuple(calls), tuple(tasks), tuple(found.sizes), found.of, found.overlays)


@dataclass
class _Storages:
    """Where the values of calls are, which come one after another."""

    overlays: Overlays
    outputs: Set[str]
    of: dict[str, int] = field(default_factory=dict[str, int])
    sizes: list[int] = field(default_factory=list[int])
    held: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of a value beside others, of an overlay or of a view of one → its storage."""
    parts: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """The same → the storages of no bytes that it is."""

    def shows(self, call: Op) -> bool:
        """Whether a call has nothing to do, because it shows others where they are."""
        if call.digest in self.overlays.parts:
            self.of[call.digest] = self.held[call.digest] = self.of[call.operands[0].digest]
            self.parts[call.digest] = tuple(k for x in call.operands for k in self.parts[x.digest])
            return True
        if isinstance(seen(call, self.outputs), Input):
            return True
        if not is_view(call) or (source := call.operands[0].digest) not in self.of:
            return False
        self.of[call.digest] = self.of[source]
        if source in self.held:
            self.held[call.digest], self.parts[call.digest] = self.held[source], self.parts[source]
        return True

    def read(self, call: Op) -> tuple[int, ...]:
        """What a call reads, each once."""
        known = (x.digest for x in call.operands if x.digest in self.of)
        return tuple(dict.fromkeys(k for d in known for k in self.parts.get(d, (self.of[d],))))

    def written(self, value: Op) -> int:
        """The storage that a call writes for a value: of one beside others, the storage of no bytes."""
        whole = self.overlays.root.get(value.digest)
        if whole is not None and whole not in self.held:
            self.held[whole] = self._new(value.type.nbytes)
        number = self._new(value.type.nbytes if whole is None else 0)
        self.of[value.digest] = number
        if whole is not None:
            self.of[value.digest] = self.held[value.digest] = self.held[whole]
            self.parts[value.digest] = (number,)
        return number

    def _new(self, size: int) -> int:
        self.sizes.append(size)
        return len(self.sizes) - 1


def in_place_pairs(call: Op, storage: dict[str, int], sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(read, written) storages that may be one: every element is read before it is written, and by that point only.

    A step may read a storage several times: as several operands, and through views of them. All of these reads have to
    allow it: where one step computes `h + f(h)`, its product reads elements of `h` that the sum has written over.
    """
    results = results_of(call)
    if isinstance(call, Call) and len(results) != 1:
        return ()
    operands: dict[int, list[int]] = {}
    for k, x in enumerate(call.operands):
        if (read := storage.get(x.digest)) is not None:
            operands.setdefault(read, []).append(k)
    allowed = overwriting(call)
    return tuple(
        (read, written)
        for r, v in enumerate(results)
        if (written := storage.get(v.digest)) is not None
        for read, numbers in operands.items()
        if sizes[read] == sizes[written] == call.operands[numbers[0]].type.nbytes
        if all(allowed(k, r) for k in numbers)
    )


def overwriting(step: Op) -> Callable[[int, int], bool]:
    """Whether a step's read of one operand, by its number, allows a result to be written over that operand.

    Says nothing of other operands that are the same value, or views of it: callers ask for each of them.
    """
    if not isinstance(step, Call):
        pairs = frozenset(step.overwrites())
        return lambda k, r: (k, r) in pairs
    body = step.body
    return lambda k, r: reads_before_writing(body, body.params[k].name, body.results[r].name)


def overwritten_inputs(graph: Graph, steps: Sequence[Op]) -> tuple[Input, ...]:
    """Inputs that a step reads when an output that may be written over them is, at least in part, already there."""
    if not graph.aliases:
        return ()
    writers = {step.digest: k for k, step in reversed(list(enumerate(steps)))}
    readers = {seen(x, writers).digest: k for k, step in enumerate(steps) for x in step.operands}
    found: list[Input] = []
    for i, j in graph.aliases:
        value, source = graph.outputs[i], graph.inputs[j]
        writer = writers.get((value.of if isinstance(value, Item) else value).digest, len(steps))
        late = readers.get(source.digest, -1) > writer
        if late or not all(_survives(step, source, value, writers) for step in steps[writer : writer + 1]):
            found.append(source)
    return tuple(dict.fromkeys(found))


def _survives(step: Op, source: Op, value: Op, steps: Container[str]) -> bool:
    """Whether a step may write a result over an argument: it reads each element of it before that one is written."""
    if any(seen(x, steps) == source != x for x in step.operands):
        return False  # a view has other subscripts
    allowed, result = overwriting(step), results_of(step).index(value)
    return all(allowed(k, result) for k, x in enumerate(step.operands) if x == source)


def reads_before_writing(kernel: Kernel, name: str, out: str) -> bool:
    """Whether one nest alone reads a tensor and writes a result, at the very same subscripts and of equal type."""
    result = kernel.tensors[out]
    if kernel.tensors[name].type != result.type:
        return False
    readers = [n for n in kernel.nests if name in n.reads()]
    writers = [n for n in kernel.nests if n.out == result.name]
    if len(readers) != 1 or readers != writers or readers[0].reduce is not None:
        return False
    nest = readers[0]
    # Elements that the nest leaves out start from an identity, which would be written over what is still to be read.
    if nest.where is not None or nest.points != result.type.capacity:
        return False
    return all(x.index == nest.index for e in nest.exprs() for x in loads(e) if x.param == name)
