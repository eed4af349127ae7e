"""Offsets of buffers by a complete search in C: `packing.c`, compiled by the compiler that the backend finds.

    births, deaths, sizes, capacity   →   offsets | refuted | unknown

The library is compiled once per process into a directory of this process and loaded from there: never from a cache,
whose files others may have written.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final

from dlc import DlcError
from dlc.placement import Allocator, Decision, Instance
from dlc_backend_c.opening import open_library
from dlc_backend_c.toolchain import find_toolchain, run

SOURCE: Final = Path(__file__).parent / "packing.c"
FLAGS: Final = ("-std=c99", "-O2", "-fPIC", "-shared")
_DECLARATION: Final = (
    "int dlc_pack(int, const int64_t *, const int64_t *, const int64_t *, int64_t, int64_t *, const volatile int *,"
    " int64_t *);"
)
_REFUTED, _PACKED = 0, 1
_MOST: Final = 1 << 20
"""Buffers: with more, a single branch would take longer than anybody waits."""


class BranchAndBound(Allocator):
    """A complete search of canonical placements (Moffitt, MiniMalloc, ASPLOS 2023)."""

    name: ClassVar[str] = "branch-and-bound"

    @classmethod
    def lacks(cls) -> str:
        """A C compiler, where there is none."""
        try:
            find_toolchain("")
        except DlcError as problem:
            return f"{problem.diagnostics[0].message}: install gcc or clang"
        return ""

    def decide(self, instance: Instance, capacity: int, work: int, deadline: float | None) -> Decision:
        """See `Allocator.decide`; raises DlcError (TOOL) where there is no C compiler, or it fails."""
        count = len(instance.sizes)
        if count > _MOST:
            return Decision(None, refuted=False, work=work)
        ffi, library = _compiled()
        done, stop, offsets = ffi.new("int64_t *", work), ffi.new("int *"), ffi.new("int64_t[]", count)
        stop[0] = deadline is not None and time.monotonic() >= deadline
        lists = [ffi.new("int64_t[]", list(v)) for v in (instance.births, instance.deaths, instance.sizes)]
        with ThreadPoolExecutor(1) as pool:  # so that this thread can end the search
            answer = pool.submit(library.dlc_pack, count, *lists, capacity, done, stop, offsets)
            status = _awaited(answer, stop, deadline)
        placed = tuple(offsets[k] for k in range(count)) if status == _PACKED else None
        return Decision(placed, status == _REFUTED, done[0])


def _awaited(answer: Future[int], stop: Any, deadline: float | None) -> int:
    """The status of a search that is told to stop at the deadline, or when this thread is interrupted."""
    try:
        with suppress(Late):
            return answer.result(None if deadline is None else max(deadline - time.monotonic(), 0))
        stop[0] = 1
        return answer.result()
    except BaseException:
        stop[0] = 1
        raise


@lru_cache(maxsize=1)
def _compiled() -> tuple[Any, Any]:
    """(cffi.FFI, library)."""
    from cffi import FFI

    ffi: Any = FFI()
    ffi.cdef(_DECLARATION)
    with tempfile.TemporaryDirectory(prefix="dlc-") as directory:
        place = Path(directory)
        for file in SOURCE.parent.glob("*.[ch]"):
            (place / file.name).write_bytes(file.read_bytes())
        toolchain = find_toolchain("")
        run((*toolchain.command, *FLAGS, SOURCE.name, "-o", "packing.so"), place, f"compiling {SOURCE.name}")
        return ffi, open_library(ffi, place / "packing.so", apart=True)
