"""How kernels become loops on a target: schedules that are chosen, or given by the user, and the loops themselves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from dlc import ExitCode, Job, Workshop
from dlc.api.backend import KernelSchedule, Tuned
from dlc.api.schedules import in_words
from dlc.api.tuning import Record, Tuning, tuning_content, tuning_of_content
from dlc.base.diagnostics import DlcError, error
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import LoopProgram
from dlc.kernel.schedules.candidate import Candidate
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scalar_loops import starting
from dlc.kernel.schedules.schedule import Scheduled, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc_backend_c.divide import Part, divide
from dlc_backend_c.options import Options
from dlc_backend_c.target import CTarget
from dlc_backend_c.working import workspace_places

PREFIX = "dlc_k_"
"""Of the names of functions, before digits of their kernel's digest."""
LEAST_DIGITS = 8
"""Of a digest that stands for a kernel."""

Given = Sequence[tuple[str, str]]
"""Schedules that the user gives: (name of a kernel's function or first digits of its digest, schedule)."""
Families = tuple[type[Choice], ...]
"""Families of schedules of plugins."""


@dataclass(frozen=True)
class Preferred:
    """Schedules that kernels are to have: those that the user gives, then those that were measured.

    Attributes:
        given: By name of a function or first digits.
        tuning: What was measured; None: nothing is asked for.
    """

    given: Given = ()
    tuning: Tuning | None = None

    @classmethod
    def of(cls, options: Options) -> Preferred:
        """As the options say. Raises DlcError (USAGE) where the file of measurements cannot be read."""
        return cls(tuple(_given(*pair) for pair in options.schedule), tuning_of(options.tune))

    def schedule(self, kernel: Kernel, target: CTarget) -> str:
        """What is given for a kernel, or was measured and applies; "" for what the estimate chooses."""
        given = given_for(kernel, self.given)
        return given or self.tuned(kernel, target)[0]

    def tuned(self, kernel: Kernel, target: CTarget) -> tuple[str, Tuned | None]:
        """(the schedule that was measured, "" where none is to be had; what became of it)."""
        if self.tuning is None or given_for(kernel, self.given):
            return "", None
        record = _of_machine(self.tuning, target.characteristics).get(kernel.digest)
        if record is None:
            return "", Tuned("other-machine" if kernel.digest in self.tuning.kernels else "unknown")
        problem = _problem(plain_kernel(kernel), target.machine, record.schedule, target.families)
        return ("", Tuned("unfit", problem)) if problem else (record.schedule, Tuned("used"))


def _given(name: str, schedule: str) -> tuple[str, str]:
    """Of `KERNEL:PLUGIN:SCHEDULE` a kernel and a schedule whose name is qualified."""
    kernel, colon, qualifier = name.partition(":")
    return kernel, f"{qualifier}:{schedule}" if colon else schedule


NONE = Preferred()
"""The estimate decides."""


def tuning_of(path: str) -> Tuning | None:
    """The records of a file, as the build that is going on read it; None of "". Raises DlcError (USAGE)."""
    return _parsed(tuning_content(Path(path)), path) if path else None


@lru_cache(maxsize=8)
def _parsed(content: bytes, source: str) -> Tuning:
    return tuning_of_content(content, source)


@lru_cache(maxsize=8)
def _of_machine(tuning: Tuning, machine: str) -> Mapping[str, Record]:
    return tuning.of_machine(machine)


@lru_cache(maxsize=4096)
def _problem(kernel: Kernel, machine: Machine, schedule: str, families: Families) -> str:
    """Why a schedule that was measured does not apply to a kernel; "" where it does."""
    try:
        _scheduled(kernel, machine, schedule, families)
    except DlcError as problem:
        return problem.diagnostics[0].message
    return ""


def schedules(
    kernels: Sequence[Kernel], target: CTarget, preferred: Preferred = NONE, workshop: Workshop | None = None
) -> list[KernelSchedule]:
    """The schedule of each kernel, and bytes that its function works in, whatever its results overwrite; 64-aligned.

    Raises:
        DlcError: (USAGE) a schedule that is given does not apply, or is no schedule.
    """
    texts = [preferred.schedule(k, target) for k in kernels]
    if workshop is None:
        found = [_schedule(k, target, text) for k, text in zip(kernels, texts, strict=True)]
    else:
        machine = ("machine", str(target.machine))
        jobs = [
            Job(
                "schedule",
                k.digest,
                (("kernel", k.digest), ("packed", _packed(k)), machine, ("given", text)),
                lambda k=k, text=text: _to_bytes(_schedule(k, target, text)),
            )
            for k, text in zip(kernels, texts, strict=True)
        ]
        found = [_from_bytes(made) for made in workshop.cached(jobs)]
    return [replace(f, tuned=preferred.tuned(k, target)[1]) for k, f in zip(kernels, found, strict=True)]


def _packed(kernel: Kernel) -> str:
    """The numbers of the parameters of which a byte holds several elements."""
    return " ".join(str(k) for k, p in enumerate(kernel.params) if p.packed)


