"""`Work`: one computation of the array as a loop nest, the same for all stages and shapes.

    for each unit, column pass, row tile, channel, kernel row: broadcast `span` elements, one a step

A column holds an output channel (a linear layer: as many output features as there are lanes), a PE row a row of the
result, a lane a column of it. Which loop is which, follows from how the operands lie in frames:

| stage | units | channels | columns | PE rows | lanes | kernel rows |
|---|---|---|---|---|---|---|
| convolution, forward | n | ci | co | ho | wo | kh |
| backward | n | co | ci | hi | wi | kh |
| weight gradient | ci | n | co | kh | kw | those of dy, for each strip of 16 columns |
| linear, forward | 1 | ci | co / 16 | n | - | 1 |
| backward | 1 | co | ci / 16 | n | - | 1 |
| weight gradient | 1 | n | co / 16 | ci | - | 1 |

Where a stage puts zeros between the elements of dy, they are broadcast like others. Kernels that the array does not
have are several that it has, one after the other.
Source: spreadsheet of the PE's dataflow, sections 1.2, 3.7 and 6.4 of the S2Train compiler's description.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.base.diagnostics import error
from dlc_backend_s2train.codes import Opcode, Stage
from dlc_backend_s2train.frames.layout import Cuts, Layout, Part, layout, parted, reduced
from dlc_backend_s2train.program import Geometry, Target


@dataclass(frozen=True)
class Work:
    """Counts of the loops."""

    macs: int
    """Products that the result needs, those with padding among them."""
    units: int
    """Results that are made one after the other, groups of channels among them."""
    passes: int
    """Times that the columns are filled with output channels."""
    row_tiles: int
    lane_tiles: int
    """Tiles of one result."""
    channels: int
    """Elements of the broadcast operand that go one after the other for the same sums."""
    lines: int
    """Rows that are broadcast for one channel: kernel rows of all row tiles and parts of a decomposed kernel."""
    span: int
    """Elements of such a row, over all tiles."""
    products: int
    """Most products that a PE makes for one channel of a whole result; zeros that the stage itself puts in (between the
    elements of dy, around kernels) make none."""
    splits: int
    """Loads of the weight memory that the channels need."""
    pieces: int = 1
    """Kernels into which the operator's was decomposed; of a weight gradient also strips of dy."""

    @property
    def steps(self) -> int:
        """Broadcast steps of the whole computation."""
        return self.units * self.passes * self.channels * self.lines * self.span

    @property
    def serial_steps(self) -> int:
        """Steps when a PE makes one product at a time; the fullest PE counts."""
        return self.units * self.passes * self.channels * self.products

    @property
    def tile_passes(self) -> int:
        """Tiles times column passes."""
        return self.units * self.passes * self.row_tiles * self.lane_tiles


def work_of(opcode: Opcode, stage: Stage, geometry: Geometry, target: Target | None = None, cores: int = 0xFF) -> Work:
    """The work of an instruction.

    Args:
        opcode: CONV or LINEAR.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        geometry: Shapes of the operator, forward; `samples` and `channels` count.
        target: The machine.
        cores: One bit per core that takes part; bits of cores that the machine lacks are ignored.

    Raises:
        DlcError: "bad-geometry", "too-large", "no-frames": no operator of the array; "bad-target".
    """
    target = target or Target()
    if min(target.cores, target.columns, target.rows, target.lanes) < 1:
        raise error("bad-target", f"a machine needs at least one core, column, row and lane: {target}")
    lay = layout(opcode, stage, geometry, None, target, cores)
    g, own = reduced(geometry, stage), parted(geometry, stage)
    rows, width = _result(lay, opcode, stage, g)
    row_tiles = -(-rows // target.rows)
    step = 2 if lay.paired else 1
    heights = [(part.plane.count - part.kernel.count) // step + 1 for part in lay.rows]
    return Work(
        own.n * own.co * own.ho * own.wo * (own.ci // own.groups) * own.kh * own.kw,
        lay.units * lay.groups,
        len(lay.passes),
        row_tiles,
        -(-width // target.lanes),
        lay.channels,
        sum(-(-h // target.rows) * part.kernel.count for h, part in zip(heights, lay.rows, strict=True)),
        sum(_span(lay, part) for part in lay.columns),
        row_tiles * _products(opcode, stage, g, target),
        len(lay.splits),
        len(lay.rows) * len(lay.columns),
    )


def _span(lay: Layout, part: Part) -> int:
    """Elements broadcast for a row of a plane: all tiles, what they share in each."""
    return sum(times * length for times, length in Cuts(part.plane.count, lay.tile, lay.overlap).runs())


def _result(lay: Layout, opcode: Opcode, stage: Stage, g: Geometry) -> tuple[int, int]:
    """Rows and columns of what a column of the array makes of one unit."""
    if opcode is Opcode.LINEAR:
        return lay.rows[0].plane.count, 1
    if stage is Stage.WEIGHT_GRADIENT:
        return g.kh, g.kw
    if stage is Stage.BACKWARD and (g.kh, g.kw) != (1, 1):
        return g.hi, g.wi
    return g.ho, g.wo


def _products(opcode: Opcode, stage: Stage, g: Geometry, target: Target) -> int:
    """Products of the fullest PE for one channel, in one row of the result."""
    if opcode is Opcode.LINEAR:
        return min(g.ci if stage is Stage.BACKWARD else g.co, target.lanes)
    if stage is Stage.WEIGHT_GRADIENT:
        return g.ho * g.wo * g.kw
    if stage is Stage.BACKWARD and (g.kh, g.kw) != (1, 1):
        # Of the kernel's rows, those that meet no inserted zero: for the fullest PE row one in `stride`, rounded up.
        return -(-g.kh // g.stride[0]) * max(g.wo * g.kw, -(-g.wi * g.kw // g.stride[1]))
    return g.wo * g.kh * g.kw
