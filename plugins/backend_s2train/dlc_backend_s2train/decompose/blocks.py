"""Which products the array has, the blocks of a kernel that make one of several, and the names of a weight's blocks.

    y[j] = Σₘ x[j·s + m·d - p]·w[m]   =   Σ over blocks (m = b + t·e) of Σₜ x[j·s + t·(e·d) - (p - b·d)]·w[b + t·e]

So a block is a product of its own: every e-th tap from b on, pads less by b·d, dilation times e, of equal results. The
same holds for the gradients: that of the data is the sum over blocks, that of a block of weights is the block's own.

The array has kernels of 3 x 3 (smaller ones stand in them with zeros) and 1 x 1, and strides of 1 and 2. With a
dilation d the loader sends every d-th sample only, and the stride is s / d on what it sends; of a 1 x 1 kernel it sends
every s-th sample. Source: published encoding of the S2Train compiler, sections 1.3 and 6.4.

A block's name says which taps it has; `assembled` makes the whole weight out of blocks:

    W[r0:r1:rs,c0:c1:cs]   =   W[:, :, r0:r1:rs, c0:c1:cs]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dlc.api.backend import Reason
from dlc.base.diagnostics import DlcError, error, quote
from dlc.base.types import Array
from dlc_backend_s2train.frames.parts import BLOCK, array_strides
from dlc_backend_s2train.program import Geometry

KERNEL: Final = BLOCK
"""Rows and columns of the array's kernel."""
MOST: Final = 1024
"""Blocks of one kernel."""


@dataclass(frozen=True)
class Taps:
    """Rows or columns of a kernel: `begin` to before `end`, every `step`-th."""

    begin: int
    end: int
    step: int = 1

    @property
    def count(self) -> int:
        """How many they are."""
        return len(range(self.begin, self.end, self.step))

    @property
    def slice(self) -> slice:
        """As a subscript."""
        return slice(self.begin, self.end, self.step)


@dataclass(frozen=True)
class Block:
    """A part of a kernel."""

    rows: Taps
    columns: Taps

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.count, self.columns.count

    @property
    def products(self) -> int:
        """Products per element and channel: the array runs all but single taps as kernels of 3 x 3."""
        return 1 if self.shape == (1, 1) else KERNEL * KERNEL


def illegal(g: Geometry) -> Reason | None:
    """Why the array has no such product in one go; None: it has."""
    if (g.kh, g.kw) == (1, 1):
        return None
    if max(g.kh, g.kw) > KERNEL:
        return Reason(f"its kernel is {g.kh} x {g.kw}, the array's {KERNEL} x {KERNEL}", "blocks of it, added up")
    if not array_strides(g.kh, g.stride[0], g.dilation[0]) & array_strides(g.kw, g.stride[1], g.dilation[1]):
        message = f"stride {_pair(g.stride)} over dilation {_pair(g.dilation)}"
        return Reason(f"{message} is no stride of 1 or 2, equal for both", "blocks of equal phase, added up")
    return None


def misfit(g: Geometry) -> Reason | None:
    """Why there is no such product at all; None: there is."""
    sizes = (g.n, g.ci, g.co, g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.groups, *g.stride, *g.dilation)
    if min(sizes) < 1:
        return Reason(f"its geometry has a size of {min(sizes)}")
    top, left, bottom, right = g.pads
    for what, extent, count, k, s, d in (
        ("rows", g.hi + top + bottom, g.ho, g.kh, g.stride[0], g.dilation[0]),
        ("columns", g.wi + left + right, g.wo, g.kw, g.stride[1], g.dilation[1]),
    ):
        if (need := _reach(count, s, k, d)) > extent:
            message = f"{count} windows of {k} taps, stride {s} and dilation {d}, need {need} {what}"
            return Reason(f"{message}, but the input has {extent} with its pads", "a smaller kernel or larger pads")
    # Axes first, so that nobody lists the taps of a kernel that no memory holds.
    if max(g.kh, g.kw) > MOST or len(blocks(g)) > MOST:
        return Reason(f"its kernel of {g.kh} x {g.kw} makes more than {MOST} blocks", "a smaller kernel")
    return None


def blocks(g: Geometry) -> tuple[Block, ...]:
    """Blocks that the array has and that make up the kernel; one if it has the kernel itself."""
    axes = (g.kh, g.stride[0], g.dilation[0]), (g.kw, g.stride[1], g.dilation[1])
    # Stride 2 wherever both axes have it; else samples of equal phase, on which the stride is 1.
    stride = 2 if all(2 in array_strides(*axis) for axis in axes) else 1
    rows, columns = (_taps(*axis, stride) for axis in axes)
    return tuple(Block(r, c) for r in rows for c in columns)


def single_taps(kernel: tuple[int, int]) -> tuple[Block, ...]:
    """Blocks of one tap each: the array has them whatever the stride and dilation."""
    rows, columns = kernel
    return tuple(Block(Taps(r, r + 1), Taps(c, c + 1)) for r in range(rows) for c in range(columns))


