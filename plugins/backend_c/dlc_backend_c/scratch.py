"""Where kernels find working memory: in gaps between what is alive, behind the plan only where no gap has room."""

from collections.abc import Iterable, Sequence

from dlc.plan import Plan
from dlc_backend_c.weights import ALIGN

Span = tuple[int, int]
"""First byte and the one behind the last."""


def scratch_offsets(plan: Plan, needs: Sequence[int]) -> tuple[int, ...]:
    """The offset in the arena of each step's working memory, a multiple of `ALIGN`.

    Args:
        plan: With places; whatever is alive while a step runs, its arguments and results included, stays untouched.
        needs: Bytes that each step works in; 0: none.
    """
    alive: list[list[Span]] = [[] for _ in plan.steps]
    born = {i.digest: 0 for i in plan.kept} | {d: k for d, (k, _) in plan.values.items() if d in plan.slots}
    for digest, first in born.items():
        slot = plan.slots[digest]
        for spans in alive[first : max(plan.last_uses.get(digest, first), first) + 1]:
            spans.append((slot.offset, slot.offset + slot.size))
    return tuple(_gap(spans, need) for spans, need in zip(alive, needs, strict=True))


def _gap(spans: Iterable[Span], need: int) -> int:
    """The lowest aligned offset with `need` free bytes behind it."""
    end = 0
    for first, behind in sorted(spans):
        if first - end >= need:
            break
        end = max(end, -(-behind // ALIGN) * ALIGN)
    return end
