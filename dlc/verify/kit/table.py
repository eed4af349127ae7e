"""Every check of the kit, and the cases that one plugin makes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from dlc.base.diagnostics import DlcError
from dlc.driver.session import StepFailed
from dlc.verify.kit import (
    allocators,
    backends,
    builds,
    contract,
    frontends,
    import_rules,
    node_tests,
    ops,
    optimizers,
    passes,
    refusals,
    schedules,
    start,
)
from dlc.verify.kit.check import Case, Check, Result, Skipped, Wrong
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.verify.kit.subject import Subject

CHECKS: Final[tuple[Check, ...]] = tuple(
    check
    for module in (
        contract,
        start,
        ops,
        passes,
        schedules,
        optimizers,
        allocators,
        frontends,
        import_rules,
        backends,
        refusals,
        node_tests,
        builds,
    )
    for check in module.CHECKS
)

_NOTES: Final = 4
"""Notes of an error that a result has: a compiler may have said a thousand."""


def cases(subject: Subject, only: Sequence[str] = ()) -> Iterator[Case]:
    """What is asked of a plugin.

    Args:
        subject: The plugin.
        only: Words, of which the name of a check or of what it is asked of has one; () for all.
    """
    for check in CHECKS:
        if check.level > subject.level:
            continue
        for entry in (None,) if check.kind is None else subject.entries(check.kind):
            case = Case(check, entry, subject.plugin.name)
            if not check.concerns(subject, entry):
                continue
            # Of a plugin that cannot be imported, nothing else is known.
            last = check.name == "plugin" and subject.plugin.state != "ok"
            if last or not only or any(word in str(case) for word in only):
                yield case
            if last:
                return


def run(subject: Subject, case: Case) -> Result:
    """What becomes of a case. Whatever a plugin raises is a result."""
    start, help = time.perf_counter(), ""
    try:
        state, text = "ok", case.check.run(subject, case.entry)
    except Wrong as problem:
        state, text, help = "failed", str(problem), problem.help
    except Skipped as problem:
        state, text, help = "skipped", str(problem), problem.help
    except DlcError as problem:
        # The notes have what a tool said, of which the message tells only that it failed.
        said = [n.strip() for d in problem.diagnostics for n in d.notes if n.strip()]
        text = _placed(problem, ": ".join((in_words(problem), *said[:_NOTES])))
        state, help = "failed", problem.diagnostics[0].help
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # a plugin's code may raise anything
        # Of a step that broke, the cause has the place in the plugin.
        cause = problem.__cause__ if isinstance(problem, StepFailed) and problem.__cause__ else problem
        state, text, help = (
            "failed",
            in_words(cause) if cause is problem else f"{problem}: {in_words(cause)}",
            "report errors in models as DlcErrors; mend the line named here",
        )
        text = _placed(problem, text)
    seconds = time.perf_counter() - start
    return Result(case.check.name, case.subject, state, text, help, case.check.level, seconds)  # type: ignore[arg-type]


def _placed(problem: BaseException, text: str) -> str:
    """What is said of an exception, after where it was raised: the graph or the test that was tried."""
    return ": ".join((*map(str, getattr(problem, "__notes__", ())), text))


def level_reached(results: Sequence[Result]) -> int:
    """The level of a port up to which every check of backends holds; 0 where there is none, or the first fails."""
    reached = 0
    for level in sorted({r.level for r in results if r.level}):
        if any(r.state != "ok" for r in results if r.level == level):
            break
        reached = level
    return reached
