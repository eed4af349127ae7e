"""Flags that set options of the backend: what code is for, how it computes, how kernels become loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlc.api.backend import Backend
from dlc.base.diagnostics import ExitCode, error
from dlc.spec import Spec, Value

OPTION = "schedule"
"""The option of a backend that takes `(kernel, schedule)`."""
FLAG = "--schedule"
SINGLE: Mapping[str, str] = {
    "machine": "takes no description of a machine",
    "math": "computes in one way only",
    "tune": "has no schedules that could be measured",
}
"""Options of a backend that a flag of the same name sets → what is the case for backends that have none."""


def with_options(spec: Spec, given: Mapping[str, str], backend: type[Backend]) -> Spec:
    """The spec of a backend with those of the options `SINGLE` that are given, not empty.

    Raises:
        DlcError: (USAGE) the backend has no such option.
    """
    for option, value in given.items():
        if value:
            _check(option, backend, f"--{option}: {spec.name} {SINGLE[option]}")
            spec = _with(spec, option, value)
    return spec


def with_schedules(spec: Spec, given: Sequence[str], backend: type[Backend]) -> Spec:
    """The spec of a backend with the schedules of `KERNEL=SCHEDULE` texts, after those that it has.

    Raises:
        DlcError: (USAGE) a text has another form, or the backend lets nobody choose.
    """
    if not given:
        return spec
    _check(OPTION, backend, f"{FLAG}: {spec.name} has no schedules to choose from")
    pairs: list[str] = []
    for text in given:
        kernel, equals, schedule = text.partition("=")
        if not equals or not kernel.strip() or not schedule.strip():
            raise error(
                "bad-option",
                f"{FLAG}: {text!r} is not of the form KERNEL=SCHEDULE",
                help="such as --schedule 392454940dcc27dc='tiles{columns=2 vectors=1 rows=8}'; "
                "--explain schedule-kernels lists kernels with their schedules",
                exit_code=ExitCode.USAGE,
            )
        pairs.append(f"{kernel.strip()}:{schedule.strip()}")
    old = spec.get(OPTION)
    before = () if old is None else old if isinstance(old, tuple) else (old,)
    return _with(spec, OPTION, (*pairs, *before))  # the flag is found before what the target says


def _check(option: str, backend: type[Backend], message: str) -> None:
    """Raise DlcError (USAGE) where a backend has no such option."""
    if option not in {doc.key for doc in backend.options_doc()}:
        raise error("no-effect", message, exit_code=ExitCode.USAGE)


def _with(spec: Spec, option: str, value: Value) -> Spec:
    """The spec with an option set, whatever it was."""
    others = tuple((k, v) for k, v in spec.options if k != option)
    return replace(spec, options=(*others, (option, value)), spans=())
