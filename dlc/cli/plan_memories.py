"""What `dlc plan` shows of several memories: what lies in each, how much of it is accessed, and copies between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlc.cli.terminal import columns

if TYPE_CHECKING:
    from dlc.api.plan import Plan


def memories_text(plans: Mapping[str, Plan]) -> str:
    """A table of every function whose values lie in several memories, and below it its copies; "" without any."""
    from dlc.passes.memory_regions import copies_text

    found: list[str] = []
    for name, plan in plans.items():
        if len(plan.own_regions) < 2:
            continue
        known = memories_document(plan)
        rows = [(f"memory of {name}" if name else "memory", "bytes", "accessed")]
        rows += [(m["name"], f"{m['bytes']:,} B", _bytes(m["accessed_bytes"])) for m in known["memories"]]
        if known["copies"] or known["access_cost_without_copies"] is not None:
            before = (_bytes(m["accessed_bytes_without_copies"]) for m in known["memories"])
            rows = [(*row, text) for row, text in zip(rows, ("with copies=no", *before), strict=True)]
            least = f", at least {known['access_cost_bound']:,}" if known["access_cost_bound"] else ""
            cost = f"{known['access_cost']:,}"
            if (without := known["access_cost_without_copies"]) is not None:
                cost = f"{without:,} → {cost}"
            more = f"\n{copies_text(known['copies'], known['copied_bytes'])}: accesses cost {cost}{least}"
        else:
            more = ""
        found.append(columns(rows, range(1, len(rows[0]))) + more)
    return "".join(f"\n{text}" for text in found)


def memories_document(plan: Plan) -> dict[str, Any]:
    """The same for programs; costs are relative to each other. "Without copies" is the plan that `copies=no` gives."""
    facts = plan.facts
    return {
        "memories": [
            {
                "name": name,
                "bytes": size,
                "accessed_bytes": facts.get(f"accesses {name}"),
                "accessed_bytes_without_copies": facts.get(f"accesses {name} without copies"),
            }
            for name, size in plan.own_regions.items()
        ],
        "copies": facts.get("copies", 0),
        "copied_bytes": facts.get("copied_bytes", 0),
        "access_cost": facts.get("access_cost"),
        "access_cost_without_copies": facts.get("access_cost_without_copies"),
        "access_cost_bound": facts.get("access_cost_bound"),
    }


def _bytes(n: int | None) -> str:
    return "" if n is None else f"{n:,} B"
