"""Which instructions compute a graph: start at products, absorb the stages that follow while that is legal.

    relu(batch_norm(conv(x, w)) + r)   →   one instruction: conv, then norm, addition, relu of the unit behind the array

A stage is absorbed if it comes later in the unit's order than those before it, and if the value between has no other
reader (backward, one such value may go to memory beside the result: the gradient before a norm, which the other way of
a residual block reads). Nothing that an instruction reads depends on what it absorbed: values between have one reader,
which was absorbed too. So groups are convex, and no pattern is written down.

A `Group` is an instruction in the making; `Selection` has all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum

from dlc.base.diagnostics import Diagnostic, Location
from dlc.base.report import Report
from dlc.base.types import Array
from dlc.graph import Cotangent, Graph, Input, Op
from dlc.ops.normalize import BatchNorm, BatchNormTraining
from dlc_backend_s2train.codes import NO_FLAGS, Element, Flag, Role, Slot, Stage
from dlc_backend_s2train.instruction import kind_of
from dlc_backend_s2train.isa.instruction_set import FORM_OF, Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.select.memory import Key, key, needs, offset, source, stored_weight


class Forward(IntEnum):
    """Stages of the unit behind the array, in the order in which it has them."""

    NORM = 1
    ADD = 2
    RELU = 3
    POOL = 4
    DROP = 5


class Backward(IntEnum):
    """The same of the backward stage."""

    UNPOOL = 1
    SUM = 2
    DROP = 3
    MASK = 4
    SCALE = 5


Rank = Forward | Backward
SHAPED = (Forward.NORM, Forward.POOL), (Backward.UNPOOL, Backward.SCALE)
"""Ranks that depend on the shape of a map, forward and backward."""


@dataclass(frozen=True)
class Given:
    """An operand: a value of another instruction by its key, or an op of the new graph, and how it is seen."""

    value: Key | Op
    shape: tuple[int, ...]
    offset: int = 0
    exact: Rows | None = field(default=None, compare=False)
    """The parameters of a norm before they were rounded, where they are constants."""


@dataclass(frozen=True)
class Rows:
    """Parameters of a norm: mean, 1/std, scale and shift by channel, in double precision."""

    values: Array
    """[4, C]."""
    origin: tuple[Op, ...]
    """The ops whose constants they come from."""


@dataclass(frozen=True)
class Made:
    """A result: under which key others find it, and how it is stored."""

    key: Key
    element: Element
    shape: tuple[int, ...]
    role: Role
    offset: int = 0
    whole: tuple[int, ...] | None = None
    """The shape of all that lies there, where the instruction writes a part of it, or sees it in another shape; it may
    be (), of a scalar."""

    @property
    def stored(self) -> tuple[int, ...]:
        """The shape of all that lies there."""
        return self.shape if self.whole is None else self.whole


@dataclass
class Group:
    """What one instruction does."""

    opcode: Opcode
    stage: Stage
    tail: Op
    """The op whose value the group gives so far."""
    shape: tuple[int, ...] = ()
    """The shape in which the unit has that value; views may show it otherwise."""
    rank: int = 0
    """Place of the last absorbed stage in the unit's order."""
    geometry: Geometry | None = None
    hyper: Hyper | None = None
    flags: Flag = NO_FLAGS
    reads: dict[Slot, Given] = field(default_factory=dict[Slot, Given])
    writes: dict[Slot, Made] = field(default_factory=dict[Slot, Made])
    sources: list[Given] = field(default_factory=list[Given])
    """What is read beyond slots, in order: the runs that copies put behind each other, what a host function reads."""
    results: list[Made] = field(default_factory=list[Made])
    """What a host function stores."""
    text: str = ""
    """A host function's graph."""
    times: int = 1
    """Instructions that it stands for: of consecutive items of operands and results."""
    origin: list[Op] = field(default_factory=list[Op])
    """The ops that went into it, for names and messages."""

    def absorb(self, op: Op, rank: Rank, flags: Flag = NO_FLAGS) -> None:
        """One more stage."""
        self.tail, self.rank = op, rank
        self.flags |= flags
        self.origin.append(op)
        if rank is Forward.POOL or rank is Backward.UNPOOL:
            self.shape = op.shape

    def takes(self, value: Op, rank: Rank) -> bool:
        """Whether a stage of this rank on the group's value may follow: none of its rank or a later one is there.

        A norm takes channels as the unit has them, a pool maps: no view that changes these may stand between.
        """
        shaped = rank in SHAPED[isinstance(rank, Backward)]
        return self.rank < rank and (not shaped or map_of(self.shape) == map_of(value.shape))


def map_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Samples, channels and the map, of which one element is like none."""
    n, c, *rest = (*shape, 1, 1)[: max(len(shape), 2)]
    return (n, c, *rest) if math.prod(rest) > 1 else (n, c)


@dataclass(frozen=True)
class Settings:
    """What a user chooses."""

    loss_scale: float = 1024.0
    master: bool = False
    """Whether weights are kept in fp32 too."""
    prune: float = 0.0
    """Gradients of weights below are pruned; 0: none."""
    seed: int = 0
    """Of the random bits that pruning draws."""
    fuse: bool = True
    """Whether instructions absorb stages; otherwise each op is one."""
    apart: bool = False
    """Whether gradients of weights go to memory before they are applied, though nothing else reads them."""
    growth: int = 0
    """Steps without overflow after which the loss scale is doubled; 0: it is fixed."""
    masks: bool = False
    """Whether masks and pointers are written that nothing reads."""
    single: bool = False
    """Whether gradients before norms are taken out of those behind them, see `build.on_single_lines`."""


@dataclass(frozen=True)
class Running:
    """Running statistics of a norm in training mode, [2, C] of mean and variance."""

    state: Input
    momentum: float
    """How much of them stays."""
    parts: tuple[Input, Input]
    """The graph's states: mean and variance."""


