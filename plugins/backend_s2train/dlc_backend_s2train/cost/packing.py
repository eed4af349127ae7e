"""Batch packing: several images of a small map as one mosaic, so that tiles of 4 rows and 16 lanes fill up.

A map of 4 x 4 uses 4 of 16 lanes, and each of its rows is broadcast with a halo of its own. A mosaic is one image with
`down` x `across` images of the batch in it, at a pitch of `q` outputs (q·stride inputs); what lies between them is
zero. The instruction itself stays what it is: it runs on the geometry of the mosaic, in all three stages.

Rules, per axis, for i inputs, o outputs, kernel k (dilated), stride s, leading pad p:

- q·s ≥ (o - 1)·s + k - p: no window of an image reaches the data of the next;
- q·s ≥ i + p: no window of the next image begins in the data of this one;
- q ≥ o: results do not overlap; q is a multiple of the pool's window, so that no window of a pool straddles images;
- neighbours share their halo: with k = 3, p = 1 the pitch is o + 1, one column of zeros between images;
- results between images are made and not stored (forward), and are zero in dy (backward, weight gradient): they take
  lanes, so images lie side by side only as far as all of them fit one tile;
- a mosaic fits the feature memory.

As an element that is broadcast reaches at most k lanes, what packing saves in the parallel reading is halos and empty
rows, no more; in the serial reading it is empty rows alone. Tile passes fall by the number of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlc_backend_s2train.cost.traffic import shape_of
from dlc_backend_s2train.cost.work import work_of
from dlc_backend_s2train.frames.layout import reduced
from dlc_backend_s2train.frames.sizes import sizes
from dlc_backend_s2train.program import Flag, Geometry, Opcode, Program, Stage, Target

_ROW_TILES = 4
"""Most tiles' worth of images below each other that are tried; from there on gains repeat."""


@dataclass(frozen=True)
class Mosaic:
    """How a batch is laid out."""

    across: int
    down: int
    pitch: tuple[int, int]
    """Rows and columns of outputs from one image to the next."""
    parts: tuple[Geometry, ...]
    """What is run in place of the unpacked geometry: mosaics that are full, then a smaller one for what is left. The
    weight gradients of both are parts of one sum."""

    @property
    def images(self) -> int:
        """In a full mosaic."""
        return self.across * self.down


@dataclass(frozen=True)
class Gain:
    """What packing does for one instruction."""

    mosaic: Mosaic
    before: int
    """Broadcast steps."""
    after: int
    passes_before: int
    """Tile passes."""
    passes_after: int


def pitch(geometry: Geometry, window: int = 1) -> tuple[int, int]:
    """Outputs from one image to the next, rows and columns, where a pool of `window` follows."""
    g = geometry
    axes = (
        (g.hi, g.ho, g.kh, g.stride[0], g.pads[0], g.dilation[0]),
        (g.wi, g.wo, g.kw, g.stride[1], g.pads[1], g.dilation[1]),
    )
    found: list[int] = []
    for i, o, k, s, p, d in axes:
        reach = (o - 1) * s + (k - 1) * d + 1 - p
        least = max(o, -(-reach // s), -(-(i + p) // s))
        found.append(-(-least // window) * window)
    return found[0], found[1]


def lay_out(geometry: Geometry, across: int, down: int, window: int = 1) -> Mosaic:
    """The mosaics of a batch, with `across` x `down` images in each."""
    n = reduced(geometry, Stage.FORWARD).n
    rows, columns = pitch(geometry, window)
    g = replace(geometry, n=n, samples=(0, 0))

    def mosaic(count: int, down: int, across: int) -> Geometry:
        return replace(
            g,
            n=count,
            hi=(down - 1) * rows * g.stride[0] + g.hi,
            wi=(across - 1) * columns * g.stride[1] + g.wi,
            ho=(down - 1) * rows + g.ho,
            wo=(across - 1) * columns + g.wo,
        )

    full, rest = divmod(n, across * down)
    parts = [mosaic(full, down, across)] if full else []
    if rest:
        wide = min(across, rest)
        parts.append(mosaic(1, -(-rest // wide), wide))
    return Mosaic(across, down, (rows, columns), tuple(parts))


def pack(geometry: Geometry, stage: Stage, target: Target | None = None, cores: int = 0xFF, window: int = 1) -> Gain:
    """The layout with the fewest broadcast steps, among equals that with the fewest tile passes, then images.

    Args:
        geometry: Of a convolution.
        stage: FORWARD, BACKWARD or WEIGHT_GRADIENT.
        target: The machine.
        cores: One bit per core that takes part.
        window: Of the pool that the post-processing unit does, or 1.

    Raises:
        DlcError: "bad-geometry".
    """
    target = target or Target()
    plain = work_of(Opcode.CONV, stage, geometry, target, cores)
    best: tuple[tuple[int, int, int], Mosaic] | None = None
    for across, down in _candidates(geometry, stage, target, window):
        mosaic = lay_out(geometry, across, down, window)
        works = [work_of(Opcode.CONV, stage, part, target, cores) for part in mosaic.parts]
        key = (sum(w.steps for w in works), sum(w.tile_passes for w in works), mosaic.images)
        if best is None or (key < best[0] and _fits(mosaic, stage, target, cores)):
            best = (key, mosaic)
    assert best is not None, "one image is a mosaic"
    return Gain(best[1], plain.steps, best[0][0], plain.tile_passes, best[0][1])


def gains(program: Program, begin: int = 0, end: int | None = None) -> tuple[tuple[int, Gain], ...]:
    """(number, gain) of every convolution among instructions `begin` to before `end` that packing makes faster or lets
    do with fewer tile passes. Raises DlcError."""
    found: list[tuple[int, Gain]] = []
    for number, instruction in enumerate(program.instructions[begin:end], begin):
        if instruction.opcode is Opcode.CONV:
            flags = instruction.flags
            window = 4 if Flag.POOL_4 in flags else 2 if Flag.POOL_2 in flags else 1
            shape = shape_of(program, instruction)
            gain = pack(shape, instruction.product, program.target, instruction.cores, window)
            if gain.mosaic.images > 1:
                found.append((number, gain))
    return tuple(found)


def _candidates(g: Geometry, stage: Stage, target: Target, window: int) -> Iterator[tuple[int, int]]:
    """(across, down), one image first."""
    n = reduced(g, stage).n
    yield 1, 1
    rows, columns = pitch(g, window)
    # In the backward stage lanes and rows hold dx; where the kernel is 1 x 1, only the samples that it took.
    inputs = stage is Stage.BACKWARD and (g.kh, g.kw) != (1, 1)
    step, width = (columns * g.stride[1], g.wi) if inputs else (columns, g.wo)
    across = min(n, (target.lanes - width) // step + 1) if width <= target.lanes else 1
    high = min(n, _ROW_TILES * target.rows) if rows <= _ROW_TILES * target.rows else 1
    for wide in range(1, across + 1):
        for down in range(1, high + 1):
            if 1 < wide * down <= n:
                yield wide, down


def _fits(mosaic: Mosaic, stage: Stage, target: Target, cores: int) -> bool:
    """Whether frames of the mosaics fit the feature memory."""
    return all(sizes(Opcode.CONV, stage, part, None, target, cores).resident for part in mosaic.parts)
