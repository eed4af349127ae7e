"""`Layout`: how the two operands of an instruction lie in frames, for every operand kind, stage, kernel and stride.

All of them are one convolution of planes by kernels, planes[u, c, h, w] * kernels[k, c, r, s], of stride 1 or 2:

| operator, stage | u | c | k | planes | kernels |
|---|---|---|---|---|---|
| convolution, forward | n | ci | co | x; 1 x 1: every stride-th element | w |
| backward | n | co | ci | dy, zeros between its elements; 1 x 1: none | w, first two axes swapped, turned by 180° |
| weight gradient | ci | n | co | x, first two axes swapped | dy, swapped, zeros between, in strips of 16 columns |
| linear, forward | 1 | ci | co / 16 | x[n, ci] as [1, ci, n, 1] | w[co, ci] as [co / 16, ci, 1, 16] |
| backward | 1 | co | ci / 16 | dy[n, co] | w transposed |
| weight gradient | 1 | n | co / 16 | x transposed | dy transposed |

Kernels that the array does not have are a sum of such convolutions (`Part`): 3 x 3 kernels, filled up with zeros, on
shifted planes (strides 1 and 2), or a 1 x 1 kernel per tap (other strides, dilation). With a dilation, forward and for
weight gradients, a plane has every d-th sample, if what remains of the stride is 1 or 2.
Source: published encoding of the S2Train compiler, sections 3.3 to 3.7, 6.4; what 3.7 leaves open as proposed there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.parts import STRIP, Axis, Cuts, Index, Part, Ways, strips, unframed
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Target

LANES: Final = 4
"""LADs side by side on the link; also groups of the feature memory."""
LAD_LIMIT: Final = 1 << 14
"""Elements that one LAD carries at most: 32 KiB."""


@dataclass(frozen=True)
class Form:
    """What the published material leaves free."""

    exact: bool = True
    """Send the rows and columns that results need, no more; otherwise pad as published: forward as the operator says,
    backward by k - 1 on all sides, so that the store crops."""
    merged: bool = False
    """As many row groups of a tile as fit go into one LAD (the published slides), not one (the published code)."""
    tile: int = 0
    """Columns of a tile; 0: as many as keep all 16 lanes busy."""


PUBLISHED: Final = Form(exact=False)
"""The form of the published frames and figures."""


@dataclass(frozen=True)
class Layout:
    """Frames of both operands, for one group of channels; a frame of features is (unit, part, channels)."""

    units: int
    """Images, each with frames of its own."""
    channels: int
    """Channels that are summed over."""
    kernels: int
    """Kernels, one to a column of the array; of a linear layer the blocks of 16 outputs."""
    rows: tuple[Part, ...]
    columns: tuple[Part, ...]
    paired: bool
    """Stride 2: two rows of a plane make one entry of a lane, and the kernel's rows 1 and 2 change places."""
    tile: int
    """Columns of a tile."""
    overlap: int
    """Columns that neighbouring tiles share."""
    load: int
    """Columns of the array that take part, thus kernels of one pass."""
    capacity: int
    """Elements of a column's weight memory."""
    groups: int = 1
    linear: bool = False
    merged: bool = False

    def tiles(self, width: int) -> Cuts:
        """Tile columns of a plane."""
        return Cuts(width, self.tile, self.overlap)

    def lad_rows(self, entries: int, length: int) -> tuple[Cuts, int]:
        """(cuts of full groups of four entries into LAD rows, entries left over) of a tile.

        `length` elements make an entry. What is left over is a LAD row of its own, without its missing lanes.
        """
        most = max(LAD_LIMIT // max(length, 1), 1) if self.merged else 1
        return Cuts(entries // LANES, most), entries % LANES

    @property
    def splits(self) -> Cuts:
        """Channels in runs that fit a column's weight memory and one LAD, of even lengths (linear: full ones)."""
        kernel = max(part.kernel.count for part in self.rows) * max(part.kernel.count for part in self.columns)
        width = max(min(part.plane.count, self.tile) for part in self.columns)
        most = min(self.capacity // max(kernel, 1), LAD_LIMIT // ((1 + self.paired) * max(width, 1)))
        if most < 1:
            unframed("too-large", f"one channel's kernel of {kernel} elements, or row of {width}, fits no column")
        count = -(-self.channels // most)
        return Cuts(self.channels, most if self.linear else -(-self.channels // count))

    @property
    def passes(self) -> Cuts:
        """Kernels in runs that the array's columns hold."""
        return Cuts(self.kernels, self.load)


def layout(
    opcode: Opcode,
    stage: Stage,
    geometry: Geometry,
    form: Form | None = None,
    target: Target | None = None,
    cores: int = 0xFF,
) -> Layout:
    """The layout of an instruction's frames.

    Args:
        opcode: CONV or LINEAR.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        geometry: Shapes of the operator, forward.
        form: What the encoding leaves free.
        target: The machine.
        cores: One bit per core that takes part.

    Raises:
        DlcError: "no-frames": another opcode or stage; "bad-geometry": shapes that no operator has; "bad-target": a
            machine of another kind; "bad-tile"; "too-large".
    """
    form, target = form or Form(), target or Target()
    if opcode not in (Opcode.CONV, Opcode.LINEAR) or stage is Stage.WEIGHT_UPDATE:
        unframed("no-frames", f"{opcode.name.lower()} {stage.name.lower()} sends no frames")
    g = parted(geometry, stage)
    _check(g, opcode, form)
    if target.rows != LANES or target.lanes != STRIP or target.columns % LANES or target.columns < 1:
        unframed("bad-target", f"frames are those of {LANES} rows, {STRIP} lanes, columns in fours: {target}")
    load = max((cores & ((1 << target.cores) - 1)).bit_count(), 1) * target.columns
    capacity = target.weight_bytes // 2
    units, channels, kernels = {
        Stage.FORWARD: (g.n, g.ci // g.groups, g.co // g.groups),
        Stage.BACKWARD: (g.n, g.co // g.groups, g.ci // g.groups),
        Stage.WEIGHT_GRADIENT: (g.ci // g.groups, g.n, g.co // g.groups),
    }[stage]
    if opcode is Opcode.LINEAR:
        one, strip = Index(0, 1, 1, 1), Index(0, 1, STRIP, STRIP)
        rows, columns = (Part(Index(0, 1, units, units), one),), (Part(one, strip),)
        kernels = -(-kernels // STRIP)
        return Layout(1, channels, kernels, rows, columns, False, 1, 0, load, capacity, linear=True, merged=form.merged)
    top, left, bottom, right = g.pads
    ways = Ways(stage, form.exact, (g.kh, g.kw), g.stride, g.dilation)
    rows = ways.parts(Axis(g.hi, g.ho, g.kh, g.stride[0], g.dilation[0], top, bottom))
    columns = ways.parts(Axis(g.wi, g.wo, g.kw, g.stride[1], g.dilation[1], left, right))
    paired = ways.paired
    if paired:
        rows = tuple(Part(replace(p.plane, count=p.plane.count + p.plane.count % 2), p.kernel) for p in rows)
    if stage is Stage.WEIGHT_GRADIENT:
        # The kernels are maps themselves: cut them in what a column holds. Results of neighbours are added up.
        overlap = columns[0].plane.count - columns[0].kernel.count
        columns, tile = strips(columns, STRIP), STRIP + overlap
        rows = strips(rows, max(capacity // STRIP, 1))
    else:
        kernel = columns[0].kernel.count
        widest = (STRIP - 1) * (1 + paired) + kernel
        tile = form.tile or widest
        if tile > widest:
            unframed(
                "bad-tile", f"a tile of {tile} columns has more results than {STRIP} lanes; the widest has {widest}"
            )
        # Of stride 2, a window begins at every other column: an odd tile shares its last one, an even one two.
        overlap = (2 if tile % 2 == 0 else 1) if paired else kernel - 1
    if tile <= overlap:
        unframed("bad-tile", f"a tile of {tile} columns has no column of its own: neighbours share {overlap}")
    return Layout(
        units, channels, kernels, rows, columns, paired, tile, overlap, load, capacity, g.groups, False, form.merged
    )


def parted(geometry: Geometry, stage: Stage) -> Geometry:
    """The geometry of the samples and channels that one instruction reads; backward, channels are those of dy."""
    g = replace(geometry, channels=(0, 0), samples=(0, 0))
    if geometry.samples != (0, 0):
        g = replace(g, n=geometry.samples[1] - geometry.samples[0])
    if geometry.channels != (0, 0):
        part = geometry.channels[1] - geometry.channels[0]
        g = replace(g, co=part) if stage is Stage.BACKWARD else replace(g, ci=part)
    return g


def _check(g: Geometry, opcode: Opcode, form: Form) -> None:
    sizes = (g.n, g.ci, g.co, g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, *g.stride, *g.dilation, g.groups)
    if min(sizes) < 1 or form.tile < 0:
        unframed("bad-geometry", f"sizes, strides, dilations and groups are at least 1: {g}")
    if g.ci % g.groups or g.co % g.groups:
        unframed("bad-geometry", f"{g.groups} groups do not divide {g.ci} and {g.co} channels")
    top, left, bottom, right = g.pads
    for size, count, stride, kernel, dilation in (
        (g.hi + top + bottom, g.ho, g.stride[0], g.kh, g.dilation[0]),
        (g.wi + left + right, g.wo, g.stride[1], g.kw, g.dilation[1]),
    ):
        need = (count - 1) * stride + (kernel - 1) * dilation + 1
        if need > size:
            unframed("bad-geometry", f"{count} windows of {kernel} need {need} elements, with pads there are {size}")
    if opcode is Opcode.LINEAR and (g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.groups) != (1,) * 7:
        unframed("bad-geometry", f"a linear layer has maps and kernels of 1 x 1 and one group: {g}")
