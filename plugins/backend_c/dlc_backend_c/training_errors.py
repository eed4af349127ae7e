"""What a training program refuses, in words: what was expected and what was found."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dlc import ExitCode
from dlc.base.diagnostics import DlcError, error
from dlc_backend_c.checkpoint import HEADER, MAGIC, VERSION


def bad_checkpoint(given: bytes, own: bytes) -> DlcError:
    """What is wrong with a checkpoint, compared with one of the program itself."""
    return _unread(_reason(given, own))


def no_checkpoint(kind: str) -> DlcError:
    """A checkpoint is bytes; `kind` names the type of what was given instead."""
    return _unread(f"it is not contiguous bytes, but of type {kind}")


def _unread(reason: str) -> DlcError:
    return error(
        "bad-checkpoint",
        f"the checkpoint cannot be read: {reason}",
        help="pass what `checkpoint` returned for the same program; nothing has changed",
        exit_code=ExitCode.USAGE,
    )


def _reason(given: bytes, own: bytes) -> str:
    if given[: len(MAGIC)] != MAGIC:
        return "it is none"
    if len(given) < HEADER:
        return f"it ends after {len(given)} bytes"
    version, crc, size = struct.unpack_from("<IIQ", given, len(MAGIC))
    if version != VERSION:
        return f"it has version {version}, not {VERSION}"
    if given[24:HEADER] != own[24:HEADER]:
        return "it is of another program"
    if size != len(given) or size != len(own):
        return f"it has {len(given)} bytes, not {len(own)}"
    assert crc != zlib.crc32(given[HEADER:])
    return "it is damaged: its checksum is another"


def mixed_gradients(types: Iterable[np.dtype[Any]]) -> DlcError:
    """No flat array holds all gradients."""
    return error(
        "mixed-gradients",
        f"all_reduce: gradients have several types: {', '.join(sorted(map(str, types)))}",
        help="use gradients() between steps of several programs, or a model whose weights have one type",
        exit_code=ExitCode.USAGE,
    )
