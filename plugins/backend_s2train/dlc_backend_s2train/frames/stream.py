"""The link stream: what a program's instructions send to the memories of features and weights, in order.

Only convolutions and linear layers have frames in the published material. Operands of the post-processing unit (masks,
pointers, norms, addends) are registers and FIFOs without a frame; other opcodes send nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import Opcode, Stage
from dlc_backend_s2train.frames.convert import Conversion, conversion, send
from dlc_backend_s2train.frames.head import Memory
from dlc_backend_s2train.frames.lad import Bits
from dlc_backend_s2train.frames.layout import Form, parted
from dlc_backend_s2train.frames.mosaic import ALONE, spread
from dlc_backend_s2train.frames.operands import View
from dlc_backend_s2train.program import Geometry, Instruction, Program

if TYPE_CHECKING:
    from dlc_backend_s2train.simulator.machine import Machine

Read = Callable[[int], NDArray[Any] | None]
"""The elements of the tensor with a number, of its shape or another with as many; the link carries them as fp16. None:
not known, so that its frames are open."""


def stream(program: Program, number: int, read: Read, form: Form | None = None, first: int = 0) -> bytes:
    """What instruction `number` sends; arguments and errors are those of `frames`."""
    return b"".join(frames(program, number, read, form, first))


def program_frames(program: Program, read: Read, form: Form | None = None) -> Iterator[bytes]:
    """The frames of all instructions, in the order of the program, numbered from 0. Errors are those of `frames`.

    `read` is asked for the operands of one instruction after the other.
    """
    first = 0
    for number in range(len(program.instructions)):
        for frame in frames(program, number, read, form, first):
            yield frame
            first += 1


def run_frames(
    machine: Machine, entry: str, inputs: Mapping[str, NDArray[Any]], write: Callable[[bytes], object]
) -> dict[str, NDArray[Any]]:
    """One run of an entry whose link stream goes to `write`, frame by frame, all of them with data; gives the outputs.

    Products overwrite nothing that they send, so their operands are read when they are done. Errors are those of
    `Machine.run` and `frames`.
    """
    first = 0

    def watch(number: int) -> None:
        nonlocal first
        for frame in frames(machine.program, number, machine.read, first=first):
            write(frame)
            first += 1

    return machine.run(entry, inputs, watch)


def frames(program: Program, number: int, read: Read, form: Form | None = None, first: int = 0) -> Iterator[bytes]:
    """The frames that instruction `number` sends, in the order of the link.

    Args:
        program: Whose instruction.
        number: Which instruction.
        read: Elements of a tensor by number.
        form: What the encoding leaves free.
        first: Running number of the first frame.

    Raises:
        DlcError: "bad-operand": tensors and geometry do not go together; and as `layout` and `send` do.
    """
    instruction = program.instructions[number]
    if not sends(instruction) or instruction.geometry is None:
        return
    con = conversion_of(program, instruction, form)
    # First what is read: its size bounds that of the ones.
    kernels = operand(program, number, con, Memory.WM, read)
    yield from send(con, operand(program, number, con, Memory.FM, read), kernels, first)


def operand(program: Program, number: int, con: Conversion, memory: Memory, read: Read) -> Bits | None:
    """What an instruction sends to a memory, as the conversion sees it; None where `read` does not know.

    What a gradient that is applied at once needs besides (the weight, its velocity) has no frames.
    """
    instruction, view = program.instructions[number], con.view(memory)
    if has_ones(instruction) and memory is Memory.FM:
        return np.full((con.geometry.n, 1, con.geometry.ho, con.geometry.wo), 0x3C00, np.uint16)
    if view.slot not in instruction.operands:
        message = f"instruction {number}: operand {view.slot} is missing"
        raise error("bad-operand", message, help="verify the program with dlc show")
    held = read(instruction.operands[view.slot])
    if held is None:
        return None
    geometry, stage = _geometry(program, instruction), instruction.product
    bits = _bits(_part(held, view, geometry, stage))
    if geometry.mosaic == ALONE or view.what == "w":
        return bits
    return spread(bits, parted(geometry, stage), view.what == "x")


def conversion_of(program: Program, instruction: Instruction, form: Form | None = None) -> Conversion:
    """How the operands of an instruction that `sends` become frames. Raises DlcError as `layout` does."""
    geometry = _geometry(program, instruction)
    return conversion(instruction.opcode, instruction.product, geometry, form, program.target, instruction.cores)


def has_ones(instruction: Instruction) -> bool:
    """Whether an instruction is the gradient of a bias, whose features are ones that no tensor holds."""
    return "src1" not in instruction.operands and instruction.product is Stage.WEIGHT_GRADIENT


def _geometry(program: Program, instruction: Instruction) -> Geometry:
    assert instruction.geometry is not None, "what sends frames has a geometry"
    geometry = program.geometries[instruction.geometry]
    return of_ones(geometry) if has_ones(instruction) else geometry


def sends(instruction: Instruction) -> bool:
    """Whether an instruction has frames."""
    return instruction.opcode in (Opcode.CONV, Opcode.LINEAR)


def of_ones(geometry: Geometry) -> Geometry:
    """The geometry of a bias's gradient: that of a 1 x 1 kernel's over a single channel of ones."""
    return replace(
        geometry,
        ci=1,
        hi=geometry.ho,
        wi=geometry.wo,
        kh=1,
        kw=1,
        stride=(1, 1),
        pads=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
        channels=(0, 0),
        mosaic=ALONE,
    )


def _part(tensor: NDArray[Any], view: View, g: Geometry, stage: Stage) -> NDArray[Any]:
    """The samples and channels of x or y that the instruction reads; w has no others."""
    if view.what == "w":
        return tensor
    shape = (g.n, g.ci, g.hi, g.wi) if view.what == "x" else (g.n, g.co, g.ho, g.wo)
    if tensor.size != np.prod(shape, dtype=object):
        message = f"frames: operand {view.slot} has {tensor.size} elements, its geometry wants {shape}"
        raise error("bad-operand", message, help="tensors and geometries of a program go together")
    found = tensor.reshape(shape)
    if g.samples != (0, 0):
        found = found[g.samples[0] : g.samples[1]]
    if g.channels != (0, 0) and (view.what == "y") == (stage is Stage.BACKWARD):
        found = found[:, g.channels[0] : g.channels[1]]
    return found


def _bits(tensor: NDArray[Any]) -> Bits:
    """fp16 as bits; others are rounded to nearest even, to infinity beyond fp16."""
    with np.errstate(over="ignore"):
        half = np.ascontiguousarray(tensor, np.float16)
    return half.view(np.uint16)
