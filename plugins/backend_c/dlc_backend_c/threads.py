"""Who runs the ranges of parallel loops: the C text that defines `dlc_parallel`, and what it asks of its surroundings.

    void dlc_parallel(void (*body)(void *context, size_t first, size_t last, size_t share), void *context, size_t count)

calls `body` for ranges that follow one another and make up 0..count, each with another `share` below the number of
threads, and returns when all are done. Which thread runs which range changes nothing that is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dlc_backend_c.header import fill
from dlc_backend_c.options import Options

_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {"own": ("-pthread",), "openmp": ("-fopenmp",), "caller": ()}
_CALL: Final = "dlc_parallel("


def thread_flags(options: Options) -> tuple[str, ...]:
    """What the compiler and the linker of a program must be told."""
    return _FLAGS[options.pool] if options.most_threads > 1 else ()


def thread_values(options: Options, prefix: str) -> dict[str, object]:
    """What templates know of threads."""
    many = options.most_threads > 1
    return {
        "p": prefix,
        "P": prefix.upper(),
        "threads": options.most_threads,
        "auto": options.threads == "auto",
        "pool": options.pool if many else "",
    }


def pool_lines(options: Options, prefix: str, functions: str) -> list[str]:
    """The definition of `dlc_parallel` for those who call it among the text of functions, and of the interface."""
    values = thread_values(options, prefix)
    if not values["pool"]:
        return []
    text = fill(f"pool_{options.pool}.c.j2", {**values, "used": _CALL in functions}).decode("ascii")
    return [*text.splitlines(), ""] if text.strip() else []
