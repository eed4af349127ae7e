"""`sizes`: bytes and beats of the frames of an instruction, without their data.

    frame = head (24) + LAD rows (24 + 8·L each) + trailer (8)

Source: link model of the S2Train compiler, section 6.5; the published figures (6.6) are `Bulk.published`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.layout import LANES, Form, Layout, layout
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Target

BEAT: Final = 8
"""Bytes of a beat of the link: 16 bits for each of four lanes."""
HEAD: Final = 24
"""Bytes of a frame's head, its CRC among them."""
TRAILER: Final = 8
LAD_HEAD: Final = 24
"""Bytes of a LAD row before its data: a beat of lengths, two of addresses."""
WINDOW: Final = 1 << 16
"""Bytes of a group of the feature memory."""

Policy = Literal["weight-stationary", "feature-stationary"]


@dataclass(frozen=True)
class Bulk:
    """Counts over some frames."""

    frames: int = 0
    rows: int = 0
    """LAD rows."""
    body: int = 0
    """Bytes of LAD rows, heads of LADs among them."""

    @property
    def bytes(self) -> int:
        """All bytes on the link: bodies, heads and trailers."""
        return self.body + self.frames * (HEAD + TRAILER)

    @property
    def beats(self) -> int:
        """Beats of the link; a frame is a whole number of them."""
        return self.bytes // BEAT

    @property
    def bare(self) -> int:
        """All bytes on the link if the frames are open: without data."""
        return self.rows * LAD_HEAD + self.frames * (HEAD + TRAILER)

    @property
    def published(self) -> int:
        """Bytes as published tables count them: with heads, without trailers."""
        return self.body + self.frames * HEAD

    def __add__(self, other: Bulk) -> Bulk:
        """Both together."""
        return Bulk(self.frames + other.frames, self.rows + other.rows, self.body + other.body)

    def __mul__(self, times: int) -> Bulk:
        """`times` as many."""
        return Bulk(self.frames * times, self.rows * times, self.body * times)


@dataclass(frozen=True)
class Sizes:
    """Frames of one convolution or linear instruction that go in: no results, no operands of the PPU.

    A column pass fills all columns with weights; features have to pass by once in each.
    """

    units: int
    """Images (weight gradient: input channels; linear: 1, the batch) that have frames of features of their own."""
    passes: int
    """Times that the columns are filled with other kernels, channel splits aside."""
    splits: int
    """Loads per column pass: channel splits times the kernels into which a large one is decomposed, groups, strips of
    dy."""
    features: Bulk
    """Frames of ONE unit, over all splits, sent once."""
    weights: Bulk
    """Frames of all passes and splits, sent once."""
    resident: bool
    """A unit's frame fits the feature memory."""

    @property
    def weight_stationary(self) -> Bulk:
        """All traffic in if weights are sent once and features for each pass."""
        return self.weights + self.features * (self.units * self.passes)

    @property
    def feature_stationary(self) -> Bulk:
        """All traffic in if features are sent once and weights for each unit; needs `resident`."""
        return self.features * self.units + self.weights * self.units

    @property
    def policy(self) -> Policy:
        """The one with less traffic of those that are possible."""
        less = self.feature_stationary.bytes < self.weight_stationary.bytes
        return "feature-stationary" if self.resident and less else "weight-stationary"

    @property
    def sent(self) -> tuple[Bulk, Bulk]:
        """All frames of features, and all of weights, under `policy`."""
        if self.policy == "feature-stationary":
            return self.features * self.units, self.weights * self.units
        return self.features * (self.units * self.passes), self.weights

    @property
    def total(self) -> Bulk:
        """All traffic in under `policy`."""
        features, weights = self.sent
        return features + weights


def sizes(
    opcode: Opcode,
    stage: Stage,
    geometry: Geometry,
    form: Form | None = None,
    target: Target | None = None,
    cores: int = 0xFF,
) -> Sizes:
    """Frames that an instruction sends, counted; `layout.PUBLISHED` as `form` gives the published figures.

    Args:
        opcode: CONV or LINEAR.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        geometry: Shapes of the operator, forward; `samples` and `channels` count.
        form: What the encoding leaves free; the default sends the fewest bytes in LADs of one row group.
        target: The machine.
        cores: One bit per core that takes part.

    Raises:
        DlcError: as `layout` does.
    """
    return sizes_of(layout(opcode, stage, geometry, form, target, cores))


def sizes_of(lay: Layout) -> Sizes:
    """Frames of a layout, counted."""
    rows = Counter((part.plane.count, part.kernel.count) for part in lay.rows)
    columns = Counter((part.plane.count, part.kernel.count) for part in lay.columns)
    features, weights, resident = Bulk(), Bulk(), True
    for ((height, r), times), ((width, s), again) in product(rows.items(), columns.items()):
        for count, channels in lay.splits.runs():
            number = times * again * count
            plane = plane_bulk(lay, height, width, channels)
            features += plane * number
            resident = resident and (not number or plane.body - LAD_HEAD * plane.rows <= LANES * WINDOW)
            for passes, kernels in lay.passes.runs():
                weights += kernel_bulk(kernels, r, s, channels) * (number * passes)
    splits = len(lay.rows) * len(lay.columns) * len(lay.splits) * lay.groups
    return Sizes(lay.units, len(lay.passes), splits, features * lay.groups, weights * lay.groups, resident)


def plane_bulk(lay: Layout, height: int, width: int, channels: int) -> Bulk:
    """A frame of one unit's plane of `height` x `width`."""
    entries = height // 2 if lay.paired else height
    rows = body = 0
    for count, columns in lay.tiles(width).runs():
        length = (1 + lay.paired) * columns * channels
        full, left = lay.lad_rows(entries, length)
        lads = len(full) + (left > 0)
        rows += count * lads
        body += count * (lads * LAD_HEAD + -(-entries // LANES) * BEAT * length)
    return Bulk(1, rows, body)


def kernel_bulk(kernels: int, rows: int, columns: int, channels: int) -> Bulk:
    """A frame of `kernels` kernels of `channels` x `rows` x `columns`."""
    lads = -(-kernels // LANES)
    return Bulk(1, lads, lads * (LAD_HEAD + BEAT * rows * columns * channels))
