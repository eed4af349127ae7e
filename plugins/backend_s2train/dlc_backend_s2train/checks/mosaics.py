"""Whether the images that an instruction takes as one are there, and lie side by side in a tile."""

from __future__ import annotations

from dlc_backend_s2train.codes import Flag, Opcode, Stage
from dlc_backend_s2train.program import Geometry, Instruction, Program


def mosaic_problems(program: Program, instruction: Instruction) -> list[str]:
    """What is wrong with the mosaic of an instruction whose geometry is right otherwise; nothing of most."""
    if instruction.geometry is None or (g := program.geometries[instruction.geometry]).mosaic == (1, 1):
        return []
    across, down = g.mosaic
    told = f"images as {across} x {down}"
    if instruction.opcode is not Opcode.CONV:
        return [f"{told}, but only convolutions take several as one"]
    if instruction.flags & (Flag.POOL_2 | Flag.POOL_4):
        return [f"{told}, but windows of its pool would lie across two of them"]
    if instruction.product is Stage.WEIGHT_GRADIENT and "src1" not in instruction.operands:
        return [f"{told}, but the gradient of a bias has no images"]
    images = g.n if g.samples == (0, 0) else g.samples[1] - g.samples[0]
    if min(across, down) < 1 or across * down > images:
        return [f"{told}, but its batch has {images}"]
    return _wide(program, instruction, g, across)


def _wide(program: Program, instruction: Instruction, g: Geometry, across: int) -> list[str]:
    """Images one beside the other, at a distance at which none meets another's windows, in the lanes of a tile."""
    stride, left = g.stride[1], g.pads[1]
    reach = (g.wo - 1) * stride + (g.kw - 1) * g.dilation[1] + 1 - left
    apart = max(g.wo, -(-max(reach, g.wi, g.wi + left) // stride))
    back = instruction.product is Stage.BACKWARD and (g.kh, g.kw) != (1, 1)
    width = (across - 1) * apart * stride + g.wi if back else (across - 1) * apart + g.wo
    lanes = program.target.lanes
    if across == 1 or width <= lanes:
        return []
    return [f"{across} images side by side are {width} columns, a tile has {lanes}"]
