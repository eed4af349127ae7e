"""Steps of the array (`Work`), and cycles of array, link and unit under two readings of how a PE computes.

One computation of the array is a loop nest, the same for all stages and shapes:

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

The two readings:

- `parallel`: an element that is broadcast is multiplied for all its outputs in one cycle; the steps are the cycles.
- `serial`: a PE makes one product a cycle.

In both, elements that are zero may be skipped: `density` is the part that is left; of several parts (rows, columns)
the largest counts, as all wait for the slowest. The link moves one beat of 64 bits a cycle in each direction.
Sources: spreadsheet of the PE's dataflow, sections 1.2, 3.7 and 6.4 of the S2Train compiler's description, and its
cycle model, section 6.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dlc.base.diagnostics import error
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.layout import Cuts, Layout, Part, layout, parted
from dlc_backend_s2train.frames.sizes import BEAT
from dlc_backend_s2train.isa.instruction_set import Opcode
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
    g = parted(geometry, stage)
    rows, width = _result(lay, opcode, stage, g)
    row_tiles = -(-rows // target.rows)
    step = 2 if lay.paired else 1
    heights = [(part.plane.count - part.kernel.count) // step + 1 for part in lay.rows]
    return Work(
        g.n * g.co * g.ho * g.wo * (g.ci // g.groups) * g.kh * g.kw,
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


REGISTER_BEATS = 2
"""Burst of one configuration register."""
REGISTERS = 10
"""Configuration registers of a column."""

Bound = Literal["compute", "load", "store", "configuration"]


@dataclass(frozen=True)
class Assumptions:
    """What the published material leaves open."""

    cost_model: CostModel = CostModel.PARALLEL
    density: tuple[float, ...] = (1.0,)
    """Parts of the broadcast elements (serial: of the products) that are not zero; one for all, or one per row, per
    column. The largest counts."""
    overlapped: bool = True
    """Double buffers: loads, computation and stores of different tiles at the same time."""
    partial_bytes: int = 4
    """Of a sum that leaves the array between two loads of weights: 4, 2, or 0 if a column has room for all."""

    def __post_init__(self) -> None:
        """Refuse densities outside 0 to 1."""
        if not self.density or not all(0.0 <= d <= 1.0 for d in self.density):
            raise error(
                "bad-density",
                f"densities lie between 0 and 1, not {', '.join(map(str, self.density)) or 'none at all'}",
                help="give the part of the elements that are not zero",
            )


@dataclass(frozen=True)
class Times:
    """Cycles of one instruction."""

    configuration: int = 0
    """Before anything else."""
    load: int = 0
    """Beats in."""
    compute: int = 0
    store: int = 0
    """Beats out."""
    chunks: int = 1
    """Parts that follow each other through load, compute and store."""
    latency: int = 0
    """Until the last tile has passed the post-processing unit."""
    overlapped: bool = True

    @property
    def total(self) -> int:
        """Cycles from begin to end.

        With double buffers, max(load, compute, store) + fill, where fill is the time of a first and last chunk in the
        other two; without, their sum.
        """
        parts = self.load + self.compute + self.store
        if self.overlapped:
            longest = max(self.load, self.compute, self.store)
            parts = longest + -(-(parts - longest) // self.chunks)
        return self.configuration + parts + self.latency

    @property
    def bound(self) -> Bound:
        """What takes longest."""
        named: tuple[tuple[Bound, int], ...] = (
            ("compute", self.compute + self.latency),
            ("load", self.load),
            ("store", self.store),
            ("configuration", self.configuration),
        )
        return max(named, key=lambda item: item[1])[0]


def compute_cycles(work: Work, assumptions: Assumptions | None = None) -> int:
    """Cycles that the array computes: in the parallel cost model at least `macs * density` over all its lanes."""
    assumptions = assumptions or Assumptions()
    steps = work.steps if assumptions.cost_model is CostModel.PARALLEL else work.serial_steps
    return math.ceil(steps * Fraction(max(assumptions.density)))


def ideal_serial(work: Work, target: Target | None = None, density: float = 1.0) -> int:
    """Cycles of the serial cost model if all PEs were busy all the time: macs·density / PEs."""
    target = target or Target()
    return math.ceil(work.macs * Fraction(density) / (target.cores * target.columns * target.rows))


def utilisation(macs: int, steps: int, target: Target | None = None) -> Fraction:
    """Part of the accumulators that work in a step, on average: macs / (4096·steps)."""
    target = target or Target()
    return Fraction(macs, target.cores * target.columns * target.rows * target.lanes * steps) if steps else Fraction(0)


def beats(count: int) -> int:
    """Link cycles of `count` bytes."""
    return -(-count // BEAT)


def configuration_cycles(columns: int) -> int:
    """Link cycles that set up `columns` columns, each once per pass."""
    return REGISTER_BEATS * REGISTERS * columns


def ppu_latency(target: Target) -> int:
    """Cycles of one tile through the post-processing unit of a column, an element a cycle."""
    return target.rows * target.lanes


def row_density(x: NDArray[Any], rows: int = 4) -> float:
    """The part of array steps that is left when zeros are skipped, for `Assumptions.density`.

    Of each group of `rows` rows of a map, all channels and columns, the fullest counts; the mean over groups and
    images. Never below the plain part of elements that are not zero.

    Args:
        x: [n, channels, height, width]; NaN and infinities are not zero.
        rows: PE rows that wait for each other.

    Raises:
        DlcError: "bad-shape".
    """
    if x.ndim != 4 or not x.size or rows < 1:
        raise error("bad-shape", f"densities are those of [n, channels, rows, columns], not of {list(x.shape)}")
    full = np.count_nonzero(x, axis=(1, 3))
    padded = np.pad(full, ((0, 0), (0, -x.shape[2] % rows)))
    fullest = padded.reshape(len(x), -1, rows).max(axis=2)
    # A last group of fewer rows counts as much as its rows.
    waiting = [min(rows, x.shape[2] - begin) for begin in range(0, x.shape[2], rows)]
    return float((fullest * np.asarray(waiting)).sum() / x.size)
