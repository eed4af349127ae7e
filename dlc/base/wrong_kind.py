"""The error about an argument of the wrong kind, for functions that Python code calls."""

from __future__ import annotations

from typing import Final

from dlc.base.diagnostics import DlcError, ExitCode, error

_SHOWN: Final = 40
"""Characters of the longest value that a message shows."""


def wrong_kind(name: str, value: object, what: str, help: str) -> DlcError:
    """The error about an argument, which takes `what`, and not the value."""
    return error("wrong-argument", f"{name} is {what}, not {described(value)}", help=help, exit_code=ExitCode.USAGE)


def described(value: object) -> str:
    """A value as messages call it: short ones of Python's own types themselves, of others the type."""
    text = repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    own = value is None or type(value) in (bool, int, float, str, bytes, list, tuple, dict)
    return text if own and len(text) <= _SHOWN else f"an object of type {type(value).__name__}"
