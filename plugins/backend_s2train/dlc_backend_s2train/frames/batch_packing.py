"""Several images of a batch side by side in one, so that tiles of 4 rows and 16 lanes fill up.

A map of 4 x 4 uses 4 of 16 lanes, and each of its rows is broadcast with a halo of its own. A mosaic is one image with
`across` x `down` images of the batch in it, row by row, at a pitch of q outputs (q·stride inputs); what lies between
them is zero, and so are the places behind the last image. Per axis, for i inputs, o outputs, kernel k (dilated), stride
s, leading pad p:

- q·s ≥ (o - 1)·s + k - p: no window of an image reaches the data of the next;
- q·s ≥ i + p, i: no window of the next image begins in the data of this one, which lie apart;
- q ≥ o: results do not overlap;
- neighbours share their halo: with k = 3, p = 1 the pitch is o + 1, one column of zeros between images;
- results between images are made and not stored (forward), and are zero in dy (backward, weight gradient).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dlc_backend_s2train.codes import Stage
from dlc_backend_s2train.frames.parts import refuse
from dlc_backend_s2train.program import Geometry, Target

Bits = NDArray[np.uint16]
ALONE = (1, 1)
"""Of a geometry whose images are sent one by one."""


def pitch(geometry: Geometry, window: int = 1) -> tuple[int, int]:
    """Outputs from one image to the next, rows and columns; a multiple of `window`, where a pool of it follows."""
    g = geometry
    axes = (
        (g.hi, g.ho, g.kh, g.stride[0], g.pads[0], g.dilation[0]),
        (g.wi, g.wo, g.kw, g.stride[1], g.pads[1], g.dilation[1]),
    )
    found: list[int] = []
    for i, o, k, s, p, d in axes:
        reach = (o - 1) * s + (k - 1) * d + 1 - p
        least = max(o, -(-reach // s), -(-(i + max(p, 0)) // s))
        found.append(-(-least // window) * window)
    return found[0], found[1]


def across_most(geometry: Geometry, stage: Stage, target: Target) -> int:
    """Images that fit the lanes of a tile side by side; those wider than a tile go alone."""
    g, columns = geometry, pitch(geometry)[1]
    # In the backward stage lanes and rows hold dx; where the kernel is 1 x 1, only the samples that it took.
    inputs = stage is Stage.BACKWARD and (g.kh, g.kw) != (1, 1)
    step, width = (columns * g.stride[1], g.wi) if inputs else (columns, g.wo)
    return max((target.lanes - width) // step + 1, 1)


def mosaic_of(geometry: Geometry) -> Geometry:
    """The geometry of the mosaics in which a geometry without samples has its batch; its own where it has none.

    Raises:
        DlcError: "bad-geometry": no image fits, or there are more places than images.
    """
    g, (across, down) = geometry, geometry.mosaic
    if g.mosaic == ALONE:
        return g
    if min(across, down) < 1 or across * down > g.n or min(*g.stride, *g.dilation) < 1:
        refuse("bad-geometry", f"a mosaic of {across} x {down} images, and {g.n} are there")
    rows, columns = pitch(g)
    return replace(
        g,
        n=-(-g.n // (across * down)),
        hi=(down - 1) * rows * g.stride[0] + g.hi,
        wi=(across - 1) * columns * g.stride[1] + g.wi,
        ho=(down - 1) * rows + g.ho,
        wo=(across - 1) * columns + g.wo,
        mosaic=ALONE,
    )


def spread(images: Bits, geometry: Geometry, inputs: bool) -> Bits:
    """x (`inputs`) or y of a geometry, [n, c, h, w], as its mosaics."""
    whole = mosaic_of(geometry)
    size = (whole.hi, whole.wi) if inputs else (whole.ho, whole.wo)
    found = np.zeros((whole.n, images.shape[1], *size), np.uint16)
    for image, place in zip(images, _places(found, geometry, inputs), strict=False):
        place[...] = image
    return found


def collected(mosaics: Bits, geometry: Geometry, inputs: bool) -> Bits:
    """The inverse of `spread`."""
    places = _places(mosaics, geometry, inputs)
    return np.stack([place for _, place in zip(range(geometry.n), places, strict=False)])


def _places(mosaics: Bits, g: Geometry, inputs: bool) -> list[Bits]:
    """Views of the mosaics, one for each place."""
    (across, down), steps = g.mosaic, pitch(g)
    height, width = (g.hi, g.wi) if inputs else (g.ho, g.wo)
    rows, columns = (step * (s if inputs else 1) for step, s in zip(steps, g.stride, strict=True))
    return [
        mosaic[:, r * rows : r * rows + height, c * columns : c * columns + width]
        for mosaic in mosaics
        for r in range(down)
        for c in range(across)
    ]
