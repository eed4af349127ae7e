"""A call step by step: NAME_step runs one of its steps, so that a loop without threads can do other work between.

for (k = 0; k < NAME_STEPS; ++k) { NAME_step(inputs, outputs, arena, k); others(); }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dlc_backend_c.body import Body

CASES: Final = 256
"""Of a function: the time that compilers take grows with the square of the calls in one."""


def step_by_step(body: Body, known: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """(functions of some steps each, the statements that run one): by their number `step`.

    Args:
        body: Inputs that are kept are copied before the first step.
        known: Declarations of what the functions get, besides the number.
        name: Of the function that has the statements.
    """
    copies = len(body.operations) - len(body.plan.steps)
    first = [line for lines in body.operations[:copies] for line in lines]
    steps = body.operations[copies:]
    if steps:
        steps = [[*first, *steps[0]], *steps[1:]]
    if len(steps) <= CASES:
        return [], _switch(steps, 0)
    names = [k.rpartition("*")[2] for k in known]
    functions: list[str] = []
    calls: list[list[str]] = []
    for begin in range(0, len(steps), CASES):
        part = f"{name}_{len(calls)}"
        calls.append([f"    {part}({', '.join([*names, 'step'])});"])
        functions += [f"static void {part}({', '.join([*known, 'unsigned step'])})", "{"]
        functions += [*(f"    (void){n};" for n in names), *_switch(steps[begin : begin + CASES], begin), "}", ""]
    return functions, _switch(calls, 0, f"step / {CASES}u")


def _switch(cases: Sequence[Sequence[str]], begin: int, value: str = "step") -> list[str]:
    out = [f"    switch ({value}) {{"]
    for k, lines in enumerate(cases):
        out += [f"    case {begin + k}u:", *(f"    {line}" if line else "" for line in lines), "        break;"]
    return [*out, "    default:", "        break;", "    }"]
