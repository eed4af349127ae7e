"""Weights as C: a constant whose members are arrays of numbers, so that it is right in any order of bytes.

    const struct model_weights_data { uint32_t w0[25]; uint8_t w1[28]; } model_weights = { { 1065353216u, … }, { … } };

Elements of 2 and 4 bytes are numbers of as many, whatever type they have in the model; those of 8 bytes are two of 4,
as microcontrollers need not align them as they ask. Compilers read it in half the time of single bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final, TextIO

import numpy as np

from dlc.files.hashing import OwnedFile
from dlc_backend_c.byte_order import BIG_ENDIAN
from dlc_backend_c.weights import Blob

_PAIR: Final = f"""\
#if {BIG_ENDIAN}
#define DLC_PAIR(high, low) high, low
#else
#define DLC_PAIR(high, low) low, high
#endif
"""
_PIECE: Final = 1 << 16
_ROW: Final = 32
"""Bytes of a line."""


def data_type(prefix: str) -> str:
    """The type of the constant: other units need not know its members."""
    return f"struct {prefix}_weights_data"


def weights_text(blob: Blob, prefix: str, head: str, before: str, name: str) -> OwnedFile:
    """The file of weights that are C.

    Args:
        blob: The weights.
        prefix: Of the program's names.
        head: What the file begins with.
        before: What is written before the constant: its attributes.
        name: Of the file.
    """
    path = OwnedFile.create(name)
    content = blob.content
    source = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else np.memmap(content, np.uint8, "r")
    parts = list(_parts(blob))
    own = f"{prefix}_weights"
    with path.open("w", encoding="ascii", newline="\n") as out:
        out.write(f"{head}#include <stdint.h>\n{_PAIR if any(size == 8 for *_, size in parts) else ''}")
        out.write(f"{data_type(prefix)} {{\n")
        for k, (first, end, size) in enumerate(parts):
            bits = 8 * min(size, 4)
            out.write(f"    uint{bits}_t w{k}[{8 * (end - first) // bits}];\n")
        out.write(f"}};\n/* Its members lie one after another. */\ntypedef char {own}_size")
        out.write(f"[sizeof({data_type(prefix)}) == {blob.size} ? 1 : -1];\n{before} {{\n")
        for first, end, size in parts:
            out.write("{\n")
            for at in range(first, end, _PIECE):
                _write(out, source[at : min(at + _PIECE, end)], size)
            out.write("},\n")
        out.write("};\n")
    return path


def _parts(blob: Blob) -> Iterator[tuple[int, int, int]]:
    """(First byte, end, bytes of an element); single bytes where elements do not fill a part."""
    starts = [*blob.elements, (blob.size, 1)]
    for (first, size), (end, _) in itertools.pairwise(starts):
        whole = size in (1, 2, 4, 8) and (end - first) % size == 0
        yield first, end, size if whole else 1


def _write(out: TextIO, data: np.ndarray[tuple[int], np.dtype[np.uint8]], size: int) -> None:
    if size == 8:
        halves: list[int] = data.view("<u4").tolist()
        pairs = [f"DLC_PAIR({high}u,{low}u)" for low, high in zip(halves[::2], halves[1::2], strict=True)]
        out.writelines(f"{pair},\n" for pair in pairs)
        return
    numbers: list[int] = data.view(f"<u{size}").tolist()
    suffix = "u" if size == 4 else ""
    count = _ROW // size
    rows = (numbers[k : k + count] for k in range(0, len(numbers), count))
    out.writelines(f"{suffix},".join(map(str, row)) + f"{suffix},\n" for row in rows)
