"""What a training program refuses, in words: what was expected and what was found."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dlc import ExitCode
from dlc.diagnostics import DlcError, error, quote
from dlc.training.bundle import Classes
from dlc.types import Array
from dlc_backend_c.checkpoint import HEADER, MAGIC, VERSION


def bad_label(name: str, labels: Array, classes: Classes) -> DlcError:
    """The first label that is no class."""
    wrong = (labels < 0) | (labels >= classes.count)
    if classes.ignore is not None:
        wrong &= labels != classes.ignore
    at = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong)), labels.shape))
    besides = "" if classes.ignore is None else f", or {classes.ignore} for what does not count"
    return error(
        "bad-label",
        f"{quote(name)}: {labels[at]} at [{','.join(map(str, at))}] is no label: labels are 0 to "
        f"{classes.count - 1}{besides}",
        help="number classes from 0; nothing has changed",
        exit_code=ExitCode.USAGE,
    )


def not_finite(loss: float, updates: str) -> DlcError:
    """The loss, or a gradient of a finite one."""
    message = "a gradient is infinite or NaN" if math.isfinite(loss) else f"the loss is {loss}"
    moved = "weights have moved all the same" if updates == "immediate" else "no weight has moved"
    return error(
        "not-finite",
        f"{message}; {moved}",
        help="a smaller learning rate, clip, or other data; restore a checkpoint to go on from",
    )


def bad_checkpoint(given: bytes, own: bytes) -> DlcError:
    """What is wrong with a checkpoint, compared with one of the program itself."""
    return _unread(_reason(given, own))


def no_checkpoint(kind: str) -> DlcError:
    """A checkpoint is bytes; `kind` names the type of what was given instead."""
    return _unread(f"it is no bytes in one piece, but of type {kind}")


def _unread(reason: str) -> DlcError:
    return error(
        "bad-checkpoint",
        f"the checkpoint cannot be read: {reason}",
        help="give what `checkpoint` gave for this very program; nothing has changed",
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


def no_gradients() -> DlcError:
    """There is no moment at which all gradients are known."""
    return error(
        "no-gradients",
        "all_reduce: each weight of this program is updated as soon as its gradient is known",
        help="build it with --train '...,updates=final'",
        exit_code=ExitCode.USAGE,
    )


def mixed_gradients(types: Iterable[np.dtype[Any]]) -> DlcError:
    """No flat array holds all gradients."""
    return error(
        "mixed-gradients",
        f"all_reduce: gradients have several types: {', '.join(sorted(map(str, types)))}",
        help="use gradients() between steps of several programs, or a model whose weights have one type",
        exit_code=ExitCode.USAGE,
    )


def no_template() -> DlcError:
    """The format of the model can only be read."""
    return error(
        "cannot-write",
        "the model cannot be written back: its frontend only reads its format",
        help="build from an ONNX model, or keep the parameters as a checkpoint",
        exit_code=ExitCode.USAGE,
    )
