"""Values that move between memories: a plan with copies as steps, and a buffer for each stay of a value in a memory.

    a = f(x); …; b = g(a)      →      a = f(x); s = a copied 1; …; b = g(s)          s lies in slow memory

What is read late need not take room in fast memory until then, and what is read often need not be read from slow
memory each time. What an access of a byte costs in each memory decides (`dlc.placement.transfers`), copies counted.
Copied is what steps compute; what several values share, what kernels work in, and inputs that are kept stay where they
are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlc.api.plan import Plan, results_of
from dlc.graph.graph import with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Copy, Item
from dlc.passes.memory_wanted import Wanted
from dlc.placement import Lifetimes
from dlc.placement.buffers import aligned
from dlc.placement.pieces import Copy as Asked
from dlc.placement.pieces import Pieces
from dlc.placement.routes import Track, Use


def tracks_of(plan: Plan, wanted: Wanted, align: int) -> list[Track]:
    """The buffers of a plan with what its steps do with them."""
    uses = _uses(plan, wanted)
    fixed = _staying(plan, wanted)
    found: list[Track] = []
    for b in wanted.lives.buffers:
        own = uses[b.id]
        moves = b.id not in fixed and b.size > 0 and bool(own) and own[0].step == b.birth and own[0].begins
        if not moves:
            own = (Use(b.birth, 0, sum(u.read + u.written for u in own), True),)
        found.append(Track(aligned(b.size, align), b.size, b.birth, b.death, tuple(own), moves))
    return found


def _uses(plan: Plan, wanted: Wanted) -> list[tuple[Use, ...]]:
    """Per buffer, what each step reads and writes of it: every byte once, of what a kernel works in twice."""
    found: list[dict[int, Use]] = [{} for _ in wanted.lives.buffers]

    def use(buffer: int, step: int, read: int, written: int, begins: bool) -> None:
        old = found[buffer].get(step, Use(step))
        found[buffer][step] = Use(step, old.read + read, old.written + written, old.begins or begins)

    for k, step in enumerate(plan.steps):
        for x in step.operands:
            if x.digest in wanted.values:
                buffer, size = wanted.values[x.digest]
                use(buffer, k, size, 0, False)
        for v in results_of(step):
            if v.digest in wanted.values:
                buffer, size = wanted.values[v.digest]
                use(buffer, k, 0, size, True)
        if step.digest in wanted.workspaces:
            buffer = wanted.workspaces[step.digest]
            size = wanted.lives.buffers[buffer].size
            use(buffer, k, size, size, True)
    return [tuple(own.values()) for own in found]


def accesses(plan: Plan, wanted: Wanted) -> tuple[int, ...]:
    """Bytes that steps read and write of each buffer."""
    return tuple(sum(u.read + u.written for u in own) for own in _uses(plan, wanted))


def _staying(plan: Plan, wanted: Wanted) -> set[int]:
    """Buffers that stay in one memory: those in which values lie beside others, workspaces, inputs, and open sizes."""
    open_ = (v for op in plan.graph.ops if op.runs for v in results_of(op) if v.type.is_open)
    return {
        *wanted.shared,
        *wanted.workspaces.values(),
        *(
            wanted.values[d][0]
            for d in (*(i.digest for i in wanted.kept), *(v.digest for v in open_))
            if d in wanted.values
        ),
    }


def moved(plan: Plan, wanted: Wanted, pieces: Pieces) -> tuple[Plan, Wanted]:
    """The plan whose steps copy values as the pieces of its buffers say, and what it needs places for: the pieces."""
    made = _Made(plan, wanted, pieces)
    copies = list(reversed(pieces.copies))
    for number, step in enumerate(plan.steps):
        while copies and copies[-1].before == number:
            made.copy(copies.pop())
        made.execute(number, step)
    outputs = tuple(made.latest(o) for o in plan.graph.outputs)
    graph = with_live_origins(replace(plan.graph, outputs=outputs, origins=made.origins))
    lives = Lifetimes(pieces.buffers, (), ())
    return (
        replace(plan, graph=graph, steps=tuple(made.steps)),
        replace(wanted, lives=lives, values=made.values, workspaces=made.workspaces),
    )


@dataclass
class _Made:
    """The ops of a plan's graph on the pieces that hold what they read."""

    plan: Plan
    wanted: Wanted
    pieces: Pieces
    steps: list[Op] = field(default_factory=list[Op])
    values: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Of the new plan, as `Wanted.values`; so `workspaces`."""
    workspaces: dict[str, int] = field(default_factory=dict[str, int])
    origins: dict[str, tuple[str, ...]] = field(init=False)
    _made: dict[str, Op] = field(default_factory=dict[str, Op])
    """Digest of a value that a step computes → what stands for it, where it was written."""
    _held: dict[int, Op] = field(default_factory=dict[int, Op])
    """Piece → the value there."""
    _copies: dict[str, int] = field(default_factory=dict[str, int])
    """Digest of a value → how often it was copied."""
    _first: dict[int, int] = field(init=False)
    """Buffer → its only piece, of those that stay in one memory."""

    def __post_init__(self) -> None:
        self.origins = dict(self.plan.graph.origins)
        self._first = {track: piece for piece, track in reversed(list(enumerate(self.pieces.track)))}
        for i in self.wanted.kept:
            self._place(i, i.digest)

    def copy(self, asked: Asked) -> None:
        """Copy what a piece holds."""
        value = self._held[asked.source]
        number = self._copies[value.digest] = self._copies.get(value.digest, 0) + 1
        new = Copy.of(value, number)
        if names := self._origin(value):
            self.origins[new.digest] = names
        self._held[asked.target] = new
        self.values[new.digest] = asked.target, new.type.nbytes
        self.steps.append(new)

    def execute(self, number: int, step: Op) -> None:
        """The op of a step."""
        new = step.with_operands([self.latest(x, number) for x in step.operands])
        self._named(step, new)
        for old, value in zip(results_of(step), results_of(new), strict=True):
            self._made[old.digest] = value
            if old.digest in self.wanted.values:
                buffer, size = self.wanted.values[old.digest]
                piece = self.pieces.written.get((buffer, number), self._first[buffer])
                self._held[piece] = value
                self.values[value.digest] = piece, size
        if step.digest in self.wanted.workspaces:
            self.workspaces[new.digest] = self._first[self.wanted.workspaces[step.digest]]
        self.steps.append(new)

    def latest(self, op: Op, number: int = -1) -> Op:
        """What a step reads for a value: what the piece holds that it reads, a view of that, or the value itself."""
        if op.digest in self._made:
            buffer, _ = self.wanted.values.get(op.digest, (-1, 0))
            piece = self.pieces.read.get((buffer, number))
            # Beside others, a piece holds several values.
            return self._made[op.digest] if piece is None or buffer in self.wanted.shared else self._held[piece]
        if op.digest not in self.wanted.values or not op.runs:
            return op
        new = op.with_operands([self.latest(x, number) for x in op.operands])
        self._named(op, new)
        self.values[new.digest] = self.values[new.operands[0].digest][0], new.type.nbytes
        return new

    def _place(self, op: Op, digest: str) -> None:
        buffer, size = self.wanted.values[digest]
        self.values[op.digest] = self._first[buffer], size

    def _origin(self, value: Op) -> tuple[str, ...]:
        source = value.of if isinstance(value, Item) else value
        return self.origins.get(source.digest, ())

    def _named(self, op: Op, new: Op) -> None:
        if names := self.plan.graph.origin(op):
            self.origins[new.digest] = names
