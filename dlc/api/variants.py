"""`Variants`: a program for a range of sizes, and plans for single sizes that calls of these sizes take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dlc.api.plan import Plan


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as users write them: `batch=1,seq=128`."""
    return ",".join(f"{name}={size}" for name, size in sizes.items())


@dataclass(frozen=True)
class Variant:
    """The plan of a program for one size of each of some symbols; other symbols stay open."""

    sizes: Mapping[str, int]
    plan: Plan

    @property
    def title(self) -> str:
        """`batch=1,seq=128`."""
        return sizes_text(self.sizes)


@dataclass(frozen=True, eq=False)
class Variants:
    """A program with fast paths as a backend gets it.

    Variants compute the same of the same model: their inputs and outputs are those of the general plan by name, without
    the sizes that are numbers in them.
    """

    kind: ClassVar[str] = "variants"
    general: Plan
    variants: tuple[Variant, ...]
    """In the order in which a call looks for its sizes."""

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The general one, then those of the variants."""
        return (self.general, *(v.plan for v in self.variants))
