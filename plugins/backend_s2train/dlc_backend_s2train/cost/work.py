"""`Work`: one computation of the array as a loop nest, the same for all stages and shapes.

    for each image, column pass, row tile, broadcast channel, kernel row: broadcast `span` elements, one a step

A column holds an output channel (a linear layer: as many output features as there are lanes), a PE row a row of the
result, a lane a column of it. Which loop is which depends on the stage:

| stage | columns | PE rows | lanes | channels | kernel rows |
|---|---|---|---|---|---|
| convolution, forward | co | ho | wo | ci | kh |
| backward | ci | hi | wi | co | kh |
| weight gradient | co | kh | kw, for strips of 16 columns of dy | ci | ho |
| linear, forward | co, one a lane | n | - | ci | 1 |
| backward | ci, one a lane | n | - | co | 1 |
| weight gradient | co, one a lane | ci | - | n | 1 |

Kernels that the array does not have are decomposed: kernels of 3 x 3 that together cover it, each shifted (strides 1
and 2), or one 1 x 1 kernel per tap (other strides, dilation); the sums are the same.
Source: spreadsheet of the PE's dataflow and decompositions of the S2Train compiler, sections 1.2, 3.7 and 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlc.diagnostics import error
from dlc_backend_s2train.program import Geometry, Stage, Target

_BLOCK = 3
"""Size of the array's kernels, beside 1; other kernels are covered by squares of this size."""


@dataclass(frozen=True)
class Work:
    """Counts of the loops; their product is the number of steps."""

    macs: int
    """Products that the result needs, those with padding among them."""
    images: int
    """Images times groups; 1 for linear layers, whose samples are rows or channels."""
    passes: int
    """Times that the columns are filled with output channels."""
    row_tiles: int
    lane_tiles: int
    channels: int
    """Elements of the broadcast operand that go one after the other: those that are summed over, or ci."""
    kernel_rows: int
    """Of all pieces of a decomposed kernel."""
    span: int
    """Elements broadcast for one kernel row, over all tiles of a row."""
    products: int
    """Most products that a PE makes for one channel, over all kernel rows and lane tiles; zeros that the stage itself
    puts in (dilation, filled-up kernels) make none."""
    splits: int
    """Loads of the weight memory that a column needs for its sums."""
    pieces: int = 1
    """Kernels into which the operator's was decomposed."""

    @property
    def steps(self) -> int:
        """Broadcast steps of the whole computation."""
        return self.images * self.passes * self.row_tiles * self.channels * self.kernel_rows * self.span

    @property
    def serial_steps(self) -> int:
        """Steps when a PE makes one product at a time; the fullest PE counts."""
        return self.images * self.passes * self.row_tiles * self.channels * self.products

    @property
    def tile_passes(self) -> int:
        """Tiles times column passes."""
        return self.images * self.passes * self.row_tiles * self.lane_tiles


def work_of(
    kind: Literal["conv", "linear"], stage: Stage, geometry: Geometry, target: Target | None = None, cores: int = 0xFF
) -> Work:
    """The work of `kind` in a stage.

    Args:
        kind: Which operator.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        geometry: Its shapes, forward.
        target: The machine.
        cores: One bit per core that takes part; bits of cores that the machine lacks are ignored.

    Raises:
        DlcError: "bad-geometry": shapes that no operator has; "bad-target": a machine without columns, rows or lanes.
    """
    if stage is Stage.WEIGHT_UPDATE:
        raise ValueError("an update is no work of the array")
    target = target or Target()
    _check(geometry, target)
    columns = max((cores & ((1 << target.cores) - 1)).bit_count(), 1) * target.columns
    if kind == "linear":
        return _linear(stage, geometry, target, columns)
    return {Stage.FORWARD: _forward, Stage.BACKWARD: _backward, Stage.WEIGHT_GRADIENT: _gradient}[stage](
        geometry, target, columns
    )


def counted(geometry: Geometry, stage: Stage) -> tuple[int, int, int]:
    """(n, ci, co) of what one instruction reads: `channels` splits the sum, which is over co in the backward stage."""
    n, ci, co = geometry.n, geometry.ci, geometry.co
    if geometry.samples != (0, 0):
        n = geometry.samples[1] - geometry.samples[0]
    if geometry.channels != (0, 0):
        part = geometry.channels[1] - geometry.channels[0]
        ci, co = (ci, part) if stage is Stage.BACKWARD else (part, co)
    return n, ci, co


def tiles(length: int, lanes: int) -> tuple[int, int]:
    """(whole tiles, elements of a last one that is shorter or 0)."""
    return divmod(length, lanes)


def span_of(length: int, kernel: int, stride: int, lanes: int) -> int:
    """Elements broadcast for a row of `length` outputs: (w - 1)·stride + kernel for each tile of w."""
    whole, rest = tiles(length, lanes)
    return whole * ((lanes - 1) * stride + kernel) + (((rest - 1) * stride + kernel) if rest else 0)


