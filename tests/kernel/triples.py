"""Triples of a kernel, a machine and a schedule, evaluated against the kernel's own reference, and checked.

The schedule is the one that is chosen for the machine, or another one that applies, with numbers drawn at random.

A triple that fails is made small: fewer results, smaller extents, a simpler machine, as long as it fails the same way.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from dlc.base.diagnostics import DlcError
from dlc.base.types import DTYPES, Array, DType, f64
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.check.operands import sizes_to_check
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.memory import LoopFault
from dlc.kernel.loops.program import For, LoopProgram, walk_stmts
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.pipelined import Pipelined
from dlc.kernel.schedules.rows import Rows
from dlc.kernel.schedules.schedule import attempted, groups_of, schedule, scheduled
from dlc.kernel.schedules.text import print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel, print_kernel
from tests.backend_c.harness import close, samples
from tests.kernel.forms import drawn_kernels
from tests.kernel.open_calls import called, meant
from tests.kernel.open_forms import drawn_open_kernels
from tests.machines import random_machine

T = TypeVar("T")
PER_KERNEL = 2
"""Machines that every kernel is scheduled for."""
OPEN = 8
"""Every so many seeds, a model has open sizes."""
ROUNDS = 400
"""Candidates that are tried to make a failing triple smaller."""


@dataclass(frozen=True)
class Triple:
    """A kernel for a machine.

    Attributes:
        choices: How its groups of nests become loops; (): as `schedule` chooses.
    """

    kernel: Kernel
    machine: Machine
    choices: tuple[Choice, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the kernel has open sizes."""
        return any(p.type.symbol is not None for p in self.kernel.params)

    def problem(self) -> str:
        """What is wrong with its loops, "" if nothing is."""
        try:
            chosen = scheduled(self.kernel, self.machine, self.choices)
            if not self.choices and scheduled(self.kernel, self.machine, chosen.choices).program != chosen.program:
                return f"written out: {print_choices(chosen.choices)} are other loops than those that were chosen"
            different = (self._different_at_sizes if self.is_open else self._different)(chosen.program)
        except LoopFault as fault:
            return f"fault: {fault}"
        except Exception as bug:  # noqa: BLE001  # whatever goes wrong is reported with its kernel
            return f"{type(bug).__name__}: {bug}"
        if different:
            return f"difference: {different}"
        findings = check_loops(self.kernel, chosen.program)
        return f"checker: {'; '.join(map(str, findings))}" if findings else ""

    def _different(self, program: LoopProgram) -> str:
        args = samples(self.kernel)
        found = run_loops(program, args)
        for k, (got, want) in enumerate(zip(found, run_kernel(self.kernel, args), strict=True)):
            if not close(got, want) and not equal_in_double(program, self.kernel, args, k):
                return f"{self.kernel.results[k].name} is not the reference's"
        return ""

    def _different_at_sizes(self, program: LoopProgram) -> str:
        for sizes in sizes_to_check(self.kernel, np.random.default_rng(0)):
            pairs = zip(called(program, self.kernel, sizes), meant(self.kernel, sizes), strict=True)
            if not all(close(got, want) for got, want in pairs):
                return f"at {sizes}"
        return ""

    def __str__(self) -> str:
        """Python text that makes the triple."""
        how = f", {print_choices(self.choices)!r}" if self.choices else ""
        return f'agree(parse_kernel("""{print_kernel(self.kernel)}"""), {self.machine!r}{how})'


def equal_in_double(program: LoopProgram, kernel: Kernel, args: Sequence[Array], result: int) -> bool:
    """Whether the same loops agree in double precision: what differs then is rounding, which a function such as exp of
    a long sum may amplify beyond any tolerance."""
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in args]
    got = run_loops(in_double(program), wide)[result]
    want = run_kernel(in_double(kernel), wide)[result]
    return want.dtype.kind == "f" and np.allclose(got, want, rtol=1e-9, atol=1e-12, equal_nan=True)


def in_double(value: T) -> T:
    """Loops or a kernel with every floating-point number in double precision, and nothing else changed."""
    found: Any = value
    match found:
        case DType():
            found = f64 if found.is_float else found
        case Apply(fn, args):
            narrow = fn in DTYPES and DTYPES[fn].is_float
            found = Apply("f64" if narrow else fn, tuple(map(in_double, args)))
        case tuple():
            found = tuple(map(in_double, cast("tuple[Any, ...]", found)))
        case _ if is_dataclass(found):
            found = type(found)(**{f.name: in_double(getattr(found, f.name)) for f in fields(found) if f.init})
        case _:
            pass
    return found


@dataclass(frozen=True)
class Failure:
    """A triple that went wrong: where it came from, how, and the smallest like it."""

    seed: int
    form: str
    problem: str
    triple: Triple


def triples(seed: int) -> Iterator[tuple[str, Triple]]:
    """The triples of a seed, with their form."""
    form, kernels = (drawn_open_kernels if seed % OPEN == OPEN - 1 else drawn_kernels)(seed)
    rng = random.Random(-seed - 1)
    for kernel in kernels:
        for _ in range(PER_KERNEL):
            triple = Triple(kernel, random_machine(rng))
            yield form, triple
            if (other := drawn_choices(triple, rng)) is not None:
                yield f"{form}, another schedule", (triple := replace(triple, choices=other))
            if triple.machine.threads > 1 and (other := parallel_choices(triple, rng)) is not None:
                yield f"{form}, threads", replace(triple, choices=other)


