"""What moves over the link for one instruction: frames of features and weights in, other operands in, results out.

Features pass by once for each column pass if weights stay (weight-stationary), weights once for each unit if features
stay; the policy with fewer bytes of those that the memories allow is taken and recorded. Sums that take several loads
of the weight memory go out and come back in between. Source: link model of the S2Train compiler, section 6.5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc_backend_s2train.codes import Opcode, Stage
from dlc_backend_s2train.cost.counts import touched
from dlc_backend_s2train.frames.sizes import Policy, sizes
from dlc_backend_s2train.program import Geometry, Instruction, Program

ARRAY = (Opcode.CONV, Opcode.LINEAR)
"""Opcodes that the array works for."""
UNMOVED = (Opcode.FRAME, Opcode.STORE)
"""They say when what other instructions are counted for is moved."""


@dataclass(frozen=True)
class Traffic:
    """Bytes over the link."""

    features: int = 0
    """Frames of one unit's features, sent once."""
    weights: int = 0
    """Frames of all weights, sent once."""
    frames: int = 0
    """All frames, as often as `policy` sends them."""
    others: int = 0
    """Operands without frames that are read: masks, pointers, norms, addends, partial sums."""
    results: int = 0
    """All that is written."""
    spill: int = 0
    """Partial sums inside the instruction, in one direction."""
    policy: Policy | None = None
    """None: no frames."""
    weight_stationary: int = 0
    """Bytes of frames under this policy."""
    feature_stationary: int | None = None
    """None: a unit's features do not fit the feature memory."""

    @property
    def inward(self) -> int:
        """Bytes in."""
        return self.frames + self.others + self.spill

    @property
    def outward(self) -> int:
        """Bytes out."""
        return self.results + self.spill


def traffic(program: Program, instruction: Instruction, partial: int = 4) -> Traffic:
    """The traffic of one instruction of a verified program.

    Args:
        program: Where its operands and geometry are.
        instruction: Which.
        partial: Bytes of a partial sum that leaves the array between two loads of weights: 4, 2, or 0 if a column has
            room for all.

    Raises:
        DlcError: "bad-instruction", "bad-geometry", "too-large".
    """
    if instruction.opcode in UNMOVED:
        return Traffic()
    if instruction.opcode not in ARRAY:
        sides = touched(program, instruction)
        return Traffic(others=sides.read_bytes, results=sides.written_bytes)
    sides = touched(program, instruction, ("src0", "src1"))
    g = shape_of(program, instruction)
    found = sizes(instruction.opcode, instruction.product, g, None, program.target, instruction.cores)
    return Traffic(
        found.features.bytes,
        found.weights.bytes,
        found.total.bytes,
        sides.read_bytes,
        sides.written_bytes,
        (found.splits // g.groups - 1) * _sums(instruction.product, g) * partial,
        found.policy,
        found.weight_stationary.bytes,
        found.feature_stationary.bytes if found.resident else None,
    )


def shape_of(program: Program, instruction: Instruction) -> Geometry:
    """The geometry of an instruction for the array; the gradient of a bias is that of a 1 x 1 kernel over ones."""
    assert instruction.geometry is not None, "the array's instructions have one"
    g = program.geometries[instruction.geometry]
    if instruction.product is Stage.WEIGHT_GRADIENT and "src1" not in instruction.operands:
        one = replace(g, ci=1, groups=1, hi=g.ho, wi=g.wo, kh=1, kw=1, channels=(0, 0), mosaic=(1, 1))
        return replace(one, stride=(1, 1), pads=(0, 0, 0, 0), dilation=(1, 1))
    return g


def _sums(stage: Stage, g: Geometry) -> int:
    """Elements of an instruction's result before the post-processing unit."""
    n = g.n if g.samples == (0, 0) else g.samples[1] - g.samples[0]
    ci = g.ci if g.channels == (0, 0) else g.channels[1] - g.channels[0]
    match stage:
        case Stage.FORWARD:
            return n * g.co * g.ho * g.wo
        case Stage.BACKWARD:
            return n * g.ci * g.hi * g.wi
        case _:
            return g.co * ci // g.groups * g.kh * g.kw
