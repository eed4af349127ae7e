"""Schedules as text files: a kernel, a machine and a schedule, then the loops that they give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.parse import parse_loops
from dlc.kernel.loops.print import print_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples

FILES = sorted((Path(__file__).parent / "schedules").glob("*.txt"))
RULE = "----\n"


@dataclass(frozen=True)
class Case:
    """What stands in front of the rule."""

    kernel: Kernel
    machine: Machine
    schedule: str

    @classmethod
    def of(cls, text: str) -> Case:
        *kernel, machine, schedule = text.splitlines()
        assert machine.startswith("machine ") and schedule.startswith("schedule ")
        numbers = {name: int(value) for name, value in (word.split("=") for word in machine.split()[1:])}
        known = Machine(numbers.pop("vector_bytes"), numbers.pop("registers"))
        known = replace(known, general=numbers.pop("general", 0), words=bool(numbers.pop("words", 0)))
        known = replace(known, past=numbers.pop("past", 0), l2=numbers.pop("l2", known.l2))
        known = replace(known, digits=bool(numbers.pop("digits", 0)))
        known = replace(known, reciprocals=bool(numbers.pop("reciprocals", 0)))
        assert not numbers
        return cls(stored_packed(parse_kernel("\n".join(kernel))), known, schedule.removeprefix("schedule "))


def stored_packed(kernel: Kernel) -> Kernel:
    """The kernel with its parameters of less than 8 bits as constants are stored: several to a byte."""
    return replace(kernel, params=tuple(replace(p, packed=p.dtype.per_byte > 1) for p in kernel.params))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_loops_are_those_of_the_file(file: Path, request: pytest.FixtureRequest) -> None:
    given, _, loops = file.read_text().partition(RULE)
    case = Case.of(given)
    found = scheduled(case.kernel, case.machine, parse_choices(case.schedule))
    text = print_loops(found.program) + "\n"
    if request.config.getoption("--update"):
        file.write_text(given + RULE + text)
        loops = text
    assert text == loops
    assert parse_loops(loops) == found.program
    args = samples(case.kernel)
    for got, want in zip(run_loops(found.program, args), run_kernel(case.kernel, args), strict=True):
        assert close(got, want)


def test_every_family_has_a_file() -> None:
    families = {c.name for f in FILES for c in parse_choices(Case.of(f.read_text().partition(RULE)[0]).schedule)}
    assert families >= {"tiles", "loops", "scalar-words"}
    assert print_choices(parse_choices("tiles,loops")) == "tiles,loops"
