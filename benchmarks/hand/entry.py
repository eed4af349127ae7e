"""One kernel by hand: the same computation in the kernel language, in C as one would write it, and in torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A kernel, or its gradient.

    Attributes:
        name: What the table calls it.
        kernel: Text of the kernel language, its only kernel named k.
        loops: The body of a C function that takes inputs and outputs of the program as arrays of these names.
        torch: The kernel's result: an expression over tensors of its parameters' names, torch, and F, which is
            torch.nn.functional.
        grad: Parameters to differentiate with respect to; (): the kernel itself is computed.
        below: Integers that are fed are at least 0 and less than this.
        like: The entry of which this is another spelling.
    """

    name: str
    kernel: str
    loops: str = ""
    torch: str = ""
    grad: tuple[str, ...] = ()
    below: int = 1
    like: str = ""
