"""What training programs refuse, in words: what was expected and what was found."""

from __future__ import annotations

import math

from dlc.base.diagnostics import DlcError, ExitCode, error


def not_finite(loss: float, updates: str) -> DlcError:
    """The loss, or a gradient of a finite one."""
    message = "a gradient is infinite or NaN" if math.isfinite(loss) else f"the loss is {loss}"
    moved = {
        "immediate": "some weights may have changed",
        "checked": "updates with gradients that are not finite were skipped",
    }
    return error(
        "not-finite",
        f"{message}; {moved.get(updates, 'no weight has changed')}",
        help="use a smaller learning rate, clip, or other data, and restore a checkpoint",
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
        "the model cannot be exported: its frontend does not write its format",
        help="build from an ONNX model, or keep the parameters as a checkpoint",
        exit_code=ExitCode.USAGE,
    )
