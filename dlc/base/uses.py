"""What a step used beside the structure of its input, noted by what gives it: keys hold that, and nothing else.

    with noting() as noted:
        run(step)                       evaluates a value  →  used(NUMPY)
                                        reads a weight     →  used("weight 3")

Outside of `noting` nothing is noted.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

NUMPY: Final = "numpy"
"""Arithmetic whose bits may differ between versions of numpy."""
WEIGHT: Final = "weight"
"""`weight 3`: the elements of the third tensor."""
UNIFORM: Final = "uniform"
"""`uniform 3`: whether the elements of the third tensor are equal, and to what."""

_NOTED: ContextVar[set[str] | None] = ContextVar("noted", default=None)


def used(what: str) -> None:
    """Note a use for the step that is running, if one is."""
    noted = _NOTED.get()
    if noted is not None:
        noted.add(what)


@contextmanager
def noting() -> Generator[set[str]]:
    """Collect what is used inside; what is inside of another one is not noted outside."""
    noted: set[str] = set()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)
