"""`Graph`: inputs, outputs and names over a hash-consed DAG of ops, with traversal and rewriting.

Equal ops are one node, so common subexpressions and dead code need no pass: what no output needs is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import ClassVar

from dlc.graph.kinds import check_inputs, check_outputs
from dlc.graph.op import Body, Op, quote
from dlc.graph.structure import Call, Constant, Input
from dlc.graph.tensor import Tensor
from dlc.graph.walk import toposort

Rule = Callable[[Op], Op | None]
_EMPTY: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_NO_WORKSPACES: Mapping[str, int] = MappingProxyType({})
_NO_SCHEDULES: Mapping[str, str] = MappingProxyType({})
_NO_LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
# A rewritten op explains at most this many source nodes; more would only make reports unreadable.
MAX_ORIGINS = 16


@dataclass(frozen=True, eq=False)
class Graph(Body):
    """A model, or what an op of a model does each time that it is run (`Op.bodies`).

    Attributes:
        inputs: In the order of the calling convention.
        outputs: Values, in order; one may occur twice or be an input.
        names: The outputs' names.
        aliases: (i, j): output i may reuse the storage of input j (weight updates); the only trace of mutation.
        origins: Op digest → names of the source model's nodes it came from. Never part of a digest.
        workspaces: Kernel digest → bytes that it works in while it runs, beside arguments and results, where the target
            has stated any.
        schedules: Kernel digest → how it becomes loops, as the target's backend writes it, where it has stated that.
        labels: Name of an output → texts: those that its whole numbers stand for, or the names of the entries along its
            last dimension, if it has floats. They change no value.
    """

    kind: ClassVar[str] = "graph"
    inputs: tuple[Input, ...]
    outputs: tuple[Op, ...]
    names: tuple[str, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _EMPTY)
    workspaces: Mapping[str, int] = field(default_factory=lambda: _NO_WORKSPACES)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_LABELS)
    schedules: Mapping[str, str] = field(default_factory=lambda: _NO_SCHEDULES)

    @cached_property
    def digest(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Content digest (32 hex digits) of everything but origins."""
        h = blake2b(b"graph\0", digest_size=16)
        for part in (*(i.digest for i in self.inputs), "->", *(o.digest for o in self.outputs)):
            h.update(part.encode() + b"\0")
        for name in self.names:
            h.update(quote(name).encode() + b"\0")
        h.update(repr(self.aliases).encode())
        for kernel, size in sorted(self.workspaces.items()):
            h.update(f"{kernel} {size}\0".encode())
        for kernel, schedule in sorted(self.schedules.items()):
            h.update(f"schedule {kernel} {schedule}\0".encode())
        for output, texts in sorted(self.labels.items()):
            h.update(f"labels {' '.join(map(quote, (output, *texts)))}\0".encode())
        return h.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """Every op that an output needs, operands before users; the order depends on content only."""
        return toposort(self.outputs)

    @cached_property
    def users(self) -> Mapping[Op, tuple[Op, ...]]:
        """Op → the distinct ops that read it (outputs of the graph are not counted here)."""
        found: dict[Op, dict[Op, None]] = {}
        for op in self.ops:
            for x in op.operands:
                found.setdefault(x, {})[op] = None
        return {op: tuple(us) for op, us in found.items()}

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """All data that the graph and its bodies hold: of constants, and what inputs start with."""
        initial = (i.initial for i in self.inputs if isinstance(i.initial, Tensor))
        constants = (op.tensor for graph in self.graphs for op in graph.ops if isinstance(op, Constant))
        return (*constants, *initial)

    @cached_property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs that its ops hold, each once."""
        return tuple(dict.fromkeys(body for op in self.ops for body in op.bodies))

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """This graph, then those that its ops hold, those inside them included; each once."""
        return tuple(dict.fromkeys((self, *(inner for body in self.bodies for inner in body.graphs))))

    def with_bodies(self, change: Callable[[Graph], Graph]) -> Graph:
        """The graph with each body that its ops hold replaced by what `change` makes of it."""
        if not self.bodies:
            return self
        new = {body.digest: change(body) for body in self.bodies}
        return self.rewrite(lambda op: op.with_bodies([new[b.digest] for b in op.bodies]) if op.body_names else None)

    def readers(self, op: Op) -> int:
        """Number of ops that read it, plus one if it is an output."""
        return len(self.users.get(op, ())) + (op.digest in self._returned)

    @cached_property
    def _returned(self) -> frozenset[str]:
        return frozenset(o.digest for o in self.outputs)

    def origin(self, op: Op) -> tuple[str, ...]:
        """Names of the source nodes an op came from."""
        return self.origins.get(op.digest, ())

    def workspace(self, op: Op) -> int:
        """Bytes that an op works in while it runs; only kernels work in any."""
        return self.workspaces.get(op.body.digest, 0) if isinstance(op, Call) else 0

    def rewrite(self, rule: Rule, rounds: int = 1) -> Graph:
        """Apply a rule to every op, operands first; with `rounds`, again until nothing changes (at most so often)."""
        graph = self
        for _ in range(rounds):
            new = _rewrite_once(graph, rule)
            if new.digest == graph.digest:
                return new
            graph = new
        return graph

    def substitute(self, mapping: Mapping[Op, Op]) -> Graph:
        """Replace ops by others of the same type."""
        return _rewrite_once(self, _unchanged, mapping)


def _unchanged(op: Op) -> Op | None:
    del op
    return None


def _rewrite_once(graph: Graph, rule: Rule, fixed: Mapping[Op, Op] = MappingProxyType({})) -> Graph:
    """Every op on its operands' replacements, then replaced by `rule`; ops of the old graph in `fixed` by those."""
    new: dict[str, Op] = {}
    origins = dict(graph.origins)
    known = {op.digest for op in graph.ops}
    for op in graph.ops:
        moved = op.with_operands([new[x.digest] for x in op.operands])
        result = fixed.get(op) or rule(moved) or moved
        new[op.digest] = result
        if result.digest != op.digest:
            _inherit(origins, op, moved, result, _brought(result, known))
    outputs = tuple(new[o.digest] for o in graph.outputs)
    return with_live_origins(replace(graph, outputs=outputs, origins=origins))


