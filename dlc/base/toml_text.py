"""TOML as a table, whatever a file holds: the standard parser recurses, and a file may nest as deep as it is long."""

from __future__ import annotations

import tomllib
from typing import Any, Final

BadToml: Final = tomllib.TOMLDecodeError
"""What is wrong with a text; the message ends in its place."""


def read_toml(text: str) -> dict[str, Any]:
    """The table of a text. Raises BadToml."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise BadToml("lists or tables nest too deeply") from None
