"""One kernel, one C function: what `emit` writes to files and `build` compiles."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.kernel.nest import Kernel
from dlc.kernel.schedules import schedule
from dlc_backend_c.loops_to_c import function_text
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import CTarget

__all__ = ["CFunction", "c_function", "prelude"]


@dataclass(frozen=True)
class CFunction:
    """A complete C definition.

    Attributes:
        name: The function's name.
        text: `void NAME(const T0 *p0, …, R0 *r0, …[, unsigned char *scratch])` with its body; needs the prelude.
        scratch: Bytes of working memory, 64-aligned, that the caller passes last; 0: no such parameter.
    """

    name: str
    text: str
    scratch: int


def c_function(kernel: Kernel, name: str, target: CTarget, *, disjoint: bool = True) -> CFunction:
    """The function that computes a kernel; results need no initial content.

    Buffers may not overlap. Unless `disjoint`, the compiler is not told so: a result may then overwrite an argument of
    which the kernel reads each element before it writes that one.
    """
    plain = Kernel.canonical(kernel.params, kernel.results, kernel.nests, kernel.locals)
    text, scratch = function_text(schedule(plain, target.machine), name, disjoint=disjoint)
    return CFunction(name, text, scratch)
