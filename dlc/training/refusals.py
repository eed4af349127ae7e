"""What training programs refuse, in words: what was expected and what was found."""

from __future__ import annotations

import math

import numpy as np

from dlc.diagnostics import DlcError, ExitCode, error, quote
from dlc.training.bundle import Classes
from dlc.types import Array


def wrong_labels(labels: Array, classes: Classes) -> Array:
    """Which labels are no classes: bool, of their shape."""
    wrong = (labels < 0) | (labels >= classes.count)
    return np.asarray(wrong if classes.ignore is None else wrong & (labels != classes.ignore))


def bad_label(name: str, labels: Array, classes: Classes) -> DlcError:
    """The first label that is no class."""
    wrong = wrong_labels(labels, classes)
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
    moved = {
        "immediate": "weights have moved all the same",
        "checked": "updates by gradients that are not finite were left out",
    }
    return error(
        "not-finite",
        f"{message}; {moved.get(updates, 'no weight has moved')}",
        help="a smaller learning rate, clip, or other data; restore a checkpoint to go on from",
    )


def no_gradients() -> DlcError:
    """There is no moment at which all gradients are known."""
    return error(
        "no-gradients",
        "all_reduce: each weight of this program is updated as soon as its gradient is known",
        help="build it with --train '...,updates=final'",
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
