"""Calls of a kernel's candidates: on the same operands, with caches as they are in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.api.tuning import Trial
from dlc.base.types import Array
from dlc.bench.result import differences
from dlc.runtime.feeds import random_feeds
from dlc.tune.kernels import ProgramKernel

if TYPE_CHECKING:
    from dlc.api.profile import Profiler
    from dlc.api.program import Program

_LINE: Final = 64
"""Bytes of a line of a cache, and what buffers are aligned to."""


class Calls:
    """Calls of candidates on the same operands."""

    def __init__(self, kernel: ProgramKernel, seed: int, profiler: Profiler) -> None:
        """Operands that are not known are random."""
        self._profiler, self._kernel, self._seed = profiler, kernel, seed
        self._feeds: dict[str, Array] = {}
        self._out: dict[str, Array] = {}
        self._cold = _aligned(np.zeros(max(kernel.cold, _LINE), np.uint8))

    def compared(
        self, built: Sequence[tuple[Trial, Program]], tolerance: tuple[float, float] | None
    ) -> tuple[list[tuple[Trial, Program]], list[str]]:
        """(candidates with the default one's results, the first of all; schedules of those with others)."""
        first = built[0][1]
        ports = first.signature.inputs
        random = random_feeds([p for p in ports if p.name not in self._kernel.fixed], self._seed)
        self._feeds = {name: _aligned(a) for name, a in {**random, **self._kernel.fixed}.items()}
        want = first(out=None, **self._feeds)
        self._out = {name: _aligned(a) for name, a in want.items()}
        right, wrong = [built[0]], list[str]()
        for trial, program in built[1:]:
            if all(d.ok for d in differences(program(out=None, **self._feeds), want, tolerance)):
                right.append((trial, program))
            else:
                wrong.append(trial.schedule)
        return right, wrong

    def timed(self, program: Program) -> Callable[[], float]:
        """What calls a candidate as the program does, and tells how many seconds it took."""
        lines = self._cold.view(np.uint8)[::_LINE]
        warm = [self._feeds[name].reshape(-1).view(np.uint8)[::_LINE] for name in self._kernel.warm]

        def run() -> float:
            # Other steps have driven constants out of the caches near by; what the step before wrote is there.
            lines.max()
            for array in warm:
                array.max(initial=0)
            return sum(self._profiler.seconds(program, self._feeds, self._out))

        return run


def _aligned(array: Array) -> Array:
    """A copy that begins where a line does, as buffers in programs do."""
    memory = np.empty(array.nbytes + _LINE, np.uint8)
    start = -int(memory.__array_interface__["data"][0]) % _LINE
    out = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
