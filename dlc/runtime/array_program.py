"""`ArrayProgram`: a loaded artifact made of a function on arrays, such as a simulator or a generated Python module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dlc.base.types import Array
from dlc.runtime.calling import Copied, input_array, named_inputs, output_buffers
from dlc.runtime.sizes import at_sizes, results

if TYPE_CHECKING:
    from dlc.api.program import Signature


@dataclass(frozen=True, eq=False)
class ArrayProgram:
    """What `Backend.load` returns when a Python function runs the program.

    Calls are checked as those of compiled programs are: by name, shape and dtype.
    """

    signature: Signature
    run: Callable[..., Sequence[Array]] = field(repr=False)
    """Takes one array per input, in order, of exactly the declared types, and gives one per output."""
    copied: Copied = field(default_factory=Copied, repr=False)
    """The inputs that calls have copied so far: those that were not C-contiguous, aligned arrays of the CPU."""

    def __call__(self, *args: object, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        """Output name → array; `out` supplies buffers to write into. Raises DlcError for arguments that do not fit."""
        given = named_inputs(self.signature.inputs, args, inputs)
        signature = at_sizes(self.signature, given)
        read = [input_array(port, given[port.name], self.copied) for port in signature.inputs]
        buffers = output_buffers(signature, out or {}, read)
        found: list[Array] = []
        for port, buffer, value in zip(signature.outputs, buffers, self.run(*read), strict=True):
            array = np.asarray(value, port.type.dtype.numpy).reshape(port.type.shape)
            if buffer is None:
                # Numpy makes scalars contiguous as arrays of one dimension.
                found.append(np.ascontiguousarray(array).reshape(port.type.shape))
            else:
                buffer[...] = array
                found.append(buffer)
        return results(self.signature, given, found)
