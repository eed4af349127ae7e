"""Where in the user's program something is: errors in a traced function name its line."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, Location, error

_CALLED: Final = tuple(f"{place}/" for place in (Path(__file__).parents[2], Path(np.__file__).parent))
"""The code of dlc and of numpy: what happens there was asked for by the user further out."""
_STANDARD: Final = f"{Path(linecache.__file__).parent}/"
"""Python's own library, and, below a directory of that name, packages that others installed."""


def user_line() -> tuple[Location, str]:
    """The innermost place in the call stack that is none of these, and the text there."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return Location(file, line=line), linecache.getline(file, line, frame.f_globals).rstrip()


def _is_inside(file: str) -> bool:
    standard = file.startswith(_STANDARD) and "site-packages" not in file
    return standard or file.startswith((*_CALLED, "<frozen"))


def refused(code: str, message: str, help: str = "") -> DlcError:
    """What a traced function cannot do, at the line of the user's program that does it."""
    location, text = user_line()
    return error(code, message, location=location, source_line=text, help=help, exit_code=ExitCode.USAGE)


@contextmanager
def at_user_line(what: str) -> Generator[None]:
    """Operands that an op does not take are reported at the line of the user's program that combines them."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as problem:
        raise refused("bad-operands", f"{what}: {problem}") from None
