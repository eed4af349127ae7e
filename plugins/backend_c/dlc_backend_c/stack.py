"""How much stack the functions of a program take at most, whatever an optimising compiler makes of their variables.

What lies there beside buffers are registers that a function saves, and variables that found none: each of them has room
for 8 bytes here, also where the machine's registers hold 4. `-fstack-usage` of gcc tells what a compiler took.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dlc.kernel.loops.program import For, Let, LoopProgram, exprs_of, walk_stmts
from dlc_backend_c.shared_parts import shared_parts

_SAVED: Final = 128
"""Bytes for registers that a function saves, its arguments and alignment."""
_LIBRARY: Final = 256
"""Bytes for functions of the math library and of the prelude."""
_WORD: Final = 8


def function_stack(program: LoopProgram) -> int:
    """Bytes of the frame of a function at most."""
    align = 64 if program.aligned else _WORD
    buffers = [b.size * b.dtype.itemsize for b in program.buffers if b.stack and b.name in program.used]
    names: dict[str, int] = {}
    temporaries = 0
    for s in walk_stmts(program.body):
        match s:
            case For():
                temporaries += 2  # the axis, and where it ends
            case Let(local, _):
                names[local.name] = max(_WORD, local.lanes * local.dtype.itemsize)
            case _:
                pass
        temporaries += sum(len(shared_parts(e)) for e in exprs_of(s))
    aligned = sum(-(-b // align) * align for b in buffers) + (align if buffers else 0)
    return _SAVED + aligned + sum(names.values()) + _WORD * temporaries


def program_stack(functions: Iterable[int], ports: int, places: int, depth: int) -> int:
    """Bytes of a call at most: its own, those of graphs that steps hold one in another, and of the neediest function.

    Args:
        functions: What each kernel takes.
        ports: Inputs and outputs, whose addresses the call holds.
        places: Offsets that a call finds for its sizes.
        depth: How many graphs lie in one another; 1: no step holds any.
    """
    return depth * (2 * _SAVED + _WORD * (2 * ports + places)) + max(functions, default=0) + _LIBRARY
