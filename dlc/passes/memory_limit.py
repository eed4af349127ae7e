"""The error for an arena that is larger than a limit."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.placement import Placement


def beyond_limit(
    found: Placement, limit: int, *, given: str, at_peak: Iterable[str], smaller: str, search: str
) -> DlcError:
    """What is known of smaller arenas, and who is live at the peak.

    Args:
        found: The placement, with a larger arena.
        limit: Bytes.
        given: Of what that holds which is proven, as "in this order of operations".
        at_peak: Notes about the peak.
        smaller: Help where the limit is proven impossible.
        search: Help where it is not.
    """
    impossible = found.floor > limit
    proof = f"no offsets {given} take less"
    if not found.proven:
        proof = f"every arena below {found.floor} bytes is proven impossible {given}"
    return error(
        "memory-limit",
        f"the arena takes {found.arena} bytes, {found.arena - limit} more than the limit of {limit}",
        notes=(
            f"{proof}, so the limit {'cannot be met' if impossible else 'may be possible: it is not disproved'}",
            *at_peak,
        ),
        help=smaller if impossible else search,
        exit_code=ExitCode.LIMIT,
    )
