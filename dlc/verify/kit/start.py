"""What a plugin costs every command: the import of the module that holds its hooks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dlc.verify.kit.check import Check, Wrong
from dlc.verify.kit.process import python

if TYPE_CHECKING:
    from dlc.verify.kit.subject import Subject

LIMIT: Final = 0.05
"""Seconds of processor time that importing it may take: `dlc --help` has 0.15 altogether."""
HEAVY: Final = ("numpy", "onnx", "scipy", "torch", "pandas", "jinja2", "yaml", "pydantic", "subprocess", "asyncio")
"""Modules that no module of hooks needs, and that take longer to import than a listing may."""
_TRIES: Final = 5
_SCRIPT: Final = """
import json, sys, time
import dlc
from dlc import hookimpl, Lazy
before = set(sys.modules)
start = time.process_time()
__import__(sys.argv[1])
took = time.process_time() - start
print(json.dumps([took, sorted({m.partition(".")[0] for m in set(sys.modules) - before})]))
"""


def starts_fast(subject: Subject, entry: None) -> str:
    """That it takes next to no time, and imports nothing heavy."""
    del entry
    best, heavy = float("inf"), list[str]()
    with tempfile.TemporaryDirectory() as empty:
        for _ in range(_TRIES):
            ran = python(["-c", _SCRIPT, subject.plugin.module], Path(empty), 60)
            if ran.code:
                last = (ran.err.strip().splitlines() or ["it ended"])[-1]
                raise Wrong(f"a fresh Python cannot import {subject.plugin.module}: {last}", "run python -c 'import …'")
            took, modules = json.loads(ran.out.splitlines()[-1])
            best = min(best, took)
            heavy = [name for name in HEAVY if name in modules]
            if best <= LIMIT or heavy:
                break
    if heavy:
        raise Wrong(
            f"importing {subject.plugin.module} imports {', '.join(heavy)}, {best * 1000:.0f} ms",
            'return Lazy(name, "module:Class") from its hooks, and import in that module',
        )
    if best > LIMIT:
        raise Wrong(
            f"importing {subject.plugin.module} takes {best * 1000:.0f} ms of processor time, not {LIMIT * 1000:.0f}",
            'return Lazy(name, "module:Class") from its hooks; python -X importtime shows what takes the time',
        )
    return f"{best * 1000:.0f} ms"


CHECKS = (Check("start-up", "importing its hooks costs next to nothing", starts_fast),)
