"""Why a schedule does not apply to a kernel on a machine."""

from __future__ import annotations


class Unfit(Exception):
    """A schedule does not apply to some nests on a machine; the message says why, as the end of `X, because …`."""