def part_of(g: Geometry, block: Block) -> Geometry:
    """The product of a block: equal results, and pads that may be negative."""
    top, bottom, across = _shifted(g.hi, g.ho, g.stride[0], g.pads[0], g.dilation[0], block.rows)
    left, right, along = _shifted(g.wi, g.wo, g.stride[1], g.pads[1], g.dilation[1], block.columns)
    kh, kw = block.shape
    return replace(g, kh=kh, kw=kw, pads=(top, left, bottom, right), dilation=(across, along))


def _shifted(size: int, count: int, stride: int, pad: int, dilation: int, taps: Taps) -> tuple[int, int, int]:
    """Pads before and behind, and the dilation, of some taps along an axis.

    Taps that only ever meet padding, as of a large kernel over a small image, leave out all samples and no more.
    """
    apart = dilation * taps.step if taps.count > 1 else 1
    reach = _reach(count, stride, taps.count, apart)
    before = min(max(pad - taps.begin * dilation, -size), reach)
    return before, reach - size - before, apart


def _taps(k: int, s: int, d: int, stride: int) -> list[Taps]:
    """An axis in parts of at most 3 taps that lie s / stride samples apart; where none do, single taps."""
    if s % (stride * d):
        return [Taps(m, m + 1) for m in range(k)]
    step = s // (stride * d)
    found: list[Taps] = []
    for phase in range(min(step, k)):
        of_phase = range(phase, k, step)
        for first in range(0, len(of_phase), KERNEL):
            taps = of_phase[first : first + KERNEL]
            found.append(Taps(taps[0], taps[-1] + 1, step if len(taps) > 1 else 1))
    return found


def _reach(count: int, stride: int, k: int, d: int) -> int:
    """Samples from the first of the first window to the last of the last."""
    return (count - 1) * stride + (k - 1) * d + 1


def _pair(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]} x {numbers[1]}"


_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TAPS = f"{_NUMBER}:{_NUMBER}:{_NUMBER}"
_BLOCK = re.compile(rf"(.*)\[{_TAPS},{_TAPS}\]", re.DOTALL)


def block_name(whole: str, block: Block) -> str:
    """The name of a block of a tensor; "" for one without a name."""
    slices = ",".join(f"{t.begin}:{t.end}:{t.step}" for t in (block.rows, block.columns))
    return f"{whole}[{slices}]" if whole else ""


def blocks_of(name: str) -> tuple[str, Block] | None:
    """The tensor and the block that a name tells; None for a name of something whole."""
    found = _BLOCK.fullmatch(name)
    if found is None:
        return None
    whole, *numbers = found.groups()
    r0, r1, rs, c0, c1, cs = map(int, numbers)
    if not (r0 < r1 and c0 < c1 and rs and cs):
        return None
    return whole, Block(Taps(r0, r1, rs), Taps(c0, c1, cs))


def assembled(parts: Mapping[str, Array]) -> dict[str, Array]:
    """Whole tensors by name: those that are whole as they are, others put together of their blocks.

    Args:
        parts: Name → array; of a block […, rows, columns].

    Raises:
        DlcError: "bad-blocks": blocks of a tensor that do not fill it, overlap, or do not fit each other.
    """
    found: dict[str, list[tuple[Block, Array]]] = {}
    whole: dict[str, Array] = {}
    for name, array in parts.items():
        block = blocks_of(name)
        if block is None:
            whole[name] = array
        else:
            # Whole tensors keep their places in the order of their first block.
            whole.setdefault(block[0], array)
            found.setdefault(block[0], []).append((block[1], array))
    for name, several in found.items():
        if name in parts:
            raise _bad(name, "it is there as a whole and in blocks")
        whole[name] = _joined(name, several)
    return whole


def _joined(name: str, parts: list[tuple[Block, Array]]) -> Array:
    first = parts[0][1]
    for block, array in parts:
        if array.ndim < 2 or array.shape[-2:] != block.shape:
            raise _bad(name, f"a block of {block.shape[0]} x {block.shape[1]} has the shape {list(array.shape)}")
        if (array.shape[:-2], array.dtype) != (first.shape[:-2], first.dtype):
            raise _bad(name, f"blocks of {first.dtype}{list(first.shape)} and {array.dtype}{list(array.shape)}")
    kernel = max(b.rows.end for b, _ in parts), max(b.columns.end for b, _ in parts)
    # Told before memory is taken: names may come from a file.
    if (held := sum(math.prod(b.shape) for b, _ in parts)) != math.prod(kernel):
        raise _bad(name, f"its blocks have {held} taps, a kernel of {kernel[0]} x {kernel[1]} {math.prod(kernel)}")
    made = np.empty((*first.shape[:-2], *kernel), first.dtype)
    taken = np.zeros(kernel, bool)
    for block, array in parts:
        place = block.rows.slice, block.columns.slice
        if taken[place].any():
            raise _bad(name, f"its blocks overlap at row {block.rows.begin}, column {block.columns.begin}")
        taken[place] = True
        made[..., place[0], place[1]] = array
    return made


def _bad(name: str, problem: str) -> DlcError:
    return error("bad-blocks", f"{quote(name)}: {problem}", help="give all blocks of one tensor, each once")
