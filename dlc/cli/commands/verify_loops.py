"""`dlc build --verify-loops`: what it tells of the kernels, and the error of the first with wrong loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import DlcError, ExitCode, error, escape
from dlc.driver.pipeline import SCHEDULE
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.api.families import Family
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline
    from dlc.verify.loops import CheckedLoops


class LoopVerification:
    """Receives every step of a build, and checks the loops of the kernels once they are scheduled."""

    def __init__(self, pipeline: ResolvedPipeline, tell: Callable[[str], object]) -> None:
        """For the target of this pipeline; `tell` receives what is checked.

        Raises:
            DlcError: (USAGE) the target has no loops to check.
        """
        from dlc.verify.loops import LoopChecker, has_loops

        if not has_loops(pipeline.backend):
            raise error(
                "no-effect",
                f"--verify-loops: target {pipeline.backend.name} has no loops to check",
                help="leave it out, or build for another target",
                exit_code=ExitCode.USAGE,
            )
        self._checker = LoopChecker(pipeline.backend, tell)

    def see(self, step: StepRecord[Any]) -> None:
        """Check the kernels of a program that was scheduled.

        Raises:
            DlcError: (MISMATCH) loops do not do what their kernel says.
        """
        if step.name != SCHEDULE:
            return
        for found in self._checker.see(step.handle.value, step.function):
            if found.findings:
                raise _wrong(found, self._checker.backend.families)

    def lines(self) -> list[str]:
        """What became of the kernels, for people."""
        return [f"verify-loops: the loops of {len(self._checker.checked)} kernels compute what the kernels say"]

    def json(self) -> list[dict[str, Any]]:
        """The same for programs."""
        return [
            {
                "kernel": c.kernel,
                **({"function": c.function} if c.function else {}),
                "nodes": list(c.nodes),
                "schedule": c.schedule,
                "ok": not c.findings,
                "milliseconds": round(c.seconds * 1e3, 1),
            }
            for c in self._checker.checked
        ]


def _wrong(found: CheckedLoops, families: Sequence[Family]) -> DlcError:
    first, *others = found.findings
    names = {spec.name for spec in Spec.parse_pipeline(found.schedule, "schedule")} if found.schedule else set[str]()
    theirs = [f for f in families if f.name in names]
    of = f" ({' '.join(found.nodes)})" if found.nodes else ""
    where = f" of {found.function}" if found.function else ""
    return error(
        "wrong-loops",
        f"the loops of kernel {found.kernel[:16]}{escape(of)}{where} do not compute what the kernel says: {first}",
        notes=[
            *map(str, others),
            *([f"its schedule is {found.schedule}"] if found.schedule else []),
            *(f"{f.name} is a schedule of plugin {f.title}" for f in theirs),
        ],
        help=f"--schedule {found.kernel[:16]}=SCHEDULE sets another schedule; please report the model, or the kernel, "
        f"with the target{' to the authors of the plugin' if theirs else ''}",
        exit_code=ExitCode.MISMATCH,
    )
