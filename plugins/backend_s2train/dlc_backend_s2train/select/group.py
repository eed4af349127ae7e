"""`Group`: an instruction in the making, which absorbs one stage of the post-processing unit after the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.graph import Op
from dlc_backend_s2train.program import NO_FLAGS, Element, Flag, Geometry, Hyper, Opcode, Role, Slot, Stage
from dlc_backend_s2train.select.effects import Key


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
    whole: tuple[int, ...] = ()
    """The shape of all that lies there, where the instruction writes a part of it."""


@dataclass
class Group:
    """What one instruction does."""

    opcode: Opcode
    stage: Stage
    tail: Op
    """The op whose value the group gives so far."""
    rank: int = 0
    """Place of the last absorbed stage in the unit's order."""
    geometry: Geometry | None = None
    hyper: Hyper | None = None
    flags: Flag = NO_FLAGS
    reads: dict[Slot, Given] = field(default_factory=dict[Slot, Given])
    writes: dict[Slot, Made] = field(default_factory=dict[Slot, Made])
    origin: list[Op] = field(default_factory=list[Op])
    """The ops that went into it, for names and messages."""

    def absorb(self, op: Op, rank: int, flags: Flag = NO_FLAGS) -> None:
        """One more stage."""
        self.tail, self.rank = op, rank
        self.flags |= flags
        self.origin.append(op)
