"""Memory as the published compiler counts it, placed by our planner: what compact masks and our order save.

There every tensor is fp16: masks of relu have 16 bits for each element, those of a pool are as large as what it reads.
A tensor lives from the first operator that touches it to behind the last one; weights and norms lie elsewhere, the
input is planned with the rest, and nothing takes the place of what it is made of. Gradients of weights are stored.
Source: memory planner of the public S2Train compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.placement import Buffer, Placement, Strategy, check_placement, place
from dlc_backend_s2train.codes import Role
from dlc_backend_s2train.legacy.order import Operator, Value, breadth_first, operators_of
from dlc_backend_s2train.program import Program

_ELSEWHERE = frozenset((Role.WEIGHT, Role.NORM, Role.STATE, Role.LABEL, Role.LOSS))
"""What the published plans leave out: weights lie in front of the plan, the others are not there."""
_KINDS = {Role.FEATURE_GRADIENT: "FEATURE_GRAD", Role.WEIGHT_GRADIENT: "WEIGHT_GRAD"}
_BYTES = 2
"""Of an element."""


@dataclass(frozen=True)
class Life:
    """A tensor of a published plan: its kind, its bytes, and the operators from `begin` to before `end`."""

    kind: str
    begin: int
    end: int
    size: int


def legacy_plan(lives: Sequence[Life], strategy: Strategy = "greedy") -> Placement:
    """Places for all but weights, without alignment as there; `greedy` is first fit, the largest first.

    Raises:
        ValueError: a negative size, or an empty lifetime.
    """
    planned = [life for life in lives if life.kind != "WEIGHT"]
    buffers = [Buffer(number, life.size, life.begin, life.end) for number, life in enumerate(planned)]
    found = place(buffers, align=1, strategy=strategy)
    wrong = check_placement(buffers, found.offsets, 1)
    assert not wrong, wrong
    return found


def lives_of(operators: Sequence[Operator], order: Iterable[int]) -> list[Life]:
    """The tensors of operators that run in this order, as the published compiler would have them, by first use."""
    found: dict[Value, Life] = {}
    for at, number in enumerate(order):
        for value, (role, elements) in operators[number].touches.items():
            if role not in _ELSEWHERE:
                size = _BYTES * elements
                life = found.get(value) or Life(_KINDS.get(role, "ACTIVATION"), at, at, size)
                found[value] = Life(life.kind, life.begin, at + 1, max(life.size, size))
    return list(found.values())


def lives_from(rows: Iterable[Sequence[object]]) -> list[Life]:
    """Rows of (kind, begin, end, bytes)."""
    return [Life(str(kind), *(int(str(number)) for number in numbers)) for kind, *numbers in rows]


def published_facts(program: Program) -> dict[str, int | str]:
    """A program's training step, or else its first entry, as the published compiler counts it, in bytes.

    `published_peak` is the extent of the plan, `published_bound` the most bytes that live at once in that order.
    """
    entry = next((e for e in program.entries if e.name == "step"), program.entries[0])
    operators = operators_of(program, entry.begin, entry.end)
    found = legacy_plan(lives_of(operators, breadth_first(operators)))
    facts = {"published_peak": found.arena, "published_bound": found.bound, "published_operators": len(operators)}
    return {"published_of": entry.name, **facts}
