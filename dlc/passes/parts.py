"""parts: what is concatenated is written to where the concatenation has it, and whoever reads it reads it there.

    c = concat(a, b);  y = f(a)    →    a' = place(a);  b' = place(b);  c = overlay(a', b');  y = f(part(a'))

Values like a' have the shape of c, and of its elements those that a is; nobody reads the others. `fuse` makes `place`
a part of what computes a, and `part` one of whoever reads it. `order` and `plan-memory` give a', b' and c one memory
(`overlays`), where `overlay` has nothing to do: a plan has no step for it. What a concatenation is a part of holds its
parts as well: a chain of them, as in DenseNet, is one value that grows.

An input or a value that another concatenation holds is copied to its place. A result of the program stays a
concatenation, and so do small ones, those of constants, and what is only moved on. What holds its operands needs all of
its memory from the first of them on. Where that makes the peak higher, as with the long ways of a U-Net, those that are
in use at the peak stay as well: peaks are compared before kernels are fused, and only where that does not tell also
after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import Type
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.define import grid
from dlc.kernel.expr import Expr
from dlc.kernel.fusion.forward import moves_all
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.box import Box
from dlc.kernel.simplify import simplify_nest
from dlc.passes.fuse import Fuse
from dlc.passes.memory import MemoryModel
from dlc.passes.overlays import joined_boxes
from dlc.placement import OrderResult, lifetimes, max_live, order_tasks
from dlc.spec import Bytes, option

_TRIES: Final = 4
"""Sets of concatenations that are compared, at most, before none holds its operands."""
_STATES: Final = 500
"""States that a search for an order visits, to compare peaks."""
_SEARCHED: Final = 2000
"""Calls for which an order is searched."""


@dataclass(frozen=True)
class Parts(Pass[Graph, Graph]):
    """Write operands of concatenations to where these have them: c = concat(f(x), g(x))  →  f and g write into c."""

    name: ClassVar[str] = "parts"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    bytes: Bytes = option(0, "the smallest concatenation that holds its operands; 0: none does", low=0)
    peak: bool = option(True, "concatenations that make the peak higher hold nothing")

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs."""
        made = _Rewriter.of(state, self.bytes) if self.bytes else None
        if made is None or not made.held:
            return state
        if self.peak and _peak(made.found) > _peak(state):
            made = _without_long_ones(made, self.bytes)
        if count := len(made.roots):
            report.count("concatenations", count)
        return made.found


def _without_long_ones(made: _Rewriter, least: int) -> _Rewriter:
    """Fewer concatenations that hold their operands, so that the peak of fused kernels is not higher than without."""
    most = _peak(Fuse().run(made.source, Report()))
    left: frozenset[str] = frozenset()
    for _ in range(_TRIES):
        if _peak(Fuse().run(made.found, Report())) <= most:
            return made
        left |= made.at_peak()
        made = _Rewriter.of(made.source, least, left)
        if not made.held:
            return made
    return _Rewriter(made.source, {})


def _peak(graph: Graph) -> int:
    """Bytes that are live at once in a good order of calls."""
    return _ordered(MemoryModel.of(graph)).peak


def _ordered(model: MemoryModel) -> OrderResult:
    policy = "memory" if len(model.tasks) <= _SEARCHED else "depth-first"
    return order_tasks(model.tasks, model.sizes, policy=policy, state_limit=_STATES)


@dataclass(frozen=True)
class _Place:
    """Where a value lies."""

    root: str
    """Digest of the concatenation that holds it."""
    type: Type
    """Of that."""
    box: Box

    def inside(self, box: Box) -> Box:
        """Where a box of the value is in what holds it."""
        return tuple((start + a, start + b) for (start, _), (a, b) in zip(self.box, box, strict=True))


def _held(graph: Graph, least: int, left: Set[str]) -> Mapping[str, _Place]:
    """Digest of a value → its place, for what is held and what holds it; what is `left` is as it was."""
    outputs = {o.digest for o in graph.outputs}
    constant: dict[str, bool] = {}
    found: dict[str, _Place] = {}
    for op in reversed(graph.ops):
        boxes = joined_boxes(op)
        if boxes is None or op.digest in outputs or op.digest in left:
            continue
        if any(is_constant(x, constant) for x in op.operands):
            continue
        if (place := found.get(op.digest)) is None:
            if op.type.nbytes < least or _only_moved(op, graph):
                continue
            found[op.digest] = place = _Place(op.digest, op.type, tuple((0, d) for d in op.type.room))
        for x, box in zip(op.operands, boxes, strict=True):
            users = graph.users.get(x, ())
            own = isinstance(x, Call) and len(x.types) == 1 and x.digest not in outputs
            if own and x.digest not in found and all(isinstance(u, Call) for u in users):
                found[x.digest] = replace(place, box=place.inside(box))
    return found


def _only_moved(op: Op, graph: Graph) -> bool:
    """Whether the only reader of a value writes its elements elsewhere: `fuse` lets who makes them write there."""
    users = graph.users.get(op, ())
    user = users[0] if len(users) == 1 else None
    if not isinstance(user, Call):
        return not users
    names = {p.name for p, a in zip(user.body.params, user.args, strict=True) if a == op}
    readers = [n for n in user.body.nests if names & n.reads()]
    return len(readers) == 1 and len(names) == 1 and moves_all(readers[0], user.body.tensors[min(names)])


