"""`Group`: an instruction in the making, which absorbs one stage of the post-processing unit after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum

from dlc.graph import Op
from dlc_backend_s2train.codes import NO_FLAGS, Element, Flag, Opcode, Role, Slot, Stage
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.select.effects import Key


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
