"""The sizes at which `dlc verify` runs a program whose inputs have open dimensions.

Loops of vectors, their ends, and the tiles of a schedule meet other numbers of elements in other code, and so do C
compilers: the smallest size alone shows none of it. All open dimensions have the same size in a run, as far as their
bounds allow, and the runs have a budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dlc.base.diagnostics import DlcError, ExitCode, escape
from dlc.cli.terminal import Outcome

if TYPE_CHECKING:
    from dlc.api.program import Port, Signature
    from dlc.base.polynomials import Symbol

SECONDS: Final = 20.0
"""After which no further size is begun."""
LARGEST: Final = 1 << 26
"""Bytes of inputs up to which a size is run."""
_NO_MODEL: Final = (ExitCode.MODEL, ExitCode.USAGE, ExitCode.LIMIT)
"""How a reference ends at sizes at which there is no such model: it need not be one at every size."""
_T = TypeVar("_T")
Sizes = dict[str, int]
"""Name of the input that is a size → the size."""


@dataclass
class Runs:
    """What was found at every size, the likely ones first."""

    first: Outcome
    sizes: Sizes
    began: float = field(default_factory=time.monotonic)
    others: list[tuple[Sizes, Outcome]] = field(default_factory=list[tuple[Sizes, Outcome]])
    left_out: list[tuple[Sizes, str]] = field(default_factory=list[tuple[Sizes, str]])

    def run(
        self,
        sets: Sequence[Sizes],
        wanted: Callable[[Sizes], _T],
        judge: Callable[[_T], Outcome],
    ) -> Outcome:
        """Judge each set of sizes within the budget; the outcome of all.

        Where the reference has no value at some sizes, these are left out. Raises DlcError: it has one, and the program
        or dlc fails.
        """
        for sizes in sets:
            if time.monotonic() - self.began > SECONDS:
                self.left_out.append((sizes, f"more than {SECONDS:.0f} s were spent"))
                continue
            try:
                with _at(sizes):
                    given = wanted(sizes)
            except DlcError as problem:
                self._leave_out(sizes, problem, _NO_MODEL)
                continue
            try:
                with _at(sizes):
                    self.others.append((sizes, judge(given)))
            except DlcError as problem:
                self._leave_out(sizes, problem, (ExitCode.LIMIT,))
        return self._merged()

    def _leave_out(self, sizes: Sizes, problem: DlcError, codes: Sequence[ExitCode]) -> None:
        """List sizes that are no fault of the program; raise the problem if it is none with these exit codes."""
        if problem.exit_code not in codes:
            raise problem
        self.left_out.append((sizes, problem.diagnostics[0].message))

    def _merged(self) -> Outcome:
        runs = [(self.sizes, self.first), *self.others]
        wrong = [(s, o) for s, o in runs[1:] if o.code != ExitCode.OK]
        words = [f"{told(s)} {'ok' if o.code == ExitCode.OK else 'MISMATCH'}" for s, o in runs]
        parts = [self.first.text, "sizes: " + ", ".join(words)]
        parts += [f"at {told(s)}:\n{o.text}" for s, o in wrong]
        parts += [f"not run at {told(s)}: {escape(why)}" for s, why in self.left_out]
        data: dict[str, Any] = {
            **self.first.data,
            "sizes": [{"sizes": s, "ok": o.code == ExitCode.OK, "outputs": o.data["outputs"]} for s, o in runs],
            "sizes_left_out": [{"sizes": s, "reason": why} for s, why in self.left_out],
        }
        return Outcome("\n".join(parts), data, wrong[0][1].code if wrong else self.first.code)


@contextmanager
def _at(sizes: Sizes) -> Generator[None]:
    """What is raised says at which sizes."""
    try:
        yield
    except DlcError as problem:
        here = f"when run at {told(sizes)}"
        found = (replace(d, notes=(*d.notes, here)) for d in problem.diagnostics)
        raise DlcError(*found, exit_code=problem.exit_code) from None


def told(sizes: Mapping[str, int]) -> str:
    """Sizes in words."""
    return " ".join(f"{escape(name)}={size}" for name, size in sizes.items())


def likely(signature: Signature) -> Sizes:
    """The sizes that a call without files has."""
    return {p.name: p.type.symbol.likely for p in signature.inputs if p.type.symbol is not None}


def size_sets(signature: Signature, wanted: Sequence[int]) -> list[Sizes]:
    """Sets of sizes near those that are wanted, within the bounds of each; without the likely ones."""
    ports = [p for p in signature.inputs if p.type.symbol is not None]
    found: list[Sizes] = []
    for size in wanted:
        sizes = {p.name: _within(p.type.symbol, size) for p in ports if p.type.symbol is not None}
        if sizes != likely(signature) and sizes not in found and _bytes(signature.inputs, sizes) <= LARGEST:
            found.append(sizes)
    return found


def _within(of: Symbol, size: int) -> int:
    return min(max(round(size / of.unit), of.low), of.high) * of.unit


def _bytes(ports: Sequence[Port], sizes: Sizes) -> int:
    from dlc.base.extents import capacity, settled

    known = {p.type.symbol: sizes[p.name] for p in ports if p.type.symbol is not None}
    total = 0
    for p in ports:
        elements = p.type.dtype.itemsize
        for d in p.type.shape:
            elements *= capacity(settled(d, known))
        total += elements
    return total
