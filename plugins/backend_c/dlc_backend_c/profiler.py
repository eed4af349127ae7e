"""How long steps take, and what the processor can do at most: measured by C code compiled with a program's flags."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from dlc.api.profile import Limits, Memory
from dlc.api.program import Program
from dlc.base.types import Array
from dlc_backend_c.header import fill
from dlc_backend_c.library import address, aligned
from dlc_backend_c.opening import open_library
from dlc_backend_c.options import Options
from dlc_backend_c.processor import caches
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import CTarget, target_of
from dlc_backend_c.toolchain import find_toolchain, run

_CHAINS: Final = 12
"""Of multiply-adds: as many as two units with a latency of four or five cycles need, and registers hold."""
_STREAMS: Final = 8
"""Sums into which memory is read."""
_LEAST_VECTOR: Final = 16
"""Bytes: what compilers make of portable loops has vectors as well."""
_LEAST_MEMORY: Final = 64 << 20
"""Bytes that are read to measure the memory beyond the caches."""
_STEPS: Final = 16
"""Operations of an iteration that wait for each other: more than the loop around them."""
_BEST_OF: Final = 8
"""Measurements: what disturbs only makes them longer."""
_SECONDS: Final = 0.004
"""Of a measurement, at least."""
_ENOUGH: Final = 0.4
"""Seconds of measurements after which there are no more: caches of hundreds of MiB take so long to read past."""


@dataclass(frozen=True)
class Clock:
    """How fast a core is when it works alone.

    Attributes:
        cycles: In a second, as additions of integers tell that wait for each other, a cycle each.
        latency: Cycles from an operand of a sum of floats to its result.
    """

    cycles: float
    latency: float


@dataclass(frozen=True, eq=False)
class CProfiler:
    """A clock, and what measures the limits of this machine, or of as many of its cores as there are `threads`."""

    _target: CTarget
    _ffi: Any
    _library: Any
    _times: int
    _threads: int

    @classmethod
    def made(
        cls, options: Options, target: CTarget | None = None, times: int = _BEST_OF, threads: int = 1
    ) -> CProfiler:
        """Compiled with a program's compiler and flags, for their target unless another is given.

        Every limit is the best of so many times, or of as many as 0.4 s allow, of threads that work at the same time.

        Raises:
            DlcError: (TOOL) there is no compiler, or it fails.
        """
        from cffi import FFI

        target, toolchain = target or target_of(options), find_toolchain(options.cc)
        ffi: Any = FFI()
        ffi.cdef("double timer(void); double timer_cost(void); float multiply_adds(long, float, float);")
        ffi.cdef("float read_all(const void *, size_t, long); long add_integers(long, long);")
        ffi.cdef("float add_floats(long, float);")
        with tempfile.TemporaryDirectory(prefix="dlc-") as directory:
            place = Path(directory)
            (place / "limits.c").write_bytes(limits_text(target))
            flags = (*target.flags, *options.flags, "-fPIC", "-shared")
            run((*toolchain.command, *flags, "limits.c", "-o", "limits.so"), place, "compiling limits.c")
            library = open_library(ffi, place / "limits.so", apart=True)
        return cls(target, ffi, library, times, threads)

    def seconds(self, program: Program, inputs: Mapping[str, Array], out: Mapping[str, Array]) -> Sequence[float]:
        """Seconds of each step in one call, without those that the clock takes."""
        timer = int(self._ffi.cast("intptr_t", self._ffi.addressof(self._library, "timer")))
        cost = self._library.timer_cost()
        return [max(s - cost, 0.0) for s in cast("Model", program).profile(timer, out=out, **inputs)]

    def limits(self) -> Limits:
        """Multiply-adds of vectors of the target, and reads of what each memory holds, the best of several times."""
        vector = vector_bytes(self._target.vector_bytes)
        count = 1 << 17
        seconds = self._best(lambda _: self._library.multiply_adds(count, 1.0 + 1e-7, 1e-7), self._threads)
        operations = 2 * count * _CHAINS * (vector // 4) * self._threads
        return Limits(operations / seconds, tuple(self._memories(vector)))

    def clock(self) -> Clock:
        """Cycles in a second, and those of a sum, the best of several times."""
        count = 1 << 14
        integers = self._best(lambda _: self._library.add_integers(count, 3))
        floats = self._best(lambda _: self._library.add_floats(count, 1e-7))
        return Clock(count * _STEPS / integers, floats / integers)

    def _memories(self, vector: int) -> Sequence[Memory]:
        """Each core has caches of the first two levels to itself; what lies beyond is everybody's."""
        threads, l1, l2, l3 = self._threads, self._target.l1, self._target.l2, caches().get(3, 0)
        own = [("L1", threads * l1, l1 // 2), ("L2", threads * l2, l2 // 2)]
        parts = [*own, *([("L3", l3, l3 // 2 // threads)] if l3 > 2 * threads * l2 else [])]
        whole = max(_LEAST_MEMORY, 4 * l3)
        memory = aligned(whole)
        memory[:] = 0  # pages that were never written are all the same one
        unit = vector * _STREAMS
        found: list[Memory] = []
        for name, size, part in (*parts, ("memory", None, whole // threads)):
            vectors = max(part // unit, 1) * _STREAMS
            rounds = max((4 << 20) // part, 1)
            pointers = [self._ffi.cast("const void *", address(memory) + k * vectors * vector) for k in range(threads)]
            seconds = self._best(lambda k, p=pointers, n=vectors, r=rounds: self._library.read_all(p[k], n, r), threads)
            found.append(Memory(name, size, vectors * vector * rounds * threads / seconds))
        return found

    def _best(self, measured: Callable[[int], object], threads: int = 1) -> float:
        """Seconds of a call, the least of several, each as long as a clock can tell; threads call with their number."""
        calls, found = 1, 0.0
        while True:
            found = _timed(measured, calls, threads)
            if found * calls >= _SECONDS:
                break
            calls *= 2
        end = time.perf_counter() + _ENOUGH
        for done in range(self._times):
            if done and time.perf_counter() > end:
                break
            found = min(found, _timed(measured, calls, threads))
        return found


def limits_text(target: CTarget) -> bytes:
    """The C text that measures a processor of a target."""
    values = {"bytes": vector_bytes(target.vector_bytes), "chains": _CHAINS, "streams": _STREAMS, "steps": _STEPS}
    return fill("limits.c.j2", values)


def vector_bytes(registers: int) -> int:
    """What is measured with registers of so many bytes."""
    return max(registers, _LEAST_VECTOR)


def _timed(measured: Callable[[int], object], calls: int, threads: int) -> float:
    """Seconds of a call, from when the first thread begins until the last one is done."""
    together = threading.Barrier(threads)

    def span(thread: int) -> tuple[float, float]:
        together.wait()
        begin = time.perf_counter()
        for _ in range(calls):
            measured(thread)
        return begin, time.perf_counter()

    if threads == 1:
        begin, end = span(0)
        return (end - begin) / calls
    with ThreadPoolExecutor(threads) as pool:
        spans = list(pool.map(span, range(threads)))
    return (max(end for _, end in spans) - min(begin for begin, _ in spans)) / calls
