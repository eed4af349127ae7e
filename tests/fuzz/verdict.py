"""What becomes of a case, and how refusals and differences are told."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode
from tests.fuzz.model import Array
from tests.fuzz.oracle import Opinion
from tests.fuzz.rounding import Spread, of_another_type, wrong

FAULTS: Final = (ExitCode.BUG, ExitCode.TOOL)
"""Exit codes that no valid model may end in."""
UNCLEAR: Final = re.compile(r"unsupported operand type|object (is not|has no|cannot)|(positional|keyword) argument")
"""What Python says of a mistake in a program: no message of dlc has that for a user."""
GENERIC: Final = ("op.py", "define.py", "functools.py", "expr.py")
"""Files whose functions say nothing about who made a mistake."""


@dataclass(frozen=True)
class Verdict:
    """What became of one case."""

    seed: int
    what: Literal["same", "refused", "fault"]
    kind: str = ""
    """Of a fault or refusal: equal for what is likely one cause. Of what is the same: the rule that explains a
    difference."""
    detail: str = ""
    oracle: Opinion | None = None
    compared: int = 0
    """Elements that the reference decides."""
    undecided: int = 0
    judge: str = ""
    """Who settled it before the reference was asked for every rounding."""


def refused(seed: int, refusal: DlcError) -> Verdict:
    """A refusal; a fault where its exit code or its words say so."""
    found = refusal.diagnostics[0]
    bad = refusal.exit_code in FAULTS or UNCLEAR.search(found.message)
    kind = f"exit {int(refusal.exit_code)}: {general(found.message)}"
    return Verdict(seed, "fault" if bad else "refused", kind, found.message)


def broken(seed: int, bug: BaseException) -> Verdict:
    """What the command line calls a bug."""
    cause = bug.__cause__ or bug
    return Verdict(seed, "fault", f"exit 70: {place_of(cause)}", "".join(traceback.format_exception(cause)[-4:]))


def place_of(problem: BaseException) -> str:
    """Class of an exception and the innermost function of dlc that it passed."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [f for f in frames if "dlc" in f.filename and not f.filename.endswith(GENERIC) and f.name[0] != "<"]
    frames = own or frames
    at = frames[-1]
    return f"{type(problem).__name__} in {Path(at.filename).name}, {at.name}"


def general(message: str) -> str:
    """A message without names, numbers and types of one model."""
    text = message.splitlines()[0]
    return re.sub(r"\b[a-z]+\d+\[[^\]]*\]|\[[^\]]*\]|\b[vxcy]\d+\b|\d+|'[^']*'", "#", text)[:120]


def described(name: str, got: Array, want: Spread) -> str:
    """The first element that rounding does not explain."""
    if of_another_type(got, want.value):
        return f"{name} is {got.dtype}{list(got.shape)}, not {want.value.dtype}{list(want.value.shape)}"
    bad = wrong(got, want)
    if not bad.any():
        return f"{name}: nothing beyond {want.most.max():.3g}"
    at = tuple(int(k) for k in np.argwhere(bad)[0])
    spread = f"{want.most[at]:.3g}"
    return f"{name}{list(at)} is {got[at]}, not {want.value[at]} (spread {spread}); {bad.sum()} of {bad.size} elements"
