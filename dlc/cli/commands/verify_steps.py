"""`dlc build --verify-steps`: what it tells of the steps, and the error of the first that changes a value.

Plans are held against their graphs first (`dlc.verify.plan_check`), which also sees what running them does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dlc.base.diagnostics import DlcError, ExitCode, error, escape, quote
from dlc.cli.terminal import json_number

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline
    from dlc.verify.steps import Checked

_FAULTS: Final = 5
"""Faults of a plan that an error tells."""


class StepVerification:
    """Receives every step of a build, and compares its state with the one before on random inputs."""

    def __init__(self, pipeline: ResolvedPipeline, tell: Callable[[str], object]) -> None:
        """Of this pipeline's steps; `tell` receives what is evaluated."""
        from dlc.verify.steps import StepChecker

        self._checker = StepChecker(tell=tell)
        self._steps = {step.name: step for step in pipeline.whole}
        self.checked: list[Checked] = []
        self._plans = 0
        self._by_bytes = 0
        """Plans too large for their elements to be looked at."""

    def see(self, step: StepRecord[Any]) -> None:
        """Compare what a step gave, and check the plan that it may be.

        Raises:
            DlcError: (MISMATCH) a plan is wrong; an output is no longer what it was.
        """
        if step.handle.kind == "artifact":
            return
        from dlc.api.plan import Plan
        from dlc.verify.plan_check import check_plan
        from dlc.verify.plan_elements import is_too_large

        state = step.handle.value
        if isinstance(state, Plan):
            self._plans += 1
            if faults := check_plan(state):
                raise self._wrong(step, faults)
            self._by_bytes += sum(map(is_too_large, state.plans))
        known = self._steps.get(step.name)
        other = known is not None and known.stage.computes_other
        found = self._checker.see(step.spec, step.function, state, other)
        if found is None:
            return
        self.checked.append(found)
        if found.verdict == "changed":
            raise self._changed(found, step.name)

    def lines(self) -> list[str]:
        """What became of the steps, for people."""
        skipped = [c for c in self.checked if c.verdict == "skipped"]
        same = len(self.checked) - len(skipped)
        plans = f"; {self._plans} plans are right" if self._plans else ""
        lines = [f"verify-steps: {same} passes preserve the values, {len(skipped)} not compared{plans}"]
        if self._by_bytes:
            are = "is" if self._by_bytes == 1 else "are"
            lines.append(f"  {self._by_bytes} of the plans {are} too large to look at each element of concatenations")
        why: dict[tuple[str, str], list[str]] = {}
        for c in self.checked:
            if c.reason:
                why.setdefault((_name(c.step), c.reason), []).append(c.function)
        for (name, reason), functions in why.items():
            of = f" of {', '.join(functions)}" if any(functions) else ""
            lines.append(f"  {name}{of}: {escape(reason)}")
        return lines

    def json(self) -> list[dict[str, Any]]:
        """The same for programs."""
        return [
            {
                "step": c.step,
                **({"function": c.function} if c.function else {}),
                "verdict": c.verdict,
                "reason": c.reason,
                "outputs": [
                    {"name": o.name, "ok": o.ok, "max_abs": json_number(o.max_abs), "max_rel": json_number(o.max_rel)}
                    for o in c.outputs
                ],
            }
            for c in self.checked
        ]

    def _wrong(self, step: StepRecord[Any], faults: Sequence[str]) -> DlcError:
        more = [f"{len(faults) - _FAULTS} more"] if len(faults) > _FAULTS else []
        return error(
            "wrong-plan",
            f"{_title(step.spec, step.function)} gives a plan that is wrong: {escape(faults[0])}",
            notes=[*self._whose(step.name), *map(escape, faults[1:_FAULTS]), *more],
            help=f"--dump-ir {step.name} writes the plan; dlc plan --html draws the places of its values",
            exit_code=ExitCode.MISMATCH,
        )

    def _whose(self, name: str) -> list[str]:
        step = self._steps.get(name)
        return [] if step is None or step.package == "dlc" else [f"{name} is a pass of plugin {step.plugin}"]

    def _changed(self, found: Checked, name: str) -> DlcError:
        notes = self._whose(name)
        wrong = [o for o in found.outputs if not o.ok]
        if not wrong:
            message = f"{_title(found.step, found.function)} gives a graph that cannot be evaluated: {found.reason}"
        else:
            first, (before, after) = wrong[0], found.worst
            place = f"[{','.join(map(str, first.worst))}]"
            message = (
                f"{_title(found.step, found.function)} changes output {quote(first.name)}: "
                f"{before} at {place} becomes {after}, "
                f"{first.wrong:,} of {first.size:,} elements are beyond {first.tolerance}"
            )
            notes += [f"output {quote(o.name)}: {o.wrong:,} of {o.size:,}, at most {o.max_abs:.3g}" for o in wrong[1:]]
        return error(
            "step-changed-values",
            message,
            notes=notes,
            help=f"--dump-ir {name} writes its result, --without {name} builds without it if that is possible",
            exit_code=ExitCode.MISMATCH,
        )


def _name(step: str) -> str:
    return escape(step.partition("{")[0])


def _title(step: str, function: str) -> str:
    return f"{_name(step)} of {function}" if function else _name(step)
