"""Schedules as text: one choice for each group of nests, `tiles{columns=1 vectors=2 rows=14 block=56},loops`."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.base.diagnostics import did_you_mean
from dlc.kernel.schedules.choice import Choice
from dlc.kernel.schedules.schedule import ALL_FAMILIES
from dlc.spec import Spec, fault


def print_choices(choices: Sequence[Choice]) -> str:
    """The text of a schedule; what is as by default is left out."""
    return ",".join(c.brief for c in choices)


def parse_choices(text: str, source: str = "schedule", families: Sequence[type[Choice]] = ()) -> tuple[Choice, ...]:
    """The inverse of `print_choices`; `families`: those that there are beside `ALL_FAMILIES`.

    Raises:
        DlcError: (USAGE) syntax, an unknown family or option, with a caret under it.
    """
    known = {family.name: family for family in (*ALL_FAMILIES, *families)}
    found: list[Choice] = []
    for spec in Spec.parse_pipeline(text, source):
        if spec.name not in known:
            help = did_you_mean(spec.name, known, "schedules")
            raise fault("unknown-schedule", f"there is no schedule {spec.name}", spec.span, help)
        found.append(known[spec.name].from_spec(spec))
    return tuple(found)
