"""How one group of nests becomes loops, as a value: a family and its numbers, `tiles{columns=1 vectors=2 rows=14}`.

A family offers candidates for a group on a machine. Each of them can be applied, printed, read again and compared; what
does not apply says why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Buffer, Stmt
from dlc.kernel.schedules.estimate import Estimate, estimate, sizes_of
from dlc.kernel.schedules.groups import Group
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.ranking import Ranking
from dlc.kernel.schedules.scope import Scope
from dlc.kernel.schedules.stages import Stages
from dlc.kernel.schedules.transformed import Transform, Transformed
from dlc.spec import Configurable, option

NONE: Final = ("no",)
"""What an option of names says that wants none."""


@dataclass(frozen=True)
class Place:
    """A group that is to become loops.

    Attributes:
        group: Its nests.
        kernel: The kernel that they belong to.
        machine: What they run on.
        written: Tensors that earlier groups wrote or that were filled.
        number: The group's position in the kernel, for names of buffers.
        scope: The group in flat form; None where it ranks elements.
        ranking: What its nest counts, where it ranks elements.
        transformed: What its nests are, where they transform tiles, multiply them and transform them back.
        transform: What its nest is, where it transforms tiles.
        stages: Its nests, where they are all of a kernel and run block by block.
        over: Results that will lie over what they are computed of, so that no element is computed twice.
    """

    group: Group
    kernel: Kernel
    machine: Machine
    written: frozenset[str]
    number: int
    scope: Scope | None = None
    ranking: Ranking | None = None
    transformed: Transformed | None = None
    transform: Transform | None = None
    stages: Stages | None = None
    over: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Applied:
    """A group as loops.

    Attributes:
        choice: What was applied, with every number that was left open.
        body: Statements.
        buffers: What they work in.
    """

    choice: Choice
    body: tuple[Stmt, ...]
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True, kw_only=True)
class Choice(Configurable, ABC):
    """How a group becomes loops. Subclasses are frozen dataclasses whose fields are options; 0 leaves a number open."""

    parallel: tuple[str, ...] = option((), "loops whose iterations threads share, by their variables; no: none of them")
    past: tuple[str, ...] = option((), "results that are stored past the caches, by their names; no: none of them")

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        """Members of the family that may apply, the one that is expected to be fastest first.

        By default the one that leaves all numbers open.

        Raises:
            Unfit: none does.
        """
        del place
        yield cls()

    def variants(self, place: Place) -> Iterator[Self]:
        """Members with one number changed a little, as tuning measures them; not all of them apply.

        Numbers are declared in the order in which they are decided: what comes after the one that is changed is left
        open again. Loops that threads share, and results that are stored past the caches, are found again, except where
        there are to be none.
        """
        common = [f.name for f in fields(Choice)]
        own = [f for f in fields(self) if f.name not in common]
        found: dict[str, Any] = {name: getattr(self, name) for name in common}
        base = replace(self, **{name: () for name, value in found.items() if value != NONE})
        for k, changed in enumerate(own):
            opened: dict[str, Any] = {f.name: f.default for f in own[k + 1 :]}
            for value in _near(getattr(self, changed.name)):
                yield replace(base, **{**opened, changed.name: value})
        if place.machine.threads > 1 and self.parallel != NONE:
            yield replace(self, parallel=NONE)

    @abstractmethod
    def apply(self, place: Place) -> Applied:
        """The loops.

        Raises:
            Unfit: it does not apply.
        """

    def estimated(self, place: Place) -> tuple[Applied, Estimate]:
        """The loops with what they take. A method, so that what fails in loops of a plugin is known to be the plugin's.

        Raises:
            Unfit: it does not apply.
        """
        found: Any = self.apply(place)
        if not isinstance(found, Applied) or type(found.choice) is not type(self):
            raise TypeError(f"schedule {self.name}: apply must return Applied with a {self.name}, not {found!r}")
        return found, estimate(found.body, sizes_of(place.kernel, found.buffers), place.machine)


_SMALL = 16
"""Up to here every number counts, as rows of a tile; beyond, as of rows of a block, only how many times it is more."""


def _near(value: bool | int) -> tuple[bool | int, ...]:
    """Other values for a number, or for yes or no; of a number that is 0 because it has no meaning here, none."""
    if isinstance(value, bool):
        return (not value,)
    steps = (value - 2, value - 1, value + 1, value + 2) if value <= _SMALL else (value // 4, value * 4)
    return tuple(sorted({n for n in (*steps, value // 2, value * 2) if n > 0})) if value else ()
