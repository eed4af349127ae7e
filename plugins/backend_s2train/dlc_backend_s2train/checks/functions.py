"""Host functions by themselves: their texts make sense, their tensors exist and are what the texts say."""

from __future__ import annotations

from collections.abc import Iterator

from dlc.base.diagnostics import Diagnostic
from dlc_backend_s2train.checks.problems import problem
from dlc_backend_s2train.program import Program


def function_problems(program: Program) -> Iterator[Diagnostic]:
    """What is wrong with host functions. Each is one instruction's, so that all of them are looked at once."""
    if not program.functions:
        return
    from dlc_backend_s2train.host_functions import problem_of  # imports all ops; few programs have functions

    callers: dict[int, int] = {}
    for number, instruction in enumerate(program.instructions):
        if instruction.function is not None and callers.setdefault(instruction.function, number) != number:
            first = callers[instruction.function]
            message = f"function {instruction.function} is called by the instructions {first} and {number}"
            yield problem("bad-function", f"{message}; each has one of its own")
    for number, function in enumerate(program.functions):
        absent = [t for t in (*function.reads, *function.writes) if not 0 <= t < len(program.tensors)]
        if absent:
            message = f"function {number} names tensor {absent[0]} of {len(program.tensors)}"
            yield problem("no-such-number", message)
        elif why := problem_of(function, program.tensors):
            yield problem("bad-function", f"function {number}: {why}")
