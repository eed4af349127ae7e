"""Checks of schedules: loops of sample kernels, by the checker of loops, the interpreter and the text form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.base.types import Array, bool_
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.unfit import Unfit
from dlc.verify.compare import Tolerance, compare
from dlc.verify.kit.check import Check, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlc.kernel.kernel import Kernel
    from dlc.kernel.loops.program import LoopProgram
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

MACHINES: Final = (
    Machine(),
    Machine(16, 16),
    Machine(32, 16),
    Machine(64, 32, threads=4),
    Machine(32, 16, 2 << 10, 8 << 10),
    Machine(0, 16, ordered=True),
)
"""Without vectors, with narrow and wide ones, few and many registers, small caches, threads, sums in order."""
NEAR = Tolerance(1e-4, 1e-5)


def _programs(subject: Subject, entry: Entry) -> Iterator[tuple[str, Kernel, LoopProgram]]:
    """Loops of every sample kernel on every machine where the family applies. Raises Wrong: it applies nowhere."""
    kernels = subject.samples.kernels
    if not kernels:
        help = "add one to kernels of the Samples of dlc_samples: dlc.schedules.parse_kernel reads it from text"
        raise Wrong(f"there is no kernel to which {entry.name} applies", help)
    reasons: list[str] = []
    count = 0
    for spec in subject.specs(entry):
        choice = entry.load().from_spec(spec)
        for k, kernel in enumerate(kernels):
            for machine in MACHINES:
                try:
                    found = scheduled(kernel, machine, (choice,))
                except Unfit as reason:
                    reasons.append(f"samples.kernels[{k}]: {reason}")
                    continue
                count += 1
                size = f"{machine.vector_bytes}-byte vectors, {machine.registers} registers"
                yield f"{choice} on samples.kernels[{k}] for {size}", kernel, found.program
    if not count:
        raise Wrong(f"{entry.name} applies to no sample kernel: {reasons[0]}", "add one that it is for, or mend apply")


def loops_hold(subject: Subject, entry: Entry) -> str:
    """That the checker of loops finds nothing."""
    count = 0
    for where, kernel, program in _programs(subject, entry):
        if findings := check_loops(kernel, program, subject.seed):
            raise Wrong(f"{where}: {findings[0]}", "dlc.schedules.print_loops shows the loops")
        count += 1
    return f"{count} programs"


def loops_run(subject: Subject, entry: Entry) -> str:
    """That the interpreter, which refuses what C leaves undefined, gives the kernel's values."""
    count = 0
    for where, kernel, program in _programs(subject, entry):
        args = _arguments(kernel, subject.seed)
        for r, got, want in zip(kernel.results, run_loops(program, args), run_kernel(kernel, args), strict=True):
            scale = float(np.max(np.abs(want.astype(np.float64)), initial=1.0))
            found = compare(r.name, got, want, Tolerance(NEAR.relative, NEAR.absolute * scale))
            if not found.ok:
                text = f"{where}: {r.name} differs in {found.wrong} of {found.size} elements, by {found.max_abs:.3g}"
                raise Wrong(text, "dlc.schedules.run_loops and run_kernel give both values")
        count += 1
    return f"{count} programs"


def loops_print(subject: Subject, entry: Entry) -> str:
    """That loops print, and parse back as the same."""
    count = 0
    for where, _, program in _programs(subject, entry):
        text = print_loops(program)
        if print_loops(parse_loops(text)) != text:
            raise Wrong(f"{where}: its loops parse as others", "use statements of dlc.schedules only")
        count += 1
    return f"{count} programs"


def _arguments(kernel: Kernel, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    drawn = (
        rng.standard_normal(p.shape) if p.dtype.is_float else rng.integers(0, 2 if p.dtype is bool_ else 4, p.shape)
        for p in kernel.params
    )
    return [np.asarray(a).astype(p.dtype.numpy) for a, p in zip(drawn, kernel.params, strict=True)]


CHECKS = (
    Check("schedule-loops", "the checker of loops finds nothing, on several machines", loops_hold, "schedules"),
    Check("schedule-values", "loops give the kernel's values in the interpreter", loops_run, "schedules"),
    Check("schedule-text", "loops print and parse back", loops_print, "schedules"),
)
