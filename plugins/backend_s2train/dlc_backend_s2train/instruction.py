"""Ops of a graph of instructions, between selection and the binary: `S2Instruction`, and `S2Host` for the host's part.

A graph of these is ordered and given places by the passes that all targets share; then each op becomes one
`Instruction` of the program, or several: copies of several runs of elements (`copied_runs`), and instructions on so
many samples that the unit behind the array cannot count them (`sample_parts`).

    y = norm(conv(x, w)), 128 samples of 32 x 32   →   the same on samples 0 to 63, then on samples 64 to 127

The unit goes to the next channel's parameters of a norm, or addends, when N·H·W elements have passed, which it counts
in 16 bits. Both instructions have the same operands and name their samples, so that nobody else sees two. Source:
published control words of the S2Train compiler, section 1.4.
"""

from __future__ import annotations

import math
from dataclasses import astuple, fields, replace
from enum import IntFlag
from itertools import accumulate
from typing import Any, ClassVar, Final, cast

from dlc.api.backend import Reason
from dlc.base.types import Type, f16, f32, i32, u8
from dlc.graph import Call, Cotangent, Item, Op
from dlc_backend_s2train.codes import NO_FLAGS, Element, Flag, Role, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
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
    times: int = 1
    """How many instructions it stands for: of consecutive items, whose shapes `reads` and `writes` tell."""

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
                # What a norm in training mode read forward stands beside the gradient, element by element.
                sources += ["src1"] if "bn_train" in self.flags else []
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

    def again(self, number: int) -> Op | None:
        """Not where it draws numbers, whose place in their sequence is the device's.

        A norm in training mode moves its running statistics once, and finds those of the batch again in the same order.
        """
        again = self.made_again()
        if "dropout" in self.flags or self.opcode == "dropout" or not again:
            return None
        moved = {slot for k, (slot, *_) in enumerate(self.writes) if k not in again}
        stays = [k for k, (slot, _, _) in enumerate(self.reads) if slot not in moved]
        held: dict[str, Any] = {**dict(self.operand_fields()), **self.attrs, "number": number}
        held["args"], held["reads"] = (tuple(of[k] for k in stays) for of in (self.args, self.reads))
        held["writes"], held["results"] = (tuple(of[k] for k in again) for of in (self.writes, self.results))
        if moved and (hyper := hyper_of(self.hyper)) is not None:
            held["hyper"] = hyper_values(replace(hyper, momentum=0.0))
        return S2Again(**held)

    def made_again(self) -> tuple[int, ...]:
        """All that does not move what is there."""
        reads = {slot for slot, _, _ in self.reads}
        return tuple(k for k, (slot, *_) in enumerate(self.writes) if slot not in reads)

    def operations(self) -> int:
        """Two for every product of a result, and one for every element of the results."""
        g = geometry_of(self.geometry)
        elements = sum(of.size for of in self.results)
        if g is None or self.opcode not in ("conv", "linear"):
            return elements
        return 2 * g.n * g.co * g.ho * g.wo * (g.ci // g.groups) * g.kh * g.kw + elements


class S2Again(S2Instruction):
    """An instruction that is executed once more; `number` tells its executions apart."""

    is_repeat: ClassVar[bool] = True
    number: int = 1


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


def kind_of(op: Op) -> str:
    """What an op is called, for people: `conv`, `gradient of conv`; calls of kernels, as gradients are, by that."""
    match op:
        case Call():
            return "kernel"
        case Cotangent(of=of):
            return f"gradient of {kind_of(of)}"
        case Item(of=of):
            return kind_of(of)
        case _:
            return op.text_name


class S2Host(Op):
    """The host computes `text` on stored values; `results` are what it stores."""

    runs: ClassVar[bool] = True
    args: tuple[Op, ...] = ()
    text: str = ""
    """The function's graph, as `.dlc` text."""
    reads: tuple[tuple[tuple[int, ...], int], ...] = ()
    """Of each operand the shape in which the function sees it, and bytes before it in its value."""
    results: tuple[Type, ...] = ()

    def derive_types(self) -> tuple[Type, ...]:
        if len(self.args) != len(self.reads) or not self.results:
            raise ValueError(f"{len(self.args)} operands, {len(self.reads)} reads, {len(self.results)} results")
        return self.results


def copied_runs(op: S2Instruction) -> list[tuple[Op, tuple[int, ...], int, int]]:
    """Of several runs that one op copies: value, shape, byte in the value, byte in the result; none for other ops."""
    if op.opcode != "copy" or len(op.reads) < 2:
        return []
    sizes = [packed_type(Element.FP16, shape).nbytes for _, shape, _ in op.reads]
    begins = accumulate(sizes, initial=0)
    return [(arg, shape, at, into) for arg, (_, shape, at), into in zip(op.args, op.reads, begins, strict=False)]


COUNTED: Final = 1 << 16
"""Elements of a channel that pass the unit in one instruction."""
_COUNTING: Final = frozenset(("add", "add_single", "bn_forward", "bn_backward", "bn_backward_2"))
_WHOLE: Final = frozenset(("bn_train", "softmax_ce"))
"""Stages that need the whole batch, and that the published unit does not have."""


def sample_parts(op: S2Instruction) -> tuple[Geometry | None, ...] | Reason:
    """The geometries of the instructions that an op becomes: its own, or one for each range of samples.

    A reason instead: the unit cannot count one sample's elements.
    """
    g = geometry_of(op.geometry)
    shape = _counted(op, g)
    if not _COUNTING & set(op.flags) or _WHOLE & set(op.flags) or math.prod(shape[:1] + shape[2:]) <= COUNTED:
        return (g,)
    n, channels, *places = shape
    each = math.prod(places)
    # A sample's bits of a mask have to begin with a byte.
    unit = math.lcm(*(8 // math.gcd(8, bits) for bits in _bits(op, n)))
    most = COUNTED // each // unit * unit
    if not most:
        unit_text = "a sample" if unit == 1 else f"{unit} samples, whose masks fill whole bytes,"
        reason = f"{unit_text} of {each:,} elements in a channel: the unit behind the array counts {COUNTED:,} at once"
        return Reason(reason, "smaller images, or sizes that are multiples of 8")
    if g is None:
        height, width = (*places, 1, 1)[:2]
        g = Geometry(n, channels, channels, height, width, height, width)
    # Parts of nearly equal size: the last one fills the array as well as the others.
    count = -(-n // most)
    step = -(-n // (count * unit)) * unit
    return tuple(replace(g, samples=(first, min(first + step, n))) for first in range(0, n, step))


def _counted(op: S2Instruction, g: Geometry | None) -> tuple[int, ...]:
    """The shape of what passes the unit's norm and addition: forward before it pools, backward behind that."""
    if op.stage == "forward" and op.opcode != "eltwise" and g is not None:
        return g.n, g.co, g.ho, g.wo
    if op.stage == "forward":
        return next((shape for slot, shape, _ in op.reads if slot == "src0"), ())
    return next((shape for slot, _, shape, _, _ in op.writes if slot == "dst0"), ())


def _bits(op: S2Instruction, n: int) -> list[int]:
    """Bits of a sample of all that is stored in less than bytes."""
    small = {"mask": 1, "ptr": 4 if "pool_4" in op.flags else 2, "aux": 1 if "dropout" in op.flags else 32}
    seen = [(small.get(slot, 16), shape) for slot, shape, _ in op.reads]
    seen += [(element_of(element).bits, shape) for _, element, shape, _, _ in op.writes]
    return [bits * math.prod(shape) // n for bits, shape in seen if shape[:1] == (n,)]


SEEDS: Final = 1 << 53
"""Hyper-parameters are numbers of fp64 while they are attributes."""
_WORDS = 1 << 64
_GOLDEN = 0x9E3779B97F4A7C15


def mixed(seed: int, stream: int) -> int:
    """A seed for one of several streams: SplitMix64 (Steele, Lea, Flood 2014), number `stream` of what it draws."""
    word = (seed + (stream + 1) * _GOLDEN) % _WORDS
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % _WORDS
    return (word ^ word >> 31) % SEEDS
