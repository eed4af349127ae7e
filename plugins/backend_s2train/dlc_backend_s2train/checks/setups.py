"""Whether the registers that a file states are those of its instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from dlc.base.diagnostics import Diagnostic, DlcError
from dlc_backend_s2train.checks.problems import problem, title
from dlc_backend_s2train.device.registers import setup_of
from dlc_backend_s2train.program import Program


def setup_problems(program: Program) -> Iterator[Diagnostic]:
    """Registers that are not their instruction's, of a program that is right otherwise."""
    if not program.setups:
        return
    if len(program.setups) != len(program.instructions):
        count = f"{len(program.setups)} setups of registers for {len(program.instructions)} instructions"
        yield problem("bad-registers", f"the program has {count}")
        return
    for number, (setup, instruction) in enumerate(zip(program.setups, program.instructions, strict=True)):
        try:
            wanted = asdict(setup_of(program, instruction))
        except DlcError as refused:
            yield problem("bad-registers", f"{title(number, instruction)}: {refused.diagnostics[0].message}")
            continue
        for name, held in asdict(setup).items():
            if held != wanted[name]:
                message = f"{title(number, instruction)}: {name} is {held:#x}, its registers hold {wanted[name]:#x}"
                yield problem("bad-registers", message)
