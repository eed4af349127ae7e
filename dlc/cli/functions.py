"""Text on the functions of a training program: what each of its steps gave, and what the program needs and learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from dlc.api.function_names import LEARNING
from dlc.base.diagnostics import escape
from dlc.cli.terminal import size

if TYPE_CHECKING:
    from dlc.cache.step_record import StepRecord

Steps = Sequence["StepRecord[Any]"]
_PARTS: Final = (
    ("parameters_bytes", "parameters"),
    ("state_bytes", "optimizer state"),
    ("gradients_bytes", "gradients"),
    ("arena_bytes", "arena"),
)


def by_function(steps: Steps) -> Mapping[str, Steps]:
    """The steps of every function, each behind those that serve all; the only entry of other builds is ""."""
    first = [step for step in steps if not step.function]
    names = dict.fromkeys(step.function for step in steps if step.function)
    return {n: [*first[:1], *(s for s in steps if s.function == n)] for n in names} or {"": steps}


def headed(texts: Mapping[str, str], mark: str = "") -> str:
    """Texts of functions, each under a line that names it; one of an ordinary build as it is."""
    return "\n".join(f"{mark}function {name}\n{text}" if name else text for name, text in texts.items())


def plan_of(steps: Steps) -> Any:
    """The last plan that a step gave, loaded: of a training program the one of the function that differentiates."""
    found = [s for s in steps if s.handle.kind == "plan"]
    learning = [s for s in found if s.function in LEARNING]
    return (learning or found)[-1].handle.value if found else None


def training_lines(memory: Mapping[str, int | str], steps: Steps) -> list[str]:
    """What a training program needs and learns; nothing for other builds."""
    peak = memory.get("peak_bytes")
    if not isinstance(peak, int):
        return []
    parts = [f"{word} {memory[key]:,} B" for key, word in _PARTS if isinstance(memory.get(key), int) and memory[key]]
    if parts and isinstance(bound := memory.get("bound"), int) and memory.get("arena_bytes"):
        parts[-1] += f" (lower bound {bound:,} B, overhead {memory.get('overhead_percent')} %)"
    words = size(peak)
    whole = f"{peak:,} B" if words.endswith(" B") else f"{words} ({peak:,} B)"
    return [f"peak memory of a training step {whole}: {', '.join(parts)}", *_learned(steps)]


def _learned(steps: Steps) -> list[str]:
    """Which weights move, and what is to be said of batch normalisations."""
    step = next((s for s in steps if s.function in LEARNING and "trained tensors" in s.counts), None)
    if step is None:
        return []
    tensors, elements, frozen = (step.counts.get(f"{k}", 0) for k in ("trained tensors", "trained elements", "frozen"))
    lines = [f"trained: {_count(tensors)}, {elements:,} elements; frozen: {_count(frozen)}"]
    return [*lines, *(escape(note) for note in step.report.notes)]


def _count(tensors: int) -> str:
    return f"{tensors:,} tensor{'' if tensors == 1 else 's'}"