def _forward(g: Geometry, target: Target, columns: int) -> Work:
    n, ci, co = counted(g, Stage.FORWARD)
    macs = n * co * g.ho * g.wo * -(-ci // g.groups) * g.kh * g.kw
    return _sweep(g, target, columns, (n, ci, co), (g.ho, g.wo), g.stride, macs, g.wo * g.kh * g.kw)


def _backward(g: Geometry, target: Target, columns: int) -> Work:
    """A convolution of dy, with zeros between its elements, by the turned kernel; the stride is 1."""
    n, ci, co = counted(g, Stage.BACKWARD)
    macs = n * co * g.ho * g.wo * -(-ci // g.groups) * g.kh * g.kw
    if (g.kh, g.kw) == (1, 1):
        # Between the samples that a 1 x 1 kernel took, dx is zero; no element is broadcast for it.
        return _sweep(g, target, columns, (n, co, ci), (g.ho, g.wo), (1, 1), macs, g.wo)
    # Of the kernel's rows, those that meet no inserted zero: for the fullest PE row one in `stride`, rounded up.
    products = -(-g.kh // g.stride[0]) * max(g.wo * g.kw, -(-g.wi * g.kw // g.stride[1]))
    return _sweep(g, target, columns, (n, co, ci), (g.hi, g.wi), (1, 1), macs, products)


def _sweep(
    g: Geometry,
    target: Target,
    columns: int,
    counts: tuple[int, int, int],
    result: tuple[int, int],
    stride: tuple[int, int],
    macs: int,
    products: int,
) -> Work:
    """A convolution with `counts` images, summed channels and output channels."""
    n, summed, outputs = counts
    rows, width = result
    pieces, kernel, step = _pieces(g, stride)
    capacity = max(target.weight_bytes // 2 // (kernel * kernel), 1)
    channels = -(-summed // g.groups)
    row_tiles = -(-rows // target.rows)
    return Work(
        macs,
        n * g.groups,
        -(-outputs // (g.groups * columns)),
        row_tiles,
        -(-width // target.lanes),
        channels,
        pieces * kernel,
        span_of(width, kernel, step, target.lanes),
        products,
        -(-channels // capacity),
        pieces,
    )


def _pieces(g: Geometry, stride: tuple[int, int]) -> tuple[int, int, int]:
    """(kernels, their size, their stride) that stand for the operator's kernel."""
    if (g.kh, g.kw) == (1, 1):
        # Samples that a stride leaves out are not sent.
        return 1, 1, 1
    if g.dilation == (1, 1) and stride in ((1, 1), (2, 2)):
        return -(-g.kh // _BLOCK) * -(-g.kw // _BLOCK), _BLOCK, stride[0]
    return g.kh * g.kw, 1, 1


def _gradient(g: Geometry, target: Target, columns: int) -> Work:
    """dy in strips stands in the weight memory, x is broadcast; the result has kh rows and kw columns."""
    n, ci, co = counted(g, Stage.WEIGHT_GRADIENT)
    macs = n * co * g.ho * g.wo * -(-ci // g.groups) * g.kh * g.kw
    whole, rest = tiles(g.kw, target.lanes)
    results = [(whole, target.lanes), (1 if rest else 0, rest)]
    # A strip of w columns of dy meets (w - 1)·stride + kw elements of x for kw columns of the result.
    stride = g.stride[1] if (g.kh, g.kw) != (1, 1) else 1
    spans = sum(times * span_of(g.wo, (k - 1) * g.dilation[1] + 1, stride, target.lanes) for times, k in results)
    return Work(
        macs,
        n * g.groups,
        -(-co // (g.groups * columns)),
        -(-g.kh // target.rows),
        -(-g.wo // target.lanes) * -(-g.kw // target.lanes),
        -(-ci // g.groups),
        g.ho,
        spans,
        g.ho * g.wo * g.kw,
        -(-g.ho * g.wo // max(target.weight_bytes // 2, 1)),
    )


def _linear(stage: Stage, g: Geometry, target: Target, columns: int) -> Work:
    n, ci, co = counted(g, stage)
    rows, summed, outputs = {
        Stage.FORWARD: (n, ci, co),
        Stage.BACKWARD: (n, co, ci),
        Stage.WEIGHT_GRADIENT: (ci, n, co),
    }[stage]
    return Work(
        n * ci * co,
        1,
        -(-outputs // (columns * target.lanes)),
        -(-rows // target.rows),
        1,
        summed,
        1,
        1,
        min(outputs, target.lanes),
        -(-summed // max(target.weight_bytes // 2 // target.lanes, 1)),
    )


def _check(g: Geometry, target: Target) -> None:
    n, ci, co = counted(g, Stage.FORWARD)
    sizes = (n, ci, co, g.co, g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, *g.stride, *g.dilation, g.groups)
    if min(sizes) < 1:
        raise error(
            "bad-geometry",
            f"a geometry has a size, stride, dilation or number of groups below 1: {g}",
            help="the program is damaged, or was made by something else than dlc",
        )
    if min(target.cores, target.columns, target.rows, target.lanes) < 1:
        raise error("bad-target", f"a machine needs at least one core, column, row and lane: {target}")