def given_for(kernel: Kernel, given: Given) -> str:
    """The schedule that the user gives a kernel; "" for none."""
    return next((text for name, text in given if kernel.digest.startswith(_digits(name))), "")


def check_given(kernels: Iterable[Kernel], given: Given) -> None:
    """Raise DlcError (USAGE) where a schedule is given for a kernel that a program has not."""
    digests = [k.digest for k in kernels]
    for name, _ in given:
        digits = _digits(name)
        if len(digits) < LEAST_DIGITS:
            message = f"a schedule is given for kernel {name!r}: {LEAST_DIGITS} digits of its digest are needed"
        elif not any(d.startswith(digits) for d in digests):
            message = f"a schedule is given for kernel {name!r}, which the program does not have"
        else:
            continue
        help = "--explain schedule-kernels lists the kernels with their schedules"
        raise error("unknown-kernel", message, help=help, exit_code=ExitCode.USAGE)


def _digits(name: str) -> str:
    return name.removeprefix(PREFIX)


def suffix_of(schedule: str) -> str:
    """What tells the function of a schedule that is given from others of the same kernel."""
    return f"_s{blake2b(schedule.encode(), digest_size=4).hexdigest()}" if schedule else ""


def _schedule(kernel: Kernel, target: CTarget, given: str) -> KernelSchedule:
    plain = plain_kernel(kernel)
    found = _scheduled(plain, target.machine, given, target.families)
    whole, _ = loops_of(plain, target.machine, given, target.families)
    _, size = workspace_places(whole)
    cycles, bytes, others = 0.0, 0.0, dict[tuple[str, str], None]()
    for k, (choice, considered) in enumerate(zip(found.choices, found.considered, strict=True)):
        group = f" for nests {k}" if len(found.choices) > 1 else ""
        for c in considered:
            if c.choice == choice and c.estimate is not None:
                cycles, bytes = cycles + c.estimate.cycles, bytes + c.estimate.bytes
            else:
                others[c.choice.brief + group, _reason(c)] = None
    if found.other is not None:
        others[print_choices(found.other.choices), _takes(found.other.cycles)] = None
    return KernelSchedule(size, print_choices(found.choices), int(cycles), int(bytes), tuple(others), bool(given))


def _reason(candidate: Candidate) -> str:
    """Why a candidate was not chosen."""
    return candidate.unfit if candidate.estimate is None else _takes(candidate.estimate.cycles)


def _takes(cycles: float) -> str:
    return f"it takes {in_words(cycles)} cycles"


def _to_bytes(found: KernelSchedule) -> bytes:
    return json.dumps([found.workspace, found.text, found.cycles, found.bytes, found.others, found.given]).encode()


def _from_bytes(content: bytes) -> KernelSchedule:
    workspace, text, cycles, bytes, others, given = json.loads(content)
    return KernelSchedule(workspace, text, cycles, bytes, tuple((c, reason) for c, reason in others), given)


def plain_kernel(kernel: Kernel) -> Kernel:
    """The kernel under canonical names."""
    return Kernel.canonical(kernel.params, kernel.results, kernel.nests, kernel.locals)


@lru_cache(maxsize=1024)
def loops_of(
    kernel: Kernel, machine: Machine, schedule: str = "", families: Families = (), beside: bool = False
) -> tuple[LoopProgram, tuple[Part, ...]]:
    """A kernel's loops, and their parts: memory is planned with what they work in before their text is written.

    Where its result lies `beside` others, elements that no nest writes are theirs: they stay as they are.

    Raises:
        DlcError: (USAGE) the schedule does not apply.
    """
    program = _scheduled(kernel, machine, schedule, families).program
    if beside:
        starts = [s for p in kernel.results for s in starting(p, kernel)]
        program = replace(program, body=tuple(s for s in program.body if s not in starts))
    return divide(program)


_FOUND: dict[tuple[Kernel, Machine, str, Families], Scheduled] = {}
_MOST_FOUND = 1024


def _scheduled(kernel: Kernel, machine: Machine, schedule: str, families: Families) -> Scheduled:
    """Kept for the next who asks: what is chosen for a plan is what its functions are then generated with."""
    key = kernel, machine, schedule, families
    if key not in _FOUND:
        if len(_FOUND) >= _MOST_FOUND:
            _FOUND.clear()
        found = _FOUND[key] = _applied(kernel, machine, schedule, families)
        _FOUND[kernel, machine, print_choices(found.choices), families] = found
    return _FOUND[key]


def _applied(kernel: Kernel, machine: Machine, schedule: str, families: Families) -> Scheduled:
    if not schedule:
        return scheduled(kernel, machine, families=families)
    try:
        return scheduled(kernel, machine, parse_choices(schedule, families=families))
    except Unfit as problem:
        raise error(
            "schedule",
            f"schedule {schedule} of kernel {kernel.digest[:16]} does not apply: {problem}",
            help="--explain schedule-kernels lists what applies",
            exit_code=ExitCode.USAGE,
        ) from None
