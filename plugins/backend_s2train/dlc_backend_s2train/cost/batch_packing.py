"""Batch packing: which mosaic of images (`frames.parts`) takes a convolution the fewest steps.

As an element that is broadcast reaches at most k lanes, what packing saves in the parallel cost model is halos and
empty rows, no more; in the serial one it is empty rows alone, and results between images cost as much as others. Tile
passes fall by the number of images, frames of features become fewer and smaller.

- results between images take lanes, so images lie side by side only as far as all of them fit one tile;
- a mosaic fits the feature memory, and sends no more bytes than its images do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.codes import Flag, Stage
from dlc_backend_s2train.cost.cycles import work_of
from dlc_backend_s2train.cost.estimate import shape_of
from dlc_backend_s2train.frames.layout import reduced
from dlc_backend_s2train.frames.parts import ALONE, across_most, pitch
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Instruction, Program, Target

_ROW_TILES = 4
"""Most tiles' worth of images below each other that are tried; from there on gains repeat."""


@dataclass(frozen=True)
class Gain:
    """What packing does for one instruction."""

    mosaic: tuple[int, int]
    """Images across and down."""
    before: int
    """Broadcast steps."""
    after: int
    passes_before: int
    """Tile passes."""
    passes_after: int

    @property
    def images(self) -> int:
        """In a mosaic."""
        return self.mosaic[0] * self.mosaic[1]


def pack(
    geometry: Geometry,
    stage: Stage,
    target: Target | None = None,
    cores: int = 0xFF,
    cost_model: CostModel = CostModel.PARALLEL,
) -> Gain:
    """The mosaic with the fewest steps, among equals that with the fewest tile passes, then images.

    Args:
        geometry: Of a convolution; its own mosaic does not count.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        target: The machine.
        cores: One bit per core that takes part.
        cost_model: What to minimise: array steps (parallel), or single products (serial). The gain is in array steps.

    Raises:
        DlcError: "bad-geometry".
    """
    target, alone = target or Target(), replace(geometry, mosaic=ALONE)
    plain = work_of(Opcode.CONV, stage, alone, target, cores)
    best: tuple[tuple[int, int, int], Gain] | None = None
    most = sizes(Opcode.CONV, stage, alone, None, target, cores).total.bytes
    for mosaic in _candidates(alone, stage, target):
        g = replace(alone, mosaic=mosaic)
        work = work_of(Opcode.CONV, stage, g, target, cores)
        gain = Gain(mosaic, plain.steps, work.steps, plain.tile_passes, work.tile_passes)
        key = (work.steps if cost_model is CostModel.PARALLEL else work.serial_steps, work.tile_passes, gain.images)
        if best is None or (key < best[0] and _fits(g, stage, target, cores, most)):
            best = key, gain
    assert best is not None, "one image is a mosaic"
    return best[1]


def packs(instruction: Instruction) -> bool:
    """Whether a mosaic may be: a convolution over images whose results go to memory as they are, unpooled."""
    pools = Flag.POOL_2 | Flag.POOL_4
    images = instruction.product is not Stage.WEIGHT_GRADIENT or "src1" in instruction.operands
    return instruction.opcode is Opcode.CONV and images and not instruction.flags & pools


def gains(program: Program, begin: int = 0, end: int | None = None) -> tuple[tuple[int, Gain], ...]:
    """(number, gain) of every convolution among instructions `begin` to before `end` that packing makes faster or lets
    do with fewer tile passes, packed or not. Raises DlcError."""
    found: list[tuple[int, Gain]] = []
    for number, instruction in enumerate(program.instructions[begin:end], begin):
        if packs(instruction):
            gain = pack(shape_of(program, instruction), instruction.product, program.target, instruction.cores)
            if gain.images > 1:
                found.append((number, gain))
    return tuple(found)


def saved_steps(program: Program, begin: int = 0, end: int | None = None) -> int:
    """Broadcast steps that the mosaics of instructions `begin` to before `end` save. Raises DlcError."""
    saved = 0
    for instruction in program.instructions[begin:end]:
        g = None if instruction.geometry is None else program.geometries[instruction.geometry]
        if g is not None and g.mosaic != ALONE and packs(instruction):
            shapes = (replace(g, mosaic=ALONE), g)
            works = [work_of(Opcode.CONV, instruction.product, s, program.target, instruction.cores) for s in shapes]
            saved += works[0].steps - works[1].steps
    return saved


def _candidates(g: Geometry, stage: Stage, target: Target) -> Iterator[tuple[int, int]]:
    """(across, down), one image first."""
    n = reduced(g, stage).n
    yield ALONE
    high = min(n, _ROW_TILES * target.rows) if pitch(g)[0] <= _ROW_TILES * target.rows else 1
    for wide in range(1, min(n, across_most(g, stage, target)) + 1):
        for down in range(1, high + 1):
            if 1 < wide * down <= n:
                yield wide, down


def _fits(g: Geometry, stage: Stage, target: Target, cores: int, most: int) -> bool:
    """Whether frames of the mosaics fit the feature memory, and are no more than those of the images."""
    found = sizes(Opcode.CONV, stage, g, None, target, cores)
    return found.resident and found.total.bytes <= most
