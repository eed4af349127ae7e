"""Digits of floats in the arithmetic of `residues`: numbers of its field that make up the float, of any size.

    d2 = round(x/2^14);  d1 = round((x - d2*2^14)/2^7);  d0 = round(x - d2*2^14 - d1*2^7)

Rounding gives random residues for the first ones. The last is what is left, and its own rounding is not looked at, so
that the digits make up x, and sums of their products by words those of x.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Expr
from dlc.kernel.loops.check.modular import reduced
from dlc.kernel.loops.check.residues import Unknowable
from dlc.kernel.loops.program import WORD, Let, Stmt, Words, walk_stmts


def words_of_digits(body: Sequence[Stmt], digits: Collection[str]) -> Mapping[str, str]:
    """The variables that hold words of such buffers, with the buffer."""
    return {
        s.local.name: s.value.first.param
        for s in walk_stmts(tuple(body))
        if isinstance(s, Let) and isinstance(s.value, Words) and s.value.first.param in digits
    }


def unrounded(e: Expr) -> Expr:
    """A digit as the float that it is the nearest byte to."""
    match e:
        case Apply("i8", (Apply("round", (x,)) | x,)):
            return x
        case _:
            return e


def added_up(words: Array, digits: Array, places: Array) -> Array:
    """Sums of the products of the bytes of words [points, lanes], and digits from places [points, lanes] on."""
    found = digits[places[:, :, None] + np.arange(WORD)]
    if np.isnan(found).any():
        raise Unknowable
    bytes_ = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape, WORD)
    return reduced((bytes_ * found).sum(-1)).astype(np.int32)
