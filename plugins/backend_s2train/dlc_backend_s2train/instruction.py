"""`S2Instruction`: one instruction as an op of a graph, between selection and the binary.

A graph of these is scheduled and given places by the passes that all targets share; then each op becomes one
`Instruction` of the program.
"""

from __future__ import annotations

from dataclasses import astuple, fields
from enum import IntFlag
from typing import Any, ClassVar, cast

from dlc.base.types import Type, f16, f32, i32, u8
from dlc.graph import Op
from dlc_backend_s2train.codes import NO_FLAGS, Element, Flag, Opcode, Role, Slot, Splitting, Stage
from dlc_backend_s2train.program import Geometry, Hyper

Read = tuple[str, tuple[int, ...], int]
"""An operand: slot, the shape in which the instruction sees it, bytes before it in its value."""
Write = tuple[str, str, tuple[int, ...], str, int]
"""A result: slot, element, shape, role, bytes before it in its value."""


class S2Instruction(Op):
    """An instruction: `reads` has an entry for each operand, `writes` one for each result."""

    runs: ClassVar[bool] = True
    args: tuple[Op, ...] = ()
    opcode: str = "nop"
    stage: str = "forward"
    flags: tuple[str, ...] = ()
    splitting: tuple[str, ...] = ("first", "last")
    geometry: tuple[int, ...] = ()
    """The fields of `Geometry` in order, tuples flattened; () for none."""
    hyper: tuple[float, ...] = ()
    """The fields of `Hyper` in order; () for none."""
    reads: tuple[tuple[str, tuple[int, ...], int], ...] = ()
    writes: tuple[tuple[str, str, tuple[int, ...], str, int], ...] = ()
    results: tuple[Type, ...] = ()

    def derive_types(self) -> tuple[Type, ...]:
        if len(self.args) != len(self.reads) or len(self.results) != len(self.writes) or not self.results:
            raise ValueError(f"{len(self.args)} operands, {len(self.reads)} reads, {len(self.results)} results")
        return self.results

    def overwrites(self) -> tuple[tuple[int, int], ...]:
        """What is read and written in one pass, element by element, in equal shapes and formats."""
        reads = {slot: k for k, (slot, _, _) in enumerate(self.reads)}
        found: list[tuple[int, int]] = []
        for k, (slot, element, shape, _, _) in enumerate(self.writes):
            # A product reads its own operands in another order than it writes; the addend only where it writes.
            sources = [slot] if slot in reads else []
            if slot == "dst0" and element == "fp16" and not self._pools:
                sources += ["res"] if self.opcode != "eltwise" else ["src0", "res"]
            if slot == "dst0" and element == "fp32" and "accumulate_in" in self.splitting:
                sources += ["aux"]
            found += [
                (reads[s], k)
                for s in sources
                if s in reads and self.reads[reads[s]][1] == shape and self.args[reads[s]].type == self.results[k]
            ]
        return tuple(found)

    @property
    def _pools(self) -> bool:
        return any(flag.startswith(("pool", "pointer")) for flag in self.flags)


def packed_type(element: Element, shape: tuple[int, ...]) -> Type:
    """The type of a stored value: fp16, fp32 and int32 as they are, smaller elements as the bytes that hold them."""
    match element:
        case Element.FP16:
            return Type(f16, shape)
        case Element.FP32:
            return Type(f32, shape)
        case Element.INT32:
            return Type(i32, shape)
        case _:
            return Type(u8, ((Type(u8, shape).size * element.bits + 7) // 8,))


def geometry_values(of: Geometry) -> tuple[int, ...]:
    """The numbers of a geometry, flat."""
    flat: list[int] = []
    for value in astuple(of):
        flat += value if isinstance(value, tuple) else (value,)
    return tuple(flat)


def geometry_of(values: tuple[int, ...]) -> Geometry | None:
    """The inverse of `geometry_values`; None for ()."""
    if not values:
        return None
    rest = iter(values)
    found: dict[str, Any] = {}
    for field in fields(Geometry):
        default: object = field.default
        size = len(cast("tuple[int, ...]", default)) if isinstance(default, tuple) else 0
        found[field.name] = tuple(next(rest) for _ in range(size)) if size else next(rest)
    return Geometry(**found)


def hyper_values(of: Hyper) -> tuple[float, ...]:
    """The numbers of hyper-parameters."""
    return tuple(float(v) for v in astuple(of))


def hyper_of(values: tuple[float, ...]) -> Hyper | None:
    """The inverse of `hyper_values`; None for ()."""
    if not values:
        return None
    *numbers, seed, nesterov, growth = values
    return Hyper(*numbers, seed=int(seed), nesterov=bool(nesterov), growth=int(growth))


def flags_of(op: S2Instruction) -> Flag:
    """The flags as bits."""
    found = NO_FLAGS
    for name in op.flags:
        found |= Flag[name.upper()]
    return found


def splitting_of(op: S2Instruction) -> Splitting:
    """The part that the instruction has in a sum over several, as bits."""
    found = Splitting(0)
    for name in op.splitting:
        found |= Splitting[name.upper()]
    return found


def opcode_of(op: S2Instruction) -> tuple[Opcode, Stage]:
    """What it does, and in which stage."""
    return Opcode[op.opcode.upper()], Stage[op.stage.upper()]


def role_of(name: str) -> Role:
    """A role by its name."""
    return Role[name.upper()]


def element_of(name: str) -> Element:
    """An element by its name."""
    return Element[name.upper()]


def names_of(bits: IntFlag) -> tuple[str, ...]:
    """Flags as an instruction's attribute spells them."""
    return tuple(str(bit.name).lower() for bit in bits)


def slot_of(name: str) -> Slot:
    """An operand slot by its name."""
    return cast("Slot", name)
