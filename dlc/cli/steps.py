"""Text on the steps of a build: the table, the explanation of one step, dumps of what each gave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape
from dlc.cli.terminal import columns, terminal_width
from dlc.record.passes import Pass, pass_of
from dlc.record.to_json import to_json

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord
    from dlc.driver.pipeline import ResolvedPipeline

Steps = Sequence["StepRecord[Any]"]
_SPEC = 30
"""Characters of a step's name and options that the table shows; `--print-pipeline` shows them all."""


def step_table(steps: Steps) -> str:
    """Step, milliseconds, hit or miss, nodes, and a note; in front the function of a training program."""
    passes = [pass_of(step) for step in steps]
    rows = [("pass", "ms", "cache", "nodes", "note")]
    before: int | None = None
    function = ""
    for step in passes:
        nodes = step.counts.get("nodes")
        if step.function != function:
            function, before = step.function, passes[0].counts.get("nodes")
        rows.append(
            (_short(step.title), f"{step.milliseconds:.1f}", _hit(step), _nodes(before, nodes), _note(step)),
        )
        before = nodes if nodes is not None else before
    if not function and not any(step.function for step in passes):
        return columns(rows, right=(1,), width=terminal_width())
    names = ("function", *(step.function for step in passes))
    return columns([(name, *row) for name, row in zip(names, rows, strict=True)], right=(2,), width=terminal_width())


def step_json(step: StepRecord[Any]) -> dict[str, Any]:
    """One step for programs, as records have it."""
    return to_json(pass_of(step))


def explanation(name: str, pipeline: ResolvedPipeline, inside: Collection[str] = ()) -> Callable[[Steps], list[str]]:
    """What `--explain` prints once the build is done. Raises DlcError (USAGE) if the pipeline has no such step.

    Args:
        name: Of the step; "" for none.
        pipeline: The pipeline.
        inside: Passes that reading the model may run: they are reported as what reading it did.
    """
    known = pipeline.step_names
    if name in inside and name not in known:
        name = "parse"
    if name and name not in known:
        raise no_step("--explain", name, known)

    def explain(steps: Steps) -> list[str]:
        lines: list[str] = []
        for step in steps:
            if not name or _title(step, steps) != name:
                continue
            text = escape(step.spec)
            lines.append(f"{step.function}: {text}" if step.function else text)
            lines += [f"  {what} {n}" for what, n in step.counts.items()]
            lines += [f"  {escape(note)}" for note in step.report.notes]
            misses = dict.fromkeys(step.report.misses)
            lines += [
                f"  {escape(step.report.missed_as)} {escape(subject)}: {escape(reason)}" for subject, reason in misses
            ]
        return lines

    return explain


@dataclass(frozen=True)
class Dump:
    """Writes what steps gave to NNN-PASS.dlc."""

    wanted: str
    """all, changed, the name of a step, or "" for nothing."""
    directory: Path

    @classmethod
    def of(cls, wanted: str, directory: Path, pipeline: ResolvedPipeline) -> Dump:
        """Raises DlcError (USAGE) if the pipeline has no such step."""
        known = pipeline.step_names
        if wanted not in ("", "all", "changed", *known):
            raise no_step("--dump-ir", wanted, ["all", "changed", *known])
        return cls(wanted, directory)

    def last(self, steps: Steps) -> None:
        """Write the result of the last step, if it is wanted. Raises DlcError when it cannot be written."""
        step, name = steps[-1], _title(steps[-1], steps)
        # Every function of a training program begins with what was parsed.
        earlier = next((s for s in reversed(steps[:-1]) if s.function == step.function), steps[0])
        before = earlier.handle.digest if len(steps) > 1 else ""
        changed = self.wanted == "changed" and step.handle.digest != before
        if step.handle.kind == "artifact" or not (changed or self.wanted in ("all", name)):
            return
        from dlc.driver.state_text import print_state
        from dlc.files.writing import write_whole

        title = f"{step.function}-{name}" if step.function else name
        path = self.directory / f"{len(steps) - 1:03}-{title}.dlc"
        write_whole(path, print_state(step.handle.value, origins=True).encode(), make_directory=True)


def memory_line(memory: Mapping[str, int | str]) -> str:
    """`arena 8,192 B (lower bound 8,192 B, overhead 0.00 %), weights 1,024 B`, as far as it is known.

    With sizes that calls tell, a formula of what one of them needs is behind it, and single sizes with fast paths.
    """
    arena, bound, overhead = memory.get("arena"), memory.get("bound"), memory.get("overhead_percent")
    if not isinstance(arena, int):
        return ""
    against = [f"lower bound {bound:,} B"] if isinstance(bound, int) else []
    against += [f"overhead {overhead} %"] if overhead is not None else []
    whole = f"arena {arena:,} B" + (f" ({', '.join(against)})" if against else "")
    # Without a limit of sizes, nobody calls it with the largest.
    parts = [] if memory.get("arena_limit") == "none" else [whole]
    weights = memory.get("weights_bytes")
    parts += [f"weights {weights:,} B"] if isinstance(weights, int) else []
    parts += [f"arena of a call {formula} B"] if (formula := memory.get("arena_formula")) else []
    parts += [f"fast paths for {sizes}"] if (sizes := memory.get("fast_paths")) else []
    return ", ".join(parts)


def _title(step: StepRecord[Any], steps: Steps) -> str:
    """The first step is named parse, whatever the frontend is."""
    return "parse" if step is steps[0] else step.name


def _short(spec: str) -> str:
    text = escape(spec)
    return text if len(text) <= _SPEC else text[: _SPEC - 1] + "…"


def _hit(step: Pass) -> str:
    return "hit" if step.cached else "miss"


def _nodes(before: int | None, now: int | None) -> str:
    if now is None:
        return ""
    return f"{now}" if before in (None, now) else f"{before} → {now}"


def _note(step: Pass) -> str:
    """Statistics, then how much was left alone, then the step's own notes."""
    counts = [f"{what} {n}" for what, n in step.counts.items() if what != "nodes"]
    if step.missed:
        counts.append(f"{len(step.missed)} {escape(step.missed_as)} (--explain {step.name})")
    notes = [escape(note) for note in step.notes]
    return "; ".join([", ".join(counts), *notes] if counts else notes)


def no_step(flag: str, name: str, known: Sequence[str]) -> Exception:
    """What to raise when a flag names a step that does not run."""
    return error(
        "no-effect",
        f"{flag}: the pipeline has no pass {name}",
        help=did_you_mean(name, known, "passes"),
        exit_code=ExitCode.USAGE,
    )
