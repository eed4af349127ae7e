"""Names of blocks of a weight, and the whole weight out of them.

W[r0:r1:rs,c0:c1:cs]   =   W[:, :, r0:r1:rs, c0:c1:cs]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from dlc.base.diagnostics import DlcError, error, quote
from dlc.base.types import Array
from dlc_backend_s2train.decompose.blocks import Block, Taps

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_TAPS = f"{_NUMBER}:{_NUMBER}:{_NUMBER}"
_BLOCK = re.compile(rf"(.*)\[{_TAPS},{_TAPS}\]", re.DOTALL)


def block_name(whole: str, block: Block) -> str:
    """The name of a block of a tensor; "" for one without a name."""
    told = ",".join(f"{t.begin}:{t.end}:{t.step}" for t in (block.rows, block.columns))
    return f"{whole}[{told}]" if whole else ""


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
        told = blocks_of(name)
        if told is None:
            whole[name] = array
        else:
            # Whole tensors keep their places in the order of their first block.
            whole.setdefault(told[0], array)
            found.setdefault(told[0], []).append((told[1], array))
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