FOR_LARGE = (Rows, Pipelined)
"""Families that ask for large operands where their rows are left open."""
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 30)


def drawn_choices(triple: Triple, rng: random.Random) -> tuple[Choice, ...] | None:
    """Another schedule that applies, in families and numbers; None where a kernel has but one, or none was found."""
    try:
        found = scheduled(triple.kernel, triple.machine)
    except Exception:  # noqa: BLE001 - the triple itself tells of it
        return None
    applies = [[c.choice for c in group if not c.unfit] for group in found.considered]
    for some, place in zip(applies, groups_of(triple.kernel, triple.machine, found.choices), strict=True):
        for family in FOR_LARGE:
            some += [c.choice for c in attempted(family(rows=rng.choice(NUMBERS[2:])), place)]
    choices = tuple(varied(rng.choice(some), rng) for some in applies)
    if choices == found.choices:
        return None
    try:
        schedule(triple.kernel, triple.machine, choices)
    except Unfit:
        return None
    except Exception:  # noqa: BLE001 - a triple that fails
        pass
    return choices


def varied(choice: Choice, rng: random.Random) -> Choice:
    """The choice with some of its numbers drawn."""
    kept = "columns", "parallel", "past"
    drawn = {f.name: rng.choice(NUMBERS) for f in fields(choice) if f.name not in kept and rng.random() < 0.6}
    return replace(choice, **{name: bool(n % 2) if name == "panels" else n for name, n in drawn.items()})


def parallel_choices(triple: Triple, rng: random.Random) -> tuple[Choice, ...] | None:
    """The schedule with a loop of each group for threads to share, drawn from those that may be; None: there is none.

    The estimate would leave it on one thread, as all kernels that are small enough to be tried.
    """
    found = scheduled(triple.kernel, triple.machine, triple.choices)
    names = list(dict.fromkeys(s.axis.name for s in walk_stmts(found.program.body) if isinstance(s, For)))
    rng.shuffle(names)
    choices = list(found.choices)
    for k, choice in enumerate(choices):
        for name in names:
            choices[k] = replace(choice, parallel=(name,))
            try:
                schedule(triple.kernel, triple.machine, choices)
                break
            except Unfit:
                choices[k] = choice
    return tuple(choices) if any(c.parallel for c in choices) else None


def minimised(triple: Triple) -> Triple:
    """The smallest triple found by greedy steps that fails as this one does."""
    kind = triple.problem().partition(":")[0]
    tried = 0
    going = True
    while going and tried < ROUNDS:
        going = False
        for candidate in _smaller(triple):
            tried += 1
            if _fails_alike(candidate, kind):
                triple, going = candidate, True
                break
            if tried >= ROUNDS:
                break
    return triple


def _fails_alike(candidate: Triple, kind: str) -> bool:
    """Whether it fails in the same way, and not because it is no valid kernel: scalar loops must be right."""
    if candidate.problem().partition(":")[0] != kind:
        return False
    plain = Machine()
    return candidate.machine == plain or not replace(candidate, machine=plain).problem()


def _smaller(triple: Triple) -> Iterator[Triple]:
    text = print_kernel(triple.kernel)
    numbers = sorted({int(n) for n in re.findall(r"(?<![\w.])\d+(?![\w.])", text)} - {0, 1}, reverse=True)
    for n in numbers:
        for fewer in dict.fromkeys((1, 2, n // 2, n - 1)):
            if 0 < fewer < n:
                changed = _parsed(re.sub(rf"(?<![\w.]){n}(?![\w.])", str(fewer), text))
                if changed is not None:
                    yield replace(triple, kernel=changed)
    kernel = triple.kernel
    for kept in range(len(kernel.results)) if len(kernel.results) > 1 else ():
        name = kernel.results[kept].name
        gone = {r.name for r in kernel.results} - {name}
        nests = tuple(n for n in kernel.nests if n.out not in gone)
        if not any(gone & n.reads() for n in nests):
            yield replace(triple, kernel=Kernel.canonical(kernel.params, (kernel.results[kept],), nests, kernel.locals))
    for machine in _plainer(triple.machine):
        yield replace(triple, machine=machine)


def _parsed(text: str) -> Kernel | None:
    try:
        return parse_kernel(text)
    except (DlcError, ValueError, TypeError, KeyError, AssertionError):
        return None


def _plainer(machine: Machine) -> Iterator[Machine]:
    plain = Machine()
    for name in ("threads", "ordered", "vector_bytes", "registers", "l1", "l2"):
        if getattr(machine, name) != getattr(plain, name):
            yield replace(machine, **{name: getattr(plain, name)})
    for name in ("l1", "l2"):
        size = getattr(machine, name)
        if size & (size - 1):
            yield replace(machine, **{name: 1 << (size.bit_length() - 1)})
