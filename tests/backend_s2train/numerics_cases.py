"""What the tests of arithmetic share: operands by keyword, values that fp16 holds, convolutions of all kinds."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from dlc_backend_s2train.codes import NO_FLAGS, Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.simulator.arithmetic import compute
from dlc_backend_s2train.simulator.operands import Array, Mode, Operands, Results

WHOLE = Splitting.FIRST | Splitting.LAST

GEOMETRIES = {
    "3x3": Geometry(2, 3, 4, 6, 5, 6, 5, 3, 3, pads=(1, 1, 1, 1)),
    "stride-2": Geometry(2, 3, 4, 8, 6, 4, 3, 3, 3, (2, 2), (1, 1, 1, 1)),
    "stride-2-even": Geometry(1, 2, 3, 7, 7, 3, 3, 3, 3, (2, 2)),
    "1x1": Geometry(2, 5, 3, 4, 4, 4, 4),
    "1x1-stride-2": Geometry(2, 5, 3, 5, 4, 3, 2, stride=(2, 2)),
    "cropped": Geometry(1, 2, 2, 9, 8, 4, 4, 3, 3, pads=(-2, -1, -1, -1)),
    "half-cropped": Geometry(1, 2, 2, 6, 6, 5, 5, 3, 3, pads=(2, -1, -1, 2)),
    "dilated": Geometry(1, 2, 3, 9, 9, 5, 5, 3, 3, dilation=(2, 2)),
    "grouped": Geometry(2, 4, 6, 5, 5, 5, 5, 3, 3, pads=(1, 1, 1, 1), groups=2),
    "depthwise": Geometry(1, 3, 3, 6, 6, 3, 3, 3, 3, (2, 2), (1, 1, 1, 1), groups=3),
    "rectangular": Geometry(1, 2, 3, 5, 9, 5, 4, 1, 4, (1, 2), (0, 1, 0, 0), (1, 1)),
    "unused-rows": Geometry(1, 2, 2, 8, 8, 2, 2, 3, 3, (2, 3)),
    "linear": Geometry(4, 11, 3),
}


def halves(seed: int, *shape: int, scale: float = 1.0) -> Array:
    """Normal random numbers that fp16 holds exactly, as fp32."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    return values.astype(np.float16).astype(np.float32)


def convolution(g: Geometry, seed: int = 0) -> tuple[Array, Array, Array]:
    """x, w and dy for a geometry."""
    x, w = halves(seed, g.n, g.ci, g.hi, g.wi), halves(seed + 1, g.co, g.ci // g.groups, g.kh, g.kw)
    return x, w, halves(seed + 2, g.n, g.co, g.ho, g.wo)


def norm_of(channels: int, seed: int = 0) -> Array:
    """[4, C] of mean, 1/std, scale and shift."""
    rng = np.random.default_rng(seed)
    rows = [rng.standard_normal(channels), rng.uniform(0.5, 2, channels), rng.uniform(-2, 2, channels)]
    return np.stack([*rows, rng.standard_normal(channels)]).astype(np.float16).astype(np.float32)


def do(
    opcode: Opcode,
    stage: Stage,
    flags: Flag = NO_FLAGS,
    geometry: Geometry | None = None,
    hyper: Hyper | None = None,
    splitting: Splitting = WHOLE,
    mode: Mode = "bit-true",
    also: tuple[str, ...] = (),
    run: int = 0,
    first: int = 0,
    **values: Array,
) -> Results:
    """An instruction's results; `also` are slots that it has but does not read."""
    read = cast("dict[Slot, Array]", values)
    given = cast("frozenset[Slot]", frozenset((*values, *also)))
    operands = Operands(flags, splitting, geometry, hyper or Hyper(), read, given, run, first, mode)
    return compute(opcode, stage, operands)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bits."""
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return (left.shape, left.dtype, left.tobytes()) == (right.shape, right.dtype, right.tobytes())
