"""`--min-offload`: how much of a model the target itself has to compute, where it may leave ops to a host.

    95           at least 95 % of the ops, and at least 95 % of the multiply-adds
    macs=99.5%   at least 99.5 % of the multiply-adds, any part of the ops

Ops are nodes of the model, without those that compute nothing; multiply-adds are those of convolutions and matrix
products. A model without any has all of them on the target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc.api.backend import Backend
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.config.config import Pipeline
from dlc.spec import Spec

FLAG: Final = "--min-offload"
_KEYS: Final = ("ops", "macs")
_WHOLE: Final = 100.0


def demanded(text: str) -> dict[str, float]:
    """The least percentages of "ops" and "macs" that the flag's text asks for; those not named are left out.

    Raises:
        DlcError: (USAGE) it is no such text.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        key, equals, number = part.rpartition("=")
        key = key.strip()
        try:
            percent = float(number.strip().removesuffix("%"))
        except ValueError:
            raise _bad(text, f"{number.strip() or 'nothing'} is not a number") from None
        if not 0 <= percent <= _WHOLE:
            raise _bad(text, f"{percent:g} is not between 0 and 100")
        if equals and key not in _KEYS:
            raise _bad(text, f"there is no {key}")
        keys = (key,) if equals else _KEYS
        if found.keys() & set(keys):
            raise _bad(text, f"{keys[0]} is given twice")
        found |= dict.fromkeys(keys, percent)
    return found


@dataclass(frozen=True)
class Demands:
    """What the flag asks for, as options of the pass that leaves ops to the host."""

    step: str
    """The pass."""
    options: Mapping[str, str]

    def applied(self, spec: Spec) -> Spec:
        """A pass of the pipeline, with the options if it is that one."""
        if spec.name == self.step:
            for key, value in self.options.items():
                spec = spec.with_option(key, value)
        return spec


def offload_options(text: str, backend: Backend, pipeline: Pipeline) -> Demands:
    """The flag's text for a backend and its pipeline.

    Raises:
        DlcError: (USAGE) as `demanded`; the target has no host, or the pipeline no such pass.
    """
    options = {f"min-{key}": f"{percent:g}" for key, percent in demanded(text).items()}
    if not backend.offloads:
        message = f"{FLAG}: the target {backend.name} leaves no ops to a host"
        raise error("no-effect", message, help="leave it out", exit_code=ExitCode.USAGE)
    if all(spec.name != backend.offloads for spec in pipeline):
        message = f"{FLAG}: the pipeline has no pass {backend.offloads}, which decides what the host computes"
        raise error("no-effect", message, help="leave it out, or -p", exit_code=ExitCode.USAGE)
    return Demands(backend.offloads, options)


def _bad(text: str, reason: str) -> DlcError:
    return error(
        "bad-option",
        f"{FLAG} {text}: {reason}",
        help="a percentage of ops and of multiply-adds, as 95%; or of each, as ops=80%,macs=99%",
        exit_code=ExitCode.USAGE,
    )