@dataclass
class Selection:
    """The groups of a graph, and what could not be placed."""

    graph: Graph
    report: Report
    settings: Settings = Settings()
    running: Mapping[str, Running] = field(default_factory=dict[str, Running])
    """Digest of a norm in training mode → its running statistics, where it has some."""
    groups: list[Group] = field(default_factory=list[Group])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    open: dict[Key, Group] = field(default_factory=dict[Key, Group])
    """Groups that may absorb more, by the key of what they give so far."""
    readers: Counter[Key] = field(default_factory=Counter[Key])
    norms: Counter[Key] = field(default_factory=Counter[Key])
    """How many of the readers of a gradient are backward norms."""
    refused: list[Op] = field(default_factory=list[Op])
    """The ops that the problems are about."""
    reasons: list[str] = field(default_factory=list[str])
    """The problems without the names of these."""
    shown: dict[Key, tuple[int, ...]] = field(default_factory=dict[Key, tuple[int, ...]])
    """Shapes in which outputs of the graph show values."""
    hosted: Set[str] = frozenset()
    """Digests of ops that the host computes."""
    second: dict[Key, Group] = field(default_factory=dict[Key, Group])
    """Groups that will take a second backward norm of the same gradient."""

    def refuse(self, op: Op, reason: str, help: str = "") -> None:
        """One thing that cannot be placed."""
        message = reason if isinstance(op, Input) else f"{kind_of(op)}: {reason}"
        self.refused.append(op)
        self.reasons.append(reason)
        place = Location(node=self.name(op))
        self.problems.append(Diagnostic("not-placed", message, location=place, help=help))

    def name(self, op: Op) -> str:
        """What a user calls an op."""
        return op.name if isinstance(op, Input) else ", ".join(self.graph.origin(op)) or kind_of(op)

    def count(self, ops: tuple[Op, ...], outputs: tuple[Op, ...]) -> None:
        """Note who reads what."""
        batches: set[str] = set()
        for op in ops:
            if isinstance(op, Cotangent) and isinstance(op.of, BatchNormTraining):
                # The gradients of its operands are one instruction.
                if op.of.digest in batches:
                    continue
                batches.add(op.of.digest)
            for value in needs(op, self.hosted):
                self.readers[value] += 1
                self.norms[value] += isinstance(op, Cotangent) and isinstance(op.of, BatchNorm)
        for op in outputs:
            self.readers[key(op)] += 1

    def given(self, op: Op, shape: tuple[int, ...] = ()) -> Given:
        """A value of the graph as an operand, or a weight in the shape that the model has it in."""
        found = source(op)
        if isinstance(found, Input) and found.role == "weight":
            return Given(stored_weight(found), shape or op.shape)
        return Given(key(op), shape or op.shape, offset(op))

    def kept(self, value: Key) -> bool:
        """Whether a mask or pointers are written."""
        return self.settings.masks or self.readers[value] > 0

    # ---- opening and absorbing ----
    def begin(self, group: Group) -> Group:
        """A group that may absorb what follows."""
        group.shape = group.shape or group.tail.shape
        self.groups.append(group)
        self._leave_open(group)
        return group

    def follows(self, value: Op, rank: Rank, flags: Flag) -> Group | None:
        """The open group that gives a value to this reader alone, if a stage of this rank may follow there."""
        group, stage = self.open.get(key(value)), stage_of(rank)
        if group is None or group.stage is not stage or source(value) is not group.tail or not group.takes(value, rank):
            return None
        if flags & ~FORM_OF[group.opcode, stage].flags:
            return None
        if self.readers[key(value)] > 1:
            self.report.missed(self.name(value), f"has {self.readers[key(value)]} consumers, so it is stored in memory")
            return None
        return group

    def stage(self, op: Op, value: Op, rank: Rank, flags: Flag) -> Group:
        """The group that `op`, a stage on `value`, ends: the one that gives the value, else one of its own."""
        group = self.follows(value, rank, flags)
        if group is None:
            group = Group(Opcode.ELTWISE, stage_of(rank), op, value.shape)
            group.reads["src0"] = self.given(value)
            self.groups.append(group)
            group.absorb(op, rank, flags)
            self._leave_open(group)
            return group
        return self.absorb(group, op, rank, flags)

    def absorb(self, group: Group, op: Op, rank: Rank, flags: Flag) -> Group:
        """One more stage of an open group."""
        del self.open[group.tail.digest]
        group.absorb(op, rank, flags)
        self._leave_open(group)
        return group

    def _leave_open(self, group: Group) -> None:
        if self.settings.fuse:
            self.open[group.tail.digest] = group

    def close(self) -> None:
        """Say where every group's result goes."""
        for group in self.groups:
            if "dst0" not in group.writes and group.opcode is not Opcode.HOST:
                role = Role.ACTIVATION if group.stage is Stage.FORWARD else Role.FEATURE_GRADIENT
                group.writes["dst0"] = Made(group.tail.digest, Element.FP16, group.tail.shape, role)
            for slot, made in group.writes.items():
                shape = self.shown.get(made.key, made.stored)
                if shape != made.stored and math.prod(shape) == math.prod(made.stored):
                    group.writes[slot] = replace(made, whole=shape)


def stage_of(rank: Rank) -> Stage:
    """The stage that a place in the unit's order belongs to."""
    return Stage.BACKWARD if isinstance(rank, Backward) else Stage.FORWARD