def _brought(result: Op, known: set[str]) -> list[Op]:
    """The ops that a replacement brings along, which are known from then on."""
    waiting, found = [result], list[Op]()
    while waiting:
        x = waiting.pop()
        if x.digest not in known:
            known.add(x.digest)
            found.append(x)
            waiting += x.operands
    return found


def _inherit(origins: dict[str, tuple[str, ...]], op: Op, moved: Op, result: Op, fresh: list[Op]) -> None:
    """Every new op comes from what it replaced, and from the ops that the replacement absorbed."""
    names: dict[str, None] = dict.fromkeys(origins.get(op.digest, ()))
    kept = {x.digest for x in _near(result)}
    if result.digest != moved.digest:
        for gone in _near(moved):
            if gone.digest not in kept:
                names.update(dict.fromkeys(origins.get(gone.digest, ())))
    if not names:
        return
    named = tuple(names)[:MAX_ORIGINS]
    for x in fresh:
        if not isinstance(x, Input):
            origins.setdefault(x.digest, named)
    if result.digest in origins:
        merged = dict.fromkeys((*origins[result.digest], *named))
        origins[result.digest] = tuple(merged)[:MAX_ORIGINS]


def _near(op: Op, depth: int = 4) -> list[Op]:
    """The op and its operands down to a small depth: as far as rules look."""
    level, found = [op], {op.digest: op}
    for _ in range(depth):
        # By digest: shared operands must not be counted once per path to them.
        fresh = {x.digest: x for o in level for x in o.operands if x.digest not in found}
        found |= fresh
        level = list(fresh.values())
    return list(found.values())


def with_live_origins(graph: Graph) -> Graph:
    """The graph with the origins of ops, and what is stated of kernels, that are no longer there forgotten."""
    live = {op.digest for op in graph.ops}
    stated = graph.workspaces or graph.schedules
    kernels = {op.body.digest for op in graph.ops if isinstance(op, Call)} if stated else set[str]()
    return replace(
        graph,
        origins={d: n for d, n in graph.origins.items() if d in live},
        workspaces={d: n for d, n in graph.workspaces.items() if d in kernels},
        schedules={d: s for d, s in graph.schedules.items() if d in kernels},
    )


def make_graph(
    inputs: Sequence[Input], outputs: Mapping[str, Op], origins: Mapping[str, tuple[str, ...]] | None = None
) -> Graph:
    """A graph from named outputs.

    Args:
        inputs: In the order of the program's signature.
        outputs: Name → op that computes it, in the order of the signature.
        origins: Digest of an op → names of the nodes of the model that it stems from, for messages.

    Returns:
        The graph; it is not verified.

    Raises:
        DlcError: (USAGE) inputs are no list of Inputs, or outputs no dict of names and ops.
    """
    check_inputs(inputs)
    check_outputs(outputs)
    return Graph(tuple(inputs), tuple(outputs.values()), tuple(outputs), origins=origins or {})
