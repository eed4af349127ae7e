"""Records in files."""

from __future__ import annotations

import json
from pathlib import Path

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.record.json_form import no_record, record_of_json
from dlc.record.record import NAME, Record
from dlc.record.to_json import to_json


def record_text(record: Record) -> str:
    """A record as a file has it; names are escaped as JSON escapes them."""
    return json.dumps(to_json(record), indent=1) + "\n"


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def read_record(path: Path) -> Record:
    """The record in a file, or beside the program in a directory.

    Raises:
        DlcError: (USAGE) there is none, or it is of another version.
    """
    file = path / NAME if path.is_dir() else path
    try:
        data: object = json.loads(file.read_bytes(), parse_constant=_no_number)
    except OSError as problem:
        raise error(
            "no-such-file",
            f"{path} has no record: {file} cannot be read ({problem.strerror})",
            location=Location(str(file)),
            help="write one with: dlc build MODEL --record, or dlc bench MODEL --record FILE.json",
            exit_code=ExitCode.USAGE,
        ) from None
    except (ValueError, RecursionError):
        raise no_record(str(file), "it is no JSON") from None
    return record_of_json(data, str(file))
