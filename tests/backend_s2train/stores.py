"""How many roundings to fp16 lie before an instruction of a program, and how long its sums are.

The bound on errors of `torch_steps` grows with both, so they are counted in the program that runs: through memory,
byte by byte, as results may be joined in one storage, and through what the host computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc_backend_s2train.codes import Element, Flag, Role, Stage
from dlc_backend_s2train.host_functions import compiled
from dlc_backend_s2train.isa.access import operands_of
from dlc_backend_s2train.isa.instruction_set import POOLS, Opcode
from dlc_backend_s2train.program import Instruction, Program, Tensor

from dlc.graph import Constant, Input, Item, Splat
from dlc.ops.shape import Concat, Expand, Reshape, Slice, Transpose

_CHOOSES = Flag.RELU | Flag.MASK_WRITE | Flag.MASK_READ | POOLS | Flag.POINTER_WRITE
_MOVES = (Input, Constant, Splat, Item, Concat, Expand, Reshape, Slice, Transpose)


@dataclass
class _Memory:
    """Storage → ranges of bytes, and how many roundings lie before what they hold."""

    held: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict[int, "dict[tuple[int, int], int]"])

    def read(self, tensor: Tensor) -> int:
        begin, end = tensor.offset, tensor.offset + tensor.nbytes
        ranges = self.held.get(tensor.storage, {}).items()
        return max((count for (first, last), count in ranges if first < end and begin < last), default=0)

    def write(self, tensor: Tensor, count: int) -> None:
        begin, end = tensor.offset, tensor.offset + tensor.nbytes
        now: dict[tuple[int, int], int] = {}
        for (first, last), old in self.held.get(tensor.storage, {}).items():
            if first < begin:
                now[first, min(last, begin)] = old
            if last > end:
                now[max(first, end), last] = old
        self.held[tensor.storage] = {**now, (begin, end): count}


def stores_before(program: Program) -> list[int]:
    """For each instruction, how many roundings to fp16 lie one after the other on the longest way to what it reads.

    Masks and pointers begin no way: both sides of a comparison take the same. What is fp32 in memory is not rounded,
    and what only moves or chooses values rounds nothing.
    """
    found: list[int] = []
    memory = _Memory()
    for instruction in program.instructions:
        touched = [(way, program.tensors[number]) for way, number in operands_of(program, instruction).values()]
        read = [t for way, t in touched if way.reads and t.role not in (Role.MASK, Role.POINTER)]
        before = max(map(memory.read, read), default=0)
        rounds = _rounds(program, instruction)
        for tensor in (t for way, t in touched if way.writes):
            memory.write(tensor, before + (rounds and tensor.element is Element.FP16))
        found.append(before)
    return found


def _rounds(program: Program, instruction: Instruction) -> bool:
    """Whether its results are other values than those that it reads."""
    if instruction.function is not None:
        ops = compiled(program.functions[instruction.function].text).graph.ops
        return not all(isinstance(op, _MOVES) for op in ops)
    chooses = instruction.opcode is Opcode.ELTWISE and not instruction.flags & ~_CHOOSES
    return instruction.opcode is not Opcode.COPY and not chooses


def products(program: Program) -> int:
    """Products in the longest sum."""
    longest = 1
    for instruction in program.instructions:
        if instruction.opcode in (Opcode.CONV, Opcode.LINEAR) and instruction.geometry is not None:
            g = program.geometries[instruction.geometry]
            of = {
                Stage.FORWARD: g.ci // g.groups * g.kh * g.kw,
                Stage.BACKWARD: g.co // g.groups * g.kh * g.kw,
                Stage.WEIGHT_GRADIENT: g.n * g.ho * g.wo,
            }
            longest = max(longest, of[instruction.product])
    return longest
