"""Compilers and flags that batches of the fuzzer take turns with."""

from __future__ import annotations

import shutil
from typing import Final

from dlc_backend_c.target import target_for

from tests.fuzz.case import Tools


def _available(tools: Tools) -> bool:
    """Whether the compiler is installed and the processor runs what it makes."""
    level = {"generic": 0, "x86-64-v3": 32, "x86-64-v4": 64}.get(tools.cpu, max(tools.machine[:1], default=0))
    return shutil.which(tools.cc) is not None and target_for("native").vector_bytes >= level


_O0, _O1 = ("-O0",), ("-O1",)
TOOLS: Final = tuple(
    filter(
        _available,
        (
            Tools(flags=_O0),
            Tools(cpu="generic", flags=_O0),
            Tools(cpu="x86-64-v3", flags=_O0),
            Tools(cc="clang", flags=_O0),
            Tools(flags=_O1),
            Tools(flags=_O0, machine=(16, 16, 1 << 10, 2 << 10)),
            Tools(cc="clang", flags=_O0, machine=(32, 16, 2 << 10, 8 << 10)),
            Tools(flags=_O0, machine=(64, 32, 4 << 10, 4 << 10)),
            Tools(flags=_O0, machine=(64, 32, 48 << 10, 1 << 20)),
            Tools(cpu="generic", strict=True, flags=_O0),
            Tools(),
            Tools(cc="clang"),
            Tools(strict=True, flags=_O0),
            Tools(cc="clang", cpu="generic", flags=_O1),
            Tools(cpu="x86-64-v4", flags=_O0),
        ),
    )
)
"""Mostly without optimisation, which takes a compiler most of its time; two of these with what `dlc build` uses."""
_TCC: Final = Tools(cc="tcc", cpu="generic")
IDIOM_TOOLS: Final = tuple(
    filter(
        _available,
        (
            *(_TCC, Tools(flags=_O0), _TCC, Tools(cc="clang", flags=_O0), _TCC, Tools(cpu="x86-64-v3", flags=_O0)),
            *(_TCC, Tools(flags=_O0, machine=(16, 16, 1 << 10, 2 << 10)), _TCC, Tools(flags=_O0, threads=2)),
            *(_TCC, Tools(cpu="generic", flags=_O1), _TCC, Tools(cc="clang", flags=_O1)),
            *(_TCC, Tools(flags=_O0, machine=(64, 32, 4 << 10, 4 << 10)), Tools(cpu="generic", flags=_O0)),
            *(_TCC, Tools(flags=("-O2",)), Tools(cpu="generic", strict=True, flags=_O0)),
        ),
    )
)
"""For models of idioms, whose text is long: mostly the fastest compiler, and the plain C that it takes."""
_SANITIZE: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1")
SANITIZED: Final = tuple(
    filter(
        _available,
        (
            Tools(flags=("-O1", *_SANITIZE)),
            Tools(cc="clang", cpu="generic", flags=("-O1", *_SANITIZE)),
            Tools(cpu="generic", flags=("-O1", *_SANITIZE)),
            Tools(cc="clang", flags=("-O0", *_SANITIZE)),
        ),
    )
)
