"""Options that an executable declares: the texts of a spec as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.driver.exec_backend.protocol import Description, OptionInfo, OptionValue
from dlc.spec.convert import Problem, read

_TYPES: Final[Mapping[str, Any]] = {"integer": int, "number": float, "boolean": bool, "string": str}


def option_values(described: Description, given: Sequence[tuple[str, str]]) -> Mapping[str, OptionValue]:
    """Every option of an executable with its value.

    Raises:
        DlcError: (USAGE) it has no such option, or the option no such value.
    """
    known = {o.name: o for o in described.options}
    found: dict[str, OptionValue] = {o.name: o.default for o in described.options}
    for key, text in given:
        if key not in known:
            raise _bad(f"{described.name} has no option {quote(key)}", did_you_mean(key, known, "options"))
        found[key] = _value(described.name, known[key], text)
    return found


def _value(backend: str, declared: OptionInfo, text: str) -> OptionValue:
    what = f"{backend}: option {declared.name}"
    try:
        value: Any = read(_TYPES[declared.type], text)
    except Problem as problem:
        raise _bad(f"{what}: {problem}", problem.help) from None
    if declared.choices and value not in declared.choices:
        raise _bad(f"{what}: {quote(str(value))} is none of {', '.join(map(quote, declared.choices))}", "")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if declared.low is not None and value < declared.low:
            raise _bad(f"{what}: {value} is below the least value, {declared.low:g}", "")
        if declared.high is not None and value > declared.high:
            raise _bad(f"{what}: {value} is above the greatest value, {declared.high:g}", "")
    return value


def _bad(message: str, help: str) -> DlcError:
    return error("bad-option", message, help=help, exit_code=ExitCode.USAGE)
