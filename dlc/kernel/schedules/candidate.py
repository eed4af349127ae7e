"""Ways in which a group may become loops, and the one of least cycles among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.base.budget import check
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.estimate import Estimate, least_cycles
from dlc.kernel.schedules.unfit import Unfit

MARGIN = 1.1
"""A later candidate is chosen where an earlier one takes more than this many times its cycles: estimates are rough."""
ENOUGH = 2.0
"""No further candidate is tried behind one that takes at most this many times what the arithmetic takes."""


@dataclass(frozen=True)
class Candidate:
    """A way in which a group may become loops.

    Attributes:
        choice: With every number that it leaves open where it applies.
        estimate: Of its loops; None where it does not apply.
        unfit: Why it does not apply; "" where it does.
    """

    choice: Choice
    estimate: Estimate | None = None
    unfit: str = ""


def best(tried: Sequence[tuple[Candidate, Applied | None]]) -> Applied:
    """The loops of the first candidate that no other one is much faster than; one of them applies."""
    fitting = [(applied, c.estimate.cycles) for c, applied in tried if applied is not None and c.estimate is not None]
    least = min(cycles for _, cycles in fitting)
    return next(applied for applied, cycles in fitting if cycles <= MARGIN * least)


def tried(
    place: Place, families: Sequence[type[Choice]], most: float = ENOUGH
) -> Iterator[tuple[Candidate, Applied | None]]:
    """Candidates in order of preference, with the loops of those that apply.

    None is tried behind one that takes at most `most` times what the arithmetic takes.
    """
    least = least_cycles(place.group.nests, place.kernel, place.machine) if families else 0.0
    enough = False
    for choice in choices_of(place, families):
        if isinstance(choice, Candidate):
            yield choice, None
        elif enough:
            yield Candidate(choice, unfit="no way takes much less than one before it"), None
        else:
            candidate, applied = attempt(choice, place)
            yield candidate, applied
            enough = candidate.estimate is not None and candidate.estimate.cycles <= most * least


def attempt(choice: Choice, place: Place) -> tuple[Candidate, Applied | None]:
    """A choice as a candidate, with its loops where it applies."""
    check()  # a kernel may have thousands of nests, and each looks at all tensors
    try:
        applied, takes = choice.estimated(place)
    except Unfit as problem:
        return Candidate(choice, unfit=str(problem)), None
    return Candidate(applied.choice, takes), applied


def choices_of(place: Place, families: Sequence[type[Choice]]) -> Iterator[Choice | Candidate]:
    """What may apply, in order of preference; of a family of which nothing does, why."""
    for family in families:
        try:
            yield from family.candidates(place)
        except Unfit as problem:
            yield Candidate(family(), unfit=str(problem))
