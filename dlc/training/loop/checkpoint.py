"""The file from which `dlc train --resume` goes on.

    "dlc-train\\n"  u64 length of the header  header as JSON  parts  SHA-256 of all before

The header holds what the run was started with (`identity`), how far it came (`State.json`) and the sizes
of the parts: the program's own checkpoint, and that of the best epoch where it is kept.
Nothing of a file is believed before its SHA-256 was compared, and nothing is changed before all of it was read.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error
from dlc.files.writing import write_whole
from dlc.training.loop.loop import Course, State

if TYPE_CHECKING:
    from dlc.api.training_program import TrainingProgram

SUFFIX: Final = ".ckpt"
"""Of a checkpoint's file."""
_MAGIC: Final = b"dlc-train\n"
_VERSION: Final = 1
_LENGTH: Final = struct.Struct("<Q")
_DIGEST: Final = 32
_PARTS: Final = ("program", "best")
_WORDS: Final = {
    "seed": "--seed",
    "shuffle": "--shuffle",
    "batch": "rows of a batch",
    "rows": "rows",
    "data": "data",
    "validation_rows": "rows of validation data",
    "validation": "validation data",
}
"""Key of an identity → how messages call it."""


@dataclass(frozen=True)
class Checkpoint:
    """A run that can go on."""

    path: Path
    identity: Mapping[str, Any]
    state: State
    parts: Mapping[str, bytes]

    def check(self, course: Course) -> None:
        """Raises DlcError (USAGE) if a course is not the one that was interrupted; how long it is may differ."""
        now = identity(course)
        problems = [
            f"{_WORDS[key]}: {_short(self.identity.get(key))}, now {_short(value)}"
            for key, value in now.items()
            if self.identity.get(key) != value
        ]
        if problems:
            raise error(
                "other-run",
                f"{self.path} belongs to a run with other settings or data",
                location=Location(str(self.path)),
                notes=problems,
                help="use the settings and data of that run, or start a new run without --resume",
                exit_code=ExitCode.USAGE,
            )
        if self.state.step > course.steps_per_epoch:
            raise _bad(self.path, "it is further in its epoch than epochs are long")

    def restore(self, program: TrainingProgram) -> State:
        """Put the program back to where it was; raises DlcError (USAGE), and then nothing has changed."""
        try:
            program.restore(self.parts["program"])
        except DlcError as problem:
            raise _bad(self.path, *_reasons(problem)) from None
        return self.state


def write_checkpoint(
    path: Path, program: TrainingProgram, course: Course, state: State, best: bytes | None = None
) -> None:
    """Write a checkpoint, whole or not at all, be there a power cut. Raises DlcError when it cannot be written."""
    parts = {"program": program.checkpoint()}
    if best is not None:
        parts["best"] = best
    values = {
        "version": _VERSION,
        "identity": identity(course),
        "state": state.json(),
        "parts": {name: len(part) for name, part in parts.items()},
    }
    header = json.dumps(values).encode("ascii")
    content = b"".join([_MAGIC, _LENGTH.pack(len(header)), header, *parts.values()])
    write_whole(path, content + hashlib.sha256(content).digest(), durable=True)


def keep(path: Path, other: Path) -> None:
    """Give a file that is about to be replaced another name. Raises DlcError where it cannot have one."""
    try:
        os.link(path, other)  # so that there is a checkpoint at every moment
    except OSError:
        try:
            path.replace(other)
        except OSError as problem:
            raise error(
                "cannot-write",
                f"{path} cannot be kept as {other}: {problem.strerror or problem}",
                help="name another checkpoint with --checkpoint",
            ) from None


def is_checkpoint(content: bytes | memoryview) -> bool:
    """Whether a file's content begins as a checkpoint does, whatever the file is called."""
    return bytes(content[: len(_MAGIC)]) == _MAGIC


def checkpoint_bytes(path: Path) -> bytes:
    """The content of a checkpoint's file. Raises DlcError (USAGE) if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise _bad(path, problem.strerror or str(problem)) from None


def read_checkpoint(path: Path, read: bytes | None = None) -> Checkpoint:
    """What `write_checkpoint` wrote, or `read` of the file before; raises DlcError (USAGE) for anything else."""
    content = memoryview(checkpoint_bytes(path) if read is None else read)
    if not is_checkpoint(content):
        raise _bad(path, "it is not a checkpoint of dlc train")
    body = content[:-_DIGEST]
    if len(content) < len(_MAGIC) + _LENGTH.size + _DIGEST or hashlib.sha256(body).digest() != bytes(
        content[-_DIGEST:]
    ):
        raise _bad(path, "it is damaged: its content does not have the SHA-256 at its end")
    try:
        return _parsed(path, body)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise _bad(path, f"its header makes no sense: {problem}") from None


def _parsed(path: Path, body: memoryview) -> Checkpoint:
    at = len(_MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack(body[len(_MAGIC) : at])
    if length > len(body) - at:
        raise ValueError("it is longer than the file")
    header: dict[str, Any] = json.loads(bytes(body[at : at + length]))
    if header["version"] != _VERSION:
        raise _bad(path, f"it has version {header['version']}; this dlc reads version {_VERSION}")
    at += length
    parts: dict[str, bytes] = {}
    for name, size in header["parts"].items():
        if name not in _PARTS or not 0 <= size <= len(body) - at:
            raise ValueError("its parts are not in the file")
        parts[name] = bytes(body[at : at + size])
        at += size
    if at != len(body) or "program" not in parts:
        raise ValueError("its parts are not what the file holds")
    return Checkpoint(path, dict(header["identity"]), State.of(header["state"]), parts)


def identity(course: Course) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    judged = course.validation
    return {
        "seed": course.seed,
        "shuffle": course.shuffle,
        "batch": course.size,
        "rows": course.data.rows,
        "data": course.data.digest,
        "validation_rows": judged.rows if judged else 0,
        "validation": judged.digest if judged else "",
    }


def _short(value: Any) -> str:
    return value[:12] or "none" if isinstance(value, str) else str(value)


def _reasons(problem: DlcError) -> tuple[str, ...]:
    return tuple(d.message for d in problem.diagnostics)


def _bad(path: Path, reason: str, *notes: str) -> DlcError:
    warning = Diagnostic(
        "bad-checkpoint",
        f"{path} cannot be resumed from: {reason}",
        location=Location(str(path)),
        notes=notes,
        help="start a new run without --resume, or name another file with --checkpoint; the file stays as it is",
    )
    return DlcError(warning, exit_code=ExitCode.USAGE)
