"""Checks of allocators: placements are placements, and what they refute is refuted by brute force too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from dlc.placement import Allocator, Buffer, Instance, check_placement
from dlc.verify.kit.check import Check, Skipped, Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

_DRAWN: Final = 40
_WORK: Final = 10**8
GAPS: Final = (
    ((6, 7, 3), (4, 7, 3), (1, 3, 2), (2, 6, 2), (2, 4, 2), (3, 6, 1), (1, 2, 3), (0, 2, 1)),
    ((0, 2, 3), (6, 7, 2), (2, 4, 2), (1, 4, 1), (4, 7, 3), (3, 5, 3), (1, 3, 2), (0, 1, 3)),
)
"""(birth, death, size) of buffers that need a unit more than the six that are live at once: such are rare."""


def fits(left: Sequence[Buffer], capacity: int, placed: Sequence[tuple[Buffer, int]] = ()) -> bool:
    """Whether buffers fit, by every order of first fit: some order gives each placement that cannot be pushed down."""
    for k, b in enumerate(left):
        offset = 0
        for at, end in sorted((o, o + p.size) for p, o in placed if p.birth < b.death and b.birth < p.death):
            if at >= offset + b.size:
                break
            offset = max(offset, end)
        rest = [*left[:k], *left[k + 1 :]]
        if offset + b.size <= capacity and fits(rest, capacity, [*placed, (b, offset)]):
            return True
    return not left


def _instances(seed: int, count: int) -> Iterator[list[Buffer]]:
    for gap in GAPS:
        yield [Buffer(k, size, birth, death) for k, (birth, death, size) in enumerate(gap)]
    draw = random.Random(seed)
    for _ in range(count):
        births = [draw.randrange(8) for _ in range(draw.randint(1, 6))]
        yield [Buffer(k, draw.randint(1, 5), b, b + draw.randint(1, 5)) for k, b in enumerate(births)]


def _usable(entry: Entry) -> Allocator:
    kind: Any = entry.load()
    if not (isinstance(kind, type) and issubclass(kind, Allocator)):
        raise Wrong(f"{entry.name} is not an Allocator", "derive it from dlc.placement.Allocator")
    if lacks := kind.lacks():
        raise Skipped(f"it cannot be used here: {lacks}")
    return kind()


def _instance(buffers: Sequence[Buffer]) -> Instance:
    most = max(sum(b.size for b in buffers if b.birth <= a.birth < b.death) for a in buffers)
    return Instance(
        tuple(b.birth for b in buffers), tuple(b.death for b in buffers), tuple(b.size for b in buffers), most
    )


def tells_the_truth(subject: Subject, entry: Entry) -> str:
    """That every decision at the bound and above is right."""
    allocator = _usable(entry)
    refuted = 0
    for buffers in _instances(subject.seed, _DRAWN * subject.rounds):
        instance = _instance(buffers)
        for capacity in (instance.most, instance.most + 1):
            found = allocator.decide(instance, capacity, _WORK, None)
            text = f"{[(b.birth, b.death, b.size) for b in buffers]} in {capacity}"
            if found.offsets is None and not found.refuted:
                raise Wrong(f"no answer about {text}", "so few buffers are decided within 10^8 units of work")
            if found.offsets is None and fits(buffers, capacity):
                raise Wrong(f"refuted, although it fits: {text}", "refuted is for what was searched completely")
            if found.offsets is not None and (faults := check_placement(buffers, found.offsets, 1, capacity)):
                raise Wrong(f"{text}: {faults[0]}", "offsets lie in the capacity and share nothing")
            refuted += found.offsets is None
    return f"{_DRAWN * subject.rounds + len(GAPS)} instances, {refuted} refutations"


def repeats(subject: Subject, entry: Entry) -> str:
    """That the same question has the same answer, also where the work is spent before it is decided."""
    allocator = _usable(entry)
    buffers = next(iter(_instances(subject.seed, 0)))
    for work in (1, 50, _WORK):
        first, again = (allocator.decide(_instance(buffers), 6, work, None) for _ in range(2))
        if first != again:
            raise Wrong(f"two answers to one question: {first} and {again}", "count work, not time; draw with a seed")
    return "answers repeat"


CHECKS = (
    Check(
        "allocator-truth",
        "placements are sound and refutations true, against brute force",
        tells_the_truth,
        "allocators",
    ),
    Check("allocator-repeats", "the same question has the same answer", repeats, "allocators"),
)
