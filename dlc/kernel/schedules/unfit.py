"""Why a schedule does not apply to a kernel on a machine."""

from __future__ import annotations

from collections.abc import Iterable


class Unfit(Exception):
    """A schedule does not apply to some nests on a machine; the message says why, as the end of `X, because …`."""


def require(conditions: Iterable[tuple[bool, str]]) -> None:
    """Raise Unfit with the reason of the first condition that does not hold."""
    for holds, why in conditions:
        if not holds:
            raise Unfit(why)
