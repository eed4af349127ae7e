"""Several kernels as one translation unit: compiled by one compiler, run in a process of its own, and compared."""

from __future__ import annotations

import hashlib
import multiprocessing
import tempfile
import time
from dataclasses import asdict, dataclass, field
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
from dlc_backend_c.sections import LINKAGE
from dlc_backend_c.target import CTarget

from benchmarks.sweep.compilers import Compiler
from benchmarks.sweep.corpus import Case, Run
from tests.backend_c.harness import Compiled, close, functions_of, source_of

SECONDS: Final = 60
"""That the kernels of a unit may run."""
_FORK: Any = multiprocessing.get_context("fork")  # the child has the arrays already


@dataclass
class Found:
    """What one compiler made of a unit.

    Attributes:
        key: Everything that it depends on.
        compiler: Its title.
        cpu: Of the unit.
        level: Optimisation.
        kernels: That the unit has.
        runs: Calls that were compared.
        refused: Why the unit was not compiled; "" if it was.
        wrong: Titles of kernels and sizes whose results differ, with what differs.
        seconds: That compiling and running took.
    """

    key: str
    compiler: str
    cpu: str
    level: str
    kernels: int
    runs: int = 0
    refused: str = ""
    wrong: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As a line of the file of results holds it."""
        return asdict(self)


@dataclass(frozen=True)
class Unit:
    """Cases for a machine."""

    cpu: str
    target: CTarget
    cases: tuple[Case, ...]

    @cached_property
    def functions(self) -> dict[int, Any]:
        """Of the kernels, by their places."""
        return functions_of([c.kernel for c in self.cases], self.target)

    @cached_property
    def source(self) -> str:
        """The C."""
        return source_of(self.functions, self.target)

    def key(self, compiler: Compiler, level: str) -> str:
        """What names a result: text, runs, compiler and flags."""
        told = "\n".join(f"{c.title} {r.title}" for c in self.cases for r in c.runs)
        parts = (self.source, told, compiler.identity, *self.flags(level))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def flags(self, level: str) -> tuple[str, ...]:
        """As users have them, at another level of optimisation."""
        return (*(level if f.startswith("-O") else f for f in self.target.flags), f"-D{LINKAGE}=")

    def tried(self, compiler: Compiler, level: str) -> Found:
        """Compile, run and compare."""
        began = time.monotonic()
        found = Found(self.key(compiler, level), compiler.title, self.cpu, level, len(self.cases))
        with tempfile.TemporaryDirectory(prefix="dlc-sweep-") as place:
            source, library = Path(place, "unit.c"), Path(place, "unit.so")
            source.write_text(self.source)
            found.refused = compiler.compile(source, self.flags(level), library)
            if not found.refused:
                found.wrong = self._compared(library)
                found.runs = sum(len(c.runs) for c in self.cases)
        found.seconds = round(time.monotonic() - began, 2)
        return found

    def _compared(self, library: Path) -> list[str]:
        """What differs. After a crash the rest is run in another process."""
        wrong: list[str] = []
        first, count = 0, len(self.cases)
        while first < count:
            receiver, sender = _FORK.Pipe(duplex=False)
            child = _FORK.Process(target=self._run, args=(library, first, sender))
            child.start()
            sender.close()
            last = first - 1
            try:
                while receiver.poll(SECONDS):
                    last, said = receiver.recv()
                    wrong += said
            except EOFError:
                pass
            child.kill()
            child.join()
            if last + 1 < count:
                how = f"ended by signal {-child.exitcode}" if (child.exitcode or 0) < 0 else f"{child.exitcode}"
                wrong.append(f"{self.cases[last + 1].title}: {how}")
            first = last + 2
        return wrong

    def _run(self, library: Path, first: int, sender: Connection) -> None:
        compiled = Compiled.opened([c.kernel for c in self.cases], self.functions, library)
        for n in range(first, len(self.cases)):
            said = [
                f"{self.cases[n].title} at {r.title}: {what}"
                for r in self.cases[n].runs
                if (what := _differs(compiled, n, r))
            ]
            sender.send((n, said))
        sender.close()


def _differs(compiled: Compiled, n: int, run: Run) -> str:
    """How results differ from those that are wanted; "" if they do not."""
    try:
        results = compiled(n, run.args)
    except AssertionError as problem:
        return str(problem)
    for got, want in zip(results, run.wanted, strict=True):
        part = got[tuple(map(slice, want.shape))]
        if not close(part, np.asarray(want)):
            return _words(part, np.asarray(want))
    return ""


def _words(got: Any, want: Any) -> str:
    differing = np.argwhere(~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-2, equal_nan=True))
    if not len(differing):
        return f"{got.size} elements, none far off"
    place = tuple(differing[0])
    first = f"{[int(k) for k in place]}: {got[place]} instead of {want[place]}"
    return f"{len(differing)} of {got.size} elements, first {first}"
