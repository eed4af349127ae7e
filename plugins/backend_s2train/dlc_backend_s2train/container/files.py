"""What the command line asks of a `.s2t` file: what it is, and whether it is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dlc.api.artifact import Description
from dlc.api.source import Source
from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc_backend_s2train.checks.problems import instruction_of
from dlc_backend_s2train.checks.verified import Verified, verified
from dlc_backend_s2train.container.envelope import open_envelope
from dlc_backend_s2train.container.layout import WORD_2
from dlc_backend_s2train.container.reader import read
from dlc_backend_s2train.container.show import show, show_data, summary
from dlc_backend_s2train.defaults import LIMIT


def describe(source: Source) -> Description:
    """A file as text and as a JSON object.

    Raises:
        DlcError: "bad-s2t", with the byte and the reason; the file cannot be read.
    """
    program = read(source.view(), source.name)
    name = source.name
    data = {**show_data(program, name), "bytes": len(source.view())}
    return Description(summary(program, name), show(program, name), data)


def check(source: Source, limit: int = LIMIT) -> Verified:
    """The program of a file that is right, and takes at most `limit` bytes of memory.

    Raises:
        DlcError: as `describe`; or everything that the verifier finds, with the file's name.
    """
    content = source.view()
    program = read(content, source.name)
    try:
        return verified(program, limit)
    except DlcError as refused:
        sections = open_envelope(content, source.name).sections
        begin = {fourcc: span.offset for fourcc, span in sections.items()}
        placed = (replace(p, location=_place(source, begin, p)) for p in refused.diagnostics)
        raise DlcError(*placed, exit_code=refused.exit_code) from None


def _place(source: Source, begin: Mapping[str, int], problem: Diagnostic) -> Location:
    """The frame or the instruction's word, where a message is about one; else the file."""
    if problem.code == "bad-frame" and problem.location is not None:
        return Location(source.name, byte=begin["FRAM"] + problem.location.byte)
    number = instruction_of(problem.message)
    return Location(source.name, byte=-1 if number is None else begin["INS2"] + number * WORD_2)
