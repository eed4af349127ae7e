"""What the command line asks of a `.s2t` file: what it is, and whether it is right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlc.diagnostics import DlcError, Location
from dlc.interfaces import Source
from dlc_backend_s2train.checks import verify
from dlc_backend_s2train.container.reader import read
from dlc_backend_s2train.container.show import show, show_data
from dlc_backend_s2train.program import Program


def describe(source: Source) -> tuple[str, dict[str, Any]]:
    """A file as text and as a JSON object.

    Raises:
        DlcError: "bad-s2t", with the byte and the reason; the file cannot be read.
    """
    program = read(source.view(), source.name)
    return show(program, source.name), {**show_data(program, source.name), "bytes": len(source.view())}


def check(source: Source) -> Program:
    """The program of a file that is right.

    Raises:
        DlcError: as `describe`; or everything that the verifier finds, with the file's name.
    """
    program = read(source.view(), source.name)
    if problems := verify(program):
        raise DlcError(*(replace(problem, location=Location(source.name)) for problem in problems))
    return program