@dataclass
class _Rewriter:
    """One walk from inputs to outputs."""

    source: Graph
    held: Mapping[str, _Place]
    new: dict[str, Op] = field(default_factory=dict[str, Op])
    """Digest of a value → what it is now for who reads it by itself."""
    wide: dict[str, Op] = field(default_factory=dict[str, Op])
    """Digest of a value that is held → what has its elements at their place."""
    copied: dict[str, str] = field(default_factory=dict[str, str])
    """Digest of an operand's copy at its place → digest of the concatenation."""

    @classmethod
    def of(cls, graph: Graph, least: int, left: Set[str] = frozenset()) -> _Rewriter:
        """Of all concatenations of at least so many bytes but for those that are `left`."""
        return cls(graph, _held(graph, least, left))

    @property
    def roots(self) -> frozenset[str]:
        """Digests of the concatenations that hold others and are not held themselves."""
        return frozenset(place.root for place in self.held.values())

    @cached_property
    def found(self) -> Graph:
        """The graph as it is now."""
        if not self.held:
            return self.source
        origins = dict(self.source.origins)
        for op in self.source.ops:
            found = self._held(op) or op.with_operands([self.new[x.digest] for x in op.operands])
            self.new[op.digest] = found
            if names := self.source.origin(op):
                origins.setdefault(found.digest, names)
                if (wide := self.wide.get(op.digest)) is not None:
                    origins.setdefault(wide.digest, names)
        for copy, whole in self.copied.items():
            if names := self.source.origins.get(whole):
                origins.setdefault(copy, names)
        outputs = tuple(self.new[o.digest] for o in self.source.outputs)
        return with_live_origins(replace(self.source, outputs=outputs, origins=origins))

    def at_peak(self) -> frozenset[str]:
        """Those concatenations that are in use at the peak; else the one that is in use for longest."""
        model = MemoryModel.of(self.found)
        lives = lifetimes(model.tasks, model.sizes, _ordered(model).order)
        _, step = max_live(lives.buffers, 1)
        spans = {
            root: lives.buffers[lives.of_storage[model.storage[wide.digest]]]
            for root in self.roots
            if (wide := self.wide[root]).digest in model.storage
        }
        then = frozenset(root for root, b in spans.items() if b.birth <= step < b.death)
        return then or frozenset([max(spans, key=lambda r: spans[r].death - spans[r].birth)] if spans else self.roots)

    def _held(self, op: Op) -> Op | None:
        """What a value that is held or holds others is for who reads it by itself; None: it is neither."""
        if (place := self.held.get(op.digest)) is None:
            return None
        boxes = joined_boxes(op)
        if boxes is not None:
            parts = [self._part(x, op, place, box) for x, box in zip(op.operands, boxes, strict=True)]
            wide = overlay([p for p, _ in parts], [b for _, b in parts], place.type)
        else:
            wide = placed(op.with_operands([self.new[x.digest] for x in op.operands]), place.type, place.box)
        self.wide[op.digest] = wide
        return wide if op.digest == place.root else part_of(wide, op.type, place.box)

    def _part(self, x: Op, whole: Op, around: _Place, box: Box) -> tuple[Op, Box]:
        """An operand of a concatenation at its place, and that."""
        inside = around.inside(box)
        if self.held.get(x.digest) == replace(around, box=inside):
            return self.wide[x.digest], inside
        copy = placed(self.new[x.digest], around.type, inside)
        self.copied[copy.digest] = whole.digest
        return copy, inside


def placed(op: Op, type: Type, box: Box) -> Call:
    """A value as a part of one of another shape: r[i + start] = p[i]."""
    p, i = Param("x", op.type), grid(op.type.room)
    nest = Nest("out", _moved(i, box), i, p[i])
    return Call(Kernel.canonical((p,), (Param("out", type),), (simplify_nest(nest),)), (op,))


def part_of(op: Op, type: Type, box: Box) -> Call:
    """The inverse of `placed`: r[i] = p[i + start]."""
    p, i = Param("x", op.type), grid(type.room)
    nest = Nest("out", i, i, p[_moved(i, box)])
    return Call(Kernel.canonical((p,), (Param("out", type),), (simplify_nest(nest),)), (op,))


def overlay(parts: Sequence[Op], boxes: Sequence[Box], type: Type) -> Call:
    """Values that each have a part of one: r[i + start] = p[i + start] for each."""
    params = tuple(Param(f"x{k}", x.type) for k, x in enumerate(parts))
    nests: list[Nest] = []
    for p, box in zip(params, boxes, strict=True):
        i = grid(tuple(stop - start for start, stop in box))
        at = _moved(i, box)
        nests.append(simplify_nest(Nest("out", at, i, p[at])))
    return Call(Kernel.canonical(params, (Param("out", type),), tuple(nests)), tuple(parts))


def _moved(index: tuple[Expr, ...], box: Box) -> tuple[Expr, ...]:
    return tuple(i + start if start else i for i, (start, _) in zip(index, box, strict=True))
