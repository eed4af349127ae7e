"""The link stream: what a program's instructions send to the memories of features and weights, in order.

Only convolutions and linear layers have frames in the published material. Operands of the post-processing unit (masks,
pointers, norms, addends) are registers and FIFOs without a frame; other opcodes send nothing.

A file holds the stream with what is known before a run: what the storages of weights hold at first, and the ones that
gradients of biases are made with. Their frames are complete, for the first run of every entry. Activations, gradients
and what an update moves are values of a run: their frames are open, heads with lengths and addresses in the places and
order of the whole stream, without data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.base.report import Report
from dlc_backend_s2train.codes import Arena, Element, Stage
from dlc_backend_s2train.container.layout import FRAMES
from dlc_backend_s2train.frames.convert import Conversion, conversion, send
from dlc_backend_s2train.frames.frame import Bits, Memory
from dlc_backend_s2train.frames.layout import Form
from dlc_backend_s2train.frames.planes_and_kernels import View
from dlc_backend_s2train.frames.sizes import sizes_of
from dlc_backend_s2train.isa.instruction_set import Opcode, spelled
from dlc_backend_s2train.program import Geometry, Instruction, Program

Tensor = NDArray[Any]
Read = Callable[[int], Tensor | None]
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


class Runner(Protocol):
    """What runs a program and can be read while it does: a `Machine`."""

    @property
    def program(self) -> Program: ...
    def read(self, tensor: int, /) -> Tensor: ...
    def run(self, entry: str, inputs: Mapping[str, Tensor], watch: Callable[[int], object], /) -> dict[str, Tensor]: ...


def run_frames(
    machine: Runner, entry: str, inputs: Mapping[str, Tensor], write: Callable[[bytes], object]
) -> dict[str, Tensor]:
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
    return _bits(_part(held, view, geometry, stage))


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


@dataclass(frozen=True)
class Sent:
    """The frames of one instruction."""

    number: int
    """In the program."""
    conversion: Conversion
    frames: int
    begin: int
    """Byte in the section."""
    end: int
    bare: tuple[Memory, ...]
    """Memories whose frames are open."""


def known(program: Program, tensor: int) -> NDArray[Any] | None:
    """What a tensor holds in the first run of an entry, of the tensor's shape; None: a value of the run."""
    view = program.tensors[tensor]
    if not _stays(program, tensor):
        return None
    held = program.weights.get(view.storage)
    if held is None:
        return np.zeros(view.shape, np.float16)
    return np.frombuffer(held, "<f2", view.count, view.offset).reshape(view.shape)


def sent(program: Program) -> Iterator[Sent]:
    """Each instruction of a verified program that sends frames, with the place of its frames in the section.

    Raises:
        DlcError: "bad-geometry", "too-large", "bad-target": an operator that has no frames.
    """
    at = 0
    for number, instruction in enumerate(program.instructions):
        if not sends(instruction):
            continue
        con = conversion_of(program, instruction)
        features, weights = sizes_of(con.layout).sent
        bare = tuple(memory for memory in Memory if not _known(program, number, con, memory))
        size = sum(b.bare if memory in bare else b.bytes for memory, b in zip(Memory, (features, weights), strict=True))
        yield Sent(number, con, features.frames + weights.frames, at, at + size, bare)
        at += size


def stored_frames(program: Program, report: Report) -> bytes:
    """The section's bytes; the report is given their size before they are made.

    Raises:
        DlcError: (USAGE) "too-many-frames", before memory is taken, with the size that they would have.
    """
    every = list(sent(program))
    size = max((each.end for each in every), default=0)
    report.note(f"frames of {len(every)} instructions: {sum(each.frames for each in every):,}, of {size:,} bytes")
    if size > FRAMES:
        raise error(
            "too-many-frames",
            f"emit=frames: the frames come to {size:,} bytes; a file holds {FRAMES:,}",
            help="build fewer functions, -p s2train-step for a step or no --train for prediction, or no frames",
            exit_code=ExitCode.USAGE,
        )
    made = b"".join(program_frames(program, lambda tensor: known(program, tensor)))
    assert len(made) == size, f"{len(made)} bytes of frames, counted were {size}"
    report.count("bytes of frames", size)
    return made


def _known(program: Program, number: int, con: Conversion, memory: Memory) -> bool:
    instruction = program.instructions[number]
    if has_ones(instruction) and memory is Memory.FM:
        return True
    return _stays(program, instruction.operands[con.view(memory).slot])


def _stays(program: Program, tensor: int) -> bool:
    view = program.tensors[tensor]
    return program.storages[view.storage].arena is Arena.WEIGHTS and view.element is Element.FP16


FRAMES_HEAD = ("#", "instruction", "frames", "bytes", "features", "weights")
FRAMES_RIGHT = (0, 2, 3)
"""Columns of numbers."""


def frame_rows(program: Program) -> list[tuple[str, ...]]:
    """`HEAD` and a row for each instruction; nothing where the file holds no frames, or none that fit."""
    rows: list[tuple[str, ...]] = [FRAMES_HEAD]
    for each in _sent(program):
        instruction = program.instructions[each.number]
        title = f"{spelled(instruction.opcode)} {spelled(instruction.stage)}"
        held = ("open" if memory in each.bare else "full" for memory in Memory)
        rows.append((str(each.number), title, f"{each.frames:,}", f"{each.end - each.begin:,}", *held))
    return rows if len(rows) > 1 else []


def frames_data(program: Program) -> list[dict[str, Any]]:
    """The same as plain data; `begin` is the byte in the section."""
    return [
        {
            "instruction": each.number,
            "frames": each.frames,
            "begin": each.begin,
            "bytes": each.end - each.begin,
            "open": [memory.name.lower() for memory in each.bare],
        }
        for each in _sent(program)
    ]


def _sent(program: Program) -> list[Sent]:
    try:
        return list(sent(program)) if program.frames else []
    except DlcError:
        return []  # `dlc verify` tells why
