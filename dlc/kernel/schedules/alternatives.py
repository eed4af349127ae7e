"""What else a kernel's schedule may be: candidates for those who measure, the most promising first.

An estimate is rough: a schedule that it thinks a little slower may be the fastest on a processor. So each way is worth
a try, and each number of the best ones a little more or less than it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.candidate import Candidate
from dlc.kernel.schedules.choice import Choice, Place
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import attempted, candidates_of, groups_of, scheduled

HOPELESS = 4.0
"""Times the cycles of the one that is chosen: what is estimated to take more is not worth a measurement."""
VARIED = 1
"""Ways beside the one that is chosen whose numbers are varied: the loops of each variant are made to be estimated."""


@dataclass(frozen=True)
class Alternative:
    """A schedule of a kernel.

    Attributes:
        choices: One for each group of nests, with every number.
        cycles: As estimated, of all groups.
    """

    choices: tuple[Choice, ...]
    cycles: float


def alternatives(
    kernel: Kernel, machine: Machine, most: int, seed: int = 0, families: Sequence[type[Choice]] = ()
) -> tuple[Alternative, ...]:
    """Schedules of a kernel, at most so many: first the one that is chosen, then other ways, then other numbers.

    Each differs from the first one in one group, or in whether nests that share rows run together by blocks. Of ways
    and of numbers those of least cycles come first; the seed decides between equals. `families` are those of plugins.
    """
    found = scheduled(kernel, machine, families=families)
    chosen = [_of(choice, tried) for choice, tried in zip(found.choices, found.considered, strict=True)]
    whole = sum(map(_cycles, chosen))
    first = Alternative(found.choices, whole)
    if most == 1:
        return (first,)
    other = found.other
    ways = [Alternative(other.choices, other.cycles)] if other and other.cycles <= HOPELESS * whole else []
    numbers: list[Alternative] = []
    for k, (place, own) in enumerate(zip(groups_of(kernel, machine, found.choices), chosen, strict=True)):

        def instead(c: Candidate, k: int = k, own: Candidate = own) -> Alternative:
            choices = (*found.choices[:k], c.choice, *found.choices[k + 1 :])
            return Alternative(choices, whole - _cycles(own) + _cycles(c))

        others = sorted(_worth(candidates_of(place, families), own), key=_cycles)
        ways += map(instead, others)
        bases = (own, *[c for c in others if c.choice != own.choice][:VARIED])
        numbers += map(instead, _worth(_varied(bases, place), own))
    rng = random.Random(seed)
    order = [*_sorted(ways, rng), *_sorted(numbers, rng)]
    return tuple({a.choices: a for a in (first, *order)}.values())[:most]


def _of(choice: Choice, tried: Sequence[Candidate]) -> Candidate:
    """The candidate that was chosen."""
    return next(c for c in tried if c.choice == choice and c.estimate is not None)


def _cycles(candidate: Candidate) -> float:
    assert candidate.estimate is not None
    return candidate.estimate.cycles


def _worth(candidates: Iterator[Candidate], own: Candidate) -> Iterator[Candidate]:
    return (c for c in candidates if _cycles(c) <= HOPELESS * _cycles(own))


def _varied(bases: Sequence[Candidate], place: Place) -> Iterator[Candidate]:
    """Each variant once, however many bases it is one of."""
    tried = dict.fromkeys(v for base in bases for v in base.choice.variants(place))
    for variant in tried:
        yield from attempted(variant, place)


def _sorted(found: list[Alternative], rng: random.Random) -> list[Alternative]:
    """By cycles, equals in any order."""
    rng.shuffle(found)
    return sorted(found, key=lambda a: a.cycles)
